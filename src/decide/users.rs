//! Question 5 of a DELETE: who needs the object and would be left.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rustc_hash::FxBuildHasher;

use super::item::{Item, named};
use super::owners::{is_doomed, root_read};
use super::{Cause, LiveRead, Situation};
use crate::graph::{Excuse, Fates, Graph, Node, NodeId, Progress, Strength, User};
use crate::policy::{Facts, InUse};

/// So many causes are listed; of the others their number is told.
pub(super) const LISTED: usize = 3;

/// So many users are looked at, at the most: whether a thousand or ten
/// thousand need an object, the answer is the same.
const COUNTED: usize = 1_000;

/// What was found of the users of an object.
#[derive(Default)]
pub(super) struct Found {
    /// Those that are in the way, by their root owners.
    pub(super) blocking: Vec<Cause>,
    /// How many more there are.
    pub(super) more: usize,
    /// Those that go by themselves: the hold waits for them.
    pub(super) doomed: Vec<Cause>,
    /// What has to be read live before this counts.
    pub(super) confirm: Vec<LiveRead>,
    /// What cannot be known, and why.
    pub(super) unknown: Option<String>,
}

/// Who needs this object and is not certainly gone with it. Whom it finds is
/// enough to refuse; that there is nobody has to be proved: by a graph that
/// has all objects of every kind that could be one, and live where no hold
/// would catch a mistake.
pub(super) fn users(
    situation: &Situation<'_>,
    fates: &Fates,
    item: &Item<'_>,
    in_use: &InUse,
    is_target: bool,
) -> Found {
    let mut found = Found::default();
    let held = item.is_held(situation);
    let (mut blocking, mut doomed) = (Roots::default(), Roots::default());
    for user in counting_users(situation.graph, item.place, in_use) {
        if fates.is_certainly_deleted(user.node.id()) {
            continue;
        }
        let goes = held && is_doomed(situation, user.node);
        let roots = if goes { &mut doomed } else { &mut blocking };
        roots.add(situation.graph, user);
        if blocking.looked_at >= COUNTED {
            break;
        }
    }
    let live = situation.reads().filter(|_| is_target && !held);
    if let Some(reads) = live.filter(|_| blocking.is_empty()) {
        for user in live_users(situation, &reads.graph, fates, item, in_use).take(COUNTED) {
            blocking.add(&reads.graph, user);
        }
    }
    if blocking.is_empty() {
        prove_absence(situation, item, is_target && !held, &mut found);
    }
    let (blocking, doomed) = (blocking.in_order(situation.graph), doomed.in_order(situation.graph));
    let reads =
        blocking.listed().filter(|_| held).filter_map(|user| root_read(situation, user.node));
    found.confirm.extend(reads.filter(|read| situation.is_unread(read)));
    (found.blocking, found.more) = blocking.causes(situation);
    (found.doomed, _) = doomed.causes(situation);
    found
}

/// Users by their root owners: ten Pods of a Deployment are one cause. Nothing
/// is put into words before it is known which three are told.
#[derive(Default)]
struct Roots<'g> {
    /// For each root the user that says most.
    users: Vec<(Node<'g>, User<'g>)>,
    index: HashMap<NodeId, usize, FxBuildHasher>,
    looked_at: usize,
}

impl<'g> Roots<'g> {
    fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn add(&mut self, graph: &'g Graph, user: User<'g>) {
        self.looked_at += 1;
        let root = graph.root_owner(user.node);
        match self.index.entry(root.id()) {
            Entry::Vacant(place) => {
                place.insert(self.users.len());
                self.users.push((root, user));
            }
            Entry::Occupied(place) => {
                let known = &mut self.users[*place.get()];
                if rank(graph, root, &user) < rank(graph, root, &known.1) {
                    *known = (root, user);
                }
            }
        }
    }

    /// Puts the first ones by name in front, so that an answer does not depend
    /// on the order in which users were found.
    fn in_order(mut self, graph: &'g Graph) -> Self {
        if self.users.len() > LISTED {
            self.users.select_nth_unstable_by_key(LISTED, |(root, _)| by_name(graph, *root));
        }
        let listed = self.users.len().min(LISTED);
        self.users[..listed].sort_by_key(|(root, _)| by_name(graph, *root));
        self
    }

    fn listed(&self) -> impl Iterator<Item = &User<'g>> {
        self.users.iter().take(LISTED).map(|(_, user)| user)
    }

    /// Those that are told, in words, and how many more there are.
    fn causes(&self, situation: &Situation<'_>) -> (Vec<Cause>, usize) {
        let told = self.users.iter().take(LISTED).map(|(root, user)| Cause::User {
            root: named(situation, *root),
            through: (root.id() != user.node.id()).then(|| named(situation, user.node)),
            path: user.path().to_owned(),
        });
        (told.collect(), self.users.len().saturating_sub(LISTED))
    }
}

fn by_name<'g>(graph: &'g Graph, node: Node<'g>) -> (&'g str, &'g str, &'g str) {
    (&graph.kinds.info(node.kind()).kind, node.namespace(), node.name())
}

/// A Pod that runs says more than the template it was made from.
fn rank<'g>(graph: &'g Graph, root: Node<'g>, user: &User<'g>) -> impl Ord + use<'g> {
    let (kind, _, name) = by_name(graph, user.node);
    (kind != "Pod", root.id() == user.node.id(), name, user.path())
}

/// Whether anybody needs the object at all, as far as the graph knows.
pub(super) fn is_used(situation: &Situation<'_>, item: &Item<'_>, in_use: &InUse) -> bool {
    counting_users(situation.graph, item.place, in_use).next().is_some()
}

/// The users that a policy counts.
pub(crate) fn counting_users<'g, 'u>(
    graph: &'g Graph,
    place: Option<NodeId>,
    in_use: &'u InUse,
) -> impl Iterator<Item = User<'g>> + use<'g, 'u> {
    let users = place.into_iter().flat_map(|id| graph.users(id));
    users.filter(move |user| Some(user.node.id()) != place && counts(graph, user, in_use))
}

/// Whether this use keeps an object under this policy.
fn counts(graph: &Graph, user: &User<'_>, in_use: &InUse) -> bool {
    let facts = Facts::of_node(graph, user.node);
    let excused = match user.excuse() {
        Excuse::None => false,
        Excuse::Optional => !in_use.optional,
        // What is kept for a rollback counts for those who say so.
        Excuse::ScaledDown => !in_use.by.iter().any(|by| by.names_resource(facts.resource)),
    };
    if user.strength() != Strength::Needs || excused || user.node.progress() == Progress::Finished {
        return false;
    }
    let meant = |facts| in_use.by.iter().any(|by| by.matches(facts));
    in_use.by.is_empty()
        || meant(facts)
        || meant(Facts::of_node(graph, graph.root_owner(user.node)))
}

/// Users that were read live and are not certainly gone by what the graph
/// knows of the same objects.
fn live_users<'g>(
    situation: &Situation<'g>,
    live: &'g Graph,
    fates: &'g Fates,
    item: &Item<'g>,
    in_use: &'g InUse,
) -> impl Iterator<Item = User<'g>> {
    let place = item.kind.and_then(|k| live.find(k, item.facts.namespace, item.facts.name));
    let graph = situation.graph;
    counting_users(live, place, in_use).filter(move |user| {
        let known = graph
            .find(user.node.kind(), user.node.namespace(), user.node.name())
            .and_then(|id| graph.get(id))
            .filter(|node| node.uid() == user.node.uid());
        !known.is_some_and(|node| fates.is_certainly_deleted(node.id()))
    })
}

/// That nobody was found means something only where all were looked at.
fn prove_absence(situation: &Situation<'_>, item: &Item<'_>, live: bool, found: &mut Found) {
    let graph = situation.graph;
    let Some(kind) = item.kind else {
        let Facts { group, resource, .. } = item.facts;
        let dot = if group.is_empty() { "" } else { "." };
        found.unknown = Some(format!("{resource}{dot}{group} is no kind that belay knows"));
        return;
    };
    for (needer, crosses) in situation.policies.needers(kind) {
        let known = graph.is_complete(needer);
        if known && !live {
            continue;
        }
        let namespace = if crosses { "" } else { item.facts.namespace };
        let list = situation.list(needer, namespace, false);
        if situation.is_unread(&list) {
            found.confirm.push(list);
            continue;
        }
        let (known, why) = match situation.reads() {
            Some(reads) if reads.done.contains(&list) => {
                (reads.graph.is_complete(needer), reads.graph.why_incomplete(needer))
            }
            _ => (known, graph.why_incomplete(needer)),
        };
        if !known && found.unknown.is_none() {
            let kind = &graph.kinds.info(needer).kind;
            found.unknown = Some(format!("objects of kind {kind} may need it: {why}"));
        }
    }
}
