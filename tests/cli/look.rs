//! `belay impact` and `belay used-by` in a cluster with belay.

use serde_json::json;

use crate::harness::manifest::{Manifest as _, config_map, object, pod, workload};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, world};

/// Creates a Deployment that mounts a ConfigMap, and waits for its Pod.
fn mounted(plane: &ControlPlane, ns: &str) {
    kubectl(plane, &["create", "configmap", "settings", "-n", ns]);
    let pod = pod("web").with_env_from("configMapRef", "settings");
    plane.apply(&workload("Deployment", "web", &pod).with_namespace(ns)).unwrap();
    eventually("its Pod", LIMIT, || {
        let pods = plane.api().list("pods", ns, "")?;
        if pods.is_empty() { Err("none".into()) } else { Ok(()) }
    })
    .unwrap();
}

#[test]
fn impact_names_the_rollback_that_needs_an_object() {
    let plane = &world().plane;
    let ns = plane.namespace("look-old").unwrap();
    mounted(plane, &ns);
    let impact = || belay(plane, &["impact", "cm/settings", "-n", &ns]).stdout;
    // The Deployment needs it now, so its ReplicaSet is not mentioned.
    assert!(impact().contains("BROKEN") && !impact().contains("rollback"), "{}", impact());
    kubectl(plane, &["create", "configmap", "other", "-n", &ns]);
    let web = pod("web").with_env_from("configMapRef", "other");
    plane.apply(&workload("Deployment", "web", &web).with_namespace(&ns)).unwrap();
    let old = eventually("the end of the old revision", LIMIT, || {
        let sets = plane.api().list("replicasets", &ns, "")?;
        let old =
            sets.iter().find(|set| set["spec"]["replicas"] == 0 && set["status"]["replicas"] == 0);
        old.map(|old| old["metadata"]["name"].as_str().unwrap().to_owned()).ok_or("none".into())
    })
    .unwrap();
    let note = format!("  a rollback of deployment/web to replicaset/{old} needs it\n");
    eventually("the note", LIMIT, || {
        let text = impact();
        match text.contains(&note) && !text.contains("BROKEN") {
            true => Ok(()),
            false => Err(text.into()),
        }
    })
    .unwrap();
    let both = belay(plane, &["impact", "cm/settings", "deploy/web", "-n", &ns]).stdout;
    assert!(!both.contains("rollback"), "{both}");
}

#[test]
fn a_root_ca_is_recreated_so_no_pod_is_broken_or_has_to_be_deleted_first() {
    let plane = &world().plane;
    let ns = plane.namespace("look-root-ca").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    let root = ("cm/kube-root-ca.crt", &*ns);
    let uid_and_data = |old: &str| {
        let is_new = |uid: &str| !uid.is_empty() && uid != old;
        plane.api().wait_field(root, LIMIT, ".metadata.uid", is_new).unwrap();
        [".metadata.uid", ".data"].map(|field| plane.api().field(root.0, &ns, field).unwrap())
    };
    let [uid, data] = uid_and_data("");
    // Admission adds a volume with the CA to each Pod.
    plane.apply(&pod("web").with_namespace(&ns)).unwrap();

    let target = ["cm/kube-root-ca.crt", "-n", &ns];
    let said = [["impact"], ["why"]].map(|command| {
        let said = belay(plane, &[&command[..], &target].concat());
        let keep = "eep configmap \"kube-root-ca.crt\": kube-controller-manager re-creates it";
        assert!(said.code == 1 && said.stdout.contains(keep), "{said:?}");
        said.stdout
    });
    let same =
        "kube-controller-manager re-creates configmap \"kube-root-ca.crt\" with the same content";
    assert!(said[0].contains(same), "{}", said[0]);
    let of_namespace = belay(plane, &["impact", &format!("ns/{ns}")]).stdout;
    for said in [&said[0], &said[1], &of_namespace] {
        assert!(!said.contains("BROKEN") && !said.contains("first delete"), "{said}");
    }
    belay(plane, &[&["approve"], &target[..], &["--reason", "x"]].concat());
    kubectl(plane, &[&["delete"], &target[..]].concat());
    assert_eq!(uid_and_data(&uid)[1], data);
}

#[test]
fn impact_predicts_the_refusal() {
    let plane = &world().plane;
    let ns = plane.namespace("look").unwrap();
    // There is no hold: held objects would stay, and their users would keep working.
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    mounted(plane, &ns);
    let said = eventually("what belay knows", LIMIT, || {
        let refused =
            plane.api().delete(&["configmap", "settings", "--dry-run=server"], &ns)?.failure()?;
        // After the Pod is known as well, nothing changes.
        if refused.contains("(Pod web-") { Ok(refused) } else { Err(refused.into()) }
    })
    .unwrap();
    let impact = belay(plane, &["impact", "cm/settings", "-n", &ns, "-o", "json"]);
    assert_eq!((impact.code, impact.stderr.as_str()), (1, ""), "{impact:?}");
    let told = json(&impact);
    assert_eq!(told["kind"], "Impact");
    assert_eq!(told["verdict"], "Deny", "{told}");
    assert_eq!(told["youMay"], true, "{told}");
    let blocker = &told["blockers"][0];
    assert_eq!(blocker["reason"], "InUse");
    assert!(said.contains(blocker["says"].as_str().unwrap()), "{said}\n{told}");
    let approve = told["approve"][0].as_str().unwrap();
    assert!(said.contains(approve), "{said}\n{told}");

    let text = belay(plane, &["impact", "cm/settings", "-n", &ns]).stdout;
    assert!(text.starts_with(&format!("DELETE configmap/settings -n {ns}   DENIED")), "{text}");
    assert!(text.contains("deployment/web") && text.contains("BROKEN"), "{text}");
    assert!(text.contains("you can approve it"), "{text}");

    let users = belay(plane, &["used-by", "cm/settings", "-n", &ns]);
    assert_eq!(users.code, 1, "{users:?}");
    let path = "spec.template.spec.containers[0].envFrom[0].configMapRef.name";
    assert!(users.stdout.contains("deployment/web") && users.stdout.contains(path), "{users:?}");

    // The graphs have the same facts.
    let dot = belay(plane, &["impact", "cm/settings", "-n", &ns, "-o", "dot"]);
    assert!(dot.code == 1 && dot.stdout.contains(r"BROKEN\ndeployment/web"), "{dot:?}");
    assert!(dot.stdout.contains(&format!("[label=\"{path}")), "{dot:?}");
    let users = belay(plane, &["used-by", "cm/settings", "-n", &ns, "-o", "mermaid"]);
    assert!(users.code == 1 && users.stdout.contains("needs<br/>deployment/web"), "{users:?}");
    assert!(users.stdout.contains(&format!("|\"{path}\"|")), "{users:?}");
    let dry_run = ["delete", "deploy/web", "-n", &ns, "--dry-run=server", "-o", "html"];
    let dry_run = belay(plane, &dry_run);
    assert!(dry_run.code == 0 && dry_run.stdout.contains(">deployment/web</text>"), "{dry_run:?}");
    assert!(dry_run.stdout.contains("<p>the API server accepts the DELETE"), "{dry_run:?}");
    kubectl(plane, &["get", "deployment", "web", "-n", &ns]);

    // The workload and the objects that it uses are one deletion. Users are deleted first.
    let both = belay(plane, &["impact", "cm/settings", "deploy/web", "-n", &ns]);
    assert_eq!(both.code, 1, "{both:?}");
    let foreground =
        belay(plane, &["impact", "deploy/web", "-n", &ns, "--cascade=foreground", "-o", "json"]);
    let told = json(&foreground);
    assert_eq!((foreground.code, &told["cascade"]), (0, &"foreground".into()), "{told}");
    let by_kind = &told["summary"]["deleted"]["byKind"];
    assert_eq!((&by_kind["Deployment"], &by_kind["ReplicaSet"]), (&1.into(), &1.into()), "{told}");
}

#[test]
fn an_empty_selection_is_no_error_unless_its_list_is_forbidden() {
    let plane = &world().plane;
    let ns = plane.namespace("look-empty").unwrap();
    let all = ["impact", "pvc", "--all", "-n", &ns];
    let none = belay(plane, &all);
    assert_eq!((none.code, none.stdout.as_str()), (0, "no objects are selected\n"), "{none:?}");
    let eve = plane.user("look-nobody", None).unwrap();
    let unknown = belay_as(&eve, &all);
    let says = format!("cannot read persistentvolumeclaims -n {ns}");
    assert!(unknown.code == 3 && unknown.stderr.contains(&says), "{unknown:?}");
}

#[test]
fn impact_computes_the_effects_with_the_approval_that_it_prints() {
    let plane = &world().plane;
    let ns = plane.namespace("look-approved").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "kept", "-n", &ns]);
    eventually("the hold", LIMIT, || {
        let finalizers = plane.api().field("configmap/kept", &ns, ".metadata.finalizers")?;
        if finalizers.contains("belay.dev/hold") { Ok(()) } else { Err(finalizers.into()) }
    })
    .unwrap();
    let outcome = |told: &serde_json::Value| {
        let mut objects = told["objects"].as_array().unwrap().iter();
        objects.find(|one| one["object"]["name"] == "kept").unwrap()["outcome"].clone()
    };
    for object in ["cm/kept".to_owned(), format!("ns/{ns}")] {
        let told = json(&belay(plane, &["impact", &object, "-n", &ns, "-o", "json"]));
        assert_eq!(
            (&told["verdict"], outcome(&told)),
            (&"Deny".into(), "Deleted".into()),
            "{told}"
        );
    }
    let approve = ["approve", "cm/kept", "-n", &ns, "--reason", "moved"];
    let approved = belay(plane, &approve);
    assert_eq!(approved.code, 0, "{approved:?}");
    kubectl(plane, &["delete", "configmap", "kept", "-n", &ns, "--wait=false"]);
    plane.api().wait_gone(("configmap/kept", &ns), LIMIT).unwrap();
}

#[test]
fn nothing_has_to_be_overridden_where_belay_only_records() {
    let plane = &world().plane;
    let ns = plane.namespace("look-audit").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "action": "Audit"});
    policy::apply(plane, &ns, spec);
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let why = belay(plane, &["why", "cm/settings", "-n", &ns]);
    let line = "\n  belay only records this\n";
    assert!(why.stdout.contains(line) && why.code == 0, "{why:?}");
    assert!(!why.stdout.contains("to override"), "{why:?}");
    let impact = belay(plane, &["impact", "cm/settings", "-n", &ns]);
    let head = format!("   ALLOWED, recorded   policy {ns}\n");
    assert!(impact.stdout.contains(&head) && impact.code == 0, "{impact:?}");
}

#[test]
fn forbidden_reads_are_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("look-little").unwrap();
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let eve = plane.user("look-eve", None).unwrap();
    let role = ["create", "role", "little", "--verb=get,list", "--resource=configmaps", "-n", &ns];
    kubectl(plane, &role);
    let bind = ["create", "rolebinding", "little", "--role=little", "--user=look-eve", "-n", &ns];
    kubectl(plane, &bind);
    let target = ["impact", "cm/settings", "-n", &ns, "--verbose"];
    let little = eventually("the role", LIMIT, || {
        let said = belay_as(&eve, &target);
        if said.stdout.is_empty() { Err(said.stderr.into()) } else { Ok(said) }
    })
    .unwrap();
    // This user may not delete the object.
    assert_eq!(little.code, 1, "{little:?}");
    assert!(little.stdout.contains("   DENIED   the API server\n"), "{little:?}");
    for unread in ["deployments.apps", "deletionpolicies.belay.dev"] {
        let line = little.stdout.lines().find(|line| line.contains(unread));
        let line = line.unwrap_or_else(|| panic!("{unread}: {little:?}"));
        assert!(line.starts_with("not read") || line.starts_with("    "), "{line}");
    }
    assert!(little.stdout.contains("the counts are lower bounds"), "{little:?}");

    // With --as, an administrator gets the answer for that user.
    let as_eve = belay(plane, &[&target[..], &["--as", "look-eve"]].concat());
    assert_eq!((as_eve.code, as_eve.stdout), (1, little.stdout));
    let groups = ["--as", "look-eve", "--as-group", "system:masters"];
    assert_eq!(belay(plane, &[&target[..], &groups].concat()).code, 0);
}

#[test]
fn reports_which_of_several_targets_are_deleted_without_an_approval() {
    let plane = &world().plane;
    let ns = plane.namespace("look-part").unwrap();
    plane.apply(&config_map("gold").with_namespace(&ns).with_protect_label("Always")).unwrap();
    plane.apply(&config_map("plain").with_namespace(&ns)).unwrap();
    let impact = ["impact", "cm/gold", "cm/plain", "-n", &ns];
    let told = eventually("a denial", LIMIT, || {
        let told = json(&belay(plane, &[&impact[..], &["-o", "json"]].concat()));
        if told["verdict"] == "Deny" { Ok(told) } else { Err(format!("{told}").into()) }
    })
    .unwrap();
    let accepted = told["accepted"]["targets"].as_array().unwrap();
    assert_eq!((accepted.len(), &accepted[0]["name"]), (1, &"plain".into()), "{told}");
    let text = belay(plane, &impact).stdout;
    assert!(text.contains("   DENIED in part   "), "{text}");
    let even_so = "kubectl sends a DELETE for each object, so it would still delete 1 of these 2 \
                   objects: configmap/plain\n";
    assert!(text.contains(even_so), "{text}");
    let deleted = plane.api().delete(&["cm/gold", "cm/plain"], &ns).unwrap();
    assert!(!deleted.ok(), "{deleted:?}");
    assert!(plane.api().get("cm/gold", &ns).unwrap().is_some());
    plane.api().wait_gone(("cm/plain", &ns), LIMIT).unwrap();
    let alone = json(&belay(plane, &["impact", "cm/gold", "-n", &ns, "-o", "json"]));
    assert!(alone["accepted"].is_null(), "{alone}");
}

#[test]
fn protected_content_of_a_kind_that_belay_does_not_watch_stays() {
    let plane = &world().plane;
    let ns = plane.namespace("look-unwatched").unwrap();
    plane.define_kind("unwatched.example.com", "Thing", "things").unwrap();
    let gold = object("unwatched.example.com/v1", "Thing", "gold").with_namespace(&ns);
    plane.apply(&gold.with_protect_label("Always")).unwrap();
    plane.apply(&config_map("plain").with_namespace(&ns)).unwrap();
    let target = format!("ns/{ns}");
    let impact = json(&belay(plane, &["impact", &target, "-o", "json"]));
    assert_ne!(impact["verdict"], "Deny", "{impact:#}");
    let outcome = |name: &str| {
        let mut objects = impact["objects"].as_array().unwrap().iter();
        let object = objects.find(|one| one["object"]["name"] == name).unwrap();
        (object["outcome"].as_str().unwrap(), object["note"].as_str().unwrap_or_default())
    };
    let denied = "belay denies its deletion until it is approved";
    assert_eq!(outcome("gold"), ("Denied", denied), "{impact:#}");
    let until =
        format!("until belay allows the deletion of thing.unwatched.example.com/gold -n {ns}");
    assert_eq!(outcome(&ns), ("Held", until.as_str()), "{impact:#}");
    assert_eq!(outcome("plain").0, "Deleted", "{impact:#}");
    // What belay does not watch is no news.
    assert_eq!(impact["warnings"], json!([]), "{impact:#}");
    let why = belay(plane, &["why", &target]);
    let says = "it then stays Terminating:\n- belay denies the deletion of thing.unwatched.example.com/gold";
    assert!(why.code == 0 && why.stdout.contains(says), "{why:?}");

    kubectl(plane, &["delete", &target, "--wait=false"]);
    plane.api().wait_gone(("configmap/plain", &ns), LIMIT).unwrap();
    let thing = plane.api().get("things.unwatched.example.com/gold", &ns).unwrap().unwrap();
    assert!(thing["metadata"]["deletionTimestamp"].is_null(), "{thing}");
    assert!(plane.api().get(&target, "").unwrap().is_some());

    // The namespace controller tries again and again.
    let impact = json(&belay(plane, &["impact", &target, "-o", "json"]));
    let deleted = impact["summary"]["deleted"]["byKind"].as_object().unwrap();
    assert!(!deleted.contains_key("Thing") && !deleted.contains_key("Namespace"), "{impact:#}");
    let counts = ["held", "denied"].map(|outcome| &impact["summary"][outcome]["byKind"]);
    assert_eq!(counts, [&json!({"Namespace": 1}), &json!({"Thing": 1})], "{impact:#}");
    let object = format!("things.unwatched.example.com/gold -n {ns}");
    let next = format!(
        "next: belay denies this; to approve it: kubectl belay approve {object} --reason \"…\"\n"
    );
    eventually("the step", LIMIT, || {
        let why = belay(plane, &["why", &target]);
        if why.stdout.contains(&next) { Ok(()) } else { Err(format!("{why:?}").into()) }
    })
    .unwrap();
    let stuck = belay(plane, &["stuck", "-A", "--longer-than=1s"]);
    assert!(stuck.stdout.contains(&next), "{stuck:?}");
    let undo = belay(plane, &["undo", &target, "--dry-run"]);
    let step = format!("\n2. approve the deletion of namespaces/{ns} and of its content\n");
    assert!(undo.stdout.contains(&step), "{undo:?}");
}

#[test]
fn content_that_belay_does_not_watch_is_no_reason_of_a_denial() {
    let plane = &world().plane;
    let ns = plane.namespace("look-counted").unwrap();
    plane.define_kind("counted.example.com", "Thing", "things").unwrap();
    let gold = object("counted.example.com/v1", "Thing", "gold").with_namespace(&ns);
    plane.apply(&gold.with_protect_label("Always")).unwrap();
    policy::protect_namespace(plane, &ns);
    plane.apply(&config_map("kept").with_namespace(&ns)).unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    policy::apply(plane, &format!("{ns}-kept"), spec);
    let target = format!("ns/{ns}");
    let impact = json(&belay(plane, &["impact", &target, "-o", "json"]));
    let why = json(&belay(plane, &["why", &target, "-o", "json"]));
    let reasons = |report: &serde_json::Value| {
        let blockers = report["blockers"].as_array().unwrap().iter();
        blockers.map(|one| one["says"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(impact["verdict"], "Deny", "{impact:#}");
    assert!(reasons(&impact)[0].contains("ConfigMap"), "{impact:#}");
    assert!(
        reasons(&impact).iter().all(|says| !says.to_lowercase().contains("thing")),
        "{impact:#}"
    );
    // A denial lists protected content once; `why` also explains why each of it is protected.
    let explained = reasons(&why);
    assert!(reasons(&impact).iter().all(|says| explained.contains(says)), "{why:#}");
    // The approval that the API server asks for covers it as well.
    let denied = &impact["summary"]["denied"]["total"];
    let covers_content = impact["approve"][0].as_str().unwrap().contains("--scope content");
    assert_eq!((denied, covers_content), (&json!(0), true), "{impact:#}");
}

#[test]
fn a_category_means_what_it_means_to_kubectl() {
    let plane = &world().plane;
    let ns = plane.namespace("look-category").unwrap();
    plane.apply(&config_map("plain").with_namespace(&ns)).unwrap();
    plane.apply(&pod("web").with_namespace(&ns)).unwrap();
    kubectl(plane, &["create", "service", "clusterip", "web", "--tcp=80", "-n", &ns]);
    let all = kubectl(plane, &["get", "all", "-n", &ns, "-o", "name"]);
    let mut expected: Vec<String> = all.lines().map(|line| format!("{line} -n {ns}")).collect();
    let impact = json(&belay(plane, &["impact", "all", "--all", "-n", &ns, "-o", "json"]));
    let targets = impact["targets"].as_array().unwrap().iter();
    let mut targets: Vec<String> = targets
        .map(|one| {
            let (kind, name) = (one["kind"].as_str().unwrap(), one["name"].as_str().unwrap());
            format!("{}/{name} -n {ns}", kind.to_lowercase())
        })
        .collect();
    expected.sort();
    targets.sort();
    assert_eq!(targets, expected, "{impact:#}");
    let delete = ["delete", "all", "--all", "-n", &ns, "--yes", "--dry-run=server"];
    assert_eq!(belay(plane, &delete).code, 0);
}

#[test]
fn the_endpoints_of_a_service_are_deleted_with_it() {
    let plane = &world().plane;
    let ns = plane.namespace("look-endpoints").unwrap();
    kubectl(plane, &["create", "service", "clusterip", "web", "--tcp=80", "-n", &ns]);
    plane
        .api()
        .wait(("endpoints/web", &ns), LIMIT, |found| {
            found.map(drop).ok_or_else(|| "no Endpoints".into())
        })
        .unwrap();
    let impact = json(&belay(plane, &["impact", "svc/web", "-n", &ns, "-o", "json"]));
    let mut objects = impact["objects"].as_array().unwrap().iter();
    let endpoints = objects.find(|one| one["object"]["kind"] == "Endpoints").unwrap();
    assert_eq!(
        (&endpoints["outcome"], &endpoints["via"]["edge"]),
        (&json!("Deleted"), &json!("name"))
    );
    kubectl(plane, &["delete", "svc/web", "-n", &ns]);
    plane.api().wait_gone(("endpoints/web", &ns), LIMIT).unwrap();
}
