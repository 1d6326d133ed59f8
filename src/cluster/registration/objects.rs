//! The part of the match condition that limits the requests about a kind to the objects that
//! policies select by name or by labels.
//!
//! CEL reads the same objects as belay: the API server sends `oldObject` and `object` of the
//! evaluation. An UPDATE reaches belay if one of them matches, so belay judges each change that
//! moves an object into or out of a policy. The condition may match more objects than the
//! policies, never fewer: it compares the beginning of a name, and an object without metadata or
//! name matches.
//!
//! Only validating webhooks have this part. The API server calls a mutating webhook again only if it
//! called it before, so a webhook that runs later could add the label without a hold.

use std::collections::{BTreeMap, BTreeSet};

use super::namespaces::{CEL_KIND, Kind, OwnerPair, cel_list, limited_kinds};
use crate::graph::Requirement;
use crate::policy::{Glob, Matcher, Policy};

/// The limit of the text in bytes. Beyond it, the API server asks about all objects.
const MAX_LENGTH: usize = 8 << 10;

/// The kinds about which the API server asks belay only for some objects, each with CEL tests for
/// the object `o`. At least one test must match.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectLimits<'p>(BTreeMap<Kind<'p>, BTreeSet<String>>);

impl<'p> ObjectLimits<'p> {
    /// The kinds for which all targets of these policies select names or labels.
    pub(super) fn new(policies: impl Iterator<Item = &'p Policy>) -> Self {
        Self(limited_kinds(policies, |target| object_test(target).map(std::iter::once)))
    }

    /// Removes the kinds that own protected objects, because the deletion of an owner cascades,
    /// whatever its name and labels.
    #[must_use]
    pub(super) fn without_owners(mut self, pairs: &[OwnerPair<'p>]) -> Self {
        pairs.iter().for_each(|(_, owner)| drop(self.0.remove(owner)));
        self
    }

    #[must_use]
    pub(super) fn without(mut self, kinds: impl Iterator<Item = Kind<'p>>) -> Self {
        kinds.for_each(|kind| drop(self.0.remove(&kind)));
        self
    }

    /// The part of the condition; `None` if it would limit nothing.
    pub(super) fn expression(&self) -> Option<String> {
        let kinds = self.0.keys().map(|(group, resource)| format!("{group}/{resource}"));
        let kinds: Vec<String> = kinds.collect();
        let kind_test = |((group, resource), tests): (&Kind<'p>, &BTreeSet<String>)| {
            let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
            format!("{CEL_KIND} == '{group}/{resource}' && ({})", tests.join(" || "))
        };
        let tests: Vec<String> = self.0.iter().map(kind_test).collect();
        let expression = format!(
            "oldObject == null || !({CEL_KIND} in {}) || \
             [oldObject, object].exists(o, o != null && \
             (!has(o.metadata) || !has(o.metadata.name) || {}))",
            cel_list(&kinds),
            tests.join(" || "),
        );
        (!kinds.is_empty() && expression.len() <= MAX_LENGTH).then_some(expression)
    }
}

/// The test for the objects of a target; `None` if it selects neither names nor labels, or a text
/// that CEL could interpret.
fn object_test(target: &Matcher) -> Option<String> {
    let names: Vec<String> = target.names().iter().map(name_test).collect::<Option<_>>()?;
    let mut tests =
        target.labels().requirements().iter().map(label_test).collect::<Option<Vec<_>>>()?;
    // A pattern such as `*-data` has no beginning, and limits nothing.
    if !names.is_empty() && target.names().iter().all(|name| !name.prefix().is_empty()) {
        tests.push(format!("({})", names.join(" || ")));
    }
    (!tests.is_empty()).then(|| format!("({})", tests.join(" && ")))
}

fn name_test(name: &Glob) -> Option<String> {
    let test = match name.literal() {
        Some(name) => format!("o.metadata.name == {}", quote(name)?),
        None => format!("o.metadata.name.startsWith({})", quote(name.prefix())?),
    };
    Some(test)
}

fn label_test(requirement: &Requirement) -> Option<String> {
    let label = format!("o.metadata.?labels[?{}]", quote(requirement.key())?);
    let is_in = |values: &[String]| {
        let values: Option<Vec<String>> = values.iter().map(|value| quote(value)).collect();
        Some(format!("{label}.hasValue() && {label}.value() in [{}]", values?.join(", ")))
    };
    Some(match requirement {
        Requirement::In(_, values) => is_in(values)?,
        Requirement::NotIn(_, values) => format!("!({})", is_in(values)?),
        Requirement::Exists(_) => format!("{label}.hasValue()"),
        Requirement::Absent(_) => format!("!{label}.hasValue()"),
    })
}

/// A text in CEL; `None` if it has a character that CEL could interpret. Names and labels have none.
fn quote(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic() && !['\'', '\\'].contains(&c);
    text.chars().all(is_plain).then(|| format!("'{text}'"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(resource: &str, selectors: Value) -> Policy {
        let mut target = json!({"apiGroups": [""], "resources": [resource]});
        target.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
        let spec = json!({"targets": [target], "protect": {"always": {}}});
        Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap()
    }

    /// The tests for the objects in the condition for these policies.
    fn tests(policies: &[Policy], owners: &[OwnerPair<'_>]) -> Option<String> {
        let limits = ObjectLimits::new(policies.iter()).without_owners(owners);
        let expression = limits.expression()?;
        let (_, tests) = expression.split_once("!has(o.metadata.name) || ").unwrap();
        Some(tests.strip_suffix("))").unwrap().replace(CEL_KIND, "K").replace("o.metadata.", ""))
    }

    #[test]
    fn a_kind_is_limited_if_all_policies_select_names_or_labels() {
        let named = policy("secrets", json!({"names": ["db", "x-*-y"]}));
        let labels = json!({"matchLabels": {"app": "a"}, "matchExpressions": [
            {"key": "x.dev/tier", "operator": "NotIn", "values": ["b", ""]},
            {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]});
        let labelled = policy("secrets", json!({"objectSelector": labels, "names": ["*-data"]}));
        let names = "(name == 'db' || name.startsWith('x-'))";
        let alone = format!("K == '/secrets' && (({names}))");
        assert_eq!(tests(std::slice::from_ref(&named), &[]), Some(alone.clone()));
        let tier = "?labels[?'x.dev/tier']";
        let labels = format!(
            "(?labels[?'app'].hasValue() && ?labels[?'app'].value() in ['a'] && \
             !({tier}.hasValue() && {tier}.value() in ['b', '']) && \
             ?labels[?'c'].hasValue() && !?labels[?'d'].hasValue())"
        );
        let both = format!("K == '/secrets' && (({names}) || {labels})");
        assert_eq!(tests(&[named.clone(), labelled], &[]), Some(both));
        let pods = policy("pods", json!({"names": ["db"]}));
        let two = format!("K == '/pods' && (((name == 'db'))) || {alone}");
        assert_eq!(tests(&[named.clone(), pods.clone()], &[]), Some(two));
        for any in [json!({}), json!({"names": ["db", "*-data"]}), json!({"names": ["d'b"]})] {
            assert_eq!(tests(&[named.clone(), policy("secrets", any)], &[]), None);
        }
        assert_eq!(tests(&[named, policy("*", json!({}))], &[]), None);
        // The deletion of an owner cascades, whatever its name.
        assert_eq!(tests(&[pods], &[(("", "secrets"), ("", "pods"))]), None);
        assert_eq!(tests(&[policy("namespaces", json!({"names": ["db"]}))], &[]), None);
    }

    #[test]
    fn texts_are_never_read_as_code_and_have_a_limit() {
        let label =
            |key: &str, value: &str| json!({"objectSelector": {"matchLabels": {key: value}}});
        for selectors in [label("a'] || true", "x"), label("a", "x' in []"), label("a", "x\\")] {
            assert_eq!(tests(&[policy("pods", selectors)], &[]), None);
        }
        let names: Vec<String> = (0..300).map(|number| format!("{number:0>30}")).collect();
        let few = policy("pods", json!({"names": names[..100]}));
        assert!(tests(std::slice::from_ref(&few), &[]).is_some());
        let more = policy("pods", json!({"names": names[100..250]}));
        assert_eq!(tests(&[few, more], &[]), None);
    }
}
