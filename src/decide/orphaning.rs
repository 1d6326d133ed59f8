//! The objects that would lose an owner (question 7 in docs/THEORY.md).

use super::causes::MAX_LISTED_CAUSES;
use super::item::{JudgedObject, object_name};
use super::judgement::Judgement;
use super::owners::{OwnerState, owner_state};
use super::{Cause, ObjectName, Reason, Situation};
use crate::graph::{Fates, Node, Propagation};
use crate::objects::ORPHAN;

/// Denies a deletion that orphans protected dependents, or that orphans the dependents of
/// a protected owner.
pub(super) fn judge_orphaning<'a>(
    judgement: &mut Judgement<'a>,
    fates: &Fates,
    target: &JudgedObject<'a>,
    propagation: Propagation,
) {
    let situation = judgement.situation;
    let graph = situation.graph;
    let mut dependents: Vec<Node<'a>> =
        fates.may_be_orphaned().filter_map(|id| graph.get(id)).collect();
    // The graph may not have the owner yet.
    if target.node.is_none() && propagation == Propagation::Orphan {
        dependents.extend(graph.possible_dependents(target.uid(), target.facts.namespace));
    }
    if dependents.is_empty() {
        return;
    }
    dependents.retain(|node| {
        is_orphaned_by_an_owner(*node, (target, propagation), fates)
            || !keeps_an_owner(&situation, *node, target, fates)
    });
    dependents.sort_by_key(|node| (node.kind(), node.namespace(), node.name()));
    for node in &dependents {
        let item = JudgedObject::of_node(&situation, *node);
        let applied = judgement.binding_policies(&item);
        // An approval of one owner does not cover a dependent that another owner keeps.
        let is_covered =
            propagation == Propagation::Orphan && !keeps_an_owner(&situation, *node, target, fates);
        judgement.judge_with_coverage(is_covered, |judgement| {
            for applied in applied.iter().filter(|applied| applied.policy.modes.from_orphaning) {
                let owner = orphaning_owner(*node, (target, propagation), fates);
                let causes = vec![Cause::Owner(owner)];
                judgement.add_finding(applied, &item, Reason::WouldOrphan, (causes, 0));
            }
        });
    }
    if propagation != Propagation::Orphan || dependents.is_empty() {
        return;
    }
    for applied in judgement.binding_policies(target) {
        if applied.policy.modes.from_orphaning {
            let listed = dependents.iter().take(MAX_LISTED_CAUSES);
            let causes = listed.map(|node| Cause::Dependent(object_name(*node))).collect();
            let more = dependents.len().saturating_sub(MAX_LISTED_CAUSES);
            judgement.judge_with_coverage(true, |judgement| {
                judgement.add_finding(&applied, target, Reason::WouldOrphan, (causes, more));
            });
        }
    }
}

/// Whether the garbage collector will remove the reference to a deleted owner from this
/// dependent. It does so even if another owner remains.
fn is_orphaned_by_an_owner(
    node: Node<'_>,
    (target, propagation): (&JudgedObject<'_>, Propagation),
    fates: &Fates,
) -> bool {
    propagation == Propagation::Orphan && refers_to(node, target)
        || node.existing_owners().any(|owner| orphans_dependents(owner, target, fates))
}

fn refers_to(node: Node<'_>, target: &JudgedObject<'_>) -> bool {
    node.owner_refs().any(|owner_ref| owner_ref.uid == target.uid())
}

/// Whether this owner is another object than the target and may be deleted with it.
fn may_be_lost_with(target: &JudgedObject<'_>, owner: Node<'_>, fates: &Fates) -> bool {
    owner.uid() != target.uid() && fates.may_be_lost(owner.id())
}

/// Whether this owner may be deleted with the target and has the finalizer `orphan`.
fn orphans_dependents(owner: Node<'_>, target: &JudgedObject<'_>, fates: &Fates) -> bool {
    may_be_lost_with(target, owner, fates) && owner.finalizers().contains(ORPHAN)
}

/// Whether another solid owner remains.
fn keeps_an_owner(
    situation: &Situation<'_>,
    node: Node<'_>,
    target: &JudgedObject<'_>,
    fates: &Fates,
) -> bool {
    node.owner_refs().any(|owner_ref| {
        owner_ref.uid != target.uid()
            && match owner_state(situation, node.namespace(), &owner_ref) {
                OwnerState::Solid(owner) => !situation
                    .graph
                    .find_counterpart(owner)
                    .is_some_and(|o| fates.may_be_lost(o.id())),
                _ => false,
            }
    })
}

/// The owner that the message names: the target if its dependents are orphaned, otherwise an owner
/// whose deletion with the target orphans them. If there is neither, the first owner that may be
/// deleted with the target, or the target.
fn orphaning_owner(
    node: Node<'_>,
    (target, propagation): (&JudgedObject<'_>, Propagation),
    fates: &Fates,
) -> ObjectName {
    if propagation == Propagation::Orphan && refers_to(node, target) {
        return target.object_name();
    }
    let mut owners = node.existing_owners();
    let orphaning = owners.find(|owner| orphans_dependents(*owner, target, fates));
    let lost = || {
        let mut owners = node.existing_owners().filter(|_| !refers_to(node, target));
        owners.find(|owner| may_be_lost_with(target, *owner, fates))
    };
    orphaning.or_else(lost).map_or_else(|| target.object_name(), object_name)
}
