//! The reader accepts any JSON in limited memory, and skipped values don't change the edges.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::graph::{Graph, Strength};
use crate::objects::{Flaw, KindId, Kinds, MAX_REFERENCES, Object};
use crate::relations::{Catalogue, CustomRelation, CustomTarget};

/// The keys of random objects. Many of them occur in paths of relations.
const KEYS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "kind",
    "managedFields",
    "fieldsV1",
    "f:metadata",
    "f:finalizers",
    "v:\"belay.dev/hold\"",
    "time",
    "finalizers",
    "spec",
    "status",
    "template",
    "containers",
    "env",
    "envFrom",
    "configMapRef",
    "valueFrom",
    "secretKeyRef",
    "volumes",
    "secret",
    "secretName",
    "optional",
    "ephemeral",
    "persistentVolumeClaim",
    "claimName",
    "volumeClaimTemplates",
    "replicas",
    "selector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "podSelector",
    "ingress",
    "from",
    "namespaceSelector",
    "kubernetes.io/metadata.name",
    "subjects",
    "roleRef",
    "apiGroup",
    "dataSource",
    "phase",
    "conditions",
    "type",
    "webhooks",
    "clientConfig",
    "service",
    "devices",
    "requests",
    "exactly",
    "deviceClassName",
    "allocation",
    "other",
];

const RESOURCES: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "persistentvolumeclaims"),
    ("", "services"),
    ("apps", "statefulsets"),
    ("apps", "replicasets"),
    ("batch", "jobs"),
    ("networking.k8s.io", "networkpolicies"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("resource.k8s.io", "resourceclaims"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("", "configmaps"),
];

fn catalogue() -> (Graph, Catalogue) {
    let graph = Graph::default();
    let catalogue = Catalogue::new(&graph.kinds, &[]).unwrap();
    (graph, catalogue)
}

fn kind(graph: &Graph, (group, resource): (&str, &str)) -> KindId {
    graph.kinds.find_resource(group, resource).unwrap()
}

/// A value in which many paths select a value.
fn value() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        Just("a".to_owned()),
        Just("ServiceAccount".to_owned()),
        Just("Complete".to_owned()),
        Just("True".to_owned()),
        Just("In".to_owned()),
        Just("Bound".to_owned()),
        "[a-z]{0,8}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(0)),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 96, 6, |inner| {
        let key = prop::sample::select(KEYS).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// An object with readable metadata.
fn object() -> impl Strategy<Value = Value> {
    (value(), value(), value()).prop_map(|(spec, status, managed)| {
        let mut object = json!({"spec": spec.clone(), "status": status, "data": spec, "metadata": {
            "name": "n", "namespace": "ns", "uid": "u", "managedFields": managed,
            "labels": {"a": "b"}, "annotations": {"belay.dev/x": "y", "other": "z"},
            "finalizers": ["belay.dev/hold"], "deletionTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Deployment", "name": "o", "uid": "1"}],
        }});
        for root in ["subjects", "roleRef", "webhooks"] {
            object[root] = object["spec"].clone();
        }
        object
    })
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count_values).sum(),
        Value::Object(map) => map.values().map(count_values).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// The fields, the whole object and the pruned object have the same edges.
    #[test]
    fn skipped_fields_change_no_edges(object in object(), resource in prop::sample::select(RESOURCES)) {
        let (graph, catalogue) = catalogue();
        let kind = kind(&graph, resource);
        let json = object.to_string();
        let read = |json: &str| {
            let (phase, edges) = catalogue.read(&mut graph.kinds.clone(), kind, json).unwrap();
            format!("{phase:?} {edges:?}")
        };
        let (phase, edges) = catalogue.read_whole(&mut graph.kinds.clone(), kind, &object);
        prop_assert_eq!(read(&json), format!("{phase:?} {edges:?}"));
        let pruned = catalogue.prune(kind, &json, |key| key.starts_with("belay.dev/")).unwrap();
        prop_assert_eq!(read(pruned.get()), read(&json));
        let mut whole: Object<'_> = serde_json::from_str(&json).unwrap();
        whole.metadata.annotations.retain(|key, _| key.starts_with("belay.dev/"));
        let slim: Object<'_> = serde_json::from_str(pruned.get()).unwrap();
        prop_assert_eq!(format!("{slim:?}"), format!("{whole:?}"));
    }

    /// The reader returns a result of limited size for any input.
    #[test]
    fn any_text_is_read_or_refused(
        object in object(), cut in any::<prop::sample::Index>(), noise in any::<(u8, u8)>(),
        resource in prop::sample::select(RESOURCES),
    ) {
        let (mut graph, catalogue) = catalogue();
        let kind = kind(&graph, resource);
        let mut bytes = object.to_string().into_bytes();
        let at = cut.index(bytes.len());
        bytes[at] = noise.0;
        if noise.1 % 2 == 0 {
            bytes.truncate(at + 1);
        }
        let json = String::from_utf8_lossy(&bytes);
        if let Ok(pruned) = catalogue.prune(kind, &json, |_| true) {
            let value: Value = serde_json::from_str(pruned.get()).unwrap();
            prop_assert!(count_values(&value) <= json.len() + 64);
        }
        let _ = catalogue.parse_and_apply(&mut graph, kind, &json);
    }
}

/// Inputs of about 1 MiB.
#[test]
fn a_large_object_leaves_few_values() {
    let (graph, catalogue) = catalogue();
    let pods = kind(&graph, ("", "pods"));
    let mib = 1 << 20;
    let deep = |open: &str, close: &str| {
        let levels = mib / (open.len() + close.len());
        format!("{}1{}", open.repeat(levels), close.repeat(levels))
    };
    let wide = |element: &str| format!("[{}1]", element.repeat(mib / element.len()));
    let text = format!("\"{}\"", "<".repeat(mib));
    for body in [
        deep("[", "]"),
        deep("{\"f:a\":", "}"),
        deep("{\"volumes\":[", "]}"),
        wide("{\"a\":1},"),
        wide("[[]],"),
        text.clone(),
        format!("{{\"volumes\":{text},\"containers\":{{}},\"imagePullSecrets\":{{}}}}"),
        format!("{{\"nodeName\":{text},\"serviceAccountName\":{text}}}"),
        format!("{{\"nodeName\":{}}}", deep("{\"name\":", "}")),
        format!("{{\"volumes\":[{{\"secret\":{{\"secretName\":{text}}}}}]}}"),
    ] {
        for json in [
            format!(r#"{{"metadata":{{"name":"a"}},"spec":{body}}}"#),
            format!(r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{body}}}]}}}}"#),
            format!(r#"{{"data":{body},"metadata":{{"name":"a","selfLink":{body}}}}}"#),
        ] {
            let pruned = catalogue.prune(pods, &json, |_| false).unwrap();
            assert!(pruned.get().len() < 2048, "{}", pruned.get().len());
            let fields = catalogue.by_kind_fields(pods).unwrap();
            let whole = fields.read(&json, usize::MAX).unwrap().unwrap();
            assert!(count_values(&whole) < 16, "{}", count_values(&whole));
        }
    }
}

/// If relations read each element of a list, the result grows linearly with the length of the
/// list.
#[test]
fn work_grows_linearly() {
    let (graph, catalogue) = catalogue();
    let pods = kind(&graph, ("", "pods"));
    let fields = catalogue.by_kind_fields(pods).unwrap();
    for element in
        ["{}", "0", r#"{"secret":{"secretName":"s"}}"#, r#"{"projected":{"sources":[{},{}]}}"#]
    {
        let read = |count: usize| {
            let list = vec![element; count].join(",");
            let json = format!(r#"{{"spec":{{"volumes":[{list}]}}}}"#);
            count_values(&fields.read(&json, usize::MAX).unwrap().unwrap())
        };
        let (few, many) = (read(1_000), read(10_000));
        assert!(many <= 10 * few, "{element}: {few}, {many}");
    }
}

/// Objects of many shapes with too many references: the stored size is limited, and the object is
/// marked if it exceeds the limit.
#[test]
fn an_object_has_a_bounded_number_of_references() {
    let (graph, catalogue) = catalogue();
    let list = |element: &str, count: usize| vec![element; count].join(",");
    let map =
        |count: usize| (0..count).map(|n| format!(r#""k{n}":"v""#)).collect::<Vec<_>>().join(",");
    let shapes: [(&str, &dyn Fn(usize) -> String); 7] = [
        ("pods", &|n| {
            let sources = list(r#"{"configMap":{"name":"a"}}"#, n);
            format!(r#"{{"volumes":[{{"projected":{{"sources":[{sources}]}}}}]}}"#)
        }),
        ("pods", &|n| {
            let volumes = list(r#"{"name":"a","ephemeral":{}}"#, n);
            format!(r#"{{"volumes":[{volumes}]}}"#)
        }),
        ("pods", &|n| format!(r#"{{"volumes":[{}]}}"#, list("{}", n))),
        ("pods", &|n| {
            let env = list(r#"{"valueFrom":{"secretKeyRef":{"name":"a"}}}"#, n);
            format!(r#"{{"containers":[{{"env":[{env}]}}]}}"#)
        }),
        ("services", &|n| format!(r#"{{"selector":{{{}}}}}"#, map(n))),
        ("poddisruptionbudgets", &|n| {
            let values = list(r#""a""#, n);
            let requirement = format!(r#"{{"key":"k","operator":"In","values":[{values}]}}"#);
            format!(r#"{{"selector":{{"matchExpressions":[{requirement}]}}}}"#)
        }),
        ("statefulsets", &|n| {
            let claims = list(r#"{"metadata":{"name":"data"}}"#, n);
            format!(r#"{{"volumeClaimTemplates":[{claims}]}}"#)
        }),
    ];
    for (shape, (resource, spec)) in shapes.iter().enumerate() {
        let (kind, _) = graph.kinds.iter().find(|(_, info)| info.resource == *resource).unwrap();
        let mut is_over_limit = false;
        for count in [1, 1_000, 4_000, 4_001, 5_000, 20_000, 70_000] {
            let json =
                format!(r#"{{"metadata":{{"name":"a","namespace":"n"}},"spec":{}}}"#, spec(count));
            let (_, edges) = catalogue.read(&mut graph.kinds.clone(), kind, &json).unwrap();
            let selected: usize =
                edges.selector_edges.iter().map(|edge| 1 + edge.selector.match_steps()).sum();
            let kept = edges.uses.len() + selected;
            assert!(kept <= 2 * MAX_REFERENCES, "{shape} {count}: {kept}");
            assert!(!edges.too_many || kept == 0);
            assert!(edges.too_many || !is_over_limit, "{shape} {count}: no mark");
            is_over_limit |= edges.too_many;
            let pruned = catalogue.prune(kind, &json, |_| false);
            let flaw = pruned.err().map(|unreadable| unreadable.flaw);
            assert_eq!(flaw, edges.too_many.then_some(Flaw::TooManyReferences));
            assert!(count > 1_000 || !is_over_limit, "{shape} {count}");
        }
        assert!(is_over_limit, "{shape}");
    }
    // The reader does not parse the text after the last value within the limit.
    let pods = kind(&graph, ("", "pods"));
    let fields = catalogue.by_kind_fields(pods).unwrap();
    let json = format!(r#"{{"spec":{{"volumes":[{} no JSON"#, list("{}", 200));
    assert_eq!(fields.read(&json, 100).unwrap(), None);
}

/// A key of a map is a part of the path of every edge below it.
#[test]
fn long_paths_count_more() {
    let mut kinds = Kinds::default();
    let widgets = kinds.learn(Kinds::custom("x.dev", "v1", "Widget", "widgets", true));
    let to = CustomTarget::Name {
        group: String::new(),
        resource: "configmaps".to_owned(),
        name: Path::parse("spec.by{*}[*].name").unwrap(),
        namespace: None,
    };
    let from = ("x.dev", "widgets");
    let relation = CustomRelation::new("r", from, to, Strength::Needs, None).unwrap();
    let catalogue = Catalogue::new(&kinds, &[relation]).unwrap();
    for (key, too_many) in [(10, false), (4_000, true)] {
        let list = vec![r#"{"name":"a"}"#; 3_000].join(",");
        let json = format!(
            r#"{{"metadata":{{"name":"w","namespace":"n"}},"spec":{{"by":{{"{}":[{list}]}}}}}}"#,
            "k".repeat(key)
        );
        let (_, edges) = catalogue.read(&mut kinds.clone(), widgets, &json).unwrap();
        assert_eq!(edges.too_many, too_many);
    }
}

#[test]
fn invalid_json_is_refused() {
    let (graph, catalogue) = catalogue();
    let pods = kind(&graph, ("", "pods"));
    // belay reads a number that is too large as `null`.
    for json in ["", "7", "[]", "{", "{\"spec\":}", "{} {}", "\u{0}", "{\"spec\":1e999}"] {
        assert!(catalogue.prune(pods, json, |_| true).is_err() || json.contains("1e999"), "{json}");
    }
}
