//! The names of objects, and versions.

use serde_json::Value;

use crate::helm::{Render, yaml};

/// The longest name that helm allows.
const LONG: &str = "a-release-whose-name-is-as-long-as-helm-allows-it-xyz";

#[test]
fn names_fit_where_kubernetes_is_narrow() {
    assert_eq!(LONG.len(), 53);
    let everything = crate::helm::chart().join("ci/everything-values.yaml");
    let renders = [
        Render::named(LONG).with(&everything).set("fullnameOverride=\"\""),
        Render::default().with(&everything).set(&format!("fullnameOverride={:?}", "n".repeat(30))),
    ];
    for render in renders {
        let objects = render.objects();
        let mut seen = std::collections::BTreeSet::new();
        for object in &objects.0 {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{name} has {}", name.len());
            assert!(!name.contains("--") && !name.ends_with('-'), "{name}");
            let kind = object["kind"].as_str().unwrap();
            assert!(seen.insert((kind, name)), "two {kind} {name}");
            let labels = object["metadata"]["labels"].as_object().unwrap();
            for (key, value) in labels {
                assert!(value.as_str().unwrap().len() <= 63, "{kind} {name}: {key}");
            }
        }
    }
}

#[test]
fn the_installation_has_the_name_of_the_release() {
    let named = |render: Render| {
        let objects = render.objects();
        objects.of("Deployment")[0]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(named(Render::default()), "belay");
    assert_eq!(named(Render::named("my-belay")), "my-belay");
    assert_eq!(named(Render::named("guard")), "guard-belay");
    assert_eq!(named(Render::named("guard").set("nameOverride=\"deletion\"")), "guard-deletion");
    assert_eq!(named(Render::named("guard").set("fullnameOverride=\"x\"")), "x");
}

#[test]
fn chart_and_program_are_one_release() {
    let chart = yaml("Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let objects = Render::default().objects();
    let image = &objects.of("Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, &format!("belay.dev/belay:{}", env!("CARGO_PKG_VERSION")));
}

/// A value with the names of types in place of its scalars.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        Value::Array(list) => list.iter().map(shape).collect(),
        Value::String(_) => "string".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Null => Value::Null,
    }
}

#[test]
fn a_name_that_looks_like_something_else_stays_a_name() {
    let shapes = |release: &str, namespace: &str, other: &str| {
        let everything = crate::helm::chart().join("ci/everything-values.yaml");
        let with = |render: Render, name: &str| render.set(&format!("{name}={other:?}"));
        let render = Render::named(release).into(namespace).with(&everything);
        let render = render.set("fullnameOverride=\"guard\"").set("crds.keep=false");
        let names = [
            "serviceAccount.name",
            "priorityClassName",
            "certManager.issuerRef.name",
            "selftest.namespace",
            "serviceMonitor.interval",
            "serviceMonitor.scrapeTimeout",
        ];
        let issued = names.iter().fold(render.clone(), |render, name| with(render, name));
        let mounted = with(render.set("certManager.enabled=false"), "existingSecret");
        [issued, mounted].map(|render| render.objects().0.iter().map(shape).collect::<Vec<_>>())
    };
    let expected = shapes("abc", "def", "ghi");
    for (release, namespace, other) in [("123", "456", "789"), ("true", "null", "on")] {
        let found = shapes(release, namespace, other);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.each_ref().map(Vec::len), expected.each_ref().map(Vec::len));
    }
}
