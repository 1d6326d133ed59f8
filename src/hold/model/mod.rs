//! The protocol, model-checked.
//!
//! What decides is the real thing: [`super::Release`], [`super::count`] over a
//! real graph read from manifests by the real catalogue, and the real patches,
//! applied to a manifest. What is modelled is the world around it.
//!
//! * `race` is about time and order: the API server's storage, lists that are
//!   each a snapshot at its own moment, answers that get lost, writes that
//!   land late, two leaders of which either may stand still at any point, and
//!   objects that come, go and change meanwhile.
//! * `deadlock` is about who waits for whom: the garbage collector and the
//!   namespace controller by the rules of docs/THEORY.md.
//! * `admission` is about a hold that is put on while a DELETE is under way.
//!
//! Each guard can be taken out, and then the checker has to find what it is
//! there for. `BELAY_MODEL=2` (or more) makes everything larger.

mod admission;
mod deadlock;
mod manifests;
mod race;
mod story;
mod tests;
