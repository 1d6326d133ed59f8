//! Question 6 of a DELETE: the content of a Namespace or CRD, and objects whose existence
//! keeps another one.

use super::causes::{CauseList, cause_of_object};
use super::item::JudgedObject;
use super::owners::{OwnerState, owner_state};
use super::situation::{Absence, is_default_object};
use super::users::is_used;
use super::{Cause, ContentReason, LiveRead, NextStep, Situation};
use crate::graph::{Fates, Graph, Node};
use crate::objects::{KindId, KindInfo, Kinds, full_name};
use crate::policy::api::Action;
use crate::policy::{
    AppliedPolicy, Exists, MatchResult, Matcher, NotEmpty, ObjectFacts, PolicySource,
};

/// The limit of objects that belay counts. More objects do not change the verdict.
const MAX_OBJECTS: usize = 1_000;

/// The objects that keep another one.
#[derive(Default)]
pub(super) struct BlockingObjects {
    /// The causes that keep the object.
    pub(super) causes: CauseList,
    /// The live reads that this result needs.
    pub(super) needed_reads: Vec<LiveRead>,
    /// The cause if the objects are unknown.
    pub(super) unknown: Option<Cause>,
    /// The unknown kind, by group and resource.
    pub(super) unknown_kind: (String, String),
}

impl BlockingObjects {
    /// An empty result for an object in this namespace.
    fn new(namespace: &str) -> Self {
        Self { causes: CauseList::new(namespace), ..Self::default() }
    }

    /// Adds a cause in a namespace. Returns whether to continue the search.
    fn add(&mut self, namespace: &str, cause: impl FnOnce() -> Cause) -> bool {
        self.causes.add(namespace, cause);
        self.causes.more() < MAX_OBJECTS
    }

    fn add_absence(&mut self, kind: &KindInfo, absence: Absence) {
        match absence {
            Absence::Proved => {}
            Absence::Unread(list) => self.needed_reads.push(list),
            _ if self.unknown.is_some() => {}
            Absence::Unreadable { object, namespace } => {
                let cause = Cause::Unknown(object, Some(NextStep::ChangeObject));
                let cause = cause_of_object(&self.causes.namespace, &namespace, cause);
                self.set_unknown(kind, cause);
            }
            Absence::Unknown(why, next) => {
                let what = format!("not all objects of kind {} are known: {why}", kind.kind);
                self.set_unknown(kind, Cause::Unknown(what, next));
            }
        }
    }

    fn set_unknown(&mut self, kind: &KindInfo, what: Cause) {
        self.unknown = Some(what);
        self.unknown_kind = (kind.group.clone(), kind.resource.clone());
    }
}

/// The kinds that count as content.
#[derive(Clone, Copy, PartialEq)]
enum ContentKinds {
    /// All.
    Any,
    /// PersistentVolumeClaims, and kinds that policies name.
    Protected,
    /// Kinds that policies name.
    Named,
}

/// A Namespace or CRD, which contains other objects.
#[derive(Clone, Copy)]
pub(super) enum Container<'a> {
    /// A Namespace of this name.
    Namespace(&'a str),
    /// A CRD: the objects of this kind, by group and resource.
    Crd(&'a str, &'a str),
}

impl<'a> Container<'a> {
    /// The container that an object is, if it is one. The name of a CRD is its resource
    /// and group.
    pub(super) fn from_item(item: &JudgedObject<'a>) -> Option<Self> {
        let facts = item.facts;
        if facts.is_namespace() {
            return Some(Self::Namespace(facts.name));
        }
        let definition = ("apiextensions.k8s.io", "customresourcedefinitions");
        let (resource, group) = facts.name.split_once('.').unwrap_or((facts.name, ""));
        ((facts.group, facts.resource) == definition).then_some(Self::Crd(group, resource))
    }

    /// Its content in a graph.
    pub(super) fn objects(self, graph: &'a Graph) -> Box<dyn Iterator<Item = Node<'a>> + 'a> {
        let kinds = &graph.kinds;
        match self {
            Self::Namespace(name) => {
                let place = kinds.find("", "Namespace").and_then(|kind| graph.find(kind, "", name));
                let members = place.into_iter().flat_map(|place| graph.objects_in_namespace(place));
                Box::new(members.filter_map(|id| graph.get(id)))
            }
            Self::Crd(group, resource) => {
                let kind = kinds.find_resource(group, resource);
                let instances = kind.into_iter().flat_map(|kind| graph.objects_of_kind(kind));
                Box::new(instances.filter_map(|id| graph.get(id)))
            }
        }
    }

    /// Its content in the graph and in the live reads.
    pub(super) fn judged_objects(
        self,
        situation: Situation<'a>,
    ) -> impl Iterator<Item = JudgedObject<'a>> {
        let known =
            self.objects(situation.graph).map(move |n| JudgedObject::of_node(&situation, n));
        let live = situation.reads().into_iter().flat_map(move |reads| {
            let new = self
                .objects(&reads.graph)
                .filter(move |n| situation.graph.find_counterpart(*n).is_none());
            new.map(move |node| JudgedObject::of_node(&situation, node))
        });
        known.chain(live).filter(move |item| !self.is_default_object(item))
    }

    /// Whether this is a Namespace, and the control plane creates the object in it.
    pub(super) fn is_default_object(self, item: &JudgedObject<'_>) -> bool {
        let ObjectFacts { group, resource, namespace, name, .. } = item.facts;
        matches!(self, Self::Namespace(own) if own == namespace)
            && is_default_object(group, resource, name)
    }

    /// Requires live lists of its content of these kinds. No later check exists for an
    /// empty container, because a hold would keep only the empty object.
    fn require_lists(
        self,
        situation: &Situation<'_>,
        first: bool,
        kinds: ContentKinds,
        kept: &mut BlockingObjects,
    ) {
        match self {
            Self::Namespace(name) => {
                for kind in kinds_of_content(situation, kinds) {
                    let list = situation.list_read(kind, name, first);
                    let info = situation.graph.kinds.info(kind);
                    kept.add_absence(info, situation.prove_absence(kind, list, true));
                }
            }
            Self::Crd(group, resource) => {
                require_absent_kind(situation, (group, resource), first, kept);
            }
        }
    }
}

/// Requires proof that no object of a kind exists, which may be a kind that belay doesn't
/// know.
fn require_absent_kind(
    situation: &Situation<'_>,
    (group, resource): (&str, &str),
    first: bool,
    kept: &mut BlockingObjects,
) {
    let kinds = &situation.graph.kinds;
    if let Some(kind) = kinds.find_resource(group, resource) {
        let list = situation.list_read(kind, "", first);
        kept.add_absence(kinds.info(kind), situation.prove_absence_by_metadata(kind, list));
        return;
    }
    let unknown = format!("belay doesn't know the kind {}", full_name(group, resource));
    let (group, resource) = (group.to_owned(), resource.to_owned());
    kept.unknown_kind = (group.clone(), resource.clone());
    let list = LiveRead::List { group, resource, namespace: String::new(), first };
    match situation.reads().map(|reads| reads.results.get(&list)) {
        // A live read shows that the kind does not exist.
        Some(Some(Ok(()))) => {}
        Some(None) => kept.needed_reads.push(list),
        Some(Some(Err(why))) => {
            let next = NextStep::after(why);
            kept.unknown = Some(Cause::Unknown(format!("{unknown}: {why}"), Some(next)));
        }
        None => kept.unknown = Some(Cause::Unknown(unknown, Some(NextStep::ServeKind))),
    }
}

/// The content of a Namespace or CRD that counts. Other objects have no content.
pub(super) fn find_content<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    not_empty: &'a NotEmpty,
) -> BlockingObjects {
    let mut kept = BlockingObjects::default();
    let Some(container) = Container::from_item(item) else { return kept };
    for member in container.judged_objects(*situation) {
        if !situation.work.charge(8) {
            break;
        }
        if let Some(why) = content_reason(situation, &member, container, not_empty)
            && !kept.add(member.facts.namespace, || Cause::Content {
                object: member.object_name(),
                why,
            })
        {
            break;
        }
    }
    if kept.causes.is_empty() {
        // One object is enough if every object counts.
        let first = not_empty.any && not_empty.ignore.is_empty() && not_empty.owned;
        let definition = matches!(container, Container::Crd(..));
        let kinds = if not_empty.any { ContentKinds::Any } else { ContentKinds::Protected };
        container.require_lists(situation, first && definition, kinds, &mut kept);
    }
    kept
}

/// Requires that belay knows all content that policies could protect.
pub(super) fn require_content_lists(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
) -> BlockingObjects {
    let mut kept = BlockingObjects::default();
    let Some(container) = Container::from_item(item) else { return kept };
    if let Container::Crd(group, resource) = container
        && !situation.policies.names_kind(group, resource)
    {
        return kept;
    }
    container.require_lists(situation, false, ContentKinds::Named, &mut kept);
    kept
}

/// The objects whose existence keeps the object.
pub(super) fn find_existing<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    item: &JudgedObject<'a>,
    exists: &Exists,
) -> BlockingObjects {
    let mut kept = BlockingObjects::new(item.facts.own_namespace());
    for (group, resource) in &exists.kinds {
        let container = Container::Crd(group, resource);
        for other in container.judged_objects(*situation) {
            if !situation.work.charge(1) {
                break;
            }
            let goes = other.node.is_some_and(|node| fates.is_certainly_deleted(node.id()));
            let placed =
                exists.namespace_labels.match_namespace(situation.namespace_labels(), other.facts)
                    != MatchResult::No;
            let counts = other.uid() != item.uid() && !goes && placed;
            let cause = || Cause::Exists(other.object_name());
            if counts && !kept.add(other.facts.namespace, cause) {
                break;
            }
        }
        if kept.causes.is_empty() {
            let itself = (item.facts.group, item.facts.resource) == (group, resource);
            let first = exists.namespace_labels.is_empty() && !itself;
            // The release does not check it again.
            require_absent_kind(situation, (group, resource), first, &mut kept);
        }
    }
    kept
}

/// Why an object counts as content; `None` if it does not count.
fn content_reason<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    container: Container<'_>,
    not_empty: &NotEmpty,
) -> Option<ContentReason> {
    let ignored = |matcher: &Matcher| {
        matcher.matches(situation.namespace_labels(), item.facts) == MatchResult::Yes
    };
    if not_empty.ignore.iter().any(ignored) {
        return None;
    }
    // The owner re-creates its dependents.
    if not_empty.any && (not_empty.owned || !has_owner(situation, item)) {
        return Some(ContentReason::Anything);
    }
    // The owner of a claim re-creates the claim without its data. So this counts as well
    // if any object counts.
    let namespace = matches!(container, Container::Namespace(_));
    if namespace && is_bound_claim(&situation.graph.kinds, item) {
        return Some(ContentReason::Bound);
    }
    protected(situation, item).map(ContentReason::Protected)
}

fn has_owner(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    item.owners(situation).iter().any(|claim| {
        let standing = owner_state(situation, item.facts.namespace, claim);
        matches!(standing, OwnerState::Solid(_) | OwnerState::Waiting(_))
    })
}

/// A bound claim names its volume, which is an edge.
fn is_bound_claim(kinds: &Kinds, item: &JudgedObject<'_>) -> bool {
    let volume = kinds.find("", "PersistentVolume");
    item.kind == kinds.find("", "PersistentVolumeClaim")
        && item.used_kinds().any(|kind| Some(kind) == volume)
}

/// The policy with action Deny that protects an object now.
fn protected(situation: &Situation<'_>, item: &JudgedObject<'_>) -> Option<PolicySource> {
    let applied = situation.policies_of(item.facts);
    let mut enforcing = applied.iter().filter(|applied| applied.action == Action::Deny);
    let protects = enforcing.find(|applied| protects_now(situation, applied, item));
    protects.map(|applied| applied.policy.source.clone())
}

/// Whether a policy protects an object now: always, or because the object is in use.
pub(super) fn protects_now<'a>(
    situation: &Situation<'a>,
    applied: &AppliedPolicy<'a>,
    item: &JudgedObject<'a>,
) -> bool {
    let modes = &applied.policy.modes;
    modes.always || modes.while_used.as_ref().is_some_and(|mode| is_used(situation, item, mode))
}

/// The kinds whose objects could count as content of a Namespace.
fn kinds_of_content(situation: &Situation<'_>, which: ContentKinds) -> Vec<KindId> {
    let kinds = &situation.graph.kinds;
    let policies = situation.policies;
    let claims = kinds.find("", "PersistentVolumeClaim");
    let namespaced = kinds.iter().filter(|(_, info)| info.namespaced && !info.versions.is_empty());
    let counted = namespaced.filter(|(kind, info)| {
        let events = info.resource == "events";
        let counts = match which {
            ContentKinds::Any => true,
            ContentKinds::Protected if Some(*kind) == claims => true,
            ContentKinds::Protected | ContentKinds::Named => {
                policies.names_kind(&info.group, &info.resource)
            }
        };
        counts && !events
    });
    counted.map(|(kind, _)| kind).collect()
}
