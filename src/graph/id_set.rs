//! A set of nodes that is small for almost everybody and huge for a few.

use super::NodeId;
use crate::objects::NumberSet;

/// Most nodes have at most this many dependents; a list is smaller and faster.
const FEW: usize = 16;

/// A set of nodes, in no particular order.
#[derive(Debug, Clone)]
pub enum IdSet {
    /// A list.
    Few(Vec<NodeId>),
    /// A hash set.
    // In a box, so that the many small sets are not as large as this one.
    #[allow(clippy::box_collection)]
    Many(Box<NumberSet<NodeId>>),
}

impl Default for IdSet {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl IdSet {
    /// Adds a node; once is enough.
    pub fn insert(&mut self, id: NodeId) {
        match self {
            Self::Many(set) => {
                set.insert(id);
            }
            Self::Few(list) if list.contains(&id) => {}
            Self::Few(list) if list.len() < FEW => {
                // Doubling would leave a third of the lists half empty.
                list.reserve_exact(if list.len() < 4 { 1 } else { 4 });
                list.push(id);
            }
            Self::Few(list) => {
                let set = list.iter().copied().chain([id]).collect();
                *self = Self::Many(Box::new(set));
            }
        }
    }

    /// Takes a node out.
    pub fn remove(&mut self, id: NodeId) {
        match self {
            Self::Few(list) => {
                if let Some(at) = list.iter().position(|i| *i == id) {
                    list.swap_remove(at);
                }
            }
            Self::Many(set) => {
                set.remove(&id);
                // Well below the limit, so that it does not go to and fro.
                if set.len() <= FEW / 2 {
                    *self = Self::Few(set.iter().copied().collect());
                } else if set.capacity() > 4 * set.len() {
                    set.shrink_to(2 * set.len());
                }
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many(set) => set.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
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
    fn it_is_a_set_at_every_size() {
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
