//! The leader adds and removes holds on a scripted API server.

use http::Method;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use super::*;
use crate::cluster::context::{Registered, Settings};
use crate::cluster::holding::HoldCounts;
use crate::cluster::local_api::{failure, local_client};
use crate::cluster::world::ServedVerbs;
use crate::objects::{FORMER_HOLD_FOR_TESTS, HOLD, set_former_hold_for_tests};
use crate::policy::api::DeletionPolicySpec;
use crate::policy::{Pause, Policy, PolicySet};
use crate::relations::Catalogue;

const RECORD: &str = "/api/v1/namespaces/belay/configmaps";

/// The answers by method and path. Any other request gets a 404.
type Answers = Arc<Mutex<HashMap<String, (u16, Value)>>>;

struct TestLeader {
    holds: Holds,
    answers: Answers,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl TestLeader {
    /// ConfigMaps are a labelled kind.
    fn new() -> Self {
        let (answers, asked) = (Answers::default(), Arc::<Mutex<Vec<(String, Value)>>>::default());
        let (script, heard) = (answers.clone(), asked.clone());
        let client = local_client(move |request| {
            let name = format!("{} {}", request.method(), request.uri().path());
            let echo = matches!(*request.method(), Method::POST | Method::PUT);
            let body = request.into_body();
            heard.lock().push((name.clone(), body.clone()));
            Some(match script.lock().get(&name).cloned() {
                Some((200, _)) if echo => (200, body),
                answer => answer.unwrap_or_else(|| failure(404, "none", ("", ""))),
            })
        });
        let mut world = World { loaded: true, policies_current: true, ..World::default() };
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        let kinds: Vec<KindId> = world.graph.kinds.iter().map(|(kind, _)| kind).collect();
        let served = ServedVerbs { list: true, watch: true };
        world.served = kinds.into_iter().map(|kind| (kind, served)).collect();
        let context = Context::of_test(client, world, &[("", "configmaps")]);
        let registered = Registered { any_exists: true, ..Registered::default() };
        context.signals.registered.send_replace(registered);
        let leader = Self { holds: Holds::new(context), answers, asked };
        leader.answer(&format!("POST {RECORD}"), 200, Value::Null);
        leader
    }

    fn answer(&self, request: &str, code: u16, body: Value) {
        self.answers.lock().insert(request.to_owned(), (code, body));
    }

    fn world(&self) -> &RwLock<World> {
        &self.holds.context.world
    }

    fn kind(&self, resource: &str) -> KindId {
        self.world().read().graph.kinds.find_resource("", resource).unwrap()
    }

    fn key(&self, name: &str) -> (KindId, String, String) {
        (self.kind("configmaps"), "n".to_owned(), name.to_owned())
    }

    fn was_asked(&self, request: &str) -> bool {
        self.asked.lock().iter().any(|(asked, _)| asked == request)
    }

    /// The record as it was written last.
    fn written(&self) -> Value {
        let asked = self.asked.lock();
        let mut written = asked.iter().filter(|(asked, _)| !asked.starts_with("GET"));
        written.next_back().map(|(_, body)| body["data"].clone()).unwrap_or_default()
    }

    /// Sets this number of policies that want holds on Secrets.
    fn set_policies(&self, count: usize) {
        let policies = (0..count).map(|_| policy("{whileUsed: {}}")).collect();
        let mut world = self.world().write();
        world.policies = PolicySet::new(policies, &world.catalogue);
    }

    /// There is one policy on Secrets.
    fn protects(&self, protect: &str) {
        let mut world = self.world().write();
        world.policies = PolicySet::new(vec![policy(protect)], &world.catalogue);
    }
}

/// A policy on Secrets.
fn policy(protect: &str) -> Policy {
    let spec =
        format!("{{targets: [{{apiGroups: [''], resources: [secrets]}}], protect: {protect}}}");
    let spec: DeletionPolicySpec = serde_saphyr::from_str(&spec).unwrap();
    Policy::compile("p", &spec).unwrap()
}

fn held(name: &str, deleted: bool) -> Value {
    let mut metadata = json!({"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
        "finalizers": ["belay.dev/hold"]});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({ "metadata": metadata })
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/n/configmaps/{name}")
}

#[tokio::test]
async fn a_relist_finds_held_objects_that_lost_their_label() {
    let mut leader = TestLeader::new();
    let items = [held("c", true), held("d", false)];
    leader.answer(&format!("GET {}", path("c")), 200, items[0].clone());
    leader.answer(&format!("GET {}", path("d")), 200, items[1].clone());
    leader.answer("GET /api/v1/configmaps", 200, json!({"metadata": {}, "items": items}));
    leader.holds.run_round().await.unwrap();
    let world = leader.world().read();
    assert!(world.waiting.objects[&leader.key("c")].unwatched);
    assert_eq!(world.waiting.objects.len(), 1);
    assert!(world.waiting.changed.contains(&leader.key("c")));
    drop(world);
    assert!(leader.was_asked(&format!("PATCH {}", path("d"))));
}

#[tokio::test]
async fn without_webhook_configurations_no_hold_is_added_and_no_kind_is_recorded() {
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    leader.holds.context.signals.registered.send_replace(Registered::default());
    leader.answer(&format!("GET {}", path("a")), 200, held("a", false));
    let left = leader.key("a");
    leader.world().write().left_watch.insert(left);
    leader.holds.run_round().await.unwrap();
    assert!(leader.asked.lock().is_empty(), "{:?}", leader.asked.lock());
    // After a new installation, belay continues.
    let registered = Registered { any_exists: true, ..Registered::default() };
    leader.holds.context.signals.registered.send_replace(registered);
    leader.holds.run_round().await.unwrap();
    assert!(leader.was_asked(&format!("PATCH {}", path("a"))));
    assert!(leader.was_asked(&format!("POST {RECORD}")));
}

#[tokio::test]
async fn the_leader_renames_holds_with_a_former_name() {
    set_former_hold_for_tests();
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    let secrets = leader.kind("secrets");
    let mut object = held("a", false);
    object["metadata"]["finalizers"] = json!([FORMER_HOLD_FOR_TESTS]);
    let path = "/api/v1/namespaces/n/secrets/a";
    leader.answer(&format!("GET {path}"), 200, object.clone());
    {
        let mut world = leader.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        crate::cluster::world::store(graph, catalogue, secrets, &object.to_string(), None).unwrap();
    }
    leader.holds.run_round().await.unwrap();
    let asked = leader.asked.lock().clone();
    let patch = asked.iter().find(|(asked, _)| *asked == format!("PATCH {path}"));
    let operations = patch.map(|(_, patch)| patch.as_array().unwrap().last().unwrap().clone());
    let path = "/metadata/finalizers/0";
    assert_eq!(operations, Some(json!({"op": "replace", "path": path, "value": HOLD})));
    // The kind counts as one with holds meanwhile.
    assert!(leader.world().read().kinds_with_holds.contains(&secrets));
}

#[tokio::test]
async fn an_unreadable_object_delays_no_other_object() {
    let mut leader = TestLeader::new();
    let error = || json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"});
    for name in ["a", "b", "y", "z"] {
        leader.answer(&format!("GET {}", path(name)), 200, held(name, false));
    }
    for name in ["a", "y"] {
        leader.answer(&format!("GET {}", path(name)), 500, error());
    }
    for name in ["a", "b"] {
        let mut world = leader.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        let (kind, object) =
            (leader.holds.context.settings.labelled[0].1.as_str(), held(name, false));
        let kind = graph.kinds.find_resource("", kind).unwrap();
        crate::cluster::world::store(graph, catalogue, kind, &object.to_string(), None).unwrap();
    }
    let left = [leader.key("y"), leader.key("z")];
    leader.world().write().left_watch.extend(left);
    leader.holds.run_round().await.unwrap();
    for name in ["b", "z"] {
        assert!(leader.was_asked(&format!("PATCH {}", path(name))), "{name}");
    }
    // belay retries object a after a pause, and object y in the next round.
    assert!(leader.holds.skipped_until.contains_key(&Uid::new("a")));
    assert_eq!(leader.world().read().left_watch, BTreeSet::from([leader.key("y")]));
}

#[tokio::test]
async fn kinds_that_leave_the_setting_are_watched_completely() {
    let mut leader = TestLeader::new();
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.written(), json!({"configmaps": "labelled"}));
    assert!(leader.world().read().kinds_with_holds.is_empty());
    let mut settings = Settings::clone(&leader.holds.context.settings);
    settings.labelled.clear();
    leader.holds.context.settings = Arc::new(settings);
    leader.holds.run_round().await.unwrap();
    let kind = leader.kind("configmaps");
    assert_eq!(leader.world().read().kinds_with_holds, BTreeSet::from([kind]));
    // All objects are read, and none has a hold.
    leader.answer(&format!("PUT {RECORD}/belay-held"), 200, Value::Null);
    leader.world().write().graph.set_complete(kind, true);
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.written(), json!({}));
    assert!(leader.world().read().kinds_with_holds.is_empty());
}

/// A kind that is read to its end during the round: its held object is not in the survey.
#[tokio::test]
async fn a_kind_whose_held_objects_were_read_after_the_survey_stays_in_the_record() {
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    leader.holds.run_round().await.unwrap();
    leader.set_policies(0);
    let secrets = leader.kind("secrets");
    {
        let mut world = leader.world().write();
        let catalogue = world.catalogue.clone();
        let object = held("s", false).to_string();
        crate::cluster::world::store(&mut world.graph, &catalogue, secrets, &object, None).unwrap();
        world.graph.set_complete(secrets, true);
    }
    leader.holds.remove_unused(&BTreeSet::new()).await.unwrap();
    assert_eq!(leader.written(), json!({"configmaps": "labelled", "secrets": ""}));
    assert!(leader.world().read().kinds_with_holds.contains(&secrets));
}

#[tokio::test]
async fn a_kind_is_recorded_after_its_policy_was_deleted_before_the_first_write() {
    let mut leader = TestLeader::new();
    let error = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"});
    leader.answer(&format!("POST {RECORD}"), 500, error);
    leader.set_policies(1);
    leader.holds.run_round().await.unwrap_err();
    leader.set_policies(0);
    leader.answer(&format!("POST {RECORD}"), 200, Value::Null);
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.written(), json!({"configmaps": "labelled", "secrets": ""}));
}

#[tokio::test]
async fn kinds_are_recorded_during_a_pause() {
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    let pause = Pause { expires: i64::MAX, ..Pause::default() };
    leader.world().write().policies.pauses = vec![pause];
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.written(), json!({"configmaps": "labelled", "secrets": ""}));
    assert!(!leader.was_asked("GET /api/v1/configmaps"), "nothing else is done");
}

#[tokio::test]
async fn a_former_leader_reports_no_holds() {
    let leader = TestLeader::new();
    let context = leader.holds.context.clone();
    context.signals.leading.send_replace(true);
    let running = tokio::spawn(run(context.clone()));
    tokio::task::yield_now().await;
    context
        .signals
        .holding
        .send_replace(Arc::new(HashMap::from([("p".into(), HoldProgress::default())])));
    context.signals.leading.send_replace(false);
    let mut holding = context.signals.holding.subscribe();
    let empty = holding.wait_for(|holding| holding.is_empty());
    assert!(tokio::time::timeout(Duration::from_secs(5), empty).await.is_ok());
    running.abort();
}

#[tokio::test]
async fn adds_no_hold_where_too_many_are_missing_until_a_user_allows_it() {
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    let secrets = leader.kind("secrets");
    let path = |name: &str| format!("/api/v1/namespaces/n/secrets/{name}");
    for name in ["a", "b", "c"] {
        let mut object = held(name, false);
        object["metadata"]["finalizers"].take();
        leader.answer(&format!("GET {}", path(name)), 200, object.clone());
        let mut world = leader.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        crate::cluster::world::store(graph, catalogue, secrets, &object.to_string(), None).unwrap();
    }
    let set_limit = |leader: &mut TestLeader, limit| {
        let mut settings = Settings::clone(&leader.holds.context.settings);
        settings.backfill = limit;
        leader.holds.context.settings = Arc::new(settings);
    };
    let counting = leader.holds.timing.first_recheck;
    // Until all objects are read, their number is unknown.
    set_limit(&mut leader, 3);
    leader.holds.run_round().await.unwrap();
    assert!(!leader.was_asked(&format!("GET {}", path("a"))));
    assert!(leader.holds.next_round_pause() <= counting);
    assert!(leader.holds.next_round_pause() > counting, "ever longer");
    let namespaces = leader.kind("namespaces");
    for kind in [secrets, namespaces] {
        leader.world().write().graph.set_complete(kind, true);
    }

    set_limit(&mut leader, 2);
    leader.holds.run_round().await.unwrap();
    assert!(!leader.was_asked(&format!("GET {}", path("a"))));
    let holding = leader.holds.context.signals.holding.borrow().clone();
    let counts = holding["p"].counts;
    assert_eq!((counts.done, counts.total, holding["p"].stopped.len()), (0, 3, 1));
    let metrics = || leader.holds.context.metrics.encode();
    assert!(metrics().lines().any(|line| line == "belay_backfills_stopped 1"));
    // An object that is read for another reason gets no hold either.
    let key = (secrets, "n".to_owned(), "b".to_owned());
    leader.world().write().left_watch.insert(key);
    leader.holds.run_round().await.unwrap();
    assert!(leader.was_asked(&format!("GET {}", path("b"))));
    assert!(!leader.was_asked(&format!("PATCH {}", path("b"))));

    set_limit(&mut leader, 3);
    leader.holds.run_round().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(leader.was_asked(&format!("PATCH {}", path(name))), "{name}");
    }
    let holding = leader.holds.context.signals.holding.borrow().clone();
    assert!(holding["p"].stopped.is_empty());
    let metrics = leader.holds.context.metrics.encode();
    assert!(metrics.lines().any(|line| line == "belay_backfills_stopped 0"));
}

/// The counts of a policy have the time at which its holds are effective.
#[tokio::test]
async fn counts_young_holds_and_reports_when_they_are_effective() {
    let mut leader = TestLeader::new();
    let secrets = leader.kind("secrets");
    let now = jiff::Timestamp::now().as_second();
    let store = |name: &str, held_since: i64, terminating: bool| {
        let mut object = held(name, terminating);
        let time = jiff::Timestamp::from_second(held_since).unwrap().to_string();
        object["metadata"]["managedFields"] = json!([{"time": time, "fieldsV1": {"f:metadata":
            {"f:finalizers": {"v:\"belay.dev/hold\"": {}}}}}]);
        let mut world = leader.holds.context.world.write();
        let World { graph, catalogue, .. } = &mut *world;
        crate::cluster::world::store(graph, catalogue, secrets, &object.to_string(), None).unwrap();
    };
    store("old", now - 100, false);
    store("young", now - 10, false);
    // belay writes to a Terminating object, whose hold then looks new.
    store("terminating", now - 5, true);
    let counts = |effective_at| HoldCounts { done: 2, total: 2, terminating: 1, effective_at };
    for (protect, effective_at) in [
        ("{whileUsed: {}}", None),
        ("{always: {}}", None),
        ("{whileUsed: {onDelete: Hold}}", Some(now + 35)),
    ] {
        leader.protects(protect);
        leader.holds.context.signals.change();
        leader.holds.run_round().await.unwrap();
        let holding = leader.holds.context.signals.holding.borrow().clone();
        let generation = *leader.holds.context.signals.changed.borrow();
        assert_eq!(
            (holding["p"].counts, holding["p"].generation),
            (counts(effective_at), generation)
        );
        assert!(holding["p"].unread);
    }
    // Then the next round soon counts again.
    assert!(leader.holds.next_round_pause() <= leader.holds.timing.first_recheck);
    leader.world().write().graph.set_complete(secrets, true);
    leader.holds.run_round().await.unwrap();
    assert!(!leader.holds.context.signals.holding.borrow()["p"].unread);
    assert_eq!(leader.holds.next_round_pause(), leader.holds.timing.check_interval);
}

/// A tenant has a thousand surplus holds. Another namespace has one, and a third lacks a hold.
#[tokio::test(start_paused = true)]
async fn h45_missing_holds_come_first_and_namespaces_take_turns() {
    let mut leader = TestLeader::new();
    leader.set_policies(1);
    let [maps, secrets, namespaces] =
        ["configmaps", "secrets", "namespaces"].map(|r| leader.kind(r));
    let store = |kind, namespace: &str, name: &str, finalizers: Value| {
        let metadata = json!({"name": name, "namespace": namespace, "resourceVersion": "1",
            "uid": format!("{namespace}-{name}"), "finalizers": finalizers});
        let mut world = leader.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        let object = json!({ "metadata": metadata }).to_string();
        crate::cluster::world::store(graph, catalogue, kind, &object, None).unwrap();
    };
    for n in 0..1_000 {
        store(maps, "dev", &n.to_string(), json!(["belay.dev/hold"]));
    }
    store(maps, "prod", "surplus", json!(["belay.dev/hold"]));
    for n in 0..300 {
        store(secrets, "dev", &n.to_string(), json!([]));
    }
    store(secrets, "prod", "missing", json!([]));
    for kind in [secrets, namespaces] {
        leader.world().write().graph.set_complete(kind, true);
    }
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.holds.next_round_pause(), ROUND_PAUSE);
    let asked: Vec<String> = leader.asked.lock().iter().map(|(asked, _)| asked.clone()).collect();
    let asked: Vec<&String> = asked.iter().filter(|asked| asked.contains("/namespaces/")).collect();
    assert_eq!(
        asked.len(),
        2 * MAX_TASKS_PER_ROUND + usize::from(asked[0].contains("/namespaces/belay/"))
    );
    let at = |name: &str| asked.iter().position(|asked| asked.ends_with(name)).unwrap();
    assert!(at("/prod/secrets/missing") < 4, "{asked:?}");
    assert!(
        (MAX_TASKS_PER_ROUND..MAX_TASKS_PER_ROUND + 4).contains(&at("/prod/configmaps/surplus")),
        "{asked:?}"
    );
}

/// A tenant removes the label of its objects again and again.
#[tokio::test(start_paused = true)]
async fn h45_objects_that_lose_their_label_do_not_keep_a_round_from_its_end() {
    let mut leader = TestLeader::new();
    let key = |namespace: &str, n: usize| {
        (leader.kind("configmaps"), namespace.to_owned(), format!("a{n}"))
    };
    let left: Vec<_> =
        (0..3 * MAX_TASKS_PER_ROUND).map(|n| key("dev", n)).chain([key("prod", 0)]).collect();
    leader.world().write().left_watch.extend(left);
    leader.holds.run_round().await.unwrap();
    assert!(leader.was_asked("GET /api/v1/namespaces/prod/configmaps/a0"));
    assert_eq!(leader.world().read().left_watch.len(), 2 * MAX_TASKS_PER_ROUND + 1);
    assert_eq!(leader.holds.next_round_pause(), ROUND_PAUSE);
    leader.holds.run_round().await.unwrap();
    assert_eq!(leader.world().read().left_watch.len(), MAX_TASKS_PER_ROUND + 1);
}
