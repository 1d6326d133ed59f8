//! Reads a request's body within a size and a time, and ends a connection
//! whose body is not read.

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
use super::places::Places;
use super::timed::Connection;

/// A refusal before any verdict: the HTTP status and one sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// The status code.
    pub code: StatusCode,
    /// What is wrong, where, and what was expected.
    pub message: String,
}

impl BadRequest {
    /// A refusal with this code and sentence.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The room for bodies, which all requests share. A body takes room as it
/// arrives, and gives it back when it was answered. Small bodies have room of
/// their own. A larger body moves to the other room as a whole when it has sent
/// as much as a small one may have.
#[derive(Clone)]
pub struct Room {
    small: Budget,
    large: Budget,
    most: usize,
    most_small: usize,
}

/// A number of bytes, and the senders that take from them. Where one waits for
/// longer than `patience`, the oldest sender that has not sent all is refused.
#[derive(Clone)]
struct Budget {
    free: Arc<Semaphore>,
    senders: Places,
    patience: Duration,
}

/// A body that was read, and the room that it takes.
pub struct Body {
    /// Its bytes.
    pub bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// The room is counted in units of this many bytes.
const UNIT: usize = 1 << 10;

/// A small body takes room for so many bytes at a time.
const STEP: usize = 16 << 10;

impl Budget {
    fn new(bytes: usize, patience: Duration) -> Self {
        let units = bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(units));
        Self { free, senders: Places::new(usize::MAX), patience }
    }

    /// Waits for room for so many bytes.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let mut taken = pin!(self.free.clone().acquire_many_owned(units));
        loop {
            match tokio::time::timeout(self.patience, &mut taken).await {
                // The semaphore is never closed.
                Ok(taken) => return taken.ok(),
                Err(_) => self.senders.end_oldest(),
            }
        }
    }
}

impl Room {
    /// The room that these limits give.
    pub fn new(limits: &Limits) -> Self {
        Self {
            small: Budget::new(limits.small_bodies.max(limits.small), Duration::from_millis(10)),
            large: Budget::new(limits.bodies.max(limits.body), Duration::from_secs(1)),
            most: limits.body,
            most_small: limits.small,
        }
    }
}

/// The whole body. actix has a time-out for a request's head but none for its
/// body, so a sender that stalls is cut off here.
pub async fn read(
    request: &HttpRequest,
    payload: &mut web::Payload,
    room: &Room,
    deadline: Duration,
) -> Result<Body, BadRequest> {
    let announced = request.headers().get(CONTENT_LENGTH);
    let Some(length) = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok())
    else {
        return Err(BadRequest::new(
            StatusCode::LENGTH_REQUIRED,
            "the request has no Content-Length, which the API server sends",
        ));
    };
    if length > room.most {
        let most = room.most;
        return Err(BadRequest::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {most} bytes, the most that belay reads"),
        ));
    }
    let waits = Cell::new(false);
    let no_room = || {
        BadRequest::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "belay is reading as many bodies as it has memory for; try again",
        )
    };
    let connection = Connection::of(request).map(Rc::as_ref);
    let mut arriving = Arriving { payload, connection, bytes: Vec::new(), waits: &waits };
    let whole = async {
        let first = length.min(room.most_small);
        let filled = room.small.senders.run(arriving.fill(first, &room.small, STEP)).await;
        let mut taken = filled.unwrap_or_else(|| Err(no_room()))?;
        if length > first {
            let filled = room.large.senders.run(arriving.fill(length, &room.large, length)).await;
            taken = filled.unwrap_or_else(|| Err(no_room()))?;
        }
        Ok(Body { bytes: std::mem::take(&mut arriving.bytes), _room: taken })
    };
    match tokio::time::timeout(deadline, whole).await {
        Ok(body) => {
            if let Some(connection) = connection {
                connection.end_body();
            }
            body
        }
        Err(_) if waits.get() => Err(no_room()),
        Err(_) => Err(BadRequest::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} ms", deadline.as_millis()),
        )),
    }
}

/// A body of which a part has arrived.
struct Arriving<'a> {
    payload: &'a mut web::Payload,
    connection: Option<&'a Connection>,
    bytes: Vec<u8>,
    /// Whether it waits for room, and not for its sender.
    waits: &'a Cell<bool>,
}

impl Arriving<'_> {
    /// Reads until it has so many bytes. Takes room for them, one step after the
    /// other, and lets no more arrive than it has room for.
    async fn fill(
        &mut self,
        until: usize,
        budget: &Budget,
        step: usize,
    ) -> Result<Option<OwnedSemaphorePermit>, BadRequest> {
        let mut taken: Option<OwnedSemaphorePermit> = None;
        let mut reserved = 0;
        loop {
            if self.bytes.len() >= reserved && reserved < until {
                let more = step.min(until - reserved);
                self.waits.set(true);
                let permit = budget.take(more).await;
                self.waits.set(false);
                match (&mut taken, permit) {
                    (Some(taken), Some(permit)) => taken.merge(permit),
                    (_, permit) => taken = permit,
                }
                reserved += more;
                // Pages that nothing was written to are no memory yet.
                self.bytes.reserve_exact(until - self.bytes.len().min(until));
                if let Some(connection) = self.connection {
                    connection.allow(more);
                }
            }
            if self.bytes.len() >= until {
                return Ok(taken);
            }
            let Some(chunk) = self.payload.next().await else { return Ok(taken) };
            let chunk = chunk.map_err(|error| {
                let arrived = self.bytes.len();
                BadRequest::new(
                    StatusCode::BAD_REQUEST,
                    format!("the body broke off after {arrived} bytes: {error}"),
                )
            })?;
            self.bytes.extend_from_slice(&chunk);
        }
    }
}

/// The text of a refusal, together with the request body that was not read.
///
/// When a handler drops the rest of a chunked body, actix goes on reading it
/// for as long as the sender pleases. While the body is alive when the answer
/// has been sent, it closes the connection instead.
pub struct Refused {
    text: Option<Bytes>,
    _unread: web::Payload,
}

impl Refused {
    /// This text is the answer; `unread` is left unread.
    pub fn new(text: String, unread: web::Payload) -> Self {
        Self { text: Some(text.into()), _unread: unread }
    }
}

impl MessageBody for Refused {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.text.as_ref().map_or(0, |text| text.len() as u64))
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(self.get_mut().text.take().map(Ok))
    }
}
