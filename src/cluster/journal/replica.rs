//! Each replica writes its journal into its own ConfigMap, so that replicas do not overwrite each
//! other's data. The leader sums the journals.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};

use super::PendingWrites;
use super::activity::Activity;
use crate::cluster::Context;
use crate::cluster::api::MANAGER;
use crate::cluster::list::fold_all;
use crate::cluster::pace::{Backoff, within};
use crate::objects::ApiError;
use crate::policy::PolicySource;

/// The label of the ConfigMaps. Its value is the name of the installation.
pub(in crate::cluster) const LABEL: &str = "belay.dev/journal";

const KEY: &str = "journal.json";

/// A ConfigMap has at most 1 MiB, including its metadata.
const MAX_BYTES: usize = 800 << 10;

/// Activity older than this is dropped.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The content of the ConfigMap.
#[derive(Serialize, Deserialize)]
struct StoredJournal {
    time: Timestamp,
    activity: Activity,
}

/// Writes the journal after each change until the future is dropped.
pub(super) async fn write_journal(context: &Context, pending: &PendingWrites) {
    let timing = &context.settings.timing;
    let mut backoff = Backoff::from(timing.retry);
    loop {
        pending.activity_changed.notified().await;
        tokio::time::sleep(timing.journal.gather).await;
        while let Err(error) = write(context, pending).await {
            let wait = backoff.fail(|| {
                tracing::warn!(%error, "the journal cannot be written, so the status of policies \
                                        lacks recent denials");
            });
            tokio::time::sleep(wait).await;
        }
        if backoff.record_success() {
            tracing::info!("the journal is written again");
        }
        tokio::time::sleep(timing.journal.write).await;
    }
}

/// Writes the current journal.
pub(super) async fn write(context: &Context, pending: &PendingWrites) -> Result<(), ApiError> {
    let now = Timestamp::now();
    let names = known_policies(context);
    let activity = {
        let mut activity = pending.activity.lock();
        activity.drop_expired(now);
        if let Some(names) = names {
            activity.retain_policies(|name| names.contains(name));
        }
        activity.shrink_to(MAX_BYTES);
        activity.clone()
    };
    let settings = &context.settings;
    let text = serde_json::to_string(&StoredJournal { time: now, activity })
        .map_err(|error| ApiError::Other(format!("the journal is no JSON: {error}")))?;
    let name = format!("{}-journal-{}", settings.name, settings.replica);
    let labels = BTreeMap::from([(LABEL.to_owned(), settings.name.clone())]);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply(MANAGER).force();
    within(config_maps(context).patch(&name, &params, &Patch::Apply(map))).await.map(drop)
}

/// The names of the policies. `None` while they are unknown, so that no activity is
/// dropped.
fn known_policies(context: &Context) -> Option<std::collections::HashSet<String>> {
    let world = context.world.read();
    let names = world.policies.iter().filter_map(|policy| match &policy.source {
        PolicySource::Policy(name) => Some(name.clone()),
        PolicySource::Label(_) => None,
    });
    (world.loaded && world.policies_current).then(|| names.collect())
}

fn config_maps(context: &Context) -> Api<ConfigMap> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// The version of each replica's journal, which is cheaper to read than the journals.
pub(in crate::cluster) async fn versions(context: &Context) -> Result<Vec<String>, ApiError> {
    let label = format!("{LABEL}={}", context.settings.name);
    let (maps, params) = (config_maps(context), ListParams::default().labels(&label));
    let list = within(maps.list_metadata(&params)).await?;
    let versions = list.items.into_iter().filter_map(|map| map.metadata.resource_version);
    Ok(versions.collect())
}

/// Returns the sum of all replicas' activity, and the names of the ConfigMaps of replicas
/// that no longer run.
pub(in crate::cluster) async fn read_all(
    context: &Context,
    now: Timestamp,
) -> Result<(Activity, Vec<String>), ApiError> {
    let label = format!("{LABEL}={}", context.settings.name);
    let add = |(sum, stale): &mut (Activity, Vec<String>), map: Result<ConfigMap, String>| {
        let Ok(map) = map else { return };
        let text = map.data.as_ref().and_then(|data| data.get(KEY));
        let stored = text.and_then(|text| serde_json::from_str::<StoredJournal>(text).ok());
        let created = map.metadata.creation_timestamp.map(|time| time.0);
        let time = stored.as_ref().map(|stored| stored.time).or(created);
        match stored {
            _ if time.is_none_or(|time| now.duration_since(time) > DAY) => {
                stale.extend(map.metadata.name);
            }
            Some(stored) => sum.merge(stored.activity),
            None => tracing::debug!(name = map.metadata.name, "cannot read a journal"),
        }
    };
    let listing = fold_all(config_maps(context), ListParams::default().labels(&label), add);
    let (mut sum, stale) = within(listing).await?;
    sum.drop_expired(now);
    Ok((sum, stale))
}

/// Deletes the journals that were not written for a day. A replica re-creates its journal with
/// the next entry.
pub(in crate::cluster) async fn delete_stale(context: &Context, names: &[String]) {
    for name in names {
        match within(config_maps(context).delete(name, &DeleteParams::default())).await {
            Ok(_) | Err(ApiError::NotFound) => {}
            Err(error) => {
                tracing::debug!(name, %error, "cannot delete an old journal");
            }
        }
    }
}
