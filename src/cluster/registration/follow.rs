//! Watches one object by its name.
//!
//! kube's own watcher logs each failed attempt and retries every second. This watcher logs once
//! and waits longer each time.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use tokio::sync::mpsc::Sender;

use super::observed::ConfigurationEvent;
use crate::cluster::pace::{Backoff, LIMIT, within};
use crate::objects::ApiError;
use crate::timing::Retry;

/// The duration of one watch. belay also ends the watch itself, because the end that the API server
/// sends does not arrive on a dead connection.
const WATCH_SECONDS: u32 = 240;

/// Sends all events of the object of this name. Runs until the future is dropped.
pub(super) async fn follow(
    api: &Api<DynamicObject>,
    (kind, name): (&str, &str),
    retry: Retry,
    index_event: impl Fn(ConfigurationEvent) -> (usize, ConfigurationEvent),
    sender: Sender<(usize, ConfigurationEvent)>,
) {
    let selector = format!("metadata.name={name}");
    let mut backoff = Backoff::from(retry);
    let mut failing = false;
    loop {
        let followed = async {
            let mut version = list(api, &selector, &index_event, &sender).await?;
            loop {
                let params = WatchParams::default().fields(&selector).timeout(WATCH_SECONDS);
                let events = within(api.watch(&params, &version)).await?;
                if std::mem::take(&mut failing) {
                    tracing::info!(kind, name, "belay watches the webhook configuration again");
                }
                backoff.succeeded();
                forward(events, &mut version, &index_event, &sender).await?;
            }
        };
        let error: Result<std::convert::Infallible, ApiError> = followed.await;
        let Err(error) = error;
        match error {
            // The resource version is too old, so the object is listed again.
            ApiError::Expired => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            error if !failing => {
                failing = true;
                tracing::warn!(kind, name, %error, "cannot watch the webhook configuration; belay retries");
            }
            _ => {}
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Reads the object, if it exists. Returns the version to watch from.
async fn list(
    api: &Api<DynamicObject>,
    selector: &str,
    index_event: &impl Fn(ConfigurationEvent) -> (usize, ConfigurationEvent),
    sender: &Sender<(usize, ConfigurationEvent)>,
) -> Result<String, ApiError> {
    let list = within(api.list(&ListParams::default().fields(selector))).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let found = list.items.into_iter().next();
    let found = found
        .map_or(ConfigurationEvent::Missing, |object| ConfigurationEvent::Found(Box::new(object)));
    // The receiver is dropped only at shutdown.
    let _ = sender.send(index_event(found)).await;
    Ok(version)
}

/// Forwards the events of a watch until the API server ends it.
async fn forward(
    events: impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>>,
    version: &mut String,
    index_event: &impl Fn(ConfigurationEvent) -> (usize, ConfigurationEvent),
    sender: &Sender<(usize, ConfigurationEvent)>,
) -> Result<(), ApiError> {
    let mut events = std::pin::pin!(events);
    let limit = Duration::from_secs(u64::from(WATCH_SECONDS)) + LIMIT;
    let deadline = tokio::time::Instant::now() + limit;
    while let Ok(event) = tokio::time::timeout_at(deadline, events.try_next()).await {
        let object = match event? {
            None => break,
            Some(WatchEvent::Bookmark(bookmark)) => {
                *version = bookmark.metadata.resource_version;
                continue;
            }
            Some(WatchEvent::Error(status)) => {
                return Err(ApiError::of_status(status.code, &status.message));
            }
            Some(WatchEvent::Deleted(object)) => {
                advance(version, &object);
                ConfigurationEvent::Deleted(object.metadata.uid.unwrap_or_default())
            }
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                advance(version, &object);
                ConfigurationEvent::Found(Box::new(object))
            }
        };
        let _ = sender.send(index_event(object)).await;
    }
    Ok(())
}

fn advance(version: &mut String, object: &DynamicObject) {
    if let Some(newer) = &object.metadata.resource_version {
        version.clone_from(newer);
    }
}

pub(super) async fn read(
    api: &Api<DynamicObject>,
    name: &str,
) -> Result<ConfigurationEvent, ApiError> {
    let found = within(api.get_opt(name)).await?;
    Ok(found
        .map_or(ConfigurationEvent::Missing, |object| ConfigurationEvent::Found(Box::new(object))))
}
