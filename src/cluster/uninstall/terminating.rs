//! Releases one Terminating object with the hold, if it has no user, with the leader's code. An
//! object in use keeps its hold, unless the user abandons it.

use super::UninstallOptions;
use super::owners::remove_node;
use super::report::HeldReason;
use crate::cluster::Snapshot;
use crate::cluster::release::{Response, TargetClient, manual};
use crate::cluster::world::ObjectKey;
use crate::hold::RequestResult;
use crate::objects::ApiError;

pub enum TerminatingResult {
    /// The object has no hold, does not exist, or is not Terminating.
    Nothing,
    /// The object was released, or would be released without a dry run.
    Released,
    /// The object was released although this reason blocks its release.
    Abandoned(HeldReason),
    /// The release has started.
    Releasing,
    /// The object keeps its hold for this reason.
    Kept(HeldReason),
}

/// Reads one Terminating object live, and starts its release.
pub async fn release_terminating(
    snapshot: &Snapshot,
    key: &ObjectKey,
    UninstallOptions { abandon, dry_run, .. }: UninstallOptions,
) -> TerminatingResult {
    let context = &snapshot.context;
    let target = TargetClient::at(&context.world.read(), key);
    let unknown = |why: &str| TerminatingResult::Kept(HeldReason::Unknown(why.to_owned()));
    let Response { result, object } = target.get(&context.client).await;
    let (state, object) = match (result, object) {
        (RequestResult::Object(state), Ok(object)) => (state, object),
        (RequestResult::TargetMissing | RequestResult::NamespaceMissing, _) => {
            return TerminatingResult::Nothing;
        }
        (_, Err(ApiError::NotFound)) => return TerminatingResult::Kept(HeldReason::Unserved),
        (_, Err(error)) => return unknown(&error.to_string()),
        (_, Ok(_)) => return unknown("the answer of the API server was lost"),
    };
    if state.hold.is_none() || state.deletion_timestamp.is_none() {
        return TerminatingResult::Nothing;
    }
    let reason = match unknown_policies(snapshot) {
        Some(reason) => Some(reason),
        None => {
            // An approval of the owner covers only dependents that are older than the approval. The
            // graph knows this age only for its own objects.
            snapshot.insert(key.0, &object);
            let check = manual::check_manually(context, &snapshot.reader, key, &object).await;
            remove_node(&mut context.world.write(), key);
            check.result.err().map(HeldReason::from)
        }
    };
    match reason {
        reason if abandon && !dry_run => match manual::remove_hold(context, key, state).await {
            RequestResult::Object(_) => {
                reason.map_or(TerminatingResult::Released, TerminatingResult::Abandoned)
            }
            RequestResult::TargetMissing => TerminatingResult::Nothing,
            RequestResult::NamespaceMissing => TerminatingResult::Kept(HeldReason::Stranded),
            RequestResult::Conflict => unknown("another client changed it meanwhile"),
            RequestResult::Unknown => unknown("the answer of the API server was lost"),
            RequestResult::Failed(why) => {
                TerminatingResult::Kept(HeldReason::Refused(why.to_string()))
            }
        },
        Some(reason) => TerminatingResult::Kept(reason),
        None if dry_run => TerminatingResult::Released,
        None if snapshot.insert_waiting(key, &object) => TerminatingResult::Releasing,
        None => unknown("it can't be read"),
    }
}

/// Why the policies are unknown; `None` if they are known.
fn unknown_policies(snapshot: &Snapshot) -> Option<HeldReason> {
    if snapshot.context.world.read().policies_current {
        return None;
    }
    let unread = snapshot.unread();
    let why = unread.iter().map(|unread| format!("{}: {}", unread.resource, unread.why));
    let why = why.collect::<Vec<_>>().join("; ");
    let colon = if why.is_empty() { "" } else { ": " };
    Some(HeldReason::Unknown(format!("the policies cannot be read{colon}{why}")))
}
