//! The leader adds and removes holds on a scripted API server.

use http::Method;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use super::*;
use crate::cluster::context::{Registered, Settings};
use crate::cluster::local_api::{failure, local_client};
use crate::cluster::world::ServedVerbs;
use crate::objects::{FORMER_HOLD_FOR_TESTS, HOLD, set_former_hold_for_tests};
use crate::policy::api::DeletionPolicySpec;
use crate::policy::{Pause, Policy, PolicySet};
use crate::relations::Catalogue;

const RECORD: &str = "/api/v1/namespaces/belay/configmaps";

/// The answers by method and path. Any other request gets a 404.
type Answers = Arc<Mutex<HashMap<String, (u16, Value)>>>;

struct Stage {
    holds: Holds,
    answers: Answers,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Stage {
    /// ConfigMaps are labelled.
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
        let stage = Self { holds: Holds::new(context), answers, asked };
        stage.answer(&format!("POST {RECORD}"), 200, Value::Null);
        stage
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

    fn place(&self, name: &str) -> (KindId, String, String) {
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

    /// There are policies for holds on Secrets, or none.
    fn policies(&self, count: usize) {
        const SPEC: &str =
            "{targets: [{apiGroups: [''], resources: [secrets]}], protect: {whileUsed: {}}}";
        let spec: DeletionPolicySpec = serde_saphyr::from_str(SPEC).unwrap();
        let policies = (0..count).map(|_| Policy::compile("p", &spec).unwrap()).collect();
        let mut world = self.world().write();
        world.policies = PolicySet::new(policies, &world.catalogue);
    }
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
async fn a_sweep_hands_over_what_waits_without_its_label() {
    let mut stage = Stage::new();
    let items = [held("c", true), held("d", false)];
    stage.answer(&format!("GET {}", path("c")), 200, items[0].clone());
    stage.answer(&format!("GET {}", path("d")), 200, items[1].clone());
    stage.answer("GET /api/v1/configmaps", 200, json!({"metadata": {}, "items": items}));
    stage.holds.run_round().await.unwrap();
    let world = stage.world().read();
    assert!(world.waiting.objects[&stage.place("c")].unwatched);
    assert_eq!(world.waiting.objects.len(), 1);
    assert!(world.waiting.changed.contains(&stage.place("c")));
    drop(world);
    assert!(stage.was_asked(&format!("PATCH {}", path("d"))));
}

#[tokio::test]
async fn without_webhook_configurations_no_hold_is_added_and_no_kind_is_recorded() {
    let mut stage = Stage::new();
    stage.policies(1);
    stage.holds.context.signals.registered.send_replace(Registered::default());
    stage.answer(&format!("GET {}", path("a")), 200, held("a", false));
    let left = stage.place("a");
    stage.world().write().left_watch.insert(left);
    stage.holds.run_round().await.unwrap();
    assert!(stage.asked.lock().is_empty(), "{:?}", stage.asked.lock());
    // After a new installation, belay continues.
    let registered = Registered { any_exists: true, ..Registered::default() };
    stage.holds.context.signals.registered.send_replace(registered);
    stage.holds.run_round().await.unwrap();
    assert!(stage.was_asked(&format!("PATCH {}", path("a"))));
    assert!(stage.was_asked(&format!("POST {RECORD}")));
}

#[tokio::test]
async fn what_is_held_under_a_former_name_is_renamed() {
    set_former_hold_for_tests();
    let mut stage = Stage::new();
    stage.policies(1);
    let secrets = stage.kind("secrets");
    let mut object = held("a", false);
    object["metadata"]["finalizers"] = json!([FORMER_HOLD_FOR_TESTS]);
    let place = "/api/v1/namespaces/n/secrets/a";
    stage.answer(&format!("GET {place}"), 200, object.clone());
    {
        let mut world = stage.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        crate::cluster::world::store(graph, catalogue, secrets, &object.to_string(), None).unwrap();
    }
    stage.holds.run_round().await.unwrap();
    let asked = stage.asked.lock().clone();
    let patch = asked.iter().find(|(asked, _)| *asked == format!("PATCH {place}"));
    let operations = patch.map(|(_, patch)| patch.as_array().unwrap().last().unwrap().clone());
    let path = "/metadata/finalizers/0";
    assert_eq!(operations, Some(json!({"op": "replace", "path": path, "value": HOLD})));
    // The kind counts as one with holds meanwhile.
    assert!(stage.world().read().kinds_with_holds.contains(&secrets));
}

#[tokio::test]
async fn what_cannot_be_read_keeps_nothing_else_waiting() {
    let mut stage = Stage::new();
    let error = || json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"});
    for name in ["a", "b", "y", "z"] {
        stage.answer(&format!("GET {}", path(name)), 200, held(name, false));
    }
    for name in ["a", "y"] {
        stage.answer(&format!("GET {}", path(name)), 500, error());
    }
    for name in ["a", "b"] {
        let mut world = stage.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        let (kind, object) =
            (stage.holds.context.settings.labelled[0].1.as_str(), held(name, false));
        let kind = graph.kinds.find_resource("", kind).unwrap();
        crate::cluster::world::store(graph, catalogue, kind, &object.to_string(), None).unwrap();
    }
    let left = [stage.place("y"), stage.place("z")];
    stage.world().write().left_watch.extend(left);
    stage.holds.run_round().await.unwrap();
    for name in ["b", "z"] {
        assert!(stage.was_asked(&format!("PATCH {}", path(name))), "{name}");
    }
    // belay retries one object soon, and the other in the next round.
    assert!(stage.holds.settled.contains_key(&Uid::new("a")));
    assert_eq!(stage.world().read().left_watch, BTreeSet::from([stage.place("y")]));
}

#[tokio::test]
async fn labelled_kinds_are_recorded_and_watched_whole_once_they_are_not_set_any_more() {
    let mut stage = Stage::new();
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.written(), json!({"configmaps": "labelled"}));
    assert!(stage.world().read().kinds_with_holds.is_empty());
    let mut settings = Settings::clone(&stage.holds.context.settings);
    settings.labelled.clear();
    stage.holds.context.settings = Arc::new(settings);
    stage.holds.run_round().await.unwrap();
    let kind = stage.kind("configmaps");
    assert_eq!(stage.world().read().kinds_with_holds, BTreeSet::from([kind]));
    // All objects are read, and none has a hold.
    stage.answer(&format!("PUT {RECORD}/belay-held"), 200, Value::Null);
    stage.world().write().graph.set_complete(kind, true);
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.written(), json!({}));
    assert!(stage.world().read().kinds_with_holds.is_empty());
}

/// A kind that is read to its end during the round: its held object is not in the survey.
#[tokio::test]
async fn a_kind_whose_held_objects_were_read_after_the_survey_stays_in_the_record() {
    let mut stage = Stage::new();
    stage.policies(1);
    stage.holds.run_round().await.unwrap();
    stage.policies(0);
    let secrets = stage.kind("secrets");
    {
        let mut world = stage.world().write();
        let catalogue = world.catalogue.clone();
        let object = held("s", false).to_string();
        crate::cluster::world::store(&mut world.graph, &catalogue, secrets, &object, None).unwrap();
        world.graph.set_complete(secrets, true);
    }
    stage.holds.remove_unused(&BTreeSet::new()).await.unwrap();
    assert_eq!(stage.written(), json!({"configmaps": "labelled", "secrets": ""}));
    assert!(stage.world().read().kinds_with_holds.contains(&secrets));
}

#[tokio::test]
async fn a_policy_that_goes_before_its_kind_could_be_written_down_is_not_forgotten() {
    let mut stage = Stage::new();
    let error = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no"});
    stage.answer(&format!("POST {RECORD}"), 500, error);
    stage.policies(1);
    stage.holds.run_round().await.unwrap_err();
    stage.policies(0);
    stage.answer(&format!("POST {RECORD}"), 200, Value::Null);
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.written(), json!({"configmaps": "labelled", "secrets": ""}));
}

#[tokio::test]
async fn kinds_are_written_down_while_belay_is_paused() {
    let mut stage = Stage::new();
    stage.policies(1);
    let pause = Pause { expires: i64::MAX, ..Pause::default() };
    stage.world().write().policies.pauses = vec![pause];
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.written(), json!({"configmaps": "labelled", "secrets": ""}));
    assert!(!stage.was_asked("GET /api/v1/configmaps"), "nothing else is done");
}

#[tokio::test]
async fn a_former_leader_reports_no_holds() {
    let stage = Stage::new();
    let context = stage.holds.context.clone();
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
    let mut stage = Stage::new();
    stage.policies(1);
    let secrets = stage.kind("secrets");
    let path = |name: &str| format!("/api/v1/namespaces/n/secrets/{name}");
    for name in ["a", "b", "c"] {
        let mut object = held(name, false);
        object["metadata"]["finalizers"].take();
        stage.answer(&format!("GET {}", path(name)), 200, object.clone());
        let mut world = stage.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        crate::cluster::world::store(graph, catalogue, secrets, &object.to_string(), None).unwrap();
    }
    let limited = |stage: &mut Stage, limit| {
        let mut settings = Settings::clone(&stage.holds.context.settings);
        settings.backfill = limit;
        stage.holds.context.settings = Arc::new(settings);
    };
    let counting = stage.holds.timing.counting;
    // Until all objects are read, their number is unknown.
    limited(&mut stage, 3);
    stage.holds.run_round().await.unwrap();
    assert!(!stage.was_asked(&format!("GET {}", path("a"))));
    assert!(stage.holds.round_pause() <= counting);
    assert!(stage.holds.round_pause() > counting, "ever longer");
    let places = stage.kind("namespaces");
    for kind in [secrets, places] {
        stage.world().write().graph.set_complete(kind, true);
    }

    limited(&mut stage, 2);
    stage.holds.run_round().await.unwrap();
    assert!(!stage.was_asked(&format!("GET {}", path("a"))));
    let holding = stage.holds.context.signals.holding.borrow().clone();
    assert_eq!((holding["p"].done, holding["p"].total, holding["p"].stopped.len()), (0, 3, 1));
    let metrics = || stage.holds.context.metrics.encode();
    assert!(metrics().lines().any(|line| line == "belay_backfills_stopped 1"));
    // An object that is read for another reason gets no hold either.
    let place = (secrets, "n".to_owned(), "b".to_owned());
    stage.world().write().left_watch.insert(place);
    stage.holds.run_round().await.unwrap();
    assert!(stage.was_asked(&format!("GET {}", path("b"))));
    assert!(!stage.was_asked(&format!("PATCH {}", path("b"))));

    limited(&mut stage, 3);
    stage.holds.run_round().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(stage.was_asked(&format!("PATCH {}", path(name))), "{name}");
    }
    let holding = stage.holds.context.signals.holding.borrow().clone();
    assert!(holding["p"].stopped.is_empty());
    let metrics = stage.holds.context.metrics.encode();
    assert!(metrics.lines().any(|line| line == "belay_backfills_stopped 0"));
}

/// A tenant has a thousand surplus holds. Another namespace has one, and a third lacks a hold.
#[tokio::test(start_paused = true)]
async fn h45_missing_holds_come_first_and_namespaces_take_turns() {
    let mut stage = Stage::new();
    stage.policies(1);
    let [maps, secrets, places] = ["configmaps", "secrets", "namespaces"].map(|r| stage.kind(r));
    let take = |kind, namespace: &str, name: &str, finalizers: Value| {
        let metadata = json!({"name": name, "namespace": namespace, "resourceVersion": "1",
            "uid": format!("{namespace}-{name}"), "finalizers": finalizers});
        let mut world = stage.world().write();
        let World { graph, catalogue, .. } = &mut *world;
        let object = json!({ "metadata": metadata }).to_string();
        crate::cluster::world::store(graph, catalogue, kind, &object, None).unwrap();
    };
    for n in 0..1_000 {
        take(maps, "dev", &n.to_string(), json!(["belay.dev/hold"]));
    }
    take(maps, "prod", "surplus", json!(["belay.dev/hold"]));
    for n in 0..300 {
        take(secrets, "dev", &n.to_string(), json!([]));
    }
    take(secrets, "prod", "missing", json!([]));
    for kind in [secrets, places] {
        stage.world().write().graph.set_complete(kind, true);
    }
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.holds.round_pause(), ROUND_PAUSE);
    let asked: Vec<String> = stage.asked.lock().iter().map(|(asked, _)| asked.clone()).collect();
    let asked: Vec<&String> = asked.iter().filter(|asked| asked.contains("/namespaces/")).collect();
    assert_eq!(asked.len(), 2 * ROUND + usize::from(asked[0].contains("/namespaces/belay/")));
    let at = |name: &str| asked.iter().position(|asked| asked.ends_with(name)).unwrap();
    assert!(at("/prod/secrets/missing") < 4, "{asked:?}");
    assert!((ROUND..ROUND + 4).contains(&at("/prod/configmaps/surplus")), "{asked:?}");
}

/// A tenant removes the label of its objects again and again.
#[tokio::test(start_paused = true)]
async fn h45_objects_that_lose_their_label_do_not_keep_a_round_from_its_end() {
    let mut stage = Stage::new();
    let place = |namespace: &str, n: usize| {
        (stage.kind("configmaps"), namespace.to_owned(), format!("a{n}"))
    };
    let left: Vec<_> = (0..3 * ROUND).map(|n| place("dev", n)).chain([place("prod", 0)]).collect();
    stage.world().write().left_watch.extend(left);
    stage.holds.run_round().await.unwrap();
    assert!(stage.was_asked("GET /api/v1/namespaces/prod/configmaps/a0"));
    assert_eq!(stage.world().read().left_watch.len(), 2 * ROUND + 1);
    assert_eq!(stage.holds.round_pause(), ROUND_PAUSE);
    stage.holds.run_round().await.unwrap();
    assert_eq!(stage.world().read().left_watch.len(), ROUND + 1);
}
