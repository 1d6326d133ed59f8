//! UPDATE of namespaces/finalize: what keeps a Namespace in storage goes.

use super::delete::refuse_remaining_content;
use super::item::Item;
use super::judgement::Judgement;
use super::update::judge_changes;
use super::{Review, Situation, Verdict};
use crate::objects::KeyedSet;

/// Whoever asks, the namespace controller too: it asks when it believes that
/// nothing is left.
pub(super) fn finalize(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(old) = &review.old_object else { return Verdict::allow(review.target()) };
    let target = Item::of_review(situation, review, old);
    let mut judgement = Judgement::new(situation, review);
    let left: KeyedSet<&String> = review.details.new_spec_finalizers.iter().collect();
    if review.details.old_spec_finalizers.iter().any(|finalizer| !left.contains(finalizer)) {
        refuse_remaining_content(&mut judgement, &target);
    }
    // This subresource takes metadata.finalizers, too.
    judge_changes(&mut judgement, review, &target);
    judgement.verdict(&[target])
}
