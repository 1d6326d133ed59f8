//! A watch against an API server of the test's own, which says what it is told
//! to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::objects::Kinds;

/// What is answered, in order, and what was asked.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn of(answers: &[(u16, &str)]) -> Self {
        let answers = answers.iter().map(|(code, text)| (*code, (*text).to_owned())).collect();
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    fn server(&self) -> Server {
        let script = self.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            script.asked.lock().unwrap().push(path);
            let answer = script.answers.lock().unwrap().pop_front();
            async move {
                let Some((code, text)) = answer else {
                    // The script has ended: the server says no more.
                    return std::future::pending().await;
                };
                let response = http::Response::builder().status(code);
                Ok::<_, Infallible>(response.body(Body::from(text.into_bytes())).unwrap())
            }
        });
        Server::new(kube::Client::new(service, "default"))
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, what: &str, json: &str) {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{what} {name}"));
    }
}

impl Sink for Told {
    fn begin(&mut self) {
        self.0.lock().unwrap().push("begin".to_owned());
    }

    fn list(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("list", json);
        Ok(())
    }

    fn end(&mut self) {
        self.0.lock().unwrap().push("end".to_owned());
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("change", json);
        Ok(())
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("remove", json);
        Ok(())
    }

    fn current(&mut self) {
        self.0.lock().unwrap().push("current".to_owned());
    }

    fn broken(&mut self, trouble: &Trouble, _: Duration) {
        self.0.lock().unwrap().push(format!("broken: {}", trouble.words()));
    }
}

fn event(kind: &str, name: &str, version: u64) -> String {
    let object =
        serde_json::json!({"metadata": {"name": name, "resourceVersion": version.to_string()}});
    format!("{}\n", serde_json::json!({"type": kind, "object": object}))
}

fn bookmark(version: u64) -> String {
    let annotations = serde_json::json!({"k8s.io/initial-events-end": "true"});
    let metadata =
        serde_json::json!({"resourceVersion": version.to_string(), "annotations": annotations});
    format!("{}\n", serde_json::json!({"type": "BOOKMARK", "object": {"metadata": metadata}}))
}

fn status(code: u16, message: &str) -> String {
    serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Any", "code": code})
    .to_string()
}

/// What the sink is told until it has been told this many things.
async fn told(script: &Script, count: usize) -> Vec<String> {
    let kinds = Kinds::default();
    let info = kinds.info(kinds.find("", "ConfigMap").unwrap()).clone();
    let source = Source { info, detail: Detail::Metadata, labels: "" };
    let sink = Told::default();
    let watching = watch(script.server(), source, sink.clone());
    let enough = async {
        while sink.0.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(600);
    tokio::select! {
        () = watching => {}
        result = timeout(limit, enough) => result.unwrap_or_else(|_| panic!("only {:?}", sink.0.lock().unwrap())),
    }
    sink.0.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_and_a_watch_that_ends_goes_on_where_it_was() {
    let first =
        [event("ADDED", "a", 5), bookmark(7), event("ADDED", "b", 8), event("DELETED", "a", 9)];
    let second = [event("MODIFIED", "b", 11)];
    let script = Script::of(&[(200, &first.concat()), (200, &second.concat())]);
    let told = told(&script, 7).await;
    assert_eq!(told, ["begin", "list a", "end", "current", "change b", "remove a", "change b"]);
    let asked = script.asked();
    assert!(asked[0].contains("sendInitialEvents=true"), "{asked:?}");
    assert!(asked[1].contains("resourceVersion=9") && !asked[1].contains("Initial"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_and_says_so_to_nobody() {
    let gone = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "too old"));
    let again = [event("ADDED", "c", 20), bookmark(21)].concat();
    let first = [event("ADDED", "a", 5), bookmark(7), gone].concat();
    let script = Script::of(&[(200, &first), (200, &again)]);
    let told = told(&script, 8).await;
    // Nothing is taken out before the second list has been read to its end.
    let expected = ["begin", "list a", "end", "current", "begin", "list c", "end", "current"];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_begun_anew_and_ends_nothing() {
    let half = event("ADDED", "a", 5);
    let whole = [event("ADDED", "a", 5), event("ADDED", "b", 6), bookmark(7)].concat();
    let script = Script::of(&[(200, &half), (200, &whole)]);
    let told = told(&script, 7).await;
    assert_eq!(told, ["begin", "list a", "begin", "list a", "list b", "end", "current"]);
}

#[tokio::test(start_paused = true)]
async fn an_older_server_is_read_page_by_page() {
    let refused = status(
        422,
        "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
    );
    let one = r#"{"metadata":{"resourceVersion":"5","continue":"more&more"},"items":[{"metadata":{"name":"a"}}]}"#;
    let two = r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"b"}}]}"#;
    let script = Script::of(&[(422, &refused), (200, one), (200, two)]);
    let told = told(&script, 5).await;
    assert_eq!(told, ["begin", "list a", "list b", "end", "current"]);
    let asked = script.asked();
    assert!(asked[2].contains("continue=more%26more"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_says_why_and_is_tried_again() {
    let forbidden = status(403, "pods is forbidden");
    let whole = bookmark(7);
    let script = Script::of(&[(403, &forbidden), (500, &status(500, "boom")), (200, &whole)]);
    let told = told(&script, 5).await;
    assert!(told[0].contains("may not (pods is forbidden)"), "{told:?}");
    assert!(told[1].contains("the API server answers 500: boom"), "{told:?}");
    assert_eq!(told[2..], ["begin", "end", "current"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stops_the_watch_and_is_not_repeated() {
    let bad = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":3,\"x\":\"hunter2\"}}}\n";
    let script = Script::of(&[(200, &[bookmark(7), bad.to_owned()].concat())]);
    let told = told(&script, 5).await;
    assert!(told[4].starts_with("broken: an object of it could not be read"), "{told:?}");
    assert!(!told[4].contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_told_in_time_though_the_next_attempt_hangs() {
    let script = Script::of(&[(200, &bookmark(7))]);
    let started = Instant::now();
    let told = told(&script, 4).await;
    assert_eq!(told[..3], ["begin", "end", "current"]);
    assert!(told[3].starts_with("broken: it was not begun again within 5 s"), "{told:?}");
    let lasted = started.elapsed();
    assert!(GRACE <= lasted && lasted < GRACE + Duration::from_secs(1), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_at_once_is_not_read_again_without_end() {
    let gone = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "too old"));
    let list = [bookmark(7), gone].concat();
    let answers = vec![(200, list.as_str()); 4];
    let script = Script::of(&answers);
    let started = Instant::now();
    let told = told(&script, 12).await;
    assert_eq!(told[9..], ["begin", "end", "current"]);
    // Three waits, each twice as long as the one before.
    assert!(started.elapsed() > Duration::from_secs(1), "{:?}", started.elapsed());
}
