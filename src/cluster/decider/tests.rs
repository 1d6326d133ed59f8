//! Tests of final verdicts, with a scripted cluster side.

mod records;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use super::super::live::{LiveObjects, ReadAnswer};
use super::super::patch_rights::PatchRights;
use super::*;
use crate::decide::{
    AdmissionPhase, Decision, ListPart, LiveRead, Operation, REVIEW_STEPS, Reason, Recordable,
    message,
};
use crate::objects::{ApiError, Kinds};
use crate::policy::api::DeletionApproval;
use crate::policy::{Approval, Approvals, Pause, Policy, PolicySet};
use crate::relations::Catalogue;
use crate::telemetry::Metrics;
use crate::webhook::{Parsed, parse_review};

type Answers = dyn Fn(LiveRead) -> Option<Result<Vec<Value>, ApiError>> + Send + Sync;

/// A cluster side with scripted answers. A read without one gets no answer.
struct Script {
    answers: Box<Answers>,
    record: Result<(), ApiError>,
    /// The record that a live read finds.
    stored_record: Result<Option<Approval>, ApiError>,
    read: Mutex<Vec<(Vec<LiveRead>, Instant)>>,
    recorded: Mutex<Vec<DeletionApproval>>,
    /// The number of reviews that waited for reads.
    counted: AtomicUsize,
}

impl Script {
    fn new(
        answers: impl Fn(LiveRead) -> Option<Result<Vec<Value>, ApiError>> + Send + Sync + 'static,
    ) -> Self {
        let (read, recorded, counted) = Default::default();
        let (record, stored_record) = (Ok(()), Ok(None));
        Self { answers: Box::new(answers), record, stored_record, read, recorded, counted }
    }
}

impl LiveApi for Script {
    fn read<'a>(
        &'a self,
        _: &'a ReadGroup,
        reads: Vec<LiveRead>,
        until: Instant,
    ) -> LocalBoxFuture<'a, Vec<ReadAnswer>> {
        self.read.lock().push((reads.clone(), until));
        let found = |objects: Vec<Value>| {
            let raw = |value: Value| serde_json::value::to_raw_value(&value).unwrap();
            LiveObjects::new(objects.into_iter().map(raw).collect())
        };
        let answers = reads
            .into_iter()
            .filter_map(|read| Some((read.clone(), (self.answers)(read)?.map(found))));
        let answers: Vec<_> = answers.collect();
        Box::pin(async { answers })
    }

    fn count_live_review(&self, operation: Operation) {
        assert_eq!(operation, Operation::Delete);
        self.counted.fetch_add(1, Ordering::Relaxed);
    }

    fn write_record<'a>(
        &'a self,
        _: &'a ReadGroup,
        approval: DeletionApproval,
        _: Instant,
    ) -> LocalBoxFuture<'a, Result<(), ApiError>> {
        self.recorded.lock().push(approval);
        Box::pin(async { self.record.clone() })
    }

    fn read_record<'a>(
        &'a self,
        _: &'a ReadGroup,
        _: String,
        _: Instant,
    ) -> LocalBoxFuture<'a, Result<Option<Approval>, ApiError>> {
        Box::pin(async { self.stored_record.clone() })
    }
}

/// ConfigMaps are protected while they are used, and carol is exempt.
fn world() -> SharedWorld {
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
        "exemptSubjects": [{"kind": "User", "name": "carol"}], "protect": {"whileUsed": {}}});
    let policy = Policy::compile("used", &serde_json::from_value(spec).unwrap()).unwrap();
    let mut world = World::default();
    world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
    world.policies = PolicySet::new(vec![policy], &world.catalogue);
    world.policies.identities.own = Some("belay".to_owned());
    let maps = world.graph.kinds.find("", "ConfigMap").unwrap();
    world.catalogue.parse_and_apply(&mut world.graph, maps, &data().to_string()).unwrap();
    world.loaded = true;
    Arc::new(RwLock::new(world))
}

fn pod() -> Value {
    json!({"metadata": {"name": "p", "namespace": "a", "uid": "p", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "Maker", "name": "m", "uid": "m"}]},
        "spec": {"containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "data"}}]}]}})
}

/// Live reads find the Pods and the ConfigMap.
fn pods(read: LiveRead) -> Option<Result<Vec<Value>, ApiError>> {
    Some(Ok(match &read {
        LiveRead::List { resource, .. } if resource == "pods" => vec![pod()],
        LiveRead::Object(object) if object.resource == "configmaps" => vec![data()],
        _ => Vec::new(),
    }))
}

/// The ConfigMap that is deleted.
fn data() -> Value {
    json!({"metadata": {"name": "data", "namespace": "a",
        "uid": "11111111-1111-4111-8111-111111111111"}})
}

fn nothing(_: LiveRead) -> Option<Result<Vec<Value>, ApiError>> {
    Some(Ok(Vec::new()))
}

struct Outcome {
    verdict: Verdict,
    script: Arc<Script>,
    until: Instant,
}

impl Outcome {
    fn rounds(&self) -> usize {
        self.script.read.lock().len()
    }

    fn message(&self) -> String {
        message(&self.verdict).unwrap_or_default()
    }
}

/// A user deletes ConfigMap a/data.
struct Question {
    world: SharedWorld,
    phase: AdmissionPhase,
    user: &'static str,
    resource: &'static str,
    dry_run: bool,
    object: Value,
    record: Result<(), ApiError>,
    stored_record: Result<Option<Approval>, ApiError>,
}

impl Default for Question {
    fn default() -> Self {
        Self {
            world: world(),
            phase: AdmissionPhase::Validate,
            user: "alice",
            resource: "configmaps",
            dry_run: false,
            object: data(),
            record: Ok(()),
            stored_record: Ok(None),
        }
    }
}

impl Question {
    async fn ask(
        self,
        answers: impl Fn(LiveRead) -> Option<Result<Vec<Value>, ApiError>> + Send + Sync + 'static,
    ) -> Outcome {
        let Self { world, phase, user, resource, dry_run, object, record, stored_record } = self;
        let script = Arc::new(Script { record, stored_record, ..Script::new(answers) });
        let decider = {
            let (journal, _) = Journal::new(Metrics::default());
            ClusterDecider::new(world, Arc::clone(&script) as Arc<dyn LiveApi>, journal)
        };
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "DELETE", "userInfo": {"username": user},
            "resource": {"group": "", "version": "v1", "resource": resource}, "name": "data",
            "namespace": "a", "oldObject": object, "dryRun": dry_run}});
        let bytes = review.to_string().into_bytes();
        let Parsed::Review(review) = parse_review(&bytes, phase).unwrap() else {
            panic!("unreadable")
        };
        let until = Instant::now() + Duration::from_secs(4);
        let verdict = decider.decide(&review, until).await;
        Outcome { verdict, script, until }
    }
}

#[tokio::test]
async fn an_object_with_too_many_references_may_use_what_is_deleted() {
    let answer = |count: usize| {
        move |read: LiveRead| match &read {
            LiveRead::List { resource, .. } if resource == "pods" => {
                let sources = (0..count).map(|n| json!({"configMap": {"name": format!("c{n}")}}));
                let mut pod = pod();
                pod["spec"] =
                    json!({"volumes": [{"projected": {"sources": sources.collect::<Vec<_>>()}}]});
                Some(Ok(vec![pod]))
            }
            _ => pods(read),
        }
    };
    let outcome = Question::default().ask(answer(4_000)).await;
    assert_eq!(outcome.verdict.decision, Decision::Allow, "{}", outcome.message());
    for count in [4_001, 70_000] {
        let outcome = Question::default().ask(answer(count)).await;
        let reason = (outcome.verdict.decision, outcome.verdict.reason);
        assert_eq!(reason, (Decision::Deny, Some(Reason::Unknown)));
        let says = "Pod a/p has more than 4000 references, so it may use the object";
        assert!(outcome.message().contains(says), "{}", outcome.message());
    }
}

#[tokio::test]
async fn an_allow_that_needs_no_read_sends_none() {
    let outcome = Question { resource: "limitranges", ..Question::default() }.ask(nothing).await;
    assert_eq!((outcome.verdict.decision, outcome.rounds()), (Decision::Allow, 0));
    assert_eq!(outcome.script.counted.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_allow_is_confirmed_and_the_read_objects_count() {
    let outcome = Question::default().ask(nothing).await;
    assert_eq!(outcome.verdict.decision, Decision::Allow, "{}", outcome.message());
    assert_eq!(outcome.rounds(), 1);
    assert_eq!(outcome.script.counted.load(Ordering::Relaxed), 1);
    let (reads, until) = outcome.script.read.lock()[0].clone();
    assert!(reads.contains(&LiveRead::List {
        group: String::new(),
        resource: "pods".to_owned(),
        namespace: "a".to_owned(),
        part: ListPart::All,
    }));
    assert_eq!(outcome.until - until, MARGIN, "there is time left to answer");

    let outcome = Question::default().ask(pods).await;
    assert_eq!(outcome.verdict.reason, Some(Reason::InUse));
    assert!(outcome.message().contains("is in use by Pod a/p"), "{}", outcome.message());
}

#[tokio::test]
async fn a_failed_read_is_reported() {
    let outcome = Question::default()
        .ask(|_| Some(Err(ApiError::Other("the moon is full".to_owned()))))
        .await;
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown));
    assert!(
        outcome.message().contains("may use this object: the moon is full; policy used"),
        "{}",
        outcome.message()
    );
    assert_eq!(outcome.rounds(), 1);
}

#[tokio::test]
async fn no_request_reads_without_end() {
    let outcome = Question::default().ask(|_| None).await;
    assert_eq!(outcome.rounds(), MAX_READ_ROUNDS);
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown));
    assert!(outcome.verdict.needed_reads.is_empty());
    assert!(
        outcome.message().contains("there was no time left for the live read of"),
        "{}",
        outcome.message()
    );
}

#[tokio::test]
async fn h103_in_a_pause_nothing_is_refused_that_cannot_be_judged() {
    let (record, user) = (Err(ApiError::Other("no room".to_owned())), "carol");
    let questions = [Question::default(), Question { record, user, ..Question::default() }];
    for question in questions {
        let pause = Pause { expires: jiff::Timestamp::now().as_second() + 60, ..Pause::default() };
        question.world.write().policies.pauses = vec![pause];
        let outcome = question.ask(|_| None).await;
        assert!(outcome.verdict.decision.passes(), "{}", outcome.message());
        assert!(outcome.verdict.blockers.iter().all(|blocker| blocker.decision.passes()));
        assert_eq!(outcome.message(), "");
    }
}

/// The test takes the lock during a live read, because a waiting review must not hold it.
#[tokio::test]
async fn a_new_kind_during_live_reads_is_not_confused_with_another() {
    let question = Question::default();
    let world = Arc::clone(&question.world);
    let asks = AtomicUsize::new(0);
    let outcome = question.ask(move |read| {
        let is_pods = matches!(&read, LiveRead::List { resource, .. } if resource == "pods");
        if is_pods && asks.fetch_add(1, Ordering::Relaxed) == 0 {
            return None;
        }
        if is_pods {
            let gadgets = Kinds::custom("g.io", "v1", "Gadget", "gadgets", true);
            world.write().graph.kinds.learn(gadgets);
        }
        pods(read)
    });
    let outcome = outcome.await;
    assert_eq!(outcome.verdict.reason, Some(Reason::InUse), "{}", outcome.message());
    assert_eq!(outcome.rounds(), 2, "what was found is not read again");

    // A review is denied if the kinds change in every round.
    let question = Question::default();
    let world = Arc::clone(&question.world);
    let outcome = question.ask(move |read| {
        let name = world.read().graph.kinds.iter().count().to_string();
        world.write().graph.kinds.learn(Kinds::custom("g.io", "v1", &name, &name, true));
        pods(read);
        None
    });
    let outcome = outcome.await;
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown), "{}", outcome.message());
}

#[tokio::test]
async fn nothing_is_decided_before_the_policies_are_read() {
    for (phase, decision) in
        [(AdmissionPhase::Validate, Decision::Deny), (AdmissionPhase::Mutate, Decision::Allow)]
    {
        let question = Question { phase, ..Question::default() };
        question.world.write().loaded = false;
        let outcome = question.ask(nothing).await;
        assert_eq!(outcome.verdict.decision, decision);
        let message = outcome.message();
        let is_reason = message.contains("belay has not read its policies yet");
        assert_eq!(is_reason, decision == Decision::Deny, "{message}");
    }
}

/// H3: a caller who knows the path names an object to learn its users.
#[tokio::test]
async fn h03_an_object_that_does_not_exist_is_read_before_anything_that_uses_it() {
    let unknown = || {
        let question = Question::default();
        let mut world = question.world.write();
        let maps = world.graph.kinds.find("", "ConfigMap").unwrap();
        assert!(world.graph.delete(maps, "a", "data", None));
        drop(world);
        question
    };
    let absent = |read: LiveRead| match read {
        LiveRead::Object { .. } => Some(Ok(Vec::new())),
        LiveRead::List { .. } => pods(read),
    };
    let outcome = unknown().ask(absent).await;
    assert_eq!((outcome.verdict.decision, outcome.rounds()), (Decision::Allow, 1));
    assert_eq!(outcome.script.read.lock()[0].0.len(), 1);
    // The graph does not contain this object yet.
    let outcome = unknown().ask(pods).await;
    assert!(outcome.message().contains("is in use by Pod a/p"), "{}", outcome.message());
    let failed = |read: LiveRead| match read {
        LiveRead::Object { .. } => Some(Err(ApiError::Other("the moon is full".to_owned()))),
        LiveRead::List { .. } => pods(read),
    };
    let outcome = unknown().ask(failed).await;
    assert_eq!(outcome.verdict.reason, Some(Reason::Unknown));
    assert!(outcome.message().contains("belay can't read the object: the moon is full"));
    assert!(!outcome.message().contains("a/p"), "{}", outcome.message());
}

/// belay can't remove a hold that it can't see.
#[tokio::test]
async fn adds_no_hold_to_an_unwatched_kind() {
    let created = |world: &SharedWorld| {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "CREATE", "userInfo": {"username": "alice"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"}, "name": "data",
            "namespace": "a", "object": {"metadata": {"name": "data", "namespace": "a"}}}});
        let bytes = review.to_string().into_bytes();
        let Parsed::Review(review) = parse_review(&bytes, AdmissionPhase::Mutate).unwrap() else {
            panic!("unreadable")
        };
        let script = Script::new(nothing);
        let (journal, _) = Journal::new(Metrics::default());
        let decider = ClusterDecider::new(Arc::clone(world), Arc::new(script), journal);
        let verdict = decide_now(
            &decider.world,
            &decider.no_reads,
            &review,
            None,
            &StepBudget::new(REVIEW_STEPS),
        );
        verdict.unwrap().hold
    };
    let world = world();
    assert_eq!(created(&world), None);
    let kind = world.read().graph.kinds.find_resource("", "configmaps").unwrap();
    world.write().watched.insert(kind);
    assert!(created(&world).is_some());
    // Objects that belay may not patch get no hold either.
    world.write().patch_rights = PatchRights::none();
    assert_eq!(created(&world), None);
}

#[tokio::test]
async fn h06_all_rounds_of_a_review_share_one_budget() {
    let bytes = delete_review("configmaps", data());
    let review = parse(&bytes);
    let (journal, _) = Journal::new(Metrics::default());
    let decider = ClusterDecider::new(world(), Arc::new(Script::new(pods)), journal);
    let until = Instant::now() + Duration::from_secs(5);
    let (one, all) = (StepBudget::new(REVIEW_STEPS), Effort::default());
    decide_now(&decider.world, &decider.no_reads, &review, None, &one).unwrap();
    let verdict = decider.answer(&review, until, &all).await;
    assert_eq!(verdict.reason, Some(Reason::InUse));
    assert!(all.steps() > one.steps(), "{} {}", all.steps(), one.steps());
    // The steps of the first round are missing in the second one.
    let verdict = decider.answer(&review, until, &Effort::new(one.steps())).await;
    assert_eq!(verdict.reason, Some(Reason::Unknown));
}

/// The ConfigMap a/data and its dependents, each with this number of owners.
fn world_with_dependents(dependents: usize, owners: usize) -> SharedWorld {
    let world = world();
    let owner = |name: String, uid: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let mut references: Vec<_> =
        (1..owners).map(|n| owner(format!("o{n}"), json!(format!("o{n}")))).collect();
    references.push(owner("data".to_owned(), data()["metadata"]["uid"].clone()));
    {
        let World { graph, catalogue, .. } = &mut *world.write();
        let maps = graph.kinds.find("", "ConfigMap").unwrap();
        for n in 0..dependents {
            let name = format!("d{n}");
            let map = json!({"metadata": {"name": name, "namespace": "a", "uid": name,
                "ownerReferences": references}});
            catalogue.parse_and_apply(graph, maps, &map.to_string()).unwrap();
        }
    }
    world
}

fn delete_review(resource: &str, object: Value) -> Vec<u8> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "1", "operation": "DELETE", "userInfo": {"username": "alice"},
        "resource": {"group": "", "version": "v1", "resource": resource}, "name": "data",
        "namespace": "a", "oldObject": object}});
    review.to_string().into_bytes()
}

fn parse(bytes: &[u8]) -> Box<Review<'_>> {
    match parse_review(bytes, AdmissionPhase::Validate) {
        Ok(Parsed::Review(review)) => review,
        other => panic!("{other:?}"),
    }
}

/// H40: a user with edit rights causes reviews that take millions of steps.
#[tokio::test]
async fn h40_a_review_that_takes_much_work_waits_for_its_turn_and_others_do_not() {
    let (journal, _) = Journal::new(Metrics::default());
    let world = world_with_dependents(60, 1_000);
    let decider = ClusterDecider::new(world, Arc::new(Script::new(pods)), journal);
    let other = json!({"metadata": {"name": "data", "namespace": "a", "uid": "other"}});
    let large = delete_review("configmaps", data());
    let small = delete_review("limitranges", other);
    let (large, small) = (parse(&large), parse(&small));
    let until = Instant::now() + Duration::from_secs(60);
    // A review of another namespace has the only turn.
    let turn = decider.turns.acquire(ReadGroup::Namespace("b".to_owned())).await;
    let ended = Mutex::new(Vec::new());
    let first = async {
        let verdict = decider.decide(&large, until).await;
        ended.lock().push("large");
        verdict
    };
    let then = async {
        let verdict = decider.decide(&small, until).await;
        ended.lock().push("small");
        drop(turn);
        verdict
    };
    let (large_verdict, small_verdict) = tokio::join!(first, then);
    assert_eq!(*ended.lock(), ["small", "large"]);
    assert_eq!(small_verdict.decision, Decision::Allow);
    assert_eq!(large_verdict.reason, Some(Reason::InUse), "{:?}", message(&large_verdict));

    // A review that gets no turn in time is denied as Unknown.
    let turn = decider.turns.acquire(ReadGroup::Namespace("b".to_owned())).await;
    let verdict = decider.decide(&large, Instant::now() + 2 * MARGIN).await;
    let denial = message(&verdict).unwrap_or_default();
    assert!(denial.contains("the request takes much work, and no time was left"), "{denial}");
    drop(turn);
    // It also uses no turn of later reviews.
    let verdict = decider.decide(&large, until).await;
    assert_eq!(verdict.reason, Some(Reason::InUse), "{:?}", message(&verdict));
}

/// H190: a short forged review makes belay read many objects. A thread that answers reviews does
/// not parse them.
#[tokio::test]
async fn h190_many_read_objects_are_parsed_in_a_turn() {
    fn many_pods(read: LiveRead) -> Option<Result<Vec<Value>, ApiError>> {
        let others = (0..300).map(|n| {
            json!({"metadata": {"name": format!("other-{n}"), "namespace": "a",
                "uid": format!("u{n}"), "labels": {"team": "x".repeat(300)}}})
        });
        match read {
            LiveRead::List { ref resource, .. } if resource == "pods" => {
                Some(Ok(others.chain([pod()]).collect()))
            }
            other => pods(other),
        }
    }
    let (journal, _) = Journal::new(Metrics::default());
    let decider = ClusterDecider::new(world(), Arc::new(Script::new(many_pods)), journal);
    let bytes = delete_review("configmaps", data());
    let review = parse(&bytes);
    let until = Instant::now() + Duration::from_secs(60);
    let verdict = decider.decide(&review, until).await;
    assert_eq!(verdict.reason, Some(Reason::InUse), "{:?}", message(&verdict));
    // A review of another namespace has the only turn.
    let turn = decider.turns.acquire(ReadGroup::Namespace("b".to_owned())).await;
    let verdict = decider.decide(&review, Instant::now() + 2 * MARGIN).await;
    drop(turn);
    let denial = message(&verdict).unwrap_or_default();
    assert!(denial.contains("the request takes much work, and no time was left"), "{denial}");
}

type Scripted = fn(LiveRead) -> Option<Result<Vec<Value>, ApiError>>;
