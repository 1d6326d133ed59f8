//! The kinds that belay's account may patch.

use k8s_openapi::api::authorization::v1::ResourceRule;

/// The kinds that belay's account may patch in the whole cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchRights(Option<Vec<(Vec<String>, Vec<String>)>>);

impl PatchRights {
    /// No rights.
    #[cfg(test)]
    pub fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// Computes the rights from the rules of the account.
    pub fn from_rules(rules: Vec<ResourceRule>) -> Self {
        let patches = rules.into_iter().filter(|rule| {
            let named = rule.resource_names.as_ref().is_some_and(|names| !names.is_empty());
            !named && rule.verbs.iter().any(|verb| verb == "patch" || verb == "*")
        });
        let kinds = |rule: ResourceRule| {
            (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default())
        };
        Self(Some(patches.map(kinds).collect()))
    }

    /// Whether belay may patch objects of this kind. Until the rules are read, it may patch all
    /// kinds.
    pub fn allow(&self, group: &str, resource: &str) -> bool {
        let has =
            |list: &[String], name: &str| list.iter().any(|entry| entry == name || entry == "*");
        self.0.as_ref().is_none_or(|rules| {
            rules.iter().any(|(groups, resources)| has(groups, group) && has(resources, resource))
        })
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
    fn only_rules_for_patches_of_any_object_count() {
        assert!(PatchRights::default().allow("apps", "deployments"));
        let rights = PatchRights::from_rules(vec![
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
