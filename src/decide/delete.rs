//! DELETE: whether belay allows the deletion of an object. The questions are those in
//! docs/THEORY.md.

use super::affected::{AffectedObjects, DeletionTarget, MAX_FOLLOWED, lost_volume};
use super::cascade::{defer_to_release, explain_hold, judge_remaining_users};
use super::content::{
    BlockingObjects, Container, find_content, find_existing, protects_now, require_content_lists,
};
use super::item::JudgedObject;
use super::judgement::Judgement;
use super::long_lists::judge_long_lists;
use super::orphaning::judge_orphaning;
use super::owners::follows_owner_or_namespace;
use super::stripping::judge_propagation_finalizers;
use super::users::{UsedObject, find_users};
use super::{
    Cause, ContentReason, Decision, DeleteOptions, DenialStatus, NextStep, Reason, Review,
    Situation, Verdict,
};
use crate::graph::{Certainty, Fates, Node, NodeId, Propagation};
use crate::objects::{DefaultPropagation, FOREGROUND, HoldAge, NumberSet};
use crate::policy::api::{Action, OnDelete};
use crate::policy::{AppliedPolicy, Policy, PolicySource};

pub(super) fn decide_delete(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(object) = &review.old_object else {
        return Verdict::allow(review.target());
    };
    decide_delete_or_explain_hold(
        situation,
        review,
        &JudgedObject::of_review(situation, review, object),
    )
}

/// The verdict on the deletion of this object. For a dry run on a Terminating object, it also tells
/// what the hold waits for.
pub(super) fn decide_delete_or_explain_hold<'a>(
    situation: &Situation<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) -> Verdict {
    let verdict = decide_delete_with_alternative(situation, review, target);
    let asks_why = review.dry_run && target.is_terminating() && verdict.blockers.is_empty();
    if asks_why { explain_hold(situation, review, target) } else { verdict }
}

/// The verdict on the deletion of this object with the options of the review. If it is a denial,
/// also the first propagation with which belay would allow the deletion.
pub(super) fn decide_delete_with_alternative<'a>(
    situation: &Situation<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) -> Verdict {
    let propagation = effective_propagation(situation, review, target);
    let mut verdict = decide_with_propagation(situation, review, target, propagation);
    let orphaning = verdict.blockers.iter().any(|blocker| blocker.reason == Reason::WouldOrphan);
    let is_own_use =
        verdict.blockers.first().is_some_and(|first| first.is_own_use(&verdict.target));
    let causes = verdict.blockers.iter().flat_map(|blocker| &blocker.causes);
    let propagations_of_lost_finalizers = causes.filter_map(|cause| match cause {
        Cause::LostFinalizer(finalizer) if finalizer == FOREGROUND => Some(Propagation::Foreground),
        Cause::LostFinalizer(_) => Some(Propagation::Orphan),
        _ => None,
    });
    let background = (orphaning || is_own_use).then_some(Propagation::Background);
    // The message must not advise a DELETE that belay would deny, also after its reads.
    let passing = (propagations_of_lost_finalizers.take(1).chain(background))
        .filter(|other| *other != propagation)
        .map(|other| (other, decide_with_propagation(situation, review, target, other)))
        .find(|(_, other)| other.decision.passes());
    let passing_propagation = passing.map(|(other, passing)| {
        verdict.needed_reads.extend(passing.needed_reads);
        verdict.needed_reads.sort_unstable();
        verdict.needed_reads.dedup();
        other
    });
    let denial_status = match awaits_other_deletes(situation, review, &verdict) {
        true => DenialStatus::NotFound,
        false => verdict.denial_status,
    };
    let lost_volumes = passing_propagation
        .filter(|_| propagation == Propagation::Orphan)
        .and_then(|passing| lost_volume(situation, target, passing));
    let lost_volumes = lost_volumes.into_iter().collect();
    Verdict { passing_propagation, lost_volumes, denial_status, ..verdict }
}

/// Whether the namespace controller has yet to delete one of the objects that block this DELETE. If
/// the controller stopped here, it might never reach that object.
fn awaits_other_deletes(situation: &Situation<'_>, review: &Review<'_>, verdict: &Verdict) -> bool {
    let causes = || verdict.blockers.iter().flat_map(|blocker| &blocker.causes);
    let is_awaited = |cause: &Cause| {
        let object = cause.named_object().map(|named| &named.object);
        object.and_then(|object| situation.graph.object_by_ref(object)).is_some_and(|node| {
            node.namespace() == verdict.target.own_namespace() && !node.is_terminating()
        })
    };
    situation.policies.identities.is_namespace_controller(&review.requester.name)
        && verdict.decision == Decision::Deny
        && causes().any(is_awaited)
}

/// The verdict on a DELETE with this propagation.
pub(super) fn decide_with_propagation<'a>(
    situation: &Situation<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
    propagation: Propagation,
) -> Verdict {
    let mut judgement = Judgement::new(situation, review);
    let is_denied = judge_long_lists(&mut judgement, review, target);
    if !is_denied {
        let target = judge_terminating_or_cascade(&mut judgement, review, target, propagation);
        judge_deletion(&mut judgement, target.as_slice());
    }
    judgement.verdict(&[*target])
}

/// The verdict on the DELETEs of several objects together.
pub(super) fn decide_deletes_together<'a>(
    situation: &Situation<'a>,
    review: &'a Review<'a>,
    nodes: &[Node<'a>],
) -> Verdict {
    let mut judgement = Judgement::new(situation, review);
    let items: Vec<_> = nodes.iter().map(|node| JudgedObject::of_node(situation, *node)).collect();
    let mut targets = Vec::new();
    for target in &items {
        let propagation = effective_propagation(situation, review, target);
        targets.extend(judge_terminating_or_cascade(&mut judgement, review, target, propagation));
    }
    judge_deletion(&mut judgement, &targets);
    judgement.verdict(&items)
}

/// Judges a DELETE of a Terminating object, and a DELETE that follows from another deletion
/// (questions 2 and 3 of docs/THEORY.md). Returns the object if other questions apply. belay checks
/// approvals (question 1) at the end, when it knows all blockers.
fn judge_terminating_or_cascade<'a>(
    judgement: &mut Judgement<'a>,
    review: &Review<'_>,
    target: &JudgedObject<'a>,
    propagation: Propagation,
) -> Option<DeletionTarget<'a>> {
    let situation = judgement.situation;
    judge_propagation_finalizers(judgement, target, propagation);
    if target.is_terminating() {
        if target.facts.is_namespace() {
            // If spec.finalizers is empty, a DELETE removes the Namespace from storage even if
            // it has content.
            if review.details.old_spec_finalizers.is_empty() {
                judge_remaining_content(judgement, target);
            }
            return None;
        }
        let changes_propagation =
            propagation != Propagation::of_terminating(target.finalizers().into_iter());
        return changes_propagation.then_some(DeletionTarget::new(*target, propagation));
    }
    let is_deferred =
        follows_owner_or_namespace(&situation, target) && defer_to_release(judgement, target);
    // The namespace controller deletes all objects of the Namespace, and belay decides about
    // each DELETE separately.
    let needs_no_further_check =
        is_deferred && situation.is_namespace_terminating(target.facts.namespace);
    (!needs_no_further_check).then_some(DeletionTarget {
        deferred_to_release: is_deferred,
        ..DeletionTarget::new(*target, propagation)
    })
}

/// Judges protection, users, content and orphans (questions 4 to 7 of docs/THEORY.md) for all
/// objects that the deletion of these targets may delete.
pub(super) fn judge_deletion<'a>(judgement: &mut Judgement<'a>, targets: &[DeletionTarget<'a>]) {
    if !targets.is_empty() {
        let affected = AffectedObjects::find(&judgement.situation, targets);
        judge_affected(judgement, targets, &affected);
    }
}

/// Judges protection, users, content and orphans (questions 4 to 7 of docs/THEORY.md) for these
/// targets and the affected objects.
pub(super) fn judge_affected<'a>(
    judgement: &mut Judgement<'a>,
    targets: &[DeletionTarget<'a>],
    affected: &AffectedObjects,
) {
    let (situation, fates) = (judgement.situation, &affected.fates);
    judgement.set_leads_to_deletion();
    let nodes = targets.iter().filter_map(|target| target.item.node);
    let target_ids: NumberSet<NodeId> = nodes.map(|node| node.id()).collect();
    let deleted_by_other_targets = deleted_by_other_targets(&situation, targets);
    for DeletionTarget { item: target, deferred_to_release, .. } in targets {
        if *deferred_to_release {
            judge_remaining_users(judgement, fates, target);
        } else {
            let context = DeletionContext {
                needs_live_proof: true,
                owner_propagation: None,
                deleted_by_other_targets: &deleted_by_other_targets,
            };
            judge_protection(judgement, fates, target, context);
        }
        if !affected.is_complete() {
            let limit = Cause::TooLarge(format!("has more than {MAX_FOLLOWED} objects below it"));
            judgement.add_findings_for_unknown_objects(target, &limit, |_| true);
        }
    }
    let as_container =
        |target: &DeletionTarget<'a>| Some((target.item, Container::from_item(&target.item)?));
    let containers: Vec<_> = targets.iter().filter_map(as_container).collect();
    // The API server deletes the instances of a CRD without admission.
    let needs_live_proof =
        containers.iter().any(|(_, c)| matches!(c, Container::ObjectsOfKind(..)));
    let foreground = targets.iter().any(|target| target.propagation == Propagation::Foreground);
    let propagation = if foreground { Propagation::Foreground } else { Propagation::Background };
    // The controller of a container deletes its content directly, whatever owns it.
    let owner_propagation = containers.is_empty().then_some(propagation);
    let context = DeletionContext {
        needs_live_proof,
        owner_propagation,
        deleted_by_other_targets: &deleted_by_other_targets,
    };
    for node in affected.lost(situation.graph).filter(|node| !target_ids.contains(&node.id())) {
        if situation.work.is_used_up() {
            break;
        }
        let item = JudgedObject::of_node(&situation, node);
        if containers.iter().any(|(_, container)| container.is_default_object(&item)) {
            continue;
        }
        let certain = fates.get(node.id()).is_some_and(|fate| fate.certainty == Certainty::Certain);
        judgement.judge_with_coverage(certain || !containers.is_empty(), |judgement| {
            judge_protection(judgement, fates, &item, context);
        });
    }
    for (target, container) in &containers {
        judgement.judge_with_coverage(true, |judgement| {
            for item in container.judged_objects(situation).filter(|item| item.node.is_none()) {
                judge_protection(judgement, fates, &item, context);
            }
            let is_crd = matches!(container, Container::ObjectsOfKind(..));
            require_known_content(judgement, target, is_crd, |_| true);
        });
    }
    for DeletionTarget { item: target, propagation, .. } in targets {
        judge_orphaning(judgement, fates, target, *propagation);
    }
}

/// The objects that the DELETEs of targets other than Namespaces and CRDs certainly delete. Such
/// an object does not count as content of a Namespace or CRD among the targets.
fn deleted_by_other_targets(
    situation: &Situation<'_>,
    targets: &[DeletionTarget<'_>],
) -> NumberSet<NodeId> {
    let is_container = |target: &&DeletionTarget<'_>| Container::from_item(&target.item).is_some();
    let (containers, others): (Vec<_>, Vec<_>) = targets.iter().partition(is_container);
    if containers.is_empty() || others.is_empty() {
        return NumberSet::default();
    }
    let fates = AffectedObjects::find(situation, &others).fates;
    fates.iter().map(|(id, _)| id).filter(|id| fates.is_certainly_deleted(*id)).collect()
}

/// Denies the request if a Namespace or CRD may have protected content that belay does not know.
/// Policies can protect the content, and for a CRD also the label. `loses_content`: whether the
/// content is lost without admission, so that only an approval with scope Content covers unknown
/// content.
pub(super) fn require_known_content<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    loses_content: bool,
    applies: impl Fn(&Policy) -> bool,
) {
    let blocking = require_content_lists(&judgement.situation, target);
    judgement.require_reads_to_allow(blocking.needed_reads);
    let Some(unknown) = blocking.unknown else { return };
    let (group, resource) = &blocking.kind_of_unknown;
    let is_crd = matches!(Container::from_item(target), Some(Container::ObjectsOfKind(..)));
    let is_forbidden = matches!(unknown, Cause::Unknown(_, Some(NextStep::GrantPermission(..))));
    let mut target = *target;
    target.needs_content_approval = loses_content;
    judgement.add_findings_for_unknown_objects(&target, &unknown, |policy| match policy.source {
        // If belay may not list the kind, the label counts for nothing. Otherwise the value of the
        // label is unknown, and the finding of one label policy, `Always`, is enough for a denial.
        PolicySource::Label(_) => is_crd && !is_forbidden && policy.modes.always,
        PolicySource::Policy(_) => policy.names_kind(group, resource) && applies(policy),
    });
}

/// How a deletion reaches an object.
#[derive(Clone, Copy)]
struct DeletionContext<'c> {
    /// Whether the absence of users needs live proof, because no later check exists.
    needs_live_proof: bool,
    /// If the deletion of its owners deletes the object: the propagation of that deletion.
    owner_propagation: Option<Propagation>,
    /// The objects that the DELETEs of targets other than Namespaces and CRDs certainly delete.
    deleted_by_other_targets: &'c NumberSet<NodeId>,
}

/// Judges protection, users and content (questions 4 to 6 of docs/THEORY.md) for one object: the
/// target, or an object that would be deleted as well.
fn judge_protection<'a>(
    judgement: &mut Judgement<'a>,
    fates: &Fates,
    item: &JudgedObject<'a>,
    context: DeletionContext<'_>,
) {
    let DeletionContext { needs_live_proof, owner_propagation, deleted_by_other_targets } = context;
    let situation = judgement.situation;
    for applied in &judgement.binding_policies(item) {
        let modes = &applied.policy.modes;
        if modes.always {
            judgement.add_finding(applied, item, Reason::Protected, (vec![Cause::Always], 0));
        }
        if let Some(mode) = &modes.while_used {
            // The release does not wait for a policy that binds only some subjects.
            let release_waits = applied.policy.delays_release();
            let owners = &mut judgement.user_owners;
            let used = UsedObject { item, release_waits, owner_propagation };
            // Without a denial, the watches are enough.
            let live = needs_live_proof && applied.action == Action::Deny;
            let users = find_users(&situation, fates, used, mode, live, owners);
            let is_blocked = !users.blocking.is_empty();
            judgement.require_reads(applied, item, users.needed_reads, is_blocked);
            if !users.blocking.is_empty() {
                let causes = (users.blocking, users.more);
                let may_hold = release_waits && mode.on_delete == OnDelete::Hold;
                if may_hold && item.can_wait_for_release(&situation) {
                    judgement.add_hold_finding(applied, item, causes);
                } else if may_hold && let Some(seconds) = item.seconds_until_it_can_wait(&situation)
                {
                    judgement.add_finding_with_retry(applied, item, causes, seconds);
                } else {
                    judgement.add_finding(applied, item, Reason::InUse, causes);
                }
            } else if let Some(unknown) = users.unknown {
                judgement.add_finding(applied, item, Reason::Unknown, (vec![unknown], 0));
            } else if !users.doomed.is_empty() {
                judgement.add_hold_finding(applied, item, (users.doomed, 0));
            }
        }
        for exists in &modes.while_exists {
            let blocking = find_existing(&situation, fates, item, exists);
            add_blocking_objects(judgement, applied, item, Reason::StillNeeded, blocking);
        }
        if let Some(not_empty) = &modes.while_not_empty {
            let blocking = find_content(&situation, item, not_empty, deleted_by_other_targets);
            add_blocking_objects(judgement, applied, item, Reason::NotEmpty, blocking);
        }
    }
}

fn add_blocking_objects<'a>(
    judgement: &mut Judgement<'a>,
    applied: &AppliedPolicy<'a>,
    item: &JudgedObject<'a>,
    reason: Reason,
    blocking: BlockingObjects,
) {
    let is_blocked = !blocking.causes.is_empty();
    judgement.require_reads(applied, item, blocking.needed_reads, is_blocked);
    if !blocking.causes.is_empty() {
        judgement.add_finding(applied, item, reason, blocking.causes.into_causes());
    } else if let Some(unknown) = blocking.unknown {
        judgement.add_finding(applied, item, Reason::Unknown, (vec![unknown], 0));
    }
}

/// Denies the removal of a Namespace from storage, or the removal of a finalizer of its spec, while
/// the Namespace has protected content. This applies to all users, even if no policy selects the
/// Namespace, because policies select its content.
pub(super) fn judge_remaining_content<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
) {
    let situation = judgement.situation;
    for applied in situation.policies_of(target.facts) {
        if let Some(not_empty) = &applied.policy.modes.while_not_empty {
            let blocking = find_content(&situation, target, not_empty, &NumberSet::default());
            add_blocking_objects(judgement, &applied, target, Reason::NotEmpty, blocking);
        }
    }
    let Some(container) = Container::from_item(target) else { return };
    judgement.judge_with_coverage(true, |judgement| {
        for item in container.judged_objects(situation) {
            for applied in situation.policies_of(item.facts) {
                let source = || applied.policy.source.clone();
                // An object without its Namespace can be read but not written, so belay could
                // never remove its hold.
                let why = match protects_now(&situation, &applied, &item) {
                    true => Some(ContentReason::Protected(source())),
                    false if applied.policy.places_hold() && item.hold() != HoldAge::NotHeld => {
                        Some(ContentReason::Held(source()))
                    }
                    false => None,
                };
                if let Some(why) = why {
                    let cause = Cause::Content { object: item.object_name(), why };
                    judgement.add_finding(&applied, &item, Reason::NotEmpty, (vec![cause], 0));
                }
            }
        }
        require_known_content(judgement, target, true, |_| true);
    });
}

/// R8: the effective propagation of a DELETE of this object.
fn effective_propagation(
    situation: &Situation<'_>,
    review: &Review<'_>,
    target: &JudgedObject<'_>,
) -> Propagation {
    let default = |kind| situation.graph.kinds.info(kind).default_propagation;
    let default = target.kind.map_or(DefaultPropagation::Background, default);
    let DeleteOptions { propagation_policy, orphan_dependents } = &review.options;
    let is_requested = |value: &Propagation| Some(value.as_str()) == propagation_policy.as_deref();
    let requested = Propagation::ALL.into_iter().find(is_requested);
    Propagation::of_delete(default, target.finalizers().into_iter(), requested, *orphan_dependents)
}
