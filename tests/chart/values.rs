//! values.yaml, its comments, its schema and the table in the README have the same
//! values.

use serde_json::Value;

use crate::helm::{Render, chart, file, yaml};
use crate::snapshots::{REWRITE, updating};

/// A value.
#[derive(Debug)]
struct Setting {
    path: Vec<String>,
    comment: String,
}

impl Setting {
    fn name(&self) -> String {
        self.path.join(".")
    }

    fn default(&self) -> Value {
        self.path.iter().fold(yaml("values.yaml"), |value, key| value[key].clone())
    }

    fn row(&self) -> String {
        let Self { comment, .. } = self;
        format!("| `{}` | `{}` | {} |", self.name(), self.default(), comment.replace('|', "\\|"))
    }
}

/// All values of values.yaml that are not maps of other values, with their comments.
fn settings() -> Vec<Setting> {
    let (mut settings, mut path, mut comment) = (Vec::<Setting>::new(), Vec::new(), Vec::new());
    for line in file("values.yaml").lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if line.is_empty() {
            comment.clear();
        } else if let Some(said) = line.strip_prefix('#') {
            comment.push(said.trim().to_owned());
        } else if let Some((key, _)) = line.split_once(':').filter(|_| is_key(line)) {
            // Each level has two spaces. Deeper lines belong to a list.
            path.truncate(indent / 2);
            path.push(key.to_owned());
            let setting = Setting { path: path.clone(), comment: comment.join(" ") };
            comment.clear();
            let inside_a_value =
                settings.last().is_some_and(|last: &Setting| setting.path.starts_with(&last.path));
            let holds_others = setting.default().as_object().is_some_and(|map| !map.is_empty());
            if !inside_a_value && (!holds_others || is_whole(&setting)) {
                settings.push(setting);
            }
        }
    }
    settings
}

/// Maps that count as one value, because Kubernetes defines their fields.
fn is_whole(setting: &Setting) -> bool {
    ["resources", "dashboard.labels"].contains(&&*setting.name())
}

fn is_key(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[test]
fn every_value_has_a_comment() {
    let settings = settings();
    assert!(settings.len() > 60, "{settings:?}");
    for setting in settings {
        assert!(setting.comment.ends_with(['.', '"']), "{}: {:?}", setting.name(), setting.comment);
    }
}

#[test]
fn the_readme_has_every_value_as_it_is() {
    let head = "| value | default | what |\n|---|---|---|\n";
    let readme = file("README.md");
    let (before, found) = readme.split_once(head).unwrap();
    let rows: String = settings().iter().map(|setting| setting.row() + "\n").collect();
    if updating() {
        std::fs::write(chart().join("README.md"), format!("{before}{head}{rows}")).unwrap();
    }
    let found = if updating() { &rows } else { found };
    for (found, expected) in found.lines().zip(rows.lines()) {
        assert_eq!(found, expected, "{REWRITE}");
    }
    assert_eq!(found, rows, "the README has another number of values than values.yaml");
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    compare("values", &schema, &schema, &yaml("values.yaml"));
}

/// Compares the properties of a schema with the keys of a map.
fn compare(at: &str, root: &Value, schema: &Value, value: &Value) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    let (Some(properties), Some(map)) = (schema["properties"].as_object(), value.as_object())
    else {
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{at} is open");
    for (key, value) in map {
        let property =
            properties.get(key).unwrap_or_else(|| panic!("{at}.{key}: not in the schema"));
        compare(&format!("{at}.{key}"), root, property, value);
    }
    // Fields of policies and of Kubernetes have no defaults.
    let told = |key: &String| map.contains_key(key) || map.is_empty() || at == "values.resources";
    for key in properties.keys().filter(|key| *key != "global") {
        assert!(told(key), "{at}.{key} stands in the schema and not in values.yaml");
    }
}

/// Values with a default that users may unset with null.
const DISPENSABLE: &[&str] = &[
    "ephemeralNamespaces.label",
    "ephemeralNamespaces.names",
    "uninstall.timeoutSeconds",
    "resources",
    "topologySpreadConstraints",
    "networkPolicy.metricsFrom",
    "serviceMonitor.interval",
    "prometheusRule.releasingObjects",
    "dashboard.labels",
];

#[test]
fn a_value_that_null_unsets_is_empty_or_refused_and_never_guessed() {
    let all = |name: &str| {
        let render = Render::default();
        let switched = ["networkPolicy", "serviceMonitor", "prometheusRule", "dashboard"];
        let render = switched.iter().fold(render, |r, what| r.set(&format!("{what}.enabled=true")));
        // One of the two must be set.
        let render = if name == "networkPolicy.apiServer.cidrs" {
            render.set("networkPolicy.webhookFrom=[{\"podSelector\":{}}]")
        } else {
            render.set("networkPolicy.apiServer.cidrs=[\"10.0.0.1/32\"]")
        };
        if name.starts_with("certManager") {
            render.set("certManager.enabled=true")
        } else {
            render
        }
    };
    let mut names: Vec<(String, Option<Value>)> =
        settings().iter().map(|setting| (setting.name(), Some(setting.default()))).collect();
    for (key, value) in yaml("values.yaml").as_object().unwrap() {
        if value.as_object().is_some_and(|map| !map.is_empty()) && !is_named(key, &names) {
            names.push((key.clone(), None));
        }
    }
    for (name, default) in names.iter().filter(|(name, _)| !name.starts_with("policies.")) {
        let answer = all(name).set(&format!("{name}=null")).answer();
        let is_empty = default.as_ref().is_some_and(|default| {
            default == "" || *default == serde_json::json!([]) || *default == serde_json::json!({})
        });
        match answer {
            Ok(text) => {
                assert!(!text.contains("<nil>") && !text.contains("<no value>"), "{name}");
                assert!(is_empty || DISPENSABLE.contains(&&**name), "{name}: null is taken");
                assert!(!is_empty || text == all(name).text(), "{name}: null is not the default");
            }
            Err(said) => {
                assert!(!is_empty && !DISPENSABLE.contains(&&**name), "{name}: {said}");
                let key = name.rsplit('.').next().unwrap();
                assert!(said.contains("missing propert") && said.contains(key), "{name}: {said}");
            }
        }
    }
}

fn is_named(name: &str, names: &[(String, Option<Value>)]) -> bool {
    names.iter().any(|(known, _)| known == name)
}
