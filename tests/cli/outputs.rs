//! The outputs of commands that are not part of the tour, in one scene on a separate
//! control plane: `status` and `denials` report the whole cluster, and a pause applies to
//! all of it.
//!
//! `BELAY_UPDATE_SNAPSHOTS=1 cargo test --test cli outputs` writes the snapshots again.

use std::path::Path;

use serde_json::json;

use crate::harness::manifest::Manifest as _;
use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::tour::steady;
use crate::{LIMIT, belay, policy, program};

const SHOP: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: shop}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web, namespace: shop}
spec:
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: a, image: none, envFrom: [{configMapRef: {name: settings}}]}]}
";

/// The outputs so far.
struct Told<'p> {
    plane: &'p ControlPlane,
    all: String,
}

impl Told<'_> {
    /// Runs a command and records its output and its exit code.
    fn tell(&mut self, line: &str) -> String {
        let said = belay(self.plane, &line.split(' ').collect::<Vec<_>>());
        // Whether a hold is new depends on the time that the test takes.
        let lines = said.stdout.split_inclusive('\n');
        let stdout = lines
            .filter(|line| !line.contains("holds: belay relies on a hold "))
            .collect::<String>();
        let (printed, code) = (stdout + &said.stderr, said.code);
        self.all.push_str(&format!("$ kubectl belay {line}\n{printed}exit {code}\n\n"));
        printed
    }

    /// Records the output once its JSON form has reached its final state.
    fn tell_when(&mut self, line: &str, is: impl Fn(&serde_json::Value) -> bool) -> String {
        let args: Vec<&str> = line.split(' ').chain(["-o", "json"]).collect();
        eventually(line, LIMIT, || {
            let said = belay(self.plane, &args);
            let read: serde_json::Value =
                serde_json::from_str(&said.stdout).map_err(|_| said.stderr.clone())?;
            if is(&read) { Ok(()) } else { Err(said.stdout.into()) }
        })
        .unwrap();
        self.tell(line)
    }
}

/// The policy of this name in the output of status.
fn policy_of<'s>(said: &'s serde_json::Value, name: &str) -> &'s serde_json::Value {
    let policies = said["policies"].as_array();
    let found = policies.and_then(|all| all.iter().find(|policy| policy["name"] == name));
    found.unwrap_or(&serde_json::Value::Null)
}

#[test]
fn outputs_of_commands_match_the_reviewed_snapshots() {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() }).unwrap();
    let _belay = Install::of_everything(1).on(&plane, program()).unwrap();
    let plane = &plane;
    plane.apply(SHOP).unwrap();
    let maps = policy::target("", "configmaps", "shop");
    let spec = json!({"targets": [maps], "protect": {"whileUsed": {"onDelete": "Hold"}}});
    policy::apply(plane, "settings", spec);
    let secrets = json!({"targets": [policy::target("", "secrets", "shop")],
        "protect": {"always": {}}});
    policy::apply(plane, "tokens", secrets.clone().with(json!({"hold": "Never"})));
    policy::apply(plane, "watched", secrets.with(json!({"action": "Audit"})));
    let mut told = Told { plane, all: String::new() };

    told.tell("denials");
    plane.kubectl(&["delete", "secret", "token", "-n", "shop"]).unwrap().failure().unwrap();
    let refused = |said: &serde_json::Value| {
        let [one] = &said["items"].as_array().unwrap()[..] else { return false };
        one["subject"].is_string() && said["policies"].as_array().unwrap().len() == 2
    };
    told.tell_when("denials", refused);
    told.tell_when("denials --would", refused);
    let status = told.tell_when("status", |said| {
        let numbers = ["protected", "held", "deniedLast24h", "wouldDenyLast24h"];
        let are = |name, is: [i64; 4]| {
            numbers.map(|of| policy_of(said, name)[of].as_i64()) == is.map(Some)
        };
        are("settings", [1, 1, 0, 0]) && are("tokens", [1, 0, 1, 0]) && are("watched", [1, 0, 0, 1])
    });

    told.tell("release cm/settings -n shop");
    // A hold becomes effective some time after it was added.
    eventually("a hold that is enough", LIMIT, || {
        let delete = ["configmap", "settings", "--dry-run=server"];
        plane.api().delete(&delete, "shop")?.success().map(drop)
    })
    .unwrap();
    plane.delete(&["configmap", "settings"], "shop");
    told.tell_when("why cm/settings -n shop", |said| {
        let users = said["terminating"]["hold"]["for"].as_array();
        users.is_some_and(|users| users.iter().any(|user| user.to_string().contains("Pod web-0")))
    });
    told.tell("release cm/settings -n shop --timeout 1");

    let begun = told.tell("pause --for=10m --reason=INC-1 --yes");
    told.tell_when("status", |said| {
        let noted = |name| policy_of(said, name)["paused"] == true;
        ["settings", "tokens", "watched"].into_iter().all(noted)
    });
    told.tell("pause --end");
    told.tell("pause --end");

    // Names that are generated.
    let leader = status.lines().find_map(|line| line.strip_prefix("leader: ")).unwrap();
    let pause = begun.split_whitespace().find(|word| word.starts_with("pause-")).unwrap();
    let told = steady(&told.all.replace(leader, "REPLICA").replace(pause, "PAUSE")) + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/outputs.txt");
    if std::env::var_os("BELAY_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &told).unwrap();
    }
    let looked_at = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(told, looked_at, "if that is meant, rewrite tests/cli/outputs.txt");
}
