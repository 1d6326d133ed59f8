//! The content of a Namespace or CRD, and objects that keep another object because they exist
//! (question 6 in docs/THEORY.md).

use super::causes::{CauseList, MAX_LISTED_CAUSES, hide_if_elsewhere};
use super::item::JudgedObject;
use super::owners::{OwnerState, owner_state};
use super::situation::{Completeness, is_default_object};
use super::users::is_used;
use super::{Cause, ContentReason, ListPart, LiveRead, NextStep, Situation};
use crate::graph::{Fates, Graph, Node, NodeId, SEARCH_STEPS};
use crate::objects::{CRDS, KindId, KindInfo, Kinds, NumberSet, full_name, split_full_name};
use crate::policy::api::Action;
use crate::policy::{
    AppliedPolicy, MatchResult, Matcher, ObjectFacts, PolicySource, WhileExistsEntry,
    WhileNotEmptyMode,
};

/// The limit of objects that belay counts. More objects do not change the verdict.
pub(super) const MAX_OBJECTS: usize = 1_000;

/// The objects that count, each with the reason. They are sorted, so that a message does not depend
/// on the order of the search: first the objects whose DELETE is always denied, then the others,
/// each by name. At the limit, they are sorted only by name.
fn find_counted<'a, R>(
    situation: &Situation<'a>,
    objects: impl Iterator<Item = JudgedObject<'a>>,
    reason: impl Fn(&JudgedObject<'a>) -> Option<R>,
) -> Vec<(JudgedObject<'a>, R)> {
    let name = |object: &JudgedObject<'a>| {
        let ObjectFacts { group, resource, namespace, name, .. } = object.facts;
        (resource, group, namespace, name)
    };
    let mut counted: Vec<(JudgedObject<'a>, R)> = Vec::new();
    for object in objects {
        let is_full = counted.len() >= MAX_OBJECTS;
        if !situation.work.charge(1) {
            break;
        }
        // Beyond the limit, an object only matters if a message would list it.
        if is_full && name(&object) >= name(&counted[MAX_LISTED_CAUSES - 1].0) {
            continue;
        }
        // One step is charged already.
        if !situation.work.charge(SEARCH_STEPS - 1) {
            break;
        }
        let Some(reason) = reason(&object) else { continue };
        if is_full {
            let position = counted.partition_point(|(other, _)| name(other) < name(&object));
            counted.insert(position, (object, reason));
            counted.truncate(MAX_OBJECTS);
            continue;
        }
        counted.push((object, reason));
        if counted.len() == MAX_OBJECTS {
            counted.sort_by(|(one, _), (other, _)| name(one).cmp(&name(other)));
        }
    }
    if counted.len() < MAX_OBJECTS {
        let is_always_denied = |object: &JudgedObject<'a>| {
            let applied = situation.policies_of(object.facts);
            applied
                .iter()
                .any(|applied| applied.action == Action::Deny && applied.policy.modes.always)
        };
        counted.sort_by_cached_key(|(object, _)| (!is_always_denied(object), name(object)));
    }
    counted
}

/// The objects that keep another object.
#[derive(Default)]
pub(super) struct BlockingObjects {
    /// The causes that keep the object.
    pub(super) causes: CauseList,
    /// The live reads that this result needs.
    pub(super) needed_reads: Vec<LiveRead>,
    /// The cause if belay does not know all such objects.
    pub(super) unknown: Option<Cause>,
    /// The kind of the objects that are unknown, by group and resource.
    pub(super) kind_of_unknown: (String, String),
}

impl BlockingObjects {
    /// An empty result for an object in this namespace.
    fn new(namespace: &str) -> Self {
        Self { causes: CauseList::new(namespace), ..Self::default() }
    }

    /// Records the read or the reason that is missing for a proof that belay knows all objects of
    /// the kind.
    fn require_complete(&mut self, kind: &KindInfo, completeness: Completeness) {
        match completeness {
            Completeness::Complete => {}
            Completeness::Unread(list) => self.needed_reads.push(list),
            _ if self.unknown.is_some() => {}
            Completeness::Unreadable { object, namespace } => {
                let cause = Cause::Unknown(object, Some(NextStep::ChangeObject));
                let cause = hide_if_elsewhere(&self.causes.namespace, &namespace, cause);
                self.set_unknown(kind, cause);
            }
            Completeness::Unknown(why, next) => {
                let what = format!("belay does not know all objects of kind {}: {why}", kind.kind);
                self.set_unknown(kind, Cause::Unknown(what, next));
            }
        }
    }

    fn set_unknown(&mut self, kind: &KindInfo, what: Cause) {
        self.unknown = Some(what);
        self.kind_of_unknown = (kind.group.clone(), kind.resource.clone());
    }
}

/// The kinds that count as content.
#[derive(Clone, Copy, PartialEq)]
enum ContentKinds {
    /// All.
    Any,
    /// PersistentVolumeClaims, and kinds that policies name.
    NamedAndClaims,
    /// Kinds that policies name.
    Named,
}

/// The content of a Namespace or CRD. `whileExists` uses `ObjectsOfKind` as well, for all objects
/// of a kind.
#[derive(Clone, Copy)]
pub(super) enum Container<'a> {
    /// The objects in the Namespace of this name.
    Namespace(&'a str),
    /// The objects of the kind with this group and resource: the content of a CRD, or objects
    /// that keep another one because they exist.
    ObjectsOfKind(&'a str, &'a str),
}

impl<'a> Container<'a> {
    /// The object as a container; `None` if it is neither a Namespace nor a CRD. The name of
    /// a CRD is its resource and group.
    pub(super) fn from_item(item: &JudgedObject<'a>) -> Option<Self> {
        let facts = item.facts;
        if facts.is_namespace() {
            return Some(Self::Namespace(facts.name));
        }
        let (resource, group) = split_full_name(facts.name);
        ((facts.group, facts.resource) == CRDS).then_some(Self::ObjectsOfKind(group, resource))
    }

    /// The objects in a graph.
    pub(super) fn objects(self, graph: &'a Graph) -> Box<dyn Iterator<Item = Node<'a>> + 'a> {
        let kinds = &graph.kinds;
        match self {
            Self::Namespace(name) => {
                let namespace = kinds.namespace();
                let namespace = namespace.and_then(|kind| graph.find(kind, "", name)).into_iter();
                let members = namespace.flat_map(|namespace| graph.objects_in_namespace(namespace));
                Box::new(members.filter_map(|id| graph.get(id)))
            }
            Self::ObjectsOfKind(group, resource) => {
                let kind = kinds.find_resource(group, resource);
                let instances = kind.into_iter().flat_map(|kind| graph.objects_of_kind(kind));
                Box::new(instances.filter_map(|id| graph.get(id)))
            }
        }
    }

    /// The objects in the graph and in the live reads.
    pub(super) fn judged_objects(
        self,
        situation: Situation<'a>,
    ) -> impl Iterator<Item = JudgedObject<'a>> {
        let watched =
            self.objects(situation.graph).map(move |n| JudgedObject::of_node(&situation, n));
        let live = situation.reads().into_iter().flat_map(move |reads| {
            let new = self
                .objects(&reads.graph)
                .filter(move |n| situation.graph.find_counterpart(*n).is_none());
            new.map(move |node| JudgedObject::of_node(&situation, node))
        });
        watched.chain(live).filter(move |item| !self.is_default_object(item))
    }

    /// Whether the control plane creates this object in this Namespace.
    pub(super) fn is_default_object(self, item: &JudgedObject<'_>) -> bool {
        let ObjectFacts { group, resource, namespace, name, .. } = item.facts;
        matches!(self, Self::Namespace(container) if container == namespace)
            && is_default_object(group, resource, name)
    }

    /// Whether belay read only the first object of a kind that it does not watch.
    fn has_only_first_read(self, situation: &Situation<'_>) -> bool {
        let Self::ObjectsOfKind(group, resource) = self else { return false };
        let first = list_in_all_namespaces((group, resource), ListPart::First);
        situation.reads().is_some_and(|reads| reads.results.contains_key(&first))
    }

    /// Requires live lists of the content of these kinds. This is the last check of the content: a
    /// hold keeps the container, not its content.
    fn require_lists(
        self,
        situation: &Situation<'_>,
        kinds: ContentKinds,
        blocking: &mut BlockingObjects,
    ) {
        match self {
            Self::Namespace(name) => {
                for kind in kinds_of_content(situation, kinds) {
                    let list = situation.read_of_list(kind, name, ListPart::All);
                    let info = situation.graph.kinds.info(kind);
                    blocking.require_complete(info, situation.check_completeness(kind, list, true));
                }
            }
            Self::ObjectsOfKind(group, resource) => {
                require_any_of_kind(situation, (group, resource), blocking);
            }
        }
    }
}

/// The live list of a kind that belay may not know.
fn list_in_all_namespaces((group, resource): (&str, &str), part: ListPart) -> LiveRead {
    let (group, resource, namespace) = (group.to_owned(), resource.to_owned(), String::new());
    LiveRead::List { group, resource, namespace, part }
}

/// Requires a list of the objects of a kind: of all objects if belay knows at least one, otherwise
/// only of the first one. belay may not know the kind.
fn require_any_of_kind(
    situation: &Situation<'_>,
    (group, resource): (&str, &str),
    blocking: &mut BlockingObjects,
) {
    let kinds = &situation.graph.kinds;
    // If belay knows no object, the first one shows whether there are any.
    let objects = Container::ObjectsOfKind(group, resource);
    let knows_none = objects.judged_objects(*situation).next().is_none();
    let part = if knows_none { ListPart::First } else { ListPart::All };
    if let Some(kind) = kinds.find_resource(group, resource) {
        let list = situation.read_of_list(kind, "", part);
        blocking.require_complete(
            kinds.info(kind),
            situation.check_completeness_by_metadata(kind, list),
        );
        return;
    }
    let unknown = format!("belay doesn't know the kind {}", full_name(group, resource));
    blocking.kind_of_unknown = (group.to_owned(), resource.to_owned());
    let list = list_in_all_namespaces((group, resource), part);
    match situation.reads().map(|reads| reads.results.get(&list)) {
        // A live read shows that the kind does not exist.
        Some(Some(Ok(()))) => {}
        Some(None) => blocking.needed_reads.push(list),
        Some(Some(Err(why))) => {
            let next = NextStep::after(why, (group, resource));
            blocking.unknown = Some(Cause::Unknown(format!("{unknown}: {why}"), Some(next)));
        }
        None => blocking.unknown = Some(Cause::Unknown(unknown, Some(NextStep::ServeKind))),
    }
}

/// The content of a Namespace or CRD that the policy counts, without the objects `deleted`. Other
/// objects have no content.
pub(super) fn find_content<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    not_empty: &'a WhileNotEmptyMode,
    deleted: &NumberSet<NodeId>,
) -> BlockingObjects {
    let mut blocking = BlockingObjects::default();
    let Some(container) = Container::from_item(item) else { return blocking };
    let is_kept =
        |member: &JudgedObject<'_>| !member.node.is_some_and(|node| deleted.contains(&node.id()));
    let members = container.judged_objects(*situation).filter(is_kept);
    let reason =
        |member: &JudgedObject<'a>| content_reason(situation, member, container, not_empty);
    for (member, why) in find_counted(situation, members, reason) {
        let cause = || Cause::Content { object: member.object_name(), why };
        blocking.causes.add(member.facts.namespace, cause);
    }
    blocking.causes.may_have_others = container.has_only_first_read(situation);
    if blocking.causes.is_empty() {
        let kinds =
            if not_empty.counts_all { ContentKinds::Any } else { ContentKinds::NamedAndClaims };
        container.require_lists(situation, kinds, &mut blocking);
    }
    blocking
}

/// Requires that belay knows all content that policies could protect. For a CRD, it also requires the
/// list of the labelled instances.
pub(super) fn require_content_lists(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
) -> BlockingObjects {
    let mut blocking = BlockingObjects::default();
    let Some(container) = Container::from_item(item) else { return blocking };
    if let Container::ObjectsOfKind(group, resource) = container
        && !situation.policies.names_kind(group, resource)
    {
        // The API server deletes the instances without admission, so their label counts here.
        require_labelled(situation, (group, resource), &mut blocking);
        return blocking;
    }
    container.require_lists(situation, ContentKinds::Named, &mut blocking);
    blocking
}

/// Requires the list of the labelled objects of a kind that belay knows. Files have no such list.
fn require_labelled(
    situation: &Situation<'_>,
    (group, resource): (&str, &str),
    blocking: &mut BlockingObjects,
) {
    let kinds = &situation.graph.kinds;
    let kind = kinds.find_resource(group, resource).filter(|_| situation.reads().is_some());
    if let Some(kind) = kind {
        let list = situation.read_of_list(kind, "", ListPart::Labelled);
        let completeness = situation.check_completeness_by_metadata(kind, list);
        blocking.require_complete(kinds.info(kind), completeness);
    }
}

/// The objects whose existence keeps the object.
pub(super) fn find_existing<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    item: &JudgedObject<'a>,
    exists: &'a WhileExistsEntry,
) -> BlockingObjects {
    let mut blocking = BlockingObjects::new(item.facts.own_namespace());
    for (group, resource) in &exists.kinds {
        let container = Container::ObjectsOfKind(group, resource);
        let reason = |other: &JudgedObject<'a>| {
            let is_deleted = other.node.is_some_and(|node| fates.is_certainly_deleted(node.id()));
            let labels = situation.namespace_labels();
            let namespace_matches =
                exists.namespace_selector.match_namespace(labels, other.facts) != MatchResult::No;
            let counts = other.uid() != item.uid() && !is_deleted && namespace_matches;
            counts.then_some(())
        };
        let counted = find_counted(situation, container.judged_objects(*situation), reason);
        blocking.causes.may_have_others |=
            !counted.is_empty() && container.has_only_first_read(situation);
        for (other, ()) in counted {
            blocking.causes.add(other.facts.namespace, || Cause::Exists(other.object_name()));
        }
        if blocking.causes.is_empty() {
            // The release does not check this again.
            require_any_of_kind(situation, (group, resource), &mut blocking);
        }
    }
    blocking
}

/// Why an object counts as content; `None` if it does not count.
fn content_reason<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    container: Container<'_>,
    not_empty: &WhileNotEmptyMode,
) -> Option<ContentReason> {
    let ignored = |matcher: &Matcher| {
        matcher.matches(situation.namespace_labels(), item.facts) == MatchResult::Yes
    };
    if not_empty.ignore.iter().any(ignored) {
        return None;
    }
    let counted = counted_content(situation, item, container, not_empty)?;
    Some(if item.is_terminating() { ContentReason::Terminating } else { counted })
}

fn counted_content(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    container: Container<'_>,
    not_empty: &WhileNotEmptyMode,
) -> Option<ContentReason> {
    // By default, an object with an owner does not count, because its owner re-creates it.
    if not_empty.counts_all && (not_empty.owned || !has_owner(situation, item)) {
        return Some(ContentReason::Anything);
    }
    // A bound PersistentVolumeClaim counts also if it has an owner, because the owner can
    // re-create the claim but not its data.
    let in_namespace = matches!(container, Container::Namespace(_));
    if in_namespace && is_bound_claim(&situation.graph.kinds, item) {
        return Some(ContentReason::Bound);
    }
    protecting_policy(situation, item).map(ContentReason::Protected)
}

fn has_owner(situation: &Situation<'_>, item: &JudgedObject<'_>) -> bool {
    item.owners(situation).iter().any(|owner_ref| {
        let state = owner_state(situation, item.facts.namespace, owner_ref);
        matches!(state, OwnerState::Solid(_) | OwnerState::Waiting(_))
    })
}

/// A bound PersistentVolumeClaim names its volume, so it has an edge to a PersistentVolume.
fn is_bound_claim(kinds: &Kinds, item: &JudgedObject<'_>) -> bool {
    let volume = kinds.find("", "PersistentVolume");
    item.kind == kinds.find("", "PersistentVolumeClaim")
        && item.used_kinds().any(|kind| Some(kind) == volume)
}

/// The policy with action Deny that protects an object now.
fn protecting_policy(situation: &Situation<'_>, item: &JudgedObject<'_>) -> Option<PolicySource> {
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
            ContentKinds::NamedAndClaims if Some(*kind) == claims => true,
            ContentKinds::NamedAndClaims | ContentKinds::Named => {
                policies.names_kind(&info.group, &info.resource)
            }
        };
        counts && !events
    });
    counted.map(|(kind, _)| kind).collect()
}
