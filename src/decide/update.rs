//! UPDATE: finalizers, owner references and labels. An update must not get around a
//! policy that denies a DELETE.

use super::ancestors::{AncestorApprovalSummary, ExemptionRecords};
use super::approved::sufficient_approvals;
use super::content::Container;
use super::delete::{AffectedObjects, DeletionTarget, judge_affected, judge_deletion};
use super::item::{JudgedObject, object_name};
use super::judgement::Judgement;
use super::list_limits::judge_long_lists;
use super::owners::{DeletionSearch, MAX_OWNERS_READ, OwnerState, owner_state};
use super::protection_changes::judge_weaker_protection;
use super::stripping::judge_finalizer_removal;
use super::{
    Cause, HoldChange, HoldPosition, LiveRead, NextStep, ObjectName, Reason, Review, Situation,
    Verdict, is_hold_unsafe_on_kind,
};
use crate::graph::{MAX_LIST_ENTRIES, Node, OwnerRef, Propagation};
use crate::objects::{KeyedSet, KindId, ORPHAN, ObjectRef, Uid};
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, ObjectFacts};

/// The validating phase.
pub(super) fn update(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(old) = &review.old_object else { return Verdict::allow(review.target()) };
    let target = JudgedObject::of_review(situation, review, old);
    // belay itself releases holds.
    if situation.policies.identities.is_own(&review.user.name) {
        return Verdict::allow(target.object_ref());
    }
    let mut judgement = Judgement::new(situation, review);
    if !judge_long_lists(&mut judgement, review, &target) {
        judge_changes(&mut judgement, review, &target);
    }
    judgement.verdict(&[target])
}

/// Checks all changes by which an UPDATE could get around a policy.
pub(super) fn judge_changes<'a>(
    judgement: &mut Judgement<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) {
    let applied = judgement.binding_policies(target);
    if review.removes_hold() {
        // The mutating phase restores the hold of an object that is not Terminating. If
        // that phase was skipped, this phase denies the removal.
        judge_hold_removal(judgement, target);
    }
    judge_finalizer_removal(judgement, review, target, &applied);
    judge_orphan_removal(judgement, review, target);
    judge_owner_changes(judgement, review, target, &applied);
    judge_weaker_protection(judgement, review, target);
}

/// The mutating phase for a request that removes the hold from an object that is not
/// Terminating.
pub(super) fn restore_hold(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else {
        return Verdict::allow(review.target());
    };
    let target = JudgedObject::of_review(situation, review, old);
    let own = situation.policies.identities.is_own(&review.user.name);
    if own || !review.removes_hold() || old.is_terminating() {
        return Verdict::allow(target.object_ref());
    }
    let mut judgement = Judgement::new(situation, review);
    judge_hold_removal(&mut judgement, &target);
    let verdict = judgement.verdict(&[target]);
    if verdict.decision.passes() || !review.details.rest_changes {
        return verdict;
    }
    // A PUT or an apply from Git replaces the object without the hold. belay allows the
    // other changes and restores the hold at its index, so that a repeated apply writes
    // nothing.
    let index = old.hold().map_or(0, |hold| hold.index);
    let place = HoldPosition::in_list(new, index);
    let hold = Some(HoldChange { position: place, restored: true });
    Verdict { hold, ..Verdict::allow(target.object_ref()) }
}

/// Denies the removal of a hold that a policy still wants, also for users whom the policy
/// doesn't bind or exempts: only belay releases holds. Where belay releases no holds, it
/// adds none and guards none.
fn judge_hold_removal<'a>(judgement: &mut Judgement<'a>, target: &JudgedObject<'a>) {
    let Situation { policies, .. } = judgement.situation;
    let ObjectFacts { group, resource, .. } = target.facts;
    if is_hold_unsafe_on_kind(group, resource) {
        return;
    }
    let applied = judgement.situation.policies_of(target.facts);
    let holds = |applied: &&AppliedPolicy<'_>| {
        applied.policy.places_hold() && policies.releases_holds_of(applied.policy, group, resource)
    };
    for applied in applied.iter().filter(holds) {
        let causes = vec![Cause::Hold { terminating: target.is_terminating() }];
        judgement.add_finding_for_exempt_too(applied, target, Reason::FinalizerGuarded, causes);
    }
}

/// After the removal of the finalizer `orphan` the garbage collector deletes the
/// dependents of a Terminating owner, as after a DELETE with Background.
fn judge_orphan_removal<'a>(
    judgement: &mut Judgement<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) {
    let situation = judgement.situation;
    let Some(new) = &review.object else { return };
    let orphans = |item: &JudgedObject<'_>| item.finalizers().contains(&ORPHAN);
    if target.is_terminating()
        && orphans(target)
        && !orphans(&JudgedObject::of_review(&situation, review, new))
        && !situation.policies.identities.is_control_plane(&review.user.name)
    {
        judge_deletion(judgement, &[DeletionTarget::new(*target, Propagation::Background)]);
    }
}

/// Checks changes of owner references: the object must not lose a protected owner, and
/// new owners must not lead to a deletion that the policies deny.
fn judge_owner_changes<'a>(
    judgement: &mut Judgement<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
    applied: &[AppliedPolicy<'a>],
) {
    let situation = judgement.situation;
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else { return };
    // Most updates don't change owner references.
    if old.metadata.owner_references == new.metadata.owner_references {
        return;
    }
    let identities = &situation.policies.identities;
    let by_control_plane = identities.is_control_plane(&review.user.name);
    let by_collector = identities.is_garbage_collector(&review.user.name);
    let [had, has] = [old, new].map(|object| object.metadata.owner_references.len());
    if had.max(has) > MAX_LIST_ENTRIES {
        // The garbage collector only removes references that keep nothing.
        if !by_collector || has >= had {
            judge_many_owner_changes(judgement, target, by_collector);
        }
        return;
    }
    let before = target.owners(&situation);
    let after = JudgedObject::of_review(&situation, review, new).owners(&situation);
    situation.work.charge(before.len() + after.len());
    // A reference that is changed to an unserved version names the same owner, but the
    // garbage collector can't find it.
    let resolves = |claim: &&OwnerRef<'_>| {
        let standing = owner_state(&situation, target.facts.namespace, claim);
        !matches!(standing, OwnerState::Unresolved)
    };
    let unchanged: KeyedSet<_> = after.iter().map(|c| (owner_identity(c), c.version)).collect();
    let stayed: KeyedSet<_> = after.iter().filter(resolves).map(owner_identity).collect();
    let had: KeyedSet<_> = before.iter().map(owner_identity).collect();
    let stays = |claim: &OwnerRef<'_>| {
        stayed.contains(&owner_identity(claim))
            || unchanged.contains(&(owner_identity(claim), claim.version))
    };
    let gone: Vec<_> = before.iter().filter(|claim| !stays(claim)).collect();
    let came = after.iter().filter(|claim| !had.contains(&owner_identity(claim)));
    let came: Vec<_> = came.copied().collect();
    // An added reference without an owner is dangling, and the garbage collector removes
    // references by uid: also those of an owner that exists.
    let added_uids: KeyedSet<_> = came.iter().map(|claim| claim.uid).collect();
    let repeated = before.iter().filter(|c| stays(c) && added_uids.contains(&c.uid));
    let repeated: Vec<_> = repeated.collect();
    let of = |claim: &OwnerRef<'_>| owner_state(&situation, target.facts.namespace, claim);
    let keeping = after.iter().filter(|claim| matches!(of(claim), OwnerState::Solid(_)));
    let keeping: Vec<_> = keeping.collect();
    let kept = !keeping.is_empty();
    // The StatefulSet controller replaces the StatefulSet as the owner of a claim by a
    // Pod. Users may have added the remaining owner for this purpose.
    let replaces = by_collector || (by_control_plane && is_persistent_volume_claim(target));
    if !kept || !replaces {
        let removed = gone.iter().chain(&repeated);
        let unread = removed.filter(|claim| matches!(of(claim), OwnerState::Unresolved));
        let unread: Vec<_> = unread.filter_map(|claim| unread_owner(&situation, claim)).collect();
        if unread.len() > MAX_OWNERS_READ {
            judge_unknown_owners(judgement, target, &format!("{} unread", unread.len()));
        } else {
            judgement.require_reads_for_any_action(unread);
        }
        let still_kept = keeping.iter().any(|claim| had.contains(&owner_identity(claim)));
        for claim in &gone {
            judge_owner_removal(judgement, target, (applied, still_kept), claim, Cause::Owner);
        }
        for claim in &repeated {
            let cause = Cause::RepeatedUid;
            judge_owner_removal(judgement, target, (applied, still_kept), claim, cause);
        }
    }
    // The garbage collector removes references that keep nothing.
    let collects = came.is_empty() && by_control_plane;
    let mut removed = gone.iter().chain(&repeated);
    let lost = removed.any(|claim| !matches!(of(claim), OwnerState::Absent));
    if after.is_empty() || (came.is_empty() && !lost) || (collects && kept) {
        return;
    }
    // The removed owner may have prevented the deletion of the object.
    let new = if lost { &after } else { &came };
    let member = DeletionTarget::new(*target, Propagation::Background);
    let closure = AffectedObjects::with_dependents(&situation, &member);
    let opens = !collects && widens_deletion(judgement, target, (applied, &closure), (new, &after));
    if opens {
        judgement.deny_instead_of_hold();
    } else if kept || target.is_terminating() {
        return;
    }
    // The garbage collector deletes an object whose owners are all absent or Terminating.
    judge_affected(judgement, &[member], &closure);
    if !opens && !judgement.is_empty() && after.len() <= MAX_OWNERS_READ {
        // The graph may lag behind the creation of an owner.
        judgement.require_reads_for_any_action(
            after.iter().filter_map(|claim| unread_owner(&situation, claim)),
        );
    }
}

/// Checks a change of more owner references than belay compares: any of them may be added
/// or removed.
fn judge_many_owner_changes<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    by_collector: bool,
) {
    if !by_collector {
        judge_unknown_owners(judgement, target, &format!("more than {MAX_LIST_ENTRIES}"));
    }
    judgement.deny_instead_of_hold();
    let member = DeletionTarget::new(*target, Propagation::Background);
    let closure = AffectedObjects::with_dependents(&judgement.situation, &member);
    judge_affected(judgement, &[member], &closure);
}

/// Denies a change of more owner references than belay checks.
fn judge_unknown_owners<'a>(judgement: &mut Judgement<'a>, target: &JudgedObject<'a>, count: &str) {
    let says = format!("changes {count} owner references, which is more than belay checks");
    judgement.add_unknown(target, &Cause::TooLarge(says), |policy| policy.modes.from_orphaning);
}

/// Whether new owners allow a deletion of the object or its dependents that a DELETE of
/// the object does not allow. An owner does so if it or an owner above it has an approval
/// or an exemption record or is being deleted, or if it is cluster-scoped. Any owner does
/// so if a policy lets_exempt_subjects_delete to users who may delete the owner.
fn widens_deletion<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    (applied, closure): (&[AppliedPolicy<'a>], &AffectedObjects),
    (new, after): (&[OwnerRef<'_>], &[OwnerRef<'_>]),
) -> bool {
    let situation = judgement.situation;
    // The closure does not have all content of a Namespace or CRD.
    let mut protected = Container::from_item(target).is_some() || !closure.is_complete();
    let mut lets_exempt_subjects_delete = !closure.is_complete();
    let mut look = |applied: &[AppliedPolicy<'_>]| {
        let denying = applied.iter().filter(|applied| applied.action == Action::Deny);
        denying.for_each(|applied| {
            protected = true;
            lets_exempt_subjects_delete |= applied.policy.lets_exempt_subjects_delete();
        });
    };
    look(applied);
    for node in closure.lost(situation.graph).filter(|node| node.uid() != target.uid()) {
        look(&judgement.binding_policies(&JudgedObject::of_node(&situation, node)));
    }
    if !protected {
        return false;
    }
    let above = AncestorApprovalSummary::find(&situation, after);
    // The control plane only adopts objects that a selector matches.
    let adopts = situation.policies.identities.is_control_plane(&judgement.review.user.name);
    if above.approved
        || above.recorded
        || above.incomplete
        || (lets_exempt_subjects_delete && !adopts)
    {
        return true;
    }
    if new.len() > MAX_OWNERS_READ {
        return true;
    }
    let namespace = target.facts.namespace;
    let mut going = DeletionSearch::new(&situation);
    let opens = |claim: &OwnerRef<'_>| {
        let foreign = !namespace.is_empty() && claim.kind.is_some() && claim.namespace.is_empty();
        foreign
            || match owner_state(&situation, namespace, claim) {
                OwnerState::Waiting(_) => true,
                OwnerState::Solid(owner) => going.is_being_deleted(owner),
                // The reference keeps nothing, and the garbage collector removes it.
                OwnerState::Absent => false,
                OwnerState::Unresolved => unread_owner(&situation, claim).is_none(),
            }
    };
    if new.iter().any(opens) {
        return true;
    }
    // The graph may lag behind the deletion of a direct or indirect owner.
    judgement.require_reads_for_any_action(
        new.iter().filter_map(|claim| unread_owner(&situation, claim)),
    );
    judgement.require_reads_for_any_action(going.unread);
    false
}

/// The key by which owner references are compared.
fn owner_identity<'c>(claim: &OwnerRef<'c>) -> (Option<KindId>, &'c str, &'c str, Uid) {
    (claim.kind, claim.namespace, claim.name, claim.uid)
}

/// The live read of an owner, if the verdict still needs it.
fn unread_owner(situation: &Situation<'_>, claim: &OwnerRef<'_>) -> Option<LiveRead> {
    let read = situation.object_read(claim.kind?, claim.namespace, claim.name);
    situation.is_unread(&read).then_some(read)
}

fn is_persistent_volume_claim(item: &JudgedObject<'_>) -> bool {
    (item.facts.group, item.facts.resource) == ("", "persistentvolumeclaims")
}

/// Whether persistentVolumeClaimRetentionPolicy may ask for the removal of this owner of a
/// PersistentVolumeClaim: a StatefulSet that is not Terminating, or a Pod that is absent or
/// Terminating.
fn is_removed_by_retention_policy(
    situation: &Situation<'_>,
    target: &JudgedObject<'_>,
    claim: &OwnerRef<'_>,
    owner: Option<Node<'_>>,
) -> bool {
    let stays = owner.is_some_and(|owner| !owner.is_terminating());
    let orphans = owner.is_some_and(Node::has_orphan_finalizer);
    let Some(kind) = claim.kind.filter(|_| is_persistent_volume_claim(target)) else {
        return false;
    };
    let info = situation.graph.kinds.info(kind);
    match (&*info.group, &*info.kind) {
        ("apps", "StatefulSet") => stays,
        ("", "Pod") => !stays && !orphans,
        _ => false,
    }
}

/// Checks the removal of one owner reference. `still_kept`: another owner keeps the
/// object, and did so before. `cause` makes the cause of the denial from the owner.
fn judge_owner_removal<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    (applied, still_kept): (&[AppliedPolicy<'a>], bool),
    claim: &OwnerRef<'a>,
    cause: fn(ObjectName) -> Cause,
) {
    let situation = judgement.situation;
    let identities = &situation.policies.identities;
    let user = &judgement.review.user.name;
    // Other controllers may act on a copy of the owner that is older than its deletion.
    let by_collector = identities.is_garbage_collector(user);
    let by_control_plane = identities.is_control_plane(user);
    let orphaning = |applied: &&AppliedPolicy<'_>| applied.policy.modes.from_orphaning;
    let refusing: Vec<_> = applied.iter().filter(orphaning).collect();
    let refuse = |judgement: &mut Judgement<'a>, owner: ObjectName| {
        for applied in &refusing {
            let causes = vec![cause(owner.clone())];
            judgement.add_finding(applied, target, Reason::WouldOrphan, (causes, 0));
        }
    };
    let owner: Node<'a> = match owner_state(&situation, target.facts.namespace, claim) {
        // The garbage collector deletes an object whose owners are all absent. No other
        // subject may prevent that.
        OwnerState::Absent => {
            let retained =
                by_control_plane && is_removed_by_retention_policy(&situation, target, claim, None);
            let kind = claim.kind.filter(|_| !still_kept && !by_collector && !retained);
            if let Some(kind) = kind {
                let info = situation.graph.kinds.info(kind);
                let object = ObjectRef::of_kind(info, claim.namespace, claim.name);
                refuse(judgement, ObjectName { kind: info.kind.clone(), object });
            }
            return;
        }
        // The garbage collector never removes a reference that it can't resolve (R2).
        OwnerState::Unresolved => {
            for applied in &refusing {
                let what = format!("belay doesn't know its owner {}", claim.name);
                let unknown = vec![Cause::Unknown(what, Some(NextStep::KeepOwner))];
                judgement.add_finding(applied, target, Reason::Unknown, (unknown, 0));
            }
            return;
        }
        OwnerState::Waiting(owner) | OwnerState::Solid(owner) => owner,
    };
    // An owner that is deleted in another way deletes its dependents, or has orphaned
    // them, and the garbage collector knows which. Other users could keep it Terminating
    // with a finalizer.
    let ends = owner.is_terminating() && !owner.has_orphan_finalizer();
    let retained =
        by_control_plane && is_removed_by_retention_policy(&situation, target, claim, Some(owner));
    if (by_collector && ends) || retained {
        return;
    }
    let owner_item = JudgedObject::of_node(&situation, owner);
    let policies: Vec<_> = refusing.iter().map(|applied| applied.policy).collect();
    // An approval of the owner with scope Content covers this as well. The garbage
    // collector completes a deletion that belay decided about when the owner was deleted.
    let yes = match by_collector {
        true => sufficient_approvals(&situation, &owner_item, &policies, ExemptionRecords::Itself),
        false => sufficient_approvals(&situation, target, &policies, ExemptionRecords::Ignored),
    };
    if policies.is_empty() || yes.is_none() {
        refuse(judgement, object_name(owner));
    }
    let dependent = Cause::Dependent(target.object_name());
    let mut of_owner = judgement.binding_policies(&owner_item);
    of_owner.retain(|applied| {
        let by = |records| {
            sufficient_approvals(&situation, &owner_item, &[applied.policy], records).is_some()
        };
        // Other approvals are checked at the end.
        orphaning(&applied) && (by(ExemptionRecords::Ignored) || !by(ExemptionRecords::Itself))
    });
    for applied in &of_owner {
        let causes = vec![dependent.clone()];
        judgement.add_finding(applied, &owner_item, Reason::WouldOrphan, (causes, 0));
    }
}
