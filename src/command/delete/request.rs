//! The DELETE of one object.

use kube::api::{DeleteParams, Preconditions};

use super::state::{DeletionState, Selection};
use crate::cluster::DeleteResponse;
use crate::command::delete_answer::ServerAnswer;
use crate::command::inspect::{PlannedObject, READ_WHOLE};
use crate::objects::{ApiError, Object, ObjectRef, Uid};

/// The maximum number of DELETEs while a controller writes the object.
const MAX_ATTEMPTS: usize = 20;

/// The result of a DELETE.
#[derive(Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The API server accepted it.
    Accepted,
    /// The object no longer exists.
    Gone,
    /// The object has changed in a way that may change the plan.
    Changed,
    /// The API server refused it, for this reason.
    Refused(String),
}

/// Deletes an object, if it is still the object of the plan. The first attempt has the
/// resourceVersion of the plan as a precondition. If only the status or other fields without
/// meaning for the plan have changed, the next attempt has the new resourceVersion.
pub async fn delete(
    state: &DeletionState,
    selection: &Selection,
    planned: &PlannedObject,
) -> Result<DeleteOutcome, ApiError> {
    let (Some(info), Some(id)) = (state.info(planned), planned.id) else {
        return Ok(DeleteOutcome::Gone);
    };
    let key = (planned.object.namespace.as_str(), planned.object.name.as_str());
    // A DELETE that ends the wait of a foreground deletion first updates the object. So the
    // precondition on the resourceVersion would fail.
    let node = state.inspection.graph.get(id);
    let is_terminating = node.is_some_and(|node| node.is_terminating());
    let mut version = planned.resource_version.clone().filter(|_| !is_terminating);
    for _ in 0..MAX_ATTEMPTS {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(planned.object.uid.clone()),
                resource_version: version,
            }),
            propagation_policy: state.propagation(id, selection.cascade),
            ..DeleteParams::default()
        };
        let status = match state.caller.send_delete(info, key, &params).await? {
            DeleteResponse::Accepted(_) => return Ok(DeleteOutcome::Accepted),
            DeleteResponse::Refused(status) => status,
        };
        match status.code {
            404 => return Ok(DeleteOutcome::Gone),
            409 => {}
            code => {
                let target = ObjectRef::of_kind(info, key.0, key.1);
                let answer = ServerAnswer::read(&state.caller, &target, &status).await;
                let refusal = answer.refusal().map(DeleteOutcome::Refused);
                return refusal.ok_or_else(|| ApiError::of_status(code, &status.message));
            }
        }
        let Some(json) = state.caller.metadata(info, key.0, key.1).await? else {
            return Ok(DeleteOutcome::Gone);
        };
        let object = serde_json::from_str(&json).ok();
        let new_version = object.and_then(|object| unchanged_version(state, planned, &object));
        let Some(new_version) = new_version else {
            return Ok(DeleteOutcome::Changed);
        };
        version = Some(new_version);
    }
    Ok(DeleteOutcome::Changed)
}

/// The resourceVersion of an object whose fields with a meaning for the plan are the same. `None`
/// if they changed, and for the kinds of [`READ_WHOLE`], whose spec counts too.
fn unchanged_version(
    state: &DeletionState,
    planned: &PlannedObject,
    object: &Object<'_>,
) -> Option<String> {
    let kind = (planned.object.group.as_str(), planned.object.resource.as_str());
    let node = state.inspection.graph.get(planned.id?)?;
    let metadata = &object.metadata;
    let owners = metadata.owner_references.iter().map(|owner| Uid::new(&owner.uid));
    let finalizers = metadata.finalizers.iter().flatten().map(|name| name.as_str());
    let is_same = Uid::new(&metadata.uid) == node.uid()
        && object.is_terminating() == node.is_terminating()
        && owners.eq(node.owner_uids())
        && finalizers.eq(node.finalizers().iter())
        && metadata.labels.len() == node.labels().iter().count()
        && metadata
            .labels
            .iter()
            .all(|(key, value)| node.labels().get(key) == Some(value.as_str()));
    (is_same && !READ_WHOLE.contains(&kind)).then(|| metadata.resource_version.to_string())
}
