//! Each replica reports the certificate that it serves: it renews a Lease of its own that
//! contains the serial number.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::LIMIT;
use crate::cluster::api::MANAGER;
use crate::cluster::context::Context;
use crate::cluster::pace::{Backoff, jittered, within_limit};
use crate::objects::ApiError;
use crate::timing;

/// The label of these Leases; its value is the name of the installation.
const LABEL: &str = "belay.dev/replica";
/// The annotation with the serial number of the served certificate.
const CERTIFICATE: &str = "belay.dev/certificate";

/// The Leases of the replicas.
#[derive(Clone)]
pub struct Replicas {
    context: Context,
    leases: Api<Lease>,
}

impl Replicas {
    pub fn new(context: &Context) -> Self {
        let leases = Api::namespaced(context.client.clone(), &context.settings.namespace);
        Self { context: context.clone(), leases }
    }

    fn timing(&self) -> &timing::Certificates {
        &self.context.settings.timing.certificates
    }

    fn own_name(&self) -> String {
        let settings = &self.context.settings;
        format!("{}-replica-{}", settings.name, settings.replica)
    }

    /// Reports the served certificate, immediately after a change. Runs until the future
    /// is dropped.
    pub async fn report(&self, mut serial: watch::Receiver<Option<String>>) {
        let mut backoff = Backoff::new(Duration::from_secs(1), self.timing().retry);
        loop {
            let now_served = serial.borrow_and_update().clone();
            let wait = match now_served {
                None => Duration::MAX,
                Some(serial) => match self.write(&serial).await {
                    Ok(()) => {
                        backoff.record_success();
                        jittered(self.timing().report)
                    }
                    Err(error) => backoff.fail(|| {
                        tracing::error!(
                            %error,
                            lease = self.own_name(),
                            "this replica cannot report which certificate it serves; a \
                             rotation may not wait for it; check that belay's account may \
                             patch Leases in its own namespace"
                        );
                    }),
                },
            };
            tokio::select! {
                changed = serial.changed() => if changed.is_err() { return },
                () = sleep(wait) => {}
            }
        }
    }

    async fn write(&self, serial: &str) -> Result<(), ApiError> {
        let Context { settings, .. } = &self.context;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.own_name(),
                "labels": {LABEL: settings.name},
                "annotations": {CERTIFICATE: serial},
            },
            "spec": {
                "holderIdentity": settings.replica,
                "leaseDurationSeconds": self.timing().gone.as_secs(),
                "renewTime": MicroTime(Timestamp::now()),
            },
        });
        let parameters = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&lease);
        let name = self.own_name();
        let write = self.leases.patch(&name, &parameters, &patch);
        within_limit(LIMIT, write).await.map(drop)
    }

    /// Deletes the Lease of this replica, because it no longer serves.
    pub async fn leave(&self) {
        let (name, parameters) = (self.own_name(), DeleteParams::default());
        let delete = self.leases.delete(&name, &parameters);
        match within_limit(super::LAST_REQUEST_LIMIT, delete).await {
            Ok(_) | Err(ApiError::NotFound) => {}
            // Other replicas ignore a Lease that is not renewed.
            Err(error) => tracing::debug!(%error, lease = name, "not deleted"),
        }
    }

    /// The serial number of the certificate that each live replica serves.
    pub async fn served(&self) -> Result<Vec<String>, ApiError> {
        let now = Timestamp::now();
        let (leases, gone) = (self.list().await?, self.timing().gone);
        Ok(leases.iter().filter(|lease| !is_silent(lease, gone, now)).map(serial).collect())
    }

    /// Deletes the Leases of replicas that stopped long ago, while this replica is the
    /// leader. Failures are retried later.
    pub async fn sweep(&self) {
        let signals = &self.context.signals;
        signals.while_leading(|| self.sweep_regularly(), std::future::pending).await;
    }

    async fn sweep_regularly(&self) {
        loop {
            sleep(jittered(self.timing().sweep)).await;
            let leases = self.list().await.unwrap_or_else(|error| {
                tracing::debug!(%error, "the replicas' Leases cannot be listed");
                Vec::new()
            });
            let now = Timestamp::now();
            let forgotten = self.timing().forgotten;
            for lease in leases.iter().filter(|lease| is_silent(lease, forgotten, now)) {
                self.delete(lease).await;
            }
        }
    }

    async fn list(&self) -> Result<Vec<Lease>, ApiError> {
        let labels = label_selector(&self.context.settings.name);
        let parameters = ListParams::default().labels(&labels);
        let list = self.leases.list(&parameters);
        Ok(within_limit(LIMIT, list).await?.items)
    }

    async fn delete(&self, lease: &Lease) {
        let name = lease.metadata.name.as_deref().unwrap_or_default();
        // The Lease stays if its replica has renewed it meanwhile.
        let version = lease.metadata.resource_version.clone();
        let only = Preconditions { uid: lease.metadata.uid.clone(), resource_version: version };
        let parameters = DeleteParams::default().preconditions(only);
        if let Ok(Err(error)) = timeout(LIMIT, self.leases.delete(name, &parameters)).await {
            tracing::debug!(%error, lease = name, "a replica's Lease is not deleted");
        }
    }
}

/// The label selector of the replicas' Leases of an installation.
pub fn label_selector(name: &str) -> String {
    format!("{LABEL}={name}")
}

/// Whether the replica of this Lease runs, that is, whether it renewed the Lease in time.
/// A replica that was only late reports again.
pub fn is_running(lease: &Lease, due: Duration, now: Timestamp) -> bool {
    !is_silent(lease, due, now)
}

fn serial(lease: &Lease) -> String {
    let annotations = lease.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(CERTIFICATE)).cloned().unwrap_or_default()
}

/// Whether a replica has not renewed its Lease for this long.
fn is_silent(lease: &Lease, limit: Duration, now: Timestamp) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    renewed.is_none_or(|renewed| now.duration_since(renewed.0) > limit)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::*;

    #[test]
    fn a_replica_counts_as_gone_a_minute_after_its_last_renewal() {
        let now = Timestamp::from_second(1_767_268_800).unwrap();
        let lease = |seconds| Lease {
            spec: Some(LeaseSpec {
                renew_time: Some(MicroTime(now - SignedDuration::from_secs(seconds))),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let timing::Certificates { gone, forgotten, .. } = timing::Timing::default().certificates;
        assert!(!is_silent(&lease(60), gone, now));
        assert!(is_silent(&lease(61), gone, now));
        assert!(!is_silent(&lease(61), forgotten, now));
        assert!(is_silent(&lease(601), forgotten, now));
        assert!(is_silent(&Lease::default(), forgotten, now));
        // A replica whose clock is ahead still counts as running.
        assert!(!is_silent(&lease(-30), gone, now));
    }
}
