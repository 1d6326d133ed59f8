//! The kinds that an undo treats in a special way.

use crate::decide::is_default_object;
use crate::objects::{KindInfo, Kinds, SCALABLE};

/// Kinds whose objects undo never creates again. Their controllers do so, except for approvals,
/// which don't apply to a re-created object.
const RECREATED: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("apps", "controllerrevisions"),
    ("belay.dev", "deletionapprovals"),
];

/// Whether undo leaves the creation of this object to Kubernetes.
pub fn is_recreated(info: &KindInfo, name: &str) -> bool {
    is_one_of(RECREATED, info) || is_default_object(&info.group, &info.resource, name)
}

/// Whether the objects of this kind are workloads that can be stopped.
pub fn is_scalable(info: &KindInfo) -> bool {
    is_one_of(SCALABLE, info)
}

/// Whether the objects of this kind are workloads of Kubernetes.
pub fn is_workload(info: &KindInfo) -> bool {
    matches!(info.group_resource(), ("apps" | "batch", _) | ("", "replicationcontrollers"))
}

fn is_one_of(kinds: &[(&str, &str)], info: &KindInfo) -> bool {
    kinds.contains(&info.group_resource())
}

/// Whether an object of this kind is created last: its controller would create missing claims, and
/// a quota or limit could refuse other objects.
pub fn is_last(info: &KindInfo) -> bool {
    let KindInfo { group, resource, .. } = info;
    is_workload(info)
        || ["resourcequotas", "limitranges"].contains(&resource.as_str())
        || !Kinds::is_built_in(group, resource)
}
