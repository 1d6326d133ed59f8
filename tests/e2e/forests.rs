//! Random forests of owners that are really deleted: the real garbage collector does what
//! `fates` predicted.
//!
//! `BELAY_FORESTS` sets how many (240 by default), `BELAY_FOREST_SEED` which.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use belay::graph::{
    Certainty, DeletionOutcome, DeletionRequest, Fate, Fates, Graph, NodeId, Propagation, fates,
};
use belay::objects::{KindId, Kinds};
use belay::relations::Catalogue;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::harness::Result;
use crate::harness::random::Random;
use crate::world;

/// Group, version, kind of the objects in forests.
const KINDS: [(&str, &str, &str); 5] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("apps", "v1", "Deployment"),
    ("batch", "v1", "Job"),
    ("forest.example.com", "v1", "Widget"),
];

/// The number of forests that are created, checked and deleted together.
const BATCH: u64 = 120;

/// One tree of a forest.
#[derive(Debug, Clone)]
struct Tree {
    kind: usize,
    name: String,
    /// The trees that own it, by their index in the forest.
    owners: Vec<Owner>,
    finalizers: Vec<&'static str>,
}

#[derive(Debug, Clone)]
struct Owner {
    place: usize,
    blocking: bool,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The right uid under another name.
    WrongName,
    /// The right uid under another kind.
    WrongKind,
    /// A kind that is not served.
    UnknownKind,
}

fn forest(random: &mut Random, number: u64) -> Vec<Tree> {
    let count = 2 + random.below(4);
    (0..count)
        .map(|place| {
            let mut owners: Vec<Owner> = Vec::new();
            for _ in 0..random.below(3) {
                let owner = random.below(count);
                if owner == place || owners.iter().any(|o| o.place == owner) {
                    continue;
                }
                let fault = match random.below(24) {
                    0 => Fault::WrongName,
                    1 => Fault::WrongKind,
                    2 => Fault::UnknownKind,
                    _ => Fault::None,
                };
                owners.push(Owner { place: owner, blocking: random.one_in(2), fault });
            }
            let mut finalizers = Vec::new();
            match random.below(12) {
                0 => finalizers.push("foregroundDeletion"),
                1 => finalizers.push("orphan"),
                _ => {}
            }
            if random.one_in(4) {
                finalizers.push("example.com/other");
            }
            let kind = random.below(KINDS.len());
            Tree { kind, name: format!("f{number}-{place}"), owners, finalizers }
        })
        .collect()
}

fn manifest(tree: &Tree) -> Value {
    let pod = json!({"metadata": {"labels": {"app": tree.name}},
        "spec": {"restartPolicy": if tree.kind == 3 { "Never" } else { "Always" }, "containers": [{"name": "c", "image": "i"}]}});
    let spec = match KINDS[tree.kind].2 {
        // None of them creates further objects.
        "Deployment" => {
            json!({"replicas": 0, "paused": true, "selector": {"matchLabels": {"app": tree.name}}, "template": pod})
        }
        "Job" => json!({"suspend": true, "template": pod}),
        _ => Value::Null,
    };
    let (group, version, kind) = KINDS[tree.kind];
    let api_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": tree.name, "finalizers": tree.finalizers}});
    if !spec.is_null() {
        object["spec"] = spec;
    }
    object
}

fn reference(forest: &[Tree], uids: &[String], owner: &Owner) -> Value {
    let tree = &forest[owner.place];
    let (mut group, version, mut kind) = KINDS[tree.kind];
    let mut name = tree.name.clone();
    match owner.fault {
        Fault::None => {}
        Fault::WrongName => name.push_str("-wrong"),
        Fault::WrongKind if kind == "ConfigMap" => kind = "Secret",
        Fault::WrongKind => (group, kind) = ("", "ConfigMap"),
        Fault::UnknownKind => (group, kind) = ("nobody.example.com", "Nothing"),
    }
    let api_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    // An object of a kind that is not served has an invented uid.
    let uid = match owner.fault {
        Fault::UnknownKind => format!("00000000-0000-4000-8000-{:012}", owner.place),
        _ => uids[owner.place].clone(),
    };
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": owner.blocking})
}

/// The API of one kind in a namespace.
fn api(client: &kube::Client, namespace: &str, kind: usize) -> Api<DynamicObject> {
    let (group, version, kind) = KINDS[kind];
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Everything in a namespace, by name, as it is stored now.
async fn look(client: &kube::Client, namespace: &str) -> Result<HashMap<String, (usize, Value)>> {
    let mut all = HashMap::new();
    for kind in 0..KINDS.len() {
        for object in api(client, namespace, kind).list(&ListParams::default()).await? {
            let name = object.metadata.name.clone().unwrap_or_default();
            if name.starts_with('f') {
                all.insert(name, (kind, serde_json::to_value(&object)?));
            }
        }
    }
    Ok(all)
}

/// Waits until nothing has changed for a while. The garbage collector works within
/// milliseconds of an event; after three seconds without a change it has finished.
async fn settle(client: &kube::Client, namespace: &str) -> Result<HashMap<String, (usize, Value)>> {
    const QUIET: Duration = Duration::from_secs(3);
    let start = Instant::now();
    let mut last = look(client, namespace).await?;
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        if start.elapsed() > Duration::from_secs(120) {
            return Err("the forest does not come to rest".into());
        }
        crate::harness::pause_async(Duration::from_millis(200)).await;
        let now = look(client, namespace).await?;
        if now != last {
            last = now;
            since = Instant::now();
        }
    }
    Ok(last)
}

/// The graph of the stored objects.
fn graph_of(stored: &HashMap<String, (usize, Value)>) -> Result<(Graph, Vec<KindId>)> {
    let mut kinds = Kinds::default();
    kinds.learn(Kinds::custom("forest.example.com", "v1", "Widget", "widgets", true));
    let catalogue = Catalogue::new(&kinds, &[])?;
    let mut graph = Graph::new(kinds);
    let ids = KINDS.map(|(group, _, kind)| graph.kinds.find(group, kind));
    let ids = ids.into_iter().collect::<Option<Vec<_>>>().ok_or("a kind is unknown")?;
    for id in &ids {
        graph.set_complete(*id, true);
    }
    for (kind, object) in stored.values() {
        catalogue.parse_and_apply(&mut graph, ids[*kind], &object.to_string())?;
    }
    Ok((graph, ids))
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn owners(object: &Value) -> usize {
    object["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len)
}

/// Creates a batch of forests and waits until the garbage collector has finished.
async fn grow(client: &kube::Client, namespace: &str, forests: &[Vec<Tree>]) -> Result<()> {
    for forest in forests {
        let mut uids = Vec::new();
        for tree in forest {
            let object: DynamicObject = serde_json::from_value(manifest(tree))?;
            let stored =
                api(client, namespace, tree.kind).create(&PostParams::default(), &object).await?;
            uids.push(stored.metadata.uid.unwrap_or_default());
        }
        for tree in forest.iter().filter(|tree| !tree.owners.is_empty()) {
            let references: Vec<_> =
                tree.owners.iter().map(|owner| reference(forest, &uids, owner)).collect();
            let patch = json!({"metadata": {"ownerReferences": references}});
            let params = PatchParams::default();
            let result = api(client, namespace, tree.kind)
                .patch(&tree.name, &params, &Patch::Merge(&patch))
                .await;
            match result {
                // A tree with an invalid owner and its dependents may be deleted by now.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 422 => {}
                result => drop(result?),
            }
        }
    }
    Ok(())
}

/// Deletes some trees of each forest, and compares the result with the prediction.
async fn delete_trees(
    client: &kube::Client,
    namespace: &str,
    forests: &[Vec<Tree>],
    random: &mut Random,
    seed: u64,
) -> Result<usize> {
    let before = settle(client, namespace).await?;
    let (graph, ids) = graph_of(&before)?;
    let mut predictions: Vec<(&Vec<Tree>, String, Fates)> = Vec::new();
    for forest in forests {
        let mut targets: Vec<(NodeId, Propagation)> = Vec::new();
        let mut requests = Vec::new();
        for tree in forest.iter().filter(|tree| before.contains_key(&tree.name)) {
            if !random.one_in(3) || targets.len() == 2 {
                continue;
            }
            let policy = match random.below(4) {
                0 => None,
                1 => Some(Propagation::Background),
                2 => Some(Propagation::Foreground),
                _ => Some(Propagation::Orphan),
            };
            let node =
                graph.find(ids[tree.kind], namespace, &tree.name).and_then(|id| graph.get(id));
            let node = node.ok_or("a stored object is not in the graph")?;
            targets.push((node.id(), Propagation::of_node_delete(node, policy)));
            requests.push((tree, policy));
        }
        let said = requests.iter().map(|(t, p)| format!("{} {p:?}", t.name)).collect::<Vec<_>>();
        predictions.push((forest, said.join(", "), fates(&graph, &DeletionRequest::new(&targets))));
        for (tree, policy) in requests {
            let params = DeleteParams {
                propagation_policy: policy.map(|policy| match policy {
                    Propagation::Background => kube::api::PropagationPolicy::Background,
                    Propagation::Foreground => kube::api::PropagationPolicy::Foreground,
                    Propagation::Orphan => kube::api::PropagationPolicy::Orphan,
                }),
                ..DeleteParams::default()
            };
            match api(client, namespace, tree.kind).delete(&tree.name, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => drop(result?),
            }
        }
    }
    let after = settle(client, namespace).await?;
    let mut compared = 0;
    for (forest, said, fates) in &predictions {
        for tree in *forest {
            let Some((_, old)) = before.get(&tree.name) else { continue };
            let id = graph.find(ids[tree.kind], namespace, &tree.name).ok_or("no node")?;
            let fate = fates.get(id);
            let new = after.get(&tree.name).map(|(_, object)| object);
            if let Err(why) = check_fate(fate, old, new) {
                return Err(format!(
                    "seed {seed}: {} {why}\nfate {fate:?}\ndeleted {said}\nforest {forest:#?}\nbefore {}\nafter {}",
                    tree.name,
                    old["metadata"],
                    new.map_or(&Value::Null, |object| &object["metadata"])
                )
                .into());
            }
            compared += 1;
        }
    }
    Ok(compared)
}

/// Certain objects are deleted, Possible ones may be, and objects without a fate stay.
fn check_fate(
    fate: Option<Fate>,
    old: &Value,
    new: Option<&Value>,
) -> std::result::Result<(), &'static str> {
    let gone = new.is_none();
    let was_terminating = is_terminating(old);
    let newly_terminating = new.is_some_and(is_terminating) && !was_terminating;
    let certain = |fate: &Fate| fate.certainty == Certainty::Certain;
    let is = |right: bool, wrong: &'static str| if right { Ok(()) } else { Err(wrong) };
    match fate {
        None => is(!newly_terminating && (!gone || was_terminating), "went, with no fate"),
        Some(f) if f.outcome == DeletionOutcome::Deleted && certain(&f) => is(gone, "stayed"),
        Some(f) if f.outcome == DeletionOutcome::Terminating && certain(&f) => {
            is(new.is_some_and(is_terminating), "is not held")
        }
        Some(f) if f.outcome == DeletionOutcome::Orphaned && certain(&f) => {
            let lost = new.is_some_and(|new| owners(new) < owners(old));
            is(!gone && !newly_terminating && lost, "was not orphaned")
        }
        Some(f) if f.outcome == DeletionOutcome::Orphaned => is(
            !newly_terminating && (!gone || was_terminating),
            "went, and was to lose an owner at the most",
        ),
        Some(_) => Ok(()),
    }
}

#[tokio::test]
async fn the_real_collector_does_what_fates_say() {
    let plane = &world().plane;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("BELAY_FOREST_SEED").unwrap_or(1);
    let count = number("BELAY_FORESTS").unwrap_or(240);
    println!("BELAY_FOREST_SEED={seed} BELAY_FORESTS={count}");
    let mut random = Random::new(seed, 0);
    plane
        .apply(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.forest.example.com}\n\
             spec:\n  group: forest.example.com\n  scope: Namespaced\n  names: {plural: widgets, kind: Widget}\n  \
             versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]\n",
        )
        .unwrap();
    let client = plane.client().await.unwrap();
    wait_for_the_collector(&client).await.unwrap();

    let mut compared = 0;
    for batch in 0..count.div_ceil(BATCH) {
        let namespace = plane.namespace("forest").unwrap();
        let forests: Vec<_> = (0..BATCH.min(count - batch * BATCH))
            .map(|n| forest(&mut random, batch * BATCH + n))
            .collect();
        grow(&client, &namespace, &forests).await.unwrap();
        // The remaining objects are Terminating and wait. The second deletion repeats
        // DELETEs with another propagation policy.
        for _ in 0..2 {
            compared +=
                delete_trees(&client, &namespace, &forests, &mut random, seed).await.unwrap();
        }
    }
    println!("{compared} objects did what was said");
    assert!(compared > count as usize, "too little was left to compare");
}

/// The garbage collector discovers a new kind within half a minute.
async fn wait_for_the_collector(client: &kube::Client) -> Result<()> {
    let widgets = api(client, "default", 4);
    let deadline = Instant::now() + Duration::from_secs(120);
    let owner = loop {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "forest.example.com/v1", "kind": "Widget", "metadata": {"name": "probe-owner"}}))?;
        match widgets.create(&PostParams::default(), &object).await {
            Ok(stored) => break stored,
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => crate::harness::pause_async(Duration::from_millis(100)).await,
        }
    };
    let dependent: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "forest.example.com/v1", "kind": "Widget",
        "metadata": {"name": "probe-dependent", "ownerReferences": [{
            "apiVersion": "forest.example.com/v1", "kind": "Widget", "name": "probe-owner",
            "uid": owner.metadata.uid}]}}))?;
    widgets.create(&PostParams::default(), &dependent).await?;
    widgets.delete("probe-owner", &DeleteParams::background()).await?;
    loop {
        match widgets.get_opt("probe-dependent").await? {
            None => return Ok(()),
            Some(_) if Instant::now() > deadline => {
                return Err("the collector never heard of Widgets".into());
            }
            Some(_) => crate::harness::pause_async(Duration::from_millis(200)).await,
        }
    }
}
