//! A leader that dies during a release, and two replicas that both believe they are the
//! leader: no object that is in use loses its hold, and unused objects are deleted.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{ControlPlane, Install, Options, eventually};
use crate::program;
use crate::rounds::Rounds;
use crate::team::SOON;

/// In a round, half of the objects lose their user and half keep it: deleting the users one
/// by one takes longer than the release of the first object.
const EACH: usize = 24;

#[test]
fn s34_no_hold_is_removed_while_a_user_exists_under_any_leader() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    let mut belay = Install::of_everything(2).on(&plane, program()).unwrap();
    let mut rounds = Rounds::new(&plane, "s34", EACH);

    // Killed at different moments of the passes: after the writes of some tokens, the reads
    // of some lists, the removal of some holds.
    for (round, moment) in [("a", 0), ("b", 25), ("c", 120)] {
        rounds.wait(round);
        let leader = belay.leader().unwrap();
        std::thread::scope(|scope| {
            let going = scope.spawn(|| rounds.delete_users(round));
            rounds.begins(round);
            // This exact delay is under test.
            crate::harness::pause(Duration::from_millis(moment));
            belay.replicas[leader].process.kill();
            going.join().unwrap();
        });
        rounds.ends(round);
        belay.replicas[leader].process.restart().unwrap();
        belay.replicas[leader].wait_until_ready().unwrap();
    }

    // The leader is stopped during a release, and resumed when there is another leader.
    // Meanwhile its graph has become outdated: every object has a user again.
    rounds.wait("d");
    let first = belay.leader().unwrap();
    let before = rounds.replicas_that_checked("d");
    std::thread::scope(|scope| {
        let going = scope.spawn(|| rounds.delete_some_users("d", 0..EACH / 2));
        rounds.begins("d");
        belay.replicas[first].process.signal(Signal::STOP).unwrap();
        going.join().unwrap();
    });
    // However quick the leader was, it can't release these.
    rounds.delete_some_users("d", EACH / 2..EACH);
    rounds.use_again("d");
    // There is no leader now, so the remaining objects stay for every later leader.
    assert!(rounds.keep("d") >= EACH / 2, "released by a stopped leader");
    let leads = || {
        let text = belay.replicas[1 - first].metrics()?;
        let leads = text.lines().any(|line| line == "belay_leader 1");
        if leads { Ok(()) } else { Err("it does not lead".into()) }
    };
    eventually("another leader", SOON, leads).unwrap();
    eventually("looks of the new leader", SOON, || {
        let looked = rounds.replicas_that_checked("d");
        if looked.is_disjoint(&before) { Ok(()) } else { Err(format!("{looked:?}").into()) }
    })
    .unwrap();
    rounds.none_is_lost();
    belay.replicas[first].process.signal(Signal::CONT).unwrap();
    rounds.wait("e");
    rounds.delete_users("e");
    rounds.ends("e");
    rounds.end_all();
}
