//! The two webhook configurations of an installation. Without them, belay gets no requests.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{FailedRead, Object};
use crate::certs;
use crate::objects::{ApiError, Kinds, ObjectRef, full_name};

/// The kind of the webhook configuration that denies requests.
pub const VALIDATING: &str = "ValidatingWebhookConfiguration";

/// The sentence where that configuration does not exist.
pub const MISSING: &str = "the webhook configurations of belay are missing, so belay refuses \
                           nothing; next: install belay again";

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
    /// Those that could be read.
    pub configurations: Vec<WebhookConfiguration>,
    /// When the certificates of their CAs expire, in seconds since 1970.
    pub ca_expiries: Vec<i64>,
    /// Failed reads of them.
    pub not_read: Vec<FailedRead>,
}

impl Webhooks {
    /// Reads the configurations with this name.
    pub async fn read(client: &kube::Client, name: &str) -> Self {
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let (validating, mutating) = tokio::join!(validating.get_opt(name), mutating.get_opt(name));
        let mut webhooks = Self::default();
        let hooks = validating.as_ref().ok().and_then(Option::as_ref);
        let hooks =
            hooks.and_then(|configuration| configuration.webhooks.as_ref()).into_iter().flatten();
        for bundle in hooks.filter_map(|hook| hook.client_config.ca_bundle.as_ref()) {
            let certificates = certs::certificates(&bundle.0).unwrap_or_default();
            webhooks.ca_expiries.extend(certificates.iter().filter_map(certs::expiry));
        }
        webhooks.add(VALIDATING, name, validating.map(|object| object.is_some()));
        let kind = "MutatingWebhookConfiguration";
        webhooks.add(kind, name, mutating.map(|object| object.is_some()));
        webhooks
    }

    fn add(&mut self, kind: &str, name: &str, present: Result<bool, kube::Error>) {
        let resource = format!("{}s", kind.to_lowercase());
        let target = ObjectRef::new(("admissionregistration.k8s.io", &resource), "", name);
        match present {
            Ok(present) => {
                let object = Object::of(&target, &Kinds::default());
                let object = Object { kind: kind.to_owned(), ..object };
                self.configurations.push(WebhookConfiguration { object, present });
            }
            Err(error) => {
                let resource = full_name(&target.group, &target.resource);
                self.not_read.push(FailedRead::new(&resource, &ApiError::from(error)));
            }
        }
    }

    /// Whether it is known that the API server sends no DELETE to belay.
    pub fn are_missing(&self) -> bool {
        is_missing(&self.configurations)
    }
}

/// Whether the configuration that denies requests is known to be missing.
pub fn is_missing(configurations: &[WebhookConfiguration]) -> bool {
    configurations.iter().any(|one| !one.present && one.object.kind == VALIDATING)
}
