//! Replicas whose clocks differ, that pause at any point, and whose writes are lost or succeed
//! late.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

const DURATION: Duration = Duration::from_secs(15);
const SKEW: Duration = Duration::from_secs(3);
const NAMES: [&str; 3] = ["a", "b", "c"];

fn candidate(name: &str) -> Candidate<'_> {
    Candidate { name, duration: DURATION, skew: SKEW, takes_over: false }
}

/// The stored Lease, and the version that each replica has read.
struct World {
    stored: (u32, Spec),
    /// The true time in milliseconds.
    now: i64,
    offsets: [i64; 3],
    known: [Option<(u32, Spec)>; 3],
    /// The writes in progress: the replica, the version that it read, and the new Lease.
    pending_writes: Vec<(usize, u32, Spec)>,
}

#[derive(Debug, Clone)]
enum Step {
    AdvanceTime(i64),
    Read(usize),
    Write(usize),
    /// The API server handles a write, and its answer arrives or is lost.
    Land(usize, bool),
    Drop(usize),
    Resign(usize),
}

impl World {
    fn new(offsets: [i64; 3]) -> Self {
        let stored = (0, Spec::default());
        Self { stored, now: 0, offsets, known: [None, None, None], pending_writes: Vec::new() }
    }

    fn clock(&self, i: usize) -> Timestamp {
        Timestamp::from_millisecond(1_767_268_800_000 + self.now + self.offsets[i]).unwrap()
    }

    fn decision(&self, i: usize) -> Option<LeaseDecision> {
        let (_, spec) = self.known[i].as_ref()?;
        Some(evaluate(spec, candidate(NAMES[i]), self.clock(i)))
    }

    fn leads(&self, i: usize) -> bool {
        matches!(self.decision(i), Some(LeaseDecision::Lead { .. }))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::AdvanceTime(by) => self.now += by,
            Step::Read(i) => self.known[i] = Some(self.stored.clone()),
            Step::Write(i) => {
                let (Some((version, spec)), Some(decision)) = (&self.known[i], self.decision(i))
                else {
                    return;
                };
                // The leader may renew at any time.
                if !matches!(decision, LeaseDecision::StandBy { .. }) {
                    let next = next_spec(spec, candidate(NAMES[i]), self.clock(i));
                    self.pending_writes.push((i, *version, next));
                }
            }
            Step::Land(n, answered) if n < self.pending_writes.len() => {
                let (i, version, spec) = self.pending_writes.remove(n);
                if version == self.stored.0 {
                    self.stored = (version + 1, spec);
                }
                if answered {
                    self.known[i] = Some(self.stored.clone());
                }
            }
            Step::Drop(n) if n < self.pending_writes.len() => {
                self.pending_writes.remove(n);
            }
            Step::Resign(i) if self.leads(i) => {
                let Some((version, spec)) = self.known[i].take() else { return };
                self.pending_writes.push((i, version, released_spec(&spec)));
            }
            _ => {}
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_i64..6_000).prop_map(Step::AdvanceTime),
        3 => (0_usize..3).prop_map(Step::Read),
        4 => (0_usize..3).prop_map(Step::Write),
        4 => (0_usize..3, any::<bool>()).prop_map(|(n, answered)| Step::Land(n, answered)),
        1 => (0_usize..3).prop_map(Step::Drop),
        1 => (0_usize..3).prop_map(Step::Resign),
    ]
}

fn offsets() -> impl Strategy<Value = [i64; 3]> {
    let most = i64::try_from(SKEW.as_millis()).unwrap();
    [0..=most, 0..=most, 0..=most]
}

fn two_lead(offsets: [i64; 3], steps: &[Step]) -> bool {
    let mut world = World::new(offsets);
    steps.iter().any(|step| {
        world.step(step);
        (0..3).filter(|i| world.leads(*i)).count() > 1
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn two_replicas_are_never_leaders_at_the_same_time(
        offsets in offsets(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        prop_assert!(!two_lead(offsets, &steps));
    }

    #[test]
    fn a_stopped_leader_is_replaced_within_the_lease_time_and_the_skew(
        offsets in offsets(),
        steps in prop::collection::vec(step(), 0..60),
        stopped in 0_usize..3,
    ) {
        let mut world = World::new(offsets);
        steps.iter().for_each(|step| world.step(step));
        // The stopped replica has no pending write. The others read the Lease every second.
        world.pending_writes.clear();
        world.known[stopped] = None;
        let began = world.now;
        let others = (0..3).filter(|i| *i != stopped).collect::<Vec<_>>();
        while !others.iter().any(|i| world.leads(*i)) {
            for i in &others {
                world.step(&Step::Read(*i));
                world.step(&Step::Write(*i));
                world.step(&Step::Land(0, true));
            }
            world.now += 1_000;
            let most = SignedDuration::try_from(DURATION + SKEW).unwrap().as_millis();
            prop_assert!(i128::from(world.now - began) <= most + 1_000, "no leader");
        }
    }
}

/// With clocks that differ by more than the skew, the property does not hold.
#[test]
fn clocks_that_differ_by_more_than_the_skew_allow_two_leaders() {
    // By its slow clock, the leader is the leader for another half second. By the other clock, it
    // wrote 15.5 seconds ago.
    let slow = -i64::try_from(SKEW.as_millis()).unwrap() - 1_000;
    let steps = [
        Step::Read(0),
        Step::Write(0),
        Step::Land(0, true),
        Step::AdvanceTime(11_500),
        Step::Read(1),
        Step::Write(1),
        Step::Land(0, true),
    ];
    assert!(two_lead([slow, 0, 0], &steps));
    assert!(!two_lead([-2_000, 0, 0], &steps));
}

#[test]
fn a_leader_that_stepped_down_is_replaced_at_once() {
    let mut world = World::new([0; 3]);
    for step in [Step::Read(0), Step::Write(0), Step::Land(0, true), Step::Resign(0)] {
        world.step(&step);
    }
    assert!(!world.leads(0), "the replica steps down before it releases the Lease");
    for step in [Step::Land(0, false), Step::Read(1), Step::Write(1), Step::Land(0, true)] {
        world.step(&step);
    }
    assert!(world.leads(1));
    assert_eq!(world.stored.1.transitions, 2);
}

#[test]
fn a_decision_has_the_time_of_the_next_read_or_renewal() {
    let start = Timestamp::from_second(1_767_268_800).unwrap();
    let spec = next_spec(&Spec::default(), candidate("a"), start);
    assert_eq!(evaluate(&Spec::default(), candidate("a"), start), LeaseDecision::Acquire);
    let (until, renew_at) = (add_time(start, DURATION - SKEW), add_time(start, DURATION / 3));
    assert_eq!(evaluate(&spec, candidate("a"), start), LeaseDecision::Lead { until, renew_at });
    assert_eq!(evaluate(&spec, candidate("a"), until), LeaseDecision::Acquire);
    let until = add_time(start, DURATION);
    assert_eq!(evaluate(&spec, candidate("b"), start), LeaseDecision::StandBy { until });
    assert_eq!(evaluate(&spec, candidate("b"), until), LeaseDecision::Acquire);
    let renewed = next_spec(&spec, candidate("a"), add_time(start, Duration::from_secs(5)));
    assert_eq!((renewed.acquired, renewed.transitions), (Some(start), 1));
}

/// A replica whose clock went back a little waits until the time of its last renewal. A Lease with
/// a time that no clock within the skew could have written does not prevent a new leader.
#[test]
fn a_replica_waits_for_a_near_future_lease_and_ignores_a_far_future_one() {
    let now = Timestamp::from_second(1_767_268_800).unwrap();
    let at = |seconds| now + SignedDuration::from_secs(seconds);
    let lease = |holder: &str, renewed| Spec {
        holder: Some(holder.to_owned()),
        renewed: Some(renewed),
        duration: Some(DURATION),
        ..Spec::default()
    };
    for holder in ["a", "b"] {
        let far_ahead = lease(holder, at(3600));
        assert_eq!(evaluate(&far_ahead, candidate("a"), now), LeaseDecision::Acquire, "{holder}");
        let next = next_spec(&far_ahead, candidate("a"), now);
        assert_eq!(next.renewed, Some(now), "{holder}");
        assert!(matches!(evaluate(&next, candidate("a"), now), LeaseDecision::Lead { .. }));
    }
    let own = lease("a", at(1));
    assert_eq!(evaluate(&own, candidate("a"), now), LeaseDecision::StandBy { until: at(1) });
    assert!(matches!(evaluate(&own, candidate("a"), at(1)), LeaseDecision::Lead { .. }));
    let other = lease("b", at(SKEW.as_secs() as i64));
    assert!(matches!(evaluate(&other, candidate("a"), now), LeaseDecision::StandBy { .. }));
}

#[test]
fn a_lease_is_valid_for_at_most_ten_times_the_own_duration() {
    let now = Timestamp::from_second(1_767_268_800).unwrap();
    let years = Spec {
        holder: Some("b".to_owned()),
        renewed: Some(now),
        duration: Some(Duration::from_secs(u64::from(u32::MAX))),
        ..Spec::default()
    };
    let until = now + SignedDuration::from_secs(150);
    assert_eq!(evaluate(&years, candidate("a"), now), LeaseDecision::StandBy { until });
    assert_eq!(evaluate(&years, candidate("a"), until), LeaseDecision::Acquire);
}

/// Runs two replicas whose clocks differ by more than the skew. Each reads the Lease every two
/// seconds. `stops` is the second at which replica 1 stops. Returns the second and the replica of
/// each acquisition.
fn acquisitions(observes: bool, seconds: i64, stops: Option<i64>) -> Vec<(i64, usize)> {
    let start = Instant::now();
    let mut stored = Spec::default();
    let mut observers = [LeaseObserver::default(), LeaseObserver::default()];
    let mut taken = Vec::new();
    for second in 0..seconds {
        // The replicas read the Lease in turn.
        let i = usize::try_from(second % 2).unwrap();
        let me = candidate(NAMES[i]);
        if stops.is_some_and(|at| second >= at) && i == 1 {
            continue;
        }
        let now = Timestamp::from_second(1_767_268_800 + second + [0, 30][i]).unwrap();
        let at = start + Duration::from_secs(second.unsigned_abs());
        if observes && observers[i].observe(&stored, me, at).is_some() {
            continue;
        }
        let write = match evaluate(&stored, me, now) {
            LeaseDecision::Acquire => {
                taken.push((second, i));
                true
            }
            LeaseDecision::Lead { renew_at, .. } => now >= renew_at,
            LeaseDecision::StandBy { .. } => false,
        };
        if write {
            stored = next_spec(&stored, me, now);
        }
    }
    taken
}

#[test]
fn clocks_that_are_far_apart_do_not_make_replicas_take_turns() {
    // Without observers, the replicas take the Lease from each other.
    assert!(acquisitions(false, 300, None).len() > 50);
    // Replica 1 takes the Lease once, because it looks expired at the first read.
    assert_eq!(acquisitions(true, 300, None), [(0, 0), (1, 1)]);
    // The Lease of a stopped replica expires by the clock of that replica.
    let taken = acquisitions(true, 300, Some(100));
    let [(0, 0), (1, 1), (at, 0)] = taken[..] else { panic!("{taken:?}") };
    assert!((100..=100 + 30 + 15 + 2).contains(&at), "{taken:?}");
}
