//! The store: adds, changes and removes objects.

mod edge_changes;
mod owner_history;

use super::coverage::{KindCoverage, too_many_references};
use super::deleted_objects::{DeletedObject, DeletedObjects};
use super::dependents::{Dependents, ManyOwners};
use super::edges::{Edges, OwnerEdge};
use super::id_set::IdSet;
use super::node_id::NodeId;
use super::nodes::NodeStore;
use super::stored::{MAX_LIST_ENTRIES, ObjectPhase, StoredObject};
use crate::objects::{
    FOREGROUND, Interner, KeyedSet, KindId, KindInfo, Kinds, NumberMap, ORPHAN, Object, PackedList,
    PackedMap, Uid,
};

/// The effect of [`Graph::apply`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyResult {
    /// The object is new.
    Created,
    /// The object was known, with the same uid.
    Updated,
    /// Another object with this name was known; the new one replaces it.
    Replaced,
}

/// The graph of objects and their references.
#[derive(Debug, Default)]
pub struct Graph {
    /// The known kinds. If the scope of a kind changes, objects that refer to it must be
    /// applied again. Served versions are looked up on use.
    pub kinds: Kinds,
    pub(super) interner: Interner,
    pub(super) nodes: NodeStore,
    by_kind: NumberMap<KindId, IdSet>,
    by_namespace: NumberMap<NodeId, IdSet>,
    /// The objects with selector edges, by the namespace and kind that the selector selects.
    /// The namespace is `NodeId::NONE` for cluster-scoped objects and for all namespaces.
    pub(super) selector_users: NumberMap<(NodeId, KindId), IdSet>,
    pub(super) dependents: Dependents,
    /// The number of owner references from objects of one kind to another kind.
    owner_kinds: NumberMap<(KindId, KindId), usize>,
    pub(super) coverage: KindCoverage,
    deleted_objects: DeletedObjects,
    annotation_keys: KeyedSet<String>,
    tracks_owner_versions: bool,
    objects: usize,
    edges: usize,
    revision: u64,
}

impl Graph {
    /// An empty graph that knows these kinds.
    pub fn new(kinds: Kinds) -> Self {
        Self { kinds, ..Self::default() }
    }

    /// Adds or replaces an object with its edges.
    pub fn apply(
        &mut self,
        kind: KindId,
        object: &Object<'_>,
        phase: ObjectPhase,
        edges: Edges,
    ) -> ApplyResult {
        let metadata = &object.metadata;
        let namespace = self.kinds.info(kind).namespace_or_empty(&metadata.namespace);
        let id = self.find_or_insert_node(kind, namespace, &metadata.name);
        let proves_absence = self.proves_absence(kind, namespace, &metadata.name);
        if edges.too_many {
            self.coverage.add_unreadable(kind, &too_many_references(namespace, &metadata.name));
        } else {
            self.coverage.remove_unreadable(kind, namespace, &metadata.name);
        }
        self.revision += 1;
        let uid = Uid::new(&metadata.uid);
        let before = self.take_object(id);
        let applied = match &before {
            None => ApplyResult::Created,
            Some(before) if before.uid == uid => ApplyResult::Updated,
            Some(_) => ApplyResult::Replaced,
        };

        let (owners, many_owners) = match &metadata.owner_references[..] {
            references if references.len() > MAX_LIST_ENTRIES => {
                (Box::default(), Some(Box::new(self.convert_many_owners(references))))
            }
            references => (self.resolve_owner_edges(namespace, references), None),
        };
        let uses = self.resolve_use_edges(edges.uses);
        let selector_edges =
            (!edges.selector_edges.is_empty()).then(|| Box::new(edges.selector_edges));
        for scope in self.resolve_selector_scopes(selector_edges.as_deref()) {
            let selector_users = self.selector_users.entry(scope).or_default();
            if selector_users.is_empty() && scope.0 != NodeId::NONE {
                self.nodes[scope.0].contained_nodes += 1;
            }
            selector_users.insert(id);
        }
        for edge in &uses {
            self.nodes[edge.to].users.insert(id);
        }
        for owner in &owners {
            self.nodes[owner.to].references += 1;
        }
        self.dependents.insert(id, &owners, many_owners.as_deref());
        for owner in self.kinds_of_owners(&owners, many_owners.as_deref()) {
            *self.owner_kinds.entry((kind, owner)).or_default() += 1;
        }

        self.objects += 1;
        self.edges += owners.len() + uses.len();
        self.by_kind.entry(kind).or_default().insert(id);
        let namespace_id = self.nodes[id].namespace;
        if namespace_id != NodeId::NONE {
            self.by_namespace.entry(namespace_id).or_default().insert(id);
        }
        let annotations: Vec<_> = metadata
            .annotations
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .filter(|(key, _)| key.starts_with("belay.dev/") || self.annotation_keys.contains(*key))
            .collect();
        let hold = match &before {
            Some(before) if applied == ApplyResult::Updated => {
                before.hold.updated_by(object.hold_age())
            }
            _ => object.hold_age(),
        };
        let version = metadata.version();
        let owners_version = match &before {
            _ if !self.tracks_owner_versions => 0,
            Some(before) if applied == ApplyResult::Updated => {
                self.update_owner_history(id, before, &owners, version)
            }
            // The object was just created, so its creation set the owner references.
            None if proves_absence => 0,
            _ => version,
        };
        let labels = metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let finalizers = || metadata.finalizers.iter().flatten().map(|f| f.as_str());
        self.nodes[id].object = Some(Box::new(StoredObject {
            uid,
            labels: PackedMap::new(labels, &mut self.interner),
            annotations: PackedMap::new(annotations, &mut self.interner),
            finalizers: PackedList::new(finalizers(), &mut self.interner),
            orphans: finalizers().any(|finalizer| finalizer == ORPHAN),
            foreground: finalizers().any(|finalizer| finalizer == FOREGROUND),
            created: object.created().unwrap_or(i64::MIN),
            deletion_time: object.deleted(),
            hold,
            phase,
            owners,
            owners_version,
            many_owners,
            uses,
            selector_edges,
        }));
        // The new edges were added before, so that nodes that both versions refer to stay.
        if let Some(before) = before {
            if applied == ApplyResult::Replaced {
                self.remember(id, &before);
            }
            self.drop_edges(id, &before);
        }
        applied
    }

    /// Removes an object. With a uid, removes it only if its uid is equal, because a
    /// re-created object is another object. Returns whether an object was removed.
    pub fn delete(&mut self, kind: KindId, namespace: &str, name: &str, uid: Option<Uid>) -> bool {
        self.coverage.remove_unreadable(kind, namespace, name);
        let Some(id) = self.find(kind, namespace, name) else { return false };
        let Some(object) = &self.nodes[id].object else { return false };
        if uid.is_some_and(|uid| uid != object.uid) {
            return false;
        }
        self.remove_object(id);
        true
    }

    /// Records that the object had its hold at this time. So the hold is at least that old.
    pub fn date_hold(&mut self, id: NodeId, now: i64) {
        if let Some(object) = &mut self.nodes[id].object {
            object.hold = object.hold.seen_at(now);
        }
    }

    /// Starts to track the version at which objects got their owner references, for
    /// [`Node::owners_version`]. Only a graph that a watch feeds has this history.
    pub fn track_owner_versions(&mut self) {
        self.tracks_owner_versions = true;
    }

    /// Whether [`Self::track_owner_versions`] was called.
    pub fn tracks_owner_versions(&self) -> bool {
        self.tracks_owner_versions
    }

    /// Sets the annotations that the graph keeps for policies, besides those of belay. This
    /// does not change objects that the graph already has.
    pub fn keep_annotations(&mut self, keys: impl IntoIterator<Item = String>) {
        self.annotation_keys = keys.into_iter().collect();
    }

    /// The keys of the annotations that the graph keeps for policies.
    pub fn kept_annotations(&self) -> impl Iterator<Item = &str> {
        self.annotation_keys.iter().map(String::as_str)
    }

    /// The node with this kind, namespace and name, whether its object exists or not.
    pub fn find(&self, kind: KindId, namespace: &str, name: &str) -> Option<NodeId> {
        let namespace_id = match namespace {
            "" => NodeId::NONE,
            _ => self.nodes.find(self.kinds.namespace()?, NodeId::NONE, namespace)?,
        };
        self.nodes.find(kind, namespace_id, name)
    }

    /// Kind, namespace and name of a node, whether its object exists or not.
    pub fn coordinates(&self, id: NodeId) -> (KindId, &str, &str) {
        let node = &self.nodes[id];
        let namespace = match node.namespace {
            NodeId::NONE => "",
            namespace => &self.nodes[namespace].name,
        };
        (node.kind, namespace, &node.name)
    }

    /// A sort key by kind, namespace and name. Unlike IDs, it does not depend on the order of the
    /// reads.
    pub fn name_key(&self, id: NodeId) -> (&str, &str, &str, &str) {
        let (kind, namespace, name) = self.coordinates(id);
        let KindInfo { group, resource, .. } = self.kinds.info(kind);
        (group, resource, namespace, name)
    }

    /// Whether an object of the kind `dependent` has an owner reference to the kind `owner`.
    pub fn has_owner_kind(&self, dependent: KindId, owner: KindId) -> bool {
        self.owner_kinds.contains_key(&(dependent, owner))
    }

    /// Pairs of the kind of a dependent and the kind of its owner.
    pub fn owner_kinds(&self) -> impl Iterator<Item = (KindId, KindId)> + '_ {
        self.owner_kinds.keys().copied()
    }

    /// A deleted object that others still name as their owner.
    pub fn deleted_object(&self, uid: Uid) -> Option<&DeletedObject> {
        self.deleted_objects.get(uid)
    }

    /// The objects of a kind.
    pub fn objects_of_kind(&self, kind: KindId) -> impl Iterator<Item = NodeId> + '_ {
        self.by_kind.get(&kind).into_iter().flat_map(IdSet::iter)
    }

    /// The objects in a Namespace.
    pub fn objects_in_namespace(&self, namespace: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.by_namespace.get(&namespace).into_iter().flat_map(IdSet::iter)
    }

    /// The number of objects.
    pub fn object_count(&self) -> usize {
        self.objects
    }

    /// The number of owner and use edges.
    pub fn edge_count(&self) -> usize {
        self.edges
    }

    /// A number that increases with each change of an object.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of nodes, including those of absent objects.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn find_or_insert_node(&mut self, kind: KindId, namespace: &str, name: &str) -> NodeId {
        let namespace_id = match (namespace, self.kinds.namespace()) {
            ("", _) | (_, None) => NodeId::NONE,
            (_, Some(namespaces)) => self.nodes.find_or_insert(namespaces, NodeId::NONE, namespace),
        };
        self.nodes.find_or_insert(kind, namespace_id, name)
    }

    /// Removes an object, its edges, and its node if nothing refers to it.
    pub(super) fn remove_object(&mut self, id: NodeId) {
        self.revision += 1;
        if let Some(before) = self.take_object(id) {
            self.remember(id, &before);
            self.drop_edges(id, &before);
        }
        self.nodes.remove_if_unused(id);
    }

    /// Removes the data of an object from its node and the counts, but not its edges.
    pub(super) fn take_object(&mut self, id: NodeId) -> Option<Box<StoredObject>> {
        let node = &mut self.nodes[id];
        let object = node.object.take()?;
        let (kind, namespace) = (node.kind, node.namespace);
        self.objects -= 1;
        self.edges -= object.owners.len() + object.uses.len();
        for owner in self.kinds_of_owners(&object.owners, object.many_owners.as_deref()) {
            if let Some(count) = self.owner_kinds.get_mut(&(kind, owner)) {
                *count -= 1;
                if *count == 0 {
                    self.owner_kinds.remove(&(kind, owner));
                }
            }
        }
        if let Some(set) = self.by_kind.get_mut(&kind) {
            set.remove(id);
        }
        if let Some(set) = self.by_namespace.get_mut(&namespace) {
            set.remove(id);
            if set.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
        Some(object)
    }

    fn kinds_of_owners(&self, owners: &[OwnerEdge], many: Option<&ManyOwners>) -> Vec<KindId> {
        let many = many.into_iter().flat_map(|many| many.kinds.iter().copied());
        owners.iter().map(|owner| self.nodes[owner.to].kind).chain(many).collect()
    }
}

#[cfg(test)]
mod tests;
