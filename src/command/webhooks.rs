//! The two webhook configurations of an installation. Without them, belay gets no requests.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{FailedRead, Object};
use super::place::Installation;
use crate::certs;
use crate::cluster::election::{LeaderInfo, leader};
use crate::cluster::registration::stored::{configuration_kind, kind_name, parse_webhooks};
use crate::cluster::uninstall::installed;
use crate::decide::AdmissionPhase;
use crate::objects::{ApiError, Kinds, ObjectRef, full_name};

/// The kind of the webhook configuration that denies requests.
pub const VALIDATING: &str = kind_name(AdmissionPhase::Validate);

/// The sentence if that configuration does not exist.
const MISSING: &str = "the webhook configurations of belay are missing, so belay refuses \
                           nothing; next: install belay again";

/// The sentence if an uninstall has deleted that configuration and still removes holds.
const UNINSTALLING: &str = "an uninstall of belay is in progress: it removes all holds, and belay \
                                refuses nothing; next: kubectl belay status";

/// The sentence if the CRDs of belay don't exist.
pub const NOT_INSTALLED: &str =
    "belay is not installed in this cluster: the API server does not serve its kinds";

/// The sentence if the CRDs of belay don't exist, and the command that installs belay.
pub fn not_installed_text() -> String {
    format!(
        "{NOT_INSTALLED}; next: helm install belay charts/belay --namespace belay \
         --create-namespace (docs/guides/install.md)"
    )
}

/// The sentence if neither the configurations nor the Lease of belay exist.
pub const UNINSTALLED: &str = "belay is not installed (its CRDs remain), so it denies nothing";

/// What the API server does while no replica answers.
const REFUSES_ALL: &str = "the API server refuses every delete of a kind that a policy names";
const ACCEPTS_ALL: &str =
    "the API server accepts the deletes that policies deny (failurePolicy Ignore)";

/// A webhook configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookConfiguration {
    /// The object.
    pub object: Object,
    /// Whether it exists.
    pub present: bool,
}

/// The webhook configurations of an installation.
#[derive(Debug, Default)]
pub struct Webhooks {
    /// The configurations that could be read.
    pub configurations: Vec<WebhookConfiguration>,
    /// When the certificates of their CAs expire, in seconds since 1970.
    pub ca_expiries: Vec<i64>,
    /// Failed reads of the configurations.
    pub not_read: Vec<FailedRead>,
    /// Whether the API server accepts deletes while no replica answers.
    pub ignores_failures: bool,
    /// The name of the uninstall that has deleted the configurations and still runs.
    pub uninstall: Option<String>,
    /// Whether the Lease does not exist either: belay is not installed.
    pub is_uninstalled: bool,
}

impl Webhooks {
    /// Reads the configurations of this installation.
    pub async fn read(client: &kube::Client, installation: &Installation, now: Timestamp) -> Self {
        let Installation { namespace, name } = installation;
        let read = async |phase| {
            let kind = configuration_kind(phase);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            (kind, api.get_opt(name).await)
        };
        let (validating, mutating) =
            tokio::join!(read(AdmissionPhase::Validate), read(AdmissionPhase::Mutate));
        let mut webhooks = Self::default();
        if let (_, Ok(Some(configuration))) = &validating {
            let hooks = parse_webhooks(configuration.data.get("webhooks")).unwrap_or_default();
            // Only this webhook counts: some others ignore failures in every installation.
            webhooks.ignores_failures =
                hooks.iter().any(|hook| hook.judges_deletes() && hook.ignores_failures());
            for bundle in hooks.iter().filter_map(|hook| hook.bundle()) {
                let certificates = certs::certificates(bundle).unwrap_or_default();
                webhooks.ca_expiries.extend(certificates.iter().filter_map(certs::expiry));
            }
        }
        for (kind, found) in [validating, mutating] {
            webhooks.add(&kind, name, found.map(|object| object.is_some()));
        }
        if webhooks.are_missing() {
            let holder = leader(client, (namespace, name), now).await.ok().flatten();
            webhooks.uninstall =
                holder.filter(LeaderInfo::is_uninstall).map(|holder| holder.replica);
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            let no_configuration = webhooks.configurations.iter().all(|found| !found.present);
            webhooks.is_uninstalled = webhooks.not_read.is_empty()
                && no_configuration
                && matches!(leases.get_metadata_opt(name).await, Ok(None))
                && matches!(installed(client).await, Ok(None));
        }
        webhooks
    }

    fn add(&mut self, kind: &ApiResource, name: &str, present: Result<bool, kube::Error>) {
        match present {
            Ok(present) => {
                let target = ObjectRef::new((&kind.group, &kind.plural), "", name);
                let object = Object::of(&target, &Kinds::default());
                self.configurations.push(WebhookConfiguration { object, present });
            }
            Err(error) => {
                let resource = full_name(&kind.group, &kind.plural);
                self.not_read.push(FailedRead::new(&resource, &ApiError::from(error)));
            }
        }
    }

    /// Whether it is known that both configurations exist.
    pub fn are_present(&self) -> bool {
        self.not_read.is_empty() && self.configurations.iter().all(|found| found.present)
    }

    /// What the API server does while belay is down.
    pub fn effect_of_outage(&self) -> &'static str {
        if self.ignores_failures { ACCEPTS_ALL } else { REFUSES_ALL }
    }

    /// The sentence if no replica is the leader.
    pub fn no_leader_text(&self) -> String {
        let effect = self.effect_of_outage();
        format!("belay has no leader: while it is down, {effect}; next: check that its Pods run")
    }

    /// Whether it is known that the API server sends no DELETE to belay.
    pub fn are_missing(&self) -> bool {
        is_missing(&self.configurations)
    }

    /// Why belay refuses nothing, with the next step; `None` if the configuration that denies
    /// requests may exist.
    pub fn why_missing(&self) -> Option<&'static str> {
        let why = if self.uninstall.is_some() { UNINSTALLING } else { MISSING };
        self.are_missing().then_some(why)
    }
}

/// Whether the configuration that denies requests is known to be missing.
pub fn is_missing(configurations: &[WebhookConfiguration]) -> bool {
    configurations.iter().any(|found| !found.present && found.object.kind == VALIDATING)
}
