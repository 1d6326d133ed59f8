//! The verdict on a plain DELETE by the current user.

use std::time::{Duration, Instant};

use serde_json::value::to_raw_value;

use crate::cluster::Snapshot;
use crate::command::CommandError;
use crate::command::target::TargetObject;
use crate::decide::{
    Blocker, Decision, DeleteOptions, Reason, Resource, Review, ReviewDetails, Verdict,
};
use crate::graph::Propagation;
use crate::objects::{Object, ObjectRef};

/// The time limit of the live reads of a verdict.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// Decides as admission decides on a dry run. Sends no DELETE to the API server.
pub async fn verdict_on_delete(
    target: &TargetObject,
    snapshot: &Snapshot,
) -> Result<Verdict, CommandError> {
    verdict_with(target, snapshot, DeleteOptions::default()).await
}

/// The verdict on a DELETE with `--cascade=orphan`. `None` for a Namespace or a Terminating object,
/// if no policy denies orphaning, and if the verdict is unknown.
pub async fn verdict_on_orphaning(target: &TargetObject, snapshot: &Snapshot) -> Option<Verdict> {
    // The content of a Namespace is deleted with every cascade.
    let is_namespace = target.object_ref.is_namespace();
    if target.terminating_since().is_some() || is_namespace || !guards_orphans(snapshot) {
        return None;
    }
    let orphan = Some(Propagation::Orphan.as_str().into());
    let options = DeleteOptions { propagation_policy: orphan, ..DeleteOptions::default() };
    verdict_with(target, snapshot, options).await.ok()
}

/// The blockers that deny a DELETE because it orphans dependents.
pub fn orphaning_blockers(verdict: &Verdict) -> impl Iterator<Item = &Blocker> {
    verdict.blockers.iter().filter(|blocker| is_orphaning(blocker))
}

/// Whether a blocker denies a DELETE because it orphans dependents.
pub fn is_orphaning(blocker: &Blocker) -> bool {
    blocker.decision == Decision::Deny && blocker.reason == Reason::WouldOrphan
}

async fn verdict_with(
    target: &TargetObject,
    snapshot: &Snapshot,
    options: DeleteOptions<'_>,
) -> Result<Verdict, CommandError> {
    let unreadable =
        |_| CommandError::Remote("the answer of the API server is not an object".to_owned());
    let raw = to_raw_value(&target.json).map_err(unreadable)?;
    let object: Object<'_> = serde_json::from_str(raw.get()).map_err(unreadable)?;
    let me = &target.session.me;
    let request = Review {
        old_object: Some(object),
        details: ReviewDetails::read(Some(&raw), None),
        options,
        ..Review::of_dry_run(&me.name, &me.groups)
    };
    Ok(decide_about(&target.object_ref, snapshot, request).await)
}

/// Whether a policy denies requests that remove owners of objects.
pub(super) fn guards_orphans(snapshot: &Snapshot) -> bool {
    snapshot.context.world.read().policies.iter().any(|policy| policy.modes.from_orphaning)
}

/// The verdict on a request about this object.
pub(super) async fn decide_about(
    object_ref: &ObjectRef,
    snapshot: &Snapshot,
    request: Review<'_>,
) -> Verdict {
    snapshot.read_objects(object_ref.own_namespace()).await;
    let review = Review {
        resource: Resource {
            group: object_ref.group.as_str().into(),
            resource: object_ref.resource.as_str().into(),
            subresource: "".into(),
        },
        name: object_ref.name.as_str().into(),
        // In a request about a Namespace, the namespace is the name of the Namespace.
        namespace: object_ref.own_namespace().into(),
        ..request
    };
    snapshot.decide(&review, Instant::now() + READ_LIMIT).await
}
