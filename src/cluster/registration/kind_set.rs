//! Sets of kinds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

/// Group and plural name; either may be `*`.
pub(super) type KindName = (String, String);

#[derive(Debug, Clone, Default)]
pub(super) struct KindSet(pub(super) BTreeSet<KindName>);

impl KindSet {
    pub(super) fn from_names<'p>(names: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        Self(names.into_iter().map(|(g, r)| (g.to_owned(), r.to_owned())).collect())
    }

    pub(super) fn every_kind() -> Self {
        Self::from_names([("*", "*")])
    }

    pub(super) fn add(&mut self, (group, resource): (&str, &str)) {
        self.0.insert((group.to_owned(), resource.to_owned()));
    }

    /// Whether the set contains a kind, by name or by `*`.
    pub(super) fn contains(&self, group: &str, resource: &str) -> bool {
        self.has_entry(group, resource)
            || self.has_entry("*", resource)
            || self.has_entry(group, "*")
            || self.has_entry("*", "*")
    }

    fn has_entry(&self, group: &str, resource: &str) -> bool {
        self.0.contains(&(group.to_owned(), resource.to_owned()))
    }

    /// Merges groups with equal resources into one rule. The API server accepts `*` only alone, so
    /// kinds that `*` covers are omitted. With the suffix `/*`, a rule also matches subresources.
    pub(super) fn rules(&self, operation: &str, suffix: &str) -> Vec<RuleWithOperations> {
        let mut by_group: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (group, resource) in &self.0 {
            let covered = ((group != "*" || resource != "*") && self.has_entry("*", "*"))
                || (group != "*" && self.has_entry("*", resource))
                || (resource != "*" && self.has_entry(group, "*"));
            if !covered {
                by_group.entry(group).or_default().push(format!("{resource}{suffix}"));
            }
        }
        let mut by_resources: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (group, resources) in by_group {
            by_resources.entry(resources).or_default().push(group.to_owned());
        }
        let rule = |(resources, groups)| RuleWithOperations {
            api_groups: Some(groups),
            api_versions: Some(vec!["*".to_owned()]),
            operations: Some(vec![operation.to_owned()]),
            resources: Some(resources),
            scope: Some("*".to_owned()),
        };
        by_resources.into_iter().map(rule).collect()
    }
}
