//! Backfill and withdrawal of holds, by the leader.
//!
//! The objects themselves show which holds to add or remove, so a new leader continues where the
//! last one stopped. No verdict relies on a backfilled hold before it is effective
//! (docs/THEORY.md). So belay writes holds slowly, and the load on the API server stays low.

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
pub(crate) use self::record::kinds_with_holds;
use self::record::{ALL, LABELLED, RecordedKinds};
use self::refusals::Refusals;
pub(super) use self::survey::find_held_kinds;
pub(super) use self::survey::take_turns;
use self::survey::{HeldKinds, HoldTask, SLICE, Survey};
pub(super) use self::write::{HoldPlanner, HoldWriteResult, write_hold};
use super::context::{Context, send_changed};
use super::feed::plan::{labelled_kinds, named_kinds, policies};
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

/// The maximum number of objects to write in each part of a round. Then the next round starts, so
/// that thousands of objects of one tenant do not delay the others.
const MAX_TASKS_PER_ROUND: usize = 250;

/// The pause after a round that left work for the next one. Meanwhile the watches report the
/// writes of the round.
const ROUND_PAUSE: Duration = Duration::from_secs(1);

/// Adds and removes holds according to the policies while this replica is the leader.
pub async fn run(context: Context) {
    let lead = async || {
        // The first relist finds all objects that left a watch again.
        context.world.write().left_watch.clear();
        Holds::new(context.clone()).run_rounds().await;
    };
    let follow = async || {
        discard_state(&context);
        std::future::pending().await
    };
    context.signals.while_leading(lead, follow).await;
}

/// Discards the state of the leader. A new leader reads everything again.
fn discard_state(context: &Context) {
    let mut world = context.world.write();
    world.kinds_with_holds.clear();
    world.waiting.objects.retain(|_, object| !object.unwatched);
    drop(world);
    context.metrics.set_holds(0);
    context.metrics.set_backfills_stopped(0);
    context.signals.holding.send_replace(Arc::default());
    context.signals.plan.notify_one();
}

struct Holds {
    context: Context,
    timing: timing::Holds,
    record: Record,
    /// The content of the record.
    recorded: RecordedKinds,
    /// The kinds to add to the record. They stay here if their policy is deleted before belay could
    /// write the record, because new objects may already have the hold.
    pending: RecordedKinds,
    /// Objects that belay skips, each with the time until which it skips them and the generation
    /// of the policies.
    skipped_until: HashMap<Uid, (Instant, u64)>,
    refusals: Refusals,
    /// Which backfills were stopped at the start of the round.
    backfill: Backfill,
    /// The pause between rounds while a kind is not read to its end.
    counting_pause: Backoff,
    /// Whether the last round knew all objects.
    counted: bool,
    /// Whether the last round has left work for the next one.
    unfinished: bool,
    /// When all objects of a labelled kind were last read.
    relisted_at: HashMap<KindId, Instant>,
    /// Empty live reads.
    no_reads: LiveReads,
}

impl Holds {
    fn new(context: Context) -> Self {
        let timing = context.settings.timing.holds;
        Self {
            record: Record::new(&context),
            context,
            timing,
            recorded: RecordedKinds::new(),
            pending: RecordedKinds::new(),
            skipped_until: HashMap::new(),
            refusals: Refusals::default(),
            backfill: Backfill::default(),
            counting_pause: Backoff::new(timing.first_recheck, timing.check_interval),
            counted: true,
            unfinished: false,
            relisted_at: HashMap::new(),
            no_reads: LiveReads::default(),
        }
    }

    async fn run_rounds(&mut self) {
        let mut backoff = Backoff::from(self.context.settings.timing.retry);
        let mut changed = self.context.signals.changed.subscribe();
        changed.mark_changed();
        let mut started = false;
        loop {
            let pause = self.next_round_pause();
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let round = async {
                self.add_pending();
                if !started {
                    self.recorded = self.record.read().await?;
                    started = true;
                }
                self.run_round().await
            };
            match round.await {
                Ok(()) => drop(backoff.record_success()),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "cannot check the holds; belay retries"
                    );
                    // Another writer may have changed the record.
                    started = false;
                    tokio::time::sleep(backoff.next()).await;
                    changed.mark_changed();
                }
            }
        }
    }

    /// Surveys all objects, and writes the holds of some of them.
    async fn run_round(&mut self) -> Result<(), ApiError> {
        self.unfinished = false;
        if !self.are_policies_current() {
            return Ok(());
        }
        let generation = *self.context.signals.changed.borrow();
        let kinds = find_held_kinds(&self.context.world.read());
        let wanted = kinds.with_hold.clone();
        self.add_pending();
        self.update_record().await?;
        if !self.may_write() {
            return Ok(());
        }
        let mut survey = self.survey(&wanted);
        self.context.metrics.set_holds(survey.object_count);
        self.update_backfill(&survey);
        self.counted = self.backfill.is_counted() && survey.unread.is_empty();
        self.refusals.retain(&survey);
        self.publish(&survey, kinds.clone());
        let now = Instant::now();
        self.skipped_until
            .retain(|_, (until, for_generation)| *until > now && *for_generation == generation);
        let mut parts = survey.take_tasks(|kind, sources| self.backfill.allows(kind, sources));
        for part in &mut parts {
            part.retain(|task| !self.skipped_until.contains_key(&task.uid));
        }
        let total: usize = parts.iter().map(Vec::len).sum();
        let turns = |part| take_turns(part, MAX_TASKS_PER_ROUND, |task: &HoldTask| &task.namespace);
        let tasks = parts.map(turns).concat();
        self.unfinished = tasks.len() < total;
        if total > 0 {
            tracing::info!(objects = total, "holds to add, remove or rename");
        }
        let mut pace = pace(&self.timing);
        let mut published = Instant::now();
        for task in tasks {
            if *self.context.signals.changed.borrow() != generation || !self.may_write() {
                // The survey no longer fits the policies.
                return Ok(());
            }
            if published.elapsed() >= self.timing.progress {
                published = Instant::now();
                self.publish(&self.survey(&wanted), kinds.clone());
            }
            pace.tick().await;
            let key = (task.kind, task.namespace, task.name);
            let skip_for = match self.update_hold(&key).await {
                HoldWriteResult::Written(_) => {
                    self.refusals.remove(task.uid);
                    continue;
                }
                HoldWriteResult::Unchanged
                | HoldWriteResult::Terminating(_)
                | HoldWriteResult::Stranded => self.timing.unchanged_pause,
                HoldWriteResult::Kept(never) => match never {},
                HoldWriteResult::Failed(error) => {
                    self.refusals.add(task.uid, error.to_string());
                    self.timing.unreadable_pause
                }
            };
            self.skipped_until.insert(task.uid, (Instant::now() + skip_for, generation));
        }
        if total > 0 && !self.unfinished {
            // Meanwhile the watches report the writes.
            tokio::time::sleep(ROUND_PAUSE).await;
            self.publish(&self.survey(&wanted), kinds);
        }
        self.handle_lost_labels(&mut pace).await;
        self.remove_unused(&wanted).await
    }

    /// The pause before the next round if no change starts it earlier. It grows while a kind is not
    /// read to its end.
    fn next_round_pause(&mut self) -> Duration {
        if self.unfinished {
            ROUND_PAUSE
        } else if self.counted {
            self.counting_pause.record_success();
            self.timing.check_interval
        } else {
            self.counting_pause.next()
        }
    }

    /// Finds the policies and kinds with too many missing holds for a backfill.
    fn update_backfill(&mut self, survey: &Survey) {
        let default_limit = self.context.settings.backfill;
        let backfill = Backfill::new(&self.context.world.read(), survey, default_limit);
        backfill.log_new(&self.backfill);
        self.context.metrics.set_backfills_stopped(backfill.stopped_count());
        self.backfill = backfill;
    }

    /// Whether belay may add and remove holds now: the policies are up to date, and there is
    /// neither an uninstallation nor a Pause.
    fn may_write(&self) -> bool {
        let now = jiff::Timestamp::now().as_second();
        self.are_policies_current()
            && self.is_installed()
            && !self.context.world.read().policies.is_paused(now)
    }

    /// Whether belay is not being uninstalled. An uninstallation deletes both webhook
    /// configurations and then removes the holds. No leader may add them again.
    fn is_installed(&self) -> bool {
        self.context.signals.registered.borrow().any_exists
    }

    fn are_policies_current(&self) -> bool {
        let world = self.context.world.read();
        world.loaded && world.policies_current
    }

    /// Adds the kinds whose objects may get holds to `pending`.
    fn add_pending(&mut self) {
        if !self.are_policies_current() || !self.is_installed() {
            return;
        }
        let world = self.context.world.read();
        let name = |kind: KindId| world.graph.kinds.info(kind).full_name();
        for kind in find_held_kinds(&world).with_hold {
            self.pending.insert(name(kind), ALL.to_owned());
        }
        for kind in labelled_kinds(&world, &self.context.settings.labelled) {
            self.pending.entry(name(kind)).or_insert_with(|| LABELLED.to_owned());
        }
    }

    /// Writes the kinds that may have holds to the record, and makes the feed watch them.
    async fn update_record(&mut self) -> Result<(), ApiError> {
        let (names, watched) = {
            let world = self.context.world.read();
            let mut names = self.recorded.clone();
            for (name, why) in &self.pending {
                if why == ALL || !names.contains_key(name) {
                    names.insert(name.clone(), why.clone());
                }
            }
            // For a kind of `--labelled-kinds`, the feed already watches the labelled objects, and
            // the relist reads the others.
            let labelled = labelled_kinds(&world, &self.context.settings.labelled);
            let needs_watch = |kind: &KindId, info: &KindInfo| match names.get(&info.full_name()) {
                Some(why) => why != LABELLED || !labelled.contains(kind),
                None => false,
            };
            let served =
                world.graph.kinds.iter().filter(|(kind, _)| world.served.contains_key(kind));
            let watched: BTreeSet<KindId> = served
                .filter(|(kind, info)| needs_watch(kind, info))
                .map(|(kind, _)| kind)
                .collect();
            (names, watched)
        };
        if names != self.recorded {
            self.record.write(&names).await?;
            self.recorded = names;
        }
        self.pending.clear();
        let mut world = self.context.world.write();
        if world.kinds_with_holds != watched {
            world.kinds_with_holds = watched;
            drop(world);
            self.context.signals.plan.notify_one();
        }
        Ok(())
    }

    /// Removes from the record the kinds on which no policy wants holds and no object has one. A
    /// survey from before the kind was read to its end proves nothing.
    async fn remove_unused(&mut self, wanted: &BTreeSet<KindId>) -> Result<(), ApiError> {
        let remaining: RecordedKinds = {
            let world = self.context.world.read();
            let graph = &world.graph;
            let is_held = |id| graph.get(id).is_some_and(|node| node.is_held());
            let is_unused = |kind: &KindId| {
                graph.is_complete(*kind)
                    && !wanted.contains(kind)
                    && !graph.objects_of_kind(*kind).any(is_held)
            };
            let labelled = labelled_kinds(&world, &self.context.settings.labelled);
            let mut remaining = self.recorded.clone();
            for kind in world.kinds_with_holds.iter().filter(|kind| is_unused(kind)) {
                let name = world.graph.kinds.info(*kind).full_name();
                if labelled.contains(kind) {
                    remaining.insert(name, LABELLED.to_owned());
                } else {
                    remaining.remove(&name);
                }
            }
            remaining
        };
        if remaining != self.recorded {
            self.record.write(&remaining).await?;
            self.recorded = remaining;
            // The next round stops their watches.
            self.update_record().await?;
        }
        Ok(())
    }

    fn survey(&self, wanted: &BTreeSet<KindId>) -> Survey {
        let mut survey =
            Survey { generation: *self.context.signals.changed.borrow(), ..Survey::default() };
        let nodes: Vec<NodeId> = {
            let world = self.context.world.read();
            let unread = wanted.iter().copied().filter(|kind| world.graph.is_unread(*kind));
            survey.unread = unread.collect();
            let labelled = labelled_kinds(&world, &self.context.settings.labelled);
            let kinds: BTreeSet<KindId> =
                world.kinds_with_holds.iter().chain(wanted).copied().chain(labelled).collect();
            kinds.into_iter().flat_map(|kind| world.graph.objects_of_kind(kind)).collect()
        };
        let now = jiff::Timestamp::now().as_second();
        for slice in nodes.chunks(SLICE) {
            survey.add(&self.context.world.read(), &self.no_reads, slice, now);
        }
        survey
    }

    fn publish(
        &self,
        survey: &Survey,
        HeldKinds { mut unsafe_kinds, mut forbidden, .. }: HeldKinds,
    ) {
        let world = self.context.world.read();
        let mut progress = HashMap::new();
        for policy in policies(&world) {
            let crate::policy::PolicySource::Policy(name) = &policy.source else { continue };
            let counts = survey.counts_by_policy.get(name).copied().unwrap_or_default();
            let mut kinds =
                policy.kinds().flat_map(|(group, resource)| named_kinds(&world, group, resource));
            let unread = policy.places_hold() && kinds.any(|kind| survey.unread.contains(&kind));
            let take = |kinds: &mut BTreeMap<String, BTreeSet<String>>| {
                kinds.remove(name).unwrap_or_default().into_iter().collect()
            };
            let (unsafe_kinds, forbidden) = (take(&mut unsafe_kinds), take(&mut forbidden));
            let stopped = self.backfill.stopped(name);
            let refused = self.refusals.for_policy(&world.graph, survey, name);
            let binds_some = policy.would_place_hold_without_subjects();
            progress.insert(
                name.clone(),
                HoldProgress {
                    generation: survey.generation,
                    counts,
                    unread,
                    unsafe_kinds,
                    forbidden,
                    binds_some,
                    stopped,
                    refused,
                },
            );
        }
        drop(world);
        send_changed(&self.context.signals.holding, Arc::new(progress));
    }

    /// Reads an object live and writes its hold if necessary.
    async fn update_hold(&self, key: &ObjectKey) -> HoldWriteResult<Infallible> {
        let outcome = write_hold(&self.context, key, self).await;
        let (kind, namespace, name) = key;
        let resource = || self.context.world.read().graph.kinds.info(*kind).full_name();
        match &outcome {
            HoldWriteResult::Terminating(state) => self.add_waiting(key, state.clone()),
            HoldWriteResult::Written(change) => {
                tracing::info!(resource = resource(), namespace, name, change, "hold");
            }
            HoldWriteResult::Failed(error) => {
                static LINES: LineLimit = LineLimit::new();
                if let Some(suppressed) = LINES.admit_log_line(Instant::now().into_std()) {
                    tracing::warn!(
                        resource = resource(),
                        namespace = &*one_line_name(namespace),
                        name = &*one_line_name(name),
                        %error,
                        left_out = suppressed,
                        "cannot add or remove the hold; belay retries"
                    );
                }
            }
            HoldWriteResult::Unchanged | HoldWriteResult::Kept(_) | HoldWriteResult::Stranded => {}
        }
        outcome
    }
}

impl HoldPlanner for Holds {
    type Keep = Infallible;

    async fn plan(&self, target: &TargetClient, object: &Value) -> Result<HoldPlan, Infallible> {
        let Ok(object) = Object::deserialize(object) else { return Ok(HoldPlan::Nothing) };
        let world = self.context.world.read();
        let World { graph, policies, policies_current, .. } = &*world;
        let now = jiff::Timestamp::now().as_second();
        let situation = Situation::new(graph, policies, ObjectSource::Cluster(&self.no_reads), now);
        let resource = (target.info.group.as_str(), target.info.resource.as_str());
        let planned = plan(&situation, *policies_current, resource, &object);
        if matches!(planned, HoldPlan::Add(_)) {
            let name = (target.namespace.as_str(), target.name.as_str());
            let facts = ObjectFacts::of_object(resource, name, &object);
            let kind = graph.kinds.find_resource(resource.0, resource.1);
            let sources = policies_wanting_hold(&situation.policies_of(facts));
            if !kind.is_some_and(|kind| self.backfill.allows(kind, &sources)) {
                return Ok(HoldPlan::Nothing);
            }
        }
        Ok(planned)
    }
}

/// The pace of writes, which keeps the load on the API server low.
pub(super) fn pace(timing: &timing::Holds) -> Interval {
    let mut pace = interval(timing.patch);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
