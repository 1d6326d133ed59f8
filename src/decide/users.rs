//! Finds the remaining users of an object (question 5 of docs/THEORY.md).

use super::causes::{CauseList, MAX_LISTED_CAUSES, hide_if_elsewhere, is_in_other_namespace};
use super::item::{JudgedObject, object_name, only_wait};
use super::owners::{OwnerSearch, UserOwners, find_owner};
use super::situation::Completeness;
use super::{Cause, ListPart, LiveRead, NextStep, Situation};
use crate::graph::{
    Certainty, DeletionOutcome, EdgeQualifier, Fates, Graph, Node, ObjectPhase, ObjectUser,
    OwnerRef, Propagation, SelectorTarget, Strength,
};
use crate::objects::{KeyedMap, Uid, full_name};
use crate::policy::{ObjectFacts, WhileUsedMode};

/// The limit of users that belay checks. More users do not change the verdict.
const MAX_USERS: usize = 1_000;

/// The limit of topmost owners that one verdict reads live.
const MAX_TOPMOST_OWNERS_READ: usize = 16;

/// An object whose users belay searches for.
#[derive(Clone, Copy)]
pub(super) struct UsedObject<'i, 'a> {
    pub(super) item: &'i JudgedObject<'a>,
    /// Whether a release waits for the users that the policy counts. If not, a hold does not help.
    pub(super) release_waits: bool,
    /// If the deletion of its owners deletes the object: the propagation of that deletion.
    pub(super) owner_propagation: Option<Propagation>,
}

/// The users of an object.
#[derive(Default)]
pub(super) struct FoundUsers {
    /// The users that block the deletion, by their owners.
    pub(super) blocking: Vec<Cause>,
    /// The number of further causes.
    pub(super) more: usize,
    /// The users that are certain to be deleted. The hold waits for them.
    pub(super) doomed: Vec<Cause>,
    /// The live reads that this result needs.
    pub(super) needed_reads: Vec<LiveRead>,
    /// The cause if belay does not know all users.
    pub(super) unknown: Option<Cause>,
}

/// The users of this object that are not certainly deleted with it. One user is enough for a
/// denial. The absence of users needs proof: belay must know all objects of each kind that can
/// use the object. With `live`, belay must list these objects live, because no later check exists.
pub(super) fn find_users<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    UsedObject { item, release_waits, owner_propagation }: UsedObject<'_, 'a>,
    mode: &'a WhileUsedMode,
    live: bool,
    owners: &mut UserOwners<'a>,
) -> FoundUsers {
    let mut found = FoundUsers::default();
    let held = release_waits && item.has_effective_hold(situation);
    // For a user that owns the object: whether it is removed before the object, or the order is
    // irrelevant because the object is held. In a foreground deletion, the garbage collector
    // deletes an object before its owner.
    let is_order_safe = |user: Node<'a>| {
        owner_propagation.is_some_and(|propagation| {
            held || (propagation != Propagation::Foreground && !user.waits_in_foreground())
        })
    };
    let does_not_count = |user: Node<'a>| {
        is_deleted_together(fates, user)
            || (is_order_safe(user) && is_deleted_first(situation, fates, item, user))
    };
    let live = live && !held;
    let namespace = item.facts.own_namespace();
    let by_owner = || UsersByOwner::new(situation, mode, namespace);
    let (mut blocking, mut doomed) = (by_owner(), by_owner());
    for user in relevant_users(situation, item, mode, situation.graph) {
        if !situation.work.charge(user.node.finalizers().search_steps()) {
            break;
        }
        if does_not_count(user.node) {
            continue;
        }
        let is_doomed = held && owners.is_doomed(user.node);
        let users = if is_doomed { &mut doomed } else { &mut blocking };
        users.add(user, owners);
        if blocking.checked >= MAX_USERS {
            break;
        }
    }
    let users_are_in_graph = !blocking.is_empty();
    // There are live reads also for a held object, if a watch is not connected.
    if let Some(reads) = situation.reads().filter(|_| blocking.is_empty()) {
        for user in relevant_users(situation, item, mode, &reads.graph) {
            if blocking.checked >= MAX_USERS || !situation.work.charge(1) {
                break;
            }
            let is_ignored = situation
                .graph
                .find_counterpart(user.node)
                .is_some_and(|node| does_not_count(node) || (held && owners.is_doomed(node)));
            if !is_ignored {
                blocking.add(user, owners);
            }
        }
    }
    if blocking.is_empty() {
        require_user_lists(situation, item, live, &mut found);
    }
    let (blocking, doomed) = (blocking.into_sorted(), doomed.into_sorted());
    // After `kubectl delete sts/x pvc/y` the graph may not show the first deletion yet. So read
    // live the topmost owners of users, and the users of the graph that have no owner.
    let blocking_users = blocking.users.iter().take(MAX_TOPMOST_OWNERS_READ).filter(|_| held);
    let reads = blocking_users.filter_map(|(_, user)| {
        let topmost = owners.topmost_owner(user.node);
        let is_needed = topmost.id() != user.node.id()
            || (users_are_in_graph && user.node.owner_refs().next().is_none());
        is_needed
            .then(|| situation.read_of_object(topmost.kind(), topmost.namespace(), topmost.name()))
    });
    found.needed_reads.extend(reads.filter(|read| situation.is_unread(read)));
    found.needed_reads.append(&mut owners.unread);
    (found.blocking, found.more) = blocking.causes();
    (found.doomed, _) = doomed.causes();
    found
}

/// Whether the same deletion certainly deletes a user, and all finalizers of the user belong to
/// controllers that only wait.
fn is_deleted_together(fates: &Fates, user: Node<'_>) -> bool {
    fates.get(user.id()).is_some_and(|fate| {
        let only_waits =
            fate.outcome == DeletionOutcome::Terminating && only_wait(user.finalizers().iter());
        fate.certainty == Certainty::Certain
            && (fate.outcome == DeletionOutcome::Deleted || only_waits)
    })
}

/// Whether a user certainly receives its DELETE and owns the object, so that the garbage
/// collector deletes the object when the user is removed.
fn is_deleted_first<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    item: &JudgedObject<'a>,
    user: Node<'a>,
) -> bool {
    let fate = fates.get(user.id());
    let owns = |object: Node<'a>| {
        find_owner(situation, object, |owner| owner.uid() == user.uid(), |_| false)
    };
    fate.is_some_and(|fate| {
        fate.certainty == Certainty::Certain && fate.outcome == DeletionOutcome::Terminating
    }) && item.node.is_some_and(|object| matches!(owns(object), OwnerSearch::Found(_)))
}

/// Users by the owners that messages name: ten Pods of a Deployment are one cause.
struct UsersByOwner<'s, 'a> {
    situation: &'s Situation<'a>,
    mode: &'s WhileUsedMode,
    /// The namespace of the used object, or the used Namespace; empty for another
    /// cluster-scoped object.
    namespace: &'a str,
    /// The best example of a user for each owner.
    users: Vec<(Node<'a>, ObjectUser<'a>)>,
    index: KeyedMap<Uid, usize>,
    checked: usize,
}

impl<'s, 'a> UsersByOwner<'s, 'a> {
    fn new(situation: &'s Situation<'a>, mode: &'s WhileUsedMode, namespace: &'a str) -> Self {
        let (users, index) = (Vec::new(), KeyedMap::default());
        Self { situation, mode, namespace, users, index, checked: 0 }
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn add(&mut self, user: ObjectUser<'a>, owners: &mut UserOwners<'a>) {
        self.checked += 1;
        let owner = owner_in_message(self.situation, user.node, self.mode, owners);
        let rank = |user: &ObjectUser<'a>| {
            (self.is_elsewhere(owner, user), example_rank(owner, user.node, user.path()))
        };
        match self.index.get(&owner.uid()) {
            None => {
                self.index.insert(owner.uid(), self.users.len());
                self.users.push((owner, user));
            }
            Some(index) => {
                if rank(&user) < rank(&self.users[*index].1) {
                    self.users[*index] = (owner, user);
                }
            }
        }
    }

    fn is_elsewhere(&self, owner: Node<'a>, user: &ObjectUser<'a>) -> bool {
        let nodes = [owner, user.node];
        nodes.iter().any(|node| is_in_other_namespace(self.namespace, node.namespace()))
    }

    /// Moves the users of other namespaces to the end, and sorts the users that messages list
    /// by name, so that the result does not depend on the order of the search.
    fn into_sorted(mut self) -> Self {
        let users = std::mem::take(&mut self.users);
        let (elsewhere, same_namespace): (Vec<_>, Vec<_>) =
            users.into_iter().partition(|(owner, user)| self.is_elsewhere(*owner, user));
        for mut users in [same_namespace, elsewhere] {
            if users.len() > MAX_LISTED_CAUSES {
                users.select_nth_unstable_by_key(MAX_LISTED_CAUSES, |(owner, _)| by_name(*owner));
            }
            let listed = users.len().min(MAX_LISTED_CAUSES);
            users[..listed].sort_by_key(|(owner, _)| by_name(*owner));
            self.users.append(&mut users);
        }
        self
    }

    /// The causes that messages list, and the number of the others.
    fn causes(&self) -> (Vec<Cause>, usize) {
        let mut causes = CauseList::new(self.namespace);
        for (owner, user) in &self.users {
            // The owner or the user may be cluster-scoped.
            let nodes = [*owner, user.node].map(Node::namespace);
            let other_namespace =
                nodes.into_iter().find(|other| is_in_other_namespace(self.namespace, other));
            causes.add(other_namespace.unwrap_or(self.namespace), || Cause::User {
                owner: object_name(*owner),
                user: (owner.uid() != user.node.uid()).then(|| object_name(user.node)),
                path: user.path().to_owned(),
            });
        }
        causes.into_causes()
    }
}

fn by_name<'g>(node: Node<'g>) -> (&'g str, &'g str, &'g str) {
    (&node.info().kind, node.namespace(), node.name())
}

/// Ranks users as examples: a running Pod is better than its template.
pub(crate) fn example_rank<'g>(
    owner: Node<'g>,
    user: Node<'g>,
    path: &'g str,
) -> impl Ord + use<'g> {
    let (kind, _, name) = by_name(user);
    (kind != "Pod", owner.uid() == user.uid(), name, path)
}

/// Whether the graph has any user of the object.
pub(super) fn is_used<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    mode: &'a WhileUsedMode,
) -> bool {
    relevant_users(situation, item, mode, situation.graph).next().is_some()
}

/// The users in this graph that a policy counts.
pub(crate) fn relevant_users<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    mode: &'a WhileUsedMode,
    graph: &'a Graph,
) -> impl Iterator<Item = ObjectUser<'a>> + use<'a> {
    let (situation, item) = (*situation, *item);
    let ObjectFacts { namespace, name, labels, .. } = item.facts;
    let node_id = item.kind.and_then(|kind| graph.find(kind, namespace, name));
    let named = node_id
        .into_iter()
        .flat_map(move |id| graph.named_users(id, Some(item.uid()), situation.work));
    let label = move |key: &str| labels.get(key);
    let (label_steps, work) = (labels.lookup_steps(), situation.work);
    let target =
        item.kind.map(|kind| SelectorTarget { kind, namespace, name, label, label_steps, work });
    let selector_users = target.into_iter().flat_map(|target| graph.selector_users(target));
    named
        .chain(selector_users)
        .filter(move |user| user.node.uid() != item.uid() && counts_as_user(&situation, user, mode))
}

/// Whether this use keeps an object under this policy.
fn counts_as_user(situation: &Situation<'_>, user: &ObjectUser<'_>, mode: &WhileUsedMode) -> bool {
    let facts = ObjectFacts::of_node(user.node);
    let is_excluded = match user.qualifier() {
        EdgeQualifier::None => false,
        EdgeQualifier::Optional => !mode.optional,
        // A scaled-down ReplicaSet counts only for policies that name its kind.
        EdgeQualifier::ScaledDown => !mode.by.iter().any(|by| by.names_resource(facts.resource)),
    };
    if user.strength() != Strength::Needs
        || is_excluded
        || user.node.phase() == ObjectPhase::Finished
    {
        return false;
    }
    mode.by.is_empty()
        || selects_user(mode, user.node)
        || !matches!(find_selected_owner(situation, user.node, mode), OwnerSearch::Absent)
}

/// Whether `by` of a policy selects this object.
fn selects_user(mode: &WhileUsedMode, node: Node<'_>) -> bool {
    mode.by.iter().any(|by| by.matches(ObjectFacts::of_node(node)))
}

/// Searches the direct and indirect owners of a user for one that the policy selects. If an
/// owner is unknown, the kind in its owner reference decides.
fn find_selected_owner<'a>(
    situation: &Situation<'a>,
    user: Node<'a>,
    mode: &WhileUsedMode,
) -> OwnerSearch<'a> {
    let kinds = &situation.graph.kinds;
    let may_be_selected = |owner_ref: &OwnerRef<'_>| {
        owner_ref.kind.is_none_or(|kind| {
            let info = kinds.info(kind);
            mode.by.iter().any(|by| by.may_select_kind(&info.group, &info.resource))
        })
    };
    find_owner(situation, user, |owner| selects_user(mode, owner), may_be_selected)
}

/// The owner that messages name for a user: the topmost owner, if the policy selects it or all
/// users. Otherwise the owner that the policy selects, because an editor can add owners above
/// that owner.
fn owner_in_message<'a>(
    situation: &Situation<'a>,
    user: Node<'a>,
    mode: &WhileUsedMode,
    owners: &mut UserOwners<'a>,
) -> Node<'a> {
    let topmost_owner = owners.topmost_owner(user);
    if mode.by.is_empty() || selects_user(mode, topmost_owner) {
        return topmost_owner;
    }
    match find_selected_owner(situation, user, mode) {
        OwnerSearch::Found(owner) => owner,
        OwnerSearch::Unknown | OwnerSearch::Absent => topmost_owner,
    }
}

/// Adds the lists that prove that no other user exists, or the reason why that is unknown.
fn require_user_lists(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    live: bool,
    found: &mut FoundUsers,
) {
    let Some(kind) = item.kind else {
        let ObjectFacts { group, resource, .. } = item.facts;
        let name = full_name(group, resource);
        let what = format!("belay doesn't know the kind {name}");
        found.unknown = Some(Cause::Unknown(what, Some(NextStep::ServeKind)));
        return;
    };
    for (user_kind, in_any_namespace) in situation.policies.user_kinds(&situation.graph.kinds, kind)
    {
        let namespace = if in_any_namespace { "" } else { item.facts.namespace };
        match situation.check_completeness(
            user_kind,
            situation.read_of_list(user_kind, namespace, ListPart::All),
            live,
        ) {
            Completeness::Complete => {}
            Completeness::Unread(list) => found.needed_reads.push(list),
            Completeness::Unreadable { object, namespace } => {
                let what = format!("{object}, so it may use the object");
                let cause = Cause::Unknown(what, Some(NextStep::ChangeObject));
                found.unknown =
                    Some(hide_if_elsewhere(item.facts.own_namespace(), &namespace, cause));
                return;
            }
            Completeness::Unknown(why, next) => {
                let kind = &situation.graph.kinds.info(user_kind).kind;
                let what = format!(
                    "belay does not know all objects of kind {kind}, and one of them may use this \
                     object: {why}"
                );
                found.unknown = Some(Cause::Unknown(what, next));
                return;
            }
        }
    }
}
