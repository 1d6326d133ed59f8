//! The limits of handshakes in progress and of connections.
//!
//! Any Pod can connect and send nothing. A real client ends its handshake and
//! sends its request within milliseconds. So where half of the places are taken, belay drops
//! the handshakes that have waited longest for their clients. Where this is not enough,
//! because many clients send much, it counts: a Pod has one address, and the API server has
//! another. belay refuses further handshakes of an address that has many, and drops the
//! oldest one of the address with the most. After the handshake only the age counts.
//!
//! With all file descriptors in use, belay could not accept the API server's
//! connections, nor read from it. So connections are bounded as well.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::Instant;

/// The limit of handshakes in progress, in all threads.
const MAX_HANDSHAKES: usize = 4096;

/// So many may be of addresses whose callers have shown that they know the path.
const MAX_KNOWN_HANDSHAKES: usize = 512;

/// The limit of connections that send their first request, in all threads.
const MAX_NEW: usize = 1024;

/// So many may be of addresses whose callers have shown that they know the path.
const MAX_KNOWN: usize = 512;

/// The limit of known connections that send a request, in all threads. Idle and waiting
/// connections have their own limits, so that they don't age the sending ones.
const MAX_SENDING: usize = 1024;

/// The limit of idle connections, in all threads. An API server has a few hundred.
const MAX_IDLE: usize = 1536;

/// The limit of connections that wait for an answer, in all threads.
const MAX_AWAITING_ANSWER: usize = 1024;

/// The limit of all connections, in all threads. The other limits apply first.
const MAX_CONNECTIONS: usize = MAX_HANDSHAKES
    + MAX_KNOWN_HANDSHAKES
    + MAX_NEW
    + MAX_KNOWN
    + MAX_SENDING
    + MAX_IDLE
    + MAX_AWAITING_ANSWER;

/// The number of slots from which a client may count as having many. After its first
/// requests an API server begins fewer handshakes at once on one thread.
const MAX_OF_ONE_CLIENT: usize = 32;

/// For so long in all a handshake may wait for its client, whatever others need.
const MIN_WAIT: Duration = Duration::from_millis(50);

/// For so long a handshake of an address that has [`MAX_OF_ONE_CLIENT`] keeps its place.
const MIN_AGE: Duration = Duration::from_secs(2);

/// The limit of connections to the probes.
const MAX_PROBE_CONNECTIONS: usize = 64;

/// A limited number of slots. If all are in use, a new future takes the slot of the
/// oldest one.
#[derive(Clone)]
pub struct ConnectionSlots {
    taken: Arc<Mutex<Occupancy>>,
    limit: usize,
}

#[derive(Default)]
struct Occupancy {
    /// The number of the next one.
    next: u64,
    by_number: BTreeMap<u64, SlotHolder>,
    /// The numbers of each client.
    by_client: HashMap<Option<IpAddr>, BTreeSet<u64>>,
    /// Those that wait for their clients. The first one has waited longest in all.
    waiting: BTreeSet<(Instant, u64)>,
}

/// The holder of a slot.
struct SlotHolder {
    client: Option<IpAddr>,
    since: Instant,
    end: EndAction,
    handshake_wait: HandshakeWait,
}

/// How long a holder has waited for its client.
#[derive(Clone, Copy)]
enum HandshakeWait {
    /// It waits. Without its earlier waits it would have begun then.
    Waiting(Instant),
    /// It has waited so long, and goes on.
    Paused(Duration),
}

impl Occupancy {
    fn add(&mut self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(
            number,
            SlotHolder {
                client,
                since: Instant::now(),
                end,
                handshake_wait: HandshakeWait::Paused(Duration::ZERO),
            },
        );
        self.by_client.entry(client).or_default().insert(number);
        number
    }

    fn remove(&mut self, number: u64) -> Option<SlotHolder> {
        let holder = self.by_number.remove(&number)?;
        if let HandshakeWait::Waiting(since) = holder.handshake_wait {
            self.waiting.remove(&(since, number));
        }
        if let Some(numbers) = self.by_client.get_mut(&holder.client) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_client.remove(&holder.client);
            }
        }
        Some(holder)
    }

    /// Notes whether a holder waits for its client.
    fn set_waiting(&mut self, number: u64, waits: bool) {
        let Some(holder) = self.by_number.get_mut(&number) else { return };
        let now = Instant::now();
        holder.handshake_wait = match (holder.handshake_wait, waits) {
            (HandshakeWait::Paused(waited), true) => {
                let since = now.checked_sub(waited).unwrap_or(now);
                self.waiting.insert((since, number));
                HandshakeWait::Waiting(since)
            }
            (HandshakeWait::Waiting(since), false) => {
                self.waiting.remove(&(since, number));
                HandshakeWait::Paused(now - since)
            }
            (same, _) => same,
        };
    }

    /// Ends those that have waited longest for their clients, until fewer are left or all of
    /// them have waited for less than [`MIN_WAIT`].
    fn end_waiting(&mut self, fewer_than: usize) {
        while self.by_number.len() >= fewer_than
            && let Some(&(since, number)) = self.waiting.first()
            && since.elapsed() >= MIN_WAIT
        {
            self.remove(number).into_iter().for_each(|holder| holder.end.end());
        }
    }

    /// How many of `limit` a client may have if none gets more than another, except what
    /// others leave, and as much is left for a client that is not there yet.
    fn fair_share(&self, client: Option<IpAddr>, places: usize) -> usize {
        let others = self.by_client.iter().filter(|(other, _)| **other != client);
        let mut counts: Vec<_> = others.map(|(_, numbers)| numbers.len()).collect();
        counts.sort_unstable();
        let (mut left, mut clients) = (places, counts.len() + 2);
        for count in counts {
            if count * clients >= left {
                break;
            }
            (left, clients) = (left - count, clients - 1);
        }
        left / clients
    }

    /// Removes the oldest place. If a client has [`MAX_OF_ONE_CLIENT`] or an eighth of all,
    /// it removes the oldest one of the clients that have the most.
    fn remove_oldest(&mut self) -> Option<SlotHolder> {
        let many = self.by_number.len().div_ceil(8).min(MAX_OF_ONE_CLIENT);
        let most = self.by_client.values().map(BTreeSet::len).max()?;
        let oldest = match most < many {
            true => *self.by_number.first_key_value()?.0,
            false => {
                let with_most = self.by_client.values().filter(|numbers| numbers.len() == most);
                *with_most.filter_map(BTreeSet::first).min()?
            }
        };
        self.remove(oldest)
    }
}

/// The slots for the states of a connection. A connection is in one of them at a time.
#[derive(Clone)]
pub struct StateSlots {
    /// Connections of callers that have not shown that they know the path.
    pub new: ConnectionSlots,
    /// Connections from known addresses that have sent no request.
    pub known: ConnectionSlots,
    /// Connections that send a request.
    pub sending: ConnectionSlots,
    /// Connections that wait for an answer.
    pub awaiting_answer: ConnectionSlots,
    /// Idle connections after an answer.
    pub idle: ConnectionSlots,
}

impl StateSlots {
    /// The slots for one thread.
    pub fn new(bounds: &ConnectionLimits) -> Self {
        let ConnectionLimits { new, known, sending, awaiting_answer: asking, idle, .. } = *bounds;
        let [new, known, sending, asking, idle] =
            [new, known, sending, asking, idle].map(ConnectionSlots::new);
        Self { new, known, sending, awaiting_answer: asking, idle }
    }

    /// The slots for the probes, where `idle` has the answered connections. The slots of
    /// `idle` and `new` together are fewer than the accepted connections.
    pub fn for_probes(most: usize) -> Self {
        let [new, known, sending, asking] = [most; 4].map(ConnectionSlots::new);
        Self {
            new,
            known,
            sending,
            awaiting_answer: asking,
            idle: ConnectionSlots::new(most.div_ceil(2)),
        }
    }
}

/// How a future ends in favour of a newer one.
enum EndAction {
    Abort(AbortHandle),
    Ask(Arc<EndRequest>),
}

impl EndAction {
    fn end(&self) {
        match self {
            Self::Abort(handle) => handle.abort(),
            Self::Ask(request) => request.ask(),
        }
    }
}

/// Asks a connection to end when it has nothing to read. An abort would drop a request
/// that has arrived but was not read.
#[derive(Default)]
pub struct EndRequest {
    asked: AtomicBool,
    waker: AtomicWaker,
}

impl EndRequest {
    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the task was asked to end. A later request wakes the task.
    pub fn is_asked(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.asked.load(Ordering::Acquire)
    }

    /// A request has arrived.
    pub fn withdraw(&self) {
        self.asked.store(false, Ordering::Release);
    }
}

/// The slot of a future.
pub struct ConnectionSlot {
    taken: Arc<Mutex<Occupancy>>,
    number: u64,
    handle: AbortHandle,
}

impl ConnectionSlot {
    /// Takes a new slot here and releases the old one.
    pub fn enter(&mut self, places: &ConnectionSlots) {
        self.move_to(places, EndAction::Abort(self.handle.clone()));
    }

    /// The same for a connection without a request, which is asked to end in favour of a
    /// newer one.
    pub fn enter_idle(&mut self, places: &ConnectionSlots, request: &Arc<EndRequest>) {
        self.move_to(places, EndAction::Ask(request.clone()));
    }

    fn move_to(&mut self, places: &ConnectionSlots, end: EndAction) {
        self.leave();
        self.taken = places.taken.clone();
        self.number = places.add(None, end);
    }

    fn leave(&self) {
        self.taken.lock().remove(self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ConnectionSlots {
    /// A limited number of slots.
    pub fn new(most: usize) -> Self {
        Self { taken: Arc::default(), limit: most }
    }

    /// Gives a future a slot, and drops the oldest future if there are too many. The
    /// output is `None` if the future was dropped.
    pub fn occupy<F: Future>(
        &self,
        future: F,
    ) -> (ConnectionSlot, impl Future<Output = Option<F::Output>> + use<F>) {
        let (place, registration) = self.take(None);
        let abortable = Abortable::new(future, registration);
        (place, async move { abortable.await.ok() })
    }

    /// A slot for a client, until it is dropped.
    fn take(&self, client: Option<IpAddr>) -> (ConnectionSlot, AbortRegistration) {
        let (handle, registration) = AbortHandle::new_pair();
        let number = self.add(client, EndAction::Abort(handle.clone()));
        (ConnectionSlot { taken: self.taken.clone(), number, handle }, registration)
    }

    /// The number of a new slot.
    fn add(&self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let mut taken = self.taken.lock();
        if taken.by_number.len() >= self.limit
            && let Some(oldest) = taken.remove_oldest()
        {
            oldest.end.end();
        }
        taken.add(client, end)
    }

    /// Whether a client may begin a further handshake. It may not if all of this holds:
    ///
    /// 1. Half of the slots are in use, and no handshake that waits for its client can end.
    /// 2. The client has [`MAX_OF_ONE_CLIENT`] slots, and its fair share. In its first requests
    ///    after a restart of belay an API server may begin hundreds at once.
    /// 3. It has at most half of the slots in use. With more it is most likely a proxy, and its
    ///    oldest handshake makes room.
    /// 4. Its oldest handshake is younger than [`MIN_AGE`]. An older one ends for the new one.
    pub fn admit_handshake(&self, client: Option<IpAddr>) -> bool {
        let mut taken = self.taken.lock();
        taken.end_waiting(self.limit / 2);
        if taken.by_number.len() < self.limit / 2 {
            return true;
        }
        let Some(numbers) = taken.by_client.get(&client) else { return true };
        let Some(oldest) = numbers.first().copied() else { return true };
        let (number, all) = (numbers.len(), taken.by_number.len());
        let is_few = |number| number < taken.fair_share(client, self.limit);
        if number < MAX_OF_ONE_CLIENT || 2 * number > all || is_few(number) {
            return true;
        }
        if taken.by_number.get(&oldest).is_some_and(|oldest| oldest.since.elapsed() < MIN_AGE) {
            return false;
        }
        taken.remove(oldest).into_iter().for_each(|oldest| oldest.end.end());
        true
    }

    /// Ends the futures that have had their slots for this time.
    pub fn end_older_than(&self, age: Duration) {
        let mut taken = self.taken.lock();
        while let Some((number, oldest)) = taken.by_number.first_key_value()
            && oldest.since.elapsed() >= age
        {
            let number = *number;
            taken.remove(number).into_iter().for_each(|oldest| oldest.end.end());
        }
    }

    /// The same as `occupy`, with the slot until the end of the future.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        self.run_for(None, |_| future)
    }

    /// The same for a client. The future says when it waits for the client.
    pub fn run_for<F: Future, B: FnOnce(WaitTimer) -> F>(
        &self,
        client: Option<IpAddr>,
        begin: B,
    ) -> impl Future<Output = Option<F::Output>> + use<F, B> {
        let (place, registration) = self.take(client);
        let wait = WaitTimer { taken: self.taken.clone(), number: place.number };
        let ended = Abortable::new(begin(wait), registration);
        async move {
            let _place = place;
            ended.await.ok()
        }
    }
}

/// Notes when the holder of a slot waits for its client.
pub struct WaitTimer {
    taken: Arc<Mutex<Occupancy>>,
    number: u64,
}

impl WaitTimer {
    /// From now on it waits for its client.
    pub fn begin(&self) {
        self.taken.lock().set_waiting(self.number, true);
    }

    /// Its client has sent something, or is gone.
    pub fn end(&self) {
        self.taken.lock().set_waiting(self.number, false);
    }
}

/// The limits of each thread, and of the listener of the probes.
#[derive(Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections. When there are more, the kernel lets new ones wait until one
    /// ends.
    pub connections: usize,
    /// Handshakes under way.
    pub handshakes: usize,
    /// The same of known addresses.
    pub known_handshakes: usize,
    /// Connections of callers that have not shown that they know the path.
    pub new: usize,
    /// The same of known addresses.
    pub known: usize,
    /// Connections of those that have, and send a request.
    pub sending: usize,
    /// Connections of those that have, and send nothing.
    pub idle: usize,
    /// Connections whose review is being decided.
    pub awaiting_answer: usize,
    /// Connections to the probes.
    pub probes: usize,
}

impl ConnectionLimits {
    /// For so many threads. More than a third of the file descriptors are left
    /// for files and for connections to the API server. The soft limit of a
    /// container is often 1,024, so belay raises it as far as it may.
    pub fn for_threads(threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let limit = setrlimit(Resource::Nofile, raised).map_or(limit, |()| raised);
        let descriptors = limit.current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let threads = threads.max(1);
        let each = |most: usize, share: usize| (most.min(descriptors / share) / threads).max(1);
        Self {
            connections: each(MAX_CONNECTIONS, 2),
            handshakes: each(MAX_HANDSHAKES, 10),
            known_handshakes: each(MAX_KNOWN_HANDSHAKES, 20),
            new: each(MAX_NEW, 10),
            known: each(MAX_KNOWN, 20),
            sending: each(MAX_SENDING, 10),
            idle: each(MAX_IDLE, 10),
            awaiting_answer: each(MAX_AWAITING_ANSWER, 10),
            probes: MAX_PROBE_CONNECTIONS.min(descriptors / 16).max(1),
        }
    }
}

#[cfg(test)]
mod tests;
