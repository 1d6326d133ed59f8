//! Tests that give the machine much work. `make test` runs them alone, because
//! they would delay the others.

mod large;
