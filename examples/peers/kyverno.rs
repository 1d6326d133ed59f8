//! Kyverno on a control plane, with a policy that denies DELETEs of labelled ConfigMaps.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::process::Process;
use crate::harness::{ControlPlane, Result, eventually, ports};
use crate::plane::{Peer, delete_rule, has_no_label, namespace_selector};

const LIMIT: Duration = Duration::from_secs(60);

/// Kyverno's own namespace.
const SYSTEM: &str = "kyverno";

const SERVICE: &str = "kyverno-svc";

/// Starts Kyverno's admission controller with a policy for this namespace. It creates its
/// certificates and registers its webhooks itself.
pub fn start(plane: &ControlPlane, peer: Peer<'_>, namespace: &str) -> Result<Process> {
    peer.prepare(plane, SYSTEM)?;
    for name in ["kyverno", "kyverno-metrics"] {
        plane.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": SYSTEM}}))?;
    }
    // Kyverno reads its own Deployment.
    let labels = json!({"app": "kyverno"});
    plane.apply(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "kyverno", "namespace": SYSTEM}, "spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "kyverno", "image": "kyverno"}]}}}}))?;
    let [port, metrics, runtime_metrics] = ports::free()?;
    let arguments = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        "--webhookServerHost=127.0.0.1".to_owned(),
        format!("--webhookServerPort={port}"),
        format!("--metricsPort={metrics}"),
        format!("--controllerRuntimeMetricsAddress=127.0.0.1:{runtime_metrics}"),
        "--disableMetrics=true".to_owned(),
        format!("--caSecretName={SERVICE}.{SYSTEM}.svc.kyverno-tls-ca"),
        format!("--tlsSecretName={SERVICE}.{SYSTEM}.svc.kyverno-tls-pair"),
        format!("--backgroundServiceAccountName=system:serviceaccount:{SYSTEM}:background"),
        format!("--reportsServiceAccountName=system:serviceaccount:{SYSTEM}:reports"),
        "--admissionReports=false".to_owned(),
    ];
    let env = [
        ("KYVERNO_NAMESPACE", SYSTEM),
        ("KYVERNO_SERVICEACCOUNT_NAME", "kyverno"),
        ("KYVERNO_ROLE_NAME", "kyverno"),
        ("KYVERNO_DEPLOYMENT", "kyverno"),
        ("KYVERNO_POD_NAME", "kyverno"),
        ("KYVERNO_SVC", SERVICE),
        ("INIT_CONFIG", "kyverno"),
        ("METRICS_CONFIG", "kyverno-metrics"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    plane.service(SYSTEM, SERVICE, &[([127, 0, 0, 1], port).into()])?;
    let policy = policy(namespace);
    eventually("the kind of the policy", LIMIT, || plane.apply(&policy))?;
    Process::start_with_env("kyverno", peer.program, &arguments, &env, &plane.logs())
}

fn policy(namespace: &str) -> Value {
    json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy",
        "metadata": {"name": "keep"},
        "spec": {
            "validationActions": ["Deny"],
            "evaluation": {"background": {"enabled": false}},
            "matchConstraints": {
                "resourceRules": [delete_rule()],
                "namespaceSelector": namespace_selector(namespace),
            },
            "validations": [{"expression": has_no_label(), "message": "the object has the label"}],
        },
    })
}
