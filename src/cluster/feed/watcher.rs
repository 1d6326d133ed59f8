//! One watch: a list and everything that happens after it, for ever.
//!
//! ```text
//!            ┌───────────────── expired (410) ─────────────────┐
//!            ▼                                                 │
//!  list: streamed by the watch itself ──► every change ──► broken off
//!        (or page by page)                     ▲               │
//!                                              └─ back-off ────┘
//! ```
//!
//! A new list replaces the old state only at its end, so that nothing is forgotten
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

/// What is watched, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchTarget {
    /// The kind, with the version that is asked for first.
    pub info: KindInfo,
    /// How much of its objects.
    pub detail: Detail,
    /// Of which labels; empty: all.
    pub labels: &'static str,
}

/// Receives the events of a watch. An object that can't be parsed does not end the watch:
/// the sink records it and returns which object it is.
pub trait WatchSink: Send {
    /// A list begins.
    fn begin(&mut self);
    /// An object of the list.
    fn list(&mut self, json: &str) -> Result<(), Unreadable>;
    /// The list has ended: objects that it did not contain are deleted.
    fn end(&mut self);
    /// An object was made, or has changed.
    fn change(&mut self, json: &str) -> Result<(), Unreadable>;
    /// An object was deleted.
    fn remove(&mut self, json: &str) -> Result<(), Unreadable>;
    /// Something came that can't be read at all: any object may have changed.
    fn skip(&mut self);
    /// The state is up to date.
    fn current(&mut self);
    /// The watch is disconnected, so the state may be out of date.
    fn disconnected(&mut self);
    /// It may not be, since this long.
    fn broken(&mut self, error: &ApiError, since: Duration);
}

/// The API server, as watches see it. Cheap to clone.
#[derive(Clone)]
pub struct WatchServer {
    client: kube::Client,
    /// Whether the API server supports streaming lists. Versions before 1.34 may not;
    /// after a refusal belay does not request them again.
    streams: Arc<AtomicBool>,
    timing: Timing,
}

impl WatchServer {
    /// The one behind this client.
    pub fn new(client: kube::Client, timing: Timing) -> Self {
        Self { client, streams: Arc::new(AtomicBool::new(true)), timing }
    }
}

/// The kept capacity of the line buffer.
const LINE_CAPACITY: usize = 64 << 10;

/// How long the answer to a request may take to begin.
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
    /// Whether it ends the list that a watch begins with.
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

/// How long a watch has been without what it had.
struct WatchOutage {
    timing: timing::Feed,
    /// When the state was last up to date.
    current: Option<Instant>,
    /// Since when it may not be: from the end of the connection on, and not
    /// from when the next one fails, which may take long.
    since: Option<Instant>,
    /// Whether the sink has received the report about the delay.
    report_progress: bool,
    /// What the last attempt came to.
    why: Option<ApiError>,
    /// Whether to list again with the next connection.
    list_again: bool,
    /// Whether the API server answered the last attempt.
    answered: bool,
    /// The version at which the last connection was silent.
    silent_at: Option<String>,
}

impl WatchOutage {
    fn new(timing: timing::Feed) -> Self {
        Self {
            timing,
            current: None,
            since: None,
            report_progress: false,
            why: None,
            list_again: false,
            answered: false,
            silent_at: None,
        }
    }

    fn mark_current(&mut self, sink: &mut impl WatchSink) {
        let (list_again, silent_at) = (self.list_again, self.silent_at.take());
        let current = Some(Instant::now());
        *self = Self { current, list_again, silent_at, ..Self::new(self.timing) };
        sink.current();
    }

    /// Handles the result for one object. If it is unknown which object can't be parsed,
    /// only another list helps.
    fn record_object(&mut self, result: Result<(), Unreadable>) {
        self.list_again |= result.is_err_and(|unreadable| unreadable.name.is_none());
    }

    /// A connection was silent for too long. The API server sends no bookmark for a version
    /// that the watch began with, so a kind without changes may be silent. The next connection
    /// shows whether the API server answers. After a second silence at the same version, only
    /// a list shows whether nothing was missed.
    fn record_silence(&mut self, version: Option<&str>) {
        let again = version.is_some() && self.silent_at.as_deref() == version;
        self.list_again |= again;
        self.silent_at = version.filter(|_| !again).map(str::to_owned);
    }

    /// Whether the last list was good for a while.
    fn was_good(&self) -> bool {
        self.current.is_some_and(|current| current.elapsed() >= self.timing.good)
    }

    /// The connection has ended.
    fn handle_end(&mut self, sink: &mut impl WatchSink) {
        // What was never known cannot be lost.
        if self.current.is_some() && self.since.is_none() {
            self.since = Some(Instant::now());
            sink.disconnected();
        }
    }

    /// An attempt has failed.
    fn handle_error(&mut self, error: ApiError, sink: &mut impl WatchSink) {
        let lasts = self.since.get_or_insert_with(Instant::now).elapsed();
        self.report_progress |= lasts >= self.timing.grace;
        sink.broken(&error, lasts);
        self.why = Some(error);
    }

    /// Waits for a step of the reconnection. If that takes too long, it reports to the
    /// sink meanwhile, because the step may hang.
    async fn wait_for<T>(&mut self, sink: &mut impl WatchSink, step: impl Future<Output = T>) -> T {
        let due = self.since.filter(|_| self.current.is_some() && !self.report_progress);
        let Some(due) = due.map(|since| since + self.timing.grace) else { return step.await };
        let mut step = pin!(step);
        // Steps that each end at once add up, too.
        if Instant::now() < due
            && let Ok(done) = timeout_at(due, step.as_mut()).await
        {
            return done;
        }
        let seconds = self.timing.grace.as_secs();
        let slow = || ApiError::Other(format!("it did not begin again within {seconds} s"));
        let why = self.why.take().unwrap_or_else(slow);
        self.handle_error(why, sink);
        step.await
    }
}

/// Watches until it is dropped.
pub async fn watch(server: WatchServer, source: WatchTarget, mut sink: impl WatchSink) {
    let mut version = None;
    let Timing { feed: timing, retry, .. } = server.timing;
    let mut backoff = Backoff::from(retry);
    let mut lost = WatchOutage::new(timing);
    // The version at which the last attempt failed.
    let mut failed_at: Option<String> = None;
    loop {
        let started = Instant::now();
        lost.answered = false;
        let result = follow(&server, &source, &mut sink, &mut version, &mut lost).await;
        let lasted = started.elapsed();
        lost.handle_end(&mut sink);
        if std::mem::take(&mut lost.list_again) {
            version = None;
        }
        match result {
            // The server ends every watch after some minutes.
            Ok(()) if lasted >= timing.good => {
                backoff.succeeded();
                continue;
            }
            Ok(()) => {}
            // What expires as soon as it was listed would be listed without end.
            Err(ApiError::Expired) if version.take().is_some() => {
                if lost.was_good() {
                    backoff.succeeded();
                    continue;
                }
            }
            Err(error) => {
                if lasted >= timing.good {
                    backoff.succeeded();
                }
                // A version that fails twice would fail every time.
                if lost.answered && version.is_some() {
                    if failed_at == version {
                        version = None;
                    }
                    failed_at.clone_from(&version);
                }
                lost.handle_error(error, &mut sink);
            }
        }
        lost.wait_for(&mut sink, tokio::time::sleep(backoff.next())).await;
    }
}

/// One connection: from a list, or from where the last one broke off.
async fn follow(
    server: &WatchServer,
    source: &WatchTarget,
    sink: &mut impl WatchSink,
    version: &mut Option<String>,
    lost: &mut WatchOutage,
) -> Result<(), ApiError> {
    let streamed = version.is_none() && server.streams.load(Ordering::Relaxed);
    if version.is_none() && !streamed {
        *version = Some(pages(&server.client, source, sink, lost).await?);
        lost.mark_current(sink);
    }
    let seconds = 240 + random(60);
    let selection = (source.labels, seconds);
    let request = api::watch_request(&source.info, source.detail, selection, version.as_deref())?;
    let asking = timeout(ANSWER_LIMIT, api::send(&server.client, request));
    let answer = lost.wait_for(sink, asking).await;
    let answer = answer.map_err(|_| ApiError::TimedOut(ANSWER_LIMIT))?;
    // An overloaded API server proves nothing about this version.
    lost.answered = match &answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => !matches!(status.code, 429 | 503),
        Err(_) => false,
    };
    let lines = match answer.map_err(ApiError::from) {
        Ok(lines) => lines,
        // A server without streamed lists calls the request invalid. Nothing else in it can
        // be: the pages are asked for with the same selector.
        Err(ApiError::Status { code: 422, .. }) if streamed => {
            server.streams.store(false, Ordering::Relaxed);
            tracing::info!("this API server does not stream lists; they are read page by page");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let gap = lost.since.map_or(Duration::ZERO, |since| since.elapsed());
    let caught_up = Instant::now() + gap.max(server.timing.feed.catch_up);
    let reading = WatchReader { sink, version, lost, listing: streamed, caught_up };
    if streamed {
        reading.sink.begin();
    }
    reading.lines(lines).await
}

/// Reads a list page by page. Returns its resource version.
async fn pages(
    client: &kube::Client,
    source: &WatchTarget,
    sink: &mut impl WatchSink,
    lost: &mut WatchOutage,
) -> Result<String, ApiError> {
    let WatchTarget { info, detail, labels } = source;
    let query = ListQuery { info, namespace: "", detail: *detail, labels };
    let mut list = ListReader::new(client, query, Buffers::new(1));
    sink.begin();
    loop {
        let asking = timeout(ANSWER_LIMIT, list.next());
        let next =
            lost.wait_for(sink, asking).await.map_err(|_| ApiError::TimedOut(ANSWER_LIMIT))?;
        match next.map_err(ApiError::from)? {
            Next::Object(json) => lost.record_object(sink.list(json)),
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
    lost: &'r mut WatchOutage,
    /// Whether what comes is the list still.
    listing: bool,
    /// When a busy watch has caught up.
    caught_up: Instant,
}

impl<S: WatchSink> WatchReader<'_, S> {
    async fn lines(mut self, lines: impl AsyncBufRead) -> Result<(), ApiError> {
        let mut lines = pin!(lines);
        let mut line = Vec::new();
        loop {
            let catching_up = self.lost.since.is_some() && !self.listing;
            let timing::Feed { quiet, silence, .. } = self.lost.timing;
            let patience = if catching_up { quiet } else { silence };
            let reading = timeout(patience, lines.read_until(b'\n', &mut line));
            // A watch that receives old events is connected: a busy kind always has more.
            let read = match self.listing {
                true => self.lost.wait_for(self.sink, reading).await,
                false => reading.await,
            };
            let read = match read {
                Ok(read) => read,
                Err(_) if catching_up => {
                    self.mark_current();
                    continue;
                }
                Err(_) if !self.listing => {
                    self.lost.record_silence(self.version.as_deref());
                    return Ok(());
                }
                Err(_) => {
                    let silent = format!("nothing was heard for {} s", silence.as_secs());
                    return Err(ApiError::Unreachable(silent));
                }
            };
            match read {
                Ok(0) => return Ok(()),
                // The last line of a connection that broke off is half of one.
                Ok(_) if !line.ends_with(b"\n") => return Ok(()),
                // A client can have the API server store bytes that are no text.
                Ok(_) => self.event(&String::from_utf8_lossy(&line))?,
                Err(error) => {
                    return Err(ApiError::Unreachable(format!("the watch broke off: {error}")));
                }
            }
            // One large object need not be paid for ever after.
            line.clear();
            line.shrink_to(LINE_CAPACITY);
        }
    }

    fn mark_current(&mut self) {
        self.lost.mark_current(self.sink);
    }

    fn event(&mut self, line: &str) -> Result<(), ApiError> {
        let Ok(event) = serde_json::from_str::<Event<'_>>(line) else {
            self.sink.skip();
            self.lost.list_again = true;
            return Ok(());
        };
        let json = event.object.get();
        let taken = match event.kind {
            "ADDED" if self.listing => self.sink.list(json),
            "ADDED" | "MODIFIED" => self.sink.change(json),
            "DELETED" => self.sink.remove(json),
            "BOOKMARK" => Ok(()),
            _ => {
                let status: Status = serde_json::from_str(json).unwrap_or_default();
                return Err(ApiError::of_status(status.code, &status.message));
            }
        };
        self.lost.record_object(taken);
        // Half of a list is no place to go on from.
        let bookmark = event.kind == "BOOKMARK";
        if self.listing && !(bookmark && Bookmark::ends_list(json)) {
            return Ok(());
        }
        if self.listing {
            self.listing = false;
            self.sink.end();
            self.mark_current();
        } else if self.lost.since.is_some() && (bookmark || Instant::now() >= self.caught_up) {
            self.mark_current();
        }
        // Without one the watch continues from the version before.
        if let Ok(Versioned { metadata }) = serde_json::from_str(json) {
            *self.version = Some(metadata.resource_version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
