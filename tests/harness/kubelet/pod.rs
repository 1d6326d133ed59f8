//! A Pod that runs here: its process, its probes, its status, its exit.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::Replica;
use super::container::{Container, HttpProbe};
use crate::harness::Result;
use crate::harness::belay::http_get;
use crate::harness::process::Process;

/// The interval of probes. A real kubelet probes every few seconds, which is too long for a
/// test.
const PROBE: Duration = Duration::from_millis(200);

/// The process of a Pod on this machine.
pub(super) struct Local {
    name: String,
    pub(super) namespace: String,
    pub(super) address: String,
    pub(super) container: Container,
    process: Process,
    started: jiff::Timestamp,
    restarts: u32,
    /// Its exit code, until it is restarted.
    code: Option<i32>,
    /// The final state of the container in the status, if it ended.
    final_state: Option<Value>,
    ready: bool,
    /// How often in a row the liveness probe has failed.
    failures: u32,
    /// The time of the last probes.
    probed: Option<Instant>,
    /// The time of the SIGTERM.
    term_sent: Option<Instant>,
    /// The status that was reported last.
    reported: Option<Value>,
}

impl Local {
    pub(super) fn start(
        pod: &Pod,
        container: Container,
        address: String,
        logs: &Path,
    ) -> Result<Self> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let process = Process::start_with_env(
            &name,
            &container.program,
            &container.args,
            &container.env,
            logs,
        )?;
        Ok(Self {
            name,
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            address,
            container,
            process,
            started: jiff::Timestamp::now(),
            restarts: 0,
            code: None,
            final_state: None,
            ready: false,
            failures: 0,
            probed: None,
            term_sent: None,
            reported: None,
        })
    }

    /// The facts for a test, if it serves.
    pub(super) fn replica(&self) -> Option<Replica> {
        let mut ports = self.container.ports.iter();
        // In the order of their numbers in the container: 8081, 8443.
        let (probes, listen) = (*ports.next()?.1, *ports.next()?.1);
        Some(Replica { name: self.name.clone(), listen, probes, ready: self.ready })
    }

    /// One pass: checks whether it has ended, is ready, or must end.
    pub(super) async fn update(&mut self, client: &Client, pod: &Pod) -> Result<()> {
        if self.code.is_none() && !self.process.is_running() {
            self.code = Some(self.process.wait_for_exit(Duration::ZERO).unwrap_or(-1));
        }
        let code = self.code;
        if pod.metadata.deletion_timestamp.is_some() {
            return self.terminate(client, pod, code).await;
        }
        if let Some(code) = code {
            return self.handle_exit(client, pod, code).await;
        }
        for mount in &mut self.container.mounts {
            mount.update(client).await?;
        }
        self.probe()?;
        let state = json!({"running": {"startedAt": self.started}});
        self.report_status(client, "Running", state).await
    }

    fn probe(&mut self) -> Result<()> {
        if self.probed.is_some_and(|probed| probed.elapsed() < PROBE) {
            return Ok(());
        }
        self.probed = Some(Instant::now());
        let succeeds = |probe: &HttpProbe| {
            http_get(probe.address, &probe.path).is_ok_and(|(code, _)| (200..400).contains(&code))
        };
        self.ready = self.container.readiness.as_ref().is_none_or(succeeds);
        if let Some(liveness) = &self.container.liveness {
            self.failures = if succeeds(liveness) { 0 } else { self.failures + 1 };
            // As patient as a real kubelet, whose probes are seconds apart.
            if self.failures > liveness.failure_threshold * 25 {
                self.failures = 0;
                self.process.kill();
            }
        }
        Ok(())
    }

    /// What a kubelet does when a container has ended without a request.
    async fn handle_exit(&mut self, client: &Client, pod: &Pod, code: i32) -> Result<()> {
        let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let restarts = match policy {
            Some("Never") => false,
            Some("OnFailure") => code != 0,
            _ => true,
        };
        self.ready = false;
        if restarts {
            // A container that crashes at once must not use a whole core.
            let pause = jiff::Timestamp::now().duration_since(self.started);
            if pause < jiff::SignedDuration::from_secs(1) {
                return Ok(());
            }
            eprintln!("kubelet: {} ended with {code} and is started again", self.name);
            self.restarts += 1;
            self.code = None;
            self.started = jiff::Timestamp::now();
            return self.process.restart();
        }
        let state = match &self.final_state {
            Some(state) => state.clone(),
            None => {
                let log = self.process.log();
                let last = log.lines().last().unwrap_or_default();
                let tail: String = last.chars().take(1000).collect();
                json!({"terminated": {"exitCode": code, "startedAt": self.started,
                    "finishedAt": jiff::Timestamp::now(), "message": tail,
                    "reason": if code == 0 { "Completed" } else { "Error" }}})
            }
        };
        self.final_state = Some(state.clone());
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.report_status(client, phase, state).await
    }

    /// Asks it to end, waits for the grace period, and reports its end.
    async fn terminate(&mut self, client: &Client, pod: &Pod, code: Option<i32>) -> Result<()> {
        if code.is_some() {
            return forget(client, pod).await;
        }
        let Some(term_sent) = self.term_sent else {
            self.term_sent = Some(Instant::now());
            return self.process.signal(Signal::TERM);
        };
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30).unsigned_abs();
        if term_sent.elapsed() > Duration::from_secs(grace) {
            self.process.kill();
        }
        self.probe()
    }

    async fn report_status(&mut self, client: &Client, phase: &str, state: Value) -> Result<()> {
        let ready = if self.ready { "True" } else { "False" };
        let container = &self.container;
        let status = json!({
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self.started,
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "ContainersReady", "status": ready},
                {"type": "Ready", "status": ready},
            ],
            "containerStatuses": [{
                "name": container.name, "image": container.image, "imageID": container.image,
                "ready": self.ready, "started": phase == "Running",
                "restartCount": self.restarts, "state": state,
            }],
        });
        if self.reported.as_ref() == Some(&status) {
            return Ok(());
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let patch = Patch::Strategic(json!({"status": status}));
        pods.patch_status(&self.name, &PatchParams::default(), &patch).await?;
        self.reported = Some(status);
        Ok(())
    }
}

/// Deletes a Pod without running containers, as a kubelet does at the end.
pub(super) async fn forget(client: &Client, pod: &Pod) -> Result<()> {
    let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else {
        return Ok(());
    };
    let preconditions =
        Some(Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() });
    let now =
        DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    match Api::<Pod>::namespaced(client.clone(), namespace).delete(name, &now).await {
        Ok(_) => Ok(()),
        // The Pod may be deleted or replaced by one with the same name.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
