//! The limits of one connection, and its slot among others.
//!
//! actix collects a head of up to 128 KiB. Here a head has fewer bytes, and a handler
//! says how many bytes of a body are read.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use actix_web::HttpRequest;

use super::callers::Callers;
use super::slots::{ConnectionSlot, ConnectionSlots, EndRequest, StateSlots};

/// The longest head. The API server's have less than 4 KiB.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

/// The limits of one connection. [`super::timed::Timed`] and the handlers share them.
pub struct Connection {
    /// How many more bytes belay reads. The last read may exceed this by one buffer.
    left: Cell<usize>,
    phase: Cell<ReadPhase>,
    waiting: Cell<Option<Waker>>,
    slot: RefCell<Option<OccupiedSlot>>,
    end: Arc<EndRequest>,
    /// Whether a part of an answer is not written yet.
    answering: Cell<bool>,
    /// Whether another request may follow.
    requests: Cell<RequestIntake>,
}

/// Whether a connection may send another request. actix would answer all that were sent
/// together, also behind the one whose answer ends the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestIntake {
    /// Another request may follow.
    Open,
    /// The last request was answered.
    Closed,
    /// The client has sent a request after the last one.
    Failed,
}

/// The slot of a connection, which a newer connection may take.
struct OccupiedSlot {
    slot: ConnectionSlot,
    /// The slots that it uses until its caller has shown that it knows the path.
    admitted_from: ConnectionSlots,
    /// The slots that it may use then.
    slots: StateSlots,
    state: ConnectionState,
    /// Its address, and where that is remembered once the caller is known.
    address: Option<(IpAddr, Callers)>,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// It has sent nothing.
    Unused,
    /// It sends a request.
    Sending,
    /// It waits for an answer.
    AwaitingAnswer,
    /// It was answered, and has sent nothing since.
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadPhase {
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
            phase: Cell::new(ReadPhase::Head),
            waiting: Cell::default(),
            slot: RefCell::default(),
            end: Arc::default(),
            answering: Cell::default(),
            requests: Cell::new(RequestIntake::Open),
        })
    }

    /// The connection of a request.
    pub fn from_request(request: &HttpRequest) -> Option<&Rc<Self>> {
        request.conn_data()
    }

    /// The slot that it has among the connections that newer ones end, and where it has
    /// one when its caller has shown that it knows the path. Then its address is known.
    pub fn set_slot(
        &self,
        mut slot: ConnectionSlot,
        first: &ConnectionSlots,
        slots: StateSlots,
        address: Option<(IpAddr, Callers)>,
    ) {
        slot.enter_idle(first, &self.end);
        let (state, first) = (ConnectionState::Unused, first.clone());
        self.slot.replace(Some(OccupiedSlot { slot, admitted_from: first, slots, state, address }));
    }

    /// Its caller knows the path: from now on only connections that send a request as
    /// well can end it.
    pub fn set_known_caller(&self) {
        if let Some(caller) = &mut *self.slot.borrow_mut() {
            caller.slot.enter(&caller.slots.sending);
            if let Some((address, callers)) = &caller.address {
                callers.add(*address);
            }
        }
    }

    /// Its review has arrived: sending connections no longer end it.
    pub fn set_waiting(&self) {
        if let Some(caller) = &mut *self.slot.borrow_mut() {
            caller.slot.enter(&caller.slots.awaiting_answer);
            caller.state = ConnectionState::AwaitingAnswer;
        }
    }

    /// Its answer was sent.
    pub fn end_answer(&self) {
        if let Some(caller) = &mut *self.slot.borrow_mut()
            && caller.state == ConnectionState::AwaitingAnswer
        {
            caller.state = ConnectionState::Idle;
            caller.slot.enter_idle(&caller.slots.idle, &self.end);
        }
    }

    /// Its last answer was sent. Only newer connections in the same state end it now.
    pub fn linger(&self) {
        if let Some(caller) = &mut *self.slot.borrow_mut() {
            caller.slot.enter(&caller.slots.idle);
        }
    }

    /// The first bytes of a request have arrived. If it was asked to end, it is not any more.
    pub fn begin(&self) {
        if let Some(caller) = &mut *self.slot.borrow_mut() {
            match caller.state {
                ConnectionState::Unused => caller.slot.enter(&caller.admitted_from),
                ConnectionState::Idle => caller.slot.enter(&caller.slots.sending),
                ConnectionState::Sending | ConnectionState::AwaitingAnswer => return,
            }
            caller.state = ConnectionState::Sending;
            self.end.withdraw();
        }
    }

    /// Whether a request is answered. One behind the last one ends the connection.
    pub fn admit_request(&self) -> bool {
        let open = self.requests.get() == RequestIntake::Open;
        if !open {
            self.requests.set(RequestIntake::Failed);
        }
        open
    }

    /// The last answer was made.
    pub fn end_requests(&self) {
        self.requests.set(RequestIntake::Closed);
    }

    pub fn check_requests(&self) -> io::Result<()> {
        match self.requests.get() {
            RequestIntake::Failed => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        }
    }

    /// Whether a part of an answer is not written yet.
    pub fn set_answering(&self, answering: bool) {
        self.answering.set(answering);
    }

    pub fn is_answering(&self) -> bool {
        self.answering.get()
    }

    /// Whether it has to end in favour of a newer connection. A later request wakes it.
    pub fn is_asked_to_end(&self, waker: &Waker) -> bool {
        self.end.is_asked(waker)
    }

    /// How many more bytes belay reads now.
    pub fn remaining_bytes(&self) -> usize {
        self.left.get()
    }

    /// Counts received bytes.
    pub fn count_received(&self, bytes: usize) {
        self.left.set(self.left.get().saturating_sub(bytes));
    }

    /// Allows this many more bytes of a body.
    pub fn allow(&self, bytes: usize) {
        let left = if self.phase.replace(ReadPhase::Body) == ReadPhase::Body {
            self.left.get()
        } else {
            0
        };
        self.left.set(left + bytes);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// The body has ended, and the next head may arrive.
    pub fn end_body(&self) {
        self.allow(0);
        self.left.set(MAX_HEAD_BYTES);
        self.phase.set(ReadPhase::Head);
    }

    /// Nothing may be read now. An error: nor later.
    pub fn wait(&self, cx: &Context<'_>) -> io::Result<()> {
        match self.phase.get() {
            ReadPhase::Head => {
                // The head may be whole. Its handler then runs before the next read.
                self.phase.set(ReadPhase::Parsed);
                cx.waker().wake_by_ref();
            }
            ReadPhase::Parsed => return Err(io::ErrorKind::InvalidData.into()),
            ReadPhase::Body => self.waiting.set(Some(cx.waker().clone())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::super::timed::Timed;
    use super::*;

    /// A connection whose review is being decided, its end, and the slots, of which one
    /// is for those that send and one for those that are idle.
    fn asking() -> (Rc<Connection>, impl Future<Output = Option<()>>, StateSlots) {
        let few = StateSlots::for_probes(1);
        let slots =
            StateSlots { sending: few.sending, idle: few.idle, ..StateSlots::for_probes(2) };
        let connection = Connection::new(MAX_HEAD_BYTES);
        let (slot, ended) = slots.new.occupy(None, std::future::pending::<()>());
        connection.set_slot(slot, &slots.new, slots.clone(), None);
        connection.begin();
        connection.set_known_caller();
        connection.set_waiting();
        (connection, ended, slots)
    }

    #[tokio::test]
    async fn h63_a_connection_that_waits_for_its_answer_ends_for_no_newer_one() {
        let (connection, ended, slots) = asking();
        let mut ended = std::pin::pin!(ended);
        let (mut newer, _newer) = slots.new.occupy(None, std::future::pending::<()>());
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
        let (connection, ended, slots) = asking();
        let mut ended = std::pin::pin!(ended);
        connection.end_answer();
        connection.begin();
        let (mut newer, _newer) = slots.new.occupy(None, std::future::pending::<()>());
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
            let connection = Connection::new(MAX_HEAD_BYTES);
            let (slot, ended) = slots.new.occupy(None, std::future::pending::<()>());
            let mut ended = std::pin::pin!(ended);
            connection.set_slot(slot, &slots.new, slots.clone(), None);
            let (mut far, near) = duplex(64);
            let [answer, idle] = [4, 120].map(Duration::from_secs);
            let mut near = Timed::new(near, answer, idle, connection.clone());
            if arrived {
                far.write_all(b"head").await.unwrap();
            }
            let _newer = slots.new.occupy(None, std::future::pending::<()>());
            assert!(futures_util::poll!(&mut ended).is_pending());
            let read = near.read(&mut [0; 16]).await.map_err(|error| error.kind());
            assert_eq!(read, if arrived { Ok(4) } else { Err(io::ErrorKind::ConnectionAborted) });
        }
    }

    #[tokio::test]
    async fn h66_a_request_that_has_arrived_is_read_before_the_connection_ends_for_a_newer_one() {
        for arrived in [true, false] {
            let (connection, _ended, slots) = asking();
            connection.end_answer();
            let (mut far, near) = duplex(64);
            let mut near = Timed::new(
                near,
                Duration::from_secs(4),
                Duration::from_secs(120),
                connection.clone(),
            );
            if arrived {
                far.write_all(b"head").await.unwrap();
            }
            let (mut newer, _newer) = slots.new.occupy(None, std::future::pending::<()>());
            newer.enter(&slots.idle);
            let mut buffer = [0; 16];
            if arrived {
                // HTTP is read until nothing is left, and only then is it looked at.
                assert_eq!(near.read(&mut buffer).await.unwrap(), 4);
                let more = futures_util::FutureExt::now_or_never(near.read(&mut buffer));
                assert!(more.is_none(), "{more:?}");
                connection.set_known_caller();
                connection.set_waiting();
                connection.end_answer();
                newer.enter(&slots.idle);
            }
            let error = near.read(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        }
    }
}
