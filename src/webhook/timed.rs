//! A connection with a time limit.
//!
//! actix only limits the time for the first head of a connection. It has no limit for a second
//! head that arrives one byte a minute. Here, every connection has a limit, no matter which
//! bytes arrive.
//!
//! [`ConnectionControl`] limits how many bytes belay reads. actix would parse and answer hundreds
//! of small requests of one read at once (H155), and parses an unfinished head again with each read
//! (H165), so it gets one whole head at a time.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::rt::net::TcpStream;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::connection::ConnectionControl;
use super::tls_records::RecordSocket;

/// The socket of a connection.
pub trait Socket {
    /// Whether there are unread bytes. This asks the operating system, because the async runtime
    /// may not know of them yet.
    fn has_unread(&self) -> bool;

    /// Counts received bytes of a request.
    fn count_received(&self, _bytes: usize) {}

    /// Records the end of an answer.
    fn end_answer(&self) {}

    /// As [`RecordSocket::exceeds_limit_without_data`].
    fn exceeds_limit_without_data(&self) -> bool {
        false
    }
}

impl Socket for TcpStream {
    fn has_unread(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(self, &mut [0], flags).is_ok_and(|(_, length)| length > 0)
    }
}

impl Socket for TlsStream<RecordSocket> {
    fn has_unread(&self) -> bool {
        self.get_ref().0.socket().has_unread()
    }

    fn count_received(&self, bytes: usize) {
        self.get_ref().0.allow_for(bytes);
    }

    fn exceeds_limit_without_data(&self) -> bool {
        self.get_ref().0.exceeds_limit_without_data()
    }

    fn end_answer(&self) {
        self.get_ref().0.allow_request();
    }
}

/// A connection with time limits. After the first byte of a request, belay must send the first
/// byte of the answer within `answer_limit`, and then the whole answer within `answer_limit`. After
/// that, the next request must begin within `idle_limit`.
pub struct TimedStream<T> {
    io: T,
    answer_limit: Duration,
    idle_limit: Duration,
    timer: Pin<Box<Sleep>>,
    has_request: bool,
    /// Whether a part of the current answer was sent.
    has_sent_bytes: bool,
    /// The time for which it stays open after its last answer, so that the client can read the
    /// answer. Then belay drops unread bytes.
    linger_time: Duration,
    is_lingering: bool,
    connection: Rc<ConnectionControl>,
    scanner: HeadScanner,
    /// The bytes of a head for actix, which gets them when the head is complete.
    head: Vec<u8>,
    /// The bytes after a head, which actix does not have yet.
    after_head: Vec<u8>,
}

impl<T> TimedStream<T> {
    /// Limits a new connection.
    pub fn new(
        io: T,
        answer_limit: Duration,
        idle_limit: Duration,
        connection: Rc<ConnectionControl>,
    ) -> Self {
        let timer = Box::pin(sleep(idle_limit));
        let linger_time = Duration::ZERO;
        let (has_request, has_sent_bytes, is_lingering) = (false, false, false);
        let (scanner, head, after_head) = (HeadScanner::default(), Vec::new(), Vec::new());
        Self {
            io,
            answer_limit,
            idle_limit,
            timer,
            has_request,
            has_sent_bytes,
            linger_time,
            is_lingering,
            connection,
            scanner,
            head,
            after_head,
        }
    }

    pub fn with_linger_time(self, linger_time: Duration) -> Self {
        Self { linger_time, ..self }
    }

    /// The limits that this connection shares with its handlers.
    pub fn connection(&self) -> &Rc<ConnectionControl> {
        &self.connection
    }

    /// Returns pending until the time limit, and then an error.
    fn or_timed_out<R>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn reset_timer(&mut self, limit: Duration) {
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl<T: AsyncRead + Socket + Unpin> TimedStream<T> {
    /// Fills the buffer from `after_head`, or from the socket. Returns the number of new bytes.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if !self.after_head.is_empty() {
            return Poll::Ready(Ok(move_bytes(&mut self.after_head, buffer, most)));
        }
        let before = buffer.filled().len();
        let read = read_at_most(Pin::new(&mut self.io), cx, buffer, most);
        if read.is_pending() {
            // A newer connection takes its slot. No request is lost, because no bytes are unread.
            let is_asked = self.connection.is_asked_to_end(cx.waker());
            if is_asked && !self.io.has_unread() || self.io.exceeds_limit_without_data() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            return self.or_timed_out(cx);
        }
        ready!(read)?;
        let arrived = buffer.filled().len() - before;
        self.io.count_received(arrived);
        if arrived > 0 && !self.has_request {
            self.has_request = true;
            self.connection.begin_request();
            self.reset_timer(self.answer_limit);
        }
        Poll::Ready(Ok(arrived))
    }

    /// Counts the new bytes, which are in the buffer from `start` on. Leaves only a complete head
    /// or bytes of a body in the buffer. Keeps an unfinished head in `head`, and the bytes after a
    /// head in `after_head`. Returns whether the read is complete: actix gets the bytes in the
    /// buffer, and an empty buffer is the end of the connection.
    fn pass_complete_head(&mut self, buffer: &mut ReadBuf<'_>, start: usize) -> bool {
        let bytes = &buffer.filled()[start..];
        self.connection.count_received(bytes.len());
        if !self.connection.is_reading_head() || bytes.is_empty() {
            return true;
        }
        let end = self.scanner.find_end(bytes);
        let (head, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        // `after_head` may still have the bytes that follow these.
        self.after_head.splice(..0, rest.iter().copied());
        if end.is_some() {
            self.connection.end_head();
        }
        // A head usually arrives as a whole, and needs no copy.
        if let Some(end) = end.filter(|_| self.head.is_empty()) {
            buffer.set_filled(start + end);
            return true;
        }
        self.head.extend_from_slice(head);
        buffer.set_filled(start);
        if end.is_some() {
            move_bytes(&mut self.head, buffer, usize::MAX);
        }
        end.is_some()
    }
}

/// Moves at most this many bytes to a buffer. Returns their number.
fn move_bytes(bytes: &mut Vec<u8>, buffer: &mut ReadBuf<'_>, most: usize) -> usize {
    let length = most.min(buffer.remaining()).min(bytes.len());
    buffer.put_slice(&bytes[..length]);
    bytes.drain(..length);
    length
}

/// Finds the end of heads in the bytes of a connection.
#[derive(Default)]
struct HeadScanner {
    /// Whether the head has begun. Empty lines before it do not count.
    has_begun: bool,
    /// Whether the current line of the head is empty so far.
    at_line_start: bool,
}

impl HeadScanner {
    /// The position after the end of the head, which is its first empty line. Then the next head
    /// begins.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.at_line_start => {
                    *self = Self::default();
                    return Some(index + 1);
                }
                b'\n' => self.at_line_start = self.has_begun,
                b'\r' => {}
                _ => *self = Self { has_begun: true, at_line_start: false },
            }
        }
        None
    }
}

impl<T: AsyncRead + Socket + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.connection.is_reading_head() && !self.head.is_empty() {
            move_bytes(&mut self.head, buffer, usize::MAX);
            return Poll::Ready(Ok(()));
        }
        loop {
            let remaining = self.connection.remaining_bytes();
            if remaining == 0 {
                return match self.connection.register_waker(cx) {
                    Ok(()) => self.or_timed_out(cx),
                    Err(error) => Poll::Ready(Err(error)),
                };
            }
            let before = buffer.filled().len();
            ready!(self.fill(cx, buffer, remaining))?;
            if self.pass_complete_head(buffer, before) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Reads at most this many bytes.
fn read_at_most(
    io: Pin<&mut impl AsyncRead>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    bytes: usize,
) -> Poll<io::Result<()>> {
    if buffer.remaining() <= bytes {
        return io.poll_read(cx, buffer);
    }
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(bytes));
    let read = io.poll_read(cx, &mut part);
    let filled = part.filled().len();
    buffer.advance(filled);
    read
}

impl<T: AsyncWrite + Socket + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.fail_after_last_request()?;
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        match written {
            // A client that does not read the answers gets as little time as a client that does
            // not send the request.
            Poll::Pending => return self.or_timed_out(cx),
            Poll::Ready(Ok(1..)) if !self.has_sent_bytes => {
                self.has_sent_bytes = true;
                let answer_limit = self.answer_limit;
                self.reset_timer(answer_limit);
            }
            Poll::Ready(_) => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Pending => self.or_timed_out(cx),
            Poll::Ready(Ok(())) => {
                if self.has_sent_bytes && !self.connection.has_unsent_answer() {
                    (self.has_request, self.has_sent_bytes) = (false, false);
                    self.connection.end_answer();
                    self.io.end_answer();
                    let idle_limit = self.idle_limit;
                    self.reset_timer(idle_limit);
                }
                Poll::Ready(Ok(()))
            }
            failed => failed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_lingering {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            if self.linger_time.is_zero() {
                return Poll::Ready(Ok(()));
            }
            self.is_lingering = true;
            self.connection.linger();
            let linger_time = self.linger_time;
            self.reset_timer(linger_time);
        }
        self.timer.as_mut().poll(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::MAX_HEAD_BYTES;
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    impl Socket for DuplexStream {
        fn has_unread(&self) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn h66_a_socket_knows_what_has_arrived_before_the_runtime_does() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = TcpStream::from_std(near).unwrap();
        assert!(!near.has_unread());
        std::io::Write::write_all(&mut far, b"head").unwrap();
        assert!(near.has_unread() && near.has_unread());
    }

    const ANSWER: Duration = Duration::from_secs(4);
    const IDLE: Duration = Duration::from_secs(120);

    /// The seconds until reading ends, if the client sends these bytes every second.
    async fn ends_after(sent: &'static [u8], answered: bool) -> u64 {
        let (mut far, near) = duplex(64);
        let mut near = TimedStream::new(near, ANSWER, IDLE, ConnectionControl::new(MAX_HEAD_BYTES));
        let start = Instant::now();
        if answered {
            near.write_all(b"answer").await.unwrap();
            near.flush().await.unwrap();
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
    async fn silent_and_slow_connections_end() {
        assert_eq!(ends_after(b"", false).await, 120);
        assert_eq!(ends_after(b"x", false).await, 4, "one byte a second on a new connection");
        assert_eq!(ends_after(b"x", true).await, 4, "one byte a second after an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_loses_its_connection() {
        let (_far, near) = duplex(4);
        let mut near = TimedStream::new(near, ANSWER, IDLE, ConnectionControl::new(MAX_HEAD_BYTES));
        let error = near.write_all(b"longer than the pipe").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn h51_a_client_that_reads_slowly_loses_its_connection() {
        let (mut far, near) = duplex(4);
        let mut near = TimedStream::new(near, ANSWER, IDLE, ConnectionControl::new(MAX_HEAD_BYTES));
        let slow = tokio::spawn(async move {
            let mut buffer = [0; 4];
            while far.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        // The client would need 25 seconds to read everything.
        let error = near.write_all(&[b'a'; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.abort();
    }

    #[tokio::test]
    async fn heads_and_bodies_have_size_limits() {
        let (mut far, near) = duplex(64);
        let connection = ConnectionControl::new(6);
        let mut near = TimedStream::new(near, ANSWER, IDLE, connection.clone());
        let mut buffer = [0; 3];
        far.write_all(b"head\n\nbody++next").await.unwrap();
        for part in [*b"hea", *b"d\n\n"] {
            near.read_exact(&mut buffer).await.unwrap();
            assert_eq!(buffer, part);
        }
        connection.allow(3);
        near.read_exact(&mut buffer).await.unwrap();
        let waits = futures_util::FutureExt::now_or_never(near.read(&mut buffer));
        assert!(waits.is_none(), "a body waits for more allowed bytes");
        connection.allow(3);
        near.read_exact(&mut buffer).await.unwrap();
        connection.end_body();
        connection.count_received(MAX_HEAD_BYTES - 3);
        let error = near.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "a head that is too long fails");
    }

    #[tokio::test]
    async fn h165_a_head_that_arrives_byte_by_byte_is_read_once() {
        let (mut far, near) = duplex(1);
        let connection = ConnectionControl::new(MAX_HEAD_BYTES);
        let mut near = TimedStream::new(near, ANSWER, IDLE, connection);
        let head = b"A / HTTP/1.1\r\nx: y\r\n\r\n";
        let sender = tokio::spawn(async move { far.write_all(head).await });
        let mut buffer = [0; 256];
        assert_eq!(near.read(&mut buffer).await.unwrap(), head.len());
        sender.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn h155_a_read_has_one_head() {
        let (mut far, near) = duplex(256);
        let connection = ConnectionControl::new(MAX_HEAD_BYTES);
        let mut near = TimedStream::new(near, ANSWER, IDLE, connection.clone());
        far.write_all(b"\r\nA / HTTP/1.1\r\nx: y\r\n").await.unwrap();
        let mut buffer = [0; 256];
        let waits = |near: &mut TimedStream<_>| {
            let mut one = [0];
            futures_util::FutureExt::now_or_never(near.read(&mut one)).is_none()
        };
        assert!(waits(&mut near), "the head is not complete");
        far.write_all(b"\r\nB / HTTP/1.0\n\nbodyC / HTTP/1.0\n\r\n").await.unwrap();
        assert_eq!(near.read(&mut buffer).await.unwrap(), 24);
        assert!(waits(&mut near), "the first request has no answer yet");
        connection.end_answer();
        assert_eq!(near.read(&mut buffer).await.unwrap(), 14);
        assert!(waits(&mut near), "no handler reads the body");
        connection.allow(3);
        assert_eq!(near.read(&mut buffer).await.unwrap(), 3);
        assert!(waits(&mut near), "only allowed bytes of a body are read");
        connection.allow(1);
        assert_eq!(near.read(&mut buffer).await.unwrap(), 1);
        connection.end_body();
        assert_eq!(near.read(&mut buffer).await.unwrap(), 15);
        assert!(waits(&mut near));
    }
}
