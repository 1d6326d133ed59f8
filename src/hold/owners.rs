//! The owners of objects, from live reads.

use std::ops::ControlFlow;

use crate::decide::{LiveRead, LiveReads, Situation};
use crate::graph::{Graph, NamedOwner, Node, NodeId, OwnerEdge, SEARCH_STEPS, search_owners};
use crate::objects::{ApiError, KeyedSet, NumberSet};

/// The limit of reads in one round.
pub(super) const MAX_READS_PER_ROUND: usize = 64;

/// The live reads of a pass, and the situation in which they are judged.
#[derive(Clone, Copy)]
pub(super) struct PassReads<'a> {
    pub(super) situation: &'a Situation<'a>,
    pub(super) reads: &'a LiveReads,
}

/// What the reads of the pass show about the owner of a reference.
enum OwnerLookup<'g> {
    Exists(Node<'g>),
    /// The owner does not exist.
    Absent,
    /// This read will show whether the owner exists.
    Unread(LiveRead),
    /// The read failed, or the reference can't be resolved (R1): the owner counts as
    /// existing.
    Unknown,
}

/// The direct and indirect owners of an object.
pub(super) struct AllOwners {
    pub(super) existing: NumberSet<NodeId>,
    /// The creation time of the oldest of these owners and the object.
    pub(super) oldest_creation: i64,
    /// The missing reads of owners, up to the limit.
    pub(super) missing_reads: Vec<LiveRead>,
    /// Whether an owner is unknown and further reads would not help.
    pub(super) has_unknown: bool,
}

impl<'a> PassReads<'a> {
    pub(super) fn live_graph(&self) -> &'a Graph {
        &self.reads.graph
    }

    /// Charges steps. Returns whether the count may continue.
    pub(super) fn charge(&self, steps: usize) -> bool {
        self.situation.work.charge(steps)
    }

    /// The result of a read in this pass; `None` if the read was not made.
    pub(super) fn result_of(&self, read: &LiveRead) -> Option<&'a Result<(), ApiError>> {
        self.reads.results.get(read)
    }

    fn look_up_owner(&self, object: Node<'a>, reference: &OwnerEdge) -> OwnerLookup<'a> {
        let graph = self.live_graph();
        match graph.named_owner(object, reference) {
            NamedOwner::Exists(owner) => return OwnerLookup::Exists(owner),
            NamedOwner::Replaced => return OwnerLookup::Absent,
            NamedOwner::Unresolvable => return OwnerLookup::Unknown,
            NamedOwner::Missing => {}
        }
        let (kind, namespace, name) = graph.coordinates(reference.to);
        // The owner may have been created after its kind was listed and before the object
        // was listed, so its absence from the list is no proof.
        self.charge(SEARCH_STEPS);
        let read = self.situation.read_of_object(kind, namespace, name);
        match self.result_of(&read) {
            None => OwnerLookup::Unread(read),
            Some(Ok(())) => OwnerLookup::Absent,
            Some(Err(_)) => OwnerLookup::Unknown,
        }
    }

    /// Finds the direct and indirect owners of an object. Editors write owner references,
    /// so owners beyond the limits of depth and number are unknown.
    pub(super) fn find_owners(&self, node: Node<'a>) -> AllOwners {
        let mut all = AllOwners {
            existing: NumberSet::default(),
            oldest_creation: node.creation_time(),
            missing_reads: Vec::new(),
            has_unknown: false,
        };
        let search = search_owners(node, self.situation.work, |object| {
            let mut owners = Vec::new();
            for reference in object.owner_edges() {
                match self.look_up_owner(object, reference) {
                    OwnerLookup::Exists(owner) if owner.id() == node.id() => {}
                    OwnerLookup::Exists(owner) => {
                        all.existing.insert(owner.id());
                        all.oldest_creation = all.oldest_creation.min(owner.creation_time());
                        owners.push(owner);
                    }
                    OwnerLookup::Absent => {}
                    OwnerLookup::Unread(read) if all.missing_reads.len() < MAX_READS_PER_ROUND => {
                        all.missing_reads.push(read);
                    }
                    OwnerLookup::Unread(_) => {}
                    OwnerLookup::Unknown => all.has_unknown = true,
                }
            }
            ControlFlow::<(), _>::Continue(owners)
        });
        all.has_unknown |= search != ControlFlow::Continue(true);
        all
    }

    /// Whether `owner` has owned an object, directly or indirectly, since the creation of the
    /// object: each owner reference on a path to `owner` is as old as the object that has it.
    pub(super) fn is_original_owner(&self, node: Node<'a>, owner: Node<'_>) -> bool {
        let search = search_owners(node, self.situation.work, |object| {
            let affordable = self.charge(SEARCH_STEPS * (1 + object.owner_edges().len()));
            if !affordable || !self.has_original_owners(object) {
                return ControlFlow::Continue(Vec::new());
            }
            let owners: Vec<_> = object.existing_owners().collect();
            match owners.iter().any(|above| above.id() == owner.id()) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(owners),
            }
        });
        search.is_break()
    }

    /// Whether an object was created with all its present owner references. The watched
    /// graph knows this only about objects whose creation it observed.
    fn has_original_owners(&self, object: Node<'_>) -> bool {
        let graph = self.situation.graph;
        graph.tracks_owner_versions()
            && graph.find_counterpart(object).is_some_and(|watched| {
                let watched_uids: KeyedSet<_> =
                    watched.owner_edges().iter().map(|owner| owner.uid).collect();
                // 0: the object was created with its references.
                watched.owners_version() == 0
                    && !object.has_too_many_owners()
                    && object.owner_edges().iter().all(|owner| watched_uids.contains(&owner.uid))
            })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::decide::ObjectSource;
    use crate::graph::{Edges, ObjectPhase};
    use crate::objects::Object;
    use crate::policy::PolicySet;

    #[test]
    fn owners_beyond_the_limit_are_unknown() {
        let unknown = |count| {
            let owner =
                |n| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("{n}")});
            let owners: Vec<_> = (0..count).map(owner).collect();
            let value = json!({"metadata": {"name": "a", "namespace": "b", "uid": "a", "ownerReferences": owners}});
            let mut reads = LiveReads::default();
            let kind = reads.graph.kinds.find("", "ConfigMap").unwrap();
            let object = Object::deserialize(&value).unwrap();
            reads.graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            let (graph, policies) = (Graph::default(), PolicySet::default());
            let situation = Situation::new(&graph, &policies, ObjectSource::Cluster(&reads), 0);
            let node = reads.graph.object(kind, "b", "a").unwrap();
            PassReads { situation: &situation, reads: &reads }.find_owners(node).has_unknown
        };
        assert!(!unknown(1_000));
        assert!(unknown(1_001));
    }
}
