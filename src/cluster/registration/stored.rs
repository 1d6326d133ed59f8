//! The webhook configurations as the API server stores them.

use json_patch::PatchOperation;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::{ByteString, Resource as _};
use kube::core::ApiResource;
use serde::Deserialize;
use serde_json::Value;

use super::manifests::{WEBHOOKS, WebhookTemplate, webhooks};
use crate::decide::AdmissionPhase;
use crate::objects::operations::add;

/// The name of the kind whose webhooks are called in this phase.
pub const fn kind_name(phase: AdmissionPhase) -> &'static str {
    match phase {
        AdmissionPhase::Mutate => MutatingWebhookConfiguration::KIND,
        AdmissionPhase::Validate => ValidatingWebhookConfiguration::KIND,
    }
}

/// The kind whose webhooks are called in this phase.
pub fn configuration_kind(phase: AdmissionPhase) -> ApiResource {
    match phase {
        AdmissionPhase::Mutate => ApiResource::erase::<MutatingWebhookConfiguration>(&()),
        AdmissionPhase::Validate => ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
    }
}

/// A webhook as the API server stores it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredWebhook {
    pub(super) name: String,
    pub(super) rules: Option<Vec<RuleWithOperations>>,
    #[serde(default)]
    pub(super) client_config: ClientConfig,
    pub(super) failure_policy: Option<String>,
    pub(super) match_policy: Option<String>,
    pub(super) match_conditions: Option<Vec<MatchCondition>>,
    pub(super) namespace_selector: Option<LabelSelector>,
    pub(super) object_selector: Option<LabelSelector>,
    pub(super) side_effects: Option<String>,
    pub(super) timeout_seconds: Option<i32>,
}

/// The address of the webhook's server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientConfig {
    ca_bundle: Option<ByteString>,
    pub(super) url: Option<String>,
    pub(super) service: Option<ServiceReference>,
}

impl ClientConfig {
    /// Splits the URL into the part before the path and the path. `None` if there is no
    /// path.
    fn split_url(&self) -> Option<(&str, &str)> {
        let url = self.url.as_deref()?;
        let host = url.find("://")? + "://".len();
        let path = url[host..].find('/').map_or(url.len(), |slash| host + slash);
        Some(url.split_at(path))
    }

    /// The path of requests to this webhook.
    pub(super) fn path(&self) -> Option<&str> {
        match &self.service {
            Some(service) => service.path.as_deref(),
            None => self.split_url().map(|(_, path)| path),
        }
    }

    /// The operation that sets the path of the webhook at this index.
    pub(super) fn set_path(&self, index: &str, path: String) -> Option<PatchOperation> {
        if self.service.is_some() {
            return Some(add(&["webhooks", index, "clientConfig", "service", "path"], path));
        }
        let (base, _) = self.split_url()?;
        Some(add(&["webhooks", index, "clientConfig", "url"], format!("{base}{path}")))
    }
}

/// Parses the field `webhooks` of a configuration.
pub fn parse_webhooks(webhooks: Option<&Value>) -> Result<Vec<StoredWebhook>, serde_json::Error> {
    webhooks.map_or(Ok(Vec::new()), |webhooks| {
        Option::deserialize(webhooks).map(Option::unwrap_or_default)
    })
}

impl StoredWebhook {
    /// The template of this webhook, if it is one of belay's.
    pub(super) fn template(&self, phase: AdmissionPhase) -> Option<&'static WebhookTemplate> {
        webhooks(phase).find(|webhook| webhook.name == self.name)
    }

    /// Whether belay has a webhook of this name.
    pub fn is_of_belay(&self) -> bool {
        WEBHOOKS.iter().any(|known| known.name == self.name)
    }

    /// The namespace of the webhook's Service.
    pub fn namespace(&self) -> Option<String> {
        self.client_config.service.as_ref().map(|service| service.namespace.clone())
    }

    /// Whether the API server asks this webhook about the DELETEs of all objects that policies
    /// protect.
    pub fn judges_deletes(&self) -> bool {
        self.name == "delete.belay.dev"
    }

    /// Whether the API server accepts requests while no replica answers.
    pub fn ignores_failures(&self) -> bool {
        self.failure_policy.as_deref() == Some("Ignore")
    }

    /// The CA certificates, PEM.
    pub fn bundle(&self) -> Option<&[u8]> {
        self.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice())
    }
}
