//! Compares the chart with the output of the program.

use std::process::Command;

use serde_json::Value;

use crate::helm::{NAMESPACE, Objects, Render, chart, strings};
use crate::snapshots::{REWRITE, updating};

/// The output of the program.
fn print(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_belay")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The output of the program, as objects.
pub fn printed(arguments: &[&str]) -> Objects {
    Objects(serde_saphyr::from_multiple(&print(arguments)).unwrap())
}

/// An object without the labels and annotations for helm.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("labels");
    metadata.remove("namespace");
    object
}

#[test]
fn the_crds_are_those_of_the_program_and_outlive_the_chart() {
    let keep = "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n";
    let printed = print(&["admin", "crds"]);
    let definitions = printed.split("---\n").filter(|d| d.contains("\nkind: CustomResource"));
    let folder = chart().join("crds");
    let mut count = 0;
    for definition in definitions {
        count += 1;
        let expected = definition.replacen("metadata:\n", keep, 1);
        let object: Value = serde_saphyr::from_str(&expected).unwrap();
        let path = folder.join(format!("{}.yaml", text(&object["metadata"]["name"])));
        if updating() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).is_ok_and(|found| found == expected),
            "{} is not what `belay admin crds` prints; {REWRITE}",
            path.display()
        );
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), count);
    assert_eq!(count, 4);
}

#[test]
fn the_checks_of_approvals_are_those_of_the_program() {
    let rendered = Render::default().objects();
    let printed = printed(&["admin", "crds"]);
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        assert_eq!(rendered.of(kind).len(), printed.of(kind).len());
        for expected in printed.of(kind) {
            let found = rendered.get(kind, text(&expected["metadata"]["name"]));
            assert_eq!(bare(found), *expected);
        }
    }
}

#[test]
fn the_webhook_configurations_are_those_of_the_program() {
    // An account with another name than the installation.
    for (name, values) in [("belay", "replicas=2"), ("guard", "fullnameOverride=\"guard\"")] {
        let rendered = Render::default().set(values).objects();
        let printed = printed(&["admin", "manifests", &format!("--service={NAMESPACE}/{name}")]);
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            let (found, expected) = (rendered.get(kind, name), printed.get(kind, name));
            let entries = |object: &Value| object["webhooks"].as_array().unwrap().clone();
            assert_eq!(entries(found).len(), entries(expected).len());
            for (found, expected) in entries(found).iter().zip(entries(expected)) {
                assert_eq!(*found, expected);
                // The leader adds these fields, and an upgrade must not remove them.
                assert_eq!(found.get("rules"), None);
                assert_eq!(found["clientConfig"].get("caBundle"), None);
                assert_eq!(found["clientConfig"]["service"].get("path"), None);
            }
            assert_eq!(bare(found), bare(expected));
        }
    }
}

#[test]
fn belays_own_account_is_known_by_its_name() {
    let account = "serviceAccount={\"create\":false,\"name\":\"guard\"}";
    let objects = Render::default().set(account).objects();
    let webhooks = objects.get("MutatingWebhookConfiguration", "belay").to_string();
    assert!(webhooks.contains("!= 'system:serviceaccount:belay:guard'"), "{webhooks}");
    assert_eq!(
        objects.get("Deployment", "belay")["spec"]["template"]["spec"]["serviceAccountName"],
        "guard"
    );
    assert_eq!(objects.find("ServiceAccount", "guard"), None);
    let timeouts = Render::default().set("webhook={\"timeoutSeconds\":9,\"deadlineSeconds\":8}");
    let objects = timeouts.objects();
    for entry in
        objects.get("ValidatingWebhookConfiguration", "belay")["webhooks"].as_array().unwrap()
    {
        assert_eq!(entry["timeoutSeconds"], 9);
    }
    let pod = &objects.get("Deployment", "belay")["spec"]["template"]["spec"];
    assert!(strings(&pod["containers"][0]["args"]).contains(&"--deadline=8"));
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
