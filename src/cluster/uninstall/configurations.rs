//! Deletes the webhook configurations of the installation. The uninstall fails if configurations
//! of another installation exist.

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};

use super::UninstallError;
use super::report::UninstallEvent;
use crate::cluster::api::delete_exactly;
use crate::cluster::context::Settings;
use crate::cluster::pace::within;
use crate::cluster::registration::stored::{StoredWebhook, configuration_kind, parse_webhooks};
use crate::decide::AdmissionPhase;
use crate::objects::ApiError;

/// The kinds of the configurations. The first adds holds to new objects, so it is deleted first.
fn kinds() -> [ApiResource; 2] {
    [AdmissionPhase::Mutate, AdmissionPhase::Validate].map(configuration_kind)
}

fn webhooks(configuration: &DynamicObject) -> impl Iterator<Item = StoredWebhook> {
    parse_webhooks(configuration.data.get("webhooks")).unwrap_or_default().into_iter()
}

/// Whether a configuration has a webhook of belay, under any name.
fn is_of_belay(configuration: &DynamicObject) -> bool {
    webhooks(configuration).any(|webhook| webhook.is_of_belay())
}

/// The namespace of the installation, if known.
fn installed_in(configuration: &DynamicObject) -> Option<String> {
    webhooks(configuration).find_map(|webhook| webhook.namespace())
}

async fn list(client: &kube::Client, kind: &ApiResource) -> Result<Vec<DynamicObject>, ApiError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    Ok(within(api.list(&ListParams::default())).await?.items)
}

/// An installation whose webhook configurations exist, as NAMESPACE/NAME.
pub async fn installed(client: &kube::Client) -> Result<Option<String>, ApiError> {
    for kind in kinds() {
        let all = list(client, &kind).await?;
        if let Some(found) = all.iter().find(|configuration| is_of_belay(configuration)) {
            let name = found.name_any();
            return Ok(Some(match installed_in(found) {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            }));
        }
    }
    Ok(None)
}

/// The webhook configurations of an installation.
#[derive(Debug)]
pub struct Configurations(Vec<(ApiResource, Option<DynamicObject>)>);

impl Configurations {
    /// Reads the configurations. Returns an error if configurations of another installation exist,
    /// because it may be running, and would lose its holds.
    pub async fn read(client: &kube::Client, settings: &Settings) -> Result<Self, UninstallError> {
        let name = &settings.name;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for kind in kinds() {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let unread = |what: &str| {
                let what = format!("{}{what}", kind.kind);
                move |error| UninstallError::ReadConfiguration(what, error)
            };
            let found = within(api.get_opt(name)).await.map_err(unread(&format!(" {name}")))?;
            others.extend(match list(client, &kind).await {
                // This account may read only the configuration of its own installation.
                Err(ApiError::Forbidden(_)) => Vec::new(),
                all => all.map_err(unread("s"))?,
            });
            own.push((kind, found));
        }
        let found = own.iter().filter_map(|(_, found): &(_, Option<_>)| found.as_ref());
        let other_namespace = |webhook: StoredWebhook| {
            webhook.namespace().filter(|namespace| *namespace != settings.namespace)
        };
        let namespace = found.flat_map(webhooks).find_map(other_namespace);
        if namespace.is_some() {
            return Err(UninstallError::OtherInstallation { namespace, name: name.clone() });
        }
        others.retain(|other| other.name_any() != *name && is_of_belay(other));
        match others.first() {
            Some(other) => Err(UninstallError::OtherInstallation {
                namespace: installed_in(other),
                name: other.name_any(),
            }),
            None => Ok(Self(own)),
        }
    }

    /// Whether at least one configuration exists.
    pub fn exist(&self) -> bool {
        self.0.iter().any(|(_, found)| found.is_some())
    }

    #[cfg(test)]
    pub fn uids(&self) -> String {
        let uid = |(kind, found): &(ApiResource, Option<DynamicObject>)| {
            format!("{}: {:?}", kind.kind, found.as_ref().and_then(DynamicObject::uid))
        };
        self.0.iter().map(uid).collect::<Vec<_>>().join(", ")
    }

    /// Reports which configurations would be deleted.
    pub fn report_plan(&self, name: &str, report: &dyn Fn(UninstallEvent)) {
        for (kind, _) in self.0.iter().filter(|(_, found)| found.is_some()) {
            report(UninstallEvent::Step(format!("would delete: {} {name}", kind.kind)));
        }
    }

    /// Deletes the configurations that were read, but no re-created ones.
    pub async fn delete(
        &self,
        client: &kube::Client,
        name: &str,
        report: &dyn Fn(UninstallEvent),
    ) -> Result<(), UninstallError> {
        for (kind, found) in &self.0 {
            let what = format!("{} {name}", kind.kind);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
            let is_deleted = match found {
                Some(found) => delete_exactly(&api, name, found.uid()).await,
                None => Ok(false),
            };
            match is_deleted {
                Ok(true) => report(UninstallEvent::Step(format!("deleted: {what}"))),
                Ok(false) => report(UninstallEvent::Step(format!("already deleted: {what}"))),
                Err(error) => return Err(UninstallError::DeleteConfiguration(what, error)),
            }
        }
        Ok(())
    }
}
