//! Takes belay out of a cluster, with belay alive or dead, so that nothing
//! stays Terminating for its sake and nothing in use is lost.
//!
//! ```text
//!  the Lease ─► both configurations ─► every hold ─► what belay keeps ─► the Lease
//!  so that       so that nobody is     sweep: what        (own)
//!  nobody puts   asked, and nothing    stays; waiting:
//!  holds back    new gets a hold       what is Terminating,
//!                                      or about to be
//! ```
//!
//! Each step finds out by looking what is still to be done. So it can be run
//! again after it was killed anywhere, and a second time changes nothing. What
//! is not there is as good as deleted.

mod kinds;
mod leaving;
mod news;
mod own;
mod plan;
mod sweep;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Api;
use tokio::time::{Instant, sleep};

pub use self::news::{Ended, Left, News, Tally, Why, by_kind};
pub use self::own::installed;

use self::kinds::Look;
use self::own::{Configurations, Remains};
use self::sweep::{Sweeper, Swept};
use self::waiting::{Manner, Upshot, attend, left};
use super::clock::Clock;
use super::context::Settings;
use super::election::{Kept, Seat, seize};
use super::feed::Snapshot;
use super::pace::within;
use crate::objects::{ApiError, ObjectRef};
use crate::policy::Identities;

/// So many sweeps in a row may change nothing, though something is left.
const IDLE: usize = 3;

/// Why the objects of a kind are unread of which nobody knows whether it is
/// served.
const DOWN: &str = "the server of its group does not answer";

/// How it is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manners {
    /// What is Terminating and in use goes as well.
    pub abandon: bool,
    /// Nothing is written.
    pub dry_run: bool,
    /// How long it may sweep and wait; none: until what is in use goes.
    pub limit: Option<Duration>,
}

/// Why nothing, or not all of it, was begun: words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBegun {
    /// What there is could not be read.
    Unread(ApiError),
    /// This configuration, or these, could not be read.
    Configurations(String, ApiError),
    /// There are configurations of another belay, which may well live.
    Elsewhere {
        /// Where it is, if it can be told.
        namespace: Option<String>,
        /// What it is called.
        name: String,
    },
    /// The Lease could not be taken.
    Lease(ApiError),
    /// This configuration could not be deleted.
    Configuration(String, ApiError),
    /// The record of the kinds that may have holds could not be read.
    Record(ApiError),
}

/// An installation, to be taken out.
pub struct Uninstall<'a> {
    /// The API server.
    pub client: kube::Client,
    /// Which installation; its replica is who uninstalls.
    pub settings: Settings,
    /// Whom it knows by name.
    pub identities: Identities,
    /// The time.
    pub clock: Clock,
    /// How.
    pub manners: Manners,
    /// Who hears of it.
    pub tell: &'a dyn Fn(News),
}

impl Uninstall<'_> {
    /// Does it all.
    pub async fn run(&self) -> Result<Ended, NotBegun> {
        let snapshot = self.snapshot().await?;
        let configurations = Configurations::read(&self.client, &self.settings).await?;
        if self.manners.dry_run {
            return self.release(&snapshot, &configurations, None).await;
        }
        let Settings { namespace, name, replica, .. } = &self.settings;
        let holder = format!("uninstall-{}", replica.rsplit('/').next().unwrap_or_default());
        let lease = self.settings.timing.lease;
        let seat = seize(&self.client, (namespace, name), holder, self.clock, lease).await;
        let seat = seat.map_err(NotBegun::Lease)?;
        match &seat {
            Some(seat) => (self.tell)(News::Seized(seat.from.clone())),
            None => (self.tell)(News::Absent(format!("Namespace {namespace}"))),
        }
        let done = tokio::select! {
            done = self.release(&snapshot, &configurations, seat.as_ref()) => done,
            never = self.keep(seat.as_ref()) => match never {},
        };
        let clean = matches!(&done, Ok(ended) if ended.is_clean());
        match (&seat, clean) {
            (Some(seat), true) => self.clear(seat).await,
            // Replicas that run let go of what waits, once it is free. They put
            // no hold back: without configurations nobody does.
            (Some(seat), false) => {
                if let Err(error) = seat.give_back().await {
                    (self.tell)(News::LeaseFails(error.to_string()));
                }
            }
            (None, _) => {}
        }
        done
    }

    /// Keeps the Lease, for ever.
    async fn keep(&self, seat: Option<&Seat>) -> Infallible {
        let Some(seat) = seat else { return std::future::pending().await };
        seat.keep(|kept| {
            (self.tell)(match kept {
                Kept::Again(from) => News::SeizedAgain(from),
                Kept::Failing(why) => News::LeaseFails(why),
            });
        })
        .await
    }

    async fn snapshot(&self) -> Result<Snapshot, NotBegun> {
        let (client, settings) = (self.client.clone(), self.settings.clone());
        let snapshot = Snapshot::read_rules(client, settings, self.identities.clone()).await;
        let snapshot = snapshot.map_err(NotBegun::Unread)?;
        snapshot.context.world.write().clock = self.clock;
        Ok(snapshot)
    }

    /// Deletes the configurations, and takes holds off until none is left, or
    /// what is left is not to be had.
    async fn release(
        &self,
        first: &Snapshot,
        configurations: &Configurations,
        seat: Option<&Seat>,
    ) -> Result<Ended, NotBegun> {
        let record = self.record().await.map_err(NotBegun::Record)?;
        if !self.manners.dry_run {
            configurations.delete(&self.client, &self.settings.name, self.tell).await?;
            let believed = seat.map(|seat| seat.believed).unwrap_or_default();
            if !believed.is_zero() {
                // By then, too, whatever was asked before is stored.
                (self.tell)(News::Outwaits(believed));
                sleep(believed).await;
            }
        }
        let (looks, unknown) = {
            let world = first.context.world.read();
            let (gone, unknown) = kinds::unserved(&world, &first.stale, &record);
            if !gone.is_empty() {
                (self.tell)(News::Unserved(gone));
            }
            (kinds::to_look_at(&world, &self.settings, &record), unknown)
        };
        self.sweeps(&looks, &unknown).await
    }

    /// Sweeps these kinds until no hold is met, or what is left is not to be
    /// had. Of the `unknown` ones nobody knows whether they are served.
    async fn sweeps(&self, looks: &[Look], unknown: &[String]) -> Result<Ended, NotBegun> {
        let mut sweeper =
            Sweeper::new(&self.client, &self.settings.timing, self.manners, self.tell);
        let (mut idle, mut skipped, mut told) = (0, Vec::new(), Vec::new());
        let since = sweeper.began;
        let mut is_last = false;
        loop {
            let mut swept = sweeper.sweep(looks).await;
            swept.unread.extend(unknown.iter().map(|kind| (kind.clone(), DOWN.to_owned())));
            if swept.skipped != skipped && !swept.skipped.is_empty() {
                skipped.clone_from(&swept.skipped);
                (self.tell)(News::Skipped(skipped.clone()));
            }
            // Before anything is waited for: somebody may put it right.
            let troubles = troubles(&swept);
            if troubles != told {
                troubles.iter().for_each(|error| (self.tell)(error.clone()));
                told = troubles;
            }
            let mut waits = Vec::new();
            let mut changed = swept.released > 0;
            if !swept.waiting.is_empty() {
                let before = sweeper.tally;
                let waiting = std::mem::take(&mut swept.waiting);
                waits = self.wait(waiting, &mut sweeper.tally, since).await?;
                changed |= sweeper.tally != before;
            }
            let (all_gone, seen) = (swept.met == 0, std::mem::take(&mut swept.seen));
            let is_over = self.is_over(since);
            let ended = ended(sweeper.tally, swept, waits);
            // Only a sweep that meets no hold at all is the last one: whatever
            // was asked of belay while it lived may have been stored meanwhile.
            if all_gone || self.manners.dry_run {
                return Ok(ended);
            }
            idle = if changed { 0 } else { idle + 1 };
            // Where nothing seems to be left when the time is up, one more sweep
            // says whether that is so.
            if idle == IDLE || is_over && (is_last || !ended.is_clean()) {
                return Ok(doubted(ended, seen));
            }
            is_last = is_over;
            if !changed {
                sleep(self.settings.timing.uninstall.pause).await;
            }
        }
    }

    /// Whether it was waited long enough, since then.
    fn is_over(&self, since: Instant) -> bool {
        self.manners.limit.is_some_and(|limit| since.elapsed() >= limit)
    }

    /// Looks after what is Terminating until none of it is left that could
    /// still go, or the time is up. What comes back stays.
    async fn wait(
        &self,
        mut waiting: BTreeSet<ObjectRef>,
        tally: &mut Tally,
        since: Instant,
    ) -> Result<Vec<Left>, NotBegun> {
        let manner = match self.manners {
            Manners { dry_run: true, .. } => Manner::Look,
            Manners { abandon: true, .. } => Manner::Abandon,
            _ => Manner::Release,
        };
        let mut told: BTreeMap<ObjectRef, Why> = BTreeMap::new();
        let mut reminded = Instant::now();
        loop {
            // What people approve, and which policies they take away, while it
            // waits, counts.
            let upshots = match self.snapshot().await {
                Ok(snapshot) => attend(&snapshot, &waiting, manner).await,
                Err(NotBegun::Unread(why)) => unread(&waiting, &why.to_string()),
                Err(not_begun) => return Err(not_begun),
            };
            for (target, upshot) in &upshots {
                match upshot {
                    Upshot::LetGo => tally.let_go += 1,
                    Upshot::Abandoned(why) => {
                        tally.abandoned += 1;
                        let left = Left { target: target.clone(), why: why.clone() };
                        (self.tell)(News::Abandoned(left));
                    }
                    Upshot::Free | Upshot::Stays(_) => {}
                }
            }
            let stays = left(&upshots);
            for left in &stays {
                if told.get(&left.target) != Some(&left.why) {
                    told.insert(left.target.clone(), left.why.clone());
                    (self.tell)(News::Waits(left.clone()));
                }
            }
            let may_end = stays.iter().any(|left| left.why.may_end());
            if !may_end || manner != Manner::Release || self.is_over(since) {
                return Ok(stays);
            }
            if reminded.elapsed() >= self.settings.timing.uninstall.remind {
                reminded = Instant::now();
                (self.tell)(News::StillWaiting(stays.len()));
            }
            waiting = stays.into_iter().map(|left| left.target).collect();
            sleep(self.settings.timing.uninstall.look).await;
        }
    }

    /// The kinds that belay has written down.
    async fn record(&self) -> Result<BTreeSet<String>, ApiError> {
        let Settings { namespace, name, .. } = &self.settings;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let record = within(maps.get_opt(&format!("{name}-held"))).await?;
        let kinds = record.and_then(|record| record.data).unwrap_or_default();
        Ok(kinds.into_keys().collect())
    }

    /// Nothing is held any more: what belay keeps goes, the Lease last. While
    /// replicas run it stays and is theirs no more, or they would make all of
    /// it again; it goes with their Deployment, or the account that they run as.
    async fn clear(&self, seat: &Seat) {
        let own = self.identities.own.as_deref().unwrap_or_default();
        let remains =
            Remains { client: &self.client, settings: &self.settings, own, tell: self.tell };
        remains.delete().await;
        let what = format!("Lease {}", self.settings.name);
        let (running, heir) = match self.heir(&remains).await {
            Ok(found) => found,
            // Whoever runs would take a Lease that is not there, and make all of
            // it again.
            Err(error) => {
                let why = format!("whether replicas run still is not known: {error}");
                return (self.tell)(News::Behind(what, why));
            }
        };
        let done = match &heir {
            Some(heir) => {
                remains.bequeath(&running, heir).await;
                seat.bequeath(heir).await
            }
            None => seat.delete().await,
        };
        (self.tell)(match (done, heir) {
            (Err(error), _) => News::Behind(what, error.to_string()),
            (Ok(()), Some(heir)) => News::Bequeathed(format!("{} {}", heir.kind, heir.name)),
            (Ok(()), None) => News::Deleted(what),
        });
    }

    /// The Leases of the replicas that run, by name, and what they go with.
    async fn heir(
        &self,
        remains: &Remains<'_>,
    ) -> Result<(Vec<String>, Option<OwnerReference>), ApiError> {
        let running = remains.delete_replicas(self.clock.now()).await?;
        let heir = if running.is_empty() { None } else { remains.heir().await? };
        Ok((running, heir))
    }
}

/// What of a sweep did not work, as it is told: a line for each kind.
fn troubles(swept: &Swept) -> Vec<News> {
    let unread = swept.unread.iter().cloned().map(|(kind, why)| News::Unread(kind, why));
    let left = swept.left.iter().filter(|(_, why)| **why != Why::Untouched);
    let left = by_kind(left).into_iter();
    unread.chain(left.map(|(kind, count, why)| News::Fails(kind, count, why))).collect()
}

/// What becomes of what waits while what there is cannot be read: nothing.
fn unread(waiting: &BTreeSet<ObjectRef>, why: &str) -> Vec<(ObjectRef, Upshot)> {
    let stays = || Upshot::Stays(Why::Unknown(why.to_owned()));
    waiting.iter().map(|target| (target.clone(), stays())).collect()
}

/// It has met holds until the end. Where none of them is known to be left, none
/// is known to be off either.
fn doubted(mut ended: Ended, seen: BTreeSet<ObjectRef>) -> Ended {
    if ended.is_clean() {
        let why = || Why::Unknown("it had its hold when it was looked at last".to_owned());
        ended.left = seen.into_iter().map(|target| Left { target, why: why() }).collect();
    }
    ended
}

/// What a sweep, and the wait after it, have left.
fn ended(tally: Tally, swept: Swept, waits: Vec<Left>) -> Ended {
    let left = swept.left.into_iter().map(|(target, why)| Left { target, why });
    Ended { tally, left: left.chain(waits).collect(), unread: swept.unread }
}
