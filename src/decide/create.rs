//! CREATE: the hold is put on, where it helps.

use super::item::Item;
use super::{HoldChange, HoldPlace, Review, Situation, Verdict};
use crate::objects::{HOLD, Kinds, Object};
use crate::policy::Applied;
use crate::policy::api::Action;

pub(super) fn create(situation: &Situation<'_>, review: &Review<'_>) -> Verdict {
    let Some(object) = &review.object else { return Verdict::allow(review.target()) };
    let target = Item::of_review(situation, review, object);
    let mut verdict = Verdict::allow(target.target());
    let wants = |applied: &Applied<'_>| applied.action == Action::Deny && applied.policy.holds();
    if object.is_held()
        || harm((&review.resource.group, &review.resource.resource), object).is_some()
        || !situation.applied(target.facts).iter().any(wants)
    {
        return verdict;
    }
    let place = HoldPlace::in_list(object, usize::MAX);
    verdict.hold = Some(HoldChange { place, put_back: false });
    verdict
}

/// Kinds on which a hold is harm, or no protection at all: a finalizer on a
/// Namespace or a CRD saves only the shell, and the others are taken away and
/// made again by machines all day.
const NEVER_HELD: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "pods"),
    ("", "nodes"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Annotations of objects that a tool runs and takes away by itself.
const HOOKS: &[&str] = &["helm.sh/hook", "argocd.argoproj.io/hook"];

/// Why `hold: Auto` puts none on an object; `None` where it helps.
pub fn why_never_held(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        kind if NEVER_HELD.contains(&kind) => {
            Some("a hold on its kind protects nothing, or is harm")
        }
        // A merge patch from Git takes it off, belay puts it back, for ever.
        ("argoproj.io", _) => Some("Argo's own objects are patched from Git, finalizers included"),
        _ => None,
    }
}

/// Why a hold on this object would be harm.
pub(crate) fn harm((group, resource): (&str, &str), object: &Object<'_>) -> Option<&'static str> {
    if let Some(why) = why_never_held(group, resource) {
        return Some(why);
    }
    let metadata = &object.metadata;
    if HOOKS.iter().any(|hook| metadata.annotations.contains_key(*hook)) {
        return Some("it is a hook, which its tool takes away");
    }
    if (group, resource) == ("", "secrets") && metadata.name.starts_with("sh.helm.release.v1.") {
        return Some("it is the record of a Helm release, which Helm takes away");
    }
    // Whoever lists finalizers in a manifest sends that list again, without
    // ours: a client-side apply of a custom resource strips it each time.
    let others = |object: &Object<'_>| {
        object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer != HOLD)
    };
    let lists = others(object) || applied(object).is_some_and(|applied| others(&applied));
    (lists && !Kinds::is_built_in(group, resource))
        .then_some("its manifest lists finalizers, and each apply would strip ours")
}

/// The manifest that a client applied.
fn applied<'o>(object: &'o Object<'_>) -> Option<Object<'o>> {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    serde_json::from_str(object.metadata.annotations.get(annotation)?).ok()
}
