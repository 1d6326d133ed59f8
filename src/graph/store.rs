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
    FOREGROUND, Interner, KeyedSet, KindId, Kinds, NumberMap, NumberSet, ORPHAN, Object,
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
mod tests {
    use super::*;
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use crate::objects::Unreadable;

    fn manifest(name: &str, uid: &str, owner: Option<&str>) -> Value {
        let owners: Vec<_> = owner
            .iter()
            .map(|o| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o, "uid": format!("uid-{o}")}))
            .collect();
        json!({"metadata": {"name": name, "namespace": "shop", "uid": uid, "ownerReferences": owners,
            "annotations": {"belay.dev/x": "1", "team": "blue", "other": "2"}}})
    }

    #[test]
    fn a_deleted_owner_is_remembered_until_its_last_dependent_is_deleted() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let chain = [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("c"))];
        for (name, owner) in chain {
            let value = manifest(name, &format!("uid-{name}"), owner);
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        }
        let uid = |name: &str| Uid::new(&format!("uid-{name}"));
        for name in ["c", "a", "b"] {
            graph.delete(kind, "shop", name, None);
        }
        let owner = |graph: &Graph, name| {
            graph.deleted_object(uid(name)).map(|object| object.owners[0].uid)
        };
        assert_eq!(owner(&graph, "c"), Some(uid("b")));
        assert_eq!(owner(&graph, "b"), Some(uid("a")), "only the deleted c names it");
        graph.delete(kind, "shop", "d", None);
        assert!(graph.deleted_objects.is_empty());
    }

    /// A ConfigMap with `count` owners of two kinds.
    fn owned(count: usize) -> Value {
        let owner = |n| {
            json!({"apiVersion": "v1", "kind": if n % 2 == 0 { "Pod" } else { "Secret" },
            "name": format!("owner-{n}"), "uid": format!("uid-{n}")})
        };
        json!({"metadata": {"name": "owned", "namespace": "shop", "uid": "owned",
            "ownerReferences": (0..count).map(owner).collect::<Vec<_>>()}})
    }

    #[test]
    fn too_many_owner_references_keep_their_uids_and_kinds_and_get_no_nodes() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let dependents = |graph: &Graph, n: usize| {
            let uid = Uid::new(&format!("uid-{n}"));
            graph.dependents_of(uid).map(|node| node.name().to_owned()).collect::<Vec<_>>()
        };
        // Each version replaces the previous one completely.
        for count in [27_000, MAX_LIST_ENTRIES, 27_000, 2, MAX_LIST_ENTRIES + 1] {
            let value = owned(count);
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            let node = graph.object(kind, "shop", "owned").unwrap();
            let many = count > MAX_LIST_ENTRIES;
            assert_eq!(node.has_too_many_owners(), many);
            assert_eq!(graph.nodes(), 2 + if many { 0 } else { count }, "itself and its namespace");
            assert_eq!(node.owner_uids().count(), count);
            assert_eq!(node.owner_kinds().collect::<NumberSet<_>>().len(), 2);
            assert_eq!(dependents(&graph, count - 1), ["owned"]);
            assert!(dependents(&graph, count).is_empty());
            assert!(
                graph.dependents.size() <= count + MAX_LIST_ENTRIES,
                "{}",
                graph.dependents.size()
            );
        }
        graph.delete(kind, "shop", "owned", None);
        assert_eq!((graph.nodes(), graph.edges(), graph.dependents.size()), (0, 0, 0));
    }

    #[test]
    fn h37_labels_that_change_leave_no_bytes_behind() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        for (labels, changes) in [(15_000, 4), (12, 2_000)] {
            for change in 0..changes {
                let label = |n| (format!("k{n}"), format!("{change:06}{n:057}"));
                let labels: std::collections::BTreeMap<_, _> = (0..labels).map(label).collect();
                let value = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "a",
                    "labels": labels, "finalizers": labels.keys().collect::<Vec<_>>()}});
                let object = Object::deserialize(&value).unwrap();
                graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            }
            assert!(graph.interner.bytes() < 1 << 20, "{labels}: {}", graph.interner.bytes());
        }
    }

    #[test]
    fn maps_that_were_large_become_small_again() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        for n in 0..20_000 {
            let value = manifest(&n.to_string(), &format!("uid-{n}"), Some(&format!("o{n}")));
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        }
        let large = (graph.nodes.capacity(), graph.dependents.capacity());
        assert!(large.0 >= 40_000 && large.1 >= 20_000, "{large:?}");
        graph.replace_kind(kind, []);
        let small = (graph.nodes.capacity(), graph.dependents.capacity());
        assert!(small.0 < 8_000 && small.1 < 8_000, "{small:?}");
    }

    #[test]
    fn the_owners_version_is_the_version_that_may_have_added_an_owner_reference() {
        let mut graph = Graph::default();
        graph.track_owner_versions();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let apply = |graph: &mut Graph, name: &str, version: &str, owner| {
            let mut value = manifest(name, &format!("uid-{name}"), owner);
            value["metadata"]["resourceVersion"] = json!(version);
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            graph.object(kind, "shop", name).unwrap().owners_version()
        };
        // A listed object may have got its owners at its current version.
        assert_eq!(apply(&mut graph, "listed", "5", Some("a")), 5);
        assert_eq!(apply(&mut graph, "listed", "6", Some("a")), 5, "no new owner");
        graph.set_complete(kind, true);
        assert_eq!(apply(&mut graph, "created", "7", Some("a")), 0);
        assert_eq!(apply(&mut graph, "created", "8", None), 8, "no owner");
        assert_eq!(apply(&mut graph, "created", "9", Some("b")), 9);
        let name = Some(("shop".to_owned(), "unread".to_owned()));
        graph.set_unreadable(kind, &Unreadable { name, ..Unreadable::of_unknown_place() });
        assert_eq!(apply(&mut graph, "unread", "10", Some("a")), 10, "it existed before");
        graph.set_stale(kind);
        assert_eq!(apply(&mut graph, "later", "11", Some("a")), 11, "its creation is unknown");
        assert_eq!(apply(&mut graph, "later", "no number", Some("b")), u64::MAX);
    }

    #[test]
    fn a_few_lost_owners_of_an_object_are_remembered() {
        let mut graph = Graph::default();
        graph.track_owner_versions();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let apply = |graph: &mut Graph, version: u64, owners: &[&str]| {
            let mut value = manifest("child", "uid-child", None);
            let owner = |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
            value["metadata"]["ownerReferences"] = owners.iter().map(owner).collect();
            value["metadata"]["resourceVersion"] = json!(version.to_string());
            let object = Object::deserialize(&value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            let child = graph.object(kind, "shop", "child").unwrap();
            let past = child.past_owners().iter().map(|past| (past.owner.uid, past.version));
            (child.owners_version(), past.collect::<Vec<_>>())
        };
        let uid = Uid::new;
        assert_eq!(apply(&mut graph, 5, &["a", "b", "c"]), (5, vec![]));
        assert_eq!(apply(&mut graph, 6, &["a", "b"]), (5, vec![(uid("c"), 6)]));
        let lost = vec![(uid("c"), 6), (uid("a"), 7)];
        assert_eq!(apply(&mut graph, 7, &["b"]), (5, lost));
        // With a new owner, the past owners are forgotten.
        assert_eq!(apply(&mut graph, 8, &["b", "a"]), (8, vec![]));
        assert_eq!(apply(&mut graph, 9, &[]), (9, vec![]));
        let many: Vec<String> = (0..20).map(|n| format!("o{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(apply(&mut graph, 10, &many), (10, vec![]));
        assert_eq!(apply(&mut graph, 11, &many[9..]), (11, vec![]), "too many");

        // The graph forgets the past owners when the object is deleted.
        apply(&mut graph, 12, &many[10..]);
        assert!(graph.deleted_objects.is_named_as_owner(uid("o9")));
        graph.delete(kind, "shop", "child", None);
        assert!(graph.deleted_objects.is_empty());
    }

    /// Users are named by their topmost owner, which should not be the choice of an editor.
    #[test]
    fn h136_an_owner_that_an_editor_adds_in_front_of_the_controller_is_not_followed() {
        let mut graph = Graph::default();
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let owner = |name: &str, controller: bool| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name,
                "controller": controller,
            })
        };
        let mut user = manifest("user", "user", None);
        user["metadata"]["ownerReferences"] = [owner("forged", false), owner("real", true)].into();
        let others = ["forged", "real"].map(|name| manifest(name, name, None));
        for value in others.iter().chain([&user]) {
            let object = Object::deserialize(value).unwrap();
            graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        }
        let user = graph.object(kind, "shop", "user").unwrap();
        assert_eq!(user.root_owner().name(), "real");
    }

    #[test]
    fn replace_kind_removes_other_objects_and_completes_the_kind() {
        let mut graph = Graph::default();
        graph.keep_annotations(["team".to_owned()]);
        let kind = graph.kinds.find("", "ConfigMap").unwrap();
        let values = [
            manifest("stays", "uid-stays", None),
            manifest("goes", "uid-goes", Some("stays")),
            manifest("again", "uid-old", None),
        ];
        for value in &values {
            let object = Object::deserialize(value).unwrap();
            let applied = graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
            assert_eq!(applied, ApplyResult::Created);
        }
        assert!(!graph.is_complete(kind));
        let now =
            [manifest("stays", "uid-stays", None), manifest("again", "uid-again", Some("stays"))];
        let objects: Vec<_> = now.iter().map(|v| Object::deserialize(v).unwrap()).collect();
        graph
            .replace_kind(kind, objects.iter().map(|o| (o, ObjectPhase::Active, Edges::default())));
        assert!(graph.is_complete(kind));
        let mut names: Vec<_> = graph
            .objects_of_kind(kind)
            .filter_map(|id| graph.get(id))
            .map(|n| n.name().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["again", "stays"]);
        assert!(graph.find(kind, "shop", "goes").is_none(), "no object refers to this node");

        let again = graph.get(graph.find(kind, "shop", "again").unwrap()).unwrap();
        assert_eq!(again.uid(), Uid::new("uid-again"));
        assert_eq!(again.root_owner().name(), "stays");
        let stays = graph.get(graph.find(kind, "shop", "stays").unwrap()).unwrap();
        assert_eq!(graph.dependents(stays).map(|n| n.name()).collect::<Vec<_>>(), ["again"]);
        let kept: Vec<_> = stays.annotations().iter().collect();
        assert_eq!(kept, [("belay.dev/x", "1"), ("team", "blue")]);
        graph.replace_kind(kind, []);
        assert_eq!((graph.objects(), graph.edges(), graph.nodes()), (0, 0, 0));
    }
}
