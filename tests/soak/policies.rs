//! The policies of a soak: permanent and temporary ones.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Caller;
use crate::harness::Result;
use crate::harness::random::Random;
use crate::manifests::KEEP;
use crate::plan::ROOMS;

/// The URL of policies.
pub const URL: &str = "/apis/belay.dev/v1alpha1/deletionpolicies";
const RELATIONS: &str = "/apis/belay.dev/v1alpha1/relations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn policy(name: &str, targets: Value, protect: Value) -> Value {
    json!({"apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
        "metadata": {"name": name}, "spec": {"targets": [targets], "protect": protect}})
}

fn in_namespace(room: &str, groups: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": room}}})
}

fn kept(mut target: Value) -> Value {
    target["objectSelector"] = json!({"matchLabels": {KEEP: "yes"}});
    target
}

/// The permanent policies.
pub fn lasting() -> Vec<Value> {
    let data = ["configmaps", "secrets", "persistentvolumeclaims"];
    let used = |way: &str| json!({"whileUsed": {"onDelete": way}});
    // The attacker forges reviews of this subject.
    let keep_1 = kept(in_namespace(ROOMS[1], &[""], &["configmaps"]));
    let mut exempt = policy("exempt-1", keep_1, json!({"always": {}}));
    exempt["spec"]["exemptSubjects"] = json!([{"kind": "Group", "name": "system:masters"}]);
    vec![
        exempt,
        policy("keep-0", kept(in_namespace(ROOMS[0], &[""], &data)), json!({"always": {}})),
        policy("used-0", in_namespace(ROOMS[0], &[""], &data), used("Deny")),
        policy("hold-1", in_namespace(ROOMS[1], &[""], &data), used("Hold")),
        policy(
            "family-2",
            in_namespace(ROOMS[2], &[""], &["configmaps"]),
            json!({"fromOrphaning": {}, "fromStripping": {"finalizers": ["soak.dev/*"]}}),
        ),
        policy(
            "widgets",
            kept(json!({"apiGroups": ["soak.dev"], "resources": ["widgets"]})),
            json!({"always": {}}),
        ),
        policy(
            "rooms",
            json!({"apiGroups": [""], "resources": ["namespaces"],
                "namespaceSelector": {"matchLabels": {"soak": "room"}}}),
            json!({"whileNotEmpty": {}}),
        ),
    ]
}

/// A temporary policy.
fn guest(random: &mut Random, number: usize) -> Value {
    let name = format!("guest-{number}");
    let room = random.pick(&ROOMS);
    let mut policy = match random.below(5) {
        0 => policy(&name, kept(in_namespace(room, &[""], &["configmaps"])), json!({"always": {}})),
        1 => policy(&name, in_namespace(room, &[""], &["secrets"]), json!({"whileUsed": {}})),
        2 => policy(
            &name,
            in_namespace(room, &[""], &["configmaps", "persistentvolumeclaims"]),
            json!({"whileUsed": {"onDelete": "Hold"}}),
        ),
        3 => policy(
            &name,
            in_namespace(room, &["apps", "batch"], &["deployments", "statefulsets", "jobs"]),
            json!({"fromOrphaning": {}, "always": {}}),
        ),
        _ => policy(
            &name,
            in_namespace(room, &["*"], &["pods", "services", "widgets"]),
            json!({"fromStripping": {}}),
        ),
    };
    if random.chance(20) {
        policy["spec"]["action"] = json!(random.pick(&["Audit", "Warn"]));
    }
    if random.chance(20) {
        policy["spec"]["hold"] = json!("Never");
    }
    policy
}

/// A CRD of the soak.
pub fn crd(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": format!("{plural}.soak.dev")},
    "spec": {"group": "soak.dev", "scope": "Namespaced",
        "names": {"plural": plural, "kind": kind},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"settings": {"type": "string"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}}}]}})
}

/// A Relation from a widget to its settings.
fn relation(plural: &str) -> Value {
    json!({"apiVersion": "belay.dev/v1alpha1", "kind": "Relation",
        "metadata": {"name": format!("{plural}-settings")},
        "spec": {"from": {"group": "soak.dev", "resource": plural},
            "to": {"group": "", "resource": "configmaps"}, "nameFieldPath": "spec.settings"}})
}

/// Waits until a policy is ready and watches all that it needs.
pub async fn in_force(caller: &Caller, name: &str) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let policy = caller.get(&format!("{URL}/{name}")).await.unwrap_or_default();
        let conditions = policy["status"]["conditions"].as_array();
        let is = |kind: &str| {
            conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
        };
        let seen = &policy["status"]["observedGeneration"];
        if is("Ready") && is("Watching") && *seen == policy["metadata"]["generation"] {
            return Ok(());
        }
        if Instant::now() > limit {
            return Err(format!("policy {name} is not in force: {}", policy["status"]).into());
        }
        crate::harness::pause_async(Duration::from_millis(100)).await;
    }
}

/// Creates and deletes policies, Relations, kinds and namespaces until then. Returns the
/// number of changes.
pub async fn change(caller: Caller, mut random: Random, until: Instant) -> usize {
    let mut changes = 0;
    // A conflict with an earlier round is ignored, because a later round repeats the
    // change.
    while Instant::now() < until {
        let pause = Duration::from_millis(1000 + random.below(3000) as u64);
        let left = until.saturating_duration_since(Instant::now());
        crate::harness::pause_async(pause.min(left)).await;
        changes += usize::from(once(&caller, &mut random).await);
    }
    changes
}

async fn once(caller: &Caller, random: &mut Random) -> bool {
    let number = random.below(4);
    match random.below(10) {
        0..4 => caller.post(URL, guest(random, number)).await.is_ok(),
        4..6 => caller.delete(&format!("{URL}/guest-{number}"), None).await.is_ok(),
        6 => {
            let plural = random.pick(&["widgets", "gadgets"]);
            match random.chance(60) {
                true => caller.post(RELATIONS, relation(plural)).await.is_ok(),
                false => {
                    caller.delete(&format!("{RELATIONS}/{plural}-settings"), None).await.is_ok()
                }
            }
        }
        7 | 8 => gadgets(caller, random).await,
        _ => visit(caller, random).await,
    }
}

/// A CRD that is created with a few objects, and deleted with them.
async fn gadgets(caller: &Caller, random: &mut Random) -> bool {
    if random.chance(40) {
        return caller.delete(&format!("{DEFINITIONS}/gadgets.soak.dev"), None).await.is_ok();
    }
    let made = caller.post(DEFINITIONS, crd("gadgets", "Gadget")).await.is_ok();
    for number in 0..3 {
        let object = json!({"apiVersion": "soak.dev/v1", "kind": "Gadget",
            "metadata": {"name": format!("gadget-{number}")},
            "spec": {"settings": format!("config-{number}")}});
        let url = format!("/apis/soak.dev/v1/namespaces/{}/gadgets", random.pick(&ROOMS));
        let _ = caller.post(&url, object).await;
    }
    made
}

/// A namespace that is created with objects, and deleted as a whole.
async fn visit(caller: &Caller, random: &mut Random) -> bool {
    let name = format!("visit-{}", random.below(3));
    let url = format!("/api/v1/namespaces/{name}");
    if random.chance(50) {
        return caller.delete(&url, None).await.is_ok();
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"soak": "room"}}});
    let made = caller.post("/api/v1/namespaces", namespace).await.is_ok();
    for number in 0..3 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("config-{number}")}});
        let _ = caller.post(&format!("{url}/configmaps"), object).await;
    }
    made
}

/// Deletes all belay objects.
pub async fn withdraw(caller: &Caller) {
    for url in [URL, RELATIONS, "/apis/belay.dev/v1alpha1/deletionapprovals"] {
        let _ = caller.delete(url, None).await;
    }
}
