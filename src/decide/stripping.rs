//! Requests that remove finalizers that `fromStripping` guards: an UPDATE or a DELETE.

use super::item::JudgedObject;
use super::judgement::Judgement;
use super::{Cause, Reason, Review, Situation};
use crate::graph::{ObjectUser, Propagation};
use crate::objects::{CLAIM_PROTECTION, FOREGROUND, KeyedSet, KindId, ORPHAN, Text, is_hold};
use crate::policy::AppliedPolicy;

/// Denies an UPDATE that removes guarded finalizers of other controllers.
pub(super) fn judge_finalizer_removal<'a>(
    judgement: &mut Judgement<'a>,
    review: &Review<'_>,
    target: &JudgedObject<'a>,
    applied: &[AppliedPolicy<'a>],
) {
    let remaining = review.object.iter().flat_map(|o| o.metadata.finalizers.iter().flatten());
    let remaining: KeyedSet<&str> = remaining.map(Text::as_str).collect();
    let is_removed = |finalizer: &str| !is_hold(finalizer) && !remaining.contains(finalizer);
    judge_stripping(judgement, target, applied, (is_removed, Cause::Finalizer));
}

/// Denies a DELETE that removes a guarded `foregroundDeletion` or `orphan`: the API server
/// keeps only the finalizer of the propagation.
pub(super) fn judge_propagation_finalizers<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    propagation: Propagation,
) {
    let is_removed = |finalizer: &str| match finalizer {
        FOREGROUND => propagation != Propagation::Foreground,
        ORPHAN => propagation != Propagation::Orphan,
        _ => false,
    };
    if target.finalizers().into_iter().any(is_removed) {
        let applied = judgement.binding_policies(target);
        judge_stripping(judgement, target, &applied, (is_removed, Cause::LostFinalizer));
    }
}

/// Denies the request if it removes a guarded finalizer. `is_removed` selects the removed
/// finalizers, and `cause` builds the cause of the denial from a finalizer.
fn judge_stripping<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    applied: &[AppliedPolicy<'a>],
    (is_removed, cause): (impl Fn(&str) -> bool, fn(String) -> Cause),
) {
    if !applied.iter().any(|applied| applied.policy.modes.from_stripping.is_some()) {
        return;
    }
    let situation = judgement.situation;
    let requester = &judgement.review.requester;
    let mut seen = KeyedSet::default();
    for finalizer in target.finalizers() {
        if !is_removed(finalizer) || !seen.insert(finalizer) {
            continue;
        }
        for applied in applied {
            situation.work.charge(1);
            let Some(guard) = &applied.policy.modes.from_stripping else { continue };
            let identities = &situation.policies.identities;
            if guard.denies(requester, finalizer, identities)
                && !guards_nothing(&situation, target, finalizer)
            {
                let causes = vec![cause(finalizer.to_owned())];
                judgement.add_finding(applied, target, Reason::FinalizerGuarded, (causes, 0));
            }
        }
    }
}

/// Whether belay knows that a finalizer guards no object any more. It knows this only for
/// finalizers of Kubernetes.
fn guards_nothing(situation: &Situation<'_>, target: &JudgedObject<'_>, finalizer: &str) -> bool {
    let graph = situation.graph;
    let Some(node) = target.node else { return false };
    let knows_all_owners = |kind| graph.is_current(kind) && graph.malformed_in(kind, "").is_none();
    let knows_all_uses = |kind: Option<KindId>, namespace: &str| {
        kind.is_some_and(|kind| {
            graph.is_current(kind) && graph.describe_unreadable(kind, namespace).is_none()
        })
    };
    match finalizer {
        FOREGROUND | ORPHAN => {
            let kinds = graph.kinds.iter().map(|(kind, _)| kind);
            let mut kinds = kinds.filter(|kind| graph.kinds.is_served(*kind));
            graph.dependents(node).next().is_none() && kinds.all(knows_all_owners)
        }
        CLAIM_PROTECTION => {
            let pod = graph.kinds.find("", "Pod");
            let is_pod = |user: &ObjectUser<'_>| Some(user.node.kind()) == pod && user.needs();
            !graph.users_limited(node.id(), situation.work).any(|user| is_pod(&user))
                && knows_all_uses(pod, node.namespace())
        }
        "kubernetes.io/pv-protection" => {
            let claim = graph.kinds.find("", "PersistentVolumeClaim");
            let bound = graph
                .users_limited(node.id(), situation.work)
                .any(|user| Some(user.node.kind()) == claim);
            !bound && knows_all_uses(claim, "")
        }
        _ => false,
    }
}
