//! `kubectl belay undo`: what it restores, also after interruptions, and what it refuses.

mod claims;
mod completed;
mod dependents;
mod foreign;
mod losses;
mod markers;
mod meanwhile;
mod namespaces;
mod random;
mod refusals;
mod status;
mod tokens;
mod twice;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr};

use serde_json::{Value, json};

use crate::deleting::is_killed;
use crate::harness::audit::text;
use crate::harness::manifest::{
    Manifest as _, approval, claim, config_map, object, owner, pod, reader, secret, workload,
};
use crate::harness::rbac::{self, rule};
use crate::harness::{ControlPlane, eventually};
use crate::held_data::{claims, hold_claims, storage_class, wait_until_running};
use crate::{LIMIT, belay, lost_answer, policy, spawn, world};

/// When a command is killed.
#[derive(Clone, Copy)]
enum Kill {
    /// After more and more lines of its progress.
    AfterLines,
    /// Before the answer to its first change.
    BeforeAnswer,
}

/// Undoes a deletion. The command is killed, and continues with its file each time.
fn undo_with_interruptions(plane: &ControlPlane, kill: Kill, target: &[&str], file: &Path) {
    let path = file.display().to_string();
    let first = [&["undo"], target, &["--yes", "--out", &path]].concat();
    let resume = ["undo", "--resume", &path, "--yes"];
    let mut kills = 0;
    loop {
        let is_begun = file.exists();
        let args = if is_begun { &resume[..] } else { &first[..] };
        let is_killed = match kill {
            Kill::AfterLines => is_killed(plane, args, kills),
            Kill::BeforeAnswer => lost_answer::is_killed(plane, args, 1),
        };
        // The last run removes the file.
        if !is_killed || is_begun && !file.exists() {
            break;
        }
        kills += 1;
        assert!(kills < 60, "it never ends: {:?}", belay(plane, args));
    }
    assert!(kills > 3, "{kills}");
    assert!(!file.exists());
}

fn read(plane: &ControlPlane, ns: &str, object: &str) -> Value {
    plane.api().get(object, ns).unwrap().unwrap_or_else(|| panic!("no {object}"))
}

fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

/// Deletes an object, and waits until it is Terminating.
fn delete(plane: &ControlPlane, ns: &str, object: &str) {
    let deleted = || plane.api().delete(&[object], ns)?.success().map(drop);
    eventually("an effective hold", LIMIT, deleted).unwrap();
    let object = read(plane, ns, object);
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
}

/// Adds a finalizer that keeps an object.
fn keep(plane: &ControlPlane, ns: &str, name: &str) {
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.api().patch(name, ns, &kept).unwrap().success().unwrap();
}

/// Removes the finalizers of an object.
fn free(plane: &ControlPlane, ns: &str, name: &str) {
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch(name, ns, &free).unwrap().success().unwrap();
}

/// Waits until belay holds an object.
fn wait_until_held(plane: &ControlPlane, ns: &str, name: &str) {
    let held = |object: Option<&Value>| {
        let finalizers = &object.ok_or("it does not exist")?["metadata"]["finalizers"];
        let is_held = finalizers.to_string().contains("belay.dev/hold");
        if is_held { Ok(()) } else { Err(finalizers.to_string().into()) }
    };
    plane.api().wait((name, ns), LIMIT, held).unwrap();
}

/// A claim, when it is bound.
fn bound(plane: &ControlPlane, ns: &str, name: &str) -> Value {
    let bound = |claim: Option<&Value>| match claim.ok_or("it does not exist")? {
        claim if claim["status"]["phase"] == "Bound" => Ok(()),
        claim => Err(claim["status"].to_string().into()),
    };
    plane.api().wait((name, ns), LIMIT, bound).unwrap();
    read(plane, ns, name)
}

/// A StatefulSet `web` whose claims are of the class with the name of the namespace, and are deleted
/// with it.
fn stateful_set(ns: &str) -> Value {
    let template = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": ns,
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let retention = json!({"whenDeleted": "Delete"});
    let spec = json!({"spec": {"serviceName": "web", "volumeClaimTemplates": [template],
        "persistentVolumeClaimRetentionPolicy": retention}});
    workload("StatefulSet", "web", &pod("web").without_grace_period()).with(spec)
}

#[test]
fn an_object_in_use_is_restored_with_its_dependents() {
    restore_settings("undo-settings", Kill::AfterLines);
}

#[test]
fn an_object_in_use_is_restored_with_its_dependents_after_lost_answers() {
    restore_settings("undo-settings-lost", Kill::BeforeAnswer);
}

fn restore_settings(ns: &str, kill: Kill) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    let target = policy::target("", "configmaps", &ns);
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(plane, &ns, json!({"targets": [target], "protect": protect}));
    let content = json!({"data": {"mode": "fast"}, "metadata": {"labels": {"app": "web"}}});
    plane.apply(&config_map("settings").with_namespace(&ns).with(content.clone())).unwrap();
    let web = workload("Deployment", "web", &reader("web", "configMapRef", "settings"));
    plane.apply(&web.with_namespace(&ns)).unwrap();
    wait_until_held(plane, &ns, "cm/settings");
    let old = read(plane, &ns, "cm/settings");
    let owned =
        json!({"metadata": {"ownerReferences": [owner("ConfigMap", "settings", uid(&old))]}});
    plane.apply(&secret("token").with_namespace(&ns).with(owned)).unwrap();
    let token = read(plane, &ns, "secret/token");
    delete(plane, &ns, "cm/settings");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    undo_with_interruptions(plane, kill, &["cm/settings", "-n", &ns], &file);
    let new = read(plane, &ns, "cm/settings");
    assert_ne!(uid(&new), uid(&old));
    assert_eq!(
        (&new["data"], &new["metadata"]["labels"]),
        (&content["data"], &content["metadata"]["labels"])
    );
    let kept = read(plane, &ns, "secret/token");
    assert_eq!(uid(&kept), uid(&token));
    assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], uid(&new));
    assert_eq!(read(plane, &ns, "deploy/web")["spec"]["replicas"], 1);
}

/// A Secret with an owner reference to ConfigMap `settings` of this uid.
fn owned_secret(plane: &ControlPlane, ns: &str, name: &str, settings: &str) {
    let owners = json!({"metadata": {"ownerReferences": [
        owner("ConfigMap", "settings", settings)]}});
    plane.apply(&secret(name).with_namespace(ns).with(owners)).unwrap();
}

/// Starts an undo, and waits for this text in its progress. Returns the process and its output.
fn begin(plane: &ControlPlane, args: &[&str], line: &str) -> (Child, BufReader<ChildStderr>) {
    let mut child = spawn(plane.kubeconfig(), args);
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut read = String::new();
    while !read.contains(line) {
        assert_ne!(progress.read_line(&mut read).unwrap(), 0, "{read}");
    }
    (child, progress)
}

/// An undo that waits for the deletion.
struct WaitingUndo {
    file: String,
    child: Child,
    _progress: BufReader<ChildStderr>,
    _folder: tempfile::TempDir,
}

impl WaitingUndo {
    fn succeeds(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

/// Starts an undo of these objects, which is killed when the volume has the policy Retain. Returns its
/// file, and the folder of the file.
fn killed_undo(plane: &ControlPlane, target: &[&str]) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = losses::file_in(&folder);
    let undo = [&["undo"], target, &["--yes", "--out", &file]].concat();
    assert!(lost_answer::is_killed(plane, &undo, 1));
    (file, folder)
}

/// Starts an undo of these objects, and waits until it waits for the deletion.
fn begin_undo(plane: &ControlPlane, target: &[&str]) -> WaitingUndo {
    let folder = tempfile::tempdir().unwrap();
    let file = losses::file_in(&folder);
    let args = [&["undo"], target, &["--yes", "--out", &file]].concat();
    let (child, progress) = begin(plane, &args, "waiting for the deletion");
    WaitingUndo { file, child, _progress: progress, _folder: folder }
}

#[test]
fn dependents_that_are_created_after_the_file_are_kept() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-late").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.apply(&config_map("settings").with_namespace(&ns).with(kept)).unwrap();
    let old = read(plane, &ns, "cm/settings");
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &first).code, 1);
    let resume = ["undo", "--resume", &path, "--yes"];
    owned_secret(plane, &ns, "late", uid(&old));
    // Killed when the Secret has lost its owner reference: it is in the file.
    assert!(lost_answer::is_killed(plane, &resume, 1));
    assert!(read(plane, &ns, "secret/late")["metadata"]["ownerReferences"].is_null());
    // A new draft replaces that of an interrupted run. Its name does not contain the secret.
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let secret = [text(&record["marker"]).as_bytes(), &[0xff]].concat();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &secret);
    let digest: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(format!("{path}.{digest}"), "").unwrap();
    let (mut undo, _progress) = begin(plane, &resume, "waiting for the deletion");
    owned_secret(plane, &ns, "later", uid(&old));
    let is_free = |owners: &str| owners.is_empty();
    let owners = ".metadata.ownerReferences";
    plane.api().wait_field(("secret/later", &ns), LIMIT, owners, is_free).unwrap();
    free(plane, &ns, "cm/settings");
    assert!(undo.wait().unwrap().success());
    let new = read(plane, &ns, "cm/settings");
    for name in ["secret/late", "secret/later"] {
        let owner = read(plane, &ns, name)["metadata"]["ownerReferences"][0]["uid"].clone();
        assert_eq!(owner, uid(&new), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Grants a user all rights, but approvals only in this namespace. Other tests list who can approve.
fn grant_in(plane: &ControlPlane, ns: &str, user: &str) {
    let subjects = [rbac::user(user)];
    let everywhere = [rule("*", "*", "get, list, watch, create, patch")];
    let name = user.replace(' ', "-");
    plane.grant(&name, None, &everywhere, &subjects).unwrap();
    plane.grant(&name, Some(ns), &[rule("*", "*", "*")], &subjects).unwrap();
}

/// Holds ConfigMap `settings` until so many users have approved, and deletes it.
fn delete_held_settings(plane: &ControlPlane, ns: &str, required: u32, finalizers: &[&str]) {
    let target = policy::target("", "configmaps", ns);
    let approval = json!({"required": required, "maxDurationSeconds": 600});
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    let spec = json!({"targets": [target], "approval": approval, "protect": protect});
    policy::apply(plane, ns, spec);
    let settings = config_map("settings").with_namespace(ns).with_finalizers(finalizers);
    plane.apply(&settings).unwrap();
    plane.apply(&reader("web", "configMapRef", "settings").with_namespace(ns)).unwrap();
    wait_until_held(plane, ns, "cm/settings");
    delete(plane, ns, "cm/settings");
}

/// The approvals of an object with this uid.
fn approvals_of(plane: &ControlPlane, uid: &str) -> Vec<Value> {
    let mut approvals = plane.api().list("deletionapprovals", "", "").unwrap();
    approvals.retain(|approval| approval["spec"]["targetRef"]["uid"] == uid);
    approvals
}

#[test]
fn a_continued_undo_of_a_namespace_approves_its_content_once() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-approved").unwrap();
    delete_held_settings(plane, &ns, 2, &["kubernetes.io/pvc-protection"]);
    keep(plane, &ns, "pod/web");
    let kept = config_map("kept").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let other = format!("{ns}-other");
    grant_in(plane, &ns, &other);
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let old = read(plane, "", &namespace);
    // The first approval covers no content, and the second is from another user.
    let approve = ["approve", &namespace, "--reason", "agreed"];
    belay(plane, &approve);
    belay(plane, &[&approve[..], &["--scope", "content", "--as", &other]].concat());
    assert_eq!(approvals_of(plane, uid(&old)).len(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"];
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "1s"];
    for args in [&first[..], &resume] {
        let late = belay(plane, args);
        let step = format!(
            "at the end of the time limit; next: check that controllers remove the finalizers of \
             configmaps/kept -n {ns}, and continue with kubectl belay undo --resume "
        );
        assert!(late.code == 1 && late.stdout.contains(&step), "{late:?}");
        assert_eq!(approvals_of(plane, uid(&old)).len(), 3, "{late:?}");
    }
}

#[test]
fn an_undo_approves_if_an_earlier_approval_is_too_long() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-too-long").unwrap();
    delete_held_settings(plane, &ns, 1, &[]);
    let old = read(plane, &ns, "cm/settings");
    let target = json!({"resource": "configmaps", "namespace": ns, "name": "settings",
        "uid": uid(&old)});
    plane.apply(&approval(&ns, target, "Object")).unwrap();
    let undone = belay(plane, &["undo", "cm/settings", "-n", &ns, "--yes", "--timeout", "20s"]);
    assert_eq!(undone.code, 0, "{undone:?}");
}

#[test]
fn a_continued_undo_stops_if_an_approval_is_withdrawn() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-withdrawn").unwrap();
    delete_held_settings(plane, &ns, 2, &[]);
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    let other = format!("{ns}-other");
    grant_in(plane, &ns, &other);
    let approve = ["approve", "cm/settings", "-n", &ns, "--reason", "agreed", "--as", &other];
    belay(plane, &approve);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path];
    assert!(lost_answer::is_killed(plane, &first, 1));
    let given = approvals_of(plane, uid(&old));
    let name = format!("deletionapprovals/{}", text(&given[0]["metadata"]["name"]));
    plane.api().delete(&[&name], "").unwrap().success().unwrap();
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "20s"];
    let refused = belay(plane, &resume);
    let why = "its deletion needs 1 more approval beside yours; next: have others run";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    assert_eq!(approvals_of(plane, uid(&old)), [Value::Null; 0]);
    belay(plane, &approve);
    assert_eq!(belay(plane, &resume).code, 0);
    let owner = &read(plane, &ns, "secret/token")["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], uid(&read(plane, &ns, "cm/settings")));
}
