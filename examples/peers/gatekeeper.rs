//! Gatekeeper on a control plane, with a constraint that denies DELETEs of labelled ConfigMaps.

use std::time::Duration;

use belay::certs::make_files;
use serde_json::{Value, json};

use crate::harness::process::Process;
use crate::harness::{ControlPlane, Result, eventually, ports};
use crate::plane::{Peer, delete_rule, namespace_selector};
use crate::reviews::KEEP_LABEL;

const LIMIT: Duration = Duration::from_secs(120);

/// Gatekeeper's own namespace.
const SYSTEM: &str = "gatekeeper-system";

const SERVICE: &str = "gatekeeper-webhook-service";

/// Decides by the label of the deleted object.
const REGO: &str = r#"package keep
violation[{"msg": msg}] {
  input.review.operation == "DELETE"
  input.review.oldObject.metadata.labels[input.parameters.label]
  msg := sprintf("%v has label %v", [input.review.name, input.parameters.label])
}
"#;

/// Starts Gatekeeper's webhook, which the API server asks about DELETEs in this namespace.
pub fn start(plane: &ControlPlane, peer: Peer<'_>, namespace: &str) -> Result<Process> {
    peer.prepare(plane, SYSTEM)?;
    // Gatekeeper reads its own Pod.
    plane.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata":
        {"name": "gatekeeper", "namespace": SYSTEM}, "spec":
        {"containers": [{"name": "manager", "image": "gatekeeper"}]}}))?;
    let folder = plane.folder().join("gatekeeper");
    let certificates = make_files(&folder, &[format!("{SERVICE}.{SYSTEM}.svc")], 1)?;
    let [port, health] = ports::free()?;
    let arguments = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        format!("--port={port}"),
        "--host=127.0.0.1".to_owned(),
        format!("--health-addr=127.0.0.1:{health}"),
        format!("--cert-dir={}", folder.display()),
        "--disable-cert-rotation".to_owned(),
        "--operation=webhook".to_owned(),
        // Creates the CRDs of the templates.
        "--operation=generate".to_owned(),
        "--log-level=ERROR".to_owned(),
    ];
    let env = [("POD_NAMESPACE", SYSTEM), ("POD_NAME", "gatekeeper")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let process =
        Process::start_with_env("gatekeeper", peer.program, &arguments, &env, &plane.logs())?;
    plane.service(SYSTEM, SERVICE, &[([127, 0, 0, 1], port).into()])?;
    plane.apply(&template())?;
    let constraint = constraint();
    // Gatekeeper creates the CRD of the constraint.
    eventually("the kind of the constraint", LIMIT, || plane.apply(&constraint))?;
    let ca = std::fs::read(certificates.ca_cert)?;
    plane.apply(&webhook(&ca, namespace))?;
    Ok(process)
}

fn template() -> Value {
    json!({
        "apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate",
        "metadata": {"name": "keep"},
        "spec": {
            "crd": {"spec": {
                "names": {"kind": "Keep"},
                "validation": {"openAPIV3Schema": {
                    "type": "object", "properties": {"label": {"type": "string"}},
                }},
            }},
            "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": REGO}],
        },
    })
}

fn constraint() -> Value {
    json!({
        "apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Keep",
        "metadata": {"name": "keep"},
        "spec": {
            "match": {"kinds": [{"apiGroups": [""], "kinds": ["ConfigMap"]}]},
            "parameters": {"label": KEEP_LABEL},
        },
    })
}

fn webhook(ca: &[u8], namespace: &str) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gatekeeper"},
        "webhooks": [{
            "name": "validation.gatekeeper.sh", "sideEffects": "None", "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"], "matchPolicy": "Exact",
            "clientConfig": {"caBundle": ca, "service":
                {"name": SERVICE, "namespace": SYSTEM, "path": "/v1/admit"}},
            "namespaceSelector": namespace_selector(namespace),
            "rules": [delete_rule()],
        }],
    })
}
