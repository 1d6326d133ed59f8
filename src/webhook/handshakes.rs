//! TLS handshakes that have not ended.
//!
//! Any Pod can connect and send nothing. A real client ends its handshake within
//! milliseconds, so where too many are under way belay drops the oldest one. No
//! new connection waits, and the API server gets in during any flood that belay
//! can accept at all. Addresses are not looked at: a proxy or a node may stand
//! before the API server and before Pods.
//!
//! With all file descriptors in use, belay could not accept the API server's
//! connections, nor read from it. So connections are bounded as well.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::{AbortHandle, Abortable};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// So many may be under way, in all threads together.
const MOST: usize = 2048;

/// So many connections each thread has at the most.
const CONNECTIONS: usize = 25_600;

/// The handshakes of one thread.
#[derive(Clone)]
pub struct Handshakes {
    open: Rc<RefCell<Open>>,
    most: usize,
}

#[derive(Default)]
struct Open {
    /// The number of the next one.
    next: u64,
    by_number: BTreeMap<u64, AbortHandle>,
}

/// A handshake under way; it ends when this is dropped.
struct Place(Rc<RefCell<Open>>, u64);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.borrow_mut().by_number.remove(&self.1);
    }
}

impl Handshakes {
    /// For one thread, of which so many may be under way.
    pub fn new(most: usize) -> Self {
        Self { open: Rc::default(), most }
    }

    /// Begins one, and drops the oldest one if there are too many. `None`: this
    /// one was dropped before its end.
    pub fn run<F: Future>(&self, handshake: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (handle, registration) = AbortHandle::new_pair();
        let mut open = self.open.borrow_mut();
        if open.by_number.len() >= self.most
            && let Some((_, oldest)) = open.by_number.pop_first()
        {
            oldest.abort();
        }
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, handle);
        let place = Place(self.open.clone(), number);
        async move {
            let _place = place;
            Abortable::new(handshake, registration).await.ok()
        }
    }
}

/// What each thread takes at the most.
pub struct ThreadBounds {
    /// Connections. When there are more, the kernel lets new ones wait until one
    /// ends.
    pub connections: usize,
    /// Handshakes under way.
    pub handshakes: usize,
}

impl ThreadBounds {
    /// For so many threads. Half of the file descriptors are left for files and
    /// for connections to the API server. The soft limit of a container is often
    /// 1,024, so belay raises it as far as it may.
    pub fn of(threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let limit = setrlimit(Resource::Nofile, raised).map_or(limit, |()| raised);
        let descriptors = limit.current.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let each = |most: usize| (most / threads.max(1)).max(1);
        Self {
            connections: each(descriptors / 2).min(CONNECTIONS),
            handshakes: each(MOST.min(descriptors / 4)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_oldest_handshake_makes_room_for_the_newest() {
        let handshakes = Handshakes::new(2);
        let first = handshakes.run(pending::<()>());
        let second = handshakes.run(pending::<()>());
        assert_eq!(handshakes.run(ready(3)).await, Some(3));
        assert_eq!(first.await, None);
        assert_eq!(handshakes.open.borrow().by_number.len(), 1);
        // One that has ended takes no room.
        assert_eq!(handshakes.run(ready(4)).await, Some(4));
        drop(second);
        assert!(handshakes.open.borrow().by_number.is_empty());
    }
}
