//! Random graphs, and the orders that people expect.

use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;
use crate::graph::{
    DeletionRequest, EdgeQualifier, Edges, ObjectPhase, Propagation, RelationId, Strength,
    UnresolvedUse, fates,
};
use crate::objects::{Kinds, Object};

/// The kinds of random objects: rest, claim, workload, Pod, custom resource.
const KINDS: &[(&str, &str)] = &[
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("apps", "Deployment"),
    ("", "Pod"),
    ("example.com", "Gizmo"),
];

/// A random object. Owners and used objects are positions in the list of objects.
#[derive(Debug, Clone)]
struct Random {
    kind: usize,
    namespace: &'static str,
    owners: Vec<usize>,
    uses: Vec<usize>,
}

fn graph_of(all: &[Random]) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::default();
    graph.kinds.learn(Kinds::custom("example.com", "v1", "Gizmo", "gizmos", true));
    let mut ids = Vec::new();
    let mut apply = |graph: &mut Graph, (group, kind): (&str, &str), object: &Value, uses| {
        let kind = graph.kinds.find(group, kind).unwrap();
        let object = Object::deserialize(object).unwrap();
        let edges = Edges { uses, ..Edges::default() };
        graph.apply(kind, &object, ObjectPhase::Active, edges);
        let metadata = &object.metadata;
        ids.push(graph.find(kind, metadata.namespace.as_str(), &metadata.name).unwrap());
    };
    for (place, random) in all.iter().enumerate() {
        let owner = |owner: &usize| {
            let (group, kind) = KINDS[all[*owner].kind];
            let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
            json!({"apiVersion": version, "kind": kind, "name": format!("o{owner}"),
                "uid": uid(*owner)})
        };
        let owners: Vec<Value> = random.owners.iter().map(owner).collect();
        let object = json!({"metadata": {"name": format!("o{place}"), "uid": uid(place),
            "namespace": random.namespace, "ownerReferences": owners}});
        let uses = random.uses.iter().map(|used| UnresolvedUse {
            kind: graph.kinds.find(KINDS[all[*used].kind].0, KINDS[all[*used].kind].1).unwrap(),
            namespace: all[*used].namespace.to_owned(),
            name: format!("o{used}"),
            uid: None,
            strength: Strength::Needs,
            qualifier: EdgeQualifier::None,
            relation: RelationId(0),
            path: "spec".to_owned(),
        });
        let uses = uses.collect();
        apply(&mut graph, KINDS[random.kind], &object, uses);
    }
    for (place, name) in ["a", "b"].into_iter().enumerate() {
        let object = json!({"metadata": {"name": name, "uid": uid(100 + place)}});
        apply(&mut graph, ("", "Namespace"), &object, Vec::new());
    }
    let crd = json!({"metadata": {"name": "gizmos.example.com", "uid": uid(200)}});
    let crd_kind = ("apiextensions.k8s.io", "CustomResourceDefinition");
    apply(&mut graph, crd_kind, &crd, Vec::new());
    (graph, ids)
}

fn uid(place: usize) -> String {
    format!("00000000-0000-4000-8000-{place:012}")
}

fn random_objects() -> impl Strategy<Value = Vec<Random>> {
    let places = || proptest::collection::vec(0_usize..9, 0..3);
    let object = (0..KINDS.len(), proptest::bool::ANY, places(), places());
    proptest::collection::vec(object, 1..9).prop_map(|all| {
        let count = all.len();
        let namespace = |is_first| if is_first { "a" } else { "b" };
        let spaces: Vec<&str> = all.iter().map(|object| namespace(object.1)).collect();
        let object = |(place, (kind, _, owners, uses)): (usize, (_, _, Vec<usize>, Vec<usize>))| {
            let namespace = namespace(spaces[place] == "a");
            let can_own = |owner: &usize| *owner < count && spaces[*owner] == namespace;
            Random {
                kind,
                namespace,
                owners: owners.into_iter().filter(can_own).collect(),
                uses: uses.into_iter().filter(|used| *used < count).collect(),
            }
        };
        all.into_iter().enumerate().map(object).collect()
    })
}

/// The wave of each object.
fn wave_of(waves: &Waves) -> BTreeMap<NodeId, usize> {
    let numbered = waves.waves.iter().enumerate();
    numbered.flat_map(|(wave, all)| all.iter().map(move |object| (object.id, wave))).collect()
}

fn plan(graph: &Graph, deleted: &[NodeId], targets: &NumberSet<NodeId>) -> Waves {
    let kube_node_of_pod = NumberMap::default();
    waves(
        graph,
        &DeletionToOrder { deleted, targets, orphans: false, kube_node_of_pod: &kube_node_of_pod },
    )
}

/// Checks the rules of an order.
fn check(
    graph: &Graph,
    deleted: &[NodeId],
    targets: &NumberSet<NodeId>,
) -> Result<(), TestCaseError> {
    let planned = plan(graph, deleted, targets);
    let wave = wave_of(&planned);
    let count: usize = planned.waves.iter().map(Vec::len).sum();
    let expected: BTreeSet<NodeId> = deleted.iter().copied().collect();
    prop_assert_eq!(count, expected.len(), "each object is in one wave");
    prop_assert_eq!(&wave.keys().copied().collect::<BTreeSet<_>>(), &expected);
    prop_assert!(planned.waves.iter().all(|wave| !wave.is_empty()));

    let objects = Objects::new(graph, deleted);
    let kube_node_of_pod = NumberMap::default();
    let deletion =
        DeletionToOrder { deleted, targets, orphans: false, kube_node_of_pod: &kube_node_of_pod };
    let predecessors = Predecessors::new(&objects, &deletion);
    let units = |id: NodeId| -> BTreeSet<NodeId> {
        let units = predecessors.units(objects.number(id).unwrap());
        units.iter().map(|unit| objects.ids[*unit]).collect()
    };
    let in_one_cycle = |a: NodeId, b: NodeId| {
        let (a, b) = (units(a), units(b));
        let contains = |cycle: &Vec<NodeId>, units: &BTreeSet<NodeId>| {
            units.iter().any(|unit| cycle.contains(unit))
        };
        planned.cycles.iter().any(|cycle| contains(cycle, &a) && contains(cycle, &b))
    };
    let is_first = |first: NodeId, second: NodeId| {
        let apart = units(first).is_disjoint(&units(second)) && !in_one_cycle(first, second);
        if apart { wave[&first] < wave[&second] } else { wave[&first] <= wave[&second] }
    };
    for used in &objects.ids {
        for user in graph.users(*used).map(|user| user.node.id()).filter(|id| wave.contains_key(id))
        {
            prop_assert!(is_first(user, *used), "{user:?} uses {used:?} in {planned:?}");
        }
        let number = objects.number(*used).unwrap();
        for container in [objects.namespace(number), objects.crd(number)].into_iter().flatten() {
            let container = objects.ids[container];
            prop_assert!(is_first(*used, container), "{used:?} in {container:?}: {planned:?}");
        }
    }
    for cycle in &planned.cycles {
        prop_assert!(cycle.len() > 1);
        let waves: BTreeSet<usize> = cycle.iter().map(|id| wave[id]).collect();
        prop_assert_eq!(waves.len(), 1, "a cycle is in one wave: {:?}", planned);
    }
    // Without owners, the members of a cycle use each other.
    let owners = objects.ids.iter().filter_map(|id| graph.get(*id));
    let mut owners = owners.flat_map(|node| node.owner_edges());
    if !owners.any(|owner| wave.contains_key(&owner.to)) {
        for start in planned.cycles.iter().flatten() {
            let mut users = vec![*start];
            let mut next = 0;
            while let Some(used) = users.get(next).copied() {
                next += 1;
                let new = graph.users(used).map(|user| user.node.id());
                let new = new.filter(|id| wave.contains_key(id) && !users[1..].contains(id));
                users.extend(new.collect::<Vec<_>>());
            }
            prop_assert!(users[1..].contains(start), "{start:?} is in no cycle: {planned:?}");
        }
    }
    for object in planned.waves.iter().flatten() {
        let node = graph.get(object.id).unwrap();
        let owned = node.owner_edges().iter().any(|owner| wave.contains_key(&owner.to));
        match object.deleter {
            Deleter::GarbageCollector => prop_assert!(owned, "{node:?}", node = object.id),
            Deleter::NamespaceController => {
                prop_assert!(wave.contains_key(&node.namespace_node().unwrap()));
            }
            Deleter::Client => {}
            Deleter::PodGarbageCollector => prop_assert!(false, "there are no Nodes"),
        }
    }
    let mut reversed = deleted.to_vec();
    reversed.reverse();
    prop_assert_eq!(plan(graph, &reversed, targets), planned, "the order is stable");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn users_are_never_later_than_what_they_use(
        objects in random_objects(),
        chosen in proptest::collection::vec(proptest::bool::ANY, 12),
    ) {
        let (graph, ids) = graph_of(&objects);
        let chosen: Vec<NodeId> =
            ids.iter().zip(chosen).filter(|(_, is_chosen)| *is_chosen).map(|(id, _)| *id).collect();
        // Any set of objects has an order.
        check(&graph, &chosen, &NumberSet::default())?;
        // The objects that a deletion of these targets deletes have an order as well.
        let targets: Vec<_> = chosen.iter().map(|id| (*id, Propagation::Background)).collect();
        let fates = fates(&graph, &DeletionRequest::new(&targets));
        let deleted: Vec<NodeId> =
            fates.iter().map(|(id, _)| id).filter(|id| fates.may_be_lost(*id)).collect();
        check(&graph, &deleted, &chosen.into_iter().collect())?;
    }
}

/// The waves of all objects, as names, and the number of cycles.
fn wave_names(objects: &[Random]) -> (Vec<String>, usize) {
    let (graph, ids) = graph_of(objects);
    names_of(&graph, &plan(&graph, &ids, &NumberSet::default()))
}

fn names_of(graph: &Graph, planned: &Waves) -> (Vec<String>, usize) {
    let name = |object: &WaveObject| {
        let mark = match object.deleter {
            Deleter::Client => "",
            Deleter::GarbageCollector => "+",
            Deleter::NamespaceController => "*",
            Deleter::PodGarbageCollector => "?",
        };
        format!("{mark}{}", graph.coordinates(object.id).2)
    };
    let line = |wave: &Vec<WaveObject>| wave.iter().map(name).collect::<Vec<_>>().join(" ");
    (planned.waves.iter().map(line).collect(), planned.cycles.len())
}

fn object(kind: usize, owners: &[usize], uses: &[usize]) -> Random {
    Random { kind, namespace: "a", owners: owners.to_vec(), uses: uses.to_vec() }
}

#[test]
fn a_namespace_is_deleted_after_its_workloads_and_with_its_other_content() {
    // A ConfigMap and a claim, a Deployment, its Pod that uses them, and a custom resource.
    let objects = [
        object(0, &[], &[]),
        object(1, &[], &[]),
        object(2, &[], &[]),
        object(3, &[2], &[0, 1]),
        object(4, &[], &[]),
    ];
    let (waves, cycles) = wave_names(&objects);
    assert_eq!(waves, ["o4", "+o3 o2", "*o0 a b *o1 gizmos.example.com"]);
    assert_eq!(cycles, 0);
}

#[test]
fn content_that_uses_a_workload_is_deleted_before_it() {
    let objects = [object(2, &[], &[]), object(0, &[], &[0]), object(0, &[], &[1])];
    // The Deployment o0 is used by o1, which is used by o2.
    assert_eq!(wave_names(&objects).0, ["o2", "o1", "o0", "a b gizmos.example.com"]);
}

#[test]
fn objects_that_use_each_other_share_a_wave_and_are_reported() {
    let objects = [object(0, &[], &[1]), object(2, &[], &[0]), object(1, &[], &[1])];
    let (graph, mut ids) = graph_of(&objects);
    ids.retain(|id| !graph.coordinates(*id).1.is_empty());
    let (waves, cycles) = names_of(&graph, &plan(&graph, &ids, &NumberSet::default()));
    assert_eq!((waves, cycles), (vec!["o2".to_owned(), "o0 o1".to_owned()], 1));
    // o0 uses o2, which uses o1, which uses o0: after o0, o2 has no user.
    let ring = [object(0, &[], &[2]), object(0, &[], &[0]), object(0, &[], &[1])];
    let (graph, mut ids) = graph_of(&ring);
    ids.retain(|id| !graph.coordinates(*id).1.is_empty());
    let cycles = plan(&graph, &ids, &NumberSet::default()).cycles;
    assert_eq!(cycles, [[ids[0], ids[2], ids[1]]]);
    // The Pod o3 uses its owner o2. Its other owner, o0, also owns the claim o1 that the Pod uses.
    // The namespace controller deletes the Pod first.
    let owned = [
        object(2, &[], &[]),
        object(1, &[0], &[]),
        object(0, &[], &[]),
        object(3, &[0, 2], &[1, 2]),
    ];
    let (waves, cycles) = wave_names(&owned);
    assert_eq!((waves, cycles), (vec!["*o2 a b +o1 +o3 gizmos.example.com *o0".to_owned()], 0));
    // A Pod uses its two owners. As a target, it gets a DELETE of its own, and comes first.
    let used = [object(0, &[], &[]), object(0, &[], &[]), object(3, &[0, 1], &[0, 1])];
    let (graph, mut ids) = graph_of(&used);
    ids.retain(|id| !graph.coordinates(*id).1.is_empty());
    let (waves, cycles) = names_of(&graph, &plan(&graph, &ids, &NumberSet::default()));
    assert_eq!((waves, cycles), (vec!["o0 o1 +o2".to_owned()], 1));
    let targets = ids.iter().copied().collect();
    let (waves, cycles) = names_of(&graph, &plan(&graph, &ids, &targets));
    assert_eq!((waves, cycles), (vec!["o2".to_owned(), "o0 o1".to_owned()], 0));
    // Owners in a cycle: the first one gets a DELETE.
    let owners = [object(2, &[1], &[]), object(2, &[0], &[])];
    assert_eq!(wave_names(&owners).0[0], "o0 +o1");
}
