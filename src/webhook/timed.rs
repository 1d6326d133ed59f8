//! A connection that does not wait for ever.
//!
//! actix limits the time of the first head on a connection and of idleness,
//! but a second head that arrives a byte a minute has no limit of its own.
//! Here every connection has one, whatever is or is not arriving on it.
//!
//! actix also collects a head of up to 128 KiB. Here a head has fewer bytes, and
//! a handler says how many bytes of a body are read.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::HttpRequest;
use actix_web::rt::net::TcpStream;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::places::{CallerPlaces, EndRequest, Place};

/// The longest head. The API server's have less than 4 KiB.
pub const HEAD: usize = 16 << 10;

/// What a connection reads from.
pub trait Socket {
    /// Whether bytes have arrived that were not read, whatever the runtime knows of them.
    fn has_unread(&self) -> bool;
}

impl Socket for TcpStream {
    fn has_unread(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(self, &mut [0], flags).is_ok_and(|(_, length)| length > 0)
    }
}

impl Socket for TlsStream<TcpStream> {
    fn has_unread(&self) -> bool {
        self.get_ref().0.has_unread()
    }
}

/// What one connection may send. [`Timed`] and the handlers share it.
pub struct Connection {
    /// So many more bytes are read. The last read may take more, by what one
    /// buffer holds.
    left: Cell<usize>,
    phase: Cell<Phase>,
    waiting: Cell<Option<Waker>>,
    place: RefCell<Option<PlaceOfCaller>>,
    end: Arc<EndRequest>,
    /// Whether a part of an answer is not written yet.
    answering: Cell<bool>,
    /// Whether the next request may come.
    requests: Cell<Requests>,
}

/// Whether a connection may send another request. actix would answer all that were sent
/// together, also behind the one whose answer ends the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requests {
    /// It may.
    Open,
    /// The last one was answered.
    Closed,
    /// It has sent one behind the last one.
    Broken,
}

/// The place of a connection among those that newer ones end.
struct PlaceOfCaller {
    place: Place,
    /// Where it may have one.
    places: CallerPlaces,
    state: CallerState,
}

/// What a connection does whose caller is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallerState {
    /// It sends a request, or has sent none yet.
    Sending,
    /// It waits for an answer.
    Asking,
    /// It was answered, and has sent nothing since.
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// A head arrives.
    Head,
    /// As much as a head may have was read, and is being parsed.
    Parsed,
    /// A handler reads a body.
    Body,
}

impl Connection {
    /// For a first head of at most so many bytes.
    pub fn new(head: usize) -> Rc<Self> {
        Rc::new(Self {
            left: Cell::new(head),
            phase: Cell::new(Phase::Head),
            waiting: Cell::default(),
            place: RefCell::default(),
            end: Arc::default(),
            answering: Cell::default(),
            requests: Cell::new(Requests::Open),
        })
    }

    /// The connection of a request.
    pub fn of(request: &HttpRequest) -> Option<&Rc<Self>> {
        request.conn_data()
    }

    /// The place that it has among the connections that newer ones end, and where it has
    /// one when its caller has shown that it knows the path.
    pub fn set_place(&self, place: Place, places: CallerPlaces) {
        let state = CallerState::Sending;
        self.place.replace(Some(PlaceOfCaller { place, places, state }));
    }

    /// Its caller knows the path: only those end it now that send a request as well.
    pub fn keep(&self) {
        if let Some(caller) = &mut *self.place.borrow_mut() {
            caller.place.enter(&caller.places.sending);
        }
    }

    /// Its review has arrived. Connections that only send no longer end it.
    pub fn ask(&self) {
        if let Some(caller) = &mut *self.place.borrow_mut() {
            caller.place.enter(&caller.places.asking);
            caller.state = CallerState::Asking;
        }
    }

    /// Its answer was sent.
    fn end_answer(&self) {
        if let Some(caller) = &mut *self.place.borrow_mut()
            && caller.state == CallerState::Asking
        {
            caller.state = CallerState::Idle;
            caller.place.enter_idle(&caller.places.idle, &self.end);
        }
    }

    /// The first bytes of a request have arrived. If it was idle and was asked to end, it
    /// is not any more.
    fn begin(&self) {
        if let Some(caller) = &mut *self.place.borrow_mut()
            && caller.state == CallerState::Idle
        {
            caller.state = CallerState::Sending;
            caller.place.enter(&caller.places.sending);
            self.end.withdraw();
        }
    }

    /// Whether a request is answered. One behind the last one ends the connection.
    pub fn admit_request(&self) -> bool {
        let open = self.requests.get() == Requests::Open;
        if !open {
            self.requests.set(Requests::Broken);
        }
        open
    }

    /// The last answer was made.
    pub fn end_requests(&self) {
        self.requests.set(Requests::Closed);
    }

    fn check_requests(&self) -> io::Result<()> {
        match self.requests.get() {
            Requests::Broken => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        }
    }

    /// Whether a part of an answer is not written yet.
    pub fn set_answering(&self, answering: bool) {
        self.answering.set(answering);
    }

    /// Reads so many more bytes, of a body.
    pub fn allow(&self, bytes: usize) {
        let left = if self.phase.replace(Phase::Body) == Phase::Body { self.left.get() } else { 0 };
        self.left.set(left + bytes);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// The body has ended, and the next head may arrive.
    pub fn end_body(&self) {
        self.allow(0);
        self.left.set(HEAD);
        self.phase.set(Phase::Head);
    }

    /// Nothing may be read now. An error: nor later.
    fn wait(&self, cx: &Context<'_>) -> io::Result<()> {
        match self.phase.get() {
            Phase::Head => {
                // The head may be whole. Its handler then runs before the next read.
                self.phase.set(Phase::Parsed);
                cx.waker().wake_by_ref();
            }
            Phase::Parsed => return Err(io::ErrorKind::InvalidData.into()),
            Phase::Body => self.waiting.set(Some(cx.waker().clone())),
        }
        Ok(())
    }
}

/// From the first byte of a request, bytes have to go out within `answer`, and
/// from then on the whole answer; after that the next request has to begin within
/// `idle`.
pub struct Timed<T> {
    io: T,
    answer: Duration,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    asked: bool,
    answers: bool,
    connection: Rc<Connection>,
}

impl<T> Timed<T> {
    /// Limits a connection that has just been made.
    pub fn new(io: T, answer: Duration, idle: Duration, connection: Rc<Connection>) -> Self {
        let timer = Box::pin(sleep(idle));
        Self { io, answer, idle, timer, asked: false, answers: false, connection }
    }

    /// What the connection may send.
    pub fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Pending, until the time is up.
    fn or_timed_out<R>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        self.timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn start(&mut self, limit: Duration) {
        self.timer.as_mut().reset(Instant::now() + limit);
    }
}

impl<T: AsyncRead + Socket + Unpin> AsyncRead for Timed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.connection.left.get();
        if left == 0 {
            return match self.connection.wait(cx) {
                Ok(()) => self.or_timed_out(cx),
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        if read.is_pending() {
            // A newer connection has its place, and no request of it is lost.
            if self.connection.end.is_asked(cx.waker()) && !self.io.has_unread() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            return self.or_timed_out(cx);
        }
        let arrived = buffer.filled().len() - before;
        self.connection.left.set(left.saturating_sub(arrived));
        if arrived > 0 && !self.asked {
            self.asked = true;
            self.connection.begin();
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
        self.connection.check_requests()?;
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        match written {
            // Somebody who does not take the answers is waited for as little
            // as somebody who does not send the question.
            Poll::Pending => return self.or_timed_out(cx),
            Poll::Ready(Ok(1..)) if !self.answers => {
                self.answers = true;
                let answer = self.answer;
                self.start(answer);
            }
            Poll::Ready(_) => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Pending => self.or_timed_out(cx),
            Poll::Ready(Ok(())) => {
                if self.answers && !self.connection.answering.get() {
                    (self.asked, self.answers) = (false, false);
                    self.connection.end_answer();
                    let idle = self.idle;
                    self.start(idle);
                }
                Poll::Ready(Ok(()))
            }
            failed => failed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
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

    /// A connection whose review is being decided, its end, and the places, of which one
    /// is for those that send and one for those that are idle.
    fn asking() -> (Rc<Connection>, impl Future<Output = Option<()>>, CallerPlaces) {
        let few = CallerPlaces::each(1);
        let places = CallerPlaces { sending: few.sending, idle: few.idle, ..CallerPlaces::each(2) };
        let connection = Connection::new(HEAD);
        let (place, ended) = places.new.take(std::future::pending::<()>());
        connection.set_place(place, places.clone());
        connection.keep();
        connection.ask();
        (connection, ended, places)
    }

    #[tokio::test]
    async fn h63_a_connection_that_waits_for_its_answer_ends_for_no_newer_one() {
        let (connection, ended, places) = asking();
        let mut ended = std::pin::pin!(ended);
        let (mut newer, _newer) = places.new.take(std::future::pending::<()>());
        newer.enter(&places.idle);
        let asked = || connection.end.is_asked(Waker::noop());
        assert!(futures_util::poll!(&mut ended).is_pending() && !asked());
        // Once it is answered, it is the newest one.
        connection.end_answer();
        assert!(futures_util::poll!(&mut ended).is_pending() && !asked());
        newer.enter(&places.idle);
        assert!(futures_util::poll!(&mut ended).is_pending() && asked());
    }

    #[tokio::test]
    async fn h75_a_connection_that_sends_ends_only_for_newer_ones_that_send() {
        let (connection, ended, places) = asking();
        let mut ended = std::pin::pin!(ended);
        connection.end_answer();
        connection.begin();
        let (mut newer, _newer) = places.new.take(std::future::pending::<()>());
        for answered in [&places.asking, &places.idle] {
            newer.enter(answered);
            assert!(futures_util::poll!(&mut ended).is_pending());
        }
        newer.enter(&places.sending);
        assert!(futures_util::poll!(&mut ended).is_ready());
    }

    #[tokio::test]
    async fn h66_a_request_that_has_arrived_is_read_before_the_connection_ends_for_a_newer_one() {
        for arrived in [true, false] {
            let (connection, _ended, places) = asking();
            connection.end_answer();
            let (mut far, near) = duplex(64);
            let mut near = Timed::new(near, ANSWER, IDLE, connection.clone());
            if arrived {
                far.write_all(b"head").await.unwrap();
            }
            let (mut newer, _newer) = places.new.take(std::future::pending::<()>());
            newer.enter(&places.idle);
            let mut buffer = [0; 16];
            if arrived {
                // HTTP is read until nothing is left, and only then is it looked at.
                assert_eq!(near.read(&mut buffer).await.unwrap(), 4);
                let more = futures_util::FutureExt::now_or_never(near.read(&mut buffer));
                assert!(more.is_none(), "{more:?}");
                connection.keep();
                connection.ask();
                connection.end_answer();
                newer.enter(&places.idle);
            }
            let error = near.read(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
    }

    const ANSWER: Duration = Duration::from_secs(4);
    const IDLE: Duration = Duration::from_secs(120);

    /// The seconds until reading ends, with this much sent every second.
    async fn ends_after(sent: &'static [u8], answered: bool) -> u64 {
        let (mut far, near) = duplex(64);
        let mut near = Timed::new(near, ANSWER, IDLE, Connection::new(HEAD));
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
    async fn silence_and_drips_end() {
        assert_eq!(ends_after(b"", false).await, 120);
        assert_eq!(ends_after(b"x", false).await, 4, "a drip on a new connection");
        assert_eq!(ends_after(b"x", true).await, 4, "a drip after an answer");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_read_is_not_waited_for() {
        let (_far, near) = duplex(4);
        let mut near = Timed::new(near, ANSWER, IDLE, Connection::new(HEAD));
        let error = near.write_all(b"longer than the pipe").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn h51_an_answer_that_is_read_slowly_is_not_waited_for() {
        let (mut far, near) = duplex(4);
        let mut near = Timed::new(near, ANSWER, IDLE, Connection::new(HEAD));
        let slow = tokio::spawn(async move {
            let mut buffer = [0; 4];
            while far.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        // It would take 25 seconds.
        let error = near.write_all(&[b'a'; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.abort();
    }

    #[tokio::test]
    async fn a_head_has_a_size_and_a_body_has_what_is_allowed() {
        let (mut far, near) = duplex(64);
        let connection = Connection::new(6);
        let mut near = Timed::new(near, ANSWER, IDLE, connection.clone());
        let mut buffer = [0; 3];
        far.write_all(b"head++body++next").await.unwrap();
        near.read_exact(&mut buffer).await.unwrap();
        near.read_exact(&mut buffer).await.unwrap();
        connection.allow(3);
        near.read_exact(&mut buffer).await.unwrap();
        let waits = futures_util::FutureExt::now_or_never(near.read(&mut buffer));
        assert!(waits.is_none(), "a body waits");
        connection.allow(3);
        near.read_exact(&mut buffer).await.unwrap();
        connection.end_body();
        connection.left.set(3);
        near.read_exact(&mut buffer).await.unwrap();
        let error = near.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "a head does not");
    }
}
