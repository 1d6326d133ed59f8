//! belay's real [`check_use_with`], run on manifests.

use std::collections::HashSet;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::decide::{LiveRead, LiveReads, ObjectSource, Situation};
use crate::graph::{Graph, Strength};
use crate::hold::count::check_use_with;
use crate::hold::exceptions::UserException;
use crate::hold::{UseCheck, without_hold};
use crate::objects::{KindId, Kinds, ObjectRef, split_api_version};
use crate::policy::{Policy, PolicySet};
use crate::relations::{Catalogue, CustomRelation, CustomTarget, Path};

/// 2026-01-01T12:00:00Z, when the target is deleted.
pub(super) const DELETED: i64 = 1_767_268_800;

/// A policy that protects all targets while they are used, with the rest of the input.
struct World {
    catalogue: Catalogue,
    policies: PolicySet,
    /// A graph with only the Namespace.
    graph: Graph,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let kinds = kinds();
        let catalogue = Catalogue::new(&kinds, &relations()).unwrap();
        let spec = json!({
            "targets": [{
                "apiGroups": ["", "example.com"],
                "resources": ["secrets", "services", "persistentvolumeclaims", "persistentvolumes", "parts"],
            }],
            "protect": {"whileUsed": {}}, "settleSeconds": 45,
        });
        let policy = Policy::compile("in-use", &serde_json::from_value(spec).unwrap()).unwrap();
        let policies = PolicySet::new(vec![policy], &catalogue);
        let mut graph = Graph::new(kinds);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "a"}});
        feed(&catalogue, &mut graph, &namespace);
        World { catalogue, policies, graph }
    })
}

/// The built-in kinds, and two custom kinds.
fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    for (kind, resource) in [("Database", "databases"), ("Part", "parts")] {
        kinds.learn(Kinds::custom("example.com", "v1", kind, resource, true));
    }
    kinds
}

/// A Database uses a Secret, and a Part uses another Part.
fn relations() -> Vec<CustomRelation> {
    let to = |group: &str, resource: &str| CustomTarget::Name {
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: Path::parse("spec.names").unwrap(),
        namespace: None,
    };
    let from = |resource| ("example.com", resource);
    let needs = Strength::Needs;
    vec![
        CustomRelation::new("db", from("databases"), to("", "secrets"), needs, None).unwrap(),
        CustomRelation::new("part", from("parts"), to("example.com", "parts"), needs, None)
            .unwrap(),
    ]
}

fn feed(catalogue: &Catalogue, graph: &mut Graph, manifest: &Value) -> KindId {
    let (group, _) = split_api_version(manifest["apiVersion"].as_str().unwrap());
    let kind = graph.kinds.find(group, manifest["kind"].as_str().unwrap()).unwrap();
    catalogue.parse_and_apply(graph, kind, &manifest.to_string()).unwrap();
    kind
}

/// The resource of a read.
pub(super) fn resource(read: &LiveRead) -> &str {
    match read {
        LiveRead::Object(ObjectRef { resource, .. }) | LiveRead::List { resource, .. } => resource,
    }
}

/// The result of belay's real count after these reads, which found these objects.
pub(super) fn check_use(
    target: &Value,
    objects: &[Value],
    reads_done: &HashSet<LiveRead>,
    exceptions: &[UserException],
) -> UseCheck {
    let world = world();
    let results = reads_done.iter().map(|read| (read.clone(), Ok(()))).collect();
    let mut reads = LiveReads { graph: Graph::new(kinds()), results };
    for read in reads_done {
        let group = match read {
            LiveRead::Object(ObjectRef { group, .. }) | LiveRead::List { group, .. } => group,
        };
        let kind = reads.graph.kinds.find_resource(group, resource(read)).unwrap();
        reads.graph.set_complete(kind, true);
    }
    for manifest in objects {
        feed(&world.catalogue, &mut reads.graph, manifest);
    }
    // The target comes last, because a list may contain it with its hold.
    let kind = feed(&world.catalogue, &mut reads.graph, &without_hold(target));
    let metadata = &target["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let target = reads.graph.find(kind, namespace, metadata["name"].as_str().unwrap()).unwrap();
    let situation =
        Situation::new(&world.graph, &world.policies, ObjectSource::Cluster(&reads), DELETED + 60);
    check_use_with(&situation, &reads, target, exceptions)
}

/// A time as the API server writes it, in seconds from [`DELETED`].
pub(super) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(DELETED + seconds).unwrap().to_string()
}
