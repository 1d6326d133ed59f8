//! The next steps that `belay impact` and denials advise: they are true for all objects, and do
//! not depend on the order of the reads.

use serde_json::{Value, json};

use crate::harness::manifest::{
    Manifest as _, claim, config_map, deletion_policy, documents, object, pod, workload,
};
use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::{LIMIT, belay, json, kubectl, policy, program, world};

fn apply_all(plane: &ControlPlane, ns: &str, objects: &[Value]) {
    let all = documents(objects);
    plane.apply_to(&["apply", "-n", ns, "-f", "-"], &all).unwrap().success().unwrap();
}

/// The message of a dry run of a DELETE that contains this text.
fn denial(plane: &ControlPlane, ns: &str, object: &str, text: &str) -> String {
    eventually("the denial", LIMIT, || {
        let refused = plane.api().delete(&[object, "--dry-run=server"], ns)?.failure()?;
        if refused.contains(text) { Ok(refused) } else { Err(refused.into()) }
    })
    .unwrap()
}

#[test]
fn the_next_step_for_a_namespace_is_that_of_all_its_content() {
    let plane = &world().plane;
    let ns = plane.namespace("next-ns").unwrap();
    let target = json!({"apiGroups": [""], "resources": ["namespaces"], "names": [ns]});
    let any = json!({"targets": [target], "protect": {"whileNotEmpty": {"counting": "Any"}}});
    policy::apply(plane, &ns, any);
    let named = |names: [&str; 5]| names.map(config_map);
    apply_all(plane, &ns, &named(["e", "d", "c", "b", "a"]));
    apply_all(plane, &ns, &[claim("f"), pod("g").without_grace_period()]);
    let namespace = format!("ns/{ns}");
    denial(plane, "", &namespace, "more objects");
    let told = || json(&belay(plane, &["impact", &namespace, "-o", "json"]));
    let first = told();
    let step = first["nextStep"].as_str().unwrap();
    let expected =
        format!("first delete ConfigMap {ns}/a, ConfigMap {ns}/b, ConfigMap {ns}/c and ");
    assert!(step.starts_with(&expected), "{first}");
    let all = format!("; list all of them: kubectl belay impact namespaces/{ns}");
    assert!(step.ends_with(&all), "{first}");
    for _ in 0..3 {
        assert_eq!(told(), first);
    }

    // One of the objects can't be deleted without an approval.
    let target = policy::target("", "pods", &ns);
    let always = json!({"targets": [target], "protect": {"always": {}}});
    policy::apply(plane, &format!("{ns}-pods"), always);
    denial(plane, &ns, "pod/g", "is protected");
    let told = told();
    assert_eq!(told.get("nextStep"), None, "{told}");
    let approve = told["approve"][0].as_str().unwrap();
    assert!(approve.contains("--scope content"), "{told}");
}

#[test]
fn no_step_is_wrong_for_users_that_are_not_named() {
    let plane = &world().plane;
    let ns = plane.namespace("next-users").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    let user = |name: &str| pod(name).with_env_from("configMapRef", "config");
    let web = workload("Deployment", "web", &user("web"));
    let pods = ["up-0", "up-1", "up-2", "up-3"].map(user);
    apply_all(plane, &ns, &[&[config_map("config"), web], &pods[..]].concat());
    let refused = denial(plane, &ns, "configmap/config", "and 2 more objects");
    let step = format!(
        "first delete Pod {ns}/up-0 and Pod {ns}/up-1, and remove the reference from Deployment \
         {ns}/web; 2 more objects use it. To override"
    );
    assert!(refused.contains(&step.replace("the reference ", "the references ")), "{refused}");

    // `why` lists three of them, and names the command that lists all.
    let why = belay(plane, &["why", "cm/config", "-n", &ns, "--all"]).stdout;
    let all =
        format!("  all objects that use it: kubectl belay used-by configmaps/config -n {ns}\n");
    assert!(why.contains(&all), "{why}");
    let used = belay(plane, &["used-by", "configmaps/config", "-n", &ns]).stdout;
    assert!(["up-0", "up-1", "up-2", "up-3", "web"].iter().all(|one| used.contains(one)), "{used}");
}

#[test]
fn each_of_several_targets_has_its_step() {
    let plane = &world().plane;
    let ns = plane.namespace("next-all").unwrap();
    policy::protect(plane, &ns, "persistentvolumeclaims", json!({"whileUsed": {}}));
    let names = ["one", "two", "three"];
    let claims = names.map(claim);
    let pods = names.map(|name| pod(name).with_claim(name));
    apply_all(plane, &ns, &[claims, pods].concat());
    denial(plane, &ns, "pvc/three", "is in use");
    let told = json(&belay(plane, &["impact", "pvc", "--all", "-n", &ns, "-o", "json"]));
    let step =
        |name: &str| format!("for persistentvolumeclaim \"{name}\": first delete Pod {ns}/{name}");
    let expected = ["one", "three", "two"].map(step).join("; ");
    assert_eq!(told["nextStep"], expected, "{told}");
}

#[test]
fn a_permission_that_belay_lacks_is_the_first_step() {
    let plane = ControlPlane::start_with(&Options { controllers: false, ..Options::default() });
    let plane = &plane.unwrap();
    let install = Install { may_be_forbidden: true, ..Install::of_everything(1) };
    let _belay = install.on(plane, program()).unwrap();
    let crd = "crd/gizmos.unread.test";
    plane.define_kind("unread.test", "Gizmo", "gizmos").unwrap();
    let ns = plane.namespace("next-unread").unwrap();
    plane.apply(&object("unread.test/v1", "Gizmo", "one").with_namespace(&ns)).unwrap();
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": ["gizmos.unread.test"]});
    let spec = json!({"targets": [target], "protect": {"whileNotEmpty": {"counting": "Any"}}});
    plane.apply(&deletion_policy("crds", spec)).unwrap();
    denial(plane, "", crd, "cannot list resource \"gizmos\"");
    let grant = "grant belay's service account this permission (add \
                 unread.test/gizmos to the chart value rbac.watchAlso), then try again";
    let assert_denied = |expected: &[&str], step: &str| {
        for command in ["why", "impact"] {
            let output = belay(plane, &[command, crd, "-o", "json"]);
            let told = json(&output);
            assert_eq!((output.code, &told["verdict"]), (1, &"Deny".into()), "{told:#}");
            let blockers = told["blockers"].as_array().unwrap().iter();
            let reasons: Vec<&Value> = blockers.map(|blocker| &blocker["reason"]).collect();
            assert_eq!(reasons, expected, "{told:#}");
            let says = told["blockers"][0]["says"].as_str().unwrap();
            assert!(says.contains("cannot list resource \"gizmos\""), "{told:#}");
            // `impact` itself lists all of them.
            let kind = "customresourcedefinitions.apiextensions.k8s.io";
            let list =
                format!("; list all of them: kubectl belay impact {kind}/gizmos.unread.test");
            let has_list = command == "why" && step.contains("first delete");
            let step = if has_list { format!("{step}{list}") } else { step.to_owned() };
            assert_eq!(told["nextStep"], step, "{told:#}");
        }
    };
    let step = format!("{grant}; afterwards, first delete Gizmo {ns}/one");
    assert_denied(&["Unknown", "NotEmpty"], &step);

    // The administrator can read that there are none, but belay can't.
    kubectl(plane, &["delete", "gizmo.unread.test/one", "-n", &ns]);
    assert_denied(&["Unknown"], grant);
    let text = belay(plane, &["impact", crd]).stdout;
    let head = "DELETE crd/gizmos.unread.test   DENIED   policy crds\n";
    assert!(text.starts_with(head) && text.contains("\nblocked by  "), "{text}");
    let approve = "kubectl belay approve \
                   customresourcedefinitions.apiextensions.k8s.io/gizmos.unread.test --reason \"…\"\n";
    assert!(text.contains(approve), "{text}");
    let dry = belay(plane, &["delete", crd, "--dry-run=server"]);
    assert!(dry.code == 1 && dry.stdout.contains("DENIED"), "{dry:?}");
}
