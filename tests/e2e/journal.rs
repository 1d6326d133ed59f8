//! belay's records on the real API server: Events, journals, status. The tests call the
//! parts as `belay serve` does, for two replicas.

use std::sync::Arc;
use std::time::Duration;

use belay::cluster::journal::{self, Journal};
use belay::cluster::status::{self, StoredPolicies, StoredPolicy};
use belay::cluster::{Context, HoldCounts, HoldProgress, Registered, Settings};
use belay::cluster::{SharedWorld, Signals, World};
use belay::decide::{AdmissionPhase, ObjectSource, Situation, decide};
use belay::graph::{Edges, ObjectPhase};
use belay::objects::Object;
use belay::policy::api::{DeletionPolicy, DeletionPolicySpec};
use belay::policy::{Policy, PolicySet};
use belay::relations::Catalogue;
use belay::telemetry::{Metrics, Readiness};
use belay::webhook::{Parsed, parse_review};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::harness::{ControlPlane, Result, eventually, intervals};
use crate::policies::installed;

const SOON: Duration = Duration::from_secs(40);

/// A replica whose parts run on a runtime of the test.
struct Replica {
    context: Context,
    journal: Journal,
}

impl Replica {
    fn start(runtime: &Runtime, plane: &ControlPlane, namespace: &str, name: &str) -> Self {
        let context = Context {
            client: runtime.block_on(plane.client()).unwrap(),
            world: SharedWorld::default(),
            settings: Arc::new(Settings {
                certificates: belay::cluster::Certificates::Files { authorities: None },
                backfill: 0,
                timeout_seconds: 5,
                timing: intervals().parse().unwrap(),
                namespace: namespace.to_owned(),
                name: "belay".to_owned(),
                replica: name.to_owned(),
                instance: name.to_owned(),
                labelled: Vec::new(),
            }),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            signals: Arc::new(Signals::default()),
        };
        let (journal, receiver) = Journal::new(context.metrics.clone());
        runtime.spawn(journal::run(context.clone(), receiver));
        Self { context, journal }
    }

    /// Sends this many DELETEs of an object as a user.
    fn deletes(&self, object: &Value, times: usize, dry_run: bool) {
        let metadata = &object["metadata"];
        let body = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "operation": "DELETE",
                "userInfo": {"username": "alice"},
                "object": null,
                "oldObject": object,
                "dryRun": dry_run,
            },
        })
        .to_string();
        let Parsed::Review(review) =
            parse_review(body.as_bytes(), AdmissionPhase::Validate).unwrap()
        else {
            panic!("the review is readable");
        };
        for _ in 0..times {
            let world = self.context.world.read();
            let World { graph, policies, .. } = &*world;
            let verdict = decide(&Situation::new(graph, policies, ObjectSource::Files, 0), &review);
            self.journal.record(&review, &verdict);
        }
    }
}

/// A world with one policy, and one object of it that has been read.
fn world(policy: &DeletionPolicy, object: &Value) -> World {
    let catalogue = Catalogue::default();
    let name = policy.metadata.name.as_deref().unwrap();
    let compiled = Policy::compile(name, &policy.spec).unwrap();
    let mut world = World {
        policies: PolicySet::new(vec![compiled], &catalogue),
        loaded: true,
        policies_current: true,
        ..World::default()
    };
    let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
    let text = object.to_string();
    let read: Object<'_> = serde_json::from_str(&text).unwrap();
    world.graph.apply(kind, &read, ObjectPhase::Active, Edges::default());
    world.graph.set_complete(kind, true);
    world
}

/// The kinds that a policy names.
fn needs(world: &World, policy: &Policy) -> std::collections::BTreeSet<belay::objects::KindId> {
    let kinds = world.graph.kinds.iter();
    let named = kinds.filter(|(_, info)| policy.names_kind(&info.group, &info.resource));
    named.map(|(kind, _)| kind).collect()
}

fn get(plane: &ControlPlane, object: &str, namespace: &str) -> Value {
    plane.api().get(object, namespace).unwrap().unwrap()
}

fn config_map(plane: &ControlPlane, namespace: &str, name: &str) -> Value {
    let args = ["create", "configmap", name, "-n", namespace];
    plane.kubectl(&args).unwrap().success().unwrap();
    get(plane, &format!("configmap/{name}"), namespace)
}

fn policy(plane: &ControlPlane, name: &str, object: &str, action: &str) -> DeletionPolicy {
    let policy = json!({
        "apiVersion": "belay.dev/v1alpha1",
        "kind": "DeletionPolicy",
        "metadata": {"name": name},
        "spec": {
            "targets": [{"apiGroups": [""], "resources": ["configmaps"], "names": [object]}],
            "protect": {"always": {}},
            "action": action,
        },
    });
    plane.apply(&policy).unwrap();
    serde_json::from_value(get(plane, &format!("delpol/{name}"), "")).unwrap()
}

/// Number, type, reason and replica of the Events on an object.
fn events(plane: &ControlPlane, namespace: &str, object: &Value) -> Result<Vec<(i64, String)>> {
    let list = plane.api().list("events", namespace, "")?;
    let mut found: Vec<_> = list
        .iter()
        .filter(|event| event["involvedObject"]["uid"] == object["metadata"]["uid"])
        .map(|event| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let words =
                [&event["type"], &event["reason"], &event["source"]["host"]].map(text).join(" ");
            (event["count"].as_i64().unwrap_or_default(), words)
        })
        .collect();
    found.sort();
    Ok(found)
}

#[test]
fn a_denial_repeated_a_thousand_times_is_one_event_with_a_count() {
    let (plane, _) = installed();
    let ns = plane.namespace("events").unwrap();
    let object = config_map(plane, &ns, "events-kept");
    let policy = policy(plane, "events-kept", "events-kept", "Deny");
    let runtime = Runtime::new().unwrap();
    let replica = Replica::start(&runtime, plane, &ns, "events-0");
    *replica.context.world.write() = world(&policy, &object);

    // Dry runs are not recorded.
    replica.deletes(&object, 10, true);
    replica.deletes(&object, 1000, false);
    let one = (1000, "Warning Protected events-0".to_owned());
    eventually("one Event with a count", SOON, || {
        let found = events(plane, &ns, &object)?;
        if found == [one.clone()] { Ok(()) } else { Err(format!("{found:?}").into()) }
    })
    .unwrap();
    let described = plane.kubectl(&["describe", "configmap", "events-kept", "-n", &ns]).unwrap();
    let described = described.success().unwrap();
    assert!(described.contains("configmap \"events-kept\" is protected; policy events-kept"));

    // A Terminating namespace accepts no Events, which is not reported as an error.
    let doomed = plane.namespace("ending").unwrap();
    let held = config_map(plane, &doomed, "events-kept");
    let hold = json!({"metadata": {"finalizers": ["example.com/wait"]}});
    plane.patch("configmap/events-kept", &doomed, &hold);
    plane.kubectl(&["delete", "namespace", &doomed, "--wait=false"]).unwrap().success().unwrap();
    replica.deletes(&held, 1, false);
    let other = config_map(plane, &ns, "other");
    let mut renamed = other.clone();
    renamed["metadata"]["name"] = json!("events-kept");
    replica.deletes(&renamed, 1, false);
    eventually("the Event on the next object", SOON, || {
        let found = events(plane, &ns, &other)?;
        if found.len() == 1 { Ok(()) } else { Err(format!("{found:?}").into()) }
    })
    .unwrap();
    assert_eq!(events(plane, &doomed, &held).unwrap(), []);
    assert!(replica.context.metrics.encode().contains("belay_journal_dropped_total 0"));

    replica.context.signals.ending.send_replace(true);
    let strip = json!({"metadata": {"finalizers": null}});
    plane.patch("configmap/events-kept", &doomed, &strip);
}

/// The policy as the leader's feed would load it.
fn loaded_policy(policy: &DeletionPolicy) -> Arc<StoredPolicies> {
    let read = StoredPolicy {
        generation: policy.metadata.generation.unwrap(),
        status: policy.status.clone().unwrap_or_default(),
        problems: Vec::new(),
        loaded_at: 0,
    };
    Arc::new(StoredPolicies { policies: [(policy.metadata.name.clone().unwrap(), read)].into() })
}

/// The condition of this type: status, reason.
fn condition(policy: &Value, type_: &str) -> String {
    let conditions = policy["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    found.map_or(String::new(), |found| format!("{} {}", found["status"], found["reason"]))
}

/// Waits until the Ready condition of a policy is this. Returns the policy.
fn ready(plane: &ControlPlane, policy: &str, expected: &str) -> Value {
    let is_met = |found: Option<&Value>| {
        let policy = found.ok_or("it does not exist")?;
        let ready = condition(policy, "Ready");
        if ready == expected { Ok(policy.clone()) } else { Err(ready.into()) }
    };
    plane.api().wait((&format!("delpol/{policy}"), ""), SOON, is_met).unwrap()
}

#[test]
fn the_status_sums_the_counts_of_two_replicas_and_kubectl_shows_it() {
    let (plane, _) = installed();
    let ns = plane.namespace("journal").unwrap();
    let object = config_map(plane, &ns, "journal-kept");
    let policy = policy(plane, "journal-kept", "journal-kept", "Deny");
    let runtime = Runtime::new().unwrap();
    let replicas =
        ["journal-0", "journal-1"].map(|name| Replica::start(&runtime, plane, &ns, name));
    for replica in &replicas {
        *replica.context.world.write() = world(&policy, &object);
    }
    // The journal of a replica that is long gone, and one that no user can read.
    let old = json!({"time": "2020-01-01T00:00:00Z", "activity": {"policies": {}}}).to_string();
    let write = |name: &str, text: &str| {
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": ns, "labels": {"belay.dev/journal": "belay"}},
            "data": {"journal.json": text},
        });
        plane.apply(&map).unwrap();
    };
    write("journal-old", &old);
    write("journal-torn", "{");

    replicas[0].deletes(&object, 40, false);
    replicas[1].deletes(&object, 2, false);
    let leader = &replicas[0].context;
    let (feed, read) = watch::channel(loaded_policy(&policy));
    runtime.spawn(status::run(leader.clone(), read, needs));

    // There is no leader yet, so no replica writes.
    crate::harness::pause(Duration::from_millis(600));
    let kept = || get(plane, "delpol/journal-kept", "");
    assert_eq!(kept().get("status"), None);
    leader.signals.leading.send_replace(true);
    ready(plane, "journal-kept", r#""False" "NotRegistered""#);

    let registered = Registered { generation: Some(1), ..Registered::default() };
    leader.signals.registered.send_replace(registered);
    let unsafe_kinds = vec!["pods".to_owned()];
    let counts = HoldCounts { done: 1, total: 2, ..HoldCounts::default() };
    let holding = HoldProgress { counts, unsafe_kinds, ..HoldProgress::default() };
    leader.signals.holding.send_replace(Arc::new([("journal-kept".to_owned(), holding)].into()));
    let columns = ["get", "delpol", "journal-kept", "--no-headers"];
    eventually("the columns", SOON, || {
        let row = plane.kubectl(&columns)?.success()?;
        let fields: Vec<_> = row.split_whitespace().collect();
        let expected = ["journal-kept", "Deny", "True", "1", "0", "42"];
        // The condition Holding follows with the next count.
        let holding = condition(&kept(), "Holding");
        let is_met = fields.starts_with(&expected) && holding == r#""False" "Progressing""#;
        if is_met { Ok(()) } else { Err(format!("{row} {holding}").into()) }
    })
    .unwrap();
    let stored = kept();
    assert_eq!(condition(&stored, "Watching"), r#""True" "Synced""#);
    let status = &stored["status"];
    assert_eq!(status["observedGeneration"], stored["metadata"]["generation"]);
    let recent = status["recent"].as_array().unwrap();
    assert_eq!(recent.len(), 1, "a repetition stands there once: {recent:?}");
    assert_eq!(recent[0]["target"], json!(format!("configmaps {ns}/journal-kept")));
    assert_eq!((&recent[0]["verdict"], &recent[0]["user"]), (&json!("Deny"), &json!("alice")));
    let managers = stored["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|m| m["manager"] == "belay" && m["subresource"] == "status"));

    // Each replica has its own journal. The old one is deleted.
    let old_is_deleted = || {
        eventually("the old journal's end", SOON, || {
            let label = "belay.dev/journal=belay";
            let names = plane.api().fields("configmaps", &ns, label, ".metadata.name")?;
            let expected = ["belay-journal-journal-0", "belay-journal-journal-1", "journal-torn"];
            if names == expected { Ok(()) } else { Err(format!("{names:?}").into()) }
        })
        .unwrap();
    };
    old_is_deleted();

    // Without new records nothing is written.
    let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
    let before = version(&kept());
    // Each old journal is deleted when the leader has read them all again.
    for _ in 0..3 {
        write("journal-old", &old);
        old_is_deleted();
    }
    assert_eq!(version(&kept()), before);

    // After a change of the policy, the condition Holding stays until its objects are counted again.
    let mut changed = StoredPolicies::clone(&loaded_policy(&policy));
    changed.policies.get_mut("journal-kept").unwrap().loaded_at = 2;
    let counted_at = |generation| {
        let counts = HoldCounts { done: 2, total: 2, ..HoldCounts::default() };
        let progress = HoldProgress { generation, counts, ..HoldProgress::default() };
        Arc::new([("journal-kept".to_owned(), progress)].into())
    };
    feed.send_replace(Arc::new(changed));
    leader.signals.holding.send_replace(counted_at(1));
    let stored = ready(plane, "journal-kept", r#""False" "NotRegistered""#);
    assert_eq!(condition(&stored, "Holding"), r#""False" "Progressing""#);
    leader.signals.holding.send_replace(counted_at(2));
    let in_place = |found: Option<&Value>| {
        let holding = condition(found.ok_or("it does not exist")?, "Holding");
        if holding == r#""True" "InPlace""# { Ok(()) } else { Err(holding.into()) }
    };
    plane.api().wait(("delpol/journal-kept", ""), SOON, in_place).unwrap();

    for replica in &replicas {
        replica.context.signals.ending.send_replace(true);
    }
}

#[test]
fn an_invalid_policy_reports_its_error_and_becomes_valid_after_a_change() {
    let (plane, _) = installed();
    let ns = plane.namespace("journal-invalid").unwrap();
    let object = config_map(plane, &ns, "journal-invalid");
    let policy = policy(plane, "journal-invalid", "journal-invalid", "Warn");
    let runtime = Runtime::new().unwrap();
    let replica = Replica::start(&runtime, plane, &ns, "invalid-0");
    let context = &replica.context;
    *context.world.write() = world(&policy, &object);
    let registered = Registered { generation: Some(1), ..Registered::default() };
    context.signals.registered.send_replace(registered);
    context.signals.leading.send_replace(true);

    let mut invalid = StoredPolicies::clone(&loaded_policy(&policy));
    let nothing = DeletionPolicySpec::default();
    let problems = Policy::compile("journal-invalid", &nothing).unwrap_err();
    invalid.policies.get_mut("journal-invalid").unwrap().problems = problems;
    let (feed, read) = watch::channel(Arc::new(invalid));
    runtime.spawn(status::run(context.clone(), read, needs));
    let stored = ready(plane, "journal-invalid", r#""False" "Invalid""#);
    let text = stored["status"]["conditions"].to_string();
    assert!(text.contains("spec.targets: targets is empty"), "{text}");
    assert_eq!(condition(&stored, "Watching"), r#""Unknown" "Invalid""#);
    feed.send_replace(loaded_policy(&policy));
    ready(plane, "journal-invalid", r#""True" "Registered""#);

    // A warning counts as a denial that action Deny would cause.
    replica.deletes(&object, 3, false);
    let paths = ".status.last24h.wouldDeny .status.last24h.denied";
    let stored = ("delpol/journal-invalid", "");
    plane.api().wait_field(stored, SOON, paths, |counts| counts == "3 0").unwrap();
    assert_eq!(events(plane, &ns, &object).unwrap(), []);
    context.signals.ending.send_replace(true);
}
