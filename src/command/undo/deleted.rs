//! The objects that are deleted with the target.

use std::collections::{HashMap, HashSet};

use super::kinds::is_recreated;
use super::read::Reading;
use super::record::{DetachedDependent, LostObject};
use crate::command::diagnosis::why_irreversible;
use crate::graph::Node;
use crate::objects::Uid;

/// The objects that are deleted with the target, as far as they exist.
#[derive(Default)]
pub(super) struct DeletedObjects<'g> {
    /// Those to create again.
    pub(super) saved: Vec<Node<'g>>,
    /// The dependents that are not Terminating, each with the uids of its deleted owners.
    pub(super) dependents: Vec<(Node<'g>, Vec<Uid>)>,
    /// Those that nothing restores.
    pub(super) lost: Vec<LostObject>,
}

impl Reading<'_> {
    /// The content of the Namespace, and the other dependents of the Namespace.
    pub(super) fn content(&self) -> DeletedObjects<'_> {
        let graph = &self.inspection.graph;
        let content = graph.objects_in_namespace(self.target.id());
        let mut content: Vec<_> = content.filter_map(|id| graph.get(id)).collect();
        content.sort_by_key(|node| node.kind());
        let mut deleted = DeletedObjects { saved: vec![self.target], ..DeletedObjects::default() };
        for node in content {
            if is_recreated(node.info(), node.name()) {
                continue;
            }
            match why_irreversible(node.info()) {
                Some(why) => deleted.lost.push(self.lost(node, why)),
                None => deleted.saved.push(node),
            }
        }
        let saved: HashSet<Uid> = deleted.saved.iter().map(|node| node.uid()).collect();
        let others = graph.dependents(self.target).filter(|node| !saved.contains(&node.uid()));
        for node in others {
            match node.is_terminating() {
                true => deleted.lost.push(self.lost(node, "it is deleted as a dependent")),
                false => deleted.dependents.push((node, vec![self.target.uid()])),
            }
        }
        deleted
    }

    /// The target, its direct and indirect dependents that are Terminating as well, and the other
    /// dependents of these objects.
    pub(super) fn deleted_with_target(&self, known: &[DetachedDependent]) -> DeletedObjects<'_> {
        let graph = &self.inspection.graph;
        let is_token = |user: &Node<'_>| self.is_account() && user.info().resource == "secrets";
        let tokens = graph.users(self.target.id()).map(|user| user.node).filter(is_token);
        let detached = known.iter().filter_map(|one| self.node(&one.object));
        let detached = detached.filter(|node| node.is_terminating());
        let mut deleted = DeletedObjects::default();
        deleted.saved.push(self.target);
        deleted.saved.extend(tokens.chain(detached));
        let mut seen: HashSet<Uid> = deleted.saved.iter().map(|node| node.uid()).collect();
        // The place of each dependent in the list.
        let mut places = HashMap::new();
        // Each owner, and whether it is created again.
        let mut owners: Vec<_> = deleted.saved.iter().map(|node| (*node, true)).collect();
        let mut next = 0;
        while let Some((owner, is_restored)) = owners.get(next).copied() {
            next += 1;
            for node in graph.dependents(owner) {
                // An editor of another namespace can write such a reference.
                let namespace = self.target.namespace();
                if !namespace.is_empty() && node.namespace() != namespace {
                    continue;
                }
                let is_recreated =
                    is_recreated(node.info(), node.name()) || owner.info().creates(node.info());
                if !node.is_terminating() {
                    if is_restored || !is_recreated {
                        let place = places.entry(node.uid()).or_insert(deleted.dependents.len());
                        match deleted.dependents.get_mut(*place) {
                            Some((_, owners)) => owners.push(owner.uid()),
                            None => deleted.dependents.push((node, vec![owner.uid()])),
                        }
                    }
                    continue;
                }
                if !seen.insert(node.uid()) {
                    continue;
                }
                let recreated = is_recreated.then_some("its controller creates it again");
                let why = why_irreversible(node.info()).or(recreated);
                match why {
                    Some(why) => deleted.lost.push(self.lost(node, why)),
                    None => deleted.saved.push(node),
                }
                // A new Pod has new ephemeral claims.
                if node.info().group_resource() != ("", "pods") {
                    owners.push((node, why.is_none()));
                }
            }
        }
        deleted
    }
}
