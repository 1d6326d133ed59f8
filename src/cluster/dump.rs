//! The content of the graph as text, to compare it with the API server. It is off unless
//! `--debug-graph` is set, because not every client that can reach the probes may read the
//! names of objects.

use std::fmt::Write as _;

use super::feed::resource;
use super::world::{SharedWorld, World};
use crate::objects::KindId;

/// Prints one line for each kind that is complete or has objects in the graph, and one line for
/// each object. Tabs separate the columns:
///
/// ```text
/// kind    configmaps  complete
/// object  configmaps  shop  settings  <uid>  live  belay.dev/hold  <owners' uids>
/// ```
///
/// Each kind is consistent. The lock is released between kinds, so that verdicts do not wait for a
/// graph of a million objects.
pub fn dump(world: &SharedWorld) -> String {
    let mut kinds: Vec<(String, KindId)> = {
        let world = world.read();
        world.graph.kinds.iter().map(|(kind, _)| (resource(&world, kind), kind)).collect()
    };
    kinds.sort();
    let mut text = String::new();
    for (name, kind) in kinds {
        dump_kind(&world.read(), &name, kind, &mut text);
    }
    text
}

fn dump_kind(world: &World, name: &str, kind: KindId, text: &mut String) {
    let graph = &world.graph;
    let complete = graph.is_complete(kind);
    let mut nodes: Vec<_> = graph.objects_of_kind(kind).filter_map(|id| graph.get(id)).collect();
    if nodes.is_empty() && !complete {
        return;
    }
    nodes.sort_unstable_by_key(|node| (node.namespace(), node.name()));
    let state = if complete { "complete" } else { "partial" };
    // Writing to a String does not fail.
    let _ = writeln!(text, "kind\t{name}\t{state}");
    for node in nodes {
        let state = if node.is_terminating() { "terminating" } else { "live" };
        let finalizers: Vec<&str> = node.finalizers().iter().collect();
        let owners: Vec<String> = node.owner_uids().map(|uid| uid.to_string()).collect();
        let _ = writeln!(
            text,
            "object\t{name}\t{}\t{}\t{}\t{state}\t{}\t{}",
            node.namespace(),
            node.name(),
            node.uid(),
            finalizers.join(","),
            owners.join(","),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::world::store;

    #[test]
    fn lists_objects_after_their_kind() {
        let shared = SharedWorld::default();
        {
            let mut world = shared.write();
            let World { graph, catalogue, .. } = &mut *world;
            let kind = graph.kinds.find_resource("", "configmaps").unwrap();
            let object = json!({"metadata": {"name": "settings", "namespace": "shop",
                "uid": "8f14e45f-ceea-467f-a0e6-0123456789ab",
                "finalizers": ["belay.dev/hold", "example.com/x"],
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "parent",
                    "uid": "8f14e45f-ceea-467f-a0e6-0123456789ff"}]}});
            store(graph, catalogue, kind, &object.to_string(), None).unwrap();
            let secrets = graph.kinds.find_resource("", "secrets").unwrap();
            graph.set_complete(secrets, true);
        }
        let text = dump(&shared);
        assert_eq!(
            text,
            "kind\tconfigmaps\tpartial\n\
             object\tconfigmaps\tshop\tsettings\t8f14e45f-ceea-467f-a0e6-0123456789ab\tterminating\t\
             belay.dev/hold,example.com/x\t8f14e45f-ceea-467f-a0e6-0123456789ff\n\
             kind\tsecrets\tcomplete\n"
        );
    }
}
