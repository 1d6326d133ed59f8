//! `stuck` where the CRDs of belay exist without a leader, and where no controller of
//! Kubernetes runs either.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::broken::dead_webhook;
use crate::harness::install::print;
use crate::harness::manifest::{
    Manifest as _, config_map, deletion_policy, object, pod, validating_webhook,
};
use crate::harness::{ControlPlane, Options, eventually};
use crate::stuck::{causes, causes_to, delete};
use crate::{LIMIT, belay, json, kubectl, policy, program};

/// A control plane with no kube-controller-manager and no belay, in which the
/// kinds of belay are served.
fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    PLANE.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().unwrap()
}

fn start() -> crate::harness::Result<ControlPlane> {
    let plane = ControlPlane::start_with(&Options { controllers: false, ..Options::default() })?;
    plane.apply(&print(program(), &["admin", "crds"])?)?;
    // The API server serves each new kind after its own delay.
    eventually("the kinds of belay", LIMIT, || {
        let mut kinds = ["deletionpolicies", "deletionapprovals", "relations", "pauses"].iter();
        kinds.try_for_each(|kind| plane.api().list(kind, "", "").map(drop))
    })?;
    Ok(plane)
}

/// A Terminating ConfigMap with the hold of an existing policy. The test applies the policy
/// and adds the hold.
fn held(ns: &str) {
    let plane = plane();
    let target = policy::target("", "configmaps", ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    plane.apply(&deletion_policy(ns, spec)).unwrap();
    let object = config_map("settings").with_namespace(ns).with_finalizers(&["belay.dev/hold"]);
    plane.apply(&object).unwrap();
    delete(plane, &["configmap", "settings", "-n", ns]);
}

fn first(all: &[Value], cause: &str) -> Value {
    all.iter().find(|one| one["cause"] == cause).unwrap().clone()
}

/// A user with these rights on ConfigMaps of a namespace.
fn user(ns: &str, name: &str, verbs: &str) -> std::path::PathBuf {
    let plane = plane();
    let kubeconfig = plane.user(name, None).unwrap();
    let verb = format!("--verb={verbs}");
    kubectl(plane, &["create", "role", name, &verb, "--resource=configmaps", "-n", ns]);
    let (role, user) = (format!("--role={name}"), format!("--user={name}"));
    kubectl(plane, &["create", "rolebinding", name, &role, &user, "-n", ns]);
    kubeconfig
}

/// What a user sees about the held ConfigMap.
fn told(kubeconfig: &Path, ns: &str, cause: &str) -> Vec<Value> {
    causes_to(kubeconfig, &["-n", ns], &format!("configmaps/settings -n {ns}"), cause)
}

#[test]
fn a_hold_is_counted_without_a_leader_and_the_named_command_releases_it() {
    let plane = plane();
    let ns = plane.namespace("unled").unwrap();
    plane.apply(&object("v1", "ServiceAccount", "default").with_namespace(&ns)).unwrap();
    let pod =
        pod("web").with_namespace(&ns).with_volume(json!({"configMap": {"name": "settings"}}));
    eventually("the Pod", LIMIT, || plane.apply(&pod)).unwrap();
    held(&ns);
    let unled = "belay has no leader: check that its Pods run";
    let object = format!("configmaps/settings -n {ns}");
    let kept = first(&told(plane.kubeconfig(), &ns, "HeldByBelay"), "HeldByBelay");
    let says = kept["says"].as_str().unwrap();
    assert!(
        says.starts_with(&format!(
            "belay keeps the hold because the object is in use by: Pod {ns}/web (spec.volumes[0]"
        )),
        "{kept}"
    );
    assert!(kept["evidence"].as_array().unwrap().contains(&unled.into()), "{kept}");
    assert_eq!(kept["next"], format!("kubectl belay why {object}"));

    let impact = belay(plane, &["impact", "pod/web", "-n", &ns]).stdout;
    assert!(impact.contains("belay has no leader, so it releases no hold until"), "{impact}");
    assert!(!impact.contains("configmap/settings"), "{impact}");

    kubectl(plane, &["delete", "pod", "web", "-n", &ns, "--grace-period=0", "--force"]);
    let free = first(&told(plane.kubeconfig(), &ns, "HeldByBelay"), "HeldByBelay");
    assert_eq!(free["says"], "belay holds it, and can release it: nothing needs it", "{free}");
    assert!(free["evidence"].as_array().unwrap().contains(&unled.into()), "{free}");
    // The command of the next step works without a leader.
    let next = free["next"].as_str().unwrap();
    assert_eq!(next, format!("kubectl belay release {object}"));
    let words: Vec<&str> = next.split(' ').skip(2).collect();
    let released = belay(plane, &words);
    assert_eq!(released.code, 0, "{released:?}");
    assert_eq!(plane.api().get("configmap/settings", &ns).unwrap(), None);
}

#[test]
fn a_user_who_may_read_neither_policies_nor_users_sees_that_it_was_not_counted() {
    let plane = plane();
    let ns = plane.namespace("uncounted").unwrap();
    held(&ns);
    let reader = user(&ns, &format!("reader-{ns}"), "get,list");
    let held = first(&told(&reader, &ns, "HeldByBelay"), "HeldByBelay");
    let unknown = "belay holds it, and it is unknown whether an object needs it: you may not read the \
                   policies";
    assert_eq!(held["says"], unknown, "{held}");
    assert_eq!(held["next"], format!("kubectl belay why configmaps/settings -n {ns}"));
    // This user may not read the Lease, so the report does not contain the leader.
    assert_eq!(held["evidence"].as_array().map(Vec::len), Some(0), "{held}");
}

#[test]
fn a_user_who_may_list_but_not_get_an_object_sees_the_reason() {
    let plane = plane();
    let ns = plane.namespace("listed").unwrap();
    held(&ns);
    let lister = user(&ns, &format!("lister-{ns}"), "list");
    let hidden = first(&told(&lister, &ns, "Unknown"), "Unknown");
    let says = hidden["says"].as_str().unwrap();
    assert!(says.starts_with("only its metadata could be read"), "{hidden}");
    let why = hidden["evidence"][0].as_str().unwrap();
    assert!(why.contains(" is forbidden: ") && why.contains("cannot get"), "{hidden}");
    let next = format!("ask for the permission: kubectl auth can-i get configmaps -n {ns}");
    assert_eq!(hidden["next"], next.as_str());
    let (_, asks) = next.split_once("kubectl ").unwrap();
    let words: Vec<&str> = asks.split(' ').collect();
    let may = plane.kubectl_as(&lister, &words).unwrap();
    assert_eq!(may.stdout.trim(), "no", "{may:?}");
}

#[test]
fn a_foreground_deletion_without_dependents_reports_that_no_garbage_collector_runs() {
    let plane = plane();
    let ns = plane.namespace("uncollected").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    delete(plane, &["configmap", "settings", "-n", &ns, "--cascade=foreground"]);
    let waits = first(&told(plane.kubeconfig(), &ns, "Foreground"), "Foreground");
    let says = "the garbage collector waits for dependents, of which none was found";
    assert_eq!(waits["says"], says, "{waits}");
    assert_eq!(waits["finalizer"], "foregroundDeletion");
    assert_eq!(waits["next"], "check that kube-controller-manager runs, and its log");
    assert_eq!(waits["evidence"].as_array().map(Vec::len), Some(0), "{waits}");
    // A user who may not read everything sees where a leader may exist.
    let reader = user(&ns, &format!("reader-{ns}"), "get,list");
    let blind = first(&told(&reader, &ns, "Foreground"), "Foreground");
    assert!(
        blind["evidence"][0].as_str().unwrap().contains(" more kinds could not be read"),
        "{blind}"
    );
}

#[test]
fn a_namespace_without_conditions_is_reported_with_the_missing_controller() {
    let plane = plane();
    let ns = plane.namespace("unsaid").unwrap();
    delete(plane, &["namespace", &ns]);
    let why = belay(plane, &["why", &format!("ns/{ns}")]).stdout;
    assert!(why.contains("\nwhy it stays: the deletion has just begun, and the "), "{why}");
    let stuck = || {
        let all = causes(plane, &["-n", &ns], &format!("namespaces/{ns}"), "Unknown");
        first(&all, "Unknown")
    };
    let begun = stuck();
    assert!(begun["says"].as_str().unwrap().starts_with("the deletion has just begun"), "{begun}");
    assert!(begun["next"].as_str().unwrap().ends_with(&format!("why namespaces/{ns}")), "{begun}");
    let silent = eventually("the end of the first seconds", LIMIT, || {
        let cause = stuck();
        match cause["says"] == "the namespace controller has reported no reason" {
            true => Ok(cause),
            false => Err(cause.to_string().into()),
        }
    })
    .unwrap();
    assert_eq!(silent["next"], "check that kube-controller-manager runs, and its log");
}

#[test]
fn without_webhooks_the_commands_report_that_belay_refuses_nothing() {
    let plane = plane();
    let ns = plane.namespace("unregistered").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    plane.apply(&deletion_policy(&ns, spec)).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let delete = ["delete", "configmap", "settings", "-n", &ns, "--dry-run=server"];
    plane.kubectl(&delete).unwrap().success().unwrap();
    let missing = "the webhook configurations of belay are missing, so belay refuses nothing";
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]);
    assert!(why.stdout.contains(" can delete configmap \"settings\" now; notes:\n"), "{why:?}");
    let again = format!("- {missing}; next: install belay again: helm install, or if the ");
    assert!(why.stdout.contains(&again), "{why:?}");
    assert_eq!((why.code, why.stdout.matches(missing).count()), (0, 1), "{why:?}");
    assert!(!why.stdout.contains("no leader"), "{why:?}");
    let impact = belay(plane, &["impact", "cm/settings", "-n", &ns]);
    assert!(impact.stdout.contains("   ALLOWED\n") && impact.code == 0, "{impact:?}");
    assert!(impact.stdout.contains(&format!("\nwarning     {missing}; ")), "{impact:?}");
    let status = belay(plane, &["status"]);
    let says = "belay is not installed (its CRDs remain), so it denies nothing\n";
    assert!(status.stdout.starts_with(says), "{status:?}");
    for (option, result) in [("--dry-run=server", "WouldDelete"), ("--yes", "Deleted")] {
        let args = ["delete", "cm/settings", "-n", &ns, option, "-o", "json"];
        let deleted = belay(plane, &args);
        assert_eq!((deleted.code, &json(&deleted)["result"]), (0, &result.into()), "{deleted:?}");
    }
}

#[test]
fn an_approval_is_no_use_while_belay_is_down() {
    let plane = plane();
    let ns = plane.namespace("approve-down").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    plane.apply(&deletion_policy(&ns, spec)).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    plane.apply(&dead_webhook("down", &ns, "configmaps")).unwrap();
    let approve = |installation: &str| {
        let installation = format!("--installation={installation}");
        let args = ["approve", "cm/settings", "-n", &ns, "--reason", "unused", &installation];
        belay(plane, &args).stdout
    };
    let down = approve("belay/down");
    assert!(down.contains("belay has no leader: while it is down, the API server ref"), "{down}");
    let missing = approve("belay/belay");
    assert!(missing.contains("the webhook configurations of belay are missing"), "{missing}");
    assert!(!missing.contains("no leader"), "{missing}");
}

/// Some webhooks of each installation ignore failures, but not those that deny deletes.
#[test]
fn the_webhook_about_deletes_tells_what_the_api_server_does_without_belay() {
    let plane = &crate::world().plane;
    let ns = plane.namespace("approve-real").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let stored = dead_webhook(&ns, &ns, "configmaps");
    let webhook = |name: &str, failure_policy: &str| {
        stored["webhooks"][0].clone().with(json!({"name": name, "failurePolicy": failure_policy}))
    };
    let webhooks = [webhook("delete.belay.dev", "Fail"), webhook("cascade.belay.dev", "Ignore")];
    plane.apply(&stored.clone().with(json!({"webhooks": webhooks}))).unwrap();
    let installation = format!("--installation={ns}/{ns}");
    let args = ["approve", "cm/settings", "-n", &ns, "--reason", "unused", &installation];
    let approved = belay(plane, &args);
    let says = "belay has no leader: while it is down, the API server refuses every delete";
    assert!(approved.stdout.contains(says), "{approved:?}");
}

#[test]
fn no_command_names_an_approval_while_belay_does_not_answer() {
    let plane = plane();
    let ns = plane.namespace("unled-silent").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    plane.apply(&deletion_policy(&ns, spec)).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let client = json!({"service": {"namespace": "default", "name": "guard"}});
    let webhook = validating_webhook("silent", &ns, ("DELETE", "configmaps"), client).to_string();
    plane.apply(&webhook.replace("silent.example.test", "delete.belay.dev")).unwrap();
    let silent = "belay does not answer, so the API server refuses the delete, also with an \
                  approval; next: have an administrator start belay (kubectl belay status) or \
                  follow docs/guides/emergency.md\n";
    for command in ["impact", "why"] {
        let said = eventually("the refusal", LIMIT, || {
            let said = belay(plane, &[command, "cm/settings", "-n", &ns]);
            if said.stdout.contains(silent) { Ok(said) } else { Err(format!("{said:?}").into()) }
        })
        .unwrap();
        assert!(said.code == 1 && said.stdout.contains("(Protected)"), "{said:?}");
        for word in ["belay approve", "approved", "can approve"] {
            assert!(!said.stdout.contains(word), "{word}: {said:?}");
        }
    }
    let json = json(&belay(plane, &["impact", "cm/settings", "-n", &ns, "-o", "json"]));
    assert_eq!((&json["approve"], &json["youMay"]), (&json!([]), &Value::Null), "{json:#}");
    delete(plane, &["validatingwebhookconfiguration/silent"]);
}

#[test]
fn no_command_promises_a_release_without_a_leader() {
    let plane = plane();
    let ns = plane.namespace("unled-release").unwrap();
    held(&ns);
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]);
    let by_hand = format!(": kubectl belay release configmaps/settings -n {ns}\n");
    assert!(why.stdout.contains(&by_hand), "{why:?}");
    assert!(!why.stdout.contains("in a few seconds"), "{why:?}");
    let approved =
        belay(plane, &["approve", "cm/settings", "-n", &ns, "--reason", "not needed any longer"]);
    let next = format!(
        "belay has no leader, so nothing removes its hold; next: kubectl belay release \
         configmaps/settings -n {ns}\n"
    );
    assert!(approved.stdout.contains(&next), "{approved:?}");
}

#[test]
fn no_command_advises_to_delete_the_webhooks_of_belay() {
    let plane = plane();
    let ns = plane.namespace("unled-webhooks").unwrap();
    held(&ns);
    // The Service of belay has no Pods.
    let webhook = dead_webhook("own", &ns, "configmaps").to_string();
    let own = webhook.replace("own.example.test", "update.belay.dev");
    plane.apply(&own).unwrap();
    let object = format!("configmaps/settings -n {ns}");
    let refused = first(&causes(plane, &["-n", &ns], &object, "Refused"), "Refused");
    let next = format!(
        "belay does not answer: kubectl belay status; to release only this object: kubectl belay \
         release {object}"
    );
    assert_eq!(refused["next"], next, "{refused}");
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]).stdout;
    assert!(!why.contains("kubectl delete"), "{why}");
    delete(plane, &["validatingwebhookconfiguration/own"]);
}

#[test]
fn without_webhooks_a_held_object_stays_and_its_hold_is_named() {
    let plane = plane();
    let ns = plane.namespace("unregistered-held").unwrap();
    let spec =
        json!({"targets": [policy::target("", "configmaps", &ns)], "protect": {"always": {}}});
    plane.apply(&deletion_policy(&ns, spec)).unwrap();
    let object = config_map("settings").with_namespace(&ns).with_finalizers(&["belay.dev/hold"]);
    plane.apply(&object).unwrap();
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]);
    let hold = format!(
        "; it then stays Terminating while:\n- configmap \"settings\" is protected; policy {ns} (Protected)\n  belay refuses nothing \
         now, but its hold keeps the object\n"
    );
    assert!(why.stdout.contains(&hold) && why.code == 0, "{why:?}");
    assert!(why.stdout.contains("\nthe webhook configurations of belay are missing"), "{why:?}");
    let impact = belay(plane, &["impact", "cm/settings", "-n", &ns]).stdout;
    assert!(impact.contains(&format!("   ALLOWED, and held   policy {ns}\n")), "{impact}");
    assert!(impact.contains("\nwaits for   configmap \"settings\" is protected; "), "{impact}");
}
