//! The protocol, model-checked.
//!
//! The deciding code is the real one: [`super::Release`], [`super::check_use`] over a
//! real graph read from manifests by the real catalogue, and the real patches,
//! applied to a manifest. What is modelled is the world around it.
//!
//! * `race` is about time and order: the API server's storage, lists that are
//!   each a snapshot at its own moment, answers that get lost, writes that
//!   land late, two leaders that may both pause at any point, and objects that
//!   are created, changed and deleted meanwhile.
//! * `deadlock` is about who waits for whom: the garbage collector and the
//!   namespace controller by the rules of docs/THEORY.md.
//! * `admission` is about a hold that is added during a DELETE.
//!
//! Each guard can be taken out, and then the checker has to find what it is
//! there for. `BELAY_MODEL=2` (or more) makes everything larger.

mod admission;
mod deadlock;
mod manifests;
mod race;
mod story;
mod tests;
