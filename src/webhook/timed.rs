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

    /// Pending, until the time is up.
    fn or_timed_out<R>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
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
            return self.or_timed_out(cx);
        }
        if buffer.filled().len() > before && !self.asked {
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
        match written {
            // Somebody who does not take the answers is waited for as little
            // as somebody who does not send the question.
            Poll::Pending => return self.or_timed_out(cx),
            Poll::Ready(Ok(1..)) => {
                self.asked = false;
                let idle = self.idle;
                self.start(idle);
            }
            Poll::Ready(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const ANSWER: Duration = Duration::from_secs(4);
    const IDLE: Duration = Duration::from_secs(120);

    /// The seconds until reading ends, with this much sent every second.
    async fn ends_after(sent: &'static [u8], answered: bool) -> u64 {
        let (mut far, near) = duplex(64);
        let mut near = Timed::new(near, ANSWER, IDLE);
        let start = Instant::now();
        if answered {
            near.write_all(b"answer").await.unwrap();
        }
        let sender = tokio::spawn(async move {
            while far.write_all(sent).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut buffer = [0; 8];
        let error = loop {
            if let Err(error) = near.read(&mut buffer).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        sender.abort();
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_drips_end() {
        assert_eq!(ends_after(b"", false).await, 120);
        assert_eq!(ends_after(b"x", false).await, 4, "a drip on a new connection");
        assert_eq!(ends_after(b"x", true).await, 4, "a drip after an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_read_is_not_waited_for() {
        let (_far, near) = duplex(4);
        let mut near = Timed::new(near, ANSWER, IDLE);
        let error = near.write_all(b"longer than the pipe").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
