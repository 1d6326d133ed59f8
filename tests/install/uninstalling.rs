//! The ways out.

use std::time::Duration;

use crate::harness::chart::RELEASE;
use crate::harness::{Chart, eventually};
use crate::shop::{LIMIT, Shop, objects_with, policies_in_force};
use crate::{plane, program};

#[test]
fn s28_uninstall_waits_for_what_is_terminating_and_in_use_and_works_with_every_pod_dead() {
    let plane = plane();
    let values = ["--set=profile=strict"];
    let chart = Chart::install(&plane, program(), &values).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(&plane);
    let shop = Shop::open(&plane);
    shop.holds("secret/password", true);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    assert_ne!(shop.field("secret/password", ".metadata.deletionTimestamp"), "");

    // Nobody is left who could do it.
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();

    std::thread::scope(|scope| {
        let uninstall = scope.spawn(|| chart.uninstall(&[]).unwrap());
        // What is not on its way out is let go of, what is waits for its user.
        shop.holds("pvc/data-db-0", false);
        shop.holds("configmap/settings", false);
        std::thread::sleep(Duration::from_secs(3));
        assert!(!uninstall.is_finished());
        assert_ne!(shop.field("secret/password", ".metadata.deletionTimestamp"), "");
        shop.holds("secret/password", true);
        // Who waits says for whom.
        let said = std::fs::read_dir(plane.logs()).unwrap().flatten();
        let said = said.filter(|file| file.file_name().to_string_lossy().contains("uninstall"));
        let said: String = said.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        assert!(said.contains("password") && said.contains("Deployment"), "{said}");

        shop.kubectl(&["delete", "deployment", "web"]);
        let output = uninstall.join().unwrap();
        assert!(output.ok(), "{}", output.stderr);
    });
    eventually("the end of the Secret", LIMIT, || {
        shop.plane.kubectl(&["get", "secret", "password", "-n", &shop.ns])?.failure()
    })
    .unwrap();
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
}

#[test]
fn s28_uninstall_that_is_told_to_abandon_lets_go_of_everything() {
    let plane = plane();
    let values = ["--set=profile=strict", "--set=uninstall.abandon=true", "--set=crds.keep=false"];
    let chart = Chart::install(&plane, program(), &values).unwrap();
    chart.wait_for(2).unwrap();
    policies_in_force(&plane);
    let shop = Shop::open(&plane);
    shop.holds("secret/password", true);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    let output = chart.uninstall(&[]).unwrap();
    assert!(output.ok(), "{}", output.stderr);
    let secret = ["get", "secret", "password", "-n", &shop.ns];
    plane.kubectl(&secret).unwrap().failure().unwrap();
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
    // Asked to, the definitions go as well.
    let crds = plane.kubectl(&["get", "crd", "-o", "name"]).unwrap().success().unwrap();
    assert!(!crds.contains("belay.dev"), "{crds}");
}
