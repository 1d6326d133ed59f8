//! Attacks by an editor of a namespace that use what controllers, the scheduler and
//! administrators do.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, claim, config_map, object, pod, workload};
use crate::harness::{Result, eventually, pause};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A namespace with a policy about these resources of the core group.
fn team(prefix: &str, resources: &str, protect: Value) -> Team<'static> {
    let team = Team::new(&world().plane, prefix);
    policy::protect(team.plane, &team.ns, resources, protect);
    team
}

/// kubectl with the rights of the administrator and the name of a system user.
fn kubectl_as(team: &Team<'_>, user: &str, args: &[&str]) -> Output {
    let user = format!("--as={user}");
    let who = ["-n", &team.ns, &user, "--as-group=system:masters"];
    team.plane.kubectl(&[args, &who].concat()).unwrap()
}

fn patch<'a>(object: &'a str, patch: &'a str) -> [&'a str; 5] {
    ["patch", object, "--type=merge", "-p", patch]
}

const NO_OWNERS: &str = r#"{"metadata":{"ownerReferences":null}}"#;

/// A ReplicaSet with three Pods, which no kubelet runs because no Node has the label.
fn replica_set(name: &str) -> Value {
    let waits = json!({"spec": {"nodeSelector": {"no": "node"}}});
    let labels = json!({"app": name, "round": name});
    let template = json!({"metadata": {"labels": labels}, "spec": pod("x").with(waits)["spec"]});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": name}},
        "template": template});
    object("apps/v1", "ReplicaSet", name).with(json!({"spec": spec}))
}

#[test]
fn h150_a_controller_removes_the_reference_of_an_object_that_it_does_not_select() {
    let team = Team::new(&world().plane, "h150");
    let empty = |name| replica_set(name).with(json!({"spec": {"replicas": 0}}));
    for kind in ["ReplicaSet", "Deployment", "StatefulSet"] {
        team.apply(&empty("web").with(json!({"kind": kind})));
    }
    let waits = |name| pod(name).with(json!({"spec": {"nodeSelector": {"no": "node"}}}));
    for (kind, object) in [
        ("ReplicaSet", waits("mine")),
        // Its name is that of a Pod of the StatefulSet.
        ("StatefulSet", waits("web-0")),
        ("Deployment", empty("mine")),
    ] {
        let controller = json!({"apiVersion": "apps/v1", "controller": true});
        let object = object.with_owner(team.owner(kind, "web").with(controller));
        team.apply(&object);
        let [kind, name] =
            [&object["kind"], &object["metadata"]["name"]].map(|v| v.as_str().unwrap());
        let name = format!("{kind}/{name}");
        let api = team.plane.api();
        let (object, owners) = ((&*name, &*team.ns), ".metadata.ownerReferences");
        api.wait_field(object, SOON, owners, str::is_empty).unwrap();
    }
}

#[test]
fn h113_the_pods_of_a_replica_set_that_is_deleted_are_not_orphaned() {
    let team = team("h113", "pods", json!({"fromOrphaning": {}}));
    let api = team.plane.api();
    let pods = |round: &str| -> Result<Vec<String>> {
        let pods = api.list("pods", &team.ns, &format!("round={round}"))?;
        let name = |pod: &Value| format!("pod/{}", pod["metadata"]["name"].as_str().unwrap());
        Ok(pods.iter().map(name).collect())
    };
    // How long after the change of the labels the ReplicaSet is deleted.
    let rounds = [0, 5, 10, 20, 40, 80].map(|delay| (format!("web-{delay}"), delay));
    for (round, _) in &rounds {
        team.apply(&replica_set(round));
    }
    for (round, delay) in &rounds {
        let found = eventually("three Pods", SOON, || match pods(round)? {
            pods if pods.len() == 3 => Ok(pods),
            pods => Err(format!("{} Pods", pods.len()).into()),
        })
        .unwrap();
        let refused = || team.kubectl(&patch(&found[0], NO_OWNERS)).failure();
        eventually("a refusal", SOON, refused).unwrap();
        // The controller releases Pods whose labels its selector does not match.
        std::thread::scope(|scope| {
            for pod in &found {
                let other = json!({"metadata": {"labels": {"app": "other"}}});
                let ns = &team.ns;
                // The garbage collector may have deleted the Pod.
                scope.spawn(move || drop(api.patch(pod, ns, &other)));
            }
            pause(Duration::from_millis(*delay));
            team.deleted(&[&format!("replicaset/{round}")]);
        });
    }
    for (round, _) in &rounds {
        eventually("the end of the Pods", SOON, || match pods(round)?.len() {
            0 => Ok(()),
            left => Err(format!("{left} Pods of {round}").into()),
        })
        .unwrap();
    }
}

#[test]
fn h113_a_controller_removes_no_reference_to_a_deleted_owner() {
    let team = team("h113-late", "configmaps", json!({"fromOrphaning": {}}));
    team.apply(&config_map("real"));
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "real")));
    let controller = "system:serviceaccount:kube-system:replicaset-controller";
    let release = patch("configmap/child", NO_OWNERS);
    let binding = team.keep_collector_from("configmap/child");
    team.deleted(&["configmap/real"]);
    team.wait_until_deleted("configmap/real");
    let refused = kubectl_as(&team, controller, &release).failure().unwrap();
    assert!(refused.contains("would lose its owner ConfigMap"), "{refused}");
    team.remove_binding(&binding);
    team.wait_until_deleted("configmap/child");
}

#[test]
fn h114_objects_that_an_editor_attaches_to_a_pod_do_not_stop_its_preemption() {
    let team = Team::new(&world().plane, "h114");
    team.apply(&pod("fat").without_grace_period());
    let anchor = config_map("anchor").with_protect_label("Always");
    team.apply(&anchor.with_owner(team.owner("Pod", "fat")));
    team.refused(&["pod/fat"]);
    let delete = ["delete", "pod/fat", "--wait=false"];
    kubectl_as(&team, "system:kube-scheduler", &delete).success().unwrap();
    team.wait_until_deleted("pod/fat");
    team.collector_asks("/anchor");
    team.assert_exists("configmap/anchor");
}

#[test]
fn h158_a_claim_of_a_stateful_set_does_not_keep_the_pod_that_owns_it() {
    let team = team("h158", "persistentvolumeclaims", json!({"whileUsed": {}}));
    let template = json!({"metadata": {"name": "v"}, "spec": claim("v")["spec"]});
    let spec = json!({"serviceName": "s", "replicas": 0, "volumeClaimTemplates": [template]});
    team.apply(&workload("StatefulSet", "s", &pod("s")).with(json!({"spec": spec})));
    for (claimed, cascade) in [("v-s-0", "background"), ("v-s-1", "foreground")] {
        let hog = format!("pod/{cascade}");
        team.apply(&pod(cascade).without_grace_period());
        team.apply(&claim(claimed).with_owner(team.owner("Pod", cascade)));
        let refused = team.refused(&[&hog]);
        let says = format!("also deletes persistentvolumeclaim \"{claimed}\", which is in use");
        assert!(refused.contains(&says), "{refused}");
        let cascade = format!("--cascade={cascade}");
        let delete = ["delete", &hog, "--wait=false", &cascade];
        kubectl_as(&team, "system:kube-scheduler", &delete).success().unwrap();
        team.collector_asks(&format!("/{claimed}"));
        let claimed = format!("pvc/{claimed}");
        assert_eq!(team.field(&claimed, ".metadata.deletionTimestamp"), "");
    }
    team.wait_until_deleted("pod/background");
    // Kubernetes keeps this Pod for its dependent, as the DELETE asked.
    assert_ne!(team.field("pod/foreground", ".metadata.deletionTimestamp"), "");
}

/// Runs a Pod that uses a ConfigMap and has a clean-up of its own. The Pod garbage collector
/// sets the phase of a Terminating Pod without a Node to Failed, and then the Pod uses nothing.
fn run_application(team: &Team<'_>) {
    let app = pod("app").with_env_from("configMapRef", "used");
    team.apply(&app.with_finalizers(&["example.com/x"]));
    let node = |name: &str| !name.is_empty();
    team.plane.api().wait_field(("pod/app", &team.ns), SOON, ".spec.nodeName", node).unwrap();
}

/// jane makes the Pod an owner of the ConfigMap that it uses.
fn attach(team: &Team<'_>) {
    let owners = json!({"metadata": {"ownerReferences": [team.owner("Pod", "app")]}});
    team.kubectl(&patch("configmap/used", &owners.to_string())).success().unwrap();
}

#[test]
fn h115_an_owner_that_an_editor_adds_is_a_user_until_its_clean_up_ends() {
    let team = team("h115", "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    team.apply(&config_map("used"));
    run_application(&team);
    attach(&team);
    team.deleted(&["configmap/used"]);
    team.was_kept("configmap/used");
    team.plane.delete(&["pod/app"], &team.ns);
    assert_ne!(team.field("pod/app", ".metadata.deletionTimestamp"), "");
    team.is_kept_again("configmap/used");
    team.finish("pod/app");
    team.wait_until_deleted("configmap/used");
}

#[test]
fn h115_the_use_of_what_it_owns_does_not_stop_the_deletion_of_an_owner() {
    let team = team("h115-deny", "configmaps", json!({"whileUsed": {}}));
    team.apply(&config_map("used"));
    run_application(&team);
    team.refused(&["configmap/used"]);
    attach(&team);
    let delete = ["delete", "pod/app", "--wait=false"];
    kubectl_as(&team, "admin", &delete).success().unwrap();
    team.assert_exists("configmap/used");
    team.finish("pod/app");
    team.wait_until_deleted("configmap/used");
}

#[test]
fn h116_a_repeated_delete_removes_no_guarded_finalizer() {
    let guarded = json!({"finalizers": ["foregroundDeletion", "orphan"]});
    let team = team("h116", "configmaps", json!({"fromStripping": guarded}));
    for (owner, finalizers) in [("terminating", &[][..]), ("kept", &["orphan"])] {
        team.apply(&config_map(owner).with_finalizers(finalizers));
        let child = config_map(&format!("{owner}-child")).with_finalizers(&["example.com/x"]);
        team.apply(&child.with_owner(team.owner("ConfigMap", owner)));
    }
    team.deleted(&["configmap/terminating", "--cascade=foreground"]);
    let strip = patch("configmap/terminating", r#"{"metadata":{"finalizers":null}}"#);
    for (object, refused) in [
        ("terminating", team.kubectl(&strip)),
        ("terminating", team.delete(&["configmap/terminating", "--cascade=background"])),
        ("kept", team.delete(&["configmap/kept", "--cascade=background"])),
    ] {
        let refused = refused.failure().unwrap();
        assert!(refused.contains("(FinalizerGuarded)"), "{object}: {refused}");
    }
    assert_ne!(team.field("configmap/terminating", ".metadata.finalizers"), "");
    // The same request again changes nothing.
    team.deleted(&["configmap/terminating", "--cascade=foreground"]);
    team.finish("configmap/terminating-child");
    team.wait_until_deleted("configmap/terminating");
}

#[test]
fn h117_the_objects_that_every_namespace_has_can_be_protected() {
    let team = Team::new(&world().plane, "h117");
    let objects = ["serviceaccount/default", "configmap/kube-root-ca.crt"];
    for object in objects {
        team.plane.api().wait_field((object, &team.ns), SOON, ".metadata.name", |_| true).unwrap();
        team.kubectl(&["label", object, "belay.dev/protect=Always"]).success().unwrap();
        team.refused(&[object]);
    }
    // The deletion of their Namespace does not wait for them.
    team.plane.delete(&[&format!("namespace/{}", team.ns)], "");
    team.plane.api().wait_gone((&format!("namespace/{}", team.ns), ""), SOON).unwrap();
}

#[test]
fn h119_objects_of_a_tenant_do_not_name_the_replicas_of_belay() {
    let team = team("h119", "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    team.apply(&config_map("used"));
    team.apply(&pod("user").with_env_from("configMapRef", "used").without_grace_period());
    team.deleted(&["configmap/used"]);
    team.was_kept("configmap/used");
    let is_random = |name: &str| {
        let number = name.strip_prefix("belay-").unwrap_or_default();
        number.len() == 16 && number.chars().all(|digit| digit.is_ascii_hexdigit())
    };
    let token = team.field("configmap/used", r".metadata.annotations.belay\.dev/release-token");
    assert!(is_random(token.split('/').next().unwrap()), "{token}");
    let event = eventually("an Event", SOON, || {
        let events = team.plane.api().list("events", &team.ns, "")?;
        let of_belay = |event: &&Value| event["reportingComponent"] == "belay";
        events.iter().find(of_belay).cloned().ok_or_else(|| "none".into())
    })
    .unwrap();
    for name in [&event["reportingInstance"], &event["source"]["host"]] {
        assert!(is_random(name.as_str().unwrap()), "{event}");
    }
    team.deleted(&["pod/user"]);
    team.wait_until_deleted("configmap/used");
}
