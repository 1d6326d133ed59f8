//! One target: its state machine, driven.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::requests::{Response, TargetClient};
use super::sweep::{Sweep, Sweeps};
use crate::cluster::context::Context;
use crate::cluster::list::Buffers;
use crate::cluster::live::{
    CollectedReads, MemoryLimits, ReadGroup, ReadMemory, Reader, ReleasedObject, ReservedMemory,
};
use crate::cluster::world::{ObjectKey, SharedWorld, World};
use crate::decide::{LiveReads, ObjectSource, Situation};
use crate::graph::{StepBudget, StepLimit};
use crate::hold::{
    Input, Output, PASS_STEPS, Release, ReleaseEnd, ReleaseReason, ReleaseTiming, RequestResult,
    TargetState, UnknownUse, UseCheck, WaitReason, check_use,
};
use crate::objects::KindId;
use crate::webhook::fair::{FairPermit, FairSemaphore, GroupLimits};

/// What a driver has to know: the newest of each fact.
#[derive(Debug, Default)]
pub struct DriverUpdate {
    /// The watch shows it like this.
    pub seen: Option<TargetState>,
    /// The watch says that it is gone.
    pub gone: bool,
    /// It is to look at this time at the latest.
    pub look_by: Option<Instant>,
    /// This is how long it has to have been Terminating.
    pub settle: Option<Duration>,
}

/// The update that a driver has not received yet. Its memory does not grow with the number of
/// changes.
#[derive(Debug, Default)]
pub struct PendingUpdate {
    update: Mutex<DriverUpdate>,
    arrived: Notify,
}

impl PendingUpdate {
    /// Adds to the update.
    pub fn add(&self, change: impl FnOnce(&mut DriverUpdate)) {
        change(&mut self.update.lock());
        self.arrived.notify_one();
    }

    /// What was added since the last call.
    pub fn take(&self) -> DriverUpdate {
        std::mem::take(&mut *self.update.lock())
    }
}

/// What a driver reports.
#[derive(Debug, Clone)]
pub enum DriverReport {
    /// What the target waits for.
    Waits(WaitReason),
    /// The release has ended.
    Ended(ReleaseEnd),
}

/// How much longer the turn of a pass lasts for each step of its counts. A step
/// takes about 50 ns, so all passes that are under way at once count for a
/// quarter of the time of one CPU at the most, however many objects wait.
const REST: Duration = Duration::from_micros(36);

/// The memory for the bodies of targets, in KiB. A body takes at least 64 KiB of it, so
/// there is always enough for the passes of small targets.
const BODIES: MemoryLimits = MemoryLimits { all: 24 << 10, each: 8 << 10 };

/// What all targets share.
#[derive(Clone)]
pub struct DriverContext {
    pub context: Context,
    /// The memory for large objects that are being read.
    pub buffers: Buffers,
    pub sweeps: Sweeps,
    /// The memory for the bodies of targets while their passes run.
    pub bodies: ReadMemory,
    /// The passes that are under way at once; namespaces get them in turn.
    pub passes: FairSemaphore,
    /// From when on times are counted.
    pub start: Instant,
}

impl DriverContext {
    /// Shared by the targets that `reader` reads for, with so many passes at once.
    pub fn new(context: Context, reader: Reader, passes: GroupLimits) -> Self {
        let buffers = reader.buffers();
        let sweeps = Sweeps::new(reader, context.world.clone());
        let bodies = ReadMemory::new(BODIES);
        let passes = FairSemaphore::new(passes);
        Self { context, buffers, sweeps, bodies, passes, start: Instant::now() }
    }

    /// Keeps the body of a target for the counts, if there is memory for it now.
    async fn keep_body(
        &self,
        namespace: &str,
        object: Option<Value>,
    ) -> Option<(ReleasedObject, Vec<ReservedMemory>)> {
        let body = ReleasedObject::new(&object?)?;
        let group = ReadGroup::Release(namespace.to_owned());
        let mut account = self.bodies.account(&group, Instant::now());
        account.hold(body.bytes()).await.ok()?;
        Some((body, account.into_shares()))
    }
}

/// A target with its machine.
pub struct Driver {
    shared: DriverContext,
    pub place: ObjectKey,
    pub target: TargetClient,
    release: Release,
    /// The target, as the answer to the token had it, with the memory that it takes.
    marked: Option<(ReleasedObject, Vec<ReservedMemory>)>,
    /// The sweep with the reads of this pass.
    sweep: Option<Arc<Sweep>>,
    /// What made it free, as the last count had it.
    free: Option<ReleaseReason>,
    /// A removal was sent and, according to its answer, carried out. The watch may be faster
    /// than the answer, or the answer may be lost. Then the target is deleted for the state
    /// machine, but it was released all the same.
    released: bool,
    /// The steps of the counts of this pass.
    budget: StepBudget,
    look_at: Option<Instant>,
    /// A user wants a look by this time, whatever the state machine plans.
    look_by: Option<Instant>,
}

impl Driver {
    pub fn new(
        shared: DriverContext,
        place: ObjectKey,
        target: TargetClient,
        uid: Arc<str>,
        settle: Duration,
    ) -> Self {
        let instance = shared.context.settings.instance.as_str().into();
        let limits = ReleaseTiming { settle, ..ReleaseTiming::default() };
        let release = Release::new(uid, instance, limits);
        Self {
            shared,
            place,
            target,
            release,
            marked: None,
            sweep: None,
            free: None,
            released: false,
            budget: StepBudget::new(PASS_STEPS),
            look_at: None,
            look_by: None,
        }
    }

    /// Drives it until it has ended.
    pub async fn run(
        &mut self,
        pending: &PendingUpdate,
        report: impl Fn(&TargetClient, DriverReport),
    ) {
        while self.release.ended().is_none() {
            let due = self.look_at.into_iter().chain(self.look_by).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            // What a pass needs is allocated for the pass: many targets only wait.
            tokio::select! {
                () = pending.arrived.notified() => Box::pin(self.pass(false, pending, &report)).await,
                () = sleep_until(due) => {
                    // A pass reads a lot. DriverUpdate is heard without a turn.
                    let passes = self.shared.passes.clone();
                    let turn = passes.acquire(&self.place.1).await;
                    Box::pin(self.pass(true, pending, &report)).await;
                    self.end_turn(turn);
                }
            }
        }
    }

    /// Ends the turn of a pass, after a rest for the steps of its counts. The driver
    /// doesn't wait for the rest, so it handles updates meanwhile.
    fn end_turn(&mut self, turn: Option<FairPermit>) {
        let budget = std::mem::replace(&mut self.budget, StepBudget::new(PASS_STEPS));
        let steps = u32::try_from(budget.steps()).unwrap_or(u32::MAX);
        if let Some(turn) = turn.filter(|_| steps > 0) {
            tokio::spawn(async move {
                sleep(REST.saturating_mul(steps)).await;
                drop(turn);
            });
        }
    }

    /// Receives an update.
    async fn hear(
        &mut self,
        update: DriverUpdate,
        inputs: &mut Vec<Input>,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let DriverUpdate { seen, gone, look_by, settle } = update;
        self.release.limits.settle = settle.unwrap_or(self.release.limits.settle);
        self.look_by = look_by.into_iter().chain(self.look_by).min();
        if gone {
            self.step(Input::Deleted, inputs, report).await;
        } else if let Some(observed) = seen {
            self.step(Input::Observed(observed), inputs, report).await;
        }
        // A pass begins in `run`, where it waits for its turn. A pass that is already running
        // gets the update.
        if self.release.is_busy() && self.look_by.is_some_and(|by| by <= Instant::now()) {
            self.look_by = None;
            self.step(Input::StartPass, inputs, report).await;
        }
    }

    /// Receives updates, starts a pass if it is time, and continues until nothing is running. It also
    /// receives the updates that arrive meanwhile.
    async fn pass(
        &mut self,
        look: bool,
        pending: &PendingUpdate,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let mut inputs = Vec::new();
        self.hear(pending.take(), &mut inputs, report).await;
        if look {
            // It covers all earlier updates.
            (self.look_at, self.look_by) = (None, None);
            inputs.push(Input::StartPass);
        }
        while let Some(input) = inputs.pop() {
            self.step(input, &mut inputs, report).await;
            self.hear(pending.take(), &mut inputs, report).await;
        }
        // Many targets may wait, each as large as its writer pleases.
        (self.marked, self.sweep) = (None, None);
    }

    /// Tells the machine of one input, and carries out what follows; what comes
    /// of that are inputs again.
    async fn step(
        &mut self,
        input: Input,
        inputs: &mut Vec<Input>,
        report: &impl Fn(&TargetClient, DriverReport),
    ) {
        let now = Instant::now().saturating_duration_since(self.shared.start);
        for output in self.release.step(now, input) {
            inputs.extend(self.carry_out(output, report).await);
        }
    }

    async fn carry_out(
        &mut self,
        output: Output,
        report: &impl Fn(&TargetClient, DriverReport),
    ) -> Option<Input> {
        let client = &self.shared.context.client;
        match output {
            Output::SchedulePass(time) => {
                self.look_at = Some(self.shared.start + time);
                None
            }
            Output::Get => {
                let answer = self.target.get(client).await.answer;
                self.released &= !is_held(&answer);
                Some(Input::Got(answer))
            }
            Output::WriteToken(mark) => {
                let Response { answer, object } = self.target.patch(client, &mark.patch()).await;
                self.marked = self.shared.keep_body(&self.place.1, object.ok()).await;
                self.released &= !is_held(&answer);
                Some(Input::TokenWritten(answer))
            }
            Output::Read(read) => Some(match self.sweep().await.read(read).await {
                Ok(asked) => {
                    let start = self.shared.start;
                    let asked = asked.map(|at| at.saturating_duration_since(start));
                    Input::Read { requested_at: asked }
                }
                Err(why) => Input::ReadFailed(why),
            }),
            Output::CheckUse => {
                let count = self.count().await;
                self.free = match &count {
                    UseCheck::Releasable(free) => Some(*free),
                    _ => None,
                };
                Some(Input::UseChecked(count))
            }
            Output::DropReads => {
                self.sweep = None;
                None
            }
            Output::Remove(removal) => {
                let answer = self.target.patch(client, &removal.patch()).await.answer;
                if let RequestResult::Failed(why) = &answer
                    && let Some(left_out) = self.target.admit_line()
                {
                    tracing::warn!(
                        resource = self.target.info.resource,
                        namespace = self.target.namespace,
                        name = self.target.name,
                        %why,
                        left_out = (left_out > 0).then_some(left_out),
                        "the hold could not be removed"
                    );
                }
                self.released = match &answer {
                    RequestResult::Object(_) => !is_held(&answer),
                    RequestResult::NoAnswer => true,
                    RequestResult::Conflict
                    | RequestResult::Failed(_)
                    | RequestResult::Missing { .. } => false,
                };
                Some(Input::Removed(answer))
            }
            Output::Waits(waiting) => {
                report(&self.target, DriverReport::Waits(waiting));
                None
            }
            Output::Ended(end) => {
                self.sweep = None;
                let released = self.free.filter(|_| self.released);
                let end = match (end, released) {
                    (ReleaseEnd::NoLongerHeld, Some(free)) => ReleaseEnd::Released(free),
                    _ => end,
                };
                report(&self.target, DriverReport::Ended(end));
                None
            }
        }
    }

    /// The sweep of this pass, which begins after the token was written.
    async fn sweep(&mut self) -> Arc<Sweep> {
        if let Some(sweep) = &self.sweep {
            return sweep.clone();
        }
        let (kind, namespace, _) = &self.place;
        let sweep = self.shared.sweeps.join(*kind, namespace).await;
        self.sweep.insert(sweep).clone()
    }

    /// Who still counts.
    async fn count(&mut self) -> UseCheck {
        let sweep = self.sweep().await;
        let Some((released, _)) = &self.marked else {
            return UseCheck::Unknown(UnknownUse::TargetUnread);
        };
        let mut collected = sweep.collected().await;
        let world = &self.shared.context.world;
        counted(world, &mut collected, (self.place.0, released), &self.budget)
    }
}

/// Whether the target is there, by this answer, with the hold on it.
fn is_held(answer: &RequestResult) -> bool {
    matches!(answer, RequestResult::Object(observed) if observed.hold.is_some())
}

/// Who still counts, by what was gathered in this pass. The lock of the world is held for
/// the steps that `budget` leaves and for nothing else: what was gathered is parsed before.
pub fn counted(
    world: &SharedWorld,
    gathered: &mut CollectedReads,
    (kind, released): (KindId, &ReleasedObject),
    budget: &StepBudget,
) -> UseCheck {
    gathered.renumber(world);
    let world = world.read();
    if !gathered.fits(&world) {
        return UseCheck::Unknown(UnknownUse::KindsChanged);
    }
    let World { graph, policies, known, clock, .. } = &*world;
    let now = clock.now().as_second();
    let work = StepLimit::new(budget);
    gathered.without_hold(kind, released, |reads: &LiveReads, node| {
        let situation = Situation {
            work,
            ..Situation::new(graph, policies, ObjectSource::Cluster(reads), now)
        };
        match node {
            Some(node) => check_use(&situation, *known, reads, node),
            None => UseCheck::Unknown(UnknownUse::TargetUnreadable),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::list::Buffers;
    use crate::cluster::local_api::{failure, local_client};
    use crate::hold::HoldRemoval;
    use crate::objects::{HOLD, Kinds};
    use crate::policy::{Policy, PolicySet};

    /// A driver whose API server answers each path with a code and a text.
    fn driver(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + 'static) -> Driver {
        let client = local_client(move |request| Some(answer(request.uri().path())));
        let mut world = World::default();
        world.graph.kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let target = TargetClient {
            info: world.graph.kinds.info(kind).clone(),
            namespace: "shop".to_owned(),
            name: "settings".to_owned(),
            detail: world.detail(kind),
            buffers: Buffers::new(1),
        };
        let context = Context::of_test(client, world, &[]);
        let reader = Reader::new(context.clone());
        let shared = DriverContext::new(context, reader, GroupLimits { total: 1, per_group: 1 });
        let place = (kind, "shop".to_owned(), "settings".to_owned());
        Driver::new(shared, place, target, "u".into(), Duration::ZERO)
    }

    #[tokio::test]
    async fn h97_a_target_that_waits_takes_little_memory() {
        let mut driver = driver(|_| failure(500, "no", ("", "")));
        let pending = PendingUpdate::default();
        let waits = size_of_val(&driver.run(&pending, |_, _| {}));
        let size = waits + size_of_val(&driver) + size_of_val(&pending);
        assert!(size <= 2048, "{size} bytes");
    }

    #[tokio::test]
    async fn a_pass_waits_for_its_turn_whatever_started_it() {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = asked.clone();
        let mut driver = driver(move |_| {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            failure(500, "no", ("", ""))
        });
        let passes = driver.shared.passes.clone();
        let turn = passes.acquire("elsewhere").await;
        let object = json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
        let pending = PendingUpdate::default();
        pending.add(|update| {
            (update.seen, update.look_by) = (TargetState::read(&object), Some(Instant::now()));
        });
        let asked = || asked.load(std::sync::atomic::Ordering::Relaxed);
        let running = tokio::spawn(async move { driver.run(&pending, |_, _| {}).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(asked(), 0);
        drop(turn);
        while asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.abort();
    }

    #[tokio::test]
    async fn a_target_that_waits_keeps_nothing_of_its_body() {
        let object = json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD],
            "annotations": {"belay.dev/release-token": "r/1"}}, "data": {"large": "x"}});
        let observed = TargetState::read(&object).unwrap();
        let mut driver = driver(move |_| (200, object.clone()));
        let words = parking_lot::Mutex::new(String::new());
        let report =
            |_: &TargetClient, word: DriverReport| words.lock().push_str(&format!("{word:?}"));
        let pending = PendingUpdate::default();
        pending.add(|update| update.seen = Some(observed));
        driver.pass(false, &pending, &report).await;
        driver.pass(true, &pending, &report).await;
        let words = words.into_inner();
        assert!(words.contains("the policies have not been read"), "{words}");
        assert!(driver.marked.is_none() && driver.sweep.is_none());
    }

    #[tokio::test]
    async fn the_bodies_of_the_targets_of_one_namespace_have_one_limit() {
        let driver = driver(|_| failure(500, "no", ("", "")));
        let labels: String = "x".repeat(1 << 20);
        let object = json!({"metadata": {"name": "settings", "labels": {"l": labels}}});
        let mut kept = Vec::new();
        while let Some(body) = driver.shared.keep_body("shop", Some(object.clone())).await {
            kept.push(body);
        }
        assert_eq!(kept.len(), 7);
        assert!(driver.shared.keep_body("other", Some(object.clone())).await.is_some());
        kept.clear();
        assert!(driver.shared.keep_body("shop", Some(object)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_turn_of_a_pass_lasts_for_the_steps_of_its_counts() {
        let mut driver = driver(|_| failure(500, "no", ("", "")));
        let passes = driver.shared.passes.clone();
        let turn = passes.acquire("shop").await;
        assert!(StepLimit::new(&driver.budget).charge(PASS_STEPS));
        driver.end_turn(turn);
        assert_eq!(driver.budget.steps(), 0, "each pass has a budget of its own");
        let ended = Instant::now();
        let turn = passes.acquire("elsewhere").await;
        assert!(ended.elapsed() >= Duration::from_secs(3), "{:?}", ended.elapsed());
        driver.end_turn(turn);
        let ended = Instant::now();
        passes.acquire("elsewhere").await;
        assert!(ended.elapsed().is_zero(), "without a count there is no rest");
    }

    #[tokio::test]
    async fn a_count_beyond_the_budget_of_its_pass_does_not_release() {
        let mut driver = driver(|_| failure(500, "no", ("", "")));
        {
            let mut world = driver.shared.context.world.write();
            let policy = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
                "protect": {"whileUsed": {}}});
            let policy = Policy::compile("p", &serde_json::from_value(policy).unwrap()).unwrap();
            world.policies = PolicySet::new(vec![policy], &world.catalogue);
            world.known = true;
        }
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "shop", "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
        driver.marked = driver.shared.keep_body("shop", Some(object)).await;
        assert_eq!(driver.count().await, UseCheck::Releasable(ReleaseReason::Unused));
        // The counts of one pass have one budget.
        assert!(driver.budget.steps() > 0);
        StepLimit::new(&driver.budget).charge(PASS_STEPS);
        let UseCheck::Unknown(why) = driver.count().await else { panic!("it was released") };
        assert_eq!(why, UnknownUse::TooManySteps);
    }

    #[tokio::test]
    async fn a_target_deleted_before_the_answer_to_its_removal_was_released() {
        let object = |finalizers: Value| {
            json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
                "annotations": {"belay.dev/release-token": "r/1"}}})
        };
        let observed = TargetState::read(&object(json!([HOLD]))).unwrap();
        let released = ReleaseEnd::Released(ReleaseReason::Unused);
        for (answer, wanted) in [
            ((200, object(json!([]))), released),
            // The result is unknown, and the target is deleted.
            (failure(500, "no", ("", "")), released),
            // It was not carried out, or another writer had added a second finalizer.
            (failure(422, "no", ("", "")), ReleaseEnd::NoLongerHeld),
            (failure(403, "no", ("", "")), ReleaseEnd::NoLongerHeld),
            (failure(404, "no", ("configmaps", "settings")), ReleaseEnd::NoLongerHeld),
            ((200, object(json!([HOLD]))), ReleaseEnd::NoLongerHeld),
        ] {
            let words = parking_lot::Mutex::new(Vec::new());
            let report =
                |_: &TargetClient, word: DriverReport| words.lock().push(format!("{word:?}"));
            let mut driver = driver(move |_| answer.clone());
            driver.free = Some(ReleaseReason::Unused);
            let removal = HoldRemoval::of_target(&observed).unwrap();
            driver.carry_out(Output::Remove(removal), &report).await;
            driver.carry_out(Output::Ended(ReleaseEnd::NoLongerHeld), &report).await;
            assert_eq!(words.into_inner(), [format!("{:?}", DriverReport::Ended(wanted))]);
        }
        // Without a removal of this driver's it is gone, and that is all.
        let words = parking_lot::Mutex::new(Vec::new());
        let mut driver = driver(|_| failure(404, "no", ("", "")));
        driver.free = Some(ReleaseReason::Unused);
        let report = |_: &TargetClient, word: DriverReport| words.lock().push(format!("{word:?}"));
        driver.carry_out(Output::Ended(ReleaseEnd::NoLongerHeld), &report).await;
        assert_eq!(
            words.lock()[..],
            [format!("{:?}", DriverReport::Ended(ReleaseEnd::NoLongerHeld))]
        );
    }
}
