//! `belay status`.

use serde_json::json;

use crate::harness::eventually;
use crate::harness::manifest::{self, Manifest as _};
use crate::{LIMIT, belay, json, kubectl, policy, world};

#[test]
fn the_status_contains_the_policies_and_the_leader() {
    let plane = &world().plane;
    let ns = plane.namespace("status").unwrap();
    policy::protect(plane, &ns, "configmaps, pods", json!({"whileUsed": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    eventually("the count of what is protected", LIMIT, || {
        let output = belay(plane, &["status", "-o", "json"]);
        let said: serde_json::Value = serde_json::from_str(&output.stdout)?;
        let policies = said["policies"].as_array().cloned().unwrap_or_default();
        let policy = policies.iter().find(|policy| policy["name"] == ns.as_str());
        let policy = policy.ok_or_else(|| said.to_string())?;
        let led = said["leader"]["name"].is_string();
        let there = said["configurations"][0]["present"] == true;
        // The leader created both at the same time.
        let ends = ["certificate", "authority"].map(|of| said[of]["until"].as_str());
        let counted = policy["protected"] == 1 && policy["ready"] == true;
        let why = "belay adds no hold to this kind";
        let counted = counted && policy["notHeld"] == json!([{"resource": "pods", "why": why}]);
        if led && there && counted && ends[0].is_some() && ends[0] == ends[1] {
            Ok(())
        } else {
            Err(said.to_string().into())
        }
    })
    .unwrap();
    let table = belay(plane, &["status"]).stdout;
    assert!(table.starts_with("leader: "), "{table}");
    assert!(table.contains("\ncertificates: the serving certificate expires 2"), "{table}");
    let row = table.lines().find(|line| line.starts_with(&ns)).unwrap();
    assert!(row.contains("   Deny     yes     1   ") && row.ends_with("whileUsed"), "{table}");
}

#[test]
fn a_new_hold_is_effective_when_the_status_and_the_refusal_say() {
    let plane = &world().plane;
    let ns = plane.namespace("effective").unwrap();
    // The API server keeps no managedFields of an object that was created without fields, and
    // so no age of its hold. belay knows when it first saw the hold.
    let names = ["settings", "empty"];
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns, "--from-literal=a=b"]);
    kubectl(plane, &["create", "configmap", "empty", "-n", &ns]);
    for name in names {
        let pod = manifest::reader(name, "configMapRef", name).with_namespace(&ns);
        plane.apply(&pod).unwrap();
    }
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    let mine = || {
        let all = json(&belay(plane, &["status", "-o", "json"]));
        let mut all = all["policies"].as_array().unwrap().iter();
        all.find(|policy| policy["name"] == ns.as_str()).unwrap().clone()
    };
    eventually("the time at which the hold is effective", LIMIT, || {
        let policy = mine();
        match policy["holdsEffectiveTime"].is_string() && policy["held"] == 2 {
            true => Ok(()),
            false => Err(policy.to_string().into()),
        }
    })
    .unwrap();
    let table = belay(plane, &["status"]).stdout;
    assert!(table.contains("\n  holds: belay relies on a hold only 45 s after "), "{table}");
    let managed = ["get", "configmap", "empty", "-n", &ns, "--show-managed-fields", "-o", "json"];
    let managed = json(&plane.kubectl(&managed).unwrap());
    assert!(managed["metadata"]["managedFields"].is_null(), "{managed}");
    let delete = |name| ["delete", "configmap", name, "-n", &ns, "--wait=false"];
    for name in names {
        let refused = plane.kubectl(&delete(name)).unwrap().failure().unwrap();
        assert!(refused.contains("To delete it, retry in "), "{refused}");
    }
    // The Event repeats the advice of the refusal.
    eventually("the Event", LIMIT, || {
        let said = belay(plane, &["denials", "-n", &ns]);
        if said.stdout.contains("retry in ") { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    // A retry passes after that.
    for name in names {
        let passes = || plane.kubectl(&delete(name))?.success();
        eventually("a DELETE that passes", LIMIT, passes).unwrap();
    }
    eventually("a status without young holds", LIMIT, || {
        let policy = mine();
        match policy["holdsEffectiveTime"].is_null() {
            true => Ok(()),
            false => Err(policy.to_string().into()),
        }
    })
    .unwrap();
}

#[test]
fn every_status_with_all_holds_has_their_time_and_their_count() {
    let plane = &world().plane;
    let ns = plane.namespace("young").unwrap();
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns, "--from-literal=a=b"]);
    let name = format!("deletionpolicy/{ns}");
    let (started, start) = std::sync::mpsc::channel();
    let mut early = Vec::new();
    let judge = |policy: Option<&serde_json::Value>| {
        let Some(policy) = policy else {
            started.send(())?;
            return Err("it does not exist".into());
        };
        let status = &policy["status"];
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        // The holds are young until the end of this test.
        let holding = conditions.find(|c| c["type"] == "Holding" && c["status"] == "True");
        let effective = status["holdsEffectiveTime"].is_string();
        let is_counted = status["protectedObjects"] == 1 && status["heldObjects"] == 1;
        if holding.is_some() && !(effective && is_counted) {
            early.push(status.to_string());
        }
        let is_current =
            |c: &serde_json::Value| c["observedGeneration"] == policy["metadata"]["generation"];
        match holding.is_some_and(is_current) && effective && is_counted {
            true => Ok(()),
            false => Err(status.to_string().into()),
        }
    };
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| plane.api().wait((&name, ""), LIMIT, judge));
        start.recv_timeout(LIMIT).unwrap();
        // With onDelete Hold, the status needs the time.
        policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
        watch.join().unwrap().unwrap();
    });
    assert!(early.is_empty(), "{early:?}");
}

#[test]
fn the_hold_of_a_terminating_object_is_not_new() {
    let plane = &world().plane;
    let ns = plane.namespace("old-hold").unwrap();
    for name in ["used", "free"] {
        kubectl(plane, &["create", "configmap", name, "-n", &ns, "--from-literal=a=b"]);
    }
    let pod = manifest::reader("reader", "configMapRef", "used").with_namespace(&ns);
    plane.apply(&pod).unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
    let used = || {
        let args = ["get", "configmap", "used", "-n", &ns, "--show-managed-fields", "-o", "json"];
        json(&plane.kubectl(&args).unwrap())
    };
    // The entry of the manager that added the hold.
    let of_hold = |object: &serde_json::Value| {
        let mut entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        entries.find(|e| e["fieldsV1"]["f:metadata"]["f:finalizers"].is_object()).cloned()
    };
    let before = eventually("the hold", LIMIT, || of_hold(&used()).ok_or("no hold".into()));
    let manager = format!("--field-manager={}", before.unwrap()["manager"].as_str().unwrap());
    let delete = |name| ["delete", "configmap", name, "-n", &ns, "--wait=false"];
    let is_accepted = || plane.kubectl(&delete("used"))?.success();
    eventually("a DELETE that passes", LIMIT, is_accepted).unwrap();
    // belay annotates the object when it tries the release again.
    let annotate = ["annotate", "configmap", "used", "-n", &ns, "example.com/again=1", &manager];
    kubectl(plane, &annotate);
    let fields = of_hold(&used()).unwrap()["fieldsV1"]["f:metadata"]["f:annotations"].take();
    assert!(fields["f:example.com/again"].is_object(), "{fields}");
    // The next count includes this change.
    eventually("a DELETE that passes", LIMIT, || plane.kubectl(&delete("free"))?.success())
        .unwrap();
    let path = ".status.protectedObjects";
    let policy = format!("deletionpolicy/{ns}");
    plane.api().wait_field((&policy, ""), LIMIT, path, |count| count == "1").unwrap();
    let effective = plane.api().field(&policy, "", ".status.holdsEffectiveTime").unwrap();
    assert_eq!(effective, "");
}

#[test]
fn the_counts_are_complete_when_a_policy_becomes_ready() {
    let plane = &world().plane;
    let ns = plane.namespace("counted").unwrap();
    let objects: Vec<_> = (0..40)
        .map(|n| {
            let object =
                manifest::object("networking.k8s.io/v1", "NetworkPolicy", &format!("n{n}"));
            object.with(json!({"spec": {"podSelector": {}}})).with_namespace(&ns)
        })
        .collect();
    plane.apply(&manifest::documents(&objects)).unwrap();
    let target = policy::target("networking.k8s.io", "networkpolicies", &ns);
    let spec = json!({"targets": [target], "protect": {"always": {}}});
    plane.apply(&manifest::deletion_policy(&ns, spec)).unwrap();
    let status = eventually("Ready", LIMIT, || {
        let stored = plane.api().get(&format!("deletionpolicy/{ns}"), "")?.unwrap_or_default();
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |c: &serde_json::Value| c["type"] == "Ready" && c["status"] == "True";
        match conditions.iter().any(is_ready) {
            true => Ok(stored["status"].clone()),
            false => Err(stored.to_string().into()),
        }
    })
    .unwrap();
    assert_eq!(status["protectedObjects"], 40, "{status}");
}
