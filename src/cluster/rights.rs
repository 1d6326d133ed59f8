//! Reads the kinds that belay's account may patch.
//!
//! The mutating webhook places holds without the right to patch, but belay needs that right to
//! remove them. So belay reads the rules of its own account, and places holds only on the kinds
//! that it may patch.

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::context::Context;
use super::pace::{Backoff, within};
use super::patch_rights::PatchRights;

/// Keeps the rights in the world up to date until belay shuts down.
pub async fn run(context: Context) {
    // belay has no Role in this namespace, so the rules are those of its ClusterRole.
    let namespace = match context.settings.namespace.as_str() {
        "default" => "kube-public",
        _ => "default",
    };
    let api: Api<SelfSubjectRulesReview> = Api::all(context.client.clone());
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let timing = &context.settings.timing;
    let mut backoff = Backoff::from(timing.retry);
    loop {
        let mut wait = timing.checks.rights;
        match within(api.create(&PostParams::default(), &review)).await {
            Ok(answer) => {
                backoff.succeeded();
                let rules = answer.status.map(|status| status.resource_rules).unwrap_or_default();
                let rights = PatchRights::from_rules(rules);
                let mut world = context.world.write();
                if world.patch_rights != rights {
                    world.patch_rights = rights;
                    drop(world);
                    context.signals.change();
                }
            }
            Err(error) => {
                if backoff.is_first() {
                    tracing::warn!(%error, "belay cannot read its own RBAC rules");
                }
                wait = backoff.next();
            }
        }
        tokio::time::sleep(wait).await;
    }
}
