//! Deletes belay's own objects. An uninstall does this when no object has a hold any longer.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::report::UninstallEvent;
use crate::cluster::api::delete_exactly;
use crate::cluster::certificates::{is_running, replica_selector};
use crate::cluster::context::Settings;
use crate::cluster::election::Election;
use crate::cluster::journal::replica::LABEL as JOURNAL;
use crate::cluster::list::list_all;
use crate::cluster::pace::within;
use crate::cluster::secret::is_own;
use crate::objects::{ApiError, counted, shell_word};
use crate::policy::api::DeletionApproval;

/// The objects of one installation.
pub struct OwnObjects<'a> {
    pub client: &'a kube::Client,
    pub settings: &'a Settings,
    /// The user name of belay's own account, which records exemptions.
    pub own_user: &'a str,
    /// Whether the webhook configurations may exist, because a tool has re-created them.
    pub may_be_registered: bool,
    /// The part of this process in the election. It holds the Lease.
    pub election: &'a Election<'a>,
    pub report: &'a dyn Fn(UninstallEvent),
}

/// The objects but Leases.
#[derive(Default)]
struct FoundObjects {
    maps: Vec<PartialObjectMeta<ConfigMap>>,
    secrets: Vec<PartialObjectMeta<Secret>>,
    /// The records of exemptions.
    approvals: Vec<DeletionApproval>,
    /// What could not be read, each with the reason.
    unread: Vec<(String, ApiError)>,
}

impl FoundObjects {
    /// The items of a list. There are none if its namespace or its kind does not exist. Records a
    /// failed read.
    fn items_or_record_failure<T>(&mut self, what: &str, list: Result<Vec<T>, ApiError>) -> Vec<T> {
        match list {
            Ok(list) => list,
            Err(ApiError::NotFound) => Vec::new(),
            Err(error) => {
                self.unread.push((what.to_owned(), error));
                Vec::new()
            }
        }
    }
}

impl OwnObjects<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Deletes all objects, the Lease last. While replicas run, this process keeps the Lease,
    /// because a leader would re-create the other objects. Then the Deployment or account of the
    /// replicas becomes the owner of the Lease, so that the garbage collector deletes both.
    pub async fn delete_all(&self, now: Timestamp) {
        self.delete_all_but_leases().await;
        let (name, leases) = (&self.settings.name, self.api::<Lease>());
        let running = match self.delete_stopped_replica_leases(now).await {
            Ok(running) => running,
            // Without a Lease, a running replica would become the leader and re-create the other
            // objects.
            Err(error) => {
                let why = format!("it is unknown whether replicas still run: {error}");
                return self.report_left_behind(&format!("Lease {name}"), why);
            }
        };
        let owner = if running.is_empty() { Ok(None) } else { self.owner_of_replicas().await };
        match owner {
            Err(error) => self.report_left_behind(&format!("Lease {name}"), error),
            Ok(None) => self.report_deletion("Lease", name, self.election.delete_lease().await),
            Ok(Some(owner)) => self.hand_over_leases(&leases, &running, &owner).await,
        }
    }

    /// Makes this object the owner of the Leases, so that the garbage collector deletes them with
    /// it.
    async fn hand_over_leases(
        &self,
        leases: &Api<Lease>,
        running: &[String],
        owner: &OwnerReference,
    ) {
        // Renews the Lease, so that no replica takes it meanwhile. If this fails, it is still valid
        // for a while.
        let _ = self.election.take_over().await;
        let mut lease_patch = json!({"metadata": {"ownerReferences": [owner]}});
        let owned = Patch::Merge(lease_patch.clone());
        // With these annotations, replicas take the Lease if the webhook configurations exist. If
        // they exist now, replicas would add holds before their Deployment is deleted.
        if !self.may_be_registered {
            lease_patch["metadata"]["annotations"] = self.election.left_behind_annotations();
        }
        let parameters = PatchParams::default();
        for name in running {
            match within(leases.patch_metadata(name, &parameters, &owned)).await {
                Ok(_) | Err(ApiError::NotFound) => {}
                Err(error) => self.report_left_behind(&format!("Lease {name}"), error),
            }
        }
        let name = &self.settings.name;
        match within(leases.patch_metadata(name, &parameters, &Patch::Merge(lease_patch))).await {
            Ok(_) => (self.report)(UninstallEvent::Step(format!(
                "replicas still run, so the Lease {name} remains until {kind} {owner} is deleted; \
                 next: {step}",
                kind = owner.kind,
                owner = owner.name,
                step = removal_step(self.client, &self.settings.namespace, owner).await,
            ))),
            Err(error) => self.report_left_behind(&format!("Lease {name}"), error),
        }
    }

    /// Deletes an object, and reports it.
    async fn delete<K>(&self, api: &Api<K>, kind: &str, name: &str, uid: Option<String>)
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.report_deletion(kind, name, delete_exactly(api, name, uid).await);
    }

    fn report_deletion(&self, kind: &str, name: &str, existed: Result<bool, ApiError>) {
        match existed {
            Ok(true) => (self.report)(UninstallEvent::Step(format!("deleted: {kind} {name}"))),
            Ok(false) => {}
            Err(error) => self.report_left_behind(&format!("{kind} {name}"), error),
        }
    }

    fn report_left_behind(&self, what: &str, why: impl ToString) {
        (self.report)(UninstallEvent::Warning(format!(
            "{what} is left behind, which is harmless: {}; delete it by hand",
            why.to_string()
        )));
    }

    /// Reports what `delete_all` would delete. Only the DeletionApprovals can be many.
    pub async fn report_plan(&self, now: Timestamp) {
        let FoundObjects { maps, secrets, approvals, unread } = self.find_objects().await;
        let plan =
            |what: &str| (self.report)(UninstallEvent::Step(format!("would delete: {what}")));
        for map in &maps {
            plan(&format!("ConfigMap {}", map.name_any()));
        }
        for secret in &secrets {
            plan(&format!("Secret {}", secret.name_any()));
        }
        if !approvals.is_empty() {
            let approvals = counted(approvals.len(), "DeletionApproval");
            plan(&format!("{approvals} of belay, which record exemptions"));
        }
        for (what, why) in unread {
            (self.report)(UninstallEvent::Warning(format!("{what} could not be read: {why}")));
        }
        match self.plan_leases(now).await {
            Ok(steps) => steps.into_iter().map(UninstallEvent::Step).for_each(self.report),
            Err(why) => (self.report)(UninstallEvent::Warning(format!(
                "the Leases could not be read: {why}"
            ))),
        }
    }

    async fn plan_leases(&self, now: Timestamp) -> Result<Vec<String>, ApiError> {
        let (mut deleted, mut kept) = self.replica_leases(now).await?;
        let own = within(self.api::<Lease>().get_opt(&self.settings.name)).await?;
        if kept.is_empty() { &mut deleted } else { &mut kept }.extend(own);
        let deleted =
            deleted.iter().map(|lease| format!("would delete: Lease {}", lease.name_any()));
        let kept = kept.iter().map(|lease| {
            format!("would leave: Lease {}, until the replicas are deleted", lease.name_any())
        });
        Ok(deleted.chain(kept).collect())
    }

    /// Deletes all but Leases.
    async fn delete_all_but_leases(&self) {
        let FoundObjects { maps, secrets, approvals, unread } = self.find_objects().await;
        for (what, why) in unread {
            self.report_left_behind(&what, why);
        }
        for map in maps {
            self.delete(&self.api::<ConfigMap>(), "ConfigMap", &map.name_any(), map.uid()).await;
        }
        for secret in secrets {
            self.delete(&self.api::<Secret>(), "Secret", &secret.name_any(), secret.uid()).await;
        }
        let api: Api<DeletionApproval> = Api::all(self.client.clone());
        for approval in approvals {
            self.delete(&api, "DeletionApproval", &approval.name_any(), approval.uid()).await;
        }
    }

    /// Finds all objects but Leases.
    async fn find_objects(&self) -> FoundObjects {
        let name = &self.settings.name;
        let mut found = FoundObjects::default();
        let api: Api<ConfigMap> = self.api();
        let held = format!("{name}-held");
        let map = within(api.get_metadata(&held)).await.map(|map| vec![map]);
        found.maps = found.items_or_record_failure(&format!("ConfigMap {held}"), map);
        let journals = ListParams::default().labels(&format!("{JOURNAL}={name}"));
        let journals = within(api.list_metadata(&journals)).await.map(|list| list.items);
        let journals = found.items_or_record_failure("the journals (ConfigMaps)", journals);
        found.maps.extend(journals);
        let api = self.api::<Secret>();
        for name in [format!("{name}-tls"), format!("{name}-path")] {
            let secret = within(api.get_metadata(&name)).await.map(|secret| vec![secret]);
            let secret = found.items_or_record_failure(&format!("Secret {name}"), secret);
            found.secrets.extend(secret);
        }
        // Secrets of other programs stay.
        found.secrets.retain(|secret| is_own(&secret.metadata));
        // Approvers may write managedFields that a typed list can't read (H141).
        let all = list_all(Api::all(self.client.clone()), ListParams::default());
        let all = within(all).await.map(|list| list.objects);
        found.approvals = found.items_or_record_failure("the DeletionApprovals", all);
        found.approvals.retain(|approval| {
            approval.has_record_name() && approval.spec.approver == self.own_user
        });
        found
    }

    /// Deletes the Leases of replicas that no longer run. Returns the names of the others.
    async fn delete_stopped_replica_leases(&self, now: Timestamp) -> Result<Vec<String>, ApiError> {
        let (ended, running) = self.replica_leases(now).await?;
        for lease in ended {
            self.delete(&self.api::<Lease>(), "Lease", &lease.name_any(), lease.uid()).await;
        }
        Ok(running.iter().map(Lease::name_any).collect())
    }

    /// The Leases of the replicas: of those that no longer run, and of the others.
    async fn replica_leases(&self, now: Timestamp) -> Result<(Vec<Lease>, Vec<Lease>), ApiError> {
        let labels = ListParams::default().labels(&replica_selector(&self.settings.name));
        let list = within(self.api::<Lease>().list(&labels)).await?;
        let due = self.settings.timing.certificates.due;
        Ok(list.items.into_iter().partition(|lease| !is_running(lease, due, now)))
    }

    /// The object that a user deletes with belay: the Deployment of the replicas, or else their
    /// ServiceAccount. `None`: neither exists.
    pub async fn owner_of_replicas(&self) -> Result<Option<OwnerReference>, ApiError> {
        let deployment = self.owner::<Deployment>(&self.settings.name).await;
        if let Ok(Some(owner)) = deployment {
            return Ok(Some(owner));
        }
        let account = self.own_user.rsplit(':').next().unwrap_or_default();
        match self.owner::<ServiceAccount>(account).await {
            Ok(None) => deployment,
            account => account,
        }
    }

    /// The object of this kind and name, as an owner.
    async fn owner<K>(&self, name: &str) -> Result<Option<OwnerReference>, ApiError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
        K: Clone + DeserializeOwned + Debug,
    {
        let found = within(self.api::<K>().get_metadata_opt(name)).await?;
        Ok(found.map(|found| OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name: found.name_any(),
            uid: found.uid().unwrap_or_default(),
            ..OwnerReference::default()
        }))
    }
}

/// The command that deletes this owner of replicas: with the Helm release, if there is one. The
/// uninstall has done the work of its hooks.
pub async fn removal_step(
    client: &kube::Client,
    namespace: &str,
    owner: &OwnerReference,
) -> String {
    let OwnerReference { kind, name, .. } = owner;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = match *kind == Deployment::kind(&()) {
        true => within(deployments.get_metadata_opt(name)).await.ok().flatten(),
        false => None,
    };
    let annotations = deployment.and_then(|deployment| deployment.metadata.annotations);
    let release = annotations.and_then(|mut all| all.remove("meta.helm.sh/release-name"));
    match release {
        Some(release) => {
            let release = shell_word(&release);
            format!("helm uninstall {release} --namespace {namespace} --no-hooks")
        }
        None => format!("kubectl -n {namespace} delete {} {name}", kind.to_lowercase()),
    }
}
