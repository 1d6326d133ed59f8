//! Reads the body of a request within limits of size and time, and closes a connection whose
//! body was not read.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, web};
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use super::connection::ConnectionControl;
use super::slots::ConnectionSlots;

/// An HTTP error before any verdict: the status code and one sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRejection {
    /// The status code.
    pub code: StatusCode,
    /// The error, and the expected input.
    pub message: String,
}

impl HttpRejection {
    /// An error with this code and sentence.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The memory for bodies, which all requests share. The first bytes of a body need no
/// reservation, and a body returns its memory after its answer. Small bodies have a separate
/// budget. A small body reserves all its memory at once, because bodies with partial
/// reservations could wait for each other. A larger body uses the budget for large bodies when
/// it exceeds the size of small ones, and reserves memory as it arrives.
#[derive(Clone)]
pub struct BodyMemory {
    small: Budget,
    large: Budget,
    max_total: usize,
    max_small: usize,
    /// One large body is parsed at a time.
    parsing: Arc<Semaphore>,
    /// The memory for the lists of parsed reviews, in units.
    lists: Arc<Semaphore>,
}

/// A number of bytes that bodies reserve. If all bytes are reserved, one body may exceed the limit;
/// the others wait until it is answered or bytes are free. While bodies wait, belay ends silent
/// senders.
#[derive(Clone)]
struct Budget {
    free: Arc<Semaphore>,
    /// The only permit to exceed the limit.
    excess: Arc<Semaphore>,
    /// The parts of bodies that belay receives now. The slots only measure how long each part
    /// takes. A part that takes longer than `SILENCE_LIMIT` has a silent sender.
    parts: ConnectionSlots,
}

/// The memory that a body reserves until this is dropped.
pub type Reserved = Vec<OwnedSemaphorePermit>;

/// A body, and the memory that it reserves.
pub struct Body {
    pub bytes: Vec<u8>,
    /// The reserved memory.
    pub memory: Reserved,
}

/// The first bytes of a body need no reservation. The number of connections limits them,
/// so no ordinary review waits for the bodies of others.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// The unit of reservations in bytes.
const PERMIT_BYTES: usize = 1 << 10;

/// Lists up to this size need no reservation. Those of ordinary objects take less memory.
const ORDINARY_LISTS: usize = 16 << 10;

/// A sender is silent if it sends less than this within `SILENCE_LIMIT`. The API server
/// sends a whole body at once. Answers are also sent in parts of this size.
const PART_BYTES: usize = 16 << 10;

/// The time for which a sender may be silent while others wait for memory.
const SILENCE_LIMIT: Duration = Duration::from_millis(200);

/// The interval at which a waiting body checks for silent senders.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Budget {
    /// A budget of this many bytes, for bodies of at most `max_body` bytes. It keeps `max_body`
    /// bytes for the one body that may exceed the limit.
    fn new(bytes: usize, max_body: usize) -> Self {
        let units = (bytes.saturating_sub(max_body) / PERMIT_BYTES).min(Semaphore::MAX_PERMITS);
        let (free, excess) = (Arc::new(Semaphore::new(units)), Arc::new(Semaphore::new(1)));
        Self { free, excess, parts: ConnectionSlots::new(usize::MAX) }
    }

    /// Reserves memory for a step, or for the whole rest if this body gets the permit to exceed the
    /// limit. Returns the number of bytes.
    async fn reserve(&self, step: usize, rest: usize) -> (Option<OwnedSemaphorePermit>, usize) {
        let units = u32::try_from(step.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let mut free = pin!(self.free.clone().acquire_many_owned(units));
        let mut excess = pin!(self.excess.clone().acquire_owned());
        loop {
            // The semaphores are never closed.
            tokio::select! {
                biased;
                taken = &mut free => return (taken.ok(), step),
                taken = &mut excess => return (taken.ok(), rest),
                () = tokio::time::sleep(CHECK_INTERVAL) => self.parts.end_older_than(SILENCE_LIMIT),
            }
        }
    }
}

impl BodyMemory {
    /// The memory within these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            small: Budget::new(limits.small_body_memory, limits.max_small_body),
            large: Budget::new(limits.large_body_memory, limits.max_body),
            max_total: limits.max_body,
            max_small: limits.max_small_body,
            parsing: Arc::new(Semaphore::new(1)),
            lists: Arc::new(Semaphore::new(limits.list_memory / PERMIT_BYTES)),
        }
    }

    /// Waits for the permit to parse a large body. Returns `None` after this time.
    pub async fn acquire_parse_permit(&self, wait: Duration) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(wait, self.parsing.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Reserves memory for the lists of a parsed review, because entries of a few bytes take many
    /// times their size. Ordinary lists need none. Returns `None` if no memory is free within
    /// this time.
    pub async fn reserve_list_memory(&self, bytes: usize, wait: Duration) -> Option<Reserved> {
        if bytes <= ORDINARY_LISTS {
            return Some(Vec::new());
        }
        let units = u32::try_from(bytes / PERMIT_BYTES).ok()?;
        let permit = self.lists.clone().acquire_many_owned(units);
        let permit = tokio::time::timeout(wait, permit).await.ok()?;
        Some(Vec::from_iter(permit.ok()))
    }
}

/// Reads the whole body within this time. actix has no time limit for a body.
pub async fn read(
    request: &HttpRequest,
    payload: &mut web::Payload,
    memory: &BodyMemory,
    limit: Duration,
) -> Result<Body, HttpRejection> {
    let header = request.headers().get(CONTENT_LENGTH);
    let Some(length) = header.and_then(|value| value.to_str().ok()?.parse::<usize>().ok()) else {
        return Err(HttpRejection::new(
            StatusCode::LENGTH_REQUIRED,
            "the request has no Content-Length, which the API server sends",
        ));
    };
    if length > memory.max_total {
        let max = memory.max_total;
        return Err(HttpRejection::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {max} bytes, the most that belay reads"),
        ));
    }
    let waits_for_memory = Cell::new(false);
    let no_memory = || {
        HttpRejection::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "belay is reading as many bodies as it has memory for; try again",
        )
    };
    let connection = ConnectionControl::from_request(request).map(Rc::as_ref);
    if let Some(connection) = connection {
        // Set this before the body waits for memory, so that its bytes don't count as a head.
        connection.begin_body();
    }
    let mut arriving = PartialBody {
        payload,
        connection,
        bytes: Vec::new(),
        min_step: memory.max_small,
        waits_for_memory: &waits_for_memory,
    };
    let whole = async {
        arriving.allow(length.min(UNCOUNTED_BYTES));
        let mut taken = Vec::new();
        if arriving.receive(length.min(UNCOUNTED_BYTES)).await? && length > UNCOUNTED_BYTES {
            let small = length.min(memory.max_small);
            taken = arriving.fill(small, &memory.small).await?.ok_or_else(no_memory)?;
            if length > small {
                taken = arriving.fill(length, &memory.large).await?.ok_or_else(no_memory)?;
            }
        }
        Ok(Body { bytes: std::mem::take(&mut arriving.bytes), memory: taken })
    };
    match tokio::time::timeout(limit, whole).await {
        Ok(body) => {
            if let Some(connection) = connection {
                connection.end_body();
            }
            body
        }
        Err(_) if waits_for_memory.get() => Err(no_memory()),
        Err(_) => Err(HttpRejection::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} ms", limit.as_millis()),
        )),
    }
}

/// A partially received body.
struct PartialBody<'a> {
    payload: &'a mut web::Payload,
    connection: Option<&'a ConnectionControl>,
    bytes: Vec<u8>,
    /// The smallest reservation, unless less is missing.
    min_step: usize,
    /// Whether it waits for memory, and not for its sender.
    waits_for_memory: &'a Cell<bool>,
}

impl PartialBody<'_> {
    /// Reads until it has this many bytes. Reserves memory step by step, and accepts at most the
    /// reserved number of bytes. Returns `None` if the sender was silent while others waited.
    async fn fill(
        &mut self,
        target_len: usize,
        budget: &Budget,
    ) -> Result<Option<Reserved>, HttpRejection> {
        let mut taken = Vec::new();
        let mut reserved = 0;
        while self.bytes.len() < target_len {
            if self.bytes.len() >= reserved {
                let rest = target_len - reserved;
                let step = self.bytes.len().max(self.min_step).min(rest);
                self.waits_for_memory.set(true);
                let (permit, more) = budget.reserve(step, rest).await;
                self.waits_for_memory.set(false);
                taken.extend(permit);
                reserved += more;
                self.allow(reserved.saturating_sub(self.bytes.len()));
            }
            let part = reserved.min(self.bytes.len() + PART_BYTES);
            let arrived = budget.parts.run(None, self.receive(part)).await;
            match arrived.transpose()? {
                None => return Ok(None),
                Some(true) => {}
                // The body has ended.
                Some(false) => break,
            }
        }
        Ok(Some(taken))
    }

    /// Accepts this many more bytes.
    fn allow(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
        if let Some(connection) = self.connection {
            connection.allow(bytes);
        }
    }

    /// Reads until this many bytes have arrived. Returns whether there may be more.
    async fn receive(&mut self, target_len: usize) -> Result<bool, HttpRejection> {
        while self.bytes.len() < target_len {
            let Some(chunk) = self.payload.next().await else { return Ok(false) };
            let chunk = chunk.map_err(|error| {
                let arrived = self.bytes.len();
                HttpRejection::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body broke off after {arrived} bytes: {error}"),
                )
            })?;
            self.bytes.extend_from_slice(&chunk);
        }
        Ok(true)
    }
}

/// The bytes of an answer, and a value that is dropped after they are sent.
///
/// An error answer keeps the unread body. If a handler drops the rest of a chunked body, actix
/// continues to read it without a time limit. If the body still exists after the answer, actix
/// closes the connection instead.
pub struct ResponseBody<K> {
    bytes: Bytes,
    connection: Option<Rc<ConnectionControl>>,
    _kept: K,
}

impl<K> ResponseBody<K> {
    /// The answer to this request.
    pub fn new(bytes: Vec<u8>, request: &HttpRequest, kept: K) -> Self {
        let connection = ConnectionControl::from_request(request).cloned();
        if let Some(connection) = &connection {
            connection.set_unsent_answer(true);
        }
        Self { bytes: bytes.into(), connection, _kept: kept }
    }
}

impl<K> Drop for ResponseBody<K> {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.set_unsent_answer(false);
        }
    }
}

impl<K: Unpin> MessageBody for ResponseBody<K> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.bytes.len() as u64)
    }

    /// Returns one part at a time, so that actix does not copy the whole answer.
    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let bytes = &mut self.get_mut().bytes;
        let part = bytes.split_to(bytes.len().min(PART_BYTES));
        Poll::Ready((!part.is_empty()).then_some(Ok(part)))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn h71_long_lists_of_parsed_reviews_have_one_bound() {
        let memory = BodyMemory::new(&Limits::default());
        let (bytes, wait) = (24 << 20, Duration::from_secs(1));
        let first = memory.reserve_list_memory(bytes, Duration::ZERO).await;
        assert!(first.is_some() && memory.reserve_list_memory(bytes, wait).await.is_none());
        // Reviews with ordinary lists always get memory.
        assert!(memory.reserve_list_memory(ORDINARY_LISTS, Duration::ZERO).await.is_some());
        let (second, ()) =
            tokio::join!(memory.reserve_list_memory(bytes, wait), async { drop(first) });
        assert!(second.is_some());
    }

    #[tokio::test]
    async fn h51_a_body_takes_room_until_its_answer_was_sent() {
        let memory = BodyMemory::new(&Limits::default());
        let free = || memory.small.free.available_permits();
        let all = free();
        let (permit, _) = memory.small.reserve(PERMIT_BYTES, 9 * PERMIT_BYTES).await;
        let request = TestRequest::default().to_http_request();
        let mut answer =
            pin!(ResponseBody::new(vec![0; PART_BYTES + 1], &request, Vec::from_iter(permit)));
        let mut sent = Vec::new();
        while let Some(part) = std::future::poll_fn(|cx| answer.as_mut().poll_next(cx)).await {
            assert_eq!(free(), all - 1);
            sent.push(part.unwrap().len());
        }
        assert_eq!(sent, [PART_BYTES, 1]);
    }
}
