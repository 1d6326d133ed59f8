//! Sweeps, against an API server that is a script.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::kinds::Look;
use super::*;
use crate::objects::{HOLD, Kinds};

const LIST: &str = "/api/v1/configmaps";

/// ConfigMaps of the namespace `n` by name, and what is answered instead to
/// some writes, each once.
#[derive(Default)]
struct Store {
    maps: BTreeMap<String, Value>,
    instead: Vec<(String, u16, Value)>,
    patches: usize,
    /// Somebody else writes the object before the next patch of it.
    hurry: Vec<String>,
}

type Shared = Arc<Mutex<Store>>;

fn status(code: u16, message: &str, details: Value) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message,
        "details": details})
}

fn absent(name: &str) -> (u16, Value) {
    (404, status(404, "none", json!({"kind": "configmaps", "name": name})))
}

impl Store {
    fn answer(&mut self, request: &Request<Vec<u8>>) -> (u16, Value) {
        let (method, path) = (request.method(), request.uri().path());
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        if path == LIST {
            return self.list(request.uri().query().unwrap_or_default());
        }
        if *method == Method::GET {
            return self.maps.get(&name).map_or_else(|| absent(&name), |map| (200, map.clone()));
        }
        self.patches += 1;
        if let Some(at) = self.instead.iter().position(|(of, ..)| *of == name) {
            let (_, code, answer) = self.instead.remove(at);
            return (code, answer);
        }
        let Some(map) = self.maps.get_mut(&name) else { return absent(&name) };
        if let Some(at) = self.hurry.iter().position(|of| *of == name) {
            self.hurry.remove(at);
            map["metadata"]["resourceVersion"] = json!("1000");
        }
        let patch: json_patch::Patch = serde_json::from_slice(request.body()).unwrap();
        match json_patch::patch(map, &patch) {
            Ok(()) => (200, map.clone()),
            Err(_) => (422, status(422, "the server rejected our request", json!({}))),
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
    let service = service_fn(move |request: Request<Body>| {
        let kept = kept.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let request = Request::from_parts(parts, body.to_vec());
            let (code, answer) = kept.lock().answer(&request);
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (kube::Client::new(service, "default"), shared)
}

fn looks() -> Vec<Look> {
    let kinds = Kinds::default();
    let info = kinds.info(kinds.find("", "ConfigMap").unwrap()).clone();
    vec![Look { info, may_be_held: true }]
}

fn target(name: &str) -> Target {
    Target {
        resource: "configmaps".into(),
        group: String::new(),
        namespace: "n".into(),
        name: name.into(),
    }
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
    let mut sweeper = Sweeper::new(&client, false, &tell);
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
    let namespace = status(404, "none", json!({"kind": "namespaces", "name": "n"}));
    let instead = vec![
        ("gone".to_owned(), 404, absent("gone").1),
        ("forced".to_owned(), 404, namespace),
        ("forbidden".to_owned(), 403, status(403, "bob cannot patch configmaps", json!({}))),
        ("lost".to_owned(), 500, status(500, "oops", json!({}))),
    ];
    let hurry = vec!["busy".to_owned()];
    let (client, store) = server(Store { maps: maps.into(), instead, hurry, patches: 0 });
    let tell = |_| {};
    let swept = Sweeper::new(&client, false, &tell).sweep(&looks()).await;
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
    let words = || status(422, "spec: Invalid value", json!({}));
    let instead = (0..20).map(|_| ("a".to_owned(), 422, words())).collect();
    let maps = [map("a", &[HOLD], false)];
    let (client, _) = server(Store { maps: maps.into(), instead, ..Store::default() });
    let tell = |_| {};
    let swept = Sweeper::new(&client, false, &tell).sweep(&looks()).await;
    let Some(Why::Refused(why)) = swept.left.get(&target("a")) else { panic!("{swept:?}") };
    assert!(why.contains("422: spec: Invalid value"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let maps = [map("a", &[HOLD], false), map("b", &[HOLD], true)];
    let (client, store) = server(Store { maps: maps.into(), ..Store::default() });
    let tell = |_| {};
    let swept = Sweeper::new(&client, true, &tell).sweep(&looks()).await;
    assert_eq!(swept.left, [(target("a"), Why::Untouched)].into());
    assert_eq!(swept.waiting, BTreeSet::from([target("b")]));
    assert_eq!(store.lock().patches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_listed_matters_where_it_may_be_held() {
    let service = service_fn(|_: Request<Body>| async {
        let body = status(403, "bob cannot list configmaps", json!({})).to_string();
        let body = Body::from(body.into_bytes());
        Ok::<_, Infallible>(Response::builder().status(403).body(body).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let tell = |_| {};
    let mut looks = looks();
    let swept = Sweeper::new(&client, false, &tell).sweep(&looks).await;
    assert_eq!(swept.unread.len(), 1);
    assert!(!ended(Tally::default(), swept, Vec::new()).is_clean());
    looks[0].may_be_held = false;
    let swept = Sweeper::new(&client, false, &tell).sweep(&looks).await;
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
    let swept = Sweeper::new(&client, false, &tell).sweep(&looks()).await;
    assert_eq!(swept.released, 400);
    let seconds = began.elapsed().as_secs_f64();
    assert!((15.9..=17.0).contains(&seconds), "{seconds}");
    let told = told.lock();
    assert_eq!(told.len(), 3, "{told:?}");
    let News::Progress(tally, 1) = &told[0] else { panic!("{told:?}") };
    assert!((120..=130).contains(&tally.released), "{tally:?}");
}
