//! What belay keeps for itself, and the configurations by which the API server
//! asks it: what an uninstall takes away beside holds.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::NotBegun;
use super::news::News;
use crate::cluster::certificates::{is_running, replica_label};
use crate::cluster::context::Settings;
use crate::cluster::exemption;
use crate::cluster::journal::replica::LABEL as JOURNAL;
use crate::cluster::pace::within;
use crate::cluster::registration::manifests::WEBHOOKS;
use crate::cluster::secret::is_own;
use crate::objects::ApiError;
use crate::policy::api::DeletionApproval;

/// Deletes an object by its name. The result is whether it was there.
async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<bool, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let same = Preconditions { uid, ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    match within(api.delete(name, &parameters)).await {
        Ok(_) => Ok(true),
        Err(ApiError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What an uninstall has to know of a webhook configuration.
struct Asks {
    name: String,
    uid: Option<String>,
    /// Its entries: their names, and the namespaces of the Services they ask.
    entries: Vec<(String, Option<String>)>,
}

impl From<MutatingWebhookConfiguration> for Asks {
    fn from(config: MutatingWebhookConfiguration) -> Self {
        let entries = config.webhooks.into_iter().flatten();
        let entries = entries.map(|w| (w.name, w.client_config.service.map(|s| s.namespace)));
        let ObjectMeta { name, uid, .. } = config.metadata;
        Self { name: name.unwrap_or_default(), uid, entries: entries.collect() }
    }
}

impl From<ValidatingWebhookConfiguration> for Asks {
    fn from(config: ValidatingWebhookConfiguration) -> Self {
        let entries = config.webhooks.into_iter().flatten();
        let entries = entries.map(|w| (w.name, w.client_config.service.map(|s| s.namespace)));
        let ObjectMeta { name, uid, .. } = config.metadata;
        Self { name: name.unwrap_or_default(), uid, entries: entries.collect() }
    }
}

impl Asks {
    /// Whether this is a belay's, whatever it is called.
    fn is_belays(&self) -> bool {
        self.entries.iter().any(|(name, _)| WEBHOOKS.iter().any(|entry| entry.name == *name))
    }

    /// Where that belay is, if it can be told.
    fn namespace(&self) -> Option<String> {
        self.entries.iter().find_map(|(_, namespace)| namespace.clone())
    }
}

/// A configuration of this name, and all that may be listed.
async fn asks<K>(client: &kube::Client, name: &str) -> Result<(Option<Asks>, Vec<Asks>), NotBegun>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Into<Asks>,
    K: Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let unread = |what: String| move |error| NotBegun::Configurations(what, error);
    let kind = K::kind(&());
    let own = match within(api.get(name)).await {
        Ok(own) => Some(own.into()),
        Err(ApiError::NotFound) => None,
        Err(error) => return Err(unread(format!("{kind} {name}"))(error)),
    };
    let all = all(&api).await.map_err(unread(format!("{kind}s")))?;
    Ok((own, all))
}

/// All configurations of a kind; none for who may not list them: whoever may
/// read one alone was told which one it is.
async fn all<K>(api: &Api<K>) -> Result<Vec<Asks>, ApiError>
where
    K: Into<Asks> + Clone + DeserializeOwned + Debug,
{
    match listed(api).await {
        Err(ApiError::Forbidden(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// All configurations of a kind.
async fn listed<K>(api: &Api<K>) -> Result<Vec<Asks>, ApiError>
where
    K: Into<Asks> + Clone + DeserializeOwned + Debug,
{
    let list = within(api.list(&ListParams::default())).await?;
    Ok(list.items.into_iter().map(Into::into).collect())
}

/// A belay that the API server asks, as NAMESPACE/NAME.
pub async fn installed(client: &kube::Client) -> Result<Option<String>, ApiError> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let (mutating, validating) = tokio::join!(listed(&mutating), listed(&validating));
    let mut found = mutating?.into_iter().chain(validating?).filter(Asks::is_belays);
    Ok(found.next().map(|asks| match asks.namespace() {
        Some(namespace) => format!("{namespace}/{}", asks.name),
        None => asks.name,
    }))
}

/// The uids of the configurations of the installation, as they were read; each
/// is none if it was not there.
#[derive(Debug, Default)]
pub struct Configurations {
    mutating: Option<String>,
    validating: Option<String>,
}

impl Configurations {
    /// Reads them. It is an error if they ask another belay of the same name,
    /// or if those of another name do: that one lives, and would lose its holds.
    pub async fn read(client: &kube::Client, settings: &Settings) -> Result<Self, NotBegun> {
        let name = &settings.name;
        let (mutating, validating) = tokio::join!(
            asks::<MutatingWebhookConfiguration>(client, name),
            asks::<ValidatingWebhookConfiguration>(client, name),
        );
        let ((mutating, all), (validating, more)) = (mutating?, validating?);
        let own = mutating.iter().chain(&validating).flat_map(|asks| &asks.entries);
        let mut namespaces = own.filter_map(|(_, namespace)| namespace.clone());
        if let Some(other) = namespaces.find(|other| *other != settings.namespace) {
            return Err(NotBegun::Elsewhere { namespace: Some(other), name: name.clone() });
        }
        let others = all.into_iter().chain(more);
        let mut others = others.filter(|asks| asks.name != *name && asks.is_belays());
        if let Some(other) = others.next() {
            let namespace = other.namespace();
            return Err(NotBegun::Elsewhere { namespace, name: other.name });
        }
        let uid = |asks: Asks| asks.uid.unwrap_or_default();
        Ok(Self { mutating: mutating.map(uid), validating: validating.map(uid) })
    }

    /// Deletes both, and none that is there in their place now: first the one
    /// by which new objects get holds.
    pub async fn delete(
        &self,
        client: &kube::Client,
        name: &str,
        tell: &dyn Fn(News),
    ) -> Result<(), NotBegun> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        delete_same(&mutating, name, self.mutating.clone(), tell).await?;
        delete_same(&validating, name, self.validating.clone(), tell).await
    }
}

/// Deletes a configuration that was there when it was read.
async fn delete_same<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<String>,
    tell: &dyn Fn(News),
) -> Result<(), NotBegun>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let what = format!("{} {name}", K::kind(&()));
    let there = match uid {
        Some(uid) => delete(api, name, Some(uid)).await,
        None => Ok(false),
    };
    match there {
        Ok(true) => tell(News::Deleted(what)),
        Ok(false) => tell(News::Absent(what)),
        Err(error) => return Err(NotBegun::Configuration(what, error)),
    }
    Ok(())
}

/// What is left of an installation once its holds are off.
pub struct Remains<'a> {
    pub client: &'a kube::Client,
    pub settings: &'a Settings,
    /// The name of belay's own account, in whose name exemptions are recorded.
    pub own: &'a str,
    pub tell: &'a dyn Fn(News),
}

impl Remains<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Deletes an object, and tells of what could not be.
    async fn away<K>(&self, api: &Api<K>, kind: &str, name: &str, uid: Option<String>)
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let what = format!("{kind} {name}");
        match delete(api, name, uid).await {
            Ok(true) => (self.tell)(News::Deleted(what)),
            Ok(false) => {}
            Err(error) => (self.tell)(News::Behind(what, error.to_string())),
        }
    }

    fn behind(&self, what: &str, error: &ApiError) {
        // Whose namespace, or kind, is not there is not there either.
        if *error != ApiError::NotFound {
            (self.tell)(News::Behind(what.to_owned(), error.to_string()));
        }
    }

    /// Deletes what belay keeps, but for Leases.
    pub async fn delete(&self) {
        let name = &self.settings.name;
        let maps: Api<ConfigMap> = self.api();
        self.away(&maps, "ConfigMap", &format!("{name}-held"), None).await;
        let journals = ListParams::default().labels(&format!("{JOURNAL}={name}"));
        match within(maps.list_metadata(&journals)).await {
            Ok(list) => {
                for map in list.items {
                    self.away(&maps, "ConfigMap", &map.name_any(), map.uid()).await;
                }
            }
            Err(error) => self.behind("the journals (ConfigMaps)", &error),
        }
        for secret in [format!("{name}-tls"), format!("{name}-path")] {
            self.secret(&secret).await;
        }
        self.exemptions().await;
    }

    /// Deletes a Secret, if belay has made what is in it.
    async fn secret(&self, name: &str) {
        let secrets: Api<Secret> = self.api();
        match within(secrets.get_metadata(name)).await {
            Ok(secret) if is_own(&secret.metadata) => {
                self.away(&secrets, "Secret", name, secret.uid()).await;
            }
            Ok(_) | Err(ApiError::NotFound) => {}
            Err(error) => self.behind(&format!("Secret {name}"), &error),
        }
    }

    async fn exemptions(&self) {
        let approvals: Api<DeletionApproval> = Api::all(self.client.clone());
        match within(approvals.list(&ListParams::default())).await {
            Ok(list) => {
                for approval in list.items {
                    let name = approval.name_any();
                    if exemption::is_recorded(&name) && approval.spec.approver == self.own {
                        self.away(&approvals, "DeletionApproval", &name, approval.uid()).await;
                    }
                }
            }
            Err(error) => self.behind("DeletionApprovals", &error),
        }
    }

    /// Deletes the Leases of replicas that do not run any more, at this time.
    /// The result is those of the others, by name; an error: nobody knows.
    pub async fn delete_replicas(&self, now: Timestamp) -> Result<Vec<String>, ApiError> {
        let leases: Api<Lease> = self.api();
        let labels = replica_label(&self.settings.name);
        let list = within(leases.list(&ListParams::default().labels(&labels))).await?;
        let due = self.settings.timing.certificates.due;
        let mut running = Vec::new();
        for lease in list.items {
            if is_running(&lease, due, now) {
                running.push(lease.name_any());
            } else {
                self.away(&leases, "Lease", &lease.name_any(), lease.uid()).await;
            }
        }
        Ok(running)
    }

    /// What replicas that run keep goes with this: their Deployment, or else
    /// the account that they run as, which whoever installed belay deletes.
    /// None: neither is there; an error: nobody knows.
    pub async fn heir(&self) -> Result<Option<OwnerReference>, ApiError> {
        let deployment = self.owner::<Deployment>(&self.settings.name).await;
        if let Ok(Some(owner)) = deployment {
            return Ok(Some(owner));
        }
        let account = self.own.rsplit(':').next().unwrap_or_default();
        match self.owner::<ServiceAccount>(account).await {
            Ok(None) => deployment,
            account => account,
        }
    }

    /// The object of this kind and name, as an owner; none: there is none.
    async fn owner<K>(&self, name: &str) -> Result<Option<OwnerReference>, ApiError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = self.api();
        let found = match within(api.get_metadata(name)).await {
            Ok(found) => found,
            Err(ApiError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: found.name_any(),
            uid: found.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }))
    }

    /// Has the Leases of replicas that run go with that.
    pub async fn bequeath(&self, names: &[String], owner: &OwnerReference) {
        let leases: Api<Lease> = self.api();
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
        for name in names {
            match within(leases.patch_metadata(name, &PatchParams::default(), &patch)).await {
                Ok(_) | Err(ApiError::NotFound) => {}
                Err(error) => self.behind(&format!("Lease {name}"), &error),
            }
        }
    }
}
