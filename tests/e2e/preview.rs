//! Compares `kubectl belay impact` with the real result of a deletion: for a namespace with
//! random content, first for some of it, then for all.
//!
//! `BELAY_PREVIEW_SEED` sets which, and two more are the next numbers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::kubectl::run;
use crate::harness::random::Random;
use crate::harness::{ControlPlane, Result, eventually};
use crate::world;

/// The compared kinds. Controllers create objects of other kinds at any moment.
const KINDS: [&str; 7] =
    ["ConfigMap", "Secret", "Deployment", "ReplicaSet", "StatefulSet", "Pod", "Service"];

/// The number of ConfigMaps and Secrets in a batch, and the number of batches.
const EACH: u64 = 8;
const LAYERS: u64 = 3;

/// A ConfigMap that every Namespace has automatically.
const FURNITURE: &str = "kube-root-ca.crt";

/// Everything in a namespace, by kind and name: uid, and whether it is
/// Terminating.
type Stored = BTreeMap<(String, String), (String, bool)>;

fn stored(plane: &ControlPlane, ns: &str) -> Result<Stored> {
    let mut stored = Stored::new();
    for kind in KINDS {
        for object in plane.api().list(kind, ns, "")? {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &object["metadata"];
            let key = (kind.to_owned(), text(&metadata["name"]));
            if key.1 != FURNITURE {
                let terminating = metadata.get("deletionTimestamp").is_some();
                stored.insert(key, (text(&metadata["uid"]), terminating));
            }
        }
    }
    Ok(stored)
}

/// Waits until nothing has changed for a while.
fn settled(plane: &ControlPlane, ns: &str) -> Result<Stored> {
    const QUIET: Duration = Duration::from_secs(4);
    let begun = Instant::now();
    let (mut last, mut since) = (stored(plane, ns)?, Instant::now());
    while since.elapsed() < QUIET {
        if begun.elapsed() > Duration::from_secs(120) {
            return Err("the namespace does not come to rest".into());
        }
        crate::harness::pause(Duration::from_millis(200));
        let now = stored(plane, ns)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

/// Fills a namespace: workloads that create more objects automatically, and ConfigMaps and
/// Secrets that own each other at random, some with a finalizer that no controller removes.
fn fill(plane: &ControlPlane, ns: &str, random: &mut Random) -> Result<()> {
    let template = |name: &str| {
        json!({"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "x", "envFrom": [{"configMapRef": {"name": "c0"}}]}]}})
    };
    let mut objects = vec![
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("web")}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
            "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db")}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
            "spec": {"clusterIP": "None", "selector": {"app": "db"}}}),
    ];
    // References to owners contain uids, so owners are created before their dependents.
    let mut made: Vec<(&str, String, String)> = Vec::new();
    for layer in 0..LAYERS {
        let mut names = Vec::new();
        for n in 0..EACH {
            let first = layer + n == 0;
            let kind = if first { "ConfigMap" } else { ["ConfigMap", "Secret"][random.below(2)] };
            let name = format!("c{}", layer * EACH + n);
            let count = if made.is_empty() { 0 } else { random.below(3) };
            let mut owners: Vec<Value> = (0..count)
                .map(|_| {
                    let (kind, name, uid) = &made[random.below(made.len())];
                    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid,
                        "blockOwnerDeletion": random.one_in(2)})
                })
                .collect();
            owners.dedup_by_key(|owner| owner["uid"].clone());
            let finalizers: &[&str] = if random.one_in(6) { &["example.com/never"] } else { &[] };
            objects.push(json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"name": name, "finalizers": finalizers, "ownerReferences": owners}}));
            names.push((kind, name));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        plane.apply_to(&["create", "-n", ns, "-f", "-"], &list)?.success()?;
        objects.clear();
        let stored = stored(plane, ns)?;
        made.extend(names.into_iter().map(|(kind, name)| {
            let uid = stored[&(kind.to_owned(), name.clone())].0.clone();
            (kind, name, uid)
        }));
    }
    eventually("the Pods", Duration::from_secs(60), || {
        let pods = self::stored(plane, ns)?.keys().filter(|(kind, _)| kind == "Pod").count();
        if pods == 4 { Ok(()) } else { Err(format!("{pods} Pods").into()) }
    })
}

/// Outcome and certainty, by kind and name.
type Predicted = BTreeMap<(String, String), (String, bool)>;

/// The prediction of `impact` for these targets.
fn predicted(plane: &ControlPlane, ns: &str, args: &[&str]) -> Result<Predicted> {
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    let args = [&["impact"], args, &["-n", ns, "-o", "json"]].concat();
    let output = run(program, plane.kubeconfig(), &args, None)?;
    if output.code != 0 || !output.stderr.is_empty() {
        return Err(format!("{args:?}: {output:?}").into());
    }
    let said: Value = serde_json::from_str(&output.stdout)?;
    if said["notRead"].as_array().is_none_or(|all| !all.is_empty()) {
        return Err(format!("an administrator may read everything: {}", said["notRead"]).into());
    }
    let mut predicted = BTreeMap::new();
    for object in said["objects"].as_array().into_iter().flatten() {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let which = &object["object"];
        if object["outcome"] != "Broken" && which["namespace"] == ns {
            let certain = object["certain"] == true;
            let key = (text(&which["kind"]), text(&which["name"]));
            predicted.insert(key, (text(&object["outcome"]), certain));
        }
    }
    Ok(predicted)
}

/// Compares the prediction with the result. Returns for how many objects it was certain.
fn compare(said: &Predicted, before: &Stored, after: &Stored) -> Result<usize> {
    let mut certain_ones = 0;
    for (key, (uid, _)) in before {
        let now = after.get(key).filter(|(now, _)| now == uid).map(|(_, terminating)| *terminating);
        let (outcome, certain) = match said.get(key) {
            Some((outcome, certain)) => (outcome.as_str(), *certain),
            None => ("Untouched", true),
        };
        if !certain {
            continue;
        }
        certain_ones += 1;
        let right = match outcome {
            "Deleted" => now.is_none(),
            "Held" => now == Some(true),
            _ => now == Some(false),
        };
        if !right {
            return Err(format!("{key:?} was said to be {outcome}, and is {now:?}").into());
        }
    }
    Ok(certain_ones)
}

/// Waits until the prediction is true. The controllers retry after growing pauses, so a
/// moment without a change may not be the end. A wrong prediction stays wrong.
fn wait_for_prediction(
    plane: &ControlPlane,
    ns: &str,
    said: &Predicted,
    before: &Stored,
    what: &str,
) {
    let certain =
        eventually(what, Duration::from_secs(120), || compare(said, before, &settled(plane, ns)?))
            .unwrap();
    assert!(certain * 2 > before.len(), "{what}: of {} objects {certain}", before.len());
}

#[test]
fn impact_predicts_the_result() {
    let seed = std::env::var("BELAY_PREVIEW_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(20_261_121);
    std::thread::scope(|scope| {
        for (cascade, seed) in ["background", "foreground", "orphan"].into_iter().zip(seed..) {
            scope.spawn(move || one_namespace(&world().plane, cascade, seed));
        }
    });
}

/// Deletes some of a namespace, and then the rest.
fn one_namespace(plane: &ControlPlane, cascade: &str, seed: u64) {
    let mut random = Random::new(seed, 0);
    let ns = plane.namespace("preview").unwrap();
    fill(plane, &ns, &mut random).unwrap();
    let before = settled(plane, &ns).unwrap();
    let names: Vec<String> = before
        .keys()
        .filter(|(kind, _)| kind != "Pod" && kind != "ReplicaSet")
        .map(|(kind, name)| format!("{}/{name}", kind.to_lowercase()))
        .collect();
    let targets: Vec<&str> = (0..5).map(|_| names[random.below(names.len())].as_str()).collect();
    let what = format!("seed {seed}: {} --cascade={cascade}", targets.join(" "));
    let said = [&targets[..], &["--cascade", cascade]].concat();
    let said = predicted(plane, &ns, &said).unwrap();
    let option = format!("--cascade={cascade}");
    let flags = ["-n", &ns, &option, "--wait=false", "--ignore-not-found"];
    let delete = [&["delete"], &targets[..], &flags].concat();
    plane.kubectl(&delete).unwrap().success().unwrap();
    wait_for_prediction(plane, &ns, &said, &before, &what);

    let what = format!("seed {seed}: the namespace after {what}");
    let before = settled(plane, &ns).unwrap();
    let said = predicted(plane, &ns, &[&format!("ns/{ns}")]).unwrap();
    plane.kubectl(&["delete", "namespace", &ns, "--wait=false"]).unwrap().success().unwrap();
    wait_for_prediction(plane, &ns, &said, &before, &what);
}
