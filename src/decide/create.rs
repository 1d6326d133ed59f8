//! CREATE: belay adds the hold if a policy wants it and the hold is safe.

use super::item::JudgedObject;
use super::judgement::Judgement;
use super::long_lists::judge_long_lists;
use super::situation::is_default_object;
use super::{HoldChange, HoldPosition, Review, Situation, Verdict};
use crate::objects::{CRDS, Kinds, Object, is_hold, text_enum};
use crate::policy::AppliedPolicy;

pub(super) fn create(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(object) = &review.object else { return Verdict::allow(review.target()) };
    let target = JudgedObject::of_review(situation, review, object);
    let mut verdict = Verdict::allow(target.object_ref());
    if object.is_held()
        || is_hold_unsafe(target.facts.group, target.facts.resource, object)
        // Also if it is uncertain that the policy applies: the leader removes an unwanted hold.
        || !situation.policies_of(target.facts).iter().any(AppliedPolicy::wants_hold)
    {
        return verdict;
    }
    let mut judgement = Judgement::new(situation, review);
    if judge_long_lists(&mut judgement, review, &target) {
        return judgement.verdict(&[target]);
    }
    let position = HoldPosition::in_list(object, usize::MAX);
    verdict.hold = Some(HoldChange { position, restored: false });
    verdict
}

/// Kinds on which a hold is unsafe or does not protect. A finalizer on a Namespace or CRD
/// keeps only the empty object. belay could not release roles and bindings, because a
/// write to a role or binding needs all the rights that the object grants. Controllers delete and
/// re-create the other kinds very often.
const NEVER_HELD: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "pods"),
    ("", "nodes"),
    ("", "events"),
    ("events.k8s.io", "events"),
    CRDS,
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

/// Annotations of objects that a tool runs and deletes automatically.
const HOOKS: &[&str] = &["helm.sh/hook", "argocd.argoproj.io/hook"];

/// Whether a hold on objects of this kind is unsafe or does not protect.
pub(crate) fn is_hold_unsafe_on_kind(group: &str, resource: &str) -> bool {
    // Argo CD applies its own objects from Git with merge patches. Each of them removes the
    // hold, and belay would restore it each time.
    NEVER_HELD.contains(&(group, resource)) || group == "argoproj.io"
}

text_enum! {
    /// Why a hold on an object is unsafe or does not protect.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum NoHoldReason {
        /// This applies to all objects of the kind.
        Kind = "belay adds no hold to this kind",
        /// A tool runs the object and deletes it automatically.
        Hook = "it is a hook, which its tool deletes",
        /// The object is the record of a Helm release, which Helm deletes.
        Record = "it is the record of a Helm release, which Helm deletes",
        /// Its manifest lists finalizers.
        Listed = "its manifest lists finalizers, so applying it would remove the hold",
        /// Kubernetes creates the object in every Namespace, and a hold would delay the deletion of
        /// the Namespace.
        Default = "every Namespace has it, and a hold would delay the deletion of the Namespace",
    }

    /// The reason as a clause for messages.
    pub(crate) fn message;
}

/// Whether a hold on this object is unsafe or does not protect.
pub(crate) fn is_hold_unsafe(group: &str, resource: &str, object: &Object<'_>) -> bool {
    no_hold_reason(group, resource, object).is_some()
}

/// Why a hold on this object is unsafe or does not protect; `None` if it is safe.
pub(crate) fn no_hold_reason(
    group: &str,
    resource: &str,
    object: &Object<'_>,
) -> Option<NoHoldReason> {
    let metadata = &object.metadata;
    if is_hold_unsafe_on_kind(group, resource) {
        return Some(NoHoldReason::Kind);
    }
    if is_default_object(group, resource, &metadata.name) {
        return Some(NoHoldReason::Default);
    }
    if HOOKS.iter().any(|hook| metadata.annotations.contains_key(*hook)) {
        return Some(NoHoldReason::Hook);
    }
    if (group, resource) == ("", "secrets") && metadata.name.starts_with("sh.helm.release.v1.") {
        return Some(NoHoldReason::Record);
    }
    // A client-side apply of a custom resource that lists finalizers replaces the list,
    // which removes the hold each time.
    let others = |object: &Object<'_>| {
        object.metadata.finalizers.iter().flatten().any(|finalizer| !is_hold(finalizer))
    };
    let lists = || others(object) || last_applied(object).is_some_and(|applied| others(&applied));
    (!Kinds::is_built_in(group, resource) && lists()).then_some(NoHoldReason::Listed)
}

/// The limit of the API server for all annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// The manifest that a client applied last.
fn last_applied<'o>(object: &'o Object<'_>) -> Option<Object<'o>> {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let manifest = object.metadata.annotations.get(annotation)?;
    if manifest.len() > MAX_ANNOTATION_BYTES {
        return None;
    }
    serde_json::from_str(manifest).ok()
}
