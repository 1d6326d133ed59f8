//! A review in, a verdict out.
//!
//! Nothing here waits, reads a clock or talks to anybody: a verdict is a
//! value, and the functions that render it for a person, an audit log or an
//! API server are separate functions over that value. What has to be read live
//! before a verdict is final stands in it as data ([`LiveRead`]); whoever
//! carries it out asks again with what was found ([`Live`]).
//!
//! ```text
//!  Review ─► one file a question ─► Judgement ─► Verdict ─► message, warnings,
//!             delete  update          policies bind,          audit annotations,
//!             create  finalize        exempt; actions;        JSON patch
//!             evict                   approvals
//! ```

mod ancestors;
mod approved;
mod cascade;
mod causes;
mod content;
mod create;
mod delete;
mod evict;
mod excess;
mod existence;
mod finalize;
#[cfg(test)]
mod inputs;
mod item;
mod judgement;
mod lets_go;
mod orphaning;
mod owners;
mod render;
mod review;
mod situation;
mod unreadable;
mod update;
mod users;
mod verdict;

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod tests;

// What the release and the plans share with verdicts.
pub(crate) use ancestors::Records;
pub(crate) use approved::{Consent, approved, consent, uncounted};
pub(crate) use cascade::{Refusal, refusal_in_cascade};
pub(crate) use create::{Harm, harm, is_harm, is_harm_on_kind};
pub use delete::decide_together;
pub use existence::{Existence, target_existence};
pub(crate) use item::{HARMLESS, Item, named};
pub use render::{audit_annotations, causes, message, patch, warnings};
pub(crate) use render::{cause, named_by, sentence, ways};
pub use review::{DeleteOptions, Door, Extra, Operation, Resource, Review, User};
pub use situation::{Live, LiveRead, LiveReads, Situation};
pub use unreadable::{
    FailurePolicy, decide_paused, decide_unconfirmed, decide_unknown, decide_unreadable,
};
pub(crate) use users::counting_users;
pub use verdict::{
    Answer, Blocker, Cause, Counts, Decision, Exemption, HoldChange, HoldPlace, Named, Passed,
    Reason, Recorded, Revoked, Uncounted, Verdict,
};

use crate::graph::{StepBudget, StepLimit};

/// The verdict on a review. It is final when nothing is left to confirm; until
/// then it says what it would be if the reads found nothing new.
///
/// The work is bounded. What takes more is Unknown.
pub fn decide(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    decide_within(situation, review, &StepBudget::new(STEPS))
}

/// So many steps a review may take, however often it is decided again. The largest cascade that is followed
/// ([`delete`]) takes a quarter of them.
pub(crate) const STEPS: usize = 16_000_000;

/// The same within a budget, of which decisions before may have used a part.
pub fn decide_within(
    situation: &Situation<'_>,
    review: &Review<'_>,
    budget: &StepBudget,
) -> Verdict {
    let situation = &Situation { work: StepLimit::new(budget), ..*situation };
    existence::of_unknown_container(situation, review)
        .unwrap_or_else(|| existence::of_existing(situation, review, answer(situation, review)))
}

/// The verdict, if the object of the review exists.
fn answer(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let resource = &review.resource;
    let subresource = resource.subresource.as_str();
    let is = |group: &str, name: &str| resource.group == group && resource.resource == name;
    match (review.door, review.operation) {
        (Door::Mutate, Operation::Create) if subresource.is_empty() => {
            create::create(situation, review)
        }
        (Door::Mutate, Operation::Update) => update::put_back(situation, review),
        (Door::Validate, Operation::Delete) if subresource.is_empty() => {
            delete::delete(situation, review)
        }
        (Door::Validate, _) if review.evicts() => evict::evict(situation, review),
        (Door::Validate, Operation::Update)
            if is("", "namespaces") && subresource == "finalize" =>
        {
            finalize::finalize(situation, review)
        }
        (Door::Validate, Operation::Update) => update::update(situation, review),
        _ => Verdict::allow(review.target()),
    }
}
