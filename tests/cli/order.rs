//! `belay impact` for objects that Kubernetes treats in a special way: Nodes, the Namespaces
//! of the cluster, and several objects whose order matters. Each test compares the prediction
//! with the API server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{
    Manifest as _, bound_claim, config_map, documents, object, owner, pod, secret, workload,
};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, json, kubectl, policy, world};

/// The outcomes of impact by the arguments of kubectl.
fn outcomes(told: &Value) -> Vec<String> {
    let objects = told["objects"].as_array().unwrap().iter();
    let line = |one: &Value| {
        format!("{} {}", one["object"]["typed"].as_str().unwrap(), one["outcome"].as_str().unwrap())
    };
    objects.map(line).collect()
}

/// A Node with this name and a zone.
fn node(plane: &ControlPlane, name: &str) {
    let labels = json!({"kubernetes.io/hostname": name, "zone": "z1"});
    plane.apply(&object("v1", "Node", name).with_labels(labels)).unwrap();
}

/// A volume that is usable from nodes with this label.
fn pinned(volume: Value, key: &str, value: &str) -> Value {
    let expression = json!({"key": key, "operator": "In", "values": [value]});
    let terms = json!([{"matchExpressions": [expression]}]);
    volume.with(json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}))
}

#[test]
fn the_pods_of_a_node_are_deleted_and_its_volumes_are_stranded() {
    let plane = &world().plane;
    let ns = plane.namespace("node").unwrap();
    let [gone, other] = ["gone", "other"].map(|name| format!("{ns}-{name}"));
    node(plane, &gone);
    node(plane, &other);
    let pods = [("on-gone", &gone), ("on-other", &other)];
    for (name, node) in pods {
        plane.apply(&pod(name).with_node(node).with_namespace(&ns)).unwrap();
    }
    let [local, zonal] = ["local", "zonal"].map(|name| format!("{ns}-{name}"));
    let [volume, claim] = bound_claim(&ns, "data", &local);
    plane.apply(&pinned(volume, "kubernetes.io/hostname", &gone)).unwrap();
    plane.apply(&claim).unwrap();
    let [volume, _] = bound_claim(&ns, "zonal", &zonal);
    plane.apply(&pinned(volume, "zone", "z1")).unwrap();

    let impact = belay(plane, &["impact", &format!("node/{gone}"), "-o", "json"]);
    assert_eq!(impact.code, 0, "{impact:?}");
    let told = json(&impact);
    let outcomes = outcomes(&told);
    for expected in [
        format!("nodes/{gone} Deleted"),
        format!("pods/on-gone -n {ns} Deleted"),
        format!("persistentvolumes/{local} Stranded"),
    ] {
        assert!(outcomes.contains(&expected), "{expected}: {outcomes:?}");
    }
    assert!(
        !outcomes.iter().any(|one| one.contains("on-other") || one.contains(&zonal)),
        "{outcomes:?}"
    );
    assert_eq!(told["summary"]["stranded"]["total"], 1, "{told}");
    let text = belay(plane, &["impact", &format!("node/{gone}")]).stdout;
    assert!(text.contains("stranded      1   (1 PV)\n"), "{text}");
    let note = format!("its nodeAffinity allows no other node; bound to pvc/data -n {ns}\n");
    assert!(text.contains(&note), "{text}");
    assert!(text.contains("the pod garbage collector deletes it"), "{text}");

    kubectl(plane, &["delete", "node", &gone]);
    // The pod garbage collector waits 40 s, in case the Node comes back.
    eventually("the deletion of the Pod", Duration::from_secs(180), || {
        match plane.api().get("pod/on-gone", &ns)? {
            None => Ok(()),
            Some(pod) => Err(pod["status"].to_string().into()),
        }
    })
    .unwrap();
    assert!(plane.api().get("pod/on-other", &ns).unwrap().is_some());
    assert!(plane.api().get(&format!("pv/{local}"), "").unwrap().is_some());
    kubectl(plane, &["delete", "node", &other]);
}

#[test]
fn the_api_server_forbids_what_impact_calls_forbidden() {
    let plane = &world().plane;
    for name in ["default", "kube-public", "kube-system", "kube-node-lease"] {
        let namespace = format!("ns/{name}");
        let dry_run = ["delete", &namespace, "--dry-run=server"];
        let answer = plane.kubectl(&dry_run).unwrap();
        let is_forbidden = answer.stderr.contains("this namespace may not be deleted");
        let impact = belay(plane, &["impact", &namespace, "-o", "json"]);
        let told = json(&impact);
        let says = format!("the API server forbids the deletion of namespace \"{name}\"");
        let is_said = told["blockers"][0]["says"] == says.as_str();
        assert_eq!(is_said, is_forbidden, "{name}: {answer:?}\n{told}");
        assert_eq!(is_forbidden, name != "kube-node-lease", "{answer:?}");
        if !is_forbidden {
            continue;
        }
        assert_eq!((impact.code, &told["objects"]), (1, &json!([])), "{told}");
        assert_eq!((&told["verdict"], &told["approve"]), (&"Deny".into(), &json!([])), "{told}");
        let text = belay(plane, &["impact", &namespace]).stdout;
        let expected = format!(
            "DELETE namespace/{name}   DENIED   the API server\nblocked by  {says} (Forbidden)\n"
        );
        assert_eq!(text, expected);
    }
}

/// The commands that impact prints for a file with a Secret before its user work on the API
/// server, and the order of the file does not.
fn assert_order_works(plane: &ControlPlane, ns: &str, spec: Value, expected: &[String]) {
    let is_held = spec.get("hold").is_none();
    let target = policy::target("", "secrets", ns);
    policy::apply(plane, ns, spec.with(json!({"targets": [target]})));
    let pod = pod("web").with_env_from("secretRef", "password").without_grace_period();
    let web = workload("Deployment", "web", &pod);
    let manifests = documents(&[secret("password"), secret("free"), web]);
    let create = || {
        plane.apply_to(&["apply", "-n", ns, "-f", "-"], &manifests).unwrap().success().unwrap();
        eventually("the denial", 3 * LIMIT, || {
            // The hold of a Secret without users becomes effective.
            let free = ["secret", "free", "--dry-run=server"];
            plane.api().delete(&free, ns)?.success()?;
            let secret = plane.api().get("secret/password", ns)?.ok_or("no Secret")?;
            if is_held != secret["metadata"].get("finalizers").is_some() {
                return Err(secret.to_string().into());
            }
            let delete = ["secret", "password", "--dry-run=server"];
            let refused = plane.api().delete(&delete, ns)?.failure()?;
            if refused.contains("(Pod web-") { Ok(()) } else { Err(refused.into()) }
        })
        .unwrap();
    };
    create();

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    std::fs::write(&file, &manifests).unwrap();
    let file = file.display().to_string();
    let told = json(&belay(plane, &["impact", "-f", &file, "-n", ns, "-o", "json"]));
    assert_ne!(told["verdict"], "Deny", "{told}");
    let order = &told["order"];
    assert_eq!(order["denied"][0]["name"], "password", "{told}");
    assert_eq!(order["commands"], json!(expected), "{told}");
    let given = belay(plane, &["impact", "-f", &file, "-n", ns]);
    let text = given.stdout;
    // In a script, kubectl would delete a part in the given order.
    assert_eq!(given.code, 1, "{text}");
    let accepted = "in part     kubectl sends a DELETE for each object, so it would still delete 2 \
                    of these 3 objects: secret/free, deployment/web. A client that deletes in another order, \
                    such as helm uninstall, would also delete secret/password\n";
    assert!(text.contains(accepted), "{text}");
    let lines: String = expected.iter().map(|command| format!("            {command}\n")).collect();
    assert!(text.contains(&format!("\n{lines}")), "{text}");
    // For this order there is nothing to say.
    let works = ["impact", "secret/free", "deploy/web", "secret/password", "-n", ns, "-o", "json"];
    let works = belay(plane, &works);
    assert_eq!((json(&works).get("order"), works.code), (None, 0), "{works:?}");

    let refused = plane.kubectl(&["delete", "-f", &file, "-n", ns]).unwrap();
    assert!(refused.failure().unwrap().contains("InUse"));
    let exists = |name: &str| plane.api().get(name, ns).unwrap().is_some();
    assert_eq!((exists("secret/password"), exists("deploy/web")), (true, false));
    // kubectl waits for no deletion after a refusal, and a Terminating Secret is not created.
    plane.api().wait_gone(("secret/free", ns), LIMIT).unwrap();
    eventually("the deletion of the Pod", LIMIT, || {
        let left = [plane.api().list("pods", ns, "")?, plane.api().list("replicasets", ns, "")?];
        if left.concat().is_empty() { Ok(()) } else { Err(json!(left).to_string().into()) }
    })
    .unwrap();
    create();
    for command in expected {
        kubectl(plane, &command.split(' ').skip(1).collect::<Vec<_>>());
    }
    for name in ["secret/password", "secret/free", "deploy/web"] {
        assert!(!exists(name), "{name}");
    }
}

#[test]
fn without_a_hold_users_are_deleted_first_and_for_good() {
    let plane = &world().plane;
    let ns = plane.namespace("order").unwrap();
    let expected = [
        format!("kubectl delete secrets/free deployments.apps/web -n {ns} --cascade=foreground"),
        format!("kubectl delete secrets/password -n {ns}"),
    ];
    let spec = json!({"protect": {"whileUsed": {}}, "hold": "Never"});
    assert_order_works(plane, &ns, spec, &expected);
}

#[test]
fn with_a_hold_one_command_is_enough() {
    let plane = &world().plane;
    let ns = plane.namespace("order-held").unwrap();
    let command =
        format!("kubectl delete secrets/free deployments.apps/web secrets/password -n {ns}");
    let spec = json!({"protect": {"whileUsed": {}}, "settleSeconds": 2});
    assert_order_works(plane, &ns, spec, &[command]);
}

/// The API server denies the DELETE of the CRD until its custom resources are deleted.
#[test]
fn custom_resources_among_the_targets_do_not_keep_their_crd() {
    let plane = &world().plane;
    let ns = plane.namespace("order-crd").unwrap();
    let (group, version) = ("s25.example.com", "s25.example.com/v1");
    plane.define_kind(group, "Widget", "widgets").unwrap();
    let crd = format!("crd/widgets.{group}");
    let target = json!({"apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"], "names": [format!("widgets.{group}")]});
    let whole = json!({"whileNotEmpty": {"counting": "Any", "owned": "Count"}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": whole}));
    let widget = |name: &str| object(version, "Widget", name).with_namespace(&ns);
    plane.apply(&widget("w1")).unwrap();
    let uid = plane.api().field("widget/w1", &ns, ".metadata.uid").unwrap();
    let owner = json!({"apiVersion": version, "kind": "Widget", "name": "w1", "uid": uid});
    plane.apply(&widget("w2")).unwrap();
    plane.apply(&widget("of-w1").with_owner(owner)).unwrap();
    eventually("the denial", LIMIT, || {
        let refused = plane.api().delete(&[&crd, "--dry-run=server"], "")?.failure()?;
        if refused.contains("is not empty") { Ok(()) } else { Err(refused.into()) }
    })
    .unwrap();

    let told = |targets: &[&str]| {
        let line = [&["impact", "-n", &ns, "-o", "json"], targets].concat();
        json(&belay(plane, &line))
    };
    for targets in [
        // Each custom resource has a DELETE of its own.
        &["widget/w1", "widget/w2", "widget/of-w1", &crd][..],
        // The garbage collector deletes one of them.
        &["widget/w1", "widget/w2", &crd],
    ] {
        let told = told(targets);
        assert_eq!((&told["verdict"], &told["warnings"]), (&"Allow".into(), &json!([])), "{told}");
        assert_eq!(told.get("order"), None, "{told}");
    }
    let first = told(&[&crd, "widget/w1", "widget/w2"]);
    assert_eq!((&first["verdict"], &first["warnings"]), (&"Allow".into(), &json!([])), "{first}");
    assert_eq!(first["order"]["denied"][0]["resource"], "customresourcedefinitions", "{first}");
    let most = told(&["widget/w1", &crd]);
    assert_eq!((&most["verdict"], &most["warnings"]), (&"Deny".into(), &json!([])), "{most}");

    let targets = ["widget/w1", "widget/w2", "widget/of-w1", &crd, "-n", &ns];
    let done = belay(plane, &[&["delete"], &targets[..], &["--yes", "-o", "json"]].concat());
    assert_eq!((done.code, &json(&done)["result"]), (0, &"Deleted".into()), "{done:?}");
}

/// The API server answers about each DELETE alone, and none of them deletes the Secret.
#[test]
fn the_last_owner_of_a_used_object_is_denied() {
    let plane = &world().plane;
    let ns = plane.namespace("order-owners").unwrap();
    let target = policy::target("", "secrets", &ns);
    let spec = json!({"targets": [target], "protect": {"whileUsed": {}}, "hold": "Never"});
    policy::apply(plane, &ns, spec);
    let owners = ["first", "second"].map(|name| {
        plane.apply(&config_map(name).with_namespace(&ns)).unwrap();
        let uid = plane.api().field(&format!("configmap/{name}"), &ns, ".metadata.uid").unwrap();
        owner("ConfigMap", name, &uid)
    });
    let owned = json!({"metadata": {"ownerReferences": owners}});
    plane.apply(&secret("shared").with_namespace(&ns).with(owned)).unwrap();
    let user = pod("user").with_env_from("secretRef", "shared").without_grace_period();
    plane.apply(&user.with_namespace(&ns)).unwrap();
    eventually("the denial", LIMIT, || {
        plane.api().delete(&["secret", "shared", "--dry-run=server"], &ns)?.failure()
    })
    .unwrap();

    let impact = |targets: &[&str]| {
        let output = belay(plane, &[&["impact", "-n", &ns, "-o", "json"], targets].concat());
        (json(&output), output.code)
    };
    for target in ["cm/first", "cm/second"] {
        let (told, code) = impact(&[target]);
        assert_eq!((&told["verdict"], code), (&"Allow".into(), 0), "{told}");
    }
    let (told, code) = impact(&["cm/first", "cm/second", "pod/user"]);
    assert_eq!((&told["verdict"], code), (&"Allow".into(), 1), "{told}");
    let last = format!("kubectl delete configmaps/first configmaps/second -n {ns}");
    assert_eq!(told["order"]["commands"][1], last, "{told}");
    let (told, code) = impact(&["cm/first", "cm/second"]);
    assert_eq!((&told["verdict"], code), (&"Deny".into(), 1), "{told}");
    assert_eq!(told["blockers"][0]["object"]["name"], "shared", "{told}");
    let accepted = told["accepted"]["targets"].as_array().unwrap();
    assert_eq!((accepted.len(), &accepted[0]["name"]), (1, &"first".into()), "{told}");

    let refused = plane.kubectl(&["delete", "cm", "first", "second", "-n", &ns]).unwrap();
    assert!(refused.failure().unwrap().contains("(InUse)"));
    let exists = |name: &str| plane.api().get(name, &ns).unwrap().is_some();
    assert_eq!(
        (exists("cm/first"), exists("cm/second"), exists("secret/shared")),
        (false, true, true)
    );
}
