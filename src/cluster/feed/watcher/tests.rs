//! A watch against an API server that sends the events of a script.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::*;
use crate::cluster::local_api::local_client;
use crate::objects::Kinds;

/// The answers in order, and the received requests.
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

    fn client(&self) -> WatchClient {
        let script = self.clone();
        let client = local_client(move |request| {
            let asked = request.uri().path_and_query().map(ToString::to_string);
            script.asked.lock().unwrap().push(asked.unwrap_or_default());
            // After the end of the script, the server sends nothing.
            script.answers.lock().unwrap().pop_front()
        });
        WatchClient::new(client, Timing::default())
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Records what it receives.
#[derive(Clone, Default)]
struct RecordingSink(Arc<Mutex<Vec<String>>>);

impl RecordingSink {
    /// Records a call. An object without a name, or with a name that starts with `bad`, can't be
    /// parsed.
    fn note(&self, what: &str, json: &str) -> Result<(), Unreadable> {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        self.0.lock().unwrap().push(format!("{what} {name}"));
        let error = || serde_json::from_str::<u8>("hunter2").unwrap_err();
        if name.starts_with("bad") || name.is_empty() {
            return Err(Unreadable::new(json, &error()));
        }
        Ok(())
    }
}

impl WatchSink for RecordingSink {
    fn begin(&mut self) {
        self.0.lock().unwrap().push("begin".to_owned());
    }

    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("list", json)
    }

    fn end(&mut self) {
        self.0.lock().unwrap().push("end".to_owned());
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("change", json)
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        self.note("remove", json)
    }

    fn skip(&mut self) {
        self.0.lock().unwrap().push("skip".to_owned());
    }

    fn disconnected(&mut self) {
        self.0.lock().unwrap().push("disconnected".to_owned());
    }

    fn current(&mut self) {
        self.0.lock().unwrap().push("current".to_owned());
    }

    fn failed(&mut self, error: &ApiError, _: Duration) {
        self.0.lock().unwrap().push(format!("broken: {error}"));
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

/// The first `count` calls that the sink receives.
async fn reports(script: &Script, count: usize) -> Vec<String> {
    let kinds = Kinds::default();
    let info = kinds.info(kinds.find("", "ConfigMap").unwrap()).clone();
    let source =
        WatchTarget { info, detail: Detail::Metadata, labels: "", namespace: String::new() };
    let sink = RecordingSink::default();
    let watching = watch(script.client(), source, sink.clone());
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
    let mut reports = sink.0.lock().unwrap().clone();
    reports.truncate(count);
    reports
}

#[tokio::test(start_paused = true)]
async fn streams_the_list_and_continues_an_ended_watch_at_its_version() {
    let first =
        [event("ADDED", "a", 5), bookmark(7), event("ADDED", "b", 8), event("DELETED", "a", 9)];
    let second = [event("MODIFIED", "b", 11)];
    let script = Script::of(&[(200, &first.concat()), (200, &second.concat())]);
    let reports = reports(&script, 8).await;
    let first = ["begin", "list a", "end", "current", "change b", "remove a"];
    assert_eq!(reports[..6], first);
    assert_eq!(reports[6..], ["disconnected", "change b"]);
    let asked = script.asked();
    assert!(asked[0].contains("sendInitialEvents=true"), "{asked:?}");
    assert!(asked[1].contains("resourceVersion=9") && !asked[1].contains("Initial"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_without_a_report() {
    let gone = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "too old"));
    let again = [event("ADDED", "c", 20), bookmark(21)].concat();
    let first = [event("ADDED", "a", 5), bookmark(7), gone].concat();
    let script = Script::of(&[(200, &first), (200, &again)]);
    let reports = reports(&script, 9).await;
    // No object is removed before the end of the second list.
    assert_eq!(reports[..4], ["begin", "list a", "end", "current"]);
    assert_eq!(reports[4..], ["disconnected", "begin", "list c", "end", "current"]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_list_starts_again_and_deletes_nothing() {
    let half = event("ADDED", "a", 5);
    let whole = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}},
        {"metadata":{"name":"b"}}]}"#;
    let script = Script::of(&[(200, &half), (200, whole), (200, &event("ADDED", "c", 8))]);
    let reports = reports(&script, 9).await;
    assert_eq!(reports[..2], ["begin", "list a"]);
    assert!(reports[2].starts_with("broken: "), "{reports:?}");
    assert_eq!(reports[3..], ["begin", "list a", "list b", "end", "current", "change c"]);
    let asked = script.asked();
    assert!(!asked[1].contains("watch"), "{asked:?}");
    assert!(asked[2].contains("resourceVersion=7"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn h137_a_watch_that_the_api_server_ends_at_an_event_lists_page_by_page() {
    let list = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"deep"}}]}"#;
    // The API server can't encode the event after version 7, also in a streamed list.
    let answers = [bookmark(7), String::new(), String::new(), event("ADDED", "a", 5)];
    let mut answers: Vec<(u16, &str)> = answers.iter().map(|text| (200, text.as_str())).collect();
    let next = event("ADDED", "b", 10);
    answers.extend([(200, list), (200, next.as_str())]);
    let script = Script::of(&answers);
    let reports = reports(&script, 14).await;
    let broken = reports.iter().filter(|report| report.starts_with("broken: ")).count();
    assert_eq!(broken, 3, "{reports:?}");
    assert_eq!(reports[9..], ["begin", "list deep", "end", "current", "change b"], "{reports:?}");
    let asked = script.asked();
    let resumes = |asked: &String| asked.contains("resourceVersion=7");
    assert!(resumes(&asked[1]) && resumes(&asked[2]), "{asked:?}");
    assert!(asked[3].contains("sendInitialEvents") && !asked[4].contains("watch"), "{asked:?}");
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
    let reports = reports(&script, 5).await;
    assert_eq!(reports, ["begin", "list a", "list b", "end", "current"]);
    let asked = script.asked();
    assert!(asked[2].contains("continue=more%26more"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_why_a_watch_fails_and_retries() {
    let forbidden = status(403, "pods is forbidden");
    let whole = bookmark(7);
    let script = Script::of(&[(403, &forbidden), (500, &status(500, "boom")), (200, &whole)]);
    let reports = reports(&script, 5).await;
    assert!(reports[0].contains("pods is forbidden"), "{reports:?}");
    assert!(reports[1].contains("the API server answers 500: boom"), "{reports:?}");
    assert_eq!(reports[2..], ["begin", "end", "current"]);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_watch_is_tried_again_soon() {
    let forbidden = status(403, "pods is forbidden");
    let script = Script::of(&[(403, forbidden.as_str()); 40]);
    let start = tokio::time::Instant::now();
    reports(&script, 40).await;
    assert!(start.elapsed() < Duration::from_secs(40 * 5), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_affects_itself_alone() {
    let listed = [event("ADDED", "bad", 5), event("ADDED", "a", 6), bookmark(7)];
    let changes = [event("ADDED", "bad", 8), event("ADDED", "b", 9), event("DELETED", "bad", 10)];
    let script = Script::of(&[(200, &[listed, changes].concat().concat())]);
    let reports = reports(&script, 8).await;
    let expected =
        ["begin", "list bad", "list a", "end", "current", "change bad", "change b", "remove bad"];
    assert_eq!(reports, expected);
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_after_the_version_of_an_unreadable_object() {
    let first = [bookmark(7), event("MODIFIED", "bad", 9)].concat();
    let script = Script::of(&[(200, &first), (200, &event("ADDED", "b", 10))]);
    let reports = reports(&script, 6).await;
    assert_eq!(reports[3..], ["change bad", "disconnected", "change b"]);
    let asked = script.asked();
    assert!(asked[1].contains("resourceVersion=9") && !asked[1].contains("Initial"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn lists_again_after_an_event_about_an_unknown_object() {
    let nameless = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n";
    let no_event = "{\"type\":\"ADDED\",\"object\":{]}\n";
    for (odd, noted) in [(nameless, "change "), (no_event, "skip")] {
        let first = [bookmark(7), odd.to_owned(), event("ADDED", "b", 9)].concat();
        let script = Script::of(&[(200, &first), (200, &bookmark(10))]);
        let reports = reports(&script, 9).await;
        let expected = [noted, "change b", "disconnected", "begin", "end", "current"];
        assert_eq!(reports[3..], expected, "the watch goes on until the server ends it");
        assert!(script.asked()[1].contains("sendInitialEvents"), "{:?}", script.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_twice_at_the_same_version_lists_again() {
    for (code, lists) in [(500, true), (503, false)] {
        let failed = status(code, "boom");
        let script = Script::of(&[
            (200, &bookmark(7)),
            (code, &failed),
            (code, &failed),
            (200, &bookmark(8)),
        ]);
        let reports = reports(&script, 7).await;
        assert!(
            reports[4].starts_with("broken: ") && reports[5].starts_with("broken: "),
            "{reports:?}"
        );
        let asked = script.asked();
        let resumes = |asked: &String| asked.contains("resourceVersion=7");
        assert!(resumes(&asked[1]) && resumes(&asked[2]), "{asked:?}");
        assert_eq!(asked[3].contains("sendInitialEvents"), lists, "{code}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_watch_that_was_interrupted_is_current_again() {
    use futures_util::{TryStreamExt as _, stream};
    // The watch is never quiet, and receives no bookmarks.
    let lines = stream::unfold(10, |version| async move {
        tokio::time::sleep(Timing::default().feed.quiet / 2).await;
        let event = event("MODIFIED", "b", version).into_bytes();
        (version < 40).then_some((Ok::<_, std::io::Error>(event), version + 1))
    });
    let mut sink = RecordingSink::default();
    let mut version = Some("9".to_owned());
    let since = Some(Instant::now());
    let mut progress = WatchProgress {
        current_since: since,
        outdated_since: since,
        ..WatchProgress::new(Timing::default().feed)
    };
    let caught_up_at = Instant::now() + Timing::default().feed.catch_up;
    let reading = WatchReader {
        sink: &mut sink,
        version: &mut version,
        progress: &mut progress,
        listing: false,
        caught_up_at,
    };
    reading.lines(Box::pin(lines).into_async_read()).await.unwrap();
    let reports = sink.0.lock().unwrap().clone();
    let current = reports.iter().position(|what| what == "current");
    assert!(current.is_some_and(|place| (3..=5).contains(&place)), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_no_failure_and_lists_again_after_the_second_silence() {
    use futures_util::TryStreamExt as _;
    let mut sink = RecordingSink::default();
    let mut version = Some("9".to_owned());
    let mut progress = WatchProgress::new(Timing::default().feed);
    let mut read = async |version: &mut Option<String>, progress: &mut WatchProgress, listing| {
        let lines = futures_util::stream::pending::<std::io::Result<Vec<u8>>>();
        let caught_up_at = Instant::now();
        let reading = WatchReader { sink: &mut sink, version, progress, listing, caught_up_at };
        reading.lines(Box::pin(lines).into_async_read()).await
    };
    for (at, lists) in [("9", false), ("9", true), ("9", false), ("10", false), ("10", true)] {
        version = Some(at.to_owned());
        progress.list_again = false;
        let begun = Instant::now();
        read(&mut version, &mut progress, false).await.unwrap();
        assert_eq!(begun.elapsed(), Timing::default().feed.silence);
        assert_eq!(progress.list_again, lists, "{at}");
        progress.mark_current(&mut RecordingSink::default());
    }
    assert!(read(&mut version, &mut progress, true).await.is_err(), "a list that does not end");
    assert!(sink.0.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_is_reported_in_time_though_the_next_attempt_hangs() {
    let script = Script::of(&[(200, &bookmark(7))]);
    let started = Instant::now();
    let reports = reports(&script, 5).await;
    assert_eq!(reports[..4], ["begin", "end", "current", "disconnected"]);
    assert!(
        reports[4].starts_with("broken: the watch did not begin again within 5 s"),
        "{reports:?}"
    );
    let lasted = started.elapsed();
    let grace = Timing::default().feed.grace;
    assert!(grace <= lasted && lasted < grace + Duration::from_secs(1), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_at_once_is_not_read_again_without_end() {
    let gone = format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410, "too old"));
    let list = [bookmark(7), gone].concat();
    let answers = vec![(200, list.as_str()); 4];
    let script = Script::of(&answers);
    let started = Instant::now();
    let reports = reports(&script, 15).await;
    assert_eq!(reports[12..], ["begin", "end", "current"]);
    // The watch waits three times, each time twice as long.
    assert!(started.elapsed() > Duration::from_secs(1), "{:?}", started.elapsed());
}
