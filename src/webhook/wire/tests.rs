//! Tests which reviews belay parses, and how much of them it reads.

use super::*;
use crate::objects::OwnerReference;

fn review(groups: usize, field: &str, value: &str) -> Vec<u8> {
    let groups = (0..groups).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(",");
    let object = format!(r#"{{"metadata":{{"name":"a","{field}":{value}}}}}"#);
    let request = format!(
        r#"{{"uid":"1","operation":"DELETE","resource":{{"resource":"configmaps"}},"name":"a",
        "userInfo":{{"username":"jane","groups":[{groups}]}},"oldObject":{object}}}"#
    );
    format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{request}}}"#).into()
}

#[test]
fn h34_a_review_has_a_bounded_number_of_groups() {
    let body = review(entry_limits::MAX_GROUPS, "labels", "null");
    let Parsed::Review(read) = parse(&body, AdmissionPhase::Validate).unwrap() else {
        panic!("the review is unreadable")
    };
    assert_eq!(read.requester.groups.len(), entry_limits::MAX_GROUPS);
    let body = review(entry_limits::MAX_GROUPS + 1, "labels", "null");
    let Parsed::Unreadable { detail, .. } = parse(&body, AdmissionPhase::Validate).unwrap() else {
        panic!("belay accepts too many groups")
    };
    assert!(detail.contains("more than 10000 groups in userInfo"), "{detail}");
}

#[test]
fn h71_long_lists_are_counted_in_bytes_of_memory() {
    let bytes = |groups: usize| {
        let body = review(groups, "labels", "null");
        let Parsed::Review(read) = parse(&body, AdmissionPhase::Validate).unwrap() else {
            panic!("the review is unreadable")
        };
        read.list_bytes()
    };
    assert!(bytes(1_000) - bytes(0) >= 1_000 * size_of::<Text<'_>>());
    let metadata = r#"{"labels": {"a": ""}, "finalizers": ["a.b/c", "a.b/d"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}"#;
    let metadata: Metadata<'_> = serde_json::from_str(metadata).unwrap();
    let (text, reference) = (size_of::<Text<'_>>(), size_of::<OwnerReference<'_>>());
    assert_eq!(metadata.list_bytes(), 5 * text + reference);
    // A text with an escape sequence is copied.
    let escaped: Metadata<'_> = serde_json::from_str(r#"{"labels": {"a": "\n\n"}}"#).unwrap();
    assert!(escaped.list_bytes() > 3 * text + 2);
}

#[test]
fn h76_a_propagation_policy_of_a_million_bytes_is_not_copied() {
    for policy in ["x".repeat(1 << 20), format!("{}\\n", "x".repeat(1 << 20))] {
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"7",
            "resource":{{"resource":"pods"}},"name":"a","operation":"DELETE","oldObject":{{}},
            "options":{{"propagationPolicy":"{policy}"}}}}}}"#
        );
        let Parsed::Unreadable { detail, .. } =
            parse(body.as_bytes(), AdmissionPhase::Validate).unwrap()
        else {
            panic!("belay accepts the long text")
        };
        assert!(detail.contains("line 3"), "{detail}");
    }
}

#[test]
fn h64_a_late_review_is_answered_without_its_objects() {
    let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7",
        "resource":{"resource":"pods"},"name":"a","operation":"DELETE","userInfo":{"username":"jane"}
        ,"object":null,"oldObject":{"metadata"#;
    let truncated = truncate_before_objects(body);
    let Parsed::Unreadable { uid, detail, target, .. } =
        parse_truncated(&truncated, NO_TIME).unwrap()
    else {
        panic!("belay finds objects")
    };
    assert_eq!((&*uid, &*target.name), ("7", "a"));
    assert!(detail.contains("no time left"), "{detail}");
    assert_eq!(parse_truncated(b"}}", NO_TIME).err().unwrap().code, StatusCode::BAD_REQUEST);
    // An authenticator sent an `extra` field with the name `object`.
    let body =
        br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"7",
        "resource":{"resource":"pods"},"name":"a","operation":"DELETE",
        "userInfo":{"extra":{"a":[],"object":[]}},"object":null,"oldObject":{"metadata"#;
    assert!(parse_truncated(&truncate_before_objects(body), NO_TIME).is_ok());
}

#[test]
fn h34_an_object_of_a_review_has_a_bounded_number_of_entries() {
    let finalizers = |count| format!("[{}]", vec!["\"a\""; count].join(","));
    let labels = |count| {
        let entries: Vec<String> = (0..count).map(|n| format!("\"{n}\":\"\"")).collect();
        format!("{{{}}}", entries.join(","))
    };
    let owner = r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"a"}"#;
    let owners = |count| format!("[{}]", vec![owner; count].join(","));
    for (field, most, one_more) in [
        ("finalizers", finalizers(799_900), finalizers(800_001)),
        ("labels", labels(199_900), labels(200_001)),
        ("annotations", labels(199_900), labels(200_001)),
        ("ownerReferences", owners(199_900), owners(200_001)),
    ] {
        let body = review(0, field, &most);
        let read = parse(&body, AdmissionPhase::Validate).unwrap();
        assert!(matches!(read, Parsed::Review(_)), "{field}");
        let body = review(0, field, &one_more);
        let Parsed::Unreadable { detail, requester, .. } =
            parse(&body, AdmissionPhase::Validate).unwrap()
        else {
            panic!("{field} is not bounded")
        };
        assert!(detail.starts_with("more than ") && requester.name == "jane", "{detail}");
    }
}

/// An UPDATE that drops the hold, of an object with these fields and metadata.
fn update(resource: &str, fields: &str, metadata: &str) -> Vec<u8> {
    let object = |finalizers: &str| {
        format!(r#"{{"metadata":{{"name":"a","uid":"u"{finalizers}{metadata}}}{fields}}}"#)
    };
    let held = object(r#","finalizers":["belay.dev/hold"]"#);
    format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{"uid":"1","operation":"UPDATE",
        "resource":{{"resource":"{resource}"}},"name":"a","userInfo":{{"username":"jane"}},
        "object":{},"oldObject":{held}}}}}"#,
        object("")
    )
    .into()
}

/// Parses a review, and returns the reason if it is unreadable.
fn reads(body: &[u8]) -> Result<(), String> {
    match parse(body, AdmissionPhase::Mutate).unwrap() {
        Parsed::Review(_) => Ok(()),
        Parsed::Unreadable { detail, .. } => Err(detail),
    }
}

/// `count` entries of a map.
fn entries(count: usize) -> String {
    let entries: Vec<String> = (0..count).map(|n| format!("\"{n}\":\"\"")).collect();
    entries.join(",")
}

#[test]
fn h49_the_second_parse_is_bounded() {
    let finalizers =
        |count| format!(r#","spec":{{"finalizers":[{}]}}"#, vec!["\"\""; count].join(","));
    let fields = |count| format!(",{}", entries(count));
    // belay reads every review whose objects can be stored.
    assert_eq!(reads(&update("namespaces", &finalizers(600_000), "")), Ok(()));
    assert_eq!(reads(&update("configmaps", &fields(190_000), "")), Ok(()));
    assert_eq!(reads(&update("configmaps", "", &fields(190_000))), Ok(()));
    for body in [
        update("namespaces", &finalizers(900_000), ""),
        update("configmaps", &fields(210_000), ""),
        update("configmaps", "", &fields(210_000)),
    ] {
        let detail = reads(&body).unwrap_err();
        assert!(detail.starts_with("more than "), "{detail}");
    }
    // A spec of another type has no lists.
    for spec in ["null", "7", "\"text\"", "[1]", r#"{"finalizers":{"a":[]}}"#] {
        assert_eq!(reads(&update("namespaces", &format!(r#","spec":{spec}"#), "")), Ok(()));
        let large = format!(r#","spec":{spec},"a":"{}""#, "a".repeat(1 << 20));
        assert_eq!(reads(&update("namespaces", &large, "")), Ok(()), "{spec}");
    }
}

#[test]
fn h50_the_texts_that_an_answer_repeats_are_bounded() {
    let long = "n".repeat(1_025);
    let sample = String::from_utf8(review(1, "generateName", "\"g\"")).unwrap();
    let options = r#""name":"a","namespace":"b","subResource":"c""#;
    let sample = sample.replacen(r#""name":"a""#, options, 1);
    assert!(matches!(
        parse(sample.as_bytes(), AdmissionPhase::Validate).unwrap(),
        Parsed::Review(_)
    ));
    for (short, text) in [
        (r#""uid":"1""#, format!(r#""uid":"{long}""#)),
        (r#""resource":"configmaps""#, format!(r#""resource":"{long}""#)),
        (r#""resource":"configmaps""#, format!(r#""resource":"configmaps","group":"{long}""#)),
        (r#""name":"a""#, format!(r#""name":"{long}""#)),
        (r#""namespace":"b""#, format!(r#""namespace":"{long}""#)),
        (r#""subResource":"c""#, format!(r#""subResource":"{long}""#)),
        (r#""username":"jane""#, format!(r#""username":"{long}""#)),
        (r#""metadata":{"name":"a""#, format!(r#""metadata":{{"name":"{long}""#)),
        (r#""generateName":"g""#, format!(r#""generateName":"{long}""#)),
        (r#""generateName":"g""#, format!(r#""namespace":"{long}""#)),
        (r#""generateName":"g""#, format!(r#""uid":"{long}""#)),
    ] {
        let body = sample.replacen(short, &text, 1);
        assert_ne!(body, sample, "{short}");
        // An HTTP error would let the request pass with failurePolicy Ignore. Only the uid,
        // which the API server creates, may cause one.
        match parse(body.as_bytes(), AdmissionPhase::Validate) {
            Err(refused) => {
                assert_eq!((refused.code, short), (StatusCode::BAD_REQUEST, r#""uid":"1""#));
                assert!(refused.message.len() < 200 && refused.message.contains("1024 bytes"));
            }
            Ok(Parsed::Unreadable { detail, target, requester, .. }) => {
                assert!(detail.contains("1024 bytes"), "{detail}");
                let texts = [target.name, target.namespace, target.resource, target.group];
                assert!(
                    texts.iter().all(|text| text.len() <= 1_024) && requester.name.len() <= 1_024
                );
            }
            Ok(Parsed::Review(review)) => {
                let object = review.object.as_ref().or(review.old_object.as_ref()).unwrap();
                assert_eq!(object.metadata.generate_name.len(), 1_024, "{short}");
                assert!(text.contains("generateName"));
            }
        }
    }
    // The limits also apply to an unreadable review.
    let body = sample.replace(r#""generateName":"g""#, r#""generateName":7"#);
    assert!(matches!(
        parse(body.as_bytes(), AdmissionPhase::Validate),
        Ok(Parsed::Unreadable { .. })
    ));
    let body = body.replace(r#""uid":"1""#, &format!(r#""uid":"{long}""#));
    assert!(parse(body.as_bytes(), AdmissionPhase::Validate).is_err());
}

#[test]
fn h56_all_lists_of_an_object_have_one_bound() {
    let finalizers = vec!["\"a\""; 400_000].join(",");
    let finalizers = format!(r#","finalizers":[{finalizers}]"#);
    let labels = format!(r#","labels":{{{}}}"#, entries(50_000));
    let annotations = format!(r#","annotations":{{{}}}"#, entries(60_000));
    let owner = r#"{"apiVersion":"v1","kind":"Pod","name":"a","uid":"a"}"#;
    let owners = format!(r#","ownerReferences":[{}]"#, vec![owner; 60_000].join(","));
    let read_lists = |lists: String| {
        let metadata = format!(r#"{{"name":"a"{lists}}}"#);
        let body = String::from_utf8(review(0, "x", "0")).unwrap();
        let body = body.replace(r#"{"name":"a","x":0}"#, &metadata);
        reads(body.as_bytes())
    };
    assert_eq!(read_lists(format!("{finalizers}{labels}")), Ok(()));
    assert_eq!(read_lists(format!("{labels}{annotations}{owners}")), Ok(()));
    let detail = read_lists(format!("{finalizers}{labels}{annotations}")).unwrap_err();
    assert!(detail.starts_with("more than "), "{detail}");
    let detail = read_lists(format!("{finalizers}{owners}{annotations}")).unwrap_err();
    assert!(detail.starts_with("more than "), "{detail}");
}

#[test]
fn reads_the_finalizers_of_a_namespace_whatever_its_managed_fields_are() {
    let deep = format!("{}{{}}{}", "{\"f:a\":".repeat(300), "}".repeat(300));
    let namespace = |finalizers: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"shop","managedFields":[
            {{"fieldsV1":{deep}}},{{"fieldsV1":{{"f:XX":{{}}}}}}]}},"spec":{{"finalizers":{finalizers}}}}}"#
        )
    };
    let review = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","operation":"UPDATE",
        "resource":{{"group":"","version":"v1","resource":"namespaces"}},"subResource":"finalize","name":"shop",
        "userInfo":{{"username":"jane"}},"object":{},"oldObject":{}}}}}"#,
        namespace("[]"),
        namespace(r#"["kubernetes"]"#)
    );
    // Bytes that are no valid text.
    let mut body = review.into_bytes();
    while let Some(at) = body.windows(2).position(|two| two == b"XX") {
        body[at..at + 2].fill(0xff);
    }
    let Parsed::Review(review) = parse(&body, AdmissionPhase::Validate).unwrap() else {
        panic!("the review is unreadable")
    };
    assert_eq!(review.details.old_spec_finalizers, ["kubernetes"]);
    assert_eq!(review.details.new_spec_finalizers, Vec::<String>::new());
    assert!(review.details.rest_changes);
}

#[test]
fn h46_an_eviction_has_the_options_of_its_delete() {
    let read = |options: &str| {
        let request = format!(
            r#"{{"uid":"1","operation":"CREATE","resource":{{"resource":"pods"}},"subResource":"eviction",
            "name":"a","options":{{"dryRun":[]}},"object":{{"metadata":{{"name":"a"}}{options}}}}}"#
        );
        let body =
            format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{request}}}"#);
        match parse(body.as_bytes(), AdmissionPhase::Validate).unwrap() {
            Parsed::Review(review) => Ok(review.options.propagation_policy.map(|p| p.to_string())),
            Parsed::Unreadable { detail, .. } => Err(detail),
        }
    };
    let orphan = r#","deleteOptions":{"gracePeriodSeconds":0,"propagationPolicy":"Orphan"}"#;
    assert_eq!(read(orphan), Ok(Some("Orphan".to_owned())));
    assert_eq!(read(r#","deleteOptions":null"#), Ok(None));
    assert_eq!(read(""), Ok(None));
    assert!(read(r#","deleteOptions":{"propagationPolicy":1}"#).is_err());
}

#[test]
fn h193_the_namespace_of_a_review_has_a_name_that_the_api_server_accepts() {
    let is_read = |resource: &str, name: &str, namespace: &str| {
        let request = format!(
            r#"{{"uid":"1","operation":"DELETE","resource":{{"resource":"{resource}"}},
            "name":"{name}","namespace":"{namespace}","oldObject":{{"metadata":{{"name":"a"}}}}}}"#
        );
        let body =
            format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{request}}}"#);
        let parsed = parse(body.as_bytes(), AdmissionPhase::Validate).unwrap();
        matches!(parsed, Parsed::Review(_))
    };
    assert!(is_read("roles", "admin:team?", "team-b") && is_read("nodes", "a.example.com", ""));
    for namespace in ["b/serviceaccounts/default/token?x=", "..", "b%2fpods", "B", "a.b", "-b"] {
        assert!(!is_read("roles", "admin", namespace), "{namespace}");
        assert!(!is_read("namespaces", namespace, "shop"), "{namespace}");
    }
}
