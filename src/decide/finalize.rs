//! UPDATE of namespaces/finalize: what keeps a Namespace in storage goes.

use super::delete::content_is_left;
use super::item::Item;
use super::judgement::Judgement;
use super::update::changes;
use super::{Review, Situation, Verdict};
use crate::objects::KeyedSet;

/// Whoever asks, the namespace controller too: it asks when it believes that
/// nothing is left.
pub(super) fn finalize(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(old) = &review.old_object else { return Verdict::allow(review.target()) };
    let target = Item::of_review(situation, review, old);
    let mut judgement = Judgement::new(situation, review);
    let left: KeyedSet<&String> = review.extra.new_spec_finalizers.iter().collect();
    if review.extra.old_spec_finalizers.iter().any(|finalizer| !left.contains(finalizer)) {
        content_is_left(&mut judgement, &target);
    }
    // This subresource takes metadata.finalizers, too.
    changes(&mut judgement, review, &target);
    judgement.verdict(&[target])
}
