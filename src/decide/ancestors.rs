//! The search up the owner references for an owner that is approved with its
//! content, or that an exempt subject deleted.

use std::collections::BTreeMap;

use super::item::Item;
use super::owners::{MOST, MOST_READ, Standing, standing};
use super::{LiveRead, Situation};
use crate::graph::{Claim, DEEPEST, Gone, Node};
use crate::objects::{KeyedSet, Uid};
use crate::policy::{Approval, Identity};

/// Whether exemption records count: the approvals that belay itself writes when
/// an exempt subject deletes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Records {
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
pub(super) enum State {
    /// It is not being deleted, or belay does not remember it.
    Lives,
    /// It is Terminating, or was deleted; since when, if it was seen Terminating.
    Ends(Option<i64>),
}

impl State {
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

/// Whether an approval counts for what is below an object in this state.
pub(super) fn counts(
    situation: &Situation<'_>,
    records: Records,
    approval: &Approval,
    state: State,
) -> bool {
    if !approval.is_in_force(state.deleted(), situation.now) {
        return false;
    }
    if !situation.policies.identities.is_own(&approval.approver) {
        return true;
    }
    match state {
        State::Lives => false,
        State::Ends(deleted) => {
            records != Records::Ignored && deleted.is_none_or(|deleted| approval.precedes(deleted))
        }
    }
}

/// The certain closure: an object is in that of an ancestor when each of its
/// owners is that ancestor, or gone, or in the closure itself. An owner that
/// stays would keep the object (R5).
pub(super) struct Ancestors<'s, 'a> {
    situation: &'s Situation<'a>,
    records: Records,
    /// The namespace of the object at the bottom.
    namespace: &'s str,
    pub(super) found: ByName<'a>,
    /// Approvals that were given before a reference on the way to them was added.
    pub(super) late: ByName<'a>,
    /// The objects whose owners have been looked at. A cycle leads nowhere.
    seen: KeyedSet<Uid>,
}

/// Approvals by name: many ways may lead to the same one.
pub(super) type ByName<'a> = BTreeMap<&'a str, &'a Approval>;

/// Where a way leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// To something that is approved with its content.
    There,
    /// Nowhere: what it led to is gone.
    Nowhere,
    /// To something that stays.
    Elsewhere,
}

impl<'s, 'a> Ancestors<'s, 'a> {
    pub(super) fn new(situation: &'s Situation<'a>, records: Records, namespace: &'s str) -> Self {
        let (found, late, seen) = Default::default();
        Self { situation, records, namespace, found, late, seen }
    }

    /// Follows the owner references of an object. `version` is the resourceVersion
    /// at which one on the way was added last.
    pub(super) fn lead(
        &mut self,
        namespace: &str,
        (owners, version): (&[Claim<'_>], u64),
        depth: usize,
    ) -> Leads {
        let mut all = Leads::Nowhere;
        for owner in owners {
            match self.follow(namespace, (owner, version), depth) {
                Leads::Elsewhere => return Leads::Elsewhere,
                Leads::There => all = Leads::There,
                Leads::Nowhere => {}
            }
        }
        all
    }

    fn follow(
        &mut self,
        namespace: &str,
        (claim, version): (&Claim<'_>, u64),
        depth: usize,
    ) -> Leads {
        let node = match standing(self.situation, namespace, claim) {
            Standing::Unresolved => return Leads::Elsewhere,
            Standing::Absent => return self.follow_gone(claim, version),
            Standing::Waiting(node) | Standing::Solid(node) => node,
        };
        if self.find_approvals((claim, version), State::of_node(node)) {
            return Leads::There;
        }
        // What is not found within the bounds, or leads in a circle, stays.
        if depth > DEEPEST
            || self.seen.len() > MOST
            || !self.situation.work.charge(1 + node.owners().len())
            || !self.seen.insert(node.uid())
        {
            return Leads::Elsewhere;
        }
        let owners: Vec<_> = node.claims().collect();
        let version = version.max(owners_version(self.situation, Some(node), &owners));
        match self.lead(node.namespace(), (&owners, version), depth + 1) {
            Leads::There => Leads::There,
            // It exists, and is not deleted with anything that is approved.
            Leads::Nowhere | Leads::Elsewhere => Leads::Elsewhere,
        }
    }

    /// Searches above an owner that is gone: it was approved itself, or deleted with
    /// an object that was.
    fn follow_gone(&mut self, claim: &Claim<'_>, version: u64) -> Leads {
        let mut next = vec![(*claim, version)];
        let mut seen = KeyedSet::default();
        while let Some((claim, version)) = next.pop() {
            if !seen.insert(claim.uid) {
                continue;
            }
            let Absent { state, owners, owners_version, .. } = find_absent(self.situation, &claim);
            if seen.len() > MOST || !self.situation.work.charge(1 + owners.len()) {
                return Leads::Elsewhere;
            }
            if self.find_approvals((&claim, version), state) {
                return Leads::There;
            }
            let version = version.max(owners_version);
            next.extend(owners.into_iter().map(|owner| (owner, version)));
        }
        Leads::Nowhere
    }

    /// Collects the approvals of scope Content that name this owner; whether there
    /// are any. What is attached to an approved object later is not its content.
    fn find_approvals(&mut self, (claim, version): (&Claim<'_>, u64), state: State) -> bool {
        let (situation, records, namespace) = (self.situation, self.records, self.namespace);
        let counting = content_approvals(situation, claim).filter(|approval| {
            approval.reaches(namespace) && counts(situation, records, approval, state)
        });
        let mut any = false;
        for approval in counting {
            let covers = version <= approval.version;
            any |= covers;
            if covers { &mut self.found } else { &mut self.late }.insert(&approval.name, approval);
        }
        any
    }
}

/// The approvals that name a uid, as far as they are looked at. Without the work
/// that it takes nothing is approved.
pub(super) fn approvals_of<'a>(situation: &Situation<'a>, uid: Uid) -> &'a [Approval] {
    let approvals = situation.policies.approvals.of(uid);
    let looked_at = &approvals[..approvals.len().min(MOST)];
    if situation.work.charge(looked_at.len()) { looked_at } else { &[] }
}

/// The approvals of scope Content that name an owner, in force or not.
fn content_approvals<'a>(
    situation: &Situation<'a>,
    claim: &Claim<'_>,
) -> impl Iterator<Item = &'a Approval> + use<'a> {
    let info = claim.kind.map(|kind| situation.graph.kinds.info(kind));
    let of = approvals_of(situation, claim.uid);
    let named = |approval: &&Approval| {
        info.is_some_and(|info| {
            let (group, resource) = (info.group.as_str(), info.resource.as_str());
            let Claim { namespace, name, uid, .. } = *claim;
            approval.content && approval.names(&Identity { group, resource, namespace, name, uid })
        })
    };
    of.iter().filter(named).collect::<Vec<_>>().into_iter()
}

/// The resourceVersion at which an object may last have gained one of these
/// owner references. What the graph has not seen may have come only now.
pub(super) fn owners_version(
    situation: &Situation<'_>,
    node: Option<Node<'_>>,
    owners: &[Claim<'_>],
) -> u64 {
    let graph = situation.graph;
    if !graph.dates_owners() || owners.is_empty() {
        return 0;
    }
    let Some(known) = node.and_then(|node| graph.same(node)) else { return u64::MAX };
    let same = |claim: &Claim<'_>| (claim.kind, claim.uid);
    situation.work.charge(owners.len() + known.owners().len());
    let seen: KeyedSet<_> = known.claims().map(|claim| same(&claim)).collect();
    let all = owners.iter().all(|claim| seen.contains(&same(claim)));
    if all { known.owners_version() } else { u64::MAX }
}

/// What is known of an owner that is not there.
struct Absent<'a> {
    state: State,
    owners: Vec<Claim<'a>>,
    owners_version: u64,
    /// It had more owners than these.
    had_more_owners: bool,
}

fn find_absent<'a>(situation: &Situation<'a>, claim: &Claim<'_>) -> Absent<'a> {
    let graph = situation.graph;
    if let Some(gone) = graph.gone(claim.uid) {
        let Gone { owners, owners_version, deleted, had_more_owners, .. } = gone;
        let owners = owners.iter().map(|owner| Claim {
            kind: Some(owner.kind),
            version: "",
            namespace: &owner.namespace,
            name: &owner.name,
            uid: owner.uid,
        });
        return Absent {
            state: State::Ends(*deleted),
            owners: owners.collect(),
            owners_version: *owners_version,
            had_more_owners: *had_more_owners,
        };
    }
    let absent =
        |state| Absent { state, owners: Vec::new(), owners_version: 0, had_more_owners: false };
    let Some(node) = node(situation, claim) else { return absent(State::Lives) };
    if !is_absent(situation, claim) {
        return absent(State::of_node(node));
    }
    // A live read has not found it, so it was deleted a moment ago.
    let owners: Vec<_> = node.claims().collect();
    let owners_version = owners_version(situation, Some(node), &owners);
    let (state, had_more_owners) = (State::Ends(node.deleted()), node.has_too_many_owners());
    Absent { state, owners, owners_version, had_more_owners }
}

/// The owner as it was read live, or as the graph has it.
fn node<'a>(situation: &Situation<'a>, claim: &Claim<'_>) -> Option<Node<'a>> {
    let kind = claim.kind?;
    let live = situation.read_object(kind, claim.namespace, claim.name).flatten();
    let live = live.filter(|node| node.uid() == claim.uid);
    let cached = || situation.graph.object(kind, claim.namespace, claim.name);
    live.or_else(|| cached().filter(|node| node.uid() == claim.uid))
}

/// Whether a live read says that the owner is not there.
fn is_absent(situation: &Situation<'_>, claim: &Claim<'_>) -> bool {
    let read = claim.kind.and_then(|kind| situation.read_object(kind, claim.namespace, claim.name));
    read.is_some_and(|found| found.is_none_or(|node| node.uid() != claim.uid))
}

/// Everything above some owners, whichever way leads there.
#[derive(Debug, Default)]
pub(super) struct Above {
    /// Whether an approval of scope Content in force names something there.
    pub(super) approved: bool,
    /// Whether an exemption record does.
    pub(super) recorded: bool,
    /// There is more than is looked at.
    pub(super) endless: bool,
    /// The reads of those that seem to live and have not been read.
    pub(super) unread: Vec<LiveRead>,
}

impl Above {
    pub(super) fn of(situation: &Situation<'_>, owners: &[Claim<'_>]) -> Self {
        let mut above = Self::default();
        let mut next: Vec<Claim<'_>> = owners.to_vec();
        let mut seen: KeyedSet<Uid> = KeyedSet::default();
        while let Some(claim) = next.pop() {
            if !seen.insert(claim.uid) {
                continue;
            }
            if seen.len() > MOST || next.len() > 10 * MOST || !situation.work.charge(1) {
                above.endless = true;
                break;
            }
            above.endless |= situation.policies.approvals.of(claim.uid).len() > MOST;
            for approval in content_approvals(situation, &claim) {
                let own = situation.policies.identities.is_own(&approval.approver);
                let deleted = node(situation, &claim).and_then(Node::deleted);
                above.recorded |= own;
                above.approved |= !own && approval.is_in_force(deleted, situation.now);
            }
            match node(situation, &claim) {
                Some(node) => {
                    above.read(situation, &claim);
                    above.endless |= node.has_too_many_owners();
                    next.extend(node.claims());
                }
                None => {
                    let absent = find_absent(situation, &claim);
                    above.endless |= absent.had_more_owners;
                    next.extend(absent.owners);
                }
            }
        }
        above
    }

    fn read(&mut self, situation: &Situation<'_>, claim: &Claim<'_>) {
        let Some(kind) = claim.kind else { return };
        let read = situation.object_read(kind, claim.namespace, claim.name);
        if self.unread.len() < MOST_READ
            && situation.is_unread(&read)
            && !self.unread.contains(&read)
        {
            self.unread.push(read);
        }
    }
}
