//! The objects that are deleted with released objects, and the objects whose DELETE belay
//! denies.

use super::{ReleaseGroup, UnknownUse, UseSearch};
use crate::decide::{
    CollectorRefusal, JudgedObject, Situation, counting_users, refusal_in_cascade,
};
use crate::graph::{Node, NodeId, ObjectUser};
use crate::objects::NumberSet;

impl<'a> UseSearch<'a> {
    /// The objects that are deleted with these. An object stays if belay denies its
    /// DELETE, and so do its dependents, and the objects whose DELETE belay denies
    /// because of it.
    pub(super) fn group(&mut self, members: &[NodeId]) -> Result<ReleaseGroup, UnknownUse> {
        let graph = self.owner_reader.graph();
        let group = ReleaseGroup::new(self.owner_reader, members, &NumberSet::default());
        let taken = group.may_delete();
        let mut next = Vec::new();
        for node in taken.iter().filter_map(|id| graph.get(*id)) {
            if !self.owner_reader.charge(8 + node.labels().size() + node.finalizers().size()) {
                break;
            }
            if self.refuses(node, &group)? {
                next.push(node);
            }
        }
        if next.is_empty() {
            return Ok(group);
        }
        let taken: NumberSet<NodeId> = taken.into_iter().collect();
        let mut refusing = NumberSet::default();
        while let Some(node) = next.pop() {
            if !refusing.insert(node.id()) {
                continue;
            }
            if !self.owner_reader.charge(1 + node.owners().len()) {
                break;
            }
            let owners = node.owners().iter().filter_map(|owner| graph.owner(node, owner));
            next.extend(owners.filter(|owner| taken.contains(&owner.id())));
        }
        Ok(ReleaseGroup::new(self.owner_reader, members, &refusing))
    }

    /// Whether belay may deny the DELETE of an object that would be deleted with the
    /// members.
    fn refuses(&mut self, node: Node<'a>, group: &ReleaseGroup) -> Result<bool, UnknownUse> {
        let item = JudgedObject::of_node(self.owner_reader.situation, node);
        let modes = match refusal_in_cascade(self.owner_reader.situation, &item) {
            CollectorRefusal::No => return Ok(false),
            CollectorRefusal::Perhaps => return Ok(true),
            CollectorRefusal::WhileUsed(modes) => modes,
        };
        let lists = self.unread_lists(node)?;
        self.request_reads(&lists);
        let graph = self.owner_reader.graph();
        let live = Situation { graph, ..*self.owner_reader.situation };
        let item = JudgedObject::of_node(&live, node);
        let counts = |user: ObjectUser<'_>| !group.contains(user.node.id());
        Ok(modes.into_iter().any(|in_use| counting_users(&live, &item, in_use, graph).any(counts)))
    }
}
