//! Release: belay releases an object that waits under the hold when it has no users, proved
//! by a live pass (docs/THEORY.md, Release).
//!
//! ```text
//!  feed ─► World::waiting ─► this module ─► one driver a target ─► src/hold
//!          (seen, freed)      the leader          reads, writes     the machine
//! ```
//!
//! The Lease only saves work: two leaders would do the same work twice, but would remove no
//! hold too early. A driver reads its state from the object itself, so the next leader can
//! start from the beginning.

pub mod by_hand;
mod driver;
mod requests;
mod sweep;
#[cfg(test)]
mod tests;
mod times;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

pub use self::driver::DriverReport;
use self::driver::{Driver, DriverContext, PendingUpdate};
pub(super) use self::requests::{Response, TargetClient};
use super::context::Context;
use super::live::Reader;
use super::world::{ObjectKey, WaitingObject, World};
use crate::decide::{ObjectSource, Situation};
use crate::hold::{ReleaseEnd, ReleaseReason, WaitReason, release_policies};
use crate::objects::{KeyedMap, KeyedSet};
use crate::policy::ObjectFacts;
use crate::telemetry::Metrics;
use crate::webhook::fair::GroupLimits;

/// The number of passes that run at once, in total and in one namespace. Passes over
/// targets of one kind in one namespace share their reads.
const PASSES: GroupLimits = GroupLimits { total: 192, per_group: 96 };

/// Releases objects that are free, while this replica is the leader.
pub async fn run(context: Context, reader: Reader) {
    let lead = async || match Releases::new(context.clone(), reader.clone()).run_loop().await {};
    context.signals.while_leading(lead, || ignore(&context)).await;
}

/// Releases what is free, and reports on each target. For an uninstall, which may have
/// no Lease.
pub async fn run_reporting(
    context: Context,
    reader: Reader,
    reports: UnboundedSender<(ObjectKey, DriverReport)>,
) -> Infallible {
    let mut releases = Releases::new(context, reader);
    releases.reports = Some(reports);
    releases.run_loop().await
}

/// Drops the changes while this replica is not the leader, and releases nothing. A new leader
/// looks at every waiting object, and names of earlier ones would only add up.
async fn ignore(context: &Context) {
    context.metrics.releasing(0, 0);
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
    /// What is reported of each target, besides the log and the metrics.
    reports: Option<UnboundedSender<(ObjectKey, DriverReport)>>,
}

/// A target that is driven.
struct RunningRelease {
    uid: Arc<str>,
    pending: Arc<PendingUpdate>,
    /// What it said last that it waits for.
    waits: Arc<Mutex<Option<WaitReason>>>,
    requested: Option<String>,
    /// The change of its users up to which the driver was last asked to look, and the time of
    /// that.
    changes: u64,
    unused: bool,
    /// When the driver was asked to look, or is to look.
    looks: Instant,
    /// The driver knows that the target is deleted, and ends.
    gone: bool,
}

impl RunningRelease {
    /// The time of the next pass.
    fn next_look(&mut self, now: Instant, again: Duration) -> Instant {
        // A pass that begins later covers what happens before it.
        if self.looks <= now {
            self.looks = now.max(self.looks + again);
        }
        self.looks
    }

    /// Tells it that its target is gone.
    fn report_deleted(&mut self) {
        self.gone = true;
        self.pending.add(|update| update.gone = true);
    }
}

impl Releases {
    fn new(context: Context, reader: Reader) -> Self {
        let shared = DriverContext::new(context, reader, PASSES);
        Self { shared, targets: KeyedMap::default(), tasks: JoinSet::new(), reports: None }
    }

    async fn run_loop(&mut self) -> Infallible {
        let waiting = self.shared.context.signals.waiting.clone();
        // Targets that were waiting before this replica became the leader.
        self.take_in(true);
        let mut count = interval(self.shared.context.settings.timing.release.count);
        loop {
            tokio::select! {
                () = waiting.notified() => self.take_in(false),
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((place, pending)) => self.forget(&place, &pending),
                    // A target whose driver is gone would wait for ever: the
                    // whole part ends, and says so.
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => {}
                },
                _ = count.tick() => self.count(),
            }
        }
    }

    /// Takes in what the feed has seen since the last time.
    fn take_in(&mut self, first: bool) {
        let (changed, all) = {
            let mut world = self.shared.context.world.write();
            let all = std::mem::take(&mut world.waiting.all) || first;
            let changed = std::mem::take(&mut world.waiting.changed);
            let places =
                if all { world.waiting.seen.keys().cloned().collect() } else { Vec::new() };
            let places: KeyedSet<ObjectKey> = changed.into_iter().chain(places).collect();
            let seen: Vec<(ObjectKey, Option<WaitingObject>)> = places
                .into_iter()
                .map(|place| {
                    let seen = world.waiting.seen.get(&place).cloned();
                    (place, seen)
                })
                .collect();
            (seen, all)
        };
        for (place, seen) in changed {
            match seen {
                Some(seen) => self.seen(place, seen, all),
                None => self
                    .targets
                    .get_mut(&place)
                    .into_iter()
                    .for_each(RunningRelease::report_deleted),
            }
        }
    }

    fn seen(&mut self, place: ObjectKey, seen: WaitingObject, all: bool) {
        let settle = settle(&self.shared.context.world.read(), &place);
        let again = self.shared.context.settings.timing.release.again;
        let known = self.targets.get(&place).is_some_and(|driven| driven.uid == seen.observed.uid);
        if !known {
            self.begin(&place, &seen, settle);
        }
        let Some(driven) = self.targets.get_mut(&place) else { return };
        let asked = seen.requested.is_some() && seen.requested != driven.requested;
        // What is seen of the target itself, its own token above all, is no
        // reason to look.
        let changed = seen.changes != driven.changes || (seen.unused && !driven.unused);
        let look = known && (asked || all || changed);
        let look_by = look.then(|| driven.next_look(Instant::now(), again));
        driven.pending.add(|update| {
            (update.seen, update.settle) = (Some(seen.observed), Some(settle));
            update.look_by = look_by.into_iter().chain(update.look_by).min();
        });
        driven.requested = seen.requested;
        (driven.changes, driven.unused) = (seen.changes, seen.unused);
    }

    fn begin(&mut self, place: &ObjectKey, seen: &WaitingObject, settle: Duration) {
        let pending = Arc::new(PendingUpdate::default());
        let waits = Arc::new(Mutex::new(None));
        let uid = seen.observed.uid.clone();
        let target = TargetClient::at(&self.shared.context.world.read(), place)
            .with_buffers(self.shared.buffers.clone());
        let mut driver =
            Driver::new(self.shared.clone(), place.clone(), target, uid.clone(), settle);
        let metrics = self.shared.context.metrics.clone();
        let driven = RunningRelease {
            uid,
            pending: pending.clone(),
            waits: waits.clone(),
            requested: None,
            changes: seen.changes,
            unused: seen.unused,
            looks: Instant::now(),
            gone: false,
        };
        let reports = self.reports.clone();
        self.tasks.spawn(async move {
            let at = driver.place.clone();
            let report = |target: &TargetClient, report: DriverReport| {
                if let Some(reports) = &reports {
                    // The uninstall may have ended.
                    let _ = reports.send((at.clone(), report.clone()));
                }
                record_report(target, report, &mut waits.lock(), &metrics);
            };
            driver.run(&pending, report).await;
            (driver.place, pending)
        });
        if let Some(mut former) = self.targets.insert(place.clone(), driven) {
            former.report_deleted();
        }
    }

    /// A driver has ended. If the object is there still, or again, the feed
    /// says so, and it is begun anew.
    fn forget(&mut self, place: &ObjectKey, pending: &Arc<PendingUpdate>) {
        let is_it = |driven: &&RunningRelease| Arc::ptr_eq(&driven.pending, pending);
        let ended = self.targets.get(place).filter(is_it);
        let Some(gone) = ended.map(|driven| driven.gone) else { return };
        self.targets.remove(place);
        let mut world = self.shared.context.world.write();
        let World { graph, waiting, .. } = &mut *world;
        if gone && waiting.seen.contains_key(place) {
            // It left its watch, and was seen again before its driver had ended. That driver
            // no longer reads updates.
            waiting.changed.insert(place.clone());
            self.shared.context.signals.waiting.notify_one();
            return;
        }
        // What was seen by no watch, because it had left it, is forgotten here.
        if graph.object(place.0, &place.1, &place.2).is_none() {
            waiting.seen.remove(place);
        }
    }

    fn count(&self) {
        let is_stuck = |driven: &&RunningRelease| {
            matches!(*driven.waits.lock(), Some(WaitReason::Unknown(_) | WaitReason::Stranded))
        };
        let stuck = self.targets.values().filter(is_stuck).count();
        self.shared.context.metrics.releasing(self.targets.len(), stuck);
    }
}

/// Keeps what a driver reports, and logs and counts it.
fn record_report(
    target: &TargetClient,
    word: DriverReport,
    waits: &mut Option<WaitReason>,
    metrics: &Metrics,
) {
    let TargetClient { info, namespace, name, .. } = target;
    match word {
        DriverReport::Waits(waiting) if waits.as_ref() != Some(&waiting) => {
            if let WaitReason::Unknown(why) = &waiting
                && let Some(left_out) = target.admit_line()
            {
                tracing::warn!(
                    resource = info.resource,
                    namespace,
                    name,
                    %why,
                    left_out = (left_out > 0).then_some(left_out),
                    "it is unknown whether a hold can be released; belay checks again"
                );
            }
            *waits = Some(waiting);
        }
        DriverReport::Waits(_) | DriverReport::Ended(ReleaseEnd::NoLongerHeld) => {}
        DriverReport::Ended(ReleaseEnd::Released(free)) => {
            let why = match free {
                ReleaseReason::Approved => "approved",
                ReleaseReason::Unprotected => "unprotected",
                ReleaseReason::Unused => "unused",
            };
            metrics.released(why);
            let Some(left_out) = target.admit_line() else { return };
            tracing::info!(
                resource = info.resource,
                namespace,
                name,
                why,
                left_out = (left_out > 0).then_some(left_out),
                "hold released"
            );
        }
    }
}

/// How long an object has to have been Terminating before it may go: the most
/// that a policy of its asks for.
pub fn settle(world: &World, (kind, namespace, name): &ObjectKey) -> Duration {
    let Some(node) = world.graph.object(*kind, namespace, name) else { return Duration::ZERO };
    let World { graph, policies, .. } = world;
    // What keeps it is the same whatever time it is, and whatever is read.
    let situation = Situation::new(graph, policies, ObjectSource::Files, 0);
    let keeping = release_policies(&situation, ObjectFacts::of_node(node));
    let seconds =
        keeping.iter().map(|applied| applied.policy.settle_seconds).max().unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
