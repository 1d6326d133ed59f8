//! The kinds that an undo treats in a special way.

use crate::decide::is_default_object;
use crate::objects::{KindInfo, Kinds, SCALABLE};

const APPROVALS: (&str, &str) = ("belay.dev", "deletionapprovals");

/// Kinds whose objects undo never creates again. Their controllers create them again, except for
/// approvals, which don't apply to a re-created object.
const LEFT_OUT: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
    ("coordination.k8s.io", "leases"),
    ("apps", "controllerrevisions"),
    APPROVALS,
];

/// Whether undo never creates this object again.
pub fn is_left_out(info: &KindInfo, name: &str) -> bool {
    is_one_of(LEFT_OUT, info) || is_default_object(&info.group, &info.resource, name)
}

/// Why undo does not create such an object again.
pub fn why_left_out(info: &KindInfo) -> &'static str {
    match info.group_resource() {
        APPROVALS => "an approval does not apply to a re-created object",
        _ => "its controller creates it again",
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_controller_creates_an_approval_again() {
        let approval =
            Kinds::custom("belay.dev", "v1alpha1", "DeletionApproval", APPROVALS.1, true);
        assert!(is_left_out(&approval, "a") && !why_left_out(&approval).contains("controller"));
        let pod = Kinds::custom("", "v1", "Pod", "pods", true);
        assert_eq!(why_left_out(&pod), "its controller creates it again");
    }
}
