//! Removes every hold. It removes the holds of objects that stay page by page. Objects that are
//! Terminating need a release, and so do objects whose owner or Namespace is Terminating.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, sleep, timeout};

use super::changes::ChangeReporter;
use super::kinds::ListedKind;
use super::owners::OwnerReads;
use super::planner::UninstallPlanner;
use super::report::{HeldObject, HeldReason, UninstallCounts, UninstallEvent, UninstallReport};
use super::terminating::{TerminatingResult, release_terminating};
use super::{Uninstall, UninstallOptions};
use crate::cluster::Snapshot;
use crate::cluster::holds::{HeldPages, HoldWriteResult, pace, write_hold};
use crate::cluster::pace::{within, within_limit};
use crate::cluster::release::{DriverReport, manual};
use crate::cluster::world::ObjectKey;
use crate::hold::ReleaseEnd;
use crate::objects::{ApiError, HOLD, HoldAge, ObjectRef, counted};
use crate::timing;

/// The maximum number of consecutive rounds without a change while holds remain.
const MAX_IDLE_ROUNDS: usize = 3;

/// After this time, the API server has stored all requests that it sent to belay before the webhook
/// configurations were deleted. Later, only other clients add holds.
const REQUESTS_END: Duration = Duration::from_secs(HoldAge::SETTLED_SECONDS.unsigned_abs());

/// The number of Terminating objects that are checked at the same time.
const CONCURRENT_CHECKS: usize = 16;

/// The reason for unread kinds if belay does not know whether the API server serves them.
pub const DOWN: &str = "the server of its group does not answer";

/// The result of a round.
#[derive(Default)]
struct Round {
    /// The objects that have a hold.
    held: BTreeSet<ObjectKey>,
    /// The kinds that may have holds and could not be read, each with the reason.
    unread: Vec<(String, String)>,
    /// Other kinds that could not be read.
    skipped: Vec<String>,
}

/// The removal of all holds of a cluster.
pub struct Withdrawal<'a> {
    uninstall: &'a Uninstall<'a>,
    snapshot: Snapshot,
    owners: OwnerReads,
    releases: UnboundedReceiver<(ObjectKey, DriverReport)>,
    pace: Interval,
    start: Instant,
    /// When progress was last reported.
    progress_at: Instant,
    tally: UninstallCounts,
    /// Objects that keep their hold for now, according to this round.
    kept: BTreeMap<ObjectKey, HeldReason>,
    /// Objects that kept their hold in the last round.
    kept_before: BTreeMap<ObjectKey, HeldReason>,
    /// Terminating objects to check next.
    terminating: BTreeSet<ObjectKey>,
    /// Objects that are being released, each with its deadline.
    releasing: BTreeMap<ObjectKey, Instant>,
    /// The objects that had a hold in the first round after `REQUESTS_END`.
    held_when_requests_ended: Option<BTreeSet<ObjectKey>>,
    /// The objects whose hold was removed after `REQUESTS_END`.
    removed_late: BTreeSet<ObjectKey>,
    /// The objects to which other clients have added the hold since.
    added: BTreeSet<ObjectKey>,
    /// When the policies were last read.
    refreshed: Instant,
    reporter: ChangeReporter<'a>,
}

impl<'a> Withdrawal<'a> {
    pub fn new(
        uninstall: &'a Uninstall<'a>,
        snapshot: Snapshot,
        releases: UnboundedReceiver<(ObjectKey, DriverReport)>,
    ) -> Self {
        let timing = &uninstall.settings.timing;
        Self {
            uninstall,
            snapshot,
            owners: OwnerReads::new(timing.uninstall.fresh),
            releases,
            pace: pace(&timing.holds),
            start: Instant::now(),
            progress_at: Instant::now(),
            tally: UninstallCounts::default(),
            kept: BTreeMap::new(),
            kept_before: BTreeMap::new(),
            terminating: BTreeSet::new(),
            releasing: BTreeMap::new(),
            held_when_requests_ended: None,
            removed_late: BTreeSet::new(),
            added: BTreeSet::new(),
            refreshed: Instant::now(),
            reporter: ChangeReporter::new(uninstall.report),
        }
    }

    fn timing(&self) -> timing::Uninstall {
        self.uninstall.settings.timing.uninstall
    }

    fn time_left(&self) -> Duration {
        let limit = self.uninstall.options.limit;
        limit.map_or(Duration::MAX, |limit| limit.saturating_sub(self.start.elapsed()))
    }

    /// Whether the time limit is reached.
    fn is_over(&self) -> bool {
        self.time_left().is_zero()
    }

    /// Whether it is too late to start a step.
    fn is_late(&self) -> bool {
        self.uninstall.options.limit.is_some_and(|limit| self.start.elapsed() > limit)
    }

    /// Runs rounds over these kinds until it finds no hold, or until the remaining holds must stay.
    pub async fn run(&mut self, kinds: &[ListedKind], unknown: &[String]) -> UninstallReport {
        let (mut idle, mut was_over) = (0, false);
        loop {
            let (before, requests_ended) = (self.tally, self.have_requests_ended());
            let Round { held, mut unread, skipped } = self.run_round(kinds).await;
            if requests_ended && self.held_when_requests_ended.is_none() {
                self.held_when_requests_ended = Some(held.clone());
            }
            unread.extend(unknown.iter().map(|kind| (kind.clone(), DOWN.to_owned())));
            // The report comes before the wait, so that a user can solve the problems meanwhile.
            self.reporter.report_failures(&unread, &skipped, &self.failed());
            self.wait().await;
            let is_over = self.is_over();
            let mut report = self.result(unread);
            // After a round that found holds, another one follows: meanwhile the API server may
            // have stored objects to which belay added a hold earlier.
            if held.is_empty() || self.uninstall.options.dry_run {
                self.report_added();
                return report;
            }
            idle = if self.tally == before { idle + 1 } else { 0 };
            // If no hold is known when the time limit is reached, one more round checks that none
            // exists.
            if idle == MAX_IDLE_ROUNDS || is_over && (was_over || !report.is_clean()) {
                // The last round still found holds, so belay does not know whether they were
                // removed.
                if report.is_clean() {
                    let reason = "it had its hold when belay read it last";
                    let reason = HeldReason::Unknown(reason.to_owned());
                    report.left =
                        held.iter().map(|key| self.held_object(key, reason.clone())).collect();
                }
                return report;
            }
            was_over = is_over;
            if self.tally == before {
                sleep(self.timing().pause).await;
            }
        }
    }

    /// Warns about objects to which other clients add the hold again. They could do so forever.
    fn report_added(&self) {
        let Some(first) = self.added.first() else { return };
        let first = self.object_ref(first).arguments();
        (self.uninstall.report)(UninstallEvent::Warning(format!(
            "other clients add the finalizer {HOLD} to {} again and again, for example {first}; \
             nothing removes it from now on",
            counted(self.added.len(), "object")
        )));
    }

    fn is_added_by_others(&self, key: &ObjectKey) -> bool {
        self.held_when_requests_ended
            .as_ref()
            .is_some_and(|held| !held.contains(key) || self.removed_late.contains(key))
    }

    fn have_requests_ended(&self) -> bool {
        self.start.elapsed() >= REQUESTS_END
    }

    /// Checks every object with a hold once.
    async fn run_round(&mut self, kinds: &[ListedKind]) -> Round {
        // Releases run during the round, so they need the current policies.
        self.refresh().await;
        self.kept_before = std::mem::take(&mut self.kept);
        let mut round = Round::default();
        for (done, kind) in kinds.iter().enumerate() {
            match self.check_kind(kind, kinds.len() - done, &mut round.held).await {
                // The API server no longer serves the kind.
                Ok(()) | Err(ApiError::NotFound) => {}
                Err(error) if kind.may_be_held => {
                    round.unread.push((kind.info.full_name(), error.to_string()));
                }
                Err(_) => round.skipped.push(kind.info.full_name()),
            }
        }
        if self.refreshed.elapsed() >= self.timing().look {
            self.refresh().await;
        }
        self.begin_releases().await;
        round
    }

    async fn check_kind(
        &mut self,
        kind: &ListedKind,
        kinds_left: usize,
        held: &mut BTreeSet<ObjectKey>,
    ) -> Result<(), ApiError> {
        let mut pages = HeldPages::new(&self.uninstall.client, &kind.info);
        while let Some(page) = pages.next().await? {
            for object in page {
                let key = (kind.kind, object.namespace, object.name);
                if self.is_added_by_others(&key) {
                    self.added.insert(key);
                    continue;
                }
                held.insert(key.clone());
                match object.is_terminating {
                    true => drop(self.terminating.insert(key)),
                    false if self.is_late() => self.keep_late(key),
                    false => self.check(key).await,
                }
                self.report_progress(kinds_left);
            }
            self.report_progress(kinds_left);
        }
        pages.first_unreadable().map_or(Ok(()), Err)
    }

    /// Records an object that was found after the time limit, without a check.
    fn keep_late(&mut self, key: ObjectKey) {
        let before = self.kept_before.remove(&key);
        self.kept.entry(key).or_insert(before.unwrap_or(HeldReason::Late));
    }

    fn report_progress(&mut self, kinds_left: usize) {
        if self.progress_at.elapsed() >= self.timing().progress {
            self.progress_at = Instant::now();
            let text = format!("{}; kinds left to read: {kinds_left}", self.tally);
            (self.uninstall.report)(UninstallEvent::Progress(text));
        }
    }

    /// Reads one object live, and removes its hold if the object stays.
    async fn check(&mut self, key: ObjectKey) {
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        if !dry_run {
            self.pace.tick().await;
        }
        let mut planner = UninstallPlanner {
            snapshot: &self.snapshot,
            owners: &self.owners,
            keeps_if_owner_terminates: true,
            dry_run,
        };
        let mut outcome = write_hold(&self.snapshot.context, &key, &planner).await;
        let mut owner_terminating = None;
        if let HoldWriteResult::Kept(reason @ HeldReason::OwnerTerminating(_)) = &outcome
            && abandon
            && !dry_run
        {
            owner_terminating = Some(reason.clone());
            planner.keeps_if_owner_terminates = false;
            outcome = write_hold(&self.snapshot.context, &key, &planner).await;
        }
        self.kept.remove(&key);
        let reason = match outcome {
            HoldWriteResult::Unchanged => return,
            HoldWriteResult::Written(_) => {
                if self.have_requests_ended() {
                    self.removed_late.insert(key.clone());
                }
                return match owner_terminating {
                    Some(reason) => self.record_abandoned(&key, reason),
                    None => self.tally.released += 1,
                };
            }
            HoldWriteResult::Terminating(_) => {
                self.terminating.insert(key);
                return;
            }
            HoldWriteResult::Kept(reason) => reason,
            HoldWriteResult::Stranded => HeldReason::Stranded,
            HoldWriteResult::Failed(ApiError::NotFound) => HeldReason::Unserved,
            HoldWriteResult::Failed(error) => HeldReason::Refused(error.to_string()),
        };
        self.kept.insert(key, reason);
    }

    fn record_abandoned(&mut self, key: &ObjectKey, reason: HeldReason) {
        self.tally.abandoned += 1;
        (self.uninstall.report)(UninstallEvent::Abandoned(self.held_object(key, reason)));
    }

    /// Checks the Terminating objects, and starts their releases.
    async fn begin_releases(&mut self) {
        let mut terminating = std::mem::take(&mut self.terminating);
        terminating.retain(|key| !self.releasing.contains_key(key));
        let (this, snapshot, options) = (&*self, &self.snapshot, self.uninstall.options);
        // The policies of an object depend on the labels of its Namespace. If a Namespace can't be
        // read, the count of its objects is unknown.
        let kind = snapshot.context.world.read().graph.kinds.namespace();
        let names: BTreeSet<String> = terminating.iter().map(|key| key.1.clone()).collect();
        let reads = names.iter().filter(|name| !name.is_empty());
        let reads = reads.map(async |name| {
            // The labels of the last read may be old.
            if let Some(kind) = kind
                && !this.is_late()
                && within(snapshot.look_up(kind, "", name)).await.is_err()
            {
                snapshot.context.world.write().graph.delete(kind, "", name, None);
            }
        });
        stream::iter(reads).buffer_unordered(CONCURRENT_CHECKS).collect::<()>().await;
        let checks = terminating.into_iter().map(async |key| {
            if this.is_late() {
                return (key, None);
            }
            let result = release_terminating(snapshot, &key, options).await;
            (key, Some(result))
        });
        let results: Vec<_> =
            stream::iter(checks).buffer_unordered(CONCURRENT_CHECKS).collect().await;
        for (key, result) in results {
            let Some(result) = result else {
                self.keep_late(key);
                continue;
            };
            self.kept.remove(&key);
            match result {
                TerminatingResult::Nothing => {}
                TerminatingResult::Released => self.tally.released_terminating += 1,
                TerminatingResult::Abandoned(reason) => self.record_abandoned(&key, reason),
                TerminatingResult::Releasing => {
                    let limit = manual::sufficient_timeout(&self.snapshot.context, &key);
                    self.releasing.insert(key, Instant::now() + limit);
                }
                TerminatingResult::Kept(reason) => drop(self.kept.insert(key, reason)),
            }
        }
    }

    /// Waits until no remaining object can be released, or until the time limit is reached.
    async fn wait(&mut self) {
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        let (mut checked, mut reminded) = (Instant::now(), Instant::now());
        while let Ok((key, report)) = self.releases.try_recv() {
            self.take_report(key, report);
        }
        loop {
            let count = self.report_waits();
            if self.is_over() {
                return self.end_releases(|_| true);
            }
            if (count == 0 || abandon || dry_run) && self.releasing.is_empty() {
                return;
            }
            if count > 0 && reminded.elapsed() >= self.timing().remind {
                reminded = Instant::now();
                (self.uninstall.report)(UninstallEvent::Progress(format!(
                    "{count} objects still have the hold, because they or their owners are \
                     Terminating; --abandon removes these holds as well"
                )));
            }
            let next_check =
                (checked + self.timing().look).saturating_duration_since(Instant::now());
            match timeout(next_check.min(self.time_left()), self.releases.recv()).await {
                Ok(Some((key, report))) => self.take_report(key, report),
                _ => {
                    self.check_again().await;
                    checked = Instant::now();
                }
            }
        }
    }

    /// Reports the objects that wait. Returns their number.
    fn report_waits(&mut self) -> usize {
        let kept = self.kept.iter().filter(|(_, reason)| reason.may_end());
        let waits: Vec<_> = kept.map(|(key, why)| self.held_object(key, why.clone())).collect();
        let count = waits.len();
        waits.into_iter().for_each(|held| self.reporter.report_wait(held));
        count
    }

    /// Records the objects whose release takes too long.
    fn end_releases(&mut self, is_late: impl Fn(Instant) -> bool) {
        let late = self.releasing.extract_if(.., |_, due| is_late(*due));
        let reason = || HeldReason::Unknown("its release took too long".to_owned());
        self.kept.extend(late.map(|(key, _)| (key, reason())));
    }

    /// Reads the policies again, because users may change them meanwhile.
    async fn refresh(&mut self) {
        if self.is_over() {
            return;
        }
        self.refreshed = Instant::now();
        let error = within_limit(self.time_left(), self.snapshot.refresh()).await.err();
        if error.is_some() {
            // The policies are unknown now, so no release may start or finish.
            self.snapshot.context.world.write().policies_current = false;
        }
        if !self.is_over() {
            self.reporter.report_refresh(error);
        }
    }

    /// Checks all waiting objects again, because users may have approved a deletion or deleted a
    /// policy.
    async fn check_again(&mut self) {
        self.refresh().await;
        let now = Instant::now();
        self.end_releases(|due| due <= now);
        for (key, reason) in self.kept.clone() {
            if self.is_over() {
                return;
            }
            match reason {
                HeldReason::OwnerTerminating(_) => self.check(key).await,
                reason if reason.may_end() => drop(self.terminating.insert(key)),
                _ => {}
            }
        }
        self.begin_releases().await;
    }

    fn take_report(&mut self, key: ObjectKey, report: DriverReport) {
        let was_releasing = self.releasing.remove(&key).is_some();
        let reason = match report {
            DriverReport::Waits(why) => why.into(),
            DriverReport::Ended(end) => {
                self.tally.released_terminating +=
                    usize::from(matches!(end, ReleaseEnd::Released(_)));
                self.kept.remove(&key);
                let mut world = self.snapshot.context.world.write();
                world.waiting.objects.remove(&key);
                world.graph.delete(key.0, &key.1, &key.2, None);
                return;
            }
        };
        if was_releasing {
            self.kept.insert(key, reason);
        }
    }

    /// The objects that keep their hold until a user changes something.
    fn failed(&self) -> Vec<HeldObject> {
        let is_failure = |reason: &HeldReason| !reason.may_end() && *reason != HeldReason::DryRun;
        let failed = self.kept.iter().filter(|(_, reason)| is_failure(reason));
        failed.map(|(key, reason)| self.held_object(key, reason.clone())).collect()
    }

    fn held_object(&self, key: &ObjectKey, reason: HeldReason) -> HeldObject {
        HeldObject { target: self.object_ref(key), reason }
    }

    fn object_ref(&self, (kind, namespace, name): &ObjectKey) -> ObjectRef {
        let world = self.snapshot.context.world.read();
        ObjectRef::of_kind(world.graph.kinds.info(*kind), namespace, name)
    }

    /// The report of the holds that were removed, and of those that remain.
    fn result(&self, unread: Vec<(String, String)>) -> UninstallReport {
        let left = self.kept.iter().map(|(key, reason)| self.held_object(key, reason.clone()));
        let mut left: Vec<HeldObject> = left.collect();
        left.sort_by(|a, b| a.target.cmp(&b.target));
        UninstallReport { tally: self.tally, left, unread }
    }
}
