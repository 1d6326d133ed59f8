//! Handshakes that have not ended, and connections of callers that belay does
//! not know yet.
//!
//! Any Pod can connect and send nothing. A real client ends its handshake and
//! sends its request within milliseconds, so where too many are under way belay
//! drops the oldest one. No new connection waits, and the API server gets in
//! during any flood that belay can accept at all. Addresses are not looked at: a
//! proxy or a node may stand before the API server and before Pods.
//!
//! With all file descriptors in use, belay could not accept the API server's
//! connections, nor read from it. So connections are bounded as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{AbortHandle, Abortable};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// So many handshakes may be under way, in all threads together.
const HANDSHAKES: usize = 2048;

/// So many connections may send their first request, in all threads together.
const NEW: usize = 1024;

/// So many connections there are at the most, in all threads together.
const CONNECTIONS: usize = 6144;

/// So many connections may ask the probes.
const PROBES: usize = 64;

/// A number of places, of which the newest future takes the oldest one's.
#[derive(Clone)]
pub struct Places {
    taken: Arc<Mutex<Taken>>,
    most: usize,
}

#[derive(Default)]
struct Taken {
    /// The number of the next one.
    next: u64,
    by_number: BTreeMap<u64, AbortHandle>,
}

/// The place of a future. When this is dropped, the future goes on without one,
/// and no newer one ends it.
pub struct Place(Arc<Mutex<Taken>>, u64);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.lock().by_number.remove(&self.1);
    }
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// Gives a future a place, and drops the oldest one if there are too many.
    /// `None`: it was dropped before its end.
    pub fn take<F: Future>(
        &self,
        future: F,
    ) -> (Place, impl Future<Output = Option<F::Output>> + use<F>) {
        let (handle, registration) = AbortHandle::new_pair();
        let mut taken = self.taken.lock();
        if taken.by_number.len() >= self.most
            && let Some((_, oldest)) = taken.by_number.pop_first()
        {
            oldest.abort();
        }
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, handle);
        let place = Place(self.taken.clone(), number);
        let abortable = Abortable::new(future, registration);
        (place, async move { abortable.await.ok() })
    }

    /// Ends the oldest one.
    pub fn end_oldest(&self) {
        if let Some((_, oldest)) = self.taken.lock().by_number.pop_first() {
            oldest.abort();
        }
    }

    /// The same as `take`, with the place until the future's end.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (place, ended) = self.take(future);
        async move {
            let _place = place;
            ended.await
        }
    }
}

/// What each thread takes at the most, and the listener of the probes.
pub struct Bounds {
    /// Connections. When there are more, the kernel lets new ones wait until one
    /// ends.
    pub connections: usize,
    /// Handshakes under way.
    pub handshakes: usize,
    /// Connections of callers that have not shown that they know the path.
    pub new: usize,
    /// Connections to the probes.
    pub probes: usize,
}

impl Bounds {
    /// For so many threads. More than a third of the file descriptors are left
    /// for files and for connections to the API server. The soft limit of a
    /// container is often 1,024, so belay raises it as far as it may.
    pub fn of(threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let limit = setrlimit(Resource::Nofile, raised).map_or(limit, |()| raised);
        let descriptors = limit.current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let threads = threads.max(1);
        let each = |most: usize, share: usize| (most.min(descriptors / share) / threads).max(1);
        Self {
            connections: each(CONNECTIONS, 2),
            handshakes: each(HANDSHAKES, 8),
            new: each(NEW, 8),
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
        let places = Places::new(2);
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
    async fn a_future_that_gave_up_its_place_goes_on() {
        let places = Places::new(1);
        let (place, known) = places.take(ready(1));
        drop(place);
        let newer = places.run(ready(2));
        assert_eq!((known.await, newer.await), (Some(1), Some(2)));
    }
}
