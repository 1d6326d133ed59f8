//! Temporary changes of a graph: one computation makes them and then reverts them.

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
        let object = self.nodes[id].object.as_ref()?;
        let others: Vec<&str> = object.finalizers.iter().filter(|name| !is_hold(name)).collect();
        let others = PackedList::new(others, &mut self.interner);
        let object = self.nodes[id].object.as_mut()?;
        let finalizers = std::mem::replace(&mut object.finalizers, others);
        let hold = std::mem::replace(&mut object.hold, HoldAge::NotHeld);
        Some(HiddenHold { id, finalizers, hold })
    }

    /// Restores the hold. The object must not have changed since [`Self::hide_hold`].
    pub fn restore_hold(&mut self, hidden: HiddenHold) {
        let HiddenHold { id, finalizers, hold } = hidden;
        if let Some(object) = self.nodes[id].object.as_mut() {
            (object.finalizers, object.hold) = (finalizers, hold);
        }
    }

    /// Removes an object that was added temporarily. The graph does not remember this
    /// object as a deleted one.
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
