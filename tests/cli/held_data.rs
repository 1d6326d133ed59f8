//! `belay impact` follows a hold to its end: the objects that belay releases in the course of
//! a deletion are deleted, and so are the volumes of claims. Each test deletes for real and
//! compares the result with the prediction.

use serde_json::{Value, json};

use crate::harness::manifest::{Manifest as _, claim, object, pod, workload};
use crate::harness::{ControlPlane, Result, eventually};
use crate::{LIMIT, belay, belay_as, json, kubectl, policy, terminal, world};

/// The finalizer of a held claim.
const HELD: &str = "belay.dev/hold";

/// A StorageClass with the name of the namespace, whose volumes are deleted with their claims.
pub fn storage_class(plane: &ControlPlane, ns: &str) {
    let class = object("storage.k8s.io/v1", "StorageClass", ns);
    plane.apply(&class.with(json!({"provisioner": "kubernetes.io/host-path"}))).unwrap();
}

/// Claims of this class.
pub fn claims(plane: &ControlPlane, ns: &str, names: &[&str]) {
    storage_class(plane, ns);
    for name in names {
        let class = json!({"spec": {"storageClassName": ns}});
        plane.apply(&claim(name).with_namespace(ns).with(class)).unwrap();
    }
}

/// Claims of this class. Waits until each is bound and held, and returns their volumes.
fn bound_claims(plane: &ControlPlane, ns: &str, names: &[&str]) -> Vec<String> {
    claims(plane, ns, names);
    let volume = |name: &&str| {
        eventually("a bound and held claim", LIMIT, || {
            let claim = plane.api().get(&format!("pvc/{name}"), ns)?.ok_or("no claim")?;
            let is_held = claim["metadata"]["finalizers"].to_string().contains(HELD);
            match claim["spec"]["volumeName"].as_str() {
                Some(volume) if is_held && claim["status"]["phase"] == "Bound" => {
                    Ok(volume.to_owned())
                }
                _ => Err(claim.to_string().into()),
            }
        })
        .unwrap()
    };
    names.iter().map(volume).collect()
}

pub fn hold_claims(plane: &ControlPlane, ns: &str) {
    let target = policy::target("", "persistentvolumeclaims", ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(plane, ns, json!({"targets": [target], "protect": protect, "settleSeconds": 2}));
}

pub fn wait_until_running(plane: &ControlPlane, ns: &str, pods: usize) {
    eventually("running Pods", LIMIT, || {
        let phases = plane.api().fields("pods", ns, "", ".status.phase")?;
        let running = phases.iter().filter(|phase| *phase == "Running").count();
        if running == pods { Ok(()) } else { Err(format!("{phases:?}").into()) }
    })
    .unwrap();
}

/// Waits until a hold is old enough that belay accepts the DELETE.
fn wait_until_effective(plane: &ControlPlane, ns: &str, claim: &str) {
    eventually("an effective hold", LIMIT, || {
        plane.api().delete(&[claim, "--dry-run=server"], ns)?.success().map(drop)
    })
    .unwrap();
}

/// A namespace with these bound and held claims. A Deployment `web` uses the claim `data`, and the
/// Pod `user` uses the claim `used`, whose hold is effective. Returns the volumes.
fn used_claims(
    plane: &ControlPlane,
    name: &str,
    claims: &[&str],
    (user, used): (&str, &str),
) -> (String, Vec<String>) {
    let ns = plane.namespace(name).unwrap();
    hold_claims(plane, &ns);
    let volumes = bound_claims(plane, &ns, claims);
    let web = workload("Deployment", "web", &pod("web").with_claim("data"));
    plane.apply(&web.with_namespace(&ns)).unwrap();
    plane.apply(&pod(user).with_claim(used).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 2);
    wait_until_effective(plane, &ns, &format!("pvc/{used}"));
    (ns, volumes)
}

fn exists(plane: &ControlPlane, object: &Value) -> Result<bool> {
    let typed = object["typed"].as_str().unwrap_or_default();
    let name = typed.split(' ').next().unwrap_or_default();
    let namespace = object["namespace"].as_str().unwrap_or_default();
    Ok(plane.api().get(name, namespace)?.is_some())
}

/// The entry of a volume in `destroyed`.
fn destroyed<'a>(told: &'a Value, volume: &str) -> &'a Value {
    let all = told["destroyed"].as_array().unwrap();
    all.iter().find(|one| one["name"] == volume).unwrap_or_else(|| panic!("{volume}: {told}"))
}

fn typed(objects: &Value) -> Vec<&str> {
    let all = objects.as_array().unwrap().iter();
    all.map(|object| object["typed"].as_str().unwrap()).collect()
}

/// Waits until everything that impact calls deleted is gone. Until then, no held object is
/// deleted before the objects in its `after`.
fn wait_for_prediction(plane: &ControlPlane, told: &Value) {
    let all = told["objects"].as_array().unwrap();
    let deleted: Vec<&Value> = all.iter().filter(|one| one["outcome"] == "Deleted").collect();
    for one in &deleted {
        assert_eq!(one["certain"], true, "{one}");
    }
    eventually("the predicted deletions", LIMIT, || {
        let mut left = Vec::new();
        for one in &deleted {
            if exists(plane, &one["object"])? {
                left.push(one["object"]["typed"].to_string());
                continue;
            }
            for before in one["after"].as_array().into_iter().flatten() {
                assert!(
                    !exists(plane, before)?,
                    "{} was not deleted after {before}",
                    one["object"]
                );
            }
        }
        for volume in told["destroyed"].as_array().into_iter().flatten() {
            let name = format!("pv/{}", volume["name"].as_str().unwrap_or_default());
            if volume["held"] == false && plane.api().get(&name, "")?.is_some() {
                left.push(name);
            }
        }
        if left.is_empty() { Ok(()) } else { Err(left.join(", ").into()) }
    })
    .unwrap();
}

#[test]
fn held_claims_of_a_namespace_are_deleted_with_their_volumes() {
    let plane = &world().plane;
    let (ns, volumes) = used_claims(plane, "held-data", &["data", "logs"], ("reader", "logs"));

    let namespace = format!("ns/{ns}");
    let text = belay(plane, &["impact", &namespace]).stdout;
    assert!(text.contains("destroyed     2   volumes, 2Gi (reclaimPolicy Delete)\n"), "{text}");
    assert!(
        text.contains(&format!("after pod/reader; volume {} 1Gi destroyed", volumes[1])),
        "{text}"
    );
    let impact = belay(plane, &["impact", &namespace, "-o", "json"]);
    let told = json(&impact);
    assert_eq!((impact.code, &told["summary"]["held"]["total"]), (0, &0.into()), "{told}");
    let [data, logs] = [&volumes[0], &volumes[1]].map(|volume| destroyed(&told, volume));
    for one in [data, logs] {
        assert_eq!((&one["held"], &one["certain"]), (&false.into(), &true.into()), "{one}");
    }
    assert_eq!(typed(&logs["after"]), [format!("pods/reader -n {ns}")]);
    let after = typed(&data["after"]);
    assert!(after.iter().any(|user| user.starts_with("pods/web-")), "{data}");
    assert!(after.contains(&&*format!("deployments.apps/web -n {ns}")), "{data}");

    // A user who may not read the policies gets no certain answer.
    let eve = plane.user("held-eve", None).unwrap();
    let claims = ["--verb=get,list", "--resource=persistentvolumeclaims", "-n", &ns];
    kubectl(plane, &[&["create", "role", "claims"], &claims[..]].concat());
    let bind = ["create", "rolebinding", "claims", "--role=claims", "--user=held-eve", "-n", &ns];
    kubectl(plane, &bind);
    let unsure = "pvc/logs  deleted?  if belay releases it (the policies have not been read)";
    eventually("the role", LIMIT, || {
        let said = belay_as(&eve, &["impact", "pvc/logs", "-n", &ns]);
        if said.stdout.contains(unsure) { Ok(()) } else { Err(format!("{said:?}").into()) }
    })
    .unwrap();
    // Nor may this user read the volumes, but the claim names its volume.
    let asked = ["impact", "pvc/logs", "-n", &ns];
    let text = belay_as(&eve, &asked).stdout;
    let unread = "volume, 1Gi (reclaimPolicy unknown: forbidden for you)";
    assert!(text.contains(&format!("  destroyed?    1   {unread}\n")), "{text}");
    let blind = json(&belay_as(&eve, &[&asked[..], &["-o", "json"]].concat()));
    let volume = destroyed(&blind, &volumes[1]);
    let told_volume = (&volume["size"], &volume["reclaimPolicyNotRead"], &volume["certain"]);
    assert_eq!(told_volume, (&"1Gi".into(), &"forbidden for you".into(), &false.into()), "{blind}");

    // As `kubectl delete pvc --all`.
    let all = json(&belay(plane, &["impact", "pvc", "--all", "-n", &ns, "-o", "json"]));
    let claims = ["data", "logs"].map(|name| format!("persistentvolumeclaims/{name} -n {ns}"));
    assert_eq!(typed(&all["targets"]), claims, "{all}");

    kubectl(plane, &["delete", "namespace", &ns, "--wait=false"]);
    wait_for_prediction(plane, &told);
}

#[test]
fn an_object_outside_of_the_deletion_keeps_a_hold() {
    let plane = &world().plane;
    let (ns, volumes) = used_claims(plane, "held-outside", &["data"], ("backup", "data"));

    let targets = ["deployment/web", "pvc/data"];
    let asked = [&["impact"], &targets[..], &["-n", &ns]].concat();
    let text = belay(plane, &asked).stdout;
    let held = format!("held     in use by pod/backup; volume {} 1Gi destroyed then", volumes[0]);
    assert!(text.contains(&held), "{text}");
    assert!(
        text.contains("volume, 1Gi (reclaimPolicy Delete), when its claim is deleted\n"),
        "{text}"
    );
    let told = json(&belay(plane, &[&asked[..], &["-o", "json"]].concat()));
    let volume = destroyed(&told, &volumes[0]);
    assert_eq!(volume["held"], true, "{told}");
    assert_eq!(typed(&volume["after"]), [format!("pods/backup -n {ns}")], "{told}");

    kubectl(plane, &[&["delete"], &targets[..], &["-n", &ns, "--wait=false"]].concat());
    wait_for_prediction(plane, &told);
    // Several passes of belay later, the claim is still there.
    crate::harness::pause(std::time::Duration::from_secs(6));
    let claim = plane.api().get("pvc/data", &ns).unwrap().unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_string(), "{claim}");
    assert!(claim["metadata"]["finalizers"].to_string().contains(HELD), "{claim}");

    let told = json(&belay(plane, &["impact", "pod/backup", "-n", &ns, "-o", "json"]));
    assert_eq!(told["verdict"], "Allow", "{told}");
    kubectl(plane, &["delete", "pod", "backup", "-n", &ns, "--wait=false"]);
    eventually("the destroyed volume", LIMIT, || {
        match plane.api().get(&format!("pv/{}", volumes[0]), "")? {
            None => Ok(()),
            Some(volume) => Err(volume["status"].to_string().into()),
        }
    })
    .unwrap();
}

/// A bound claim and its volume work without their StorageClass.
#[test]
fn the_deletion_of_a_storage_class_breaks_no_bound_claim() {
    let plane = &world().plane;
    let ns = plane.namespace("class-broken").unwrap();
    hold_claims(plane, &ns);
    bound_claims(plane, &ns, &["data"]);
    let template = json!({"metadata": {"name": "logs"}, "spec": {"storageClassName": ns,
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let set = workload("StatefulSet", "journal", &pod("journal"));
    let spec = json!({"spec": {"serviceName": "journal", "volumeClaimTemplates": [template]}});
    plane.apply(&set.with(spec).with_namespace(&ns)).unwrap();
    wait_until_running(plane, &ns, 1);
    let told = json(&belay(plane, &["impact", &format!("sc/{ns}"), "-o", "json"]));
    assert_eq!(told["summary"]["broken"]["byKind"], json!({"StatefulSet": 1}), "{told:#}");
}

/// Claims that are already Terminating are deleted after their last users, with their volumes.
#[test]
fn terminating_claims_are_deleted_with_their_last_users() {
    let plane = &world().plane;
    let (ns, volumes) = used_claims(plane, "held-freed", &["data", "logs"], ("reader", "logs"));
    wait_until_effective(plane, &ns, "pvc/data");
    kubectl(plane, &["delete", "pvc", "data", "logs", "-n", &ns, "--wait=false"]);

    // With a hold, a Deployment without Pods is still a user.
    let why = belay(plane, &["why", "pvc/data", "-n", &ns]).stdout;
    let loss = format!(
        "    to end the use, delete Deployment web; then the data of volume {} is destroyed, \
         unless its reclaimPolicy is Retain\n",
        volumes[0]
    );
    assert!(why.contains(&loss), "{why}");
    assert!(why.contains("next step: first delete Deployment "), "{why}");

    let asked = ["impact", "deploy/web", "-n", &ns];
    let text = belay(plane, &asked).stdout;
    assert!(text.contains("destroyed     1   volume, 1Gi (reclaimPolicy Delete)\n"), "{text}");
    assert!(text.contains("  deleted  already Terminating; after pod/web-"), "{text}");
    assert!(!text.contains("logs"), "{text}");
    let told = json(&belay(plane, &[&asked[..], &["-o", "json"]].concat()));
    let volume = destroyed(&told, &volumes[0]);
    let states = (&volume["held"], &volume["certain"]);
    assert_eq!(states, (&false.into(), &true.into()), "{told}");
    let after = typed(&volume["after"]);
    assert!(after.contains(&&*format!("deployments.apps/web -n {ns}")), "{told}");
    assert!(after.iter().any(|user| user.starts_with("pods/web-")), "{told}");

    let line = format!("delete deploy/web -n {ns}");
    let (shown, code) = terminal::answer(plane, &line, "no\n");
    let says = format!("It destroys the data on volume {} for good. Type web to", volumes[0]);
    assert!(code == 1 && shown.contains(&says), "{shown}");
    let done = belay(plane, &["delete", "deploy/web", "-n", &ns, "--yes", "-o", "json"]);
    let report = json(&done);
    assert_eq!((done.code, &report["result"]), (0, &"Deleted".into()), "{done:?}");
    let deleted = typed(&report["deleted"]);
    assert!(deleted.contains(&&*format!("persistentvolumeclaims/data -n {ns}")), "{done:?}");
    wait_for_prediction(plane, &told);

    // Another Pod still uses the other claim.
    let logs = plane.api().get("pvc/logs", &ns).unwrap().unwrap();
    assert!(logs["metadata"]["deletionTimestamp"].is_string(), "{logs}");
}

/// Without a hold, Kubernetes keeps a Terminating claim while a Pod mounts it.
#[test]
fn a_terminating_claim_is_deleted_with_the_node_of_its_last_pod() {
    let plane = &world().plane;
    let ns = plane.namespace("held-node").unwrap();
    claims(plane, &ns, &["own"]);
    let user = pod("user").with_claim("own").with_namespace(&ns);
    plane.apply(&user.without_grace_period()).unwrap();
    wait_until_running(plane, &ns, 1);
    kubectl(plane, &["delete", "pvc", "own", "-n", &ns, "--wait=false"]);
    let volume = plane.api().field("pvc/own", &ns, ".spec.volumeName").unwrap();
    let node = plane.api().field("pod/user", &ns, ".spec.nodeName").unwrap();
    let [_, told] = [format!("node/{node}"), "pod/user".to_owned()].map(|target| {
        let told = json(&belay(plane, &["impact", &target, "-n", &ns, "-o", "json"]));
        let volume = destroyed(&told, &volume);
        assert_eq!(typed(&volume["after"]), [format!("pods/user -n {ns}")], "{told}");
        assert_eq!(volume["held"], false, "{told}");
        told
    });
    kubectl(plane, &["delete", "pod", "user", "-n", &ns, "--wait=false"]);
    wait_for_prediction(plane, &told);
}
