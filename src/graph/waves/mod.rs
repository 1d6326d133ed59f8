//! The order of a deletion, as waves of objects. A client sends the DELETEs of one wave, and
//! waits until all objects of the wave are deleted.
//!
//! ```text
//!  deleted objects ─► predecessors: who deletes each ─► units ─► cycles ─► waves
//!                     (a client, or a controller        one DELETE each
//!                      after its predecessors)
//! ```
//!
//! An object with a predecessor gets no DELETE from the client: a controller deletes it after its
//! predecessor. All objects that follow one DELETE form a unit. The code identifies a unit by the
//! object of this DELETE. A unit is in a later wave than the units that use one of its objects. A
//! unit with a Namespace or CRD is in a later wave than the content of that Namespace or CRD. Units
//! that use each other form a cycle, and share a wave. A client sends their DELETEs one by one.
//! Exception: the namespace controller deletes the objects of a cycle, if their Namespace is
//! deleted too and an order exists in which users come first.

mod cycles;
mod predecessors;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::cycles::components;
use self::predecessors::Predecessors;
use super::{Graph, NodeId};
use crate::objects::{KindInfo, Kinds, NumberMap, NumberSet};

/// A deletion to order.
#[derive(Debug, Clone, Copy)]
pub struct DeletionToOrder<'p> {
    /// The objects that are deleted, in any order.
    pub deleted: &'p [NodeId],
    /// The objects that the user selected.
    pub targets: &'p NumberSet<NodeId>,
    /// Whether the dependents of the targets lose their owner and stay.
    pub orphans: bool,
    /// The Pods that the pod garbage collector deletes, each with its Kubernetes Node.
    pub kube_node_of_pod: &'p NumberMap<NodeId, NodeId>,
}

/// Who deletes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleter {
    /// The client, with a DELETE.
    Client,
    /// The garbage collector, after its owners.
    GarbageCollector,
    /// The namespace controller, after the DELETE of its Namespace.
    NamespaceController,
    /// The pod garbage collector, after its Node.
    PodGarbageCollector,
}

/// A deleted object in a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaveObject {
    /// The object.
    pub id: NodeId,
    /// Who deletes it.
    pub deleter: Deleter,
}

/// The order of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waves {
    /// The waves. Each object is in one of them.
    pub waves: Vec<Vec<WaveObject>>,
    /// The objects with a DELETE that use each other, also through objects that follow them. In
    /// each list, users come first where possible. So if a client waits for each deletion before
    /// the next DELETE, most of these DELETEs find no remaining users.
    pub cycles: Vec<Vec<NodeId>>,
}

/// The position of a kind in the order, for objects that do not use each other. A controller
/// removes the finalizers of custom resources, so custom resources come before all workloads. A
/// webhook without its workload fails the requests of later waves, so webhooks come before
/// workloads as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    CustomResource,
    Webhook,
    Workload,
    Other,
}

impl Rank {
    fn of_kind(KindInfo { group, resource, .. }: &KindInfo) -> Self {
        match (group.as_str(), resource.as_str()) {
            ("apiregistration.k8s.io", "apiservices")
            | (
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
            ) => Self::Webhook,
            ("apps" | "batch", _) | ("", "pods" | "replicationcontrollers") => Self::Workload,
            (group, _) if !Kinds::is_built_in_group(group) => Self::CustomResource,
            _ => Self::Other,
        }
    }
}

/// The deleted objects. Numbers are their positions in `ids`.
struct Objects<'g> {
    graph: &'g Graph,
    /// Sorted by kind, namespace and name, so that the order does not depend on the reads.
    ids: Vec<NodeId>,
    numbers: NumberMap<NodeId, usize>,
    /// The user and the used object of each edge between deleted objects.
    uses: Vec<(usize, usize)>,
}

impl<'g> Objects<'g> {
    fn new(graph: &'g Graph, deleted: &[NodeId]) -> Self {
        let mut ids: Vec<NodeId> =
            deleted.iter().copied().filter(|id| graph.get(*id).is_some()).collect();
        ids.sort_by_cached_key(|id| graph.name_key(*id));
        ids.dedup();
        let numbers = ids.iter().enumerate().map(|(number, id)| (*id, number)).collect();
        let mut objects = Self { graph, ids, numbers, uses: Vec::new() };
        for (used, id) in objects.ids.iter().enumerate() {
            let users = graph.users(*id).filter(|user| user.needs()).map(|user| user.node);
            let users = users.chain(graph.pods_keeping(*id));
            let users = users.filter_map(|user| objects.number(user.id()));
            let uses: Vec<_> =
                users.filter(|user| *user != used).map(|user| (user, used)).collect();
            objects.uses.extend(uses);
        }
        objects
    }

    fn number(&self, id: NodeId) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    fn namespace(&self, number: usize) -> Option<usize> {
        self.graph.get(self.ids[number])?.namespace_node().and_then(|id| self.number(id))
    }

    /// The CRD of a custom resource.
    fn crd(&self, number: usize) -> Option<usize> {
        let crd = self.graph.crd_of(self.graph.coordinates(self.ids[number]).0)?;
        self.number(crd.id())
    }

    fn info(&self, number: usize) -> &'g KindInfo {
        self.graph.kinds.info(self.graph.coordinates(self.ids[number]).0)
    }

    fn rank(&self, number: usize) -> Rank {
        Rank::of_kind(self.info(number))
    }
}

/// Orders a deletion.
pub fn waves(graph: &Graph, deletion: &DeletionToOrder<'_>) -> Waves {
    let objects = Objects::new(graph, deletion.deleted);
    let predecessors = Predecessors::new(&objects, deletion);
    let later = later_units(&objects, &predecessors);
    let components = components(&later);
    let order = Order::new(&objects, &later, &components);
    let wave_of_unit = order.waves(|number| predecessors.has_own_delete(number));
    let mut waves: Vec<Vec<WaveObject>> = Vec::new();
    for (number, id) in objects.ids.iter().enumerate() {
        let units = predecessors.units(number).iter();
        let wave = units.filter_map(|unit| wave_of_unit.get(unit)).max().copied();
        let wave = wave.unwrap_or_default();
        if waves.len() <= wave {
            waves.resize_with(wave + 1, Vec::new);
        }
        waves[wave].push(WaveObject { id: *id, deleter: predecessors.deleter(number) });
    }
    let in_cycle = components.iter().filter(|component| component.len() > 1);
    let cycle = |component: &Vec<usize>| {
        let units = order_in_cycle(component, &later).into_iter();
        units.map(|unit| objects.ids[unit]).collect()
    };
    Waves { waves, cycles: in_cycle.map(cycle).collect() }
}

/// For each unit, the units that must be in a later wave.
fn later_units(objects: &Objects<'_>, predecessors: &Predecessors) -> Vec<BTreeSet<usize>> {
    let mut later = vec![BTreeSet::new(); objects.ids.len()];
    let mut add = |first: usize, second: usize| {
        for earlier in predecessors.units(first) {
            for unit in predecessors.units(second) {
                // Then each object is deleted only after both DELETEs, in any order.
                let units_share_both_objects = predecessors.units(second).contains(earlier)
                    && predecessors.units(first).contains(unit);
                if earlier != unit && !units_share_both_objects {
                    later[*earlier].insert(*unit);
                }
            }
        }
    };
    objects.uses.iter().for_each(|(user, used)| add(*user, *used));
    for number in 0..objects.ids.len() {
        let containers = [objects.namespace(number), objects.crd(number)];
        containers.into_iter().flatten().for_each(|container| add(number, container));
    }
    later
}

/// Orders the units of a cycle. Next comes a unit without remaining users, or the first remaining
/// unit if all have users.
fn order_in_cycle(component: &[usize], later: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut users: BTreeMap<usize, usize> = component.iter().map(|unit| (*unit, 0)).collect();
    for used in component.iter().flat_map(|unit| &later[*unit]) {
        users.entry(*used).and_modify(|count| *count += 1);
    }
    let (mut free, mut order) = (BTreeSet::new(), Vec::new());
    while let Some(next) = free.pop_first().or_else(|| Some(*users.first_key_value()?.0)) {
        users.remove(&next);
        order.push(next);
        for used in &later[next] {
            let Some(count) = users.get_mut(used) else { continue };
            *count -= 1;
            if *count == 0 {
                free.insert(*used);
            }
        }
    }
    order
}

/// The components of units, and their order.
struct Order<'o> {
    components: &'o [Vec<usize>],
    /// For each component, the components that must be in a later wave.
    later: Vec<BTreeSet<usize>>,
    ranks: Vec<Rank>,
}

impl<'o> Order<'o> {
    fn new(objects: &Objects<'_>, later: &[BTreeSet<usize>], components: &'o [Vec<usize>]) -> Self {
        let mut component_of = vec![0; later.len()];
        for (index, component) in components.iter().enumerate() {
            component.iter().for_each(|unit| component_of[*unit] = index);
        }
        let mut later_components = vec![BTreeSet::new(); components.len()];
        for (unit, others) in later.iter().enumerate() {
            let own = component_of[unit];
            let others = others.iter().map(|other| component_of[*other]);
            later_components[own].extend(others.filter(|other| *other != own));
        }
        let rank = |component: &Vec<usize>| {
            component.iter().map(|unit| objects.rank(*unit)).min().unwrap_or(Rank::Other)
        };
        let ranks = components.iter().map(rank).collect();
        Self { components, later: later_components, ranks }
    }

    /// For each component, the number of components that it waits for.
    fn waits(&self) -> Vec<usize> {
        let mut waits = vec![0; self.later.len()];
        self.later.iter().flatten().for_each(|component| waits[*component] += 1);
        waits
    }

    /// For each component, the first rank of itself and all later components.
    fn first_ranks(&self) -> Vec<Rank> {
        let mut waits = self.waits();
        let mut sorted: Vec<usize> = (0..waits.len()).filter(|index| waits[*index] == 0).collect();
        let mut next = 0;
        while let Some(component) = sorted.get(next).copied() {
            next += 1;
            for other in &self.later[component] {
                waits[*other] -= 1;
                if waits[*other] == 0 {
                    sorted.push(*other);
                }
            }
        }
        let mut first_ranks = self.ranks.clone();
        for component in sorted.into_iter().rev() {
            let later = self.later[component].iter().map(|other| first_ranks[*other]);
            let first_later = later.min().unwrap_or(Rank::Other);
            first_ranks[component] = first_later.min(first_ranks[component]);
        }
        first_ranks
    }

    /// The wave of each unit. A component is ready if it waits for no other component. A wave has
    /// the ready components of the first rank. If a component of an earlier rank is not ready, the
    /// wave has only the ready components that block such a component.
    fn waves(&self, has_own_delete: impl Fn(usize) -> bool) -> BTreeMap<usize, usize> {
        let (mut waits, first_ranks) = (self.waits(), self.first_ranks());
        let has_delete = |component: &usize| {
            self.components[*component].iter().any(|unit| has_own_delete(*unit))
        };
        let mut remaining: BTreeSet<usize> = (0..waits.len()).filter(has_delete).collect();
        let (mut wave_of_unit, mut wave) = (BTreeMap::new(), 0);
        while !remaining.is_empty() {
            let ready: Vec<usize> =
                remaining.iter().copied().filter(|component| waits[*component] == 0).collect();
            let first_ready_rank = ready.iter().map(|component| self.ranks[*component]).min();
            let first_remaining_rank =
                remaining.iter().map(|component| self.ranks[*component]).min();
            let next = ready.into_iter().filter(|component| {
                match first_remaining_rank < first_ready_rank {
                    true => Some(first_ranks[*component]) < first_ready_rank,
                    false => Some(self.ranks[*component]) == first_ready_rank,
                }
            });
            for component in next {
                remaining.remove(&component);
                wave_of_unit.extend(self.components[component].iter().map(|unit| (*unit, wave)));
                self.later[component].iter().for_each(|other| waits[*other] -= 1);
            }
            wave += 1;
        }
        wave_of_unit
    }
}
