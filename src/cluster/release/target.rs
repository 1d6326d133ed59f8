//! One target: its state machine, driven.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::requests::Target;
use crate::cluster::context::Context;
use crate::cluster::live::{Gathered, ReadGroup, Reader};
use crate::cluster::world::{Place, SharedWorld, World};
use crate::decide::{Live, LiveRead, LiveReads, Situation};
use crate::graph::{Meter, Work};
use crate::hold::{
    Answer, Count, End, Free, Input, Limits, Output, PASS_STEPS, Release, Sight, Waiting,
    as_released, count,
};
use crate::objects::KindId;
use crate::webhook::fair::{FairSemaphore, Turn};

/// What a target is told.
#[derive(Debug)]
pub enum News {
    /// The watch shows it like this.
    Seen(Sight),
    /// The watch says that it is gone.
    Gone,
    /// Look now.
    Look,
    /// Look at this time at the latest.
    LookBy(Instant),
    /// This is how long it has to have been Terminating.
    Settle(Duration),
}

/// What a target says.
#[derive(Debug)]
pub enum Word {
    /// What it waits for.
    Waits(Waiting),
    /// It is over.
    Ended(End),
}

/// How long a read may take, with its wait for its turn.
const READ: Duration = Duration::from_secs(30);

/// How much longer the turn of a pass lasts for each step of its counts. A step
/// takes about 50 ns, so all passes that are under way at once count for a
/// quarter of the time of one CPU at the most, however many objects wait.
const REST: Duration = Duration::from_micros(3);

/// What all targets share.
#[derive(Clone)]
pub struct Common {
    pub context: Context,
    pub reader: Reader,
    /// The passes that are under way at once; namespaces get them in turn.
    pub passes: FairSemaphore,
    /// From when on times are counted.
    pub start: Instant,
}

/// A target with its machine.
pub struct Driver {
    common: Common,
    place: Place,
    target: Target,
    release: Release,
    /// The target, as the answer to the token had it.
    marked: Option<Value>,
    gathered: Option<Gathered>,
    /// What made it free, as the last count had it.
    free: Option<Free>,
    /// A removal was sent and, as far as its answer says, carried out. The
    /// watch may be quicker than the answer, or the answer be lost: to the
    /// machine the target is gone then, and it was let go of all the same.
    let_go: bool,
    /// The steps of the counts of this pass.
    meter: Meter,
    look_at: Option<Instant>,
    /// Somebody wants it looked at by this time, whatever the machine plans.
    look_by: Option<Instant>,
}

impl Driver {
    pub fn new(
        common: Common,
        place: Place,
        target: Target,
        uid: Arc<str>,
        settle: Duration,
    ) -> Self {
        let replica = common.context.settings.replica.as_str().into();
        let limits = Limits { settle, ..Limits::default() };
        let release = Release::new(uid, replica, limits);
        Self {
            common,
            place,
            target,
            release,
            marked: None,
            gathered: None,
            free: None,
            let_go: false,
            meter: Meter::new(PASS_STEPS),
            look_at: None,
            look_by: None,
        }
    }

    /// Drives it until it has ended, or nobody tells it anything any more.
    pub async fn run(mut self, mut news: mpsc::UnboundedReceiver<News>, say: impl Fn(Word)) {
        loop {
            let due = self.look_at.into_iter().chain(self.look_by).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let input = tokio::select! {
                told = news.recv() => match told.map(|told| self.input(told)) {
                    None => return,
                    Some(None) => continue,
                    Some(Some(input)) => input,
                },
                () = sleep_until(due) => Input::Look,
            };
            if matches!(input, Input::Look) {
                (self.look_at, self.look_by) = (None, None);
            }
            // A pass reads a lot; whoever only learns something waits for
            // nobody.
            let passes = self.common.passes.clone();
            let turn = match input {
                Input::Look => passes.acquire(&self.place.1).await,
                _ => None,
            };
            self.pass(input, &mut news, &say).await;
            self.end_turn(turn);
            if self.release.ended().is_some() {
                return;
            }
        }
    }

    /// Ends the turn of a pass, after a rest for the steps of its counts. The driver
    /// doesn't wait for the rest, so it handles news meanwhile.
    fn end_turn(&mut self, turn: Option<Turn>) {
        let meter = std::mem::replace(&mut self.meter, Meter::new(PASS_STEPS));
        let steps = u32::try_from(meter.steps()).unwrap_or(u32::MAX);
        if let Some(turn) = turn.filter(|_| steps > 0) {
            tokio::spawn(async move {
                sleep(REST.saturating_mul(steps)).await;
                drop(turn);
            });
        }
    }

    /// What the machine is told of this; the rest is kept here.
    fn input(&mut self, news: News) -> Option<Input> {
        match news {
            News::Seen(sight) => Some(Input::Seen(sight)),
            News::Gone => Some(Input::Gone),
            News::Look => Some(Input::Look),
            News::LookBy(time) => {
                self.look_by = Some(self.look_by.map_or(time, |by| by.min(time)));
                None
            }
            News::Settle(settle) => {
                self.release.limits.settle = settle;
                None
            }
        }
    }

    /// From one input to the next moment at which nothing is under way. What
    /// is told meanwhile goes in between.
    async fn pass(
        &mut self,
        input: Input,
        news: &mut mpsc::UnboundedReceiver<News>,
        say: &impl Fn(Word),
    ) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.step(input, &mut inputs, say).await;
            while let Ok(told) = news.try_recv() {
                let Some(input) = self.input(told) else { continue };
                // A pass begins in `run`, where it waits for its turn.
                if matches!(input, Input::Look) && !self.release.is_busy() {
                    self.look_by = Some(Instant::now());
                    continue;
                }
                self.step(input, &mut inputs, say).await;
            }
        }
        // Many targets may wait, each as large as its writer pleases.
        (self.marked, self.gathered) = (None, None);
    }

    /// Tells the machine of one input, and carries out what follows; what comes
    /// of that are inputs again.
    async fn step(&mut self, input: Input, inputs: &mut Vec<Input>, say: &impl Fn(Word)) {
        let now = Instant::now().saturating_duration_since(self.common.start);
        for output in self.release.step(now, input) {
            inputs.extend(self.carry_out(output, say).await);
        }
    }

    async fn carry_out(&mut self, output: Output, say: &impl Fn(Word)) -> Option<Input> {
        let client = &self.common.context.client;
        match output {
            Output::LookAt(time) => {
                self.look_at = Some(self.common.start + time);
                None
            }
            Output::Get => {
                let answer = self.target.get(client).await.0;
                self.let_go &= !is_held(&answer);
                Some(Input::Got(answer))
            }
            Output::Mark(mark) => {
                let (answer, value) = self.target.patch(client, &mark.patch()).await;
                self.marked = value;
                self.let_go &= !is_held(&answer);
                Some(Input::Marked(answer))
            }
            Output::Read(read) => Some(self.read(read).await),
            Output::Count => {
                let count = self.count();
                self.free = match &count {
                    Count::Free(free) => Some(*free),
                    _ => None,
                };
                Some(Input::Counted(count))
            }
            Output::Forget => {
                self.gathered = None;
                None
            }
            Output::Remove(removal) => {
                let (answer, _) = self.target.patch(client, &removal.patch()).await;
                if let Answer::Failed(why) = &answer {
                    tracing::warn!(resource = self.target.info.resource, namespace = self.target.namespace, name = self.target.name, %why, "the hold could not be taken off");
                }
                self.let_go = match &answer {
                    Answer::Done(_) => !is_held(&answer),
                    Answer::Lost => true,
                    Answer::Refused | Answer::Failed(_) | Answer::Missing { .. } => false,
                };
                Some(Input::Removed(answer))
            }
            Output::Waits(waiting) => {
                say(Word::Waits(waiting));
                None
            }
            Output::Ended(end) => {
                self.gathered = None;
                let let_go = self.free.filter(|_| self.let_go);
                let end = match (end, let_go) {
                    (End::Gone, Some(free)) => End::Released(free),
                    _ => end,
                };
                say(Word::Ended(end));
                None
            }
        }
    }

    fn gathered(&mut self) -> &mut Gathered {
        let world = &self.common.context.world;
        self.gathered.get_or_insert_with(|| Gathered::new(&world.read()))
    }

    /// Reads, together with those who ask the same at this time.
    async fn read(&mut self, read: LiveRead) -> Input {
        let group = ReadGroup::Release(self.place.1.clone());
        let until = (Instant::now() + READ).into_std();
        let answers = self.common.reader.read_all(&group, vec![read], until).await;
        let asked = match answers.first() {
            Some((_, Ok(found))) => found.sent(),
            Some((_, Err(why))) => return Input::Unreadable(why.as_str().into()),
            None => return Input::Unreadable("the reads have ended".into()),
        };
        self.gathered().add(answers);
        Input::Read { asked: asked.map(|at| at.saturating_duration_since(self.common.start)) }
    }

    /// Who still counts.
    fn count(&mut self) -> Count {
        let Some(released) = self.marked.as_ref().map(as_released) else {
            return Count::Unknown("the object itself was not read".to_owned());
        };
        let (world, gathered) = (&self.common.context.world, &mut self.gathered);
        counted(world, gathered, (self.place.0, &released), &self.meter)
    }
}

/// Whether the target is there, by this answer, with the hold on it.
fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(sight) if sight.hold.is_some())
}

/// Who still counts, by what was gathered in this pass; `released` is the
/// target, as it will be, and its kind. The lock of the world is held for the
/// steps that `meter` leaves and for nothing else: what was gathered is parsed
/// before.
pub fn counted(
    world: &SharedWorld,
    gathered: &mut Option<Gathered>,
    (kind, released): (KindId, &Value),
    meter: &Meter,
) -> Count {
    let current = gathered.take().unwrap_or_else(|| Gathered::new(&world.read()));
    let gathered = gathered.insert(current.renumbered(world));
    let node = gathered.put(kind, released);
    let world = world.read();
    if !gathered.fits(&world) {
        return Count::Unknown("the known kinds or relations changed during the count".to_owned());
    }
    let World { graph, policies, known, clock, .. } = &*world;
    let now = clock.now().as_second();
    let reads: &LiveReads = gathered.reads();
    let work = Work::new(meter);
    let situation = Situation { work, ..Situation::new(graph, policies, Live::Read(reads), now) };
    match node {
        Some(node) => count(&situation, *known, reads, node),
        None => Count::Unknown("the object itself cannot be read".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::cluster::list::Buffers;
    use crate::hold::Removal;
    use crate::objects::{HOLD, Kinds};
    use crate::policy::{Policy, PolicySet};
    use crate::webhook::fair::Slots;

    /// A driver whose API server answers each path with a code and a text.
    fn driver(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + 'static) -> Driver {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (code, value) = answer(request.uri().path());
            let body = Body::from(value.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body);
            async move { Ok::<_, Infallible>(response.unwrap()) }
        });
        let mut world = World::default();
        world.graph.kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let target = Target {
            info: world.graph.kinds.info(kind).clone(),
            namespace: "shop".to_owned(),
            name: "settings".to_owned(),
            detail: world.detail(kind),
            buffers: Buffers::new(1),
        };
        let context = Context::of_test(kube::Client::new(service, "default"), world, &[]);
        let reader = Reader::new(context.clone());
        let passes = FairSemaphore::new(Slots { all: 1, each: 1 });
        let common = Common { context, reader, passes, start: Instant::now() };
        let place = (kind, "shop".to_owned(), "settings".to_owned());
        Driver::new(common, place, target, "u".into(), Duration::ZERO)
    }

    fn status(code: u16, kind: &str, name: &str) -> (u16, Value) {
        let details = json!({"kind": kind, "name": name});
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "no", "code": code, "details": details});
        (code, status)
    }

    #[tokio::test]
    async fn a_pass_waits_for_its_turn_however_it_was_told_to_begin() {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = asked.clone();
        let driver = driver(move |_| {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            status(500, "", "")
        });
        let passes = driver.common.passes.clone();
        let turn = passes.acquire("elsewhere").await;
        let object = json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
        let (news, told) = mpsc::unbounded_channel();
        news.send(News::Seen(Sight::of(&object).unwrap())).unwrap();
        news.send(News::Look).unwrap();
        let asked = || asked.load(std::sync::atomic::Ordering::Relaxed);
        let running = tokio::spawn(driver.run(told, |_| {}));
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
        let sight = Sight::of(&object).unwrap();
        let mut driver = driver(move |_| (200, object.clone()));
        let words = parking_lot::Mutex::new(String::new());
        let say = |word: Word| words.lock().push_str(&format!("{word:?}"));
        let (_news, mut told) = mpsc::unbounded_channel();
        driver.pass(Input::Seen(sight), &mut told, &say).await;
        driver.pass(Input::Look, &mut told, &say).await;
        let words = words.into_inner();
        assert!(words.contains("the policies have not been read"), "{words}");
        assert!(driver.marked.is_none() && driver.gathered.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_turn_of_a_pass_lasts_for_the_steps_of_its_counts() {
        let mut driver = driver(|_| status(500, "", ""));
        let passes = driver.common.passes.clone();
        let turn = passes.acquire("shop").await;
        assert!(Work::new(&driver.meter).charge(PASS_STEPS));
        driver.end_turn(turn);
        assert_eq!(driver.meter.steps(), 0, "each pass has a budget of its own");
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
        let mut driver = driver(|_| status(500, "", ""));
        {
            let mut world = driver.common.context.world.write();
            let policy = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
                "protect": {"whileUsed": {}}});
            let policy = Policy::compile("p", &serde_json::from_value(policy).unwrap()).unwrap();
            world.policies = PolicySet::new(vec![policy], &world.catalogue);
            world.known = true;
        }
        driver.marked = Some(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "shop", "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}}));
        assert_eq!(driver.count(), Count::Free(Free::Unused));
        // The counts of one pass have one budget.
        assert!(driver.meter.steps() > 0);
        Work::new(&driver.meter).charge(PASS_STEPS);
        let Count::Unknown(why) = driver.count() else { panic!("it was released") };
        assert!(why.contains("more objects and references"), "{why}");
    }

    #[tokio::test]
    async fn what_is_gone_before_the_removal_is_answered_was_let_go_of() {
        let object = |finalizers: Value| {
            json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
                "annotations": {"belay.dev/release-token": "r/1"}}})
        };
        let sight = Sight::of(&object(json!([HOLD]))).unwrap();
        let released = End::Released(Free::Unused);
        for (answer, wanted) in [
            ((200, object(json!([]))), released),
            // Nobody knows what came of it, and it is gone.
            (status(500, "", ""), released),
            // It was not carried out, or somebody had put a second one on.
            (status(422, "", ""), End::Gone),
            (status(403, "", ""), End::Gone),
            (status(404, "configmaps", "settings"), End::Gone),
            ((200, object(json!([HOLD]))), End::Gone),
        ] {
            let words = parking_lot::Mutex::new(Vec::new());
            let say = |word: Word| words.lock().push(format!("{word:?}"));
            let mut driver = driver(move |_| answer.clone());
            driver.free = Some(Free::Unused);
            let removal = Removal::of(&sight).unwrap();
            driver.carry_out(Output::Remove(removal), &say).await;
            driver.carry_out(Output::Ended(End::Gone), &say).await;
            assert_eq!(words.into_inner(), [format!("{:?}", Word::Ended(wanted))]);
        }
        // Without a removal of this driver's it is gone, and that is all.
        let words = parking_lot::Mutex::new(Vec::new());
        let mut driver = driver(|_| status(404, "", ""));
        driver.free = Some(Free::Unused);
        let say = |word: Word| words.lock().push(format!("{word:?}"));
        driver.carry_out(Output::Ended(End::Gone), &say).await;
        assert_eq!(words.lock()[..], [format!("{:?}", Word::Ended(End::Gone))]);
    }
}
