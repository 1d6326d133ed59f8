//! Labels and annotations change so that a policy would let go of an object:
//! that takes the same approval as deleting it.

use super::item::Item;
use super::judgement::Judgement;
use super::{Cause, Reason, Review};
use crate::policy::{Applied, Facts, Pairs};

pub(super) fn lets_go<'a>(
    judgement: &mut Judgement<'a>,
    review: &'a Review<'a>,
    target: &Item<'a>,
) {
    let Some(new) = &review.object else { return };
    let situation = judgement.situation;
    let now = situation.now;
    let after = Item::of_review(&situation, review, new).facts;
    let before = judgement.binding(target);
    refuse_what_goes(judgement, target, &before, &situation.applied(after));

    if !target.facts.is_namespace() || !labels_differ(target.facts, after) {
        return;
    }
    // The labels of a Namespace decide about what is in it, too.
    let reads_places = situation.policies.iter().any(|policy| policy.reads_places());
    let Some(place) = target.place.filter(|_| reads_places) else { return };
    let places = situation.places().with(target.facts.name, after.labels);
    for node in situation.graph.members(place).filter_map(|id| situation.graph.get(id)) {
        let facts = Facts::of_node(situation.graph, node);
        let mut before = situation.policies.of(situation.places(), facts, now);
        before.retain(|applied| applied.policy.reads_places());
        if before.is_empty() {
            continue;
        }
        before.retain(|applied| applied.policy.binds(review.user.person()));
        let after = situation.policies.of(places, facts, now);
        refuse_what_goes(judgement, target, &before, &after);
    }
}

/// A policy that applies before, and not after, or with a milder action.
fn refuse_what_goes<'a>(
    judgement: &mut Judgement<'a>,
    target: &Item<'a>,
    before: &[Applied<'a>],
    after: &[Applied<'a>],
) {
    for applied in before {
        let stays = after.iter().any(|other| {
            std::ptr::eq(other.policy, applied.policy) && other.action >= applied.action
        });
        if !stays {
            judgement.refuse(applied, target, Reason::Protected, (vec![Cause::LetsGo], 0));
        }
    }
}

fn labels_differ(before: Facts<'_>, after: Facts<'_>) -> bool {
    match (before.labels, after.labels) {
        (Pairs::Texts(before), Pairs::Texts(after)) => before != after,
        _ => true,
    }
}
