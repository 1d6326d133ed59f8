//! The store: adds, changes and removes objects.

use super::coverage::{KindCoverage, too_many_references};
use super::deleted_objects::{DeletedObject, DeletedObjects, PastOwner, RememberedOwner};
use super::dependents::{Dependents, ManyOwners};
use super::edges::{Edges, OwnerEdge, SelectorEdge, UnresolvedUse, UseEdge};
use super::id_set::IdSet;
use super::node_id::NodeId;
use super::nodes::NodeStore;
use super::slot::{MAX_LIST_ENTRIES, ObjectPhase, OwnerRef, StoredObject};
use crate::objects::{
    FOREGROUND, Interner, KeyedSet, KindId, KindInfo, Kinds, NumberMap, NumberSet, ORPHAN, Object,
    OwnerReference, PackedList, PackedMap, Uid, split_api_version,
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
        let namespaced = self.kinds.info(kind).namespaced;
        let namespace = if namespaced { metadata.namespace.as_str() } else { "" };
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
                (Box::default(), Some(Box::new(self.many_owners(references))))
            }
            references => (self.owner_edges(namespace, references), None),
        };
        let uses = self.use_edges(edges.uses);
        let selector_edges =
            (!edges.selector_edges.is_empty()).then(|| Box::new(edges.selector_edges));
        for scope in self.selector_scopes(selector_edges.as_deref()) {
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
        let version = metadata.resource_version.parse().unwrap_or(u64::MAX);
        let owners_version = match &before {
            _ if !self.tracks_owner_versions => 0,
            Some(before) if applied == ApplyResult::Updated => {
                self.owners_version(id, before, &owners, version)
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
            deleted: object.deleted(),
            hold,
            phase,
            owners,
            owners_version,
            many_owners,
            uses,
            selector_edges,
        }));
        // The new edges come first, so that nodes that both versions refer to stay.
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
            _ => self.nodes.find(self.namespace_kind()?, NodeId::NONE, namespace)?,
        };
        self.nodes.find(kind, namespace_id, name)
    }

    /// Kind, namespace and name of a node, whether its object exists or not.
    pub fn coordinates(&self, id: NodeId) -> (KindId, &str, &str) {
        let slot = &self.nodes[id];
        let namespace = match slot.namespace {
            NodeId::NONE => "",
            namespace => &self.nodes[namespace].name,
        };
        (slot.kind, namespace, &slot.name)
    }

    /// A key by kind, namespace and name. Ids depend on the order of the reads.
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
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// The number of owner and use edges.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// A number that increases with each change of an object.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The number of nodes, including those of absent objects.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn namespace_kind(&self) -> Option<KindId> {
        self.kinds.find("", "Namespace")
    }

    fn find_or_insert_node(&mut self, kind: KindId, namespace: &str, name: &str) -> NodeId {
        let namespace_id = match (namespace, self.namespace_kind()) {
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

    /// Remembers a deleted object if others name it as an owner.
    fn remember(&mut self, id: NodeId, before: &StoredObject) {
        let past_owners = self.deleted_objects.take_past_owners(id, self.nodes[id].namespace);
        let past_uids: Vec<_> = past_owners.iter().map(|past| past.owner.uid).collect();
        if self.dependents.has_owner(before.uid)
            || self.deleted_objects.is_named_as_owner(before.uid)
        {
            let owners = before.owners.iter().map(|owner| self.owner_ref(owner));
            let mut deleted = DeletedObject::new(owners, before.deleted);
            deleted.owners_version = before.owners_version;
            deleted.past_owners = past_owners;
            deleted.had_more_owners |= before.many_owners.is_some();
            self.deleted_objects.remember(before.uid, deleted);
        }
        self.forget_owners(past_uids);
    }

    /// The owner that a reference names.
    pub(super) fn owner_ref<'g>(&'g self, owner: &'g OwnerEdge) -> OwnerRef<'g> {
        let (kind, namespace, name) = self.coordinates(owner.to);
        OwnerRef {
            kind: Some(kind),
            version: Some(&owner.version),
            namespace,
            name,
            uid: owner.uid,
        }
    }

    /// Forgets each of these deleted objects that no object names as an owner.
    fn forget_owners(&mut self, owners: impl IntoIterator<Item = Uid>) {
        let dependents = &self.dependents;
        for uid in owners {
            self.deleted_objects.forget(uid, |uid| dependents.has_owner(uid));
        }
    }

    /// The latest resourceVersion at which an updated object may have gained one of its
    /// owner references. Remembers the owners that the object has lost since then. If there
    /// are too many of them, returns the current `version` instead.
    fn owners_version(
        &mut self,
        id: NodeId,
        before: &StoredObject,
        owners: &[OwnerEdge],
        version: u64,
    ) -> u64 {
        let key = |edge: &OwnerEdge| (edge.to, edge.uid, edge.version.clone());
        // Most objects keep their owners.
        if before.owners.iter().map(key).eq(owners.iter().map(key)) {
            return before.owners_version;
        }
        let namespace = self.nodes[id].namespace;
        let keys_before: KeyedSet<_> = before.owners.iter().map(key).collect();
        if !owners.is_empty() && owners.iter().all(|edge| keys_before.contains(&key(edge))) {
            let kept: KeyedSet<_> = owners.iter().map(|edge| (edge.to, edge.uid)).collect();
            let lost = before.owners.iter().filter(|edge| !kept.contains(&(edge.to, edge.uid)));
            let lost: Option<Vec<_>> = lost
                .map(|edge| {
                    let owner = RememberedOwner::new(self.owner_ref(edge))?;
                    Some(PastOwner { owner, version })
                })
                .collect();
            if lost
                .is_some_and(|lost| self.deleted_objects.remember_lost_owners(id, namespace, lost))
            {
                return before.owners_version;
            }
        }
        let past = self.deleted_objects.take_past_owners(id, namespace);
        self.forget_owners(past.iter().map(|past| past.owner.uid));
        version
    }

    /// The owners that an object has lost.
    pub(super) fn past_owners(&self, id: NodeId) -> &[PastOwner] {
        self.deleted_objects.past_owners(id)
    }

    /// Removes the data of an object from its node and the counts, but not its edges.
    pub(super) fn take_object(&mut self, id: NodeId) -> Option<Box<StoredObject>> {
        let slot = &mut self.nodes[id];
        let object = slot.object.take()?;
        let (kind, namespace) = (slot.kind, slot.namespace);
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

    /// Converts owner references to edges.
    fn owner_edges(
        &mut self,
        namespace: &str,
        references: &[OwnerReference<'_>],
    ) -> Box<[OwnerEdge]> {
        let edge = |reference: &OwnerReference<'_>| {
            let (group, version) = split_api_version(&reference.api_version);
            let kind = self.kinds.mention(group, &reference.kind);
            // R1: in the item's namespace if the owner's kind is namespaced.
            let in_namespace = if self.kinds.info(kind).namespaced { namespace } else { "" };
            OwnerEdge {
                to: self.find_or_insert_node(kind, in_namespace, &reference.name),
                uid: Uid::new(&reference.uid),
                blocking: reference.block_owner_deletion.unwrap_or(false),
                controller: reference.controller.unwrap_or(false),
                version: self.interner.intern(version),
            }
        };
        references.iter().map(edge).collect()
    }

    /// Converts too many owner references, without edges and nodes.
    fn many_owners(&mut self, references: &[OwnerReference<'_>]) -> ManyOwners {
        let kind = |reference: &OwnerReference<'_>| {
            let (group, _) = split_api_version(&reference.api_version);
            self.kinds.mention(group, &reference.kind)
        };
        let kinds: NumberSet<KindId> = references.iter().map(kind).collect();
        let uids = references.iter().map(|reference| Uid::new(&reference.uid)).collect();
        ManyOwners { uids, kinds: kinds.into_iter().collect() }
    }

    /// Resolves the targets of use edges to nodes. Several references to the same object
    /// become one edge with the path of the first one.
    fn use_edges(&mut self, edges: Vec<UnresolvedUse>) -> Box<[UseEdge]> {
        let mut seen = KeyedSet::default();
        let mut resolved = Vec::with_capacity(edges.len());
        for edge in edges {
            let namespaced = self.kinds.info(edge.kind).namespaced;
            let namespace = if namespaced { edge.namespace.as_str() } else { "" };
            let to = self.find_or_insert_node(edge.kind, namespace, &edge.name);
            if seen.insert((to, edge.strength, edge.qualifier, edge.uid)) {
                resolved.push(UseEdge {
                    to,
                    strength: edge.strength,
                    qualifier: edge.qualifier,
                    relation: edge.relation,
                    uid: edge.uid.map(Box::new),
                    path: self.interner.intern(&edge.path),
                });
            }
        }
        // Sorted by target, so that a search finds the edges to one target.
        resolved.sort_by_key(|edge| edge.to);
        resolved.into_boxed_slice()
    }

    /// Removes the edges of the previous version of an object. Keeps edges that the current
    /// version has as well.
    pub(super) fn drop_edges(&mut self, id: NodeId, before: &StoredObject) {
        let now = self.nodes[id].object.as_deref();
        let used_now: NumberSet<NodeId> =
            now.iter().flat_map(|now| &now.uses).map(|edge| edge.to).collect();
        let many = before.many_owners.is_some();
        let comparable = now.filter(|now| now.many_owners.is_some() == many);
        let owners_now: KeyedSet<Uid> =
            comparable.into_iter().flat_map(StoredObject::owner_uids).collect();
        for edge in &before.uses {
            if !used_now.contains(&edge.to) {
                self.nodes[edge.to].users.remove(id);
                self.nodes.remove_if_unused(edge.to);
            }
        }
        for uid in before.owner_uids().filter(|uid| !owners_now.contains(uid)) {
            self.dependents.remove(id, uid, many);
            if !self.dependents.has_owner(uid) {
                self.forget_owners([uid]);
            }
        }
        for owner in &before.owners {
            self.nodes[owner.to].references -= 1;
            self.nodes.remove_if_unused(owner.to);
        }
        let edges_now = self.nodes[id].object.as_ref().and_then(|now| now.selector_edges.clone());
        let scopes_now: NumberSet<_> =
            self.selector_scopes(edges_now.as_deref()).into_iter().collect();
        for scope in self.selector_scopes(before.selector_edges.as_deref()) {
            if scopes_now.contains(&scope) {
                continue;
            }
            let Some(selector_users) = self.selector_users.get_mut(&scope) else { continue };
            selector_users.remove(id);
            if selector_users.is_empty() {
                self.selector_users.remove(&scope);
                if scope.0 != NodeId::NONE {
                    self.nodes[scope.0].contained_nodes -= 1;
                    self.nodes.remove_if_unused(scope.0);
                }
            }
        }
    }

    /// The namespaces and kinds that selector edges select from. Adds the node of a
    /// Namespace that only a selector names.
    fn selector_scopes(&mut self, edges: Option<&Vec<SelectorEdge>>) -> Vec<(NodeId, KindId)> {
        let Some(edges) = edges else { return Vec::new() };
        let mut scopes = Vec::with_capacity(edges.len());
        for edge in edges {
            let namespaced = self.kinds.info(edge.kind).namespaced;
            let namespace_id = match (edge.namespace.as_str(), self.namespace_kind()) {
                (namespace, Some(kind)) if namespaced && !namespace.is_empty() => {
                    self.nodes.find_or_insert(kind, NodeId::NONE, namespace)
                }
                _ => NodeId::NONE,
            };
            scopes.push((namespace_id, edge.kind));
        }
        scopes
    }
}

#[cfg(test)]
mod tests;
