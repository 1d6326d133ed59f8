//! `belay pause`, on separate control planes: a pause in the shared world would affect all
//! tests.

use serde_json::json;

use crate::harness::install::print;
use crate::harness::manifest::{Manifest as _, bound_claim, config_map, object};
use crate::harness::{ControlPlane, Install, Options, Result, eventually};
use crate::terminal::answer;
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, program};

#[test]
fn a_pause_requires_a_right_is_reported_and_expires() {
    let plane = ControlPlane::start_with(&Options { controllers: false, ..Options::default() });
    let plane = plane.unwrap();
    let crds = print(program(), &["admin", "crds"]).unwrap();
    plane.apply(&crds).unwrap();
    let begin = ["pause", "--for=10m", "--reason=INC-1", "--yes"];
    // The API server serves new kinds, and enforces new checks, after a delay.
    eventually("the kinds", LIMIT, || {
        let nothing = belay(&plane, &["pause", "--end"]);
        match (nothing.code, nothing.stdout.lines().next()) {
            (0, Some("belay is not paused")) => Ok(()),
            _ => Err(format!("{nothing:?}").into()),
        }
    })
    .unwrap();

    let eve = plane.user("eve", None).unwrap();
    plane
        .apply(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: eve}\n\
             rules: [{apiGroups: [belay.dev], resources: [pauses], verbs: [create, list]}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: \
             eve}\nsubjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: eve}]\n\
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eve}\n",
        )
        .unwrap();
    eventually("the words of the check", LIMIT, || {
        let refused = belay_as(&eve, &begin);
        let says = "eve may not pause belay: this needs the RBAC verb pause on pauses.belay.dev\n\
                    hint: ask an administrator to grant it to";
        match refused.code == 1 && refused.stderr.contains(says) {
            true => Ok(()),
            false => Err(format!("{refused:?}").into()),
        }
    })
    .unwrap();

    kubectl(&plane, &["delete", "pauses", "--all"]);
    // Without a terminal, the commands show their effect before they ask for --yes.
    let effects: [(&[&str], &str); 2] = [
        (&begin[..3], "belay will deny nothing in the whole cluster for 10m."),
        (&["admin", "uninstall"], "This removes belay's protection from the whole cluster."),
    ];
    for (command, effect) in effects {
        let said = belay(&plane, command);
        assert!(said.stderr.contains(&format!("{effect}\nerror: ")), "{said:?}");
        assert!(said.stderr.contains("hint: add --yes") && said.code == 2, "{said:?}");
    }
    let asked = answer(&plane, "pause --for=10m --reason=INC-1", "yes\n");
    assert_eq!(asked.1, 0, "{asked:?}");
    let question = "belay will deny nothing in the whole cluster for 10m. Type yes to continue: ";
    let (_, begun) = asked.0.split_once(question).unwrap_or_else(|| panic!("{asked:?}"));
    // Only the CRDs exist.
    let stored = "belay is not installed (its CRDs remain), so it denies nothing\n\
                  The pause is stored: if belay is installed, it denies nothing until ";
    assert!(begun.contains(stored) && begun.contains(" (10m)\n"), "{begun}");
    assert!(!begun.contains("PAUSED"), "{begun}");
    let stored = plane.api().list("pauses", "", "").unwrap();
    let [pause] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!(pause["spec"]["reason"], "INC-1");
    // belay has no leader here and no webhook is called, so the exit code is 1. The API
    // server begins to serve each new kind after its own delay.
    eventually("the pause in the status", LIMIT, || {
        let status = belay(&plane, &["status"]);
        match status.code == 1 && status.stdout.contains("PAUSED: belay denies nothing until ") {
            true => Ok(()),
            false => Err(format!("{status:?}").into()),
        }
    })
    .unwrap();

    // The API server refuses more than a day.
    let long = belay(&plane, &["pause", "--for=25h", "--reason=INC-1", "--yes"]);
    assert_eq!(long.code, 1, "{long:?}");
    assert!(long.stderr.contains("at most 24 hours ahead"), "{long:?}");

    let ended = belay(&plane, &["pause", "--end"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let name = pause["metadata"]["name"].as_str().unwrap();
    assert!(ended.stdout.starts_with(&format!("ended: pause {name} by ")), "{ended:?}");
    // No webhook is called in this test.
    assert!(!ended.stdout.contains("belay enforces"), "{ended:?}");
    assert!(ended.stdout.contains("belay refuses nothing; next: install belay"), "{ended:?}");
    assert!(plane.api().list("pauses", "", "").unwrap().is_empty());

    // The JSON output contains the same.
    let begun = json(&belay(&plane, &[&begin[..], &["-o", "json"]].concat()));
    assert_eq!((&begun["kind"], &begun["reason"]), (&"Paused".into(), &"INC-1".into()), "{begun}");
    let ended = json(&belay(&plane, &["pause", "--end", "-o", "json"]));
    assert_eq!(ended["kind"], "PauseEnded", "{ended}");
    assert_eq!(ended["pauses"][0]["name"], begun["name"], "{ended}");
}

#[test]
fn a_pause_allows_every_request_is_reported_and_ends() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let installed = Install::of_everything(2).on(&plane, program()).unwrap();
    let ns = plane.namespace("paused").unwrap();
    policy::protect(&plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(&plane, &["create", "configmap", "settings", "-n", &ns]);
    kubectl(&plane, &["create", "configmap", "kept", "-n", &ns]);
    kubectl(&plane, &["create", "configmap", "approved", "-n", &ns]);
    let approve = ["approve", "configmap/approved", "-n", &ns, "--reason=INC-1"];
    assert_eq!(belay(&plane, &approve).code, 0);
    let namespaces = json!({"apiGroups": [""], "resources": ["namespaces"], "names": [ns]});
    let content = json!({"targets": [namespaces], "protect": {"whileNotEmpty": {}}});
    policy::apply(&plane, &format!("{ns}-content"), content);
    let claims = bound_claim(&ns, "data", &ns);
    claims.iter().for_each(|object| plane.apply(object).unwrap());
    plane.api().wait_field(("pvc/data", &ns), LIMIT, ".status.phase", |p| p == "Bound").unwrap();
    // belay judges no object with such a name (H103).
    let long = "x".repeat(1_025);
    let role = object("rbac.authorization.k8s.io/v1", "Role", &long).with_protect_label("Always");
    plane.apply(&role.with_namespace(&ns)).unwrap();
    // belay's Namespace owns its webhook configurations.
    for belay_itself in ["ns/belay", "validatingwebhookconfiguration/belay"] {
        let ends = belay(&plane, &["impact", belay_itself]).stdout;
        assert!(ends.contains("this deletes the webhook configurations of belay: "), "{ends}");
    }
    let unread = plane.api().delete(&["role", &long], &ns).unwrap().failure().unwrap();
    assert!(unread.contains("over 1024 bytes"), "{unread}");
    let refused = || -> Result<bool> {
        Ok(!plane.api().delete(&["configmap", "settings", "--dry-run=server"], &ns)?.ok())
    };
    let becomes = |what: &str, is: bool, now: &dyn Fn() -> Result<bool>| {
        let seen = || if now()? == is { Ok(()) } else { Err("not yet".into()) };
        eventually(what, LIMIT, seen).unwrap();
    };
    becomes("a refusal", true, &refused);

    let begun = belay(&plane, &["pause", "--for=10m", "--reason=INC-1", "--yes"]);
    assert_eq!(begun.code, 0, "{begun:?}");
    becomes("a pause", false, &refused);
    becomes("no Role", true, &|| Ok(plane.api().delete(&["role", &long], &ns)?.ok()));
    // The hold of an object remains.
    let kept = "configmap \"kept\" stays Terminating until its deletion is approved; policy ";
    let why = belay(&plane, &["why", "configmap/kept", "-n", &ns]).stdout;
    assert!(why.contains("; it then stays Terminating while:\n"), "{why}");
    assert!(why.contains("(always, action Deny, paused until 2"), "{why}");
    // An approval for the time after the Pause satisfies the policies.
    kubectl(&plane, &["create", "configmap", "later", "-n", &ns]);
    let later = ["approve", "configmap/later", "-n", &ns, "--reason=INC-2"];
    let later = belay(&plane, &later).stdout;
    assert!(later.contains("\nenough people have approved (1 of 1)\n"), "{later}");
    assert!(later.contains("\nbelay is paused until 2"), "{later}");
    assert!(!later.contains("no policy protects it"), "{later}");
    // Only objects that the hold keeps are reasons to wait.
    let namespace = format!("ns/{ns}");
    let impact = belay(&plane, &["impact", &namespace]).stdout;
    let waits: Vec<_> = impact.lines().filter(|line| line.starts_with("waits for ")).collect();
    assert!(impact.contains("   ALLOWED, and held   policy ") && waits.len() > 1, "{impact}");
    assert!(impact.contains("configmap \"kept\", which is protected"), "{impact}");
    assert!(!impact.contains("(bound)"), "{impact}");
    let why = belay(&plane, &["why", &namespace]).stdout;
    let (_, bound) = why.split_once("(bound)").unwrap_or_else(|| panic!("{why}"));
    assert_eq!(bound.lines().nth(1), Some("  belay only records this"), "{why}");
    // An approval releases the hold also during a Pause.
    let approved = ["configmap/approved", "-n", &ns];
    let why = belay(&plane, &[&["why"], &approved[..]].concat()).stdout;
    assert!(why.contains(" can delete configmap \"approved\" now"), "{why}");
    let impact = belay(&plane, &[&["impact"], &approved[..]].concat()).stdout;
    assert!(impact.contains(" ALLOWED\n") && !impact.contains("waits for"), "{impact}");
    let deleted = plane.kubectl(&["delete", approved[0], "-n", &ns, "--timeout=60s"]).unwrap();
    assert!(deleted.ok() && deleted.stderr.is_empty(), "{deleted:?}");
    let impact = belay(&plane, &["impact", "configmap/settings", "-n", &ns]);
    let warning = "\nwarning     paused until 2";
    assert!(impact.stdout.contains(warning) && impact.code == 0, "{impact:?}");
    let delete = ["configmap", "kept", "-n", &ns, "--wait=false"];
    let deleted = plane.kubectl(&[&["delete"], &delete[..]].concat()).unwrap();
    assert!(deleted.ok() && deleted.stderr.contains(kept), "{deleted:?}");
    let deletion = plane.api().field("configmap/kept", &ns, ".metadata.deletionTimestamp").unwrap();
    assert_ne!(deletion, "");
    // A label has no status, so an Event records what passed.
    let labelled = object("rbac.authorization.k8s.io/v1", "Role", "labelled");
    plane.apply(&labelled.with_protect_label("Always").with_namespace(&ns)).unwrap();
    becomes("the request", true, &|| {
        plane.api().delete(&["role", "labelled"], &ns)?;
        let would = belay(&plane, &["denials", "--would", "-n", &ns]).stdout;
        Ok(would.contains(&format!("roles.rbac.authorization.k8s.io/labelled -n {ns}")))
    });
    // A policy names the kind, but selects other namespaces. The hold keeps the object.
    let other = plane.namespace("labelled-in-a-pause").unwrap();
    let [deleted, changed] = ["deleted", "changed"].map(|name| {
        plane.apply(&config_map(name).with_protect_label("Always").with_namespace(&other)).unwrap();
        format!("configmaps/{name} -n {other}")
    });
    kubectl(&plane, &["delete", "configmap/deleted", "-n", &other, "--wait=false"]);
    kubectl(&plane, &["label", "configmap/changed", "-n", &other, "belay.dev/protect-"]);
    becomes("both requests", true, &|| {
        let would = belay(&plane, &["denials", "--would", "-n", &other]).stdout;
        Ok(would.contains(&deleted) && would.contains(&changed))
    });
    // The deletion of the approved object was earlier, and belay would allow it.
    let would = || belay(&plane, &["denials", "--would", "-n", &ns]).stdout;
    becomes("the kept object", true, &|| Ok(would().contains(&format!("configmaps/kept -n {ns}"))));
    assert!(!would().contains(&format!("configmaps/approved -n {ns}")), "{}", would());
    // The removal of a hold has a review in both phases, and counts once.
    let patch = ["patch", "configmap/settings", "--type=merge", "-p"];
    let patch = [&patch[..], &[r#"{"metadata":{"finalizers":null}}"#, "-n", &ns]].concat();
    kubectl(&plane, &patch);
    assert_eq!(plane.api().field("configmap/settings", &ns, ".metadata.finalizers").unwrap(), "");
    let (stored, path) = (format!("deletionpolicy/{ns}"), ".status.last24h.wouldDeny");
    plane.api().wait_field((&stored, ""), LIMIT, path, |count| count == "2").unwrap();
    // Both replicas report the pause.
    becomes("the metric", true, &|| Ok(installed.metric("belay_paused ") == 2.0));
    let told = |reason: &str| -> Result<bool> {
        let events = plane.api().fields("events", "default", "", ".involvedObject.kind .reason")?;
        Ok(events.iter().filter(|event| **event == format!("Pause {reason}")).count() == 1)
    };
    becomes("the Event", true, &|| told("Paused"));
    let name = begun.stdout.lines().find_map(|line| line.strip_prefix("pause ")).unwrap();
    let name = name.split(' ').next().unwrap();
    let described = kubectl(&plane, &["describe", "pause", name]);
    assert!(described.contains("belay denies nothing in the whole cluster"), "{described}");
    let status = belay(&plane, &["status"]);
    assert!(status.stdout.contains("PAUSED: belay denies nothing until "), "{status:?}");
    // It is no denial itself.
    let denials = belay(&plane, &["denials"]).stdout;
    assert!(!denials.contains("has paused belay"), "{denials}");
    let policy = format!("deletionpolicy/{ns}");
    let path = ".status.conditions[?(@.type==\"Ready\")].reason";
    plane.api().wait_field((&policy, ""), LIMIT, path, |reason| reason == "Paused").unwrap();

    assert_eq!(belay(&plane, &["pause", "--end"]).code, 0);
    becomes("the end of the pause", true, &refused);
    becomes("the metric", true, &|| Ok(installed.metric("belay_paused ") == 0.0));
    becomes("the Event", true, &|| told("PauseEnded"));
}
