//! Who still counts, of what was read live.

#[cfg(test)]
mod bounds;
mod group;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use serde_json::Value;

use super::chain::{OwnerReader, OwnersAbove, READS};
use super::excuses::{Excuse, Held, ReleaseGroup, is_only_held};
use crate::decide::{
    Cause, ExemptionRecords, Item, Live, LiveRead, LiveReads, Situation, counting_users,
    object_name, sufficient_approvals,
};
use crate::graph::{Node, NodeId, User};
use crate::objects::{ApiError, Kinds, NumberMap, NumberSet, is_hold};
use crate::policy::api::{Action, OnDelete};
use crate::policy::{AppliedPolicy, InUse, ObjectFacts, Policy};

/// A use that counts whoever the user is.
static ANY_USER: InUse = InUse { by: Vec::new(), on_delete: OnDelete::Deny, optional: false };
static ANY_OPTIONAL_USER: InUse =
    InUse { by: Vec::new(), on_delete: OnDelete::Deny, optional: true };

/// What a count came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Count {
    /// This has to be read first, in this order.
    Read(Vec<LiveRead>),
    /// These keep the target, or some of them.
    Kept(Vec<Cause>),
    /// Something is unknown. It keeps the target.
    Unknown(UnknownUse),
    /// Nothing keeps it.
    Free(ReleaseReason),
}

/// Why it is unknown whether something keeps a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnknownUse {
    /// The policies may be others.
    #[error("the policies have not been read")]
    PoliciesUnread,
    /// The target has no node in the graph of what was read.
    #[error("the object itself was not read")]
    TargetUnread,
    /// The target can't be parsed.
    #[error("the object itself cannot be read")]
    TargetUnreadable,
    /// A policy selects by the labels of this Namespace.
    #[error("the labels of Namespace {0} are not known")]
    NamespaceLabels(String),
    /// The budget of a pass is used up.
    #[error(
        "the search for its users reaches more objects and references than belay follows in one \
         pass"
    )]
    TooManySteps,
    /// Each round of reads leads to more of them.
    #[error("what needs it leads to ever more that would have to be read")]
    TooManyRounds,
    /// The numbers of kinds or relations are others now.
    #[error("the known kinds or relations changed during the count")]
    KindsChanged,
    /// An object that may use the target can't be read, and why.
    #[error("{0}, so it may use it")]
    UnreadableUser(String),
    /// The objects of a kind that may use the target could not be listed.
    #[error("objects of kind {kind} may need it: {why}")]
    Unlisted {
        /// The kind.
        kind: String,
        /// Why not.
        why: ApiError,
    },
    /// The person who asks may list only a part of the objects that may use the target.
    #[error("{resource} may need it: {why}")]
    PartlyListed {
        /// The plural and group of the objects.
        resource: String,
        /// Why not.
        why: ApiError,
    },
}

/// Why nothing keeps a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// Enough people said yes.
    Approved,
    /// No policy protects it any more.
    Unprotected,
    /// Nobody needs it.
    Unused,
}

/// So many are told.
const TOLD: usize = 3;

/// So many are looked at, once that many keep the target: whether a thousand
/// or ten thousand do is the same answer.
const COUNTED: usize = 1_000;

/// The budget of the counts of one pass, in steps. A pass that takes more ends
/// with [`Count::Unknown`].
pub const PASS_STEPS: usize = 1_000_000;

/// The object as it will be once the hold is off. This is what goes into the
/// graph of what was read, so that [`crate::graph::fates`] says what follows
/// from it.
pub fn as_released(target: &Value) -> Value {
    let mut released = target.clone();
    let finalizers = released.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
    if let Some(finalizers) = finalizers {
        finalizers.retain(|finalizer| !finalizer.as_str().is_some_and(is_hold));
    }
    released
}

/// Whether something keeps this Terminating, held object. `situation` has the
/// cluster as it is known, for policies, approvals and the labels of
/// Namespaces; users are those of `reads` and of nothing else. The target
/// stands there as [`as_released`] makes it. `known` says whether the policies
/// are: where their kind has vanished, or was not read yet, there seem to be
/// none, and everything would go.
///
/// In a cluster the caller sets the budget of `situation` to [`PASS_STEPS`]: the
/// editor of a namespace can create thousands of objects that wait.
pub fn count(situation: &Situation<'_>, known: bool, reads: &LiveReads, target: NodeId) -> Count {
    if !known {
        return Count::Unknown(UnknownUse::PoliciesUnread);
    }
    count_without(situation, reads, target, Excuse::ALL)
}

/// The same with these excuses alone.
pub(super) fn count_without(
    situation: &Situation<'_>,
    reads: &LiveReads,
    target: NodeId,
    excuses: &[Excuse],
) -> Count {
    let Some(node) = reads.graph.get(target) else {
        return Count::Unknown(UnknownUse::TargetUnread);
    };
    let situation = &Situation { live: Live::Read(reads), ..*situation };
    let chain = OwnerReader { situation, reads };
    match protection(chain, node) {
        Protection::Uncertain => {
            let place = node.namespace().to_owned();
            return Count::Unknown(UnknownUse::NamespaceLabels(place));
        }
        Protection::Not(free) => return Count::Free(free),
        Protection::Always => return Count::Kept(vec![Cause::Always]),
        Protection::WhileUsed(_) => {}
    }
    let mut counting = Counting {
        chain,
        excuses,
        members: vec![],
        waits: NumberMap::default(),
        above: NumberMap::default(),
        read: vec![],
        kept: vec![],
        keeping: 0,
    };
    let ran = counting.run(node);
    if situation.work.is_used_up() {
        return Count::Unknown(UnknownUse::TooManySteps);
    }
    match ran {
        Err(unknown) => Count::Unknown(unknown),
        Ok(()) if !counting.kept.is_empty() => Count::Kept(counting.kept),
        Ok(()) if !counting.read.is_empty() => Count::Read(counting.read),
        Ok(()) => Count::Free(ReleaseReason::Unused),
    }
}

/// What protects an object.
enum Protection<'p> {
    /// Perhaps something does.
    Uncertain,
    Not(ReleaseReason),
    Always,
    WhileUsed(WhileUsed<'p>),
}

/// What the use of an object keeps it by.
struct WhileUsed<'p> {
    modes: Vec<&'p InUse>,
    /// The longest settle of the policies.
    settle_seconds: i64,
}

/// The policies by which an object is kept, until what they say is so or their
/// approvals are there. What only warns or records keeps nothing.
pub fn keeping_policies<'p>(
    situation: &Situation<'p>,
    facts: ObjectFacts<'_>,
) -> Vec<AppliedPolicy<'p>> {
    let mut applied = situation.policies_despite_pause(facts);
    applied.retain(|applied| applied.action == Action::Deny && applied.policy.keeps());
    applied
}

fn protection<'p>(chain: OwnerReader<'p>, node: Node<'p>) -> Protection<'p> {
    let situation = chain.situation;
    let applied = keeping_policies(&situation, ObjectFacts::of_node(node));
    if applied.is_empty() {
        return Protection::Not(ReleaseReason::Unprotected);
    }
    // Approvals are looked for with all that is known of the cluster: what the
    // object lives in, and who owned it when that was still there.
    let policies: Vec<&Policy> = applied.iter().map(|applied| applied.policy).collect();
    // What an exempt subject deletes waits like anything else.
    let item = Item::of_node(situation, node);
    if sufficient_approvals(situation, &item, &policies, ExemptionRecords::Ignored).is_some() {
        return Protection::Not(ReleaseReason::Approved);
    }
    if applied.iter().any(|applied| !applied.certain) {
        return Protection::Uncertain;
    }
    if applied.iter().any(|applied| applied.policy.keeps_always()) {
        return Protection::Always;
    }
    let modes = applied.iter().filter_map(|applied| applied.policy.modes.while_used.as_ref());
    let settle = applied.iter().map(|applied| applied.policy.settle_seconds).max();
    let (modes, settle_seconds) = (modes.collect(), settle.unwrap_or_default());
    Protection::WhileUsed(WhileUsed { modes, settle_seconds })
}

/// A count under way: the target, and whatever waits in a cycle with it.
struct Counting<'a> {
    chain: OwnerReader<'a>,
    excuses: &'a [Excuse],
    members: Vec<NodeId>,
    /// Who waits for whom, among the members: those that wait, by the one that
    /// they wait for.
    waits: NumberMap<NodeId, Vec<NodeId>>,
    /// What is above each user.
    above: NumberMap<NodeId, Rc<OwnersAbove>>,
    read: Vec<LiveRead>,
    kept: Vec<Cause>,
    /// How many keep it, told or not.
    keeping: usize,
}

impl<'a> Counting<'a> {
    fn run(&mut self, target: Node<'a>) -> Result<(), UnknownUse> {
        // Who waits in a cycle is found by looking, and what goes along with
        // the whole cycle only when it is known: so until nobody is new.
        let mut group = self.group(&[target.id()])?;
        loop {
            self.find_users(target, &group)?;
            let news = self.members.iter().any(|member| !group.contains(*member));
            if !news || !self.read.is_empty() || self.chain.situation.work.is_used_up() {
                break;
            }
            let members = self.members.clone();
            group = self.group(&members)?;
        }
        // Whoever does not wait for the target in the end goes before it.
        if self.read.is_empty() {
            let waiting = self.waiting_for(target.id());
            let members = self.members.iter().copied();
            let apart: Vec<_> = members.filter(|member| !waiting.contains(member)).collect();
            apart.into_iter().for_each(|member| self.add_member_cause(member));
        }
        Ok(())
    }

    /// The users of the target, and of whatever waits in a cycle with it, when
    /// the holds of these go.
    fn find_users(&mut self, target: Node<'a>, group: &ReleaseGroup) -> Result<(), UnknownUse> {
        (self.waits, self.kept, self.keeping) = (NumberMap::default(), Vec::new(), 0);
        self.members = vec![target.id()];
        let mut at = 0;
        while let Some(member) = self.members.get(at).copied() {
            at += 1;
            let Some(node) = self.chain.graph().get(member) else { continue };
            if !self.chain.charge(8 * (1 + node.labels().size())) {
                return Ok(());
            }
            match protection(self.chain, node) {
                Protection::WhileUsed(kept) => self.count_users(node, kept, group)?,
                // One that nothing keeps goes by itself, and is waited for.
                Protection::Not(_) | Protection::Uncertain | Protection::Always => {
                    self.add_member_cause(member);
                }
            }
        }
        Ok(())
    }

    /// The users of one member.
    fn count_users(
        &mut self,
        node: Node<'a>,
        kept: WhileUsed<'a>,
        group: &ReleaseGroup,
    ) -> Result<(), UnknownUse> {
        let lists = self.unread_lists(node)?;
        if !lists.is_empty() {
            self.request_reads(&lists);
            return Ok(());
        }
        let graph = self.chain.graph();
        // What was read is asked, and nothing else.
        let live = Situation { graph, ..*self.chain.situation };
        let item = Item::of_node(&live, node);
        let settle_seconds = kept.settle_seconds;
        let held = Held { node, above: self.chain.find_owners(node), settle_seconds };
        for in_use in kept.modes {
            let mut meant = NumberSet::default();
            for user in counting_users(&live, &item, in_use, graph) {
                if self.keeping >= COUNTED {
                    return Ok(());
                }
                meant.insert(user.node.id());
                self.check_user(&held, group, user, true);
            }
            if in_use.by.is_empty() {
                continue;
            }
            // Whom a policy means is told by the owners above it as well, who
            // have perhaps not been read.
            let any_user = if in_use.optional { &ANY_OPTIONAL_USER } else { &ANY_USER };
            for user in counting_users(&live, &item, any_user, graph) {
                if self.keeping >= COUNTED {
                    return Ok(());
                }
                if !meant.contains(&user.node.id()) {
                    self.check_user(&held, group, user, false);
                }
            }
        }
        Ok(())
    }

    /// A user, once everything above it is known. Who is not meant counts
    /// only where that cannot be.
    fn check_user(
        &mut self,
        held: &Held<'a>,
        group: &ReleaseGroup,
        user: User<'a>,
        is_meant: bool,
    ) {
        let above = self.find_owners(user.node);
        self.request_reads(&above.unread);
        let is_terminating = user.node.is_terminating();
        if is_terminating {
            self.request_reads(&held.above.unread);
        }
        let unread = !above.unread.is_empty() || is_terminating && !held.above.unread.is_empty();
        if !unread && (is_meant || above.unknown) {
            self.count_user(held, group, user, &above);
        }
    }

    /// A user of which everything is known that will be.
    fn count_user(
        &mut self,
        held: &Held<'a>,
        group: &ReleaseGroup,
        user: User<'a>,
        above: &OwnersAbove,
    ) {
        let node = user.node;
        self.chain.charge(node.finalizers().size());
        let has = |excuse| self.excuses.contains(&excuse);
        if (has(Excuse::Closure) && !above.unknown && group.takes(node))
            || (has(Excuse::Ancestor) && held.is_owned_by(node))
            || (has(Excuse::Newcomer) && held.is_late(above))
        {
            return;
        }
        // The target stands here as it will be, with no hold.
        let is_target = self.members.first() == Some(&node.id());
        if has(Excuse::Cycle) && (is_target || is_only_held(node)) {
            let waiting = self.waits.entry(node.id()).or_default();
            if waiting.is_empty() && !is_target {
                self.members.push(node.id());
            }
            waiting.push(held.node.id());
            return;
        }
        self.add_cause(node, user.path());
    }

    /// What is above a user, which may use many members.
    fn find_owners(&mut self, node: Node<'a>) -> Rc<OwnersAbove> {
        let chain = self.chain;
        self.above.entry(node.id()).or_insert_with(|| Rc::new(chain.find_owners(node))).clone()
    }

    /// The target, and the members that wait for it, perhaps by others.
    fn waiting_for(&self, target: NodeId) -> NumberSet<NodeId> {
        let mut found = NumberSet::from_iter([target]);
        let mut next = vec![target];
        while let Some(member) = next.pop() {
            let waiting = self.waits.get(&member).map_or(&[][..], Vec::as_slice);
            if !self.chain.charge(1 + waiting.len()) {
                break;
            }
            next.extend(waiting.iter().copied().filter(|member| found.insert(*member)));
        }
        found
    }

    fn add_member_cause(&mut self, member: NodeId) {
        if let Some(node) = self.chain.graph().get(member) {
            self.add_cause(node, "");
        }
    }

    fn add_cause(&mut self, node: Node<'a>, path: &str) {
        self.keeping += 1;
        if self.kept.len() >= TOLD {
            return;
        }
        let root = node.root_owner_within(self.chain.situation.work);
        let through = (root.id() != node.id()).then(|| object_name(node));
        let cause = Cause::User { root: object_name(root), through, path: path.to_owned() };
        if !self.kept.contains(&cause) {
            self.kept.push(cause);
        }
    }

    fn request_reads(&mut self, reads: &[LiveRead]) {
        // Each is compared with all that are to be read already.
        self.chain.charge(8 * reads.len());
        for read in reads {
            if self.read.len() < READS && !self.read.contains(read) {
                self.read.push(read.clone());
            }
        }
    }

    /// The lists of every kind that could need an object and was not read yet:
    /// producers before products, so that what a producer makes between two
    /// lists is found by the later one.
    fn unread_lists(&self, node: Node<'a>) -> Result<Vec<LiveRead>, UnknownUse> {
        let situation = self.chain.situation;
        let mut unread = Vec::new();
        for (needer, crosses) in situation.policies.needers(&situation.graph.kinds, node.kind()) {
            self.chain.charge(8);
            let namespace = if crosses { "" } else { node.namespace() };
            let read = situation.list(needer, namespace, false);
            let kinds = &situation.graph.kinds;
            let info = kinds.info(needer);
            // Which of Kubernetes' own kinds a server has, its discovery says;
            // of a custom one the absence is proved live.
            if !kinds.is_served(needer) && Kinds::is_built_in(&info.group, &info.resource) {
                continue;
            }
            match self.chain.done(&read) {
                None => unread.push((list_order(&info.group, &info.resource), read)),
                Some(Ok(())) => {
                    if let Some(object) = self.chain.graph().unreadable(needer, namespace) {
                        return Err(UnknownUse::UnreadableUser(object));
                    }
                }
                Some(Err(why)) => {
                    let (kind, why) = (info.kind.clone(), why.clone());
                    return Err(UnknownUse::Unlisted { kind, why });
                }
            }
        }
        unread.sort();
        Ok(unread.into_iter().map(|(_, read)| read).collect())
    }
}

/// The order in which kinds are listed. What makes others comes before what it
/// makes; operators come before everything of Kubernetes' own.
fn list_order(group: &str, resource: &str) -> u8 {
    match (group, resource) {
        _ if !Kinds::is_built_in(group, resource) => 0,
        ("batch", "cronjobs") | ("apps", "deployments") => 1,
        ("apps" | "batch" | "", "replicasets" | "jobs" | "replicationcontrollers") => 2,
        ("apps", "statefulsets" | "daemonsets") => 2,
        ("", "pods") => 4,
        ("", "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => 5,
        ("", "persistentvolumes") => 6,
        ("discovery.k8s.io", _) | ("storage.k8s.io", "volumeattachments") => 7,
        _ => 3,
    }
}
