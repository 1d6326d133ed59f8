//! Model checks of the release.
//!
//! The checks run the code of the program: [`super::Release`], its patches, and
//! [`super::check_use`] on graphs that the catalogue reads from manifests. The models contain
//! only the rest of the cluster.
//!
//! * `race` models time and order: the storage of the API server, lists at different times,
//!   lost answers, late writes, two leaders that may pause at any point, and users that are
//!   created, changed and deleted during a release.
//! * `deadlock` models objects that wait for each other. The garbage collector and the
//!   namespace controller follow the rules of docs/THEORY.md.
//! * `admission` models a hold that belay adds during a DELETE.
//!
//! For each guard of the protocol, a test disables the guard and requires the checker to find
//! a counterexample. The test of the deletionTimestamp is the exception: without it, the test of
//! the uid is enough. `BELAY_MODEL=2` (or more) makes `race` and `admission` larger.

mod admission;
mod checker;
mod deadlock;
mod manifests;
mod race;
mod tests;
