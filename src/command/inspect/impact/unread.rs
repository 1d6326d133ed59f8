//! The content and the dependents of deleted objects that could not be read. They are deleted as
//! well.

use schemars::JsonSchema;
use serde::Serialize;

use super::outcome::ImpactOutcomes;
use crate::command::document::Object;
use crate::command::inspect::inspection::Inspection;
use crate::graph::{DeletionOutcome, Node, NodeId};
use crate::objects::{CLAIMS, KindId, KindInfo, Kinds, STATEFUL_SETS, counted, is_namespace};
use crate::policy::api::GROUP;

/// The maximum number of kinds that a text names.
const MAX_NAMED: usize = 2;

/// The content or the dependents of a deleted object that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreadContent {
    /// The deleted object.
    pub of: Object,
    /// `content` of a Namespace or a CRD, or `dependents`.
    pub what: &'static str,
    /// The kinds that could not be read, by plural name and group.
    pub kinds: Vec<String>,
    /// Why PersistentVolumeClaims among them could not be read: the deletion may destroy their
    /// volumes for good. Absent if they are not among the kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims_not_read: Option<String>,
    #[serde(skip)]
    pub id: NodeId,
}

impl UnreadContent {
    /// The note on the deleted object.
    pub fn text(&self) -> String {
        let Self { what, kinds, .. } = self;
        let kinds = match kinds.len() {
            0..=MAX_NAMED => kinds.join(", "),
            count => counted(count, "kind"),
        };
        let are = if *what == CONTENT { "is" } else { "are" };
        format!("its {what} {are} deleted as well and could not be read ({kinds})")
    }
}

/// The objects of a Namespace, or the instances of a CRD.
pub const CONTENT: &str = "content";

/// The deleted objects with content or dependents that could not be read.
pub fn unread_content(
    inspection: &Inspection,
    outcomes: &ImpactOutcomes<'_>,
    orphans: bool,
) -> Vec<UnreadContent> {
    let graph = &inspection.graph;
    // Files contain all objects.
    if inspection.caller.is_none() || inspection.not_read.is_empty() {
        return Vec::new();
    }
    let unread: Vec<(KindId, &KindInfo, &str)> = graph
        .kinds
        .iter()
        .filter(|(kind, _)| !graph.is_complete(*kind))
        .filter_map(|(kind, info)| {
            let name = info.full_name();
            let read = inspection.not_read.iter().find(|read| read.resource == name)?;
            Some((kind, info, read.why.as_str()))
        })
        .collect();
    let crds = graph.kinds.crd();
    let mut all = Vec::new();
    for (id, fate) in outcomes.all() {
        let is_deleted = fate.outcome != DeletionOutcome::Orphaned;
        let Some(node) = graph.get(id).filter(|_| is_deleted) else { continue };
        let info = node.info();
        let is_namespace = is_namespace(&info.group, &info.resource);
        let is_crd = crds == Some(node.kind());
        let is_orphaning = orphans && inspection.targets.contains(&id);
        let namespace = if is_namespace { node.name() } else { node.namespace() };
        let is_unread = |kind: KindId, other: &KindInfo| match (is_namespace, is_crd) {
            (true, _) => other.namespaced,
            (_, true) => node.name() == other.full_name(),
            _ => !is_orphaning && may_own(node, other),
        } && !inspection.has_read(kind, namespace);
        let kinds = unread.iter().filter(|(kind, info, _)| is_unread(*kind, info));
        let kinds: Vec<_> = kinds.collect();
        if kinds.is_empty() {
            continue;
        }
        let is_claims = |info: &KindInfo| info.group_resource() == CLAIMS;
        let claims = kinds.iter().find(|(_, info, _)| is_claims(info));
        all.push(UnreadContent {
            of: Object::at(graph, id),
            what: if is_namespace || is_crd { CONTENT } else { "dependents" },
            claims_not_read: claims.map(|(.., why)| (*why).to_owned()),
            kinds: kinds.iter().map(|(_, info, _)| info.full_name()).collect(),
            id,
        });
    }
    all
}

/// Whether objects of a kind can be dependents of the object. Operators create objects of any kind
/// for their custom resources. A StatefulSet owns its claims if its retention policy is Delete.
fn may_own(owner: Node<'_>, kind: &KindInfo) -> bool {
    let info = owner.info();
    let is_custom = !Kinds::is_built_in_group(&info.group) && info.group != GROUP;
    info.creates(kind)
        || is_custom && (kind.namespaced || !info.namespaced)
        || info.group_resource() == STATEFUL_SETS && kind.group_resource() == CLAIMS
}
