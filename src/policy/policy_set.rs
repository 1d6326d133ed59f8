//! All policies, with an index that finds the policies of one object.
//!
//! The index is by kind, and within a kind by object names or namespaces. So thousands of
//! policies for other kinds, names and namespaces do not slow down a verdict.

use super::api::{Action, Always, Protect, WhileUsed};
use super::approvals::{Approvals, Pause};
use super::compiled::{Policy, PolicySource};
use super::facts::{NamespaceLabels, ObjectFacts};
use super::identities::Identities;
use super::selectors::{LookupKey, MatchResult};
use crate::objects::{KeyedMap, KindId, Kinds, LABEL_VALUES, full_name};
use crate::relations::{Catalogue, UserKinds};

type Map<V> = KeyedMap<Box<str>, V>;

/// An entry of `targets`: the index of the policy, and the index of the entry in its `targets`.
type Entry = (u32, u32);

/// The policies of one kind.
#[derive(Debug, Default)]
struct PolicyIndex {
    by_name: Map<Vec<Entry>>,
    by_namespace: Map<Vec<Entry>>,
    others: Vec<Entry>,
}

/// All policies, approvals and pauses.
#[derive(Debug)]
pub struct PolicySet {
    policies: Vec<Policy>,
    /// By group, then by resource.
    by_kind: Map<Map<PolicyIndex>>,
    /// The policies with `*` as a group or a resource.
    of_any_kind: PolicyIndex,
    /// From the catalogue. Policies do not change it.
    user_kinds: UserKinds,
    /// The approvals.
    pub approvals: Approvals,
    /// The pauses. While one is in force, the action of all policies is Audit.
    pub pauses: Vec<Pause>,
    /// The accounts and namespaces that belay knows by name.
    pub identities: Identities,
    /// The kinds of `--labelled-kinds`, by group and resource. On other kinds the label only
    /// denies: belay neither adds, guards nor releases a hold for it. `None`: the kinds are
    /// unknown, so each kind counts as listed.
    pub labelled_kinds: Option<Vec<(String, String)>>,
}

impl Default for PolicySet {
    /// Only the policies of the label.
    fn default() -> Self {
        Self::new(Vec::new(), &Catalogue::default())
    }
}

/// A policy that applies to an object.
#[derive(Debug, Clone, Copy)]
pub struct AppliedPolicy<'p> {
    /// The policy.
    pub policy: &'p Policy,
    /// The action if the policy denies a request about this object.
    pub action: Action,
    /// Whether a Pause has turned its action from Deny to Audit.
    pub paused: bool,
    /// Whether it certainly applies: the labels of the object's Namespace are known, or no
    /// selector needs them.
    pub certain: bool,
}

impl AppliedPolicy<'_> {
    /// Whether the policy wants the hold on the object.
    pub fn wants_hold(&self) -> bool {
        self.action == Action::Deny && self.policy.places_hold()
    }

    /// Whether its action is Deny, also during a Pause.
    pub fn denies_without_pause(&self) -> bool {
        self.action == Action::Deny || self.paused
    }

    /// The same policy during a Pause, in which belay denies nothing.
    pub fn during_pause(self) -> Self {
        Self { action: Action::Audit, paused: self.action == Action::Deny, ..self }
    }
}

impl PolicySet {
    /// These policies, and those of the label.
    pub fn new(policies: Vec<Policy>, catalogue: &Catalogue) -> Self {
        let always = Protect { always: Some(Always {}), ..Protect::default() };
        let while_used = Protect { while_used: Some(WhileUsed::default()), ..Protect::default() };
        let labels = [(LABEL_VALUES[0], always), (LABEL_VALUES[1], while_used)];
        let labels = labels.map(|(value, protect)| Policy::for_label(value, protect));
        let mut set = Self {
            policies: labels.into_iter().chain(policies).collect(),
            by_kind: Map::default(),
            of_any_kind: PolicyIndex::default(),
            user_kinds: catalogue.user_kinds(),
            approvals: Approvals::default(),
            pauses: Vec::new(),
            identities: Identities::default(),
            labelled_kinds: None,
        };
        for (policy_index, policy) in (0..).zip(&set.policies) {
            for (entry, target) in (0..).zip(&policy.targets) {
                for (group, resource) in target.kinds() {
                    let index = match (group, resource) {
                        ("*", _) | (_, "*") => &mut set.of_any_kind,
                        _ => {
                            let group = set.by_kind.entry(group.into()).or_default();
                            group.entry(resource.into()).or_default()
                        }
                    };
                    index.insert(target.lookup_key(), (policy_index, entry));
                }
            }
        }
        set
    }

    /// All policies. Those of the label come first.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// The policies that apply to an object, each once, with their actions without a pause.
    pub fn policies_ignoring_pause<'p>(
        &'p self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> Vec<AppliedPolicy<'p>> {
        if self.identities.is_exempt_namespace(facts.own_namespace()) {
            return Vec::new();
        }
        let mut entries = self.entries(facts);
        entries.sort_unstable();
        let mut applied: Vec<AppliedPolicy<'p>> = Vec::new();
        for entries in entries.chunk_by(|a, b| a.0 == b.0) {
            let policy = &self.policies[entries[0].0 as usize];
            let matched = entries.iter().map(|(_, entry)| {
                policy.matches(&policy.targets[*entry as usize], namespace_labels, facts)
            });
            let certain = match matched.max() {
                None | Some(MatchResult::No) => continue,
                Some(MatchResult::Unknown) => false,
                Some(MatchResult::Yes) => true,
            };
            let (action, is_action_certain) = policy.action_for(namespace_labels, facts);
            let certain = certain && is_action_certain;
            applied.push(AppliedPolicy { policy, action, paused: false, certain });
        }
        applied
    }

    /// The entries that may apply to an object, according to the index.
    fn entries(&self, facts: ObjectFacts<'_>) -> Vec<Entry> {
        let mut entries = Vec::new();
        let kind = self.by_kind.get(facts.group).and_then(|group| group.get(facts.resource));
        for index in kind.into_iter().chain([&self.of_any_kind]) {
            index.candidates(facts, &mut entries);
        }
        entries
    }

    /// The number of entries that are compared with an object.
    #[cfg(test)]
    pub(super) fn candidates(&self, facts: ObjectFacts<'_>) -> usize {
        self.entries(facts).len()
    }

    /// Whether a DeletionPolicy names this kind.
    pub fn names_kind(&self, group: &str, resource: &str) -> bool {
        let policies = self.policies.iter();
        policies
            .filter(|policy| matches!(policy.source, PolicySource::Policy(_)))
            .any(|policy| policy.names_kind(group, resource))
    }

    /// The policies that apply to an object at this time.
    pub fn policies_of<'p>(
        &'p self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
        now: i64,
    ) -> Vec<AppliedPolicy<'p>> {
        let mut applied = self.policies_ignoring_pause(namespace_labels, facts);
        if self.is_paused(now) {
            applied.iter_mut().for_each(|applied| *applied = applied.during_pause());
        }
        applied
    }

    /// Whether belay releases the holds of a policy on objects of a kind.
    pub fn releases_holds_of(&self, policy: &Policy, group: &str, resource: &str) -> bool {
        matches!(policy.source, PolicySource::Policy(_))
            || self.releases_label_holds(group, resource)
    }

    /// Whether belay releases any holds on objects of a kind.
    pub fn releases_any_hold(&self, group: &str, resource: &str) -> bool {
        self.names_kind(group, resource) || self.releases_label_holds(group, resource)
    }

    fn releases_label_holds(&self, group: &str, resource: &str) -> bool {
        let is_listed = |kinds: &Vec<(String, String)>| {
            kinds.iter().any(|(g, r)| (g.as_str(), r.as_str()) == (group, resource))
        };
        self.labelled_kinds.as_ref().is_none_or(is_listed)
    }

    /// Whether a pause is in force at this time.
    pub fn is_paused(&self, now: i64) -> bool {
        self.pause(now).is_some()
    }

    /// The pause in force that ends last.
    pub fn pause(&self, now: i64) -> Option<&Pause> {
        self.pauses.iter().filter(|pause| now < pause.expires).max_by_key(|pause| pause.expires)
    }

    /// The kinds whose objects may need an object of this kind, and whether they may be in
    /// another namespace.
    pub fn user_kinds(&self, kinds: &Kinds, kind: KindId) -> impl Iterator<Item = (KindId, bool)> {
        self.user_kinds.user_kinds(kinds, kind)
    }

    /// The annotations that policies read.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        self.policies.iter().flat_map(Policy::annotation_keys)
    }

    /// The kinds that policies name and the API server does not serve, each with its policy.
    ///
    /// An entry means all its groups × all its resources, and many of these pairs don't exist. A
    /// pair is reported only if no served pair of the entry has its group, or none has its
    /// resource.
    pub fn unknown_kinds<'p>(&'p self, kinds: &'p Kinds) -> Vec<(&'p PolicySource, String)> {
        let mut unknown = Vec::new();
        for policy in &self.policies {
            let exists = policy.modes.while_exists.iter().map(|exists| {
                exists.kinds.iter().map(|(g, r)| (g.as_str(), r.as_str())).collect::<Vec<_>>()
            });
            let targets = policy.targets.iter().map(|target| target.kinds().collect());
            for entry in targets.chain(exists) {
                let is_served = |(group, resource): (&str, &str)| {
                    group == "*"
                        || resource == "*"
                        || kinds.find_resource(group, resource).is_some()
                };
                for (group, resource) in &entry {
                    let is_any_served = |is_selected: &dyn Fn(&(&str, &str)) -> bool| {
                        entry.iter().filter(|pair| is_selected(pair)).any(|pair| is_served(*pair))
                    };
                    if !is_any_served(&|(_, r)| r == resource)
                        || !is_any_served(&|(g, _)| g == group)
                    {
                        unknown.push((&policy.source, full_name(group, resource)));
                    }
                }
            }
        }
        unknown.dedup();
        unknown
    }
}

impl PolicyIndex {
    fn insert(&mut self, lookup_key: LookupKey<'_>, entry: Entry) {
        let (map, keys): (_, Vec<&str>) = match lookup_key {
            LookupKey::None => return self.others.push(entry),
            LookupKey::Names(names) => (&mut self.by_name, names),
            LookupKey::Namespaces(names) => {
                (&mut self.by_namespace, names.iter().map(String::as_str).collect())
            }
        };
        for key in keys {
            map.entry(key.into()).or_default().push(entry);
        }
    }

    fn candidates(&self, facts: ObjectFacts<'_>, entries: &mut Vec<Entry>) {
        entries.extend(&self.others);
        entries.extend(self.by_name.get(facts.name).into_iter().flatten());
        let namespace = facts.own_namespace();
        if namespace.is_empty() {
            // Every namespace selector matches a cluster-scoped object.
            entries.extend(self.by_namespace.values().flatten());
        } else {
            entries.extend(self.by_namespace.get(namespace).into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h112_the_label_holds_only_the_kinds_of_the_setting() {
        let mut set = PolicySet::default();
        let leases = ("coordination.k8s.io", "leases");
        let releases = |set: &PolicySet, (group, resource)| {
            set.iter().all(|policy| set.releases_holds_of(policy, group, resource))
        };
        assert!(releases(&set, leases), "the setting is unknown");
        set.labelled_kinds = Some(vec![(String::new(), "configmaps".to_owned())]);
        assert!(releases(&set, ("", "configmaps")) && !releases(&set, leases));
        assert!(
            set.releases_any_hold("", "configmaps") && !set.releases_any_hold(leases.0, leases.1)
        );
    }
}
