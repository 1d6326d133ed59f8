//! Kinds by the words that people type: `pvc`, `deployment`, `widgets.example.com`.

use kube::core::discovery::v2::{APIGroupDiscoveryList, APIResourceDiscovery};

use super::api::Trouble;
use crate::objects::{KindInfo, Kinds};

/// The kind that a word means to kubectl: a plural, a singular or a short name,
/// alone or with its group, or with its version and group. `None`: none that is
/// served.
pub async fn kind_of(client: &kube::Client, word: &str) -> Result<Option<KindInfo>, String> {
    let words = |error: kube::Error| Trouble::from(error).words();
    let core = client.list_core_api_versions_aggregated().await.map_err(words)?;
    let groups = client.list_api_groups_aggregated().await.map_err(words)?;
    Ok(find(&[core, groups], word))
}

/// How well a word fits, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Plural,
    Singular,
    Short,
}

/// The lists are in the order in which the API server prefers groups, and of
/// those that fit as well the first is meant, as kubectl has it.
fn find(lists: &[APIGroupDiscoveryList], word: &str) -> Option<KindInfo> {
    let word = word.to_lowercase();
    let (word, place) = word.split_once('.').unwrap_or((&word, ""));
    let mut best: Option<(Fit, KindInfo)> = None;
    for group in lists.iter().flat_map(|list| &list.items) {
        let name = group.metadata.as_ref().and_then(|m| m.name.as_deref()).unwrap_or_default();
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            let in_place = place.is_empty()
                || place == name
                || place.strip_prefix(number).is_some_and(|rest| {
                    rest.strip_prefix('.').unwrap_or(rest) == name
                        && (rest.is_empty() || rest.starts_with('.'))
                });
            if !in_place {
                continue;
            }
            for resource in &version.resources {
                let Some(fit) = fits(resource, word) else { continue };
                if best.as_ref().is_some_and(|(other, _)| *other <= fit) {
                    continue;
                }
                best = info(name, number, resource).map(|info| (fit, info)).or(best);
            }
        }
    }
    best.map(|(_, info)| info)
}

fn fits(resource: &APIResourceDiscovery, word: &str) -> Option<Fit> {
    let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.as_deref());
    let kind = kind.unwrap_or_default().to_lowercase();
    if resource.resource.as_deref() == Some(word) {
        Some(Fit::Plural)
    } else if resource.singular_resource.as_deref() == Some(word) || kind == word {
        Some(Fit::Singular)
    } else {
        resource.short_names.iter().any(|short| short == word).then_some(Fit::Short)
    }
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
        let lists = lists();
        let found = |word: &str| {
            find(&lists, word).map(|k| format!("{}.{}/{}", k.resource, k.group, k.versions[0]))
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
