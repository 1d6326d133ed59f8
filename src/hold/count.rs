//! The users of a held object that count, from live reads.

mod blocking_user;
mod effects;
mod protection;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use serde_json::Value;

pub use self::protection::longest_settle_seconds;
pub(super) use self::protection::{Protection, WhileUsedModes, protection};

use self::blocking_user::BlockingUser;
use super::exceptions::{HeldCandidate, ReleaseEffects, UserException, has_only_hold};
use super::owners::{AllOwners, MAX_READS_PER_ROUND, PassReads};
use crate::decide::{
    Cause, JudgedObject, ListPart, LiveRead, LiveReads, MAX_LISTED_CAUSES, ObjectSource, Situation,
    relevant_users,
};
use crate::graph::{Node, NodeId, ObjectUser, SEARCH_STEPS};
use crate::objects::{ApiError, Kinds, NumberMap, NumberSet, is_hold};
use crate::policy::WhileUsedMode;
use crate::policy::api::OnDelete;

/// A mode `whileUsed` that counts every use that is not optional.
static ALL_REQUIRED_USES: WhileUsedMode =
    WhileUsedMode { by: Vec::new(), on_delete: OnDelete::Deny, optional: false };
/// A mode `whileUsed` that counts every use, also optional ones.
static ALL_USES: WhileUsedMode =
    WhileUsedMode { by: Vec::new(), on_delete: OnDelete::Deny, optional: true };

/// The result of a count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UseCheck {
    /// These reads must be made first: the batches in this order, and the reads of a batch at the
    /// same time.
    NeedsReads(Vec<Vec<LiveRead>>),
    /// These causes keep the target, up to the limit that messages list.
    InUse(Vec<Cause>),
    /// Something is unknown, which keeps the target.
    Unknown(UnknownUse),
    /// Nothing keeps the target.
    Releasable(ReleaseReason),
}

/// Why it is unknown whether something keeps a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum UnknownUse {
    /// The policies were not read yet, or their CRD is missing.
    #[error("the policies have not been read")]
    PoliciesUnread,
    /// The graph of the live reads does not contain the target.
    #[error("the object itself was not read")]
    TargetUnread,
    /// The target can't be parsed.
    #[error("the object itself cannot be read")]
    TargetUnreadable,
    /// A policy selects by the labels of this Namespace.
    #[error("the labels of Namespace {0} are unknown")]
    NamespaceLabels(String),
    /// The budget of a pass is used up.
    #[error(
        "the search for its users reaches more objects and references than belay follows in one \
         pass"
    )]
    TooManySteps,
    /// Each round of reads leads to more reads.
    #[error("the search for its users needs more than {} rounds of reads", MAX_READ_ROUNDS)]
    TooManyRounds,
    /// The known kinds or relations changed, so the live reads use old numbers for them.
    #[error("the known kinds or relations changed during the count")]
    KindsChanged,
    /// An object that may use the target can't be read. The text names it.
    #[error("{0}, so it may use the object")]
    UnreadableUser(String),
    /// The objects of a kind that may use the target could not be listed.
    #[error(
        "belay could not list the objects of kind {kind}, and one of them may use the object: {why}"
    )]
    ListFailed {
        kind: String,
        /// The reason.
        why: ApiError,
    },
    /// The list of all objects that may use the target failed for the person who runs the
    /// command, often because of missing rights. The list of one namespace may have succeeded.
    #[error("belay could not list all {resource}, and one of them may use the object: {why}")]
    ClusterListFailed {
        /// The plural and group of the objects.
        resource: String,
        /// The reason.
        why: ApiError,
    },
}

/// Why nothing keeps the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The approvals are sufficient.
    Approved,
    /// No policy protects the object.
    Unprotected,
    /// Nothing uses the object.
    Unused,
}

/// The limit of rounds of reads in a pass. Reads lead to more reads, because users have
/// owners, and users with a hold have users of their own.
pub const MAX_READ_ROUNDS: u8 = 16;

/// The limit of counted users. More users do not change the result.
const MAX_COUNTED_USERS: usize = 1_000;

/// The budget of the counts of one pass, in steps. A pass that takes more ends
/// with [`UseCheck::Unknown`].
pub const PASS_STEPS: usize = 1_000_000;

/// The object without its hold. The graph of live reads has the object in this form, so
/// that [`crate::graph::fates`] shows the effects of the release.
pub fn without_hold(target: &Value) -> Value {
    let mut released = target.clone();
    let finalizers = released.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut);
    if let Some(finalizers) = finalizers {
        finalizers.retain(|finalizer| !finalizer.as_str().is_some_and(is_hold));
    }
    released
}

/// Finds the users and policies that keep this Terminating, held object. `situation` has
/// the policies, the approvals and the labels of Namespaces. Users come only from `reads`,
/// which has the target in the form of [`without_hold`]. `policies_known` is false without
/// the CRD of policies, or before they were read: then no policy seems to exist.
///
/// In a cluster the caller sets the budget of `situation` to [`PASS_STEPS`], because an
/// editor of a namespace can create thousands of waiting objects.
pub fn check_use(
    situation: &Situation<'_>,
    policies_known: bool,
    reads: &LiveReads,
    target: NodeId,
) -> UseCheck {
    if !policies_known {
        return UseCheck::Unknown(UnknownUse::PoliciesUnread);
    }
    check_use_with(situation, reads, target, UserException::ALL)
}

/// Like [`check_use`], with known policies and only these exceptions.
pub(super) fn check_use_with(
    situation: &Situation<'_>,
    reads: &LiveReads,
    target: NodeId,
    exceptions: &[UserException],
) -> UseCheck {
    let Some(node) = reads.graph.get(target) else {
        return UseCheck::Unknown(UnknownUse::TargetUnread);
    };
    let situation = &Situation { source: ObjectSource::Cluster(reads), ..*situation };
    let pass_reads = PassReads { situation, reads };
    match protection(situation, node) {
        Protection::Unknown(why) => return UseCheck::Unknown(why),
        Protection::None(reason) => return UseCheck::Releasable(reason),
        Protection::Always => return UseCheck::InUse(vec![Cause::Always]),
        Protection::WhileUsed(_) => {}
    }
    let mut search = UseSearch {
        pass_reads,
        exceptions,
        cycle_candidates: vec![],
        waiting_candidates: NumberMap::default(),
        owners: NumberMap::default(),
        needed_reads: vec![],
        blocking_users: vec![],
        blocking_user_count: 0,
    };
    let result = search.run(node);
    if situation.work.is_used_up() {
        return UseCheck::Unknown(UnknownUse::TooManySteps);
    }
    match result {
        Err(unknown) => UseCheck::Unknown(unknown),
        Ok(()) if !search.blocking_users.is_empty() => {
            UseCheck::InUse(search.blocking_users.iter().map(BlockingUser::cause).collect())
        }
        Ok(()) if !search.needed_reads.is_empty() => {
            UseCheck::NeedsReads(into_batches(search.needed_reads))
        }
        Ok(()) => UseCheck::Releasable(ReleaseReason::Unused),
    }
}

/// A count in progress.
struct UseSearch<'a> {
    pass_reads: PassReads<'a>,
    exceptions: &'a [UserException],
    /// The target, and the Terminating objects that may be in a cycle with it: they use another
    /// candidate and have no finalizer except their hold.
    cycle_candidates: Vec<NodeId>,
    /// For each candidate, the candidates that wait for its deletion.
    waiting_candidates: NumberMap<NodeId, Vec<NodeId>>,
    /// The direct and indirect owners of each user.
    owners: NumberMap<NodeId, Rc<AllOwners>>,
    needed_reads: Vec<LiveRead>,
    blocking_users: Vec<BlockingUser<'a>>,
    /// The number of users that block the removal of the hold. `blocking_users` has some of them.
    blocking_user_count: usize,
}

impl<'a> UseSearch<'a> {
    fn run(&mut self, target: Node<'a>) -> Result<(), UnknownUse> {
        // New candidates change the effects of the release, and the effects decide which users
        // count. So the search is repeated until it finds no new candidate.
        let mut effects = self.find_effects(&[target.id()])?;
        loop {
            self.find_users(target, &effects)?;
            let has_new_candidates =
                self.cycle_candidates.iter().any(|candidate| !effects.is_candidate(*candidate));
            if !has_new_candidates
                || !self.needed_reads.is_empty()
                || self.pass_reads.situation.work.is_used_up()
            {
                break;
            }
            let candidates = self.cycle_candidates.clone();
            effects = self.find_effects(&candidates)?;
        }
        // A candidate that does not wait for the target is in no cycle with the target, so it
        // blocks the target.
        if self.needed_reads.is_empty() {
            let waiting = self.candidates_waiting_for(target.id());
            let candidates = self.cycle_candidates.iter().copied();
            let blocking: Vec<_> =
                candidates.filter(|candidate| !waiting.contains(candidate)).collect();
            blocking.into_iter().for_each(|candidate| self.add_candidate_cause(candidate));
        }
        Ok(())
    }

    /// Finds the users of each candidate that remain after a release with these `effects`. Adds new
    /// candidates.
    fn find_users(&mut self, target: Node<'a>, effects: &ReleaseEffects) -> Result<(), UnknownUse> {
        (self.waiting_candidates, self.blocking_users, self.blocking_user_count) =
            (NumberMap::default(), Vec::new(), 0);
        self.cycle_candidates = vec![target.id()];
        let mut index = 0;
        while let Some(candidate) = self.cycle_candidates.get(index).copied() {
            index += 1;
            let Some(node) = self.pass_reads.live_graph().get(candidate) else { continue };
            if !self.pass_reads.charge(SEARCH_STEPS * (1 + node.labels().search_steps())) {
                return Ok(());
            }
            match protection(self.pass_reads.situation, node) {
                Protection::WhileUsed(while_used) => self.count_users(node, while_used, effects)?,
                // The release of this candidate waits for no user. So the candidate is in no cycle
                // with the target, and blocks the target like any other user.
                Protection::None(_) | Protection::Unknown(_) | Protection::Always => {
                    self.add_candidate_cause(candidate);
                }
            }
        }
        Ok(())
    }

    /// Counts the users of one candidate.
    fn count_users(
        &mut self,
        node: Node<'a>,
        while_used: WhileUsedModes<'a>,
        effects: &ReleaseEffects,
    ) -> Result<(), UnknownUse> {
        let lists = self.unread_lists(node)?;
        if !lists.is_empty() {
            self.request_reads(&lists);
            return Ok(());
        }
        let graph = self.pass_reads.live_graph();
        // Only live reads count.
        let live = Situation { graph, ..*self.pass_reads.situation };
        let item = JudgedObject::of_node(&live, node);
        let settle_seconds = while_used.settle_seconds;
        let owners = self.pass_reads.find_owners(node);
        let held = HeldCandidate { node, owners, settle_seconds };
        for mode in while_used.modes {
            let mut selected = NumberSet::default();
            for user in relevant_users(&live, &item, mode, graph) {
                if self.blocking_user_count >= MAX_COUNTED_USERS {
                    return Ok(());
                }
                selected.insert(user.node.id());
                self.request_owners_or_count(&held, effects, user, true);
            }
            if mode.by.is_empty() {
                continue;
            }
            // Whether a policy selects a user also depends on its owners, which may not
            // have been read.
            let any_user = if mode.optional { &ALL_USES } else { &ALL_REQUIRED_USES };
            for user in relevant_users(&live, &item, any_user, graph) {
                if self.blocking_user_count >= MAX_COUNTED_USERS {
                    return Ok(());
                }
                if !selected.contains(&user.node.id()) {
                    self.request_owners_or_count(&held, effects, user, false);
                }
            }
        }
        Ok(())
    }

    /// Requests missing reads of owners, or counts a user. A user that the policy does not select
    /// counts only if one of its owners remains unknown.
    fn request_owners_or_count(
        &mut self,
        held: &HeldCandidate<'a>,
        effects: &ReleaseEffects,
        user: ObjectUser<'a>,
        is_selected: bool,
    ) {
        let owners = self.find_owners(user.node);
        self.request_reads(&owners.missing_reads);
        let is_terminating = user.node.is_terminating();
        if is_terminating {
            self.request_reads(&held.owners.missing_reads);
        }
        let misses_reads = !owners.missing_reads.is_empty()
            || is_terminating && !held.owners.missing_reads.is_empty();
        if !misses_reads && (is_selected || owners.has_unknown) {
            self.count_user(held, effects, user, &owners);
        }
    }

    /// Counts a user after its owners were read, unless an exception applies.
    fn count_user(
        &mut self,
        held: &HeldCandidate<'a>,
        effects: &ReleaseEffects,
        user: ObjectUser<'a>,
        owners: &AllOwners,
    ) {
        let node = user.node;
        self.pass_reads.charge(node.finalizers().search_steps());
        let is_enabled = |exception| self.exceptions.contains(&exception);
        if (is_enabled(UserException::DeletedTogether)
            && !owners.has_unknown
            && effects.certainly_gets_delete(node))
            || (is_enabled(UserException::TerminatingOwner)
                && held.is_owned_by_terminating(self.pass_reads, node))
            || (is_enabled(UserException::CreatedAfterDeletion) && held.is_newcomer(owners))
        {
            return;
        }
        // The graph has the target without its hold, so `has_only_hold` does not apply to it.
        let is_target = self.cycle_candidates.first() == Some(&node.id());
        if is_enabled(UserException::Cycle) && (is_target || has_only_hold(node)) {
            let waiting = self.waiting_candidates.entry(node.id()).or_default();
            if waiting.is_empty() && !is_target {
                self.cycle_candidates.push(node.id());
            }
            waiting.push(held.node.id());
            return;
        }
        self.add_cause(node, user.path());
    }

    /// The owners of a user, cached because it may use several candidates.
    fn find_owners(&mut self, node: Node<'a>) -> Rc<AllOwners> {
        let pass_reads = self.pass_reads;
        self.owners
            .entry(node.id())
            .or_insert_with(|| Rc::new(pass_reads.find_owners(node)))
            .clone()
    }

    /// The target, and the candidates that wait for it directly or indirectly.
    fn candidates_waiting_for(&self, target: NodeId) -> NumberSet<NodeId> {
        let mut candidates = NumberSet::from_iter([target]);
        let mut next = vec![target];
        while let Some(candidate) = next.pop() {
            let waiting = self.waiting_candidates.get(&candidate).map_or(&[][..], Vec::as_slice);
            if !self.pass_reads.charge(1 + waiting.len()) {
                break;
            }
            next.extend(waiting.iter().copied().filter(|candidate| candidates.insert(*candidate)));
        }
        candidates
    }

    fn add_candidate_cause(&mut self, candidate: NodeId) {
        if let Some(node) = self.pass_reads.live_graph().get(candidate) {
            self.add_cause(node, "");
        }
    }

    fn add_cause(&mut self, node: Node<'a>, path: &'a str) {
        self.blocking_user_count += 1;
        if self.blocking_users.len() >= MAX_LISTED_CAUSES {
            return;
        }
        let owner = node.topmost_owner_limited(self.pass_reads.situation.work);
        BlockingUser { owner, user: node, path }.add_to(&mut self.blocking_users);
    }

    fn request_reads(&mut self, reads: &[LiveRead]) {
        // Each read is compared with all others.
        self.pass_reads.charge(SEARCH_STEPS * reads.len());
        for read in reads {
            if self.needed_reads.len() < MAX_READS_PER_ROUND && !self.needed_reads.contains(read) {
                self.needed_reads.push(read.clone());
            }
        }
    }

    /// The missing lists of all kinds whose objects can use an object. Controllers are listed
    /// before the objects that they create. So if a controller creates an object between two
    /// lists, the second list contains it.
    fn unread_lists(&self, node: Node<'a>) -> Result<Vec<LiveRead>, UnknownUse> {
        let situation = self.pass_reads.situation;
        let mut unread = Vec::new();
        for (user_kind, in_any_namespace) in
            situation.policies.user_kinds(&situation.graph.kinds, node.kind())
        {
            self.pass_reads.charge(SEARCH_STEPS);
            let namespace = if in_any_namespace { "" } else { node.namespace() };
            let read = situation.read_of_list(user_kind, namespace, ListPart::All);
            let kinds = &situation.graph.kinds;
            let info = kinds.info(user_kind);
            // Discovery shows which built-in kinds a server has. The absence of a custom
            // kind needs a live read.
            if !kinds.is_served(user_kind) && Kinds::is_built_in(&info.group, &info.resource) {
                continue;
            }
            match self.pass_reads.result_of(&read) {
                None => unread.push((read_order(&read), read)),
                Some(Ok(())) => {
                    if let Some(object) =
                        self.pass_reads.live_graph().describe_unreadable(user_kind, namespace)
                    {
                        return Err(UnknownUse::UnreadableUser(object));
                    }
                }
                Some(Err(why)) => {
                    let (kind, why) = (info.kind.clone(), why.clone());
                    return Err(UnknownUse::ListFailed { kind, why });
                }
            }
        }
        unread.sort();
        Ok(unread.into_iter().map(|(_, read)| read).collect())
    }
}

/// Sorts the reads that several objects need into batches.
fn into_batches(mut reads: Vec<LiveRead>) -> Vec<Vec<LiveRead>> {
    reads.sort_by_key(read_order);
    reads.chunk_by(|a, b| read_order(a) == read_order(b)).map(<[LiveRead]>::to_vec).collect()
}

/// The batch of a read, by its place in the order. Controllers come before the objects that they
/// create, and custom kinds before built-in kinds. Between kinds of one batch, no such order is
/// known. Reads of single objects come last.
fn read_order(read: &LiveRead) -> u8 {
    let LiveRead::List { group, resource, .. } = read else { return u8::MAX };
    match (&**group, &**resource) {
        (group, resource) if !Kinds::is_built_in(group, resource) => 0,
        ("batch", "cronjobs") | ("apps", "deployments") => 1,
        ("apps" | "batch" | "", "replicasets" | "jobs" | "replicationcontrollers") => 2,
        ("apps", "statefulsets" | "daemonsets") => 2,
        ("", "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims") => 4,
        ("", "persistentvolumes") => 5,
        ("discovery.k8s.io", _) | ("storage.k8s.io", "volumeattachments") => 6,
        // Pods, and all other kinds. Their objects create nothing of the batches 0 to 2.
        _ => 3,
    }
}
