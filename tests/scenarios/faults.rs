//! Faults during a release: no object that is in use loses its hold, and unused objects are
//! deleted at the latest after the fault.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::Signal;

use crate::harness::{ControlPlane, Install, Installed, Options, eventually, intervals};
use crate::program;
use crate::rounds::Rounds;
use crate::team::SOON;

const EACH: usize = 12;

fn installed(plane: &ControlPlane, ahead: Vec<u32>) -> Installed {
    // An API server that has just started does not know RBAC yet. Its watches are silent
    // for long only where they are frozen.
    let serve = vec![format!("--timing={},feed.silence=30", intervals())];
    let install =
        Install { linked: true, may_be_forbidden: true, ahead, serve, ..Install::of_everything(2) };
    install.on(plane, program()).unwrap()
}

/// Causes a fault while users are deleted and their objects are released, and then has the
/// remaining users deleted.
fn in_the_middle(rounds: &mut Rounds<'_>, round: &str, fault: impl FnOnce()) {
    rounds.wait(round);
    std::thread::scope(|scope| {
        let going = scope.spawn(|| rounds.try_to_delete_users(round));
        rounds.begins(round);
        fault();
        drop(going.join().unwrap());
    });
    // The command did not reach all users; an API server that has just started may refuse a
    // request or two.
    eventually("the rest of the users to go", SOON, || {
        rounds.try_to_delete_users(round).success().map(drop)
    })
    .unwrap();
    rounds.ends(round);
}

#[test]
fn releases_outlive_the_api_server_etcd_and_the_network() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    let mut belay = installed(&plane, Vec::new());
    let mut rounds = Rounds::new(&plane, "faults", EACH);

    // The API server is killed with releases under way.
    in_the_middle(&mut rounds, "server", || {
        plane.api_server().restart().unwrap();
        plane.wait_until_serving().unwrap();
    });

    // etcd restarts, and the API server builds its cache again.
    in_the_middle(&mut rounds, "etcd", || {
        plane.etcd().restart().unwrap();
        plane.wait_until_serving().unwrap();
    });

    // Every connection breaks off, again and again.
    rounds.wait("cut");
    std::thread::scope(|scope| {
        let going = scope.spawn(|| rounds.delete_users("cut"));
        while !going.is_finished() {
            belay.links.iter().for_each(|link| link.cut());
            crate::harness::pause(Duration::from_millis(150));
        }
    });
    rounds.ends("cut");

    // The watches deliver nothing and stay open. The leader's graph becomes outdated: it
    // contains the deletion of some users, and not that every object is used again.
    rounds.wait("frozen");
    let leader = belay.leader().unwrap();
    rounds.delete_some_users("frozen", 0..EACH / 2);
    belay.links[leader].freeze();
    rounds.use_again("frozen");
    rounds.delete_some_users("frozen", EACH / 2..EACH);
    // A pass that began before the object was used again may still end. A pass is valid for
    // at most two seconds.
    crate::harness::pause(Duration::from_secs(3));
    assert!(rounds.keep("frozen") >= EACH / 2, "what was used again all the time is gone");
    // It detects automatically that a watch is silent for too long.
    rounds.wait("deaf");
    rounds.delete_users("deaf");
    rounds.ends("deaf");
    belay.links[leader].cut();
    belay.links[leader].thaw();

    // One replica is dead, and the connection of the other is slow.
    let leader = belay.leader().unwrap();
    rounds.wait("slow");
    belay.replicas[1 - leader].process.kill();
    plane.service("belay", "belay", &[belay.replicas[leader].listen]).unwrap();
    plane.proxy.cut_open();
    belay.links[leader].slow(Duration::from_millis(400));
    rounds.delete_users("slow");
    rounds.ends("slow");
    belay.links[leader].slow(Duration::ZERO);
    belay.replicas[1 - leader].process.restart().unwrap();
    belay.replicas[1 - leader].wait_until_ready().unwrap();
    rounds.end_all();
}

#[test]
fn replicas_whose_clocks_are_half_a_minute_apart_protect_and_release() {
    let plane = ControlPlane::start_with(&Options::default()).unwrap();
    let mut belay = installed(&plane, vec![0, 30]);
    let mut rounds = Rounds::new(&plane, "clocks", EACH);
    // The leader writes its time: that of the second replica is another one.
    let lease =
        |path: &str| plane.api().field("lease/belay", "belay", &format!(".spec.{path}")).unwrap();
    let changes = || lease("leaseTransitions").parse::<u32>().unwrap();
    let ahead = || {
        let renewed: Timestamp = lease("renewTime").parse().unwrap();
        renewed.duration_since(Timestamp::now()).as_secs() > 10
    };

    let mut led = BTreeSet::new();
    for (round, again) in [("a", 0), ("b", 1)] {
        // By the clock of the starting replica, the other's Lease has expired or is
        // missing: it takes the Lease, and only then sees that the other runs. The other is
        // stopped for this moment, because a write at that time would count.
        belay.replicas[1 - again].process.signal(Signal::STOP).unwrap();
        belay.replicas[again].process.restart().unwrap();
        belay.replicas[again].wait_until_ready().unwrap();
        eventually("the one that starts to lead", SOON, || {
            if belay.leader()? == again { Ok(()) } else { Err("the other one".into()) }
        })
        .unwrap();
        belay.replicas[1 - again].process.signal(Signal::CONT).unwrap();
        let before = changes();
        led.insert(ahead());
        rounds.wait(round);
        rounds.delete_users(round);
        rounds.ends(round);
        assert_eq!(changes(), before, "they took it from each other in round {round}");
    }
    assert_eq!(led, BTreeSet::from([false, true]), "no clock was ahead");
    rounds.end_all();
}
