//! Bodies that are sent in part, and large ones: they take little memory, and others don't wait for
//! them.

use std::io::Write as _;

use crate::harness::client::{Client, Connection};
use crate::load::{LIMIT, answered, is_silent};
use crate::{belay, sample};

/// A head of a POST with so many bytes behind it.
fn head(length: usize) -> String {
    format!(
        "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Opens connections that announce this length, send a part, and stall.
fn stall(client: &Client, count: usize, announced: usize, sent: usize) -> Vec<Connection> {
    let part = vec![b' '; sent];
    (0..count)
        .map(|_| {
            let mut connection = client.connect().unwrap();
            connection.sock.set_write_timeout(Some(LIMIT)).unwrap();
            // Some may be refused meanwhile.
            let _ = connection
                .write_all(head(announced).as_bytes())
                .and_then(|()| connection.write_all(&part))
                .and_then(|()| connection.flush());
            connection
        })
        .collect()
}

#[test]
fn h33_small_bodies_that_stall_leave_memory_for_reviews() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let before = belay.process.resident().unwrap();
    let stalled = stall(&client, 1_000, 261_120, 261_119);
    answered(&client).unwrap();
    let mut review = sample("delete-denied.json").into_bytes();
    review.resize(100 << 10, b' ');
    let answer = client.try_post("/validate?timeout=5s", &review).unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    let grown = belay.process.resident().unwrap().saturating_sub(before);
    eprintln!("h33: {grown} KiB");
    // Without a limit they keep 400 MB.
    assert!(grown < 280_000, "{grown} KiB with {} stalled senders", stalled.len());
}

#[test]
fn h77_an_ordinary_review_does_not_wait_for_the_bodies_of_others() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let client = crate::client(&belay);
    // They use the whole budget for bodies, and the only slot for large ones. No request
    // waits for it.
    let mut stalled = stall(&client, 127, 255 << 10, (255 << 10) - 1);
    stalled.extend(stall(&client, 1, 127 << 10, (127 << 10) - 1));
    stalled.extend(stall(&client, 1, 255 << 10, (255 << 10) - 1));
    answered(&client).unwrap();
    assert!(stalled.iter_mut().all(is_silent), "some had to end for it");
}

#[test]
fn h53_a_review_that_waits_for_room_gets_an_answer() {
    let (belay, _folder) = belay(&["--deadline=30", "--workers=2"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    // They use the whole budget for small bodies.
    let stalled = stall(&client, 300, 261_120, 261_119);
    for size in [20 << 10, 200 << 10] {
        let mut review = sample("delete-denied.json").into_bytes();
        review.resize(size, b' ');
        let answer = client.try_post("/validate", &review).unwrap();
        assert_eq!(answer.code, 200, "{size} {answer:?}");
    }
    drop(stalled);
}

#[test]
fn h55_a_large_body_takes_only_the_memory_of_its_received_bytes() {
    let (belay, _folder) = belay(&["--deadline=30"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let mut stalled = stall(&client, 20, 40 << 20, (256 << 10) + 10);
    let mut review = sample("delete-denied.json").into_bytes();
    review.resize(300 << 10, b' ');
    let answer = client.try_post("/validate", &review).unwrap();
    assert_eq!(answer.code, 200, "{answer:?}");
    // None of them was closed for it.
    assert!(stalled.iter_mut().all(is_silent));
}

#[test]
fn h56_a_large_review_does_not_keep_a_small_one_waiting() {
    let (belay, _folder) = belay(&["--deadline=30", "--workers=1"]);
    let client = crate::client(&belay);
    answered(&client).unwrap();
    let numbers = vec!["0"; 15_000_000].join(",");
    let large = sample("delete-denied.json").replace("\"EUR\"", &format!("[{numbers}]"));
    let mut busy = client.connect().unwrap();
    crate::client::send(&mut busy, "/validate", "application/json", large.as_bytes()).unwrap();
    answered(&client).unwrap();
    assert!(is_silent(&mut busy), "the small one was answered after the large one");
    busy.sock.set_read_timeout(Some(10 * LIMIT)).unwrap();
    assert_eq!(crate::client::receive(&mut busy).unwrap().code, 200);
}
