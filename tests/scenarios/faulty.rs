//! A control plane for tests that break belay: its replicas are killed, its registration is
//! deleted, its certificates are changed. One test uses it at a time, and finds it
//! repaired.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::harness::belay::http_get;
use crate::harness::install::NAME;
use crate::harness::{Belay, ControlPlane, Fault, Install, Options, Result, eventually};
use crate::{World, program};

/// Longer than any wait on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The control plane, for one caller at a time. It is repaired after an earlier test.
pub fn faulty() -> MutexGuard<'static, World> {
    static FAULTY: OnceLock<std::result::Result<Mutex<World>, String>> = OnceLock::new();
    let started = FAULTY.get_or_init(|| start().map(Mutex::new).map_err(|e| e.to_string()));
    // A failed test leaves it as broken as a successful one.
    let mut world = started.as_ref().unwrap().lock().unwrap_or_else(PoisonError::into_inner);
    world.mend().unwrap();
    world
}

fn start() -> Result<World> {
    let plane = ControlPlane::start_with(&Options { nodes: 2, ..Options::default() })?;
    let belay = Install::of_everything(2).on(&plane, program())?;
    Ok(World { plane, belay })
}

impl World {
    fn mend(&mut self) -> Result<()> {
        self.plane.proxy.set_fault(Fault::None);
        for belay in &mut self.belay.replicas {
            if !belay.process.is_running() {
                belay.process.restart()?;
            }
            belay.wait_until_ready()?;
        }
        self.ask(&[0, 1]);
        self.plane.kubectl(&["delete", "deletionpolicies", "--all"])?.success().map(drop)
    }

    /// From now on the API server calls only these replicas.
    pub fn ask(&self, replicas: &[usize]) {
        let addresses: Vec<_> = replicas.iter().map(|n| self.belay.replicas[*n].listen).collect();
        self.plane.service(NAME, NAME, &addresses).unwrap();
        self.reconnect();
    }

    /// Ends all connections to belay, and waits until the API server has seen
    /// it: no request is lost on one of them.
    pub fn reconnect(&self) {
        self.plane.proxy.cut_open();
        eventually("the end of all connections", LIMIT, || match self.plane.proxy.live() {
            0 => Ok(()),
            live => Err(format!("{live} are open").into()),
        })
        .unwrap();
    }

    /// The output of a kubectl that has to succeed.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).unwrap().success().unwrap()
    }

    /// A delete that has to fail: the refusal.
    pub fn delete_refusal(&self, object: &str, namespace: &str) -> Result<String> {
        self.plane.api().delete(&[object], namespace)?.failure()
    }

    /// Repeats a delete until the refusal has this text. A deleted object is "not found",
    /// which never contains it.
    pub fn refuses_delete(&self, object: &str, namespace: &str, because: &str) {
        eventually(because, LIMIT, || {
            let refusal = self.delete_refusal(object, namespace)?;
            if refusal.contains(because) { Ok(()) } else { Err(refusal.into()) }
        })
        .unwrap();
    }

    /// Waits until only this replica reports that it is the leader, and returns it.
    pub fn leader_but(&self, not: usize) -> usize {
        eventually("another leader", Duration::from_secs(30), || {
            let leader = self.belay.leader()?;
            if leader == not { Err("the same one leads".into()) } else { Ok(leader) }
        })
        .unwrap()
    }

    /// The generations of both webhook configurations, which increase with every change of
    /// their content.
    pub fn registration(&self) -> String {
        let both = ["mutatingwebhookconfiguration/belay", "validatingwebhookconfiguration/belay"];
        let paths = ".metadata.uid .metadata.generation";
        both.map(|one| self.plane.api().field(one, "", paths).unwrap()).join(" ")
    }
}

impl Belay {
    /// The sum of the lines of a metric that have all these words.
    pub fn sum(&self, name: &str, words: &[&str]) -> f64 {
        let text = self.metrics().unwrap();
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && words.iter().all(|word| line.contains(word))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// The content of /readyz?verbose, and whether it is ready.
    pub fn readiness(&self) -> (bool, String) {
        let (code, text) = http_get(self.probes, "/readyz?verbose").unwrap();
        (code == 200, text)
    }
}
