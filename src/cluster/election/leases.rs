//! The Lease of an installation, read and written upon what was read.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::record::of_lease;
use crate::cluster::pace::{timed, within_limit};
use crate::lease::Spec;
use crate::objects::ApiError;

/// The Lease of one installation.
#[derive(Clone)]
pub struct Leases {
    pub api: Api<Lease>,
    namespace: String,
    pub name: String,
    /// How long one request may take.
    limit: Duration,
}

impl Leases {
    pub fn new(client: &kube::Client, (namespace, name): (&str, &str), limit: Duration) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            limit,
        }
    }

    /// The Lease, an empty one if there is none.
    pub async fn read(&self) -> Result<Lease, ApiError> {
        let read = self.api.get_opt(&self.name);
        let found = within_limit(self.limit, read).await?;
        Ok(found.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        }))
    }

    /// Writes on the version that was read; none: that is not the latest.
    pub async fn store(&self, lease: &Lease) -> Result<Option<Lease>, ApiError> {
        let parameters = PostParams::default();
        let is_there = is_there(lease);
        let write = async {
            if is_there {
                self.api.replace(&self.name, &parameters, lease).await
            } else {
                self.api.create(&parameters, lease).await
            }
        };
        match timed(self.limit, write).await? {
            Ok(stored) => Ok(Some(stored)),
            // It was changed or made since it was read.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            // Or deleted. What cannot even be made has no namespace.
            Err(kube::Error::Api(status)) if status.code == 404 && is_there => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether it was read, and is not the empty one.
pub fn is_there(lease: &Lease) -> bool {
    lease.metadata.resource_version.is_some()
}

/// What a Lease says; one that is not there says nothing.
pub fn said(lease: &Lease) -> Spec {
    lease.spec.as_ref().map(of_lease).unwrap_or_default()
}
