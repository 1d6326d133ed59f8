//! Follows one object by its name.
//!
//! A watch of kube's own would say on each try that it is forbidden, and would
//! try again every second for ever: this one says so once and waits longer each
//! time.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use tokio::sync::mpsc::Sender;

use super::watched::News;
use crate::cluster::pace::{Backoff, LIMIT, within};
use crate::objects::ApiError;
use crate::timing::Retry;

/// How long one watch lasts: the API server ends it, and one that it does not
/// end is ended here, because nothing arrives from a dead connection.
const WATCH_SECONDS: u32 = 240;

/// Tells everything about the object of this name, for ever.
pub(super) async fn follow(
    api: &Api<DynamicObject>,
    (kind, name): (&str, &str),
    retry: Retry,
    news: impl Fn(News) -> (usize, News),
    tell: Sender<(usize, News)>,
) {
    let selector = format!("metadata.name={name}");
    let mut backoff = Backoff::from(retry);
    let mut troubled = false;
    loop {
        let followed = async {
            let mut version = list(api, &selector, &news, &tell).await?;
            loop {
                let params = WatchParams::default().fields(&selector).timeout(WATCH_SECONDS);
                let events = within(api.watch(&params, &version)).await?;
                if std::mem::take(&mut troubled) {
                    tracing::info!(kind, name, "the webhook configuration can be watched again");
                }
                backoff.succeeded();
                pass_on(events, &mut version, &news, &tell).await?;
            }
        };
        let error: Result<std::convert::Infallible, ApiError> = followed.await;
        let Err(error) = error;
        match error {
            // The version is too old: that is what lists are for.
            ApiError::Expired => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            error if !troubled => {
                troubled = true;
                tracing::warn!(kind, name, %error, "the webhook configuration cannot be watched");
            }
            _ => {}
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

/// Reads the object, if it exists; the version to watch from.
async fn list(
    api: &Api<DynamicObject>,
    selector: &str,
    news: &impl Fn(News) -> (usize, News),
    tell: &Sender<(usize, News)>,
) -> Result<String, ApiError> {
    let list = within(api.list(&ListParams::default().fields(selector))).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let found = list.items.into_iter().next();
    let found = found.map_or(News::None, |object| News::Is(Box::new(object)));
    // Nobody listens any more only when everything ends.
    let _ = tell.send(news(found)).await;
    Ok(version)
}

/// Passes on what a watch tells, until the API server ends it.
async fn pass_on(
    events: impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>>,
    version: &mut String,
    news: &impl Fn(News) -> (usize, News),
    tell: &Sender<(usize, News)>,
) -> Result<(), ApiError> {
    let mut events = std::pin::pin!(events);
    let most = Duration::from_secs(u64::from(WATCH_SECONDS)) + LIMIT;
    let until = tokio::time::Instant::now() + most;
    while let Ok(event) = tokio::time::timeout_at(until, events.try_next()).await {
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
                News::Gone(object.metadata.uid.unwrap_or_default())
            }
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                advance(version, &object);
                News::Is(Box::new(object))
            }
        };
        let _ = tell.send(news(object)).await;
    }
    Ok(())
}

fn advance(version: &mut String, object: &DynamicObject) {
    if let Some(newer) = &object.metadata.resource_version {
        version.clone_from(newer);
    }
}

/// Reads a configuration.
pub(super) async fn read(api: &Api<DynamicObject>, name: &str) -> Result<News, ApiError> {
    let found = within(api.get_opt(name)).await?;
    Ok(found.map_or(News::None, |object| News::Is(Box::new(object))))
}
