//! How an undo knows the objects that it has created (H204).

use serde_json::{Value, json};

use super::losses::file_in;
use super::*;

/// The annotation by which an undo knows an object.
const MARKER: &str = "belay.dev/restored-by";

/// Deletes ConfigMap `settings` and its dependent, Secret `token`. Returns the file of an undo that has
/// waited until the end of its time limit, and its folder. Both objects are deleted then.
fn undo_of_settings(plane: &ControlPlane, ns: &str) -> (String, tempfile::TempDir) {
    let kept = &["undo.test/kept"];
    plane.apply(&config_map("settings").with_finalizers(kept).with_namespace(ns)).unwrap();
    let owner = owner("ConfigMap", "settings", uid(&read(plane, ns, "cm/settings")));
    let token = secret("token").with_owner(owner).with_finalizers(kept);
    plane.apply(&token.with_namespace(ns)).unwrap();
    delete(plane, ns, "secret/token");
    delete(plane, ns, "cm/settings");
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let undo = ["undo", "cm/settings", "-n", ns, "--yes", "--out", &file, "--timeout", "1s"];
    assert_eq!(belay(plane, &undo).code, 1);
    for name in ["secret/token", "cm/settings"] {
        free(plane, ns, name);
        plane.api().wait_gone((name, ns), LIMIT).unwrap();
    }
    (file, folder)
}

#[test]
fn h204_an_object_with_the_marker_of_a_restored_object_is_another_object() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-forged").unwrap();
    let (file, _folder) = undo_of_settings(plane, &ns);
    // A tenant reads the marker of the restored ConfigMap, and is faster than the undo.
    let place = ns.clone();
    let forge = move || {
        let marker = read(plane, &place, "cm/settings")["metadata"]["annotations"][MARKER].clone();
        assert!(marker.is_string(), "{marker}");
        let annotations = json!({"metadata": {"annotations": {MARKER: marker}}});
        plane.apply(&secret("token").with_namespace(&place).with(annotations)).unwrap();
    };
    let create = format!("POST /api/v1/namespaces/{ns}/secrets");
    let is_create = move |request: &[u8]| request.starts_with(create.as_bytes());
    let resume = ["undo", "--resume", &file, "--yes"];
    let (undone, _) = lost_answer::with_interruption_at(plane, &resume, is_create, forge);
    let why = format!("secrets/token -n {ns}: another object has its name");
    assert!(undone.code == 1 && undone.stdout.contains(&why), "{undone:?}");
    assert!(Path::new(&file).exists());
    assert!(read(plane, &ns, "secret/token")["metadata"]["ownerReferences"].is_null());
}

/// An earlier version wrote the same marker into each object.
#[test]
fn the_file_of_an_earlier_version_is_continued() {
    let plane = &world().plane;
    let ns = plane.namespace("undo-earlier").unwrap();
    let (file, _folder) = undo_of_settings(plane, &ns);
    let mut record: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let marker = record["marker"].clone();
    for saved in record["objects"].as_array_mut().unwrap() {
        saved["manifest"]["metadata"]["annotations"][MARKER] = marker.clone();
    }
    std::fs::write(&file, record.to_string()).unwrap();
    let resume = ["undo", "--resume", &file, "--yes"];
    assert!(lost_answer::is_killed(plane, &resume, 1));
    assert_eq!(read(plane, &ns, "cm/settings")["metadata"]["annotations"][MARKER], marker);
    let undone = belay(plane, &resume);
    assert!(undone.code == 0 && !undone.stdout.contains("another undo"), "{undone:?}");
    assert!(!Path::new(&file).exists());
}
