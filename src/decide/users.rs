//! Question 5 of a DELETE: who needs the object and would be left.

use std::collections::hash_map::Entry;

use super::item::{Item, is_harmless, named};
use super::owners::{Standing, is_doomed, root_read, standing};
use super::situation::Absence;
use super::{Cause, LiveRead, Situation};
use crate::graph::{
    Certainty, Excuse, Fates, Graph, Node, NodeId, Outcome, Progress, Sought, Strength, User, Work,
};
use crate::objects::{NumberMap, full_name};
use crate::policy::{Facts, InUse};

/// So many causes are listed; of the others their number is told.
pub(super) const LISTED: usize = 3;

/// So many users are looked at, at the most: whether a thousand or ten
/// thousand need an object, the answer is the same.
const COUNTED: usize = 1_000;

/// So many owners at the top are asked for in one go.
const CONFIRMED: usize = 16;

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
/// has all objects of every kind that could be one, and `live` where nothing
/// would catch a mistake. `keeps` says whether a release waits for the policy:
/// a hold that does not is no hold here.
pub(super) fn users<'a>(
    situation: &Situation<'a>,
    fates: &Fates,
    (item, keeps): (&Item<'a>, bool),
    in_use: &'a InUse,
    live: bool,
) -> Found {
    let mut found = Found::default();
    let held = keeps && item.is_held(situation);
    let live = live && !held;
    let (mut blocking, mut doomed) = (Roots::default(), Roots::default());
    for user in counting_users(situation, item, in_use, situation.graph) {
        if !situation.work.charge(user.node.finalizers().size()) {
            break;
        }
        if goes_along(fates, user.node) {
            continue;
        }
        let goes = held && is_doomed(situation, user.node);
        let roots = if goes { &mut doomed } else { &mut blocking };
        roots.add(user, situation.work);
        if blocking.looked_at >= COUNTED {
            break;
        }
    }
    // With a hold, too: where a watch is not connected, lists are read.
    if let Some(reads) = situation.reads().filter(|_| blocking.is_empty()) {
        let users = counting_users(situation, item, in_use, &reads.graph);
        for user in users.take(COUNTED) {
            let goes = situation.graph.same(user.node).is_some_and(|node| {
                goes_along(fates, node) || (held && is_doomed(situation, node))
            });
            if !goes {
                blocking.add(user, situation.work);
            }
        }
    }
    if blocking.is_empty() {
        prove_absence(situation, item, live, &mut found);
    }
    let (blocking, doomed) = (blocking.in_order(), doomed.in_order());
    // In `delete sts/x pvc/y` the graph lags behind exactly here.
    let roots = blocking.users.iter().take(CONFIRMED).filter(|_| held);
    let reads = roots.filter_map(|(_, user)| root_read(situation, user.node));
    found.confirm.extend(reads.filter(|read| situation.is_unread(read)));
    (found.blocking, found.more) = blocking.causes();
    (found.doomed, _) = doomed.causes();
    found
}

/// Whether a user certainly receives its DELETE along with what it uses, and
/// nothing keeps it but controllers that wait: a user under a hold of ours
/// waits for the same as all the others.
fn goes_along(fates: &Fates, user: Node<'_>) -> bool {
    fates.get(user.id()).is_some_and(|fate| {
        let waits = fate.outcome == Outcome::Held && user.finalizers().iter().all(is_harmless);
        fate.certainty == Certainty::Certain && (fate.outcome == Outcome::Deleted || waits)
    })
}

/// Users by their root owners: ten Pods of a Deployment are one cause. Nothing
/// is put into words before it is known which three are told.
#[derive(Default)]
struct Roots<'g> {
    /// For each root the user that says most.
    users: Vec<(Node<'g>, User<'g>)>,
    index: NumberMap<NodeId, usize>,
    looked_at: usize,
}

impl<'g> Roots<'g> {
    fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    fn add(&mut self, user: User<'g>, work: Work<'_>) {
        self.looked_at += 1;
        let root = user.node.root_owner_within(work);
        match self.index.entry(root.id()) {
            Entry::Vacant(place) => {
                place.insert(self.users.len());
                self.users.push((root, user));
            }
            Entry::Occupied(place) => {
                let known = &mut self.users[*place.get()];
                if rank(root, &user) < rank(root, &known.1) {
                    *known = (root, user);
                }
            }
        }
    }

    /// Puts the first ones by name in front, so that an answer does not depend
    /// on the order in which users were found.
    fn in_order(mut self) -> Self {
        if self.users.len() > LISTED {
            self.users.select_nth_unstable_by_key(LISTED, |(root, _)| by_name(*root));
        }
        let listed = self.users.len().min(LISTED);
        self.users[..listed].sort_by_key(|(root, _)| by_name(*root));
        self
    }

    /// Those that are told, in words, and how many more there are.
    fn causes(&self) -> (Vec<Cause>, usize) {
        let told = self.users.iter().take(LISTED).map(|(root, user)| Cause::User {
            root: named(*root),
            through: (root.id() != user.node.id()).then(|| named(user.node)),
            path: user.path().to_owned(),
        });
        (told.collect(), self.users.len().saturating_sub(LISTED))
    }
}

fn by_name<'g>(node: Node<'g>) -> (&'g str, &'g str, &'g str) {
    (&node.info().kind, node.namespace(), node.name())
}

/// A Pod that runs says more than the template it was made from.
fn rank<'g>(root: Node<'g>, user: &User<'g>) -> impl Ord + use<'g> {
    let (kind, _, name) = by_name(user.node);
    (kind != "Pod", root.id() == user.node.id(), name, user.path())
}

/// Whether anybody needs the object at all, as far as the graph knows.
pub(super) fn is_used<'a>(situation: &Situation<'a>, item: &Item<'a>, in_use: &'a InUse) -> bool {
    counting_users(situation, item, in_use, situation.graph).next().is_some()
}

/// The users that a policy counts, among those that this graph knows.
pub(crate) fn counting_users<'a>(
    situation: &Situation<'a>,
    item: &Item<'a>,
    in_use: &'a InUse,
    graph: &'a Graph,
) -> impl Iterator<Item = User<'a>> + use<'a> {
    let (situation, item) = (*situation, *item);
    let Facts { namespace, name, labels, .. } = item.facts;
    let place = item.kind.and_then(|kind| graph.find(kind, namespace, name));
    let named = place
        .into_iter()
        .flat_map(move |id| graph.named_users(id, Some(item.uid()), situation.work));
    let label = move |key: &str| labels.get(key);
    let (label_steps, work) = (labels.size(), situation.work);
    let sought = item.kind.map(|kind| Sought { kind, namespace, name, label, label_steps, work });
    let seekers = sought.into_iter().flat_map(|sought| graph.seekers(sought));
    named
        .chain(seekers)
        .filter(move |user| user.node.uid() != item.uid() && counts(&situation, user, in_use))
}

/// Whether this use keeps an object under this policy.
fn counts(situation: &Situation<'_>, user: &User<'_>, in_use: &InUse) -> bool {
    let facts = Facts::of_node(user.node);
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
    in_use.by.is_empty() || meant(facts) || root_is_meant(situation, user.node, in_use)
}

/// Whether the owner at the top is meant. What was read live has only those
/// owners beside it that were read, too, so the way goes on in the graph; and
/// an owner that nobody knows is taken for what its reference says.
fn root_is_meant(situation: &Situation<'_>, user: Node<'_>, in_use: &InUse) -> bool {
    let meant = |facts| in_use.by.iter().any(|by| by.matches(facts));
    let work = situation.work;
    let top = user.root_owner_within(work);
    let known = situation.graph.same(top).map(|top| top.root_owner_within(work));
    let top = known.unwrap_or(top);
    // What is at the end of so many references, or of the budget, is unknown.
    if top.has_too_many_owners() || !work.charge(top.owners().len()) {
        return true;
    }
    if meant(Facts::of_node(top)) {
        return true;
    }
    let kinds = &situation.graph.kinds;
    top.claims().any(|claim| match standing(situation, top.namespace(), &claim) {
        Standing::Unresolved => claim.kind.is_none_or(|kind| {
            let info = kinds.info(kind);
            in_use.by.iter().any(|by| by.may_mean(&info.group, &info.resource))
        }),
        Standing::Solid(owner) | Standing::Waiting(owner) => meant(Facts::of_node(owner)),
        Standing::Absent => false,
    })
}

/// That nobody was found means something only where all were looked at.
fn prove_absence(situation: &Situation<'_>, item: &Item<'_>, live: bool, found: &mut Found) {
    let Some(kind) = item.kind else {
        let Facts { group, resource, .. } = item.facts;
        let name = full_name(group, resource);
        found.unknown = Some(format!("{name} is no kind that belay knows"));
        return;
    };
    for (needer, crosses) in situation.policies.needers(kind) {
        let namespace = if crosses { "" } else { item.facts.namespace };
        match situation.absence(needer, situation.list(needer, namespace, false), live) {
            Absence::Proved => {}
            Absence::Unread(list) => found.confirm.push(list),
            Absence::Unreadable(object) => {
                found.unknown = Some(format!("{object}, so it may use it"));
                return;
            }
            Absence::Unknown(why) => {
                let kind = &situation.graph.kinds.info(needer).kind;
                found.unknown = Some(format!("objects of kind {kind} may need it: {why}"));
                return;
            }
        }
    }
}
