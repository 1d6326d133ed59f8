//! Question 6 of a DELETE: what is in a Namespace or CRD, and what exists that
//! keeps an object.

use super::item::{Item, named};
use super::owners::{Standing, standing};
use super::users::{LISTED, is_used};
use super::{Cause, Counts, LiveRead, Situation};
use crate::graph::{Fates, Graph, Node, NodeId};
use crate::objects::KindId;
use crate::policy::api::Action;
use crate::policy::{Exists, Facts, Matched, Matcher, NotEmpty, Source};

/// What every Namespace has by itself; it is no content.
const FURNITURE: &[(&str, &str)] =
    &[("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// What was found.
#[derive(Default)]
pub(super) struct Kept {
    /// What keeps the object.
    pub(super) causes: Vec<Cause>,
    /// How many more there are.
    pub(super) more: usize,
    /// What has to be read live before this counts.
    pub(super) confirm: Vec<LiveRead>,
    /// What cannot be known, and why.
    pub(super) unknown: Option<String>,
}

impl Kept {
    fn found(&mut self, cause: Cause) {
        if self.causes.len() < LISTED {
            self.causes.push(cause);
        } else {
            self.more += 1;
        }
    }
}

/// The content of a Namespace or CRD that counts. Of anything else there is
/// none.
pub(super) fn content(
    situation: &Situation<'_>,
    container: &Item<'_>,
    not_empty: &NotEmpty,
) -> Kept {
    let mut kept = Kept::default();
    let graph = situation.graph;
    let namespace = container.facts.is_namespace();
    let instances = match instances_of(situation, container) {
        Instances::None if !namespace => return kept,
        Instances::Of(kind) => Some(kind),
        Instances::None => None,
        Instances::Unknown(group, resource) => {
            let (group, resource) = (group.to_owned(), resource.to_owned());
            let kind =
                if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
            let namespace = String::new();
            let list = LiveRead::List { group, resource, namespace, first: false };
            // The objects of a kind that is not known can only be read live.
            if situation.is_unread(&list) {
                kept.confirm.push(list);
            } else {
                kept.unknown = Some(format!("{kind} is no kind that belay knows"));
            }
            return kept;
        }
    };
    let look = |kept: &mut Kept, graph: &Graph, container: Option<NodeId>| {
        let situation = Situation { graph, ..*situation };
        let members: Box<dyn Iterator<Item = NodeId>> = match (instances, container) {
            (Some(kind), _) => Box::new(graph.of_kind(kind)),
            (None, Some(namespace)) => Box::new(graph.members(namespace)),
            (None, None) => Box::new(std::iter::empty()),
        };
        for node in members.filter_map(|id| graph.get(id)) {
            if let Some(why) = counts(&situation, node, not_empty) {
                kept.found(Cause::Content { object: named(&situation, node), why });
            }
        }
    };
    look(&mut kept, graph, container.place);
    if kept.causes.is_empty()
        && let Some(reads) = situation.reads()
    {
        let place = container.kind.and_then(|k| reads.graph.find(k, "", container.facts.name));
        look(&mut kept, &reads.graph, place);
    }
    if kept.causes.is_empty() {
        let kinds = match instances {
            Some(kind) => vec![kind],
            None => kinds_of_content(situation, not_empty.any),
        };
        let place = if namespace { container.facts.name } else { "" };
        // A Namespace or CRD has no second line of defence: a hold would save
        // the shell alone. So that it is empty is always read live.
        for kind in kinds {
            prove(situation, &mut kept, kind, place, instances.is_some() && not_empty.any, true);
        }
    }
    kept
}

/// What exists and keeps the object.
pub(super) fn existing(
    situation: &Situation<'_>,
    fates: &Fates,
    item: &Item<'_>,
    exists: &Exists,
) -> Kept {
    let mut kept = Kept::default();
    let held = item.is_held(situation);
    for (group, resource) in &exists.kinds {
        let Some(kind) = situation.graph.kinds.find_resource(group, resource) else {
            let dot = if group.is_empty() { "" } else { "." };
            kept.unknown = Some(format!("{resource}{dot}{group} is no kind that belay knows"));
            continue;
        };
        let graphs = [Some(situation.graph), situation.reads().map(|reads| &reads.graph)];
        for (live, graph) in graphs.into_iter().enumerate() {
            let Some(graph) = graph.filter(|_| live == 0 || kept.causes.is_empty()) else {
                continue;
            };
            for node in graph.of_kind(kind).filter_map(|id| graph.get(id)) {
                let itself = node.uid() == item.uid();
                let goes = live == 0 && fates.is_certainly_deleted(node.id());
                let facts = Facts::of_node(graph, node);
                let placed = exists.place.match_place(situation.places(), facts) != Matched::No;
                if !itself && !goes && placed {
                    kept.found(Cause::Exists(named(&Situation { graph, ..*situation }, node)));
                }
            }
        }
        if kept.causes.is_empty() {
            prove(situation, &mut kept, kind, "", exists.place.is_empty(), !held);
        }
    }
    kept
}

/// That nothing was found means something only where everything was looked at.
fn prove(
    situation: &Situation<'_>,
    kept: &mut Kept,
    kind: KindId,
    namespace: &str,
    first: bool,
    live: bool,
) {
    let graph = situation.graph;
    let known = graph.is_complete(kind);
    if known && !live {
        return;
    }
    let list = situation.list(kind, namespace, first);
    if situation.is_unread(&list) {
        kept.confirm.push(list);
        return;
    }
    let (known, why) = match situation.reads() {
        Some(reads) => (reads.graph.is_complete(kind), reads.graph.why_incomplete(kind)),
        None => (known, graph.why_incomplete(kind)),
    };
    if !known && kept.unknown.is_none() {
        let kind = &graph.kinds.info(kind).kind;
        kept.unknown = Some(format!("objects of kind {kind}: {why}"));
    }
}

/// What a CRD defines.
enum Instances<'a> {
    /// It is no CRD.
    None,
    /// Objects of this kind.
    Of(KindId),
    /// Objects of a kind, by group and resource, that is not known.
    Unknown(&'a str, &'a str),
}

/// A CRD is named after the resource that it defines.
fn instances_of<'a>(situation: &Situation<'_>, item: &Item<'a>) -> Instances<'a> {
    let definition = ("apiextensions.k8s.io", "customresourcedefinitions");
    if (item.facts.group, item.facts.resource) != definition {
        return Instances::None;
    }
    let (resource, group) = item.facts.name.split_once('.').unwrap_or((item.facts.name, ""));
    let kind = situation.graph.kinds.find_resource(group, resource);
    kind.map_or(Instances::Unknown(group, resource), Instances::Of)
}

/// Why an object counts as content; `None` if it does not.
fn counts(situation: &Situation<'_>, node: Node<'_>, not_empty: &NotEmpty) -> Option<Counts> {
    let item = Item::of_node(situation, node);
    let facts = item.facts;
    if FURNITURE.contains(&(facts.resource, facts.name)) && facts.group.is_empty() {
        return None;
    }
    let ignored = |matcher: &Matcher| matcher.matches(situation.places(), facts) == Matched::Yes;
    if not_empty.ignore.iter().any(ignored) || !not_empty.owned && has_owner(situation, &item) {
        return None;
    }
    if not_empty.any {
        return Some(Counts::Anything);
    }
    if is_bound_claim(situation.graph, node) {
        return Some(Counts::Bound);
    }
    protected(situation, &item).map(Counts::Protected)
}

fn has_owner(situation: &Situation<'_>, item: &Item<'_>) -> bool {
    item.owners(situation).iter().any(|claim| {
        let standing = standing(situation, item.facts.namespace, claim);
        matches!(standing, Standing::Solid(_) | Standing::Waiting(_))
    })
}

/// A claim is bound once it says its volume, which is an edge.
fn is_bound_claim(graph: &Graph, node: Node<'_>) -> bool {
    let kind = |kind| graph.kinds.find("", kind);
    Some(node.kind()) == kind("PersistentVolumeClaim")
        && node
            .uses()
            .iter()
            .any(|edge| Some(graph.coordinates(edge.to).0) == kind("PersistentVolume"))
}

/// The enforcing policy that protects an object now: always, or because
/// something uses it.
fn protected(situation: &Situation<'_>, item: &Item<'_>) -> Option<Source> {
    let applied = situation.applied(item.facts);
    let protects =
        applied.iter().filter(|applied| applied.action == Action::Deny).find(|applied| {
            let modes = &applied.policy.modes;
            modes.always
                || modes.while_used.as_ref().is_some_and(|mode| is_used(situation, item, mode))
        });
    protects.map(|applied| applied.policy.source.clone())
}

/// The kinds whose objects could count as content of a Namespace.
fn kinds_of_content(situation: &Situation<'_>, any: bool) -> Vec<KindId> {
    let kinds = &situation.graph.kinds;
    let policies = situation.policies;
    let claims = kinds.find("", "PersistentVolumeClaim");
    let namespaced = kinds.iter().filter(|(_, info)| info.namespaced && !info.versions.is_empty());
    let counted = namespaced.filter(|(kind, info)| {
        let events = info.resource == "events";
        let named = any || Some(*kind) == claims || policies.names(&info.group, &info.resource);
        named && !events
    });
    counted.map(|(kind, _)| kind).collect()
}
