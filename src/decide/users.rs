//! Question 5 of a DELETE: the remaining users of the object.

use super::causes::{CauseList, MAX_LISTED_CAUSES, cause_of_object, is_in_other_namespace};
use super::item::{JudgedObject, is_waiting_finalizer, object_name};
use super::owners::{OwnerSearch, UserOwners, find_owner, root_read};
use super::situation::Absence;
use super::{Cause, LiveRead, NextStep, Situation};
use crate::graph::{
    Certainty, DeletionOutcome, EdgeQualifier, Fates, Graph, Node, ObjectPhase, ObjectUser,
    OwnerRef, Propagation, SelectorTarget, Strength,
};
use crate::objects::{KeyedMap, Uid, full_name};
use crate::policy::{InUse, ObjectFacts};

/// The limit of users that belay checks. More users do not change the verdict.
const MAX_USERS: usize = 1_000;

/// The limit of topmost owners that one verdict reads live.
const MAX_ROOTS_READ: usize = 16;

/// An object whose users are sought.
#[derive(Clone, Copy)]
pub(super) struct UsedObject<'i, 'a> {
    pub(super) item: &'i JudgedObject<'a>,
    /// Whether a release waits for the policy. Otherwise a hold does not help.
    pub(super) release_waits: bool,
    /// If the object is deleted because its owners are: how these are deleted.
    pub(super) owner_propagation: Option<Propagation>,
}

/// The users of an object.
#[derive(Default)]
pub(super) struct UserFindings {
    /// The users that block the deletion, by their managers.
    pub(super) blocking: Vec<Cause>,
    /// The number of further causes.
    pub(super) more: usize,
    /// The users that are certain to be deleted: the hold waits for them.
    pub(super) doomed: Vec<Cause>,
    /// The live reads that this result needs.
    pub(super) needed_reads: Vec<LiveRead>,
    /// The cause if the users are unknown.
    pub(super) unknown: Option<Cause>,
}

/// The users of this object that are not certainly deleted with it. One found user is enough to
/// deny. That there is none needs a proof: a graph that has all objects of every kind that
/// could be a user, and `live` where nothing would catch a mistake.
pub(super) fn find_users<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    UsedObject { item, release_waits: keeps, owner_propagation: follows }: UsedObject<'_, 'a>,
    in_use: &'a InUse,
    live: bool,
    owners: &mut UserOwners<'a>,
) -> UserFindings {
    let mut found = UserFindings::default();
    let held = keeps && item.has_effective_hold(situation);
    // In a foreground deletion the garbage collector deletes an object before its owner.
    // Then the hold keeps the object for the owner.
    let follows = |user: Node<'a>| {
        follows.is_some_and(|how| {
            held || (how != Propagation::Foreground && !user.waits_in_foreground())
        })
    };
    let goes_first = |user: Node<'a>| {
        is_deleted_together(fates, user)
            || (follows(user) && is_deleted_first(situation, fates, item, user))
    };
    let live = live && !held;
    let namespace = item.facts.own_namespace();
    let managers = || UsersByManager::new(situation, in_use, namespace);
    let (mut blocking, mut doomed) = (managers(), managers());
    for user in counting_users(situation, item, in_use, situation.graph) {
        if !situation.work.charge(user.node.finalizers().size()) {
            break;
        }
        if goes_first(user.node) {
            continue;
        }
        let goes = held && owners.is_doomed(user.node);
        let managers = if goes { &mut doomed } else { &mut blocking };
        managers.add(user, owners);
        if blocking.checked >= MAX_USERS {
            break;
        }
    }
    // Also for a held object: without a connected watch belay reads lists.
    if let Some(reads) = situation.reads().filter(|_| blocking.is_empty()) {
        for user in counting_users(situation, item, in_use, &reads.graph) {
            if blocking.checked >= MAX_USERS || !situation.work.charge(1) {
                break;
            }
            let goes = situation
                .graph
                .find_counterpart(user.node)
                .is_some_and(|node| goes_first(node) || (held && owners.is_doomed(node)));
            if !goes {
                blocking.add(user, owners);
            }
        }
    }
    if blocking.is_empty() {
        require_user_lists(situation, item, live, &mut found);
    }
    let (blocking, doomed) = (blocking.into_sorted(), doomed.into_sorted());
    // After `kubectl delete sts/x pvc/y` the graph may lag behind the first deletion.
    let roots = blocking.users.iter().take(MAX_ROOTS_READ).filter(|_| held);
    let reads = roots.filter_map(|(_, user)| {
        let root = owners.topmost_owner(user.node);
        root_read(situation, user.node, root)
    });
    found.needed_reads.extend(reads.filter(|read| situation.is_unread(read)));
    (found.blocking, found.more) = blocking.causes();
    (found.doomed, _) = doomed.causes();
    found
}

/// Whether a user certainly receives its DELETE along with what it uses, and
/// nothing keeps it but controllers that wait: a user under a hold of ours
/// waits for the same as all the others.
fn is_deleted_together(fates: &Fates, user: Node<'_>) -> bool {
    fates.get(user.id()).is_some_and(|fate| {
        let waits = fate.outcome == DeletionOutcome::Held
            && user.finalizers().iter().all(is_waiting_finalizer);
        fate.certainty == Certainty::Certain && (fate.outcome == DeletionOutcome::Deleted || waits)
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
        fate.certainty == Certainty::Certain && fate.outcome == DeletionOutcome::Held
    }) && item.node.is_some_and(|object| matches!(owns(object), OwnerSearch::Found(_)))
}

/// Users by their managers: ten Pods of a Deployment are one cause. Causes are only built
/// for the users that messages list.
struct UsersByManager<'s, 'a> {
    situation: &'s Situation<'a>,
    in_use: &'s InUse,
    /// The namespace of the used object, or the used Namespace; empty for another
    /// cluster-scoped object.
    namespace: &'a str,
    /// The best example of a user for each manager.
    users: Vec<(Node<'a>, ObjectUser<'a>)>,
    index: KeyedMap<Uid, usize>,
    checked: usize,
}

impl<'s, 'a> UsersByManager<'s, 'a> {
    fn new(situation: &'s Situation<'a>, in_use: &'s InUse, namespace: &'a str) -> Self {
        let (users, index) = (Vec::new(), KeyedMap::default());
        Self { situation, in_use, namespace, users, index, checked: 0 }
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn add(&mut self, user: ObjectUser<'a>, owners: &mut UserOwners<'a>) {
        self.checked += 1;
        let manager = manager(self.situation, user.node, self.in_use, owners);
        let rank =
            |user: &ObjectUser<'a>| (self.is_elsewhere(manager, user), example_rank(manager, user));
        match self.index.get(&manager.uid()) {
            None => {
                self.index.insert(manager.uid(), self.users.len());
                self.users.push((manager, user));
            }
            Some(at) => {
                if rank(&user) < rank(&self.users[*at].1) {
                    self.users[*at] = (manager, user);
                }
            }
        }
    }

    fn is_elsewhere(&self, manager: Node<'a>, user: &ObjectUser<'a>) -> bool {
        let nodes = [manager, user.node];
        nodes.iter().any(|node| is_in_other_namespace(self.namespace, node.namespace()))
    }

    /// Sorts the users of other namespaces behind the others, and moves the first ones by
    /// name to the front, so that the result does not depend on the order of the search.
    fn into_sorted(mut self) -> Self {
        let users = std::mem::take(&mut self.users);
        let (elsewhere, here): (Vec<_>, Vec<_>) =
            users.into_iter().partition(|(manager, user)| self.is_elsewhere(*manager, user));
        for mut users in [here, elsewhere] {
            if users.len() > MAX_LISTED_CAUSES {
                users.select_nth_unstable_by_key(MAX_LISTED_CAUSES, |(manager, _)| {
                    by_name(*manager)
                });
            }
            let listed = users.len().min(MAX_LISTED_CAUSES);
            users[..listed].sort_by_key(|(manager, _)| by_name(*manager));
            self.users.append(&mut users);
        }
        self
    }

    /// The causes that messages list, and the number of the others.
    fn causes(&self) -> (Vec<Cause>, usize) {
        let mut causes = CauseList::new(self.namespace);
        for (manager, user) in &self.users {
            // The manager or the user may be cluster-scoped.
            let nodes = [*manager, user.node].map(Node::namespace);
            let apart =
                nodes.into_iter().find(|other| is_in_other_namespace(self.namespace, other));
            causes.add(apart.unwrap_or(self.namespace), || Cause::User {
                root: object_name(*manager),
                through: (manager.uid() != user.node.uid()).then(|| object_name(user.node)),
                path: user.path().to_owned(),
            });
        }
        causes.into_causes()
    }
}

fn by_name<'g>(node: Node<'g>) -> (&'g str, &'g str, &'g str) {
    (&node.info().kind, node.namespace(), node.name())
}

/// A running Pod is a better example than its template.
fn example_rank<'g>(manager: Node<'g>, user: &ObjectUser<'g>) -> impl Ord + use<'g> {
    let (kind, _, name) = by_name(user.node);
    (kind != "Pod", manager.uid() == user.node.uid(), name, user.path())
}

/// Whether the graph has any user of the object.
pub(super) fn is_used<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    in_use: &'a InUse,
) -> bool {
    counting_users(situation, item, in_use, situation.graph).next().is_some()
}

/// The users in this graph that a policy counts.
pub(crate) fn counting_users<'a>(
    situation: &Situation<'a>,
    item: &JudgedObject<'a>,
    in_use: &'a InUse,
    graph: &'a Graph,
) -> impl Iterator<Item = ObjectUser<'a>> + use<'a> {
    let (situation, item) = (*situation, *item);
    let ObjectFacts { namespace, name, labels, .. } = item.facts;
    let place = item.kind.and_then(|kind| graph.find(kind, namespace, name));
    let named = place
        .into_iter()
        .flat_map(move |id| graph.named_users(id, Some(item.uid()), situation.work));
    let label = move |key: &str| labels.get(key);
    let (label_steps, work) = (labels.size(), situation.work);
    let sought =
        item.kind.map(|kind| SelectorTarget { kind, namespace, name, label, label_steps, work });
    let selector_users = sought.into_iter().flat_map(|sought| graph.selector_users(sought));
    named.chain(selector_users).filter(move |user| {
        user.node.uid() != item.uid() && counts_as_user(&situation, user, in_use)
    })
}

/// Whether this use keeps an object under this policy.
fn counts_as_user(situation: &Situation<'_>, user: &ObjectUser<'_>, in_use: &InUse) -> bool {
    let facts = ObjectFacts::of_node(user.node);
    let excused = match user.qualifier() {
        EdgeQualifier::None => false,
        EdgeQualifier::Optional => !in_use.optional,
        // A scaled-down ReplicaSet counts only for policies that name its kind.
        EdgeQualifier::ScaledDown => !in_use.by.iter().any(|by| by.names_resource(facts.resource)),
    };
    if user.strength() != Strength::Needs || excused || user.node.phase() == ObjectPhase::Finished {
        return false;
    }
    in_use.by.is_empty()
        || selects_user(in_use, user.node)
        || !matches!(find_selected_owner(situation, user.node, in_use), OwnerSearch::Absent)
}

/// Whether `by` of a policy selects this object.
fn selects_user(in_use: &InUse, node: Node<'_>) -> bool {
    in_use.by.iter().any(|by| by.matches(ObjectFacts::of_node(node)))
}

/// Searches everything above a user for an owner that the policy means. An owner
/// that is not known is taken for what its reference says.
fn find_selected_owner<'a>(
    situation: &Situation<'a>,
    user: Node<'a>,
    in_use: &InUse,
) -> OwnerSearch<'a> {
    let kinds = &situation.graph.kinds;
    let may_be_meant = |claim: &OwnerRef<'_>| {
        claim.kind.is_none_or(|kind| {
            let info = kinds.info(kind);
            in_use.by.iter().any(|by| by.may_select_kind(&info.group, &info.resource))
        })
    };
    find_owner(situation, user, |owner| selects_user(in_use, owner), may_be_meant)
}

/// By whom a user is shown: the owner at the top, unless the policy means another
/// one. An editor can add owners in front of that.
fn manager<'a>(
    situation: &Situation<'a>,
    user: Node<'a>,
    in_use: &InUse,
    owners: &mut UserOwners<'a>,
) -> Node<'a> {
    let root = owners.topmost_owner(user);
    if in_use.by.is_empty() || selects_user(in_use, root) {
        return root;
    }
    match find_selected_owner(situation, user, in_use) {
        OwnerSearch::Found(owner) => owner,
        OwnerSearch::Unknown | OwnerSearch::Absent => root,
    }
}

/// An empty result is valid only if all possible users were read.
fn require_user_lists(
    situation: &Situation<'_>,
    item: &JudgedObject<'_>,
    live: bool,
    found: &mut UserFindings,
) {
    let Some(kind) = item.kind else {
        let ObjectFacts { group, resource, .. } = item.facts;
        let name = full_name(group, resource);
        let what = format!("belay doesn't know the kind {name}");
        found.unknown = Some(Cause::Unknown(what, Some(NextStep::ServeKind)));
        return;
    };
    for (needer, crosses) in situation.policies.user_kinds(&situation.graph.kinds, kind) {
        let namespace = if crosses { "" } else { item.facts.namespace };
        match situation.prove_absence(needer, situation.list_read(needer, namespace, false), live) {
            Absence::Proved => {}
            Absence::Unread(list) => found.needed_reads.push(list),
            Absence::Unreadable { object, namespace } => {
                let what = format!("{object}, so it may use it");
                let cause = Cause::Unknown(what, Some(NextStep::ChangeObject));
                found.unknown =
                    Some(cause_of_object(item.facts.own_namespace(), &namespace, cause));
                return;
            }
            Absence::Unknown(why, next) => {
                let kind = &situation.graph.kinds.info(needer).kind;
                let what = format!("objects of kind {kind} may use it: {why}");
                found.unknown = Some(Cause::Unknown(what, next));
                return;
            }
        }
    }
}
