//! Computes the patch that updates a stored configuration.
//!
//! belay finds each webhook by its name. The patch tests that the webhook still has its index,
//! because an upgrade of the chart may add, move or remove webhooks. belay does not change other
//! fields or unknown webhooks.

use std::collections::BTreeSet;
use std::sync::Arc;

use json_patch::{Patch, PatchOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use serde_json::json;

use super::manifests::webhooks;
use super::namespaces;
use super::rules::Rules;
use super::stored::StoredWebhook;
use crate::decide::AdmissionPhase;
use crate::objects::operations::{add, remove, test};
use crate::webhook::SecretPath;

/// How a configuration differs from what belay wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Difference {
    /// The patch that corrects the configuration; `None` if nothing differs.
    pub patch: Option<Patch>,
    /// Whether all rules and paths are correct, so that the API server calls belay.
    pub calls_belay: bool,
    /// Webhooks that have rules and do not exist. Only a new installation restores them.
    pub missing: Vec<&'static str>,
}

/// The fields that the leader writes.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaderFields {
    pub rules: Arc<Rules>,
    /// The CA certificates, PEM; `None`: they are not compared.
    pub bundle: Option<Arc<str>>,
    /// The secret path; `None`: the path is not compared.
    pub secret_path: Option<SecretPath>,
}

pub fn compare(
    stored: &[StoredWebhook],
    phase: AdmissionPhase,
    LeaderFields { rules, bundle, secret_path }: &LeaderFields,
) -> Difference {
    let mut operations = Vec::new();
    let mut calls_belay = true;
    for (index, webhook) in stored.iter().enumerate() {
        let Some(template) = webhook.template(phase) else { continue };
        let (before, index) = (operations.len(), &*index.to_string());
        let wanted = rules.for_webhook(&webhook.name);
        let stored_rules = webhook.rules.as_deref().unwrap_or_default();
        if !are_equal(stored_rules, wanted) {
            calls_belay = false;
            let path = ["webhooks", index, "rules"];
            operations.push(match wanted {
                [] => remove(&path),
                // This also replaces an existing value.
                wanted => add(&path, json!(wanted)),
            });
        }
        let conditions = webhook.match_conditions.as_deref();
        if let Some(change) = change_condition(index, conditions, rules.condition(&webhook.name)) {
            calls_belay = false;
            operations.extend(change);
        }
        if let Some(bundle) = bundle
            && webhook.bundle() != Some(bundle.as_bytes())
        {
            let bundle = ByteString(bundle.as_bytes().to_vec());
            operations.push(add(&["webhooks", index, "clientConfig", "caBundle"], json!(bundle)));
        }
        if let Some(path) = secret_path
            .as_ref()
            .map(|secret_path| format!("/{}{}", secret_path.expose(), template.path()))
            && webhook.client_config.path() != Some(&path)
        {
            calls_belay = false;
            operations.extend(webhook.client_config.set_path(index, path));
        }
        if operations.len() > before {
            operations.insert(before, test(&["webhooks", index, "name"], &*webhook.name));
        }
    }
    let absent = |name: &str| !stored.iter().any(|webhook| webhook.name == name);
    let missing: Vec<_> = webhooks(phase)
        .map(|webhook| webhook.name)
        .filter(|name| absent(name) && !rules.for_webhook(name).is_empty())
        .collect();
    Difference {
        patch: (!operations.is_empty()).then_some(Patch(operations)),
        calls_belay: calls_belay && missing.is_empty(),
        missing,
    }
}

/// The operations that write [`namespaces::LEADER_CONDITION`]; `None` if nothing differs. The other
/// conditions belong to the manifests.
fn change_condition(
    index: &str,
    stored: Option<&[MatchCondition]>,
    wanted: Option<&MatchCondition>,
) -> Option<Vec<PatchOperation>> {
    let is_own = |condition: &MatchCondition| condition.name == namespaces::LEADER_CONDITION;
    let position = stored.unwrap_or_default().iter().position(is_own);
    let current = position.and_then(|position| stored?.get(position));
    if current == wanted {
        return None;
    }
    let list = ["webhooks", index, "matchConditions"];
    let [webhooks, _, field] = list;
    let mut operations = Vec::new();
    if let Some(position) = position.map(|position| position.to_string()) {
        let name = [webhooks, index, field, &position, "name"];
        operations.push(test(&name, namespaces::LEADER_CONDITION));
        operations.push(remove(&name[..4]));
    }
    operations.extend(wanted.map(|wanted| match stored {
        Some(_) => add(&[webhooks, index, field, "-"], json!(wanted)),
        None => add(&list, json!([wanted])),
    }));
    Some(operations)
}

/// The CA certificates of all of belay's webhooks; `None` if they differ or are missing.
pub fn bundle(stored: &[StoredWebhook], phase: AdmissionPhase) -> Option<&str> {
    let own = stored.iter().filter(|webhook| webhook.template(phase).is_some());
    let mut bundles = own.map(StoredWebhook::bundle);
    let first = bundles.next()??;
    bundles.all(|bundle| bundle == Some(first)).then(|| std::str::from_utf8(first).ok())?
}

/// The secret path of all of belay's webhooks; `None` if it differs or is missing.
pub fn secret_path(stored: &[StoredWebhook], phase: AdmissionPhase) -> Option<SecretPath> {
    let mut secret_paths = stored.iter().filter_map(|webhook| {
        let template = webhook.template(phase)?;
        let path = webhook.client_config.path().unwrap_or_default();
        let secret_path =
            path.strip_suffix(&template.path()).and_then(|rest| rest.strip_prefix('/'));
        Some(secret_path.and_then(SecretPath::parse))
    });
    let first = secret_paths.next()??;
    secret_paths.all(|secret_path| secret_path.as_ref() == Some(&first)).then_some(first)
}

/// Whether two lists of rules match the same requests, in any order. The API server adds
/// default values.
fn are_equal(a: &[RuleWithOperations], b: &[RuleWithOperations]) -> bool {
    let normal = |rules: &[RuleWithOperations]| -> BTreeSet<(Vec<BTreeSet<String>>, String)> {
        rules
            .iter()
            .map(|rule| {
                let lists =
                    [&rule.api_groups, &rule.api_versions, &rule.operations, &rule.resources];
                let lists = lists.map(|list| list.iter().flatten().cloned().collect());
                (lists.into(), rule.scope.clone().unwrap_or_else(|| "*".to_owned()))
            })
            .collect()
    };
    normal(a) == normal(b)
}

#[cfg(test)]
mod tests;
