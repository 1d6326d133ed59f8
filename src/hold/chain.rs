//! Who owns whom, as far as it was read live.

use crate::decide::{LiveRead, LiveReads, Situation};
use crate::graph::{Graph, Node, NodeId, OwnerEdge};

/// What was read live, and what was asked for.
#[derive(Clone, Copy)]
pub(super) struct Chain<'a> {
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
#[derive(Default)]
pub(super) struct Above<'g> {
    /// The owners that are there, their owners, and so on.
    pub(super) there: Vec<Node<'g>>,
    /// What would have to be read to know more.
    pub(super) unread: Vec<LiveRead>,
    /// Whether something above is not known and will not be.
    pub(super) unknown: bool,
}

impl<'a> Chain<'a> {
    pub(super) fn graph(&self) -> &'a Graph {
        &self.reads.graph
    }

    /// What a read came to, if it was carried out in this pass.
    pub(super) fn done(&self, read: &LiveRead) -> Option<&'a Result<(), String>> {
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
        let object = self.situation.object_read(kind, namespace, name);
        match self.done(&object) {
            None => Owner::Unread(object),
            Some(Ok(())) => Owner::Gone,
            Some(Err(_)) => Owner::Unknown,
        }
    }

    /// Everything above an object.
    pub(super) fn above(&self, node: Node<'a>) -> Above<'a> {
        let mut above = Above::default();
        let mut seen: Vec<NodeId> = vec![node.id()];
        let mut next = vec![node];
        while let Some(node) = next.pop() {
            above.unknown |= node.has_too_many_owners();
            for reference in node.owners() {
                match self.owner(node, reference) {
                    Owner::There(owner) if seen.contains(&owner.id()) => {}
                    Owner::There(owner) => {
                        seen.push(owner.id());
                        above.there.push(owner);
                        next.push(owner);
                    }
                    Owner::Gone => {}
                    Owner::Unread(read) => above.unread.push(read),
                    Owner::Unknown => above.unknown = true,
                }
            }
        }
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
            Chain { situation: &situation, reads: &reads }.above(node).unknown
        };
        assert!(!unknown(1_000));
        assert!(unknown(1_001));
    }
}
