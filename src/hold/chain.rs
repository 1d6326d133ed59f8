//! Who owns whom, as far as it was read live.

use crate::decide::{LiveRead, LiveReads, Situation};
use crate::graph::{Graph, MOST_LIST_ENTRIES, MOST_OWNER_LEVELS, Node, NodeId, OwnerEdge};
use crate::objects::{ApiError, NumberSet};

/// So much is read at a time beside lists: owners that no list has.
pub(super) const READS: usize = 64;

/// What was read live, and what was asked for.
#[derive(Clone, Copy)]
pub(super) struct OwnerReader<'a> {
    pub(super) situation: &'a Situation<'a>,
    pub(super) reads: &'a LiveReads,
}

/// An owner reference, as far as it was read.
pub(super) enum Owner<'g> {
    /// It is there.
    There(Node<'g>),
    /// It is gone.
    Gone,
    /// This says which of the two.
    Unread(LiveRead),
    /// It could not be read, or cannot be resolved (R1): it counts as living.
    Unknown,
}

/// Everything above an object.
pub(super) struct OwnersAbove {
    /// The owners that are there, their owners, and so on.
    pub(super) there: NumberSet<NodeId>,
    /// When the oldest of these and of the object itself was created.
    pub(super) created: i64,
    /// What would have to be read to know more, or the first of it.
    pub(super) unread: Vec<LiveRead>,
    /// Whether something above is not known and will not be.
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

    /// What a read came to, if it was carried out in this pass.
    pub(super) fn done(&self, read: &LiveRead) -> Option<&'a Result<(), ApiError>> {
        self.reads.done.get(read)
    }

    fn owner(&self, item: Node<'a>, reference: &OwnerEdge) -> Owner<'a> {
        let graph = self.graph();
        if !graph.is_resolvable(item, reference) {
            return Owner::Unknown;
        }
        if let Some(node) = graph.get(reference.to) {
            // Another uid is another object: the owner is gone.
            return if node.uid() == reference.uid { Owner::There(node) } else { Owner::Gone };
        }
        let (kind, namespace, name) = graph.coordinates(reference.to);
        // A list that was read before the item's own says nothing of an owner
        // that was made between the two, so the owner itself is asked for.
        self.charge(8);
        let object = self.situation.object_read(kind, namespace, name);
        match self.done(&object) {
            None => Owner::Unread(object),
            Some(Ok(())) => Owner::Gone,
            Some(Err(_)) => Owner::Unknown,
        }
    }

    /// Everything above an object. Editors write owner references: what is beyond
    /// the depth and the number that controllers write is unknown.
    pub(super) fn find_owners(&self, node: Node<'a>) -> OwnersAbove {
        let mut above = OwnersAbove {
            there: NumberSet::default(),
            created: node.created(),
            unread: Vec::new(),
            unknown: false,
        };
        let (mut level, mut references) = (vec![node], 0);
        for _ in 0..MOST_OWNER_LEVELS {
            let mut next = Vec::new();
            for item in level {
                references += item.owners().len();
                let too_many = references > MOST_LIST_ENTRIES || item.has_too_many_owners();
                if too_many || !self.charge(1 + item.owners().len()) {
                    above.unknown = true;
                    return above;
                }
                for reference in item.owners() {
                    match self.owner(item, reference) {
                        Owner::There(owner) => {
                            if owner.id() != node.id() && above.there.insert(owner.id()) {
                                above.created = above.created.min(owner.created());
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
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::decide::Live;
    use crate::graph::{Edges, Progress};
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
            reads.graph.apply(kind, &object, Progress::Ordinary, Edges::default());
            let (graph, policies) = (Graph::default(), PolicySet::default());
            let situation = Situation::new(&graph, &policies, Live::Read(&reads), 0);
            let node = reads.graph.object(kind, "b", "a").unwrap();
            OwnerReader { situation: &situation, reads: &reads }.find_owners(node).unknown
        };
        assert!(!unknown(1_000));
        assert!(unknown(1_001));
    }
}
