//! A record, in a ConfigMap, of the kinds whose objects may have holds.
//!
//! After the last policy on a kind is deleted, belay would no longer read its objects. Their
//! holds would remain, and a deleted object would stay Terminating forever. So belay records
//! each kind on which it may add holds, and keeps the record until no object of the kind has the
//! hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::api::post_params;
use crate::cluster::context::Context;
use crate::cluster::pace::within;
use crate::objects::ApiError;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta};

/// The kinds that may have holds, each with the reason why.
pub type RecordedKinds = BTreeMap<String, String>;

/// The reason for a kind in the record: a policy wants or wanted holds on its objects, with or
/// without labels.
pub const ALL: &str = "";

/// The reason for a kind in the record: the setting lists it as a labelled kind, so only its
/// labelled objects have holds.
pub const LABELLED: &str = "labelled";

/// The record: kinds as `resource.group`.
pub struct Record {
    api: Api<ConfigMap>,
    name: String,
    stored: Option<ConfigMap>,
}

impl Record {
    /// The record of this installation.
    pub fn new(context: &Context) -> Self {
        let settings = &context.settings;
        Self {
            api: Api::namespaced(context.client.clone(), &settings.namespace),
            name: record_name(&settings.name),
            stored: None,
        }
    }

    pub async fn read(&mut self) -> Result<RecordedKinds, ApiError> {
        self.stored = within(self.api.get_opt(&self.name)).await?;
        let data = self.stored.as_ref().and_then(|stored| stored.data.as_ref());
        Ok(data.cloned().unwrap_or_default())
    }

    /// Writes the record. Fails if another writer changed it since the last read.
    pub async fn write(&mut self, kinds: &RecordedKinds) -> Result<(), ApiError> {
        let parameters = post_params(false);
        let metadata = match &self.stored {
            Some(stored) => stored.metadata.clone(),
            None => ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
        };
        let record = ConfigMap { metadata, data: Some(kinds.clone()), ..ConfigMap::default() };
        let written = match self.stored {
            Some(_) => within(self.api.replace(&self.name, &parameters, &record)).await,
            None => within(self.api.create(&parameters, &record)).await,
        };
        self.stored = Some(written?);
        Ok(())
    }
}

/// The name of the record of an installation.
fn record_name(installation: &str) -> String {
    format!("{installation}-held")
}

/// The kinds in the record of the installation with this namespace and name.
pub async fn kinds_with_holds(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<BTreeSet<String>, ApiError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let record = within(api.get_opt(&record_name(name))).await?;
    Ok(record.and_then(|record| record.data).unwrap_or_default().into_keys().collect())
}
