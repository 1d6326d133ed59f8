//! Finds webhooks that differ from the manifests of this version, apart from the fields that
//! belay writes.
//!
//! belay reports the differing fields and does not write them, because they belong to the manifests
//! of the installation. It compares neither the path, which the leader writes, nor the port, which
//! only the installation knows.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, ServiceReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::manifests::{Address, skeleton};
use super::namespaces;
use super::rules::Rules;
use super::stored::{StoredWebhook, parse_webhooks};
use crate::cluster::Settings;
use crate::decide::AdmissionPhase;

/// The webhooks of one configuration that differ from the manifests.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The webhooks of the manifests, for the account with this name.
    expected: Option<(String, Vec<StoredWebhook>)>,
    found: Vec<String>,
}

impl Changes {
    /// The differing webhooks, each as a text with its differing fields.
    pub(super) fn found(&self) -> &[String] {
        &self.found
    }

    /// Compares the webhooks with the manifests of this version. Returns whether the result has changed.
    /// `account` is the user name of belay's ServiceAccount.
    pub(super) fn compare(
        &mut self,
        settings: &Settings,
        (phase, account): (AdmissionPhase, &str),
        now: &[StoredWebhook],
        rules: &Rules,
    ) -> bool {
        if self.expected.as_ref().is_none_or(|(name, _)| name != account) {
            self.expected = Some((account.to_owned(), expected(settings, account, phase)));
        }
        let expected = self.expected.as_ref().map_or(&[][..], |(_, webhooks)| webhooks);
        let found = changed(now, expected, rules);
        let is_new_result = found != self.found;
        self.found = found;
        is_new_result
    }
}

/// The webhooks of the manifests.
fn expected(settings: &Settings, account: &str, phase: AdmissionPhase) -> Vec<StoredWebhook> {
    let Settings { namespace, name, timeout_seconds, .. } = settings;
    let address = Address::Service { namespace: namespace.clone(), name: name.clone(), port: 443 };
    let configurations = skeleton(name, &address, account);
    let webhooks = match phase {
        AdmissionPhase::Mutate => serde_json::to_value(configurations.mutating.webhooks),
        AdmissionPhase::Validate => serde_json::to_value(configurations.validating.webhooks),
    };
    let webhooks = webhooks.and_then(|webhooks| parse_webhooks(Some(&webhooks)));
    let mut webhooks = webhooks.unwrap_or_default();
    webhooks.iter_mut().for_each(|webhook| webhook.timeout_seconds = Some(*timeout_seconds));
    webhooks
}

/// Compares the webhooks that have rules, and finds webhooks of another version of belay.
fn changed(now: &[StoredWebhook], expected: &[StoredWebhook], rules: &Rules) -> Vec<String> {
    let active = expected.iter().filter(|webhook| !rules.for_webhook(&webhook.name).is_empty());
    let differs = active.filter_map(|webhook| {
        let now = now.iter().find(|now| now.name == webhook.name)?;
        let fields = differing_fields(now, webhook);
        (!fields.is_empty()).then(|| format!("{} ({})", webhook.name, fields.join(", ")))
    });
    let is_known = |name: &str| expected.iter().any(|webhook| webhook.name == name);
    let unknown = now.iter().map(|webhook| &*webhook.name);
    let unknown = unknown.filter(|name| name.ends_with(".belay.dev") && !is_known(name));
    differs.chain(unknown.map(|name| format!("{name} (unknown)"))).collect()
}

fn differing_fields(now: &StoredWebhook, expected: &StoredWebhook) -> Vec<&'static str> {
    let same_target = |a: &StoredWebhook, b: &StoredWebhook| {
        let service = |webhook: &StoredWebhook| {
            let service = webhook.client_config.service.as_ref();
            service
                .map(|ServiceReference { namespace, name, .. }| (namespace.clone(), name.clone()))
        };
        (a.client_config.url == b.client_config.url, service(a) == service(b))
    };
    let (same_url, same_service) = same_target(now, expected);
    [
        ("clientConfig.url", same_url),
        ("clientConfig.service", same_service),
        ("failurePolicy", now.failure_policy == expected.failure_policy),
        ("matchPolicy", now.match_policy == expected.match_policy),
        ("matchConditions", conditions(now) == conditions(expected)),
        (
            "namespaceSelector",
            selector(now.namespace_selector.as_ref())
                == selector(expected.namespace_selector.as_ref()),
        ),
        (
            "objectSelector",
            selector(now.object_selector.as_ref()) == selector(expected.object_selector.as_ref()),
        ),
        ("sideEffects", now.side_effects == expected.side_effects),
        ("timeoutSeconds", now.timeout_seconds == expected.timeout_seconds),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(field, _)| field)
    .collect()
}

/// The conditions without order and white space, because manifests break lines. Without the
/// condition that the leader writes.
fn conditions(webhook: &StoredWebhook) -> BTreeSet<(String, String)> {
    let conditions = webhook.match_conditions.iter().flatten();
    let conditions = conditions.filter(|condition| condition.name != namespaces::LEADER_CONDITION);
    let normalized = |MatchCondition { name, expression }: &MatchCondition| {
        (name.clone(), expression.split_whitespace().collect::<String>())
    };
    conditions.map(normalized).collect()
}

/// The requirements without order. A missing selector equals an empty one.
fn selector(selector: Option<&LabelSelector>) -> BTreeSet<(String, String, BTreeSet<String>)> {
    let labels = selector.iter().flat_map(|selector| selector.match_labels.iter().flatten());
    let labels =
        labels.map(|(key, value)| (key.clone(), "In".to_owned(), BTreeSet::from([value.clone()])));
    let expressions = selector.iter().flat_map(|s| s.match_expressions.iter().flatten());
    let expressions = expressions.map(|requirement| {
        let values = requirement.values.iter().flatten().cloned().collect();
        (requirement.key.clone(), requirement.operator.clone(), values)
    });
    labels.chain(expressions).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::World;
    use crate::cluster::registration::rules::rules;

    fn settings() -> Settings {
        Settings { namespace: "ops".into(), name: "guard".into(), ..Settings::of_test(&[]) }
    }

    const ACCOUNT: &str = "system:serviceaccount:ops:guard";

    /// The reported differences when this field of `label-delete.belay.dev` has this value.
    fn with(pointer: &str, value: Value) -> Vec<String> {
        let address =
            Address::Service { namespace: "ops".into(), name: "guard".into(), port: 8443 };
        let webhooks = skeleton("guard", &address, ACCOUNT).validating.webhooks;
        let mut webhooks = serde_json::to_value(webhooks).unwrap();
        let mut webhooks_json = webhooks.as_array_mut().unwrap().iter_mut();
        let webhook =
            webhooks_json.find(|webhook| webhook["name"] == "label-delete.belay.dev").unwrap();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        webhook.pointer_mut(parent).unwrap()[field] = value;
        let expected = expected(&settings(), ACCOUNT, AdmissionPhase::Validate);
        let rules = rules(&World::default(), &[]);
        changed(&parse_webhooks(Some(&webhooks)).unwrap(), &expected, &rules)
    }

    #[test]
    fn compares_every_field_that_selects_requests() {
        let selects = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        for (pointer, value, field) in [
            ("/failurePolicy", json!("Ignore"), "failurePolicy"),
            ("/matchPolicy", json!("Exact"), "matchPolicy"),
            ("/timeoutSeconds", json!(1), "timeoutSeconds"),
            ("/sideEffects", json!("None"), "sideEffects"),
            ("/namespaceSelector", selects.clone(), "namespaceSelector"),
            ("/objectSelector", selects, "objectSelector"),
            ("/matchConditions", json!([]), "matchConditions"),
            ("/clientConfig/service/name", json!("other"), "clientConfig.service"),
            ("/clientConfig/url", json!("https://other"), "clientConfig.url"),
        ] {
            assert_eq!(with(pointer, value), [format!("label-delete.belay.dev ({field})")]);
        }
        assert_eq!(with("/name", json!("later.belay.dev")), ["later.belay.dev (unknown)"]);
        assert_eq!(with("/name", json!("webhook.example.com")), [""; 0]);
    }

    #[test]
    fn equivalent_fields_do_not_differ() {
        let namespaces = json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name",
            "operator": "NotIn", "values": ["ops", "kube-node-lease", "kube-system"]}],
            "matchLabels": {}});
        assert_eq!(with("/namespaceSelector", namespaces), [""; 0]);
        assert_eq!(with("/clientConfig/service/path", json!("/secret/validate")), [""; 0]);
        assert_eq!(with("/clientConfig/caBundle", json!("")), [""; 0]);
        // No policy needs a webhook without rules.
        assert_eq!(with("/name", json!("delete.belay.dev")), [""; 0]);
    }
}
