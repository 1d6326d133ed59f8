//! The book of each replica in a ConfigMap of its own, so that no replica has
//! to ask another one and none overwrites what another wrote. The leader sums
//! them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};

use super::Desk;
use super::book::Book;
use crate::cluster::Context;
use crate::cluster::api::MANAGER;
use crate::cluster::list::{UnreadableObject, fold_all};
use crate::cluster::pace::{Backoff, within};
use crate::objects::ApiError;
use crate::policy::Source;

/// Marks the ConfigMaps, with the name of the installation.
pub(in crate::cluster) const LABEL: &str = "belay.dev/journal";

/// Where in the ConfigMap it stands.
const KEY: &str = "journal.json";

/// A ConfigMap is at most 1 MiB, with everything that is in it.
const LARGEST: usize = 800 << 10;

/// After so long nothing of what was written is of the last day.
const A_DAY: SignedDuration = SignedDuration::from_hours(24);

/// What stands in the ConfigMap.
#[derive(Serialize, Deserialize)]
struct Written {
    /// When.
    time: Timestamp,
    book: Book,
}

/// Writes the book when something has been said, for ever.
pub(super) async fn keep(context: &Context, desk: &Desk) {
    let timing = &context.settings.timing;
    let mut backoff = Backoff::from(timing.retry);
    loop {
        desk.said.notified().await;
        tokio::time::sleep(timing.journal.gather).await;
        while let Err(error) = write(context, desk).await {
            if backoff.is_first() {
                tracing::warn!(%error, "the journal is not written, so no status shows what is said");
            }
            tokio::time::sleep(backoff.next()).await;
        }
        if backoff.succeeded() {
            tracing::info!("the journal is written again");
        }
        tokio::time::sleep(timing.journal.write).await;
    }
}

/// Writes the book as it is now.
pub(super) async fn write(context: &Context, desk: &Desk) -> Result<(), ApiError> {
    let now = Timestamp::now();
    let known = known_policies(context);
    let book = {
        let mut book = desk.book.lock();
        book.age(now);
        if let Some(known) = known {
            book.keep(|name| known.contains(name));
        }
        book.fit(LARGEST);
        book.clone()
    };
    let settings = &context.settings;
    let text = serde_json::to_string(&Written { time: now, book })
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
    within(maps(context).patch(&name, &params, &Patch::Apply(map))).await.map(drop)
}

/// The names of the policies; `None` while they are not known, and nothing is
/// to be forgotten.
fn known_policies(context: &Context) -> Option<std::collections::HashSet<String>> {
    let world = context.world.read();
    let names = world.policies.iter().filter_map(|policy| match &policy.source {
        Source::Policy(name) => Some(name.clone()),
        Source::Label(_) => None,
    });
    (world.loaded && world.known).then(|| names.collect())
}

fn maps(context: &Context) -> Api<ConfigMap> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// What all replicas wrote, summed, and the names of the ConfigMaps that are
/// of nobody any more.
pub(in crate::cluster) async fn read(
    context: &Context,
    now: Timestamp,
) -> Result<(Book, Vec<String>), ApiError> {
    let label = format!("{LABEL}={}", context.settings.name);
    let take = |(sum, old): &mut (Book, Vec<String>), map: Result<ConfigMap, UnreadableObject>| {
        let Ok(map) = map else { return };
        let text = map.data.as_ref().and_then(|data| data.get(KEY));
        let written = text.and_then(|text| serde_json::from_str::<Written>(text).ok());
        let made = map.metadata.creation_timestamp.map(|time| time.0);
        let time = written.as_ref().map(|written| written.time).or(made);
        match written {
            _ if time.is_none_or(|time| now.duration_since(time) > A_DAY) => {
                old.extend(map.metadata.name);
            }
            Some(written) => sum.merge(written.book),
            None => tracing::debug!(name = map.metadata.name, "a journal cannot be read"),
        }
    };
    let listing = fold_all(maps(context), ListParams::default().labels(&label), take);
    let (mut sum, old) = within(listing).await?;
    sum.age(now);
    Ok((sum, old))
}

/// Deletes the journals of replicas that said nothing for a day. One that
/// speaks again makes its own again.
pub(in crate::cluster) async fn remove(context: &Context, names: &[String]) {
    for name in names {
        match within(maps(context).delete(name, &DeleteParams::default())).await {
            Ok(_) | Err(ApiError::NotFound) => {}
            Err(error) => {
                tracing::debug!(name, %error, "an old journal was not deleted");
            }
        }
    }
}
