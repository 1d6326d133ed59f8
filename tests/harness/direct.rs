//! Reviews that a test posts to the port of a replica, past the API server.

use std::net::SocketAddr;

use base64::Engine as _;
use serde_json::{Value, json};

use super::client::Client;
use super::install::NAME;
use super::{ControlPlane, Result};

/// The path of the API server's reviews for this webhook configuration: `/validate` or
/// `/mutate` below a secret.
pub fn registered_path(plane: &ControlPlane, kind: &str) -> Result<String> {
    let path = ".webhooks[0].clientConfig.service.path";
    plane.api().field(&format!("{kind}/{NAME}"), "", path)
}

/// A client with the same trusted CAs as the API server. It has no client certificate
/// unless a test gives it one.
pub fn client(plane: &ControlPlane, address: SocketAddr) -> Result<Client> {
    let object = format!("validatingwebhookconfiguration/{NAME}");
    let bundle = plane.api().field(&object, "", ".webhooks[0].clientConfig.caBundle")?;
    let bundle = base64::engine::general_purpose::STANDARD.decode(bundle)?;
    Ok(Client::trusting(address, &bundle).for_name(&format!("{NAME}.{NAME}.svc")))
}

/// The review of a DELETE of this object, as the API server would send it. The
/// resource is a group and a plural.
pub fn delete_review(
    resource: (&str, &str),
    user: &str,
    groups: &[&str],
    object: &Value,
) -> String {
    review(resource, "DELETE", user, groups, (object, &Value::Null))
}

/// The review of an operation with this old and new version of an object.
pub fn review(
    (group, resource): (&str, &str),
    operation: &str,
    user: &str,
    groups: &[&str],
    (old, new): (&Value, &Value),
) -> String {
    let metadata = |field: &str| old["metadata"][field].as_str().unwrap_or_default();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-0000-4000-8000-000000000001",
            "kind": {"group": group, "version": "v1", "kind": old["kind"]},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "name": metadata("name"),
            "namespace": metadata("namespace"),
            "operation": operation,
            "userInfo": {"username": user, "groups": groups},
            "object": new,
            "oldObject": old,
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1"},
        },
    })
    .to_string()
}
