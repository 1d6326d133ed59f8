//! `belay impact --removed`, of what is in a cluster.

use std::fs;
use std::path::Path;

use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

/// Writes manifests into a file of this folder, and says where.
fn written(folder: &Path, name: &str, manifests: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, manifests).unwrap();
    path.display().to_string()
}

fn configmap(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
}

/// A CronJob, which uses what it uses with no Pod of it running.
fn cron(settings: &str) -> String {
    format!(
        "---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: web}}\nspec: {{schedule: \"0 0 1 1 \
         *\", jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: a, \
         image: none, envFrom: [{{configMapRef: {{name: {settings}}}}}]}}]}}}}}}}}}}\n"
    )
}

fn apply(plane: &ControlPlane, ns: &str, manifests: &str) {
    plane.apply_to(&["apply", "-n", ns, "-f", "-"], manifests).unwrap().success().unwrap();
}

#[test]
fn what_a_change_would_prune_is_told_of_the_cluster_as_it_is() {
    let plane = &world().plane;
    let ns = plane.namespace("removed").unwrap();
    policy::apply(
        plane,
        &ns,
        &(policy::target("", "configmaps", &ns) + "  protect: {whileUsed: {}}\n"),
    );
    apply(plane, &ns, &(configmap("one") + &configmap("free") + &cron("one")));
    let folder = tempfile::tempdir().unwrap();
    let gizmo = "---\napiVersion: example.test/v1\nkind: Gizmo\nmetadata: {name: x}\n";
    let before = configmap("one") + &configmap("free") + &configmap("never") + gizmo + &cron("one");
    let old = written(folder.path(), "old.yaml", &before);
    // The change mends the use of it; in the cluster that is still to come.
    let new = written(folder.path(), "new.yaml", &(configmap("two") + &cron("two")));
    let asked = ["impact", "--removed", &old, &new, "-n", &ns];
    let said = belay(plane, &asked);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert!(said.stdout.starts_with("DELETE 2 objects ("), "{said:?}");
    let by = format!("configmaps \"one\" is in use by CronJob {ns}/web");
    assert!(said.stdout.contains(&by), "{said:?}");
    let missing =
        format!("not there   configmaps/never -n {ns}\nnot there   gizmo.example.test/x\n");
    assert!(said.stdout.contains(&missing), "{said:?}");
    let markdown = belay(plane, &[&asked[..], &["-o", "markdown"]].concat());
    assert!(markdown.stdout.starts_with("### DENIED: delete 2 objects ("), "{markdown:?}");
    assert!(markdown.stdout.contains("\n- `gizmo.example.test/x`\n"), "{markdown:?}");

    // Once it is applied, nothing stands in the way of the prune.
    apply(plane, &ns, &(configmap("two") + &cron("two")));
    eventually("a ConfigMap that nobody uses", LIMIT, || {
        let said = belay(plane, &asked);
        if said.code == 0 { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();

    // And afterwards nothing of it is there.
    kubectl(plane, &["delete", "configmap", "one", "free", "-n", &ns]);
    let said = belay(plane, &asked);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.starts_with("nothing of what is removed is there\nnot there "), "{said:?}");
}

#[test]
fn what_may_not_be_looked_for_is_not_taken_for_gone() {
    let plane = &world().plane;
    let ns = plane.namespace("removed-blind").unwrap();
    kubectl(plane, &["create", "secret", "generic", "password", "-n", &ns]);
    let folder = tempfile::tempdir().unwrap();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: password}\n";
    let old = written(folder.path(), "old.yaml", secret);
    let new = written(folder.path(), "new.yaml", &configmap("other"));
    let asked = ["impact", "--removed", &old, &new, "-n", &ns, "-o", "json"];
    let seen = json(&belay(plane, &asked));
    assert_eq!(seen["targets"][0]["name"], "password", "{seen}");
    let nobody = plane.user("removed-nobody", None).unwrap();
    let blind = belay_as(&nobody, &asked);
    assert_eq!(blind.code, 3, "{blind:?}");
    let blind = json(&blind);
    assert_eq!(blind["verdict"], "Unknown", "{blind}");
    assert_eq!(blind["missing"], serde_json::json!([]), "{blind}");
    let unread = blind["notRead"].as_array().unwrap();
    let secret = format!("secrets/password -n {ns}");
    assert!(unread.iter().any(|one| one["resource"] == secret.as_str()), "{blind}");
}
