//! Sizes: lists, objects and references far larger than any controller writes.

use crate::harness::eventually;
use crate::team::{SOON, Team};
use crate::{policy, world};

/// A merge patch that sets so many finalizers.
fn finalizers(count: usize) -> String {
    let all: Vec<String> = (0..count).map(|n| format!("\"a.b/{n}\"")).collect();
    format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, all.join(","))
}

#[test]
fn h06_thousands_of_finalizers_are_refused_and_others_are_answered_meanwhile() {
    let team = Team::new(&world().plane, "h06");
    let protected = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: \
             {{belay.dev/protect: Always}}}}\n"
        )
    };
    team.apply(&protected("large"));
    team.apply(&protected("precious"));
    let patch = std::env::temp_dir().join(format!("{}-patch.json", team.ns));
    std::fs::write(&patch, finalizers(20_000)).unwrap();
    let patch_file = format!("--patch-file={}", patch.display());
    std::thread::scope(|scope| {
        let attacks: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    team.kubectl(&["patch", "configmap", "large", "--type=merge", &patch_file])
                })
            })
            .collect();
        let verdict = team.delete(&["configmap/precious"]);
        assert!(verdict.stderr.contains("is protected"), "{}", verdict.stderr);
        for attack in attacks {
            let stderr = attack.join().unwrap().stderr;
            assert!(stderr.contains("belay looks at no more than 1000"), "{stderr}");
        }
    });
    let _ = std::fs::remove_file(patch);
}

#[test]
fn h15_a_foreground_delete_of_the_largest_object_completes() {
    let plane = &world().plane;
    let team = Team::new(plane, "h15");
    let ns = &team.ns;
    let target = policy::target("", "configmaps", ns);
    policy::apply(plane, ns, &format!("{target}  protect: {{fromOrphaning: {{}}}}\n"));
    // In JSON each of these takes six bytes, and a review of an UPDATE has two
    // such objects: 12 MiB. (A ConfigMap has at most 1 MiB.)
    let large = "<".repeat(1_040_000);
    let create = |manifest: &str| {
        plane.apply_to(&["create", "-n", ns, "-f", "-"], manifest).unwrap().success().unwrap();
    };
    // kubectl would escape it on its way to the API server, which takes 3 MiB.
    let raw = format!("/api/v1/namespaces/{ns}/configmaps");
    let manifest = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"text":"{large}"}}}}"#
    );
    plane.apply_to(&["create", "--raw", &raw, "-f", "-"], &manifest).unwrap().success().unwrap();
    let uid = crate::editor::field(plane, ns, "configmap/large", ".metadata.uid");
    create(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: child\n  ownerReferences: \
         [{{apiVersion: v1, kind: ConfigMap, name: large, uid: {uid}, blockOwnerDeletion: true}}]\n"
    ));
    let args = ["delete", "configmap/large", "-n", ns, "--cascade=foreground", "--wait=false"];
    plane.kubectl(&args).unwrap().success().unwrap();
    eventually("the end of a foreground deletion", SOON, || {
        let left = plane.kubectl(&["get", "configmaps", "-n", ns, "-o", "name"])?;
        match left.stdout.contains("/large") || left.stdout.contains("/child") {
            true => Err(left.stdout.into()),
            false => Ok(()),
        }
    })
    .unwrap();
}
