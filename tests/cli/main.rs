//! The commands of users, against real control planes: one with belay, one without where
//! objects are broken on purpose; and without a cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../schema/mod.rs"]
mod schema;

mod approvals;
mod broken;
mod cycles;
mod delete_stops;
mod delete_tenants;
mod deleting;
mod denials;
mod developer;
mod held_data;
mod look;
mod lost_answer;
mod next_steps;
mod offline;
mod order;
mod outputs;
mod pause;
mod previews;
mod programs;
mod refused;
mod removed;
mod status;
mod status_plan;
mod stuck;
mod terminal;
mod tour;
mod undoing;
mod unled;
mod unread;
mod unreleased;
mod watch;
mod why;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use harness::kubectl::{Output, run};
use harness::{ControlPlane, Install, Installed, Options, policy};
use schema::{Schema, differences, schemas};
use serde_json::Value;

/// The limit for waits on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The program under test.
pub fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_belay"))
}

/// The control plane with belay installed in it.
pub struct World {
    /// The control plane.
    pub plane: ControlPlane,
    /// belay in front of it.
    pub belay: Installed,
}

/// The shared world of this program with belay in it. The first test starts it. If it does
/// not start, every test fails with the reason and none tries again.
pub fn world() -> &'static World {
    static WORLD: OnceLock<Result<World, String>> = OnceLock::new();
    WORLD.get_or_init(|| start().map_err(|error| error.to_string())).as_ref().unwrap()
}

fn start() -> harness::Result<World> {
    let plane = ControlPlane::start_with(&Options { nodes: 1, ..Options::default() })?;
    let belay = Install::of_everything(1).on(&plane, program())?;
    Ok(World { plane, belay })
}

/// `kubectl belay …` by an administrator of a control plane.
pub fn belay(plane: &ControlPlane, args: &[&str]) -> Output {
    belay_as(plane.kubeconfig(), args)
}

/// `kubectl belay …` as the user of a kubeconfig.
pub fn belay_as(kubeconfig: &Path, args: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    let output = run(program, kubeconfig, args, None).unwrap();
    fits(args, &output.stdout);
    output
}

/// Starts `kubectl belay …` as the user of a kubeconfig, without input and with pipes for its output.
pub fn spawn(kubeconfig: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-belay"));
    let command = command.args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Checks a document against its schema and against docs/json.md, for every command of
/// every test.
pub fn fits(args: &[&str], stdout: &str) {
    static SCHEMAS: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    let asked = |format| args.windows(2).any(|two| two == ["-o", format]);
    let document: Value = match (asked("json"), asked("yaml")) {
        // A command that fails prints no document.
        _ if stdout.is_empty() => return,
        (true, _) => serde_json::from_str(stdout).unwrap_or_else(|_| panic!("{stdout}")),
        (_, true) => serde_saphyr::from_str(stdout).unwrap_or_else(|_| panic!("{stdout}")),
        _ => return,
    };
    let kind = document["kind"].as_str().unwrap_or_default();
    let root = SCHEMAS.get_or_init(schemas).get(kind);
    let root = root.unwrap_or_else(|| panic!("there is no kind {kind}: {document}"));
    let wrong = differences(Schema { root, of: root }, &document, kind);
    assert!(wrong.is_empty(), "{args:?}:\n{}\n{document:#}", wrong.join("\n"));
}

/// kubectl, which has to succeed.
pub fn kubectl(plane: &ControlPlane, args: &[&str]) -> String {
    plane.kubectl(args).unwrap().success().unwrap()
}

/// A document that a command printed.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}
