//! One object that is Terminating under the hold: it is released if nothing needs it, by
//! the release of the leader. If something needs it, it stays, unless it is abandoned.

use super::UninstallOptions;
use super::owners::remove_node;
use super::report::Reason;
use crate::cluster::Snapshot;
use crate::cluster::release::{Response, TargetClient, by_hand};
use crate::cluster::world::ObjectKey;
use crate::hold::{RequestResult, UseCheck};
use crate::objects::ApiError;

/// What was found out about a Terminating object, and done.
pub enum TerminatingResult {
    /// It has no hold, or does not exist, or is not Terminating.
    Nothing,
    /// It is released, or would be in a dry run.
    Released,
    /// It is released in spite of this reason.
    Abandoned(Reason),
    /// Its release has begun.
    Releasing,
    /// It keeps its hold for this reason.
    Kept(Reason),
}

/// Looks at one Terminating object live, and has it released.
pub async fn look_at_terminating(
    snapshot: &Snapshot,
    place: &ObjectKey,
    UninstallOptions { abandon, dry_run, .. }: UninstallOptions,
) -> TerminatingResult {
    let context = &snapshot.context;
    let target = TargetClient::at(&context.world.read(), place);
    let unknown = |why: &str| TerminatingResult::Kept(Reason::Unknown(why.to_owned()));
    let (state, object) = match target.get(&context.client).await {
        Response { answer: RequestResult::Object(state), object: Ok(object) } => (state, object),
        Response { answer: RequestResult::Missing { .. }, .. } => {
            return TerminatingResult::Nothing;
        }
        Response { object: Err(ApiError::NotFound), .. } => {
            return TerminatingResult::Kept(Reason::Unserved);
        }
        Response { object: Err(error), .. } => return unknown(&error.to_string()),
        Response { object: Ok(_), .. } => return unknown("the answer of the API server was lost"),
    };
    if state.hold.is_none() || state.deleted.is_none() {
        return TerminatingResult::Nothing;
    }
    let reason = match unknown_policies(snapshot) {
        Some(reason) => Some(reason),
        None => {
            // Only of objects in the graph the age of their owner references is known, which
            // has to be older than an approval of the owner.
            snapshot.put(place.0, &object);
            let count = by_hand::check_by_hand(context, &snapshot.reader, place, &object).await;
            remove_node(&mut context.world.write(), place);
            match count {
                UseCheck::Releasable(_) => None,
                UseCheck::InUse(causes) => Some(Reason::InUse(causes)),
                UseCheck::Unknown(why) => Some(Reason::Unknown(why.to_string())),
                UseCheck::NeedsReads(_) => {
                    Some(Reason::Unknown("its users can't be read".to_owned()))
                }
            }
        }
    };
    match reason {
        reason if abandon && !dry_run => match by_hand::remove_hold(context, place, state).await {
            RequestResult::Object(_) => {
                reason.map_or(TerminatingResult::Released, TerminatingResult::Abandoned)
            }
            RequestResult::Missing { namespace: false } => TerminatingResult::Nothing,
            RequestResult::Missing { namespace: true } => TerminatingResult::Kept(Reason::Stranded),
            RequestResult::Conflict => unknown("another client changed it meanwhile"),
            RequestResult::NoAnswer => unknown("the answer of the API server was lost"),
            RequestResult::Failed(why) => TerminatingResult::Kept(Reason::Refused(why.to_string())),
        },
        Some(reason) => TerminatingResult::Kept(reason),
        None if dry_run => TerminatingResult::Released,
        None if snapshot.put_waiting(place, &object) => TerminatingResult::Releasing,
        None => unknown("it can't be read"),
    }
}

/// Why it is unknown which policies there are; `None`: they are known.
fn unknown_policies(snapshot: &Snapshot) -> Option<Reason> {
    if snapshot.context.world.read().known {
        return None;
    }
    let unread = snapshot.unread();
    let why = unread.iter().map(|unread| format!("{}: {}", unread.resource, unread.why));
    let why = why.collect::<Vec<_>>().join("; ");
    let colon = if why.is_empty() { "" } else { ": " };
    Some(Reason::Unknown(format!("the policies cannot be read{colon}{why}")))
}
