//! Whether the server of a kind supports dry runs.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::objects::{ApiError, KindInfo};

/// The groups that only the API server itself serves, and whose documents are large.
const BUILT_IN: [&str; 5] = ["", "apps", "autoscaling", "batch", "policy"];

/// Whether the server of each kind supports dry runs. A command asks once about each kind.
#[derive(Debug, Clone, Default)]
pub struct DryRunSupport(Arc<Mutex<HashMap<String, Arc<OnceCell<bool>>>>>);

impl DryRunSupport {
    pub(super) async fn is_supported(
        &self,
        client: &kube::Client,
        info: &KindInfo,
    ) -> Result<bool, ApiError> {
        let known = self.0.lock().entry(info.full_name()).or_default().clone();
        known.get_or_try_init(|| supports_dry_run(client, info)).await.copied()
    }
}

/// Whether the server of a kind documents dry runs of a DELETE. An aggregated API may ignore
/// the option and delete the object.
async fn supports_dry_run(client: &kube::Client, info: &KindInfo) -> Result<bool, ApiError> {
    if BUILT_IN.contains(&info.group.as_str()) {
        return Ok(true);
    }
    let version = info.versions.first().map_or("", String::as_str);
    let prefix = format!("/apis/{}/{version}", info.group);
    let request = http::Request::get(format!("/openapi/v3{prefix}")).body(Vec::new());
    let request = request.map_err(|error| ApiError::Other(error.to_string()))?;
    let document: Value = match client.request(request).await.map_err(ApiError::from) {
        Ok(document) => document,
        // The server has no document, or the CRD of the kind is seconds old.
        Err(ApiError::NotFound) => return Ok(false),
        Err(error) => return Err(error),
    };
    let place = if info.namespaced { "/namespaces/{namespace}" } else { "" };
    let path = format!("{prefix}{place}/{}/{{name}}", info.resource);
    let parameters = document["paths"][&path]["delete"]["parameters"].as_array();
    Ok(parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "dryRun")))
}
