//! The kinds that an undo treats in a special way.

use crate::objects::{KindInfo, Kinds};

/// Kinds whose deletion can't be undone, each with the reason.
const FINAL: &[(&str, &str, &str)] = &[
    ("", "pods", "the kubelet stops its containers, and its controller creates another one"),
    ("", "nodes", "the kubelet registers its Node again; next: restart the kubelet of the node"),
    (
        "",
        "persistentvolumes",
        "Kubernetes deletes it after its claim, and the claim has no other volume; next: keep the \
         claim, and set the volume's reclaim policy to Retain",
    ),
    ("batch", "jobs", "a new Job would run again"),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "the API server deletes its resources already; next: save those that still exist",
    ),
    (
        "apiregistration.k8s.io",
        "apiservices",
        "its server keeps the objects; next: create it again",
    ),
];

/// Objects of a Namespace that their controllers create again.
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

/// Objects that Kubernetes creates in each Namespace.
const IN_EACH_NAMESPACE: &[(&str, &str)] =
    &[("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// Workloads that can be stopped.
const SCALABLE: &[(&str, &str)] = &[
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
];

/// Kinds whose objects create objects of other kinds again.
const CREATES: &[((&str, &str), (&str, &str))] = &[
    (("apps", "deployments"), ("apps", "replicasets")),
    (("", "services"), ("discovery.k8s.io", "endpointslices")),
    (("apps", "statefulsets"), ("apps", "controllerrevisions")),
    (("apps", "daemonsets"), ("apps", "controllerrevisions")),
];

/// Whether objects of the first kind create objects of the second kind again.
pub fn creates(owner: &KindInfo, object: &KindInfo) -> bool {
    let pair = [owner, object].map(|info| (info.group.as_str(), info.resource.as_str()));
    CREATES.iter().any(|(owner, object)| [*owner, *object] == pair)
}

/// Why the deletion of an object of this kind can't be undone.
pub fn why_final(info: &KindInfo) -> Option<&'static str> {
    let is_kind = |(group, resource, _): &&(&str, &str, &str)| {
        (*group, *resource) == (info.group.as_str(), info.resource.as_str())
    };
    FINAL.iter().find(is_kind).map(|(.., why)| *why)
}

/// Whether Kubernetes creates this object of a Namespace again.
pub fn is_recreated(info: &KindInfo, name: &str) -> bool {
    let is_in_each = |(resource, in_each): &(&str, &str)| {
        info.group.is_empty() && (*resource, *in_each) == (info.resource.as_str(), name)
    };
    is_one_of(RECREATED, info) || IN_EACH_NAMESPACE.iter().any(is_in_each)
}

/// Whether the objects of this kind are workloads that can be stopped.
pub fn is_scalable(info: &KindInfo) -> bool {
    is_one_of(SCALABLE, info)
}

fn is_one_of(kinds: &[(&str, &str)], info: &KindInfo) -> bool {
    kinds.contains(&(info.group.as_str(), info.resource.as_str()))
}

/// Whether an object of this kind is created last: its controller would create missing claims, and
/// a quota could refuse other objects.
pub fn is_last(info: &KindInfo) -> bool {
    let KindInfo { group, resource, .. } = info;
    matches!(group.as_str(), "apps" | "batch")
        || ["replicationcontrollers", "resourcequotas"].contains(&resource.as_str())
        || !Kinds::is_built_in(group, resource)
}
