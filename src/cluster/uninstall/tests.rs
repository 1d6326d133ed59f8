//! Uninstalls with a scripted API server.

mod installation;
mod limits;
mod owners;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kinds::ListedKind;
use super::withdrawal::DOWN;
use super::*;
use crate::cluster::context::Context;
use crate::cluster::local_api::{failure, local_client};
use crate::objects::{HOLD, ObjectRef};

const NORMAL: UninstallOptions = UninstallOptions { abandon: false, dry_run: false, limit: None };

const LIST: &str = "/api/v1/configmaps";

/// ConfigMaps of the namespace `n` by name, and the answers to some writes.
#[derive(Default)]
struct Store {
    maps: BTreeMap<String, Value>,
    /// The answer to one write.
    once: Vec<(String, (u16, Value))>,
    /// One write of these objects succeeds, and its answer is lost.
    lost: Vec<String>,
    /// The answer to every write.
    always: BTreeMap<String, (u16, Value)>,
    /// The names of the objects that were patched.
    patches: Vec<String>,
    /// Another client writes the object before the next patch of it.
    hurry: Vec<String>,
    /// The answers to all other requests, by their path.
    others: BTreeMap<String, (u16, Value)>,
    /// Another client adds every hold again.
    restless: bool,
    /// Requests without an answer: the method, and the end of the path.
    hanging: Vec<(Method, String)>,
}

type Shared = Arc<Mutex<Store>>;

fn absent(name: &str) -> (u16, Value) {
    failure(404, "none", ("configmaps", name))
}

impl Store {
    fn hangs(&self, request: &Request<Value>) -> bool {
        let path = request.uri().path();
        self.hanging.iter().any(|(method, end)| method == request.method() && path.ends_with(end))
    }

    fn answer(&mut self, request: &Request<Value>) -> (u16, Value) {
        let (method, path) = (request.method(), request.uri().path());
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        if let Some(answer) = self.others.get(path) {
            return answer.clone();
        }
        if path == LIST {
            return self.list(request.uri().query().unwrap_or_default());
        }
        if *method == Method::GET {
            return self.maps.get(&name).map_or_else(|| absent(&name), |map| (200, map.clone()));
        }
        self.patches.push(name.clone());
        if let Some(at) = self.once.iter().position(|(object, ..)| *object == name) {
            return self.once.remove(at).1;
        }
        if let Some(answer) = self.always.get(&name) {
            return answer.clone();
        }
        let Some(map) = self.maps.get_mut(&name) else { return absent(&name) };
        if let Some(at) = self.hurry.iter().position(|object| *object == name) {
            self.hurry.remove(at);
            map["metadata"]["resourceVersion"] = json!("1000");
        }
        let patch: json_patch::Patch = serde_json::from_value(request.body().clone()).unwrap();
        match json_patch::patch(map, &patch) {
            Ok(()) => {
                let answer = map.clone();
                let held = |map: &Value| map["metadata"]["finalizers"] != json!([]);
                if self.restless {
                    map["metadata"]["finalizers"] = json!([HOLD]);
                } else if map["metadata"]["deletionTimestamp"].is_string() && !held(map) {
                    self.maps.remove(&name);
                }
                match self.lost.iter().position(|object| *object == name) {
                    Some(at) => {
                        self.lost.remove(at);
                        failure(500, "oops", ("", ""))
                    }
                    None => (200, answer),
                }
            }
            Err(_) => failure(422, "the server rejected our request", ("", "")),
        }
    }

    /// The list has two objects on a page.
    fn list(&self, query: &str) -> (u16, Value) {
        let next = query.split('&').find_map(|part| part.strip_prefix("continue="));
        let from: usize = next.map_or(0, |next| next.parse().unwrap());
        let items: Vec<&Value> = self.maps.values().skip(from).take(2).collect();
        let next = if from + 2 < self.maps.len() { (from + 2).to_string() } else { String::new() };
        (200, json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items}))
    }
}

fn map(name: &str, finalizers: &[&str], deleted: bool) -> (String, Value) {
    let mut metadata = json!({"name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
        "finalizers": finalizers});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (name.to_owned(), json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}))
}

/// The lists of belay's kinds, with these policies and approvals.
fn rules(policies: &[Value], approvals: &[Value]) -> BTreeMap<String, (u16, Value)> {
    let lists = [
        ("deletionpolicies", policies),
        ("relations", &[]),
        ("deletionapprovals", approvals),
        ("pauses", &[]),
    ];
    let answer = |(name, items)| {
        let list = json!({"metadata": {}, "items": items});
        (format!("/apis/belay.dev/v1alpha1/{name}"), (200, list))
    };
    lists.map(answer).into()
}

/// A policy for ConfigMaps that protects them in this way.
fn policy(protect: Value) -> Value {
    let targets = json!([{"apiGroups": [""], "resources": ["configmaps"]}]);
    json!({"metadata": {"name": "p", "uid": "p"},
        "spec": {"targets": targets, "protect": protect}})
}

/// Discovery of ConfigMaps, Namespaces and Deployments, unless the test sets another answer.
fn discovery() -> BTreeMap<String, (u16, Value)> {
    let kind = |group: &str, resource: &str, kind: &str, scope: &str| {
        json!({"resource": resource, "scope": scope, "verbs": ["list", "watch"],
            "responseKind": {"group": group, "version": "v1", "kind": kind}})
    };
    let group = |name: &str, resources: Value| {
        let version = json!({"version": "v1", "freshness": "Current", "resources": resources});
        json!({"metadata": {"name": name}, "versions": [version]})
    };
    let core = json!([
        kind("", "configmaps", "ConfigMap", "Namespaced"),
        kind("", "namespaces", "Namespace", "Cluster")
    ]);
    let apps = json!([kind("apps", "deployments", "Deployment", "Namespaced")]);
    BTreeMap::from([
        ("/api".to_owned(), (200, json!({"items": [group("", core)]}))),
        ("/apis".to_owned(), (200, json!({"items": [group("apps", apps)]}))),
    ])
}

fn server(mut store: Store) -> (kube::Client, Shared) {
    let mut others = discovery();
    others.append(&mut store.others);
    store.others = others;
    let shared = Arc::new(Mutex::new(store));
    let kept = shared.clone();
    let answer = move |request: Request<Value>| {
        let mut store = kept.lock();
        (!store.hangs(&request)).then(|| store.answer(&request))
    };
    (local_client(answer), shared)
}

fn uninstall<'a>(
    client: &kube::Client,
    options: UninstallOptions,
    report: &'a dyn Fn(UninstallEvent),
) -> Uninstall<'a> {
    let context = Context::of_test(client.clone(), crate::cluster::World::default(), &[]);
    Uninstall {
        client: client.clone(),
        settings: (*context.settings).clone(),
        identities: Identities {
            own: Some("system:serviceaccount:belay:guards".to_owned()),
            ..Identities::default()
        },
        clock: Clock::from_server("2026-01-01T00:00:00Z".parse().unwrap()),
        options,
        report,
    }
}

/// ConfigMaps as a kind to list.
fn listed_maps(snapshot: &Snapshot, may_be_held: bool) -> ListedKind {
    let world = snapshot.context.world.read();
    let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
    ListedKind { kind, info: world.graph.kinds.info(kind).clone(), may_be_held }
}

/// An uninstall's removal of holds, and what it reported meanwhile.
async fn remove_holds(
    client: &kube::Client,
    options: UninstallOptions,
    may_be_held: bool,
    unknown: &[String],
) -> (UninstallReport, Vec<UninstallEvent>) {
    let events = Mutex::new(Vec::new());
    let report = |event| events.lock().push(event);
    let uninstall = uninstall(client, options, &report);
    let snapshot = uninstall.snapshot().await.unwrap();
    let listed = listed_maps(&snapshot, may_be_held);
    let done = uninstall.remove_holds(snapshot, &[listed], unknown).await;
    (done, events.into_inner())
}

/// Removes holds for this number of seconds.
async fn for_seconds(
    client: &kube::Client,
    seconds: u64,
) -> (UninstallReport, Vec<UninstallEvent>) {
    let options = UninstallOptions { limit: Some(Duration::from_secs(seconds)), ..NORMAL };
    remove_holds(client, options, true, &[]).await
}

fn target(name: &str) -> ObjectRef {
    ObjectRef::new(("", "configmaps"), "n", name)
}

/// The remaining objects by name.
fn left(report: &UninstallReport) -> Vec<(&str, &HeldReason)> {
    report.left.iter().map(|held| (held.target.name.as_str(), &held.reason)).collect()
}

fn held(store: &Shared) -> Vec<String> {
    let store = store.lock();
    let held = store.maps.iter().filter(|(_, map)| map.to_string().contains(HOLD));
    held.map(|(name, _)| name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn sweeps_every_page_and_leaves_terminating_objects_and_finalizers_of_others_alone() {
    let maps = [
        map("a", &[HOLD], false),
        map("b", &["x/y", HOLD], false),
        map("c", &["x/y"], false),
        map("d", &[HOLD], true),
        map("e", &[HOLD], false),
    ];
    let (client, store) = server(Store { maps: maps.into(), ..Store::default() });
    let (report, _) = for_seconds(&client, 10).await;
    assert_eq!(report.tally, UninstallCounts { released: 3, ..UninstallCounts::default() });
    // The API server does not serve belay's kinds, so the policies of the object are unknown.
    let [("d", HeldReason::Unknown(why))] = left(&report)[..] else { panic!("{report:?}") };
    assert!(why.starts_with("the policies cannot be read: "), "{why}");
    assert!(report.unread.is_empty());
    assert_eq!(held(&store), ["d"]);
    assert_eq!(store.lock().maps["b"]["metadata"]["finalizers"], json!(["x/y"]));
    // A second run finds no holds and writes nothing.
    store.lock().patches.clear();
    let (report, _) = for_seconds(&client, 10).await;
    assert_eq!((report.tally, left(&report).len()), (UninstallCounts::default(), 1));
    assert!(store.lock().patches.iter().all(|name| name == "d"));
}

#[tokio::test(start_paused = true)]
async fn releases_terminating_objects_that_are_not_protected() {
    let maps = [map("a", &[HOLD], true), map("b", &[HOLD], false)];
    let others = rules(&[], &[]);
    let (client, store) = server(Store { maps: maps.into(), others, ..Store::default() });
    let dry_run = UninstallOptions { dry_run: true, ..NORMAL };
    let (report, _) = remove_holds(&client, dry_run, true, &[]).await;
    assert_eq!(
        (report.tally.released_terminating, left(&report)),
        (1, vec![("b", &HeldReason::DryRun)])
    );
    assert!(store.lock().patches.is_empty());
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(
        report.tally,
        UninstallCounts { released: 1, released_terminating: 1, abandoned: 0 }
    );
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
    assert_eq!(store.lock().patches, ["b", "a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn labelled_objects_lose_their_holds() {
    let mut labelled = map("a", &[HOLD], false);
    labelled.1["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let (client, store) = server(Store { maps: [labelled].into(), ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
    assert_eq!(report.tally.released, 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_may_have_a_hold() {
    let mut malformed = map("bad", &[HOLD], false);
    malformed.1["metadata"]["labels"] = json!(["x"]);
    let maps = [map("a", &[HOLD], false), malformed, map("c", &[HOLD], false)];
    let (client, store) = server(Store { maps: maps.into(), ..Store::default() });
    let (report, events) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!((report.tally.released, held(&store)), (2, vec!["bad".to_owned()]));
    let why = "n/bad can't be read";
    let [(kind, unread)] = &report.unread[..] else { panic!("{report:?}") };
    assert!(kind == "configmaps" && unread.ends_with(why), "{unread}");
    assert!(!report.is_clean());
    let [UninstallEvent::Warning(text)] = &events[..] else { panic!("{events:?}") };
    assert!(text.starts_with("configmaps may have holds and cannot be read"), "{text}");
    assert!(text.ends_with(why), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_no_failure() {
    let maps = ["a", "b"].map(|name| map(name, &[HOLD], false));
    // The write of `a` is not carried out, and that of `b` is.
    let once = vec![("a".to_owned(), failure(500, "oops", ("", "")))];
    let lost = vec!["b".to_owned()];
    let (client, store) = server(Store { maps: maps.into(), once, lost, ..Store::default() });
    let (report, events) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(report.tally.released, 2, "{report:?}");
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
    assert_eq!(events, []);
    assert_eq!(store.lock().patches, ["a", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn ends_although_every_answer_to_a_write_is_lost() {
    let always = BTreeMap::from([("a".to_owned(), failure(500, "oops", ("", "")))]);
    let maps = [map("a", &[HOLD], false)];
    let (client, store) = server(Store { maps: maps.into(), always, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    let [("a", HeldReason::Refused(_))] = left(&report)[..] else { panic!("{report:?}") };
    // Three writes in each of three rounds.
    assert_eq!(store.lock().patches.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_failed_patch_is_repeated_or_reported() {
    let maps =
        ["busy", "forced", "forbidden", "gone", "lost"].map(|name| map(name, &[HOLD], false));
    let once = vec![
        ("gone".to_owned(), absent("gone")),
        ("lost".to_owned(), failure(500, "oops", ("", ""))),
    ];
    let always = BTreeMap::from([
        ("forced".to_owned(), failure(404, "none", ("namespaces", "n"))),
        ("forbidden".to_owned(), failure(403, "bob cannot patch configmaps", ("", ""))),
    ]);
    let hurry = vec!["busy".to_owned()];
    let store = Store { maps: maps.into(), once, always, hurry, ..Store::default() };
    let (client, store) = server(store);
    let (report, events) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(report.tally.released, 3, "{report:?}");
    let refused = HeldReason::Refused("bob cannot patch configmaps".to_owned());
    assert_eq!(left(&report), [("forbidden", &refused), ("forced", &HeldReason::Stranded)]);
    assert_eq!(held(&store), ["forbidden", "forced"]);
    let fails = |why| UninstallEvent::Fails("configmaps".to_owned(), 1, why);
    for event in [fails(refused), fails(HeldReason::Stranded)] {
        assert!(events.contains(&event), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_the_message_of_repeated_refusals() {
    let always = BTreeMap::from([("a".to_owned(), failure(422, "spec: Invalid value", ("", "")))]);
    let maps = [map("a", &[HOLD], false)];
    let (client, _) = server(Store { maps: maps.into(), always, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    let [("a", HeldReason::Refused(why))] = left(&report)[..] else { panic!("{report:?}") };
    assert!(why.contains("422: spec: Invalid value"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_matters_if_it_may_be_held() {
    let forbidden = failure(403, "bob cannot list configmaps", ("configmaps", ""));
    let others = BTreeMap::from([(LIST.to_owned(), forbidden)]);
    let (client, _) = server(Store { others, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(report.unread.len(), 1);
    assert!(!report.is_clean());
    let (report, events) = remove_holds(&client, NORMAL, false, &[]).await;
    assert!(report.is_clean());
    let [UninstallEvent::Step(skipped)] = &events[..] else { panic!("{events:?}") };
    assert!(skipped.starts_with("not checked, because they cannot be read: configmaps;"));
}

#[tokio::test(start_paused = true)]
async fn removes_at_most_25_holds_in_a_second_and_reports_progress() {
    let maps = (0..400).map(|n| map(&format!("m{n:03}"), &[HOLD], false)).collect();
    let (client, _) = server(Store { maps, ..Store::default() });
    let began = Instant::now();
    let (report, events) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(report.tally.released, 400);
    let seconds = began.elapsed().as_secs_f64();
    assert!((15.9..=17.0).contains(&seconds), "{seconds}");
    assert_eq!(events.len(), 3, "{events:?}");
    let UninstallEvent::Progress(text) = &events[0] else { panic!("{events:?}") };
    assert!(text.starts_with("removed 12") && text.ends_with("left to read: 1"), "{text}");
}

/// The answer with an object that has this uid.
fn found(uid: &str, deleted: bool) -> (u16, Value) {
    let mut metadata = json!({"name": "x", "uid": uid, "resourceVersion": "1"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (200, json!({"metadata": metadata}))
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_kind_is_no_longer_served_is_left() {
    let path = |name: &str| format!("/api/v1/namespaces/n/configmaps/{name}");
    let unserved = || failure(404, "the server could not find the requested resource", ("", ""));
    let others = ["a", "b"].map(|name| (path(name), unserved()));
    let maps = [map("a", &[HOLD], false), map("b", &[HOLD], true)];
    let store = Store { maps: maps.into(), others: others.into(), ..Store::default() };
    let (client, _) = server(store);
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(left(&report), [("a", &HeldReason::Unserved), ("b", &HeldReason::Unserved)]);
}

#[tokio::test(start_paused = true)]
async fn a_report_is_not_clean_while_lists_contain_holds() {
    // Each list contains the object, and each GET answers that it does not exist.
    let always = BTreeMap::from([("a".to_owned(), absent("a"))]);
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, always, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(held(&store), ["a"]);
    let [("a", HeldReason::Unknown(_))] = left(&report)[..] else { panic!("{report:?}") };
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_api_server_does_not_answer_is_unread() {
    let (client, _) = server(Store::default());
    assert!(remove_holds(&client, NORMAL, true, &[]).await.0.is_clean());
    let unknown = ["widgets.example.com".to_owned()];
    let (report, _) = remove_holds(&client, NORMAL, true, &unknown).await;
    assert_eq!(report.unread, [(unknown[0].clone(), DOWN.to_owned())]);
    assert!(!report.is_clean());
}
