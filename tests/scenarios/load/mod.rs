//! Tests that load the machine. `make test` runs them without other tests, which they would
//! delay.

mod large;
