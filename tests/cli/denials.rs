//! `belay denials`.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{self, Manifest as _};
use crate::{LIMIT, belay, json, kubectl, policy, world};

#[test]
fn denials_and_audited_denials_are_distinguished() {
    let plane = &world().plane;
    let [denied, warned] = ["denials", "denials"].map(|name| plane.namespace(name).unwrap());
    policy::protect(plane, &denied, "configmaps", json!({"always": {}}));
    let target = policy::target("", "configmaps", &warned);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "action": "Audit"});
    policy::apply(plane, &warned, spec);
    for ns in [&denied, &warned] {
        kubectl(plane, &["create", "configmap", "settings", "-n", ns]);
    }
    let refused = plane.kubectl(&["delete", "configmap", "settings", "-n", &denied]).unwrap();
    assert!(refused.failure().unwrap().contains("is protected"));
    kubectl(plane, &["delete", "configmap", "settings", "-n", &warned, "--wait=false"]);
    let listed = |args: &[&str]| -> Vec<serde_json::Value> {
        let said = json(&belay(plane, &[&["denials", "-o", "json"][..], args].concat()));
        said["items"].as_array().cloned().unwrap()
    };
    let of = |items: &[serde_json::Value], ns: &str| {
        let typed = format!("configmaps/settings -n {ns}");
        let is = |item: &&serde_json::Value| item["object"]["typed"] == typed.as_str();
        items.iter().filter(is).cloned().collect::<Vec<_>>()
    };
    // A leader writes it into the status within seconds.
    eventually("the refusal, by whom and by which policy", LIMIT, || {
        let found = of(&listed(&[]), &denied);
        match &found[..] {
            [one] if one["policies"][0] == denied.as_str() && one["subject"].is_string() => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    })
    .unwrap();
    eventually("what would have been refused", LIMIT, || {
        let found = of(&listed(&["--would"]), &warned);
        if found.len() == 1 { Ok(()) } else { Err(format!("{found:?}").into()) }
    })
    .unwrap();
    assert_eq!(of(&listed(&["--would"]), &denied), [serde_json::Value::Null; 0]);
    assert_eq!(of(&listed(&[]), &warned), [serde_json::Value::Null; 0]);
    let of_other = belay(plane, &["denials", "-n", &warned]);
    assert_eq!(
        (of_other.code, of_other.stdout.contains(&format!(" -n {denied} "))),
        (0, false),
        "{of_other:?}"
    );
    let would = belay(plane, &["denials", "--would"]).stdout;
    let age = |args: &[&str]| {
        json(&belay(plane, &[&["denials", "-o", "json"][..], args].concat()))["ageSeconds"].take()
    };
    let late = format!("the list may lack the requests of the last {} s\n", age(&["--would"]));
    assert!(would.contains(&late), "{late}: {would}");
    assert_eq!(age(&[]), age(&["--would"]), "the counts of the policies");
    let all = belay(plane, &["denials"]);
    assert_eq!(all.code, 1, "{all:?}");
    let table = all.stdout;
    assert!(table.contains(&format!("   denied    configmaps/settings -n {denied} ")), "{table}");
}

#[test]
fn the_message_of_an_allowed_request_is_whole() {
    let plane = &world().plane;
    let ns = plane.namespace("denials-of-long-names").unwrap();
    let target = policy::target("", "configmaps", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "action": "Warn"});
    policy::apply(plane, &ns, spec);
    let settings = "settings-of-all-the-shops-in-the-world";
    kubectl(plane, &["create", "configmap", settings, "-n", &ns]);
    for name in ["backend", "frontend", "payments"] {
        let name = format!("{name}-of-all-the-shops-in-the-world");
        let pod = manifest::reader(&name, "configMapRef", settings).with_namespace(&ns);
        plane.apply(&pod).unwrap();
    }
    let deleted = plane.kubectl(&["delete", "configmap", settings, "-n", &ns]).unwrap();
    assert!(deleted.stderr.contains(&format!("; policy {ns}\n")), "{deleted:?}");
    let parts = [
        "payments-of-all-the-shops-in-the-world".to_owned(),
        format!(
            "To override: kubectl belay approve configmaps/{settings} -n {ns} --reason \"…\". "
        ),
        format!("Details: kubectl belay why configmaps/{settings} -n {ns}"),
    ];
    eventually("the whole message", LIMIT, || {
        let said = belay(plane, &["denials", "--would", "-n", &ns]);
        match parts.iter().all(|part| said.stdout.contains(part)) {
            true => Ok(()),
            false => Err(format!("{said:?}").into()),
        }
    })
    .unwrap();
}

#[test]
fn an_audited_delete_of_a_crd_with_resources_is_recorded() {
    let plane = &world().plane;
    let ns = plane.namespace("denials-crd").unwrap();
    let group = "s39.example.com";
    plane.define_kind(group, "Widget", "widgets").unwrap();
    let crd = format!("widgets.{group}");
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": [crd]});
    let protect = json!({"whileNotEmpty": {"counting": "Any"}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": protect, "action": "Audit"}));
    let widget = manifest::object(&format!("{group}/v1"), "Widget", "one").with_namespace(&ns);
    plane.apply(&widget).unwrap();
    kubectl(plane, &["delete", "crd", &crd, "--wait=false"]);
    eventually("the request", LIMIT, || {
        let would = json(&belay(plane, &["denials", "--would", "-o", "json"]));
        let mut items = would["items"].as_array().ok_or("no list")?.iter();
        match items.find(|item| item["object"]["name"] == crd.as_str()) {
            Some(item) if item["reason"] == "NotEmpty" => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    })
    .unwrap();
}

#[test]
fn a_denial_by_the_label_explains_why_it_has_no_user() {
    let plane = &world().plane;
    let ns = plane.namespace("labelled").unwrap();
    let label = json!({"metadata": {"labels": {"belay.dev/protect": "Always"}}});
    plane.apply(&manifest::config_map("settings").with_namespace(&ns).with(label)).unwrap();
    eventually("the denial", LIMIT, || {
        // belay records no denial of an object that it has not read yet.
        plane.kubectl(&["delete", "configmap", "settings", "-n", &ns])?.failure()?;
        let said = belay(plane, &["denials", "-n", &ns]);
        let has = |text: &str| said.stdout.contains(text);
        match has("denied") && has("\nUSER -: only an Event reports this request, and Events") {
            true => Ok(()),
            false => Err(format!("{said:?}").into()),
        }
    })
    .unwrap();
}

#[test]
fn each_reason_and_each_user_is_a_denial_of_its_own() {
    let plane = &world().plane;
    let ns = plane.namespace("reasons").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let refused = |args: &[&str], reason: &str| {
        let refused = plane.kubectl(&[args, &["-n", &ns]].concat()).unwrap().failure().unwrap();
        assert!(refused.contains(reason), "{refused}");
    };
    let delete = ["delete", "configmap", "settings"];
    let eve = ["--as=eve", "--as-group=system:masters"];
    refused(&delete, "(Protected)");
    for _ in 0..3 {
        refused(&[&delete[..], &eve].concat(), "(Protected)");
    }
    let remove = r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#;
    refused(&["patch", "configmap", "settings", "--type=json", "-p", remove], "(FinalizerGuarded)");
    eventually("three denials, and the counts", LIMIT, || {
        let said = json(&belay(plane, &["denials", "-n", &ns, "-o", "json"]));
        let items = said["items"].as_array().cloned().unwrap_or_default();
        let of = |field: &str, item: &serde_json::Value| item[field].as_str().map(str::to_owned);
        let mut rows: Vec<_> =
            items.iter().map(|item| (of("reason", item), of("subject", item))).collect();
        rows.sort();
        let row = |reason: &str, user: &str| (Some(reason.to_owned()), Some(user.to_owned()));
        let expected =
            [row("FinalizerGuarded", "admin"), row("Protected", "admin"), row("Protected", "eve")];
        let mut counts: Vec<_> = items.iter().filter_map(|item| item["count"].as_i64()).collect();
        counts.sort_unstable();
        match rows == expected && counts == [1, 4] {
            true => Ok(()),
            false => Err(said.to_string().into()),
        }
    })
    .unwrap();
}

#[test]
fn since_omits_earlier_denials() {
    let plane = &world().plane;
    let ns = plane.namespace("since").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"always": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let delete = ["delete", "configmap", "settings", "-n", &ns];
    plane.kubectl(&delete).unwrap().failure().unwrap();
    let of = |since: &str| belay(plane, &["denials", "-n", &ns, "--since", since]);
    eventually("the refusal", LIMIT, || {
        let said = of("10m");
        if said.code == 1 { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    // The denial grows older, and stays in the list for the requested time.
    eventually("a time in which nothing was refused", LIMIT, || {
        let said = of("5s");
        let nothing = said.stdout.starts_with("no denials\n");
        if said.code == 0 && nothing { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    let all = of("10m");
    assert_eq!(all.code, 1, "{all:?}");
    assert!(all.stdout.contains(&format!("   denied    configmaps/settings -n {ns} ")), "{all:?}");
    assert_eq!(of("soon").code, 2);
}

#[test]
fn objects_of_other_kinds_have_their_kind_and_plural() {
    let plane = &world().plane;
    let ns = plane.namespace("denied-lamps").unwrap();
    plane.define_kind("s01.example.com", "Lamp", "lamps").unwrap();
    let target = policy::target("s01.example.com", "lamps", &ns);
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    let lamp = manifest::object("s01.example.com/v1", "Lamp", "one").with_namespace(&ns);
    plane.apply(&lamp).unwrap();
    plane.kubectl(&["delete", "lamp", "one", "-n", &ns]).unwrap().failure().unwrap();
    eventually("the denial", LIMIT, || {
        let said = json(&belay(plane, &["denials", "-n", &ns, "-o", "json"]));
        let items = said["items"].as_array().cloned().unwrap_or_default();
        let object = items.first().map(|item| item["object"].clone()).ok_or("no item")?;
        let named = ["group", "kind", "resource"].map(|field| object[field].clone());
        assert_eq!(named, ["s01.example.com", "Lamp", "lamps"], "{items:?}");
        assert_eq!(items.len(), 1, "{items:?}");
        // The status and the Event are both here.
        match items[0]["count"].is_number() && items[0]["subject"].is_string() {
            true => Ok(()),
            false => Err(said.to_string().into()),
        }
    })
    .unwrap();
}
