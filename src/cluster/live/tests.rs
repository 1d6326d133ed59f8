//! Live reads with a scripted API server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde_json::json;
use tokio::sync::Semaphore;

use super::*;
use crate::cluster::local_api::{concurrent_client, failure};
use crate::cluster::world::{ServedVerbs, SharedWorld, World};
use crate::decide::{ListPart, LiveReads};
use crate::objects::{ApiError, Kinds};
use crate::relations::Catalogue;

/// The HTTP status code and the body of an answer.
type Response = (u16, String);

/// The answers to each path, in order.
type Answers = HashMap<String, VecDeque<Response>>;

/// An API server that answers each path with the next answer of its script, or with an object
/// of that path. It sends one answer per permit.
#[derive(Clone)]
struct Script {
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Answers>>,
    permits: Arc<Semaphore>,
}

impl Script {
    fn new(permits: usize) -> Self {
        let permits = Arc::new(Semaphore::new(permits));
        Self { asked: Arc::default(), answers: Arc::default(), permits }
    }

    fn of<const N: usize>(answers: [(&str, Response); N]) -> Self {
        let script = Self::new(1000);
        for (path, answer) in answers {
            script.answers.lock().entry(path.to_owned()).or_default().push_back(answer);
        }
        script
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    fn client(&self) -> kube::Client {
        let script = self.clone();
        concurrent_client(move |request| {
            let script = script.clone();
            let path = request.uri().path_and_query().unwrap().as_str().replace("?&", "?");
            script.asked.lock().push(path.clone());
            async move {
                script.permits.acquire().await.unwrap().forget();
                let next = script.answers.lock().get_mut(&path).and_then(VecDeque::pop_front);
                next.unwrap_or_else(|| (200, json!({"metadata": {"name": path}}).to_string()))
            }
        })
    }
}

fn other(why: &str) -> ApiError {
    ApiError::Other(why.to_owned())
}

fn failed(code: u16) -> Response {
    absent_or(code, "", "")
}

/// The answer of the API server for an object that does not exist.
fn absent(resource: &str, name: &str) -> Response {
    absent_or(404, resource, name)
}

fn absent_or(code: u16, resource: &str, name: &str) -> Response {
    let (code, status) = failure(code, "no", (resource, name));
    (code, status.to_string())
}

fn page(names: &[&str], next: &str) -> Response {
    let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    (200, json!({"metadata": {"continue": next}, "items": items}).to_string())
}

fn group_of(namespace: &str) -> ReadGroup {
    ReadGroup::Namespace(namespace.to_owned())
}

fn pod(name: &str) -> LiveRead {
    LiveRead::Object(crate::objects::ObjectRef::new(("", "pods"), "a", name))
}

fn list(group: &str, resource: &str, part: ListPart) -> LiveRead {
    LiveRead::List {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: "a".to_owned(),
        part,
    }
}

fn world() -> World {
    let mut world = World::default();
    world.graph.kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
    world
}

async fn found_names(
    script: &Script,
    world: &World,
    read: &LiveRead,
) -> Result<Vec<String>, ApiError> {
    let known = KindToRead::find(world, read);
    let (memory, group) = (ReadMemory::new(LIVE_READ_LIMITS), group_of("a"));
    let deadline = time::Instant::now() + Duration::from_secs(30);
    let client = &script.client();
    let api_reads = ApiReads { client, memory: &memory, group: &group, deadline };
    let found = api_reads.carry_out(known.as_ref(), read).await?;
    let names = found.objects().map(|json| {
        let object: serde_json::Value = serde_json::from_str(json).unwrap();
        object["metadata"]["name"].as_str().unwrap().to_owned()
    });
    Ok(names.collect())
}

const PODS: &str = "/api/v1/namespaces/a/pods?limit=20";
const AGAIN: &str = "/api/v1/namespaces/a/pods?limit=500";
const SECOND: &str = "/api/v1/namespaces/a/pods?limit=500&continue=2";

#[tokio::test]
async fn a_list_with_expired_pages_starts_again_but_not_forever() {
    let read = list("", "pods", ListPart::All);
    let script = Script::of([
        (PODS, page(&["old", "older"], "2")),
        (SECOND, failed(410)),
        (AGAIN, page(&["a"], "2")),
        (SECOND, page(&["b"], "")),
    ]);
    let names = found_names(&script, &world(), &read).await;
    assert_eq!(names.unwrap(), ["a", "b"], "nothing of the first list");
    assert_eq!(script.asked(), [PODS, SECOND, AGAIN, SECOND]);

    let expired = || failed(410);
    let script = Script::of([(PODS, expired()), (PODS, expired()), (PODS, expired())]);
    let words = found_names(&script, &world(), &read).await.unwrap_err().to_string();
    assert_eq!(words, "the list changed while it was read");
}

#[tokio::test]
async fn a_part_of_a_list_is_requested() {
    let labelled = "/api/v1/namespaces/a/pods?labelSelector=belay.dev%2Fprotect&limit=20";
    let first = "/api/v1/namespaces/a/pods?limit=1";
    for (part, path, next) in [(ListPart::First, first, "2"), (ListPart::Labelled, labelled, "")] {
        let script = Script::of([(path, page(&["a"], next))]);
        let names = found_names(&script, &world(), &list("", "pods", part)).await;
        assert_eq!(names.unwrap(), ["a"]);
        assert_eq!(script.asked(), [path]);
    }
}

#[tokio::test]
async fn a_kind_without_list_has_no_stored_objects() {
    let mut world = world();
    let kind = world.graph.kinds.find("", "Pod").unwrap();
    world.served.insert(kind, ServedVerbs { list: false, watch: false });
    let script = Script::of([]);
    let read = list("", "pods", ListPart::All);
    assert_eq!(found_names(&script, &world, &read).await.unwrap(), Vec::<String>::new());
    assert_eq!(script.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn only_a_404_about_the_object_itself_proves_its_absence() {
    let path = "/api/v1/namespaces/a/pods/p%3Fq";
    let read = pod("p?q");
    let script = Script::of([(path, absent("pods", "p?q"))]);
    assert_eq!(found_names(&script, &world(), &read).await.unwrap(), Vec::<String>::new());
    assert_eq!(script.asked(), [path]);
    for other in [failed(404), absent("namespaces", "p?q"), absent("pods", "q")] {
        let script = Script::of([(path, other)]);
        let words = found_names(&script, &world(), &read).await.unwrap_err().to_string();
        assert_eq!(words, "the API server does not serve them");
    }
    let script = Script::of([(path, failed(403))]);
    let words = found_names(&script, &world(), &read).await.unwrap_err().to_string();
    assert_eq!(words, "no");
    // An invalid name causes no request.
    let script = Script::of([]);
    for name in ["p/../../secrets/s", "..", ".", "", "p%2Fq"] {
        let found = found_names(&script, &world(), &pod(name)).await.unwrap();
        assert_eq!(found, Vec::<String>::new());
    }
    assert_eq!(script.asked(), Vec::<String>::new());
}

const WIDGETS: &str = "/apis/example.com/v1/namespaces/a/widgets?limit=20";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const GROUP: &str = "/apis/example.com";
const V1: &str = "/apis/example.com/v1";

fn no_crd() -> Response {
    absent("customresourcedefinitions", "widgets.example.com")
}

fn group() -> Response {
    let versions = json!([{"groupVersion": "example.com/v1", "version": "v1"}]);
    (200, json!({"name": "example.com", "versions": versions}).to_string())
}

fn resources(name: &str) -> Response {
    let resource = json!({"name": name, "kind": "K", "namespaced": true, "singularName": "",
        "verbs": []});
    (200, json!({"groupVersion": "example.com/v1", "resources": [resource]}).to_string())
}

#[tokio::test]
async fn a_kind_has_no_objects_after_a_404_only_if_its_group_does_not_serve_it() {
    let not_found = || failed(404);
    let broken = || failed(503);
    let read = list("example.com", "widgets", ListPart::All);
    for script in [
        Script::of([(CRD, no_crd()), (GROUP, not_found())]),
        Script::of([(CRD, no_crd()), (GROUP, group()), (V1, resources("gadgets"))]),
    ] {
        script.answers.lock().insert(WIDGETS.to_owned(), VecDeque::from([not_found()]));
        assert_eq!(found_names(&script, &world(), &read).await.unwrap(), Vec::<String>::new());
        assert_eq!(script.asked()[..2], [WIDGETS, CRD]);
    }
    // For an unknown kind, belay sends no list request.
    let script = Script::of([(CRD, no_crd()), (GROUP, not_found())]);
    let known = found_names(&script, &World::default(), &read).await;
    assert_eq!(known.unwrap(), Vec::<String>::new());
    assert_eq!(script.asked(), [CRD, GROUP]);

    let cannot = "belay cannot find out whether such objects exist: the API server answers 503: no";
    for (words, script) in [
        (
            "CRD widgets.example.com exists, but does not serve the version that belay reads",
            Script::of([(CRD, (200, "{}".to_owned()))]),
        ),
        (cannot, Script::of([(CRD, broken())])),
        (cannot, Script::of([(CRD, no_crd()), (GROUP, broken())])),
        (cannot, Script::of([(CRD, no_crd()), (GROUP, group()), (V1, broken())])),
        (
            "the API server lists this kind and does not serve it",
            Script::of([(CRD, no_crd()), (GROUP, group()), (V1, resources("widgets"))]),
        ),
        (
            "belay cannot find out whether such objects exist: the API server's answer does not have \
             the expected form, at line 1 column 1",
            Script::of([(CRD, no_crd()), (GROUP, (200, "<html>".to_owned()))]),
        ),
        // A 404 for the path of CRDs does not prove that the CRD is missing.
        (
            "belay cannot find out whether such objects exist: the API server does not serve them",
            Script::of([(CRD, not_found())]),
        ),
    ] {
        let failed = found_names(&script, &World::default(), &read).await.unwrap_err();
        assert_eq!(failed.to_string(), words);
    }
    // Built-in kinds have no CRD, so a missing CRD proves nothing.
    let script = Script::of([(PODS, not_found())]);
    let words = found_names(&script, &world(), &list("", "pods", ListPart::All))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(words, "the API server does not serve them");
    let words = found_names(&script, &world(), &list("x", "", ListPart::All))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(words, "belay does not know this kind");
}

fn reader(script: &Script) -> Reader {
    Reader::new(Context::of_test(script.client(), world(), &[]))
}

fn after(milliseconds: u64) -> Instant {
    (time::Instant::now() + Duration::from_millis(milliseconds)).into_std()
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn later_callers_join_no_running_read_and_share_the_next() {
    let script = Script::new(0);
    let reader = reader(&script);
    let ask = || {
        let (reader, deadline) = (reader.clone(), after(1000));
        tokio::spawn(async move { reader.read_all(&group_of("a"), vec![pod("p")], deadline).await })
    };
    let early = [ask(), ask()];
    settle().await;
    assert_eq!(script.asked().len(), 1, "both wait for one");
    let late = [ask(), ask(), ask()];
    settle().await;
    assert_eq!(script.asked().len(), 1, "one at a time");
    script.permits.add_permits(1);
    for task in early {
        let (_, answer) = task.await.unwrap().remove(0);
        assert_eq!(answer.map(drop), Ok(()));
    }
    settle().await;
    assert_eq!(script.asked().len(), 2);
    assert!(late.iter().all(|task| !task.is_finished()), "the first answer is too old for them");
    script.permits.add_permits(1);
    for task in late {
        let (_, answer) = task.await.unwrap().remove(0);
        assert_eq!(answer.map(drop), Ok(()));
    }
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_read_ends_by_the_deadline_and_frees_its_place() {
    let script = Script::new(0);
    let reader = reader(&script);
    let start = time::Instant::now();
    let reads = (0..LIMITS.running.per_group + 8).map(|n| pod(&n.to_string())).collect();
    let answers = reader.read_all(&group_of("a"), reads, after(300)).await;
    assert_eq!(start.elapsed().as_millis(), 300);
    for (_, answer) in &answers {
        let limit = Duration::from_millis(300);
        assert_eq!(answer.as_ref().unwrap_err(), &ApiError::TimedOut(limit));
    }
    // The reads that did not fit into the queue are never sent.
    settle().await;
    assert_eq!(script.asked().len(), LIMITS.running.per_group);
    script.permits.add_permits(1);
    let answers = reader.read_all(&group_of("a"), vec![pod("next")], after(300)).await;
    assert!(answers[0].1.is_ok());
    assert_eq!(script.asked().len(), LIMITS.running.per_group + 1);
    let text = reader.metrics.encode();
    assert!(text.contains(r#"belay_live_reads_total{result="late"} 24"#), "{text}");
    assert!(text.contains(r#"belay_live_reads_total{result="ok"} 1"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn h12_a_namespace_with_many_reads_keeps_no_other_one_waiting() {
    let script = Script::new(0);
    let reader = reader(&script);
    for portion in (0..2 * LIMITS.waiting.per_group).collect::<Vec<_>>().chunks(200) {
        let reads = portion.iter().map(|n| pod(&n.to_string())).collect();
        let (reader, deadline) = (reader.clone(), after(1000));
        tokio::spawn(async move { reader.read_all(&group_of("busy"), reads, deadline).await });
        settle().await;
    }
    assert_eq!(script.asked().len(), LIMITS.running.per_group);
    let start = time::Instant::now();
    let answers = reader.read_all(&group_of("busy"), vec![pod("more")], after(1000)).await;
    assert_eq!(answers[0].1.as_ref().unwrap_err(), &too_many());
    // The reads of another namespace start at once.
    let quiet = tokio::spawn({
        let (reader, deadline) = (reader.clone(), after(1000));
        async move { reader.read_all(&group_of("quiet"), vec![pod("quiet")], deadline).await }
    });
    settle().await;
    assert!(script.asked().last().unwrap().ends_with("/pods/quiet"));
    assert_eq!(start.elapsed(), Duration::ZERO);
    script.permits.add_permits(LIMITS.running.per_group + 1);
    assert!(quiet.await.unwrap()[0].1.is_ok());
}

#[tokio::test]
async fn objects_too_large_for_a_read_give_a_clear_error() {
    // 80 objects of half a MiB of labels are more than 32 MiB.
    let label = "x".repeat(512 << 10);
    let object = |n: usize| json!({"metadata": {"name": format!("{n}"), "labels": {"l": label}}});
    let objects: Vec<_> = (0..80).map(object).collect();
    let text = json!({"metadata": {}, "items": objects}).to_string();
    let script = Script::of([(PODS, (200, text))]);
    let words = found_names(&script, &world(), &list("", "pods", ListPart::All))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(words, "they are larger than a live read may be (32 MiB)");
}

#[tokio::test]
async fn only_the_fields_that_verdicts_read_are_kept() {
    let arguments = "<".repeat(1 << 20);
    let object = json!({"metadata": {"name": "p", "managedFields": [{"fieldsV1": {"f:x": arguments}}]},
        "spec": {"volumes": [{"secret": {"secretName": "s"}}], "containers": [{"args": [arguments]}]}});
    let script = Script::of([(PODS, (200, json!({"items": [object]}).to_string()))]);
    let mut world = world();
    world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
    let reader = Reader::new(Context::of_test(script.client(), world, &[]));
    let answers =
        reader.read_all(&group_of("a"), vec![list("", "pods", ListPart::All)], after(1000)).await;
    let found = answers[0].1.as_ref().unwrap();
    assert!(found.bytes() < 1000, "{}", found.bytes());
    assert!(found.objects().all(|json| json.contains("secretName")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn threads_with_runtimes_of_their_own_get_answers() {
    let script = Script::new(1000);
    let reader = reader(&script);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let reads = (0..100).map(|n| pod(&n.to_string())).collect();
        let deadline = Instant::now() + Duration::from_secs(30);
        runtime.block_on(reader.read(&group_of("a"), reads, deadline))
    });
    let answers = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(|(_, answer)| answer.as_ref().unwrap().objects().len() == 1));
}

fn approval(name: &str) -> DeletionApproval {
    let spec = json!({"targetRef": {"resource": "pods", "name": "p", "uid": "1"},
        "approver": "belay", "reason": "because", "expirationTime": "2026-01-01T00:00:00Z"});
    DeletionApproval::new(name, serde_json::from_value(spec).unwrap())
}

#[tokio::test]
async fn a_write_returns_the_result_of_the_api_server() {
    let path = "/apis/belay.dev/v1alpha1/deletionapprovals?fieldManager=belay";
    let created = (201, serde_json::to_string(&approval("good")).unwrap());
    let reader = reader(&Script::of([(path, created), (path, failed(507))]));
    let deadline = Instant::now() + Duration::from_secs(30);
    assert_eq!(reader.write_record(&group_of("a"), approval("good"), deadline).await, Ok(()));
    let full = ApiError::Status { code: 507, message: "no".to_owned() };
    assert_eq!(reader.write_record(&group_of("a"), approval("bad"), deadline).await, Err(full));
}

/// Writes of namespace a get no answer, and time out at their deadline. Writes of other namespaces
/// do not wait for them.
#[tokio::test]
async fn h170_writes_of_a_namespace_delay_no_writes_of_others() {
    let client = concurrent_client(|request| async move {
        if request.body()["metadata"]["name"] == "hangs" {
            std::future::pending::<()>().await;
        }
        (201, request.into_body().to_string())
    });
    let context = Context::of_test(client, World::default(), &[]);
    let reader = Reader::new(context);
    let (late, deadline) = (after(300), after(30_000));
    let (busy, quiet) = (group_of("a"), group_of("b"));
    let hanging = (0..100).map(|_| reader.write_record(&busy, approval("hangs"), late));
    let hanging = futures_util::future::join_all(hanging);
    let other = async {
        let result = reader.write_record(&quiet, approval("good"), deadline).await;
        (result, Instant::now() < late)
    };
    let (hanging, (other, was_early)) = futures_util::future::join(hanging, other).await;
    assert_eq!(other, Ok(()));
    assert!(was_early);
    for result in hanging {
        assert!(matches!(result, Err(ApiError::TimedOut(_))), "{result:?}");
    }
}

fn found(objects: &[serde_json::Value]) -> Result<LiveObjects, ApiError> {
    let raw = |value: &serde_json::Value| {
        serde_json::value::RawValue::from_string(value.to_string()).unwrap()
    };
    Ok(LiveObjects::new(objects.iter().map(raw).collect()))
}

fn widget(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Maker", "name": "m", "uid": "m"}]}})
}

#[test]
fn applies_found_objects_and_records_each_read() {
    let world = world();
    let mut collected = CollectedReads::new(&world);
    let widgets = list("example.com", "widgets", ListPart::All);
    let broken = json!({"metadata": {"name": ["hunter2"]}});
    let odd = json!({"metadata": {"name": "odd", "namespace": "a", "labels": ["hunter2"]}});
    collected.add(vec![
        (widgets.clone(), found(&[widget("one"), odd, widget("two")])),
        (pod("gone"), found(&[])),
        (pod("late"), Err(other("it is late"))),
        (pod("broken"), found(&[broken])),
        (list("other.com", "things", ListPart::First), found(&[widget("three")])),
    ]);
    let shared = SharedWorld::new(RwLock::new(world));
    collected.update(&shared);
    let world = shared.read();
    let LiveReads { graph, results: done } = collected.reads();
    let kind = world.graph.kinds.find("example.com", "Widget").unwrap();
    assert!(graph.object(kind, "a", "one").is_some() && graph.object(kind, "a", "two").is_some());
    assert_eq!(graph.object_count(), 2);
    assert_eq!(done[&widgets], Ok(()), "an object that can't be read affects itself alone");
    assert_eq!(graph.describe_unreadable(kind, "a").as_deref(), Some("Widget a/odd can't be read"));
    assert_eq!(done[&pod("gone")], Ok(()));
    assert_eq!(done[&pod("late")], Err(other("it is late")));
    let words = done[&pod("broken")].as_ref().unwrap_err().to_string();
    assert!(words.contains("can't be read"), "{words}");
    assert!(!words.contains("hunter2"), "{words}");
    let unknown = &done[&list("other.com", "things", ListPart::First)];
    assert_eq!(unknown, &Err(other("belay has only just learned of their kind")));
}

#[test]
fn reads_are_numbered_again_after_new_kinds() {
    let world = world();
    let mut collected = CollectedReads::new(&world);
    collected.add(vec![(list("example.com", "widgets", ListPart::First), found(&[widget("one")]))]);
    assert!(collected.update_steps(&world) > 0);
    let shared = SharedWorld::new(RwLock::new(world));
    collected.update(&shared);
    let mut world = std::mem::take(&mut *shared.write());
    assert_eq!(collected.update_steps(&world), 0);
    assert!(collected.fits(&world), "kinds that only the reads mention get higher numbers");
    // The world and the reads give the same number to different kinds.
    let gadget = world.graph.kinds.learn(Kinds::custom("g.io", "v1", "Gadget", "gadgets", true));
    assert_eq!(collected.reads().graph.kinds.info(gadget).kind, "Maker");
    assert!(!collected.fits(&world));
    let shared = SharedWorld::new(RwLock::new(world));
    assert!(collected.update_steps(&shared.read()) > 0, "all is stored again");
    collected.update(&shared);
    let mut world = shared.write();
    assert!(collected.fits(&world));
    assert_eq!(collected.reads().graph.kinds.info(gadget).kind, "Gadget");
    assert_eq!(collected.reads().graph.object_count(), 1);
    assert_eq!(collected.reads().results.len(), 1);
    // Relations are also identified by number.
    world.catalogue = Arc::default();
    assert!(!collected.fits(&world));
}
