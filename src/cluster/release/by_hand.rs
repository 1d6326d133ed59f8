//! A release by hand: the same count and the same pass, for one target, with
//! the rights of the person who asks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::driver::{Driver, DriverContext, DriverReport, PendingUpdate, counted};
use super::requests::TargetClient;
use super::settle;
use crate::cluster::api::Detail;
use crate::cluster::context::Context;
use crate::cluster::list::Buffers;
use crate::cluster::live::{
    CollectedReads, Confirm, ReadGroup, ReadObjects, Reader, ReleasedObject, confirm,
};
use crate::cluster::world::{ObjectKey, RELEASE_REQUESTED};
use crate::decide::LiveRead;
use crate::graph::StepBudget;
use crate::hold::{
    HoldRemoval, MAX_READ_ROUNDS, PASS_STEPS, ReleaseEnd, ReleaseReason, RequestResult,
    TargetState, TokenWrite, UnknownUse, UseCheck, WaitReason,
};
use crate::objects::{ApiError, KindInfo};
use crate::webhook::fair::GroupLimits;

/// How long one round of reads may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Finds who still counts, by live reads and without writes. A user who may read a kind in one
/// namespace learns only of the users of the object there. To learn that there are none, the
/// user has to have read access to everything.
pub async fn check_by_hand(
    context: &Context,
    reader: &Reader,
    place: &ObjectKey,
    object: &Value,
) -> UseCheck {
    let Some(released) = ReleasedObject::new(object) else {
        return UseCheck::Unknown(UnknownUse::TargetUnread);
    };
    let mut count = CountByHand {
        context,
        reader,
        place,
        group: ReadGroup::Release(place.1.clone()),
        released,
        budget: StepBudget::new(PASS_STEPS),
        gathered: CollectedReads::new(&context.world.read()),
        missing_list: None,
    };
    confirm(&mut count, MAX_READ_ROUNDS.into())
        .await
        .unwrap_or(UseCheck::Unknown(UnknownUse::TooManyRounds))
}

/// A count of who needs an object, with the rights of a person.
struct CountByHand<'a> {
    context: &'a Context,
    reader: &'a Reader,
    place: &'a ObjectKey,
    group: ReadGroup,
    released: ReleasedObject,
    budget: StepBudget,
    gathered: CollectedReads,
    /// The first list that could not be read.
    missing_list: Option<UnknownUse>,
}

impl Confirm for CountByHand<'_> {
    type Answer = UseCheck;

    async fn answer(&mut self) -> Option<(UseCheck, Vec<LiveRead>)> {
        let target = (self.place.0, &self.released);
        let count = counted(&self.context.world, &mut self.gathered, target, &self.budget);
        Some(match (count, &self.missing_list) {
            (UseCheck::NeedsReads(reads), _) => (UseCheck::NeedsReads(Vec::new()), reads),
            (UseCheck::Releasable(ReleaseReason::Unused), Some(missing_list)) => {
                (UseCheck::Unknown(missing_list.clone()), Vec::new())
            }
            (count, _) => (count, Vec::new()),
        })
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let Self { reader, group, .. } = &*self;
        let mut answers = reader.read_all(group, reads, Instant::now() + LIMIT).await;
        for (read, answer) in &mut answers {
            let (Err(why), LiveRead::List { .. }) = (&*answer, &*read) else { continue };
            let (resource, why) = (read.kind_name().to_string(), why.clone());
            self.missing_list.get_or_insert(UnknownUse::ListForbidden { resource, why });
            // With an incomplete list, no object is ever released as unused.
            *answer = Ok(read_in_namespace(self.reader, &self.group, read).await);
        }
        self.gathered.add(answers);
    }
}

/// What a list has in this namespace, if that may be read.
async fn read_in_namespace(reader: &Reader, group: &ReadGroup, list: &LiveRead) -> ReadObjects {
    let ReadGroup::Release(namespace) = group else { return ReadObjects::default() };
    let mut near = list.clone();
    match &mut near {
        LiveRead::List { namespace: all, .. } if all.is_empty() && !namespace.is_empty() => {
            namespace.clone_into(all);
        }
        _ => return ReadObjects::default(),
    }
    let answers = reader.read_all(group, vec![near], Instant::now() + LIMIT).await;
    let found = answers.into_iter().next().and_then(|(_, answer)| answer.ok());
    found.unwrap_or_default()
}

/// How a release by hand came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The hold is off, or the object gone.
    Ended(ReleaseEnd),
    /// It waits for this; none: nothing was found out in time.
    Waits(Option<WaitReason>),
}

/// Drives the release of one target until it has ended or the time is up.
pub async fn drive(
    context: &Context,
    reader: &Reader,
    place: &ObjectKey,
    observed: TargetState,
    limit: Duration,
) -> ReleaseOutcome {
    let settle = settle(&context.world.read(), place);
    if settle >= limit {
        let enough = sufficient_timeout(context, place).as_secs();
        let why = format!(
            "settleSeconds of its policies ({}), which each release waits for; --timeout={enough} \
             is enough",
            settle.as_secs()
        );
        return ReleaseOutcome::Waits(Some(WaitReason::Unknown(why.into())));
    }
    let shared =
        DriverContext::new(context.clone(), reader.clone(), GroupLimits { total: 1, per_group: 1 });
    let target = TargetClient::at(&context.world.read(), place);
    let mut driver = Driver::new(shared, place.clone(), target, observed.uid.clone(), settle);
    let pending = PendingUpdate::default();
    pending.add(|update| {
        (update.seen, update.look_by) = (Some(observed), Some(tokio::time::Instant::now()));
    });
    let word = parking_lot::Mutex::new(None);
    let running = driver.run(&pending, |_, said| *word.lock() = Some(said));
    let _late = tokio::time::timeout(limit, running).await;
    match word.into_inner() {
        Some(DriverReport::Ended(end)) => ReleaseOutcome::Ended(end),
        Some(DriverReport::Waits(waiting)) => ReleaseOutcome::Waits(Some(waiting)),
        None => ReleaseOutcome::Waits(None),
    }
}

/// Asks belay to look at an object now, by its annotation. It has to be the object that was
/// observed.
pub async fn ask(
    client: &kube::Client,
    info: &KindInfo,
    (namespace, name): (&str, &str),
    observed: &TargetState,
    now: Timestamp,
) -> Result<(), ApiError> {
    let target = TargetClient {
        info: info.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        detail: Detail::Metadata,
        buffers: Buffers::new(1),
    };
    let patch = observed.annotation_patch(RELEASE_REQUESTED, &now.to_string());
    target.patch(client, &patch).await.object.map(drop)
}

/// Removes the hold without a count; the caller has the approvals. It is the same removal as in
/// a release, so it changes only this very object, and only its hold. The error says what
/// happened.
pub async fn force(
    context: &Context,
    place: &ObjectKey,
    observed: TargetState,
) -> Result<(), String> {
    describe_result(remove_hold(context, place, observed).await)
}

/// The same; what comes back is the answer to the last write.
pub async fn remove_hold(
    context: &Context,
    place: &ObjectKey,
    observed: TargetState,
) -> RequestResult {
    let target = TargetClient::at(&context.world.read(), place);
    let client = &context.client;
    let token = Arc::from(context.settings.instance.as_str());
    match target.patch(client, &TokenWrite::new(observed, token).patch()).await.answer {
        RequestResult::Object(marked) => match HoldRemoval::of_target(&marked) {
            Some(removal) => target.patch(client, &removal.patch()).await.answer,
            // It is off: the version that was marked is the one that was seen.
            None => RequestResult::Object(marked),
        },
        other => other,
    }
}

/// The longest time that [`drive`] needs to release an object without users.
pub fn sufficient_timeout(context: &Context, place: &ObjectKey) -> Duration {
    settle(&context.world.read(), place) + Duration::from_secs(20)
}

fn describe_result(answer: RequestResult) -> Result<(), String> {
    match answer {
        RequestResult::Object(_) | RequestResult::Missing { namespace: false } => Ok(()),
        RequestResult::Missing { namespace: true } => {
            Err("its Namespace is gone: nothing in it can be written until it is re-created".into())
        }
        RequestResult::Conflict => {
            Err("it was changed meanwhile, or the API server refuses it".into())
        }
        RequestResult::NoAnswer => Err("the answer of the API server was lost".into()),
        RequestResult::Failed(why) => Err(why.to_string()),
    }
}
