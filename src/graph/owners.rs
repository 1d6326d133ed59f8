//! The owners that owner references name (R1), and the search for indirect owners.

use std::ops::ControlFlow;

use super::edges::OwnerEdge;
use super::node::Node;
use super::steps::StepCounter;
use super::store::Graph;
use super::stored::{MAX_LIST_ENTRIES, MAX_OWNER_LEVELS};
use crate::objects::{DefaultPropagation, KeyedSet, KindId, is_path_segment};

/// The owner that a reference names, as far as the graph knows.
pub enum NamedOwner<'g> {
    /// The reference can't be resolved (R1).
    Unresolvable,
    /// The graph has no object of this name.
    Missing,
    /// Another object has the name of the owner, so the owner does not exist.
    Replaced,
    /// The owner.
    Exists(Node<'g>),
}

impl Graph {
    /// R1: whether the garbage collector finds the owner with this kind, version and name of an
    /// object in a namespace, or of a cluster-scoped object. The kind and version must be served.
    /// With `keep/` or `../secrets/keep` as a name, the garbage collector reads another path of the
    /// API server, where it may find an object with the uid. With `.`, its request fails.
    pub fn can_own(
        &self,
        kind: KindId,
        (version, name): (Option<&str>, &str),
        in_namespace: bool,
    ) -> bool {
        version.is_none_or(|version| self.kinds.serves(kind, version))
            && (in_namespace || !self.kinds.info(kind).namespaced)
            && is_path_segment(name)
    }

    /// R1: whether the reference of an object can be resolved.
    pub fn is_resolvable(&self, item: Node<'_>, owner: &OwnerEdge) -> bool {
        let (kind, _, name) = self.coordinates(owner.to);
        self.can_own(kind, (Some(&owner.version), name), item.namespace_node().is_some())
    }

    /// The owner that a reference of an object names.
    pub fn named_owner(&self, item: Node<'_>, owner: &OwnerEdge) -> NamedOwner<'_> {
        if !self.is_resolvable(item, owner) {
            return NamedOwner::Unresolvable;
        }
        match self.get(owner.to) {
            Some(node) if node.uid() == owner.uid => NamedOwner::Exists(node),
            Some(_) => NamedOwner::Replaced,
            None => NamedOwner::Missing,
        }
    }
}

impl<'g> Node<'g> {
    /// The existing owner that one of its references names.
    pub fn existing_owner(self, owner: &OwnerEdge) -> Option<Node<'g>> {
        match self.graph.named_owner(self, owner) {
            NamedOwner::Exists(owner) => Some(owner),
            _ => None,
        }
    }

    /// Whether it has owner references, but none of these owners exists. The garbage collector
    /// deletes such an object.
    pub fn has_only_absent_owners(self) -> bool {
        let is_absent = |owner: &OwnerEdge| match self.graph.named_owner(self, owner) {
            NamedOwner::Replaced => true,
            NamedOwner::Missing => self.graph.proves_node_absence(owner.to),
            NamedOwner::Unresolvable | NamedOwner::Exists(_) => false,
        };
        let is_collected = self.info().default_propagation != DefaultPropagation::None;
        let owners = self.owner_edges();
        is_collected && !owners.is_empty() && owners.iter().all(is_absent)
    }

    /// Its existing owners, in the order of its references.
    pub fn existing_owners(self) -> impl Iterator<Item = Node<'g>> {
        self.owner_edges().iter().filter_map(move |owner| self.existing_owner(owner))
    }
}

/// Searches the direct and indirect owners of an object, level by level. `owners_of` returns
/// the owners of one object, or ends the search. Returns whether the search found all owners:
/// editors write owner references, so their depth and number are limited.
pub fn search_owners<'g, B>(
    object: Node<'g>,
    work: StepCounter<'_>,
    mut owners_of: impl FnMut(Node<'g>) -> ControlFlow<B, Vec<Node<'g>>>,
) -> ControlFlow<B, bool> {
    let mut seen = KeyedSet::from_iter([object.uid()]);
    let (mut level, mut references) = (vec![object], 0);
    for _ in 0..MAX_OWNER_LEVELS {
        let mut next = Vec::new();
        for node in level {
            references += node.owner_edges().len();
            let too_many = references > MAX_LIST_ENTRIES || node.has_too_many_owners();
            if too_many || !work.charge(1 + node.owner_edges().len()) {
                return ControlFlow::Continue(false);
            }
            next.extend(owners_of(node)?.into_iter().filter(|owner| seen.insert(owner.uid())));
        }
        level = next;
        if level.is_empty() {
            break;
        }
    }
    ControlFlow::Continue(level.is_empty())
}
