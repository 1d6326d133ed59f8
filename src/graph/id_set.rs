//! A set of nodes. Most sets are small and a few are huge.

use super::NodeId;
use crate::objects::NumberSet;

/// The limit of a set that is stored as a list, which is smaller and faster than a hash
/// set. Most nodes have fewer dependents.
const FEW: usize = 16;

/// A set of nodes, in no particular order.
#[derive(Debug, Clone)]
pub enum IdSet {
    /// A list.
    Few(Vec<NodeId>),
    /// A hash set.
    // Boxed, because this variant would enlarge the many small sets.
    #[allow(clippy::box_collection)]
    Many(Box<NumberSet<NodeId>>),
}

impl Default for IdSet {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl IdSet {
    /// Adds a node if the set does not contain it.
    pub fn insert(&mut self, id: NodeId) {
        match self {
            Self::Many(set) => {
                set.insert(id);
            }
            Self::Few(list) if list.contains(&id) => {}
            Self::Few(list) if list.len() < FEW => {
                // A vector that doubles its capacity would waste memory.
                list.reserve_exact(if list.len() < 4 { 1 } else { 4 });
                list.push(id);
            }
            Self::Few(list) => {
                let set = list.iter().copied().chain([id]).collect();
                *self = Self::Many(Box::new(set));
            }
        }
    }

    pub fn remove(&mut self, id: NodeId) {
        match self {
            Self::Few(list) => {
                if let Some(index) = list.iter().position(|i| *i == id) {
                    list.swap_remove(index);
                }
            }
            Self::Many(set) => {
                set.remove(&id);
                // Half of the limit, so that a set near the limit is not converted often.
                if set.len() <= FEW / 2 {
                    *self = Self::Few(set.iter().copied().collect());
                } else if set.capacity() > 4 * set.len() {
                    set.shrink_to(2 * set.len());
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(set) => set.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let (few, many) = match self {
            Self::Few(list) => (Some(list.iter()), None),
            Self::Many(set) => (None, Some(set.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_and_remove_work_at_every_size() {
        let id = |n: u32| NodeId::from_index(n as usize);
        let mut set = IdSet::default();
        for n in 0..1000 {
            set.insert(id(n));
            set.insert(id(n));
            assert_eq!(set.len(), n as usize + 1);
        }
        assert!(matches!(set, IdSet::Many(_)));
        for n in 0..1000 {
            assert!(set.iter().any(|i| i == id(n)));
            set.remove(id(n));
            set.remove(id(n));
            assert_eq!(set.iter().count(), 999 - n as usize);
        }
        assert!(matches!(set, IdSet::Few(_)) && set.is_empty());
    }
}
