//! Which kinds belay's account may patch.
//!
//! The mutating webhook places holds without the right to patch, but belay needs
//! that right to remove them. So belay asks the API server
//! for the rules of its own account, and places holds on these kinds alone.

use k8s_openapi::api::authorization::v1::{
    ResourceRule, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::Api;
use kube::api::PostParams;

use super::context::Context;
use super::pace::{Backoff, within};

/// The kinds that belay's account may patch in the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchRights(Option<Vec<(Vec<String>, Vec<String>)>>);

impl PatchRights {
    /// None at all.
    #[cfg(test)]
    pub fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// From the rules of the account.
    fn of(rules: Vec<ResourceRule>) -> Self {
        let patches = rules.into_iter().filter(|rule| {
            let named = rule.resource_names.as_ref().is_some_and(|names| !names.is_empty());
            !named && rule.verbs.iter().any(|verb| verb == "patch" || verb == "*")
        });
        let kinds = |rule: ResourceRule| {
            (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default())
        };
        Self(Some(patches.map(kinds).collect()))
    }

    /// Whether objects of this kind may be patched; until the rules were read,
    /// any.
    pub fn allow(&self, group: &str, resource: &str) -> bool {
        let has = |list: &[String], name: &str| list.iter().any(|one| one == name || one == "*");
        self.0.as_ref().is_none_or(|rules| {
            rules.iter().any(|(groups, resources)| has(groups, group) && has(resources, resource))
        })
    }
}

/// Keeps the rights in the world as the API server reports them, until belay ends.
pub async fn run(context: Context) {
    // A namespace in which belay has no role of its own.
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
                let rights = PatchRights::of(rules);
                let mut world = context.world.write();
                if world.patch_rights != rights {
                    world.patch_rights = rights;
                    drop(world);
                    context.signals.change();
                }
            }
            Err(trouble) => {
                if backoff.is_first() {
                    let why = trouble.words();
                    tracing::warn!(why, "belay cannot read the rules of its own account");
                }
                wait = backoff.next();
            }
        }
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> ResourceRule {
        let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        ResourceRule {
            verbs: list(verbs),
            api_groups: Some(list(groups)),
            resources: Some(list(resources)),
            resource_names: Some(list(names)),
        }
    }

    #[test]
    fn only_rules_that_let_it_patch_any_object_count() {
        assert!(PatchRights::default().allow("apps", "deployments"));
        let rights = PatchRights::of(vec![
            rule(&["get", "list"], &["*"], &["*"], &[]),
            rule(&["patch"], &["apps"], &["deployments"], &[]),
            rule(&["patch"], &[""], &["secrets"], &["mine"]),
            rule(&["*"], &["x.example.com"], &["*"], &[]),
        ]);
        assert!(rights.allow("apps", "deployments") && rights.allow("x.example.com", "widgets"));
        for (group, resource) in [("apps", "daemonsets"), ("", "secrets"), ("", "deployments")] {
            assert!(!rights.allow(group, resource), "{resource}");
        }
    }
}
