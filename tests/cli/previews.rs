//! `belay impact` for deletions that Kubernetes or belay delays. Each test deletes for real.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{
    Manifest as _, claim, config_map, object, pod, reader, secret, volume, workload,
};
use crate::harness::{ControlPlane, eventually};
use crate::held_data::{claims, storage_class, wait_until_running};
use crate::{LIMIT, belay, json, kubectl, policy, world};

/// A finalizer without a controller.
const FOREIGN: &str = "x.example.test/y";

/// The outcome of an object by plural and name.
fn outcome(told: &Value, typed: &str) -> Option<String> {
    let all = told["objects"].as_array().unwrap();
    let is_it = |one: &&Value| {
        one["object"]["typed"].as_str().is_some_and(|text| text.split(' ').next() == Some(typed))
    };
    all.iter().find(is_it).map(|one| one["outcome"].as_str().unwrap().to_owned())
}

fn impact(plane: &ControlPlane, ns: &str, target: &str) -> Value {
    json(&belay(plane, &["impact", target, "-n", ns, "-o", "json"]))
}

/// Waits until the claim is bound, and returns its volume.
fn bound(plane: &ControlPlane, ns: &str, name: &str) -> String {
    eventually("the volume", LIMIT, || {
        let claim = plane.api().get(&format!("pvc/{name}"), ns)?.ok_or("no claim")?;
        match claim["spec"]["volumeName"].as_str() {
            Some(volume) if claim["status"]["phase"] == "Bound" => Ok(volume.to_owned()),
            _ => Err(claim["status"].to_string().into()),
        }
    })
    .unwrap()
}

/// Kubernetes keeps a Terminating claim also for a Pod that has finished.
#[test]
fn a_terminating_claim_is_deleted_with_its_last_finished_pod() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-done").unwrap();
    claims(plane, &ns, &["reports"]);
    let volume = bound(plane, &ns, "reports");
    let template =
        pod("done").with_claim("reports").with(json!({"spec": {"restartPolicy": "Never"}}));
    let job = json!({"spec": {"template": {"spec": template["spec"]}}});
    plane.apply(&object("batch/v1", "Job", "done").with_namespace(&ns).with(job)).unwrap();
    let name = eventually("the finished Pod", LIMIT, || {
        let pods = plane.api().list("pods", &ns, "")?;
        let done = pods.iter().find(|pod| {
            pod["status"]["phase"] == "Succeeded" && pod["metadata"]["finalizers"].is_null()
        });
        let name = done.and_then(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned);
        name.ok_or_else(|| format!("{pods:?}").into())
    })
    .unwrap();
    kubectl(plane, &["delete", "pvc", "reports", "-n", &ns, "--wait=false"]);
    crate::harness::pause(Duration::from_secs(3));
    assert!(plane.api().get("pvc/reports", &ns).unwrap().is_some());
    let node = plane.api().field(&format!("pod/{name}"), &ns, ".spec.nodeName").unwrap();
    for target in [format!("node/{node}"), format!("pod/{name}"), "job/done".to_owned()] {
        let told = impact(plane, &ns, &target);
        let destroyed = told["destroyed"].as_array().unwrap().iter();
        let destroyed: Vec<_> = destroyed.filter(|one| one["name"] == volume.as_str()).collect();
        assert_eq!(destroyed.len(), 1, "{target}: {told:#}");
        assert_eq!(destroyed[0]["after"][0]["name"], name.as_str(), "{target}: {told:#}");
    }
    let done = belay(plane, &["delete", "job/done", "-n", &ns, "--yes", "-o", "json"]);
    assert!(done.code == 0 && done.stderr.contains("1 PVC"), "{done:?}");
    assert_eq!(plane.api().get("pvc/reports", &ns).unwrap(), None);
}

/// belay denies the garbage collector's DELETE of a claim in use. After the last use, the garbage
/// collector deletes the claim.
#[test]
fn a_claim_whose_cluster_scoped_owner_was_deleted_is_deleted_after_its_last_user() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-tenant").unwrap();
    let tenant = format!("{ns}-tenant");
    storage_class(plane, &tenant);
    let class_name = format!("sc/{tenant}");
    let found = plane.api().get(&class_name, "").unwrap().unwrap();
    storage_class(plane, &ns);
    let target = policy::target("", "persistentvolumeclaims", &ns);
    let protect = json!({"whileUsed": {}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": protect}));
    let owner = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "name": tenant,
        "uid": found["metadata"]["uid"]});
    let class = json!({"spec": {"storageClassName": ns}});
    plane.apply(&claim("data").with_namespace(&ns).with(class).with_owner(owner)).unwrap();
    let volume = bound(plane, &ns, "data");
    let user = pod("user").with_claim("data").with_namespace(&ns).without_grace_period();
    plane.apply(&user).unwrap();
    wait_until_running(plane, &ns, 1);

    let typed = "persistentvolumeclaims/data";
    let told = impact(plane, &ns, &class_name);
    assert_eq!(outcome(&told, typed).as_deref(), Some("Denied"), "{told:#}");
    assert_eq!(told["destroyed"], json!([]), "{told:#}");
    kubectl(plane, &["delete", &class_name]);
    crate::harness::pause(Duration::from_secs(5));
    let kept = plane.api().get("pvc/data", &ns).unwrap().unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept:#}");

    let told = impact(plane, &ns, "pod/user");
    assert_eq!(outcome(&told, typed).as_deref(), Some("Deleted"), "{told:#}");
    assert_eq!(told["destroyed"][0]["name"], volume.as_str(), "{told:#}");
    assert_eq!(told["destroyed"][0]["after"][0]["name"], "user", "{told:#}");
    kubectl(plane, &["delete", "pod", "user", "-n", &ns, "--wait=false"]);
    plane.api().wait_gone(("pvc/data", &ns), LIMIT).unwrap();
}

/// The namespace controller deletes the other content after the last Pod.
#[test]
fn the_content_of_a_namespace_waits_for_a_pod_with_a_finalizer() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-pods").unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    plane.apply(&pod("kept").with_namespace(&ns).with_finalizers(&[FOREIGN])).unwrap();
    wait_until_running(plane, &ns, 1);
    let namespace = format!("ns/{ns}");
    let note = "until pod/kept is deleted: the namespace controller deletes Pods first";
    for is_terminating in [false, true] {
        let text = belay(plane, &["impact", &namespace, "--all"]).stdout;
        let line = text.lines().find(|line| line.contains("configmap/settings"));
        assert!(line.is_some_and(|line| line.contains(note)), "{is_terminating}: {text}");
        assert!(!text.contains("  deleted  "), "{is_terminating}: {text}");
        kubectl(plane, &["delete", &namespace, "--wait=false"]);
        crate::harness::pause(Duration::from_secs(3));
        let settings = plane.api().get("cm/settings", &ns).unwrap().unwrap();
        assert!(settings["metadata"]["deletionTimestamp"].is_null(), "{settings:#}");
    }
    plane.patch("pod/kept", &ns, &json!({"metadata": {"finalizers": null}}));
    plane.api().wait_gone((&namespace, ""), LIMIT).unwrap();
}

#[test]
fn delete_ends_the_wait_of_a_foreground_deletion() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-foreground").unwrap();
    plane.apply(&config_map("owner").with_namespace(&ns)).unwrap();
    let found = plane.api().get("cm/owner", &ns).unwrap().unwrap();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
        "uid": found["metadata"]["uid"]});
    let kept = config_map("kept").with_owner(owner).with_finalizers(&[FOREIGN]);
    plane.apply(&kept.with_namespace(&ns)).unwrap();
    kubectl(plane, &["delete", "cm/owner", "-n", &ns, "--cascade=foreground", "--wait=false"]);
    eventually("the wait for the dependent", LIMIT, || {
        let kept = plane.api().get("cm/kept", &ns)?.ok_or("no dependent")?;
        let is_terminating = kept["metadata"]["deletionTimestamp"].is_string();
        if is_terminating { Ok(()) } else { Err(kept.to_string().into()) }
    })
    .unwrap();
    let args = ["delete", "cm/owner", "-n", &ns, "--yes", "--timeout", "20s"];
    let output = belay(plane, &args);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(plane.api().get("cm/owner", &ns).unwrap(), None);
    plane.patch("cm/kept", &ns, &json!({"metadata": {"finalizers": null}}));
}

#[test]
fn the_header_reports_that_one_of_several_targets_is_held() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-held").unwrap();
    let target = policy::target("", "secrets", &ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(
        plane,
        &format!("{ns}-secrets"),
        json!({"targets": [target], "protect": protect}),
    );
    plane.apply(&secret("key").with_namespace(&ns)).unwrap();
    plane.apply(&config_map("other").with_namespace(&ns)).unwrap();
    plane.apply(&reader("user", "secretRef", "key").with_namespace(&ns)).unwrap();
    for targets in [&["secret/key"][..], &["cm/other", "secret/key"]] {
        let asked = [&["impact"], targets, &["-n", &ns]].concat();
        eventually("the effective hold", LIMIT, || {
            let text = belay(plane, &asked).stdout;
            let is_held =
                text.lines().next().is_some_and(|line| line.contains("ALLOWED, and held"));
            if is_held { Ok(()) } else { Err(text.into()) }
        })
        .unwrap();
    }
}

/// A controller of Kubernetes destroys the storage of a volume after its claim, also if the volume
/// was deleted first. It destroys no storage of a volume without a claim.
#[test]
fn the_storage_of_a_deleted_volume_is_destroyed_with_its_claim_only() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-volume").unwrap();
    claims(plane, &ns, &["data"]);
    let name = bound(plane, &ns, "data");
    let target = format!("pv/{name}");
    let storage = plane.api().field(&target, "", ".spec.hostPath.path").unwrap();
    let told = impact(plane, &ns, &target);
    assert_eq!(told["destroyed"].as_array().unwrap().len(), 1, "{told:#}");
    let destroyed = &told["destroyed"][0];
    let facts = (&destroyed["name"], &destroyed["held"], &destroyed["after"][0]["name"]);
    assert_eq!(facts, (&json!(name), &json!(true), &json!("data")), "{told:#}");
    let text = belay(plane, &["impact", &target]).stdout;
    let line = "destroyed     1   volume, 1Gi (reclaimPolicy Delete), when its claim is deleted\n";
    assert!(text.contains(line), "{text}");
    // A volume that is deleted with its claim is listed once.
    let both = belay(plane, &["impact", &target, "pvc/data", "-n", &ns, "-o", "json"]);
    assert_eq!(json(&both)["destroyed"][0]["by"]["name"], "data", "{both:?}");
    assert_eq!(json(&both)["destroyed"].as_array().unwrap().len(), 1, "{both:?}");

    kubectl(plane, &["delete", &target, "--wait=false"]);
    let deleted = plane.api().field(&target, "", ".metadata.deletionTimestamp").unwrap();
    assert!(!deleted.is_empty() && Path::new(&storage).exists());
    kubectl(plane, &["delete", "pvc/data", "-n", &ns, "--wait=false"]);
    plane.api().wait_gone((&target, ""), LIMIT).unwrap();
    assert!(!Path::new(&storage).exists(), "{storage}");

    let storage = plane.folder().join(&ns);
    std::fs::create_dir(&storage).unwrap();
    let spec = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": storage}}});
    plane.apply(&volume(&ns).with(spec)).unwrap();
    let target = format!("pv/{ns}");
    let told = impact(plane, &ns, &target);
    assert_eq!(told["destroyed"], json!([]), "{told:#}");
    kubectl(plane, &["delete", &target, "--wait=false"]);
    plane.api().wait_gone((&target, ""), LIMIT).unwrap();
    assert!(storage.exists());
}

#[test]
fn the_impact_of_nodes_warns_if_they_have_all_pods_of_belay() {
    let plane = &world().plane;
    let ns = plane.namespace("preview-belay").unwrap();
    let nodes = ["a", "b"].map(|node| format!("{ns}-{node}"));
    // No Pod of another test gets onto them.
    let taint = json!({"key": ns, "effect": "NoSchedule"});
    for name in &nodes {
        let labels = json!({"kubernetes.io/hostname": name, "own": ns});
        let node = object("v1", "Node", name).with_labels(labels);
        plane.apply(&node.with(json!({"spec": {"taints": [taint]}}))).unwrap();
    }
    let spread = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "belay"}}});
    let spec = json!({"spec": {"nodeSelector": {"own": ns}, "topologySpreadConstraints": [spread],
        "tolerations": [{"key": ns, "operator": "Exists"}]}});
    let deployment = workload("Deployment", "belay", &pod("belay").with(spec));
    let deployment = deployment.with_namespace(&ns).with(json!({"spec": {"replicas": 2}}));
    plane.apply(&deployment).unwrap();
    wait_until_running(plane, &ns, 2);
    let targets = nodes.map(|name| format!("node/{name}"));
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let installation = format!("--installation={ns}/belay");
    let asked = |nodes: &[&str]| {
        belay(plane, &[&["impact"], nodes, &[installation.as_str()]].concat()).stdout
    };
    let warning = "this ends all Pods of belay: until they run on another Node, the API server ";
    let (one, all) = (asked(&targets[..1]), asked(&targets));
    assert!(!one.contains(warning) && all.contains(warning), "{one}\n{all}");
    for node in &targets {
        kubectl(plane, &["delete", node, "--wait=false"]);
    }
}
