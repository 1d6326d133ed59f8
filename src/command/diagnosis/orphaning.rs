//! The dependents whose owner reference the garbage collector can't remove, because belay denies
//! the UPDATE. Their owner has the finalizer `orphan`, and stays Terminating.

use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::to_raw_value;

use super::finalizers::finalizers_of;
use super::finding::{Cause, Finding};
use crate::cluster::Snapshot;
use crate::cluster::terminating::{Dependent, Survey, TerminatingObject};
use crate::command::session::UserSession;
use crate::decide::{
    Decision, Operation, Resource, Review, ReviewDetails, Verdict, approve_command, policy_names,
    sentence,
};
use crate::objects::{ORPHAN, Object, and_more};
use crate::policy::collectors;

/// The maximum number of dependents of an owner for which belay decides.
const MAX_DECIDED: usize = 5;

/// The time limit of the live reads of a verdict.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// The denials of the garbage collector's requests to remove the references to this owner.
pub async fn orphaning_denials(
    session: &UserSession,
    snapshot: &Snapshot,
    survey: &Survey,
    owner: &TerminatingObject,
) -> Vec<Verdict> {
    let guards_orphans =
        snapshot.context.world.read().policies.iter().any(|policy| policy.modes.from_orphaning);
    if !guards_orphans || !finalizers_of(&owner.object).contains(&ORPHAN) {
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
    let (namespace, name) = (&object_ref.namespace, &object_ref.name);
    let old = session.caller.object(&info, namespace, name).await.ok()??;
    let mut new = old.clone();
    let references = new.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)?;
    references.retain(|reference| reference["uid"] != owner);
    let (old_text, new_text) = (old.to_string(), new.to_string());
    let raw = [&old, &new].map(|object| to_raw_value(object).ok());
    snapshot.read_objects(object_ref.own_namespace()).await;
    let [(collector, groups), _] = collectors();
    let groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
    let review = Review {
        operation: Operation::Update,
        resource: Resource {
            group: object_ref.group.as_str().into(),
            resource: object_ref.resource.as_str().into(),
            subresource: "".into(),
        },
        name: name.as_str().into(),
        namespace: object_ref.own_namespace().into(),
        object: Some(serde_json::from_str::<Object<'_>>(&new_text).ok()?),
        old_object: Some(serde_json::from_str::<Object<'_>>(&old_text).ok()?),
        details: ReviewDetails::read(raw[0].as_deref(), raw[1].as_deref()),
        ..Review::of_dry_run(collector, &groups)
    };
    Some(snapshot.decide(&review, Instant::now() + READ_LIMIT).await)
}

/// The finding that belay denies these requests; `None` if there are none.
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
        first.target.short(),
        and_more(denials.len() - 1, "dependent"),
        policies.join(", ")
    );
    let finding = Finding::new(Cause::Refused, message, commands.join(" and "));
    let waits = "the garbage collector, which was refused, waits longer before each retry";
    Some(finding.with_further_step(waits).with(evidence))
}
