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
    let mut old = Box::pin(places.run_for(server, |_| pending::<()>()));
    let mut flood: Vec<_> =
        (0..5).map(|_| Box::pin(places.run_for(pod, |_| pending::<()>()))).collect();
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
    let pod = |n: u8| Box::pin(places.run_for(address(n % 63), |_| pending::<()>()));
    let mut flood: Vec<_> = (0..252).map(pod).collect();
    let server: Vec<_> =
        (0..23).map(|_| Box::pin(places.run_for(address(99), |_| pending::<()>()))).collect();
    flood.extend((0..100).map(pod));
    for mut handshake in server {
        assert!(futures_util::poll!(&mut handshake).is_pending());
    }
}

#[tokio::test]
async fn h100_a_few_clients_with_many_places_each_take_none_of_another() {
    let places = ConnectionSlots::new(256);
    let address = |last| Some(IpAddr::from([10, 0, 0, last]));
    let server = Box::pin(places.run_for(address(99), |_| pending::<()>()));
    let pod = |n: u16| {
        let last = u8::try_from(n % 7).unwrap();
        Box::pin(places.run_for(address(last), |_| pending::<()>()))
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
        places
            .admit_handshake(client)
            .then(|| Box::pin(places.run_for(client, |_| pending::<()>())))
    };
    let mut flood: Vec<_> =
        (0..10_000).filter_map(|n| begin(u8::try_from(n % 63).unwrap())).collect();
    assert_eq!(flood.len(), 63 * MAX_OF_ONE_CLIENT);
    assert!(futures_util::poll!(&mut flood[0]).is_pending());
    assert!((0..MAX_OF_ONE_CLIENT).all(|_| begin(99).is_some()));
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
        .filter(|client| few.admit_handshake(*client))
        .map(|client| Box::pin(few.run_for(client, |_| pending::<()>())))
        .collect();
    assert_eq!(two.len(), 1000);
    drop(two);
    // One that has more than all others together is most likely all that there are.
    let alone = ConnectionSlots::new(48);
    let all: Vec<_> =
        (0..40).map(|_| Box::pin(alone.run_for(address(1), |_| pending::<()>()))).collect();
    assert!(alone.admit_handshake(address(1)));
    drop(all);
}

#[tokio::test]
async fn h120_a_client_with_most_places_limits_no_other_client() {
    let places = ConnectionSlots::new(2048);
    let begin = |last| {
        let client = Some(IpAddr::from([10, 0, 0, last]));
        places
            .admit_handshake(client)
            .then(|| Box::pin(places.run_for(client, |_| pending::<()>())))
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

#[tokio::test(start_paused = true)]
async fn h126_clients_that_send_nothing_take_no_place_of_one_that_does() {
    for places in [256, 1_000, 2_048] {
        let slots = ConnectionSlots::new(places);
        let begin = |last: usize| {
            let client = Some(IpAddr::from([10, 0, 0, u8::try_from(last).unwrap()]));
            let waiting = |wait: WaitTimer| {
                wait.begin();
                pending::<()>()
            };
            slots.admit_handshake(client).then(|| Box::pin(slots.run_for(client, waiting)))
        };
        let flood: Vec<_> = (0..2 * places).filter_map(|n| begin(n % 63)).collect();
        tokio::time::advance(MIN_WAIT).await;
        let mut server: Vec<_> = (0..places / 2).filter_map(|_| begin(99)).collect();
        assert_eq!(server.len(), places / 2, "of {places}");
        for handshake in &mut server {
            assert!(futures_util::poll!(handshake).is_pending());
        }
        drop(flood);
    }
}

#[tokio::test(start_paused = true)]
async fn h126_a_client_that_sends_bit_by_bit_waits_as_long_in_all() {
    let slots = ConnectionSlots::new(4);
    let waits = parking_lot::Mutex::new(Vec::new());
    let begin = || {
        Box::pin(slots.run_for(None, |wait| {
            wait.begin();
            waits.lock().push(wait);
            pending::<()>()
        }))
    };
    let mut slow = begin();
    for _ in 0..10 {
        tokio::time::advance(MIN_WAIT / 10).await;
        waits.lock()[0].end();
        waits.lock()[0].begin();
    }
    let mut quick = begin();
    assert!(slots.admit_handshake(None));
    assert!(futures_util::poll!(&mut slow).is_ready());
    assert!(futures_util::poll!(&mut quick).is_pending());
}

#[tokio::test]
async fn h126_clients_with_few_places_leave_theirs_to_others() {
    let slots = ConnectionSlots::new(1_000);
    let begin = |last: u8| {
        let client = Some(IpAddr::from([10, 0, 0, last]));
        slots.admit_handshake(client).then(|| Box::pin(slots.run_for(client, |_| pending::<()>())))
    };
    let mut held: Vec<_> = (0..470).filter_map(|_| begin(0)).collect();
    held.extend((1..=15).filter_map(begin));
    let server: Vec<_> = (0..500).filter_map(|_| begin(99)).collect();
    // A third of what the fifteen leave: one third is for a client that is not there yet.
    assert_eq!(server.len(), (1_000 - 15) / 3);
    drop(held);
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
