//! What is Terminating under the hold: it goes if nothing needs it, by the same
//! pass as always. What is in use stays, unless it is abandoned. What is about
//! to be Terminating is waited for until it is, or is no more.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::Value;

use super::leaving::Leaving;
use super::news::{Left, Why};
use crate::cluster::Snapshot;
use crate::cluster::release::Target as At;
use crate::cluster::release::by_hand::{self, Outcome};
use crate::cluster::world::Place;
use crate::hold::{Answer, Count, TargetState, Waiting};
use crate::objects::ObjectRef;

/// So many are looked at at once, as by whoever leads.
const AT_ONCE: usize = 16;

/// What became of one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upshot {
    /// It is gone, or its hold is, or the next sweep may take that off.
    Free,
    /// Nothing needs it, and it goes.
    LetGo,
    /// It goes though this kept it.
    Abandoned(Why),
    /// It stays.
    Stays(Why),
}

/// How they are dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Looked at, and nothing is written.
    Look,
    /// What is free goes.
    Release,
    /// All goes.
    Abandon,
}

/// Looks at each of them, and does what is to be done.
pub async fn attend(
    snapshot: &Snapshot,
    waiting: &BTreeSet<ObjectRef>,
    manner: Manner,
) -> Vec<(ObjectRef, Upshot)> {
    // Which policies mean an object its Namespace's labels say, too.
    let namespace = {
        let world = snapshot.context.world.read();
        world.graph.kinds.find("", "Namespace")
    };
    if let Some(kind) = namespace {
        let names: BTreeSet<&str> =
            waiting.iter().map(|target| target.namespace.as_str()).collect();
        let looks = names.into_iter().filter(|name| !name.is_empty());
        let looks = looks.map(|name| snapshot.look_up(kind, "", name));
        // Of one that cannot be read the count says that it is not known.
        stream::iter(looks).buffer_unordered(AT_ONCE).map(drop).collect::<()>().await;
    }
    let fresh = snapshot.context.settings.timing.uninstall.fresh;
    let leaving = &Leaving::new(&snapshot.context.client, fresh);
    let upshots = waiting.iter().map(|target| async move {
        let upshot = one(snapshot, leaving, target, manner).await;
        (target.clone(), upshot)
    });
    let mut upshots: Vec<_> = stream::iter(upshots).buffer_unordered(AT_ONCE).collect().await;
    upshots.sort_by(|(one, _), (other, _)| one.cmp(other));
    upshots
}

async fn one(
    snapshot: &Snapshot,
    leaving: &Leaving<'_>,
    target: &ObjectRef,
    manner: Manner,
) -> Upshot {
    let context = &snapshot.context;
    // Whether it has gone with its kind the next sweep finds out.
    let Some((place, at)) = place(snapshot, target) else {
        return Upshot::Stays(Why::Unserved);
    };
    let (sight, object) = match at.get(&context.client).await {
        (Answer::Done(sight), Some(object)) => (sight, object),
        (Answer::Missing { .. }, _) => return Upshot::Free,
        (Answer::Failed(why), _) => return Upshot::Stays(Why::Unknown(why.to_string())),
        _ => return Upshot::Stays(Why::Unknown("the API server gave no clear answer".to_owned())),
    };
    match (sight.hold, &sight.deleted) {
        (None, _) => return Upshot::Free,
        (Some(_), Some(_)) => {}
        // What is abandoned the next sweep takes off.
        (Some(_), None) if manner == Manner::Abandon => return Upshot::Free,
        (Some(_), None) => return leaving.why(&object).await.map_or(Upshot::Free, Upshot::Stays),
    }
    let kept = kept(snapshot, &place, &object).await;
    match (manner, kept) {
        (Manner::Look, None) => Upshot::LetGo,
        (Manner::Look, Some(why)) => Upshot::Stays(why),
        (Manner::Release, Some(why)) => Upshot::Stays(why),
        (Manner::Release, None) => release(snapshot, &place, sight).await,
        (Manner::Abandon, kept) => {
            let upshot = after(by_hand::take_off(context, &place, sight).await);
            match (upshot, kept) {
                (Upshot::LetGo, Some(why)) => Upshot::Abandoned(why),
                (upshot, _) => upshot,
            }
        }
    }
}

/// Where a target stands in what a snapshot knows, and how it is read; none:
/// its kind is not served.
fn place(snapshot: &Snapshot, target: &ObjectRef) -> Option<(Place, At)> {
    let world = snapshot.context.world.read();
    let kind = world.graph.kinds.find_resource(&target.group, &target.resource)?;
    let place = (kind, target.namespace.clone(), target.name.clone());
    let at = At::at(&world, &place);
    Some((place, at))
}

/// What keeps it; none: nothing does.
async fn kept(snapshot: &Snapshot, place: &Place, object: &Value) -> Option<Why> {
    let Snapshot { context, reader, .. } = snapshot;
    if !context.world.read().known {
        let unread = snapshot.unread();
        let why = unread.iter().map(|unread| format!("{}: {}", unread.resource, unread.why));
        let why = why.collect::<Vec<_>>().join("; ");
        return Some(Why::Unknown(format!("what is protected cannot be read: {why}")));
    }
    snapshot.put(place.0, object);
    match by_hand::look(context, reader, place, object).await {
        Count::Free(_) => None,
        Count::Kept(causes) => Some(Why::InUse(causes)),
        Count::Unknown(why) => Some(Why::Unknown(why.to_string())),
        Count::Read(_) => Some(Why::Unknown("what may need it could not be read".to_owned())),
    }
}

/// Drives the release of what seems to be free.
async fn release(snapshot: &Snapshot, place: &Place, sight: TargetState) -> Upshot {
    let Snapshot { context, reader, .. } = snapshot;
    let enough = by_hand::enough(context, place);
    match by_hand::drive(context, reader, place, sight, enough).await {
        Outcome::Ended(_) => Upshot::LetGo,
        Outcome::Waits(Some(Waiting::For(causes))) => Upshot::Stays(Why::InUse(causes)),
        Outcome::Waits(Some(Waiting::Stranded)) => Upshot::Stays(Why::Stranded),
        Outcome::Waits(Some(Waiting::Unknown(why))) => Upshot::Stays(Why::Unknown(why.to_string())),
        Outcome::Waits(None) => {
            Upshot::Stays(Why::Unknown("the API server did not answer in time".to_owned()))
        }
    }
}

/// What the answer to the last write means.
fn after(answer: Answer) -> Upshot {
    let unknown = |why: &str| Upshot::Stays(Why::Unknown(why.to_owned()));
    match answer {
        Answer::Done(_) => Upshot::LetGo,
        Answer::Missing { namespace: false } => Upshot::Free,
        Answer::Missing { namespace: true } => Upshot::Stays(Why::Stranded),
        // The next look finds it as it is by then.
        Answer::Refused => unknown("somebody else has changed it meanwhile"),
        Answer::Lost => unknown("the API server gave no clear answer"),
        Answer::Failed(why) => Upshot::Stays(Why::Refused(why.to_string())),
    }
}

/// What is left of them, as it is told.
pub fn left(upshots: &[(ObjectRef, Upshot)]) -> Vec<Left> {
    let stays = upshots.iter().filter_map(|(target, upshot)| match upshot {
        Upshot::Stays(why) => Some(Left { target: target.clone(), why: why.clone() }),
        _ => None,
    });
    stays.collect()
}
