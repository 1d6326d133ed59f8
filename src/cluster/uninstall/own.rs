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
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::news::News;
use crate::cluster::api::Trouble;
use crate::cluster::certificates::{is_own, is_running, replica_label};
use crate::cluster::context::Settings;
use crate::cluster::exemption;
use crate::cluster::journal::replica::LABEL as JOURNAL;
use crate::cluster::pace::within;
use crate::policy::api::DeletionApproval;

/// Deletes an object by its name. The result is whether it was there.
async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<bool, Trouble>
where
    K: Clone + DeserializeOwned + Debug,
{
    let same = Preconditions { uid, ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    match within(api.delete(name, &parameters)).await {
        Ok(_) => Ok(true),
        Err(Trouble::NotFound) => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

/// The namespace of the belay that a configuration of this name asks, if that
/// is another one: two installations of one name share their configurations.
pub async fn of_another(client: &kube::Client, settings: &Settings) -> Option<String> {
    let name = &settings.name;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let (one, other) = tokio::join!(within(mutating.get(name)), within(validating.get(name)));
    // What may not be read is found out when it is deleted.
    let one = one.ok().and_then(|c| c.webhooks).into_iter().flatten().map(|w| w.client_config);
    let other = other.ok().and_then(|c| c.webhooks).into_iter().flatten().map(|w| w.client_config);
    one.chain(other)
        .filter_map(|config| config.service)
        .map(|service| service.namespace)
        .find(|namespace| *namespace != settings.namespace)
}

/// Deletes both configurations: first the one by which new objects get holds.
pub async fn delete_configurations(
    client: &kube::Client,
    name: &str,
    tell: &dyn Fn(News),
) -> Result<(), (String, Trouble)> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let told = |what: String, there: bool| {
        tell(if there { News::Deleted(what) } else { News::Absent(what) });
    };
    let what = format!("MutatingWebhookConfiguration {name}");
    match delete(&mutating, name, None).await {
        Ok(there) => told(what, there),
        Err(trouble) => return Err((what, trouble)),
    }
    let what = format!("ValidatingWebhookConfiguration {name}");
    match delete(&validating, name, None).await {
        Ok(there) => told(what, there),
        Err(trouble) => return Err((what, trouble)),
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
            Err(trouble) => (self.tell)(News::Behind(what, trouble.words())),
        }
    }

    fn behind(&self, what: &str, trouble: &Trouble) {
        // Whose namespace, or kind, is not there is not there either.
        if *trouble != Trouble::NotFound {
            (self.tell)(News::Behind(what.to_owned(), trouble.words()));
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
            Err(trouble) => self.behind("the journals (ConfigMaps)", &trouble),
        }
        self.certificate().await;
        self.exemptions().await;
    }

    /// The Secret, if belay has made what is in it.
    async fn certificate(&self) {
        let (secrets, name): (Api<Secret>, _) = (self.api(), format!("{}-tls", self.settings.name));
        match within(secrets.get_metadata(&name)).await {
            Ok(secret) if is_own(&secret.metadata) => {
                self.away(&secrets, "Secret", &name, secret.uid()).await;
            }
            Ok(_) | Err(Trouble::NotFound) => {}
            Err(trouble) => self.behind(&format!("Secret {name}"), &trouble),
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
            Err(trouble) => self.behind("DeletionApprovals", &trouble),
        }
    }

    /// Deletes the Leases of replicas that do not run any more, at this time.
    /// The result is those of the others, by name.
    pub async fn delete_replicas(&self, now: Timestamp) -> Vec<String> {
        let leases: Api<Lease> = self.api();
        let labels = replica_label(&self.settings.name);
        let list = match within(leases.list(&ListParams::default().labels(&labels))).await {
            Ok(list) => list.items,
            Err(trouble) => {
                self.behind("the Leases of the replicas", &trouble);
                return Vec::new();
            }
        };
        let mut running = Vec::new();
        for lease in list {
            if is_running(&lease, now) {
                running.push(lease.name_any());
            } else {
                self.away(&leases, "Lease", &lease.name_any(), lease.uid()).await;
            }
        }
        running
    }

    /// What replicas that run keep goes with this: their Deployment, or else
    /// the account that they run as, which whoever installed belay deletes.
    pub async fn heir(&self) -> Option<OwnerReference> {
        match self.owner::<Deployment>().await {
            Some(owner) => Some(owner),
            None => self.owner::<ServiceAccount>().await,
        }
    }

    /// The object of this kind that is named like the installation, as an
    /// owner; none: there is none, or it may not be read.
    async fn owner<K>(&self) -> Option<OwnerReference>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = self.api();
        let found = within(api.get_metadata(&self.settings.name)).await.ok()?;
        Some(OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: found.name_any(),
            uid: found.uid()?,
            ..OwnerReference::default()
        })
    }

    /// Has the Leases of replicas that run go with that.
    pub async fn bequeath(&self, names: &[String], owner: &OwnerReference) {
        let leases: Api<Lease> = self.api();
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
        for name in names {
            match within(leases.patch_metadata(name, &PatchParams::default(), &patch)).await {
                Ok(_) | Err(Trouble::NotFound) => {}
                Err(trouble) => self.behind(&format!("Lease {name}"), &trouble),
            }
        }
    }
}
