//! belay is uninstalled from a cluster, running and dead: no object keeps a hold, no object
//! in use is lost, and nothing is restored.

use std::path::Path;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::install::print;
use crate::harness::kubectl::{Output, run};
use crate::harness::manifest::{Manifest as _, config_map, pod};
use crate::harness::process::Process;
use crate::harness::{ControlPlane, Install, Options, eventually, intervals, timing};
use crate::{policy, program};

const SOON: Duration = Duration::from_secs(60);

/// The uninstall command for every user with this kubeconfig.
const ALL: [&str; 4] = ["admin", "uninstall", "--yes", "--installation=belay/belay"];

/// A control plane with one namespace, in which ConfigMaps are held while they are used;
/// `used` is in use and Terminating.
struct Stage {
    plane: ControlPlane,
    ns: String,
}

impl Stage {
    fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).unwrap().success().unwrap()
    }

    /// With its policy in force.
    fn new(plane: ControlPlane, objects: usize) -> Self {
        let ns = plane.namespace("s28").unwrap();
        policy::protect(&plane, &ns, "configmaps", json!({"whileUsed": {"onDelete": "Hold"}}));
        let stage = Self { plane, ns };
        let ns = stage.ns.as_str();
        let names = (0..objects).map(|n| format!("settings-{n}")).chain(["used".to_owned()]);
        for name in names {
            stage.plane.apply(&map(ns, &name)).unwrap();
        }
        let pod = pod("user").with_env_from("configMapRef", "used");
        stage.plane.apply_to(&["apply", "-n", ns, "-f", "-"], &pod).unwrap().success().unwrap();
        stage.kubectl(&["delete", "configmap", "used", "-n", ns, "--wait=false"]);
        assert_eq!(stage.held().len(), objects + 1);
        stage
    }

    /// The ConfigMaps of all namespaces that have the hold.
    fn held(&self) -> Vec<String> {
        let all = self.plane.api().list("configmaps", "", "").unwrap();
        let held = all.iter().filter(|map| {
            let finalizers = map["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|list| list.iter().any(|name| name == "belay.dev/hold"))
        });
        held.map(|map| map["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// `kubectl belay` with these arguments.
    fn command(&self, args: &[&str]) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-belay"));
        run(program, self.plane.kubeconfig(), args, None).unwrap()
    }

    fn all(&self, more: &[&str]) -> Output {
        let timing = format!("--timing={}", intervals());
        let args = [&ALL[..], &[&timing], more].concat();
        run(program(), self.plane.kubeconfig(), &args, None).unwrap()
    }

    /// The same, started without waiting for its end.
    fn begins(&self, name: &str, more: &[&str]) -> Process {
        let config = format!("--kubeconfig={}", self.plane.kubeconfig().display());
        let args = ALL.iter().chain(more).map(|arg| (*arg).to_owned());
        let args: Vec<String> = args.chain([config]).collect();
        let env = [timing::environment()];
        Process::start_with_env(name, program(), &args, &env, &self.plane.logs()).unwrap()
    }

    /// Starts an uninstall, and waits until it has deleted the webhook configurations.
    fn begins_and_waits(&self, name: &str) -> Process {
        let uninstall = self.begins(name, &[]);
        eventually("the wait for the leader", SOON, || {
            let log = uninstall.log();
            if log.contains("\nwaiting ") { Ok(()) } else { Err(log.into()) }
        })
        .unwrap();
        uninstall
    }

    fn lease(&self, path: &str) -> String {
        self.plane.api().field("lease/belay", "belay", path).unwrap()
    }

    /// Creates the webhook configurations as the chart does: without rules.
    fn creates_configurations(&self) {
        let manifests = print(program(), &["admin", "manifests", "--service=belay/belay"]).unwrap();
        let documents = manifests.split("---\n");
        let configurations = documents.filter(|text| text.contains("WebhookConfiguration\n"));
        self.plane.apply(&configurations.collect::<Vec<_>>().join("---\n")).unwrap();
    }

    /// Waits until the command reports that the policy is Ready.
    fn is_ready(&self) {
        eventually("the rules", SOON, || {
            let status = self.command(&["status"]);
            let ready = status.code == 0 && status.stdout.contains(" yes ");
            if ready { Ok(()) } else { Err(format!("{status:?}").into()) }
        })
        .unwrap();
    }

    /// The objects of belay in its namespace, and its webhook configurations.
    fn kept(&self) -> String {
        let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
        let mut kept = Vec::new();
        for kind in ["configmaps", "secrets", "leases"].into_iter().chain(configurations) {
            let names = self.plane.api().fields(kind, "belay", "", ".metadata.name").unwrap();
            kept.extend(names.iter().map(|name| format!("{kind}/{name}")));
        }
        kept.retain(|object| !object.contains("kube-root-ca"));
        kept.join("\n")
    }

    fn ends(&self, pod: &str) {
        self.kubectl(&["delete", "pod", pod, "-n", &self.ns, "--grace-period=0", "--force"]);
    }

    fn is_gone(&self, name: &str) {
        let object = format!("configmap/{name}");
        assert_eq!(self.plane.api().get(&object, &self.ns).unwrap(), None);
    }
}

fn map(namespace: &str, name: &str) -> Value {
    config_map(name).with_namespace(namespace).with(json!({"data": {"currency": "EUR"}}))
}

#[test]
fn s28_while_replicas_run_all_holds_go_and_none_comes_back() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut belay = Install::of_everything(2).on(&plane, program()).unwrap();
    let stage = Stage::new(plane, 4);

    // Without a terminal to ask on, --yes is required.
    let unasked = ["admin", "uninstall", "--installation=belay/belay"];
    let unasked = run(program(), stage.plane.kubeconfig(), &unasked, None).unwrap();
    assert_eq!(unasked.code, 2, "{unasked:?}");
    assert!(unasked.stderr.ends_with("nothing was changed\nhint: add --yes\n"), "{unasked:?}");
    assert!(stage.kept().contains("mutatingwebhookconfiguration"), "{}", stage.kept());

    // A dry run changes nothing.
    let would = stage.all(&["--dry-run"]);
    assert_eq!(would.code, 0, "{would:?}");
    assert!(would.stdout.starts_with("would delete: MutatingWebhookConfiguration belay\n"));
    assert!(would.stdout.contains("would delete: ConfigMap belay-held\n"), "{would:?}");
    let ends = format!(", policy {}\n", stage.ns);
    assert!(would.stdout.contains("would no longer apply: ") && would.stdout.contains(&ends));
    assert!(would.stdout.contains("would remove 4 holds from configmaps"), "{would:?}");
    let says = format!("would wait for configmaps/used -n {}: it waits for Pod", stage.ns);
    assert!(would.stdout.contains(&says), "{would:?}");
    assert_eq!(stage.held().len(), 5);
    assert!(stage.kept().contains("mutatingwebhookconfiguration"), "{}", stage.kept());
    // The same for another belay with the same name.
    let elsewhere = ["admin", "uninstall", "--yes", "--installation=ops/belay"];
    let refused = run(program(), stage.plane.kubeconfig(), &elsewhere, None).unwrap();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("hint: --installation=belay/belay"), "{refused:?}");

    // The same for an installation without webhook configurations while another belay runs.
    let elsewhere = ["admin", "uninstall", "--yes", "--installation=ops/guard"];
    let refused = run(program(), stage.plane.kubeconfig(), &elsewhere, None).unwrap();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("hint: --installation=belay/belay"), "{refused:?}");
    assert_eq!(stage.held().len(), 5);

    // It waits for objects in use, and for no others.
    let mut uninstall = stage.begins("uninstall", &[]);
    let says = format!("Terminating and held: configmaps/used -n {}: it waits for Pod", stage.ns);
    eventually("the list of what waits", SOON, || {
        let log = uninstall.log();
        if log.contains(&says) { Ok(()) } else { Err(log.into()) }
    })
    .unwrap();
    assert_eq!(stage.held(), ["used"]);
    assert!(uninstall.is_running(), "{}", uninstall.log());
    let lease = |path| stage.plane.api().field("lease/belay", "belay", path).unwrap();
    assert!(lease(".spec.holderIdentity").starts_with("uninstall-"));
    // No command asks the user to install belay again.
    for (args, says) in [
        (&["status"][..], "UNINSTALL in progress by uninstall-"),
        (&["why", "cm/used", "-n", &stage.ns], "an uninstall of belay is in progress"),
        (&["pause", "--end"], "an uninstall of belay is in progress"),
    ] {
        let output = stage.command(args);
        let text = &output.stdout;
        assert!(text.contains(says) && !text.contains("next: install"), "{output:?}");
        assert!(!text.contains("MISSING"), "{output:?}");
    }
    let status = stage.command(&["status"]).stdout;
    let (_, step) = status.split_once("\nto see the remaining work: kubectl belay ").unwrap();
    let words: Vec<&str> = step.lines().next().unwrap().split(' ').collect();
    let remains = stage.command(&words);
    assert!(remains.stdout.contains(&format!("would wait for configmaps/used -n {}", stage.ns)));
    assert!(uninstall.is_running(), "{}", uninstall.log());
    stage.ends("user");
    assert_eq!(uninstall.wait_for_exit(SOON).unwrap(), 0, "{}", uninstall.log());
    stage.is_gone("used");
    assert_eq!(stage.held(), [""; 0]);
    // The Lease stays held while replicas run, and is deleted with their account.
    let owned = lease(".metadata.ownerReferences[*].kind");
    assert_eq!(owned, "ServiceAccount", "{}", uninstall.log());
    let kept = stage.kept();
    assert!(kept.lines().all(|line| line.starts_with("lease")), "{kept}");

    // Even a replica that becomes the leader again adds no hold, neither to old objects nor
    // to new ones.
    let no_holder = serde_json::json!({"spec": {"holderIdentity": ""}});
    stage.plane.patch("lease/belay", "belay", &no_holder);
    belay.leader().unwrap();
    belay.replicas[0].process.restart().unwrap();
    stage.plane.apply(&map(&stage.ns, "late")).unwrap();
    // Longer than the leader's pause for holds.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(stage.held(), [""; 0]);
        crate::harness::pause(Duration::from_millis(500));
    }
    belay.leader().unwrap();

    // A second run has nothing to do, which is not an error.
    let again = stage.all(&[]);
    assert_eq!(again.code, 0, "{again:?}");
    let says = "already deleted: MutatingWebhookConfiguration belay";
    assert!(again.stderr.contains(says), "{again:?}");
    assert!(again.stdout.contains("removed 0 holds; no object has belay's hold"), "{again:?}");

    // A user who deletes the Deployment and the account has deleted all.
    belay.replicas.iter_mut().for_each(|replica| replica.process.kill());
    stage.kubectl(&["delete", "serviceaccount", "belay", "-n", "belay"]);
    eventually("the end of the Leases", SOON, || {
        let kept = stage.kept();
        if kept.is_empty() { Ok(()) } else { Err(kept.into()) }
    })
    .unwrap();
}

#[test]
fn s28_with_belay_dead_it_is_the_same_and_what_is_abandoned_is_named() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let mut belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let objects = 100;
    let stage = Stage::new(plane, objects);
    let bob = stage.plane.user("bob", None).unwrap();
    // Its webhooks remain, and refuse the requests that are sent to them.
    belay.replicas.iter_mut().for_each(|replica| replica.process.kill());

    // A user without the rights sees which rights are missing, and nothing was changed.
    let refused = run(program(), &bob, &ALL, None).unwrap();
    assert_eq!(refused.code, 3, "{refused:?}");
    let says = "cannot read the MutatingWebhookConfiguration belay";
    assert!(refused.stderr.contains(says), "{refused:?}");
    assert!(refused.stderr.contains("the RBAC verbs get and delete on mutating"), "{refused:?}");
    assert_eq!(stage.held().len(), objects + 1);

    // After it was killed, a second run continues its work.
    let mut first = stage.begins("first", &[]);
    let some = || {
        let held = stage.held().len();
        if held <= objects { Ok(held) } else { Err(held.to_string().into()) }
    };
    eventually("some holds to be off", SOON, some).unwrap();
    first.kill();
    let left = stage.held().len();
    assert!(left > 1, "all were off before it was killed");

    // The timeout also ends it in the middle, and no step starts late.
    let late = stage.all(&["--timeout=1"]);
    assert_eq!(late.code, 1, "{late:?}");
    assert!(late.stderr.contains("the time ended before its turn"), "{late:?}");
    assert!(stage.held().len() > 1, "{late:?}");

    // The rest takes a few seconds.
    let waits = stage.all(&["--timeout=20s"]);
    assert_eq!(waits.code, 1, "{waits:?}");
    let says = format!("- configmaps/used -n {}: it waits for Pod {}/user", stage.ns, stage.ns);
    assert!(waits.stderr.contains(&says), "{waits:?}");
    assert!(
        waits.stderr.contains("\nhint: run this again to continue, or add --abandon"),
        "{waits:?}"
    );
    assert!(waits.stderr.contains("already deleted: MutatingWebhook"), "{waits:?}");
    let says = "\nbelay denies nothing now, because its webhook configurations are deleted\n";
    assert!(waits.stderr.contains(says), "{waits:?}");
    assert_eq!(stage.held(), ["used"]);

    let would = stage.all(&["--abandon", "--dry-run"]);
    let says = format!("would abandon configmaps/used -n {}: it waits for Pod", stage.ns);
    assert!(would.code == 0 && would.stdout.contains(&says), "{would:?}");
    assert_eq!(stage.held(), ["used"]);

    let done = stage.all(&["--abandon"]);
    assert_eq!(done.code, 0, "{done:?}");
    let says = format!("ABANDONED: configmaps/used -n {}: it waits for Pod", stage.ns);
    assert!(done.stderr.contains(&says), "{done:?}");
    assert!(done.stdout.contains("abandoned 1 object"), "{done:?}");
    stage.is_gone("used");
    assert_eq!(stage.held(), [""; 0]);
    let names = stage.plane.api().fields("configmaps", &stage.ns, "", ".metadata.name").unwrap();
    // Objects that were not deleted all exist.
    let settings = names.iter().filter(|name| name.contains("settings-")).count();
    assert_eq!(settings, objects);
    // Its replica has just died. A moment later it does not count as running.
    eventually("the end of what belay kept", SOON, || {
        assert_eq!(stage.all(&[]).code, 0);
        let kept = stage.kept();
        if kept.is_empty() { Ok(()) } else { Err(kept.into()) }
    })
    .unwrap();
    // Only the CRDs and a policy are left.
    for command in ["status", "denials"] {
        let said = stage.command(&[command]);
        let says = "belay is not installed (its CRDs remain), so it denies nothing\n";
        assert!(said.stdout.contains(says) && !said.stdout.contains("Pods run"), "{said:?}");
    }
}

#[test]
fn an_interrupted_uninstall_releases_the_lease_and_a_reinstalled_belay_protects_at_once() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let _belay = Install::of_everything(2).on(&plane, program()).unwrap();
    let stage = Stage::new(plane, 1);
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let mut uninstall = stage.begins_and_waits(name);
        let renewed: Timestamp = stage.lease(".spec.renewTime").parse().unwrap();
        let duration = stage.lease(".spec.leaseDurationSeconds").parse().unwrap();
        uninstall.signal(signal).unwrap();
        assert_eq!(uninstall.wait_for_exit(SOON).unwrap(), 3, "{}", uninstall.log());
        let log = uninstall.log();
        let says = format!("error: interrupted by {name}: the webhook configurations are deleted");
        assert!(log.contains(&says) && log.contains("\nto continue: "), "{log}");

        // A replica becomes the leader before the Lease of the uninstall would have expired.
        let is_replica = |name: &str| name.starts_with("belay-");
        let holder = ".spec.holderIdentity";
        stage.plane.api().wait_field(("lease/belay", "belay"), SOON, holder, is_replica).unwrap();
        let acquired: Timestamp = stage.lease(".spec.acquireTime").parse().unwrap();
        let expires = renewed + SignedDuration::from_secs(duration);
        assert!(acquired < expires, "{acquired} {expires}");
        let status = stage.command(&["status"]);
        assert_eq!(status.code, 1, "{status:?}");
        let text = &status.stdout;
        assert!(text.contains("MISSING") && !text.contains("UNINSTALL"), "{status:?}");
        assert_eq!(stage.held(), ["settings-0", "used"]);

        stage.creates_configurations();
        stage.is_ready();
    }
}

#[test]
fn a_killed_uninstall_is_reported_with_its_age_and_no_policy_is_ready_without_rules() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let stage = Stage::new(plane, 1);
    stage.begins_and_waits("killed").kill();
    // Until its term ends, the last leader would still add rules.
    eventually("the end of the leader", SOON, || match belay.metric("belay_leader ") {
        0.0 => Ok(()),
        leaders => Err(leaders.to_string().into()),
    })
    .unwrap();
    for args in [&["status"][..], &["why", "cm/used", "-n", &stage.ns], &["pause", "--end"]] {
        let output = stage.command(args);
        assert!(output.stdout.contains("(last renewed "), "{output:?}");
    }

    // The Lease of the uninstall prevents that a replica adds the rules.
    stage.creates_configurations();
    let status = stage.command(&["status"]);
    assert_eq!(status.code, 1, "{status:?}");
    let says =
        "webhooks: validatingwebhookconfiguration/belay has no rules, so belay denies nothing";
    assert!(status.stdout.contains(says), "{status:?}");
    assert!(!status.stdout.contains(" yes "), "{status:?}");
    let json: Value =
        serde_json::from_str(&stage.command(&["status", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["policies"][0]["ready"], false, "{json}");
    assert!(stage.lease(".spec.holderIdentity").starts_with("uninstall-"), "too late");

    stage.is_ready();
}
