//! Attacks that load the machine. `make test` runs them without other tests.

mod backfill;
mod bounds;
mod filling;
mod live;
