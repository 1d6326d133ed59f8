//! Backfill and withdrawal of holds, by the leader.
//!
//! The objects themselves show what is left to do, so a new leader continues where the last one
//! stopped. Nothing relies on a backfilled hold before it is effective (docs/THEORY.md). So
//! there is no hurry, and the load on the API server stays low.

mod backfill;
mod labels;
mod pages;
mod record;
mod refusals;
mod survey;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use self::backfill::Backfill;
pub(super) use self::pages::HeldPages;
pub(super) use self::record::Record;
use self::record::{ALL, Kinds, LABELLED};
use self::refusals::Refusals;
use self::survey::{HeldKinds, HoldTask, SLICE, Survey, kinds, take_turns};
pub(super) use self::write::{HoldPlanner, HoldWriteResult, write_hold};
use super::context::Context;
use super::feed::plan::{labelled, policies};
use super::holding::HoldProgress;
use super::pace::Backoff;
use super::release::TargetClient;
use super::world::{ObjectKey, World};
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::NodeId;
use crate::hold::{HoldPlan, plan, policies_wanting_hold};
use crate::objects::{ApiError, KindId, KindInfo, Object, Uid, one_line_name};
use crate::policy::ObjectFacts;
use crate::telemetry::LineLimit;
use crate::timing;

/// So many objects are looked at in each part of a round. Then another round
/// begins, so that the thousands of objects of one tenant do not delay the others.
const ROUND: usize = 250;

/// The pause after a round that did not do all. By then the watches have reported
/// what it wrote.
const NEXT: Duration = Duration::from_secs(1);

/// Keeps holds as policies want them, while this replica is the leader.
pub async fn run(context: Context) {
    let lead = async || {
        // The first sweep finds them all.
        context.world.write().left.clear();
        Holds::new(context.clone()).keep().await;
    };
    let follow = async || {
        forget(&context);
        std::future::pending().await
    };
    context.signals.while_leading(lead, follow).await;
}

/// Drops the state of the leader. A new leader plans by its own reads.
fn forget(context: &Context) {
    let mut world = context.world.write();
    world.held.clear();
    world.waiting.seen.retain(|_, seen| !seen.unwatched);
    drop(world);
    context.metrics.holds(0);
    context.metrics.backfills_stopped(0);
    context.signals.holding.send_replace(Arc::default());
    context.signals.plan.notify_one();
}

struct Holds {
    context: Context,
    timing: timing::Holds,
    record: Record,
    /// What was written down last.
    recorded: Kinds,
    /// What is to be written down beside: a policy that goes before it could be
    /// written leaves its holds behind all the same.
    pending: Kinds,
    /// Objects that need nothing after all, until when, and under which
    /// policies that was found out.
    settled: HashMap<Uid, (Instant, u64)>,
    refusals: Refusals,
    /// Where the backfill is paused, as the beginning of the round found it.
    backfill: Backfill,
    /// How long it is waited until all that is to be counted has been read.
    counting: Backoff,
    /// Whether the last round has left work for the next one.
    unfinished: bool,
    /// When labelled kinds were read as a whole.
    swept: HashMap<KindId, Instant>,
    nothing: LiveReads,
}

impl Holds {
    fn new(context: Context) -> Self {
        let timing = context.settings.timing.holds;
        Self {
            record: Record::new(&context),
            context,
            timing,
            recorded: Kinds::new(),
            pending: Kinds::new(),
            settled: HashMap::new(),
            refusals: Refusals::default(),
            backfill: Backfill::default(),
            counting: Backoff::new(timing.counting, timing.look),
            unfinished: false,
            swept: HashMap::new(),
            nothing: LiveReads::default(),
        }
    }

    async fn keep(&mut self) {
        let mut backoff = Backoff::from(self.context.settings.timing.retry);
        let mut changed = self.context.signals.changed.subscribe();
        changed.mark_changed();
        let mut started = false;
        loop {
            let patience = self.patience();
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(patience) => {}
            }
            let round = async {
                self.want();
                if !started {
                    self.recorded = self.record.read().await?;
                    started = true;
                }
                self.round().await
            };
            match round.await {
                Ok(()) => drop(backoff.succeeded()),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "cannot check the holds; belay retries"
                    );
                    // Another writer may have changed the object.
                    started = false;
                    tokio::time::sleep(backoff.next()).await;
                    changed.mark_changed();
                }
            }
        }
    }

    /// Looks at everything once, and does what is to be done.
    async fn round(&mut self) -> Result<(), ApiError> {
        self.unfinished = false;
        if !self.is_known() {
            return Ok(());
        }
        let generation = *self.context.signals.changed.borrow();
        let kinds = kinds(&self.context.world.read());
        let wanted = kinds.held.clone();
        self.want();
        self.note().await?;
        if !self.is_clear() {
            return Ok(());
        }
        let mut survey = self.survey(&wanted);
        self.context.metrics.holds(survey.held_objects);
        self.count(&survey);
        self.refusals.retain(&survey);
        self.publish(&survey, kinds.clone());
        let now = Instant::now();
        self.settled.retain(|_, (until, under)| *until > now && *under == generation);
        let mut parts = survey.work(|kind, sources| self.backfill.allows(kind, sources));
        for part in &mut parts {
            part.retain(|work| !self.settled.contains_key(&work.uid));
        }
        let much: usize = parts.iter().map(Vec::len).sum();
        let turns = |part| take_turns(part, ROUND, |work: &HoldTask| &work.namespace);
        let work = parts.map(turns).concat();
        self.unfinished = work.len() < much;
        let held = survey.held;
        if much > 0 {
            tracing::info!(objects = much, "holds to add, remove or rename");
        }
        let mut pace = pace(&self.timing);
        let mut published = Instant::now();
        for work in work {
            if *self.context.signals.changed.borrow() != generation || !self.is_clear() {
                // What was found is the answer to another question by now.
                return Ok(());
            }
            if published.elapsed() >= self.timing.progress {
                published = Instant::now();
                self.publish(&self.survey(&wanted), kinds.clone());
            }
            pace.tick().await;
            let place = (work.kind, work.namespace, work.name);
            let settled = match self.look(&place).await {
                HoldWriteResult::Written(_) => {
                    self.refusals.remove(work.uid);
                    continue;
                }
                HoldWriteResult::Settled
                | HoldWriteResult::Terminating(_)
                | HoldWriteResult::Stranded => self.timing.settled,
                HoldWriteResult::Kept(never) => match never {},
                HoldWriteResult::Failed(error) => {
                    self.refusals.add(work.uid, error.to_string());
                    self.timing.unread
                }
            };
            self.settled.insert(work.uid, (Instant::now() + settled, generation));
        }
        self.look_after_labels(&mut pace).await;
        self.forget(&wanted, &held).await
    }

    /// How long nothing is looked at when nothing gives cause to: ever longer
    /// for a kind that is not read to its end.
    fn patience(&mut self) -> Duration {
        if self.unfinished {
            NEXT
        } else if self.backfill.is_counted() {
            self.counting.succeeded();
            self.timing.look
        } else {
            self.counting.next()
        }
    }

    /// Finds out where too many holds are missing for putting them on.
    fn count(&mut self, survey: &Survey) {
        let usual = self.context.settings.backfill;
        let found = Backfill::of(&self.context.world.read(), survey, usual);
        found.log_new(&self.backfill);
        self.context.metrics.backfills_stopped(found.count());
        self.backfill = found;
    }

    /// Whether it is known what people want, and they want it here and now.
    fn is_clear(&self) -> bool {
        let now = jiff::Timestamp::now().as_second();
        self.is_known() && self.is_installed() && !self.context.world.read().policies.is_paused(now)
    }

    /// Whether belay is not being uninstalled. An uninstallation deletes both webhook
    /// configurations and then removes the holds. No leader may add them again.
    fn is_installed(&self) -> bool {
        self.context.signals.registered.borrow().there
    }

    /// Whether it is known what people want, when they do not pause it.
    fn is_known(&self) -> bool {
        let world = self.context.world.read();
        world.loaded && world.known
    }

    /// Keeps in mind which kinds are to be written down.
    fn want(&mut self) {
        if !self.is_known() || !self.is_installed() {
            return;
        }
        let world = self.context.world.read();
        let name = |kind: KindId| world.graph.kinds.info(kind).full_name();
        for kind in kinds(&world).held {
            self.pending.insert(name(kind), ALL.to_owned());
        }
        for kind in labelled(&world, &self.context.settings) {
            self.pending.entry(name(kind)).or_insert_with(|| LABELLED.to_owned());
        }
    }

    /// Writes down the kinds that may have holds, and has them watched.
    async fn note(&mut self) -> Result<(), ApiError> {
        let (names, held) = {
            let world = self.context.world.read();
            let mut names = self.recorded.clone();
            for (name, why) in &self.pending {
                if why == ALL || !names.contains_key(name) {
                    names.insert(name.clone(), why.clone());
                }
            }
            // Of a kind in the setting the labelled objects are watched
            // already, and the others are swept.
            let labelled = labelled(&world, &self.context.settings);
            let whole = |kind: &KindId, info: &KindInfo| match names.get(&info.full_name()) {
                Some(why) => why != LABELLED || !labelled.contains(kind),
                None => false,
            };
            let served =
                world.graph.kinds.iter().filter(|(kind, _)| world.served.contains_key(kind));
            let held: BTreeSet<KindId> =
                served.filter(|(kind, info)| whole(kind, info)).map(|(kind, _)| kind).collect();
            (names, held)
        };
        if names != self.recorded {
            self.record.write(&names).await?;
            self.recorded = names;
        }
        self.pending.clear();
        let mut world = self.context.world.write();
        if world.held != held {
            world.held = held;
            drop(world);
            self.context.signals.plan.notify_one();
        }
        Ok(())
    }

    /// Strikes out the kinds that no policy wants holds on and no object has.
    async fn forget(
        &mut self,
        wanted: &BTreeSet<KindId>,
        held: &BTreeSet<KindId>,
    ) -> Result<(), ApiError> {
        let left: Kinds = {
            let world = self.context.world.read();
            let done = |kind: &KindId| {
                world.graph.is_complete(*kind) && !held.contains(kind) && !wanted.contains(kind)
            };
            let labelled = labelled(&world, &self.context.settings);
            let mut left = self.recorded.clone();
            for kind in world.held.iter().filter(|kind| done(kind)) {
                let name = world.graph.kinds.info(*kind).full_name();
                if labelled.contains(kind) {
                    left.insert(name, LABELLED.to_owned());
                } else {
                    left.remove(&name);
                }
            }
            left
        };
        if left != self.recorded {
            self.record.write(&left).await?;
            self.recorded = left;
            // The next round stops their watches.
            self.note().await?;
        }
        Ok(())
    }

    fn survey(&self, wanted: &BTreeSet<KindId>) -> Survey {
        let nodes: Vec<NodeId> = {
            let world = self.context.world.read();
            let labelled = labelled(&world, &self.context.settings);
            let kinds: BTreeSet<KindId> =
                world.held.iter().chain(wanted).copied().chain(labelled).collect();
            kinds.into_iter().flat_map(|kind| world.graph.objects_of_kind(kind)).collect()
        };
        let now = jiff::Timestamp::now().as_second();
        let mut survey = Survey::default();
        for slice in nodes.chunks(SLICE) {
            survey.look(&self.context.world.read(), &self.nothing, slice, now);
        }
        survey
    }

    fn publish(&self, survey: &Survey, HeldKinds { mut never, mut forbidden, .. }: HeldKinds) {
        let world = self.context.world.read();
        let mut all = HashMap::new();
        for policy in policies(&world) {
            let crate::policy::PolicySource::Policy(name) = &policy.source else { continue };
            let (done, total) = survey.holding.get(name).copied().unwrap_or_default();
            let of = |kinds: &mut BTreeMap<String, BTreeSet<String>>| {
                kinds.remove(name).unwrap_or_default().into_iter().collect()
            };
            let (none_on, forbidden) = (of(&mut never), of(&mut forbidden));
            let stopped = self.backfill.stopped(name);
            let refused = self.refusals.of_policy(&world.graph, survey, name);
            let binds_some = policy.would_place_hold_without_subjects();
            all.insert(
                name.clone(),
                HoldProgress { done, total, none_on, forbidden, binds_some, stopped, refused },
            );
        }
        drop(world);
        self.context.signals.holding.send_if_modified(|holding| {
            let changed = **holding != all;
            if changed {
                *holding = Arc::new(all);
            }
            changed
        });
    }

    /// Looks at an object live and does what is to be done.
    async fn look(&self, place: &ObjectKey) -> HoldWriteResult<Infallible> {
        let outcome = write_hold(&self.context, place, self).await;
        let (kind, namespace, name) = place;
        let resource = || self.context.world.read().graph.kinds.info(*kind).full_name();
        match &outcome {
            HoldWriteResult::Terminating(state) => self.hand_over(place, state.clone()),
            HoldWriteResult::Written(change) => {
                tracing::info!(resource = resource(), namespace, name, change, "hold");
            }
            HoldWriteResult::Failed(error) => {
                static LINES: LineLimit = LineLimit::new();
                if let Some(left_out) = LINES.admit(Instant::now().into_std()) {
                    tracing::warn!(
                        resource = resource(),
                        namespace = &*one_line_name(namespace),
                        name = &*one_line_name(name),
                        %error,
                        left_out,
                        "cannot add or remove the hold; belay retries"
                    );
                }
            }
            HoldWriteResult::Settled | HoldWriteResult::Kept(_) | HoldWriteResult::Stranded => {}
        }
        outcome
    }
}

impl HoldPlanner for Holds {
    type Keep = Infallible;

    async fn plan(&self, target: &TargetClient, object: &Value) -> Result<HoldPlan, Infallible> {
        let Ok(object) = Object::deserialize(object) else { return Ok(HoldPlan::Nothing) };
        let world = self.context.world.read();
        let World { graph, policies, known, .. } = &*world;
        let now = jiff::Timestamp::now().as_second();
        let situation = Situation::new(graph, policies, ObjectSource::Cluster(&self.nothing), now);
        let resource = (target.info.group.as_str(), target.info.resource.as_str());
        let planned = plan(&situation, *known, resource, &object);
        if matches!(planned, HoldPlan::Add(_)) {
            let place = (target.namespace.as_str(), target.name.as_str());
            let facts = ObjectFacts::of_object(resource, place, &object);
            let kind = graph.kinds.find_resource(resource.0, resource.1);
            let sources = policies_wanting_hold(&situation.policies_of(facts));
            if !kind.is_some_and(|kind| self.backfill.allows(kind, &sources)) {
                return Ok(HoldPlan::Nothing);
            }
        }
        Ok(planned)
    }
}

/// The pace of writes, so that the API server does not notice them.
pub(super) fn pace(timing: &timing::Holds) -> Interval {
    let mut pace = interval(timing.patch);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
