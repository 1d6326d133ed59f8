//! A connection that does not wait for ever.
//!
//! actix limits the time of the first head on a connection and of idleness,
//! but a second head that arrives a byte a minute has no limit of its own.
//! Here every connection has one, whatever is or is not arriving on it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// From the first byte of a request, bytes have to go out within `answer`;
/// after that the next request has to begin within `idle`.
pub struct Timed<T> {
    io: T,
    answer: Duration,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    asked: bool,
}

impl<T> Timed<T> {
    /// Limits a connection that has just been made.
    pub fn new(io: T, answer: Duration, idle: Duration) -> Self {
        Self { io, answer, idle, timer: Box::pin(sleep(idle)), asked: false }
    }

    fn start(&mut self, limit: Duration) {
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Timed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() {
            if self.timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else if buffer.filled().len() > before && !self.asked {
            self.asked = true;
            let answer = self.answer;
            self.start(answer);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Timed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if written.is_ready() {
            self.asked = false;
            let idle = self.idle;
            self.start(idle);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
