//! `kubectl belay undo`: what it restores, also after interruptions, and what it refuses.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::{Value, json};

use crate::deleting::is_killed;
use crate::harness::audit::text;
use crate::harness::manifest::{
    Manifest as _, claim, config_map, object, owner, pod, reader, secret, workload,
};
use crate::harness::rbac::{self, rule};
use crate::harness::{ControlPlane, eventually};
use crate::held_data::{hold_claims, storage_class, wait_until_running};
use crate::{LIMIT, belay, lost_answer, policy, world};

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
fn a_claim_gets_its_volume_back() {
    restore_claim("undo-claim", Kill::AfterLines);
}

#[test]
fn a_claim_gets_its_volume_back_after_lost_answers() {
    restore_claim("undo-claim-lost", Kill::BeforeAnswer);
}

fn restore_claim(ns: &str, kill: Kill) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    storage_class(plane, &ns);
    hold_claims(plane, &ns);
    plane.apply(&stateful_set(&ns).with_namespace(&ns)).unwrap();
    let old = bound(plane, &ns, "pvc/data-web-0");
    wait_until_held(plane, &ns, "pvc/data-web-0");
    wait_until_running(plane, &ns, 1);
    let owned = json!({"metadata": {"ownerReferences": [
        owner("PersistentVolumeClaim", "data-web-0", uid(&old))]}});
    plane.apply(&config_map("notes").with_namespace(&ns).with(owned)).unwrap();
    let notes = read(plane, &ns, "cm/notes");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let old_volume = read(plane, "", &volume);
    delete(plane, &ns, "pvc/data-web-0");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    undo_with_interruptions(plane, kill, &["pvc/data-web-0", "-n", &ns], &file);
    let new = read(plane, &ns, "pvc/data-web-0");
    assert_ne!(uid(&new), uid(&old));
    assert!(new["metadata"]["deletionTimestamp"].is_null(), "{new}");
    assert_eq!((&new["status"]["phase"], &new["spec"]), (&"Bound".into(), &old["spec"]));
    let new_volume = read(plane, "", &volume);
    assert_eq!(uid(&new_volume), uid(&old_volume));
    assert_eq!(new_volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(new_volume["spec"]["claimRef"]["uid"], uid(&new));
    let volumes = plane.api().list("pv", "", "").unwrap();
    let of_class = volumes.iter().filter(|one| one["spec"]["storageClassName"] == ns.as_str());
    assert_eq!(of_class.count(), 1, "a fresh volume");
    wait_until_running(plane, &ns, 1);
    assert_eq!(new["metadata"]["ownerReferences"][0]["name"], "web");
    let kept = read(plane, &ns, "cm/notes");
    assert_eq!(uid(&kept), uid(&notes));
    assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], uid(&new));
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

#[test]
fn a_namespace_is_restored_with_what_still_exists() {
    restore_namespace("undo-namespace", Kill::AfterLines);
}

#[test]
fn a_namespace_is_restored_with_what_still_exists_after_lost_answers() {
    restore_namespace("undo-namespace-lost", Kill::BeforeAnswer);
}

fn restore_namespace(ns: &str, kill: Kill) {
    let plane = &world().plane;
    let ns = plane.namespace(ns).unwrap();
    storage_class(plane, &ns);
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let class = json!({"spec": {"storageClassName": ns}});
    plane.apply(&claim("data").with_namespace(&ns).with(class).with(kept.clone())).unwrap();
    let old = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&old["spec"]["volumeName"]));
    let owned = json!({"metadata": {"ownerReferences": [
        owner("PersistentVolumeClaim", "data", uid(&old))]}});
    let content = json!({"stringData": {"key": "value"}}).with(kept.clone());
    plane.apply(&secret("owned").with_namespace(&ns).with(content).with(owned)).unwrap();
    let service = |name: &str, address: Value| {
        let spec = json!({"spec": {"ports": [{"port": 80}], "clusterIP": address}});
        object("v1", "Service", name).with(spec)
    };
    let other = plane.namespace("undo-thief").unwrap();
    let api = service("api", Value::Null).with_namespace(&ns).with(kept.clone());
    plane.apply(&api).unwrap();
    let address = read(plane, &ns, "svc/api")["spec"]["clusterIP"].clone();
    plane.apply(&stateful_set(&ns).with_namespace(&ns).with(kept)).unwrap();
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    let names = ["svc/api", "pvc/data", "secret/owned", "sts/web"];
    wait_until_terminating(plane, &ns, &names);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    let copy = folder.path().join("copy.json");
    std::thread::scope(|scope| {
        // The controller of the finalizer, which finishes after the data is safe.
        scope.spawn(|| {
            let policy = ".spec.persistentVolumeReclaimPolicy";
            let is_kept = |policy: &str| policy == "Retain";
            plane.api().wait_field((&volume, ""), LIMIT, policy, is_kept).unwrap();
            std::fs::copy(&file, &copy).unwrap();
            let free = json!({"metadata": {"finalizers": null}});
            for name in names {
                plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
                if name == "svc/api" {
                    // Another tenant takes the address.
                    plane.api().wait_gone((name, &ns), LIMIT).unwrap();
                    plane.apply(&service("thief", address.clone()).with_namespace(&other)).unwrap();
                }
            }
        });
        undo_with_interruptions(plane, kill, &[&namespace], &file);
    });
    let new = read(plane, &ns, "pvc/data");
    assert_ne!(uid(&new), uid(&old));
    assert_eq!(
        (&new["status"]["phase"], &new["spec"]["volumeName"]),
        (&"Bound".into(), &old["spec"]["volumeName"])
    );
    let owned = read(plane, &ns, "secret/owned");
    assert_eq!(owned["data"]["key"], "dmFsdWU=");
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], uid(&new));
    assert_ne!(read(plane, &ns, "svc/api")["spec"]["clusterIP"], address);
    // Its controller would have created the claim.
    let written = std::fs::read_to_string(&copy).unwrap();
    let place = |name: &str| written.find(&format!("\"typed\": \"{name} -n {ns}\"")).unwrap();
    assert!(place("persistentvolumeclaims/data") < place("statefulsets.apps/web"));
    // The controller of the finalizer has to remove it again.
    let free = json!({"metadata": {"finalizers": null}});
    for name in names {
        plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
    }
}

/// Waits until objects of a Namespace are Terminating.
fn wait_until_terminating(plane: &ControlPlane, ns: &str, names: &[&str]) {
    eventually("the deletion of the content", LIMIT, || {
        for name in names {
            let object = plane.api().get(name, ns)?.ok_or("it does not exist")?;
            if !object["metadata"]["deletionTimestamp"].is_string() {
                return Err(object.to_string().into());
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_claims_of_a_stateful_set_get_their_volumes_back_with_its_namespace() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-stateful").unwrap();
    storage_class(plane, &ns);
    plane
        .apply(&stateful_set(&ns).with_namespace(&ns).with(json!({"spec": {"replicas": 2}})))
        .unwrap();
    wait_until_running(plane, &ns, 2);
    let claims = ["pvc/data-web-0", "pvc/data-web-1"];
    let old = claims.map(|claim| bound(plane, &ns, claim));
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let names = [&claims[..], &["sts/web"]].concat();
    for name in &names {
        plane.api().patch(name, &ns, &kept).unwrap().success().unwrap();
    }
    delete(plane, "", &format!("ns/{ns}"));
    wait_until_terminating(plane, &ns, &names);
    let volumes = old.each_ref().map(|claim| format!("pv/{}", text(&claim["spec"]["volumeName"])));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("undo.json");
    let policy = ".spec.persistentVolumeReclaimPolicy";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for volume in &volumes {
                let is_kept = |policy: &str| policy == "Retain";
                plane.api().wait_field((volume, ""), LIMIT, policy, is_kept).unwrap();
            }
            let free = json!({"metadata": {"finalizers": null}});
            for name in &names {
                plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
            }
        });
        undo_with_interruptions(plane, Kill::BeforeAnswer, &[&format!("ns/{ns}")], &file);
    });
    let set = read(plane, &ns, "sts/web");
    assert_eq!(set["spec"]["replicas"], 2);
    for ((name, old), volume) in claims.iter().zip(&old).zip(&volumes) {
        let new = bound(plane, &ns, name);
        assert_eq!(new["spec"]["volumeName"], old["spec"]["volumeName"]);
        assert_eq!(new["metadata"]["ownerReferences"][0]["uid"], uid(&set), "{new}");
        assert_eq!(plane.api().field(volume, "", policy).unwrap(), "Delete");
    }
    wait_until_running(plane, &ns, 2);
    let free = json!({"metadata": {"finalizers": null}});
    for name in &names {
        plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
    }
}

/// Creates a Secret with a token of a ServiceAccount, and waits for the token.
fn token_secret(plane: &ControlPlane, ns: &str, account: &str, finalizers: &[&str]) -> Value {
    let name = format!("{account}-token");
    let annotations = json!({"kubernetes.io/service-account.name": account});
    let fields = json!({"type": "kubernetes.io/service-account-token", "stringData": {"own": "x"},
        "metadata": {"annotations": annotations}});
    let secret = secret(&name).with_namespace(ns).with(fields).with_finalizers(finalizers);
    plane.apply(&secret).unwrap();
    filled_token(plane, ns, account)
}

/// A Secret with a token of a ServiceAccount, when it has a token of the account that exists.
fn filled_token(plane: &ControlPlane, ns: &str, account: &str) -> Value {
    let name = format!("secret/{account}-token");
    let account = read(plane, ns, &format!("sa/{account}"));
    let filled = |secret: Option<&Value>| {
        let secret = secret.ok_or("it does not exist")?;
        let of = &secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"];
        match of == uid(&account) && secret["data"]["token"].is_string() {
            true => Ok(secret.clone()),
            false => Err(secret.to_string().into()),
        }
    };
    plane.api().wait((&name, ns), LIMIT, filled).unwrap()
}

#[test]
fn the_tokens_of_restored_service_accounts_are_renewed() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-tokens").unwrap();
    let finalizers = ["undo.test/kept"];
    let robot = object("v1", "ServiceAccount", "robot").with_finalizers(&finalizers);
    plane.apply(&robot.with_namespace(&ns)).unwrap();
    let accounts = ["default", "robot"];
    let old = accounts.map(|account| token_secret(plane, &ns, account, &finalizers));
    delete(plane, "", &format!("ns/{ns}"));
    let names = ["secret/default-token", "secret/robot-token", "sa/robot"];
    wait_until_terminating(plane, &ns, &names);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", &format!("ns/{ns}"), "--yes", "--out", &path, "--timeout", "80s"];
    let (mut undo, mut progress) = begin(plane, &undo, "waiting until");
    let free = json!({"metadata": {"finalizers": null}});
    for name in names {
        plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
    }
    let mut said = String::new();
    progress.read_to_string(&mut said).unwrap();
    assert!(undo.wait().unwrap().success(), "{said}");
    for (account, old) in accounts.iter().zip(&old) {
        let new = filled_token(plane, &ns, account);
        assert_ne!(new["data"]["token"], old["data"]["token"]);
        assert_eq!(new["data"]["own"], old["data"]["own"]);
        assert!(said.contains(&format!("secrets/{account}-token -n {ns} gets a new token")));
    }
    for name in names {
        plane.api().patch(name, &ns, &free).unwrap().success().unwrap();
    }

    // The token controller deletes the tokens of a deleted account. Other Secrets stay.
    token_secret(plane, &ns, "default", &[]);
    let robot = object("v1", "ServiceAccount", "robot").with_finalizers(&finalizers);
    plane.apply(&robot.with_namespace(&ns)).unwrap();
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    let other = secret("other").with(json!({"metadata": {"annotations": annotations}}));
    plane.apply(&other.with_namespace(&ns)).unwrap();
    let other = read(plane, &ns, "secret/other");
    delete(plane, &ns, "sa/robot");
    let undo = ["undo", "sa/robot", "-n", &ns, "--yes", "--out", &path, "--timeout", "80s"];
    let (mut undo, _progress) = begin(plane, &undo, "waiting until");
    plane.api().patch("sa/robot", &ns, &free).unwrap().success().unwrap();
    assert!(undo.wait().unwrap().success());
    let new = filled_token(plane, &ns, "robot");
    assert_eq!(new["data"]["own"], old[1]["data"]["own"]);
    assert_eq!(uid(&read(plane, &ns, "secret/other")), uid(&other));
    plane.api().patch("sa/robot", &ns, &free).unwrap().success().unwrap();
}

/// A Secret with an owner reference to ConfigMap `settings` of this uid.
fn owned_secret(plane: &ControlPlane, ns: &str, name: &str, settings: &str) {
    let owners = json!({"metadata": {"ownerReferences": [
        owner("ConfigMap", "settings", settings)]}});
    plane.apply(&secret(name).with_namespace(ns).with(owners)).unwrap();
}

/// Starts an undo, and waits for this text in its progress. Returns the process and its output.
fn begin(plane: &ControlPlane, args: &[&str], line: &str) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    command.args(args).env("KUBECONFIG", plane.kubeconfig()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut read = String::new();
    while !read.contains(line) {
        assert_ne!(progress.read_line(&mut read).unwrap(), 0, "{read}");
    }
    (child, progress)
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
    // A new draft replaces that of an interrupted run.
    let marker = serde_json::from_str::<Value>(&std::fs::read_to_string(&path).unwrap()).unwrap();
    std::fs::write(format!("{path}.{}", text(&marker["marker"])), "").unwrap();
    let (mut undo, _progress) = begin(plane, &resume, "waiting until");
    owned_secret(plane, &ns, "later", uid(&old));
    let is_free = |owners: &str| owners.is_empty();
    let owners = ".metadata.ownerReferences";
    plane.api().wait_field(("secret/later", &ns), LIMIT, owners, is_free).unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("cm/settings", &ns, &free).unwrap().success().unwrap();
    assert!(undo.wait().unwrap().success());
    let new = read(plane, &ns, "cm/settings");
    for name in ["secret/late", "secret/later"] {
        let owner = read(plane, &ns, name)["metadata"]["ownerReferences"][0]["uid"].clone();
        assert_eq!(owner, uid(&new), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn h143_nothing_is_restored_into_a_namespace_of_another_user() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-taken").unwrap();
    let namespace = format!("ns/{ns}");
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.apply(&secret("token").with_namespace(&ns).with(kept)).unwrap();
    let old = read(plane, "", &namespace);
    delete(plane, "", &namespace);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let begin = ["undo", &namespace, "--yes", "--out", &path, "--timeout", "1s"];
    let late = belay(plane, &begin);
    assert!(late.code == 1 && late.stdout.contains("undo --resume"), "{late:?}");
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("secret/token", &ns, &free).unwrap().success().unwrap();
    plane.api().wait_gone((&namespace, ""), LIMIT).unwrap();
    // Former members of the Namespace know its uid.
    let forged = json!({"metadata": {"annotations": {"belay.dev/restored-from": uid(&old)}}});
    plane.apply(&object("v1", "Namespace", &ns).with(forged)).unwrap();
    let taken = belay(plane, &["undo", "--resume", &path, "--yes"]);
    assert!(taken.code == 1 && taken.stdout.contains("so nothing was restored"), "{taken:?}");
    assert_eq!(plane.api().get("secret/token", &ns).unwrap(), None);
}

#[test]
fn h145_an_undo_names_no_owner_that_an_editor_has_written() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-owner").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    plane.apply(&claim("data").with_namespace(&ns).with(kept)).unwrap();
    plane.apply(&secret("master").with_namespace(&ns)).unwrap();
    let master = read(plane, &ns, "secret/master");
    let owned = json!({"metadata": {"ownerReferences": [owner("Secret", "master", uid(&master))]}});
    let user = pod("user").with_claim("data").without_grace_period().with(owned);
    plane.apply(&user.with_namespace(&ns)).unwrap();
    delete(plane, &ns, "pvc/data");
    let lists_the_pod = || {
        let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]).stdout;
        assert!(steps.contains("during this wait, delete pods/user -n"), "{steps}");
        assert!(!steps.contains("master") && !steps.contains("other"), "{steps}");
    };
    lists_the_pod();
    // Nor does it stop a workload that does not use the claim, or refuse to begin.
    let other = workload("Deployment", "other", &pod("other"));
    plane.apply(&other.with_namespace(&ns)).unwrap();
    let other = read(plane, &ns, "deployment/other");
    let controller = |owner: Value| json!({"metadata": {"ownerReferences": [owner.with(json!({"controller": true}))]}});
    let mut by_other = owner("Deployment", "other", uid(&other));
    by_other["apiVersion"] = "apps/v1".into();
    plane.api().patch("pod/user", &ns, &controller(by_other)).unwrap().success().unwrap();
    lists_the_pod();
    let user = read(plane, &ns, "pod/user");
    for (kind, name, uid) in [("Secret", "master", uid(&master)), ("Pod", "user", uid(&user))] {
        let owned = controller(owner(kind, name, uid));
        plane.api().patch("pvc/data", &ns, &owned).unwrap().success().unwrap();
        let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]);
        assert_eq!(steps.code, 0, "{steps:?}");
    }
}

#[test]
fn h149_a_dependent_in_another_namespace_does_not_stop_the_undo_of_a_namespace() {
    let plane = &world().plane;
    let [ns, tenant] = ["undo-foreign", "undo-tenant"].map(|name| plane.namespace(name).unwrap());
    plane
        .apply(&config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]))
        .unwrap();
    let namespace = plane.api().get(&format!("ns/{ns}"), "").unwrap().unwrap();
    let owned =
        json!({"metadata": {"ownerReferences": [owner("Namespace", &ns, uid(&namespace))]}});
    plane.apply(&config_map("tenants-own").with_namespace(&tenant).with(owned)).unwrap();
    delete(plane, "", &format!("ns/{ns}"));
    let steps = belay(plane, &["undo", &format!("ns/{ns}"), "--dry-run"]);
    assert!(steps.code == 0 && steps.stdout.contains("configmaps/settings"), "{steps:?}");
    assert!(!steps.stdout.contains("tenants-own"), "{steps:?}");
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("cm/settings", &ns, &free).unwrap().success().unwrap();
}

#[test]
fn an_undo_protects_the_claims_of_other_replicas_and_changes_made_since() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-scaled").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}});
    let scaled = stateful_set(&ns).with(json!({"spec": retention}));
    plane.apply(&scaled.with_namespace(&ns)).unwrap();
    let exists = |claim: Option<&Value>| claim.map(drop).ok_or_else(|| "no claim".into());
    plane.api().wait(("pvc/data-web-0", &ns), LIMIT, exists).unwrap();
    plane.api().patch("pvc/data-web-0", &ns, &kept).unwrap().success().unwrap();
    delete(plane, &ns, "pvc/data-web-0");
    let refused = belay(plane, &["undo", "pvc/data-web-0", "-n", &ns, "--yes"]);
    assert!(refused.code == 1 && refused.stderr.contains("(whenScaled)"), "{refused:?}");

    plane.apply(&config_map("settings").with_namespace(&ns).with(kept)).unwrap();
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let begin = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    assert_eq!(belay(plane, &begin).code, 1);
    let again = belay(plane, &begin);
    assert!(again.code == 1 && again.stderr.contains("exists already"), "{again:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let change = json!({"data": {"new": "value"}});
    plane.api().patch("cm/settings", &ns, &change).unwrap().success().unwrap();
    let resume = ["undo", "--resume", &path, "--yes", "--timeout"];
    let changed = belay(plane, &[&resume[..], &["1s"]].concat());
    assert!(changed.stderr.contains("again, which has changed"), "{changed:?}");
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("cm/settings", &ns, &free).unwrap().success().unwrap();
    assert_eq!(belay(plane, &[&resume[..], &["60s"]].concat()).code, 0);
    assert_eq!(read(plane, &ns, "cm/settings")["data"]["new"], "value");
}

/// Holds ConfigMap `settings` until so many users have approved, and deletes it.
fn delete_held_settings(plane: &ControlPlane, ns: &str, required: u32, finalizers: &[&str]) {
    let target = policy::target("", "configmaps", ns);
    let spec = json!({"targets": [target], "approval": {"required": required},
        "protect": {"whileUsed": {"onDelete": "Hold"}}});
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
fn an_undo_that_would_wait_for_approvals_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-approvals").unwrap();
    delete_held_settings(plane, &ns, 2, &[]);
    let before = read(plane, &ns, "cm/settings");
    let rights = [rule("*", "*", "get, list, watch, create, patch")];
    plane.grant(&ns, None, &rights, &[rbac::user(&ns)]).unwrap();
    let account = format!("system:serviceaccount:{ns}:default");
    let rights = [rule("*", "*", "*")];
    plane.grant(&format!("{ns}-account"), None, &rights, &[rbac::user(&account)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path];
    let unlisted =
        format!("and yours does not count: {account} is a service account that approval");
    for (user, why) in [
        (&[][..], "its deletion needs 1 more approval beside yours; nothing was changed"),
        (&["--as", &ns][..], "approve-deletion"),
        (&["--as", &account][..], &unlisted),
    ] {
        let refused = belay(plane, &[&undo[..], user].concat());
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
        assert!(!Path::new(&path).exists());
    }
    assert_eq!(uid(&read(plane, &ns, "cm/settings")), uid(&before));
    assert_eq!(approvals_of(plane, uid(&before)), [Value::Null; 0]);
}

#[test]
fn a_continued_undo_approves_once() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-approved").unwrap();
    delete_held_settings(plane, &ns, 1, &["kubernetes.io/pvc-protection"]);
    let old = read(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let first = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "1s"];
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "1s"];
    for args in [&first[..], &resume, &resume] {
        assert_eq!(belay(plane, args).code, 1);
        assert_eq!(approvals_of(plane, uid(&old)).len(), 1);
    }
}

#[test]
fn a_continued_undo_stops_if_an_approval_is_withdrawn() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-withdrawn").unwrap();
    delete_held_settings(plane, &ns, 2, &[]);
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    let (other, rights) = (format!("{ns}-other"), [rule("*", "*", "*")]);
    plane.grant(&ns, None, &rights, &[rbac::user(&other)]).unwrap();
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

#[test]
fn what_can_not_be_undone_is_refused_with_the_reason() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-refused").unwrap();
    let kept = json!({"metadata": {"finalizers": ["undo.test/kept"]}});
    for object in [
        pod("web"),
        config_map("settings"),
        object("batch/v1", "Job", "once")
            .with(json!({"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "none"}]}}}})),
    ] {
        plane.apply(&object.with_namespace(&ns).with(kept.clone())).unwrap();
    }
    plane.apply(&config_map("living").with_namespace(&ns)).unwrap();
    for name in ["pod/web", "cm/settings", "job/once"] {
        delete(plane, &ns, name);
    }
    let undo = |args: &[&str]| belay(plane, &[&["undo", "-n", &ns], args].concat());
    for (name, why) in [
        ("cm/living", "is not Terminating, so there is nothing to undo"),
        ("pod/web", "can't be undone: the kubelet stops its containers"),
        ("job/once", "can't be undone: a new Job would run again"),
    ] {
        let refused = undo(&[name, "--yes"]);
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    }
    let asked = undo(&["cm/settings"]);
    assert!(asked.code == 2 && asked.stderr.contains("add --yes"), "{asked:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let dry = undo(&["cm/settings", "--dry-run", "--out", &path]);
    assert!(dry.code == 0 && dry.stdout.contains("create configmaps/settings"), "{dry:?}");
    assert!(!Path::new(&path).exists());
    let user = ["--context=test", "--as=admin of shops", "--installation=belay/belay"];
    let rights = [rule("*", "*", "*")];
    plane.grant(&ns, None, &rights, &[rbac::user("admin of shops")]).unwrap();
    let late = ["cm/settings", "--yes", "--out", &path, "--timeout", "1s"];
    let late = undo(&[&late[..], &user].concat());
    let next = format!("undo --resume {path} --context=test --as='admin of shops'\n");
    assert!(late.code == 1 && late.stdout.contains(&next), "{late:?}");
    // Its finalizer is removed, and another object takes the name.
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("cm/settings", &ns, &free).unwrap().success().unwrap();
    plane.api().wait_gone(("cm/settings", &ns), LIMIT).unwrap();
    plane.apply(&config_map("settings").with_namespace(&ns)).unwrap();
    let resume = ["undo", "--resume", &path, "--yes"];
    let taken = belay(plane, &resume);
    assert!(taken.code == 1 && taken.stdout.contains("another object has the name"), "{taken:?}");
    plane.api().delete(&["cm/settings"], &ns).unwrap().success().unwrap();
    assert_eq!(belay(plane, &resume).code, 0);
    assert_eq!(read(plane, &ns, "cm/settings")["metadata"]["finalizers"][0], "undo.test/kept");
}

#[test]
fn an_undo_that_could_not_finish_does_not_begin() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-unable").unwrap();
    let kept = ["undo.test/kept"];
    let name = |object: &Value| text(&object["metadata"]["name"]).to_owned();
    plane.apply(&config_map("parent").with_namespace(&ns)).unwrap();
    let parent = read(plane, &ns, "cm/parent");
    let owned =
        json!({"metadata": {"ownerReferences": [owner("ConfigMap", "parent", uid(&parent))]}});
    let settings = config_map("settings").with_namespace(&ns).with(owned).with_finalizers(&kept);
    plane.apply(&settings).unwrap();
    let old = read(plane, &ns, "cm/settings");
    owned_secret(plane, &ns, "token", uid(&old));
    // The garbage collector deletes its dependent.
    plane.api().delete(&["cm/parent"], &ns).unwrap().success().unwrap();
    eventually("the cascade", LIMIT, || {
        match read(plane, &ns, "cm/settings")["metadata"]["deletionTimestamp"].is_string() {
            true => Ok(()),
            false => Err("it is not Terminating".into()),
        }
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &path, "--timeout", "60s"];
    for (user, resources, verbs, code, why) in [
        ("reader", "*", "get, list, watch", 1, "you may not create configmaps"),
        ("creator", "*", "get, list, watch, create", 1, "you may not patch secrets"),
        ("blind", "configmaps", "*", 3, "and such objects could be lost"),
    ] {
        let user = format!("{ns}-{user}");
        plane.grant(&user, None, &[rule("*", resources, verbs)], &[rbac::user(&user)]).unwrap();
        let refused = belay(plane, &[&undo[..], &["--as", &user]].concat());
        assert!(refused.code == code && refused.stderr.contains(why), "{refused:?}");
        assert!(!Path::new(&path).exists());
    }
    assert_eq!(belay(plane, &[&undo[..undo.len() - 1], &["1s"]].concat()).code, 1);
    let resume = ["undo", "--resume", &path, "--yes", "--timeout", "60s"];
    let file = std::fs::read_to_string(&path).unwrap();
    let cluster: Value = serde_json::from_str(&file).unwrap();
    let elsewhere = file.replace(text(&cluster["cluster"]["uid"]), "elsewhere");
    std::fs::write(&path, elsewhere).unwrap();
    let refused = belay(plane, &resume);
    let why = "the file is for another cluster";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    std::fs::write(&path, file).unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    plane.api().patch("cm/settings", &ns, &free).unwrap().success().unwrap();
    assert_eq!(belay(plane, &resume).code, 0);
    // With its deleted owner, the garbage collector would delete it again.
    let new = read(plane, &ns, "cm/settings");
    assert!(new["metadata"]["ownerReferences"].is_null(), "{new}");

    let web = workload("Deployment", "web", &pod("web").without_grace_period());
    plane.apply(&web.with_namespace(&ns)).unwrap();
    let set = eventually("a ReplicaSet", LIMIT, || {
        plane.api().list("replicasets", &ns, "")?.pop().ok_or("none".into())
    });
    let set = format!("rs/{}", name(&set.unwrap()));
    let template = json!({"volumeClaimTemplate": {"spec": claim("scratch")["spec"]}});
    let user = pod("user").with_volume(json!({"name": "scratch", "ephemeral": template}));
    plane.apply(&user.with_namespace(&ns)).unwrap();
    let exists = |claim: Option<&Value>| claim.map(drop).ok_or_else(|| "no claim".into());
    plane.api().wait(("pvc/user-scratch", &ns), LIMIT, exists).unwrap();
    for (object, why) in [
        (set.as_str(), "its controller deployments.apps/web"),
        ("pvc/user-scratch", "it belongs to Pod user, and is deleted with it"),
    ] {
        let kept = json!({"metadata": {"finalizers": kept}});
        plane.api().patch(object, &ns, &kept).unwrap().success().unwrap();
        delete(plane, &ns, object);
        let refused = belay(plane, &["undo", object, "-n", &ns, "--yes"]);
        assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
        plane.api().patch(object, &ns, &free).unwrap().success().unwrap();
    }
}
