//! An invalid review gets an answer, and belay keeps running.

use std::io::{Read as _, Write as _};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::client::{self, Client};
use crate::harness::Belay;
use crate::{belay, sample};

/// One belay for all of these: each test also checks that the others did it no harm.
fn shared() -> &'static Belay {
    static BELAY: OnceLock<(Belay, tempfile::TempDir)> = OnceLock::new();
    &BELAY.get_or_init(|| belay(&["--deadline=2"])).0
}

fn client() -> Client {
    crate::client(shared())
}

/// Checks one bad body: the code, and words of the sentence.
fn check(body: impl AsRef<[u8]>, code: u16, words: &[&str]) {
    let answer = client().post("/validate", body);
    assert_eq!(answer.code, code, "{answer:?}");
    for word in words {
        assert!(answer.body.contains(word), "{word:?} is not in {:?}", answer.body);
    }
    assert!(answer.body.len() < 600, "a sentence, not a page: {}", answer.body);
}

#[test]
fn invalid_json_is_reported_with_its_place() {
    check("", 400, &["the body is empty", "AdmissionReview"]);
    check("{\"apiVersion\": nonsense}", 400, &["not JSON", "line 1 column 17"]);
    check("\u{feff}{}", 400, &["not JSON", "line 1 column 1"]);
    check(&sample("delete-denied.json")[..300], 400, &["not JSON", "ends too early", "line 9"]);
    check(b"{\"apiVersion\": \"\xff\xfe\"}", 400, &["not JSON", "line 1"]);
}

#[test]
fn unexpected_json_is_reported_with_the_expected_type() {
    check("[]", 400, &["expected"]);
    check(
        r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}"#,
        400,
        &["v1beta1"],
    );
    check("3", 400, &["not a valid AdmissionReview"]);
    check("{}", 400, &["apiVersion \"\"", "expected \"admission.k8s.io/v1\""]);
    let beta =
        sample("delete-denied.json").replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    check(beta, 400, &["\"admission.k8s.io/v1beta1\"", "expected \"admission.k8s.io/v1\""]);
    let other = sample("delete-denied.json").replace("AdmissionReview", "ConversionReview");
    check(other, 400, &["\"ConversionReview\"", "\"AdmissionReview\""]);
    let review = |request| {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
            .to_string()
    };
    check(review(json!(null)), 400, &["has no request"]);
    check(review(json!({})), 400, &["missing field `uid`"]);
    check(
        review(json!({"uid": "1", "operation": "PROD", "resource": {"resource": "a"}})),
        400,
        &["wrong type at line 1 column"],
    );
    check(
        review(json!({"uid": "1", "operation": "DELETE", "resource": 5})),
        400,
        &["line 1 column"],
    );
    let long = "x".repeat(1 << 20);
    check(json!({"apiVersion": long, "kind": long}).to_string(), 400, &["expected"]);
}

#[test]
fn duplicate_keys_are_refused() {
    let twice = sample("delete-denied.json")
        .replace("\"dryRun\": false", "\"dryRun\": false, \"dryRun\": true");
    check(twice, 200, &["duplicate field `dryRun`", "\"allowed\":false"]);
}

#[test]
fn deep_nesting_and_huge_numbers_are_skipped_or_refused() {
    let deep = |open: &str, close: &str| {
        let nested = format!("{}1{}", open.repeat(200_000), close.repeat(200_000));
        sample("delete-denied.json").replace("{\"currency\": \"EUR\"}", &nested)
    };
    for body in [deep("[", "]"), deep("{\"a\":", "}")] {
        let answer = client().post("/validate", &body);
        assert_eq!(answer.code, 200, "{answer:?}");
        assert_eq!(answer.json()["response"]["allowed"], false);
    }
    let huge = format!("1{}", "0".repeat(100_000));
    for number in [huge.as_str(), "1e999999999", "-0.0000000000000000000000000000000001"] {
        let body = sample("delete-denied.json").replace("\"EUR\"", number);
        let answer = client().post("/validate", &body);
        assert!(matches!(answer.code, 200 | 400), "{answer:?}");
    }
    let deep_metadata =
        sample("delete-denied.json").replace("[\"belay.dev/hold\"]", &"[".repeat(5000));
    assert_eq!(client().post("/validate", deep_metadata).code, 400);
}

#[test]
fn an_unreadable_object_is_answered_by_the_failure_policy() {
    let body = sample("delete-denied.json").replace("[\"belay.dev/hold\"]", "\"not a list\"");
    let answer = client().post("/validate", &body).json();
    let response = &answer["response"];
    assert_eq!(response["allowed"], false);
    assert_eq!(response["uid"], "0b1a1a52-6f27-4c0e-9d0d-6c7d8b2f1a01");
    assert_eq!(response["status"]["reason"], "Unknown");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.contains("configmap \"settings\"") && message.contains("line 21"), "{message}");
    assert!(response["warnings"][0].as_str().unwrap().contains("could not read"));

    // A DELETE without an object can't be judged.
    let nothing = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE","resource":{"resource":"pods"},"name":"a"}}"#;
    let answer = client().post("/validate", nothing).json();
    assert_eq!(answer["response"]["status"]["reason"], "Unknown", "{answer}");

    let (open, _folder) = belay(&["--failure-policy=Ignore"]);
    let answer = crate::client(&open).post("/validate", &body).json();
    assert_eq!(answer["response"]["allowed"], true);
    assert!(answer["response"]["warnings"][0].as_str().unwrap().contains("could not read"));
}

#[test]
fn other_requests_than_post_of_json_get_an_error() {
    let answer = client().post_as("/validate", "application/yaml", "{}");
    assert_eq!(answer.code, 415);
    assert!(answer.body.contains("\"application/yaml\"; expected application/json"));
    let with_charset = client().post_as(
        "/validate",
        "Application/JSON; charset=utf-8",
        sample("delete-denied.json"),
    );
    assert_eq!(with_charset.code, 200);
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let request = format!("{method} /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let answer = client().raw(request.as_bytes()).unwrap();
        assert_eq!(answer.code, 405, "{method}");
        assert!(answer.head.contains("allow: post"), "{}", answer.head);
    }
    assert_eq!(client().post("/", "{}").code, 404);
    assert_eq!(client().post("/metrics", "{}").code, 404, "metrics are not on the TLS listener");
}

#[test]
fn h33_a_body_over_the_limit_is_413_and_one_of_unknown_size_411() {
    let request = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let announced = format!("{request}Content-Length: 41943041\r\n\r\n");
    let answer = client().raw(announced.as_bytes()).unwrap();
    assert_eq!(answer.code, 413);
    assert!(answer.body.contains("41943040 bytes"), "{}", answer.body);

    // A body of unknown size is not read.
    let chunked = format!("{request}Transfer-Encoding: chunked\r\n\r\n100000\r\n{{");
    let answer = client().raw(chunked.as_bytes()).unwrap();
    assert_eq!(answer.code, 411);
    assert!(answer.body.contains("Content-Length"), "{}", answer.body);

    // The largest allowed body is read: JSON may contain spaces.
    let mut largest = sample("delete-denied.json").into_bytes();
    largest.resize(40 << 20, b' ');
    assert_eq!(client().post("/validate", largest).code, 200);
}

/// An answer without a request is used for the next request, which passes where a webhook
/// has failurePolicy Ignore.
#[test]
fn h94_a_connection_that_has_sent_nothing_is_sent_nothing() {
    let [mut silent, mut slow] = [(); 2].map(|()| client().connect().unwrap());
    slow.write_all(b"POST").unwrap();
    slow.flush().unwrap();
    let mut rest = Vec::new();
    // It ends after the timeout.
    let _ = slow.read_to_end(&mut rest);
    let review = sample("delete-denied.json");
    client::send(&mut silent, "/validate", "application/json", review.as_bytes()).unwrap();
    assert_eq!(client::receive(&mut silent).unwrap().code, 200);
}

#[test]
fn slow_senders_get_an_answer_or_a_closed_connection_within_the_deadline() {
    // Its start is not measured.
    shared();
    let start = Instant::now();
    let heads = [
        // Never sends its head.
        "POST /validate HTTP/1.1\r\nHost: a\r\n",
        // Sends its head and never its body.
        "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
        // The caller gives up before belay's own deadline.
        "POST /validate?timeout=1s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ];
    std::thread::scope(|scope| {
        for head in heads {
            scope.spawn(move || {
                let mut connection = client().connect().unwrap();
                connection.write_all(head.as_bytes()).unwrap();
                connection.flush().unwrap();
                let mut rest = Vec::new();
                // A close without a TLS close_notify is an end too.
                let _ = connection.read_to_end(&mut rest);
                let took = start.elapsed();
                assert!(took < Duration::from_secs(15), "{took:?} for {head:?}");
                let text = String::from_utf8_lossy(&rest);
                assert!(text.is_empty() || text.contains(" 408 "), "{text}");
            });
        }
        // A second request head on a valid connection.
        scope.spawn(move || {
            let mut connection = client().connect().unwrap();
            let review = sample("delete-denied.json");
            client::send(&mut connection, "/validate", "application/json", review.as_bytes())
                .unwrap();
            assert_eq!(client::receive(&mut connection).unwrap().code, 200);
            let ended = "POST /validate HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                .bytes()
                .any(|byte| {
                    crate::harness::pause(Duration::from_millis(100));
                    connection.write_all(&[byte]).and_then(|()| connection.flush()).is_err()
                });
            assert!(ended, "a head that drips for six seconds was waited for");
        });
        // A drip: each byte is in time, the whole is not.
        scope.spawn(|| {
            let mut connection = client().connect().unwrap();
            write!(connection, "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n").unwrap();
            let ended = (0..200).any(|_| {
                crate::harness::pause(Duration::from_millis(50));
                connection.write_all(b" ").and_then(|()| connection.flush()).is_err()
            });
            assert!(ended, "ten seconds of dripping were accepted");
        });
    });
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(client().post("/validate", sample("delete-denied.json")).code, 200);
}

#[test]
fn stalled_senders_cost_next_to_no_memory() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let client = crate::client(&belay);
    assert_eq!(client.post("/validate", sample("delete-denied.json")).code, 200);
    let before = belay.process.memory().unwrap();
    let head = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
                Content-Length: 8000000\r\nExpect: 100-continue\r\n\r\n";
    let open: Vec<_> = (0..50)
        .map(|_| {
            let mut connection = client.connect().unwrap();
            connection.write_all(head.as_bytes()).unwrap();
            connection.flush().unwrap();
            // The answer 100 shows that it waits for the body.
            assert_eq!(client::receive(&mut connection).unwrap().code, 100);
            connection.write_all(b"{").unwrap();
            connection.flush().unwrap();
            connection
        })
        .collect();
    let after = belay.process.memory().unwrap();
    drop(open);
    // 50 × 8 MB would be 400 MB.
    let grown = after.saturating_sub(before);
    assert!(grown < 100_000, "{before} KiB before, {after} KiB with 50 stalled senders");
}

#[test]
fn a_truncated_body_is_no_crash() {
    for length in [0, 1, 50] {
        let mut connection = client().connect().unwrap();
        write!(connection, "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n").unwrap();
        connection.write_all(&vec![b'{'; length]).unwrap();
        connection.flush().unwrap();
        connection.sock.shutdown(std::net::Shutdown::Both).unwrap();
    }
    assert_eq!(client().post("/validate", sample("delete-denied.json")).code, 200);
}

/// Arbitrary bytes, and real reviews with bytes changed, removed and inserted: each gets an
/// answer.
#[test]
fn arbitrary_bytes_and_mutated_reviews_get_an_answer() {
    let reviews = [sample("delete-denied.json"), sample("create-held.json")];
    let mutated = (
        any::<prop::sample::Index>(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    )
        .prop_map(move |(which, changes)| {
            let mut bytes = which.get(&reviews).clone().into_bytes();
            for (at, byte, how) in changes {
                let at = at.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()).max(at))),
                    _ => bytes.insert(at, byte),
                }
                if bytes.is_empty() {
                    bytes.push(b' ');
                }
            }
            bytes
        });
    let bodies = prop_oneof![prop::collection::vec(any::<u8>(), 0..2000), mutated];
    let paths = prop_oneof![Just("/validate"), Just("/mutate")];
    let mut runner =
        TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&(paths, bodies), |(path, body)| {
            let answer = client().post(path, &body);
            prop_assert!(matches!(answer.code, 200 | 400), "{answer:?}");
            if answer.code == 200 {
                prop_assert!(answer.json()["response"]["allowed"].is_boolean());
            } else {
                prop_assert!(!answer.body.trim().is_empty());
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn no_body_reaches_a_log() {
    let (belay, _folder) = belay(&["--log-format=json", "--failure-policy=Fail"]);
    let secret = "aHVudGVyMg-a-secret";
    let with_secret = sample("delete-denied.json").replace("EUR", secret);
    let client = crate::client(&belay);
    assert_eq!(client.post("/validate", &with_secret).code, 200);
    let quoted = format!("\"{secret}\"");
    for broken in [
        // A parser that expects another type may quote the value.
        with_secret.replace("[\"belay.dev/hold\"]", &quoted),
        with_secret.replace("{\"belay.dev/protect\": \"Always\"}", &quoted),
        with_secret.replace("\"DELETE\"", &quoted),
        with_secret.replace("\"dryRun\": false", &format!("\"dryRun\": {quoted}")),
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{quoted}}}"#
        ),
        with_secret.replace("[\"belay.dev/hold\"]", "7"),
        with_secret.replace("\"uid\"", "\"uid"),
        with_secret[..with_secret.len() - 9].to_owned(),
    ] {
        let answer = client.post("/validate", &broken);
        assert!(!answer.body.contains(secret), "{answer:?}");
    }
    let log = belay.process.log();
    assert!(log.contains("denied") && log.contains("bad request"), "{log}");
    assert!(!log.contains(secret), "{log}");
}
