//! What the API server has to ask about, from what is protected.
//!
//! The kinds are those that people named, whether somebody serves them or not:
//! a rule for a kind that comes later is in place when it does.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

use crate::cluster::World;
use crate::cluster::feed::plan;
use crate::decide::is_hold_unsafe_on_kind;
use crate::objects::Kinds;
use crate::policy::Policy;
use crate::policy::api::Action;

/// For each entry its rules. Equal policies give equal rules. An entry that is
/// not here has nothing to ask.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules(BTreeMap<&'static str, Vec<RuleWithOperations>>);

impl Rules {
    /// The rules of one entry.
    pub fn of(&self, entry: &str) -> &[RuleWithOperations] {
        self.0.get(entry).map_or(&[], Vec::as_slice)
    }

    fn ask(&mut self, entry: &'static str, operation: &str, kinds: &Pairs, suffix: &str) {
        let rules = self.0.entry(entry).or_default();
        rules.extend(kinds.rules(operation, suffix));
    }
}

/// The label that the API server puts on every Namespace and lets nobody
/// change.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

const NAMESPACES: (&str, &str) = ("", "namespaces");
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// What to ask. `labelled` are the kinds of which labelled objects are watched
/// though no policy names them: what is around them is asked about, too.
pub fn rules(world: &World, labelled: &[(String, String)]) -> Rules {
    let policies = || plan::policies(world);
    let of = |chosen: &dyn Fn(&Policy) -> bool| {
        Pairs::of(policies().filter(|policy| chosen(policy)).flat_map(Policy::kinds))
    };
    let mut rules = Rules::default();

    let mut held = of(&|policy| policy.holds() && policy.strictest_action() == Action::Deny);
    held.0.retain(|(group, resource)| !is_hold_unsafe_on_kind(group, resource));
    rules.ask("hold.belay.dev", "CREATE", &held, "");
    rules.ask("hold.belay.dev", "UPDATE", &held, "/*");

    let protected = of(&|_| true);
    rules.ask("delete.belay.dev", "DELETE", &protected, "");
    let mut around = around(world, &protected, labelled);
    rules.ask("cascade.belay.dev", "DELETE", &around, "");
    // An owner between what is protected and what is approved is an owner that
    // was given owners of its own.
    around.0.retain(|(group, resource)| {
        ![NAMESPACES, DEFINITIONS].contains(&(group.as_str(), resource.as_str()))
    });
    rules.ask("cascade.belay.dev", "UPDATE", &around, "/*");

    let moved = |policy: &Policy| policy.place_keys().any(|key| key != NAME_LABEL);
    let mut updated = protected.clone();
    if policies().any(moved) {
        updated.add(NAMESPACES);
    }
    rules.ask("update.belay.dev", "UPDATE", &updated, "/*");
    let reads = |policy: &Policy| policy.annotation_keys().any(|k| !k.starts_with("belay.dev/"));
    rules.ask("annotate.belay.dev", "UPDATE", &of(&reads), "/*");
    if kept(&protected, labelled).iter().any(|pair| is_namespaced(&world.graph.kinds, pair)) {
        rules.ask("finalize.belay.dev", "UPDATE", &Pairs::of([NAMESPACES]), "/finalize");
    }
    // A selector on the label sees the Eviction and not the Pod, so every
    // eviction is asked about, whatever policies name.
    rules.ask("evict.belay.dev", "CREATE", &Pairs::of([("", "pods")]), "/eviction");

    // The selector on the label narrows these. A hold goes where belay finds
    // it again: on other kinds the label is the early no alone.
    let watched = Pairs::of(labelled.iter().map(|(g, r)| (g.as_str(), r.as_str())));
    rules.ask("label-hold.belay.dev", "CREATE", &watched, "");
    let mut every = |entry, operation, suffix| {
        rules.ask(entry, operation, &Pairs::of([("*", "*")]), suffix);
    };
    every("label-hold.belay.dev", "UPDATE", "/*");
    every("label-delete.belay.dev", "DELETE", "");
    every("label-update.belay.dev", "UPDATE", "/*");
    rules.0.retain(|_, rules| !rules.is_empty());
    rules
}

/// The kinds whose objects take protected ones along: owners, as far as they
/// were seen, Namespaces and CRDs.
fn around(world: &World, protected: &Pairs, labelled: &[(String, String)]) -> Pairs {
    let kinds = &world.graph.kinds;
    let owners = world.owners.iter().map(|kind| kinds.info(*kind));
    // Of a kind that is only mentioned nobody knows the plural name.
    let owners = owners.filter(|info| !info.resource.is_empty());
    let mut around = Pairs::of(owners.map(|info| (&*info.group, &*info.resource)));
    let kept = kept(protected, labelled);
    if kept.iter().any(|pair| is_namespaced(kinds, pair)) {
        around.add(NAMESPACES);
    }
    if kept.iter().any(|(group, resource)| !Kinds::is_built_in(group, resource)) {
        around.add(DEFINITIONS);
    }
    around.0.retain(|(group, resource)| !protected.has(group, resource));
    around
}

/// The kinds of which objects are known to be protected: by policies, and by the
/// label.
fn kept(protected: &Pairs, labelled: &[(String, String)]) -> BTreeSet<Pair> {
    protected.0.iter().chain(labelled).cloned().collect()
}

/// Whether objects of a kind may live in namespaces. Of one that nobody serves
/// that is not known.
fn is_namespaced(kinds: &Kinds, (group, resource): &Pair) -> bool {
    kinds.find_resource(group, resource).is_none_or(|kind| kinds.info(kind).namespaced)
}

/// Group and plural name; either may be `*`.
type Pair = (String, String);

/// Kinds, none of them named twice.
#[derive(Debug, Clone, Default)]
struct Pairs(BTreeSet<Pair>);

impl Pairs {
    fn of<'p>(pairs: impl IntoIterator<Item = (&'p str, &'p str)>) -> Self {
        Self(pairs.into_iter().map(|(g, r)| (g.to_owned(), r.to_owned())).collect())
    }

    fn add(&mut self, (group, resource): (&str, &str)) {
        self.0.insert((group.to_owned(), resource.to_owned()));
    }

    /// Whether a kind is among them, by name or by `*`.
    fn has(&self, group: &str, resource: &str) -> bool {
        let named = |g: &str, r: &str| self.0.contains(&(g.to_owned(), r.to_owned()));
        named(group, resource) || named("*", resource) || named(group, "*") || named("*", "*")
    }

    /// As few rules as say it: groups with the same resources share one. The
    /// API server takes `*` only by itself, so what it covers is left out.
    fn rules(&self, operation: &str, suffix: &str) -> Vec<RuleWithOperations> {
        let named = |g: &str, r: &str| self.0.contains(&(g.to_owned(), r.to_owned()));
        let mut of_group: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (group, resource) in &self.0 {
            let covered = ((group != "*" || resource != "*") && named("*", "*"))
                || (group != "*" && named("*", resource))
                || (resource != "*" && named(group, "*"));
            if !covered {
                of_group.entry(group).or_default().push(format!("{resource}{suffix}"));
            }
        }
        let mut of_resources: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
        for (group, resources) in of_group {
            of_resources.entry(resources).or_default().push(group.to_owned());
        }
        let rule = |(resources, groups)| RuleWithOperations {
            api_groups: Some(groups),
            api_versions: Some(vec!["*".to_owned()]),
            operations: Some(vec![operation.to_owned()]),
            resources: Some(resources),
            scope: Some("*".to_owned()),
        };
        of_resources.into_iter().map(rule).collect()
    }
}

/// The rule that matches every kind: `*` all objects, `*/*` their subresources
/// as well.
pub(super) fn everything(operation: &str, resources: &str) -> RuleWithOperations {
    let just = |text: &str| Some(vec![text.to_owned()]);
    RuleWithOperations {
        api_groups: just("*"),
        api_versions: just("*"),
        operations: just(operation),
        resources: just(resources),
        scope: Some("*".to_owned()),
    }
}

#[cfg(test)]
mod tests;
