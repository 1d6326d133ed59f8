//! One watch: it lists the objects of a kind, then follows their changes, and repeats this.
//!
//! ```text
//!            ┌───────────────── expired (410) ─────────────────┐
//!            ▼                                                 │
//!  list: streamed by the watch itself ──► every change ──► disconnect
//!        (or page by page)                     ▲               │
//!                                              └─ back-off ────┘
//! ```
//!
//! A new list replaces the old state only at its end, so the old objects stay known
//! meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::api::{self, Detail};
use crate::cluster::list::{Buffers, ListQuery, ListReader, Next};
use crate::cluster::pace::{Backoff, random};
use crate::objects::{ApiError, KindInfo, Unreadable};
use crate::timing::{self, Timing};

/// Which objects a watch covers, and how much of each it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTarget {
    /// The kind. Its first version is requested.
    pub info: KindInfo,
    /// How much of each object to read.
    pub detail: Detail,
    /// The label selector; empty: all objects.
    pub labels: &'static str,
    /// The namespace; empty: all.
    pub namespace: String,
}

/// Receives the events of a watch. An object that can't be parsed does not end the watch:
/// the sink records it and returns which object it is.
pub trait WatchSink: Send {
    /// A list begins.
    fn begin(&mut self);
    /// An object of the list.
    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable>;
    /// The list has ended: objects that it did not contain are deleted.
    fn end(&mut self);
    /// An object was created or changed.
    fn change(&mut self, json: &str) -> Result<(), Unreadable>;
    /// An object was deleted.
    fn remove(&mut self, json: &str) -> Result<(), Unreadable>;
    /// An event can't be parsed at all. It may be about any object.
    fn skip(&mut self);
    /// The state is up to date.
    fn current(&mut self);
    /// The watch is disconnected, so the state may be out of date.
    fn disconnected(&mut self);
    /// An attempt to list or watch failed. The state may have been out of date for
    /// `outdated_for`.
    fn failed(&mut self, error: &ApiError, outdated_for: Duration);
}

/// A client for lists and watches. Cheap to clone.
#[derive(Clone)]
pub struct WatchClient {
    kube: kube::Client,
    /// Whether the API server supports streaming lists. Versions before 1.34 may not. After the
    /// API server rejected one, belay does not request them again.
    streams: Arc<AtomicBool>,
    timing: Timing,
}

impl WatchClient {
    /// A client for the API server of this kube client.
    pub fn new(client: kube::Client, timing: Timing) -> Self {
        Self { kube: client, streams: Arc::new(AtomicBool::new(true)), timing }
    }
}

/// The capacity of the line buffer that stays allocated.
const LINE_CAPACITY: usize = 64 << 10;

/// The time limit for the first byte of an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The version of an object or bookmark.
#[derive(Deserialize)]
struct Versioned {
    metadata: VersionedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata {
    resource_version: String,
}

/// The other fields of a bookmark.
#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
struct BookmarkMetadata {
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, serde::de::IgnoredAny>>,
}

impl Bookmark {
    /// Whether this bookmark ends the list at the start of a watch.
    fn ends_list(json: &str) -> bool {
        let annotations = |bookmark: Self| bookmark.metadata.annotations;
        let annotations = serde_json::from_str(json).ok().and_then(annotations);
        annotations.is_some_and(|map| map.contains_key("k8s.io/initial-events-end"))
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
    message: String,
}

/// What a watch remembers between connections.
struct WatchProgress {
    timing: timing::Feed,
    /// When the state last became up to date.
    current_since: Option<Instant>,
    /// Since when the state may be out of date: the end of the last connection. The failure of
    /// the next connection may come much later.
    outdated_since: Option<Instant>,
    /// Whether the sink knows that the outage is longer than the grace time.
    is_reported: bool,
    /// The error of the last attempt.
    last_error: Option<ApiError>,
    /// Whether to list again with the next connection.
    list_again: bool,
    /// Whether the API server answered the last attempt.
    answered: bool,
    /// The resource version at which the last connection was silent.
    silent_at: Option<String>,
    /// Whether to read the next list page by page, because a streamed list ended early. The API
    /// server can't send an object as an event if it is nested too deeply for JSON, but can send it
    /// in a list (H137).
    list_pages: bool,
}

impl WatchProgress {
    fn new(timing: timing::Feed) -> Self {
        Self {
            timing,
            current_since: None,
            outdated_since: None,
            is_reported: false,
            last_error: None,
            list_again: false,
            answered: false,
            silent_at: None,
            list_pages: false,
        }
    }

    fn mark_current(&mut self, sink: &mut impl WatchSink) {
        let (list_again, silent_at) = (self.list_again, self.silent_at.take());
        let current_since = Some(Instant::now());
        *self = Self { current_since, list_again, silent_at, ..Self::new(self.timing) };
        sink.current();
    }

    /// Records the result for one object. If an event can't be parsed and does not name its
    /// object, only a new list shows the state of that object.
    fn record_object(&mut self, result: Result<(), Unreadable>) {
        self.list_again |= result.is_err_and(|unreadable| unreadable.name.is_none());
    }

    /// Records that a connection was silent for too long. The API server sends no bookmark for
    /// the version at which a watch started, so a kind without changes may be silent. The next
    /// connection shows whether the API server answers. After a second silence at the same
    /// version, belay lists again, because it may have missed changes.
    fn record_silence(&mut self, version: Option<&str>) {
        let again = version.is_some() && self.silent_at.as_deref() == version;
        self.list_again |= again;
        self.silent_at = version.filter(|_| !again).map(str::to_owned);
    }

    /// Whether the state has been current for so long that listing again at once makes no
    /// tight loop.
    fn was_stable(&self) -> bool {
        self.current_since.is_some_and(|current| current.elapsed() >= self.timing.stable_after)
    }

    /// The connection has ended.
    fn handle_end(&mut self, sink: &mut impl WatchSink) {
        // Before the first list there is no state that could be out of date.
        if self.current_since.is_some() && self.outdated_since.is_none() {
            self.outdated_since = Some(Instant::now());
            sink.disconnected();
        }
    }

    /// An attempt has failed.
    fn handle_error(&mut self, error: ApiError, sink: &mut impl WatchSink) {
        let outdated_for = self.outdated_since.get_or_insert_with(Instant::now).elapsed();
        self.is_reported |= outdated_for >= self.timing.grace;
        sink.failed(&error, outdated_for);
        self.last_error = Some(error);
    }

    /// Waits for a step of the reconnection. If the grace time ends meanwhile, it reports a
    /// failure to the sink, because the step may hang.
    async fn wait_for<T>(&mut self, sink: &mut impl WatchSink, step: impl Future<Output = T>) -> T {
        let due = self.outdated_since.filter(|_| self.current_since.is_some() && !self.is_reported);
        let Some(due) = due.map(|since| since + self.timing.grace) else { return step.await };
        let mut step = pin!(step);
        // Earlier steps may already have used up the grace time.
        if Instant::now() < due
            && let Ok(done) = timeout_at(due, step.as_mut()).await
        {
            return done;
        }
        let seconds = self.timing.grace.as_secs();
        let slow = || ApiError::Other(format!("the watch did not begin again within {seconds} s"));
        let error = self.last_error.take().unwrap_or_else(slow);
        self.handle_error(error, sink);
        step.await
    }
}

/// Watches until the future is dropped.
pub async fn watch(client: WatchClient, target: WatchTarget, mut sink: impl WatchSink) {
    let mut version = None;
    let Timing { feed: timing, retry, checks, .. } = client.timing;
    let mut backoff = Backoff::from(retry);
    let mut progress = WatchProgress::new(timing);
    // The version at which the last attempt failed.
    let mut failed_at: Option<String> = None;
    loop {
        let (started, before) = (Instant::now(), version.clone());
        progress.answered = false;
        let result = follow(&client, &target, &mut sink, &mut version, &mut progress).await;
        let lasted = started.elapsed();
        let result = match result {
            // The API server ends a connection without an error at an event that it can't encode.
            Ok(()) if lasted < timing.stable_after && version == before => {
                Err(ApiError::Unreachable("the API server ended the watch at once".to_owned()))
            }
            result => result,
        };
        progress.handle_end(&mut sink);
        if std::mem::take(&mut progress.list_again) {
            version = None;
        }
        let is_forbidden = matches!(result, Err(ApiError::Forbidden(_)));
        match result {
            // The server ends every watch after some minutes.
            Ok(()) if lasted >= timing.stable_after => {
                backoff.record_success();
                continue;
            }
            Ok(()) => {}
            // If the version of a new list expires at once, the back-off limits the lists.
            Err(ApiError::Expired) if version.take().is_some() => {
                if progress.was_stable() {
                    backoff.record_success();
                    continue;
                }
            }
            Err(error) => {
                if lasted >= timing.stable_after {
                    backoff.record_success();
                }
                // After two failures at the same version, belay lists again.
                if progress.answered && version.is_some() {
                    if failed_at == version {
                        version = None;
                    }
                    failed_at.clone_from(&version);
                }
                progress.handle_error(error, &mut sink);
            }
        }
        let longest = if is_forbidden { checks.forbidden } else { Duration::MAX };
        progress.wait_for(&mut sink, tokio::time::sleep(backoff.next().min(longest))).await;
    }
}

/// Runs one connection: it starts with a list, or continues at the last version.
async fn follow(
    client: &WatchClient,
    target: &WatchTarget,
    sink: &mut impl WatchSink,
    version: &mut Option<String>,
    progress: &mut WatchProgress,
) -> Result<(), ApiError> {
    let streams = client.streams.load(Ordering::Relaxed) && !progress.list_pages;
    let streamed = version.is_none() && streams;
    if version.is_none() && !streamed {
        *version = Some(pages(&client.kube, target, sink, progress).await?);
        progress.mark_current(sink);
    }
    let seconds = 240 + random(60);
    let WatchTarget { info, detail, labels, namespace } = target;
    let kind_and_namespace = (info, namespace.as_str());
    let request =
        api::watch_request(kind_and_namespace, *detail, (labels, seconds), version.as_deref())?;
    let sending = timeout(ANSWER_LIMIT, api::send(&client.kube, request));
    let answer = progress.wait_for(sink, sending).await;
    let answer = answer.map_err(|_| ApiError::TimedOut(ANSWER_LIMIT))?;
    // The error of an overloaded API server is unrelated to this version.
    progress.answered = match &answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => !matches!(status.code, 429 | 503),
        Err(_) => false,
    };
    let lines = match answer.map_err(ApiError::from) {
        Ok(lines) => lines,
        // A server without streamed lists rejects the request as invalid. The rest of the
        // request is valid, because the requests for pages have the same selector.
        Err(ApiError::Status { code: 422, .. }) if streamed => {
            client.streams.store(false, Ordering::Relaxed);
            tracing::info!("this API server does not stream lists; they are read page by page");
            return Box::pin(follow(client, target, sink, version, progress)).await;
        }
        Err(error) => return Err(error),
    };
    let gap = progress.outdated_since.map_or(Duration::ZERO, |since| since.elapsed());
    let caught_up_at = Instant::now() + gap.max(client.timing.feed.catch_up);
    let reading = WatchReader { sink, version, progress, listing: streamed, caught_up_at };
    if streamed {
        reading.sink.begin();
    }
    reading.lines(lines).await
}

/// Reads a list page by page. Returns its resource version.
async fn pages(
    client: &kube::Client,
    target: &WatchTarget,
    sink: &mut impl WatchSink,
    progress: &mut WatchProgress,
) -> Result<String, ApiError> {
    let WatchTarget { info, detail, labels, namespace } = target;
    let query = ListQuery { info, namespace, detail: *detail, labels };
    let mut list = ListReader::new(client, query, Buffers::new(1));
    sink.begin();
    loop {
        let reading = timeout(ANSWER_LIMIT, list.next());
        let next =
            progress.wait_for(sink, reading).await.map_err(|_| ApiError::TimedOut(ANSWER_LIMIT))?;
        match next.map_err(ApiError::from)? {
            Next::Object(json) => progress.record_object(sink.add_listed(json)),
            Next::Again => sink.begin(),
            Next::End => break,
        }
    }
    sink.end();
    Ok(list.version().to_owned())
}

/// A connection that is being read.
struct WatchReader<'r, S> {
    sink: &'r mut S,
    version: &'r mut Option<String>,
    progress: &'r mut WatchProgress,
    /// Whether the list at the start of the watch has not ended.
    listing: bool,
    /// A watch that is never quiet counts as current from this time on.
    caught_up_at: Instant,
}

impl<S: WatchSink> WatchReader<'_, S> {
    async fn lines(mut self, lines: impl AsyncBufRead) -> Result<(), ApiError> {
        let mut lines = pin!(lines);
        let mut line = Vec::new();
        loop {
            let catching_up = self.progress.outdated_since.is_some() && !self.listing;
            let timing::Feed { quiet, silence, .. } = self.progress.timing;
            let limit = if catching_up { quiet } else { silence };
            let reading = timeout(limit, lines.read_until(b'\n', &mut line));
            // Outside of a list, received events show that the watch works, so it has not failed.
            let read = match self.listing {
                true => self.progress.wait_for(self.sink, reading).await,
                false => reading.await,
            };
            let read = match read {
                Ok(read) => read,
                Err(_) if catching_up => {
                    self.mark_current();
                    continue;
                }
                Err(_) if !self.listing => {
                    self.progress.record_silence(self.version.as_deref());
                    return Ok(());
                }
                Err(_) => {
                    let silent = format!("nothing was heard for {} s", silence.as_secs());
                    return Err(ApiError::Unreachable(silent));
                }
            };
            match read {
                // The connection may break off in the middle of a line.
                Ok(_) if !line.ends_with(b"\n") => {
                    self.progress.list_pages |= self.listing;
                    return Ok(());
                }
                // The API server stores strings that are not valid UTF-8.
                Ok(_) => self.handle_event(&String::from_utf8_lossy(&line))?,
                Err(error) => {
                    return Err(ApiError::Unreachable(format!("the watch broke off: {error}")));
                }
            }
            // Frees the memory of a large object.
            line.clear();
            line.shrink_to(LINE_CAPACITY);
        }
    }

    fn mark_current(&mut self) {
        self.progress.mark_current(self.sink);
    }

    fn handle_event(&mut self, line: &str) -> Result<(), ApiError> {
        let Ok(event) = serde_json::from_str::<Event<'_>>(line) else {
            self.sink.skip();
            self.progress.list_again = true;
            return Ok(());
        };
        let json = event.object.get();
        let result = match event.kind {
            "ADDED" if self.listing => self.sink.add_listed(json),
            "ADDED" | "MODIFIED" => self.sink.change(json),
            "DELETED" => self.sink.remove(json),
            "BOOKMARK" => Ok(()),
            _ => {
                let status: Status = serde_json::from_str(json).unwrap_or_default();
                return Err(ApiError::of_status(status.code, &status.message));
            }
        };
        self.progress.record_object(result);
        // A connection can't continue in the middle of a list, so the version is not stored.
        let bookmark = event.kind == "BOOKMARK";
        if self.listing && !(bookmark && Bookmark::ends_list(json)) {
            return Ok(());
        }
        if self.listing {
            self.listing = false;
            self.sink.end();
            self.mark_current();
        } else if self.progress.outdated_since.is_some()
            && (bookmark || Instant::now() >= self.caught_up_at)
        {
            self.mark_current();
        }
        // Without a version, the watch continues at the last one.
        if let Ok(Versioned { metadata }) = serde_json::from_str(json) {
            *self.version = Some(metadata.resource_version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
