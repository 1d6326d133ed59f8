//! Two undos of one deletion, and a new undo after an interrupted one.

use serde_json::json;

use super::losses::{delete_claims, delete_gone, file_in, have_their_volumes, start_two_replicas};
use super::*;

/// Begins an undo, which is killed when it has saved the file.
fn saved(plane: &ControlPlane, target: &[&str], file: &str) {
    let args = [&["undo"], target, &["--yes", "--out", file]].concat();
    let (mut undo, _progress) = begin(plane, &args, "saved ");
    undo.kill().unwrap();
    undo.wait().unwrap();
}

#[test]
fn the_undo_of_a_claim_that_another_undo_has_restored_advises_to_delete_nothing() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-second").unwrap();
    start_two_replicas(plane, &ns);
    // However late the first undo is killed, the claim still exists.
    keep(plane, &ns, "pvc/data-web-0");
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let target = ["pvc/data-web-0", "-n", &ns];
    saved(plane, &target, &file);
    let first = begin_undo(plane, &target);
    free(plane, &ns, "pvc/data-web-0");
    first.succeeds();
    have_their_volumes(plane, &ns, &claims);
    let protected = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}});
    plane.api().patch("pvc/data-web-0", &ns, &protected).unwrap().success().unwrap();
    wait_until_running(plane, &ns, 2);
    delete(plane, &ns, "pvc/data-web-0");
    let resume = ["undo", "--resume", &file, "--yes"];
    let again = belay(plane, &resume);
    let next = format!(
        "was deleted again after another undo had restored it; undo this deletion first, with \
         kubectl belay undo persistentvolumeclaims/data-web-0 -n {ns}"
    );
    assert!(again.code == 1 && again.stderr.contains(&next), "{again:?}");
    for untrue in ["0 replicas", "delete it", "keeps the", "may "] {
        assert!(!again.stderr.contains(untrue), "{untrue}: {again:?}");
    }
    let volume = format!("pv/{}", text(&claims[0].1));
    let policy = ".spec.persistentVolumeReclaimPolicy";
    assert_eq!(plane.api().field(&volume, "", policy).unwrap(), "Retain");
    let undone = belay(plane, &[&["undo"], &target[..], &["--yes"]].concat());
    assert_eq!(undone.code, 0, "{undone:?}");
    let resumed = belay(plane, &resume);
    let says = format!("another undo restored PersistentVolumeClaim {ns}/data-web-0; nothing");
    assert!(resumed.code == 0 && resumed.stdout.contains(&says), "{resumed:?}");
    assert!(!Path::new(&file).exists());
    have_their_volumes(plane, &ns, &claims);
}

#[test]
fn a_claim_of_others_is_deleted_only_after_its_volume_is_kept() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-fresh").unwrap();
    claims(plane, &ns, &["data"]);
    keep(plane, &ns, "pvc/data");
    let old = bound(plane, &ns, "pvc/data")["spec"]["volumeName"].clone();
    delete(plane, &ns, "pvc/data");
    let (file, _folder) = killed_undo(plane, &["pvc/data", "-n", &ns]);
    free(plane, &ns, "pvc/data");
    plane.api().wait_gone(("pvc/data", &ns), LIMIT).unwrap();
    claims(plane, &ns, &["data"]);
    let fresh = bound(plane, &ns, "pvc/data")["spec"]["volumeName"].clone();
    let resume = ["undo", "--resume", &file, "--yes"];
    let taken = belay(plane, &resume);
    let keep_first = format!("keep that first: kubectl patch persistentvolumes/{}", text(&fresh));
    assert!(taken.code == 1 && taken.stdout.contains(&keep_first), "{taken:?}");
    let left = format!("volume {} has the reclaim policy Retain", text(&old));
    assert!(taken.stdout.contains(&left), "{taken:?}");
    delete_gone(plane, &ns, "pvc/data");
    delete_gone(plane, "", &format!("pv/{}", text(&old)));
    let lost = belay(plane, &resume);
    assert!(lost.stderr.contains("does not exist any longer"), "{lost:?}");
    assert!(!lost.stderr.contains("Retain"), "{lost:?}");
}

#[test]
fn an_undo_that_another_one_has_done_ends() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-done").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let namespace = format!("ns/{ns}");
    for (number, (target, place)) in
        [("cm/settings", ns.as_str()), (&namespace, "")].into_iter().enumerate()
    {
        let file = folder.path().join(number.to_string()).display().to_string();
        delete(plane, place, target);
        super::namespaces::wait_until_terminating(plane, &ns, &["cm/settings"]);
        saved(plane, &[target, "-n", &ns], &file);
        let undo = begin_undo(plane, &[target, "-n", &ns]);
        free(plane, &ns, "cm/settings");
        undo.succeeds();
        let resume = ["undo", "--resume", &file, "--yes"];
        let resumed = belay(plane, &resume);
        assert!(
            resumed.code == 0 && resumed.stdout.contains("another undo restored "),
            "{resumed:?}"
        );
        assert!(resumed.stdout.contains("nothing is left to do"), "{resumed:?}");
        // Any user can write the annotation of a restored object.
        assert!(Path::new(&file).exists());
        if target == namespace {
            free(plane, &ns, "cm/settings");
            delete_gone(plane, &ns, "cm/settings");
            let missing = belay(plane, &resume);
            let says = format!("- configmaps/settings -n {ns}: it does not exist");
            assert!(missing.code == 1 && missing.stdout.contains(&says), "{missing:?}");
            assert!(!missing.stdout.contains("delete it"), "{missing:?}");
        }
    }
}

#[test]
fn a_new_undo_starts_a_deployment_that_an_interrupted_one_has_stopped() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-deployment").unwrap();
    claims(plane, &ns, &["data"]);
    keep(plane, &ns, "pvc/data");
    let web = workload("Deployment", "web", &pod("web").with_claim("data").without_grace_period());
    plane.apply(&web.with_namespace(&ns).with(json!({"spec": {"replicas": 2}}))).unwrap();
    wait_until_running(plane, &ns, 2);
    let claims = delete_claims(plane, &ns, &["data"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undo = ["undo", "pvc/data", "-n", &ns, "--yes", "--out", &file, "--timeout", "3s"];
    let late = belay(plane, &undo);
    let left = format!("until then, deployments.apps/web -n {ns} is at 0 replicas");
    assert!(late.code == 1 && late.stdout.contains(&left), "{late:?}");
    wait_until_running(plane, &ns, 0);
    let steps = belay(plane, &["undo", "pvc/data", "-n", &ns, "--dry-run"]).stdout;
    let again = format!("scale up again: deployments.apps/web -n {ns} to 2");
    assert!(steps.contains(&again), "{steps}");
    // A continued undo lists only the remaining steps, in their order.
    let steps = belay(plane, &["undo", "--resume", &file, "--dry-run"]).stdout;
    let places: Vec<_> =
        ["To continue", "1. wait until", "2. reserve", "restore the reclaim", &again]
            .map(|step| steps.find(step).unwrap_or_else(|| panic!("{step}: {steps}")))
            .to_vec();
    assert!(places.is_sorted() && !steps.contains("scale to 0"), "{steps}");
    let undo = begin_undo(plane, &["pvc/data", "-n", &ns]);
    free(plane, &ns, "pvc/data");
    undo.succeeds();
    wait_until_running(plane, &ns, 2);
    have_their_volumes(plane, &ns, &claims);
}

#[test]
fn the_undo_of_a_namespace_continues_the_undo_of_its_claim() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-nested").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0", "data-web-1"]);
    plane
        .apply(&config_map("kept").with_namespace(&ns).with_finalizers(&["undo.test/kept"]))
        .unwrap();
    keep(plane, &ns, "sts/web");
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undo = ["undo", "pvc/data-web-0", "-n", &ns, "--yes", "--out", &file];
    let (mut undo, _progress) = begin(plane, &undo, "reserved volume");
    undo.kill().unwrap();
    undo.wait().unwrap();
    for (name, _) in &claims {
        if plane.api().get(name, &ns).unwrap().is_some() {
            delete_gone(plane, &ns, name);
        }
    }
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    super::namespaces::wait_until_terminating(plane, &ns, &["cm/kept", "sts/web"]);
    let undo = begin_undo(plane, &[&namespace]);
    ["cm/kept", "sts/web"].iter().for_each(|name| free(plane, &ns, name));
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 2);
    ["cm/kept", "sts/web"].iter().for_each(|name| free(plane, &ns, name));
}
