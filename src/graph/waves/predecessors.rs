//! Who deletes each object of a deletion.

use std::collections::BTreeSet;

use super::cycles::components;
use super::{Deleter, DeletionToOrder, Objects, Rank, later_units};
use crate::graph::NodeId;
use crate::objects::NumberSet;

/// The predecessors and the units of each object.
pub(super) struct Predecessors {
    deleters: Vec<Deleter>,
    /// The objects whose deletion makes a controller delete an object.
    predecessors: Vec<Vec<usize>>,
    /// The units that an object belongs to, by the number of the object that gets the DELETE. An
    /// object without predecessors gets its own DELETE.
    units: Vec<BTreeSet<usize>>,
}

impl Predecessors {
    pub(super) fn new(objects: &Objects<'_>, deletion: &DeletionToOrder<'_>) -> Self {
        let count = objects.ids.len();
        let mut found = Self {
            deleters: vec![Deleter::Client; count],
            predecessors: vec![Vec::new(); count],
            units: Vec::new(),
        };
        for number in 0..count {
            found.find_controller(objects, deletion, number);
        }
        found.find_units();
        for (number, namespace) in found.content_left_to_namespaces(objects) {
            found.set_deleter(number, Deleter::NamespaceController, vec![namespace]);
        }
        found.find_units();
        while found.leave_cycles_to_namespaces(objects) {}
        while found.delete_targets_of_cycles(objects, deletion.targets) {}
        found
    }

    pub(super) fn deleter(&self, number: usize) -> Deleter {
        self.deleters[number]
    }

    pub(super) fn units(&self, number: usize) -> &BTreeSet<usize> {
        &self.units[number]
    }

    /// Whether the client sends a DELETE of the object.
    pub(super) fn has_own_delete(&self, number: usize) -> bool {
        self.predecessors[number].is_empty()
    }

    /// Sets who deletes an object, and the objects whose deletion causes it.
    fn set_deleter(&mut self, number: usize, deleter: Deleter, predecessors: Vec<usize>) {
        self.deleters[number] = deleter;
        self.predecessors[number] = predecessors;
    }

    /// Finds the controller that deletes an object after its owners or its Node. The garbage
    /// collector keeps an object with an owner that stays (R5).
    fn find_controller(
        &mut self,
        objects: &Objects<'_>,
        deletion: &DeletionToOrder<'_>,
        number: usize,
    ) {
        let id = objects.ids[number];
        let node = deletion.kube_node_of_pod.get(&id).and_then(|node| objects.number(*node));
        if let Some(node) = node {
            return self.set_deleter(number, Deleter::PodGarbageCollector, vec![node]);
        }
        let Some(object) = objects.graph.get(id) else { return };
        let owners = object.owner_edges().iter().filter_map(|o| object.existing_owner(o));
        let owners: Option<BTreeSet<usize>> = owners
            .map(|owner| {
                let collects = !(deletion.orphans && deletion.targets.contains(&owner.id()));
                objects.number(owner.id()).filter(|owner| collects && *owner != number)
            })
            .collect();
        if let Some(owners) = owners.filter(|owners| !owners.is_empty()) {
            self.set_deleter(number, Deleter::GarbageCollector, owners.into_iter().collect());
        }
    }

    /// The content that can be left to the namespace controller, each with its Namespace. Other
    /// controllers create such content again if a client deletes it before the Namespace. Only
    /// objects of rank `Other` that no other controller deletes can be left. Each of them may use
    /// only other left objects of its Namespace; otherwise it needs its own DELETE.
    fn content_left_to_namespaces(&self, objects: &Objects<'_>) -> Vec<(usize, usize)> {
        let namespace_of_left = |number: usize| {
            let is_left = self.has_own_delete(number) && objects.rank(number) == Rank::Other;
            objects.namespace(number).filter(|namespace| is_left && *namespace != number)
        };
        // For each object, the Namespace that it is left to.
        let mut left_to: Vec<Option<usize>> =
            (0..objects.ids.len()).map(namespace_of_left).collect();
        let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); left_to.len()];
        let mut need_delete = Vec::new();
        for (user, used) in &objects.uses {
            for user in &self.units[*user] {
                for used in self.units[*used].iter().filter(|used| *used != user) {
                    users[*used].insert(*user);
                    if left_to[*user].is_some() && left_to[*user] != left_to[*used] {
                        need_delete.push(*user);
                    }
                }
            }
        }
        while let Some(number) = need_delete.pop() {
            if left_to[number].take().is_some() {
                need_delete.extend(users[number].iter().filter(|user| left_to[**user].is_some()));
            }
        }
        left_to
            .into_iter()
            .enumerate()
            .filter_map(|(number, namespace)| Some((number, namespace?)))
            .collect()
    }

    /// Leaves cycles to the namespace controller, if the Namespace of all their objects is deleted,
    /// and belay can accept the controller's DELETEs one after the other. Returns whether there
    /// were such cycles.
    fn leave_cycles_to_namespaces(&mut self, objects: &Objects<'_>) -> bool {
        let mut were_left = false;
        let components = components(&later_units(objects, self));
        for cycle in components.iter().filter(|component| component.len() > 1) {
            let Some(namespace) = cycle.iter().find_map(|unit| objects.namespace(*unit)) else {
                continue;
            };
            let (content, others): (Vec<usize>, Vec<usize>) =
                cycle.iter().partition(|unit| objects.namespace(**unit) == Some(namespace));
            if others.iter().all(|other| *other == namespace) && self.have_order(objects, &content)
            {
                let leave =
                    |unit| self.set_deleter(unit, Deleter::NamespaceController, vec![namespace]);
                content.into_iter().for_each(leave);
                were_left = true;
            }
        }
        if were_left {
            self.find_units();
        }
        were_left
    }

    /// Gives the targets that follow a cycle a DELETE of their own: the user selected them, and
    /// without them the cycle may end. Returns whether there were such targets.
    fn delete_targets_of_cycles(
        &mut self,
        objects: &Objects<'_>,
        targets: &NumberSet<NodeId>,
    ) -> bool {
        let components = components(&later_units(objects, self));
        let cycles = components.into_iter().filter(|component| component.len() > 1);
        let in_cycle: BTreeSet<usize> = cycles.flatten().collect();
        let follows = |number: &usize| {
            !self.has_own_delete(*number)
                && targets.contains(&objects.ids[*number])
                && !self.units[*number].is_disjoint(&in_cycle)
        };
        let following: Vec<usize> = (0..objects.ids.len()).filter(follows).collect();
        for number in &following {
            self.set_deleter(*number, Deleter::Client, Vec::new());
        }
        self.find_units();
        !following.is_empty()
    }

    /// Whether single DELETEs of the objects in these units can be ordered so that each user comes
    /// before the object that it uses, and before the predecessors of that object.
    fn have_order(&self, objects: &Objects<'_>, units: &[usize]) -> bool {
        let mut later = vec![BTreeSet::new(); objects.ids.len()];
        for (user, used) in &objects.uses {
            let mut next = vec![*used];
            while let Some(number) = next.pop() {
                if number != *user && later[*user].insert(number) {
                    next.extend(&self.predecessors[number]);
                }
            }
        }
        let concerns = |number: &usize| self.units[*number].iter().any(|unit| units.contains(unit));
        let is_cycle =
            |component: &&Vec<usize>| component.len() > 1 && component.iter().any(concerns);
        components(&later).iter().find(is_cycle).is_none()
    }

    /// Finds the units of each object. Gives the first object of a cycle of predecessors a DELETE,
    /// because no object with a DELETE leads to the cycle.
    fn find_units(&mut self) {
        let count = self.predecessors.len();
        let mut successors = vec![Vec::new(); count];
        for (number, predecessors) in self.predecessors.iter().enumerate() {
            predecessors.iter().for_each(|predecessor| successors[*predecessor].push(number));
        }
        self.units = vec![BTreeSet::new(); count];
        let first: Vec<usize> = (0..count).filter(|number| self.has_own_delete(*number)).collect();
        for start in first.into_iter().chain(0..count) {
            if !self.units[start].is_empty() {
                continue;
            }
            self.set_deleter(start, Deleter::Client, Vec::new());
            let mut reached = vec![start];
            while let Some(number) = reached.pop() {
                if self.units[number].insert(start) {
                    reached.extend(&successors[number]);
                }
            }
        }
    }
}
