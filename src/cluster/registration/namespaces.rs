//! The part of the match condition that limits the requests about a kind to the namespaces that
//! policies name.
//!
//! If every policy for a kind names its namespaces, the API server does not ask belay about objects
//! of the kind in other namespaces, and does not depend on belay there. This is safe, because
//! neither a Namespace nor an object can get another namespace name.

use std::collections::{BTreeMap, BTreeSet};

use super::kind_set::KindSet;
use crate::objects::{CRDS, NAMESPACES};
use crate::policy::{Matcher, Policy};

/// The name of the condition that the leader writes. The guides for GitOps tools contain it.
pub(super) const LEADER_CONDITION: &str = "namespaces-of-policies";

/// The kind of the object in CEL.
pub(super) const CEL_KIND: &str = "request.resource.group + '/' + request.resource.resource";

/// The limit of namespaces in the condition, because the API server evaluates it for each request.
/// Beyond it, the API server asks about all namespaces.
const MAX_NAMESPACES: usize = 200;

/// Kinds that the condition never limits: Namespaces, because the API server sends their name as the
/// namespace and belay judges the content of all; CRDs, because requests about them have no namespace.
const UNLIMITED: [(&str, &str); 2] = [NAMESPACES, CRDS];

/// A kind, as group and plural name.
pub(super) type Kind<'p> = (&'p str, &'p str);

/// A protected kind and a kind that owns its objects.
pub(super) type OwnerPair<'p> = (Kind<'p>, Kind<'p>);

/// The namespaces of owners of protected objects, by the kind of the owner; `None`: any namespace.
type OwnerNamespaces<'p> = BTreeMap<Kind<'p>, Option<BTreeSet<&'p str>>>;

/// The kinds about which the API server asks belay only in some namespaces, each with the names of
/// these namespaces.
#[derive(Debug, Clone, Default)]
pub(super) struct NamespaceLimits<'p>(BTreeMap<Kind<'p>, BTreeSet<&'p str>>);

impl<'p> NamespaceLimits<'p> {
    /// The kinds for which all these policies name their namespaces.
    pub(super) fn new(policies: impl Iterator<Item = &'p Policy>) -> Self {
        Self(limited_kinds(policies, |target| target.namespaces().map(plain_names)))
    }

    /// The namespaces of the owners of protected objects. An owner is in the namespace of its
    /// dependent, or cluster-scoped. `labelled` are the kinds whose labelled objects are protected
    /// in every namespace.
    pub(super) fn owner_namespaces(
        &self,
        pairs: &[OwnerPair<'p>],
        labelled: &[(String, String)],
    ) -> OwnerNamespaces<'p> {
        let mut owners = OwnerNamespaces::new();
        for (dependent, owner) in pairs {
            let is_labelled = labelled.iter().any(|(g, r)| (g.as_str(), r.as_str()) == *dependent);
            let names = self.0.get(dependent).filter(|_| !is_labelled);
            let all = owners.entry(*owner).or_insert_with(|| Some(BTreeSet::new()));
            match (all.as_mut(), names) {
                (Some(all), Some(names)) => all.extend(names),
                _ => *all = None,
            }
        }
        owners
    }

    /// Adds the namespaces in which objects of a limited kind own protected objects.
    #[must_use]
    pub(super) fn with_owners(mut self, owners: &OwnerNamespaces<'p>) -> Self {
        for (kind, names) in owners {
            self.add(kind, names.as_ref().map(|names| names.iter().copied()));
        }
        self
    }

    /// Adds the namespaces in which `fromOrphaning` protects the owners of objects of a limited
    /// kind. belay denies the removal of a reference to such an owner, even if no policy protects
    /// the dependent. `None`: any namespace.
    #[must_use]
    pub(super) fn with_guarded_dependents(
        mut self,
        owned: &[(Kind<'p>, Option<&'p [String]>)],
    ) -> Self {
        for (dependent, names) in owned {
            self.add(dependent, names.map(plain_names));
        }
        self
    }

    /// Adds namespaces of a limited kind; `None`: any namespace.
    fn add(&mut self, kind: &Kind<'p>, names: Option<impl Iterator<Item = &'p str>>) {
        match (names, self.0.get_mut(kind)) {
            (Some(names), Some(own)) => own.extend(names),
            (None, _) => drop(self.0.remove(kind)),
            (Some(_), None) => {}
        }
    }

    /// The kinds of the owners, each with the namespaces of the owners.
    pub(super) fn of_owners(owners: OwnerNamespaces<'p>) -> Self {
        let limited = owners.into_iter().filter(|(kind, _)| !UNLIMITED.contains(kind));
        Self(limited.filter_map(|(kind, names)| Some((kind, names?))).collect())
    }

    /// The part of the condition; `None` if it would limit nothing.
    pub(super) fn expression(&self) -> Option<String> {
        let kinds = self.0.keys().map(|(group, resource)| format!("{group}/{resource}"));
        let kinds: Vec<String> = kinds.collect();
        let objects = self.0.iter().flat_map(|((group, resource), names)| {
            names.iter().map(move |name| format!("{group}/{resource}/{name}"))
        });
        let objects: Vec<String> = objects.collect();
        if kinds.is_empty() || objects.len() > MAX_NAMESPACES {
            return None;
        }
        // Requests about cluster-scoped objects have no namespace.
        Some(format!(
            "!has(request.namespace) || !({CEL_KIND} in {}) || \
             ({CEL_KIND} + '/' + request.namespace) in {}",
            cel_list(&kinds),
            cel_list(&objects),
        ))
    }
}

/// The kinds for which `select` returns items for every target of these policies, each with all of
/// these items.
pub(super) fn limited_kinds<'p, S: IntoIterator<Item: Ord>>(
    policies: impl Iterator<Item = &'p Policy>,
    select: impl Fn(&'p Matcher) -> Option<S>,
) -> BTreeMap<Kind<'p>, BTreeSet<S::Item>> {
    let mut unlimited = KindSet::from_names(UNLIMITED);
    let mut limited: BTreeMap<Kind<'p>, BTreeSet<S::Item>> = BTreeMap::new();
    for (kind, target) in policies.flat_map(Policy::targets_by_kind) {
        match select(target) {
            // The condition contains kinds without wildcards.
            Some(found) if is_plain(kind.0) && is_plain(kind.1) => {
                limited.entry(kind).or_default().extend(found);
            }
            _ => unlimited.add(kind),
        }
    }
    limited.retain(|(group, resource), _| !unlimited.contains(group, resource));
    limited
}

fn plain_names(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().map(String::as_str).filter(|name| is_plain(name))
}

/// A list in CEL.
pub(super) fn cel_list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Whether a name has only the characters of the names of kinds and Namespaces. CEL does not
/// interpret them.
pub(super) fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(targets: &[(&str, &str, Option<&[&str]>)]) -> Policy {
        let target = |(group, resource, namespaces): &(&str, &str, Option<&[&str]>)| {
            let mut target = json!({"apiGroups": [group], "resources": [resource]});
            if let Some(names) = namespaces {
                target["namespaceSelector"] = json!({"matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]});
            }
            target
        };
        let targets: Vec<Value> = targets.iter().map(target).collect();
        let spec = json!({"targets": targets, "protect": {"always": {}}});
        Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap()
    }

    /// The kinds with namespaces in the condition for these policies.
    fn limited(policies: &[Policy], owners: &[OwnerPair<'_>]) -> Option<String> {
        let labelled = [(String::new(), "secrets".to_owned())];
        let limits = NamespaceLimits::new(policies.iter());
        let owners = limits.owner_namespaces(owners, &labelled);
        let expression = limits.with_owners(&owners).expression()?;
        let (_, objects) = expression.rsplit_once(" in [").unwrap();
        Some(objects.trim_end_matches(']').to_owned())
    }

    #[test]
    fn a_kind_is_limited_if_all_policies_name_its_namespaces() {
        let shop = policy(&[("", "pods", Some(&["shop", "db"])), ("apps", "deployments", None)]);
        let more = policy(&[("", "pods", Some(&["more"]))]);
        let pods = "'/pods/db', '/pods/more', '/pods/shop'";
        assert_eq!(limited(&[shop.clone(), more.clone()], &[]).as_deref(), Some(pods));
        for anywhere in [
            policy(&[("", "pods", None)]),
            policy(&[("*", "pods", Some(&["shop"]))]),
            policy(&[("*", "*", None)]),
            policy(&[("", "*", Some(&["shop"]))]),
        ] {
            assert_eq!(limited(&[shop.clone(), anywhere], &[]), None);
        }
        let labelled = json!({"targets": [{"apiGroups": [""], "resources": ["pods"],
            "namespaceSelector": {"matchLabels": {"team": "a"}}}], "protect": {"always": {}}});
        let labelled = Policy::compile("l", &serde_json::from_value(labelled).unwrap()).unwrap();
        assert_eq!(limited(&[more, labelled], &[]), None);
    }

    #[test]
    fn an_owner_is_limited_to_the_namespaces_of_its_protected_dependents_as_well() {
        let (pods, sets) = (("", "pods"), ("apps", "replicasets"));
        let policies = [
            policy(&[("", "pods", Some(&["shop"])), ("apps", "replicasets", Some(&["db"]))]),
            policy(&[("", "configmaps", None)]),
        ];
        let alone = "'/pods/shop', 'apps/replicasets/db'";
        assert_eq!(limited(&policies, &[]).as_deref(), Some(alone));
        let both = "'/pods/shop', 'apps/replicasets/db', 'apps/replicasets/shop'";
        assert_eq!(limited(&policies, &[(pods, sets)]).as_deref(), Some(both));
        let limits = NamespaceLimits::new(policies.iter());
        let owners = limits.owner_namespaces(&[(pods, sets), (sets, ("apps", "deployments"))], &[]);
        let expression = NamespaceLimits::of_owners(owners).expression().unwrap();
        assert!(expression.ends_with("['apps/deployments/db', 'apps/replicasets/shop']"));
        // Objects of these kinds are protected in every namespace.
        for dependent in [("", "configmaps"), ("", "secrets")] {
            let owners = [(pods, sets), (dependent, sets)];
            assert_eq!(limited(&policies, &owners).as_deref(), Some("'/pods/shop'"));
        }
    }

    #[test]
    fn names_are_never_read_as_code_and_have_a_limit() {
        let names = policy(&[("", "pods", Some(&["shop", "x'] || true || 'a' in ['"]))]);
        assert_eq!(limited(&[names], &[]).as_deref(), Some("'/pods/shop'"));
        assert_eq!(limited(&[policy(&[("", "namespaces", Some(&["shop"]))])], &[]), None);
        let many: Vec<String> = (0..=MAX_NAMESPACES).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(limited(&[policy(&[("", "pods", Some(&many))])], &[]), None);
        assert!(limited(&[policy(&[("", "pods", Some(&many[1..]))])], &[]).is_some());
    }
}
