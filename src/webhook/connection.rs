//! The limits of one connection, and its slot among the connections.
//!
//! actix accepts a head of up to 128 KiB. Here the limit is lower, and the handler decides how
//! many bytes of a body belay reads.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use actix_web::HttpRequest;

use super::callers::Callers;
use super::slots::{ConnectionSlot, ConnectionSlots, EndSignal, StateSlots};

/// The longest head. Those of the API server have less than 4 KiB.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// The limits of one connection. [`super::timed::TimedStream`] and the handlers share them.
pub struct ConnectionControl {
    /// The number of bytes that belay still reads.
    remaining_bytes: Cell<usize>,
    phase: Cell<ReadPhase>,
    read_waker: Cell<Option<Waker>>,
    slot: RefCell<Option<OccupiedSlot>>,
    end: Arc<EndSignal>,
    /// Whether a part of an answer is not written yet.
    unsent_answer: Cell<bool>,
    /// Whether another request may follow.
    requests: Cell<RequestIntake>,
}

/// Whether a connection may send another request. actix would answer all requests that a client
/// sent together, even those after the request whose answer ends the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestIntake {
    /// Another request may follow.
    Open,
    /// The last request has arrived. Its answer may not be sent yet.
    Closed,
    /// The client has sent a request after the last one.
    Failed,
}

/// The slot of a connection, which a newer connection may take.
struct OccupiedSlot {
    slot: ConnectionSlot,
    /// The slots that it uses until its caller has shown that it knows the path.
    first_slots: ConnectionSlots,
    /// The slots that it uses after that, by its state.
    slots: StateSlots,
    state: ConnectionState,
    /// Its address, and the known addresses. The address becomes known when the caller has shown
    /// that it knows the path.
    address: Option<(IpAddr, Callers)>,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// The client has sent nothing.
    Unused,
    /// The client sends a request.
    Sending,
    /// The client waits for an answer.
    AwaitingAnswer,
    /// The client got an answer, and has sent nothing since.
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadPhase {
    /// belay reads a head.
    Head,
    /// belay has read a head, and no handler reads a body yet.
    HeadEnded,
    /// A handler reads a body.
    Body,
}

impl ConnectionControl {
    /// A connection whose first head has at most `max_head` bytes.
    pub fn new(max_head: usize) -> Rc<Self> {
        Rc::new(Self {
            remaining_bytes: Cell::new(max_head),
            phase: Cell::new(ReadPhase::Head),
            read_waker: Cell::default(),
            slot: RefCell::default(),
            end: Arc::default(),
            unsent_answer: Cell::default(),
            requests: Cell::new(RequestIntake::Open),
        })
    }

    /// The connection of a request.
    pub fn from_request(request: &HttpRequest) -> Option<&Rc<Self>> {
        request.conn_data()
    }

    /// Sets the slot of the connection: first among `first_slots`, and among `slots` after its
    /// caller has shown that it knows the path. Then its address counts as known.
    pub fn set_slot(
        &self,
        mut slot: ConnectionSlot,
        first_slots: &ConnectionSlots,
        slots: StateSlots,
        address: Option<(IpAddr, Callers)>,
    ) {
        slot.enter_idle(first_slots, &self.end);
        let (state, first_slots) = (ConnectionState::Unused, first_slots.clone());
        self.slot.replace(Some(OccupiedSlot { slot, first_slots, slots, state, address }));
    }

    /// Records that its caller knows the path. From now on, only other connections that send a
    /// request can end it.
    pub fn set_known_caller(&self) {
        if let Some(occupied) = &mut *self.slot.borrow_mut() {
            occupied.slot.enter(&occupied.slots.sending);
            if let Some((address, callers)) = &occupied.address {
                callers.add(*address);
            }
        }
    }

    /// Records that its review has arrived. Sending connections no longer end it.
    pub fn set_awaiting_answer(&self) {
        if let Some(occupied) = &mut *self.slot.borrow_mut() {
            occupied.slot.enter(&occupied.slots.awaiting_answer);
            occupied.state = ConnectionState::AwaitingAnswer;
        }
    }

    /// Records that the answer was sent.
    pub fn end_answer(&self) {
        if let Some(occupied) = &mut *self.slot.borrow_mut()
            && occupied.state == ConnectionState::AwaitingAnswer
        {
            occupied.state = ConnectionState::Idle;
            occupied.slot.enter_idle(&occupied.slots.idle, &self.end);
        }
        if self.phase.get() == ReadPhase::HeadEnded {
            self.begin_head();
        }
    }

    /// Records that the last answer was sent. From now on, only newer idle connections can end it.
    pub fn linger(&self) {
        if let Some(occupied) = &mut *self.slot.borrow_mut() {
            occupied.slot.enter(&occupied.slots.idle);
        }
    }

    /// Records that the first bytes of a request have arrived. If a newer connection has asked this
    /// one to end, it no longer has to.
    pub fn begin_request(&self) {
        if let Some(occupied) = &mut *self.slot.borrow_mut() {
            match occupied.state {
                ConnectionState::Unused => occupied.slot.enter(&occupied.first_slots),
                ConnectionState::Idle => occupied.slot.enter(&occupied.slots.sending),
                ConnectionState::Sending | ConnectionState::AwaitingAnswer => return,
            }
            occupied.state = ConnectionState::Sending;
            self.end.withdraw();
        }
    }

    /// Whether belay answers a request. A request after the last one ends the connection.
    pub fn admit_request(&self) -> bool {
        let is_open = self.requests.get() == RequestIntake::Open;
        if !is_open {
            self.requests.set(RequestIntake::Failed);
        }
        is_open
    }

    /// Records that the current request is the last one.
    pub fn end_requests(&self) {
        self.requests.set(RequestIntake::Closed);
    }

    /// Fails if the client has sent a request after the last one.
    pub fn fail_after_last_request(&self) -> io::Result<()> {
        match self.requests.get() {
            RequestIntake::Failed => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        }
    }

    /// Sets whether a part of an answer is not written yet.
    pub fn set_unsent_answer(&self, unsent: bool) {
        self.unsent_answer.set(unsent);
    }

    pub fn has_unsent_answer(&self) -> bool {
        self.unsent_answer.get()
    }

    /// Whether the connection must end in favor of a newer one. If not, [`EndSignal`] wakes this
    /// waker when the connection must end.
    pub fn is_asked_to_end(&self, waker: &Waker) -> bool {
        self.end.is_asked(waker)
    }

    /// The number of bytes that belay may read now.
    pub fn remaining_bytes(&self) -> usize {
        self.remaining_bytes.get()
    }

    /// Counts received bytes.
    pub fn count_received(&self, bytes: usize) {
        self.remaining_bytes.set(self.remaining_bytes.get().saturating_sub(bytes));
    }

    /// Allows this many more bytes of a body.
    pub fn allow(&self, bytes: usize) {
        let remaining_bytes = if self.phase.replace(ReadPhase::Body) == ReadPhase::Body {
            self.remaining_bytes.get()
        } else {
            0
        };
        self.remaining_bytes.set(remaining_bytes + bytes);
        self.wake_reader();
    }

    fn wake_reader(&self) {
        if let Some(waker) = self.read_waker.take() {
            waker.wake();
        }
    }

    /// Records that a handler reads the body. It may not read any bytes yet.
    pub fn begin_body(&self) {
        self.allow(0);
    }

    /// Records the end of the body, and allows the next head.
    pub fn end_body(&self) {
        self.begin_head();
        self.wake_reader();
    }

    fn begin_head(&self) {
        self.remaining_bytes.set(MAX_HEAD_BYTES);
        self.phase.set(ReadPhase::Head);
    }

    /// Whether belay reads a head.
    pub fn is_reading_head(&self) -> bool {
        self.phase.get() == ReadPhase::Head
    }

    /// Records the end of a head. belay reads on when a handler allows it, or when
    /// the answer is sent.
    pub fn end_head(&self) {
        self.remaining_bytes.set(0);
        self.phase.set(ReadPhase::HeadEnded);
    }

    /// Wakes this task when more bytes may be read. Call it when no bytes remain. Returns an error
    /// while belay reads a head, because the head is then too long.
    pub fn register_waker(&self, cx: &Context<'_>) -> io::Result<()> {
        if self.is_reading_head() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.read_waker.set(Some(cx.waker().clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::super::timed::TimedStream;
    use super::*;

    /// A connection whose review is being decided, a future that is ready when the connection ends,
    /// and slots: one for sending connections, and one for idle ones.
    fn open_undecided() -> (Rc<ConnectionControl>, impl Future<Output = Option<()>>, StateSlots) {
        let few = StateSlots::for_probes(1);
        let slots =
            StateSlots { sending: few.sending, idle: few.idle, ..StateSlots::for_probes(2) };
        let connection = ConnectionControl::new(MAX_HEAD_BYTES);
        let (slot, ended) = slots.unknown_first_request.occupy(None, std::future::pending::<()>());
        connection.set_slot(slot, &slots.unknown_first_request, slots.clone(), None);
        connection.begin_request();
        connection.set_known_caller();
        connection.set_awaiting_answer();
        (connection, ended, slots)
    }

    #[tokio::test]
    async fn h63_a_connection_that_waits_for_its_answer_ends_for_no_newer_one() {
        let (connection, ended, slots) = open_undecided();
        let mut ended = std::pin::pin!(ended);
        let (mut newer, _newer) =
            slots.unknown_first_request.occupy(None, std::future::pending::<()>());
        newer.enter(&slots.idle);
        let asked = || connection.end.is_asked(Waker::noop());
        assert!(futures_util::poll!(&mut ended).is_pending() && !asked());
        // Once it is answered, it is the newest one.
        connection.end_answer();
        assert!(futures_util::poll!(&mut ended).is_pending() && !asked());
        newer.enter(&slots.idle);
        assert!(futures_util::poll!(&mut ended).is_pending() && asked());
    }

    #[tokio::test]
    async fn h75_a_connection_that_sends_ends_only_for_newer_ones_that_send() {
        let (connection, ended, slots) = open_undecided();
        let mut ended = std::pin::pin!(ended);
        connection.end_answer();
        connection.begin_request();
        let (mut newer, _newer) =
            slots.unknown_first_request.occupy(None, std::future::pending::<()>());
        for answered in [&slots.awaiting_answer, &slots.idle] {
            newer.enter(answered);
            assert!(futures_util::poll!(&mut ended).is_pending());
        }
        newer.enter(&slots.sending);
        assert!(futures_util::poll!(&mut ended).is_ready());
    }

    #[tokio::test]
    async fn h126_a_first_request_that_has_arrived_is_read_before_the_connection_ends() {
        for arrived in [true, false] {
            let slots = StateSlots::for_probes(1);
            let connection = ConnectionControl::new(MAX_HEAD_BYTES);
            let (slot, ended) =
                slots.unknown_first_request.occupy(None, std::future::pending::<()>());
            let mut ended = std::pin::pin!(ended);
            connection.set_slot(slot, &slots.unknown_first_request, slots.clone(), None);
            let (mut far, near) = duplex(64);
            let [answer, idle] = [4, 120].map(Duration::from_secs);
            let mut near = TimedStream::new(near, answer, idle, connection.clone());
            if arrived {
                far.write_all(b"head\n\n").await.unwrap();
            }
            let _newer = slots.unknown_first_request.occupy(None, std::future::pending::<()>());
            assert!(futures_util::poll!(&mut ended).is_pending());
            let read = near.read(&mut [0; 16]).await.map_err(|error| error.kind());
            assert_eq!(read, if arrived { Ok(6) } else { Err(io::ErrorKind::ConnectionAborted) });
        }
    }

    #[tokio::test]
    async fn h66_a_request_that_has_arrived_is_read_before_the_connection_ends_for_a_newer_one() {
        for arrived in [true, false] {
            let (connection, _ended, slots) = open_undecided();
            connection.end_answer();
            let (mut far, near) = duplex(64);
            let mut near = TimedStream::new(
                near,
                Duration::from_secs(4),
                Duration::from_secs(120),
                connection.clone(),
            );
            if arrived {
                far.write_all(b"head\n\n").await.unwrap();
            }
            let (mut newer, _newer) =
                slots.unknown_first_request.occupy(None, std::future::pending::<()>());
            newer.enter(&slots.idle);
            let mut buffer = [0; 16];
            if arrived {
                // The HTTP server reads until no bytes are left, and only then parses them.
                assert_eq!(near.read(&mut buffer).await.unwrap(), 6);
                let more = futures_util::FutureExt::now_or_never(near.read(&mut buffer));
                assert!(more.is_none(), "{more:?}");
                connection.set_known_caller();
                connection.set_awaiting_answer();
                connection.end_answer();
                newer.enter(&slots.idle);
            }
            let error = near.read(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
    }
}
