//! The IDs of nodes.

/// The ID of a node. A node stands for an object that exists, or that a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// No node: the namespace of a cluster-scoped object.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// The smallest ID.
    pub(super) const FIRST: Self = Self(0);

    pub(super) fn from_index(index: usize) -> Self {
        // Four billion nodes would need a terabyte.
        Self(u32::try_from(index).unwrap_or(u32::MAX - 1))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
