//! What commands print about kinds that a developer may not read.

use serde_json::json;

use crate::developer::{developer, settings_in_use, why};
use crate::harness::eventually;
use crate::harness::kubectl::{Output, run};
use crate::harness::manifest::{Manifest as _, claim, config_map, pod, workload};
use crate::harness::rbac::{rule, user};
use crate::{LIMIT, belay, belay_as, kubectl, policy, terminal, world};

/// The lines about failed reads.
fn unread(said: &Output) -> Vec<&str> {
    said.stdout.lines().filter(|line| line.starts_with("not read")).collect()
}

#[test]
fn unread_kinds_are_counted_and_listed_on_request() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-unread");
    settings_in_use(plane, &ns);
    why(&dev, &ns, "settings", "InUse");
    for (command, tail) in
        [("used-by", "there may be more"), ("impact", "the counts are lower bounds")]
    {
        let ask =
            |more: &[&str]| belay_as(&dev, &[&[command, "cm/settings", "-n", &ns], more].concat());
        let said = ask(&[]);
        let forbidden =
            |line: &&str| line.contains(" kinds (forbidden for you; --verbose lists them)");
        let lines: Vec<_> = unread(&said).into_iter().filter(forbidden).collect();
        assert!(lines.len() == 1 && lines[0].ends_with(tail), "{said:?}");
        let listed = ask(&["--verbose"]);
        let volumes = format!("not read    persistentvolumes (forbidden for you): {tail}");
        assert!(unread(&listed).contains(&&*volumes) && unread(&listed).len() > 10, "{listed:?}");
        // Programs get them one by one.
        let json = crate::json(&ask(&["-o", "json"]));
        let count = |said: &Output| unread(said).len();
        assert_eq!(json["notRead"].as_array().unwrap().len(), count(&listed), "{json:#}");
    }
    let said = belay_as(&dev, &["why", "cm/settings", "-n", &ns]);
    let own = "not read: 4 kinds of belay.dev: forbidden for you; --verbose lists them";
    assert!(unread(&said).contains(&own), "{said:?}");
}

#[test]
fn kinds_that_use_only_objects_of_their_own_namespace_are_not_reported() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-own");
    let who = format!("dev-{ns}");
    plane.grant(&who, None, &[rule("belay.dev", "*", "get, list")], &[user(&who)]).unwrap();
    settings_in_use(plane, &ns);
    let (target, exists) =
        (policy::target("", "services", &ns), policy::target("", "secrets", &ns));
    let spec = json!({"targets": [target], "protect": {"whileExists": [exists]}});
    policy::apply(plane, &format!("{ns}-exists"), spec);
    why(&dev, &ns, "settings", &format!("protected by: policy {ns}"));
    let outside = |kind: &str| {
        let why = format!("forbidden for you outside of namespace {ns}");
        json!({"resource": kind, "why": why})
    };
    for command in ["why", "impact"] {
        let said = belay_as(&dev, &[command, "cm/settings", "-n", &ns, "-o", "json"]);
        let json = crate::json(&said);
        let unread = json["notRead"].as_array().unwrap().iter();
        let unread: Vec<_> = unread.map(|one| one["resource"].as_str().unwrap()).collect();
        assert!(unread.contains(&"namespaces"), "{command}: {json:#}");
        // belay reads Pods and StatefulSets for the policy. Those elsewhere can't use this object.
        for kind in ["pods", "statefulsets.apps"] {
            assert!(!unread.contains(&kind), "{command}: {json:#}");
        }
        // The data of a claim can be in another namespace, and a policy can name Secrets there.
        for kind in ["persistentvolumeclaims", "secrets"] {
            assert!(json["notRead"].as_array().unwrap().contains(&outside(kind)), "{json:#}");
        }
    }
    // With --all, `used-by` lists objects elsewhere that mention this one.
    let json =
        crate::json(&belay_as(&dev, &["used-by", "cm/settings", "-n", &ns, "--all", "-o", "json"]));
    assert!(json["notRead"].as_array().unwrap().contains(&outside("pods")), "{json:#}");
}

#[test]
fn commands_read_the_namespace_where_the_cluster_is_forbidden() {
    let plane = &world().plane;
    let (ns, dev) = developer(plane, "dev-near");
    settings_in_use(plane, &ns);
    let kept = config_map("kept").with_namespace(&ns).with_finalizers(&["db.example.test/drop"]);
    plane.apply(&kept).unwrap();
    why(&dev, &ns, "settings", "InUse");
    let kubectl = plane.binaries().join("kubectl");
    let config = ["config", "set-context", "--current", "--namespace", &ns];
    run(&kubectl, &dev, &config, None).unwrap().success().unwrap();
    let delete = |name| run(&kubectl, &dev, &["delete", "cm", name, "--wait=false"], None).unwrap();
    delete("kept").success().unwrap();
    delete("settings").failure().unwrap();

    let stuck = ["stuck", "-A", "--longer-than=1s"];
    let said = eventually("the stuck object", LIMIT, || {
        let said = belay_as(&dev, &stuck);
        if said.stdout.contains("kept") { Ok(said) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    assert_eq!(said.code, 1, "{said:?}");
    let outside =
        format!("kinds: forbidden for you outside of namespace {ns}; --verbose lists them");
    assert!(unread(&said).iter().any(|line| line.contains(&outside)), "{said:?}");

    let text = "configmap \"settings\" is in use by";
    let denials = |more: &[&str]| {
        eventually("the Event", LIMIT, || {
            let said = belay_as(&dev, &[&["denials"], more].concat());
            if said.stdout.contains(text) { Ok(said) } else { Err(format!("{said:?}").into()) }
        })
        .unwrap()
    };
    let policies = "not read: deletionpolicies.belay.dev: forbidden for you";
    let events = format!("not read: events: forbidden for you outside of namespace {ns}");
    assert_eq!(unread(&denials(&[])), [policies, &events]);
    assert_eq!(unread(&denials(&["-n", &ns])), [policies]);
    // The namespace of this kubeconfig is another one.
    let elsewhere = belay(plane, &["denials", "--as", &format!("dev-{ns}")]);
    let events = "not read: events: forbidden for you in namespace default; name another namespace \
                  with -n";
    assert_eq!(unread(&elsewhere), [policies, events]);
}

/// A user with these rights in the whole cluster.
fn little(ns: &str, group: &str, resources: &str) -> String {
    let plane = &world().plane;
    let name = format!("nina-{ns}");
    let rules = [rule(group, resources, "get, list, delete")];
    plane.grant(&name, None, &rules, &[user(&name)]).unwrap();
    name
}

#[test]
fn deleted_content_that_could_not_be_read_is_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("unread-content").unwrap();
    let nina = little(&ns, "", "namespaces");
    plane.apply(&claim("data").with_namespace(&ns)).unwrap();
    let target = format!("ns/{ns}");
    let impact = ["impact", &target, "--as", &nina];
    let said = eventually("the rights", LIMIT, || {
        let said = belay(plane, &impact);
        if said.code == 0 { Ok(said) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    let text = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        format!(
            "deleted 1+ (1 Namespace) 1 of them perhaps or more: content of namespace/{ns} could"
        ),
        format!("destroyed? ? unknown: the claims of namespace/{ns} could not be read (forbidden"),
        "its content is deleted as well and could not be read (".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {said:?}");
    }
    let json = crate::json(&belay(plane, &[&impact[..], &["-o", "json"]].concat()));
    let unread = &json["unreadContent"][0];
    assert_eq!((&unread["of"]["name"], &unread["what"]), (&json!(ns), &json!("content")), "{json}");
    assert_eq!(unread["claimsNotRead"], "forbidden for you", "{json:#}");

    let dry = belay(plane, &["delete", &target, "--as", &nina, "--yes", "--dry-run=server"]);
    assert!(dry.stdout.contains("It may destroy data for good: the claims of"), "{dry:?}");
    // A person must type the name, as for data that is certainly destroyed.
    let (shown, code) = terminal::answer(plane, &format!("delete {target} --as {nina}"), "yes\n");
    assert!(code == 1 && shown.contains(&format!("Type {ns} to continue")), "{code} {shown}");
    // An administrator reads all of it.
    let json = crate::json(&belay(plane, &["impact", &target, "-o", "json"]));
    assert_eq!(json["unreadContent"], json!([]), "{json:#}");
}

#[test]
fn dependents_that_could_not_be_read_are_reported() {
    let plane = &world().plane;
    let ns = plane.namespace("unread-dependents").unwrap();
    let nina = little(&ns, "apps", "deployments");
    plane.apply(&workload("Deployment", "web", &pod("web")).with_namespace(&ns)).unwrap();
    let impact = |more: &[&str]| {
        let impact = ["impact", "deploy/web", "-n", &ns, "--as", &nina, "-o", "json"];
        let said = belay(plane, &[&impact[..], more].concat());
        if said.code == 0 { Ok(crate::json(&said)) } else { Err(format!("{said:?}").into()) }
    };
    let json = eventually("the rights", LIMIT, || impact(&[])).unwrap();
    let unread = &json["unreadContent"][0];
    assert_eq!(unread["what"], "dependents", "{json:#}");
    assert_eq!(unread["kinds"], json!(["replicasets.apps"]), "{json:#}");
    assert_eq!(unread["claimsNotRead"], json!(null), "{json:#}");
    // With orphan, they stay.
    let json = impact(&["--cascade=orphan"]).unwrap();
    assert_eq!(json["unreadContent"], json!([]), "{json:#}");
}

#[test]
fn unread_kinds_add_no_reason_to_the_denial_of_the_api_server() {
    let plane = &world().plane;
    let ns = plane.namespace("unread-reason").unwrap();
    let eve = format!("eve-{ns}");
    plane.bind(&eve, None, ("ClusterRole", "edit"), &[user(&eve)]).unwrap();
    let delete = [rule("", "namespaces", "get, list, delete")];
    plane.grant(&format!("{eve}-delete"), None, &delete, &[user(&eve)]).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    kubectl(plane, &["create", "service", "clusterip", "web", "--tcp=80", "-n", &ns]);
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    let target = policy::target("", "services", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    policy::apply(plane, &format!("{ns}-services"), spec);
    let target = format!("ns/{ns}");
    for command in ["why", "impact"] {
        let ask = |more: &[&str]| belay(plane, &[&[command, &target, "--as", &eve], more].concat());
        eventually("the denial", LIMIT, || {
            let said = ask(&[]);
            if said.stdout.contains("(Protected)") {
                Ok(())
            } else {
                Err(format!("{said:?}").into())
            }
        })
        .unwrap();
        let json = crate::json(&ask(&["-o", "json"]));
        let blockers = json["blockers"].as_array().unwrap().iter();
        let reasons: Vec<_> = blockers.map(|one| one["reason"].as_str().unwrap()).collect();
        assert_eq!((&json["verdict"], reasons), (&json!("Deny"), vec!["Protected"]), "{json:#}");
        // belay can read them, and the user can't.
        let text = ask(&[]);
        assert!(!text.stdout.contains("can't check"), "{text:?}");
        let counted = |line: &&str| line.contains("--verbose lists them");
        assert_eq!(unread(&text).into_iter().filter(counted).count(), 1, "{text:?}");
    }
}
