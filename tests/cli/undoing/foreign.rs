//! Dependents that tenants add to a cluster-scoped object (H161).

use serde_json::{Value, json};

use super::*;
use crate::harness::crd::crd;

/// A ClusterRole with the name of the namespace and a finalizer. Returns its name, the ClusterRole and
/// an owner reference to it.
fn kept_role(plane: &ControlPlane, ns: &str) -> (String, Value, Value) {
    let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", ns);
    plane.apply(&role.with_finalizers(&["undo.test/kept"])).unwrap();
    let name = format!("clusterroles/{ns}");
    let role = read(plane, "", &name);
    let mut owner = owner("ClusterRole", ns, uid(&role));
    owner["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    (name, role, owner)
}

const OWNERS: &str = ".metadata.ownerReferences";

fn owned(owners: &[Value]) -> Value {
    json!({"metadata": {"ownerReferences": owners}})
}

#[test]
fn h161_an_undo_that_can_not_keep_a_dependent_begins_only_without_its_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-fleet").unwrap();
    let target = policy::target("", "secrets", &ns);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"fromOrphaning": {}}}));
    let (name, old, owner) = kept_role(plane, &ns);
    plane.apply(&secret("token").with_namespace(&ns).with(owned(&[owner]))).unwrap();
    delete(plane, "", &name);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", &name, "--yes", "--out", &file];
    let refused = belay(plane, &undo);
    let next = format!("add --ignore-namespace {ns}");
    assert!(refused.code == 1 && refused.stderr.contains(&next), "{refused:?}");
    assert!(refused.stderr.contains("secrets/token"), "{refused:?}");
    assert!(refused.stderr.contains("nothing was changed"), "{refused:?}");
    assert!(!Path::new(&file).exists());
    let ignoring = [&undo[..], &["--ignore-namespace", &ns]].concat();
    let (mut undo, _progress) = begin(plane, &ignoring, "waiting for the deletion");
    free(plane, "", &name);
    assert!(undo.wait().unwrap().success());
    assert_ne!(uid(&read(plane, "", &name)), uid(&old));
    free(plane, "", &name);
}

#[test]
fn h161_a_terminating_claim_in_another_namespace_neither_stops_nor_delays_an_undo() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-scaled-tenant").unwrap();
    storage_class(plane, &ns);
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}});
    plane.apply(&stateful_set(&ns).with(json!({"spec": retention})).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let of_set = |owners: &str| owners.contains("StatefulSet");
    plane.api().wait_field(("pvc/data-web-0", &ns), LIMIT, OWNERS, of_set).unwrap();
    let claim = bound(plane, &ns, "pvc/data-web-0");
    let (name, old, owner) = kept_role(plane, &ns);
    let mut owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.push(owner);
    plane.api().patch("pvc/data-web-0", &ns, &owned(&owners)).unwrap().success().unwrap();
    hold_claims(plane, &ns);
    wait_until_held(plane, &ns, "pvc/data-web-0");
    delete(plane, "", &name);
    delete(plane, &ns, "pvc/data-web-0");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", &name, "--yes", "--out", &file];
    let undone = std::thread::scope(|scope| {
        scope.spawn(|| {
            let written = || if Path::new(&file).exists() { Ok(()) } else { Err("none".into()) };
            eventually("the file", LIMIT, written).unwrap();
            free(plane, "", &name);
        });
        belay(plane, &undo)
    });
    let next =
        format!("it still exists; next: wait for its deletion, or add --ignore-namespace {ns}");
    assert!(undone.code == 1 && undone.stdout.contains(&next), "{undone:?}");
    assert_ne!(uid(&read(plane, "", &name)), uid(&old));
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 1);
    assert_eq!(approvals_of(plane, uid(&claim)), [Value::Null; 0]);
    let resume = ["undo", "--resume", &file, "--yes", "--ignore-namespace", &ns];
    assert_eq!(belay(plane, &resume).code, 0);
    free(plane, "", &name);
}

#[test]
fn h161_a_reference_with_the_uid_of_the_target_and_another_kind_is_ignored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-nope").unwrap();
    let (name, _, mut owner) = kept_role(plane, &ns);
    owner["apiVersion"] = "nope.example.com/v1".into();
    owner["kind"] = "Foo".into();
    plane.apply(&config_map("stranger").with_namespace(&ns).with(owned(&[owner]))).unwrap();
    delete(plane, "", &name);
    let steps = belay(plane, &["undo", &name, "--dry-run"]);
    assert!(steps.code == 0 && steps.stdout.contains(&ns), "{steps:?}");
    assert!(!steps.stdout.contains("stranger"), "{steps:?}");
    free(plane, "", &name);
}

#[test]
fn h206_h207_objects_of_tenants_neither_fill_the_file_nor_come_before_the_target() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-large-tenant").unwrap();
    let mut kind = crd("undo-large.test", "Boss", "bosses", &["v1"], "v1");
    kind["spec"]["scope"] = "Cluster".into();
    plane.apply(&kind).unwrap();
    let established = ["wait", "crd/bosses.undo-large.test", "--for=condition=Established"];
    plane.kubectl(&established).unwrap().success().unwrap();
    let boss = object("undo-large.test/v1", "Boss", &ns).with_finalizers(&["undo.test/kept"]);
    let applied = || plane.apply(&boss).map(drop);
    eventually("the new kind", LIMIT, applied).unwrap();
    let name = format!("bosses.undo-large.test/{ns}");
    let mut owner = owner("Boss", &ns, uid(&read(plane, "", &name)));
    owner["apiVersion"] = "undo-large.test/v1".into();
    let maps: Vec<String> = (0..20).map(|number| format!("configmap/m{number:02}")).collect();
    for map in &maps {
        let (_, name) = map.split_once('/').unwrap();
        let map_of = config_map(name).with_finalizers(&["undo.test/kept"]);
        plane.apply(&map_of.with_namespace(&ns).with(owned(&[owner.clone()]))).unwrap();
        delete(plane, &ns, map);
    }
    delete(plane, "", &name);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", &name, "--yes", "--out", &file];
    let (mut undo, mut progress) = begin(plane, &undo, "waiting for the deletion");

    let large = json!({"data": {"text": "x".repeat(1_000_000)}});
    for map in &maps {
        plane.api().patch(map, &ns, &large).unwrap().success().unwrap();
    }
    let size = || std::fs::metadata(&file).map_or(0, |file| file.len());
    let is_saved = || if size() > 14 << 20 { Ok(()) } else { Err("not yet".into()) };
    eventually("the large objects in the file", LIMIT, is_saved).unwrap();
    // The undo saves all changes before it detaches a new dependent.
    plane.apply(&config_map("new").with_namespace(&ns).with(owned(&[owner]))).unwrap();
    plane.api().wait_field(("configmap/new", &ns), LIMIT, OWNERS, str::is_empty).unwrap();
    assert!(size() < 17 << 20, "{}", size());

    for map in &maps {
        free(plane, &ns, map);
        plane.api().wait_gone((map, &ns), LIMIT).unwrap();
    }
    free(plane, "", &name);
    assert!(undo.wait().unwrap().success());
    let mut lines = String::new();
    progress.read_to_string(&mut lines).unwrap();
    let created: Vec<_> = lines.lines().filter_map(|line| line.strip_prefix("created ")).collect();
    assert!(created.len() == 21 && created[0] == name, "{lines}");
    for (ns, object) in maps.iter().map(|map| (&*ns, &**map)).chain([("", &*name)]) {
        free(plane, ns, object);
    }
}

#[test]
fn a_continued_undo_restores_what_has_ended_in_a_namespace_that_it_ignores() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-ignored").unwrap();
    let (name, _, owner) = kept_role(plane, &ns);
    let owned = secret("token").with(owned(&[owner])).with_finalizers(&["undo.test/kept"]);
    plane.apply(&owned.with_namespace(&ns)).unwrap();
    delete(plane, "", &name);
    delete(plane, &ns, "secret/token");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let late = belay(plane, &["undo", &name, "--yes", "--out", &file, "--timeout", "1s"]);
    assert!(late.code == 1 && late.stdout.contains("still existed"), "{late:?}");
    free(plane, &ns, "secret/token");
    plane.api().wait_gone(("secret/token", &ns), LIMIT).unwrap();
    free(plane, "", &name);
    let resume = ["undo", "--resume", &file, "--yes", "--ignore-namespace", &ns];
    let resumed = belay(plane, &resume);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let owner = &read(plane, &ns, "secret/token")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], uid(&read(plane, "", &name)));
    free(plane, &ns, "secret/token");
    free(plane, "", &name);
}
