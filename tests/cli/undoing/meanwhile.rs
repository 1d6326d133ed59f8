//! What others do while an undo runs or is interrupted: no data is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::losses::{delete_claims, file_in, have_their_volumes, start_two_replicas};
use super::*;
use crate::harness::kubectl::Output;

/// Sets what happens to the claims of `web` when it is scaled down.
fn when_scaled(plane: &ControlPlane, ns: &str, policy: &str) {
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": policy}});
    plane.api().patch("sts/web", ns, &json!({"spec": retention})).unwrap().success().unwrap();
}

#[test]
fn the_other_claims_of_a_workload_that_others_let_delete_them_are_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-scaled").unwrap();
    start_two_replicas(plane, &ns);
    let other = bound(plane, &ns, "pvc/data-web-1")["spec"]["volumeName"].clone();
    let mut claims = delete_claims(plane, &ns, &["data-web-0"]);
    claims.push(("pvc/data-web-1".to_owned(), other));
    for pod in ["pod/web-0", "pod/web-1"] {
        keep(plane, &ns, pod);
    }
    let undo = begin_undo(plane, &["pvc/data-web-0", "-n", &ns]);
    when_scaled(plane, &ns, "Delete");
    // The controller makes the Pod that ends the owner of its claim.
    let claim = ("pvc/data-web-1", &*ns);
    let owners = ".metadata.ownerReferences";
    plane.api().wait_field(claim, LIMIT, owners, |owners| owners.contains("Pod")).unwrap();
    free(plane, &ns, "pod/web-1");
    plane.api().wait_gone(("pvc/data-web-1", &ns), LIMIT).unwrap();
    free(plane, &ns, "pod/web-0");
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 2);
}

#[test]
fn a_continued_undo_scales_down_no_workload_that_would_delete_its_claims() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-rescaled").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    let (file, _folder) = killed_undo(plane, &["pvc/data-web-0", "-n", &ns]);
    when_scaled(plane, &ns, "Delete");
    let resume = ["undo", "--resume", &file, "--yes"];
    let refused = belay(plane, &resume);
    assert!(refused.code == 1 && refused.stderr.contains("(whenScaled)"), "{refused:?}");
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 2);
    when_scaled(plane, &ns, "Retain");
    assert_eq!(belay(plane, &resume).code, 0);
    have_their_volumes(plane, &ns, &claims);
}

/// Runs an undo of claim `data-web-0`, and changes StatefulSet `web` just before the undo scales it
/// to 0. Returns the output.
fn undo_with_late_change(
    plane: &'static ControlPlane,
    ns: &str,
    file: &str,
    change: impl FnOnce(&str) + Send + 'static,
) -> Output {
    // Without annotations, the patch would test the resourceVersion as well.
    let annotated = json!({"metadata": {"annotations": {"own": "text"}}});
    plane.api().patch("sts/web", ns, &annotated).unwrap().success().unwrap();
    let scales_down = |request: &[u8]| {
        let request = String::from_utf8_lossy(request);
        request.starts_with("PATCH ") && request.contains("undo-replicas")
    };
    let namespace = ns.to_owned();
    let undo = ["undo", "pvc/data-web-0", "-n", ns, "--yes", "--out", file];
    lost_answer::with_interruption_at(plane, &undo, scales_down, move || change(&namespace)).0
}

#[test]
fn a_workload_that_others_scale_just_before_its_stop_gets_their_replicas() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-scaled-before").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    let folder = tempfile::tempdir().unwrap();
    let undone = undo_with_late_change(plane, &ns, &file_in(&folder), |ns| {
        let one = json!({"spec": {"replicas": 1}});
        plane.api().patch("sts/web", ns, &one).unwrap().success().unwrap();
    });
    assert_eq!(undone.code, 0, "{undone:?}");
    have_their_volumes(plane, &ns, &claims);
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 1);
}

#[test]
fn a_workload_that_others_let_delete_its_claims_just_before_its_stop_is_not_stopped() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-rescaled-before").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let refused = undo_with_late_change(plane, &ns, &file, |ns| when_scaled(plane, ns, "Delete"));
    assert!(refused.code == 1 && refused.stderr.contains("(whenScaled)"), "{refused:?}");
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 2);
    when_scaled(plane, &ns, "Retain");
    assert_eq!(belay(plane, &["undo", "--resume", &file, "--yes"]).code, 0);
    have_their_volumes(plane, &ns, &claims);
}

#[test]
fn an_undo_reads_each_object_of_a_namespace_once() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-reads").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept).unwrap();
    let namespace = format!("ns/{ns}");
    delete(plane, "", &namespace);
    super::namespaces::wait_until_terminating(plane, &ns, &["cm/settings"]);
    let count = Arc::new(AtomicUsize::new(0));
    let (read, counted) =
        (format!("GET /api/v1/namespaces/{ns}/configmaps/settings "), count.clone());
    let count_reads = move |request: &[u8]| {
        let is_read = request.starts_with(read.as_bytes());
        counted.fetch_add(is_read.into(), Ordering::SeqCst);
        false
    };
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undo = ["undo", &namespace, "--yes", "--out", &file, "--timeout", "1s"];
    let (late, _) = lost_answer::with_interruption_at(plane, &undo, count_reads, || ());
    assert!(late.code == 1 && late.stdout.contains("still existed"), "{late:?}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    free(plane, &ns, "cm/settings");
}

#[test]
fn two_undos_of_one_object_restore_it_once() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-twice").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0", "data-web-1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let other = format!("{file}.other");
    keep(plane, &ns, "pod/web-0");
    let undo = |file| ["undo", "pvc/data-web-0", "-n", &ns, "--yes", "--out", file];
    let (mut first, _first) = begin(plane, &undo(&file), "waiting for the deletion");
    let (mut second, _second) = begin(plane, &undo(&other), "waiting for the deletion");
    free(plane, &ns, "pod/web-0");
    for (undo, file) in [(&mut first, &file), (&mut second, &other)] {
        let ended = undo.wait().unwrap();
        // No request failed because of the other undo.
        assert_ne!(ended.code(), Some(3));
        if !ended.success() {
            let resumed = belay(plane, &["undo", "--resume", file, "--yes"]);
            assert_eq!(resumed.code, 0, "{resumed:?}");
        }
    }
    have_their_volumes(plane, &ns, &claims);
    wait_until_running(plane, &ns, 2);
}

#[test]
fn a_claim_that_is_deleted_again_keeps_its_volume() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-again").unwrap();
    claims(plane, &ns, &["data"]);
    keep(plane, &ns, "pvc/data");
    let claims = delete_claims(plane, &ns, &["data"]);
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undo = begin_undo(plane, &["pvc/data", "-n", &ns]);
    let record = std::fs::read(&undo.file).unwrap();
    free(plane, &ns, "pvc/data");
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    // An interruption could have left the file.
    std::fs::write(&file, record).unwrap();
    delete(plane, &ns, "pvc/data");
    let again = belay(plane, &["undo", "--resume", &file, "--yes"]);
    let next = format!("with kubectl belay undo persistentvolumeclaims/data -n {ns}");
    assert!(again.code == 1 && again.stderr.contains(&next), "{again:?}");
    let volume = format!("pv/{}", text(&claims[0].1));
    let policy = ".spec.persistentVolumeReclaimPolicy";
    assert_eq!(plane.api().field(&volume, "", policy).unwrap(), "Retain");
    let undo = begin_undo(plane, &["pvc/data", "-n", &ns]);
    free(plane, &ns, "pvc/data");
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    free(plane, &ns, "pvc/data");
}

#[test]
fn the_last_state_is_restored_if_the_file_can_not_be_written() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-full").unwrap();
    let kept = config_map("settings").with_namespace(&ns).with_finalizers(&["undo.test/kept"]);
    plane.apply(&kept.with(json!({"data": {"mode": "old"}}))).unwrap();
    delete(plane, &ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let file = place.join("undo.json").display().to_string();
    let undo = ["undo", "cm/settings", "-n", &ns, "--yes", "--out", &file];
    let (mut undo, _progress) = begin(plane, &undo, "waiting for the deletion");
    std::fs::rename(&place, folder.path().join("elsewhere")).unwrap();
    let change = json!({"data": {"mode": "new"}});
    plane.api().patch("cm/settings", &ns, &change).unwrap().success().unwrap();
    free(plane, &ns, "cm/settings");
    assert!(undo.wait().unwrap().success());
    assert_eq!(read(plane, &ns, "cm/settings")["data"]["mode"], "new");
    free(plane, &ns, "cm/settings");
}

#[test]
fn a_claim_without_its_volume_can_not_be_restored() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-lost").unwrap();
    claims(plane, &ns, &["data"]);
    keep(plane, &ns, "pvc/data");
    let claim = bound(plane, &ns, "pvc/data");
    let volume = format!("pv/{}", text(&claim["spec"]["volumeName"]));
    plane.api().delete(&[&volume], "").unwrap().success().unwrap();
    free(plane, "", &volume);
    plane.api().wait_gone((&volume, ""), LIMIT).unwrap();
    delete(plane, &ns, "pvc/data");
    let refused = belay(plane, &["undo", "pvc/data", "-n", &ns, "--yes"]);
    let why = "can't be undone: its volume does not exist any longer";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused:?}");
    free(plane, &ns, "pvc/data");
}

#[test]
fn a_workload_that_others_have_started_again_is_left_alone() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-decided").unwrap();
    start_two_replicas(plane, &ns);
    let claims = delete_claims(plane, &ns, &["data-web-0"]);
    keep(plane, &ns, "pod/web-0");
    let undo = begin_undo(plane, &["pvc/data-web-0", "-n", &ns]);
    // An administrator decides that it stays stopped.
    let decided = json!({"metadata": {"annotations": {"belay.dev/undo-replicas": null}}});
    plane.api().patch("sts/web", &ns, &decided).unwrap().success().unwrap();
    free(plane, &ns, "pod/web-0");
    undo.succeeds();
    have_their_volumes(plane, &ns, &claims);
    assert_eq!(read(plane, &ns, "sts/web")["spec"]["replicas"], 0);
}
