//! Reads a request's body within a size and a time, and ends a connection
//! whose body is not read.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
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

/// The room for large bodies, which all requests share.
///
/// Small bodies need none: a sender who stalls costs little. A larger one waits
/// until as many bytes are free as it announced, and gives them back when it
/// was answered.
#[derive(Clone)]
pub struct Room {
    free: Arc<Semaphore>,
    limit: usize,
    small: usize,
}

/// A body that was read, and the room that it takes.
pub struct Body {
    /// Its bytes.
    pub bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// The room is counted in units of this many bytes.
const UNIT: usize = 1 << 10;

impl Room {
    /// The room that these limits give.
    pub fn new(limits: &Limits) -> Self {
        let units = limits.bodies.max(limits.body).div_ceil(UNIT);
        let free = Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS)));
        Self { free, limit: limits.body, small: limits.small }
    }

    /// Waits for room for so many bytes.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.free.clone().acquire_many_owned(units).await.ok()
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
    let waits = Cell::new(false);
    match tokio::time::timeout(deadline, collect(request, payload, room, &waits)).await {
        Ok(body) => body,
        Err(_) if waits.get() => Err(BadRequest::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "belay is reading as many large bodies as it has memory for; try again",
        )),
        Err(_) => Err(BadRequest::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} ms", deadline.as_millis()),
        )),
    }
}

async fn collect(
    request: &HttpRequest,
    payload: &mut web::Payload,
    room: &Room,
    waits: &Cell<bool>,
) -> Result<Body, BadRequest> {
    let limit = room.limit;
    let too_large = || {
        BadRequest::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {limit} bytes, the most that belay reads"),
        )
    };
    let announced = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    // Memory follows what has arrived, not what was announced: a thousand
    // stalled senders cost next to nothing.
    let mut bytes = Vec::with_capacity(announced.unwrap_or_default().min(64 << 10));
    let mut taken = None;
    let connection = Connection::of(request);
    if let Some(connection) = connection {
        connection.allow(announced.unwrap_or(limit));
    }
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| {
            BadRequest::new(
                StatusCode::BAD_REQUEST,
                format!("the body broke off after {} bytes: {error}", bytes.len()),
            )
        })?;
        if bytes.len() + chunk.len() > limit {
            return Err(too_large());
        }
        if taken.is_none() && bytes.len() + chunk.len() > room.small {
            let most = announced.unwrap_or(limit);
            waits.set(true);
            taken = room.take(most).await;
            waits.set(false);
            bytes.reserve_exact(most.saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&chunk);
    }
    if let Some(connection) = connection {
        connection.end_body();
    }
    Ok(Body { bytes, _room: taken })
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
