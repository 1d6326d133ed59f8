//! Reads a request's body within a size and a time, and ends a connection
//! whose body is not read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::http::StatusCode;
use actix_web::http::header::CONTENT_LENGTH;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, web};
use futures_util::StreamExt as _;

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

/// The whole body. actix has a time-out for a request's head but none for its
/// body, so a sender that stalls is cut off here.
pub async fn read(
    request: &HttpRequest,
    payload: &mut web::Payload,
    limit: usize,
    deadline: Duration,
) -> Result<Vec<u8>, BadRequest> {
    match tokio::time::timeout(deadline, collect(request, payload, limit)).await {
        Ok(body) => body,
        Err(_) => Err(BadRequest::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {} ms", deadline.as_millis()),
        )),
    }
}

async fn collect(
    request: &HttpRequest,
    payload: &mut web::Payload,
    limit: usize,
) -> Result<Vec<u8>, BadRequest> {
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
    // stalled senders that announce 8 MiB each cost next to nothing.
    let mut body = Vec::with_capacity(announced.unwrap_or_default().min(64 << 10));
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| {
            BadRequest::new(
                StatusCode::BAD_REQUEST,
                format!("the body broke off after {} bytes: {error}", body.len()),
            )
        })?;
        if body.len() + chunk.len() > limit {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
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
