//! The dependents whose owner reference the garbage collector can't remove, because belay denies
//! the UPDATE. Their owner has the finalizer `orphan`, and stays Terminating.

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::collector::COLLECTOR_WAITS;
use super::finalizers::finalizers_of;
use super::finding::{Cause, Finding};
use super::verdict::{decide_about, guards_orphans};
use crate::cluster::Snapshot;
use crate::cluster::terminating::{Dependent, Survey, TerminatingObject};
use crate::command::session::UserSession;
use crate::decide::{
    Decision, Operation, Review, ReviewDetails, Verdict, approve_command, policy_names, sentence,
};
use crate::objects::{ORPHAN, Object, ObjectRef, and_more};
use crate::policy::garbage_collector_identities;

/// The maximum number of dependents of an owner for which belay decides.
const MAX_DECIDED: usize = 5;

/// Whether belay may deny the garbage collector's requests to remove the references to this owner.
pub fn may_deny_orphaning(snapshot: &Snapshot, survey: &Survey, owner: &TerminatingObject) -> bool {
    survey.dependents.contains_key(&owner.uid)
        && finalizers_of(&owner.object).contains(&ORPHAN)
        && guards_orphans(snapshot)
}

/// The denials of the garbage collector's requests to remove the references to this owner.
pub async fn orphaning_denials(
    session: &UserSession,
    snapshot: &Snapshot,
    survey: &Survey,
    owner: &TerminatingObject,
) -> Vec<Verdict> {
    if !may_deny_orphaning(snapshot, survey, owner) {
        return Vec::new();
    }
    let mut denials = Vec::new();
    let dependents = survey.dependents.get(&owner.uid).into_iter().flatten();
    for dependent in dependents.take(MAX_DECIDED) {
        let verdict = verdict_on_removal(session, snapshot, dependent, &owner.uid).await;
        denials.extend(verdict.filter(|verdict| verdict.decision == Decision::Deny));
    }
    denials
}

/// The verdict on the UPDATE of a dependent that removes its references to an owner. `None` if the
/// dependent can't be read.
async fn verdict_on_removal(
    session: &UserSession,
    snapshot: &Snapshot,
    dependent: &Dependent,
    owner: &str,
) -> Option<Verdict> {
    let object_ref = &dependent.object_ref;
    let kind = (object_ref.group.as_str(), object_ref.resource.as_str());
    let info = snapshot.context.world.read().kind_info(kind)?;
    let read = session.caller.object(&info, &object_ref.namespace, &object_ref.name).await;
    let old = read.ok()??;
    let mut new = old.clone();
    let references = new.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    references.retain(|reference| reference["uid"] != owner);
    let [old, new] = [to_raw_value(&old).ok()?, to_raw_value(&new).ok()?];
    let [(collector, groups), _] = garbage_collector_identities();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let request = Review {
        operation: Operation::Update,
        object: Some(serde_json::from_str::<Object<'_>>(new.get()).ok()?),
        old_object: Some(serde_json::from_str::<Object<'_>>(old.get()).ok()?),
        details: ReviewDetails::read(Some(&old), Some(&new)),
        ..Review::of_dry_run(collector, &groups)
    };
    Some(decide_about(object_ref, snapshot, request).await)
}

/// The finding that belay did not decide about the garbage collector's requests, because there are
/// many owners.
pub fn unchecked_orphaning(owner: &ObjectRef) -> Finding {
    let message = "the garbage collector has not removed the owner references to it yet; use --all \
                   to check whether belay denies that";
    let next = format!("kubectl belay why {}", owner.arguments());
    Finding::new(Cause::Unknown, message, next)
}

/// The finding about these denials; `None` if there are none.
pub fn refused_orphaning(denials: &[Verdict]) -> Option<Finding> {
    let first = denials.first()?;
    let (mut policies, mut commands, mut evidence) = (Vec::new(), Vec::new(), Vec::new());
    for verdict in denials {
        for blocker in verdict.deciding_blockers() {
            let names = policy_names(blocker);
            evidence.push(format!("{}; {names}", sentence(&verdict.target, blocker)));
            policies.push(names);
            let object = blocker.object_to_approve(&verdict.target);
            commands.push(approve_command(object, blocker.covered_by_content_approval));
        }
    }
    for list in [&mut policies, &mut commands] {
        list.sort();
        list.dedup();
    }
    let message = format!(
        "belay denies the removal of the owner reference of {}{}; {}",
        first.target.sentence_name(),
        and_more(denials.len() - 1, "dependent"),
        policies.join(", ")
    );
    let finding = Finding::new(Cause::Refused, message, commands.join(" and "));
    Some(finding.with_further_step(COLLECTOR_WAITS).with(evidence))
}
