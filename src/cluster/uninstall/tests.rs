//! Sweeps, against an API server that is a script.

use std::sync::Arc;

use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::kinds::Look;
use super::*;
use crate::cluster::account;
use crate::cluster::local_api::{failure, local_client};
use crate::objects::{HOLD, Kinds, ObjectRef};
use crate::timing::Timing;

const DRY: Manners = Manners { abandon: false, dry_run: true, limit: None };

const LIST: &str = "/api/v1/configmaps";

/// ConfigMaps of the namespace `n` by name, and what is answered instead to
/// some writes, each once.
#[derive(Default)]
struct Store {
    maps: BTreeMap<String, Value>,
    instead: Vec<(String, (u16, Value))>,
    patches: usize,
    /// Somebody else writes the object before the next patch of it.
    hurry: Vec<String>,
    /// Whatever else is asked for, by its path.
    others: BTreeMap<String, (u16, Value)>,
    /// Somebody puts every hold back.
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
        self.patches += 1;
        if let Some(at) = self.instead.iter().position(|(of, ..)| *of == name) {
            return self.instead.remove(at).1;
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
                if self.restless {
                    map["metadata"]["finalizers"] = json!([HOLD]);
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

fn server(store: Store) -> (kube::Client, Shared) {
    let shared = Arc::new(Mutex::new(store));
    let kept = shared.clone();
    (local_client(move |request| Some(kept.lock().answer(&request))), shared)
}

fn looks() -> Vec<Look> {
    let kinds = Kinds::default();
    let info = kinds.info(kinds.find("", "ConfigMap").unwrap()).clone();
    vec![Look { info, may_be_held: true }]
}

fn target(name: &str) -> ObjectRef {
    ObjectRef::new(("", "configmaps"), "n", name)
}

fn held(store: &Shared) -> Vec<String> {
    let store = store.lock();
    let held = store.maps.iter().filter(|(_, map)| map.to_string().contains(HOLD));
    held.map(|(name, _)| name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_page_is_swept_and_what_is_terminating_or_of_others_is_left_alone() {
    let maps = [
        map("a", &[HOLD], false),
        map("b", &["x/y", HOLD], false),
        map("c", &["x/y"], false),
        map("d", &[HOLD], true),
        map("e", &[HOLD], false),
    ];
    let (client, store) = server(Store { maps: maps.into(), ..Store::default() });
    let tell = |_| {};
    let mut sweeper = Sweeper::new(&client, &Timing::default(), Manners::default(), &tell);
    let swept = sweeper.sweep(&looks()).await;
    assert_eq!((swept.met, swept.released), (4, 3));
    assert_eq!(swept.waiting, BTreeSet::from([target("d")]));
    assert!(swept.left.is_empty() && swept.unread.is_empty());
    assert_eq!(held(&store), ["d"]);
    assert_eq!(store.lock().maps["b"]["metadata"]["finalizers"], json!(["x/y"]));
    // Again there is nothing to do, and nothing is written.
    let patches = store.lock().patches;
    let swept = sweeper.sweep(&looks()).await;
    assert_eq!((swept.met, swept.released, store.lock().patches), (1, 0, patches));
}

#[tokio::test(start_paused = true)]
async fn whatever_a_patch_meets_is_gone_tried_again_or_told() {
    let maps =
        ["busy", "forced", "forbidden", "gone", "lost"].map(|name| map(name, &[HOLD], false));
    let namespace = failure(404, "none", ("namespaces", "n"));
    let instead = vec![
        ("gone".to_owned(), absent("gone")),
        ("forced".to_owned(), namespace),
        ("forbidden".to_owned(), failure(403, "bob cannot patch configmaps", ("", ""))),
        ("lost".to_owned(), failure(500, "oops", ("", ""))),
    ];
    let hurry = vec!["busy".to_owned()];
    let (client, store) = server(Store { maps: maps.into(), instead, hurry, ..Store::default() });
    let tell = |_| {};
    let swept =
        Sweeper::new(&client, &Timing::default(), Manners::default(), &tell).sweep(&looks()).await;
    assert_eq!((swept.met, swept.released), (5, 2), "{swept:?}");
    let refused = Why::Refused("the API server answers 403: bob cannot patch configmaps".into());
    let left = [(target("forced"), Why::Stranded), (target("forbidden"), refused.clone())];
    assert_eq!(swept.left, left.into());
    assert_eq!(held(&store), ["forbidden", "forced", "gone"]);
    let troubles = troubles(&swept);
    let fails = |why| News::Fails("configmaps".to_owned(), 1, why);
    assert_eq!(troubles, [fails(refused), fails(Why::Stranded)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_again_and_again_says_the_api_servers_words() {
    let words = || failure(422, "spec: Invalid value", ("", ""));
    let instead = (0..20).map(|_| ("a".to_owned(), words())).collect();
    let maps = [map("a", &[HOLD], false)];
    let (client, _) = server(Store { maps: maps.into(), instead, ..Store::default() });
    let tell = |_| {};
    let swept =
        Sweeper::new(&client, &Timing::default(), Manners::default(), &tell).sweep(&looks()).await;
    let Some(Why::Refused(why)) = swept.left.get(&target("a")) else { panic!("{swept:?}") };
    assert!(why.contains("422: spec: Invalid value"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let maps = [map("a", &[HOLD], false), map("b", &[HOLD], true)];
    let (client, store) = server(Store { maps: maps.into(), ..Store::default() });
    let tell = |_| {};
    let swept = Sweeper::new(&client, &Timing::default(), DRY, &tell).sweep(&looks()).await;
    assert_eq!(swept.left, [(target("a"), Why::Untouched)].into());
    assert_eq!(swept.waiting, BTreeSet::from([target("b")]));
    assert_eq!(store.lock().patches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_matters_where_it_may_be_held() {
    let client =
        local_client(|_| Some(failure(403, "bob cannot list configmaps", ("configmaps", ""))));
    let tell = |_| {};
    let mut looks = looks();
    let swept =
        Sweeper::new(&client, &Timing::default(), Manners::default(), &tell).sweep(&looks).await;
    assert_eq!(swept.unread.len(), 1);
    assert!(!ended(Tally::default(), swept, Vec::new()).is_clean());
    looks[0].may_be_held = false;
    let swept =
        Sweeper::new(&client, &Timing::default(), Manners::default(), &tell).sweep(&looks).await;
    assert_eq!(swept.skipped, ["configmaps"]);
    assert!(ended(Tally::default(), swept, Vec::new()).is_clean());
}

#[tokio::test(start_paused = true)]
async fn no_more_than_25_holds_go_in_a_second_and_it_is_told_how_far_it_is() {
    let maps = (0..400).map(|n| map(&format!("m{n:03}"), &[HOLD], false)).collect();
    let (client, _) = server(Store { maps, ..Store::default() });
    let told = Mutex::new(Vec::new());
    let tell = |news| told.lock().push(news);
    let began = Instant::now();
    let swept =
        Sweeper::new(&client, &Timing::default(), Manners::default(), &tell).sweep(&looks()).await;
    assert_eq!(swept.released, 400);
    let seconds = began.elapsed().as_secs_f64();
    assert!((15.9..=17.0).contains(&seconds), "{seconds}");
    let told = told.lock();
    assert_eq!(told.len(), 3, "{told:?}");
    let News::Progress(tally, 1) = &told[0] else { panic!("{told:?}") };
    assert!((120..=130).contains(&tally.released), "{tally:?}");
}

/// An object of the cluster, with this uid.
fn at(uid: &str, deleted: bool) -> (u16, Value) {
    let mut metadata = json!({"name": "x", "uid": uid, "resourceVersion": "1"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    (200, json!({"metadata": metadata}))
}

fn owned(name: &str, kind: &str, owner: &str) -> (String, Value) {
    let (name, mut map) = map(name, &[HOLD], false);
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner});
    map["metadata"]["ownerReferences"] = json!([owner]);
    (name, map)
}

/// `n` lives, and so does the Deployment `lives`; `goes` does not.
fn owners() -> BTreeMap<String, (u16, Value)> {
    let kinds = json!({"groupVersion": "apps/v1", "resources": [
        {"name": "deployments", "kind": "Deployment", "namespaced": true, "singularName": "",
         "verbs": []},
        {"name": "deployments/scale", "kind": "Scale", "namespaced": true, "singularName": "",
         "verbs": []}]});
    let path = |name: &str| format!("/apis/apps/v1/namespaces/n/deployments/{name}");
    let forbidden = failure(403, "bob cannot get deployments", ("", ""));
    BTreeMap::from([
        ("/api/v1/namespaces/n".to_owned(), at("n", false)),
        ("/apis/apps/v1".to_owned(), (200, kinds)),
        (path("lives"), at("lives", false)),
        (path("goes"), at("goes", true)),
        (path("other"), at("made-again", true)),
        (path("hidden"), forbidden),
    ])
}

fn orphans_to_be() -> BTreeMap<String, Value> {
    BTreeMap::from([
        owned("of-absent", "Deployment", "absent"),
        owned("of-another", "Deployment", "other"),
        owned("of-going", "Deployment", "goes"),
        owned("of-hidden", "Deployment", "hidden"),
        owned("of-living", "Deployment", "lives"),
        owned("of-unserved", "Widget", "w"),
    ])
}

#[tokio::test(start_paused = true)]
async fn what_goes_with_its_owner_keeps_its_hold_until_it_is_terminating() {
    let maps = orphans_to_be();
    let (client, store) = server(Store { maps, others: owners(), ..Store::default() });
    let tell = |_| {};
    let mut sweeper = Sweeper::new(&client, &Timing::default(), Manners::default(), &tell);
    let swept = sweeper.sweep(&looks()).await;
    assert_eq!((swept.met, swept.released), (6, 4), "{swept:?}");
    // Whose owner cannot be read may go.
    assert_eq!(held(&store), ["of-going", "of-hidden"]);
    assert_eq!(swept.waiting, BTreeSet::from([target("of-going"), target("of-hidden")]));
    // The owner stays after all, or is gone and the object is not.
    sleep(Timing::default().uninstall.pause).await;
    let path = "/apis/apps/v1/namespaces/n/deployments/goes";
    store.lock().others.insert(path.to_owned(), absent("goes"));
    assert_eq!(sweeper.sweep(&looks()).await.released, 1);
    assert_eq!(held(&store), ["of-hidden"]);
}

#[tokio::test(start_paused = true)]
async fn what_goes_with_its_namespace_keeps_its_hold_unless_it_is_abandoned() {
    let others = BTreeMap::from([("/api/v1/namespaces/n".to_owned(), at("n", true))]);
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let told = Mutex::new(Vec::new());
    let tell = |news| told.lock().push(news);
    for manners in [Manners::default(), DRY] {
        let swept = Sweeper::new(&client, &Timing::default(), manners, &tell).sweep(&looks()).await;
        assert_eq!((swept.released, swept.waiting), (0, BTreeSet::from([target("a")])));
    }
    assert_eq!(held(&store), ["a"]);
    let abandon = Manners { abandon: true, ..Manners::default() };
    let mut sweeper = Sweeper::new(&client, &Timing::default(), abandon, &tell);
    sweeper.sweep(&looks()).await;
    assert_eq!((held(&store).len(), sweeper.tally.abandoned), (0, 1));
    let why = Why::Going("its Namespace n is".to_owned());
    assert_eq!(*told.lock(), [News::Abandoned(Left { target: target("a"), why })]);
}

/// Two kinds of lists that discovery is made of.
fn discovery(resources: &Value) -> BTreeMap<String, (u16, Value)> {
    let version = json!({"version": "v1", "freshness": "Current", "resources": resources});
    let core = json!({"metadata": {}, "versions": [version]});
    BTreeMap::from([
        ("/api".to_owned(), (200, json!({"items": [core]}))),
        ("/apis".to_owned(), (200, json!({"items": []}))),
    ])
}

fn uninstall<'a>(client: &kube::Client, manners: Manners, tell: &'a dyn Fn(News)) -> Uninstall<'a> {
    let world = crate::cluster::World::default();
    let context = crate::cluster::context::Context::of_test(client.clone(), world, &[]);
    Uninstall {
        client: client.clone(),
        settings: (*context.settings).clone(),
        identities: Identities {
            own: Some("system:serviceaccount:belay:guards".to_owned()),
            ..Identities::default()
        },
        clock: Clock::from_server("2026-01-01T00:00:00Z".parse().unwrap()),
        manners,
        tell,
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_and_is_not_terminating_is_looked_at_again_and_an_unserved_kind_is_not_gone() {
    let maps = orphans_to_be();
    let configmaps = json!([{"resource": "configmaps", "scope": "Namespaced", "verbs": ["list"],
        "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"}}]);
    let mut others = owners();
    others.extend(discovery(&configmaps));
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let tell = |_| {};
    let uninstall = uninstall(&client, Manners::default(), &tell);
    let waiting = BTreeSet::from([target("of-going"), target("of-living")]);
    let snapshot = uninstall.snapshot().await.unwrap();
    let upshots = attend(&snapshot, &waiting, Manner::Release).await;
    let going = Why::Going("its owner Deployment goes is".to_owned());
    let expected =
        [(target("of-going"), Upshot::Stays(going)), (target("of-living"), Upshot::Free)];
    assert_eq!(upshots, expected);
    store.lock().others.extend(discovery(&json!([])));
    let snapshot = uninstall.snapshot().await.unwrap();
    let upshots = attend(&snapshot, &waiting, Manner::Release).await;
    assert!(upshots.iter().all(|(_, upshot)| *upshot == Upshot::Stays(Why::Unserved)));
}

#[tokio::test(start_paused = true)]
async fn an_end_while_holds_are_met_is_not_clean() {
    // Each time it is met, and each time the API server says that it is gone.
    let gone = || ("a".to_owned(), absent("a"));
    let instead = (0..20).map(|_| gone()).collect();
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, instead, ..Store::default() });
    let tell = |_| {};
    let ended = uninstall(&client, Manners::default(), &tell).sweeps(&looks(), &[]).await.unwrap();
    assert_eq!(held(&store), ["a"]);
    assert!(!ended.is_clean());
    assert_eq!(ended.left.iter().map(|left| &left.target).collect::<Vec<_>>(), [&target("a")]);
}

#[tokio::test(start_paused = true)]
async fn the_time_ends_it_though_somebody_puts_every_hold_back() {
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, restless: true, ..Store::default() });
    let tell = |_| {};
    let manners = Manners { limit: Some(Duration::from_secs(30)), ..Manners::default() };
    let uninstall = uninstall(&client, manners, &tell);
    let (looks, began) = (looks(), Instant::now());
    let limit = Duration::from_secs(40);
    let ended = tokio::time::timeout(limit, uninstall.sweeps(&looks, &[])).await;
    let ended = ended.unwrap().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert!(!ended.is_clean(), "{ended:?}");
    // When it ends by itself just then, that is seen.
    store.lock().restless = false;
    let manners = Manners { limit: Some(Duration::ZERO), ..Manners::default() };
    let uninstall = Uninstall { manners, ..uninstall };
    assert!(uninstall.sweeps(&looks, &[]).await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn the_time_ends_a_sweep_of_very_much() {
    let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let maps = names.iter().map(|name| map(name, &[HOLD], false)).collect();
    let (client, store) = server(Store { maps, ..Store::default() });
    let tell = |_| {};
    let manners = Manners { limit: Some(Duration::from_secs(1)), ..Manners::default() };
    let began = Instant::now();
    let ended = uninstall(&client, manners, &tell).sweeps(&looks(), &[]).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(ended.tally.released + held(&store).len(), 100);
    assert!(ended.tally.released > 10 && ended.left.len() == held(&store).len(), "{ended:?}");
    assert!(ended.left.iter().all(|left| left.why == Why::Late), "{ended:?}");
    // Whoever comes again goes on.
    let ended = uninstall(&client, Manners::default(), &tell).sweeps(&looks(), &[]).await.unwrap();
    assert!(ended.is_clean() && held(&store).is_empty(), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_ask_about_is_unread() {
    let (client, _) = server(Store::default());
    let tell = |_| {};
    let uninstall = uninstall(&client, Manners::default(), &tell);
    assert!(uninstall.sweeps(&looks(), &[]).await.unwrap().is_clean());
    let unknown = ["widgets.example.com".to_owned()];
    let ended = uninstall.sweeps(&looks(), &unknown).await.unwrap();
    assert_eq!(ended.unread, [(unknown[0].clone(), DOWN.to_owned())]);
    assert!(!ended.is_clean());
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
    let tell = |_| {};
    let settings = uninstall(&client, Manners::default(), &tell).settings;
    match Configurations::read(&client, &settings).await {
        Ok(configurations) => format!("{configurations:?}"),
        Err(NotBegun::Elsewhere { namespace, name }) => format!("{namespace:?} {name}"),
        Err(NotBegun::Configurations(what, error)) => format!("{what}: {error}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_living_belay_of_whatever_name_is_not_stripped() {
    let list = |items: &[Value]| (200, json!({"metadata": {}, "items": items}));
    let none = || (404, absent("belay").1);
    let own = || configuration("belay", "hold.belay.dev", "belay");
    let ours = read((200, own()), list(&[own()]), list(&[])).await;
    assert!(ours.contains("uid-of-belay") && ours.contains("validating: None"), "{ours}");
    // Of another name, by either kind, whether ours is there or not.
    let guard = |entry| list(&[configuration("guard", entry, "ops")]);
    let other = "Some(\"ops\") guard";
    assert_eq!(read(none(), guard("hold.belay.dev"), list(&[])).await, other);
    assert_eq!(read((200, own()), list(&[own()]), guard("delete.belay.dev")).await, other);
    // Webhooks of others do not matter.
    let others = read(none(), guard("hold.example.com"), guard("delete.example.com")).await;
    assert!(others.contains("mutating: None"), "{others}");
    // Of the same name.
    let elsewhere = configuration("belay", "hold.belay.dev", "ops");
    assert_eq!(read((200, elsewhere), list(&[]), list(&[])).await, "Some(\"ops\") belay");
    // Who may read this one alone was told which one it is.
    let forbidden = || failure(403, "bob cannot list", ("", ""));
    let ours = read((200, own()), forbidden(), forbidden()).await;
    assert!(ours.contains("uid-of-belay"), "{ours}");
    // Whatever else cannot be read may be anybody's.
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
async fn the_configurations_that_were_read_are_deleted_and_no_others() {
    let (client, asked) = scripted(|method, path| match (method, path.contains("/mutating")) {
        (&Method::GET, true) if path.ends_with("/belay") => {
            (200, configuration("belay", "hold.belay.dev", "belay"))
        }
        (&Method::GET, _) if path.ends_with("/belay") => absent("belay"),
        (&Method::GET, _) => (200, json!({"metadata": {}, "items": []})),
        _ => (200, json!({"kind": "Status", "status": "Success"})),
    });
    let tell = |_| {};
    let settings = uninstall(&client, Manners::default(), &tell).settings;
    let configurations = Configurations::read(&client, &settings).await.unwrap();
    configurations.delete(&client, "belay", &tell).await.unwrap();
    let asked = asked.lock();
    let deletes: Vec<_> = asked.iter().filter(|(method, ..)| *method == Method::DELETE).collect();
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert_eq!(deletes[0].1, format!("{MUTATING}/belay"));
    assert_eq!(deletes[0].2["preconditions"]["uid"], "uid-of-belay");
}

#[tokio::test]
async fn the_lease_stays_where_nobody_knows_whether_replicas_run() {
    let (client, asked) = scripted(|method, path| match (method, path) {
        (&Method::GET, path) if path.ends_with("/leases") => failure(500, "oops", ("", "")),
        (&Method::GET, path) if path.ends_with("/leases/belay") => {
            (404, json!({"kind": "Status", "code": 404, "reason": "NotFound"}))
        }
        (&Method::GET | &Method::DELETE, _) => absent("x"),
        _ => (200, Value::Null),
    });
    let told = Mutex::new(Vec::new());
    let tell = |news| told.lock().push(news);
    let uninstall = uninstall(&client, Manners::default(), &tell);
    let (clock, lease) = (uninstall.clock, Timing::default().lease);
    let seat = seize(&client, ("belay", "belay"), "me".to_owned(), clock, lease).await;
    uninstall.clear(&seat.unwrap().unwrap()).await;
    let told = told.lock();
    let Some(News::Behind(what, why)) = told.last() else { panic!("{told:?}") };
    assert_eq!(what, "Lease belay");
    assert!(why.starts_with("whether replicas run still is not known: "), "{why}");
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
    let tell = |_| {};
    let uninstall = uninstall(&client, Manners::default(), &tell);
    let own = uninstall.identities.own.as_deref().unwrap();
    let (client, settings) = (&uninstall.client, &uninstall.settings);
    let remains = Remains { client, settings, own, tell: &tell };
    let heir = remains.heir().await.unwrap().unwrap();
    assert_eq!((heir.kind.as_str(), heir.uid.as_str()), ("ServiceAccount", "u"));
    let wanted = "/api/v1/namespaces/belay/serviceaccounts/guards";
    assert!(asked.lock().iter().any(|(_, path, _)| path == wanted));
}
