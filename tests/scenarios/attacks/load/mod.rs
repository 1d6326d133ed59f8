//! Attacks that give the machine much work. `make test` runs them alone.

mod backfill;
mod bounds;
mod filling;
mod live;
