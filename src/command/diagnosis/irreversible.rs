//! The kinds whose deletion `undo` refuses to undo.

use crate::objects::KindInfo;

/// Kinds whose deletion can't be undone, each with the reason.
const IRREVERSIBLE: &[(&str, &str, &str)] = &[
    (
        "",
        "pods",
        "the kubelet stops its containers, and a controller, if it has one, creates another one",
    ),
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

/// Why the deletion of an object of this kind can't be undone.
pub fn why_irreversible(info: &KindInfo) -> Option<&'static str> {
    let is_kind =
        |(group, resource, _): &&(&str, &str, &str)| (*group, *resource) == info.group_resource();
    IRREVERSIBLE.iter().find(is_kind).map(|(.., why)| *why)
}
