//! CREATE of pods/eviction: the Pod would be deleted, with no DELETE that a
//! webhook sees.

use super::delete::take;
use super::item::Item;
use super::judgement::Judgement;
use super::{Answer, Review, Situation, Verdict};
use crate::graph::Propagation;

pub(super) fn evict(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let graph = situation.graph;
    // The object in the review is an Eviction; the Pod is what it names.
    let pod = graph
        .kinds
        .find("", "Pod")
        .and_then(|kind| graph.find(kind, &review.namespace, review.target_name()))
        .and_then(|id| graph.get(id));
    // One that is Terminating is on its way.
    let Some(pod) = pod.filter(|pod| !pod.is_terminating()) else {
        return Verdict::allow(review.target());
    };
    let target = Item::of_node(situation, pod);
    let mut judgement = Judgement::new(situation, review);
    take(&mut judgement, &target, Propagation::Background);
    Verdict { answer: Answer::TooManyRequests, ..judgement.verdict(&target) }
}
