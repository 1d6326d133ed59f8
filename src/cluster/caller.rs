//! The user of a command: the identity at the API server, and the requests that the command sends
//! with the rights of the user.

use std::path::PathBuf;

use json_patch::PatchOperation;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::KubeConfigOptions;
use serde_json::Value;

use super::account::{UserIdentity, read_identity, user_of};
use super::api;
use super::api::Detail;
use super::api_error::chain;
use super::connection;
use super::dry_run::DryRunSupport;
use super::kubeconfig::find_cluster;
use super::start::{StartError, with_defaults};
use crate::objects::{
    ApiError, KindInfo, read_tolerant_with_managed_fields, read_without_managed_fields,
};

/// The cluster and the user to connect as, from the same options as kubectl.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// A kubeconfig file; `None`: KUBECONFIG, or the account of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None`: the current one.
    pub context: Option<String>,
    /// A user to impersonate.
    pub impersonate: Option<String>,
    /// The groups of that user.
    pub impersonate_groups: Vec<String>,
}

/// The user of a command, connected to the API server.
#[derive(Clone)]
pub struct Caller {
    pub client: kube::Client,
    /// The namespace of the context.
    pub namespace: String,
    config: kube::Config,
    pub(super) dry_runs: DryRunSupport,
}

impl Caller {
    /// Connects to the API server.
    pub async fn connect(access: &Access) -> Result<Self, StartError> {
        let options = KubeConfigOptions { context: access.context.clone(), ..Default::default() };
        let config = find_cluster(access.kubeconfig.as_ref(), &options).await;
        let config = config.map_err(StartError::Kubeconfig)?;
        let user_agent = concat!("kubectl-belay/", env!("CARGO_PKG_VERSION"));
        let mut config = with_defaults(config, user_agent);
        if let Some(user) = &access.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        if !access.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(access.impersonate_groups.clone());
        }
        let namespace = config.default_namespace.clone();
        let client = connection::client(config.clone());
        let client = client.map_err(|error| StartError::Client(chain(&error)))?;
        Ok(Self { client, namespace, config, dry_runs: DryRunSupport::default() })
    }

    /// The caller of a client that has no API server behind it.
    pub fn with_client(client: kube::Client) -> Self {
        let config = kube::Config::new(http::Uri::from_static("http://localhost"));
        let namespace = config.default_namespace.clone();
        Self { client, namespace, config, dry_runs: DryRunSupport::default() }
    }

    /// Reads the identity of the user.
    pub async fn who_am_i(&self) -> Result<UserIdentity, ApiError> {
        read_identity(&self.client).await
    }

    /// The address of the API server.
    pub fn address(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// Impersonates this account, if the API server allows that and the account may patch this kind
    /// in this namespace. An impersonation that the user chose stays.
    pub async fn acting_as(
        &self,
        account: &str,
        info: &KindInfo,
        namespace: &str,
    ) -> Option<kube::Client> {
        if self.config.auth_info.impersonate.is_some() {
            return None;
        }
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(account.to_owned());
        let client = connection::client(config).ok()?;
        // The API server denies the review itself to a user who may not impersonate.
        let kind = (info.group.as_str(), info.resource.as_str());
        may(&client, "patch", kind, (namespace, "")).await?.then_some(client)
    }

    /// Whether the user may use this verb on an object, or on every object of a kind (`*`: of any
    /// kind) in a namespace. `None` if it is unknown.
    pub async fn may(&self, verb: &str, kind: (&str, &str), place: (&str, &str)) -> Option<bool> {
        may(&self.client, verb, kind, place).await
    }

    /// Whether a ServiceAccount may use this verb on all objects of a kind in the whole cluster.
    /// `None` if it is unknown, for example because the user may not ask about others.
    pub async fn account_may(
        &self,
        (namespace, account): (&str, &str),
        verb: &str,
        kind: (&str, &str),
    ) -> Option<bool> {
        let accounts = "system:serviceaccounts";
        let groups = [accounts, &format!("{accounts}:{namespace}"), "system:authenticated"];
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user_of(namespace, account)),
                groups: Some(groups.map(str::to_owned).to_vec()),
                resource_attributes: Some(attributes(verb, kind, ("", ""))),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.ok()?;
        answer.status.map(|status| status.allowed)
    }

    /// Reads the metadata of an object as JSON; `None` if it does not exist.
    pub async fn metadata(
        &self,
        info: &KindInfo,
        namespace: &str,
        name: &str,
    ) -> Result<Option<String>, ApiError> {
        api::object(&self.client, info, namespace, name, Detail::Metadata).await
    }

    /// Creates an object.
    pub async fn create(
        &self,
        info: &KindInfo,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, ApiError> {
        let body =
            serde_json::to_vec(object).map_err(|error| ApiError::Other(error.to_string()))?;
        let request = api::requests(info, namespace).create(&PostParams::default(), body)?;
        parse(&self.client.request_text(request).await?).map(|(object, _)| object)
    }

    /// Patches an object, or a subresource of it, with JSON patch operations.
    pub async fn patch(
        &self,
        info: &KindInfo,
        (namespace, name): (&str, &str),
        subresource: Option<&str>,
        operations: Vec<PatchOperation>,
        params: &PatchParams,
    ) -> Result<(), ApiError> {
        let patch = Patch::Json::<()>(json_patch::Patch(operations));
        let (requests, name) = (api::requests(info, namespace), api::escaped(name));
        let request = match subresource {
            Some(subresource) => requests.patch_subresource(subresource, &name, params, &patch)?,
            None => requests.patch(&name, params, &patch)?,
        };
        self.client.request_text(request).await?;
        Ok(())
    }

    /// Reads a whole object; `None` if it does not exist. Values that can't be parsed are omitted,
    /// because clients can write such values.
    pub async fn object(
        &self,
        info: &KindInfo,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(self.manifest(info, namespace, name).await?.map(|(object, _)| object))
    }

    /// Like [`Self::object`]. Also returns whether the object has all its values, except perhaps
    /// managedFields.
    pub async fn manifest(
        &self,
        info: &KindInfo,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(Value, bool)>, ApiError> {
        let read = api::object(&self.client, info, namespace, name, Detail::Whole).await;
        let Some(json) = read? else { return Ok(None) };
        parse(&json).map(Some)
    }
}

/// Parses an object, and returns whether it has all values.
fn parse(json: &str) -> Result<(Value, bool), ApiError> {
    let exact = serde_json::from_str(json).or_else(|_| read_without_managed_fields(json));
    if let Ok(object) = exact {
        return Ok((object, true));
    }
    let object = read_tolerant_with_managed_fields(json).map_err(|_| {
        ApiError::Unreadable("the answer of the API server is not an object".to_owned())
    })?;
    Ok((object, false))
}

/// Whether the user of a client has a permission. Empty names mean all.
async fn may(
    client: &kube::Client,
    verb: &str,
    kind: (&str, &str),
    place: (&str, &str),
) -> Option<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes(verb, kind, place)),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await.ok()?;
    answer.status.map(|status| status.allowed)
}

/// A permission to ask about. Empty names mean all.
fn attributes(
    verb: &str,
    (group, resource): (&str, &str),
    (namespace, name): (&str, &str),
) -> ResourceAttributes {
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: given(namespace),
        name: given(name),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h174_only_the_deep_values_of_an_object_are_not_read() {
        let parse = |value: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"a","managedFields":[{{"time":"t"}}]}},"spec":{{"a":{value},"b":1}}}}"#
            );
            parse(&json).unwrap()
        };
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&deep(100)).1);
        for value in [&deep(200), &deep(10_000), r#""\ud800""#, "1e999"] {
            let (object, is_exact) = parse(value);
            assert!(!is_exact, "{value}");
            assert_eq!(object["metadata"]["name"], "a");
            assert_eq!(object["metadata"]["managedFields"][0]["time"], "t");
            assert_eq!(object["spec"]["b"], 1);
        }
    }
}
