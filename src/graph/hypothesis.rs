//! Changes of a graph for one question, and their reversal.

use super::node_id::NodeId;
use super::store::Graph;
use crate::objects::{HoldAge, PackedList, is_hold};

/// The finalizers of an object before its hold was hidden.
#[derive(Debug)]
pub struct HiddenHold {
    id: NodeId,
    finalizers: PackedList,
    hold: HoldAge,
}

impl Graph {
    /// Removes the hold from the finalizers of an object, as if belay had released it. If
    /// the object exists, the result restores the hold.
    pub fn hide_hold(&mut self, id: NodeId) -> Option<HiddenHold> {
        let live = self.nodes[id].object.as_ref()?;
        let others: Vec<&str> = live.finalizers.iter().filter(|name| !is_hold(name)).collect();
        let others = PackedList::new(others, &mut self.interner);
        let live = self.nodes[id].object.as_mut()?;
        let finalizers = std::mem::replace(&mut live.finalizers, others);
        let hold = std::mem::replace(&mut live.hold, HoldAge::NotHeld);
        Some(HiddenHold { id, finalizers, hold })
    }

    /// Restores the hold of an object that has not changed since.
    pub fn restore_hold(&mut self, hidden: HiddenHold) {
        let HiddenHold { id, finalizers, hold } = hidden;
        if let Some(live) = self.nodes[id].object.as_mut() {
            (live.finalizers, live.hold) = (finalizers, hold);
        }
    }

    /// Removes an object that was added for one question. Unlike a deleted object, the
    /// graph does not remember it.
    pub fn discard(&mut self, id: NodeId) {
        let (kind, namespace, name) = self.coordinates(id);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.coverage.remove_unreadable(kind, &namespace, &name);
        if let Some(before) = self.take_object(id) {
            self.drop_edges(id, &before);
        }
        self.nodes.remove_if_unused(id);
    }
}
