//! Searches for a direct or indirect owner that has an approval with scope Content, or that an
//! exempt subject deleted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::item::JudgedObject;
use super::owners::{MAX_OWNERS, OwnerState, owner_state, require_read};
use super::{LiveRead, Situation};
use crate::graph::{DeletedObject, MAX_OWNER_LEVELS, Node, OwnerRef, RememberedOwner};
use crate::objects::{KeyedSet, Uid};
use crate::policy::{Approval, ObjectIdentity};

/// Which exemption records count. belay writes these approvals when an exempt subject
/// deletes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordScope {
    /// Records don't count: they allow no new request and release no hold.
    Ignored,
    /// A record of the object or of one of its owners counts if the named object is being
    /// deleted, because the request follows from that deletion.
    OfObjectAndOwners,
    /// A record of the object counts if the object is being deleted. This is for an owner whose
    /// references the garbage collector removes from dependents.
    OfObject,
}

/// Whether the deletion of an object that an approval names has begun.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeletionState {
    /// belay has not seen the deletion begin.
    NotSeen,
    /// The object is Terminating or was deleted, with the time if belay observed it.
    Begun(Option<i64>),
}

impl DeletionState {
    pub(super) fn from_deletion_time(time: Option<i64>) -> Self {
        time.map_or(Self::NotSeen, |deleted| Self::Begun(Some(deleted)))
    }

    fn deletion_time(self) -> Option<i64> {
        match self {
            Self::NotSeen => None,
            Self::Begun(deleted) => deleted,
        }
    }
}

/// The object for whose deletion an approval is used.
#[derive(Debug, Clone, Copy)]
pub(super) enum Covered {
    /// The object that the approval names.
    Object,
    /// An object in the content of the named object, with the creation time of the covered object.
    Content { created: i64 },
}

/// Whether an approval counts. `state` is the state of the object that the approval names, and
/// `covered` the object for whose deletion it is used.
pub(super) fn is_approval_counted(
    situation: &Situation<'_>,
    record_scope: RecordScope,
    approval: &Approval,
    state: DeletionState,
    covered: Covered,
) -> bool {
    let created = match covered {
        Covered::Object => i64::MIN,
        Covered::Content { created } => created,
    };
    if !approval.is_in_force(state.deletion_time(), created, situation.now) {
        return false;
    }
    if !situation.policies.identities.is_belay(&approval.approver) {
        return true;
    }
    match state {
        DeletionState::NotSeen => false,
        DeletionState::Begun(deleted) => {
            let follows = |deleted| approval.was_created_before(deleted) && created <= deleted;
            // An exemption bar permits nothing.
            record_scope != RecordScope::Ignored
                && !approval.exempts.is_empty()
                && deleted.is_none_or(follows)
        }
    }
}

/// The search for approvals with scope Content that cover an object. Each path of owners must
/// lead to an owner with such an approval, and no owner reference on the path may be younger than
/// the approval. An owner on a path without such an approval keeps the object (R5). The approvals
/// on each path must be sufficient.
pub(super) struct ApprovalSearch<'s, 'a> {
    situation: &'s Situation<'a>,
    record_scope: RecordScope,
    /// The namespace of the object that the search starts from.
    namespace: &'s str,
    /// The creation time of that object.
    created: i64,
    /// Whether these approvals are sufficient.
    are_sufficient: &'s dyn Fn(&ApprovalsByName<'a>) -> bool,
    /// The approvals on paths with sufficient approvals.
    pub(super) sufficient: ApprovalsByName<'a>,
    /// The approvals on a path without sufficient approvals.
    pub(super) insufficient: ApprovalsByName<'a>,
    /// Approvals that are older than a change of owners on their path.
    pub(super) outdated: ApprovalsByName<'a>,
    /// The number of checked owners.
    checked: usize,
}

/// Approvals by name, because several paths may lead to the same one.
pub(super) type ApprovalsByName<'a> = BTreeMap<&'a str, &'a Approval>;

impl<'s, 'a> ApprovalSearch<'s, 'a> {
    pub(super) fn new(
        situation: &'s Situation<'a>,
        (record_scope, are_sufficient): (RecordScope, &'s dyn Fn(&ApprovalsByName<'a>) -> bool),
        (namespace, created): (&'s str, i64),
    ) -> Self {
        let (sufficient, insufficient, outdated) = Default::default();
        Self {
            situation,
            record_scope,
            namespace,
            created,
            are_sufficient,
            sufficient,
            insufficient,
            outdated,
            checked: 0,
        }
    }

    /// Whether each path through these owners has sufficient approvals. The owners are those of an
    /// object in this namespace, and `on_path` has the approvals found on the path to this object.
    /// Approvals that are older than `oldest_valid_version` don't count.
    pub(super) fn check_owners(
        &mut self,
        namespace: &str,
        owners: &Owners<'_>,
        on_path: &ApprovalsByName<'a>,
        (mut oldest_valid_version, depth): (u64, usize),
    ) -> bool {
        oldest_valid_version = oldest_valid_version.max(owners.version);
        for (past, removed_at) in &owners.past {
            if *removed_at > oldest_valid_version {
                let sufficient = self.sufficient.clone();
                if !self.check_owner(namespace, past, on_path, (oldest_valid_version, depth)) {
                    // Until its removal, this owner kept the object. So approvals older than the
                    // removal don't count.
                    (self.sufficient, oldest_valid_version) = (sufficient, *removed_at);
                }
            }
        }
        let mut owners = owners.now.iter().peekable();
        let has_owners = owners.peek().is_some();
        has_owners
            && owners.all(|owner_ref| {
                self.check_owner(namespace, owner_ref, on_path, (oldest_valid_version, depth))
            })
    }

    fn check_owner(
        &mut self,
        namespace: &str,
        owner_ref: &OwnerRef<'_>,
        on_path: &ApprovalsByName<'a>,
        (oldest_valid_version, depth): (u64, usize),
    ) -> bool {
        let situation = self.situation;
        let (state, owners) = match owner_state(situation, namespace, owner_ref) {
            OwnerState::Unresolved => {
                self.insufficient = on_path.clone();
                return false;
            }
            OwnerState::Absent => find_deleted_owner(situation, owner_ref),
            OwnerState::Waiting(node) | OwnerState::Solid(node) => (
                DeletionState::from_deletion_time(node.deletion_time()),
                Owners::of_node(situation, node),
            ),
        };
        let mut approvals = Cow::Borrowed(on_path);
        self.find_approvals((owner_ref, oldest_valid_version), state, &mut approvals);
        let found_here = matches!(approvals, Cow::Owned(_));
        if found_here && (self.are_sufficient)(&approvals) {
            self.sufficient.extend(approvals.iter());
            return true;
        }
        self.insufficient = approvals.clone().into_owned();
        self.checked += 1;
        let steps = 1 + owners.now.len() + owners.past.len() + approvals.len();
        // An owner beyond the limits, or in a cycle, keeps the object.
        depth <= MAX_OWNER_LEVELS
            && self.checked <= MAX_OWNERS
            && !owners.has_more
            && situation.work.charge(steps)
            && self.check_owners(
                owner_ref.namespace,
                &owners,
                &approvals,
                (oldest_valid_version, depth + 1),
            )
    }

    /// Adds the approvals of this owner with scope Content. An object that is attached to
    /// the owner after the approval is not part of its content.
    fn find_approvals(
        &mut self,
        (owner_ref, oldest_valid_version): (&OwnerRef<'_>, u64),
        state: DeletionState,
        approvals: &mut Cow<'_, ApprovalsByName<'a>>,
    ) {
        let Self { situation, record_scope, namespace, created, .. } = *self;
        let covered = Covered::Content { created };
        let counting = content_approvals(situation, owner_ref).filter(|approval| {
            approval.covers_namespace(namespace)
                && is_approval_counted(situation, record_scope, approval, state, covered)
        });
        for approval in counting {
            let covers = oldest_valid_version <= approval.version;
            let matching = if covers { approvals.to_mut() } else { &mut self.outdated };
            matching.insert(&approval.name, approval);
        }
    }
}

/// The approvals that name a uid, up to the limit; none if the budget of work is used up.
pub(super) fn approvals_of<'a>(situation: &Situation<'a>, uid: Uid) -> &'a [Approval] {
    let approvals = situation.policies.approvals.of_uid(uid);
    let checked = &approvals[..approvals.len().min(MAX_OWNERS)];
    if situation.work.charge(checked.len()) { checked } else { &[] }
}

/// The approvals of an owner with scope Content, in force or not.
fn content_approvals<'a>(
    situation: &Situation<'a>,
    owner_ref: &OwnerRef<'_>,
) -> impl Iterator<Item = &'a Approval> + use<'a> {
    let info = owner_ref.kind.map(|kind| situation.graph.kinds.info(kind));
    let approvals = approvals_of(situation, owner_ref.uid);
    let is_of_owner = |approval: &&Approval| {
        info.is_some_and(|info| {
            let (group, resource) = info.group_resource();
            let OwnerRef { namespace, name, uid, .. } = *owner_ref;
            approval.content
                && approval.names_object(&ObjectIdentity { group, resource, namespace, name, uid })
        })
    };
    approvals.iter().filter(is_of_owner).collect::<Vec<_>>().into_iter()
}

/// The owners of an object, and their known changes.
#[derive(Default)]
pub(super) struct Owners<'c> {
    pub(super) now: Vec<OwnerRef<'c>>,
    /// The latest resourceVersion at which one of these owners may have been added.
    version: u64,
    /// The owners that were removed since then, with the resourceVersion of the removal.
    past: Vec<(OwnerRef<'c>, u64)>,
    /// Whether the object has or had more owners than belay keeps.
    has_more: bool,
}

impl<'c> Owners<'c> {
    /// The owners of an object as it is now.
    pub(super) fn of_item(situation: &Situation<'c>, item: &JudgedObject<'c>) -> Self {
        Self::new(situation, (item.node, item.version()), item.owners(situation))
    }

    /// The owners of an object at this resourceVersion. If the graph does not have the object, all
    /// owners count as added at this version. A change that the graph has not seen counts as newer
    /// than every approval.
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
        let identity = |owner_ref: &OwnerRef<'_>| (owner_ref.kind, owner_ref.uid);
        situation.work.charge(now.len() + known.owner_edges().len());
        let has: KeyedSet<_> = now.iter().map(identity).collect();
        let seen: KeyedSet<_> = known.owner_refs().map(|owner_ref| identity(&owner_ref)).collect();
        let version = if has.is_subset(&seen) { known.owners_version() } else { u64::MAX };
        let past = known.past_owners().iter().map(|past| (past.owner.owner_ref(), past.version));
        let lost = known.owner_refs().filter(|owner_ref| !has.contains(&identity(owner_ref)));
        let past = past.chain(lost.map(|owner_ref| (owner_ref, u64::MAX))).collect();
        Self { now, version, past, has_more: known.has_too_many_owners() }
    }

    fn of_node(situation: &Situation<'c>, node: Node<'c>) -> Self {
        Self::new(situation, (Some(node), u64::MAX), node.owner_refs().collect())
    }

    fn of_deleted(deleted: &'c DeletedObject) -> Self {
        let past = deleted.past_owners.iter().map(|past| (past.owner.owner_ref(), past.version));
        Self {
            now: deleted.owners.iter().map(RememberedOwner::owner_ref).collect(),
            version: deleted.owners_version,
            past: past.collect(),
            has_more: deleted.had_more_owners,
        }
    }
}

/// The known state and owners of an owner that does not exist.
fn find_deleted_owner<'a>(
    situation: &Situation<'a>,
    owner_ref: &OwnerRef<'_>,
) -> (DeletionState, Owners<'a>) {
    if let Some(deleted) = situation.graph.deleted_object(owner_ref.uid) {
        return (DeletionState::Begun(deleted.deletion_time), Owners::of_deleted(deleted));
    }
    let Some(node) = owner_node(situation, owner_ref) else {
        return (DeletionState::NotSeen, Owners::default());
    };
    // The graph still has the owner, but a live read shows that it was deleted.
    (DeletionState::Begun(node.deletion_time()), Owners::of_node(situation, node))
}

/// The owner from a live read or from the graph.
fn owner_node<'a>(situation: &Situation<'a>, owner_ref: &OwnerRef<'_>) -> Option<Node<'a>> {
    let kind = owner_ref.kind?;
    let live = situation.live_object(kind, owner_ref.namespace, owner_ref.name).flatten();
    let live = live.filter(|node| node.uid() == owner_ref.uid);
    let cached = || situation.graph.object(kind, owner_ref.namespace, owner_ref.name);
    live.or_else(|| cached().filter(|node| node.uid() == owner_ref.uid))
}

/// Which approvals and exemption records exist for the direct and indirect owners.
#[derive(Debug, Default)]
pub(super) struct AncestorApprovalSummary {
    /// Whether an approval in force with scope Content names an owner.
    pub(super) approved: bool,
    /// Whether an exemption record names an owner.
    pub(super) recorded: bool,
    /// Whether there are more owners or approvals than belay checks.
    pub(super) incomplete: bool,
    /// The live reads of existing owners that the verdict still needs.
    pub(super) unread: Vec<LiveRead>,
}

impl AncestorApprovalSummary {
    pub(super) fn find(situation: &Situation<'_>, owners: &[OwnerRef<'_>]) -> Self {
        let mut summary = Self::default();
        let mut next: Vec<OwnerRef<'_>> = owners.to_vec();
        let mut seen: KeyedSet<Uid> = KeyedSet::default();
        while let Some(owner_ref) = next.pop() {
            if !seen.insert(owner_ref.uid) {
                continue;
            }
            if seen.len() > MAX_OWNERS || next.len() > 10 * MAX_OWNERS || !situation.work.charge(1)
            {
                summary.incomplete = true;
                break;
            }
            summary.incomplete |=
                situation.policies.approvals.of_uid(owner_ref.uid).len() > MAX_OWNERS;
            for approval in content_approvals(situation, &owner_ref) {
                let is_record = situation.policies.identities.is_belay(&approval.approver);
                let deleted = owner_node(situation, &owner_ref).and_then(Node::deletion_time);
                summary.recorded |= is_record;
                summary.approved |=
                    !is_record && approval.is_in_force(deleted, i64::MIN, situation.now);
            }
            match owner_node(situation, &owner_ref) {
                Some(node) => {
                    require_read(situation, &owner_ref, &mut summary.unread);
                    summary.incomplete |= node.has_too_many_owners();
                    next.extend(node.owner_refs());
                }
                None => {
                    let (_, Owners { now, has_more, .. }) =
                        find_deleted_owner(situation, &owner_ref);
                    summary.incomplete |= has_more;
                    next.extend(now);
                }
            }
        }
        summary
    }
}
