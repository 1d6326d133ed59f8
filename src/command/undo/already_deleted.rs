//! Objects that are deleted already: claims whose volumes still have the data, and objects that
//! saved objects need.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::kinds::is_left_out;
use super::manifest::{OLD_RECLAIM_POLICY, RESTORED_BY, RESTORED_FROM, object_marker};
use super::read::{Found, UndoReader};
use super::record::{LostObject, SavedObject, SavedVolume};
use crate::cluster::list_all;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::graph::{EdgeQualifier, Strength};
use crate::objects::{CLAIMS, Kinds, ObjectRef, STATEFUL_SETS, claim_prefix};

/// The limit of replicas of a StatefulSet whose claims are checked.
const MAX_REPLICAS: u64 = 1_000;

impl UndoReader<'_> {
    /// Adds the claims whose volumes were released by this deletion and keep their data, and removes
    /// them from the missing claims. Without these claims, a restored StatefulSet would begin with
    /// empty volumes.
    pub(super) async fn add_released_claims(
        &self,
        secret: &str,
        missing: &mut Vec<Object>,
        found: &mut Found,
    ) -> Result<(), CommandError> {
        let api: Api<PersistentVolume> = Api::all(self.caller.client.clone());
        let volumes = list_all(api, ListParams::default()).await.map_err(|why| {
            CommandError::Remote(format!(
                "cannot list persistentvolumes: {why}; claims that are deleted already could not be \
                 restored from their volumes; nothing was changed; next: have an administrator run \
                 the undo"
            ))
        })?;
        let mut volumes = volumes.objects;
        let released = |volume: &PersistentVolume| {
            volume.status.as_ref()?.last_phase_transition_time.as_ref().map(|time| time.0)
        };
        volumes.sort_by_key(|volume| std::cmp::Reverse(released(volume)));
        for volume in volumes {
            let Some(released) = self.released_claim(volume, secret) else { continue };
            let typed = &released.0.object.arguments;
            let is_known = found.objects.iter().any(|known| known.object.arguments == *typed);
            // Outside of a Terminating Namespace, a user may have deleted other claims on purpose.
            let is_wanted =
                self.is_namespace() || missing.iter().any(|claim| claim.arguments == *typed);
            if !is_known && is_wanted {
                missing.retain(|claim| claim.arguments != released.0.object.arguments);
                found.objects.push(released.0);
                found.volumes.push(released.1);
            }
        }
        Ok(())
    }

    /// The absent claims of saved StatefulSets, each with whether it has existed. The controller
    /// creates the claims of a Pod when the Pods before it are ready, or all at once (`Parallel`).
    pub(super) fn absent_template_claims(&self, found: &Found) -> Vec<(Object, bool)> {
        let graph = &self.inspection.graph;
        let exists = |kind, namespace: &str, name: &str| {
            graph.object_by_ref(&ObjectRef::new(kind, namespace, name)).is_some()
        };
        let mut missing = Vec::new();
        for SavedObject { object: Object { namespace, name: set, .. }, manifest, .. } in
            found.objects.iter().filter(|saved| !saved.stays && saved.object.is_of(STATEFUL_SETS))
        {
            // The status is not read, because it may not count a Pod that is deleted already.
            let spec = &manifest["spec"];
            let replicas = spec["replicas"].as_u64().unwrap_or(1).min(MAX_REPLICAS);
            let start = spec["ordinals"]["start"].as_u64().unwrap_or_default();
            let templates = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
            let templates: Vec<&str> =
                templates.filter_map(|template| template["metadata"]["name"].as_str()).collect();
            // From the last ordinal: a claim or Pod shows that the claims of lower ordinals have
            // existed.
            let mut has_existed = spec["podManagementPolicy"] == "Parallel";
            for index in (0..replicas).rev() {
                let ordinal = start.saturating_add(index);
                let pod = format!("{set}-{ordinal}");
                let claims = templates.iter().map(|template| claim_prefix(template, set));
                let claims: Vec<String> =
                    claims.map(|prefix| format!("{prefix}{ordinal}")).collect();
                let (existing, absent): (Vec<_>, Vec<_>) =
                    claims.iter().partition(|claim| exists(CLAIMS, namespace, claim));
                has_existed |=
                    index == 0 || !existing.is_empty() || exists(("", "pods"), namespace, &pod);
                missing.extend(absent.into_iter().map(|claim| {
                    let claim = ObjectRef::new(CLAIMS, namespace, claim);
                    (Object::of(&claim, &graph.kinds), has_existed)
                }));
            }
        }
        missing
    }

    /// The objects of the Namespace that saved objects need and that are deleted already.
    pub(super) fn missing(&self, found: &Found) -> Vec<LostObject> {
        let graph = &self.inspection.graph;
        let saved = found.objects.iter().map(|saved| saved.object.arguments.as_str());
        let mut known: HashSet<String> = saved.map(str::to_owned).collect();
        let mut missing = Vec::new();
        let recreated = found.objects.iter().filter(|saved| !saved.stays);
        for user in recreated.filter_map(|saved| self.node(&saved.object)) {
            let needed = user.uses().iter().filter(|edge| {
                edge.strength == Strength::Needs && edge.qualifier == EdgeQualifier::None
            });
            for edge in needed.filter(|edge| graph.get(edge.to).is_none()) {
                let (kind, namespace, name) = graph.coordinates(edge.to);
                let info = graph.kinds.info(kind);
                let object = Object::of(&ObjectRef::of_kind(info, namespace, name), &graph.kinds);
                let is_here = namespace == self.target.name() && !is_left_out(info, name);
                if is_here && known.insert(object.arguments.clone()) {
                    let user = user.object_ref().arguments();
                    let why = format!("it does not exist; {user} needs it");
                    missing.push(LostObject { object, why });
                }
            }
        }
        missing
    }

    /// The claim of a volume that this deletion has released, or that an interrupted undo keeps, if
    /// the volume keeps its data.
    fn released_claim(
        &self,
        volume: PersistentVolume,
        secret: &str,
    ) -> Option<(SavedObject, SavedVolume)> {
        let (spec, status) = (volume.spec?, volume.status?);
        let claim = spec.claim_ref?;
        let name = claim.name?;
        let noted = volume.metadata.annotations.unwrap_or_default();
        // With this annotation, an interrupted undo has kept the volume, and the time of its
        // release does not matter.
        let kept = noted.get(OLD_RECLAIM_POLICY);
        // A reserved volume has no claim uid. The record identifies objects by uid, so use the uid
        // of the volume, which no claim has.
        let restored_from = claim.uid;
        let uid = restored_from.clone().or(kept.and(volume.metadata.uid))?;
        let target = self.target.object_ref();
        let namespace = target.own_namespace();
        let released = status.last_phase_transition_time.map(|time| time.0.as_second());
        let is_by_deletion = || {
            let deleted = self.target.deletion_time();
            released.is_some_and(|released| deleted.is_some_and(|deleted| deleted <= released))
        };
        let is_released = match status.phase.as_deref() {
            Some("Released") => kept.is_some() || is_by_deletion(),
            Some("Available") => kept.is_some(),
            _ => false,
        };
        let is_released = is_released
            && spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain")
            && volume.metadata.deletion_timestamp.is_none()
            && claim.namespace.as_deref() == Some(namespace);
        if !is_released {
            return None;
        }
        let claim = ObjectRef::new(CLAIMS, namespace, &name);
        let object = Object::of(&claim, &Kinds::default()).with_uid(&uid);
        let volume_name = volume.metadata.name?;
        let storage = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let mut annotations = json!({RESTORED_BY: object_marker(secret, &uid)});
        if let Some(uid) = restored_from {
            annotations[RESTORED_FROM] = uid.into();
        }
        let manifest = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace,
                "annotations": annotations},
            "spec": {
                "accessModes": spec.access_modes, "volumeMode": spec.volume_mode,
                "volumeAttributesClassName": spec.volume_attributes_class_name,
                "storageClassName": spec.storage_class_name.unwrap_or_default(),
                "resources": {"requests": {"storage": storage}}, "volumeName": volume_name,
            },
        });
        let reclaim_policy = kept.map_or("Retain", String::as_str).to_owned();
        let volume = SavedVolume { name: volume_name, claim_uid: uid, reclaim_policy };
        let saved =
            SavedObject { object, manifest, owners: Vec::new(), is_last: false, stays: false };
        Some((saved, volume))
    }
}
