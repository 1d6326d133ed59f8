//! The objects that a refusal checks and names: owners above a user, and objects of other
//! namespaces.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{Manifest as _, claim, config_map, object, pod, relation, secret};
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A policy for one claim, which counts the users that objects of this resource
/// own.
fn protect_claim(team: &Team<'_>, claim: &str, owners: &str) {
    let target = policy::target("", "persistentvolumeclaims", &team.ns);
    let target = target.with(json!({"names": [claim]}));
    let by = json!([{"apiGroups": [""], "resources": [owners]}]);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"by": by}}});
    policy::apply(team.plane, &format!("{}-{claim}", team.ns), spec);
}

#[test]
fn h22_a_first_owner_does_not_hide_the_owner_that_a_policy_means() {
    let team = Team::new(&world().plane, "h22");
    protect_claim(&team, "data", "configmaps");
    // A denial shows that belay has seen the new owner.
    protect_claim(&team, "probe", "secrets");
    team.apply(&claim("data"));
    team.apply(&claim("probe"));
    team.apply(&config_map("database"));
    team.apply(&secret("front"));
    let volume = |name| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": true}});
    let [front, database] =
        [("Secret", "front"), ("ConfigMap", "database")].map(|(kind, name)| team.owner(kind, name));
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db", "ownerReferences": [database]},
        "spec": {"containers": [{"name": "c", "image": "none"}],
            "volumes": [volume("data"), volume("probe")]}});
    team.apply(&pod);
    let by_database = format!("in use by ConfigMap {}/database (Pod db, ", team.ns);
    let said = team.refused(&["pvc/data"]);
    assert!(said.contains(&by_database), "{said}");

    let owners = json!({"metadata": {"ownerReferences": [front, database]}}).to_string();
    team.kubectl(&["patch", "pod/db", "--type=merge", "-p", &owners]).success().unwrap();
    team.refused(&["pvc/probe"]);
    let said = team.delete(&["pvc/data"]).failure().unwrap();
    assert!(said.contains(&by_database), "{said}");
    team.assert_exists("pvc/data");
}

/// A custom kind whose objects name a ConfigMap of any namespace.
fn define_gizmos(team: &Team<'_>) {
    let group = "h07.example.com";
    team.plane.define_kind(group, "Gizmo", "gizmos").unwrap();
    let spec = json!({"from": {"group": group, "resource": "gizmos"},
        "to": {"resource": "configmaps"}, "nameFieldPath": "spec.name",
        "namespaceFieldPath": "spec.namespace"});
    team.plane.apply(&relation("h23-gizmos", spec)).unwrap();
}

#[test]
fn h23_refusals_and_events_name_no_object_of_another_namespace() {
    let plane = &world().plane;
    let (mine, other) = (Team::new(plane, "h23"), Team::new(plane, "h23-other"));
    define_gizmos(&mine);
    policy::protect(plane, &mine.ns, "configmaps", json!({"whileUsed": {}}));
    let exists = policy::target("", "secrets", &other.ns);
    let target = policy::target("", "services", &mine.ns);
    let spec = json!({"targets": [target], "protect": {"whileExists": [exists]}});
    policy::apply(plane, &format!("{}-exists", mine.ns), spec);
    mine.apply(&config_map("shared"));
    mine.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
    );
    for name in ["merger-with-acme", "merger-with-zeta"] {
        let gizmo = json!({"apiVersion": "h07.example.com/v1", "kind": "Gizmo",
            "metadata": {"name": name}, "spec": {"name": "shared", "namespace": mine.ns}});
        let create = ["create", "-n", &other.ns, "-f", "-"];
        plane.apply_to(&create, &gizmo).unwrap().success().unwrap();
        let secret = ["create", "secret", "generic", name, "-n", &other.ns];
        plane.kubectl(&secret).unwrap().success().unwrap();
    }
    let hidden = [&*other.ns, "merger", "Gizmo", "Secret", "more"];
    for object in ["configmap/shared", "service/web"] {
        let said = mine.refused(&[object]);
        assert!(said.contains(" an object in another namespace"), "{said}");
        for word in hidden {
            assert!(!said.contains(word), "{word}: {said}");
        }
        let paths = ".involvedObject.name .message";
        let name = object.split_once('/').unwrap().1;
        let events = eventually("the Event", SOON, || {
            let events = plane.api().fields("events", &mine.ns, "", paths)?;
            let found = events.iter().any(|event| event.starts_with(name));
            if found { Ok(events.join("\n")) } else { Err(events.join("\n").into()) }
        })
        .unwrap();
        for word in hidden {
            assert!(!events.contains(word), "{word}: {events}");
        }
    }
}

/// Events of cluster-scoped objects are in the namespace default.
#[test]
fn h48_events_in_default_name_no_object_of_another_namespace() {
    let plane = &world().plane;
    let team = Team::new(plane, "h48");
    let class = format!("class-{}", team.ns);
    let target = policy::target("scheduling.k8s.io", "priorityclasses", &team.ns);
    let target = target.with(json!({"names": [class]}));
    policy::apply(plane, &team.ns, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    let priority = object("scheduling.k8s.io/v1", "PriorityClass", &class);
    plane.apply(&priority.with(json!({"value": 7}))).unwrap();
    let spec = json!({"priorityClassName": class, "schedulerName": "none"});
    team.apply(&pod("secret-project").with(json!({"spec": spec})));
    let delete = ["delete", "priorityclass", &class, "--wait=false"];
    let said = eventually("the Pod is known", SOON, || plane.kubectl(&delete)?.failure());
    // An administrator may read all namespaces.
    let said = said.unwrap();
    assert!(said.contains(&format!("in use by Pod {}/secret-project", team.ns)), "{said}");
    let events = eventually("the Event", SOON, || {
        let paths = ".involvedObject.name .message";
        let mut events = plane.api().fields("events", "default", "", paths)?;
        events.retain(|event| event.starts_with(&format!("{class} ")));
        let events = events.join("\n");
        if events.contains(&team.ns) { Ok(events) } else { Err(events.into()) }
    });
    let events = events.unwrap();
    assert!(events.contains(&format!("policy {}", team.ns)), "{events}");
    for word in ["secret-project", "Pod", &format!("{}/", team.ns)] {
        assert!(!events.contains(word), "{word}: {events}");
    }
}
