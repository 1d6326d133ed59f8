//! The order in which handshakes go on.
//!
//! Anybody may begin handshakes, and each ClientHello takes a signature. So one handshake
//! goes on at a time, by one step, and addresses have their turns one after the other: a
//! Pod has one, and the API server has another. Between two steps the thread does all that
//! it has to do, and answers reviews.
//! Where a proxy gives all clients one address, handshakes go on in the order of their
//! beginning.

use std::future::poll_fn;
use std::net::IpAddr;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::task::{spawn_local, yield_now};
use tokio::time::Instant;

use super::fair::{FairSemaphore, Places, Turn};

/// One step of one handshake at a time.
const STEPS: Places = Places { all: 1, each: 1 };

/// The handshakes of one thread.
#[derive(Clone)]
pub struct Handshakes {
    turns: FairSemaphore<Option<IpAddr>>,
    limit: Duration,
}

impl Handshakes {
    /// Each may take so long.
    pub fn new(limit: Duration) -> Self {
        Self { turns: FairSemaphore::new(STEPS), limit }
    }

    /// Makes a handshake with a client, in turn. `None`: its turn came too late.
    pub fn run<F: Future + Unpin>(
        &self,
        client: Option<IpAddr>,
        mut handshake: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let Self { turns, limit } = self.clone();
        let begun = Instant::now();
        let mut turn: Option<LocalBoxFuture<'static, Option<Turn<_>>>> = None;
        poll_fn(move |cx| {
            let turns = turns.clone();
            let waiting = turn
                .get_or_insert_with(|| async move { turns.acquire(client).await }.boxed_local());
            let Poll::Ready(held) = waiting.as_mut().poll(cx) else { return Poll::Pending };
            turn = None;
            // The client has most likely gone, and the step would take the time of others.
            if begun.elapsed() >= limit {
                return Poll::Ready(None);
            }
            // The next step is taken after all that the thread has to do now.
            spawn_local(async move {
                yield_now().await;
                drop(held);
            });
            handshake.poll_unpin(cx).map(Some)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use futures_util::future::join_all;
    use tokio::task::LocalSet;

    use super::*;

    /// Which of these clients' handshakes go on, in their order: each takes two steps.
    async fn steps(clients: &[&'static str], limit: Duration) -> (Vec<&'static str>, usize) {
        let handshakes = Handshakes::new(limit);
        let order = Rc::new(RefCell::new(Vec::new()));
        let made = clients.iter().copied().map(|client| {
            let (order, mut left) = (order.clone(), 2);
            let handshake = poll_fn(move |cx| {
                order.borrow_mut().push(client);
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            });
            handshakes.run(Some(client.parse().unwrap()), Box::pin(handshake))
        });
        let made: Vec<_> = made.collect();
        tokio::time::advance(Duration::from_secs(1)).await;
        let made = async { join_all(made.into_iter().map(spawn_local)).await };
        let ended = LocalSet::new().run_until(made).await;
        let ended = ended.into_iter().filter_map(|one| one.unwrap()).count();
        (order.take(), ended)
    }

    #[tokio::test(start_paused = true)]
    async fn h91_handshakes_of_one_address_delay_none_of_another() {
        let (pod, server) = ("10.0.0.9", "10.0.0.1");
        let mut clients = vec![pod; 100];
        clients.push(server);
        let (order, ended) = steps(&clients, Duration::from_secs(2)).await;
        assert_eq!((order.len(), ended), (2 * clients.len(), clients.len()));
        let last = order.iter().rposition(|client| *client == server).unwrap();
        assert!(last < 8, "{last}: {:?}", &order[..20]);
    }

    #[tokio::test(start_paused = true)]
    async fn h91_a_handshake_whose_turn_comes_late_takes_no_step() {
        let late = steps(&["10.0.0.9"; 5], Duration::from_secs(1)).await;
        assert_eq!(late, (Vec::new(), 0));
    }
}
