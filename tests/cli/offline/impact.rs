//! `kubectl belay impact`, on a folder.

use serde_json::{Value, json};

use super::{assert_snapshot, belay, fed, unread};
use crate::harness::manifest::{
    Manifest as _, bound_claim, config_map, deletion_policy, documents, object, pod, secret,
};

#[test]
fn a_namespace_with_data_in_it() {
    assert_snapshot("namespace.txt", 1, "impact ns/shop --from .");
    // Only a terminal gets a part of long lists.
    assert_snapshot("namespace.txt", 1, "impact ns/shop --from . --all");
}

/// The API server sends no requests about these namespaces to belay.
#[test]
fn no_policy_applies_in_the_namespaces_of_the_cluster_and_of_belay() {
    let targets = json!([{"apiGroups": [""], "resources": ["configmaps"]}]);
    let policy = deletion_policy("p", json!({"targets": targets, "protect": {"always": {}}}));
    let places = ["shop", "kube-system", "belay", "guards"];
    let maps = places.map(|place| config_map("a").with_namespace(place));
    let all = documents(&[&[policy], &maps[..]].concat());
    let code = |line: &str| fed(&format!("impact {line} --from -"), &all).code;
    assert_eq!(code("cm/a -n shop"), 1);
    assert_eq!(code("cm/a -n kube-system"), 0);
    assert_eq!([code("cm/a -n belay"), code("cm/a -n guards")], [0, 1]);
    let elsewhere =
        ["belay", "guards"].map(|ns| code(&format!("cm/a -n {ns} --installation guards/belay")));
    assert_eq!(elsewhere, [1, 0]);
}

#[test]
fn without_policies_nothing_is_refused_and_the_impact_is_still_reported() {
    assert_snapshot("no-policies.txt", 0, "impact ns/shop --from shop.yaml");
}

#[test]
fn a_claim_waits_for_the_pod_that_has_it_mounted() {
    assert_snapshot("claim.txt", 1, "impact pvc data-postgres-0 -n shop --from .");
    assert_snapshot("claim-wide.txt", 1, "impact pvc data-postgres-0 -n shop --from . -o wide");
}

#[test]
fn targets_in_several_namespaces_are_all_printed_with_theirs() {
    let maps =
        [("inbox", "mail"), ("cart", "shop")].map(|(name, ns)| config_map(name).with_namespace(ns));
    let all = documents(&maps);
    let text = fed("impact cm --all -A --from -", &all).stdout;
    for line in ["configmap/inbox -n mail  deleted\n", "configmap/cart -n shop   deleted\n"] {
        assert!(text.contains(line), "{text}");
    }
    let one = fed("impact cm --all -n mail --from -", &all).stdout;
    assert!(one.contains("\nconfigmap/inbox  deleted\n"), "{one}");
}

#[test]
fn h124_impact_reports_no_snapshot_that_is_not_ready() {
    let snapshot = object("snapshot.storage.k8s.io/v1", "VolumeSnapshot", "nightly");
    let source = json!({"source": {"persistentVolumeClaimName": "data"}});
    let created = json!({"creationTimestamp": "2026-01-03T03:00:00Z"});
    let snapshot =
        snapshot.with_namespace("shop").with(json!({"metadata": created, "spec": source}));
    let [volume, claim] = bound_claim("shop", "data", "pv-1");
    let volume = volume.with(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    let all = documents(&[volume, claim, snapshot]);

    let expected = "newest snapshot: none ready (1 not ready)";
    for output in ["table", "markdown"] {
        let said = fed(&format!("impact pvc/data -n shop --from - -o {output}"), &all);
        let text = said.stdout.replace('\\', "");
        assert!(text.contains(expected) && !text.contains("nightly of"), "{said:?}");
    }
    let said = fed("impact pvc/data -n shop --from - -o json", &all);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let destroyed = &report["destroyed"][0];
    assert_eq!((destroyed.get("snapshot"), &destroyed["snapshotsNotReady"]), (None, &json!(1)));
}

/// The Secret is held, and the Pod uses it.
#[test]
fn a_hold_is_followed_to_its_end() {
    const HOLD: &[&str] = &["belay.dev/hold"];
    let policy = |resource: &str, protect| {
        let targets = json!([{"apiGroups": [""], "resources": [resource]}]);
        deletion_policy(resource, json!({"targets": targets, "protect": protect}))
    };
    let while_used = policy("secrets", json!({"whileUsed": {"onDelete": "Hold"}}));
    let always = policy("pods", json!({"always": {}}));
    let secret = secret("s").with_namespace("default").with_finalizers(HOLD);
    let user = pod("p").with_env_from("secretRef", "s").with_namespace("default");
    let held_user = user.clone().with_finalizers(HOLD);
    let stuck_user = user.clone().with_finalizers(&["example.com/x"]);
    let by_pod = "secret/s  held     in use by pod/p\n";
    for (targets, objects, expected) in [
        ("secret/s", vec![while_used.clone()], "secret/s  deleted\n"),
        ("secret/s", vec![while_used.clone(), user.clone()], by_pod),
        (
            "secret/s pod/p",
            vec![while_used.clone(), user.clone()],
            "secret/s  deleted  after pod/p\n",
        ),
        // A user that stays Terminating keeps the hold.
        ("secret/s pod/p", vec![while_used.clone(), stuck_user], by_pod),
        // The approval that the command prints releases the user.
        (
            "secret/s pod/p",
            vec![while_used.clone(), always, held_user.clone()],
            "secret/s  deleted  after pod/p\n",
        ),
        // A policy for other objects protects nothing here.
        ("pod/p", vec![while_used, held_user.clone()], "pod/p  deleted\n"),
        (
            "pod/p",
            vec![held_user],
            "held  until belay releases it (the policies have not been read)\n",
        ),
    ] {
        let all = documents(&[&objects[..], std::slice::from_ref(&secret)].concat());
        let said = fed(&format!("impact {targets} --from -"), &all);
        let squeezed =
            |text: &str| text.split(' ').filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(squeezed(&said.stdout).contains(&squeezed(expected)), "{expected}{said:?}");
    }
}

/// The Secret and the claim are already Terminating.
#[test]
fn a_terminating_object_is_deleted_with_its_last_user() {
    const HOLD: &str = "belay.dev/hold";
    let targets = |kind: &str| json!([{"apiGroups": [""], "resources": [kind]}]);
    let while_used = json!({"whileUsed": {"onDelete": "Hold"}});
    let policy =
        |kind: &str| deletion_policy("p", json!({"targets": targets(kind), "protect": while_used}));
    let terminating = |object: Value, finalizers: &[&str]| {
        let time = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        object.with_namespace("default").with_finalizers(finalizers).with(time)
    };
    let user = |name: &str| pod(name).with_env_from("secretRef", "s").with_namespace("default");
    let secret = |finalizers: &[&str]| terminating(secret("s"), finalizers);
    let said = |targets: &str, objects: &[Value]| {
        let said = fed(&format!("impact {targets} --from -"), &documents(objects));
        assert_eq!(said.stderr, "", "{said:?}");
        said.stdout
    };
    let held = [policy("secrets"), secret(&[HOLD]), user("p")];
    let freed = "secret/s  deleted  already Terminating; after pod/p\n";
    assert!(said("pod/p", &held).contains(freed), "{}", said("pod/p", &held));
    for (why, objects) in [
        ("another user stays", vec![policy("secrets"), secret(&[HOLD]), user("p"), user("q")]),
        (
            "another finalizer stays",
            vec![policy("secrets"), secret(&[HOLD, "example.com/x"]), user("p")],
        ),
        ("belay releases it now", vec![policy("configmaps"), secret(&[HOLD]), user("p")]),
    ] {
        assert!(
            !said("pod/p", &objects).contains("secret/s"),
            "{why}: {}",
            said("pod/p", &objects)
        );
    }
    // A Terminating Pod ends without another request, but the last use ends with this one.
    let ending = terminating(user("q"), &[]);
    let both = said("pod/p", &[policy("secrets"), secret(&[HOLD]), user("p"), ending.clone()]);
    assert!(both.contains("already Terminating; after pod/p and pod/q\n"), "{both}");
    assert!(!both.contains("pod/q  deleted"), "{both}");
    let others = said("cm/c", &[config_map("c"), policy("secrets"), secret(&[HOLD]), ending]);
    assert!(!others.contains("secret/s"), "{others}");

    let [volume, claim] = bound_claim("default", "data", "pv-1");
    let reclaim = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    let node = object("v1", "Node", "n");
    let user = pod("p").with_claim("data").with_node("n").with_namespace("default");
    let claim = terminating(claim, &["kubernetes.io/pvc-protection"]);
    for target in ["node/n", "pod/p"] {
        let objects =
            [volume.clone().with(reclaim.clone()), claim.clone(), node.clone(), user.clone()];
        let text = said(target, &objects);
        let freed = "  deleted  already Terminating; after pod/p; volume pv-1 1Gi destroyed";
        assert!(text.contains(freed), "{text}");
    }
}

#[test]
fn a_claim_waits_for_every_pod_that_mounts_it_and_stays() {
    let [volume, claim] = bound_claim("shop", "data", "pv-1");
    let volume = volume.with(json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    let volume = volume.with_finalizers(&["kubernetes.io/pv-protection"]);
    let claim = claim.with_finalizers(&["kubernetes.io/pvc-protection"]);
    let user = |name: &str| pod(name).with_claim("data").with_node("n").with_namespace("shop");
    let stuck = |name: &str| user(name).with_finalizers(&["example.com/x"]);
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let impact = |targets: &str, pods: &[Value], output: &str| {
        let all = documents(&[&[volume.clone(), claim.clone()], pods].concat());
        fed(&format!("impact {targets} -n shop --from - -o {output}"), &all).stdout
    };
    for (targets, pods, text) in [
        ("pvc/data", vec![stuck("p").with(terminating)], "until pod/p is deleted"),
        ("pvc/data pod/p", vec![stuck("p")], "until pod/p is deleted"),
        ("pvc/data pod/p", vec![user("p"), stuck("q")], "until pod/q is deleted"),
        ("pvc/data", vec![user("p"), user("q")], "until pod/p and pod/q are deleted"),
        (
            "pvc/data",
            ["p", "q", "r"].map(user).to_vec(),
            "until pod/p, pod/q and 1 more Pod are deleted",
        ),
    ] {
        let table = impact(targets, &pods, "table");
        let line = format!("pvc/data  waits    {text}; volume pv-1 1Gi destroyed then");
        let squeezed =
            |text: &str| text.split(' ').filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ");
        assert!(squeezed(&table).contains(&squeezed(&line)), "{line}: {table}");
    }
    let pods = ["p", "q", "r"].map(user);
    let report: Value = serde_json::from_str(&impact("pvc/data", &pods, "json")).unwrap();
    let after = report["destroyed"][0]["after"].as_array().unwrap().iter();
    let after: Vec<&str> = after.map(|object| object["name"].as_str().unwrap()).collect();
    assert_eq!(after, ["p", "q", "r"], "{report}");
    let graph = impact("pvc/data", &pods, "mermaid");
    assert_eq!(graph.matches("claimName").count(), 3, "{graph}");
    // The volume waits for the claim.
    let both = impact("pv/pv-1 pvc/data pod/p", &[stuck("p")], "table");
    assert!(both.contains("until pvc/data"), "{both}");
}

/// Each deletion alone would be refused. Together they are one deletion.
#[test]
fn members_of_a_set_do_not_block_each_other() {
    let alone = belay("impact secret/db-creds -n shop --from .");
    assert_eq!(alone.code, 1, "{alone:?}");
    assert_snapshot(
        "set.txt",
        1,
        "impact secret/db-creds sts/postgres deploy.apps/web -n shop --from .",
    );
    // Without one of the users in the set, it is refused again.
    let most = belay("impact secret/db-creds sts/postgres -n shop --from .");
    assert_eq!(most.code, 1, "{most:?}");
    assert!(most.stdout.contains("BROKEN"), "{most:?}");
}

#[test]
fn a_manifest_names_a_set_and_so_do_labels() {
    let manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: db-creds}\n---\n\
        apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: postgres}\n---\n\
        apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n---\n\
        apiVersion: v1\nkind: ConfigMap\nmetadata: {name: never-applied}\n";
    let said = fed("impact -f - -n shop --from .", manifest);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.starts_with("DELETE 3 objects ("), "{said:?}");
    assert!(said.stdout.contains("not found   configmaps/never-applied -n shop"), "{said:?}");
    let said = belay("impact pods -l app=postgres -n shop --from .");
    assert!(said.stdout.starts_with("DELETE 2 objects (pod/postgres-0 -n shop, pod/postgres-1"));
    let everywhere = belay("impact pods -l app!=nothing -A --from .");
    assert!(everywhere.stdout.starts_with("DELETE 3 objects ("), "{everywhere:?}");
}

#[test]
fn all_selects_every_object_of_a_kind() {
    let pods = belay("impact pods --all -n shop --from .");
    assert!(pods.stdout.starts_with("DELETE 3 objects (pod/"), "{pods:?}");
    let kinds = belay("impact pvc,secret --all -n shop --from .");
    assert!(kinds.stdout.starts_with("DELETE 3 objects ("), "{kinds:?}");
    let none = belay("impact pods --all -n other --from .");
    let nothing = "no objects are selected\n";
    assert_eq!((none.code, none.stdout.as_str()), (0, nothing), "{none:?}");
    // With a name, it is only about long lists.
    for named in [
        "impact pod/postgres-0 --all -n shop --from .",
        "impact pod postgres-0 --all -n shop --from .",
    ] {
        let one = belay(named);
        assert!(one.stdout.starts_with("DELETE pod/postgres-0 -n shop "), "{one:?}");
    }
    let kind = belay("impact pods -n shop --from .");
    assert_eq!(kind.code, 2, "{kind:?}");
    assert!(kind.stderr.contains("or all with --all"), "{kind:?}");
}

/// A kind that the chart adds, and that the cluster or its dump does not contain.
const MONITOR: &str = "---\napiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: \
    {name: web, namespace: shop}\n";

#[test]
fn an_unknown_kind_does_not_change_the_answer_for_the_rest_of_a_manifest() {
    let colours = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colours, namespace: shop}\n";
    let said = fed("impact -f - --from .", &format!("{colours}{MONITOR}"));
    // For some of the named objects the verdict is unknown.
    assert_eq!((said.code, said.stderr.as_str()), (3, ""), "{said:?}");
    assert!(said.stdout.starts_with("DELETE configmap/colours -n shop   UNKNOWN   some targets"));
    let says = "not read    servicemonitor.monitoring.coreos.com/web -n shop (neither Kubernetes \
        nor the files have a kind \"ServiceMonitor\"; kubectl api-resources lists the kinds): the \
        counts are lower bounds\n";
    assert!(said.stdout.contains(says), "{said:?}");
    // A denial takes precedence over unknown verdicts.
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: db-creds, namespace: shop}\n";
    let denied = fed("impact -f - --from .", &format!("{secret}{MONITOR}"));
    assert_eq!(denied.code, 1, "{denied:?}");
    assert!(
        denied.stdout.contains("DENIED") && denied.stdout.contains("not read    servicemonitor")
    );
    let absent = "apiVersion: v1\nkind: Secret\nmetadata: {name: other}\n";
    let nothing = fed("impact -f - --from .", &format!("{absent}{MONITOR}"));
    assert_eq!((nothing.code, nothing.stdout.as_str()), (3, ""), "{nothing:?}");
    let says = "secret \"other\" not found in namespace \"default\"; cannot read servicemonitor.";
    assert!(nothing.stderr.contains(says), "{nothing:?}");
}

#[test]
fn belay_kinds_are_known_without_their_crds() {
    let said = belay("impact -f policies.yaml --from .");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let says = "DELETE 3 objects (deletionpolicy.belay.dev/claims-in-use, ";
    assert!(said.stdout.starts_with(says), "{said:?}");
    let users = belay("used-by deletionpolicy/passwords --from .");
    assert_eq!(users.code, 0, "{users:?}");
}

#[test]
fn the_verdict_is_the_exit_code_with_a_closed_pipe() {
    for (kind, name, code) in [("Secret", "db-creds", 1), ("ConfigMap", "colours", 0)] {
        let manifest = object("v1", kind, name).to_string();
        assert_eq!(unread("impact -f - -n shop --from .", &manifest), code, "{kind}");
    }
    assert_eq!(unread("impact -f - -n shop --from .", "kind: ["), 2);
}

#[test]
fn files_are_named_as_kubectl_takes_them() {
    let colours = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: colours, namespace: shop}\n";
    let commas = fed("impact -f policies.yaml,- --from shop.yaml,policies.yaml", colours);
    assert_eq!((commas.code, commas.stderr.as_str()), (0, ""), "{commas:?}");
    assert!(commas.stdout.starts_with("DELETE 4 objects ("), "{commas:?}");
    // A pipe, as `<(…)` is one.
    let pipe = fed("impact -f /dev/stdin --from .", colours);
    assert_eq!((pipe.code, pipe.stderr.as_str()), (0, ""), "{pipe:?}");
    assert!(pipe.stdout.starts_with("DELETE configmap/colours -n shop   ALLOWED"), "{pipe:?}");
}

#[test]
fn the_cascade_is_that_of_kubectl() {
    assert_snapshot("orphan.txt", 0, "impact deploy/web -n shop --from . --cascade orphan");
    let background = belay("impact deploy/web -n shop --from .");
    assert!(background.stdout.contains("deleted       3"), "{background:?}");
}

#[test]
fn names_are_arguments_of_kubectl() {
    let names = belay("impact deploy/web secret/db-creds -n shop --from . -o name");
    let expected = [
        "deployments.apps/web -n shop",
        "pods/web-6c5b-x2kq7 -n shop",
        "replicasets.apps/web-6c5b -n shop",
        "secrets/db-creds -n shop",
    ];
    let mut lines: Vec<&str> = names.stdout.lines().collect();
    lines.sort_unstable();
    // The StatefulSet still uses the Secret.
    assert_eq!((names.code, lines.as_slice()), (1, &expected[..]), "{names:?}");
}

#[test]
fn programs_get_the_same_versioned() {
    let json = belay("impact ns/shop --from . -o json");
    assert_eq!(json.code, 1);
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&said["apiVersion"], &said["kind"]),
        (&"belay.dev/v1alpha1".into(), &"Impact".into())
    );
    assert_eq!(said["verdict"], "Deny");
    assert_eq!(said["summary"]["broken"]["total"], 1);
    let broken = said["objects"].as_array().unwrap().iter().find(|o| o["outcome"] == "Broken");
    let broken = broken.unwrap();
    let name = &broken["object"]["name"];
    assert_eq!((name, &broken["via"]["of"]["name"]), (&"prices".into(), &"web".into()));
    assert_eq!(broken["via"]["fieldPath"], "webhooks[0].clientConfig.service.name");
    // The output contains no data of a Secret.
    assert!(!json.stdout.contains("aHVudGVyMg"), "{json:?}");
    let yaml = belay("impact ns/shop --from . -o yaml");
    assert!(yaml.stdout.starts_with("apiVersion: belay.dev/v1alpha1\nkind: Impact\n"), "{yaml:?}");
}
