//! Whether the garbage collector deletes an object because of its owners.

use serde_json::Value;

use super::finalizers::finalizers_of;
use crate::cluster::Snapshot;
use crate::command::target::TargetObject;
use crate::objects::{FOREGROUND, Object, OwnerReference, quote_if_ambiguous, split_api_version};

/// Why a denied request of the garbage collector is not repeated at once.
pub const COLLECTOR_WAITS: &str =
    "the garbage collector, which was refused, waits longer before each retry";

/// The state of an owner, as far as the garbage collector cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Missing,
    /// It is Terminating and waits for the deletion of its dependents.
    Waiting,
    /// It keeps the object.
    Present,
}

/// What the garbage collector does with an object.
#[derive(Debug, Default)]
pub struct Collection {
    /// The uids of the owners that do not exist.
    pub missing_owners: Vec<String>,
    /// Why the garbage collector deletes the object; `None` if it does not, or if that is unknown.
    pub why: Option<String>,
}

impl Collection {
    /// Reads the owners of an object. Empty for a Terminating object, and for files, which may leave
    /// out owners.
    pub async fn read(target: &TargetObject, snapshot: &Snapshot) -> Self {
        let text = target.json.to_string();
        let mut collection = Self::default();
        let Ok(object) = serde_json::from_str::<Object<'_>>(&text) else { return collection };
        if object.is_terminating() || target.session.asks_files() {
            return collection;
        }
        let mut is_collected = true;
        for reference in &object.metadata.owner_references {
            let state = owner_state(reference, target, snapshot).await;
            let name = format!(
                "{} {}",
                quote_if_ambiguous(&reference.kind),
                quote_if_ambiguous(&reference.name)
            );
            match state {
                Some(OwnerState::Missing) => {
                    collection.missing_owners.push(reference.uid.to_string());
                    collection.why = Some(format!("its owner {name} does not exist"));
                }
                Some(OwnerState::Waiting) => {
                    collection.why =
                        Some(format!("its owner {name} is being deleted and waits for it"));
                }
                Some(OwnerState::Present) | None => is_collected = false,
            }
        }
        collection.why = collection.why.filter(|_| is_collected);
        collection
    }
}

/// The state of an owner; `None` if it is unknown.
async fn owner_state(
    reference: &OwnerReference<'_>,
    target: &TargetObject,
    snapshot: &Snapshot,
) -> Option<OwnerState> {
    let (group, _) = split_api_version(&reference.api_version);
    let info = {
        let kinds = &snapshot.context.world.read().graph.kinds;
        kinds.info(kinds.find(group, &reference.kind)?).clone()
    };
    let namespace = info.namespace_or_empty(&target.object_ref.namespace);
    // The garbage collector can't resolve a namespaced owner of a cluster-scoped object.
    if info.namespaced && namespace.is_empty() {
        return None;
    }
    let owner = target.session.caller.object(&info, namespace, &reference.name).await.ok()?;
    let owner = owner.unwrap_or_default();
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str);
    Some(if text("/metadata/uid") != Some(&*reference.uid) {
        OwnerState::Missing
    } else if text("/metadata/deletionTimestamp").is_some()
        && finalizers_of(&owner).contains(&FOREGROUND)
    {
        OwnerState::Waiting
    } else {
        OwnerState::Present
    })
}
