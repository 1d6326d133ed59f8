//! What belay's account may do, held against what it did: the API server's
//! audit log is the witness.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::chart::RELEASE;
use crate::harness::{Chart, ControlPlane, eventually};
use crate::shop::LIMIT;
use crate::{plane, program};

/// A right: group, resource with its subresource, verb.
type Right = (String, String, String);

/// Everything that the API server has recorded.
pub fn audited(plane: &ControlPlane) -> Vec<Value> {
    let log = plane.audit_log().unwrap();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// What it has recorded of accounts in belay's namespace.
pub fn events(plane: &ControlPlane) -> Vec<Value> {
    let account = format!("system:serviceaccount:{RELEASE}:");
    let ours = |event: &Value| text(&event["user"]["username"]).starts_with(&account);
    audited(plane).into_iter().filter(ours).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What belay wanted to do and was not let.
pub fn forbidden(plane: &ControlPlane) -> Vec<String> {
    let events = events(plane);
    // What belay's own webhook says no to is no right that is missing: the
    // self-test wants to hear just that.
    let by_a_webhook =
        |event: &Value| text(&event["responseStatus"]["message"]).contains("admission webhook");
    let refused = events
        .iter()
        .filter(|event| event["responseStatus"]["code"] == 403 && !by_a_webhook(event));
    refused
        .map(|event| {
            let message = text(&event["responseStatus"]["message"]);
            format!("{} {}: {message}", text(&event["verb"]), text(&event["requestURI"]))
        })
        .collect()
}

/// The rights of belay's account that it has not used so far.
pub fn unused(plane: &ControlPlane) -> BTreeSet<Right> {
    let used: BTreeSet<Right> = events(plane)
        .iter()
        .map(|event| {
            let object = &event["objectRef"];
            let subresource = text(&object["subresource"]);
            let slash = if subresource.is_empty() { "" } else { "/" };
            (
                text(&object["apiGroup"]).to_owned(),
                format!("{}{slash}{subresource}", text(&object["resource"])),
                text(&event["verb"]).to_owned(),
            )
        })
        .collect();
    let may = granted(plane, &[EVERYWHERE, AT_HOME]);
    assert!(may.len() > 50, "the account has no rights to speak of: {may:?}");
    may.difference(&used).cloned().collect()
}

/// What it may do anywhere, and what in its own namespace.
const EVERYWHERE: (&str, &str) = ("clusterrolebindings", "clusterroles");
const AT_HOME: (&str, &str) = ("rolebindings", "roles");

fn granted(plane: &ControlPlane, by: &[(&str, &str)]) -> BTreeSet<Right> {
    let get = |kind: &str| -> Vec<Value> {
        let listed = plane.kubectl(&["get", kind, "-A", "-o", "json"]).unwrap().success().unwrap();
        let mut listed: Value = serde_json::from_str(&listed).unwrap();
        std::mem::take(listed["items"].as_array_mut().unwrap())
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut rights = BTreeSet::new();
    for (binding, role) in by {
        let roles = get(role);
        let ours = |subject: &Value| subject["name"] == RELEASE && subject["namespace"] == RELEASE;
        for binding in get(binding).iter().filter(|b| list(&b["subjects"]).iter().any(ours)) {
            let named = |role: &&Value| {
                role["metadata"]["name"] == binding["roleRef"]["name"]
                    && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
            };
            let rules = roles.iter().find(named).map(|role| list(&role["rules"]));
            for rule in rules.unwrap_or_default() {
                for group in list(&rule["apiGroups"]) {
                    for resource in list(&rule["resources"]) {
                        for verb in list(&rule["verbs"]) {
                            let right =
                                [&group, &resource, &verb].map(|part| text(part).to_owned());
                            rights.insert(right.into());
                        }
                    }
                }
            }
        }
    }
    rights
}

#[test]
fn every_kind_that_it_may_read_is_read_when_a_policy_asks_and_nothing_is_refused() {
    let plane = plane();
    let chart = Chart::install(&plane, program(), &["--set=profile=observe"]).unwrap();
    chart.wait_for(2).unwrap();
    let served = plane.kubectl(&["api-resources", "--verbs=watch", "-o", "name"]).unwrap();
    let served = served.success().unwrap();
    let is_served = |(group, resource, _): &Right| {
        let name = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
        served.lines().any(|line| line == name)
    };
    // A watch begins with what there is; lists are for what is read live.
    let kinds: BTreeSet<Right> = granted(&plane, &[EVERYWHERE])
        .into_iter()
        .filter(|r| r.2 == "watch" && is_served(r))
        .collect();
    assert!(kinds.len() > 40, "{kinds:?}");
    let targets: Vec<String> = kinds
        .iter()
        .map(|(group, resource, _)| format!("{{apiGroups: ['{group}'], resources: [{resource}]}}"))
        .collect();
    plane
        .apply(&format!(
            "apiVersion: belay.dev/v1alpha1\nkind: DeletionPolicy\nmetadata: {{name: wide}}\n\
             spec: {{targets: [{}], protect: {{whileUsed: {{}}}}, action: Audit}}\n",
            targets.join(", ")
        ))
        .unwrap();
    eventually("every kind is read", LIMIT, || {
        let idle: Vec<Right> = unused(&plane).intersection(&kinds).cloned().collect();
        if idle.is_empty() { Ok(()) } else { Err(format!("{idle:?}").into()) }
    })
    .unwrap();
    assert_eq!(forbidden(&plane), Vec::<String>::new());
}
