//! A release by a command: it counts users and runs passes like the leader, for one target and
//! with the rights of the user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use super::driver::{Driver, DriverContext, DriverReport, check_collected};
use super::requests::TargetClient;
use super::settle;
use super::update::PendingUpdate;
use crate::cluster::context::Context;
use crate::cluster::live::{
    CollectedReads, LiveObjects, LiveQuestion, ReadGroup, Reader, TargetBody, answer_with_reads,
};
use crate::cluster::world::{ObjectKey, RELEASE_REQUESTED};
use crate::decide::LiveRead;
use crate::graph::{Node, StepBudget};
use crate::hold::{
    HoldRemoval, MAX_READ_ROUNDS, PASS_STEPS, ReleaseReason, RequestResult, TargetState,
    TokenWrite, UnknownUse, UseCheck, WaitReason,
};
use crate::objects::{ApiError, ObjectRef};
use crate::webhook::fair::GroupLimits;

/// The time limit of one round of reads.
const READ_LIMIT: Duration = Duration::from_secs(15);

/// The result of [`check_manually`].
pub struct ManualCheckResult {
    pub result: Result<ReleaseReason, WaitReason>,
    reads: CollectedReads,
}

impl ManualCheckResult {
    /// Whether an object that the check has read is Terminating.
    pub fn is_terminating(&self, object: &ObjectRef) -> bool {
        let node = self.reads.reads().graph.object_by_ref(object);
        node.is_some_and(Node::is_terminating)
    }
}

/// Checks with live reads, without writes, which users of an object still count. With rights in
/// one namespace only, it finds the users in that namespace. It can prove that no user counts only
/// with the right to read all kinds in all namespaces.
pub async fn check_manually(
    context: &Context,
    reader: &Reader,
    key: &ObjectKey,
    object: &Value,
) -> ManualCheckResult {
    let collected = CollectedReads::new(&context.world.read());
    let Some(body) = TargetBody::new(object) else {
        return ManualCheckResult {
            result: Err(UnknownUse::TargetUnread.into()),
            reads: collected,
        };
    };
    let mut check = ManualCheck {
        context,
        reader,
        key,
        group: ReadGroup::Release(key.1.clone()),
        body,
        budget: StepBudget::new(PASS_STEPS),
        collected,
        missing_list: None,
    };
    let result = answer_with_reads(&mut check, MAX_READ_ROUNDS.into())
        .await
        .unwrap_or_else(|_| Err(UnknownUse::TooManyRounds.into()));
    ManualCheckResult { result, reads: check.collected }
}

/// Checks the use of an object with the rights of the person who runs the command.
struct ManualCheck<'a> {
    context: &'a Context,
    reader: &'a Reader,
    key: &'a ObjectKey,
    group: ReadGroup,
    body: TargetBody,
    budget: StepBudget,
    collected: CollectedReads,
    /// The first list that could not be read.
    missing_list: Option<UnknownUse>,
}

impl LiveQuestion for ManualCheck<'_> {
    type Answer = Result<ReleaseReason, WaitReason>;

    async fn answer(&mut self) -> Option<(Self::Answer, Vec<LiveRead>)> {
        let target = (self.key.0, &self.body);
        let count = check_collected(&self.context.world, &mut self.collected, target, &self.budget);
        let answer = match (count, &self.missing_list) {
            (UseCheck::NeedsReads(reads), _) => {
                // `check_manually` ignores an answer with missing reads.
                return Some((Err(UnknownUse::TooManyRounds.into()), reads.concat()));
            }
            (UseCheck::Releasable(ReleaseReason::Unused), Some(list)) => Err(list.clone().into()),
            (UseCheck::Releasable(reason), _) => Ok(reason),
            (UseCheck::InUse(causes), _) => Err(WaitReason::InUse(causes)),
            (UseCheck::Unknown(why), _) => Err(why.into()),
        };
        Some((answer, Vec::new()))
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let Self { reader, group, .. } = &*self;
        let mut answers = reader.read_all(group, reads, Instant::now() + READ_LIMIT).await;
        for (read, answer) in &mut answers {
            let (Err(why), LiveRead::List { .. }) = (&*answer, &*read) else { continue };
            let (resource, why) = (read.full_name().to_string(), why.clone());
            self.missing_list.get_or_insert(UnknownUse::ClusterListFailed { resource, why });
            // `missing_list` makes the result Unknown, so an empty list is safe here.
            *answer = Ok(read_in_namespace(self.reader, &self.group, read).await);
        }
        self.collected.add(answers);
    }
}

/// Reads the part of a list in the namespace of the group. Returns no objects if that fails.
async fn read_in_namespace(reader: &Reader, group: &ReadGroup, list: &LiveRead) -> LiveObjects {
    let ReadGroup::Release(namespace) = group else { return LiveObjects::default() };
    let mut in_namespace = list.clone();
    match &mut in_namespace {
        LiveRead::List { namespace: scope, .. } if scope.is_empty() && !namespace.is_empty() => {
            namespace.clone_into(scope);
        }
        _ => return LiveObjects::default(),
    }
    let answers = reader.read_all(group, vec![in_namespace], Instant::now() + READ_LIMIT).await;
    let found = answers.into_iter().next().and_then(|(_, answer)| answer.ok());
    found.unwrap_or_default()
}

/// Runs the release of one target until it ends or the time limit is reached. Returns the last
/// report; `None` if there was no report before the time limit.
pub async fn run_release(
    context: &Context,
    reader: &Reader,
    key: &ObjectKey,
    observed: TargetState,
    limit: Duration,
) -> Option<DriverReport> {
    let settle = settle(&context.world.read(), key);
    if settle >= limit {
        let timeout = sufficient_timeout(context, key).as_secs();
        let why = format!(
            "the time limit is not longer than settleSeconds of its policies ({}), and each release \
             waits that long; use --timeout={timeout}",
            settle.as_secs()
        );
        return Some(DriverReport::Waits(WaitReason::Unknown(why.into())));
    }
    let shared =
        DriverContext::new(context.clone(), reader.clone(), GroupLimits { total: 1, per_group: 1 });
    let target = TargetClient::at(&context.world.read(), key);
    let mut driver = Driver::new(shared, key.clone(), target, observed.uid.clone(), settle);
    let pending = PendingUpdate::default();
    pending.add(|update| {
        (update.observed, update.pass_by) = (Some(observed), Some(tokio::time::Instant::now()));
    });
    let last_report = parking_lot::Mutex::new(None);
    let running = driver.run(&pending, |_, report| *last_report.lock() = Some(report));
    let _elapsed = tokio::time::timeout(limit, running).await;
    last_report.into_inner()
}

/// Requests a check of the observed object by the leader, with an annotation.
pub async fn request_check(
    context: &Context,
    key: &ObjectKey,
    observed: &TargetState,
    now: Timestamp,
) -> Result<(), ApiError> {
    let target = TargetClient::at(&context.world.read(), key);
    let patch = observed.annotation_patch(RELEASE_REQUESTED, &now.to_string());
    target.patch(&context.client, &patch).await.object.map(drop)
}

/// Removes the hold without a count. The caller has checked the approvals. The patch is the same
/// as in a release: it tests the uid, and changes only the token and the hold.
pub async fn force_release(
    context: &Context,
    key: &ObjectKey,
    observed: TargetState,
) -> Result<(), String> {
    describe_result(remove_hold(context, key, observed).await)
}

/// Writes a token and removes the hold. Returns the answer to the last write.
pub async fn remove_hold(
    context: &Context,
    key: &ObjectKey,
    observed: TargetState,
) -> RequestResult {
    let target = TargetClient::at(&context.world.read(), key);
    let client = &context.client;
    let token = Arc::from(context.settings.instance.as_str());
    match target.patch(client, &TokenWrite::new(observed, token).patch()).await.result {
        RequestResult::Object(with_token) => match HoldRemoval::of_target(&with_token) {
            Some(removal) => target.patch(client, &removal.patch()).await.result,
            // The object no longer had the hold when the token was written.
            None => RequestResult::Object(with_token),
        },
        other => other,
    }
}

/// The longest time that [`run_release`] needs to release an object without users.
pub fn sufficient_timeout(context: &Context, key: &ObjectKey) -> Duration {
    settle(&context.world.read(), key) + Duration::from_secs(20)
}

fn describe_result(answer: RequestResult) -> Result<(), String> {
    match answer {
        RequestResult::Object(_) | RequestResult::TargetMissing => Ok(()),
        RequestResult::NamespaceMissing => {
            Err("its Namespace is deleted: nothing in it can be written until it is re-created"
                .into())
        }
        RequestResult::Conflict => {
            Err("it was changed meanwhile, or the API server refuses it".into())
        }
        RequestResult::Unknown => Err("the answer of the API server was lost".into()),
        RequestResult::Failed(why) => Err(why.to_string()),
    }
}
