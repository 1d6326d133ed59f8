//! Converts the references of an object to edges, and removes the edges of its previous version.

use super::Graph;
use crate::graph::dependents::ManyOwners;
use crate::graph::edges::{OwnerEdge, SelectorEdge, UnresolvedUse, UseEdge};
use crate::graph::node_id::NodeId;
use crate::graph::stored::StoredObject;
use crate::objects::{KeyedSet, KindId, NumberSet, OwnerReference, Uid, split_api_version};

impl Graph {
    /// Converts owner references to edges.
    pub(super) fn resolve_owner_edges(
        &mut self,
        namespace: &str,
        references: &[OwnerReference<'_>],
    ) -> Box<[OwnerEdge]> {
        let edge = |reference: &OwnerReference<'_>| {
            let (group, version) = split_api_version(&reference.api_version);
            let kind = self.kinds.mention(group, &reference.kind);
            // R1: the owner is in the item's namespace if its kind is namespaced.
            let owner_namespace = self.kinds.info(kind).namespace_or_empty(namespace);
            OwnerEdge {
                to: self.find_or_insert_node(kind, owner_namespace, &reference.name),
                uid: Uid::new(&reference.uid),
                blocking: reference.block_owner_deletion.unwrap_or(false),
                controller: reference.controller.unwrap_or(false),
                version: self.interner.intern(version),
            }
        };
        references.iter().map(edge).collect()
    }

    /// Converts too many owner references, without edges and nodes.
    pub(super) fn convert_many_owners(&mut self, references: &[OwnerReference<'_>]) -> ManyOwners {
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
    pub(super) fn resolve_use_edges(&mut self, edges: Vec<UnresolvedUse>) -> Box<[UseEdge]> {
        let mut seen = KeyedSet::default();
        let mut resolved = Vec::with_capacity(edges.len());
        for edge in edges {
            let namespace = self.kinds.info(edge.kind).namespace_or_empty(&edge.namespace);
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
    pub(in crate::graph) fn drop_edges(&mut self, id: NodeId, before: &StoredObject) {
        let now = self.nodes[id].object.as_deref();
        let used_now: NumberSet<NodeId> =
            now.iter().flat_map(|now| &now.uses).map(|edge| edge.to).collect();
        let many = before.many_owners.is_some();
        // Both versions store their owners in the same way: as edges, or as many owners.
        let now_in_same_form = now.filter(|now| now.many_owners.is_some() == many);
        let owners_now: KeyedSet<Uid> =
            now_in_same_form.into_iter().flat_map(StoredObject::owner_uids).collect();
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
            self.resolve_selector_scopes(edges_now.as_deref()).into_iter().collect();
        for scope in self.resolve_selector_scopes(before.selector_edges.as_deref()) {
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
    pub(super) fn resolve_selector_scopes(
        &mut self,
        edges: Option<&Vec<SelectorEdge>>,
    ) -> Vec<(NodeId, KindId)> {
        let Some(edges) = edges else { return Vec::new() };
        let mut scopes = Vec::with_capacity(edges.len());
        for edge in edges {
            let namespaced = self.kinds.info(edge.kind).namespaced;
            let namespace_id = match (edge.namespace.as_str(), self.kinds.namespace()) {
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
