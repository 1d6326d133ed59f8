//! What goes with objects whose holds are removed, and what stays because its
//! DELETE is refused.

use super::{Counting, ReleaseGroup, UnknownUse};
use crate::decide::{CollectorRefusal, Item, Situation, counting_users, refusal_in_cascade};
use crate::graph::{Node, NodeId, User};
use crate::objects::NumberSet;

impl<'a> Counting<'a> {
    /// What goes with these. An object that refuses its DELETE stays, with what is
    /// below it, and so does an object whose DELETE is refused for it.
    pub(super) fn group(&mut self, members: &[NodeId]) -> Result<ReleaseGroup, UnknownUse> {
        let graph = self.chain.graph();
        let group = ReleaseGroup::new(self.chain, members, &NumberSet::default());
        let taken = group.may_take();
        let mut next = Vec::new();
        for node in taken.iter().filter_map(|id| graph.get(*id)) {
            if !self.chain.charge(8 + node.labels().size() + node.finalizers().size()) {
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
            if !self.chain.charge(1 + node.owners().len()) {
                break;
            }
            let owners = node.owners().iter().filter_map(|owner| graph.owner(node, owner));
            next.extend(owners.filter(|owner| taken.contains(&owner.id())));
        }
        Ok(ReleaseGroup::new(self.chain, members, &refusing))
    }

    /// Whether the DELETE of an object that goes with the members may be refused
    /// for what protects it, as far as everything for that has been read.
    fn refuses(&mut self, node: Node<'a>, group: &ReleaseGroup) -> Result<bool, UnknownUse> {
        let item = Item::of_node(self.chain.situation, node);
        let modes = match refusal_in_cascade(self.chain.situation, &item) {
            CollectorRefusal::No => return Ok(false),
            CollectorRefusal::Perhaps => return Ok(true),
            CollectorRefusal::WhileUsed(modes) => modes,
        };
        let lists = self.unread_lists(node)?;
        self.request_reads(&lists);
        let graph = self.chain.graph();
        let live = Situation { graph, ..*self.chain.situation };
        let item = Item::of_node(&live, node);
        let counts = |user: User<'_>| !group.contains(user.node.id());
        Ok(modes.into_iter().any(|in_use| counting_users(&live, &item, in_use, graph).any(counts)))
    }
}
