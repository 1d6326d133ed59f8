//! DELETEs that follow from another deletion: which objects wait for the release, and
//! which DELETEs of the garbage collector belay denies.

use super::ancestors::RecordScope;
use super::approved::sufficient_approvals;
use super::item::JudgedObject;
use super::judgement::Judgement;
use super::users::{UsedObject, find_users};
use super::{Cause, Reason, Review, Situation, Verdict};
use crate::graph::Fates;
use crate::objects::{HoldAge, ORPHAN};
use crate::policy::api::{Action, OnDelete};
use crate::policy::{AppliedPolicy, WhileUsedMode};

/// Decides about a DELETE that follows from another deletion (question 3 in docs/THEORY.md).
/// A held object may wait for the release, which checks its users live. belay still denies the
/// DELETE if a policy protects the object in another way, because the deletionTimestamp alone
/// starts the clean-up of other controllers. Returns whether the release checks the users. The
/// release does not check dependents and content.
pub(super) fn defer_to_release<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
) -> bool {
    let applied = judgement.binding_policies(target);
    let enforcing = applied.iter().filter(|applied| applied.denies_without_pause());
    let release_is_enough = |applied: &AppliedPolicy<'_>| {
        !protects_beyond_use(applied) && release_checks_its_users(applied)
    };
    if !target.can_wait_for_release(&judgement.situation)
        || !enforcing.clone().all(release_is_enough)
    {
        return false;
    }
    let mut is_deferred = false;
    for applied in enforcing.filter(|applied| applied.policy.places_hold()) {
        judgement.add_hold_finding(applied, target, (vec![Cause::CheckedAtRelease], 0));
        is_deferred = true;
    }
    is_deferred
}

/// Whether a policy protects in a way that the release does not check. The release only
/// checks the users of the object.
fn protects_beyond_use(applied: &AppliedPolicy<'_>) -> bool {
    let modes = &applied.policy.modes;
    modes.protects_unused() || modes.from_orphaning
}

/// Whether the release checks the users that this policy counts. True also if the policy counts
/// no users.
fn release_checks_its_users(applied: &AppliedPolicy<'_>) -> bool {
    applied.policy.modes.while_used.is_none() || applied.policy.places_hold()
}

/// Whether a policy leaves the check of its users to the release. With `onDelete: Deny` it does
/// not: users that remain deny the DELETE.
fn is_left_to_release(applied: &AppliedPolicy<'_>) -> bool {
    let while_used = applied.policy.modes.while_used.as_ref();
    release_checks_its_users(applied)
        && while_used.is_none_or(|mode| mode.on_delete == OnDelete::Hold)
}

/// Denies the DELETE of an object that would wait for the release, if a policy with
/// `onDelete: Deny` counts remaining users.
pub(super) fn judge_remaining_users<'a>(
    judgement: &mut Judgement<'a>,
    fates: &Fates,
    target: &JudgedObject<'a>,
) {
    let situation = judgement.situation;
    for applied in judgement.binding_policies(target) {
        let Some(mode) = &applied.policy.modes.while_used else { continue };
        if is_left_to_release(&applied) {
            continue;
        }
        let owners = &mut judgement.user_owners;
        let used = UsedObject { item: target, release_waits: true, owner_propagation: None };
        let users = find_users(&situation, fates, used, mode, false, owners);
        if !users.blocking.is_empty() {
            judgement.require_reads(&applied, target, users.needed_reads, true);
            judgement.add_finding(&applied, target, Reason::InUse, (users.blocking, users.more));
        }
    }
}

/// The verdict on a DELETE of a Terminating object. The DELETE passes with a warning that names
/// what the hold waits for. The watches are enough for this warning.
pub(super) fn explain_hold<'a>(
    situation: &Situation<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) -> Verdict {
    let mut judgement = Judgement::new(situation, review);
    let held = target.hold() != HoldAge::NotHeld;
    // A Pause releases no hold.
    let applied = if held { situation.release_policies(target.facts) } else { Vec::new() };
    for applied in &applied {
        let causes = match &applied.policy.modes.while_used {
            _ if applied.policy.requires_approval_to_release() => (vec![Cause::Always], 0),
            Some(mode) => {
                let owners = &mut judgement.user_owners;
                let used =
                    UsedObject { item: target, release_waits: true, owner_propagation: None };
                let fates = Fates::default();
                let users = find_users(situation, &fates, used, mode, false, owners);
                match users.unknown {
                    _ if !users.blocking.is_empty() => (users.blocking, users.more),
                    Some(_) => (vec![Cause::CheckedAtRelease], 0),
                    None => (users.doomed, 0),
                }
            }
            None => continue,
        };
        if !causes.0.is_empty() {
            judgement.add_hold_finding(applied, target, causes);
        }
    }
    judgement.verdict(&[*target])
}

/// Whether belay may deny the DELETE of an object by the garbage collector.
pub(crate) enum CollectorRefusal<'p> {
    /// No policy denies it.
    No,
    /// A policy may deny it, also if nothing uses the object.
    Possible,
    /// Each of these modes denies it while the object has users that the mode counts.
    WhileUsed(Vec<&'p WhileUsedMode>),
}

/// Whether policies that protect an object may deny its DELETE by the garbage collector.
pub(crate) fn refusal_in_cascade<'p>(
    situation: &Situation<'p>,
    item: &JudgedObject<'p>,
) -> CollectorRefusal<'p> {
    // After a Pause, the policies deny again.
    let mut applied = situation.policies_ignoring_pause(item.facts);
    applied.retain(|applied| {
        // The garbage collector has different user names on different control planes.
        applied.action == Action::Deny && applied.policy.binds_collector_under_any_name()
    });
    let policies: Vec<_> = applied.iter().map(|applied| applied.policy).collect();
    if applied.is_empty()
        || sufficient_approvals(situation, item, &policies, RecordScope::Ignored).is_some()
    {
        return CollectorRefusal::No;
    }
    // belay also denies a deletion that orphans protected dependents.
    let orphans = item.finalizers().contains(&ORPHAN);
    let always_denies = |applied: &AppliedPolicy<'_>| {
        let modes = &applied.policy.modes;
        modes.protects_unused() || (modes.from_orphaning && orphans)
    };
    if applied.iter().any(|applied| !applied.certain || always_denies(applied)) {
        return CollectorRefusal::Possible;
    }
    // Only the graph of the watches knows how old the hold is.
    let watched = item.node.map(|node| JudgedObject::of_node(situation, node));
    let waits = item.can_wait_for_release(situation)
        && watched.is_none_or(|watched| watched.can_wait_for_release(situation));
    let waits = waits && !applied.iter().any(protects_beyond_use);
    let counting = applied.iter().filter(|applied| !waits || !is_left_to_release(applied));
    let modes: Vec<_> =
        counting.filter_map(|applied| applied.policy.modes.while_used.as_ref()).collect();
    if modes.is_empty() { CollectorRefusal::No } else { CollectorRefusal::WhileUsed(modes) }
}
