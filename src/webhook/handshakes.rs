//! Schedules the TLS handshakes of a thread.
//!
//! Any client can start a handshake, and each ClientHello costs a signature. So a thread
//! makes one step of one handshake at a time, and the addresses of clients take turns. Each
//! known address (one that has sent a request with the secret path) gets as many turns as all
//! unknown addresses together. Between steps the thread answers reviews. Handshakes take at most
//! about half of its time. If a proxy gives all clients one address, handshakes continue in the
//! order in which they started.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::task::{spawn_local, yield_now};

use super::callers::Client;
use super::fair::{FairPermit, FairSemaphore, GroupLimits};

/// Allows one step of one handshake at a time.
const ONE_STEP: GroupLimits = GroupLimits { total: 1, per_group: 1 };

/// The turn of an unknown client among the unknown ones, and the turn among all clients.
type Turns = (Option<FairPermit<Option<IpAddr>>>, Option<FairPermit<Option<IpAddr>>>);

/// The handshakes of one thread.
#[derive(Clone)]
pub struct Handshakes {
    /// The turns of each known address, and of all unknown ones together.
    turns: FairSemaphore<Option<IpAddr>>,
    /// The turns of the unknown addresses.
    unknown: FairSemaphore<Option<IpAddr>>,
    limit: Duration,
    /// The remaining time for steps before the thread runs its other tasks.
    time_left: Rc<Cell<Duration>>,
}

impl Handshakes {
    /// Limits each handshake to this time.
    pub fn new(limit: Duration) -> Self {
        let turns = || FairSemaphore::new(ONE_STEP);
        Self { turns: turns(), unknown: turns(), limit, time_left: Rc::default() }
    }

    /// Runs a handshake with a client when it has a turn. Returns `None` if the turn came too
    /// late.
    pub fn run<F: Future + Unpin>(
        &self,
        client: Client,
        mut handshake: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let (handshakes, started) = (self.clone(), Instant::now());
        let mut turn: Option<LocalBoxFuture<'static, Turns>> = None;
        poll_fn(move |cx| {
            let waiting = turn.get_or_insert_with(|| {
                let Self { turns, unknown, .. } = handshakes.clone();
                async move {
                    match client {
                        Client::Known(address) => (None, turns.acquire(Some(address)).await),
                        Client::Unknown(address) => {
                            (unknown.acquire(address).await, turns.acquire(None).await)
                        }
                    }
                }
                .boxed_local()
            });
            let Poll::Ready(turns) = waiting.as_mut().poll(cx) else { return Poll::Pending };
            turn = None;
            // The client has probably disconnected, and a step would take time from others.
            if started.elapsed() >= handshakes.limit {
                return Poll::Ready(None);
            }
            let step_started = Instant::now();
            let polled = handshake.poll_unpin(cx);
            handshakes.release_turn(turns, step_started.elapsed());
            polled.map(Some)
        })
    }

    /// Releases the turn after a step of this duration. If no time is left for steps, first lets
    /// the thread run its other tasks.
    fn release_turn(&self, turns: Turns, step: Duration) {
        let left = self.time_left.clone();
        left.set(left.get().saturating_sub(step));
        if !left.get().is_zero() {
            return;
        }
        spawn_local(async move {
            let yielded = Instant::now();
            yield_now().await;
            // The next steps may take as long as the other tasks took.
            left.set(yielded.elapsed());
            drop(turns);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::future::join_all;
    use tokio::task::LocalSet;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A handshake of two steps. Each step calls `on_step`.
    fn two_steps(on_step: impl FnMut() + 'static) -> impl Future<Output = ()> + Unpin {
        let (mut on_step, mut left) = (on_step, 2);
        Box::pin(poll_fn(move |cx| {
            on_step();
            left -= 1;
            cx.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }))
    }

    /// The client of each step, in the order of the steps.
    async fn order(clients: &[Client]) -> Vec<Client> {
        let (handshakes, order) = (Handshakes::new(LIMIT), Rc::new(RefCell::new(Vec::new())));
        let made = clients.iter().copied().map(|client| {
            let order = order.clone();
            handshakes.run(client, two_steps(move || order.borrow_mut().push(client)))
        });
        let made: Vec<_> = made.collect();
        LocalSet::new()
            .run_until(async { join_all(made.into_iter().map(spawn_local)).await })
            .await;
        let order = order.take();
        assert_eq!(order.len(), 2 * clients.len());
        order
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[tokio::test]
    async fn h91_handshakes_of_one_address_delay_none_of_another() {
        let (pod, server) = (Client::Unknown(address(9)), Client::Unknown(address(1)));
        let order = order(&[&[pod; 100][..], &[server]].concat()).await;
        let last = order.iter().rposition(|client| *client == server).unwrap();
        assert!(last < 8, "{last}: {:?}", &order[..20]);
    }

    #[tokio::test]
    async fn h93_handshakes_of_many_addresses_delay_none_of_a_known_one() {
        let server = Client::Known(IpAddr::from([10, 0, 0, 0]));
        let mut clients: Vec<_> = (1..=200).map(|n| Client::Unknown(address(n))).collect();
        clients.push(server);
        let order = order(&clients).await;
        let last = order.iter().rposition(|client| *client == server).unwrap();
        assert!(last < 8, "{last}: {:?}", &order[..20]);
    }

    #[tokio::test]
    async fn h40_a_thread_with_much_to_do_makes_more_than_one_step_in_a_round() {
        let (handshakes, rounds) = (Handshakes::new(LIMIT), Rc::new(Cell::new(0)));
        let made: Vec<_> =
            (0..100).map(|_| handshakes.run(Client::Unknown(None), two_steps(|| ()))).collect();
        let seen = rounds.clone();
        LocalSet::new()
            .run_until(async {
                spawn_local(async move {
                    loop {
                        seen.set(seen.get() + 1);
                        std::thread::sleep(Duration::from_millis(10));
                        yield_now().await;
                    }
                });
                join_all(made.into_iter().map(spawn_local)).await
            })
            .await;
        assert!(rounds.get() < 100, "{} rounds for 200 steps", rounds.get());
    }

    #[tokio::test]
    async fn h91_a_handshake_whose_turn_comes_late_takes_no_step() {
        let handshakes = Handshakes::new(Duration::ZERO);
        let ended = handshakes.run(Client::Unknown(None), two_steps(|| panic!("a step")));
        assert_eq!(LocalSet::new().run_until(ended).await, None);
    }
}
