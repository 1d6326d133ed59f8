//! CREATE of pods/eviction: the API server deletes the Pod without a DELETE review.

use super::delete::decide_delete_with_alternative;
use super::item::JudgedObject;
use super::judgement::Judgement;
use super::{Cause, DenialStatus, Review, Situation, Verdict};

pub(super) fn evict(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(kind) = situation.graph.kinds.find("", "Pod") else {
        return Verdict::allow(review.target());
    };
    // The object in the review is an Eviction, which names the Pod.
    let (namespace, name) = (review.namespace.as_str(), review.target_name());
    let cached = situation.graph.object(kind, namespace, name);
    let live = situation.live_object(kind, namespace, name);
    // The labels of a Pod in a stale graph may be old (H137).
    let cached = cached.filter(|_| situation.graph.is_current(kind));
    let Some(pod) = live.unwrap_or(cached) else {
        // The absence of the Pod must be known, because an unwatched Pod may have the
        // label. The Eviction has the name and namespace of the Pod.
        let Some(object) = &review.object else { return Verdict::allow(review.target()) };
        let target = JudgedObject::of_review(situation, review, object);
        let mut judgement = Judgement::new(situation, review);
        let read = situation.read_of_object(kind, namespace, name);
        if situation.is_unread(&read) {
            judgement.require_reads_for_any_action([read]);
        } else if live.is_none() && !situation.graph.proves_absence(kind, namespace, name) {
            let (why, next) = situation.why_unknown(kind, namespace);
            let what = format!("belay does not know all objects of kind Pod: {why}");
            let unknown = Cause::Unknown(what, next);
            // This includes the policies of the label: belay knows labelled Pods only if
            // `--labelled-kinds` contains them.
            judgement.add_findings_for_unknown_objects(&target, &unknown, |policy| {
                policy.names_kind("", "pods")
            });
        }
        return Verdict {
            denial_status: DenialStatus::TooManyRequests,
            ..judgement.verdict(&[target])
        };
    };
    let verdict =
        decide_delete_with_alternative(situation, review, &JudgedObject::of_node(situation, pod));
    Verdict { denial_status: DenialStatus::TooManyRequests, ..verdict }
}
