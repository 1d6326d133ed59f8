//! UPDATE: finalizers, owner references and labels. An update must not bypass a policy that
//! denies a DELETE.

use super::affected::{AffectedObjects, DeletionTarget};
use super::ancestors::{AncestorApprovalSummary, RecordScope};
use super::approved::sufficient_approvals;
use super::content::Container;
use super::delete::{judge_affected, judge_deletion};
use super::item::{JudgedObject, object_name};
use super::judgement::Judgement;
use super::long_lists::judge_long_lists;
use super::owners::{DeletionSearch, MAX_OWNERS_READ, OwnerState, owner_state, unread_owner};
use super::protection_changes::judge_weaker_protection;
use super::stripping::judge_finalizer_removal;
use super::{
    Cause, HoldChange, HoldPosition, NextStep, ObjectName, Reason, Review, Situation, Verdict,
    is_hold_unsafe_on_kind,
};
use crate::graph::{MAX_LIST_ENTRIES, Node, OwnerRef, Propagation};
use crate::objects::{CLAIMS, KeyedSet, KindId, ORPHAN, ObjectRef, Uid, one_line_name};
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, ObjectFacts};

/// The validating phase.
pub(super) fn update(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(old) = &review.old_object else { return Verdict::allow(review.target()) };
    let target = JudgedObject::of_review(situation, review, old);
    // belay releases holds with updates.
    if situation.policies.identities.is_belay(&review.requester.name) {
        return Verdict::allow(target.object_ref());
    }
    let mut judgement = Judgement::new(situation, review);
    if !judge_long_lists(&mut judgement, review, &target) {
        judge_changes(&mut judgement, review, &target);
    }
    judgement.verdict(&[target])
}

/// Checks all changes by which an UPDATE could bypass a policy.
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
    judge_removal_of_orphan_finalizer(judgement, review, target);
    judge_owner_changes(judgement, review, target, &applied);
    judge_weaker_protection(judgement, review, target);
}

/// The verdict of the mutating phase on a request that removes the hold: a denial if it changes
/// nothing else, otherwise belay restores the hold.
pub(super) fn decide_hold_removal(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else {
        return Verdict::allow(review.target());
    };
    let target = JudgedObject::of_review(situation, review, old);
    let by_belay = situation.policies.identities.is_belay(&review.requester.name);
    if by_belay || !review.removes_hold() || old.is_terminating() {
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
    let position = HoldPosition::in_list(new, index);
    let hold = Some(HoldChange { position, restored: true });
    Verdict { hold, ..Verdict::allow(target.object_ref()) }
}

/// Denies the removal of a hold that a policy still wants, also for users whom the policy
/// doesn't bind or exempts: only belay releases holds. If belay releases no holds of a policy,
/// it does not guard these holds.
fn judge_hold_removal<'a>(judgement: &mut Judgement<'a>, target: &JudgedObject<'a>) {
    let Situation { policies, .. } = judgement.situation;
    let ObjectFacts { group, resource, .. } = target.facts;
    if is_hold_unsafe_on_kind(group, resource) {
        return;
    }
    let applied = judgement.situation.policies_of(target.facts);
    let guards_hold = |applied: &&AppliedPolicy<'_>| {
        applied.policy.places_hold() && policies.releases_holds_of(applied.policy, group, resource)
    };
    for applied in applied.iter().filter(guards_hold) {
        let causes = vec![Cause::Hold { terminating: target.is_terminating() }];
        judgement.add_finding_for_exempt_too(applied, target, Reason::FinalizerGuarded, causes);
    }
}

/// After the removal of the finalizer `orphan` the garbage collector deletes the
/// dependents of a Terminating owner, as after a DELETE with Background.
fn judge_removal_of_orphan_finalizer<'a>(
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
        && !situation.policies.identities.is_control_plane(&review.requester.name)
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
    let by_collector = identities.is_garbage_collector(&review.requester.name);
    let [old_count, new_count] = [old, new].map(|object| object.metadata.owner_references.len());
    if old_count.max(new_count) > MAX_LIST_ENTRIES {
        // The garbage collector only removes references that keep nothing.
        if !by_collector || new_count >= old_count {
            judge_many_owner_changes(judgement, target, by_collector);
        }
        return;
    }
    let before = target.owners(&situation);
    let after = JudgedObject::of_review(&situation, review, new).owners(&situation);
    situation.work.charge(before.len() + after.len());
    let changes = OwnerChanges::between(&situation, target.facts.namespace, before, after);
    // The StatefulSet controller replaces a StatefulSet by a Pod as the owner of a
    // PersistentVolumeClaim. For other objects, a user may have added the remaining owner so
    // that a controller removes the protected one.
    let may_replace = identities.may_be_controller_except_collector(&review.requester.name)
        && is_persistent_volume_claim(target);
    if !changes.has_solid_owner || !may_replace {
        judge_lost_owners(judgement, target, applied, &changes);
    }
    judge_owners_after_update(judgement, target, applied, &changes);
}

/// How an update changes the owner references of an object.
struct OwnerChanges<'a> {
    /// The references after the update.
    after: Vec<OwnerRef<'a>>,
    /// The new references.
    added: Vec<OwnerRef<'a>>,
    /// The removed references, and those whose owner the garbage collector can't find any longer.
    removed: Vec<OwnerRef<'a>>,
    /// The remaining references with the uid of an added one. If an added reference has no owner,
    /// the garbage collector removes all references with its uid, also a reference to an existing
    /// owner.
    repeated: Vec<OwnerRef<'a>>,
    /// Whether a solid owner keeps the object after the update.
    has_solid_owner: bool,
    /// Whether one of the solid owners was an owner before the update.
    has_old_solid_owner: bool,
}

impl<'a> OwnerChanges<'a> {
    fn between(
        situation: &Situation<'_>,
        namespace: &str,
        before: Vec<OwnerRef<'a>>,
        after: Vec<OwnerRef<'a>>,
    ) -> Self {
        let state_of = |owner_ref: &OwnerRef<'_>| owner_state(situation, namespace, owner_ref);
        // A reference that is changed to an unserved version names the same owner, but the
        // garbage collector can't find it.
        let resolves =
            |owner_ref: &&OwnerRef<'_>| !matches!(state_of(owner_ref), OwnerState::Unresolved);
        let after_with_version: KeyedSet<_> =
            after.iter().map(|owner_ref| (owner_identity(owner_ref), owner_ref.version)).collect();
        let after_resolvable: KeyedSet<_> =
            after.iter().filter(resolves).map(owner_identity).collect();
        // The reverse change makes the garbage collector find the owner, or its absence.
        let before_with_version: KeyedSet<_> =
            before.iter().map(|owner_ref| (owner_identity(owner_ref), owner_ref.version)).collect();
        let before_resolvable: KeyedSet<_> =
            before.iter().filter(resolves).map(owner_identity).collect();
        let (remaining, removed): (Vec<_>, Vec<_>) = before.into_iter().partition(|owner_ref| {
            after_resolvable.contains(&owner_identity(owner_ref))
                || after_with_version.contains(&(owner_identity(owner_ref), owner_ref.version))
        });
        let is_old = |owner_ref: &OwnerRef<'_>| {
            before_resolvable.contains(&owner_identity(owner_ref))
                || before_with_version.contains(&(owner_identity(owner_ref), owner_ref.version))
        };
        let added: Vec<_> = after.iter().filter(|owner_ref| !is_old(owner_ref)).copied().collect();
        let added_uids: KeyedSet<_> = added.iter().map(|owner_ref| owner_ref.uid).collect();
        let has_added_uid = |owner_ref: &OwnerRef<'_>| added_uids.contains(&owner_ref.uid);
        let repeated = remaining.into_iter().filter(has_added_uid).collect();
        let is_solid =
            |owner_ref: &&OwnerRef<'_>| matches!(state_of(owner_ref), OwnerState::Solid(_));
        let mut solid = after.iter().filter(is_solid);
        Self {
            has_solid_owner: solid.clone().next().is_some(),
            has_old_solid_owner: solid.any(is_old),
            added,
            removed,
            repeated,
            after,
        }
    }

    /// The references that the object loses, also if the garbage collector removes them.
    fn lost(&self) -> impl Iterator<Item = &OwnerRef<'a>> {
        self.removed.iter().chain(&self.repeated)
    }
}

/// Checks that the object loses no protected owner.
fn judge_lost_owners<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    applied: &[AppliedPolicy<'a>],
    changes: &OwnerChanges<'a>,
) {
    let situation = judgement.situation;
    let is_unresolved = |owner_ref: &&OwnerRef<'_>| {
        let state = owner_state(&situation, target.facts.namespace, owner_ref);
        matches!(state, OwnerState::Unresolved)
    };
    let unresolved = changes.lost().filter(is_unresolved);
    let unread: Vec<_> =
        unresolved.filter_map(|owner_ref| unread_owner(&situation, owner_ref)).collect();
    if unread.len() > MAX_OWNERS_READ {
        let count = format!("{} references to owners that belay has not read", unread.len());
        judge_unknown_owners(judgement, target, &count);
    } else {
        judgement.require_reads_for_any_action(unread);
    }
    let context = (applied, changes);
    for owner_ref in &changes.removed {
        judge_owner_removal(judgement, target, context, owner_ref, Cause::Owner);
    }
    for owner_ref in &changes.repeated {
        judge_owner_removal(judgement, target, context, owner_ref, Cause::RepeatedUid);
    }
}

/// Checks that the remaining owners do not lead to a deletion that the policies deny.
fn judge_owners_after_update<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    applied: &[AppliedPolicy<'a>],
    changes: &OwnerChanges<'a>,
) {
    let situation = judgement.situation;
    let OwnerChanges { after, added, has_solid_owner, .. } = changes;
    let requester = &judgement.review.requester.name;
    // The garbage collector removes references that keep nothing.
    let is_cleanup = added.is_empty() && situation.policies.identities.is_control_plane(requester);
    let loses_owner = changes.lost().any(|owner_ref| {
        let state = owner_state(&situation, target.facts.namespace, owner_ref);
        !matches!(state, OwnerState::Absent)
    });
    if after.is_empty() || (added.is_empty() && !loses_owner) || (is_cleanup && *has_solid_owner) {
        return;
    }
    // The removed owner may have prevented the deletion of the object, so all remaining owners
    // count as new.
    let new = if loses_owner { after } else { added };
    let deletion = DeletionTarget::new(*target, Propagation::Background);
    let affected = AffectedObjects::with_dependents(&situation, &deletion);
    let widens =
        !is_cleanup && widens_deletion(judgement, target, (applied, &affected), (new, after));
    if widens {
        judgement.disallow_hold();
    } else if *has_solid_owner || target.is_terminating() {
        return;
    }
    // The garbage collector deletes an object whose owners are all absent or Terminating.
    judge_affected(judgement, &[deletion], &affected);
    if !widens && !judgement.is_empty() && after.len() <= MAX_OWNERS_READ {
        // The graph may lag behind the creation of an owner.
        judgement.require_reads_for_any_action(
            after.iter().filter_map(|owner_ref| unread_owner(&situation, owner_ref)),
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
        let count = format!("more than {MAX_LIST_ENTRIES} owner references");
        judge_unknown_owners(judgement, target, &count);
    }
    judgement.disallow_hold();
    let deletion = DeletionTarget::new(*target, Propagation::Background);
    let affected = AffectedObjects::with_dependents(&judgement.situation, &deletion);
    judge_affected(judgement, &[deletion], &affected);
}

/// Denies a change of more owner references than belay checks.
fn judge_unknown_owners<'a>(judgement: &mut Judgement<'a>, target: &JudgedObject<'a>, count: &str) {
    let text = format!("changes {count}, which is more than belay checks");
    judgement.add_unknown(target, &Cause::TooLarge(text), |policy| policy.modes.from_orphaning);
}

/// Whether new owners allow a deletion of the object or its dependents that a DELETE of
/// the object does not allow. An owner does so if the owner or one of its own owners has an
/// approval or an exemption record or is being deleted, or if the owner is cluster-scoped. If a
/// policy has exempt subjects, any owner does so, because these subjects may delete the owner.
fn widens_deletion<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    (applied, affected): (&[AppliedPolicy<'a>], &AffectedObjects),
    (new, after): (&[OwnerRef<'_>], &[OwnerRef<'_>]),
) -> bool {
    let situation = judgement.situation;
    // The affected objects do not include all content of a Namespace or CRD.
    let mut protected = Container::from_item(target).is_some() || !affected.is_complete();
    let mut allows_delete_through_owner = !affected.is_complete();
    let mut check = |applied: &[AppliedPolicy<'_>]| {
        let denying = applied.iter().filter(|applied| applied.action == Action::Deny);
        denying.for_each(|applied| {
            protected = true;
            allows_delete_through_owner |= applied.policy.allows_delete_through_owner();
        });
    };
    check(applied);
    for node in affected.lost(situation.graph).filter(|node| node.uid() != target.uid()) {
        check(&judgement.binding_policies(&JudgedObject::of_node(&situation, node)));
    }
    if !protected {
        return false;
    }
    let owners = AncestorApprovalSummary::find(&situation, after);
    // The control plane only adopts objects that a selector matches.
    let adopts = situation.policies.identities.is_control_plane(&judgement.review.requester.name);
    if owners.approved
        || owners.recorded
        || owners.incomplete
        || (allows_delete_through_owner && !adopts)
    {
        return true;
    }
    if new.len() > MAX_OWNERS_READ {
        return true;
    }
    let namespace = target.facts.namespace;
    let mut deletions = DeletionSearch::new(&situation);
    let widens = |owner_ref: &OwnerRef<'_>| {
        let is_cluster_scoped =
            !namespace.is_empty() && owner_ref.kind.is_some() && owner_ref.namespace.is_empty();
        is_cluster_scoped
            || match owner_state(&situation, namespace, owner_ref) {
                OwnerState::Waiting(_) => true,
                OwnerState::Solid(owner) => deletions.may_be_being_deleted(owner),
                // The reference keeps nothing, and the garbage collector removes it.
                OwnerState::Absent => false,
                OwnerState::Unresolved => unread_owner(&situation, owner_ref).is_none(),
            }
    };
    if new.iter().any(widens) {
        return true;
    }
    // The graph may lag behind the deletion of a direct or indirect owner.
    judgement.require_reads_for_any_action(
        new.iter().filter_map(|owner_ref| unread_owner(&situation, owner_ref)),
    );
    judgement.require_reads_for_any_action(deletions.unread);
    false
}

/// The key by which owner references are compared.
fn owner_identity<'c>(owner_ref: &OwnerRef<'c>) -> (Option<KindId>, &'c str, &'c str, Uid) {
    (owner_ref.kind, owner_ref.namespace, owner_ref.name, owner_ref.uid)
}

fn is_persistent_volume_claim(item: &JudgedObject<'_>) -> bool {
    (item.facts.group, item.facts.resource) == CLAIMS
}

/// Whether persistentVolumeClaimRetentionPolicy may ask for the removal of this owner of a
/// PersistentVolumeClaim: a StatefulSet that is not Terminating, or a Pod that is absent or
/// Terminating.
fn is_removed_by_retention_policy(
    situation: &Situation<'_>,
    target: &JudgedObject<'_>,
    owner_ref: &OwnerRef<'_>,
    owner: Option<Node<'_>>,
) -> bool {
    let remains = owner.is_some_and(|owner| !owner.is_terminating());
    let orphans = owner.is_some_and(Node::has_orphan_finalizer);
    let Some(kind) = owner_ref.kind.filter(|_| is_persistent_volume_claim(target)) else {
        return false;
    };
    let info = situation.graph.kinds.info(kind);
    match (&*info.group, &*info.kind) {
        ("apps", "StatefulSet") => remains,
        ("", "Pod") => !remains && !orphans,
        _ => false,
    }
}

/// Checks the removal of one owner reference. `cause` builds the cause of the denial from the
/// owner.
fn judge_owner_removal<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    (applied, changes): (&[AppliedPolicy<'a>], &OwnerChanges<'a>),
    owner_ref: &OwnerRef<'a>,
    cause: fn(ObjectName) -> Cause,
) {
    let situation = judgement.situation;
    let identities = &situation.policies.identities;
    let requester = &judgement.review.requester.name;
    // Other controllers may act on an old copy of the owner (H113). So belay trusts only the
    // garbage collector to remove a reference because the owner is deleted.
    let by_collector = identities.is_garbage_collector(requester);
    let by_control_plane = identities.is_control_plane(requester);
    let denies_orphaning = |applied: &&AppliedPolicy<'_>| applied.policy.modes.from_orphaning;
    let denying: Vec<_> = applied.iter().filter(denies_orphaning).collect();
    let deny = |judgement: &mut Judgement<'a>, owner: ObjectName| {
        for applied in &denying {
            let causes = vec![cause(owner.clone())];
            judgement.add_finding(applied, target, Reason::WouldOrphan, (causes, 0));
        }
    };
    let owner: Node<'a> = match owner_state(&situation, target.facts.namespace, owner_ref) {
        // The garbage collector deletes an object whose owners are all absent. No other
        // subject may prevent that.
        OwnerState::Absent => {
            let by_retention_policy = by_control_plane
                && is_removed_by_retention_policy(&situation, target, owner_ref, None);
            let kind = owner_ref
                .kind
                .filter(|_| !changes.has_old_solid_owner && !by_collector && !by_retention_policy);
            if let Some(kind) = kind {
                let info = situation.graph.kinds.info(kind);
                let object = ObjectRef::of_kind(info, owner_ref.namespace, owner_ref.name);
                deny(judgement, ObjectName { kind: info.kind.clone(), object });
            }
            return;
        }
        // belay may have no permission to read the owner. If another owner keeps the object, the
        // garbage collector removes references to absent owners.
        OwnerState::Unresolved if by_collector && changes.has_solid_owner => return,
        // The garbage collector never removes a reference that it can't resolve (R2).
        OwnerState::Unresolved => {
            for applied in &denying {
                let name = one_line_name(owner_ref.name);
                let what = format!("belay doesn't know its owner {name:?}");
                let unknown = vec![Cause::Unknown(what, Some(NextStep::KeepOwner))];
                judgement.add_finding(applied, target, Reason::Unknown, (unknown, 0));
            }
            return;
        }
        OwnerState::Waiting(owner) | OwnerState::Solid(owner) => owner,
    };
    // If the owner is deleted without orphaning, the garbage collector deletes the dependent, or
    // has orphaned it already. Other subjects could keep the owner Terminating with a finalizer,
    // so this applies only to the garbage collector.
    let is_deleted = owner.is_terminating() && !owner.has_orphan_finalizer();
    let by_retention_policy = by_control_plane
        && is_removed_by_retention_policy(&situation, target, owner_ref, Some(owner));
    if (by_collector && is_deleted) || by_retention_policy {
        return;
    }
    let owner_item = JudgedObject::of_node(&situation, owner);
    let policies: Vec<_> = denying.iter().map(|applied| applied.policy).collect();
    // An approval of the owner with scope Content covers this as well. The garbage
    // collector completes a deletion that belay decided about when the owner was deleted.
    let approvals = match by_collector {
        true => sufficient_approvals(&situation, &owner_item, &policies, RecordScope::OfObject),
        false => sufficient_approvals(&situation, target, &policies, RecordScope::Ignored),
    };
    if policies.is_empty() || approvals.is_none() {
        deny(judgement, object_name(owner));
    }
    let dependent = Cause::Dependent(target.object_name());
    let mut owner_policies = judgement.binding_policies(&owner_item);
    owner_policies.retain(|applied| {
        let is_approved = |records| {
            sufficient_approvals(&situation, &owner_item, &[applied.policy], records).is_some()
        };
        // Leaves out a policy only if a record approves it. `Judgement::verdict` handles the
        // approvals of people.
        denies_orphaning(&applied)
            && (is_approved(RecordScope::Ignored) || !is_approved(RecordScope::OfObject))
    });
    for applied in &owner_policies {
        let causes = vec![dependent.clone()];
        judgement.add_finding(applied, &owner_item, Reason::WouldOrphan, (causes, 0));
    }
    if by_collector && !judgement.is_empty() {
        // The graph may lag behind the deletion of the owner.
        judgement.require_reads_for_any_action(unread_owner(&situation, owner_ref));
    }
}
