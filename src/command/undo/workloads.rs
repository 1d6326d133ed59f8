//! The workloads that an undo stops.

use super::kinds::is_scalable;
use super::manifest::OLD_REPLICAS;
use super::read::UndoReader;
use super::record::{SavedObject, StoppedWorkload};
use crate::command::CommandError;
use crate::command::document::Object;
use crate::graph::{Node, ObjectPhase};
use crate::objects::CLAIMS;

impl UndoReader<'_> {
    /// The workloads whose Pods use the saved claims, or that create them again, and the other Pods
    /// that use them.
    pub(super) async fn workloads(
        &self,
        objects: &[SavedObject],
        options: &str,
    ) -> Result<(Vec<StoppedWorkload>, Vec<Object>), CommandError> {
        let graph = &self.inspection.graph;
        let (mut workloads, mut pods) = (Vec::<Node<'_>>::new(), Vec::<Node<'_>>::new());
        let is_ending = |node: Node<'_>| {
            let uid = node.uid().to_string();
            objects.iter().any(|one| !one.stays && one.object.uid == uid)
        };
        for claim in objects.iter().filter(|saved| saved.object.is_of(CLAIMS) && !saved.stays) {
            let Some(claim) = self.node(&claim.object) else { continue };
            let users: Vec<Node<'_>> = graph.users(claim.id()).map(|user| user.node).collect();
            let is_user = |node: Node<'_>| users.iter().any(|user| user.id() == node.id());
            for user in users.iter().copied() {
                let is_pod = user.info().group_resource() == ("", "pods");
                let workload = match user.info().resource.as_str() {
                    // No scaling deletes a Pod that has succeeded or failed.
                    "pods" if user.phase() == ObjectPhase::Active => workload_of(user),
                    "pods" | "statefulsets" => user,
                    _ => continue,
                };
                // An editor can write a workload that does not use the claim into owner references.
                if is_scalable(workload.info()) && is_user(workload) && !is_ending(workload) {
                    if workloads.iter().all(|known| known.id() != workload.id()) {
                        workloads.push(workload);
                    }
                } else if is_pod && !user.is_terminating() {
                    pods.push(user);
                }
            }
        }
        // One Pod can use several of the claims.
        pods.sort_by_key(|pod| pod.id());
        pods.dedup_by_key(|pod| pod.id());
        let pods = pods.into_iter().map(|pod| self.object(pod)).collect();
        let mut stopped = Vec::new();
        for workload in workloads {
            let Some(whole) = self.whole(workload).await? else { continue };
            let retention = &whole["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"];
            if retention == "Delete" {
                let typed = self.object(workload).typed;
                return Err(CommandError::Refused(format!(
                    "the undo must scale {typed} to 0, which would delete its claims (whenScaled); \
                     nothing was changed; next: kubectl patch {typed} --type=merge -p \
                     '{{\"spec\":{{\"persistentVolumeClaimRetentionPolicy\":{{\"whenScaled\":\
                     \"Retain\"}}}}}}'{options}, and run the command again"
                )));
            }
            let old = whole["metadata"]["annotations"][OLD_REPLICAS].as_str();
            let replicas = match whole["spec"]["replicas"].as_i64().unwrap_or(1) {
                // An interrupted undo has stopped it.
                0 => old.and_then(|text| text.parse::<i32>().ok()).unwrap_or_default().into(),
                replicas => replicas,
            };
            if replicas > 0 {
                stopped.push(StoppedWorkload { object: self.object(workload), replicas });
            }
        }
        Ok((stopped, pods))
    }
}

/// The topmost workload that controls a Pod, or the Pod.
pub(super) fn workload_of(pod: Node<'_>) -> Node<'_> {
    controller_of(controller_of(pod))
}

/// The controller of a Pod or ReplicaSet, if it is a workload; otherwise the object. An editor can
/// write any other object into owner references.
pub(super) fn controller_of(node: Node<'_>) -> Node<'_> {
    node.controller().filter(|owner| is_scalable(owner.info())).unwrap_or(node)
}
