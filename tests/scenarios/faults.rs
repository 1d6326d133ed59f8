//! Faults in the middle of letting go: no hold goes while somebody needs its
//! object, and what is free goes when the fault is over, or before.

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
    // An API server that has just started knows nobody's rights.
    // Its watches are silent for long only where they are frozen.
    let serve = vec![format!("--timing={},feed.silence=30", intervals())];
    let install =
        Install { linked: true, refused: true, ahead, serve, ..Install::of_everything(2) };
    install.on(plane, program()).unwrap()
}

/// Breaks something while users go and what they used is let go of, and has
/// those go that were left.
fn in_the_middle(rounds: &mut Rounds<'_>, round: &str, fault: impl FnOnce()) {
    rounds.wait(round);
    std::thread::scope(|scope| {
        let going = scope.spawn(|| rounds.try_to_let_go(round));
        rounds.begins(round);
        fault();
        drop(going.join().unwrap());
    });
    // Those that the command did not come to; what has just started may refuse
    // a request or two.
    eventually("the rest of the users to go", SOON, || {
        rounds.try_to_let_go(round).success().map(drop)
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

    // etcd, and all that the API server has cached is made anew.
    in_the_middle(&mut rounds, "etcd", || {
        plane.etcd().restart().unwrap();
        plane.wait_until_serving().unwrap();
    });

    // Every connection breaks off, again and again.
    rounds.wait("cut");
    std::thread::scope(|scope| {
        let going = scope.spawn(|| rounds.let_go("cut"));
        while !going.is_finished() {
            belay.links.iter().for_each(|link| link.cut());
            crate::harness::pause(Duration::from_millis(150));
        }
    });
    rounds.ends("cut");

    // Watches say nothing any more, and nobody closes them. What the leader
    // knows becomes untrue: it has heard of the end of some users, and not that
    // everything is used again.
    rounds.wait("frozen");
    let leader = belay.leader().unwrap();
    rounds.let_go_of("frozen", 0..EACH / 2);
    belay.links[leader].freeze();
    rounds.use_again("frozen");
    rounds.let_go_of("frozen", EACH / 2..EACH);
    // A pass that had begun before somebody used it again may still end, and
    // none is good for more than two seconds.
    crate::harness::pause(Duration::from_secs(3));
    assert!(rounds.keep("frozen") >= EACH / 2, "what was used again all the time is gone");
    // It finds out by itself that what should speak now and then is silent.
    rounds.wait("deaf");
    rounds.let_go("deaf");
    rounds.ends("deaf");
    belay.links[leader].cut();
    belay.links[leader].thaw();

    // One replica is dead, and the other one hears and speaks slowly.
    let leader = belay.leader().unwrap();
    rounds.wait("slow");
    belay.replicas[1 - leader].process.kill();
    plane.service("belay", "belay", &[belay.replicas[leader].listen]).unwrap();
    plane.proxy.cut_open();
    belay.links[leader].slow(Duration::from_millis(400));
    rounds.let_go("slow");
    rounds.ends("slow");
    belay.links[leader].slow(Duration::ZERO);
    belay.replicas[1 - leader].process.restart().unwrap();
    belay.replicas[1 - leader].wait_until_ready().unwrap();
    rounds.end_all();
}

#[test]
fn replicas_whose_clocks_are_half_a_minute_apart_protect_and_let_go() {
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
        // By the clock of one that starts the Lease of the other one has run
        // out, or is none: it takes it, and only then sees that the other lives.
        // The other one is asleep for this moment: if it wrote just then, that would count.
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
        rounds.let_go(round);
        rounds.ends(round);
        assert_eq!(changes(), before, "they took it from each other in round {round}");
    }
    assert_eq!(led, BTreeSet::from([false, true]), "nobody's clock was ahead");
    rounds.end_all();
}
