//! Watches one object by its name.
//!
//! kube's watcher tries again at once after a failure. belay waits longer each time, and logs only
//! the first failure.

use futures_util::StreamExt as _;
use kube::Api;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc::Sender;

use super::observed::ConfigurationEvent;
use crate::cluster::api_error::chain;
use crate::cluster::pace::{Backoff, within};
use crate::objects::ApiError;
use crate::timing::Retry;

/// Sends all events of the object of this name. Runs until the future is dropped.
pub(super) async fn follow(
    api: &Api<DynamicObject>,
    (kind, name): (&str, &str),
    retry: Retry,
    index_event: impl Fn(ConfigurationEvent) -> (usize, ConfigurationEvent),
    sender: Sender<(usize, ConfigurationEvent)>,
) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(api.clone(), config));
    let mut backoff = Backoff::from(retry);
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(Event::Init) => {
                is_listed = false;
                continue;
            }
            Ok(Event::InitApply(object)) => {
                is_listed = true;
                ConfigurationEvent::Found(Box::new(object))
            }
            Ok(Event::InitDone) if is_listed => continue,
            Ok(Event::InitDone) => ConfigurationEvent::Missing,
            Ok(Event::Apply(object)) => ConfigurationEvent::Found(Box::new(object)),
            Ok(Event::Delete(object)) => {
                ConfigurationEvent::Deleted(object.metadata.uid.unwrap_or_default())
            }
            Err(error) => {
                let wait = backoff.fail(|| {
                    tracing::warn!(
                        kind,
                        name,
                        error = chain(&error),
                        "cannot watch the webhook configuration; belay retries"
                    );
                });
                tokio::time::sleep(wait).await;
                continue;
            }
        };
        if backoff.record_success() {
            tracing::info!(kind, name, "belay watches the webhook configuration again");
        }
        // The receiver is dropped only at shutdown.
        let _ = sender.send(index_event(event)).await;
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
