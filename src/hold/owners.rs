//! The owners of objects, from live reads.

use crate::decide::{LiveRead, LiveReads, Situation};
use crate::graph::{Graph, MAX_LIST_ENTRIES, MAX_OWNER_LEVELS, Node, NodeId, OwnerEdge};
use crate::objects::{ApiError, KeyedSet, NumberSet};

/// The limit of owners that are read in one round, besides lists.
pub(super) const READS: usize = 64;

/// The live reads of a pass.
#[derive(Clone, Copy)]
pub(super) struct OwnerReader<'a> {
    pub(super) situation: &'a Situation<'a>,
    pub(super) reads: &'a LiveReads,
}

/// The state of the owner of a reference.
pub(super) enum Owner<'g> {
    /// The owner exists.
    There(Node<'g>),
    /// The owner does not exist.
    Gone,
    /// This read shows whether the owner exists.
    Unread(LiveRead),
    /// The read failed, or the reference can't be resolved (R1): the owner counts as
    /// existing.
    Unknown,
}

/// The direct and indirect owners of an object.
pub(super) struct OwnersAbove {
    /// The existing owners, direct and indirect.
    pub(super) there: NumberSet<NodeId>,
    /// The creation time of the oldest of these owners and the object.
    pub(super) created: i64,
    /// The reads that are missing, up to the limit.
    pub(super) unread: Vec<LiveRead>,
    /// Whether an owner is unknown and reads would not help.
    pub(super) unknown: bool,
}

impl<'a> OwnerReader<'a> {
    pub(super) fn graph(&self) -> &'a Graph {
        &self.reads.graph
    }

    /// Charges steps. Returns whether the count may go on.
    pub(super) fn charge(&self, steps: usize) -> bool {
        self.situation.work.charge(steps)
    }

    /// The result of a read in this pass; `None` if it was not made.
    pub(super) fn done(&self, read: &LiveRead) -> Option<&'a Result<(), ApiError>> {
        self.reads.results.get(read)
    }

    fn owner(&self, item: Node<'a>, reference: &OwnerEdge) -> Owner<'a> {
        let graph = self.graph();
        if !graph.is_resolvable(item, reference) {
            return Owner::Unknown;
        }
        if let Some(node) = graph.get(reference.to) {
            // An object with another uid is not the owner.
            return if node.uid() == reference.uid { Owner::There(node) } else { Owner::Gone };
        }
        let (kind, namespace, name) = graph.coordinates(reference.to);
        // An owner may be created after its kind was listed and before the item was
        // listed, so the owner itself is read.
        self.charge(8);
        let object = self.situation.object_read(kind, namespace, name);
        match self.done(&object) {
            None => Owner::Unread(object),
            Some(Ok(())) => Owner::Gone,
            Some(Err(_)) => Owner::Unknown,
        }
    }

    /// Finds the direct and indirect owners of an object. Editors write owner references,
    /// so owners beyond the limits of depth and number are unknown.
    pub(super) fn find_owners(&self, node: Node<'a>) -> OwnersAbove {
        let mut above = OwnersAbove {
            there: NumberSet::default(),
            created: node.creation_time(),
            unread: Vec::new(),
            unknown: false,
        };
        let (mut level, mut references) = (vec![node], 0);
        for _ in 0..MAX_OWNER_LEVELS {
            let mut next = Vec::new();
            for item in level {
                references += item.owners().len();
                let too_many = references > MAX_LIST_ENTRIES || item.has_too_many_owners();
                if too_many || !self.charge(1 + item.owners().len()) {
                    above.unknown = true;
                    return above;
                }
                for reference in item.owners() {
                    match self.owner(item, reference) {
                        Owner::There(owner) => {
                            if owner.id() != node.id() && above.there.insert(owner.id()) {
                                above.created = above.created.min(owner.creation_time());
                                next.push(owner);
                            }
                        }
                        Owner::Gone => {}
                        Owner::Unread(read) if above.unread.len() < READS => {
                            above.unread.push(read);
                        }
                        Owner::Unread(_) => {}
                        Owner::Unknown => above.unknown = true,
                    }
                }
            }
            level = next;
        }
        above.unknown |= !level.is_empty();
        above
    }

    /// Whether an object has been below an owner since it was created: a chain of owner
    /// references leads there, and each of them is as old as the object that has it.
    pub(super) fn is_original_owner(&self, node: Node<'a>, owner: Node<'_>) -> bool {
        let mut seen = NumberSet::from_iter([node.id()]);
        let mut level = vec![node];
        for _ in 0..MAX_OWNER_LEVELS {
            let mut next = Vec::new();
            for item in level {
                if !self.charge(8 * (1 + item.owners().len())) {
                    return false;
                }
                if !self.has_original_owners(item) {
                    continue;
                }
                for reference in item.owners() {
                    let Owner::There(above) = self.owner(item, reference) else { continue };
                    if above.id() == owner.id() {
                        return true;
                    }
                    if seen.insert(above.id()) {
                        next.push(above);
                    }
                }
            }
            level = next;
        }
        false
    }

    /// Whether an object was created with all owner references that it has. The watched
    /// graph knows this only of objects whose creation it has seen.
    fn has_original_owners(&self, item: Node<'_>) -> bool {
        let graph = self.situation.graph;
        graph.tracks_owner_versions()
            && graph.find_counterpart(item).is_some_and(|known| {
                let had: KeyedSet<_> = known.owners().iter().map(|owner| owner.uid).collect();
                known.owners_version() == 0
                    && !item.has_too_many_owners()
                    && item.owners().iter().all(|owner| had.contains(&owner.uid))
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
    fn what_is_above_too_many_owner_references_is_unknown() {
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
            OwnerReader { situation: &situation, reads: &reads }.find_owners(node).unknown
        };
        assert!(!unknown(1_000));
        assert!(unknown(1_001));
    }
}
