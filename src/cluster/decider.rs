//! Final verdicts: decided from the cached world and confirmed by live reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use jiff::Timestamp;

use super::exemption::{approval_of, predict, unrecorded_message};
use super::journal::Journal;
use super::live::{
    CollectedReads, LiveApi, LiveQuestion, ReadGroup, Unconfirmed, answer_with_reads,
};
use super::world::{SharedWorld, World};
use crate::decide::{
    AdmissionPhase, Decision, Exemption, Existence, LiveRead, LiveReads, ObjectSource, Operation,
    Recordable, Resource, Review, Situation, Verdict, decide_paused, decide_unconfirmed,
    decide_unknown, decide_within, target_existence,
};
use crate::graph::StepBudget;
use crate::objects::{ApiError, Uid};
use crate::policy::{PolicySet, PolicySource};
use crate::webhook::Decider;
use crate::webhook::fair::FairSemaphore;
use effort::Effort;

mod effort;

/// The maximum number of rounds of live reads for one verdict. The objects of one round can make
/// a second round necessary, rarely a third.
const MAX_READ_ROUNDS: usize = 6;

/// How long a review waits for reads that decide only what action Warn or Audit reports. A Pause
/// turns all policies to Audit, often because the API server is slow.
const ADVISORY_LIMIT: Duration = Duration::from_secs(1);

/// The part of the deadline that is reserved for the answer.
const MARGIN: Duration = Duration::from_millis(150);

/// Decides from the cached state and confirms the result with live reads where necessary.
pub struct ClusterDecider {
    world: SharedWorld,
    cluster: Arc<dyn LiveApi>,
    journal: Journal,
    /// Empty live reads, for the many verdicts that need none. Even an empty graph contains all
    /// built-in kinds, so it is created once and shared.
    no_reads: Arc<LiveReads>,
    /// The turns of decisions with many steps.
    turns: FairSemaphore<ReadGroup>,
}

impl ClusterDecider {
    /// Decides from this world, reads and writes through `cluster`, and records verdicts.
    pub fn new(world: SharedWorld, cluster: Arc<dyn LiveApi>, journal: Journal) -> Self {
        let turns = FairSemaphore::new(effort::SLOTS);
        Self { world, cluster, journal, no_reads: Arc::default(), turns }
    }

    /// The group of this review for fair queueing.
    fn group(&self, review: &Review<'_>) -> ReadGroup {
        let world = self.world.read();
        let live = ObjectSource::Cluster(&self.no_reads);
        ReadGroup::of(&Situation::new(&world.graph, &world.policies, live, 0), review)
    }

    /// Returns the final verdict. It is recorded only if the object of the review is known to
    /// exist, because a client that knows the path can name any object.
    async fn answer(&self, review: &Review<'_>, deadline: Instant, effort: &Effort) -> Verdict {
        let deadline = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let mut pending = PendingReview {
            decider: self,
            review,
            deadline,
            advisory_deadline: deadline.min(Instant::now() + ADVISORY_LIMIT),
            read_deadline: deadline,
            effort,
            collected: None,
            has_read: false,
        };
        let mut verdict = pending.confirmed_verdict().await;
        if pending.has_read {
            self.cluster.count_live_review(review.operation);
        }
        if verdict.decision != Decision::Allow {
            let is_recorded_elsewhere =
                is_recorded_by_other_review(&self.world.read().policies, review, &verdict);
            verdict.recordable = match is_recorded_elsewhere {
                true => Recordable::No,
                false => pending.find_recordable().await,
            };
        }
        verdict
    }
}

/// A review that is being decided. All its decisions share the steps of `effort`.
struct PendingReview<'a> {
    decider: &'a ClusterDecider,
    review: &'a Review<'a>,
    deadline: Instant,
    advisory_deadline: Instant,
    /// The deadline of the reads for the verdict.
    read_deadline: Instant,
    effort: &'a Effort,
    collected: Option<CollectedReads>,
    /// Whether the review has waited for reads.
    has_read: bool,
}

impl LiveQuestion for PendingReview<'_> {
    type Answer = Verdict;

    /// Decides. A decision with many steps waits for its turn.
    async fn answer(&mut self) -> Option<(Verdict, Vec<LiveRead>)> {
        let Self { decider: ClusterDecider { world, no_reads, turns, .. }, review, .. } = *self;
        let collected = &mut self.collected;
        let update_steps =
            collected.as_ref().map_or(0, |collected| collected.update_steps(&world.read()));
        let decide =
            |budget: &StepBudget| decide_now(world, no_reads, review, collected.as_mut(), budget);
        let decided = match self.effort.try_now(update_steps, decide) {
            Some(decided) => decided,
            None => {
                let group = self.decider.group(review);
                let (world, no_reads) = (world.clone(), no_reads.clone());
                let deciding = self.effort.run_queued(turns, group, || {
                    let (review, mut reads) = (review.to_static(), collected.take());
                    move |budget: &StepBudget| {
                        (decide_now(&world, &no_reads, &review, reads.as_mut(), budget), reads)
                    }
                });
                match tokio::time::timeout_at(self.deadline.into(), deciding).await {
                    Ok(Some((decided, reads))) => {
                        self.collected = reads;
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
            let is_advisory = verdict.needed_reads.is_empty();
            self.read_deadline = if is_advisory { self.advisory_deadline } else { self.deadline };
            let advisory: &[_] = match Instant::now() < self.advisory_deadline {
                true => &verdict.advisory_reads,
                false => &[],
            };
            let reads = [&verdict.needed_reads, advisory].concat();
            (verdict, reads)
        })
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        self.read_until(reads, self.read_deadline).await;
    }
}

impl PendingReview<'_> {
    async fn read_until(&mut self, reads: Vec<LiveRead>, deadline: Instant) {
        let ClusterDecider { world, cluster, .. } = self.decider;
        self.has_read = true;
        let answers = cluster.read(&self.decider.group(self.review), reads, deadline).await;
        self.collected.get_or_insert_with(|| CollectedReads::new(&world.read())).add(answers);
    }

    async fn confirmed_verdict(&mut self) -> Verdict {
        let verdict = match answer_with_reads(self, MAX_READ_ROUNDS).await {
            Ok(verdict) => verdict,
            Err(Unconfirmed::ReadsMissing(verdict)) => decide_unconfirmed(self.review, verdict),
            Err(Unconfirmed::Changing) => {
                decide_unknown(self.review, "the served kinds change all the time".into())
            }
        };
        // This comes before the records: even during a Pause, belay bars a record that may be
        // forged, or denies the request.
        let is_paused = !verdict.decision.passes() && self.decider.is_paused();
        let verdict = if is_paused { decide_paused(verdict) } else { verdict };
        self.write_record(self.confirm_records(verdict).await).await
    }

    /// Reads the records that let a request pass. The garbage collector may delete objects before
    /// the watch shows that a bar has replaced a record (H175).
    async fn confirm_records(&self, verdict: Verdict) -> Verdict {
        // Most verdicts need no record.
        if verdict.overrides.records.is_empty() || !verdict.decision.passes() {
            return verdict;
        }
        let group = self.decider.group(self.review);
        for record in &verdict.overrides.records {
            let name = record.name.clone();
            let why = match self.decider.cluster.read_record(&group, name, self.deadline).await {
                Ok(Some(stored)) if stored == *record => continue,
                Ok(_) => "it has just changed; try again".to_owned(),
                Err(why) => why.to_string(),
            };
            let why = format!("the exemption record {} is not certain: {why}", record.name);
            return decide_unknown(self.review, why);
        }
        verdict
    }

    /// Finds out whether the verdict may be recorded: the graph or a live read must contain the
    /// object of the review. A label can protect objects of kinds that belay neither watches
    /// nor may read; their verdicts are recorded as unconfirmed.
    async fn find_recordable(&mut self) -> Recordable {
        let ClusterDecider { world, no_reads, .. } = self.decider;
        let review = self.review;
        for _ in 0..2 {
            // After a change of kinds, all reads would be parsed again.
            self.collected =
                self.collected.take().filter(|collected| collected.fits(&world.read()));
            if let Some(collected) = &mut self.collected {
                collected.update(world);
            }
            let existence = {
                let world = world.read();
                let (group, resource) = (&review.resource.group, &review.resource.resource);
                let kind = world.graph.kinds.find_resource(group, resource);
                if !kind.is_some_and(|kind| world.graph.is_complete(kind)) {
                    return Recordable::Unconfirmed;
                }
                if self.collected.as_ref().is_some_and(|collected| !collected.fits(&world)) {
                    continue;
                }
                let live = ObjectSource::Cluster(
                    self.collected.as_ref().map_or(no_reads, CollectedReads::reads),
                );
                target_existence(&Situation::new(&world.graph, &world.policies, live, 0), review)
            };
            match existence {
                Existence::Exists => return Recordable::Confirmed,
                Existence::Unread(read) => self.read_until(vec![read], self.deadline).await,
                Existence::Absent | Existence::Unknown(..) => return Recordable::No,
            }
        }
        Recordable::No
    }

    /// Writes the record of an exemption before the request is admitted. An exempt subject may
    /// start a cascade, and without a record belay would deny the requests of the garbage
    /// collector. If another subject deletes an object with a record, a bar replaces the record,
    /// because the request that caused it may have been forged.
    async fn write_record(&self, verdict: Verdict) -> Verdict {
        let Some(exemption) = &verdict.exemption else { return verdict };
        if self.review.dry_run || !verdict.decision.passes() {
            return verdict;
        }
        match self.record(&verdict, exemption).await {
            Ok(()) => verdict,
            Err(why) => decide_unknown(self.review, unrecorded_message(exemption, &why)),
        }
    }

    async fn record(&self, verdict: &Verdict, exemption: &Exemption) -> Result<(), ApiError> {
        if let Some(why) = &exemption.why_unknown {
            return Err(ApiError::Other(why.clone()));
        }
        let ClusterDecider { world, cluster, .. } = self.decider;
        let (approval, predicted) = {
            let policies = &world.read().policies;
            let own = policies.identities.own.as_deref().ok_or_else(|| {
                ApiError::Other("belay does not know the name of its own account".to_owned())
            })?;
            let now = Timestamp::now();
            let approval = approval_of(&verdict.target, exemption, own, now);
            let known = policies.approvals.of_uid(Uid::new(&exemption.uid));
            let predicted = predict(known, &approval, now);
            (approval, predicted)
        };
        match predicted {
            Some(result) => result,
            None => {
                cluster
                    .write_record(&self.decider.group(self.review), approval, self.deadline)
                    .await
            }
        }
    }
}

/// Decides from the cached world and the reads so far. `None`: the reads no longer have the
/// numbers of the world. Only this function holds the lock.
fn decide_now(
    world: &SharedWorld,
    no_reads: &LiveReads,
    review: &Review<'_>,
    mut collected: Option<&mut CollectedReads>,
    budget: &StepBudget,
) -> Option<Verdict> {
    if let Some(collected) = &mut collected {
        collected.update(world);
    }
    let world = world.read();
    if !world.loaded {
        let what = "belay has not read its policies yet";
        return Some(decide_unknown(review, what.to_owned()));
    }
    let collected = collected.as_deref();
    if collected.is_some_and(|collected| !collected.fits(&world)) {
        return None;
    }
    let World { graph, policies, clock, .. } = &*world;
    let live = ObjectSource::Cluster(collected.map_or(no_reads, CollectedReads::reads));
    let now = clock.now().as_second();
    let situation = Situation::new(graph, policies, live, now);
    let mut verdict = decide_within(&situation, review, budget);
    // belay could never release a hold on an object that it does not watch or may not patch. But
    // it restores a hold that was there before.
    let (group, resource) = (&review.resource.group, &review.resource.resource);
    let can_release = || {
        let kind = graph.kinds.find_resource(group, resource);
        kind.is_some_and(|kind| world.watched.contains(&kind))
            && world.patch_rights.allow(group, resource)
    };
    verdict.hold = verdict.hold.filter(|hold| hold.restored || can_release());
    Some(verdict)
}

impl Decider for ClusterDecider {
    fn decide<'a>(
        &'a self,
        review: &'a Review<'a>,
        deadline: Instant,
    ) -> LocalBoxFuture<'a, Verdict> {
        Box::pin(async move {
            let verdict = self.answer(review, deadline, &Effort::default()).await;
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

/// Whether belay records the verdict of the other review of this request. The API server calls a
/// webhook of its own for labelled objects, and the webhooks for the kinds of policies only if a
/// policy may select the object. The webhook for labelled objects receives each DELETE, but not the
/// changes of annotations, which concern only policies, and of `spec.finalizers`. A removal of the
/// hold that passes the mutating phase has another review in the validating phase.
fn is_recorded_by_other_review(
    policies: &PolicySet,
    review: &Review<'_>,
    verdict: &Verdict,
) -> bool {
    if review.phase == AdmissionPhase::Mutate && verdict.decision.passes() {
        return true;
    }
    let Resource { group, resource, subresource } = &review.resource;
    let mut sources = verdict.blockers.iter().flat_map(|blocker| &blocker.policies);
    let names_policy = sources.any(|source| matches!(source, PolicySource::Policy(_)));
    let by_kind = review.operation != Operation::Delete
        && names_policy
        && policies.names_kind(group, resource);
    let mut objects = review.object.iter().chain(&review.old_object);
    match review.labelled {
        true => by_kind,
        false => {
            let is_labelled = objects.any(|object| object.protect_label().is_some());
            is_labelled && !by_kind && subresource != "finalize"
        }
    }
}

#[cfg(test)]
mod tests;
