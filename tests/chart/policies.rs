//! Reads the DeletionPolicies and Relations of the chart as belay does.

use std::collections::BTreeMap;

use belay::policy::api::{Action, Check as _, DeletionPolicySpec, RelationSpec};
use belay::policy::{Policy, compile_relation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::helm::{Objects, Render, file, yaml};

const PROFILES: [&str; 3] = ["observe", "guarded", "strict"];

fn profile(name: &str) -> Render {
    Render::default().set(&format!("profile={name:?}"))
}

/// Reads a spec, and checks that no field is ignored.
fn read<T: DeserializeOwned + Serialize>(object: &Value) -> T {
    let spec = object["spec"].clone();
    let name = &object["metadata"]["name"];
    let read: T = serde_json::from_value(spec.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let again = serde_json::to_value(&read).unwrap();
    assert_eq!(kept(&spec, &again), spec, "{name} says what the API does not have");
    read
}

/// The part of a value that another value has as well.
fn kept(value: &Value, other: &Value) -> Value {
    match (value, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let both =
                fields.iter().filter_map(|(k, v)| Some((k.clone(), kept(v, others.get(k)?))));
            Value::Object(both.collect())
        }
        (Value::Array(values), Value::Array(others)) if values.len() == others.len() => {
            values.iter().zip(others).map(|(v, o)| kept(v, o)).collect()
        }
        _ => other.clone(),
    }
}

fn policies(objects: &Objects) -> BTreeMap<String, DeletionPolicySpec> {
    let compiled = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let spec: DeletionPolicySpec = read(object);
        Policy::compile(&name, &spec).unwrap_or_else(|problems| panic!("{name}: {problems:?}"));
        let about = &object["metadata"]["annotations"]["kubernetes.io/description"];
        assert!(about.as_str().is_some_and(|about| about.ends_with('.')), "{name}: {about}");
        (name, spec)
    };
    objects.of("DeletionPolicy").into_iter().map(compiled).collect()
}

/// The key of each policy in the values, and its object.
fn switches() -> Vec<(String, String)> {
    let values = yaml("values.yaml");
    let kebab = |camel: &str| match camel {
        "configMapsInUse" => "configmaps-in-use".to_owned(),
        _ => camel.chars().fold(String::new(), |mut kebab, c| {
            if c.is_uppercase() {
                kebab.push('-');
            }
            kebab.extend(c.to_lowercase());
            kebab
        }),
    };
    let keys = values["policies"].as_object().unwrap().keys();
    keys.map(|key| (key.clone(), format!("belay-{}", kebab(key)))).collect()
}

#[test]
fn each_profile_matches_its_table() {
    let table = yaml("files/profiles.yaml");
    let readme = file("README.md");
    let found = PROFILES.map(|name| (name, policies(&profile(name).objects())));
    for (key, name) in switches() {
        let mut row = Vec::new();
        for (profile, found) in &found {
            let expected = table[&key][*profile].as_str().unwrap();
            let action = found.get(&name).map_or("off", |policy| word(policy.action));
            assert_eq!(action, expected, "{key} in {profile}");
            row.push(expected);
        }
        let row = format!("| `{key}` | {} |", row.join(" | "));
        assert!(readme.contains(&row), "the README has no row that ends {row}");
    }
    assert_eq!(table.as_object().unwrap().len(), switches().len());
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Deny => "Deny",
        Action::Warn => "Warn",
        Action::Audit => "Audit",
    }
}

#[test]
fn each_switch_switches_its_policy_and_no_other() {
    // A profile with all policies, and one without some.
    for name_of_profile in ["guarded", "strict"] {
        let before = policies(&profile(name_of_profile).objects());
        for (key, name) in switches() {
            let on = !before.contains_key(&name);
            let set = format!("policies.{key}.enabled={on}");
            let mut after = policies(&profile(name_of_profile).set(&set).objects());
            assert_eq!(after.remove(&name).is_some(), on, "{set} in {name_of_profile}");
            let mut others = before.clone();
            others.remove(&name);
            assert_eq!(after, others, "{set} in {name_of_profile}");
        }
    }
}

#[test]
fn a_policy_contains_its_values() {
    for (key, name) in switches() {
        let set = format!(
            "policies.{key}={{\"enabled\":true,\"action\":\"Warn\",\
             \"exclude\":[{{\"apiGroups\":[\"\"],\"resources\":[\"x\"]}}],\
             \"exemptSubjects\":[{{\"kind\":\"Group\",\"name\":\"g\"}}],\
             \"actionOverrides\":[{{\"namespaceSelector\":{{}},\"action\":\"Audit\"}}]}}"
        );
        let policy = policies(&Render::default().set(&set).objects()).remove(&name).unwrap();
        assert_eq!(policy.action, Action::Warn, "{key}");
        assert_eq!(policy.exclude.last().unwrap().resources, ["x"], "{key}");
        assert_eq!(policy.exempt_subjects[0].name, "g", "{key}");
        assert_eq!(policy.action_overrides[0].action, Action::Audit, "{key}");
        // A policy that is off in observe records if the values enable it.
        let on = format!("policies.{key}.enabled=true");
        let observed = policies(&profile("observe").set(&on).objects()).remove(&name).unwrap();
        assert_eq!(observed.action, Action::Audit, "{key}");
    }
}

#[test]
fn namespaces_that_are_made_to_be_thrown_away_are_left_out() {
    let of = |render: Render| {
        policies(&render.objects()).remove("belay-namespaces-with-content").unwrap().exclude
    };
    let [names, label] = &of(Render::default())[..] else { panic!("two entries") };
    assert_eq!(names.names, ["pr-*", "preview-*", "ci-*", "e2e-*"]);
    let selector = label.object_selector.as_ref().unwrap();
    assert_eq!(selector.match_expressions[0].key, "belay.dev/ephemeral");
    let none = "ephemeralNamespaces={\"names\":[],\"label\":\"\"}";
    assert_eq!(of(Render::default().set(none)), []);
}

#[test]
fn every_relation_of_every_family_is_read() {
    let values = yaml("values.yaml");
    let families = values["relations"].as_object().unwrap();
    let default = Render::default().objects().of("Relation").len();
    let mut by_default = 0;
    for (family, on) in families {
        let listed = yaml(&format!("files/relations/{family}.yaml"));
        let listed = listed.as_array().unwrap();
        by_default += if on == true { listed.len() } else { 0 };
        let others = families.keys().map(|other| format!("\"{other}\":{}", other == family));
        let set = format!("relations={{{}}}", others.collect::<Vec<_>>().join(","));
        let objects = Render::default().set(&set).objects();
        assert_eq!(objects.of("Relation").len(), listed.len(), "{family}");
        for (relation, listed) in objects.of("Relation").into_iter().zip(listed) {
            let name = relation["metadata"]["name"].as_str().unwrap();
            assert_eq!(name, format!("belay-{}", listed["name"].as_str().unwrap()));
            assert_eq!(relation["spec"], listed["spec"], "{name}");
            let spec: RelationSpec = read(relation);
            compile_relation(name, &spec).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(spec.problems(), [], "{name}");
            let about = &relation["metadata"]["annotations"]["kubernetes.io/description"];
            assert!(about.as_str().is_some_and(|about| about.ends_with('.')), "{name}");
        }
    }
    assert_eq!(default, by_default);
    assert_eq!(
        std::fs::read_dir(crate::helm::chart().join("files/relations")).unwrap().count(),
        families.len()
    );
}
