//! The objects that are deleted with released objects, and the objects whose DELETE belay
//! denies.

use super::{ReleaseEffects, UnknownUse, UseSearch};
use crate::decide::{
    CollectorRefusal, JudgedObject, Situation, refusal_in_cascade, relevant_users,
};
use crate::graph::{Node, NodeId, ObjectUser, SEARCH_STEPS};
use crate::objects::NumberSet;

impl<'a> UseSearch<'a> {
    /// Finds the objects that the garbage collector deletes after the release of these
    /// candidates. An object remains if belay denies its DELETE. Then its dependents remain as
    /// well. belay also denies the DELETE of an owner of this object, because the DELETE of the
    /// owner would cascade to the object.
    pub(super) fn find_effects(
        &mut self,
        candidates: &[NodeId],
    ) -> Result<ReleaseEffects, UnknownUse> {
        let graph = self.pass_reads.live_graph();
        let effects = ReleaseEffects::new(self.pass_reads, candidates, &NumberSet::default());
        let deleted = effects.possibly_deleted();
        let mut next = Vec::new();
        for node in deleted.iter().filter_map(|id| graph.get(*id)) {
            let list_steps = node.labels().search_steps() + node.finalizers().search_steps();
            if !self.pass_reads.charge(SEARCH_STEPS + list_steps) {
                break;
            }
            if self.may_deny_delete(node, &effects)? {
                next.push(node);
            }
        }
        if next.is_empty() {
            return Ok(effects);
        }
        let deleted: NumberSet<NodeId> = deleted.into_iter().collect();
        let mut denied = NumberSet::default();
        while let Some(node) = next.pop() {
            if !denied.insert(node.id()) {
                continue;
            }
            if !self.pass_reads.charge(1 + node.owner_edges().len()) {
                break;
            }
            next.extend(node.existing_owners().filter(|owner| deleted.contains(&owner.id())));
        }
        Ok(ReleaseEffects::new(self.pass_reads, candidates, &denied))
    }

    /// Whether belay may deny the DELETE of an object that would be deleted with the
    /// candidates.
    fn may_deny_delete(
        &mut self,
        node: Node<'a>,
        effects: &ReleaseEffects,
    ) -> Result<bool, UnknownUse> {
        let item = JudgedObject::of_node(self.pass_reads.situation, node);
        let modes = match refusal_in_cascade(self.pass_reads.situation, &item) {
            CollectorRefusal::No => return Ok(false),
            CollectorRefusal::Possible => return Ok(true),
            CollectorRefusal::WhileUsed(modes) => modes,
        };
        let lists = self.unread_lists(node)?;
        self.request_reads(&lists);
        let graph = self.pass_reads.live_graph();
        let live = Situation { graph, ..*self.pass_reads.situation };
        let item = JudgedObject::of_node(&live, node);
        let remains = |user: ObjectUser<'_>| !effects.is_candidate(user.node.id());
        Ok(modes.into_iter().any(|mode| relevant_users(&live, &item, mode, graph).any(remains)))
    }
}
