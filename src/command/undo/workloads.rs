//! The workloads that an undo stops, and starts again.

use std::collections::HashSet;

use serde_json::Value;

use super::kinds::is_scalable;
use super::manifest::{OLD_REPLICAS, annotate, manifest, old_replicas};
use super::read::{Found, UndoReader};
use super::record::{SavedObject, StoppedWorkload};
use super::restore::Undo;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::place::ClusterArguments;
use crate::command::screen::progress;
use crate::graph::{Node, ObjectPhase};
use crate::objects::{CLAIMS, STATEFUL_SETS, operations};

/// The path of the replicas of a workload.
const REPLICAS: &[&str] = &["spec", "replicas"];

/// The path of the field of a StatefulSet that decides whether scaling it down deletes claims.
const WHEN_SCALED: &[&str] = &["spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"];

impl UndoReader<'_> {
    /// The workloads whose Pods use the saved claims or that create these claims again, and the
    /// other Pods that use these claims.
    pub(super) async fn workloads(
        &self,
        objects: &[SavedObject],
        cluster: &ClusterArguments,
    ) -> Result<(Vec<StoppedWorkload>, Vec<Object>), CommandError> {
        let graph = &self.inspection.graph;
        let (mut workloads, mut pods) = (Vec::<Node<'_>>::new(), Vec::<Node<'_>>::new());
        let is_ending = |node: Node<'_>| {
            let uid = node.uid().to_string();
            objects.iter().any(|saved| !saved.stays && saved.object.uid == uid)
        };
        for claim in objects.iter().filter(|saved| saved.object.is_of(CLAIMS) && !saved.stays) {
            let Some(claim) = self.node(&claim.object) else { continue };
            let users: Vec<Node<'_>> = graph.users(claim.id()).map(|user| user.node).collect();
            let is_user = |node: Node<'_>| users.iter().any(|user| user.id() == node.id());
            for user in users.iter().copied() {
                let is_pod = user.info().group_resource() == ("", "pods");
                // No scaling deletes a Pod that has succeeded or failed. The Pods of a workload may
                // not exist yet, or no longer after an interrupted undo.
                let has_ended = is_pod && user.phase() != ObjectPhase::Active;
                let workload = if has_ended { user } else { workload_of(user) };
                // An editor can write a workload that does not use the claim into owner references.
                if is_scalable(workload.info()) && is_user(workload) && !is_ending(workload) {
                    if workloads.iter().all(|known| known.id() != workload.id()) {
                        workloads.push(workload);
                    }
                } else if user.is_scheduled_pod() && !user.is_terminating() {
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
            refuse_lost_claims(&self.object(workload), &whole, cluster)?;
            let replicas = match replicas(&whole) {
                // An interrupted undo has stopped it.
                0 => old_replicas(&whole["metadata"]).unwrap_or_default(),
                replicas => replicas,
            };
            if replicas > 0 {
                stopped.push(StoppedWorkload { object: self.object(workload), replicas });
            }
        }
        Ok((stopped, pods))
    }

    /// Saves the claims of these workloads that are not Terminating, and their volumes. If others
    /// set `whenScaled: Delete` meanwhile, the StatefulSet controller deletes these claims.
    pub(super) async fn save_other_claims(
        &self,
        workloads: &[StoppedWorkload],
        secret: &str,
        found: &mut Found,
    ) -> Result<(), CommandError> {
        let graph = &self.inspection.graph;
        let sets = workloads.iter().filter(|workload| workload.object.is_of(STATEFUL_SETS));
        let sets: Vec<Node<'_>> = sets.filter_map(|set| self.node(&set.object)).collect();
        let namespace = self.target.namespace_node().into_iter();
        let objects = namespace.flat_map(|namespace| graph.objects_in_namespace(namespace));
        for claim in objects.filter_map(|id| graph.get(id)) {
            let is_used = || {
                graph.users(claim.id()).any(|user| {
                    let user = workload_of(user.node);
                    sets.iter().any(|set| set.id() == user.id())
                })
            };
            if claim.info().group_resource() != CLAIMS || claim.is_terminating() || !is_used() {
                continue;
            }
            let object = self.object(claim);
            if found.objects.iter().any(|saved| saved.object.uid == object.uid) {
                continue;
            }
            let Some(whole) = self.whole(claim).await? else { continue };
            let (manifest, owners) = manifest(whole, secret, &HashSet::new());
            found.volumes.extend(self.volume(&object, &manifest).await?);
            found.objects.push(SavedObject {
                object,
                manifest,
                owners,
                is_last: false,
                stays: true,
            });
        }
        Ok(())
    }
}

impl Undo<'_> {
    /// Scales a workload to 0, and notes its replicas. A user or an autoscaler can scale it at the same
    /// time.
    pub(super) async fn stop(&self, workload: &Object) -> Result<(), CommandError> {
        let changed = self.change(workload, false, |object| {
            let now = replicas(object);
            if now == 0 {
                return Ok(Vec::new());
            }
            refuse_lost_claims(workload, object, &self.cluster)?;
            let retention = Some(when_scaled(object).clone()).filter(|policy| !policy.is_null());
            let unchanged = retention.map(|policy| operations::test(WHEN_SCALED, policy));
            let noted = annotate(object, OLD_REPLICAS, Some(&now.to_string()));
            let scaled = [operations::test(REPLICAS, now), operations::replace(REPLICAS, 0)];
            Ok(unchanged.into_iter().chain(noted).chain(scaled).collect())
        });
        if changed.await?.is_some() {
            progress(&format!("scaled {} to 0", workload.arguments));
        }
        Ok(())
    }

    /// Scales a stopped workload to the replicas in its annotation, or to `saved`, the replicas in
    /// the file, if the annotation is no number. A workload that a user has scaled since is left
    /// alone.
    pub(super) async fn start(&self, workload: &Object, saved: i64) -> Result<(), CommandError> {
        let noted = |object: &Value| old_replicas(&object["metadata"]).unwrap_or(saved);
        let changed = self.change(workload, false, |object| {
            let mut patch = annotate(object, OLD_REPLICAS, None);
            if !patch.is_empty() && replicas(object) == 0 {
                patch.push(operations::test(REPLICAS, 0));
                patch.push(operations::replace(REPLICAS, noted(object)));
            }
            Ok(patch)
        });
        if let Some(old) = changed.await?.filter(|object| replicas(object) == 0) {
            progress(&format!("scaled {} to {}", workload.arguments, noted(&old)));
        }
        Ok(())
    }
}

/// The replicas of a workload.
fn replicas(workload: &Value) -> i64 {
    workload["spec"]["replicas"].as_i64().unwrap_or(1)
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

/// What happens to the claims of a StatefulSet that is scaled down.
fn when_scaled(workload: &Value) -> &Value {
    WHEN_SCALED.iter().fold(workload, |value, field| &value[*field])
}

/// Refuses to scale down a workload whose claims would be deleted.
fn refuse_lost_claims(
    workload: &Object,
    whole: &Value,
    cluster: &ClusterArguments,
) -> Result<(), CommandError> {
    if *when_scaled(whole) != "Delete" {
        return Ok(());
    }
    let (typed, options) = (&workload.arguments, cluster.kubectl_options());
    let set = |policy: &str| {
        format!(
            "kubectl patch {typed} --type=merge -p '{{\"spec\":\
             {{\"persistentVolumeClaimRetentionPolicy\":{{\"whenScaled\":\"{policy}\"}}}}}}'{options}"
        )
    };
    Err(CommandError::Refused(format!(
        "the undo must scale {typed} to 0, which would delete its claims (whenScaled); {typed} was not \
         changed; next: {}, run the command again, and after it {}",
        set("Retain"),
        set("Delete")
    )))
}
