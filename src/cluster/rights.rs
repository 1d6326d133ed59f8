//! Reads the kinds that belay's account may patch.
//!
//! The mutating webhook places holds without the right to patch, but belay needs that right to
//! remove them. So belay reads the rules of its own account, and places holds only on the kinds
//! that it may patch.

use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use super::context::Context;
use super::holds::find_held_kinds;
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
        let asked = Instant::now();
        match within(api.create(&PostParams::default(), &review)).await {
            Ok(answer) => {
                backoff.record_success();
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
                let wait = backoff.fail(|| {
                    tracing::warn!(%error, "belay cannot read its own RBAC rules");
                });
                tokio::time::sleep(wait).await;
                continue;
            }
        }
        // A policy and the rights for its kinds are often created together.
        while asked.elapsed() < timing.checks.rights {
            tokio::time::sleep(timing.checks.forbidden).await;
            if !find_held_kinds(&context.world.read()).forbidden.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::cluster::World;
    use crate::cluster::local_api::local_client;
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    /// Runs for 100 seconds. Returns the seconds after the start at which belay read its rights.
    /// belay may patch ConfigMaps from the second read on.
    async fn read_times(target: &str) -> Vec<u64> {
        let text = format!(
            "{{targets: [{{apiGroups: [''], resources: [{target}]}}], protect: {{whileUsed: {{}}}}}}"
        );
        let policy = Policy::compile("p", &serde_saphyr::from_str(&text).unwrap()).unwrap();
        let policies = PolicySet::new(vec![policy], &Catalogue::default());
        let world = World { policies, ..World::default() };
        let (start, times) = (Instant::now(), Arc::<Mutex<Vec<u64>>>::default());
        let read = times.clone();
        let client = local_client(move |_| {
            read.lock().push(start.elapsed().as_secs());
            let verbs = if read.lock().len() == 1 { ["get"] } else { ["patch"] };
            let rule = json!({"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]});
            let status = json!({"resourceRules": [rule], "nonResourceRules": [],
                "incomplete": false});
            let review = json!({"apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {}, "status": status});
            Some((201, review))
        });
        let running = run(Context::of_test(client, world, &[]));
        tokio::time::timeout(std::time::Duration::from_secs(100), running).await.unwrap_err();
        std::mem::take(&mut times.lock())
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_a_policy_lacks_is_read_again_soon() {
        assert_eq!(read_times("configmaps").await, [0, 5, 35, 65, 95]);
        // belay needs no right for a kind that gets no hold.
        assert_eq!(read_times("pods").await, [0, 30, 60, 90]);
    }
}
