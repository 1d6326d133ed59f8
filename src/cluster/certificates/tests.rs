//! Each step alone, and whole rotations with replicas that lag, a leader that changes in the
//! middle, and API servers that see a change of the webhook configuration late.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::rotation::*;

const DAY: i64 = 86_400;
const MARGIN: i64 = 5_000;

/// The CA of certificate `n`.
fn ca(n: u32) -> BTreeSet<CaCertificate> {
    [n.to_be_bytes().to_vec()].into()
}

fn certificate(n: u32) -> CertificateInfo {
    CertificateInfo { serial: n.to_string(), begins: 0, expires: 90 * DAY, every_name: true }
}

fn steady(n: u32) -> Content {
    Content { current: Some(certificate(n)), cas: ca(n), ..Content::default() }
}

fn staged() -> Content {
    Content { next: Next::Usable(certificate(2), ca(2)), ..steady(1) }
}

fn seen(trusted: BTreeSet<CaCertificate>, millis: u64) -> Observations {
    let (trusted_for, margin) = (Duration::from_millis(millis), Duration::from_millis(5_000));
    Observations { trusted, trusted_for, margin, served: None }
}

#[test]
fn a_rotation_begins_when_a_third_is_left_or_on_request() {
    let (content, seen) = (steady(1), Observations::default());
    assert_eq!(step(&content, &seen, 60 * DAY - 1), Step::Wait(Waiting::Due(60 * DAY)));
    assert_eq!(step(&content, &seen, 60 * DAY), Step::Stage);
    let asked = Content { requested: true, ..content };
    assert_eq!(step(&asked, &seen, DAY), Step::Stage);
}

#[test]
fn a_staged_certificate_waits_for_both_cas_and_the_margin() {
    let both = &ca(1) | &ca(2);
    for (trusted, millis, expected) in [
        (BTreeSet::new(), 9_000, Step::Wait(Waiting::Configurations)),
        (ca(1), 9_000, Step::Wait(Waiting::Configurations)),
        (ca(2), 9_000, Step::Wait(Waiting::Configurations)),
        (both.clone(), 4_000, Step::Wait(Waiting::Margin(Duration::from_secs(1)))),
        (both.clone(), 5_000, Step::Promote),
        (&both | &ca(3), 5_000, Step::Promote),
    ] {
        assert_eq!(step(&staged(), &seen(trusted.clone(), millis), DAY), expected, "{trusted:?}");
    }
}

#[test]
fn trusts_the_old_ca_until_every_replica_serves_the_new_certificate() {
    let content = Content { old: ca(1), ..steady(2) };
    let after = |served: Option<&[&str]>| {
        let served = served.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
        step(&content, &Observations { served, ..Observations::default() }, DAY)
    };
    let wait = Step::Wait(Waiting::Replicas);
    assert_eq!(after(None), wait);
    assert_eq!(after(Some(&[])), wait, "not even this replica has reported");
    assert_eq!(after(Some(&["2", "1"])), wait);
    assert_eq!(after(Some(&["2", ""])), wait);
    assert_eq!(after(Some(&["2", "2"])), Step::Drop);
    // Another rotation does not begin before the old CA is removed.
    let asked = Content { requested: true, ..content.clone() };
    assert_eq!(step(&asked, &Observations::default(), 80 * DAY), wait);
}

#[test]
fn replaces_at_once_a_certificate_that_no_client_accepts() {
    let seen = Observations::default();
    assert_eq!(step(&Content::default(), &seen, DAY), Step::Make);
    assert_eq!(step(&steady(1), &seen, 90 * DAY), Step::Make);
    let mut long = staged();
    let Next::Usable(next, _) = &mut long.next else { panic!("staged") };
    next.expires = 200 * DAY;
    assert_eq!(step(&long, &seen, 90 * DAY), Step::Promote);
    let broken = Content { current: None, ..long };
    assert_eq!(step(&broken, &seen, DAY), Step::Promote);
    let hopeless = Content { next: Next::Unusable, ..broken };
    assert_eq!(step(&hopeless, &seen, DAY), Step::Make);
}

#[test]
fn replaces_an_unusable_staged_certificate() {
    let unusable = Content { next: Next::Unusable, ..steady(1) };
    assert_eq!(step(&unusable, &Observations::default(), DAY), Step::Stage);
    let mut narrow = staged();
    let Next::Usable(next, _) = &mut narrow.next else { panic!("staged") };
    next.every_name = false;
    let both = seen(&ca(1) | &ca(2), 9_000);
    assert_eq!(step(&narrow, &both, DAY), Step::Stage);
    // The staged certificate has waited so long that it must be replaced itself.
    assert_eq!(step(&staged(), &both, 70 * DAY), Step::Stage);
}

#[test]
fn a_foreign_secret_is_left_alone_until_a_request() {
    let foreign = Content { foreign: true, ..steady(1) };
    for time in [DAY, 70 * DAY, 100 * DAY] {
        let wait = Step::Wait(Waiting::Permission);
        assert_eq!(step(&foreign, &Observations::default(), time), wait);
    }
    let asked = Content { requested: true, ..foreign };
    assert_eq!(step(&asked, &Observations::default(), DAY), Step::Stage);
    assert_eq!(step(&asked, &Observations::default(), 100 * DAY), Step::Make);
}

/// The Secret, the replicas that watch it, and the CAs that API servers trust.
struct World {
    now: i64,
    /// Every version of the Secret so far, and when it was stored.
    stored: Vec<(i64, Content)>,
    /// The number of the newest certificate.
    certificates: u32,
    /// Which version each replica has seen last.
    views: [usize; 3],
    /// The serial number that each replica has reported.
    reports: [String; 3],
    leader: usize,
    leads_since: i64,
    /// Every bundle so far in the webhook configurations, and when it was written.
    registered: Vec<(i64, BTreeSet<CaCertificate>)>,
}

#[derive(Debug, Clone)]
enum Event {
    /// This many milliseconds pass.
    Pass(i64),
    /// A replica sees the latest version of the Secret.
    See(usize),
    /// A replica reports the certificate that it serves.
    Report(usize),
    /// The leader writes the bundle into the webhook configurations.
    Register,
    /// The leader takes the next step.
    Step,
    /// Another replica becomes the leader, or the same leader starts again.
    Lead(usize),
    /// A user requests a rotation.
    Ask,
}

/// The longest lag of a watch. The margin does not cover longer lags.
const LAG: i64 = MARGIN - 1;

impl World {
    fn new() -> Self {
        Self {
            now: 0,
            stored: vec![(0, steady(0))],
            certificates: 0,
            views: [0; 3],
            reports: ["0"; 3].map(str::to_owned),
            leader: 0,
            leads_since: 0,
            registered: vec![(0, ca(0))],
        }
    }

    fn latest(&self) -> usize {
        self.stored.len() - 1
    }

    fn view(&self, replica: usize) -> &Content {
        &self.stored[self.views[replica]].1
    }

    fn play(&mut self, event: &Event) {
        match *event {
            Event::Pass(by) => {
                self.now += by;
                for view in &mut self.views {
                    let is_new = |(since, _): &&(i64, Content)| self.now - since < LAG;
                    let seen = self.stored.len() - self.stored.iter().filter(is_new).count();
                    *view = (*view).max(seen.saturating_sub(1));
                }
            }
            Event::See(i) => self.views[i] = self.latest(),
            Event::Report(i) => {
                self.reports[i] = self.view(i).current.as_ref().unwrap().serial.clone();
            }
            Event::Register => {
                let bundle = to_trust(self.view(self.leader));
                if self.registered.last().unwrap().1 != bundle {
                    self.registered.push((self.now, bundle));
                }
            }
            Event::Step => self.step(),
            Event::Lead(i) => (self.leader, self.leads_since) = (i, self.now),
            Event::Ask => {
                let mut content = self.stored[self.latest()].1.clone();
                content.requested = true;
                self.stored.push((self.now, content));
            }
        }
    }

    fn step(&mut self) {
        let mut content = self.view(self.leader).clone();
        let (since, trusted) = self.registered.last().unwrap();
        let trusted_for = self.now - since.max(&self.leads_since);
        let seen = Observations {
            served: Some(self.reports.to_vec()),
            ..seen(trusted.clone(), u64::try_from(trusted_for).unwrap())
        };
        match step(&content, &seen, DAY) {
            Step::Stage => {
                self.certificates += 1;
                content.next = Next::Usable(certificate(self.certificates), ca(self.certificates));
                content.requested = false;
            }
            Step::Promote => {
                let Next::Usable(next, cas) = std::mem::take(&mut content.next) else {
                    panic!("nothing is staged")
                };
                content.old = std::mem::replace(&mut content.cas, cas);
                content.current = Some(next);
            }
            Step::Drop => content.old.clear(),
            Step::Make => panic!("there is a certificate"),
            Step::Wait(_) => return,
        }
        // The write fails if the leader has not seen the latest version.
        if self.views[self.leader] == self.latest() {
            self.stored.push((self.now, content));
        }
    }

    /// Whether every API server accepts the certificate of every replica. An API server knows the
    /// current configuration, or one that was replaced less than the margin ago.
    fn is_safe(&self) -> bool {
        let replaced = self.registered.iter().skip(1).map(|(since, _)| *since);
        let known = self.registered.iter().zip(replaced.chain([i64::MAX]));
        let known = known.filter(|(_, until)| self.now < until.saturating_add(MARGIN));
        let known: Vec<_> = known.map(|((_, bundle), _)| bundle).collect();
        (0..3).all(|i| known.iter().all(|bundle| self.view(i).cas.is_subset(bundle)))
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0_i64..3_000).prop_map(Event::Pass),
        4 => (0_usize..3).prop_map(Event::See),
        4 => (0_usize..3).prop_map(Event::Report),
        4 => Just(Event::Register),
        4 => Just(Event::Step),
        1 => (0_usize..3).prop_map(Event::Lead),
        1 => Just(Event::Ask),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn api_servers_trust_all_served_certificates(events in prop::collection::vec(event(), 0..200)) {
        let mut world = World::new();
        for event in &events {
            world.play(event);
            prop_assert!(world.is_safe(), "after {event:?} of {events:?}");
        }
    }

    #[test]
    fn a_rotation_that_was_begun_ends(events in prop::collection::vec(event(), 0..100)) {
        let mut world = World::new();
        world.play(&Event::Ask);
        events.iter().for_each(|event| world.play(event));
        for _ in 0..12 {
            world.play(&Event::Pass(MARGIN));
            (0..3).for_each(|i| world.play(&Event::Report(i)));
            world.play(&Event::Register);
            world.play(&Event::Step);
        }
        let last = &world.stored[world.latest()].1;
        prop_assert!(*last != steady(0), "nothing was rotated");
        prop_assert_eq!(last, &steady(last.current.as_ref().unwrap().serial.parse().unwrap()));
    }
}

/// The property can fail: here, a replica serves the new certificate before the API servers know
/// its CA.
#[test]
fn without_the_margin_a_review_would_fail() {
    let mut world = World::new();
    let events = [Event::Ask, Event::See(0), Event::Step, Event::See(0), Event::Register];
    events.iter().for_each(|event| world.play(event));
    world.play(&Event::Step);
    assert!(matches!(world.stored[world.latest()].1.next, Next::Usable(..)), "it waits");
    world.stored.push((world.now, steady(1)));
    world.play(&Event::See(1));
    assert!(!world.is_safe());
}
