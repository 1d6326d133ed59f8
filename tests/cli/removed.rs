//! `belay impact --removed`, for objects in a cluster.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, config_map, documents, object, pod, secret};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

/// Writes manifests into a file of this folder and returns the path.
fn write_manifests(folder: &Path, name: &str, objects: &[Value]) -> String {
    let path = folder.join(name);
    fs::write(&path, documents(objects)).unwrap();
    path.display().to_string()
}

/// A CronJob, which uses its objects even if none of its Pods runs.
fn cron(settings: &str) -> Value {
    let pod = pod("web").with_env_from("configMapRef", settings);
    let pod = pod.with(json!({"spec": {"restartPolicy": "Never"}}));
    let job = json!({"spec": {"template": {"spec": pod["spec"]}}});
    object("batch/v1", "CronJob", "web")
        .with(json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}}))
}

fn apply(plane: &ControlPlane, ns: &str, objects: &[Value]) {
    let args = ["apply", "-n", ns, "-f", "-"];
    plane.apply_to(&args, &documents(objects)).unwrap().success().unwrap();
}

#[test]
fn the_prune_of_a_change_is_computed_for_the_current_cluster() {
    let plane = &world().plane;
    let ns = plane.namespace("removed").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    apply(plane, &ns, &[config_map("one"), config_map("free"), cron("one")]);
    let folder = tempfile::tempdir().unwrap();
    let [one, free, never] = ["one", "free", "never"].map(config_map);
    let gizmo = object("example.test/v1", "Gizmo", "x");
    let old = write_manifests(folder.path(), "old.yaml", &[one, free, never, gizmo, cron("one")]);
    // The change repairs its use; the cluster does not contain the change yet.
    let new = write_manifests(folder.path(), "new.yaml", &[config_map("two"), cron("two")]);
    let asked = ["impact", "--removed", &old, &new, "-n", &ns];
    let said = belay(plane, &asked);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert!(said.stdout.starts_with("DELETE 2 objects ("), "{said:?}");
    let by = format!("configmap \"one\" is in use by CronJob {ns}/web");
    assert!(said.stdout.contains(&by), "{said:?}");
    let missing =
        format!("not found   configmaps/never -n {ns}\nnot found   gizmo.example.test/x\n");
    assert!(said.stdout.contains(&missing), "{said:?}");
    let markdown = belay(plane, &[&asked[..], &["-o", "markdown"]].concat());
    assert!(markdown.stdout.starts_with("### DENIED in part: delete 2 objects ("), "{markdown:?}");
    assert!(markdown.stdout.contains("\n- `gizmo.example.test/x`\n"), "{markdown:?}");

    // After the apply, nothing blocks the prune.
    apply(plane, &ns, &[config_map("two"), cron("two")]);
    eventually("a ConfigMap that nobody uses", LIMIT, || {
        let said = belay(plane, &asked);
        if said.code == 0 { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();

    // Afterwards none of its objects exists.
    kubectl(plane, &["delete", "configmap", "one", "free", "-n", &ns]);
    let said = belay(plane, &asked);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.starts_with("none of the removed objects exists\nnot found "), "{said:?}");
}

#[test]
fn unreadable_objects_do_not_count_as_deleted() {
    let plane = &world().plane;
    let ns = plane.namespace("removed-blind").unwrap();
    kubectl(plane, &["create", "secret", "generic", "password", "-n", &ns]);
    let folder = tempfile::tempdir().unwrap();
    let old = write_manifests(folder.path(), "old.yaml", &[secret("password")]);
    let new = write_manifests(folder.path(), "new.yaml", &[config_map("other")]);
    let asked = ["impact", "--removed", &old, &new, "-n", &ns, "-o", "json"];
    let seen = json(&belay(plane, &asked));
    assert_eq!(seen["targets"][0]["name"], "password", "{seen}");
    let nobody = plane.user("removed-nobody", None).unwrap();
    let blind = belay_as(&nobody, &asked);
    assert_eq!(blind.code, 3, "{blind:?}");
    let blind = json(&blind);
    assert_eq!(blind["verdict"], "Unknown", "{blind}");
    assert_eq!(blind["missing"], json!([]), "{blind}");
    let unread = blind["notRead"].as_array().unwrap();
    let secret = format!("secrets/password -n {ns}");
    assert!(unread.iter().any(|one| one["resource"] == secret.as_str()), "{blind}");
}
