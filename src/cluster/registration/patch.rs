//! From a configuration as it stands to the patch that fills it in.
//!
//! Each entry is found by its name and tested to be still there, at its index:
//! a chart may have dropped, moved or added one since. What belay does not fill
//! in, and entries that it does not know, are left as they are.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ServiceReference,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::configurations::{Entry, entries};
use super::rules::Rules;
use crate::decide::AdmissionPhase;
use crate::webhook::PathToken;

/// An entry of a configuration, as it stands in the API server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// Its rules.
    #[serde(default)]
    rules: Option<Vec<RuleWithOperations>>,
    #[serde(default)]
    pub(super) client_config: Client,
    #[serde(default)]
    pub(super) failure_policy: Option<String>,
    #[serde(default)]
    pub(super) match_policy: Option<String>,
    #[serde(default)]
    pub(super) match_conditions: Option<Vec<MatchCondition>>,
    #[serde(default)]
    pub(super) namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    pub(super) object_selector: Option<LabelSelector>,
    #[serde(default)]
    pub(super) side_effects: Option<String>,
    #[serde(default)]
    pub(super) timeout_seconds: Option<i32>,
}

/// Where the API server finds whom it asks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Client {
    #[serde(default)]
    ca_bundle: Option<ByteString>,
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) service: Option<ServiceReference>,
}

impl Client {
    /// The URL without its path, and the path; none: it has no path.
    fn split_url(&self) -> Option<(&str, &str)> {
        let url = self.url.as_deref()?;
        let host = url.find("://")? + "://".len();
        let path = url[host..].find('/').map_or(url.len(), |at| host + at);
        Some(url.split_at(path))
    }

    /// The path at which the API server asks.
    fn path(&self) -> Option<&str> {
        match &self.service {
            Some(service) => service.path.as_deref(),
            None => self.split_url().map(|(_, path)| path),
        }
    }

    /// What writes another path into the webhook at this index.
    fn set_path(&self, index: usize, path: String) -> Option<PatchOperation> {
        if self.service.is_some() {
            return Some(add(index, &["clientConfig", "service", "path"], path.into()));
        }
        let (base, _) = self.split_url()?;
        Some(add(index, &["clientConfig", "url"], format!("{base}{path}").into()))
    }
}

/// The entries of a configuration, from its field `webhooks`.
pub fn standing(webhooks: Option<&Value>) -> Result<Vec<Standing>, serde_json::Error> {
    webhooks.map_or(Ok(Vec::new()), |webhooks| {
        Option::deserialize(webhooks).map(Option::unwrap_or_default)
    })
}

/// How a configuration differs from what belay wants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Difference {
    /// What puts it right; `None`: nothing has to be.
    pub patch: Option<Patch>,
    /// Whether every rule is in place, authorities or not.
    pub asks: bool,
    /// Entries that have something to ask and are not there. Nothing but a new
    /// installation brings them back.
    pub missing: Vec<&'static str>,
}

/// What belay fills in.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The rules.
    pub rules: &'a Rules,
    /// The authorities, PEM; none: something else fills them in.
    pub bundle: Option<&'a str>,
    /// The secret in the path; none: the path is not compared.
    pub token: Option<&'a PathToken>,
}

/// Compares.
pub fn compare(standing: &[Standing], phase: AdmissionPhase, wanted: Wanted<'_>) -> Difference {
    let Wanted { rules, bundle, token } = wanted;
    let mut operations = Vec::new();
    let mut asks = true;
    for (index, entry) in standing.iter().enumerate() {
        let Some(known) = entry.known(phase) else { continue };
        let before = operations.len();
        let wanted = rules.of(&entry.name);
        let stand = entry.rules.as_deref().unwrap_or_default();
        if !are_equal(stand, wanted) {
            asks = false;
            operations.push(if wanted.is_empty() {
                let path = path(index, &["rules"]);
                PatchOperation::Remove(RemoveOperation { path })
            } else {
                // A value that was there is replaced.
                add(index, &["rules"], serde_json::json!(wanted))
            });
        }
        if let Some(bundle) = bundle
            && entry.bundle() != Some(bundle.as_bytes())
        {
            let bundle = ByteString(bundle.as_bytes().to_vec());
            operations.push(add(index, &["clientConfig", "caBundle"], serde_json::json!(bundle)));
        }
        if let Some(path) = token.map(|token| format!("/{}{}", token.expose(), known.path()))
            && entry.client_config.path() != Some(&path)
        {
            asks = false;
            operations.extend(entry.client_config.set_path(index, path));
        }
        if operations.len() > before {
            let value = Value::String(entry.name.clone());
            let test = TestOperation { path: path(index, &["name"]), value };
            operations.insert(before, PatchOperation::Test(test));
        }
    }
    let absent = |name: &str| !standing.iter().any(|entry| entry.name == name);
    let missing: Vec<_> = entries(phase)
        .map(|entry| entry.name)
        .filter(|name| absent(name) && !rules.of(name).is_empty())
        .collect();
    Difference {
        patch: (!operations.is_empty()).then_some(Patch(operations)),
        asks: asks && missing.is_empty(),
        missing,
    }
}

impl Standing {
    /// The entry of belay's that it is; none: belay does not know it.
    fn known(&self, phase: AdmissionPhase) -> Option<&'static Entry> {
        entries(phase).find(|entry| entry.name == self.name)
    }

    fn bundle(&self) -> Option<&[u8]> {
        self.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice())
    }
}

/// The authorities that stand in every entry of belay's; `None`: they differ,
/// or there are none.
pub fn bundle(standing: &[Standing], phase: AdmissionPhase) -> Option<&str> {
    let known = standing.iter().filter(|entry| entry.known(phase).is_some());
    let mut bundles = known.map(Standing::bundle);
    let first = bundles.next()??;
    bundles.all(|bundle| bundle == Some(first)).then(|| std::str::from_utf8(first).ok())?
}

/// The secret in the path of every entry of belay's; `None`: they differ, or
/// there is none.
pub fn token(standing: &[Standing], phase: AdmissionPhase) -> Option<PathToken> {
    let mut tokens = standing.iter().filter_map(|entry| {
        let known = entry.known(phase)?;
        let path = entry.client_config.path().unwrap_or_default();
        let token = path.strip_suffix(&known.path()).and_then(|rest| rest.strip_prefix('/'));
        Some(token.and_then(PathToken::parse))
    });
    let first = tokens.next()??;
    tokens.all(|token| token.as_ref() == Some(&first)).then_some(first)
}

/// Whether two lists of rules ask the same. The order says nothing, and the API
/// server writes out what was left out.
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

fn path(index: usize, fields: &[&str]) -> PointerBuf {
    let index = index.to_string();
    PointerBuf::from_tokens(["webhooks", &index].into_iter().chain(fields.iter().copied()))
}

fn add(index: usize, fields: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path(index, fields), value })
}

#[cfg(test)]
mod tests;
