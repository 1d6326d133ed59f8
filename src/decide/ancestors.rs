//! The search up the owner references for an owner that is approved with its
//! content, or that an exempt subject deleted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::item::Item;
use super::owners::{MOST_OWNERS, MOST_OWNERS_READ, OwnerState, owner_state};
use super::{LiveRead, Situation};
use crate::graph::{DeletedObject, MOST_OWNER_LEVELS, Node, OwnerClaim, RememberedOwner};
use crate::objects::{KeyedSet, Uid};
use crate::policy::{Approval, Identity};

/// Whether exemption records count: the approvals that belay itself writes when
/// an exempt subject deletes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExemptionRecords {
    /// They don't: a record opens no new request and releases no hold.
    Ignored,
    /// Those of the object itself, or of an object above it, that is being deleted:
    /// the request follows from that deletion.
    Cascade,
    /// Those of the object itself, which is being deleted: the garbage collector
    /// completes that.
    Itself,
}

/// What has become of an object that an approval names.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeletionState {
    /// It is not being deleted, or belay does not remember it.
    Lives,
    /// It is Terminating, or was deleted; since when, if it was seen Terminating.
    Ends(Option<i64>),
}

impl DeletionState {
    pub(super) fn of_item(item: &Item<'_>) -> Self {
        item.deleted().map_or(Self::Lives, |deleted| Self::Ends(Some(deleted)))
    }

    fn of_node(node: Node<'_>) -> Self {
        node.deleted().map_or(Self::Lives, |deleted| Self::Ends(Some(deleted)))
    }

    fn deleted(self) -> Option<i64> {
        match self {
            Self::Lives => None,
            Self::Ends(deleted) => deleted,
        }
    }
}

/// Whether an approval of an object in this state counts for the object itself, or for
/// content of it that was created at this time.
pub(super) fn counts(
    situation: &Situation<'_>,
    records: ExemptionRecords,
    approval: &Approval,
    (state, created): (DeletionState, i64),
) -> bool {
    if !approval.is_in_force(state.deleted(), created, situation.now) {
        return false;
    }
    if !situation.policies.identities.is_own(&approval.approver) {
        return true;
    }
    match state {
        DeletionState::Lives => false,
        DeletionState::Ends(deleted) => {
            let follows = |deleted| approval.precedes(deleted) && created <= deleted;
            records != ExemptionRecords::Ignored && deleted.is_none_or(follows)
        }
    }
}

/// The search for approvals whose content an object is: each of its owners is
/// approved with its content, or is such content itself, and was when the approval was
/// given. Any other owner would keep the object (R5), or did so then. The approvals on
/// each way up have to be enough.
pub(super) struct Ancestors<'s, 'a> {
    situation: &'s Situation<'a>,
    records: ExemptionRecords,
    /// The namespace of the object at the bottom.
    namespace: &'s str,
    /// When that was created.
    created: i64,
    /// Whether these approvals are enough.
    are_enough: &'s dyn Fn(&ByName<'a>) -> bool,
    /// What was found on the ways that have enough.
    pub(super) found: ByName<'a>,
    /// What was found on one that has not.
    pub(super) lacking: ByName<'a>,
    /// Approvals that were given before the owners on the way to them changed.
    pub(super) late: ByName<'a>,
    /// How many owners have been looked at.
    looked_at: usize,
}

/// Approvals by name: many ways may lead to the same one.
pub(super) type ByName<'a> = BTreeMap<&'a str, &'a Approval>;

impl<'s, 'a> Ancestors<'s, 'a> {
    pub(super) fn new(
        situation: &'s Situation<'a>,
        (records, are_enough): (ExemptionRecords, &'s dyn Fn(&ByName<'a>) -> bool),
        (namespace, created): (&'s str, i64),
    ) -> Self {
        let (found, lacking, late) = Default::default();
        let looked_at = 0;
        Self { situation, records, namespace, created, are_enough, found, lacking, late, looked_at }
    }

    /// Whether all ways up from an object in this namespace have enough approvals, with
    /// those that were found below. Approvals that are older than `version` don't count.
    pub(super) fn check_owners(
        &mut self,
        namespace: &str,
        owners: &Owners<'_>,
        below: &ByName<'a>,
        (mut version, depth): (u64, usize),
    ) -> bool {
        version = version.max(owners.version);
        for (past, lost) in &owners.past {
            if *lost > version {
                let found = self.found.clone();
                if !self.check_owner(namespace, past, below, (version, depth)) {
                    // Until then this one kept it.
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
        claim: &OwnerClaim<'_>,
        below: &ByName<'a>,
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
        if matches!(with, Cow::Owned(_)) && (self.are_enough)(&with) {
            self.found.extend(with.iter());
            return true;
        }
        self.lacking = with.clone().into_owned();
        self.looked_at += 1;
        let steps = 1 + owners.now.len() + owners.past.len() + with.len();
        // What is not found within the bounds, or leads in a circle, stays.
        depth <= MOST_OWNER_LEVELS
            && self.looked_at <= MOST_OWNERS
            && !owners.are_more
            && situation.work.charge(steps)
            && self.check_owners(claim.namespace, &owners, &with, (version, depth + 1))
    }

    /// Adds the approvals of scope Content that name this owner. What is attached to an
    /// approved object later is not its content.
    fn find_approvals(
        &mut self,
        (claim, version): (&OwnerClaim<'_>, u64),
        state: DeletionState,
        with: &mut Cow<'_, ByName<'a>>,
    ) {
        let Self { situation, records, namespace, created, .. } = *self;
        let counting = content_approvals(situation, claim).filter(|approval| {
            approval.reaches(namespace) && counts(situation, records, approval, (state, created))
        });
        for approval in counting {
            let covers = version <= approval.version;
            let to = if covers { with.to_mut() } else { &mut self.late };
            to.insert(&approval.name, approval);
        }
    }
}

/// The approvals that name a uid, as far as they are looked at. Without the work
/// that it takes nothing is approved.
pub(super) fn approvals_of<'a>(situation: &Situation<'a>, uid: Uid) -> &'a [Approval] {
    let approvals = situation.policies.approvals.of_uid(uid);
    let looked_at = &approvals[..approvals.len().min(MOST_OWNERS)];
    if situation.work.charge(looked_at.len()) { looked_at } else { &[] }
}

/// The approvals of scope Content that name an owner, in force or not.
fn content_approvals<'a>(
    situation: &Situation<'a>,
    claim: &OwnerClaim<'_>,
) -> impl Iterator<Item = &'a Approval> + use<'a> {
    let info = claim.kind.map(|kind| situation.graph.kinds.info(kind));
    let of = approvals_of(situation, claim.uid);
    let named = |approval: &&Approval| {
        info.is_some_and(|info| {
            let (group, resource) = (info.group.as_str(), info.resource.as_str());
            let OwnerClaim { namespace, name, uid, .. } = *claim;
            approval.content && approval.names(&Identity { group, resource, namespace, name, uid })
        })
    };
    of.iter().filter(named).collect::<Vec<_>>().into_iter()
}

/// The owners of an object, and what is known of how they changed.
#[derive(Default)]
pub(super) struct Owners<'c> {
    pub(super) now: Vec<OwnerClaim<'c>>,
    /// The resourceVersion at which it may last have gained one of them.
    version: u64,
    /// Those that it has lost since then, and at which resourceVersion.
    past: Vec<(OwnerClaim<'c>, u64)>,
    /// It has or had more than these.
    are_more: bool,
}

impl<'c> Owners<'c> {
    /// Those of an object as it is now.
    pub(super) fn of_item(situation: &Situation<'c>, item: &Item<'c>) -> Self {
        Self::new(situation, (item.node, item.version()), item.owners(situation))
    }

    /// Those of an object that is stored at this resourceVersion, as it is now. What the
    /// graph has not seen may have changed only then.
    fn new(
        situation: &Situation<'c>,
        (node, version): (Option<Node<'c>>, u64),
        now: Vec<OwnerClaim<'c>>,
    ) -> Self {
        let graph = situation.graph;
        if !graph.dates_owners() || now.is_empty() {
            return Self { now, ..Self::default() };
        }
        let Some(known) = node.and_then(|node| graph.same(node)) else {
            return Self { now, version, ..Self::default() };
        };
        let same = |claim: &OwnerClaim<'_>| (claim.kind, claim.uid);
        situation.work.charge(now.len() + known.owners().len());
        let has: KeyedSet<_> = now.iter().map(same).collect();
        let seen: KeyedSet<_> = known.claims().map(|claim| same(&claim)).collect();
        let version = if has.is_subset(&seen) { known.owners_version() } else { u64::MAX };
        let past = known.past_owners().iter().map(|past| (past.owner.claim(), past.version));
        let lost = known.claims().filter(|claim| !has.contains(&same(claim)));
        let past = past.chain(lost.map(|claim| (claim, u64::MAX))).collect();
        Self { now, version, past, are_more: known.has_too_many_owners() }
    }

    fn of_node(situation: &Situation<'c>, node: Node<'c>) -> Self {
        Self::new(situation, (Some(node), u64::MAX), node.claims().collect())
    }

    fn of_gone(gone: &'c DeletedObject) -> Self {
        let past = gone.past_owners.iter().map(|past| (past.owner.claim(), past.version));
        Self {
            now: gone.owners.iter().map(RememberedOwner::claim).collect(),
            version: gone.owners_version,
            past: past.collect(),
            are_more: gone.had_more_owners,
        }
    }
}

/// The state and the owners of an owner that does not exist, as far as they are known.
fn find_absent<'a>(
    situation: &Situation<'a>,
    claim: &OwnerClaim<'_>,
) -> (DeletionState, Owners<'a>) {
    if let Some(gone) = situation.graph.deleted_object(claim.uid) {
        return (DeletionState::Ends(gone.deleted), Owners::of_gone(gone));
    }
    let Some(node) = node(situation, claim) else {
        return (DeletionState::Lives, Owners::default());
    };
    if !is_absent(situation, claim) {
        return (DeletionState::of_node(node), Owners::default());
    }
    // A live read has not found it, so it was deleted a moment ago.
    (DeletionState::Ends(node.deleted()), Owners::of_node(situation, node))
}

/// The owner as it was read live, or as the graph has it.
fn node<'a>(situation: &Situation<'a>, claim: &OwnerClaim<'_>) -> Option<Node<'a>> {
    let kind = claim.kind?;
    let live = situation.read_object(kind, claim.namespace, claim.name).flatten();
    let live = live.filter(|node| node.uid() == claim.uid);
    let cached = || situation.graph.object(kind, claim.namespace, claim.name);
    live.or_else(|| cached().filter(|node| node.uid() == claim.uid))
}

/// Whether a live read says that the owner is not there.
fn is_absent(situation: &Situation<'_>, claim: &OwnerClaim<'_>) -> bool {
    let read = claim.kind.and_then(|kind| situation.read_object(kind, claim.namespace, claim.name));
    read.is_some_and(|found| found.is_none_or(|node| node.uid() != claim.uid))
}

/// Everything above some owners, whichever way leads there.
#[derive(Debug, Default)]
pub(super) struct AncestorApprovals {
    /// Whether an approval of scope Content in force names something there.
    pub(super) approved: bool,
    /// Whether an exemption record does.
    pub(super) recorded: bool,
    /// There is more than is looked at.
    pub(super) incomplete: bool,
    /// The reads of those that seem to live and have not been read.
    pub(super) unread: Vec<LiveRead>,
}

impl AncestorApprovals {
    pub(super) fn find(situation: &Situation<'_>, owners: &[OwnerClaim<'_>]) -> Self {
        let mut above = Self::default();
        let mut next: Vec<OwnerClaim<'_>> = owners.to_vec();
        let mut seen: KeyedSet<Uid> = KeyedSet::default();
        while let Some(claim) = next.pop() {
            if !seen.insert(claim.uid) {
                continue;
            }
            if seen.len() > MOST_OWNERS
                || next.len() > 10 * MOST_OWNERS
                || !situation.work.charge(1)
            {
                above.incomplete = true;
                break;
            }
            above.incomplete |= situation.policies.approvals.of_uid(claim.uid).len() > MOST_OWNERS;
            for approval in content_approvals(situation, &claim) {
                let own = situation.policies.identities.is_own(&approval.approver);
                let deleted = node(situation, &claim).and_then(Node::deleted);
                above.recorded |= own;
                above.approved |= !own && approval.is_in_force(deleted, i64::MIN, situation.now);
            }
            match node(situation, &claim) {
                Some(node) => {
                    above.read(situation, &claim);
                    above.incomplete |= node.has_too_many_owners();
                    next.extend(node.claims());
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

    fn read(&mut self, situation: &Situation<'_>, claim: &OwnerClaim<'_>) {
        let Some(kind) = claim.kind else { return };
        let read = situation.object_read(kind, claim.namespace, claim.name);
        if self.unread.len() < MOST_OWNERS_READ
            && situation.is_unread(&read)
            && !self.unread.contains(&read)
        {
            self.unread.push(read);
        }
    }
}
