//! Question 7 of a DELETE, and its second line: who would lose an owner.

use super::causes::LISTED;
use super::item::{Item, object_name};
use super::judgement::Judgement;
use super::owners::{OwnerState, owner_state};
use super::{Cause, ObjectName, Reason, Situation};
use crate::graph::{Fates, Node, OwnerClaim, Propagation};
use crate::objects::ORPHAN;

/// Refuses what would leave protected objects without their owner, or a
/// protected owner without its dependents.
pub(super) fn refuse_orphaning<'a>(
    judgement: &mut Judgement<'a>,
    fates: &Fates,
    target: &Item<'a>,
    propagation: Propagation,
) {
    let situation = judgement.situation;
    let graph = situation.graph;
    let mut dependents: Vec<Node<'a>> =
        fates.may_be_orphaned().filter_map(|id| graph.get(id)).collect();
    // The graph may not have seen the owner yet.
    if target.node.is_none() && propagation == Propagation::Orphan {
        dependents.extend(graph.dependents_within(target.uid(), target.facts.namespace));
    }
    if dependents.is_empty() {
        return;
    }
    dependents.retain(|node| {
        loses_a_living_owner(&situation, *node, (target, propagation), fates)
            || !keeps_an_owner(&situation, *node, target, fates)
    });
    dependents.sort_by_key(|node| (node.kind(), node.namespace(), node.name()));
    for node in &dependents {
        let item = Item::of_node(&situation, *node);
        let applied = judgement.binding_policies(&item);
        if keeps_an_owner(&situation, *node, target, fates) {
            // An approval of one owner does not cover what another one keeps.
            judgement.set_content(false);
        }
        for applied in applied.iter().filter(|applied| applied.policy.modes.from_orphaning) {
            let causes = vec![Cause::Owner(deleted_owner(&situation, *node, target, fates))];
            judgement.refuse(applied, &item, Reason::WouldOrphan, (causes, 0));
        }
        judgement.set_content(propagation == Propagation::Orphan);
    }
    if propagation != Propagation::Orphan || dependents.is_empty() {
        return;
    }
    for applied in judgement.binding_policies(target) {
        if applied.policy.modes.from_orphaning {
            let listed = dependents.iter().take(LISTED);
            let causes = listed.map(|node| Cause::Dependent(object_name(*node))).collect();
            let more = dependents.len().saturating_sub(LISTED);
            judgement.refuse(&applied, target, Reason::WouldOrphan, (causes, more));
        }
    }
}

/// Whether an owner goes and leaves this one behind, as the collector's patch
/// will show: with such an owner another one that stays is no excuse.
fn loses_a_living_owner(
    situation: &Situation<'_>,
    node: Node<'_>,
    (target, propagation): (&Item<'_>, Propagation),
    fates: &Fates,
) -> bool {
    let graph = situation.graph;
    let of_target = |claim: &OwnerClaim<'_>| claim.uid == target.uid();
    let orphans = |owner: Node<'_>| {
        owner.uid() != target.uid()
            && fates.may_be_lost(owner.id())
            && owner.finalizers().contains(ORPHAN)
    };
    (propagation == Propagation::Orphan && node.claims().any(|claim| of_target(&claim)))
        || node.owners().iter().filter_map(|owner| graph.owner(node, owner)).any(orphans)
}

/// Whether another solid owner stays.
fn keeps_an_owner(
    situation: &Situation<'_>,
    node: Node<'_>,
    target: &Item<'_>,
    fates: &Fates,
) -> bool {
    node.claims().any(|claim| {
        claim.uid != target.uid()
            && match owner_state(situation, node.namespace(), &claim) {
                OwnerState::Solid(owner) => {
                    !situation.graph.same(owner).is_some_and(|o| fates.may_be_lost(o.id()))
                }
                _ => false,
            }
    })
}

/// The owner whose end leaves the dependent behind: the target, or one that
/// goes along with it and carries the finalizer `orphan`.
fn deleted_owner(
    situation: &Situation<'_>,
    node: Node<'_>,
    target: &Item<'_>,
    fates: &Fates,
) -> ObjectName {
    let graph = situation.graph;
    let owners = node.owners().iter().filter_map(|owner| graph.owner(node, owner));
    let goes = |owner: &Node<'_>| owner.uid() != target.uid() && fates.may_be_lost(owner.id());
    let own = node.claims().any(|claim| claim.uid == target.uid());
    match owners.into_iter().find(goes).filter(|_| !own) {
        Some(owner) => object_name(owner),
        None => target.object_name(situation),
    }
}
