//! Reads the discovery of the API server, which lists the served kinds.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList};

use super::api::{self, Detail, escaped};
use super::api_error::ReadFailure;
use super::world::ServedVerbs;
use crate::objects::{ApiError, CRDS, KindInfo, KindNames, Kinds, ServedKind, full_name};

/// What discovery reports about one kind in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// The kind, with only this version.
    pub kind: ServedKind,
    /// The verbs for its objects.
    pub served: ServedVerbs,
}

/// Everything that discovery reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The kinds, in the order in which the API server prefers groups and versions.
    pub kinds: Vec<DiscoveredKind>,
    /// Groups whose API server does not answer, so that some of their kinds may be unknown.
    pub unavailable_groups: HashSet<String>,
}

impl Discovery {
    /// Reads discovery.
    pub async fn read(client: &kube::Client) -> Result<Self, ApiError> {
        let (core, groups) = tokio::try_join!(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated(),
        )?;
        Ok(Self::new([core, groups]))
    }

    fn new(lists: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Self {
        let mut discovery = Self::default();
        for group in lists.into_iter().flat_map(|list| list.items) {
            discovery.add_group(group);
        }
        discovery
    }

    fn add_group(&mut self, group: APIGroupDiscovery) {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            if version.freshness.as_deref() == Some("Stale") {
                self.unavailable_groups.insert(name.clone());
            }
            let Some(number) = version.version else { continue };
            for resource in version.resources {
                let kind = resource.response_kind.and_then(|kind| kind.kind);
                let (Some(plural), Some(kind)) = (resource.resource, kind) else { continue };
                let namespaced = resource.scope.as_deref() == Some("Namespaced");
                let can = |verb: &str| resource.verbs.iter().any(|v| v == verb);
                self.kinds.push(DiscoveredKind {
                    kind: ServedKind {
                        info: Kinds::custom(&name, &number, &kind, &plural, namespaced),
                        singular: resource.singular_resource.unwrap_or_default(),
                        short: resource.short_names,
                        categories: resource.categories,
                    },
                    served: ServedVerbs { list: can("list"), watch: can("list") && can("watch") },
                });
            }
        }
    }

    /// Every word for a kind that is served.
    pub fn names(self) -> KindNames {
        let served = self.kinds.into_iter().map(|discovered| discovered.kind);
        let mut names = KindNames::new(served.collect());
        names.unavailable_groups = self.unavailable_groups.into_iter().collect();
        names.unavailable_groups.sort_unstable();
        names
    }
}

/// Every word for a kind that the API server serves.
pub async fn read_names(client: &kube::Client) -> Result<KindNames, ApiError> {
    Ok(Discovery::read(client).await?.names())
}

/// The versions of a group that the API server serves; empty if it does not serve the group.
pub async fn read_versions(client: &kube::Client, group: &str) -> Result<Vec<String>, ApiError> {
    let request = http::Request::get(format!("/apis/{}", escaped(group))).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request::<APIGroup>(request).await.map_err(ApiError::from) {
        Ok(group) => Ok(group.versions.into_iter().map(|served| served.version).collect()),
        Err(ApiError::NotFound) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The kinds of one version of a group that the API server serves.
pub async fn read_kinds(
    client: &kube::Client,
    group: &str,
    version: &str,
) -> Result<Vec<KindInfo>, ApiError> {
    // Users can write any text into an owner reference, and it must not change the path.
    let APIResourceList { resources, .. } = match group {
        "" => client.list_core_api_resources(&escaped(version)).await?,
        _ => {
            let group_version = format!("{}/{}", escaped(group), escaped(version));
            client.list_api_group_resources(&group_version).await?
        }
    };
    let kinds = resources.into_iter().filter(|resource| !resource.name.contains('/'));
    Ok(kinds
        .map(|kind| Kinds::custom(group, version, &kind.kind, &kind.name, kind.namespaced))
        .collect())
}

/// Returns Ok if no API server serves this kind, so that it has no objects. A 404 for a path
/// is no proof, because the API server also returns it for a version that is no longer
/// served. The proof is that a live read finds no CRD, and that no version of the group lists
/// the kind.
pub async fn check_unserved(
    client: &kube::Client,
    group: &str,
    resource: &str,
) -> Result<(), ApiError> {
    if resource.is_empty() {
        return Err(ApiError::Other("belay does not know this kind".to_owned()));
    }
    if Kinds::is_built_in_group(group) {
        return Err(ApiError::NotFound);
    }
    let unknown = |error: ApiError| {
        ApiError::Other(format!("belay cannot find out whether such objects exist: {error}"))
    };
    let name = full_name(group, resource);
    let request = api::get_request(&crds(), ("", &name), Detail::Metadata)?;
    match api::send(client, request).await.map_err(ReadFailure::from) {
        Ok(_) => {
            let why = format!("CRD {name} exists, but does not serve the version that belay reads");
            return Err(ApiError::Other(why));
        }
        Err(failure) if failure.is_absence(CRDS.1, &name) => {}
        Err(failure) => return Err(unknown(failure.error)),
    }
    for version in read_versions(client, group).await.map_err(unknown)? {
        let kinds = read_kinds(client, group, &version).await.map_err(unknown)?;
        if kinds.iter().any(|info| info.resource == resource) {
            let why = "the API server lists this kind and does not serve it";
            return Err(ApiError::Other(why.to_owned()));
        }
    }
    Ok(())
}

fn crds() -> KindInfo {
    Kinds::custom(CRDS.0, "v1", "CustomResourceDefinition", CRDS.1, false)
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
    fn names_of_kinds_resolve_like_in_kubectl() {
        let names = Discovery::new(lists()).names();
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
            // A plural of any group comes before a short name of the core group.
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
