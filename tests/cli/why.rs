//! `belay why` and `belay approve`: their JSON output, and the facts of `why` in addition
//! to the verdict.

use std::collections::BTreeMap;

use serde_json::json;

use crate::developer::developer;
use crate::harness::manifest::{Manifest as _, claim, config_map, owner, pod, reader, workload};
use crate::harness::rbac::{rule, user};
use crate::harness::{audit, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

#[test]
fn why_knows_what_manages_an_object_and_what_was_refused_lately() {
    let plane = &world().plane;
    let ns = plane.namespace("why").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    let helm = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "web",
        "meta.helm.sh/release-namespace": ns}}});
    plane.apply(&config_map("settings").with_namespace(&ns).with(helm)).unwrap();
    let refused = plane.kubectl(&["delete", "configmap", "settings", "-n", &ns]).unwrap();
    assert!(refused.failure().unwrap().contains("is protected"));
    // A leader writes it into the status within seconds.
    eventually("the refusal", LIMIT, || {
        let said = json(&belay(plane, &["why", "cm/settings", "-n", &ns, "-o", "json"]));
        let by = &said["refused"][0]["policies"][0];
        if *by == ns.as_str() { Ok(()) } else { Err(said.to_string().into()) }
    })
    .unwrap();
    let text = belay(plane, &["why", "cm/settings", "-n", &ns]);
    assert_eq!(text.code, 1, "{text:?}");
    let text = text.stdout;
    assert!(text.contains(&format!("\nmanaged by: Helm release web -n {ns}\n")), "{text}");
    let line = text.lines().find(|line| line.starts_with("refused ")).unwrap();
    assert!(line.contains(" ago, ") && line.contains("\"settings\" is protected"), "{text}");
    assert!(!line.contains("kubectl belay why"), "{text}");

    // Another object of the same policy was never refused.
    kubectl(plane, &["create", "configmap", "other", "-n", &ns]);
    let yaml = belay(plane, &["why", "cm/other", "-n", &ns, "-o", "yaml"]).stdout;
    assert!(yaml.starts_with("apiVersion: belay.dev/v1alpha1\nkind: Why\n"), "{yaml}");
    assert!(yaml.contains("\nrefused: []\n"), "{yaml}");
}

#[test]
fn each_command_that_why_prints_for_a_namespace_is_sufficient() {
    let plane = &world().plane;
    let ns = plane.namespace("why-content").unwrap();
    for name in ["a", "b"] {
        plane.apply(&config_map(name).with_namespace(&ns)).unwrap();
    }
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    let target = json!({"apiGroups": [""], "resources": ["namespaces"], "names": [ns]});
    let not_empty = json!({"targets": [target], "protect": {"whileNotEmpty": {}}});
    policy::apply(plane, &format!("{ns}-content"), not_empty);
    let namespace = format!("ns/{ns}");
    let why = eventually("the reasons", LIMIT, || {
        let why = belay(plane, &["why", &namespace]);
        let text = &why.stdout;
        match text.contains("(NotEmpty)") && text.contains("/a (protected by policy ") {
            true => Ok(text.clone()),
            false => Err(format!("{why:?}").into()),
        }
    })
    .unwrap();
    let commands: Vec<&str> =
        why.lines().filter_map(|line| line.strip_prefix("  to override: ")).collect();
    let command = format!("kubectl belay approve namespaces/{ns} --scope content --reason \"…\" ");
    assert!(commands.len() == 1 && commands[0].starts_with(&command), "{why}");
}

#[test]
fn programs_read_what_was_approved() {
    let plane = &world().plane;
    let ns = plane.namespace("approved").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let two = json!({"required": 2});
    let spec = json!({"targets": [target], "protect": {"always": {}}, "approval": two});
    policy::apply(plane, &ns, spec);
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let approve = ["approve", "cm/settings", "-n", &ns, "--reason=agreed", "--for=10m"];
    let said = json(&belay(plane, &[&approve[..], &["-o", "json"]].concat()));
    assert_eq!((&said["kind"], &said["reason"]), (&"Approved".into(), &"agreed".into()));
    assert_eq!((&said["scope"], &said["counts"]), (&"Object".into(), &true.into()));
    let lines = said["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line.as_str().unwrap().starts_with("1 more person must")));
    assert!(lines.iter().all(|line| !line.as_str().unwrap().contains('\n')), "{said}");
    let me = said["approver"].as_str().unwrap();
    let impact = belay(plane, &["impact", "cm/settings", "-n", &ns]).stdout;
    let approved =
        format!("approved so far by {me}; you have approved it; another person must approve");
    assert!(impact.contains(&approved) && !impact.contains("you can approve it"), "{impact}");
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]).stdout;
    assert!(why.contains(" (you have approved)\n"), "{why}");
    let approval = format!("deletionapproval/{}", said["name"].as_str().unwrap());
    assert_eq!(plane.api().field(&approval, "", ".spec.reason").unwrap(), "agreed");
}

#[test]
fn impact_counts_no_approval_of_a_namespace_that_does_not_cover_its_content() {
    let plane = &world().plane;
    let ns = plane.namespace("approved-ns").unwrap();
    let target = policy::target("", "configmaps", &ns).with(json!({"names": ["settings"]}));
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let namespace = format!("ns/{ns}");
    let approve = ["approve", &namespace, "--reason=agreed", "--for=10m"];
    assert_eq!(belay(plane, &approve).code, 0);
    let impact = eventually("the denial", LIMIT, || {
        let impact = belay(plane, &["impact", &namespace]);
        if impact.code == 1 { Ok(impact.stdout) } else { Err(format!("{impact:?}").into()) }
    })
    .unwrap();
    assert!(
        impact.contains("you can approve it") && !impact.contains("approved so far"),
        "{impact}"
    );
}

#[test]
fn the_approval_of_an_orphaning_delete_is_named_where_the_plain_delete_needs_none() {
    let plane = &world().plane;
    let ns = plane.namespace("why-orphan").unwrap();
    kubectl(plane, &["create", "configmap", "parent", "-n", &ns]);
    let uid = plane.api().field("configmap/parent", &ns, ".metadata.uid").unwrap();
    let child = config_map("child").with_namespace(&ns);
    plane.apply(&child.with_owner(owner("ConfigMap", "parent", &uid))).unwrap();
    let mut target = policy::target("", "configmaps", &ns);
    target["names"] = json!(["child"]);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"fromOrphaning": {}}}));
    let orphan = ["configmap/parent", "--cascade=orphan", "--dry-run=server"];
    eventually("the refusal", LIMIT, || plane.api().delete(&orphan, &ns)?.failure()).unwrap();

    let denied = "with --cascade=orphan: configmap \"child\" would lose its owner ConfigMap ";
    let command = format!("kubectl belay approve configmaps/parent -n {ns} --scope content ");
    let why = belay(plane, &["why", "cm/parent", "-n", &ns]);
    assert!(why.stdout.contains(" can delete configmap \"parent\" now, without "), "{why:?}");
    assert!(why.stdout.contains(&format!("\n- denied {denied}")), "{why:?}");
    assert!(why.stdout.contains(&format!("\n  to override: {command}")), "{why:?}");
    assert!(!why.stdout.contains("no policy protects it"), "{why:?}");
    assert_eq!(why.code, 0, "{why:?}");

    let approve = ["approve", "cm/parent", "-n", &ns, "--reason=agreed"];
    let alone = belay(plane, &approve).stdout;
    assert!(
        alone.contains("\nwithout --cascade=orphan, its DELETE needs no approval\n"),
        "{alone}"
    );
    assert!(alone.contains("\nwith --cascade=orphan, it cannot be deleted: configmap"), "{alone}");
    assert!(alone.contains(&format!("; next: {command}")), "{alone}");
    let content = belay(plane, &[&approve[..], &["--scope=content"]].concat()).stdout;
    let allows = "\nwith --cascade=orphan, the approval also allows its DELETE\n";
    assert!(content.contains(allows) && !content.contains("needs no approval"), "{content}");
    eventually("a DELETE that passes", LIMIT, || plane.api().delete(&orphan, &ns)?.success())
        .unwrap();
}

#[test]
fn why_knows_that_the_garbage_collector_deletes_an_object_without_its_owner() {
    let plane = &world().plane;
    let ns = plane.namespace("why-lost").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "present", "-n", &ns]);
    let dry_run = ["configmap/present", "--dry-run=server"];
    eventually("the refusal", LIMIT, || plane.api().delete(&dry_run, &ns)?.failure()).unwrap();
    let uid = plane.api().field("configmap/present", &ns, ".metadata.uid").unwrap();
    let missing = owner("ConfigMap", "missing", "11111111-2222-3333-4444-555555555555");
    plane.apply(&config_map("lost").with_namespace(&ns).with_owner(missing.clone())).unwrap();
    let present = owner("ConfigMap", "present", &uid);
    let kept = json!({"metadata": {"ownerReferences": [missing, present]}});
    plane.apply(&config_map("kept").with_namespace(&ns).with(kept)).unwrap();

    let says = "its owner ConfigMap missing does not exist, so the garbage collector tries to \
                delete it\nmanaged by: ConfigMap missing (its owner, which does not exist)\n";
    let lost = belay(plane, &["why", "cm/lost", "-n", &ns]);
    assert!(lost.stdout.contains(says) && lost.code == 1, "{lost:?}");
    let kept = belay(plane, &["why", "cm/kept", "-n", &ns]).stdout;
    assert!(kept.contains("ConfigMap present (its owner)"), "{kept}");
    assert!(!kept.contains("garbage collector"), "{kept}");
}

#[test]
fn why_names_the_controllers_of_finalizers_before_the_delete() {
    let plane = &world().plane;
    let ns = plane.namespace("why-clean").unwrap();
    let settings = config_map("settings").with_finalizers(&["why-clean.test/drop"]);
    plane.apply(&settings.with_namespace(&ns)).unwrap();
    plane.apply(&claim("data").with_namespace(&ns)).unwrap();
    let why = |object: &str| belay(plane, &["why", object, "-n", &ns]).stdout;
    let claim = why("pvc/data");
    let says = "\nfinalizer kubernetes.io/pvc-protection is removed by the PVC protection \
                controller, when no Pod uses it\n";
    assert!(claim.contains(says), "{claim}");
    let text = why("cm/settings");
    let line = text.lines().find(|line| line.starts_with("finalizer why-clean.test/drop "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.ends_with(". Its controller was not found"), "{text}");
    let controller = workload("Deployment", "why-clean", &pod("web"));
    plane.apply(&controller.with_namespace(&ns)).unwrap();
    let text = why("cm/settings");
    let says = format!(". Likely controller: Deployment {ns}/why-clean, ");
    assert!(text.contains(&says), "{text}");
}

#[test]
fn several_objects_are_approved_or_none() {
    let plane = &world().plane;
    let ns = plane.namespace("approve-all").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    for name in ["one", "two"] {
        kubectl(plane, &["create", "configmap", name, "-n", &ns]);
    }
    kubectl(plane, &["create", "secret", "generic", "token", "-n", &ns]);
    let ada = plane.user("approve-ada", None).unwrap();
    let rules = [
        rule("", "configmaps, secrets", "get, list"),
        rule("", "configmaps", "approve-deletion"),
        rule("belay.dev", "*", "get, list, create"),
    ];
    plane.grant("approve-ada", None, &rules, &[user("approve-ada")]).unwrap();
    let approve = |objects: &[&str]| {
        let line = [&["approve", "-n", &ns, "--reason=agreed", "-o", "json"], objects].concat();
        belay_as(&ada, &line)
    };
    let approvals = || {
        let list = json(&belay(plane, &["approvals", "-n", &ns, "-o", "json"]));
        list["items"].as_array().unwrap().len()
    };
    // One is missing, and one she may not approve.
    let missing = approve(&["cm/one", "cm/none"]);
    assert!(
        missing.code == 3 && missing.stderr.contains("configmap \"none\" not found in namespace")
    );
    eventually("her right to approve ConfigMaps alone", LIMIT, || {
        let refused = approve(&["cm/one", "secret/token"]);
        let says = "may not approve-deletion of secrets token";
        if refused.stderr.contains(says) { Ok(()) } else { Err(refused.stderr.into()) }
    })
    .unwrap();
    assert_eq!(approvals(), 0);

    let list = json(&approve(&["cm/one", "configmap/two", "configmaps/one"]));
    assert_eq!(list["kind"], "ApprovedList");
    let items = list["items"].as_array().unwrap().iter();
    let names: Vec<_> = items.map(|one| &one["object"]["name"]).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(approvals(), 2);
}

#[test]
fn failed_reads_of_evidence_are_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("why-little").unwrap();
    let held =
        config_map("settings").with_namespace(&ns).with_finalizers(&["db.example.test/drop"]);
    plane.apply(&held).unwrap();
    kubectl(plane, &["delete", "configmap", "settings", "-n", &ns, "--wait=false"]);
    kubectl(plane, &["create", "configmap", "other", "-n", &ns]);
    let eve = plane.user("why-eve", None).unwrap();
    let role = ["create", "role", "little", "--verb=get,list", "--resource=configmaps", "-n", &ns];
    kubectl(plane, &role);
    let bind = ["create", "rolebinding", "little", "--role=little", "--user=why-eve", "-n", &ns];
    kubectl(plane, &bind);
    let rules = [rule("belay.dev", "*", "get, list")];
    plane.grant("why-eve", None, &rules, &[user("why-eve")]).unwrap();
    let asked = |object: &str| {
        eventually("the role", LIMIT, || {
            let said = belay_as(&eve, &["why", object, "-n", &ns, "--verbose"]);
            if said.stdout.is_empty() { Err(said.stderr.into()) } else { Ok(said.stdout) }
        })
        .unwrap()
    };
    let told = |text: &str| {
        let begin = "incomplete, because belay could not read: ";
        let line = text.lines().find_map(|line| line.strip_prefix(begin));
        line.unwrap_or_else(|| panic!("{text}")).split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let stays = told(&asked("cm/settings"));
    for kind in ["events", "apiservices.apiregistration.k8s.io"] {
        assert!(stays.iter().any(|one| one == kind), "{kind}: {stays:?}");
    }
    // For an object that is not Terminating, only the refusals are read.
    assert_eq!(told(&asked("cm/other")), ["events"]);
    let json = json(&belay_as(&eve, &["why", "cm/other", "-n", &ns, "-o", "json"]));
    assert_eq!(json["evidenceNotRead"][0]["resource"], "events", "{json}");
    // A user who may read everything sees no note.
    let all = belay(plane, &["why", "cm/other", "-n", &ns]).stdout;
    assert!(!all.contains("could not read"), "{all}");
}

/// The reads of an account in belay's namespace are in the audit log.
#[test]
fn several_objects_are_explained_by_one_read_of_each_list() {
    let plane = &world().plane;
    let spaces = ["once", "once", "once"].map(|name| plane.namespace(name).unwrap());
    for ns in &spaces {
        let target = json!({"apiGroups": [""], "resources": ["namespaces"], "names": [ns]});
        policy::apply(plane, ns, json!({"targets": [target], "protect": {"always": {}}}));
    }
    let target = policy::target("", "configmaps", &spaces[0]);
    let used = json!({"targets": [target], "protect": {"whileUsed": {}}});
    policy::apply(plane, &format!("{}-used", spaces[0]), used);
    kubectl(plane, &["create", "serviceaccount", "once", "-n", "belay"]);
    let account = "--serviceaccount=belay:once";
    let role = "--clusterrole=cluster-admin";
    kubectl(plane, &["create", "clusterrolebinding", "once", role, account]);
    let kubeconfig = plane.account("belay", "once").unwrap();
    let names = spaces.map(|ns| format!("ns/{ns}"));
    let args: Vec<&str> = ["why"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let output = belay_as(&kubeconfig, &args);
    assert_eq!(output.code, 1, "{output:?}");
    let user = "system:serviceaccount:belay:once";
    let mut reads: BTreeMap<String, usize> = BTreeMap::new();
    for event in audit::events(plane).iter().filter(|event| event["user"]["username"] == user) {
        let uri = audit::text(&event["requestURI"]).to_owned();
        // The API server can answer under load that the client has to try again.
        let succeeded = event["responseStatus"]["code"] == 200;
        if succeeded && (event["verb"] == "list" || uri.contains("/leases/")) {
            *reads.entry(uri).or_default() += 1;
        }
    }
    let has = |part: &str| reads.keys().any(|uri| uri.contains(part));
    assert!(has("/leases/") && has("/clusterroles") && has("/pods"), "{reads:?}");
    // The CRDs are read for their kinds, and once more as objects.
    reads.retain(|uri, _| !uri.contains("/customresourcedefinitions"));
    // If another test has an object that a ClusterRole owns, the ClusterRoles are read as owners, and
    // once more with their rules.
    let most = |uri: &str| if uri.contains("/clusterroles?") { 2 } else { 1 };
    let repeated: Vec<_> = reads.iter().filter(|(uri, count)| **count > most(uri)).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

/// An approval needs another right than a DELETE.
#[test]
fn why_reports_that_a_developer_can_not_approve_the_deletion_of_the_namespace() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "why-approve");
    let said = belay_as(&dev, &["why", &format!("ns/{ns}")]);
    let expected = format!(
        "to approve the deletion for another user: kubectl belay approve namespaces/{ns} --reason \
         \"…\"\nwho can approve: "
    );
    let text = said.stdout.as_str();
    assert!(text.contains(&expected) && text.contains(" (not you)\n"), "{said:?}");
}

/// Only policies name the service accounts whose approvals count.
#[test]
fn why_knows_whether_an_account_can_approve_only_if_it_can_read_the_policies() {
    let plane = &world().plane;
    let ns = plane.namespace("why-account").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    kubectl(plane, &["create", "serviceaccount", "ci", "-n", &ns]);
    let subjects = [user(&format!("system:serviceaccount:{ns}:ci"))];
    let rules =
        [rule("", "configmaps", "get, delete"), rule("belay.dev", "deletionapprovals", "create")];
    plane.grant(&format!("{ns}-ci"), None, &rules, &subjects).unwrap();
    let ci = plane.account(&ns, "ci").unwrap();
    let ends_with = |end: &str| {
        let end = format!("{end}\n");
        eventually(&end, LIMIT, || {
            let said = belay_as(&ci, &["why", "cm/settings", "-n", &ns]).stdout;
            match said.lines().any(|line| format!("{line}\n").ends_with(&end)) {
                true if said.contains("who can approve: ") => Ok(()),
                _ => Err(said.into()),
            }
        })
        .unwrap();
    };
    // Without the right, no policy is necessary.
    ends_with(" (not you)");
    let approve = [rule("", "configmaps", "approve-deletion")];
    plane.grant(&format!("{ns}-approve"), None, &approve, &subjects).unwrap();
    ends_with(" (you can't read the policies, so it is unknown whether they accept your approval)");
    let read = [rule("belay.dev", "*", "get, list")];
    plane.grant(&format!("{ns}-read"), None, &read, &subjects).unwrap();
    ends_with(" (not you)");
}

#[test]
fn the_step_for_a_user_that_is_terminating_explains_it() {
    let plane = &world().plane;
    let ns = plane.namespace("why-ending").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let web = reader("web", "configMapRef", "settings").with_finalizers(&["x.example.test/y"]);
    eventually("the Pod", LIMIT, || plane.apply(&web.clone().with_namespace(&ns))).unwrap();
    let deleted =
        || plane.kubectl(&["delete", "cm/settings", "-n", &ns, "--wait=false"])?.success();
    eventually("an effective hold", LIMIT, deleted).unwrap();
    let step = || {
        let text = belay(plane, &["why", "cm/settings", "-n", &ns]).stdout;
        text.lines().find(|line| line.starts_with("next step: ")).map(str::to_owned)
    };
    assert_eq!(step(), Some(format!("next step: first delete Pod {ns}/web")));
    kubectl(plane, &["delete", "pod/web", "-n", &ns, "--wait=false"]);
    let explains = format!(
        "next step: first find out what keeps Pod {ns}/web Terminating: kubectl belay why pods/web \
         -n {ns}"
    );
    assert_eq!(step(), Some(explains));
    plane.patch("pod/web", &ns, &json!({"metadata": {"finalizers": null}}));
}
