//! Random deletions: an undo loses nothing that existed when it began.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::harness::Result;
use crate::harness::random::Random;

const KINDS: [&str; 7] =
    ["pods", "replicasets", "pvc", "secrets", "configmaps", "deployments", "statefulsets"];

/// The finalizer of the tests that keeps an object.
const KEPT: &str = "undo.test/kept";

/// The objects of a namespace, by kind and name.
type Content = BTreeMap<String, Value>;

fn content(plane: &ControlPlane, ns: &str) -> Result<Content> {
    let mut content = Content::new();
    for kind in KINDS {
        for object in plane.api().list(kind, ns, "")? {
            let name = text(&object["metadata"]["name"]).to_owned();
            if name != "kube-root-ca.crt" {
                content.insert(format!("{kind}/{name}"), object);
            }
        }
    }
    Ok(content)
}

/// Whether a controller creates this object again, or its user deletes it.
fn is_transient(name: &str) -> bool {
    name.starts_with("pods/") || name.starts_with("replicasets/")
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    let mut finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.any(|finalizer| finalizer == name)
}

fn uses(pod: &Value, claim: &str) -> bool {
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
}

/// The content of a namespace in which no controller has anything to do.
fn settled(plane: &ControlPlane, ns: &str) -> Content {
    eventually("an idle namespace", LIMIT, || {
        let content = content(plane, ns)?;
        let by_uid: BTreeMap<&str, &Value> =
            content.values().map(|object| (uid(object), object)).collect();
        for (name, object) in &content {
            let is_kept = has_finalizer(object, KEPT)
                || has_finalizer(object, "foregroundDeletion") && {
                    content.values().any(|one| owners(one).any(|owner| owner["uid"] == uid(object)))
                }
                || name.starts_with("pvc/") && {
                    let claim = text(&object["metadata"]["name"]);
                    content.iter().any(|(name, pod)| name.starts_with("pods/") && uses(pod, claim))
                };
            let is_waiting = |owner: &Value| match by_uid.get(text(&owner["uid"])) {
                None => true,
                Some(owner) => is_terminating(owner) && has_finalizer(owner, "foregroundDeletion"),
            };
            if is_terminating(object) && !is_kept
                || !is_terminating(object) && owners(object).any(is_waiting)
            {
                return Err(object.to_string().into());
            }
        }
        Ok(content)
    })
    .unwrap()
}

/// Creates claims, settings, workloads and Pods that use and own each other. Returns their number of
/// Pods.
fn random_content(plane: &ControlPlane, ns: &str, random: &mut Random) -> usize {
    storage_class(plane, ns);
    let create = |object: Value| {
        let created = plane.api().create(&object.with_namespace(ns), ns);
        created.unwrap().success().unwrap();
    };
    let claims: Vec<String> = (0..1 + random.below(3)).map(|number| format!("c{number}")).collect();
    for name in &claims {
        create(claim(name).with(json!({"spec": {"storageClassName": ns}})));
        bound(plane, ns, &format!("pvc/{name}"));
    }
    let using = |name: &str, random: &mut Random| {
        let used = claims.iter().filter(|_| random.one_in(3));
        let volume =
            |claim: &String| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
        let volumes: Vec<Value> = used.map(volume).collect();
        pod(name).with(json!({"spec": {"volumes": volumes}})).without_grace_period()
    };
    let mut pods = 0;
    if random.chance(60) {
        let replicas = 1 + random.below(2);
        pods += replicas;
        let order = random.pick(&["Parallel", "OrderedReady"]);
        let retention = json!({"whenDeleted": random.pick(&["Delete", "Retain"])});
        let template = using("web", random)["spec"].clone();
        let fields = json!({"replicas": replicas, "podManagementPolicy": order,
            "persistentVolumeClaimRetentionPolicy": retention, "template": {"spec": template}});
        create(stateful_set(ns).with(json!({"spec": fields})));
    }
    if random.chance(50) {
        pods += 1;
        create(workload("Deployment", "api", &using("api", random)));
    }
    for number in 0..random.below(3) {
        pods += 1;
        create(using(&format!("p{number}"), random));
    }
    for number in 0..2 + random.below(4) {
        let data = json!({"data": {"key": "dmFsdWU="}});
        let name = format!("s{number}");
        let made = if random.one_in(2) { secret(&name) } else { config_map(&name) };
        create(made.with(data));
    }
    wait_until_running(plane, ns, pods);
    pods
}

/// Adds owners and finalizers to random objects.
fn add_owners(plane: &ControlPlane, ns: &str, random: &mut Random) {
    let content = content(plane, ns).unwrap();
    let names: Vec<&String> = content.keys().filter(|name| !is_transient(name)).collect();
    for (place, name) in names.iter().enumerate() {
        // A controller would remove other owners of these.
        let mut list: Vec<Value> = owners(&content[*name]).cloned().collect();
        for owner in names.iter().take(place) {
            let owner = &content[*owner];
            if !random.one_in(5) {
                continue;
            }
            list.push(json!({
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "uid": uid(owner),
                "name": owner["metadata"]["name"], "blockOwnerDeletion": random.one_in(2)}));
        }
        let finalizers = match name.starts_with("pvc/") {
            true if random.one_in(4) => json!([KEPT, "kubernetes.io/pvc-protection"]),
            false if random.one_in(2) => json!([KEPT]),
            _ => content[*name]["metadata"]["finalizers"].clone(),
        };
        let fields = json!({"metadata": {"ownerReferences": list, "finalizers": finalizers}});
        plane.api().patch(name, ns, &fields).unwrap().success().unwrap();
    }
}

/// Deletes random objects. Returns the Terminating ones.
fn delete_some(plane: &ControlPlane, ns: &str, random: &mut Random) -> Vec<String> {
    let names: Vec<String> = content(plane, ns).unwrap().into_keys().collect();
    for _ in 0..1 + random.below(2) {
        let name = &names[random.below(names.len())];
        let cascade = random.pick(&["--cascade=background", "--cascade=foreground"]);
        if !is_transient(name) {
            // An earlier deletion may have deleted it.
            let _absent = plane.api().delete(&[name, cascade], ns).unwrap();
        }
    }
    let left = settled(plane, ns).into_iter();
    let is_target = |name: &String| !is_transient(name);
    left.filter(|(_, object)| is_terminating(object)).map(|one| one.0).filter(is_target).collect()
}

/// Deletes the namespace, of which only what has a finalizer stays.
fn delete_namespace(plane: &ControlPlane, ns: &str) -> Vec<String> {
    let namespace = format!("ns/{ns}");
    plane.api().delete(&[&namespace], "").unwrap().success().unwrap();
    eventually("the deletion of the content", LIMIT, || {
        let content = content(plane, ns)?;
        let kept = |object: &Value| is_terminating(object) && has_finalizer(object, KEPT);
        match content.values().find(|object| !kept(object)) {
            None => Ok(()),
            Some(object) => Err(object.to_string().into()),
        }
    })
    .unwrap();
    // Without kept content it is deleted already.
    match content(plane, ns).unwrap().is_empty() {
        true => Vec::new(),
        false => vec![namespace],
    }
}

/// Ends what an undo waits for: Pods that its user must delete, and objects that the tests keep.
fn end_waits(plane: &ControlPlane, ns: &str, file: &str) {
    let record: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for pod in record["pods"].as_array().unwrap() {
        let name = format!("pod/{}", text(&pod["name"]));
        let _absent = plane.api().delete(&[&name], ns).unwrap();
    }
    let objects = record["objects"].as_array().unwrap().iter().filter(|one| one["stays"] == false);
    let ended: HashSet<&str> = objects.map(|one| text(&one["object"]["uid"])).collect();
    for (name, object) in content(plane, ns).unwrap() {
        if ended.contains(uid(&object)) && has_finalizer(&object, KEPT) {
            eventually("an object without the finalizer", LIMIT, || free_of_test(plane, ns, &name))
                .unwrap();
        }
    }
}

/// Removes the finalizer of the tests. Controllers remove theirs at the same time, and the API server
/// refuses to add them again.
fn free_of_test(plane: &ControlPlane, ns: &str, name: &str) -> Result<()> {
    let Some(object) = plane.api().get(name, ns)? else { return Ok(()) };
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let others: Vec<_> = finalizers.filter(|one| *one != KEPT).collect();
    plane.api().patch(name, ns, &json!({"metadata": {"finalizers": others}}))?.success().map(drop)
}

/// Undoes a deletion. The command is killed once after a random line, and continues. Returns the
/// output of the last run.
fn undo(plane: &ControlPlane, ns: &str, target: &str, random: &mut Random) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json").display().to_string();
    let first = ["undo", target, "-n", ns, "--yes", "--out", &file, "--timeout", "60s"];
    let first = if target.starts_with("ns/") {
        [&first[..2], &first[4..]].concat()
    } else {
        first.to_vec()
    };
    let resume = ["undo", "--resume", &file, "--yes", "--timeout", "60s"];
    let mut lines_left = Some(random.below(30));
    let mut all = String::new();
    loop {
        let is_begun = Path::new(&file).exists();
        let args = if is_begun { &resume[..] } else { &first[..] };
        let mut child = spawn(plane.kubeconfig(), args);
        for line in BufReader::new(child.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.starts_with("waiting for the deletion") {
                end_waits(plane, ns, &file);
            }
            all.push_str(&format!("{line}\n"));
            lines_left = lines_left.map(|left| left.saturating_sub(1));
            if lines_left == Some(0) {
                let _ended = child.kill();
            }
        }
        child.stdout.take().unwrap().read_to_string(&mut all).unwrap();
        let is_undone = child.wait().unwrap().success();
        let is_finished = all.contains("saved ") && !Path::new(&file).exists();
        if lines_left != Some(0) || is_undone || is_finished {
            return (is_undone || is_finished, all);
        }
        lines_left = None;
        all.push_str("--- killed\n");
    }
}

/// Checks that an object exists, with its data, its owners and its volume.
fn is_kept(before: &Content, after: &Content, name: &str) -> std::result::Result<(), String> {
    let old = &before[name];
    let new = after.get(name).ok_or("it is lost")?;
    if is_terminating(new) && !(is_terminating(old) && uid(old) == uid(new)) {
        return Err("it is Terminating".to_owned());
    }
    for field in ["/data", "/spec/volumeName", "/spec/replicas"] {
        if old.pointer(field) != new.pointer(field) {
            return Err(format!("{field} differs"));
        }
    }
    for owner in owners(old) {
        let is_same = |(_, one): &(&String, &Value)| uid(one) == text(&owner["uid"]);
        let Some((owner, _)) = before.iter().find(is_same) else { continue };
        // A Terminating owner would be no reason to keep the object.
        let Some(current) = after.get(owner).filter(|one| !is_terminating(one)) else { continue };
        if !owners(new).any(|one| one["uid"] == uid(current)) {
            return Err(format!("it lacks its owner {owner}"));
        }
    }
    Ok(())
}

/// The policies of the volumes of all claims.
fn policies(plane: &ControlPlane, content: &Content) -> BTreeMap<String, String> {
    let volumes = content.values().filter_map(|object| object["spec"]["volumeName"].as_str());
    let policy = |volume: &str| {
        let path = ".spec.persistentVolumeReclaimPolicy";
        let policy = plane.api().field(&format!("pv/{volume}"), "", path).unwrap();
        (volume.to_owned(), policy)
    };
    volumes.map(policy).collect()
}

/// `BELAY_UNDO_GRAPHS=200` tests so many graphs.
#[test]
fn of_random_deletions_nothing_is_lost() {
    let plane = &world().plane;
    let count = std::env::var("BELAY_UNDO_GRAPHS").ok().and_then(|count| count.parse().ok());
    let count = count.unwrap_or(8);
    let mut undone = 0;
    for number in 0..count {
        let mut random = Random::new(0xdead, number);
        let ns = plane.namespace(&format!("random-undo-{number}")).unwrap();
        random_content(plane, &ns, &mut random);
        add_owners(plane, &ns, &mut random);
        let targets = match random.one_in(5) {
            true => delete_namespace(plane, &ns),
            false => delete_some(plane, &ns, &mut random),
        };
        if targets.is_empty() {
            continue;
        }
        let target = random.pick(&targets.iter().map(String::as_str).collect::<Vec<_>>());
        let before = content(plane, &ns).unwrap();
        let volumes = policies(plane, &before);
        let (is_undone, output) = undo(plane, &ns, target, &mut random);
        let after = content(plane, &ns).unwrap();
        let states = |content: &Content| {
            let state = |(name, object): (&String, &Value)| {
                let metadata = &object["metadata"];
                format!(
                    "{name} {} {} {} {} {}\n",
                    uid(object),
                    metadata["deletionTimestamp"],
                    metadata["finalizers"],
                    metadata["ownerReferences"],
                    object["spec"]["volumes"]
                )
            };
            content.iter().map(state).collect::<String>()
        };
        let context =
            format!("graph {number}, {target}:\n{}\n{output}\n{}", states(&before), states(&after));
        if output.contains("can't be undone") {
            assert!(!is_undone, "{context}");
            continue;
        }
        // Without claims that were deleted before, workloads would begin with empty volumes.
        let lacks_claims = output.contains("it does not exist;");
        assert!(is_undone != lacks_claims, "{context}");
        undone += 1;
        let is_checked = |name: &&String| {
            !is_transient(name)
                && !(lacks_claims && (name.starts_with("deploy") || name.starts_with("stateful")))
        };
        for name in before.keys().filter(is_checked) {
            is_kept(&before, &after, name).unwrap_or_else(|why| panic!("{name}: {why}\n{context}"));
        }
        assert_eq!(policies(plane, &after), volumes, "{context}");
    }
    assert!(undone > count / 3, "{undone}");
}
