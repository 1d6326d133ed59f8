//! Release: belay removes the hold of a Terminating object after a live pass has proved that no
//! user counts (docs/THEORY.md, Release).
//!
//! ```text
//!  feed ─► World::waiting ─► this module ─► one driver per target ─► src/hold
//!          (waiting objects)  the leader       reads and writes       state machine
//! ```
//!
//! The Lease only saves work: two leaders would do the same work twice, but would remove no
//! hold too early. A driver reads its state from the object itself, so the next leader can
//! start from the beginning.

mod driver;
pub(crate) mod manual;
pub(super) mod protobuf;
mod requests;
mod sweep;
#[cfg(test)]
mod tests;
mod update;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

pub use self::driver::DriverReport;
use self::driver::{Driver, DriverContext};
pub(super) use self::requests::{Response, TargetClient};
use self::update::PendingUpdate;
use super::context::Context;
use super::live::Reader;
use super::world::{ObjectKey, WaitingObject, World};
use crate::decide::{ObjectSource, Situation};
use crate::hold::{ReleaseEnd, ReleaseReason, WaitReason, longest_settle_seconds};
use crate::objects::{KeyedMap, KeyedSet};
use crate::policy::ObjectFacts;
use crate::telemetry::Metrics;
use crate::webhook::fair::GroupLimits;

/// The maximum number of concurrent passes, in total and in one namespace. Passes over
/// targets of one kind in one namespace share their reads.
const MAX_CONCURRENT_PASSES: GroupLimits = GroupLimits { total: 384, per_group: 192 };

/// Releases objects without users while this replica is the leader.
pub async fn run(context: Context, reader: Reader) {
    let lead = async || match Releases::new(context.clone(), reader.clone()).run_loop().await {};
    context.signals.while_leading(lead, || discard_changes(&context)).await;
}

/// Releases objects without users, and reports about each target. For an uninstall, which may
/// have no Lease.
pub async fn run_reporting(
    context: Context,
    reader: Reader,
    reports: UnboundedSender<(ObjectKey, DriverReport)>,
) -> Infallible {
    let mut releases = Releases::new(context, reader);
    releases.reports = Some(reports);
    releases.run_loop().await
}

/// Discards the changes while this replica is not the leader, so that they do not fill the
/// memory. A new leader checks every waiting object.
async fn discard_changes(context: &Context) {
    context.metrics.set_releasing(0, 0);
    loop {
        context.world.write().waiting.changed.clear();
        context.signals.waiting.notified().await;
    }
}

struct Releases {
    shared: DriverContext,
    targets: KeyedMap<ObjectKey, RunningRelease>,
    /// The drivers, each with its target and its pending update.
    tasks: JoinSet<(ObjectKey, Arc<PendingUpdate>)>,
    /// Receives the reports about each target, besides the log and the metrics.
    reports: Option<UnboundedSender<(ObjectKey, DriverReport)>>,
}

/// A target whose driver runs, and what the driver knows about it. The fields `requested`, `changes`
/// and `unused` are those of [`WaitingObject`] at the last update: a difference starts a pass.
struct RunningRelease {
    uid: Arc<str>,
    pending: Arc<PendingUpdate>,
    /// The last reported reason for which the target waits.
    wait_reason: Arc<Mutex<Option<WaitReason>>>,
    requested: Option<String>,
    changes: u64,
    unused: bool,
    /// The time of the latest planned pass; in the past if the pass already started.
    pass_at: Instant,
    /// Whether the target was removed, so that the driver ends.
    deleted: bool,
}

impl RunningRelease {
    /// Plans a pass, at least `min_interval` after the previous one, and returns its time. Keeps the
    /// time of a pass that is planned already.
    fn plan_pass(&mut self, now: Instant, min_interval: Duration) -> Instant {
        // A pass covers all changes before its start, so a planned pass is enough.
        if self.pass_at <= now {
            self.pass_at = now.max(self.pass_at + min_interval);
        }
        self.pass_at
    }

    /// Tells the driver that its target was removed.
    fn send_deleted(&mut self) {
        self.deleted = true;
        self.pending.add(|update| update.deleted = true);
    }
}

impl Releases {
    fn new(context: Context, reader: Reader) -> Self {
        let shared = DriverContext::new(context, reader, MAX_CONCURRENT_PASSES);
        Self { shared, targets: KeyedMap::default(), tasks: JoinSet::new(), reports: None }
    }

    async fn run_loop(&mut self) -> Infallible {
        let waiting = self.shared.context.signals.waiting.clone();
        // Targets that were waiting before this replica became the leader.
        self.apply_changes(true);
        let mut count = interval(self.shared.context.settings.timing.release.metrics_interval);
        loop {
            tokio::select! {
                () = waiting.notified() => self.apply_changes(false),
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((key, pending)) => self.remove_ended(&key, &pending),
                    // Without its driver, a target would wait forever. So the panic continues here.
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
                _ = count.tick() => self.count_targets(),
            }
        }
    }

    /// Sends the drivers the changes since the last call. `first`: sends the states of all waiting
    /// objects.
    fn apply_changes(&mut self, first: bool) {
        let (changed, all) = {
            let mut world = self.shared.context.world.write();
            let all = std::mem::take(&mut world.waiting.check_all) || first;
            let changed = std::mem::take(&mut world.waiting.changed);
            let waiting =
                if all { world.waiting.objects.keys().cloned().collect() } else { Vec::new() };
            let keys: KeyedSet<ObjectKey> = changed.into_iter().chain(waiting).collect();
            let states: Vec<(ObjectKey, Option<WaitingObject>)> = keys
                .into_iter()
                .map(|key| {
                    let state = world.waiting.objects.get(&key).cloned();
                    (key, state)
                })
                .collect();
            (states, all)
        };
        for (key, state) in changed {
            match state {
                Some(state) => self.update_driver(key, state, all),
                None => {
                    self.targets.get_mut(&key).into_iter().for_each(RunningRelease::send_deleted)
                }
            }
        }
    }

    fn update_driver(&mut self, key: ObjectKey, state: WaitingObject, all: bool) {
        let settle = settle(&self.shared.context.world.read(), &key);
        let min_interval = self.shared.context.settings.timing.release.min_pass_interval;
        let known = self.targets.get(&key).is_some_and(|running| running.uid == state.observed.uid);
        if !known {
            self.start_driver(&key, &state, settle);
        }
        let Some(running) = self.targets.get_mut(&key) else { return };
        let requested = state.requested.is_some() && state.requested != running.requested;
        // A change of the target itself, such as a new token, starts no pass.
        let changed = state.changes != running.changes || (state.unused && !running.unused);
        let needs_pass = known && (requested || all || changed);
        let pass_by = needs_pass.then(|| running.plan_pass(Instant::now(), min_interval));
        running.pending.add(|update| {
            (update.observed, update.settle) = (Some(state.observed), Some(settle));
            update.pass_by = pass_by.into_iter().chain(update.pass_by).min();
        });
        running.requested = state.requested;
        (running.changes, running.unused) = (state.changes, state.unused);
    }

    fn start_driver(&mut self, key: &ObjectKey, state: &WaitingObject, settle: Duration) {
        let pending = Arc::new(PendingUpdate::default());
        let wait_reason = Arc::new(Mutex::new(None));
        let uid = state.observed.uid.clone();
        let target = TargetClient::at(&self.shared.context.world.read(), key)
            .with_buffers(self.shared.buffers.clone());
        let mut driver = Driver::new(self.shared.clone(), key.clone(), target, uid.clone(), settle);
        let metrics = self.shared.context.metrics.clone();
        let running = RunningRelease {
            uid,
            pending: pending.clone(),
            wait_reason: wait_reason.clone(),
            requested: None,
            changes: state.changes,
            unused: state.unused,
            pass_at: Instant::now(),
            deleted: false,
        };
        let reports = self.reports.clone();
        self.tasks.spawn(async move {
            let key = driver.key.clone();
            let report = |target: &TargetClient, report: DriverReport| {
                if let Some(reports) = &reports {
                    // Sending fails if the uninstall has ended.
                    let _ = reports.send((key.clone(), report.clone()));
                }
                record_report(target, report, &mut wait_reason.lock(), &metrics);
            };
            driver.run(&pending, report).await;
            (driver.key, pending)
        });
        if let Some(mut former) = self.targets.insert(key.clone(), running) {
            former.send_deleted();
        }
    }

    /// Removes an ended driver. If the object still exists, or was re-created, the feed reports
    /// it, and a new driver starts.
    fn remove_ended(&mut self, key: &ObjectKey, pending: &Arc<PendingUpdate>) {
        let is_same = |running: &&RunningRelease| Arc::ptr_eq(&running.pending, pending);
        let ended = self.targets.get(key).filter(is_same);
        let Some(deleted) = ended.map(|running| running.deleted) else { return };
        self.targets.remove(key);
        let mut world = self.shared.context.world.write();
        let World { graph, waiting, .. } = &mut *world;
        if deleted && waiting.objects.contains_key(key) {
            // The object left its watch, and came back before this driver had ended. The driver no
            // longer reads updates, so a new one must start.
            waiting.changed.insert(key.clone());
            self.shared.context.signals.waiting.notify_one();
            return;
        }
        // If the object has left its watch, no event removes its state.
        if graph.object(key.0, &key.1, &key.2).is_none() {
            waiting.objects.remove(key);
        }
    }

    fn count_targets(&self) {
        let is_stuck = |running: &&RunningRelease| {
            matches!(
                *running.wait_reason.lock(),
                Some(WaitReason::Unknown(_) | WaitReason::Stranded)
            )
        };
        let stuck = self.targets.values().filter(is_stuck).count();
        self.shared.context.metrics.set_releasing(self.targets.len(), stuck);
    }
}

/// Stores, logs and counts the report of a driver.
fn record_report(
    target: &TargetClient,
    report: DriverReport,
    wait_reason: &mut Option<WaitReason>,
    metrics: &Metrics,
) {
    let TargetClient { info, namespace, name, .. } = target;
    match report {
        DriverReport::Waits(waiting) if wait_reason.as_ref() != Some(&waiting) => {
            if let WaitReason::Unknown(why) = &waiting
                && let Some(suppressed) = target.admit_log_line()
            {
                tracing::warn!(
                    resource = info.resource,
                    namespace,
                    name,
                    %why,
                    left_out = (suppressed > 0).then_some(suppressed),
                    "it is unknown whether a hold can be released; belay checks again"
                );
            }
            *wait_reason = Some(waiting);
        }
        DriverReport::Waits(_) | DriverReport::Ended(ReleaseEnd::NoLongerHeld) => {}
        DriverReport::Ended(ReleaseEnd::Released(reason)) => {
            let why = match reason {
                ReleaseReason::Approved => "approved",
                ReleaseReason::Unprotected => "unprotected",
                ReleaseReason::Unused => "unused",
            };
            metrics.count_release(why);
            let Some(suppressed) = target.admit_log_line() else { return };
            tracing::info!(
                resource = info.resource,
                namespace,
                name,
                why,
                left_out = (suppressed > 0).then_some(suppressed),
                "hold released"
            );
        }
    }
}

/// How long this process must see an object Terminating before the first pass of its release: the
/// largest `settleSeconds` of the policies that delay the release.
pub fn settle(world: &World, (kind, namespace, name): &ObjectKey) -> Duration {
    let Some(node) = world.graph.object(*kind, namespace, name) else { return Duration::ZERO };
    let World { graph, policies, .. } = world;
    // The policies that delay a release depend on neither time nor live reads.
    let situation = Situation::new(graph, policies, ObjectSource::Files, 0);
    let delaying = situation.release_policies(ObjectFacts::of_node(node));
    let seconds = longest_settle_seconds(&delaying);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
