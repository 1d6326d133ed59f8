//! What keeps a Namespace Terminating after an accepted DELETE.

use crate::cluster::{Snapshot, UnreadKind};
use crate::command::document::Object;
use crate::command::target::{TargetObject, situation};
use crate::graph::NodeId;
use crate::hold::{HoldForecast, forecast};
use crate::objects::{and_more, is_namespace};

/// The maximum number of objects that a text names.
const MAX_NAMED: usize = 3;

/// Why a Namespace stays Terminating, and the kinds that could not be read.
#[derive(Default)]
pub struct NamespaceStay {
    pub reasons: Vec<String>,
    pub unread: Vec<UnreadKind>,
}

impl NamespaceStay {
    /// Empty for an object that is not a Namespace.
    pub async fn read(target: &TargetObject, snapshot: &Snapshot) -> Self {
        let (info, name) = (&target.info, target.object_ref.name.as_str());
        if !is_namespace(&info.group, &info.resource) {
            return Self::default();
        }
        let (labelled, unread) = snapshot.read_labelled(name).await;
        let mut reasons = Vec::new();
        let world = snapshot.context.world.read();
        let situation = situation(&world);
        // Only labelled objects matter here. belay watches the kinds of the other protected
        // objects, and denies the DELETE of the Namespace because of them.
        let is_denied = |id: &NodeId| {
            let node = world.graph.get(*id);
            node.is_some_and(|node| forecast(&situation, true, node) == HoldForecast::Approval)
        };
        let denied: Vec<NodeId> =
            labelled.into_iter().filter(|id| world.loaded && is_denied(id)).collect();
        if !denied.is_empty() {
            let named = denied.iter().take(MAX_NAMED);
            let named: Vec<String> =
                named.map(|id| Object::at(&world.graph, *id).label(name)).collect();
            let more = and_more(denied.len() - named.len(), "object");
            let (named, arguments) = (named.join(", "), target.object_ref.arguments());
            reasons.push(format!(
                "belay denies the deletion of {named}{more} until it is approved, and the other \
                 content is deleted; next: kubectl belay impact {arguments}"
            ));
        }
        let mut groups: Vec<&str> = snapshot.stale.iter().map(String::as_str).collect();
        groups.sort_unstable();
        if !groups.is_empty() {
            reasons.push(format!(
                "the API server of {} does not answer, so the namespace controller can't list its \
                 kinds; the other content is deleted",
                groups.join(", ")
            ));
        }
        Self { reasons, unread }
    }
}
