//! The write of one hold: a patch that tests what was read, repeated if another client was
//! faster. The leader and an uninstall use it.

use serde_json::Value;

use crate::cluster::api::Detail;
use crate::cluster::context::Context;
use crate::cluster::release::{Response, TargetClient};
use crate::cluster::world::ObjectKey;
use crate::hold::{HoldPlan, RequestResult, TargetState, plan_patch};
use crate::objects::ApiError;

/// The limit of repetitions of the read and the write after a conflict or a lost answer.
const MAX_REPEATS: usize = 5;

/// The limit of lost answers. Without a limit, an object whose writes always fail, for
/// example because of a broken webhook, would delay all others.
const MAX_LOST: usize = 2;

/// Decides about the holds of objects that are not Terminating.
pub trait HoldPlanner {
    /// Why a hold stays although no policy wants it.
    type Keep;

    /// The plan for an object as it was read live.
    async fn plan(&self, target: &TargetClient, object: &Value) -> Result<HoldPlan, Self::Keep>;
}

/// The result of [`write_hold`] for an object.
#[derive(Debug, PartialEq, Eq)]
pub enum HoldWriteResult<K> {
    /// Its hold is as it should be, or the object does not exist.
    Unchanged,
    /// Its hold was written; what was done.
    Written(&'static str),
    /// It is Terminating and held. A release decides whether to remove the hold.
    Terminating(TargetState),
    /// The hold stays for this reason.
    Kept(K),
    /// Its Namespace does not exist, so it can't be written.
    Stranded,
    /// It can't be read or written. `NotFound`: its kind is not served.
    Failed(ApiError),
}

/// Reads an object live and writes its hold as planned.
pub async fn write_hold<P: HoldPlanner>(
    context: &Context,
    key: &ObjectKey,
    planner: &P,
) -> HoldWriteResult<P::Keep> {
    let client = &context.client;
    let target = TargetClient::at(&context.world.read(), key);
    let target = TargetClient { detail: Detail::Metadata, ..target };
    let (mut refused, mut written, mut lost) = (None, None, 0);
    for _ in 0..=MAX_REPEATS {
        let Response { result, object } = target.get(client).await;
        let (state, object) = match (result, object) {
            (RequestResult::Object(state), Ok(object)) => (state, object),
            (RequestResult::TargetMissing | RequestResult::NamespaceMissing, _) => {
                return HoldWriteResult::Unchanged;
            }
            (_, object) => return failed(object),
        };
        if state.deletion_timestamp.is_some() && state.hold.is_some() {
            return HoldWriteResult::Terminating(state);
        }
        let plan = match planner.plan(&target, &object).await {
            Ok(plan) => plan,
            Err(why) => return HoldWriteResult::Kept(why),
        };
        let patch = plan_patch(&plan, &state.uid, &state.resource_version);
        let (Some(patch), Some(change)) = (patch, plan.action()) else {
            return written.map_or(HoldWriteResult::Unchanged, HoldWriteResult::Written);
        };
        // If no other client has changed the object, the API server refuses the change for another
        // reason.
        if let Some((_, error)) = refused.take_if(|(version, _)| *version == state.resource_version)
        {
            return HoldWriteResult::Failed(error);
        }
        let Response { result, object } = target.patch(client, &patch).await;
        context.metrics.count_hold_change(change, matches!(result, RequestResult::Object(_)));
        match (result, object) {
            (RequestResult::Object(_), _) => return HoldWriteResult::Written(change),
            (RequestResult::NamespaceMissing, _) => return HoldWriteResult::Stranded,
            (RequestResult::TargetMissing, _) => return HoldWriteResult::Unchanged,
            (RequestResult::Conflict, Err(error)) => {
                refused = Some((state.resource_version, error))
            }
            // The patch may have been carried out. The next read shows that.
            (RequestResult::Unknown, _) if lost < MAX_LOST => {
                (lost, written) = (lost + 1, Some(change))
            }
            (_, object) => return failed(object),
        }
    }
    HoldWriteResult::Failed(ApiError::Other("other clients change it all the time".to_owned()))
}

fn failed<K>(object: Result<Value, ApiError>) -> HoldWriteResult<K> {
    HoldWriteResult::Failed(object.err().unwrap_or_else(|| ApiError::Other("no answer".to_owned())))
}
