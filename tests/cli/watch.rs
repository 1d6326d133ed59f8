//! `--watch`, and the formats for lists: `-o wide` and `-o name`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::harness::manifest::{self, Manifest as _};
use crate::harness::{ControlPlane, eventually};
use crate::{LIMIT, belay, kubectl, policy, spawn, world};

/// A running command, and the lines that it prints.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(plane: &ControlPlane, args: &[&str]) -> Self {
        let mut child = spawn(plane.kubeconfig(), args);
        let (send, lines) = channel();
        let stdout: ChildStdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(send.send(line)));
        });
        Self { child, lines }
    }

    /// Waits for a line with this text, and returns the lines before it.
    fn until(&self, text: &str) -> Vec<String> {
        let (until, mut before) = (Instant::now() + LIMIT, Vec::new());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(text) => return before,
                Ok(line) => before.push(line),
                Err(error) => panic!("{text}: {error}: {before:?}"),
            }
        }
    }

    /// Ends it like Ctrl-C.
    fn interrupt(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_watch_prints_what_changes_and_ends_on_an_interrupt() {
    let plane = &world().plane;
    let ns = plane.namespace("watch").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let impact = Watch::start(plane, &["impact", "cm/settings", "-n", &ns, "--watch"]);
    let denials = Watch::start(plane, &["denials", "-n", &ns, "-w", "-o", "name"]);
    let stuck = Watch::start(plane, &["stuck", "-n", &ns, "-w", "--longer-than", "1s"]);
    let status = Watch::start(plane, &["status", "-w"]);
    impact.until("   ALLOWED");
    stuck.until("nothing in namespace");
    status.until(&ns);
    let pod = manifest::reader("web", "configMapRef", "settings").with_namespace(&ns);
    plane.apply(&pod).unwrap();
    // Nothing else has changed, so there is no third report in between.
    let between = impact.until("   DENIED");
    assert_eq!(between.iter().filter(|line| line.starts_with("DELETE")).count(), 0, "{between:?}");
    assert!(between.iter().any(|line| line.starts_with("at 2")), "{between:?}");
    plane.kubectl(&["delete", "configmap", "settings", "-n", &ns]).unwrap().failure().unwrap();
    assert_eq!(denials.until(&format!("configmaps/settings -n {ns}")), [""; 0]);
    let object = manifest::config_map("late").with_namespace(&ns);
    plane.apply(&object.with_finalizers(&["x.example.test/y"])).unwrap();
    kubectl(plane, &["delete", "configmap", "late", "-n", &ns, "--wait=false"]);
    stuck.until("configmaps/late");
    kubectl(plane, &["delete", "deletionpolicy", &ns]);
    status.until("at 2");
    assert_eq!([impact, denials, stuck].map(Watch::interrupt), [Some(1); 3]);
    assert!(status.interrupt().is_some());
}

#[test]
fn lists_have_names_for_kubectl_and_wide_tables() {
    let plane = &world().plane;
    let ns = plane.namespace("names").unwrap();
    policy::protect(plane, &ns, "configmaps", json!({"whileUsed": {}}));
    kubectl(plane, &["create", "configmap", "settings", "-n", &ns]);
    let pod = manifest::reader("web", "configMapRef", "settings").with_namespace(&ns);
    plane.apply(&pod).unwrap();
    let object = manifest::config_map("late").with_namespace(&ns);
    plane.apply(&object.with_finalizers(&["x.example.test/y"])).unwrap();
    kubectl(plane, &["delete", "configmap", "late", "-n", &ns, "--wait=false"]);
    plane.kubectl(&["delete", "configmap", "settings", "-n", &ns]).unwrap().failure().unwrap();
    let uid = |name: &str| plane.api().field(&format!("cm/{name}"), &ns, ".metadata.uid").unwrap();
    let approve = ["approve", "cm/settings", "-n", &ns, "--reason", "test", "-o", "json"];
    let approval = crate::json(&belay(plane, &approve));
    let approval = approval["name"].as_str().unwrap_or_default().to_owned();
    for (command, names, wide) in [
        ("used-by cm/settings", format!("pods/web -n {ns}\n"), "envFrom[0]".to_owned()),
        ("stuck --longer-than 1s", format!("configmaps/late -n {ns}\n"), uid("late")),
        ("denials", format!("configmaps/settings -n {ns}\n"), format!("Z   {ns} ")),
        ("approvals", format!("deletionapprovals.belay.dev/{approval}\n"), uid("settings")),
    ] {
        let run = |format: &str| {
            let line = format!("{command} -n {ns} -o {format}");
            belay(plane, &line.split(' ').collect::<Vec<_>>()).stdout
        };
        eventually(command, LIMIT, || match run("name") {
            found if found == names => Ok(()),
            found => Err(found.into()),
        })
        .unwrap();
        eventually(command, LIMIT, || match run("wide") {
            found if found.contains(&wide) => Ok(()),
            found => Err(found.into()),
        })
        .unwrap();
    }
    let policies = belay(plane, &["status", "-o", "name"]).stdout;
    assert!(policies.contains(&format!("deletionpolicies.belay.dev/{ns}\n")), "{policies}");
    assert!(belay(plane, &["status", "-o", "wide"]).stdout.contains("   WITHOUT HOLDS   "));
}
