//! What discovery says of the words for kinds.

use std::collections::BTreeSet;

use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};

use crate::objects::{ApiError, Called, KindInfo, Kinds, Names};

/// Every word for a kind that is served.
pub async fn names(client: &kube::Client) -> Result<Names, ApiError> {
    let (core, groups) = tokio::join!(
        client.list_core_api_versions_aggregated(),
        client.list_api_groups_aggregated(),
    );
    Ok(of(&[core?, groups?]))
}

/// The lists are in the order in which the API server prefers groups.
fn of(lists: &[APIGroupDiscoveryList]) -> Names {
    let (mut called, mut silent) = (Vec::new(), BTreeSet::new());
    for group in lists.iter().flat_map(|list| &list.items) {
        let name = group.metadata.as_ref().and_then(|m| m.name.as_deref()).unwrap_or_default();
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            if version.freshness.as_deref() == Some("Stale") {
                silent.insert(name.to_owned());
            }
            called.extend(version.resources.iter().filter_map(|resource| {
                Some(Called {
                    info: info(name, number, resource)?,
                    singular: resource.singular_resource.clone().unwrap_or_default(),
                    short: resource.short_names.clone(),
                })
            }));
        }
    }
    let mut names = Names::new(called);
    names.silent = silent.into_iter().collect();
    names
}

fn info(group: &str, version: &str, resource: &APIResourceDiscovery) -> Option<KindInfo> {
    let kind = resource.response_kind.as_ref()?.kind.as_deref()?;
    let namespaced = resource.scope.as_deref() == Some("Namespaced");
    Some(Kinds::custom(group, version, kind, resource.resource.as_deref()?, namespaced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn kind(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"resource": plural, "singularResource": kind.to_lowercase(), "scope": "Namespaced",
            "responseKind": {"group": "", "version": "", "kind": kind}, "verbs": ["get"],
            "shortNames": short})
    }

    fn lists() -> Vec<APIGroupDiscoveryList> {
        let group = |name: &str, versions: &[&str], resources: &[Value]| {
            let versions = versions.iter().map(|v| json!({"version": v, "resources": resources}));
            json!({"items": [{"metadata": {"name": name}, "versions": versions.collect::<Vec<_>>()}]})
        };
        let claims = kind("persistentvolumeclaims", "PersistentVolumeClaim", &["pvc"]);
        let services = kind("services", "Service", &["svc"]);
        [
            group("", &["v1"], &[claims, services.clone()]),
            group("apps", &["v1"], &[kind("deployments", "Deployment", &["deploy"])]),
            group("serving.example.com", &["v1", "v2"], &[services, kind("pvc", "Odd", &[])]),
        ]
        .into_iter()
        .map(|list| serde_json::from_value(list).unwrap())
        .collect()
    }

    #[test]
    fn a_word_means_what_it_means_to_kubectl() {
        let names = of(&lists());
        let found = |word: &str| {
            names.find(word).map(|k| format!("{}.{}/{}", k.resource, k.group, k.versions[0]))
        };
        for (word, meant) in [
            ("persistentvolumeclaims", "persistentvolumeclaims./v1"),
            ("PersistentVolumeClaim", "persistentvolumeclaims./v1"),
            ("svc", "services./v1"),
            ("service", "services./v1"),
            ("services.v1", "services./v1"),
            ("services.serving.example.com", "services.serving.example.com/v1"),
            ("services.v2.serving.example.com", "services.serving.example.com/v2"),
            ("deploy", "deployments.apps/v1"),
            ("deployment.apps", "deployments.apps/v1"),
            // A plural of any group comes before a short name of the core one.
            ("pvc", "pvc.serving.example.com/v1"),
            ("pvc.v1", "persistentvolumeclaims./v1"),
        ] {
            assert_eq!(found(word).as_deref(), Some(meant), "{word}");
        }
        for nothing in ["widgets", "services.v3.serving.example.com", "deployments.extensions", ""]
        {
            assert_eq!(found(nothing), None, "{nothing}");
        }
    }
}
