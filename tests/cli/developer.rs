//! A developer: the ClusterRole `edit` in one namespace, and no right elsewhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::kubectl::Output;
use crate::harness::manifest::{
    Manifest as _, claim, config_map, documents, owner, pod, validating_webhook,
};
use crate::harness::rbac::user;
use crate::harness::{Api, ControlPlane, eventually, pause};
use crate::held_data::storage_class;
use crate::{LIMIT, belay, belay_as, kubectl, policy, world};

/// A new namespace, and a kubeconfig of a developer in it.
pub fn developer(plane: &ControlPlane, prefix: &str) -> (String, PathBuf) {
    let ns = plane.namespace(prefix).unwrap();
    let name = format!("dev-{ns}");
    let kubeconfig = plane.user(&name, None).unwrap();
    plane.bind(&name, Some(&ns), ("ClusterRole", "edit"), &[user(&name)]).unwrap();
    (ns, kubeconfig)
}

/// The Status of a refused DELETE.
fn refusal(dev: &Api, object: &str, ns: &str, reason: &str) -> Value {
    eventually("the refusal", LIMIT, || match dev.would_refuse(object, ns)? {
        Some(status) if status["reason"] == reason => Ok(status),
        other => Err(format!("{other:?}").into()),
    })
    .unwrap()
}

#[test]
fn why_asks_the_api_server_about_kinds_of_other_groups() {
    let plane = &world().plane;
    let ns = plane.namespace("dev-kinds").unwrap();
    policy::protect(plane, &ns, "services", json!({"always": {}}));
    let network = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "none", "namespace": ns}, "spec": {"podSelector": {}}});
    plane.apply(&network).unwrap();
    for object in ["networkpolicy/none".to_owned(), format!("deletionpolicy/{ns}")] {
        let said = belay(plane, &["why", &object, "-n", &ns, "-o", "json"]);
        let json = crate::json(&said);
        assert_eq!((&json["notRead"], said.code), (&json!([]), 0), "{json:#}");
    }
}

/// A ConfigMap that a Pod uses, and a policy for it.
pub fn settings_in_use(plane: &ControlPlane, ns: &str) {
    plane.apply(&config_map("settings").with_namespace(ns)).unwrap();
    let web = pod("web").with_env_from("configMapRef", "settings");
    plane.apply(&web.with_namespace(ns)).unwrap();
    policy::protect(plane, ns, "configmaps", json!({"whileUsed": {}}));
}

#[test]
fn the_api_server_passes_the_causes_of_a_refusal_to_the_client() {
    let plane = &world().plane;
    let (ns, kubeconfig) = developer(plane, "dev-causes");
    settings_in_use(plane, &ns);
    let dev = Api::of(&kubeconfig).unwrap();
    let status = refusal(&dev, "configmap/settings", &ns, "InUse");
    let path = "spec.containers[0].envFrom[0].configMapRef.name";
    let cause = |reason: &str, message: String| json!({"reason": reason, "message": message});
    let says = format!("configmap \"settings\" is in use by Pod {ns}/web ({path})");
    let command = format!("kubectl belay approve configmaps/settings -n {ns} --reason \"…\"");
    let causes = json!([
        cause("InUse", says),
        cause("Object", format!("configmaps/settings -n {ns}")),
        {"reason": "Cause", "message": format!("Pod {ns}/web"), "field": path},
        cause("Policy", ns.clone()),
        cause("NextStep", format!("first delete Pod {ns}/web")),
        cause("Approve", command),
    ]);
    assert_eq!(status["details"], json!({"causes": causes}), "{status:#}");
}

#[test]
fn the_causes_of_a_refusal_name_no_object_of_another_namespace() {
    let plane = &world().plane;
    let (ns, kubeconfig) = developer(plane, "dev-hidden");
    let other = plane.namespace("dev-other").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let exists = policy::target("", "secrets", &other);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"whileExists": [exists]}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    for name in ["merger-acme", "merger-zeta"] {
        kubectl(plane, &["create", "secret", "generic", name, "-n", &other]);
    }
    let dev = Api::of(&kubeconfig).unwrap();
    let status = refusal(&dev, "configmap/settings", &ns, "StillNeeded");
    let causes = status["details"]["causes"].as_array().unwrap();
    let message = "an object in another namespace (name hidden)";
    let cause = json!({"reason": "Cause", "message": message});
    assert!(causes.contains(&cause), "{status:#}");
    for word in [&*other, "merger", "Secret", "More"] {
        assert!(!status.to_string().contains(word), "{word}: {status:#}");
    }
}

/// `kubectl belay why` about a ConfigMap, when it contains a text.
pub fn why(dev: &Path, ns: &str, name: &str, text: &str) -> Output {
    let object = format!("cm/{name}");
    eventually(text, LIMIT, || {
        let said = belay_as(dev, &["why", &object, "-n", ns]);
        if said.stdout.contains(text) { Ok(said) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap()
}

/// Neither the policies nor the hold's reasons can be read, so the warnings of the API server decide.
#[test]
fn the_delete_of_a_held_object_by_a_developer_ends_as_expected() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-held");
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let web = pod("web").with_env_from("configMapRef", "settings");
    plane.apply(&web.with_namespace(&ns)).unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    let dry_run = ["configmap/settings", "--dry-run=server"];
    eventually("an effective hold", LIMIT, || plane.api().delete(&dry_run, &ns)?.success())
        .unwrap();
    let delete = ["delete", "cm/settings", "-n", &ns, "--yes", "--timeout=20s"];
    let deleted = belay_as(&dev, &delete);
    let says = format!("{}{}", deleted.stdout, deleted.stderr);
    assert!(says.contains("these objects stay Terminating, as expected"), "{deleted:?}");
    // A new plan for the Terminating object has the same prediction.
    let impact = belay_as(&dev, &["impact", "cm/settings", "-n", &ns]).stdout;
    assert!(impact.contains("held ") && !impact.contains("deleted?"), "{impact}");
}

#[test]
fn why_prints_the_verdict_of_the_api_server_to_a_developer() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-why");
    settings_in_use(plane, &ns);
    let said = why(&dev, &ns, "settings", "InUse");
    let path = "spec.containers[0].envFrom[0].configMapRef.name";
    let expected = format!(
        "user \"dev-{ns}\" can't delete configmap \"settings\" now:\n\
         - configmap \"settings\" is in use by Pod {ns}/web ({path}); policy {ns} (InUse)\n  \
         to override: kubectl belay approve configmaps/settings -n {ns} --reason \"…\" (needs 1 \
         approval; the approvals so far are unknown; from a person with the RBAC verb \
         approve-deletion on configmaps in namespace {ns})\nnext step: first delete Pod {ns}/web\n"
    );
    assert!(said.stdout.starts_with(&expected) && said.code == 1, "{said:?}");
    assert!(!said.stdout.contains("no policy protects it"), "{said:?}");
    let json = crate::json(&belay_as(&dev, &["why", "cm/settings", "-n", &ns, "-o", "json"]));
    let blocker = &json["blockers"][0];
    assert_eq!(blocker["policies"], json!([ns]));
    assert_eq!(blocker["causes"][0], json!({"says": format!("Pod {ns}/web"), "fieldPath": path}));
    assert_eq!((&json["verdict"], &json["deletable"]), (&"Deny".into(), &false.into()), "{json}");

    // An object that can be deleted is not deleted.
    plane.api().delete(&["pod/web", "--grace-period=0"], &ns).unwrap().success().unwrap();
    let said = why(&dev, &ns, "settings", "can delete configmap \"settings\" now");
    assert_eq!(said.code, 0, "{said:?}");
    let uid = plane.api().field("configmap/settings", &ns, ".metadata.deletionTimestamp").unwrap();
    assert_eq!(uid, "");
}

#[test]
fn why_prints_the_warning_about_a_hold_to_a_developer() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-hold");
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(plane, &ns, spec);
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let web = pod("web").with_env_from("configMapRef", "settings");
    plane.apply(&web.with_namespace(&ns)).unwrap();
    let stays =
        "it then stays Terminating while:\n- configmap \"settings\" stays Terminating until";
    let said = why(&dev, &ns, "settings", stays);
    assert_eq!(said.code, 0, "{said:?}");
    let said = belay_as(&dev, &["impact", "cm/settings", "-n", &ns]);
    let warning = "\nwarning     configmap \"settings\" stays Terminating until";
    let held = format!("held  until Pod {ns}/web no longer uses it; policy {ns}\n");
    let is_held = |said: &Output| {
        for text in ["   ALLOWED, and held\n", "held          1   (1 ConfigMap)\n", warning, &held]
        {
            assert!(said.stdout.contains(text) && said.code == 0, "{text}: {said:?}");
        }
        for guess in ["perhaps", "deleted?", "broken"] {
            assert!(!said.stdout.contains(guess), "{guess}: {said:?}");
        }
    };
    is_held(&said);
    kubectl(plane, &["delete", "configmap", "settings", "-n", &ns, "--wait=false"]);

    // The API server also answers about a Terminating object.
    let user = format!("Pod {ns}/web");
    let holds = format!("belay keeps the hold because the object is in use by: {user}");
    let said = why(&dev, &ns, "settings", "has been Terminating since");
    assert!(said.stdout.contains(&holds) && said.code == 1, "{said:?}");
    let step = format!(
        "\nnext step: first delete Pod {ns}/web\n  to let Kubernetes delete it although it is in use \
         (data may be lost): kubectl belay approve configmaps/settings -n {ns} --reason \"…\" (needs "
    );
    let right = format!("the RBAC verb approve-deletion on configmaps in namespace {ns})\n");
    for who in [&dev, plane.kubeconfig()] {
        let said = belay_as(who, &["why", "cm/settings", "-n", &ns]).stdout;
        assert!(said.contains(&step) && said.contains(&right), "{said}");
    }
    // An undo reads all kinds, which the developer may not.
    let undo = "if the deletion is a mistake: have an administrator run kubectl belay undo conf";
    assert!(said.stdout.contains(undo), "{said:?}");
    let own = belay(plane, &["why", "cm/settings", "-n", &ns]).stdout;
    assert!(own.contains("if the deletion is a mistake: kubectl belay undo conf"), "{own}");
    let json = crate::json(&belay_as(&dev, &["why", "cm/settings", "-n", &ns, "-o", "json"]));
    assert!(!json.to_string().contains("deployments.apps"), "{json:#}");
    for command in [
        &["stuck", "-n", &ns, "--longer-than=1s"][..],
        &["release", "cm/settings", "-n", &ns, "--dry-run"],
        &["release", "cm/settings", "-n", &ns, "--timeout=3"],
    ] {
        pause(Duration::from_secs(1));
        let said = belay_as(&dev, command);
        let all = said.stdout.clone() + &said.stderr;
        assert!(all.contains(&user) && said.code == 1, "{command:?}: {said:?}");
    }
    for who in [&dev, plane.kubeconfig()] {
        let said = belay_as(who, &["impact", "cm/settings", "-n", &ns]);
        let before = "configmap \"settings\" is already Terminating; next: kubectl belay why ";
        assert!(said.stdout.contains(before), "{said:?}");
        assert!(said.stdout.contains("  already Terminating; "), "{said:?}");
    }
    // The warning names the first users, and `used-by` lists all.
    for name in ["api", "db"] {
        let pod = pod(name).with_env_from("configMapRef", "settings");
        plane.apply(&pod.with_namespace(&ns)).unwrap();
    }
    why(&dev, &ns, "settings", &format!("in use by: Pod {ns}/api, Pod {ns}/db, Pod {ns}/web\n"));
    let last = pod("z").with_env_from("configMapRef", "settings");
    plane.apply(&last.with_namespace(&ns)).unwrap();
    let more = format!(" and 1 more object (kubectl belay used-by configmaps/settings -n {ns})\n");
    why(&dev, &ns, "settings", &format!("Pod {ns}/db, Pod {ns}/web{more}"));
}

#[test]
fn impact_does_not_claim_a_loss_that_it_cannot_know() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-perhaps");
    storage_class(plane, &ns);
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    plane.apply(&config_map("kept").with_namespace(&ns)).unwrap();
    let free = claim("free").with(json!({"spec": {"storageClassName": ns}}));
    plane.apply(&free.with_namespace(&ns)).unwrap();
    let volume = eventually("a bound claim", LIMIT, || {
        match plane.api().field("pvc/free", &ns, ".spec.volumeName")? {
            volume if volume.is_empty() => Err("it is not bound".into()),
            volume => Ok(volume),
        }
    })
    .unwrap();
    let lost = format!("pvc/free; this perhaps destroys 1 resource for good: {volume}\n");
    eventually("the loss", LIMIT, || {
        let said = belay_as(&dev, &["impact", "cm/kept", "pvc/free", "-n", &ns]);
        if said.stdout.contains(&lost) { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
}

#[test]
fn impact_prints_the_verdict_of_the_api_server_to_a_developer() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-impact");
    settings_in_use(plane, &ns);
    let impact = |who: &Path, text: &str| {
        eventually(text, LIMIT, || {
            let said = belay_as(who, &["impact", "cm/settings", "-n", &ns]);
            if said.stdout.contains(text) { Ok(said) } else { Err(format!("{said:?}").into()) }
        })
        .unwrap()
    };
    let head = format!("DELETE configmap/settings -n {ns}");
    let said = impact(&dev, &format!("{head}   DENIED   policy {ns}\nif approved:\n"));
    let path = "spec.containers[0].envFrom[0].configMapRef.name";
    let says = format!("configmap \"settings\" is in use by Pod {ns}/web ({path}); policy {ns}");
    for line in [
        format!("blocked by  {says} (InUse)"),
        format!("next step   first delete Pod {ns}/web"),
        format!("or          kubectl belay approve configmaps/settings -n {ns} --reason \"…\""),
        "            you can't approve it".to_owned(),
    ] {
        assert!(said.stdout.contains(&format!("\n{line}\n")), "{line}: {said:?}");
    }
    assert_eq!(said.code, 1, "{said:?}");
    let json = crate::json(&belay_as(&dev, &["impact", "cm/settings", "-n", &ns, "-o", "json"]));
    let blocker = &json["blockers"][0];
    let told = (&json["verdict"], &blocker["reason"], &blocker["policies"]);
    assert_eq!(told, (&"Deny".into(), &"InUse".into(), &json!([ns])), "{json:#}");

    let name = format!("viewer-{ns}");
    let viewer = plane.user(&name, None).unwrap();
    plane.bind(&name, Some(&ns), ("ClusterRole", "view"), &[user(&name)]).unwrap();
    let said = impact(&viewer, "\nrefused     you may not delete it; next: ");
    assert!(said.stdout.contains("   DENIED   the API server\n") && said.code == 1, "{said:?}");

    // Several objects: the API server judges the DELETE of each.
    plane.apply(&config_map("other").with_namespace(&ns)).unwrap();
    let said = belay_as(&dev, &["impact", "cm/settings", "cm/other", "-n", &ns]);
    for text in ["   DENIED in part   ", &says] {
        assert!(said.stdout.contains(text) && said.code == 1, "{text}: {said:?}");
    }
    // A client with another order deletes more than kubectl.
    plane.apply(&config_map("taken").with_namespace(&ns)).unwrap();
    let keeper = pod("keeper").with_env_from("configMapRef", "taken").with_namespace(&ns);
    plane.apply(&keeper).unwrap();
    eventually("the order of another client", LIMIT, || {
        let line = ["impact", "cm/settings", "pods/web", "cm/taken", "-n", &ns];
        let said = belay_as(&dev, &line);
        let accepted = "kubectl sends a DELETE for each object, so it would still delete 1 of \
                        these 3 objects: pod/web. A client that deletes in another order, such as helm uninstall, \
                        would also delete configmap/settings\n";
        let is_told = said.stdout.contains(accepted) && said.code == 1;
        if is_told { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    // A user that is deleted as well only has to come first.
    let said = belay_as(&dev, &["impact", "cm/settings", "pods/web", "-n", &ns]);
    assert!(said.stdout.contains("   DENIED in this order\n") && said.code == 1, "{said:?}");
    // After the hold, one command is enough.
    assert!(said.stdout.contains("\n            kubectl delete pods/web "), "{said:?}");
    let said = belay_as(&dev, &["impact", "pods/web", "cm/settings", "-n", &ns]);
    assert!(said.stdout.contains("   ALLOWED\n") && said.code == 0, "{said:?}");
    // The API server is also asked if another target could not be read.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    let hidden = config_map("hidden").with_namespace("kube-system");
    for (name, word, code) in [("settings", "DENIED", 1), ("other", "UNKNOWN", 3)] {
        let readable = config_map(name).with_namespace(&ns);
        std::fs::write(&file, documents(&[hidden.clone(), readable])).unwrap();
        let said = belay_as(&dev, &["impact", "-f", &file.display().to_string()]);
        assert!(said.stdout.contains(&format!("   {word}   ")), "{said:?}");
        assert_eq!(said.code, code, "{said:?}");
    }

    // An object that can be deleted is not deleted.
    plane.api().delete(&["pod/web", "--grace-period=0"], &ns).unwrap().success().unwrap();
    assert_eq!(impact(&dev, &format!("{head}   ALLOWED\n")).code, 0);
    plane.apply(&config_map("free").with_namespace(&ns)).unwrap();
    let said = belay_as(&dev, &["impact", "cm/settings", "cm/free", "-n", &ns]);
    assert!(said.stdout.contains("   ALLOWED\n") && said.code == 0, "{said:?}");
    let uid = plane.api().field("configmap/settings", &ns, ".metadata.deletionTimestamp").unwrap();
    assert_eq!(uid, "");
}

#[test]
fn impact_asks_the_api_server_about_the_given_cascade() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-cascade");
    plane.apply(&config_map("parent").with_namespace(&ns)).unwrap();
    let uid = plane.api().field("configmap/parent", &ns, ".metadata.uid").unwrap();
    let child = config_map("child").with_owner(owner("ConfigMap", "parent", &uid));
    plane.apply(&child.with_namespace(&ns)).unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"fromOrphaning": {}}));
    let impact =
        |cascade| belay_as(&dev, &["impact", "cm/parent", "-n", &ns, "--cascade", cascade]);
    eventually("the denial", LIMIT, || {
        let said = impact("orphan");
        if said.stdout.contains("   DENIED   ") { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    let said = impact("background");
    assert!(said.stdout.contains("   ALLOWED\n") && said.code == 0, "{said:?}");

    // The refusal names `why` for its details.
    let why_repeats = |who: &Path, name: &str, step: &str| {
        let said = belay_as(who, &["why", &format!("cm/{name}"), "-n", &ns]);
        let owner = format!(" would lose its owner ConfigMap {ns}/{name}; polic");
        let approve = format!("kubectl belay approve configmaps/{name} -n {ns} --scope content ");
        for text in [
            ", without --cascade=orphan; notes:\n- denied with --cascade=orphan: ",
            &owner,
            &format!("(WouldOrphan)\n  to override: {approve}--reason \"…\" ("),
            &format!("\n  next step: {step}\n"),
        ] {
            assert!(said.stdout.contains(text) && said.code == 0, "{text}: {said:?}");
        }
    };

    // An administrator gets the same step.
    let step = |who: &Path, name: &str| {
        let asked = ["impact", &format!("cm/{name}"), "-n", &ns, "--cascade=orphan", "-o", "json"];
        crate::json(&belay_as(who, &asked))["nextStep"].clone()
    };
    let admin = plane.kubeconfig();
    for who in [&dev, admin] {
        assert_eq!(step(who, "parent"), "use --cascade=background");
        why_repeats(who, "parent", "use --cascade=background");
    }
    // Another cascade would delete the claim that the policy keeps.
    let spec = json!({"targets": [policy::target("", "persistentvolumeclaims", &ns)],
        "protect": {"fromOrphaning": {}}});
    policy::apply(plane, &format!("{ns}-claims"), spec);
    plane.apply(&config_map("store").with_namespace(&ns)).unwrap();
    let uid = plane.api().field("configmap/store", &ns, ".metadata.uid").unwrap();
    let data = claim("data").with_owner(owner("ConfigMap", "store", &uid));
    plane.apply(&data.with_namespace(&ns)).unwrap();
    let expected = "keep configmap \"store\"; don't use --cascade=background: it also deletes \
                    persistentvolumeclaim \"data\"";
    eventually("the step", LIMIT, || match step(&dev, "store") {
        step if step == expected => Ok(()),
        step => Err(step.to_string().into()),
    })
    .unwrap();
    assert_eq!(step(admin, "store"), expected);
    for who in [&dev, admin] {
        why_repeats(who, "store", expected);
    }
}

#[test]
fn status_and_approvals_say_who_can_run_them() {
    let plane = &world().plane;
    let (_, dev) = developer(plane, "dev-lists");
    for (command, kind) in [("status", "deletionpolicies"), ("approvals", "deletionapprovals")] {
        let said = belay_as(&dev, &[command]);
        let expected = format!(
            "error: you may not list {kind}.belay.dev in the whole cluster\n\
             hint: ask an administrator of the cluster to run the command. kubectl belay why \
             TYPE/NAME works without this right\n"
        );
        assert_eq!((&said.stderr, said.code), (&expected, 3), "{said:?}");
    }
}

#[test]
fn why_explains_other_refusals_of_a_delete() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-other");
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    // A viewer may not delete anything.
    let name = format!("viewer-{ns}");
    let viewer = plane.user(&name, None).unwrap();
    plane.bind(&name, Some(&ns), ("ClusterRole", "view"), &[user(&name)]).unwrap();
    let said = why(&viewer, &ns, "settings", "you may not delete it");
    let line = format!(
        "- you may not delete it; next: ask a person with the RBAC verb delete on configmaps in \
         namespace {ns} to delete it\n"
    );
    assert!(said.stdout.contains(&line) && said.code == 1, "{said:?}");
    // No developer needs the right to delete Namespaces.
    let said = belay_as(&dev, &["impact", &format!("ns/{ns}")]).stdout;
    let says = "ask a person with the RBAC verb delete on namespaces, such as an administrator of the \
                cluster, to delete it";
    assert!(said.contains(says) && !said.contains("bind"), "{said}");

    why(&dev, &ns, "settings", "can delete configmap \"settings\" now");
    // A webhook that the API server may not ask in a dry run.
    let client = json!({"url": "https://127.0.0.1:1/"});
    let mut webhook = validating_webhook(&ns, &ns, ("DELETE", "configmaps"), client);
    webhook["webhooks"][0]["sideEffects"] = json!("NoneOnDryRun");
    webhook["webhooks"][0]["failurePolicy"] = json!("Fail");
    // A webhook of the domain of other tests would look like the controller of their finalizers.
    webhook["webhooks"][0]["name"] = json!(format!("{ns}.refuses.test"));
    plane.apply(&webhook).unwrap();
    let said = why(&dev, &ns, "settings", "failed calling webhook");
    assert!(
        said.stdout.contains("can't delete configmap \"settings\" now") && said.code == 1,
        "{said:?}"
    );
}

#[test]
fn the_role_view_reads_policies_and_no_approvals() {
    let plane = &world().plane;
    let (ns, _) = developer(plane, "dev-view");
    let name = format!("viewer-{ns}");
    let viewer = plane.user(&name, None).unwrap();
    plane.bind(&name, None, ("ClusterRole", "view"), &[user(&name)]).unwrap();
    let may =
        |who: &str, kind: &str| plane.api().may(who, "list", &format!("{kind}.belay.dev"), "");
    // A controller adds the rules of the chart's role to the role view.
    for kind in ["deletionpolicies", "relations", "pauses"] {
        eventually(kind, LIMIT, || may(&name, kind)).unwrap();
        // A RoleBinding grants nothing cluster-scoped.
        may(&format!("dev-{ns}"), kind).unwrap_err();
    }
    may(&name, "deletionapprovals").unwrap_err();
    // This user may read neither the Lease nor the webhook configurations.
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    let json = crate::json(&belay_as(&viewer, &["status", "-o", "json"]));
    let mut policies = json["policies"].as_array().unwrap().iter();
    let own = policies.find(|policy| policy["name"] == ns.as_str()).unwrap();
    assert_eq!(own.get("ready"), None, "{own}");
}
