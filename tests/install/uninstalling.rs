//! The ways to uninstall belay.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::harness::chart::RELEASE;
use crate::harness::install::{print, wait_until_called};
use crate::harness::kubectl::{Output, run};
use crate::harness::{Chart, ControlPlane, eventually};
use crate::shop::{LIMIT, objects_with, strict};
use crate::{plane, program};

/// The logs of the uninstall Jobs.
fn job_log(plane: &ControlPlane) -> String {
    let logs = std::fs::read_dir(plane.logs()).unwrap().flatten();
    logs.filter(|file| file.file_name().to_string_lossy().contains("uninstall"))
        .map(|file| std::fs::read_to_string(file.path()).unwrap())
        .collect()
}

#[test]
fn s28_uninstall_waits_for_what_is_terminating_and_in_use_and_works_with_every_pod_dead() {
    let plane = plane();
    let (chart, shop) = strict(&plane, &[]);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    assert_ne!(shop.field("secret/password", ".metadata.deletionTimestamp"), "");

    // There is no replica that could do it.
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();

    std::thread::scope(|scope| {
        let uninstall = scope.spawn(|| chart.uninstall(&[]).unwrap());
        // Objects that are not Terminating are released. Terminating objects wait for their
        // users.
        shop.holds("pvc/data-db-0", false);
        shop.holds("configmap/settings", false);
        // The Job logs the users that it waits for.
        eventually("what is waited for", LIMIT, || {
            let said = job_log(&plane);
            let names_both = said.contains("password") && said.contains("Deployment");
            if names_both { Ok(()) } else { Err(said.into()) }
        })
        .unwrap();
        assert!(!uninstall.is_finished());
        assert_ne!(shop.field("secret/password", ".metadata.deletionTimestamp"), "");
        shop.holds("secret/password", true);

        shop.kubectl(&["delete", "deployment", "web"]);
        let output = uninstall.join().unwrap();
        assert!(output.ok(), "{}", output.stderr);
    });
    plane.api().wait_gone(("secret/password", &shop.ns), LIMIT).unwrap();
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
}

#[test]
fn a_dead_belay_is_released_with_the_account_in_the_chart_values() {
    let plane = plane();
    let (chart, shop) = strict(&plane, &["--set=serviceAccount.name=guards"]);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=0"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(0).unwrap();
    shop.kubectl(&["delete", "deployment", "web"]);
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
    let release = ["release", "secret/password", "-n", &shop.ns, &kubeconfig];
    // Until its Lease has expired, a leader may exist.
    let said = eventually("the release", LIMIT, || print(program(), &release)).unwrap();
    assert!(said.contains("system:serviceaccount:belay:guards"), "{said}");
    assert_eq!(plane.api().get("secret/password", &shop.ns).unwrap(), None);
}

#[test]
fn s28_uninstall_with_abandon_releases_everything() {
    let plane = plane();
    let (chart, shop) = strict(&plane, &["--set=uninstall.abandon=true", "--set=crds.keep=false"]);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    let output = chart.uninstall(&[]).unwrap();
    assert!(output.ok(), "{}", output.stderr);
    assert_eq!(plane.api().get("secret/password", &shop.ns).unwrap(), None);
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());
    // On request, the CRDs are deleted as well.
    let crds = plane.api().fields("crd", "", "", ".metadata.name").unwrap().concat();
    assert!(!crds.contains("belay.dev"), "{crds}");
}

#[test]
fn an_uninstall_whose_time_is_over_gives_the_lease_back_and_is_tried_again_and_an_install_follows()
{
    let plane = plane();
    let (chart, shop) = strict(&plane, &["--set=uninstall.timeoutSeconds=8"]);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);

    // It refuses once, and its own name does not hold the Lease.
    let output = chart.uninstall(&[]).unwrap();
    assert!(!output.ok(), "{}", output.stdout);
    let pods = plane.api().list("pods", RELEASE, "job-name=belay-uninstall").unwrap();
    assert_eq!(pods.len(), 1, "{pods:?}");
    let lease = format!("lease/{RELEASE}");
    let holder = plane.api().field(&lease, RELEASE, ".spec.holderIdentity").unwrap();
    assert!(!holder.starts_with("uninstall-"), "{holder}");
    let said = job_log(&plane);
    assert!(said.contains("left are") && said.contains("password"), "{said}");
    shop.holds("secret/password", true);

    // The uninstall can be cancelled: helm upgrades no release that is being uninstalled,
    // but rolls it back.
    chart.roll_back("1").unwrap().success().unwrap();
    wait_until_called(&plane).unwrap();
    let longer = ["--reset-then-reuse-values", "--set=uninstall.timeoutSeconds=0"];
    chart.deploy("upgrade", &longer).unwrap().success().unwrap();
    shop.holds("secret/password", true);

    shop.kubectl(&["delete", "deployment", "web"]);
    let output = chart.uninstall(&[]).unwrap();
    assert!(output.ok(), "{}", output.stderr);
    assert_eq!(objects_with(&plane, "belay.dev/hold"), Vec::<String>::new());

    // The remaining CRDs are from an older belay when the next version is installed. Helm 3
    // does not update them. Helm 4 does if the user requests it.
    let columns = "/spec/versions/0/additionalPrinterColumns";
    let older = json!([{"op": "remove", "path": columns}]).to_string();
    let kind = "crd/deletionpolicies.belay.dev";
    for way in ["--server-side=false", "--force-conflicts"] {
        let patch = ["patch", kind, "--type=json", "-p", &older];
        plane.kubectl(&patch).unwrap().success().unwrap();
        let began = Instant::now();
        chart.deploy("install", &[way]).unwrap().success().unwrap();
        let installed = began.elapsed();
        wait_until_called(&plane).unwrap();
        println!("helm install took {installed:?}; it protects after {:?}", began.elapsed());
        let path = ".spec.versions[0].additionalPrinterColumns";
        assert_ne!(plane.api().field(kind, "", path).unwrap(), "", "{way}");
        let output = chart.uninstall(&[]).unwrap();
        assert!(output.ok(), "{}", output.stderr);
    }
}

#[test]
fn a_stopped_helm_uninstall_releases_the_lease_and_only_a_rollback_installs_belay_again() {
    let plane = plane();
    let (chart, shop) = strict(&plane, &[]);
    shop.kubectl(&["delete", "secret", "password", "--wait=false"]);
    std::thread::scope(|scope| {
        // Without the Job, Helm waits until its time is over.
        let uninstall = scope.spawn(|| chart.uninstall(&["--timeout=90s"]).unwrap());
        let log_contains = |text: &str| {
            eventually(text, LIMIT, || {
                let log = job_log(&plane);
                if log.contains(text) { Ok(()) } else { Err(log.into()) }
            })
            .unwrap();
        };
        log_contains("password");
        let stop = ["delete", "job/belay-uninstall", "-n", RELEASE];
        plane.kubectl(&stop).unwrap().success().unwrap();
        log_contains("interrupted by SIGTERM: the webhook configurations are deleted");
        let output = uninstall.join().unwrap();
        assert!(!output.ok(), "{}", output.stdout);
    });
    let lease = format!("lease/{RELEASE}");
    let is_replica = |name: &str| !name.is_empty() && !name.starts_with("uninstall-");
    plane.api().wait_field((&lease, RELEASE), LIMIT, ".spec.holderIdentity", is_replica).unwrap();

    for what in ["upgrade", "install"] {
        let output = chart.deploy(what, &[]).unwrap();
        assert!(!output.ok(), "{what}: {}", output.stdout);
    }
    let revision = chart.last_revision().unwrap();
    chart.roll_back(&revision).unwrap().success().unwrap();
    wait_until_called(&plane).unwrap();
    shop.holds("secret/password", true);
}

/// `admin uninstall` of the chart's installation, by a user.
fn uninstall_by_hand(plane: &ControlPlane, more: &[&str]) -> Output {
    let installation = format!("--installation={RELEASE}/{RELEASE}");
    let args = [&["admin", "uninstall", &installation], more].concat();
    run(program(), plane.kubeconfig(), &args, None).unwrap()
}

#[test]
fn an_install_right_after_an_uninstall_by_hand_protects() {
    let plane = plane();
    let chart = Chart::prepare(&plane, program()).unwrap();
    // The Lease of the uninstall is valid for longer than the upgrade below may take.
    chart.kubelet.use_production_timing();
    chart.deploy("install", &[]).unwrap().success().unwrap();
    wait_until_called(&plane).unwrap();
    chart.wait_for(2).unwrap();
    let lease = format!("lease/{RELEASE}");
    let holder = || plane.api().field(&lease, RELEASE, ".spec.holderIdentity").unwrap();

    // A script has to confirm.
    let unasked = uninstall_by_hand(&plane, &[]);
    assert_eq!(unasked.code, 2, "{unasked:?}");
    wait_until_called(&plane).unwrap();
    assert!(!holder().starts_with("uninstall-"), "{unasked:?}");

    // Replicas run, so the Lease stays with the uninstall. It does not prevent them from
    // protecting again.
    let uninstall = || {
        let done = uninstall_by_hand(&plane, &["--yes"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(holder().starts_with("uninstall-"), "{done:?}");
        // The command and `status` name the same next step.
        let next = "; next: helm uninstall belay --namespace belay --no-hooks\n";
        assert!(done.stderr.contains(next), "{done:?}");
        let status = run(program(), plane.kubeconfig(), &["status"], None).unwrap();
        assert!(status.stdout.starts_with("belay is uninstalled, so"), "{status:?}");
        assert!(status.stdout.contains(next), "{status:?}");
    };
    uninstall();
    let time = |field: &str| -> Timestamp {
        plane.api().field(&lease, RELEASE, field).unwrap().parse().unwrap()
    };
    let renewed = time(".spec.renewTime");
    let duration = plane.api().field(&lease, RELEASE, ".spec.leaseDurationSeconds").unwrap();
    let valid = SignedDuration::from_secs(duration.parse().unwrap());
    let began = Instant::now();
    chart.deploy("upgrade", &[]).unwrap().success().unwrap();
    let upgraded = began.elapsed();
    wait_until_called(&plane).unwrap();
    println!("helm upgrade took {upgraded:?}; belay protects after {:?}", began.elapsed());
    assert!(!holder().starts_with("uninstall-"));
    let acquired = time(".spec.acquireTime");
    assert!(acquired < renewed + valid, "{acquired}, {renewed}, {valid}");

    uninstall();
    let removed = chart.uninstall(&["--no-hooks"]).unwrap();
    assert!(removed.ok(), "{}", removed.stderr);

    let began = Instant::now();
    chart.deploy("install", &[]).unwrap().success().unwrap();
    let installed = began.elapsed();
    wait_until_called(&plane).unwrap();
    println!("helm install took {installed:?}; belay protects after {:?}", began.elapsed());
    // The garbage collector deleted the Lease of the uninstall.
    let replica = |name: &str| !name.is_empty() && !name.starts_with("uninstall-");
    plane.api().wait_field((&lease, RELEASE), LIMIT, ".spec.holderIdentity", replica).unwrap();
    println!("belay has a leader after {:?}", began.elapsed());
}
