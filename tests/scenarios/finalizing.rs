//! PUT of namespaces/finalize removes the finalizer that keeps a Namespace in storage.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::deleting::wait_until_deleted;
use crate::harness::kubectl::Output;
use crate::harness::manifest::{Manifest as _, config_map};
use crate::harness::{ControlPlane, eventually};
use crate::people::{Person, field};
use crate::{policy, world};

#[test]
fn s08_a_namespace_is_not_finalized_over_protected_content() {
    finalizing(&world().plane);
}

/// Scenario 8, under any name of the namespace controller.
pub fn finalizing(plane: &ControlPlane) {
    let ns = plane.namespace("s08").unwrap();
    let person = Person::editor(plane, &ns).kubeconfig;
    // In another namespace: objects in a Namespace are deleted with it.
    let home = plane.namespace("s08-home").unwrap();
    let account = Person::operator(plane, &ns, &home, "forcer").kubeconfig;
    let users: [&Path; 3] = [plane.kubeconfig(), &person, &account];
    // Something else keeps this object in the Namespace, too, so that the test
    // chooses when it is empty.
    let ledger = config_map("ledger").with_namespace(&ns).with_finalizers(&["example.com/wait"]);
    plane.apply(&ledger).unwrap();
    let protects = |name: &str| {
        let target = policy::target("", "configmaps", &ns).with(json!({"names": [name]}));
        let spec = json!({"targets": [target], "protect": {"always": {}}, "hold": "Never"});
        policy::apply(plane, &ns, spec);
    };
    let refused = |who: &Path| {
        let refused = finalize(plane, who, &ns).failure().unwrap();
        assert_eq!(
            refused,
            format!(
                "Error from server (NotEmpty): admission webhook \"finalize.belay.dev\" denied \
                 the request: namespace \"{ns}\" contains ConfigMap {ns}/ledger (protected); \
                 policy {ns}. To override: kubectl belay approve namespaces/{ns} \
                 --scope content --reason \"…\". Details: kubectl belay why namespaces/{ns}\n"
            )
        );
    };

    protects("ledger");
    users.into_iter().for_each(refused);
    assert_eq!(finalizers(plane, &ns), r#"["kubernetes"]"#);

    // The same for a Terminating Namespace, whose deletion began while nothing in it was
    // protected.
    protects("nothing");
    let delete = ["delete", "namespace", &ns, "--wait=false"];
    plane.kubectl_as(&person, &delete).unwrap().success().unwrap();
    protects("ledger");
    users.into_iter().for_each(refused);
    assert_eq!(finalizers(plane, &ns), r#"["kubernetes"]"#);
    field(plane, &ns, "configmap/ledger", ".metadata.name");

    // After that, the namespace controller finalizes it automatically.
    protects("nothing");
    plane.patch("configmap/ledger", &ns, &json!({"metadata": {"finalizers": null}}));
    wait_until_deleted(plane, &ns, &format!("namespace/{ns}"));
    eventually("the controller's PUT in the audit log", Duration::from_secs(20), || {
        let log = plane.audit_log()?;
        let allowed = log.lines().any(|line| {
            line.contains(&format!("/api/v1/namespaces/{ns}/finalize"))
                && line.contains(r#""finalize.belay.dev/verdict":"Allow""#)
                && (line.contains("system:serviceaccount:kube-system:namespace-controller")
                    || line.contains("\"username\":\"system:kube-controller-manager\""))
        });
        if allowed { Ok(()) } else { Err("it is not there".into()) }
    })
    .unwrap();

    // Every user may finalize a Namespace without protected objects.
    let ns = plane.namespace("s08").unwrap();
    let person = Person::editor(plane, &ns).kubeconfig;
    finalize(plane, &person, &ns).success().unwrap();
    assert_eq!(finalizers(plane, &ns), "");
}

fn finalizers(plane: &ControlPlane, ns: &str) -> String {
    field(plane, ns, &format!("namespace/{ns}"), ".spec.finalizers")
}

/// The PUT that is a well-known workaround.
fn finalize(plane: &ControlPlane, who: &Path, ns: &str) -> Output {
    let path = format!("/api/v1/namespaces/{ns}/finalize");
    let args = ["replace", "--raw", &path, "-f", "-"];
    eventually("a PUT of what is stored", Duration::from_secs(60), || {
        let mut namespace =
            plane.api().get(&format!("namespace/{ns}"), "")?.ok_or("it does not exist")?;
        namespace["spec"]["finalizers"] = json!([]);
        let output = plane.kubectl_with(Some(who), &args, &namespace)?;
        // Its controller has written since the read.
        if output.stderr.contains("(Conflict)") {
            return Err(output.stderr.into());
        }
        Ok(output)
    })
    .unwrap()
}
