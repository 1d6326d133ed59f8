use std::future::{pending, ready};
use std::pin::Pin;

use futures_util::FutureExt as _;

use super::*;

fn address(last: usize) -> Option<IpAddr> {
    Some(IpAddr::from([10, 0, 0, u8::try_from(last).unwrap()]))
}

/// A connection that stays open, and returns `None` when it was ended for a newer one.
type Open = Pin<Box<dyn Future<Output = Option<()>>>>;

fn open(slots: &ConnectionSlots, last: usize) -> Open {
    Box::pin(slots.run(address(last), pending::<()>()))
}

fn are_open<'a>(connections: impl IntoIterator<Item = &'a mut Open>) -> bool {
    connections.into_iter().all(|connection| connection.now_or_never().is_none())
}

#[tokio::test]
async fn the_oldest_future_makes_room_for_the_newest() {
    let slots = ConnectionSlots::new(2);
    let first = slots.run(None, pending::<()>());
    let second = slots.run(None, pending::<()>());
    assert_eq!(slots.run(None, ready(3)).await, Some(3));
    assert_eq!(first.await, None);
    assert_eq!(slots.occupancy.lock().by_number.len(), 1);
    // A future that has ended has no slot.
    assert_eq!(slots.run(None, ready(4)).await, Some(4));
    drop(second);
    assert!(slots.occupancy.lock().by_number.is_empty());
}

#[tokio::test]
async fn h91_a_client_with_many_slots_takes_none_of_another() {
    let slots = ConnectionSlots::new(3);
    let mut old = open(&slots, 1);
    let mut flood: Vec<_> = (0..5).map(|_| open(&slots, 9)).collect();
    assert!(are_open([&mut old]));
    for (number, connection) in flood.iter_mut().enumerate() {
        assert_eq!(are_open([connection]), number >= 3, "{number}");
    }
    drop((old, flood));
    assert!(slots.occupancy.lock().by_client.is_empty());
}

#[tokio::test]
async fn h100_many_clients_with_few_slots_each_take_none_of_one_with_more() {
    let slots = ConnectionSlots::new(256);
    let mut flood: Vec<_> = (0..252).map(|n| open(&slots, n % 63)).collect();
    let mut server: Vec<_> = (0..23).map(|_| open(&slots, 99)).collect();
    flood.extend((0..100).map(|n| open(&slots, n % 63)));
    assert!(are_open(&mut server));
}

#[tokio::test]
async fn h120_a_client_with_most_slots_limits_no_other_client() {
    let slots = ConnectionSlots::new(2_048);
    let mut flood: Vec<_> = (0..1_500).map(|_| open(&slots, 2)).collect();
    let mut server: Vec<_> = (0..400).map(|_| open(&slots, 1)).collect();
    flood.extend((0..4_000).map(|_| open(&slots, 2)));
    assert!(are_open(&mut server));
}

#[tokio::test]
async fn h126_old_connections_of_many_clients_end_for_many_of_another() {
    for limit in [256, 1_000, 2_048] {
        let slots = ConnectionSlots::new(limit);
        let flood: Vec<_> = (0..2 * limit).map(|n| open(&slots, n % 63)).collect();
        let mut server: Vec<_> = (0..limit / 2).map(|_| open(&slots, 99)).collect();
        assert!(are_open(&mut server), "of {limit}");
        drop(flood);
    }
}

#[tokio::test]
async fn h126_clients_with_few_slots_leave_theirs_to_others() {
    let slots = ConnectionSlots::new(1_000);
    let mut few: Vec<_> = (1..=15).map(|last| open(&slots, last)).collect();
    let mut server: Vec<_> = (0..(500 - 15) / 2).map(|_| open(&slots, 99)).collect();
    let flood: Vec<_> = (0..2_000).map(|_| open(&slots, 0)).collect();
    assert!(are_open(&mut few) && are_open(&mut server));
    drop(flood);
}

#[tokio::test]
async fn h134_a_flood_ends_no_connection_of_a_client_within_its_fair_share() {
    for (limit, flooders) in [(256, 1), (256, 7), (256, 63), (2_048, 1), (2_048, 7), (2_048, 63)] {
        let slots = ConnectionSlots::new(limit);
        let share = limit / 2 / (flooders + 1);
        let mut server: Vec<_> = (0..share).map(|_| open(&slots, 99)).collect();
        let flood: Vec<_> = (0..4 * limit).map(|n| open(&slots, n % flooders)).collect();
        assert!(are_open(&mut server), "{share} of {limit} slots with {flooders} others");
        drop(flood);
    }
}

/// The slot of a connection moves with its client through the states of the connection.
#[tokio::test]
async fn h135_answered_connections_of_a_flood_end_none_of_another_client() {
    let slots = StateSlots::for_probes(8);
    let answered = |last| {
        let (mut slot, output) = slots.unknown_first_request.occupy(address(last), pending::<()>());
        slot.enter(&slots.idle);
        (slot, Box::pin(output))
    };
    let (_slot, mut kubelet) = answered(1);
    let mut flood: Vec<_> = (0..20).map(|_| answered(2)).collect();
    assert!(futures_util::poll!(&mut kubelet).is_pending());
    assert!(futures_util::poll!(&mut flood[0].1).is_ready());
}

#[tokio::test]
async fn h52_a_slot_that_is_taken_anew_is_the_newest() {
    let (new, known) = (ConnectionSlots::new(1), ConnectionSlots::new(2));
    let (mut one, first) = new.occupy(None, ready(1));
    one.enter(&known);
    let (mut two, second) = new.occupy(None, ready(2));
    two.enter(&known);
    one.enter(&known);
    let (mut three, third) = new.occupy(None, ready(3));
    three.enter(&known);
    assert_eq!((first.await, second.await, third.await), (Some(1), None, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn only_futures_that_are_old_enough_end() {
    let slots = ConnectionSlots::new(9);
    let age = Duration::from_millis(200);
    let (_one, first) = slots.occupy(None, ready(1));
    tokio::time::advance(age).await;
    let (_two, second) = slots.occupy(None, ready(2));
    slots.end_older_than(age);
    assert_eq!((first.await, second.await), (None, Some(2)));
}

#[test]
fn h139_many_cores_do_not_leave_a_thread_few_slots() {
    assert_eq!(default_threads(2), 2);
    assert!(MAX_KNOWN_HANDSHAKES / default_threads(128) >= 64);
}
