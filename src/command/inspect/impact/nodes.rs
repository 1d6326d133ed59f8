//! The effects of the deletion of Nodes: the pod garbage collector deletes their Pods, and
//! volumes that only they can use are stranded.

use crate::command::inspect::inspection::Inspection;
use crate::graph::{Node, NodeId, ObjectPhase};
use crate::objects::{KindId, NumberMap};

/// A volume that no remaining Node can use.
pub struct StrandedVolume {
    /// The volume.
    pub volume: NodeId,
    /// A deleted Node that can use the volume.
    pub node: NodeId,
    /// Whether all Nodes of the cluster were read.
    pub certain: bool,
}

fn node_kind(inspection: &Inspection) -> Option<KindId> {
    inspection.graph.kinds.find("", "Node")
}

/// The targets that are Nodes.
fn node_targets(inspection: &Inspection) -> Vec<NodeId> {
    let Inspection { graph, targets, .. } = inspection;
    let Some(kind) = node_kind(inspection) else { return Vec::new() };
    let is_node = |id: &NodeId| graph.get(*id).is_some_and(|node| node.kind() == kind);
    targets.iter().copied().filter(is_node).collect()
}

/// The Pods on the Nodes among the targets, each with its Node.
pub fn pods_on_nodes(inspection: &Inspection) -> NumberMap<NodeId, NodeId> {
    let graph = &inspection.graph;
    let Some(pods) = graph.kinds.find("", "Pod") else { return NumberMap::default() };
    let mut on_nodes = NumberMap::default();
    for node in node_targets(inspection) {
        let users = graph.users(node).map(|user| user.node);
        on_nodes.extend(users.filter(|user| user.kind() == pods).map(|pod| (pod.id(), node)));
    }
    on_nodes
}

/// Whether the Nodes among the targets are those of all running Pods of belay.
pub fn have_all_pods_of_belay(inspection: &Inspection) -> bool {
    let Inspection { graph, installation, .. } = inspection;
    let on_nodes = pods_on_nodes(inspection);
    let Some(pods) = graph.kinds.find("", "Pod").filter(|_| !on_nodes.is_empty()) else {
        return false;
    };
    let is_of_belay = |pod: &Node<'_>| {
        let owner = pod.topmost_owner();
        pod.namespace() == installation.namespace
            && owner.name() == installation.name
            && owner.info().group_resource() == ("apps", "deployments")
    };
    let all = graph.objects_of_kind(pods).filter_map(|id| graph.get(id));
    let is_running = |pod: &Node<'_>| pod.phase() == ObjectPhase::Active && !pod.is_terminating();
    let mut own = all.filter(|pod| is_running(pod) && is_of_belay(pod)).peekable();
    inspection.has_read(pods, &installation.namespace)
        && own.peek().is_some()
        && own.all(|pod| on_nodes.contains_key(&pod.id()))
}

/// The volumes whose node affinity allows a Node among the targets and no other Node.
pub fn stranded_volumes(inspection: &Inspection) -> Vec<StrandedVolume> {
    let Inspection { graph, backing, caller, .. } = inspection;
    let targets = node_targets(inspection);
    let (Some(kind), Some(volumes)) =
        (node_kind(inspection), graph.kinds.find("", "PersistentVolume"))
    else {
        return Vec::new();
    };
    if targets.is_empty() {
        return Vec::new();
    }
    // Without a cluster, a Node that no file contains does not exist.
    let certain = caller.is_none() || graph.is_complete(kind);
    let nodes: Vec<NodeId> = graph.objects_of_kind(kind).collect();
    let mut stranded = Vec::new();
    for (name, volume) in &backing.volumes {
        let (Some(affinity), Some(object)) = (&volume.affinity, graph.object(volumes, "", name))
        else {
            continue;
        };
        let allows = |id: &NodeId| {
            let node = graph.get(*id).filter(|node| !node.is_terminating());
            node.is_some_and(|node| affinity.allows(node.name(), |key| node.labels().get(key)))
        };
        let mut allowed = nodes.iter().copied().filter(allows).peekable();
        let first = allowed.peek().copied();
        if let Some(node) = first.filter(|_| allowed.all(|node| targets.contains(&node))) {
            stranded.push(StrandedVolume { volume: object.id(), node, certain });
        }
    }
    stranded.sort_by_cached_key(|stranded| graph.name_key(stranded.volume));
    stranded
}
