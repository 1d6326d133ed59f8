//! The search for a direct or indirect owner that is approved with its content, or that
//! an exempt subject deleted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::item::JudgedObject;
use super::owners::{MAX_OWNERS, MAX_OWNERS_READ, OwnerState, owner_state};
use super::{LiveRead, Situation};
use crate::graph::{DeletedObject, MAX_OWNER_LEVELS, Node, OwnerRef, RememberedOwner};
use crate::objects::{KeyedSet, Uid};
use crate::policy::{Approval, ObjectIdentity};

/// Whether exemption records count: the approvals that belay itself writes when
/// an exempt subject deletes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExemptionRecords {
    /// Records don't count: they allow no new request and release no hold.
    Ignored,
    /// Records of the object or of an owner above it count if that object is being
    /// deleted, because the request follows from that deletion.
    Cascade,
    /// Records of the object count, because the garbage collector completes its deletion.
    Itself,
}

/// Whether an object that an approval names is being deleted.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeletionState {
    /// The object is not being deleted, or belay does not remember it.
    Exists,
    /// The object is Terminating or was deleted; with the time if belay has seen it
    /// Terminating.
    IsDeleted(Option<i64>),
}

impl DeletionState {
    pub(super) fn of_item(item: &JudgedObject<'_>) -> Self {
        item.deletion_time().map_or(Self::Exists, |deleted| Self::IsDeleted(Some(deleted)))
    }

    fn of_node(node: Node<'_>) -> Self {
        node.deletion_time().map_or(Self::Exists, |deleted| Self::IsDeleted(Some(deleted)))
    }

    fn deletion_time(self) -> Option<i64> {
        match self {
            Self::Exists => None,
            Self::IsDeleted(deleted) => deleted,
        }
    }
}

/// Whether an approval of an object in this state counts for the object itself, or for
/// content of it that was created at this time.
pub(super) fn approval_counts(
    situation: &Situation<'_>,
    records: ExemptionRecords,
    approval: &Approval,
    (state, created): (DeletionState, i64),
) -> bool {
    if !approval.is_in_force(state.deletion_time(), created, situation.now) {
        return false;
    }
    if !situation.policies.identities.is_own(&approval.approver) {
        return true;
    }
    match state {
        DeletionState::Exists => false,
        DeletionState::IsDeleted(deleted) => {
            let follows = |deleted| approval.was_created_before(deleted) && created <= deleted;
            records != ExemptionRecords::Ignored && deleted.is_none_or(follows)
        }
    }
}

/// The search for approvals whose content includes an object. Each owner of the object
/// must be approved with its content, or be content of an approved object, since before
/// the approval. Any other owner would keep the object (R5). The approvals on each path
/// of owners must be sufficient.
pub(super) struct ApprovalSearch<'s, 'a> {
    situation: &'s Situation<'a>,
    records: ExemptionRecords,
    /// The namespace of the object at the bottom.
    namespace: &'s str,
    /// When the object at the bottom was created.
    created: i64,
    /// Whether these approvals are sufficient.
    are_sufficient: &'s dyn Fn(&ApprovalsByName<'a>) -> bool,
    /// The approvals on paths with sufficient approvals.
    pub(super) found: ApprovalsByName<'a>,
    /// The approvals on a path without sufficient approvals.
    pub(super) lacking: ApprovalsByName<'a>,
    /// Approvals that are older than a change of owners on their path.
    pub(super) late: ApprovalsByName<'a>,
    /// How many owners were checked.
    checked: usize,
}

/// Approvals by name, because several paths may lead to the same one.
pub(super) type ApprovalsByName<'a> = BTreeMap<&'a str, &'a Approval>;

impl<'s, 'a> ApprovalSearch<'s, 'a> {
    pub(super) fn new(
        situation: &'s Situation<'a>,
        (records, are_enough): (ExemptionRecords, &'s dyn Fn(&ApprovalsByName<'a>) -> bool),
        (namespace, created): (&'s str, i64),
    ) -> Self {
        let (found, lacking, late) = Default::default();
        let looked_at = 0;
        Self {
            situation,
            records,
            namespace,
            created,
            are_sufficient: are_enough,
            found,
            lacking,
            late,
            checked: looked_at,
        }
    }

    /// Whether all paths of owners of an object in this namespace have sufficient
    /// approvals, together with the approvals found below. Approvals that are older than
    /// `version` don't count.
    pub(super) fn check_owners(
        &mut self,
        namespace: &str,
        owners: &Owners<'_>,
        below: &ApprovalsByName<'a>,
        (mut version, depth): (u64, usize),
    ) -> bool {
        version = version.max(owners.version);
        for (past, lost) in &owners.past {
            if *lost > version {
                let found = self.found.clone();
                if !self.check_owner(namespace, past, below, (version, depth)) {
                    // This owner kept the object until it was removed.
                    (self.found, version) = (found, *lost);
                }
            }
        }
        let mut owners = owners.now.iter().peekable();
        let some = owners.peek().is_some();
        some && owners.all(|claim| self.check_owner(namespace, claim, below, (version, depth)))
    }

    fn check_owner(
        &mut self,
        namespace: &str,
        claim: &OwnerRef<'_>,
        below: &ApprovalsByName<'a>,
        (version, depth): (u64, usize),
    ) -> bool {
        let situation = self.situation;
        let (state, owners) = match owner_state(situation, namespace, claim) {
            OwnerState::Unresolved => {
                self.lacking = below.clone();
                return false;
            }
            OwnerState::Absent => find_absent(situation, claim),
            OwnerState::Waiting(node) | OwnerState::Solid(node) => {
                (DeletionState::of_node(node), Owners::of_node(situation, node))
            }
        };
        let mut with = Cow::Borrowed(below);
        self.find_approvals((claim, version), state, &mut with);
        if matches!(with, Cow::Owned(_)) && (self.are_sufficient)(&with) {
            self.found.extend(with.iter());
            return true;
        }
        self.lacking = with.clone().into_owned();
        self.checked += 1;
        let steps = 1 + owners.now.len() + owners.past.len() + with.len();
        // An owner beyond the limits, or in a cycle, keeps the object.
        depth <= MAX_OWNER_LEVELS
            && self.checked <= MAX_OWNERS
            && !owners.are_more
            && situation.work.charge(steps)
            && self.check_owners(claim.namespace, &owners, &with, (version, depth + 1))
    }

    /// Adds the approvals of this owner with scope Content. An object that is attached to
    /// the owner after the approval is not part of its content.
    fn find_approvals(
        &mut self,
        (claim, version): (&OwnerRef<'_>, u64),
        state: DeletionState,
        with: &mut Cow<'_, ApprovalsByName<'a>>,
    ) {
        let Self { situation, records, namespace, created, .. } = *self;
        let counting = content_approvals(situation, claim).filter(|approval| {
            approval.covers_namespace(namespace)
                && approval_counts(situation, records, approval, (state, created))
        });
        for approval in counting {
            let covers = version <= approval.version;
            let to = if covers { with.to_mut() } else { &mut self.late };
            to.insert(&approval.name, approval);
        }
    }
}

/// The approvals that name a uid, up to the limit; none if the budget of work is used up.
pub(super) fn approvals_of<'a>(situation: &Situation<'a>, uid: Uid) -> &'a [Approval] {
    let approvals = situation.policies.approvals.of_uid(uid);
    let looked_at = &approvals[..approvals.len().min(MAX_OWNERS)];
    if situation.work.charge(looked_at.len()) { looked_at } else { &[] }
}

/// The approvals of an owner with scope Content, in force or not.
fn content_approvals<'a>(
    situation: &Situation<'a>,
    claim: &OwnerRef<'_>,
) -> impl Iterator<Item = &'a Approval> + use<'a> {
    let info = claim.kind.map(|kind| situation.graph.kinds.info(kind));
    let of = approvals_of(situation, claim.uid);
    let named = |approval: &&Approval| {
        info.is_some_and(|info| {
            let (group, resource) = (info.group.as_str(), info.resource.as_str());
            let OwnerRef { namespace, name, uid, .. } = *claim;
            approval.content
                && approval.names_object(&ObjectIdentity { group, resource, namespace, name, uid })
        })
    };
    of.iter().filter(named).collect::<Vec<_>>().into_iter()
}

/// The owners of an object, and their known changes.
#[derive(Default)]
pub(super) struct Owners<'c> {
    pub(super) now: Vec<OwnerRef<'c>>,
    /// The latest resourceVersion at which one of these owners may have been added.
    version: u64,
    /// The owners that were removed since then, with the resourceVersion of the removal.
    past: Vec<(OwnerRef<'c>, u64)>,
    /// Whether there are or were more owners.
    are_more: bool,
}

impl<'c> Owners<'c> {
    /// The owners of an object as it is now.
    pub(super) fn of_item(situation: &Situation<'c>, item: &JudgedObject<'c>) -> Self {
        Self::new(situation, (item.node, item.version()), item.owners(situation))
    }

    /// The owners of an object at this resourceVersion. Changes that the graph has not
    /// seen count as made at this version.
    fn new(
        situation: &Situation<'c>,
        (node, version): (Option<Node<'c>>, u64),
        now: Vec<OwnerRef<'c>>,
    ) -> Self {
        let graph = situation.graph;
        if !graph.tracks_owner_versions() || now.is_empty() {
            return Self { now, ..Self::default() };
        }
        let Some(known) = node.and_then(|node| graph.find_counterpart(node)) else {
            return Self { now, version, ..Self::default() };
        };
        let same = |claim: &OwnerRef<'_>| (claim.kind, claim.uid);
        situation.work.charge(now.len() + known.owners().len());
        let has: KeyedSet<_> = now.iter().map(same).collect();
        let seen: KeyedSet<_> = known.owner_refs().map(|claim| same(&claim)).collect();
        let version = if has.is_subset(&seen) { known.owners_version() } else { u64::MAX };
        let past = known.past_owners().iter().map(|past| (past.owner.owner_ref(), past.version));
        let lost = known.owner_refs().filter(|claim| !has.contains(&same(claim)));
        let past = past.chain(lost.map(|claim| (claim, u64::MAX))).collect();
        Self { now, version, past, are_more: known.has_too_many_owners() }
    }

    fn of_node(situation: &Situation<'c>, node: Node<'c>) -> Self {
        Self::new(situation, (Some(node), u64::MAX), node.owner_refs().collect())
    }

    fn of_deleted(gone: &'c DeletedObject) -> Self {
        let past = gone.past_owners.iter().map(|past| (past.owner.owner_ref(), past.version));
        Self {
            now: gone.owners.iter().map(RememberedOwner::owner_ref).collect(),
            version: gone.owners_version,
            past: past.collect(),
            are_more: gone.had_more_owners,
        }
    }
}

/// The known state and owners of an owner that does not exist.
fn find_absent<'a>(situation: &Situation<'a>, claim: &OwnerRef<'_>) -> (DeletionState, Owners<'a>) {
    if let Some(gone) = situation.graph.deleted_object(claim.uid) {
        return (DeletionState::IsDeleted(gone.deleted), Owners::of_deleted(gone));
    }
    let Some(node) = node(situation, claim) else {
        return (DeletionState::Exists, Owners::default());
    };
    if !is_absent(situation, claim) {
        return (DeletionState::of_node(node), Owners::default());
    }
    // A live read shows that it was deleted a moment ago.
    (DeletionState::IsDeleted(node.deletion_time()), Owners::of_node(situation, node))
}

/// The owner from a live read or from the graph.
fn node<'a>(situation: &Situation<'a>, claim: &OwnerRef<'_>) -> Option<Node<'a>> {
    let kind = claim.kind?;
    let live = situation.read_object(kind, claim.namespace, claim.name).flatten();
    let live = live.filter(|node| node.uid() == claim.uid);
    let cached = || situation.graph.object(kind, claim.namespace, claim.name);
    live.or_else(|| cached().filter(|node| node.uid() == claim.uid))
}

/// Whether a live read shows that the owner does not exist.
fn is_absent(situation: &Situation<'_>, claim: &OwnerRef<'_>) -> bool {
    let read = claim.kind.and_then(|kind| situation.read_object(kind, claim.namespace, claim.name));
    read.is_some_and(|found| found.is_none_or(|node| node.uid() != claim.uid))
}

/// The approvals and records of all direct and indirect owners.
#[derive(Debug, Default)]
pub(super) struct AncestorApprovalSummary {
    /// Whether an approval in force with scope Content names one of them.
    pub(super) approved: bool,
    /// Whether an exemption record names one of them.
    pub(super) recorded: bool,
    /// Whether there are more owners or approvals than belay checks.
    pub(super) incomplete: bool,
    /// The live reads of existing owners that the verdict still needs.
    pub(super) unread: Vec<LiveRead>,
}

impl AncestorApprovalSummary {
    pub(super) fn find(situation: &Situation<'_>, owners: &[OwnerRef<'_>]) -> Self {
        let mut above = Self::default();
        let mut next: Vec<OwnerRef<'_>> = owners.to_vec();
        let mut seen: KeyedSet<Uid> = KeyedSet::default();
        while let Some(claim) = next.pop() {
            if !seen.insert(claim.uid) {
                continue;
            }
            if seen.len() > MAX_OWNERS || next.len() > 10 * MAX_OWNERS || !situation.work.charge(1)
            {
                above.incomplete = true;
                break;
            }
            above.incomplete |= situation.policies.approvals.of_uid(claim.uid).len() > MAX_OWNERS;
            for approval in content_approvals(situation, &claim) {
                let own = situation.policies.identities.is_own(&approval.approver);
                let deleted = node(situation, &claim).and_then(Node::deletion_time);
                above.recorded |= own;
                above.approved |= !own && approval.is_in_force(deleted, i64::MIN, situation.now);
            }
            match node(situation, &claim) {
                Some(node) => {
                    above.read(situation, &claim);
                    above.incomplete |= node.has_too_many_owners();
                    next.extend(node.owner_refs());
                }
                None => {
                    let (_, Owners { now, are_more, .. }) = find_absent(situation, &claim);
                    above.incomplete |= are_more;
                    next.extend(now);
                }
            }
        }
        above
    }

    fn read(&mut self, situation: &Situation<'_>, claim: &OwnerRef<'_>) {
        let Some(kind) = claim.kind else { return };
        let read = situation.object_read(kind, claim.namespace, claim.name);
        if self.unread.len() < MAX_OWNERS_READ
            && situation.is_unread(&read)
            && !self.unread.contains(&read)
        {
            self.unread.push(read);
        }
    }
}
