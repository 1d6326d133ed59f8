//! Reviews that a test posts to the port of a replica, past the API server.

use std::net::SocketAddr;

use base64::Engine as _;
use serde_json::{Value, json};

use super::client::Client;
use super::install::NAME;
use super::{ControlPlane, Result};

/// The path that the API server uses for reviews of this webhook
/// configuration, which is `/validate` or `/mutate` below a secret.
pub fn registered_path(plane: &ControlPlane, kind: &str) -> Result<String> {
    let path = "jsonpath={.webhooks[0].clientConfig.service.path}";
    plane.kubectl(&["get", kind, NAME, "-o", path])?.success()
}

/// A client that trusts what the API server trusts. It has no client
/// certificate unless a test gives it one.
pub fn client(plane: &ControlPlane, address: SocketAddr) -> Result<Client> {
    let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    let bundle = plane.kubectl(&["get", "validatingwebhookconfiguration", NAME, "-o", path])?;
    let bundle = base64::engine::general_purpose::STANDARD.decode(bundle.success()?)?;
    let file = plane.folder().join(format!("registered-{}.crt", address.port()));
    std::fs::write(&file, bundle)?;
    Ok(Client::new(address, &file).for_name(&format!("{NAME}.{NAME}.svc")))
}

/// The review of a DELETE of this object, as the API server would send it. The
/// resource is a group and a plural.
pub fn delete_review(
    (group, resource): (&str, &str),
    user: &str,
    groups: &[&str],
    object: &Value,
) -> String {
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000001",
            "kind": {"group": group, "version": "v1", "kind": object["kind"]},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "name": metadata("name"),
            "namespace": metadata("namespace"),
            "operation": "DELETE",
            "userInfo": {"username": user, "groups": groups},
            "object": null,
            "oldObject": object,
            "dryRun": false,
            "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
    .to_string()
}
