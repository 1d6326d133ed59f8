//! Reads the Lease of an installation and writes it with optimistic locking.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};

use super::record::spec_from_lease;
use crate::cluster::pace::within_limit;
use crate::lease::Spec;
use crate::objects::ApiError;

#[derive(Clone)]
pub struct Leases {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// The time limit of one request.
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

    /// Returns an empty Lease if there is none.
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

    /// Writes the Lease if it has not changed since it was read; otherwise returns `None`.
    pub async fn store(&self, lease: &Lease) -> Result<Option<Lease>, ApiError> {
        let parameters = PostParams::default();
        let exists = exists(lease);
        let write = async {
            if exists {
                self.api.replace(&self.name, &parameters, lease).await
            } else {
                self.api.create(&parameters, lease).await
            }
        };
        match within_limit(self.limit, write).await {
            Ok(stored) => Ok(Some(stored)),
            // Another client has changed or created the Lease since the read.
            Err(error) if error.is_conflict() => Ok(None),
            // Another client has deleted the Lease. If a create request fails with 404, the
            // namespace does not exist.
            Err(ApiError::NotFound) if exists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the Lease in the version that was read. Returns whether it existed.
    pub async fn delete(&self, lease: &Lease) -> Result<bool, ApiError> {
        let ObjectMeta { uid, resource_version, .. } = lease.metadata.clone();
        let same = Preconditions { uid, resource_version };
        let parameters = DeleteParams::default().preconditions(same);
        match within_limit(self.limit, self.api.delete(&self.name, &parameters)).await {
            Ok(_) => Ok(true),
            Err(ApiError::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a Lease from [`Leases::read`] exists.
pub fn exists(lease: &Lease) -> bool {
    lease.metadata.resource_version.is_some()
}

/// The spec of a Lease; an empty spec if it does not exist.
pub fn lease_spec(lease: &Lease) -> Spec {
    lease.spec.as_ref().map(spec_from_lease).unwrap_or_default()
}
