//! Uninstalls, against an API server that is a script.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kinds::ListedKind;
use super::withdrawal::DOWN;
use super::*;
use crate::cluster::account;
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
    /// The answer to every write.
    always: BTreeMap<String, (u16, Value)>,
    /// The names of the objects that were patched.
    patches: Vec<String>,
    /// Another client writes the object before the next patch of it.
    hurry: Vec<String>,
    /// The answers to all other requests, by their path.
    others: BTreeMap<String, (u16, Value)>,
    /// Another client puts every hold back.
    restless: bool,
}

type Shared = Arc<Mutex<Store>>;

fn absent(name: &str) -> (u16, Value) {
    failure(404, "none", ("configmaps", name))
}

impl Store {
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
        if let Some(at) = self.once.iter().position(|(of, ..)| *of == name) {
            return self.once.remove(at).1;
        }
        if let Some(answer) = self.always.get(&name) {
            return answer.clone();
        }
        let Some(map) = self.maps.get_mut(&name) else { return absent(&name) };
        if let Some(at) = self.hurry.iter().position(|of| *of == name) {
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
                (200, answer)
            }
            Err(_) => failure(422, "the server rejected our request", ("", "")),
        }
    }

    /// Two on a page.
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

/// Discovery of ConfigMaps, Namespaces and Deployments, where a test says nothing else.
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
    (local_client(move |request| Some(kept.lock().answer(&request))), shared)
}

fn uninstall<'a>(
    client: &kube::Client,
    options: UninstallOptions,
    report: &'a dyn Fn(Event),
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

/// An uninstall's removal of holds, and what it reported meanwhile.
async fn remove_holds(
    client: &kube::Client,
    options: UninstallOptions,
    may_be_held: bool,
    unknown: &[String],
) -> (UninstallReport, Vec<Event>) {
    let events = Mutex::new(Vec::new());
    let report = |event| events.lock().push(event);
    let uninstall = uninstall(client, options, &report);
    let snapshot = uninstall.snapshot().await.unwrap();
    let listed = {
        let world = snapshot.context.world.read();
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        ListedKind { kind, info: world.graph.kinds.info(kind).clone(), may_be_held }
    };
    let done = uninstall.remove_holds(snapshot, &[listed], unknown).await;
    (done, events.into_inner())
}

/// The same for so many seconds.
async fn for_seconds(client: &kube::Client, seconds: u64) -> (UninstallReport, Vec<Event>) {
    let options = UninstallOptions { limit: Some(Duration::from_secs(seconds)), ..NORMAL };
    remove_holds(client, options, true, &[]).await
}

fn target(name: &str) -> ObjectRef {
    ObjectRef::new(("", "configmaps"), "n", name)
}

/// What is left, by name.
fn left(report: &UninstallReport) -> Vec<(&str, &Reason)> {
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
    assert_eq!(report.tally, Tally { released: 3, ..Tally::default() });
    // The kinds of belay are not served, so what protects it is unknown.
    let [("d", Reason::Unknown(why))] = left(&report)[..] else { panic!("{report:?}") };
    assert!(why.starts_with("what is protected cannot be read: "), "{why}");
    assert!(report.unread.is_empty());
    assert_eq!(held(&store), ["d"]);
    assert_eq!(store.lock().maps["b"]["metadata"]["finalizers"], json!(["x/y"]));
    // Again there is nothing to do, and nothing else is written.
    store.lock().patches.clear();
    let (report, _) = for_seconds(&client, 10).await;
    assert_eq!((report.tally, left(&report).len()), (Tally::default(), 1));
    assert!(store.lock().patches.iter().all(|name| name == "d"));
}

#[tokio::test(start_paused = true)]
async fn releases_what_is_terminating_and_not_protected() {
    let maps = [map("a", &[HOLD], true), map("b", &[HOLD], false)];
    let lists = ["deletionpolicies", "relations", "deletionapprovals", "pauses"];
    let empty = || (200, json!({"metadata": {}, "items": []}));
    let others = lists.map(|name| (format!("/apis/belay.dev/v1alpha1/{name}"), empty()));
    let (client, store) =
        server(Store { maps: maps.into(), others: others.into(), ..Store::default() });
    let dry_run = UninstallOptions { dry_run: true, ..NORMAL };
    let (report, _) = remove_holds(&client, dry_run, true, &[]).await;
    assert_eq!((report.tally.let_go, left(&report)), (1, vec![("b", &Reason::DryRun)]));
    assert!(store.lock().patches.is_empty());
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(report.tally, Tally { released: 1, let_go: 1, abandoned: 0 });
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
    assert_eq!(store.lock().patches, ["b", "a", "a"]);
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
    let refused = Reason::Refused("bob cannot patch configmaps".to_owned());
    assert_eq!(left(&report), [("forbidden", &refused), ("forced", &Reason::Stranded)]);
    assert_eq!(held(&store), ["forbidden", "forced"]);
    let fails = |why| Event::Fails("configmaps".to_owned(), 1, why);
    for event in [fails(refused), fails(Reason::Stranded)] {
        assert!(events.contains(&event), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_the_words_of_an_api_server_that_refuses_again_and_again() {
    let always = BTreeMap::from([("a".to_owned(), failure(422, "spec: Invalid value", ("", "")))]);
    let maps = [map("a", &[HOLD], false)];
    let (client, _) = server(Store { maps: maps.into(), always, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    let [("a", Reason::Refused(why))] = left(&report)[..] else { panic!("{report:?}") };
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
    let [Event::Step(skipped)] = &events[..] else { panic!("{events:?}") };
    assert!(skipped.starts_with("not looked at, because they may not be listed: configmaps;"));
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
    let Event::Progress(text) = &events[0] else { panic!("{events:?}") };
    assert!(text.starts_with("released 12") && text.ends_with("left to look at: 1"), "{text}");
}

/// An object of the cluster, with this uid.
fn at(uid: &str, deleted: bool) -> (u16, Value) {
    let mut metadata = json!({"name": "x", "uid": uid, "resourceVersion": "1"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (200, json!({"metadata": metadata}))
}

fn deployment(name: &str, uid: &str, deleted: bool) -> (String, (u16, Value)) {
    let (code, mut object) = at(uid, deleted);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("n");
    (format!("/apis/apps/v1/namespaces/n/deployments/{name}"), (code, object))
}

fn namespace(deleted: bool) -> (String, (u16, Value)) {
    let (code, mut object) = at("n", deleted);
    object["metadata"]["name"] = json!("n");
    ("/api/v1/namespaces/n".to_owned(), (code, object))
}

fn owned(name: &str, kind: &str, owner: &str) -> (String, Value) {
    let (name, mut map) = map(name, &[HOLD], false);
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner});
    map["metadata"]["ownerReferences"] = json!([owner]);
    (name, map)
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_is_terminating_keeps_its_hold() {
    let forbidden = failure(403, "bob cannot get deployments", ("", ""));
    let others = BTreeMap::from([
        namespace(false),
        deployment("lives", "lives", false),
        deployment("goes", "goes", true),
        deployment("other", "created-again", true),
        ("/apis/apps/v1/namespaces/n/deployments/hidden".to_owned(), forbidden),
    ]);
    let maps = BTreeMap::from([
        owned("of-absent", "Deployment", "absent"),
        owned("of-another", "Deployment", "other"),
        owned("of-going", "Deployment", "goes"),
        owned("of-hidden", "Deployment", "hidden"),
        owned("of-living", "Deployment", "lives"),
        owned("of-unserved", "Widget", "w"),
    ]);
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let (report, events) = for_seconds(&client, 4).await;
    assert_eq!(report.tally.released, 4, "{report:?}");
    // An owner that can't be read may be Terminating.
    assert_eq!(held(&store), ["of-going", "of-hidden"]);
    let leaving = Reason::Leaving("its owner Deployment goes is".to_owned());
    let [("of-going", reason), ("of-hidden", Reason::Leaving(why))] = left(&report)[..] else {
        panic!("{report:?}")
    };
    assert_eq!(reason, &leaving);
    assert!(why.starts_with("its owner Deployment hidden may be, which cannot be read: "));
    let waits = Event::Waits(HeldObject { target: target("of-going"), reason: leaving });
    assert!(events.contains(&waits), "{events:?}");
    // While it waits, the owner is deleted, and the object stays after all.
    let ends = async {
        sleep(Duration::from_secs(10)).await;
        store.lock().others.insert(deployment("goes", "", true).0, absent("goes"));
    };
    let (report, ()) = tokio::join!(for_seconds(&client, 30), ends);
    assert_eq!((report.0.tally.released, held(&store)), (1, vec!["of-hidden".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_namespace_is_terminating_keeps_its_hold_unless_it_is_abandoned() {
    let others = BTreeMap::from([namespace(true)]);
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let reason = Reason::Leaving("its Namespace n is".to_owned());
    let dry_run = UninstallOptions { dry_run: true, ..NORMAL };
    let reports = [for_seconds(&client, 4).await, remove_holds(&client, dry_run, true, &[]).await];
    for (report, _) in reports {
        assert_eq!(left(&report), [("a", &reason)]);
    }
    assert_eq!(held(&store), ["a"]);
    let abandon = UninstallOptions { abandon: true, ..NORMAL };
    let (report, events) = remove_holds(&client, abandon, true, &[]).await;
    assert_eq!((held(&store).len(), report.tally.abandoned), (0, 1));
    assert_eq!(events, [Event::Abandoned(HeldObject { target: target("a"), reason })]);
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
    assert_eq!(left(&report), [("a", &Reason::Unserved), ("b", &Reason::Unserved)]);
}

#[tokio::test(start_paused = true)]
async fn an_end_while_holds_are_found_is_not_clean() {
    // The list has it each time, and each time the API server says that it is gone.
    let always = BTreeMap::from([("a".to_owned(), absent("a"))]);
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, always, ..Store::default() });
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert_eq!(held(&store), ["a"]);
    let [("a", Reason::Unknown(_))] = left(&report)[..] else { panic!("{report:?}") };
}

#[tokio::test(start_paused = true)]
async fn the_time_ends_it_although_another_client_puts_every_hold_back() {
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, restless: true, ..Store::default() });
    let began = Instant::now();
    let limit = Duration::from_secs(40);
    let (report, _) = tokio::time::timeout(limit, for_seconds(&client, 30)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert!(!report.is_clean(), "{report:?}");
    // If that ends just then, the last sweep sees it.
    store.lock().restless = false;
    assert!(for_seconds(&client, 0).await.0.is_clean());
}

#[tokio::test(start_paused = true)]
async fn the_time_ends_a_sweep_of_many_objects() {
    let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let maps = names.iter().map(|name| map(name, &[HOLD], false)).collect();
    let (client, store) = server(Store { maps, ..Store::default() });
    let began = Instant::now();
    let (report, _) = for_seconds(&client, 1).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(report.tally.released + held(&store).len(), 100);
    assert!(report.tally.released > 10 && report.left.len() == held(&store).len(), "{report:?}");
    assert!(report.left.iter().all(|held| held.reason == Reason::Late), "{report:?}");
    // The next uninstall goes on.
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
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

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

fn configuration(name: &str, entry: &str, namespace: &str) -> Value {
    let service = json!({"name": "s", "namespace": namespace});
    json!({"metadata": {"name": name, "uid": format!("uid-of-{name}")}, "webhooks": [{"name": entry,
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": service}}]})
}

/// The answer of a read of the configurations: by name, and all of them.
async fn read(own: (u16, Value), mutating: (u16, Value), validating: (u16, Value)) -> String {
    let others = BTreeMap::from([
        (format!("{MUTATING}/belay"), own),
        (format!("{VALIDATING}/belay"), absent("belay")),
        (MUTATING.to_owned(), mutating),
        (VALIDATING.to_owned(), validating),
    ]);
    let (client, _) = server(Store { others, ..Store::default() });
    let settings = uninstall(&client, NORMAL, &|_| {}).settings;
    match Configurations::read(&client, &settings).await {
        Ok(configurations) => configurations.uids(),
        Err(UninstallError::OtherInstallation { namespace, name }) => {
            format!("{namespace:?} {name}")
        }
        Err(UninstallError::ReadConfiguration(what, error)) => format!("{what}: {error}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_uninstall_stops_if_another_installation_may_live() {
    let list = |items: &[Value]| (200, json!({"metadata": {}, "items": items}));
    let none = || (404, absent("belay").1);
    let own = || configuration("belay", "hold.belay.dev", "belay");
    let ours = read((200, own()), list(&[own()]), list(&[])).await;
    assert!(
        ours.contains("uid-of-belay") && ours.contains("ValidatingWebhookConfiguration: None"),
        "{ours}"
    );
    // Of another name, by either kind, whether ours is there or not.
    let guard = |entry| list(&[configuration("guard", entry, "ops")]);
    let other = "Some(\"ops\") guard";
    assert_eq!(read(none(), guard("hold.belay.dev"), list(&[])).await, other);
    assert_eq!(read((200, own()), list(&[own()]), guard("delete.belay.dev")).await, other);
    // Webhooks of others do not matter.
    let others = read(none(), guard("hold.example.com"), guard("delete.example.com")).await;
    assert!(others.contains("MutatingWebhookConfiguration: None"), "{others}");
    // Of the same name.
    let elsewhere = configuration("belay", "hold.belay.dev", "ops");
    assert_eq!(read((200, elsewhere), list(&[]), list(&[])).await, "Some(\"ops\") belay");
    // The API server named the configuration to an account that may read only this one.
    let forbidden = || failure(403, "bob cannot list", ("", ""));
    let ours = read((200, own()), forbidden(), forbidden()).await;
    assert!(ours.contains("uid-of-belay"), "{ours}");
    // Any other unreadable configuration may belong to another program.
    let broken = || failure(500, "oops", ("", ""));
    let unread = read(broken(), list(&[]), list(&[])).await;
    assert!(unread.starts_with("MutatingWebhookConfiguration belay: "), "{unread}");
    let unread = read(forbidden(), list(&[]), list(&[])).await;
    assert!(unread.starts_with("MutatingWebhookConfiguration belay: "), "{unread}");
    let unread = read(none(), list(&[]), broken()).await;
    assert!(unread.starts_with("ValidatingWebhookConfigurations: "), "{unread}");
}

/// An API server that answers by a function, and what it was asked.
type Asked = Arc<Mutex<Vec<(Method, String, Value)>>>;

fn scripted(answer: fn(&Method, &str) -> (u16, Value)) -> (kube::Client, Asked) {
    let asked = Asked::default();
    let kept = asked.clone();
    let client = local_client(move |request| {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let answer = match answer(&parts.method, &path) {
            (code, Value::Null) => (code, body.clone()),
            answer => answer,
        };
        kept.lock().push((parts.method, path, body));
        Some(answer)
    });
    (client, asked)
}

#[tokio::test]
async fn deletes_only_the_configurations_that_were_read() {
    let (client, asked) = scripted(|method, path| match (method, path.contains("/mutating")) {
        (&Method::GET, true) if path.ends_with("/belay") => {
            (200, configuration("belay", "hold.belay.dev", "belay"))
        }
        (&Method::GET, _) if path.ends_with("/belay") => absent("belay"),
        (&Method::GET, _) => (200, json!({"metadata": {}, "items": []})),
        _ => (200, json!({"kind": "Status", "status": "Success"})),
    });
    let settings = uninstall(&client, NORMAL, &|_| {}).settings;
    let configurations = Configurations::read(&client, &settings).await.unwrap();
    configurations.delete(&client, "belay", &|_| {}).await.unwrap();
    let asked = asked.lock();
    let deletes: Vec<_> = asked.iter().filter(|(method, ..)| *method == Method::DELETE).collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(deletes[0].1, format!("{MUTATING}/belay"));
    assert_eq!(deletes[0].2["preconditions"]["uid"], "uid-of-belay");
}

fn own_objects<'a>(uninstall: &'a Uninstall<'_>) -> OwnObjects<'a> {
    let Uninstall { client, settings, identities, report, .. } = uninstall;
    OwnObjects { client, settings, own_user: identities.own.as_deref().unwrap(), report }
}

#[tokio::test]
async fn the_lease_stays_while_it_is_unknown_whether_replicas_run() {
    let (client, asked) = scripted(|method, path| match (method, path) {
        (&Method::GET, path) if path.ends_with("/leases") => failure(500, "oops", ("", "")),
        (&Method::GET, path) if path.ends_with("/leases/belay") => {
            (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"}))
        }
        (&Method::GET | &Method::DELETE, _) => absent("x"),
        _ => (200, Value::Null),
    });
    let events = Mutex::new(Vec::new());
    let report = |event| events.lock().push(event);
    let uninstall = uninstall(&client, NORMAL, &report);
    own_objects(&uninstall).delete_all(uninstall.clock.now(), async || {}).await;
    let events = events.lock();
    let Some(Event::Warning(text)) = events.last() else { panic!("{events:?}") };
    let says = "Lease belay is left behind, which does no harm: it is unknown whether replicas";
    assert!(text.starts_with(says), "{text}");
    let asked = asked.lock();
    let is_deleted = |(method, path, _): &(Method, String, Value)| {
        *method == Method::DELETE && path.contains("/leases")
    };
    assert!(asked.iter().any(|(method, ..)| *method == Method::DELETE), "{asked:?}");
    assert!(!asked.iter().any(is_deleted), "{asked:?}");
}

#[tokio::test]
async fn the_account_is_the_one_that_the_deployment_names() {
    let (client, _) = scripted(|_, path| match path {
        "/apis/apps/v1/namespaces/ops/deployments/guard" => {
            let template = json!({"spec": {"containers": [], "serviceAccountName": "guards"}});
            let spec = json!({"selector": {}, "template": template});
            (200, json!({"metadata": {"name": "guard"}, "spec": spec}))
        }
        _ => absent("x"),
    });
    assert_eq!(account(&client, "ops", "guard").await, "guards");
    assert_eq!(account(&client, "belay", "belay").await, "belay");
    // What goes with the account goes with that one.
    let (client, asked) = scripted(|_, path| match path.rsplit('/').next() {
        Some("guards") => at("u", false),
        _ => absent("x"),
    });
    let uninstall = uninstall(&client, NORMAL, &|_| {});
    let owner = own_objects(&uninstall).owner_of_replicas().await.unwrap().unwrap();
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("ServiceAccount", "u"));
    let wanted = "/api/v1/namespaces/belay/serviceaccounts/guards";
    assert!(asked.lock().iter().any(|(_, path, _)| path == wanted));
}
