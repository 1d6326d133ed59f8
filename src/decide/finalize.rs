//! UPDATE of namespaces/finalize, which removes a Namespace from storage.

use super::delete::judge_remaining_content;
use super::item::JudgedObject;
use super::judgement::Judgement;
use super::update::judge_changes;
use super::{Review, Situation, Verdict};
use crate::objects::KeyedSet;

/// Judges requests of all users, also of the namespace controller, which sends this request
/// when it finds no content.
pub(super) fn finalize(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(old) = &review.old_object else { return Verdict::allow(review.target()) };
    let target = JudgedObject::of_review(situation, review, old);
    let mut judgement = Judgement::new(situation, review);
    let remaining: KeyedSet<&String> = review.details.new_spec_finalizers.iter().collect();
    if review.details.old_spec_finalizers.iter().any(|finalizer| !remaining.contains(finalizer)) {
        judge_remaining_content(&mut judgement, &target);
    }
    // This subresource also changes metadata.finalizers.
    judge_changes(&mut judgement, review, &target);
    judgement.verdict(&[target])
}
