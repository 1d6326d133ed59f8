//! The status of custom resources, in which controllers store the outside resources that they have
//! created.

use serde_json::{Value, json};

use super::losses::file_in;
use super::*;
use crate::harness::crd::crd;

const DISK: &str = "disks.status.example.com/main";

/// A Terminating custom resource with a status, of a kind with a status subresource.
fn terminating_disk(plane: &ControlPlane, ns: &str) -> Value {
    let mut kind = crd("status.example.com", "Disk", "disks", &["v1"], "v1");
    kind["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    plane.apply(&kind).unwrap();
    let disk = object("status.example.com/v1", "Disk", "main").with_namespace(ns);
    let disk = disk.with_finalizers(&["undo.test/kept"]);
    eventually("the kind", LIMIT, || plane.apply(&disk)).unwrap();
    let status = json!({"volumeID": "vol-123"});
    write_status(plane, ns, &status);
    delete(plane, ns, DISK);
    status
}

fn write_status(plane: &ControlPlane, ns: &str, status: &Value) {
    let patch = json!({"status": status}).to_string();
    let command = ["patch", DISK, "-n", ns, "--subresource=status", "--type=merge", "-p", &patch];
    eventually("a status", LIMIT, || plane.kubectl(&command)?.success().map(drop)).unwrap();
}

#[test]
fn a_custom_resource_gets_its_status_back() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-status").unwrap();
    let status = terminating_disk(plane, &ns);
    let undo = begin_undo(plane, &[DISK, "-n", &ns]);
    free(plane, &ns, DISK);
    undo.succeeds();
    let disk = read(plane, &ns, DISK);
    assert_eq!(disk["status"], status);
    // The user agents name the field managers of the writes.
    let managers = |object: &Value| -> Vec<String> {
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        entries.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(managers(&disk), ["kubectl-belay", "kubectl-belay"], "{disk}");
    assert_eq!(managers(&read(plane, "belay", "leases/belay")), ["belay"]);
    free(plane, &ns, DISK);
}

#[test]
fn a_continued_undo_restores_the_status_unless_the_controller_has_written_it() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-status-lost").unwrap();
    let status = terminating_disk(plane, &ns);
    let folder = tempfile::tempdir().unwrap();
    let new = json!({"volumeID": "vol-456"});
    for is_written in [false, true] {
        let file = file_in(&folder);
        let undo = ["undo", DISK, "-n", &ns, "--yes", "--out", &file, "--timeout", "1s"];
        assert_eq!(belay(plane, &undo).code, 1);
        free(plane, &ns, DISK);
        plane.api().wait_gone((DISK, &ns), LIMIT).unwrap();
        let resume = ["undo", "--resume", &file, "--yes"];
        // Killed when the object exists without its status.
        assert!(lost_answer::is_killed(plane, &resume, 1));
        assert_eq!(read(plane, &ns, DISK)["status"], Value::Null);
        if is_written {
            write_status(plane, &ns, &new);
        }
        let resumed = belay(plane, &resume);
        assert_eq!(resumed.code, 0, "{resumed:?}");
        let expected = if is_written { &new } else { &status };
        assert_eq!(read(plane, &ns, DISK)["status"], *expected);
        delete(plane, &ns, DISK);
    }
    free(plane, &ns, DISK);
}

#[test]
fn an_undo_announces_a_status_that_the_user_may_not_write() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-status-user").unwrap();
    terminating_disk(plane, &ns);
    let user = format!("{ns}-user");
    let rules =
        [rule("*", "*", "get, list, watch"), rule("status.example.com", "disks", "create, patch")];
    plane.grant(&user, None, &rules, &[rbac::user(&user)]).unwrap();
    let undo = ["undo", DISK, "-n", &ns, "--as", &user];
    let steps = belay(plane, &[&undo[..], &["--dry-run"]].concat());
    let lost = format!("not restored: {DISK} -n {ns}: its status is lost");
    assert!(steps.code == 0 && steps.stdout.contains(&lost), "{steps:?}");
    let undo = begin_undo(plane, &[DISK, "-n", &ns, "--as", &user]);
    free(plane, &ns, DISK);
    undo.succeeds();
    assert_eq!(read(plane, &ns, DISK)["status"], Value::Null);
    free(plane, &ns, DISK);
}
