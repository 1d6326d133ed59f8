//! What a refusal looks at and what it names: owners above a user, and objects
//! of other namespaces.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::team::{SOON, Team};
use crate::{policy, world};

fn claim(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: \
         [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    )
}

fn owner(team: &Team<'_>, kind: &str, name: &str) -> Value {
    let uid = team.field(&format!("{kind}/{name}"), ".metadata.uid");
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid})
}

/// A policy for one claim, which counts the users that objects of this resource
/// own.
fn protect_claim(team: &Team<'_>, claim: &str, owners: &str) {
    let target = policy::target("", "persistentvolumeclaims", &team.ns)
        .replace("namespaceSelector", &format!("names: [{claim}], namespaceSelector"));
    let by = format!("{{apiGroups: [''], resources: [{owners}]}}");
    let spec = format!("{target}  protect: {{whileUsed: {{by: [{by}]}}}}\n");
    policy::apply(team.plane, &format!("{}-{claim}", team.ns), &spec);
}

#[test]
fn h22_a_first_owner_does_not_hide_the_owner_that_a_policy_means() {
    let team = Team::new(&world().plane, "h22");
    protect_claim(&team, "data", "configmaps");
    // Tells when belay has seen the new owner.
    protect_claim(&team, "probe", "secrets");
    let [data, probe] = ["data", "probe"].map(claim);
    team.apply(&format!("{data}---\n{probe}"));
    team.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: database}\n");
    team.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: front}\n");
    let volume = |name| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": true}});
    let [front, database] = [("Secret", "front"), ("ConfigMap", "database")]
        .map(|(kind, name)| owner(&team, kind, name));
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "db", "ownerReferences": [database]},
        "spec": {"containers": [{"name": "c", "image": "none"}],
            "volumes": [volume("data"), volume("probe")]}});
    team.apply(&pod.to_string());
    let by_database = format!("in use by ConfigMap {}/database (Pod db, ", team.ns);
    let said = team.refused(&["pvc/data"]);
    assert!(said.contains(&by_database), "{said}");

    let owners = json!({"metadata": {"ownerReferences": [front, database]}}).to_string();
    team.kubectl(&["patch", "pod/db", "--type=merge", "-p", &owners]).success().unwrap();
    team.refused(&["pvc/probe"]);
    let said = team.delete(&["pvc/data"]).failure().unwrap();
    assert!(said.contains(&by_database), "{said}");
    team.stands("pvc/data");
}

/// A custom kind whose objects name a ConfigMap of any namespace.
fn define_gizmos(team: &Team<'_>) {
    let group = "h07.example.com";
    team.plane.define_kind(group, "Gizmo", "gizmos").unwrap();
    let from = format!("from: {{group: {group}, resource: gizmos}}, to: {{resource: configmaps}}");
    let relation = format!(
        "apiVersion: belay.dev/v1alpha1\nkind: Relation\nmetadata: {{name: h23-gizmos}}\nspec: \
         {{{from}, nameFieldPath: spec.name, namespaceFieldPath: spec.namespace}}\n"
    );
    team.plane.apply(&relation).unwrap();
}

#[test]
fn h23_refusals_and_events_name_no_object_of_another_namespace() {
    let plane = &world().plane;
    let (mine, other) = (Team::new(plane, "h23"), Team::new(plane, "h23-other"));
    define_gizmos(&mine);
    let target = policy::target("", "configmaps", &mine.ns);
    policy::apply(plane, &mine.ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    let place = format!("{{matchLabels: {{kubernetes.io/metadata.name: {}}}}}", other.ns);
    let exists = format!("{{apiGroups: [''], resources: [secrets], namespaceSelector: {place}}}");
    let target = policy::target("", "services", &mine.ns);
    let spec = format!("{target}  protect: {{whileExists: [{exists}]}}\n");
    policy::apply(plane, &format!("{}-exists", mine.ns), &spec);
    mine.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\n");
    mine.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
    );
    for name in ["merger-with-acme", "merger-with-zeta"] {
        let gizmo = json!({"apiVersion": "h07.example.com/v1", "kind": "Gizmo",
            "metadata": {"name": name}, "spec": {"name": "shared", "namespace": mine.ns}});
        let create = ["create", "-n", &other.ns, "-f", "-"];
        plane.apply_to(&create, &gizmo.to_string()).unwrap().success().unwrap();
        let secret = ["create", "secret", "generic", name, "-n", &other.ns];
        plane.kubectl(&secret).unwrap().success().unwrap();
    }
    let hidden = [&*other.ns, "merger", "Gizmo", "Secret", "more"];
    for object in ["configmap/shared", "service/web"] {
        let said = mine.refused(&[object]);
        assert!(said.contains(" by an object in another namespace; policy "), "{said}");
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
    let target = policy::target("scheduling.k8s.io", "priorityclasses", &team.ns)
        .replace("namespaceSelector", &format!("names: [{class}], namespaceSelector"));
    policy::apply(plane, &team.ns, &format!("{target}  protect: {{whileUsed: {{}}}}\n"));
    let kind = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass";
    plane.apply(&format!("{kind}\nmetadata: {{name: {class}}}\nvalue: 7\n")).unwrap();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "secret-project"},
        "spec": {"containers": [{"name": "c", "image": "none"}], "priorityClassName": class,
            "schedulerName": "none"}});
    team.apply(&pod.to_string());
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
