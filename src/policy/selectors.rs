//! Compiled selectors of objects, by kind, name, labels and annotations.

use super::api::{LabelSelector, Operator, TargetSelector, UserSelector};
use super::facts::{NamespaceLabels, ObjectFacts};
use crate::graph::Requirement;

/// The label that the API server adds to every Namespace. Its value is the name of the
/// Namespace.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A label selector. Without requirements it matches everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelRequirements(Vec<Requirement>);

impl LabelRequirements {
    /// Compiles a selector. An absent selector matches everything.
    pub fn compile(selector: Option<&LabelSelector>) -> Self {
        let Some(LabelSelector { match_labels, match_expressions }) = selector else {
            return Self::default();
        };
        let equal =
            match_labels.iter().map(|(key, v)| Requirement::In(key.clone(), vec![v.clone()]));
        let others = match_expressions.iter().map(|requirement| {
            let (key, values) = (requirement.key.clone(), requirement.values.clone());
            match requirement.operator {
                Operator::In => Requirement::In(key, values),
                Operator::NotIn => Requirement::NotIn(key, values),
                Operator::Exists => Requirement::Exists(key),
                Operator::DoesNotExist => Requirement::Absent(key),
            }
        });
        Self(equal.chain(others).collect())
    }

    /// Whether labels match.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.is_satisfied_by(&label))
    }

    /// The keys of the labels that it reads.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Requirement::key)
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its requirements. Labels must satisfy all of them.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// The names of the Namespaces that can match, if the selector has a requirement on
    /// their names.
    fn namespace_names(&self) -> Option<&[String]> {
        self.0.iter().find_map(|requirement| match requirement {
            Requirement::In(key, values) if key == NAME_LABEL => Some(values.as_slice()),
            _ => None,
        })
    }

    /// Whether the Namespace of an object matches. Cluster-scoped objects always match, as in
    /// webhook configurations.
    pub fn match_namespace(
        &self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> MatchResult {
        if self.is_empty() {
            return MatchResult::Yes;
        }
        let name = facts.own_namespace();
        if name.is_empty() {
            return MatchResult::Yes;
        }
        let labels = match facts.is_namespace() {
            true => Some(facts.labels),
            false => namespace_labels.labels(facts.namespace),
        };
        let mut matched = MatchResult::Yes;
        for requirement in &self.0 {
            // The API server guarantees the value of this label. So belay knows it even if
            // it does not know the Namespace.
            let is_met = match (requirement.key() == NAME_LABEL, labels) {
                (true, _) => requirement.is_satisfied_by(|_| Some(name)),
                (false, Some(labels)) => requirement.is_satisfied_by(|key| labels.get(key)),
                (false, None) => {
                    matched = MatchResult::Unknown;
                    continue;
                }
            };
            if !is_met {
                return MatchResult::No;
            }
        }
        matched
    }
}

/// Whether an object matches. The variants are ordered so that the result of several
/// alternative selectors is the greatest of their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchResult {
    /// It does not match.
    No,
    /// The labels of its Namespace are unknown.
    Unknown,
    /// It matches.
    Yes,
}

/// A pattern in which `*` matches any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Box<str>);

impl Glob {
    /// Parses a pattern.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether a text matches.
    pub fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return *self.0 == *text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The first match of each part leaves the longest text for the next part.
        for part in middle.split('*') {
            let Some(start) = text.find(part) else { return false };
            text = &text[start + part.len()..];
        }
        text.ends_with(last)
    }

    /// The only text that matches; `None` if several match.
    pub fn literal(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&*self.0)
    }

    /// The beginning of all texts that match.
    pub fn prefix(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }
}

/// The key under which the index stores an entry of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupKey<'m> {
    /// The names of the objects.
    Names(Vec<&'m str>),
    /// The namespaces of the objects.
    Namespaces(&'m [String]),
    /// The entry has neither.
    None,
}

/// Matches objects: a compiled entry of `targets`, `exclude` or `ignore`.
#[derive(Debug, Clone, PartialEq)]
pub struct Matcher {
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<Glob>,
    namespace_selector: LabelRequirements,
    labels: LabelRequirements,
    annotations: Vec<(String, String)>,
}

impl Matcher {
    /// Compiles an entry.
    pub fn compile(target: &TargetSelector) -> Self {
        let TargetSelector {
            api_groups,
            resources,
            names,
            namespace_selector,
            object_selector,
            match_annotations,
        } = target;
        Self {
            groups: api_groups.clone(),
            resources: resources.clone(),
            names: names.iter().map(|name| Glob::new(name)).collect(),
            namespace_selector: LabelRequirements::compile(namespace_selector.as_ref()),
            labels: LabelRequirements::compile(object_selector.as_ref()),
            annotations: match_annotations.clone().into_iter().collect(),
        }
    }

    /// The only namespaces of the namespaced objects that can match; `None`: any namespace.
    pub fn namespaces(&self) -> Option<&[String]> {
        self.namespace_selector.namespace_names()
    }

    /// Patterns for names. The name of an object must match one of them; empty for any name.
    pub fn names(&self) -> &[Glob] {
        &self.names
    }

    /// The requirements on the labels of an object.
    pub fn labels(&self) -> &LabelRequirements {
        &self.labels
    }

    /// Whether an object matches.
    pub fn matches(
        &self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> MatchResult {
        let object_matches = self.names_kind(facts.group, facts.resource)
            && (self.names.is_empty() || self.names.iter().any(|name| name.matches(facts.name)))
            && self.labels.matches(|key| facts.labels.get(key))
            && self.annotations.iter().all(|(k, v)| facts.annotations.get(k) == Some(v.as_str()));
        if !object_matches {
            return MatchResult::No;
        }
        self.namespace_selector.match_namespace(namespace_labels, facts)
    }

    /// The kinds that it names, as pairs of group and resource. Both can be `*`.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        let resources = &self.resources;
        self.groups
            .iter()
            .flat_map(move |g| resources.iter().map(move |r| (g.as_str(), r.as_str())))
    }

    /// Whether it names this kind.
    pub fn names_kind(&self, group: &str, resource: &str) -> bool {
        has_name(&self.groups, group) && has_name(&self.resources, resource)
    }

    /// The annotations it reads.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        self.annotations.iter().map(|(key, _)| key.as_str())
    }

    /// The requirements on the labels of the Namespace.
    pub fn namespace_selector(&self) -> &LabelRequirements {
        &self.namespace_selector
    }

    /// Its key in the index.
    pub fn lookup_key(&self) -> LookupKey<'_> {
        let literal: Option<Vec<&str>> = self.names.iter().map(Glob::literal).collect();
        match (literal, self.namespace_selector.namespace_names()) {
            (Some(names), _) if !names.is_empty() => LookupKey::Names(names),
            (_, Some(namespaces)) => LookupKey::Namespaces(namespaces),
            _ => LookupKey::None,
        }
    }
}

/// Whether a list of API names has this name or `*`.
fn has_name(list: &[String], name: &str) -> bool {
    list.iter().any(|n| n == name || n == "*")
}

/// Matches users that count for the mode `whileUsed`.
#[derive(Debug, Clone, PartialEq)]
pub struct UserMatcher {
    groups: Vec<String>,
    resources: Vec<String>,
    labels: LabelRequirements,
}

impl UserMatcher {
    /// Compiles an entry of `by`.
    pub fn compile(by: &UserSelector) -> Self {
        let UserSelector { api_groups, resources, object_selector } = by;
        Self {
            groups: api_groups.clone(),
            resources: resources.clone(),
            labels: LabelRequirements::compile(object_selector.as_ref()),
        }
    }

    /// Whether a user or owner with these facts matches.
    pub fn matches(&self, facts: ObjectFacts<'_>) -> bool {
        (self.groups.is_empty() || has_name(&self.groups, facts.group))
            && (self.resources.is_empty() || has_name(&self.resources, facts.resource))
            && self.labels.matches(|key| facts.labels.get(key))
    }

    /// Whether an object of this kind may match.
    pub fn may_select_kind(&self, group: &str, resource: &str) -> bool {
        // The plural name is unknown if only references mention the kind.
        let resource_may_match =
            resource.is_empty() || self.resources.is_empty() || has_name(&self.resources, resource);
        resource_may_match && (self.groups.is_empty() || has_name(&self.groups, group))
    }

    /// Whether it names this resource explicitly.
    pub fn names_resource(&self, resource: &str) -> bool {
        self.resources.iter().any(|r| r == resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_run_of_characters_and_nothing_else_is_special() {
        for (glob, yes, no) in [
            ("data", &["data"][..], &["data-0", "dat", ""][..]),
            ("data-*", &["data-", "data-0"], &["data", "xdata-0"]),
            ("*-data", &["-data", "a-data"], &["data", "a-data-"]),
            ("a*b*c", &["abc", "a-b-b-c", "abcc"], &["ab", "acb", "abcb"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("**", &["", "x"], &[]),
            ("*", &["", "x"], &[]),
            ("a?c", &["a?c"], &["abc"]),
            ("a*bab", &["abab", "abbab"], &["abaab-"]),
        ] {
            let glob = Glob::new(glob);
            for text in yes {
                assert!(glob.matches(text), "{glob:?} {text}");
            }
            for text in no {
                assert!(!glob.matches(text), "{glob:?} {text}");
            }
        }
    }
}
