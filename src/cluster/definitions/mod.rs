//! The definitions of belay's own kinds, as an API server has them: brought up
//! to date, and taken out.
//!
//! Helm makes them when it installs the chart and never looks at them again, so
//! an upgrade has to. They are replaced as a whole, on the version that was
//! read: an apply, by whatever manager, would leave what an older definition has
//! and this one does not to whoever wrote it, which nobody would ever take out.

mod apply;
mod delete;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use super::pace::within;
use crate::objects::ApiError;

pub use apply::{Change, apply, refusal};
pub use delete::{Gone, delete};

/// How often it is looked whether the API server has done what it was told.
const LOOK: Duration = Duration::from_millis(250);

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a definition is not as it was to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The API server, or what it asks, says no.
    #[error("{0}")]
    Refused(String),
    /// It was not done, or nobody knows.
    #[error("{0}")]
    Unknown(String),
}

/// Reads a definition, if it is there.
pub async fn stored(
    client: &kube::Client,
    name: &str,
) -> Result<Option<CustomResourceDefinition>, Failed> {
    let read = within(definitions(client).get_opt(name)).await;
    read.map_err(|error| failed("read", name, error))
}

fn definitions(client: &kube::Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

/// What was to be done to which definition, and why it was not.
fn failed(what: &str, name: &str, error: ApiError) -> Failed {
    let told = format!("cannot {what} customresourcedefinition {name}: {error}");
    match error {
        ApiError::Forbidden(_) => Failed::Refused(told),
        _ => Failed::Unknown(told),
    }
}

/// The name of a definition.
pub fn name(definition: &CustomResourceDefinition) -> &str {
    definition.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
