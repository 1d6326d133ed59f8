//! The rules of the webhooks, from the protected kinds.
//!
//! The rules also contain kinds that policies name and the API server does not serve yet. So the
//! rule exists before such a kind is added.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};

use super::kind_set::{KindName, KindSet};
use super::namespaces::{Kind, LEADER_CONDITION, NamespaceLimits, OwnerPair};
use super::objects::ObjectLimits;
use crate::cluster::World;
use crate::cluster::feed::plan;
use crate::decide::is_hold_unsafe_on_kind;
use crate::objects::{CRDS, KindInfo, Kinds, NAMESPACES};
use crate::policy::api::Action;
use crate::policy::{NAME_LABEL, Policy};

/// The webhooks about the DELETE of owners. Each request matches one of them.
const OWNER_WEBHOOKS: [&str; 2] = ["cascade.belay.dev", "orphan.belay.dev"];

/// The rules by webhook. Equal policies give equal rules. A webhook without rules is not
/// in the map.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    rules: BTreeMap<&'static str, Vec<RuleWithOperations>>,
    /// The conditions that limit the rules of a webhook to some namespaces and objects.
    conditions: BTreeMap<&'static str, MatchCondition>,
    /// Whether belay does not know yet which kinds own protected objects. Then nothing limits the
    /// rules that need these kinds.
    pub owners_unknown: bool,
}

impl Rules {
    pub fn for_webhook(&self, webhook: &str) -> &[RuleWithOperations] {
        self.rules.get(webhook).map_or(&[], Vec::as_slice)
    }

    pub fn condition(&self, webhook: &str) -> Option<&MatchCondition> {
        self.conditions.get(webhook)
    }

    fn add(&mut self, webhook: &'static str, operation: &str, kinds: &KindSet, suffix: &str) {
        let rules = self.rules.entry(webhook).or_default();
        rules.extend(kinds.rules(operation, suffix));
    }
}

/// Computes the rules. `labelled` are the kinds whose labelled objects belay watches although no
/// policy names the kinds. The rules include their ancestors.
pub fn rules(world: &World, labelled: &[(String, String)]) -> Rules {
    let policies = || plan::policies(world);
    let kinds_of = |chosen: &dyn Fn(&Policy) -> bool| {
        KindSet::from_names(policies().filter(|policy| chosen(policy)).flat_map(Policy::kinds))
    };
    let mut rules = Rules::default();

    let places_enforced_hold =
        |policy: &Policy| policy.places_hold() && policy.strictest_action() == Action::Deny;
    let mut held = kinds_of(&places_enforced_hold);
    held.0.retain(|(group, resource)| !is_hold_unsafe_on_kind(group, resource));
    rules.add("hold.belay.dev", "CREATE", &held, "");
    rules.add("hold.belay.dev", "UPDATE", &held, "/*");

    let protected = kinds_of(&|_| true);
    rules.add("delete.belay.dev", "DELETE", &protected, "");
    let owners = owner_kinds(world);
    let mut ancestors = ancestor_kinds(world, &owners, &protected, labelled);
    for webhook in OWNER_WEBHOOKS {
        rules.add(webhook, "DELETE", &ancestors, "");
    }
    // An UPDATE can add an owner reference from an ancestor to an object with an approval. The
    // deletion of that object would then cascade to the protected object.
    ancestors.0.retain(|(group, resource)| {
        ![NAMESPACES, CRDS].contains(&(group.as_str(), resource.as_str()))
    });
    rules.add("cascade.belay.dev", "UPDATE", &ancestors, "/*");

    let selects_namespaces =
        |policy: &Policy| policy.namespace_label_keys().any(|key| key != NAME_LABEL);
    let mut updated = protected.clone();
    if policies().any(selects_namespaces) {
        updated.add(NAMESPACES);
    }
    rules.add("update.belay.dev", "UPDATE", &updated, "/*");
    let reads_annotations =
        |policy: &Policy| policy.annotation_keys().any(|k| !k.starts_with("belay.dev/"));
    rules.add("annotate.belay.dev", "UPDATE", &kinds_of(&reads_annotations), "/*");
    if protected_kinds(&protected, labelled)
        .iter()
        .any(|pair| is_namespaced(&world.graph.kinds, pair))
    {
        rules.add("finalize.belay.dev", "UPDATE", &KindSet::from_names([NAMESPACES]), "/finalize");
    }
    // A label selector applies to the Eviction and not to the Pod, so belay receives
    // every eviction.
    rules.add("evict.belay.dev", "CREATE", &KindSet::from_names([("", "pods")]), "/eviction");

    // A label selector narrows these rules. belay adds holds only to the kinds that it
    // watches; on other kinds the label only causes admission denials.
    let watched = KindSet::from_names(labelled.iter().map(|(g, r)| (g.as_str(), r.as_str())));
    rules.add("label-hold.belay.dev", "CREATE", &watched, "");
    let mut every = |webhook, operation, suffix| {
        rules.add(webhook, operation, &KindSet::every_kind(), suffix);
    };
    every("label-hold.belay.dev", "UPDATE", "/*");
    every("label-delete.belay.dev", "DELETE", "");
    every("label-update.belay.dev", "UPDATE", "/*");
    rules.rules.retain(|_, rules| !rules.is_empty());

    rules.owners_unknown = !plan::knows_owners(world, labelled);
    add_conditions(
        &mut rules,
        world,
        &owners,
        labelled,
        [&places_enforced_hold, &reads_annotations],
    );
    rules
}

/// Adds the conditions that limit the rules to some namespaces and objects.
fn add_conditions(
    rules: &mut Rules,
    world: &World,
    owners: &[OwnerPair<'_>],
    labelled: &[(String, String)],
    [places_enforced_hold, reads_annotations]: [&dyn Fn(&Policy) -> bool; 2],
) {
    let policies = || plan::policies(world);
    let Rules { rules, conditions, owners_unknown } = rules;
    let mut limit = |webhook, parts: [Option<String>; 2]| {
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if rules.contains_key(webhook) && !parts.is_empty() {
            let expression = match parts.as_slice() {
                [one] => one.clone(),
                parts => format!("({})", parts.join(") && (")),
            };
            conditions
                .insert(webhook, MatchCondition { name: LEADER_CONDITION.to_owned(), expression });
        }
    };
    let of_hold = NamespaceLimits::new(policies().filter(|policy| places_enforced_hold(policy)));
    limit("hold.belay.dev", [of_hold.expression(), None]);
    let annotation_readers = || policies().filter(|policy| reads_annotations(policy));
    let parts = [
        NamespaceLimits::new(annotation_readers()).expression(),
        ObjectLimits::new(annotation_readers()).expression(),
    ];
    limit("annotate.belay.dev", parts);
    if *owners_unknown {
        return;
    }
    // The deletion of an owner cascades to protected objects.
    let limits = NamespaceLimits::new(policies());
    let owner_namespaces = limits.owner_namespaces(owners, labelled);
    let limits = limits.with_owners(&owner_namespaces);
    let objects = ObjectLimits::new(policies()).without_owners(owners);
    limit("delete.belay.dev", [limits.expression(), objects.expression()]);
    let guarded = guarded_dependents(world, owners);
    let objects = objects.without(guarded.iter().map(|(kind, _)| *kind));
    let limits = limits.with_guarded_dependents(&guarded);
    limit("update.belay.dev", [limits.expression(), objects.expression()]);
    let of_owners = NamespaceLimits::of_owners(owner_namespaces).expression();
    for webhook in OWNER_WEBHOOKS {
        limit(webhook, [of_owners.clone(), None]);
    }
}

/// The kinds whose owners `fromOrphaning` protects, each with the namespaces of the policy; `None`:
/// any namespace.
fn guarded_dependents<'w>(
    world: &'w World,
    owners: &[OwnerPair<'w>],
) -> Vec<(Kind<'w>, Option<&'w [String]>)> {
    let guards = || plan::policies(world).filter(|policy| policy.modes.from_orphaning);
    let dependents = owners.iter().flat_map(|(dependent, owner)| {
        let targets = guards().flat_map(Policy::targets_by_kind);
        let targets = targets.filter(|(_, target)| target.names_kind(owner.0, owner.1));
        // Every namespace selector matches a cluster-scoped owner.
        let owner = (owner.0.to_owned(), owner.1.to_owned());
        let namespaced = is_namespaced(&world.graph.kinds, &owner);
        targets.map(move |(_, target)| (*dependent, target.namespaces().filter(|_| namespaced)))
    });
    dependents.collect()
}

/// The protected kinds, each with a kind that owns its objects.
fn owner_kinds(world: &World) -> Vec<OwnerPair<'_>> {
    let kinds = &world.graph.kinds;
    let pairs =
        world.protected_owner_kinds.iter().map(|pair| (kinds.info(pair.0), kinds.info(pair.1)));
    // A kind that is only mentioned has no known plural name.
    let pairs = pairs.filter(|(_, owner)| !owner.resource.is_empty());
    pairs.map(|(dependent, owner)| (names(dependent), names(owner))).collect()
}

fn names(info: &KindInfo) -> (&str, &str) {
    (&info.group, &info.resource)
}

/// The kinds whose deletion cascades to protected objects: known owners, Namespaces and
/// CRDs.
fn ancestor_kinds(
    world: &World,
    owners: &[OwnerPair<'_>],
    protected: &KindSet,
    labelled: &[(String, String)],
) -> KindSet {
    let kinds = &world.graph.kinds;
    let mut ancestors = KindSet::from_names(owners.iter().map(|(_, owner)| *owner));
    let protected_kinds = protected_kinds(protected, labelled);
    if protected_kinds.iter().any(|pair| is_namespaced(kinds, pair)) {
        ancestors.add(NAMESPACES);
    }
    if protected_kinds.iter().any(|(group, resource)| !Kinds::is_built_in(group, resource)) {
        ancestors.add(CRDS);
    }
    ancestors.0.retain(|(group, resource)| !protected.contains(group, resource));
    ancestors
}

/// The kinds that policies or the label protect.
fn protected_kinds(protected: &KindSet, labelled: &[(String, String)]) -> BTreeSet<KindName> {
    protected.0.iter().chain(labelled).cloned().collect()
}

/// True for unknown kinds.
fn is_namespaced(kinds: &Kinds, (group, resource): &KindName) -> bool {
    kinds.find_resource(group, resource).is_none_or(|kind| kinds.info(kind).namespaced)
}

#[cfg(test)]
mod tests;
