//! The two webhook configurations of the installation, without the fields that the leader
//! writes. The command line prints them, and the chart contains the same configurations.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
    ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};

use super::conditions::Condition::{
    self, AnnotationsChange, Changes, HoldRemoved, NoRepeat, NotOrphaning, NotOurs, Orphaning,
    SpecFinalizersChange,
};
use super::kind_set::KindSet;
use crate::decide::AdmissionPhase;
use crate::objects::PROTECT_LABEL;
use crate::policy::{NAME_LABEL, exempt_namespaces};
use crate::webhook::LABELLED;

/// The time-out of the API server. belay's own deadline is shorter, so that the client
/// receives belay's message.
pub const TIMEOUT_SECONDS: i32 = 5;

#[derive(Debug, Clone, Copy)]
pub(crate) struct WebhookTemplate {
    /// Denial messages contain this name.
    pub name: &'static str,
    pub phase: AdmissionPhase,
    /// Whether the API server rejects the request if belay does not answer (failurePolicy Fail).
    fails_closed: bool,
    /// Whether the webhook matches only objects with the label.
    labelled: bool,
    conditions: &'static [Condition],
}

const fn webhook(name: &'static str, phase: AdmissionPhase, fails_closed: bool) -> WebhookTemplate {
    WebhookTemplate { name, phase, fails_closed, labelled: false, conditions: &[] }
}

impl WebhookTemplate {
    const fn labelled(self) -> Self {
        Self { labelled: true, ..self }
    }

    /// Webhooks for labelled objects have their own path, because the API server calls
    /// two webhooks for a labelled object of a kind that a policy names.
    pub(super) fn path(&self) -> String {
        let labelled = if self.labelled { LABELLED } else { "" };
        format!("/{}{labelled}", self.phase.as_str())
    }

    const fn with_conditions(self, conditions: &'static [Condition]) -> Self {
        Self { conditions, ..self }
    }
}

/// All webhooks, in the order of the manifests.
///
/// If belay does not answer, a request passes if the object stays protected: by its hold, or
/// because another webhook decides about a later request. Otherwise the API server rejects it.
pub(crate) const WEBHOOKS: &[WebhookTemplate] = &[
    webhook("hold.belay.dev", AdmissionPhase::Mutate, false)
        .with_conditions(&[HoldRemoved, NotOurs]),
    webhook("label-hold.belay.dev", AdmissionPhase::Mutate, false)
        .labelled()
        .with_conditions(&[HoldRemoved, NotOurs]),
    webhook("delete.belay.dev", AdmissionPhase::Validate, true).with_conditions(&[NoRepeat]),
    webhook("cascade.belay.dev", AdmissionPhase::Validate, false).with_conditions(&[
        NoRepeat,
        NotOrphaning,
        Changes,
    ]),
    // belay is not asked about the dependents again when the collector removes their references.
    webhook("orphan.belay.dev", AdmissionPhase::Validate, true)
        .with_conditions(&[NoRepeat, Orphaning]),
    webhook("update.belay.dev", AdmissionPhase::Validate, true)
        .with_conditions(&[Changes, NotOurs]),
    // The condition of the webhook above compares only belay's own annotations.
    webhook("annotate.belay.dev", AdmissionPhase::Validate, true)
        .with_conditions(&[AnnotationsChange, NotOurs]),
    webhook("finalize.belay.dev", AdmissionPhase::Validate, true)
        .with_conditions(&[SpecFinalizersChange]),
    webhook("evict.belay.dev", AdmissionPhase::Validate, false),
    webhook("label-delete.belay.dev", AdmissionPhase::Validate, true)
        .labelled()
        .with_conditions(&[NoRepeat]),
    webhook("label-update.belay.dev", AdmissionPhase::Validate, true)
        .labelled()
        .with_conditions(&[Changes, NotOurs]),
];

pub(crate) fn webhooks(phase: AdmissionPhase) -> impl Iterator<Item = &'static WebhookTemplate> {
    WEBHOOKS.iter().filter(move |webhook| webhook.phase == phase)
}

/// The address of belay's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Without a path.
    Url(String),
    /// By a Service.
    Service {
        /// belay's own namespace.
        namespace: String,
        /// The name of the Service.
        name: String,
        /// The port of the Service.
        port: i32,
    },
}

/// Both webhook configurations.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookConfigurations {
    /// Called after all mutations.
    pub validating: ValidatingWebhookConfiguration,
    /// Called while webhooks may still change the object.
    pub mutating: MutatingWebhookConfiguration,
}

/// The configurations for a belay with a leader: all webhooks, without rules, CA
/// certificates and path. `account` is the user name of belay's ServiceAccount.
pub fn skeleton(name: &str, address: &Address, account: &str) -> WebhookConfigurations {
    let fill = |webhook: &WebhookTemplate| TemplateFields {
        bundle: None,
        rules: None,
        path: None,
        conditions: webhook.conditions.iter().filter_map(|c| c.render(Some(account))).collect(),
    };
    build(name, address, WEBHOOKS.iter(), fill)
}

/// The complete configurations for a standalone belay, which protects only objects with
/// the label.
pub fn label_only(name: &str, address: &Address, bundle: &[u8]) -> WebhookConfigurations {
    let names = ["label-delete.belay.dev", "label-hold.belay.dev"];
    let webhooks = WEBHOOKS.iter().filter(|webhook| names.contains(&webhook.name));
    let fill = |webhook: &WebhookTemplate| {
        let operation = match webhook.phase {
            AdmissionPhase::Mutate => "CREATE",
            AdmissionPhase::Validate => "DELETE",
        };
        let rules = Some(KindSet::every_kind().rules(operation, ""));
        let bundle = Some(ByteString(bundle.to_vec()));
        TemplateFields { bundle, rules, path: Some(webhook.path()), conditions: Vec::new() }
    };
    build(name, address, webhooks, fill)
}

/// The fields that differ between a template and a complete webhook.
struct TemplateFields {
    bundle: Option<ByteString>,
    rules: Option<Vec<RuleWithOperations>>,
    path: Option<String>,
    conditions: Vec<MatchCondition>,
}

fn build<'e>(
    name: &str,
    address: &Address,
    webhooks: impl Iterator<Item = &'e WebhookTemplate>,
    fill: impl Fn(&WebhookTemplate) -> TemplateFields,
) -> WebhookConfigurations {
    let metadata = || ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let (mut validating, mut mutating) = (Vec::new(), Vec::new());
    for webhook in webhooks {
        let TemplateFields { bundle, rules, path, conditions } = fill(webhook);
        let client_config = client_config(address, bundle, path);
        let conditions = (!conditions.is_empty()).then_some(conditions);
        let failure_policy = Some(if webhook.fails_closed { "Fail" } else { "Ignore" }.to_owned());
        let object_selector = webhook.labelled.then(labelled);
        // The two types differ in one field.
        macro_rules! webhook {
            ($type:ident $(, $field:ident: $value:expr)?) => {
                $type {
                    name: webhook.name.to_owned(),
                    admission_review_versions: vec!["v1".to_owned()],
                    client_config,
                    failure_policy,
                    match_conditions: conditions,
                    match_policy: Some("Equivalent".to_owned()),
                    namespace_selector: Some(outside_system_namespaces(address)),
                    object_selector,
                    rules,
                    side_effects: "NoneOnDryRun".to_owned(),
                    timeout_seconds: Some(TIMEOUT_SECONDS),
                    $($field: $value,)?
                }
            };
        }
        // A webhook that runs later may replace the list of finalizers. Then the API server calls
        // belay again.
        let again = || Some("IfNeeded".to_owned());
        match webhook.phase {
            AdmissionPhase::Validate => validating.push(webhook!(ValidatingWebhook)),
            AdmissionPhase::Mutate => {
                mutating.push(webhook!(MutatingWebhook, reinvocation_policy: again()));
            }
        }
    }
    WebhookConfigurations {
        validating: ValidatingWebhookConfiguration {
            metadata: metadata(),
            webhooks: Some(validating),
        },
        mutating: MutatingWebhookConfiguration { metadata: metadata(), webhooks: Some(mutating) },
    }
}

fn client_config(
    address: &Address,
    bundle: Option<ByteString>,
    path: Option<String>,
) -> WebhookClientConfig {
    let (url, service) = match address {
        Address::Url(base) => (Some(format!("{base}{}", path.unwrap_or_default())), None),
        Address::Service { namespace, name, port } => {
            let service = ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                port: Some(*port),
                path,
            };
            (None, Some(service))
        }
    };
    WebhookClientConfig { ca_bundle: bundle, url, service }
}

fn labelled() -> LabelSelector {
    selector(PROTECT_LABEL, "Exists", Vec::new())
}

fn outside_system_namespaces(address: &Address) -> LabelSelector {
    let own = match address {
        Address::Service { namespace, .. } => Some(namespace.as_str()),
        Address::Url(_) => None,
    };
    let namespaces = exempt_namespaces(own).map(str::to_owned).collect();
    selector(NAME_LABEL, "NotIn", namespaces)
}

fn selector(key: &str, operator: &str, values: Vec<String>) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        }]),
        match_labels: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Address {
        Address::Service { namespace: "belay".to_owned(), name: "belay".to_owned(), port: 443 }
    }

    #[test]
    fn a_skeleton_matches_nothing_and_never_asks_about_belay_itself() {
        let account = "system:serviceaccount:belay:belay";
        let WebhookConfigurations { validating, mutating } = skeleton("belay", &service(), account);
        let (validating, mutating) = (validating.webhooks.unwrap(), mutating.webhooks.unwrap());
        assert_eq!((validating.len(), mutating.len()), (9, 2));
        for webhook in &validating {
            assert_eq!((&webhook.rules, &webhook.client_config.ca_bundle), (&None, &None));
            assert_eq!(webhook.client_config.service.as_ref().unwrap().path, None);
            assert_eq!(webhook.object_selector.is_some(), webhook.name.starts_with("label-"));
            let fails = !["cascade.belay.dev", "evict.belay.dev"].contains(&&*webhook.name);
            assert_eq!(
                webhook.failure_policy.as_deref() == Some("Fail"),
                fails,
                "{}",
                webhook.name
            );
            let conditions = webhook.match_conditions.iter().flatten();
            let skips = conditions.filter(|c| c.expression.contains(account)).count();
            let updates = webhook.name.contains("update") || webhook.name.contains("annotate");
            assert_eq!(skips, usize::from(updates), "{}", webhook.name);
        }
        for webhook in &mutating {
            assert_eq!((&webhook.rules, &webhook.client_config.ca_bundle), (&None, &None));
            assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
            assert_eq!(webhook.match_conditions.iter().flatten().count(), 2);
            let selector = webhook.namespace_selector.clone().unwrap().match_expressions.unwrap();
            let excluded = selector[0].values.clone().unwrap();
            assert_eq!(excluded, ["kube-system", "kube-node-lease", "belay"]);
        }
    }

    #[test]
    fn configurations_for_a_standalone_belay_are_complete() {
        let url = Address::Url("https://127.0.0.1:8443".to_owned());
        let WebhookConfigurations { validating, mutating } = label_only("belay", &url, b"pem");
        let [delete] = &validating.webhooks.unwrap()[..] else { panic!("one webhook") };
        let [hold] = &mutating.webhooks.unwrap()[..] else { panic!("one webhook") };
        assert_eq!(
            (&*delete.name, &*hold.name),
            ("label-delete.belay.dev", "label-hold.belay.dev")
        );
        assert_eq!(
            delete.client_config.url.as_deref(),
            Some("https://127.0.0.1:8443/validate/labelled")
        );
        assert_eq!(hold.client_config.ca_bundle, Some(ByteString(b"pem".to_vec())));
        assert_eq!(delete.rules.as_ref().unwrap()[0].operations, Some(vec!["DELETE".to_owned()]));
        assert_eq!(hold.rules.as_ref().unwrap()[0].operations, Some(vec!["CREATE".to_owned()]));
    }
}
