//! The limits of handshakes in progress and of connections.
//!
//! With all file descriptors in use, belay could not accept the API server's
//! connections, nor read from it. So belay limits the connections in each state. If all
//! slots of a state are in use, a new connection takes the slot of an older one.
//!
//! Any Pod can connect and send nothing, or very much. Only addresses distinguish clients:
//! a Pod has one, and the API server has another. So half of the slots are divided equally
//! between the addresses. An address that needs fewer leaves the rest to the others. If a
//! new connection needs a slot, belay ends the oldest connection among the addresses that
//! have more than this share. The other half of the slots is for addresses that start many
//! connections at once, as an API server does after a restart of belay.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

/// The limit of handshakes in progress with unknown addresses, in all threads.
const MAX_HANDSHAKES: usize = 4096;

/// The limit of handshakes in progress with known addresses, in all threads. A known address
/// has sent a request with the secret path.
const MAX_KNOWN_HANDSHAKES: usize = 512;

/// The limit of connections from unknown addresses before the path of their first request is read,
/// in all threads.
const MAX_UNKNOWN_FIRST_REQUEST: usize = 1024;

/// The limit of connections from known addresses before the path of their first request is read,
/// in all threads.
const MAX_KNOWN_FIRST_REQUEST: usize = 512;

/// The limit of known connections that send a request, in all threads. Idle and waiting
/// connections have their own limits, so that they don't end the sending ones.
const MAX_SENDING: usize = 1024;

/// The limit of idle connections, in all threads. An API server has a few hundred.
const MAX_IDLE: usize = 1536;

/// The limit of connections that wait for an answer, in all threads.
const MAX_AWAITING_ANSWER: usize = 1024;

/// The limit of all connections, in all threads. The other limits apply first.
const MAX_CONNECTIONS: usize = MAX_HANDSHAKES
    + MAX_KNOWN_HANDSHAKES
    + MAX_UNKNOWN_FIRST_REQUEST
    + MAX_KNOWN_FIRST_REQUEST
    + MAX_SENDING
    + MAX_IDLE
    + MAX_AWAITING_ANSWER;

/// The limit of connections to the probes.
const MAX_PROBE_CONNECTIONS: usize = 64;

/// A limited number of slots.
#[derive(Clone)]
pub struct ConnectionSlots {
    occupancy: Arc<Mutex<Occupancy>>,
    limit: usize,
}

#[derive(Default)]
struct Occupancy {
    next_number: u64,
    /// The oldest holder has the lowest number.
    by_number: BTreeMap<u64, SlotHolder>,
    by_client: HashMap<Option<IpAddr>, BTreeSet<u64>>,
}

struct SlotHolder {
    client: Option<IpAddr>,
    since: Instant,
    end: EndAction,
}

impl Occupancy {
    fn add(&mut self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.by_number.insert(number, SlotHolder { client, since: Instant::now(), end });
        self.by_client.entry(client).or_default().insert(number);
        number
    }

    fn remove(&mut self, number: u64) -> Option<SlotHolder> {
        let holder = self.by_number.remove(&number)?;
        if let Some(numbers) = self.by_client.get_mut(&holder.client) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_client.remove(&holder.client);
            }
        }
        Some(holder)
    }

    /// The number of slots for each client if `slots` are divided equally, and clients that
    /// need fewer leave the rest to the others.
    fn fair_share(&self, slots: usize) -> usize {
        let mut counts: Vec<_> = self.by_client.values().map(BTreeSet::len).collect();
        counts.sort_unstable();
        let mut free = slots;
        for (index, count) in counts.iter().enumerate() {
            let share = free / (counts.len() - index);
            if *count > share {
                return share;
            }
            free -= count;
        }
        slots
    }

    /// The oldest holder of the clients with more than their fair share of half of the slots. The
    /// oldest of all holders, if no client has more.
    fn oldest_above_share(&self, limit: usize) -> Option<u64> {
        let share = self.fair_share(limit.div_ceil(2));
        let above = self.by_client.values().filter(|numbers| numbers.len() > share);
        let oldest = above.filter_map(BTreeSet::first).min();
        oldest.or_else(|| self.by_number.keys().next()).copied()
    }
}

/// The slots for the states of a connection. A connection is in one of them at a time.
#[derive(Clone)]
pub struct StateSlots {
    /// Connections from unknown addresses before the path of their first request is read.
    pub unknown_first_request: ConnectionSlots,
    /// Connections from known addresses before the path of their first request is read.
    pub known_first_request: ConnectionSlots,
    /// Connections of known callers that send a request.
    pub sending: ConnectionSlots,
    /// Connections that wait for an answer.
    pub awaiting_answer: ConnectionSlots,
    /// Idle connections after an answer.
    pub idle: ConnectionSlots,
}

impl StateSlots {
    /// The slots for one thread.
    pub fn new(limits: &ConnectionLimits) -> Self {
        Self {
            unknown_first_request: ConnectionSlots::new(limits.unknown_first_request),
            known_first_request: ConnectionSlots::new(limits.known_first_request),
            sending: ConnectionSlots::new(limits.sending),
            awaiting_answer: ConnectionSlots::new(limits.awaiting_answer),
            idle: ConnectionSlots::new(limits.idle),
        }
    }

    /// The slots for the probes. Answered connections move from `unknown_first_request` to `idle`.
    /// The server accepts more connections than these two have slots, so that a new connection ends
    /// an old one instead of waiting.
    pub fn for_probes(limit: usize) -> Self {
        let [unknown_first_request, known_first_request, sending, awaiting_answer] =
            [limit; 4].map(ConnectionSlots::new);
        let idle = ConnectionSlots::new(limit.div_ceil(2));
        Self { unknown_first_request, known_first_request, sending, awaiting_answer, idle }
    }
}

/// How the holder of a slot ends for a newer one.
enum EndAction {
    Abort(AbortHandle),
    Ask(Arc<EndSignal>),
}

impl EndAction {
    fn run(&self) {
        match self {
            Self::Abort(handle) => handle.abort(),
            Self::Ask(signal) => signal.ask(),
        }
    }
}

/// Asks a connection to end when it has nothing to read. An abort would drop a request
/// that has arrived but was not read.
#[derive(Default)]
pub struct EndSignal {
    asked: AtomicBool,
    waker: AtomicWaker,
}

impl EndSignal {
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the task was asked to end. A later request to end wakes the task.
    pub fn is_asked(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.asked.load(Ordering::Acquire)
    }

    /// Lets the connection continue, because a request has arrived.
    pub fn withdraw(&self) {
        self.asked.store(false, Ordering::Release);
    }
}

/// The slot of a future.
pub struct ConnectionSlot {
    occupancy: Arc<Mutex<Occupancy>>,
    number: u64,
    client: Option<IpAddr>,
    handle: AbortHandle,
}

impl ConnectionSlot {
    /// Takes a new slot in `slots` and releases the old one.
    pub fn enter(&mut self, slots: &ConnectionSlots) {
        self.move_to(slots, EndAction::Abort(self.handle.clone()));
    }

    /// Takes a new slot for a connection without a request. To end the connection for a
    /// newer one, belay asks it to end.
    pub fn enter_idle(&mut self, slots: &ConnectionSlots, signal: &Arc<EndSignal>) {
        self.move_to(slots, EndAction::Ask(signal.clone()));
    }

    fn move_to(&mut self, slots: &ConnectionSlots, end: EndAction) {
        self.leave();
        self.occupancy = slots.occupancy.clone();
        self.number = slots.add(self.client, end);
    }

    fn leave(&self) {
        self.occupancy.lock().remove(self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ConnectionSlots {
    /// Creates this number of slots.
    pub fn new(limit: usize) -> Self {
        Self { occupancy: Arc::default(), limit }
    }

    /// Gives the future of a client a slot. If all slots are in use, an older future of a
    /// client with more than its fair share ends. The output is `None` if the future was
    /// ended for a newer one.
    pub fn occupy<F: Future>(
        &self,
        client: Option<IpAddr>,
        future: F,
    ) -> (ConnectionSlot, impl Future<Output = Option<F::Output>> + use<F>) {
        let (handle, registration) = AbortHandle::new_pair();
        let number = self.add(client, EndAction::Abort(handle.clone()));
        let slot = ConnectionSlot { occupancy: self.occupancy.clone(), number, client, handle };
        let abortable = Abortable::new(future, registration);
        (slot, async move { abortable.await.ok() })
    }

    /// Runs a future that keeps its slot until it ends.
    pub fn run<F: Future>(
        &self,
        client: Option<IpAddr>,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (slot, output) = self.occupy(client, future);
        async move {
            let _slot = slot;
            output.await
        }
    }

    /// Takes a slot and returns its number.
    fn add(&self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let mut occupancy = self.occupancy.lock();
        if occupancy.by_number.len() >= self.limit
            && let Some(oldest) = occupancy.oldest_above_share(self.limit)
            && let Some(holder) = occupancy.remove(oldest)
        {
            holder.end.run();
        }
        occupancy.add(client, end)
    }

    /// Ends the futures that have had their slots for at least this time.
    pub fn end_older_than(&self, age: Duration) {
        let mut occupancy = self.occupancy.lock();
        while let Some((number, holder)) = occupancy.by_number.first_key_value()
            && holder.since.elapsed() >= age
        {
            let number = *number;
            occupancy.remove(number).into_iter().for_each(|holder| holder.end.run());
        }
    }
}

/// The number of threads that answer reviews on a machine with this many cores. The threads divide
/// the slots. With few slots on a thread, the handshakes of a busy API server would end each other
/// (H139).
pub fn default_threads(cores: usize) -> usize {
    cores.min(8)
}

/// The limits of each thread, and of the listener of the probes.
#[derive(Clone, Copy)]
pub struct ConnectionLimits {
    /// All connections. The kernel lets further ones wait until a connection ends.
    pub connections: usize,
    /// Handshakes in progress with unknown addresses.
    pub handshakes: usize,
    /// Handshakes in progress with known addresses.
    pub known_handshakes: usize,
    /// Connections from unknown addresses before the path of their first request is read.
    pub unknown_first_request: usize,
    /// Connections from known addresses before the path of their first request is read.
    pub known_first_request: usize,
    /// Connections of known callers that send a request.
    pub sending: usize,
    /// Idle connections after an answer.
    pub idle: usize,
    /// Connections that wait for an answer.
    pub awaiting_answer: usize,
    /// Connections to the probes.
    pub probes: usize,
}

impl ConnectionLimits {
    /// The limits for this number of threads. More than a third of the file descriptors
    /// remain for files and for connections to the API server. The soft limit of a
    /// container is often 1,024, so belay raises it to the hard limit.
    pub fn for_threads(threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let limit = setrlimit(Resource::Nofile, raised).map_or(limit, |()| raised);
        let descriptors = limit.current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let threads = threads.max(1);
        let per_thread =
            |max: usize, fraction: usize| (max.min(descriptors / fraction) / threads).max(1);
        Self {
            connections: per_thread(MAX_CONNECTIONS, 2),
            handshakes: per_thread(MAX_HANDSHAKES, 10),
            known_handshakes: per_thread(MAX_KNOWN_HANDSHAKES, 20),
            unknown_first_request: per_thread(MAX_UNKNOWN_FIRST_REQUEST, 10),
            known_first_request: per_thread(MAX_KNOWN_FIRST_REQUEST, 20),
            sending: per_thread(MAX_SENDING, 10),
            idle: per_thread(MAX_IDLE, 10),
            awaiting_answer: per_thread(MAX_AWAITING_ANSWER, 10),
            probes: MAX_PROBE_CONNECTIONS.min(descriptors / 16).max(1),
        }
    }
}

#[cfg(test)]
mod tests;
