//! Updates and deletes belay's own CRDs.
//!
//! Helm creates CRDs when it installs the chart and never updates them, so an upgrade needs
//! `belay admin crds --apply`. belay replaces the whole CRD if it is still in the version that
//! belay read. A server-side apply would keep removed fields that another field manager owns.

mod apply;
mod delete;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use super::pace::within;
use crate::objects::ApiError;

pub use apply::{Change, apply, refusal};
pub use delete::{Deleted, delete};

/// The interval of reads while belay waits for the API server.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The longest wait until a CRD is served or deleted.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Why an operation on a CRD failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrdError {
    /// The API server or an admission webhook rejected the request.
    #[error("{0}")]
    Refused(String),
    /// The request failed, or its result is unknown.
    #[error("{0}")]
    Unknown(String),
}

pub async fn read(
    client: &kube::Client,
    name: &str,
) -> Result<Option<CustomResourceDefinition>, CrdError> {
    let read = within(crd_api(client).get_opt(name)).await;
    read.map_err(|error| crd_error("read", name, error))
}

fn crd_api(client: &kube::Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn crd_error(verb: &str, name: &str, error: ApiError) -> CrdError {
    let message = format!("cannot {verb} customresourcedefinition {name}: {error}");
    match error {
        ApiError::Forbidden(_) => CrdError::Refused(message),
        _ => CrdError::Unknown(message),
    }
}

pub fn crd_name(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
