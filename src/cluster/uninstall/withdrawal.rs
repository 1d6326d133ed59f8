//! Removes every hold: page by page those of objects that stay, and by a release those
//! of objects that are Terminating, or will be because their owner or Namespace is.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, sleep, timeout_at};

use super::kinds::ListedKind;
use super::owners::OwnerReads;
use super::report::{Event, HeldObject, Reason, Tally, UninstallReport, count_by_kind};
use super::terminating::{Found, look_at_terminating};
use super::{Uninstall, UninstallOptions};
use crate::cluster::Snapshot;
use crate::cluster::holds::{HeldPages, HoldPlanner, Outcome, pace, write_hold};
use crate::cluster::release::{DriverReport, Target, by_hand};
use crate::cluster::world::Place;
use crate::decide::{Live, LiveReads, Situation};
use crate::graph::Graph;
use crate::hold::{End, Plan, Waiting, plan};
use crate::objects::{ApiError, Object, ObjectRef};
use crate::policy::PolicySet;
use crate::timing;

/// How many sweeps in a row may change nothing although something is left.
const IDLE: usize = 3;

/// How many Terminating objects are looked at at once, as by a leader.
const AT_ONCE: usize = 16;

/// Why the objects of a kind are unread of which it is unknown whether it is served.
pub const DOWN: &str = "the server of its group does not answer";

/// The holds of a cluster, being removed.
pub struct Withdrawal<'a> {
    uninstall: &'a Uninstall<'a>,
    snapshot: Snapshot,
    owners: OwnerReads,
    /// Why the object is about to be deleted whose hold is removed all the same.
    leaving: Mutex<Option<String>>,
    releases: UnboundedReceiver<(Place, DriverReport)>,
    pace: Interval,
    began: Instant,
    /// When progress was reported last.
    progress_at: Instant,
    tally: Tally,
    /// Objects that keep their hold for now, as this sweep found them.
    kept: BTreeMap<Place, Reason>,
    /// Objects that were found Terminating, and that are looked at next.
    terminating: BTreeSet<Place>,
    /// Objects that are being released, and the time at which that has taken too long.
    releasing: BTreeMap<Place, Instant>,
    reported: HashSet<Event>,
}

impl<'a> Withdrawal<'a> {
    pub fn new(
        uninstall: &'a Uninstall<'a>,
        snapshot: Snapshot,
        releases: UnboundedReceiver<(Place, DriverReport)>,
    ) -> Self {
        let timing = &uninstall.settings.timing;
        Self {
            uninstall,
            snapshot,
            owners: OwnerReads::new(timing.uninstall.fresh),
            leaving: Mutex::default(),
            releases,
            pace: pace(&timing.holds),
            began: Instant::now(),
            progress_at: Instant::now(),
            tally: Tally::default(),
            kept: BTreeMap::new(),
            terminating: BTreeSet::new(),
            releasing: BTreeMap::new(),
            reported: HashSet::new(),
        }
    }

    fn timing(&self) -> timing::Uninstall {
        self.uninstall.settings.timing.uninstall
    }

    /// Whether the time is up.
    fn is_over(&self) -> bool {
        self.uninstall.options.limit.is_some_and(|limit| self.began.elapsed() >= limit)
    }

    fn report_once(&mut self, event: Event) {
        if self.reported.insert(event.clone()) {
            (self.uninstall.report)(event);
        }
    }

    /// Sweeps these kinds until no hold is found, or the rest has to stay.
    pub async fn run(&mut self, kinds: &[ListedKind], unknown: &[String]) -> UninstallReport {
        let (mut idle, mut was_over) = (0, false);
        loop {
            let before = self.tally;
            let (held, mut unread) = self.sweep(kinds).await;
            unread.extend(unknown.iter().map(|kind| (kind.clone(), DOWN.to_owned())));
            // Before it waits: a person may repair it meanwhile.
            self.report_failures(&unread);
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
                    let reason = "it had its hold when belay looked at it last";
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

    /// Looks at every object that has a hold, once. Returns these, and the kinds that may
    /// be held and could not be listed.
    async fn sweep(&mut self, kinds: &[ListedKind]) -> (BTreeSet<Place>, Vec<(String, String)>) {
        self.kept.clear();
        let (mut held, mut unread, mut skipped) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (done, kind) in kinds.iter().enumerate() {
            match self.sweep_kind(kind, kinds.len() - done, &mut held).await {
                // It is no longer served.
                Ok(()) | Err(ApiError::NotFound) => {}
                Err(error) if kind.may_be_held => {
                    unread.push((kind.info.full_name(), error.to_string()));
                }
                Err(_) => skipped.push(kind.info.full_name()),
            }
        }
        if !skipped.is_empty() {
            self.report_once(Event::Step(format!(
                "not looked at, because they may not be listed: {}; no policy names them, nor does \
                 belay's record of holds",
                skipped.join(", ")
            )));
        }
        self.begin_releases().await;
        (held, unread)
    }

    async fn sweep_kind(
        &mut self,
        kind: &ListedKind,
        kinds_left: usize,
        held: &mut BTreeSet<Place>,
    ) -> Result<(), ApiError> {
        let limit = self.uninstall.options.limit;
        let mut pages = HeldPages::new(&self.uninstall.client, &kind.info);
        while let Some(page) = pages.next().await? {
            for object in page {
                let place = (kind.kind, object.namespace, object.name);
                held.insert(place.clone());
                // What comes too late is counted, so that this ends in time.
                let is_late = limit.is_some_and(|limit| self.began.elapsed() > limit);
                match object.is_terminating {
                    true => drop(self.terminating.insert(place)),
                    false if is_late => drop(self.kept.insert(place, Reason::Late)),
                    false => self.look(place).await,
                }
                self.report_progress(kinds_left);
            }
            self.report_progress(kinds_left);
        }
        Ok(())
    }

    fn report_progress(&mut self, kinds_left: usize) {
        if self.progress_at.elapsed() >= self.timing().progress {
            self.progress_at = Instant::now();
            let text = format!("{}; kinds left to look at: {kinds_left}", self.tally);
            (self.uninstall.report)(Event::Progress(text));
        }
    }

    /// Looks at one object live, and removes its hold if it stays.
    async fn look(&mut self, place: Place) {
        if !self.uninstall.options.dry_run {
            self.pace.tick().await;
        }
        let outcome = write_hold(&self.snapshot.context, &place, self).await;
        self.kept.remove(&place);
        let reason = match outcome {
            Outcome::Settled => return,
            Outcome::Written(_) => {
                let leaving = self.leaving.lock().take();
                return match leaving {
                    Some(why) => self.abandoned(&place, Reason::Leaving(why)),
                    None => self.tally.released += 1,
                };
            }
            Outcome::Terminating(_) => {
                self.terminating.insert(place);
                return;
            }
            Outcome::Kept(reason) => reason,
            Outcome::Stranded => Reason::Stranded,
            Outcome::Failed(ApiError::NotFound) => Reason::Unserved,
            Outcome::Failed(error) => Reason::Refused(error.to_string()),
        };
        self.kept.insert(place, reason);
    }

    fn abandoned(&mut self, place: &Place, reason: Reason) {
        self.tally.abandoned += 1;
        (self.uninstall.report)(Event::Abandoned(self.held(place, reason)));
    }

    /// Looks at the objects that were found Terminating, and has them released.
    async fn begin_releases(&mut self) {
        let mut found = std::mem::take(&mut self.terminating);
        found.retain(|place| !self.releasing.contains_key(place));
        let (snapshot, options) = (&self.snapshot, self.uninstall.options);
        // Which policies cover an object depends on the labels of its Namespace, too. Of
        // one that can't be read, a count says that it is unknown.
        let kind = snapshot.context.world.read().graph.kinds.find("", "Namespace");
        let names: BTreeSet<String> = found.iter().map(|place| place.1.clone()).collect();
        let reads = names.iter().filter(|name| !name.is_empty());
        let reads = reads.map(async |name| {
            // The labels of the last read may be old.
            if let Some(kind) = kind
                && snapshot.look_up(kind, "", name).await.is_err()
            {
                snapshot.context.world.write().graph.delete(kind, "", name, None);
            }
        });
        stream::iter(reads).buffer_unordered(AT_ONCE).collect::<()>().await;
        let looks = found.into_iter().map(async |place| {
            let found = look_at_terminating(snapshot, &place, options).await;
            (place, found)
        });
        let found: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        for (place, found) in found {
            self.kept.remove(&place);
            match found {
                Found::Nothing => {}
                Found::Released => self.tally.let_go += 1,
                Found::Abandoned(reason) => self.abandoned(&place, reason),
                Found::Releasing => {
                    let enough = by_hand::enough(&self.snapshot.context, &place);
                    self.releasing.insert(place, Instant::now() + enough);
                }
                Found::Kept(reason) => drop(self.kept.insert(place, reason)),
            }
        }
    }

    /// Waits until nothing is left that may still be released, or the time is up.
    async fn wait(&mut self) {
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        let (mut looked, mut reminded) = (Instant::now(), Instant::now());
        loop {
            let kept = self.kept.iter().filter(|(_, reason)| reason.may_end());
            let waits: Vec<_> = kept.map(|(at, why)| self.held(at, why.clone())).collect();
            let count = waits.len();
            waits.into_iter().for_each(|held| self.report_once(Event::Waits(held)));
            let is_over = count == 0 || self.is_over() || abandon || dry_run;
            if is_over && self.releasing.is_empty() {
                return;
            }
            if count > 0 && reminded.elapsed() >= self.timing().remind {
                reminded = Instant::now();
                (self.uninstall.report)(Event::Progress(format!(
                    "{count} objects are Terminating and held still; --abandon lets go of them \
                     though something needs them"
                )));
            }
            let due = looked + self.timing().look;
            match timeout_at(due, self.releases.recv()).await {
                Ok(Some((place, report))) => self.take_report(place, report),
                _ => {
                    self.look_again().await;
                    looked = Instant::now();
                }
            }
        }
    }

    /// Looks again at all that waits: what people approve, and which policies they delete,
    /// counts.
    async fn look_again(&mut self) {
        if let Err(error) = self.snapshot.refresh().await {
            // The policies are unknown now, so no release may begin or end.
            self.snapshot.context.world.write().known = false;
            self.report_once(Event::Warning(format!(
                "the kinds that are served cannot be read: {error}; belay tries again"
            )));
        }
        let late = self.releasing.extract_if(.., |_, due| *due <= Instant::now());
        let late =
            late.map(|(at, _)| (at, Reason::Unknown("its release took too long".to_owned())));
        self.kept.extend(late);
        for (place, reason) in self.kept.clone() {
            match reason {
                Reason::Leaving(_) => self.look(place).await,
                reason if reason.may_end() => drop(self.terminating.insert(place)),
                _ => {}
            }
        }
        self.begin_releases().await;
    }

    fn take_report(&mut self, place: Place, report: DriverReport) {
        let was_releasing = self.releasing.remove(&place).is_some();
        let reason = match report {
            DriverReport::Waits(Waiting::For(causes)) => Reason::InUse(causes),
            DriverReport::Waits(Waiting::Stranded) => Reason::Stranded,
            DriverReport::Waits(Waiting::Unknown(why)) => Reason::Unknown(why.to_string()),
            DriverReport::Ended(end) => {
                self.tally.let_go += usize::from(matches!(end, End::Released(_)));
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

    /// Reports what failed in a sweep, a line for each kind.
    fn report_failures(&mut self, unread: &[(String, String)]) {
        for (kind, why) in unread {
            let text = format!("{kind} may have holds and cannot be listed: {why}");
            self.report_once(Event::Warning(text));
        }
        let fails = |reason: &Reason| !reason.may_end() && *reason != Reason::DryRun;
        let kept = self.kept.iter().filter(|(_, reason)| fails(reason));
        let kept: Vec<_> = kept.map(|(place, reason)| self.held(place, reason.clone())).collect();
        for (kind, count, reason) in count_by_kind(&kept) {
            self.report_once(Event::Fails(kind, count, reason));
        }
    }

    fn held(&self, (kind, namespace, name): &Place, reason: Reason) -> HeldObject {
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

impl HoldPlanner for Withdrawal<'_> {
    type Keep = Reason;

    /// As if there were no policies and no labels. But the hold of an object stays that is
    /// deleted without it.
    async fn plan(&self, target: &Target, object: &Value) -> Result<Plan, Reason> {
        let (group, info) = (target.info.group.as_str(), &target.info);
        let Ok(mut read) = Object::deserialize(object) else {
            return Err(Reason::Refused("it can't be read".to_owned()));
        };
        // The label of an object wants the hold without any policy.
        read.metadata.labels = Default::default();
        let (graph, policies, reads) =
            (Graph::default(), PolicySet::default(), LiveReads::default());
        let situation = Situation::new(&graph, &policies, Live::Read(&reads), 0);
        let planned = plan(&situation, true, (group, &info.resource), &read);
        if planned == Plan::Nothing {
            return Ok(Plan::Nothing);
        }
        let kind = self.snapshot.context.world.read().graph.kinds.find(group, &info.kind);
        let Some(kind) = kind else { return Err(Reason::Unserved) };
        let UninstallOptions { abandon, dry_run, .. } = self.uninstall.options;
        match self.owners.why_leaving(&self.snapshot, kind, object).await {
            Some(why) if !abandon => return Err(Reason::Leaving(why)),
            leaving => *self.leaving.lock() = leaving,
        }
        if dry_run { Err(Reason::DryRun) } else { Ok(planned) }
    }
}
