//! The objects that are deleted with the target and still exist:
//! - the target and its Terminating dependents
//! - the Terminating claims whose Pods are deleted with the target, or are stopped by the undo
//! - the owners whose foreground deletion waits only for these objects

use std::collections::{HashMap, HashSet};

use super::kinds::{is_left_out, is_workload, why_left_out};
use super::read::UndoReader;
use super::record::{LostObject, SavedObject, is_of_others};
use super::workloads::{controller_of, workload_of};
use crate::command::diagnosis::why_irreversible;
use crate::graph::{Node, OwnerEdge};
use crate::objects::{CLAIM_PROTECTION, CLAIMS, FOREGROUND, Uid};

/// The objects that are deleted with the target and still exist, and their dependents. The content
/// of a Namespace may not be Terminating yet.
#[derive(Default)]
pub(super) struct TerminatingObjects<'g> {
    /// The objects to create again.
    pub(super) saved: Vec<Node<'g>>,
    /// The dependents that are not Terminating.
    pub(super) dependents: Vec<LiveDependent<'g>>,
    /// The objects that nothing restores.
    pub(super) lost: Vec<LostObject>,
    seen: HashSet<Uid>,
    /// The deleted objects whose dependents matter, and whether each is created again.
    owners: Vec<(Node<'g>, bool)>,
    /// The index of each dependent in `dependents`.
    places: HashMap<Uid, usize>,
}

/// A dependent that is not Terminating.
pub(super) struct LiveDependent<'g> {
    pub(super) node: Node<'g>,
    /// The uids of its deleted owners.
    pub(super) owners: HashSet<String>,
    /// Whether undo does not create it again if it is deleted.
    pub(super) is_left_out: bool,
}

impl<'g> TerminatingObjects<'g> {
    fn save(&mut self, node: Node<'g>) {
        if self.seen.insert(node.uid()) {
            self.saved.push(node);
            self.owners.push((node, true));
        }
    }

    fn lose(&mut self, node: Node<'_>, lost: LostObject) {
        self.seen.insert(node.uid());
        self.lost.push(lost);
    }

    /// The uids of all deleted objects.
    pub(super) fn uids(&self) -> HashSet<String> {
        self.seen.iter().map(Uid::to_string).collect()
    }

    fn keep(&mut self, node: Node<'g>, owner: Node<'g>, is_left_out: bool) {
        let place = *self.places.entry(node.uid()).or_insert(self.dependents.len());
        if place == self.dependents.len() {
            self.dependents.push(LiveDependent { node, owners: HashSet::new(), is_left_out });
        }
        if let Some(dependent) = self.dependents.get_mut(place) {
            dependent.owners.insert(owner.uid().to_string());
        }
    }
}

impl<'i> UndoReader<'i> {
    /// The content of the Namespace, and the other dependents of the Namespace.
    pub(super) fn content(&self) -> TerminatingObjects<'i> {
        let graph = &self.inspection.graph;
        let content = graph.objects_in_namespace(self.target.id());
        let mut content: Vec<_> = content.filter_map(|id| graph.get(id)).collect();
        content.sort_by_key(|node| node.kind());
        let mut found = TerminatingObjects::default();
        found.save(self.target);
        for node in content {
            let controller = node.controller();
            let is_recreated = controller.is_some_and(|owner| owner.info().creates(node.info()));
            if is_recreated || is_left_out(node.info(), node.name()) {
                continue;
            }
            match why_irreversible(node.info()) {
                Some(why) => found.lose(node, self.lost(node, why)),
                None => found.save(node),
            }
        }
        for node in self.dependents(self.target) {
            match node.is_terminating() {
                _ if found.seen.contains(&node.uid()) => {}
                true => found.lose(node, self.lost(node, "it is deleted as a dependent")),
                false => found.keep(node, self.target, is_left_out(node.info(), node.name())),
            }
        }
        found
    }

    /// All objects that are deleted with a target that is no Namespace. `known`: the objects in the
    /// file.
    pub(super) fn terminating_with_target(&self, known: &[SavedObject]) -> TerminatingObjects<'i> {
        let graph = &self.inspection.graph;
        let is_token = |user: &Node<'_>| self.is_account() && user.info().is_secret();
        let tokens = graph.users(self.target.id()).map(|user| user.node).filter(is_token);
        let detached =
            known.iter().filter(|saved| saved.stays).filter_map(|saved| self.node(&saved.object));
        let detached = detached.filter(|node| node.is_terminating());
        let mut found = TerminatingObjects::default();
        std::iter::once(self.target)
            .chain(tokens)
            .chain(detached)
            .for_each(|node| found.save(node));
        let claims = self.terminating_claims();
        let mut next = 0;
        loop {
            while let Some((owner, is_restored)) = found.owners.get(next).copied() {
                next += 1;
                self.add_dependents(owner, is_restored, &mut found);
            }
            let mut more = used_claims(&claims, &found.seen);
            more.extend(self.waiting_owners(&found));
            if more.is_empty() {
                return found;
            }
            more.into_iter().for_each(|node| found.save(node));
        }
    }

    fn add_dependents(
        &self,
        owner: Node<'i>,
        is_restored: bool,
        found: &mut TerminatingObjects<'i>,
    ) {
        for node in self.dependents(owner) {
            let is_left_out =
                is_left_out(node.info(), node.name()) || owner.info().creates(node.info());
            if !node.is_terminating() {
                if is_restored || !is_left_out {
                    found.keep(node, owner, is_left_out);
                }
                continue;
            }
            let left_out = is_left_out.then(|| why_left_out(node.info()));
            let Some(why) = why_irreversible(node.info()).or(left_out) else {
                found.save(node);
                continue;
            };
            if !found.seen.contains(&node.uid()) {
                found.lose(node, self.lost(node, why));
                // A new Pod has new ephemeral claims.
                if node.info().group_resource() != ("", "pods") {
                    found.owners.push((node, false));
                }
            }
        }
    }

    /// The owners whose foreground deletion waits only for the found objects. Cluster-scoped owners
    /// are excluded, because a user of any namespace can make them wait.
    fn waiting_owners(&self, found: &TerminatingObjects<'i>) -> Vec<Node<'i>> {
        let owners = found.saved.iter().flat_map(|node| node.existing_owners());
        let is_waiting = |owner: &Node<'i>| {
            let finalizers: Vec<&str> = owner.finalizers().iter().collect();
            owner.is_terminating()
                && !found.seen.contains(&owner.uid())
                && !owner.namespace().is_empty()
                && finalizers.contains(&FOREGROUND)
                && finalizers.iter().all(|name| [FOREGROUND, CLAIM_PROTECTION].contains(name))
                && self.dependents(*owner).all(|dependent| {
                    let owns = |edge: &OwnerEdge| edge.blocking && edge.uid == owner.uid();
                    found.seen.contains(&dependent.uid())
                        || !dependent.owner_edges().iter().any(owns)
                })
        };
        let waiting = owners.filter(is_waiting);
        waiting.filter(|owner| why_irreversible(owner.info()).is_none()).collect()
    }

    /// The dependents that the garbage collector deletes with this owner. It ignores references
    /// with the uid of the owner but another kind or name, which any user can write.
    fn dependents(&self, owner: Node<'i>) -> impl Iterator<Item = Node<'i>> + use<'_, 'i> {
        let inspection: &'i _ = self.inspection;
        inspection.graph.dependents(owner).filter(move |node| {
            let namespace = node.namespace();
            let is_others = is_of_others(self.object, namespace);
            // A namespaced object owns nothing in other namespaces, but an editor there can write
            // such a reference.
            let is_possible = !is_others || self.target.namespace().is_empty();
            is_possible
                && !(is_others
                    && self.ignored_namespaces.iter().any(|ignored| ignored == namespace))
                && node.existing_owners().any(|existing| existing.id() == owner.id())
        })
    }

    /// The Terminating claims in the namespace of the target, each with the Pods and workloads that use
    /// it. Claims of generic ephemeral volumes are not among them, because Pods get new ones.
    fn terminating_claims(&self) -> Vec<(Node<'i>, Vec<Node<'i>>)> {
        let graph = &self.inspection.graph;
        let namespace = self.target.namespace_node().into_iter();
        let objects = namespace.flat_map(|namespace| graph.objects_in_namespace(namespace));
        let claims = objects.filter_map(|id| graph.get(id)).filter(|node| {
            let pod = node.controller().map(|pod| pod.id());
            let mut users = graph.users(node.id());
            node.info().group_resource() == CLAIMS
                && node.is_terminating()
                && !users.any(|user| {
                    // An editor can write an ephemeral volume with the name of another claim.
                    user.path().ends_with(".ephemeral") && pod == Some(user.node.id())
                })
        });
        let with_users = |claim: Node<'i>| {
            // A Pod keeps its claims also after it has succeeded or failed.
            let users = graph.users(claim.id()).map(|user| user.node).filter(|user| {
                user.info().group_resource() == ("", "pods") || is_workload(user.info())
            });
            (claim, users.collect())
        };
        claims.map(with_users).collect()
    }
}

/// The other claims of Pods and workloads that are deleted, or that the undo stops because they use
/// a deleted claim.
fn used_claims<'g>(claims: &[(Node<'g>, Vec<Node<'g>>)], deleted: &HashSet<Uid>) -> Vec<Node<'g>> {
    let is_deleted = |claim: &Node<'_>| deleted.contains(&claim.uid());
    let (ending, others): (Vec<_>, Vec<_>) =
        claims.iter().partition(|(claim, _)| is_deleted(claim));
    let mut stopped = deleted.clone();
    // The undo stops the workload of a Pod only if the workload itself is a user of the claim.
    stopped.extend(ending.into_iter().flat_map(|(_, users)| users).map(|user| user.uid()));
    // A Pod of a stopped workload can use other claims than the current template.
    let is_stopped = |user: &Node<'g>| {
        let nodes = [*user, controller_of(*user), workload_of(*user)];
        nodes.iter().any(|node| stopped.contains(&node.uid()))
    };
    let others = others.into_iter().filter(|(_, users)| users.iter().any(is_stopped));
    others.map(|(claim, _)| *claim).collect()
}
