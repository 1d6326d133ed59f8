//! Removes every hold: page by page those of objects that stay, and by a release those
//! of objects that are Terminating, or will be because their owner or Namespace is.

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
use super::report::{Event, HeldObject, Reason, UninstallCounts, UninstallReport};
use super::terminating::{TerminatingResult, look_at_terminating};
use super::{Uninstall, UninstallOptions};
use crate::cluster::Snapshot;
use crate::cluster::holds::{HeldPages, HoldWriteResult, pace, write_hold};
use crate::cluster::pace::{within, within_limit};
use crate::cluster::release::{DriverReport, by_hand};
use crate::cluster::world::ObjectKey;
use crate::hold::{ReleaseEnd, WaitReason};
use crate::objects::{ApiError, ObjectRef};
use crate::timing;

/// How many sweeps in a row may change nothing although something is left.
const IDLE: usize = 3;

/// How many Terminating objects are looked at at once, as by a leader.
const AT_ONCE: usize = 16;

/// Why the objects of a kind are unread of which it is unknown whether it is served.
pub const DOWN: &str = "the server of its group does not answer";

/// What a sweep found.
#[derive(Default)]
struct Sweep {
    /// The objects that have a hold.
    held: BTreeSet<ObjectKey>,
    /// The kinds that may have holds and could not be read, each with the reason.
    unread: Vec<(String, String)>,
    /// Other kinds that could not be read.
    skipped: Vec<String>,
}

/// The holds of a cluster, being removed.
pub struct Withdrawal<'a> {
    uninstall: &'a Uninstall<'a>,
    snapshot: Snapshot,
    owners: OwnerReads,
    releases: UnboundedReceiver<(ObjectKey, DriverReport)>,
    pace: Interval,
    began: Instant,
    /// When progress was reported last.
    progress_at: Instant,
    tally: UninstallCounts,
    /// Objects that keep their hold for now, as this sweep found them.
    kept: BTreeMap<ObjectKey, Reason>,
    /// The same as the last sweep found them.
    kept_before: BTreeMap<ObjectKey, Reason>,
    /// Objects that were found Terminating, and that are looked at next.
    terminating: BTreeSet<ObjectKey>,
    /// Objects that are being released, and the time at which that has taken too long.
    releasing: BTreeMap<ObjectKey, Instant>,
    /// When the policies were read last.
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
            began: Instant::now(),
            progress_at: Instant::now(),
            tally: UninstallCounts::default(),
            kept: BTreeMap::new(),
            kept_before: BTreeMap::new(),
            terminating: BTreeSet::new(),
            releasing: BTreeMap::new(),
            refreshed: Instant::now(),
            reporter: ChangeReporter::new(uninstall.report),
        }
    }

    fn timing(&self) -> timing::Uninstall {
        self.uninstall.settings.timing.uninstall
    }

    /// How much of the time is left.
    fn time_left(&self) -> Duration {
        let limit = self.uninstall.options.limit;
        limit.map_or(Duration::MAX, |limit| limit.saturating_sub(self.began.elapsed()))
    }

    /// Whether the time is up.
    fn is_over(&self) -> bool {
        self.time_left().is_zero()
    }

    /// Whether no step may start any more. A limit of 0 still allows one sweep.
    fn is_late(&self) -> bool {
        self.uninstall.options.limit.is_some_and(|limit| self.began.elapsed() > limit)
    }

    /// Sweeps these kinds until no hold is found, or the rest has to stay.
    pub async fn run(&mut self, kinds: &[ListedKind], unknown: &[String]) -> UninstallReport {
        let (mut idle, mut was_over) = (0, false);
        loop {
            let before = self.tally;
            let Sweep { held, mut unread, skipped } = self.sweep(kinds).await;
            unread.extend(unknown.iter().map(|kind| (kind.clone(), DOWN.to_owned())));
            // Before it waits: a person may repair it meanwhile.
            self.reporter.failures(&unread, &skipped, &self.failed());
            self.wait().await;
            let over = self.is_over();
            let mut report = self.result(unread);
            // Only a sweep that finds no hold is the last one: what was asked of belay
            // while it lived may have been stored meanwhile.
            if held.is_empty() || self.uninstall.options.dry_run {
                return report;
            }
            idle = if self.tally == before { idle + 1 } else { 0 };
            // If nothing seems to be left when the time is up, one more sweep proves it.
            if idle == IDLE || over && (was_over || !report.is_clean()) {
                // It found holds until the end. Where none is known to be left, none is
                // known to be removed either.
                if report.is_clean() {
                    let reason = "it had its hold when belay read it last";
                    let reason = Reason::Unknown(reason.to_owned());
                    report.left = held.iter().map(|at| self.held(at, reason.clone())).collect();
                }
                return report;
            }
            was_over = over;
            if self.tally == before {
                sleep(self.timing().pause).await;
            }
        }
    }

    /// Looks at every object that has a hold, once.
    async fn sweep(&mut self, kinds: &[ListedKind]) -> Sweep {
        // Releases run meanwhile, and a sweep may take long.
        self.refresh().await;
        self.kept_before = std::mem::take(&mut self.kept);
        let mut sweep = Sweep::default();
        for (done, kind) in kinds.iter().enumerate() {
            match self.sweep_kind(kind, kinds.len() - done, &mut sweep.held).await {
                // It is no longer served.
                Ok(()) | Err(ApiError::NotFound) => {}
                Err(error) if kind.may_be_held => {
                    sweep.unread.push((kind.info.full_name(), error.to_string()));
                }
                Err(_) => sweep.skipped.push(kind.info.full_name()),
            }
        }
        if self.refreshed.elapsed() >= self.timing().look {
            self.refresh().await;
        }
        self.begin_releases().await;
        sweep
    }

    async fn sweep_kind(
        &mut self,
        kind: &ListedKind,
        kinds_left: usize,
        held: &mut BTreeSet<ObjectKey>,
    ) -> Result<(), ApiError> {
        let mut pages = HeldPages::new(&self.uninstall.client, &kind.info);
        while let Some(page) = pages.next().await? {
            for object in page {
                let place = (kind.kind, object.namespace, object.name);
                held.insert(place.clone());
                match object.is_terminating {
                    true => drop(self.terminating.insert(place)),
                    false if self.is_late() => self.keep_late(place),
                    false => self.look(place).await,
                }
                self.report_progress(kinds_left);
            }
            self.report_progress(kinds_left);
        }
        pages.first_unreadable().map_or(Ok(()), Err)
    }

    /// Counts an object that was found after the time was up, so that this ends in time.
    fn keep_late(&mut self, place: ObjectKey) {
        let before = self.kept_before.remove(&place);
        self.kept.entry(place).or_insert(before.unwrap_or(Reason::Late));
    }

    fn report_progress(&mut self, kinds_left: usize) {
        if self.progress_at.elapsed() >= self.timing().progress {
            self.progress_at = Instant::now();
            let text = format!("{}; kinds left to read: {kinds_left}", self.tally);
            (self.uninstall.report)(Event::Progress(text));
        }
    }

    /// Looks at one object live, and removes its hold if it stays.
    async fn look(&mut self, place: ObjectKey) {
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        if !dry_run {
            self.pace.tick().await;
        }
        let mut planner = UninstallPlanner {
            snapshot: &self.snapshot,
            owners: &self.owners,
            keeps_leaving: true,
            dry_run,
        };
        let mut outcome = write_hold(&self.snapshot.context, &place, &planner).await;
        let mut leaving = None;
        if let HoldWriteResult::Kept(reason @ Reason::Leaving(_)) = &outcome
            && abandon
        {
            leaving = Some(reason.clone());
            planner.keeps_leaving = false;
            outcome = write_hold(&self.snapshot.context, &place, &planner).await;
        }
        self.kept.remove(&place);
        let reason = match outcome {
            HoldWriteResult::Settled => return,
            HoldWriteResult::Written(_) => {
                return match leaving {
                    Some(reason) => self.abandoned(&place, reason),
                    None => self.tally.released += 1,
                };
            }
            HoldWriteResult::Terminating(_) => {
                self.terminating.insert(place);
                return;
            }
            HoldWriteResult::Kept(reason) => reason,
            HoldWriteResult::Stranded => Reason::Stranded,
            HoldWriteResult::Failed(ApiError::NotFound) => Reason::Unserved,
            HoldWriteResult::Failed(error) => Reason::Refused(error.to_string()),
        };
        self.kept.insert(place, reason);
    }

    fn abandoned(&mut self, place: &ObjectKey, reason: Reason) {
        self.tally.abandoned += 1;
        (self.uninstall.report)(Event::Abandoned(self.held(place, reason)));
    }

    /// Looks at the objects that were found Terminating, and has them released.
    async fn begin_releases(&mut self) {
        let mut found = std::mem::take(&mut self.terminating);
        found.retain(|place| !self.releasing.contains_key(place));
        let (this, snapshot, options) = (&*self, &self.snapshot, self.uninstall.options);
        // Which policies cover an object depends on the labels of its Namespace, too. Of
        // one that can't be read, a count says that it is unknown.
        let kind = snapshot.context.world.read().graph.kinds.find("", "Namespace");
        let names: BTreeSet<String> = found.iter().map(|place| place.1.clone()).collect();
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
        stream::iter(reads).buffer_unordered(AT_ONCE).collect::<()>().await;
        let looks = found.into_iter().map(async |place| {
            if this.is_late() {
                return (place, None);
            }
            let found = look_at_terminating(snapshot, &place, options).await;
            (place, Some(found))
        });
        let found: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        for (place, found) in found {
            let Some(found) = found else {
                self.keep_late(place);
                continue;
            };
            self.kept.remove(&place);
            match found {
                TerminatingResult::Nothing => {}
                TerminatingResult::Released => self.tally.released_terminating += 1,
                TerminatingResult::Abandoned(reason) => self.abandoned(&place, reason),
                TerminatingResult::Releasing => {
                    let enough = by_hand::sufficient_timeout(&self.snapshot.context, &place);
                    self.releasing.insert(place, Instant::now() + enough);
                }
                TerminatingResult::Kept(reason) => drop(self.kept.insert(place, reason)),
            }
        }
    }

    /// Waits until nothing is left that may still be released, or the time is up.
    async fn wait(&mut self) {
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        let (mut looked, mut reminded) = (Instant::now(), Instant::now());
        while let Ok((place, report)) = self.releases.try_recv() {
            self.take_report(place, report);
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
                (self.uninstall.report)(Event::Progress(format!(
                    "{count} objects are Terminating and still have the hold; --abandon releases \
                     them although they are in use"
                )));
            }
            let look = (looked + self.timing().look).saturating_duration_since(Instant::now());
            match timeout(look.min(self.time_left()), self.releases.recv()).await {
                Ok(Some((place, report))) => self.take_report(place, report),
                _ => {
                    self.look_again().await;
                    looked = Instant::now();
                }
            }
        }
    }

    /// Reports the objects that wait. Returns their number.
    fn report_waits(&mut self) -> usize {
        let kept = self.kept.iter().filter(|(_, reason)| reason.may_end());
        let waits: Vec<_> = kept.map(|(at, why)| self.held(at, why.clone())).collect();
        let count = waits.len();
        waits.into_iter().for_each(|held| self.reporter.waits(held));
        count
    }

    /// Keeps the objects whose release takes too long.
    fn end_releases(&mut self, is_late: impl Fn(Instant) -> bool) {
        let late = self.releasing.extract_if(.., |_, due| is_late(*due));
        let reason = || Reason::Unknown("its release took too long".to_owned());
        self.kept.extend(late.map(|(at, _)| (at, reason())));
    }

    /// Reads the policies again: people change them meanwhile.
    async fn refresh(&mut self) {
        if self.is_over() {
            return;
        }
        self.refreshed = Instant::now();
        let error = within_limit(self.time_left(), self.snapshot.refresh()).await.err();
        if error.is_some() {
            // The policies are unknown now, so no release may begin or end.
            self.snapshot.context.world.write().known = false;
        }
        if !self.is_over() {
            self.reporter.refreshed(error);
        }
    }

    /// Looks again at all that waits: what people approve, and which policies they delete,
    /// counts.
    async fn look_again(&mut self) {
        self.refresh().await;
        let now = Instant::now();
        self.end_releases(|due| due <= now);
        for (place, reason) in self.kept.clone() {
            if self.is_over() {
                return;
            }
            match reason {
                Reason::Leaving(_) => self.look(place).await,
                reason if reason.may_end() => drop(self.terminating.insert(place)),
                _ => {}
            }
        }
        self.begin_releases().await;
    }

    fn take_report(&mut self, place: ObjectKey, report: DriverReport) {
        let was_releasing = self.releasing.remove(&place).is_some();
        let reason = match report {
            DriverReport::Waits(WaitReason::InUse(causes)) => Reason::InUse(causes),
            DriverReport::Waits(WaitReason::Stranded) => Reason::Stranded,
            DriverReport::Waits(WaitReason::Unknown(why)) => Reason::Unknown(why.to_string()),
            DriverReport::Ended(end) => {
                self.tally.released_terminating +=
                    usize::from(matches!(end, ReleaseEnd::Released(_)));
                self.kept.remove(&place);
                let mut world = self.snapshot.context.world.write();
                world.waiting.seen.remove(&place);
                world.graph.delete(place.0, &place.1, &place.2, None);
                return;
            }
        };
        if was_releasing {
            self.kept.insert(place, reason);
        }
    }

    /// The objects that keep their hold until a person changes something.
    fn failed(&self) -> Vec<HeldObject> {
        let fails = |reason: &Reason| !reason.may_end() && *reason != Reason::DryRun;
        let failed = self.kept.iter().filter(|(_, reason)| fails(reason));
        failed.map(|(place, reason)| self.held(place, reason.clone())).collect()
    }

    fn held(&self, (kind, namespace, name): &ObjectKey, reason: Reason) -> HeldObject {
        let world = self.snapshot.context.world.read();
        let target = ObjectRef::of_kind(world.graph.kinds.info(*kind), namespace, name);
        HeldObject { target, reason }
    }

    /// What is done, and left.
    fn result(&self, unread: Vec<(String, String)>) -> UninstallReport {
        let left = self.kept.iter().map(|(place, reason)| self.held(place, reason.clone()));
        let mut left: Vec<HeldObject> = left.collect();
        left.sort_by(|one, other| one.target.cmp(&other.target));
        UninstallReport { tally: self.tally, left, unread }
    }
}
