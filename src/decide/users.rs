//! Question 5 of a DELETE: who needs the object and would be left.

use super::item::{Item, named};
use super::owners::{is_doomed, root_read};
use super::{Cause, LiveRead, Situation};
use crate::graph::{Excuse, Fates, Graph, NodeId, Progress, Strength, User};
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
    let mut blocking: Vec<(Cause, Option<LiveRead>)> = Vec::new();
    let mut doomed = Vec::new();
    let mut counting = 0_usize;
    for user in counting_users(situation.graph, item.place, in_use) {
        if fates.is_certainly_deleted(user.node.id()) {
            continue;
        }
        if held && is_doomed(situation, user.node) {
            doomed.push((cause(situation, user), None));
            continue;
        }
        counting += 1;
        if counting > COUNTED {
            break;
        }
        let read = held.then(|| root_read(situation, user.node)).flatten();
        blocking.push((cause(situation, user), read));
    }
    let live = situation.reads().filter(|_| is_target && !held);
    if let Some(reads) = live.filter(|_| blocking.is_empty()) {
        for user in live_users(situation, &reads.graph, fates, item, in_use).take(COUNTED) {
            blocking.push((cause(&Situation { graph: &reads.graph, ..*situation }, user), None));
        }
    }
    by_root(&mut blocking);
    found.more = blocking.len().saturating_sub(LISTED);
    blocking.truncate(LISTED);
    if blocking.is_empty() {
        prove_absence(situation, item, is_target && !held, &mut found);
    }
    for (cause, read) in blocking {
        found.confirm.extend(read.filter(|read| situation.is_unread(read)));
        found.blocking.push(cause);
    }
    by_root(&mut doomed);
    found.doomed = doomed.into_iter().map(|(cause, _)| cause).take(LISTED).collect();
    found
}

/// Whether anybody needs the object at all, as far as the graph knows.
pub(super) fn is_used(situation: &Situation<'_>, item: &Item<'_>, in_use: &InUse) -> bool {
    counting_users(situation.graph, item.place, in_use).next().is_some()
}

/// The users that a policy counts.
fn counting_users<'g>(
    graph: &'g Graph,
    place: Option<NodeId>,
    in_use: &'g InUse,
) -> impl Iterator<Item = User<'g>> {
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

fn cause(situation: &Situation<'_>, user: User<'_>) -> Cause {
    let root = situation.graph.root_owner(user.node);
    let through = (root.id() != user.node.id()).then(|| named(situation, user.node));
    Cause::User { root: named(situation, root), through, path: user.path().to_owned() }
}

/// One cause for each root owner. A Pod that runs says more than the template
/// it was made from.
fn by_root(causes: &mut Vec<(Cause, Option<LiveRead>)>) {
    causes.sort_by(|a, b| rank(&a.0).cmp(&rank(&b.0)));
    causes.dedup_by(|a, b| root(&a.0) == root(&b.0));
}

fn root(cause: &Cause) -> Option<&super::Named> {
    match cause {
        Cause::User { root, .. } => Some(root),
        _ => None,
    }
}

fn rank(cause: &Cause) -> (Option<&super::Named>, bool, bool, &Cause) {
    let Cause::User { root, through, .. } = cause else { return (None, false, false, cause) };
    let pod = through.as_ref().is_some_and(|through| through.kind == "Pod");
    (Some(root), !pod, through.is_none(), cause)
}
