//! Final verdicts: decided from the cached world and confirmed by live reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use jiff::Timestamp;

use super::exemption::{approval_of, unrecorded, unrevoked};
use super::journal::Journal;
use super::live::{CollectedReads, Confirm, LiveApi, ReadGroup, Unconfirmed, confirm};
use super::world::{SharedWorld, World};
use crate::decide::{
    Decision, Exemption, Existence, LiveRead, LiveReads, ObjectSource, Recordable, Resource,
    Review, Situation, Verdict, decide_paused, decide_unconfirmed, decide_unknown, decide_within,
    target_existence,
};
use crate::graph::StepBudget;
use crate::objects::ApiError;
use crate::webhook::Decider;
use crate::webhook::fair::FairSemaphore;
use effort::Effort;

mod effort;

/// How often a verdict may ask for more before it is final. What a read finds
/// can raise one more question, seldom two.
const ROUNDS: usize = 6;

/// The part of the deadline that is reserved for the answer.
const MARGIN: Duration = Duration::from_millis(150);

/// Decides from the cached state and confirms the result with live reads where necessary.
pub struct ClusterDecider {
    world: SharedWorld,
    cluster: Arc<dyn LiveApi>,
    journal: Journal,
    /// For the many questions that need no read. An empty graph has all the kinds of
    /// Kubernetes, so it is created once and shared.
    none: Arc<LiveReads>,
    /// The turns of decisions that take much work.
    turns: FairSemaphore<ReadGroup>,
}

impl ClusterDecider {
    /// Decides from this world, reads and writes through `cluster`, and records verdicts.
    pub fn new(world: SharedWorld, cluster: Arc<dyn LiveApi>, journal: Journal) -> Self {
        let turns = FairSemaphore::new(effort::SLOTS);
        Self { world, cluster, journal, none: Arc::default(), turns }
    }

    /// The group of this review for fair queueing.
    fn group(&self, review: &Review<'_>) -> ReadGroup {
        let world = self.world.read();
        let live = ObjectSource::Cluster(&self.none);
        ReadGroup::of(&Situation::new(&world.graph, &world.policies, live, 0), review)
    }

    /// The final verdict. It is recorded only if the object of the review is known to
    /// exist, because a client that knows the path can name any object.
    async fn answer(&self, review: &Review<'_>, until: Instant, effort: &Effort) -> Verdict {
        let until = until.checked_sub(MARGIN).unwrap_or(until);
        let mut pending = PendingReview { decider: self, review, until, effort, gathered: None };
        let mut verdict = pending.confirmed().await;
        if verdict.decision != Decision::Allow {
            verdict.recordable = pending.recorded_as().await;
        }
        verdict
    }
}

/// A review that is being decided. All that is decided on the way is within one budget.
struct PendingReview<'a> {
    decider: &'a ClusterDecider,
    review: &'a Review<'a>,
    until: Instant,
    effort: &'a Effort,
    gathered: Option<CollectedReads>,
}

impl Confirm for PendingReview<'_> {
    type Answer = Verdict;

    /// What takes much work waits for a turn.
    async fn answer(&mut self) -> Option<(Verdict, Vec<LiveRead>)> {
        self.renumber();
        let Self { decider: ClusterDecider { world, none, turns, .. }, review, .. } = *self;
        let gathered = &mut self.gathered;
        let decide = |budget: &StepBudget| look(world, none, review, gathered.as_ref(), budget);
        let decided = match self.effort.try_now(decide) {
            Some(decided) => decided,
            None => {
                let group = self.decider.group(review);
                let (world, none) = (world.clone(), none.clone());
                let deciding = self.effort.run_queued(turns, group, || {
                    let (owned, reads) = (review.to_static(), gathered.take());
                    move |budget: &StepBudget| {
                        (look(&world, &none, &owned, reads.as_ref(), budget), reads)
                    }
                });
                match tokio::time::timeout_at(self.until.into(), deciding).await {
                    Ok(Some((decided, reads))) => {
                        self.gathered = reads;
                        decided
                    }
                    Ok(None) | Err(_) => {
                        let what = "the request takes much work, and no time was left";
                        Some(decide_unknown(review, what.to_owned()))
                    }
                }
            }
        };
        decided.map(|verdict| {
            let reads = verdict.needed_reads.clone();
            (verdict, reads)
        })
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let ClusterDecider { world, cluster, .. } = self.decider;
        let answers = cluster.read(&self.decider.group(self.review), reads, self.until).await;
        self.gathered.get_or_insert_with(|| CollectedReads::new(&world.read())).add(answers);
    }
}

impl PendingReview<'_> {
    /// The final verdict.
    async fn confirmed(&mut self) -> Verdict {
        let verdict = match confirm(self, ROUNDS).await {
            Ok(verdict) => verdict,
            Err(Unconfirmed::Lacking(verdict)) => decide_unconfirmed(self.review, verdict),
            Err(Unconfirmed::Changing) => {
                decide_unknown(self.review, "the served kinds change all the time".into())
            }
        };
        // A record that may be forged is deleted in a Pause as well, or the request fails.
        let is_paused = !verdict.decision.passes() && self.decider.is_paused();
        self.recorded(if is_paused { decide_paused(verdict) } else { verdict }).await
    }

    /// Gives what was read the numbers that the world has now.
    fn renumber(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            gathered.renumber(&self.decider.world);
        }
    }

    /// What may be recorded: the graph or a live read has to have the object of the
    /// review. Labels protect objects of kinds that belay does not watch, and may not
    /// read, too.
    async fn recorded_as(&mut self) -> Recordable {
        let ClusterDecider { world, none, .. } = self.decider;
        let review = self.review;
        for _ in 0..2 {
            self.renumber();
            let existence = {
                let world = world.read();
                let (group, resource) = (&review.resource.group, &review.resource.resource);
                let kind = world.graph.kinds.find_resource(group, resource);
                if !kind.is_some_and(|kind| world.graph.is_complete(kind)) {
                    return Recordable::Unconfirmed;
                }
                if self.gathered.as_ref().is_some_and(|gathered| !gathered.fits(&world)) {
                    continue;
                }
                let live = ObjectSource::Cluster(
                    self.gathered.as_ref().map_or(none, CollectedReads::reads),
                );
                target_existence(&Situation::new(&world.graph, &world.policies, live, 0), review)
            };
            match existence {
                Existence::Exists => return Recordable::Confirmed,
                Existence::Unread(read) => self.read(vec![read]).await,
                Existence::Absent | Existence::Unknown(..) => return Recordable::No,
            }
        }
        Recordable::No
    }

    /// Writes the approval of an exemption before the request is admitted. An exempt user
    /// starts a cascade: without a record, the garbage collector's requests would be
    /// denied one after the other, until a user ends it. Any other record of the same
    /// object is deleted, because the request that caused it may have been forged.
    async fn recorded(&self, verdict: Verdict) -> Verdict {
        let Self { decider, review, until, .. } = *self;
        if review.dry_run || !verdict.decision.passes() {
            return verdict;
        }
        let mut written = None;
        if let Some(exemption) = &verdict.exemption {
            match self.record(&verdict, exemption).await {
                Ok(name) => written = name,
                Err(why) => return decide_unknown(review, unrecorded(exemption, &why)),
            }
        }
        for record in verdict.revoked.iter().filter(|r| written.as_ref() != Some(&r.name)) {
            if let Err(why) = decider.cluster.revoke(record.clone(), until).await {
                return decide_unknown(review, unrevoked(record, &why));
            }
        }
        verdict
    }

    /// Writes the record of an exemption; returns its name.
    async fn record(
        &self,
        verdict: &Verdict,
        exemption: &Exemption,
    ) -> Result<Option<String>, ApiError> {
        let own = self.decider.world.read().policies.identities.own.clone();
        let own = own.ok_or_else(|| {
            ApiError::Other("belay does not know the name of its own account".to_owned())
        })?;
        let approval = approval_of(&verdict.target, exemption, &own, Timestamp::now());
        let name = approval.metadata.name.clone();
        self.decider.cluster.record(approval, self.until).await.map(|()| name)
    }
}

/// The verdict as far as it is known now. `None`: what was read has no longer the
/// numbers of the world. The lock is held for this alone.
fn look(
    world: &SharedWorld,
    none: &LiveReads,
    review: &Review<'_>,
    gathered: Option<&CollectedReads>,
    budget: &StepBudget,
) -> Option<Verdict> {
    let world = world.read();
    if !world.loaded {
        let what = "belay has not read its policies yet";
        return Some(decide_unknown(review, what.to_owned()));
    }
    if gathered.is_some_and(|gathered| !gathered.fits(&world)) {
        return None;
    }
    let World { graph, policies, clock, .. } = &*world;
    let live = ObjectSource::Cluster(gathered.map_or(none, CollectedReads::reads));
    let now = clock.now().as_second();
    let situation = Situation::new(graph, policies, live, now);
    let mut verdict = decide_within(&situation, review, budget);
    // belay could never release a hold on an object that it does not watch, or
    // may not patch. A hold that was there before is put back all the same.
    let (group, resource) = (&review.resource.group, &review.resource.resource);
    let is_seen = || {
        let kind = graph.kinds.find_resource(group, resource);
        kind.is_some_and(|kind| world.watched.contains(&kind))
            && world.patch_rights.allow(group, resource)
    };
    verdict.hold = verdict.hold.filter(|hold| hold.restored || is_seen());
    Some(verdict)
}

impl Decider for ClusterDecider {
    fn decide<'a>(&'a self, review: &'a Review<'a>, until: Instant) -> LocalBoxFuture<'a, Verdict> {
        Box::pin(async move {
            let mut verdict = self.answer(review, until, &Effort::default()).await;
            // Repeated questions are recorded once.
            let Resource { group, resource, .. } = &review.resource;
            if review.labelled && self.world.read().policies.names_kind(group, resource) {
                verdict.recordable = Recordable::No;
            }
            if verdict.recordable != Recordable::No {
                self.journal.record(review, &verdict);
            }
            verdict
        })
    }

    fn is_paused(&self) -> bool {
        let world = self.world.read();
        world.policies.is_paused(world.clock.now().as_second())
    }
}

#[cfg(test)]
mod tests;
