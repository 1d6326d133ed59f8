//! The limits of handshakes in progress and of connections.
//!
//! Any Pod can connect and send nothing. A real client ends its handshake and
//! sends its request within milliseconds, so where too many are under way belay
//! drops the oldest one. If one address has many, belay drops the oldest one of that
//! address: a Pod has one address, and the API server has another. Where several addresses
//! have handshakes under way, belay refuses further ones of an address that has many, so
//! that those of other addresses go on. After the handshake only the age counts.
//!
//! With all file descriptors in use, belay could not accept the API server's
//! connections, nor read from it. So connections are bounded as well.

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

/// The limit of handshakes in progress, in all threads.
const HANDSHAKES: usize = 4096;

/// So many may be of addresses whose callers have shown that they know the path.
const KNOWN_HANDSHAKES: usize = 512;

/// The limit of connections that send their first request, in all threads.
const NEW: usize = 1024;

/// So many may be of addresses whose callers have shown that they know the path.
const KNOWN: usize = 512;

/// The limit of known connections that send a request, in all threads. Idle and waiting
/// connections have their own limits, so that they don't age the sending ones.
const SENDING: usize = 1024;

/// The limit of idle connections, in all threads. An API server has a few hundred.
const IDLE: usize = 1536;

/// The limit of connections that wait for an answer, in all threads.
const ASKING: usize = 1024;

/// The limit of all connections, in all threads. The other limits apply first.
const CONNECTIONS: usize = HANDSHAKES + KNOWN_HANDSHAKES + NEW + KNOWN + SENDING + IDLE + ASKING;

/// The number of slots from which a client may count as having many. After its first
/// requests an API server begins fewer handshakes at once on one thread.
const MOST_OF_ONE_CLIENT: usize = 32;

/// For so long a handshake of an address that has [`MOST_OF_ONE_CLIENT`] keeps its place.
const MIN_AGE: Duration = Duration::from_secs(2);

/// The limit of connections to the probes.
const PROBES: usize = 64;

/// A limited number of slots. If all are in use, a new future takes the slot of the
/// oldest one.
#[derive(Clone)]
pub struct ConnectionSlots {
    taken: Arc<Mutex<Occupancy>>,
    most: usize,
}

#[derive(Default)]
struct Occupancy {
    /// The number of the next one.
    next: u64,
    by_number: BTreeMap<u64, Holder>,
    /// The numbers of each client.
    by_client: HashMap<Option<IpAddr>, BTreeSet<u64>>,
}

/// The holder of a slot.
struct Holder {
    client: Option<IpAddr>,
    since: Instant,
    end: EndAction,
}

impl Occupancy {
    fn add(&mut self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Holder { client, since: Instant::now(), end });
        self.by_client.entry(client).or_default().insert(number);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Holder> {
        let holder = self.by_number.remove(&number)?;
        if let Some(numbers) = self.by_client.get_mut(&holder.client) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_client.remove(&holder.client);
            }
        }
        Some(holder)
    }

    /// Removes the oldest place. If a client has [`MOST_OF_ONE_CLIENT`] or an eighth of all, it removes
    /// the oldest one of the clients that have the most.
    fn remove_oldest(&mut self) -> Option<Holder> {
        let many = self.by_number.len().div_ceil(8).min(MOST_OF_ONE_CLIENT);
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
pub struct CallerSlots {
    /// Connections of callers that have not shown that they know the path.
    pub new: ConnectionSlots,
    /// Connections from known addresses that have sent no request.
    pub known: ConnectionSlots,
    /// Connections that send a request.
    pub sending: ConnectionSlots,
    /// Connections that wait for an answer.
    pub asking: ConnectionSlots,
    /// Idle connections after an answer.
    pub idle: ConnectionSlots,
}

impl CallerSlots {
    /// The slots for one thread.
    pub fn new(bounds: &Bounds) -> Self {
        let Bounds { new, known, sending, asking, idle, .. } = *bounds;
        let [new, known, sending, asking, idle] =
            [new, known, sending, asking, idle].map(ConnectionSlots::new);
        Self { new, known, sending, asking, idle }
    }

    /// The slots for the probes, where `idle` has the answered connections. The slots of
    /// `idle` and `new` together are fewer than the accepted connections.
    pub fn for_probes(most: usize) -> Self {
        let [new, known, sending, asking] = [most; 4].map(ConnectionSlots::new);
        Self { new, known, sending, asking, idle: ConnectionSlots::new(most.div_ceil(2)) }
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
        Self { taken: Arc::default(), most }
    }

    /// Gives a future a slot, and drops the oldest future if there are too many. The
    /// output is `None` if the future was dropped.
    pub fn occupy<F: Future>(
        &self,
        future: F,
    ) -> (ConnectionSlot, impl Future<Output = Option<F::Output>> + use<F>) {
        self.occupy_for(None, future)
    }

    /// The same for a client.
    fn occupy_for<F: Future>(
        &self,
        client: Option<IpAddr>,
        future: F,
    ) -> (ConnectionSlot, impl Future<Output = Option<F::Output>> + use<F>) {
        let (handle, registration) = AbortHandle::new_pair();
        let number = self.add(client, EndAction::Abort(handle.clone()));
        let abortable = Abortable::new(future, registration);
        let place = ConnectionSlot { taken: self.taken.clone(), number, handle };
        (place, async move { abortable.await.ok() })
    }

    /// The number of a new slot.
    fn add(&self, client: Option<IpAddr>, end: EndAction) -> u64 {
        let mut taken = self.taken.lock();
        if taken.by_number.len() >= self.most
            && let Some(oldest) = taken.remove_oldest()
        {
            oldest.end.end();
        }
        taken.add(client, end)
    }

    /// Whether a client gets a further place. If half of them are taken, and the client has
    /// [`MOST_OF_ONE_CLIENT`], its fair share, and at most half of them, then only in the place
    /// of its oldest one, if that is old. The fair share counts: in the first requests of an
    /// API server after a restart of belay there may be hundreds at once, and one other client
    /// may hold most places.
    pub fn make_room(&self, client: Option<IpAddr>) -> bool {
        let mut taken = self.taken.lock();
        if taken.by_number.len() < self.most / 2 {
            return true;
        }
        let Some(numbers) = taken.by_client.get(&client) else { return true };
        let (all, clients) = (taken.by_number.len(), taken.by_client.len());
        let many = MOST_OF_ONE_CLIENT.max(all / clients);
        if numbers.len() < many || 2 * numbers.len() > all {
            return true;
        }
        let Some(oldest) = numbers.first().copied() else { return true };
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
        self.run_for(None, future)
    }

    /// The same for a client.
    pub fn run_for<F: Future>(
        &self,
        client: Option<IpAddr>,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (place, ended) = self.occupy_for(client, future);
        async move {
            let _place = place;
            ended.await
        }
    }
}

/// The limits of each thread, and of the listener of the probes.
#[derive(Clone, Copy)]
pub struct Bounds {
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
    pub asking: usize,
    /// Connections to the probes.
    pub probes: usize,
}

impl Bounds {
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
            connections: each(CONNECTIONS, 2),
            handshakes: each(HANDSHAKES, 10),
            known_handshakes: each(KNOWN_HANDSHAKES, 20),
            new: each(NEW, 10),
            known: each(KNOWN, 20),
            sending: each(SENDING, 10),
            idle: each(IDLE, 10),
            asking: each(ASKING, 10),
            probes: PROBES.min(descriptors / 16).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_oldest_future_makes_room_for_the_newest() {
        let places = ConnectionSlots::new(2);
        let first = places.run(pending::<()>());
        let second = places.run(pending::<()>());
        assert_eq!(places.run(ready(3)).await, Some(3));
        assert_eq!(first.await, None);
        assert_eq!(places.taken.lock().by_number.len(), 1);
        // One that has ended takes no place.
        assert_eq!(places.run(ready(4)).await, Some(4));
        drop(second);
        assert!(places.taken.lock().by_number.is_empty());
    }

    #[tokio::test]
    async fn h91_a_client_with_many_places_takes_none_of_another() {
        let places = ConnectionSlots::new(3);
        let [pod, server] = [9, 1].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        let mut old = Box::pin(places.run_for(server, pending::<()>()));
        let mut flood: Vec<_> =
            (0..5).map(|_| Box::pin(places.run_for(pod, pending::<()>()))).collect();
        assert!(futures_util::poll!(&mut old).is_pending());
        for (number, one) in flood.iter_mut().enumerate() {
            assert_eq!(futures_util::poll!(one).is_ready(), number < 3, "{number}");
        }
        drop((old, flood));
        assert!(places.taken.lock().by_client.is_empty());
    }

    #[tokio::test]
    async fn h100_many_clients_with_few_places_each_take_none_of_one_with_more() {
        let places = ConnectionSlots::new(256);
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let pod = |n: u8| Box::pin(places.run_for(address(n % 63), pending::<()>()));
        let mut flood: Vec<_> = (0..252).map(pod).collect();
        let server: Vec<_> =
            (0..23).map(|_| Box::pin(places.run_for(address(99), pending::<()>()))).collect();
        flood.extend((0..100).map(pod));
        for mut handshake in server {
            assert!(futures_util::poll!(&mut handshake).is_pending());
        }
    }

    #[tokio::test]
    async fn h100_a_few_clients_with_many_places_each_take_none_of_another() {
        let places = ConnectionSlots::new(256);
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let server = Box::pin(places.run_for(address(99), pending::<()>()));
        let pod = |n: u16| {
            let last = u8::try_from(n % 7).unwrap();
            Box::pin(places.run_for(address(last), pending::<()>()))
        };
        let flood: Vec<_> = (0..1000).map(pod).collect();
        assert!(futures_util::poll!(server).is_pending());
        drop(flood);
    }

    #[tokio::test(start_paused = true)]
    async fn h109_clients_with_many_places_each_get_no_further_ones() {
        let places = ConnectionSlots::new(2048);
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let begin = |last| {
            let client = address(last);
            places.make_room(client).then(|| Box::pin(places.run_for(client, pending::<()>())))
        };
        let mut flood: Vec<_> =
            (0..10_000).filter_map(|n| begin(u8::try_from(n % 63).unwrap())).collect();
        assert_eq!(flood.len(), 63 * MOST_OF_ONE_CLIENT);
        assert!(futures_util::poll!(&mut flood[0]).is_pending());
        assert!((0..MOST_OF_ONE_CLIENT).all(|_| begin(99).is_some()));
        // A client that others share gets a place again for one that is old.
        tokio::time::advance(MIN_AGE).await;
        let new = begin(0).unwrap();
        assert!(futures_util::poll!(&mut flood[0]).is_ready());
        assert!(begin(0).is_some());
        drop(new);
        // While half of the places are free, two API servers get all that they ask for.
        let few = ConnectionSlots::new(2048);
        let two: Vec<_> = (0..1000)
            .map(|n: u16| address(u8::try_from(n % 2).unwrap()))
            .filter(|client| few.make_room(*client))
            .map(|client| Box::pin(few.run_for(client, pending::<()>())))
            .collect();
        assert_eq!(two.len(), 1000);
        drop(two);
        // One that has more than all others together is most likely all that there are.
        let alone = ConnectionSlots::new(2048);
        let all: Vec<_> =
            (0..99).map(|_| Box::pin(alone.run_for(address(1), pending::<()>()))).collect();
        assert!(alone.make_room(address(1)));
        drop(all);
    }

    #[tokio::test]
    async fn h120_a_client_with_most_places_limits_no_other_client() {
        let places = ConnectionSlots::new(2048);
        let begin = |last| {
            let client = Some(IpAddr::from([10, 0, 0, last]));
            places.make_room(client).then(|| Box::pin(places.run_for(client, pending::<()>())))
        };
        let mut flood: Vec<_> = (0..1_500).filter_map(|_| begin(2)).collect();
        let mut server: Vec<_> = (0..400).filter_map(|_| begin(1)).collect();
        flood.extend((0..1_500).filter_map(|_| begin(2)));
        assert_eq!(server.len(), 400);
        for handshake in &mut server {
            assert!(futures_util::poll!(handshake).is_pending());
        }
        drop(flood);
    }

    #[tokio::test]
    async fn h52_a_place_that_is_taken_anew_is_the_newest() {
        let (new, known) = (ConnectionSlots::new(1), ConnectionSlots::new(2));
        let (mut one, first) = new.occupy(ready(1));
        one.enter(&known);
        let (mut two, second) = new.occupy(ready(2));
        two.enter(&known);
        one.enter(&known);
        let (mut three, third) = new.occupy(ready(3));
        three.enter(&known);
        assert_eq!((first.await, second.await, third.await), (Some(1), None, Some(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_that_are_old_enough_end() {
        let places = ConnectionSlots::new(9);
        let age = Duration::from_millis(200);
        let (_one, first) = places.occupy(ready(1));
        tokio::time::advance(age).await;
        let (_two, second) = places.occupy(ready(2));
        places.end_older_than(age);
        assert_eq!((first.await, second.await), (None, Some(2)));
    }
}
