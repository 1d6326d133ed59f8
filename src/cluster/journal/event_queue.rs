//! Decides which Event is written when. A client that retries in a loop causes one Event
//! with a count, and many denials at once cause a bounded number of writes.
//!
//! Namespaces take turns, so that many denials in one namespace delay no Event in
//! another. Objects that may not exist share one turn, because a client can invent any
//! namespace.
//!
//! The functions are pure: the time since the start of the process is an argument, so a clock that
//! is set back has no effect.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::entry::Entry;
use crate::cluster::event::InvolvedObject;
use crate::decide::Decision;
use crate::objects::ObjectRef;
use crate::objects::WOULD_DENY_EVENT;
use crate::policy::PolicySource;

/// The maximum number of Events in memory. Beyond it, the Event without verdicts for the longest
/// time is removed.
const MAX_EVENTS: usize = 2_000;

const WRITES_PER_SECOND: usize = 20;

/// The maximum number of writes of an Event that fail one after the other.
const MAX_FAILURES: usize = 10;

/// Verdicts with the same key share one Event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The whole reference: a caller who knows the path could give a made-up object the uid of
    /// another one.
    pub(super) involved: InvolvedObject,
    group: Group,
    pub(super) reason: &'static str,
    pub(super) policies: Vec<PolicySource>,
    pub(super) hour: i64,
}

/// The unit that takes turns: a namespace, or `None` for objects that may not exist.
type Group = Option<String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuedEvent {
    /// Whether belay denied the request.
    pub(super) denied: bool,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// Whether the Event exists in the cluster, so that it is patched and not created.
    pub(super) stored: bool,
    /// Whether the count in the cluster is out of date.
    count_pending: bool,
    /// Time of the last write.
    written: Option<Duration>,
    /// The number of failed writes since the last verdict.
    failures: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Write this Event now.
    Write(Key, Box<QueuedEvent>),
    /// Wait until this time.
    Wait(Duration),
    Nothing,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Stored,
    /// The create request found an Event of this name: the answer to an earlier request
    /// was lost. The Event has the count of that time.
    AlreadyExists,
    /// The Event no longer exists. The API server deletes Events after about an hour.
    NotFound,
    /// The API server rejected the write, for example because the Namespace is Terminating.
    Refused,
    /// No answer, or an error that a later write may not get.
    Failed,
}

#[derive(Debug)]
pub(super) struct EventQueue {
    /// The minimum time between two writes of one Event.
    interval: Duration,
    all: HashMap<Key, QueuedEvent>,
    /// The times of the writes in the last second.
    writes: VecDeque<Duration>,
    /// The number of the last write.
    turn: u64,
    /// The number of the last write of each group.
    turns: HashMap<Group, u64>,
}

impl EventQueue {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            all: HashMap::new(),
            writes: VecDeque::new(),
            turn: 0,
            turns: HashMap::new(),
        }
    }

    pub(super) fn record(&mut self, entry: &Entry, involved: InvolvedObject) {
        let reason = match entry.decision {
            Decision::Deny => entry.reason.as_str(),
            Decision::Hold => "Held",
            // The label always denies, except in a Pause. It has no status for this verdict.
            Decision::Audit if !entry.names_policy() => WOULD_DENY_EVENT,
            Decision::Allow | Decision::Audit | Decision::Warn => return,
        };
        let key = Key {
            group: entry.proved.then(|| involved.namespace.clone()),
            involved,
            reason,
            policies: entry.policies.clone(),
            hour: entry.time.as_second().div_euclid(3600),
        };
        if !self.all.contains_key(&key) {
            self.limit_events();
        }
        let message = message(&key.involved, entry);
        let event = self.all.entry(key).or_insert_with(|| QueuedEvent {
            denied: entry.decision == Decision::Deny,
            message: String::new(),
            count: 0,
            first: entry.time,
            last: entry.time,
            stored: false,
            count_pending: true,
            written: None,
            failures: 0,
        });
        event.message = message;
        event.count = event.count.saturating_add(1);
        event.last = event.last.max(entry.time);
        event.count_pending = true;
        event.failures = 0;
    }

    fn limit_events(&mut self) {
        while self.all.len() >= MAX_EVENTS {
            let mut groups: HashMap<&Group, usize> = HashMap::new();
            for key in self.all.keys() {
                *groups.entry(&key.group).or_default() += 1;
            }
            // The Event to remove is in the largest group.
            let largest = groups.into_iter().max_by_key(|(group, count)| (*count, *group));
            let Some((group, _)) = largest else { return };
            let in_group = self.all.iter().filter(|(key, _)| key.group == *group);
            let quietest = in_group.min_by_key(|(_, event)| (event.count_pending, event.last));
            let Some(key) = quietest.map(|(key, _)| key.clone()) else { return };
            self.all.remove(&key);
        }
        if self.turns.len() > MAX_EVENTS {
            self.turns.retain(|group, _| self.all.keys().any(|key| key.group == *group));
        }
    }

    /// Returns the next action. A returned Event counts as written;
    /// [`EventQueue::record_outcome`] corrects that.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        let interval = self.interval;
        let due =
            |event: &QueuedEvent| event.written.map_or(Duration::ZERO, |time| time + interval);
        let count_pending = self.all.values().filter(|event| event.count_pending);
        let Some(earliest) = count_pending.map(due).min() else { return Next::Nothing };
        if earliest > now {
            return Next::Wait(earliest);
        }
        while self.writes.front().is_some_and(|time| *time + Duration::from_secs(1) <= now) {
            self.writes.pop_front();
        }
        if let Some(first) = self.writes.front().filter(|_| self.writes.len() >= WRITES_PER_SECOND)
        {
            return Next::Wait(*first + Duration::from_secs(1));
        }
        let ready =
            self.all.iter_mut().filter(|(_, event)| event.count_pending && due(event) <= now);
        let next =
            ready.min_by_key(|(key, event)| (self.turns.get(&key.group), due(event), event.first));
        let Some((key, event)) = next else { return Next::Nothing };
        self.writes.push_back(now);
        self.turn += 1;
        self.turns.insert(key.group.clone(), self.turn);
        event.written = Some(now);
        event.count_pending = false;
        Next::Write(key.clone(), Box::new(event.clone()))
    }

    /// A rejected write is retried at the next verdict, a failed write also after the interval.
    pub(super) fn record_outcome(&mut self, key: &Key, outcome: Outcome) {
        let Some(event) = self.all.get_mut(key) else { return };
        // Neither a rejected nor a failed write shows whether the Event exists. Creating an
        // existing Event fails each time.
        match outcome {
            Outcome::Stored | Outcome::AlreadyExists => event.stored = true,
            Outcome::NotFound => event.stored = false,
            Outcome::Refused => {}
            Outcome::Failed => event.failures += 1,
        }
        event.count_pending |= match outcome {
            Outcome::NotFound | Outcome::AlreadyExists => true,
            Outcome::Failed => event.failures < MAX_FAILURES,
            Outcome::Stored | Outcome::Refused => false,
        };
    }
}

/// The Event of a cluster-scoped object is in a namespace whose users may not be allowed
/// to read other objects, so it names only the object and the policies.
fn message(involved: &InvolvedObject, entry: &Entry) -> String {
    if !involved.namespace.is_empty() {
        return entry.message.clone();
    }
    let Entry { target, decision, policies, .. } = entry;
    let target = ObjectRef { namespace: String::new(), ..target.clone() };
    let object = target.quoted();
    let what = if *decision == Decision::Deny { "denied a request" } else { "keeps its hold" };
    let policies: Vec<String> = policies.iter().map(PolicySource::to_string).collect();
    let by = if policies.is_empty() { String::new() } else { format!("; {}", policies.join(", ")) };
    format!("{object}: belay {what}{by}. Details: kubectl belay why {}", target.arguments())
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    const ZERO: Duration = Duration::ZERO;
    const INTERVAL: Duration = Duration::from_secs(10);

    fn involved(uid: &str) -> InvolvedObject {
        InvolvedObject { uid: uid.to_owned(), ..InvolvedObject::default() }
    }

    fn record(event_queue: &mut EventQueue, second: i64, uid: &str, decision: Decision) {
        event_queue.record(&entry(second, uid, decision), involved(uid));
    }

    fn write(event_queue: &mut EventQueue, now: Duration, outcome: Outcome) -> QueuedEvent {
        match event_queue.next(now) {
            Next::Write(key, event) => {
                event_queue.record_outcome(&key, outcome);
                *event
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_loop_is_one_event_whose_count_is_written_every_ten_seconds() {
        let mut event_queue = EventQueue::new(INTERVAL);
        assert_eq!(event_queue.next(ZERO), Next::Nothing);
        record(&mut event_queue, 7200, "a", Decision::Deny);
        let created = write(&mut event_queue, ZERO, Outcome::Stored);
        assert_eq!((created.count, created.stored, created.denied), (1, false, true));
        assert_eq!(event_queue.next(ZERO), Next::Nothing);
        for n in 0..999 {
            record(&mut event_queue, 7200 + n / 100, "a", Decision::Deny);
        }
        assert_eq!(event_queue.next(Duration::from_secs(9)), Next::Wait(INTERVAL));
        let changed = write(&mut event_queue, INTERVAL, Outcome::Stored);
        assert_eq!((changed.count, changed.stored), (1000, true));
        assert_eq!((changed.first.as_second(), changed.last.as_second()), (7200, 7209));
        assert_eq!(event_queue.next(INTERVAL * 10), Next::Nothing);
    }

    #[test]
    fn another_object_reason_policy_or_hour_is_another_event() {
        let mut event_queue = EventQueue::new(INTERVAL);
        record(&mut event_queue, 7200, "a", Decision::Deny);
        record(&mut event_queue, 7200, "b", Decision::Deny);
        record(&mut event_queue, 7200, "a", Decision::Hold);
        record(&mut event_queue, 7200 + 3600, "a", Decision::Deny);
        // h196: a made-up object with the uid of another one.
        let of_another = InvolvedObject { name: "made-up".into(), ..involved("a") };
        event_queue.record(&entry(7200, "a", Decision::Deny), of_another);
        let unproved = Entry { proved: false, ..entry(7200, "a", Decision::Deny) };
        event_queue.record(&unproved, involved("a"));
        let mut other = entry(7200, "a", Decision::Deny);
        other.policies.pop();
        event_queue.record(&other, involved("a"));
        // Policies list warnings and audited requests in their status.
        record(&mut event_queue, 7200, "c", Decision::Warn);
        record(&mut event_queue, 7200, "c", Decision::Audit);
        // Only a Pause lets a request pass that the label denies.
        let mut paused = entry(7200, "d", Decision::Audit);
        paused.policies = vec![PolicySource::Label("Always")];
        event_queue.record(&paused, involved("d"));
        assert!(event_queue.all.keys().any(|key| key.reason == WOULD_DENY_EVENT));
        let held =
            (0..8).filter(|_| !write(&mut event_queue, ZERO, Outcome::Stored).denied).count();
        assert_eq!(held, 2);
        assert_eq!(event_queue.next(ZERO), Next::Nothing);
    }

    #[test]
    fn a_storm_is_twenty_writes_a_second() {
        let mut event_queue = EventQueue::new(INTERVAL);
        for n in 0..100 {
            record(&mut event_queue, 7200, &format!("n{n}"), Decision::Deny);
        }
        let second = Duration::from_secs(1);
        for n in 0..5 {
            let now = second * n;
            for _ in 0..20 {
                write(&mut event_queue, now, Outcome::Stored);
            }
            let next = if n < 4 { Next::Wait(now + second) } else { Next::Nothing };
            assert_eq!(event_queue.next(now), next);
        }
    }

    /// H67: a caller who knows the path invents objects, or a tenant retries in a loop. Events of
    /// other namespaces must not be delayed.
    #[test]
    fn h67_a_storm_delays_no_event_of_another_namespace() {
        for proved in [true, false] {
            let mut event_queue = EventQueue::new(INTERVAL);
            let storm = |count: usize, first: usize, event_queue: &mut EventQueue| {
                for n in first..first + count {
                    let uid = format!("storm-{n}");
                    let entry = Entry { proved, ..entry(7400, &uid, Decision::Deny) };
                    let namespace = if proved { "storm".into() } else { format!("made-up-{n}") };
                    event_queue.record(
                        &entry,
                        InvolvedObject { uid, namespace, ..InvolvedObject::default() },
                    );
                }
            };
            storm(MAX_EVENTS, 0, &mut event_queue);
            let other =
                InvolvedObject { uid: "other".into(), namespace: "shop".into(), ..involved("") };
            event_queue.record(&entry(7300, "other", Decision::Deny), other);
            storm(MAX_EVENTS, MAX_EVENTS, &mut event_queue);
            let first = [(); 2].map(|()| match event_queue.next(ZERO) {
                Next::Write(key, _) => key.involved.uid,
                other => panic!("{other:?}"),
            });
            assert!(first.contains(&"other".to_owned()), "{first:?}");
        }
    }

    #[test]
    fn recreates_deleted_events_and_retries_refused_ones_on_repetition() {
        let mut event_queue = EventQueue::new(INTERVAL);
        record(&mut event_queue, 7200, "a", Decision::Deny);
        write(&mut event_queue, ZERO, Outcome::Stored);
        record(&mut event_queue, 7201, "a", Decision::Deny);
        assert!(write(&mut event_queue, INTERVAL, Outcome::NotFound).stored);
        let again = write(&mut event_queue, INTERVAL * 2, Outcome::Refused);
        assert_eq!((again.stored, again.count), (false, 2));
        assert_eq!(event_queue.next(INTERVAL * 9), Next::Nothing);
        record(&mut event_queue, 7202, "a", Decision::Deny);
        assert!(!write(&mut event_queue, INTERVAL * 9, Outcome::Stored).stored);
    }

    #[test]
    fn patches_the_existing_event_after_a_failed_write() {
        let mut event_queue = EventQueue::new(INTERVAL);
        record(&mut event_queue, 7200, "a", Decision::Deny);
        write(&mut event_queue, ZERO, Outcome::Stored);
        record(&mut event_queue, 7201, "a", Decision::Deny);
        assert!(write(&mut event_queue, INTERVAL, Outcome::Refused).stored);
        record(&mut event_queue, 7202, "a", Decision::Deny);
        assert!(write(&mut event_queue, INTERVAL * 2, Outcome::Stored).stored);

        // The Event was created but the answer was lost. It is written again, with its count,
        // without another verdict.
        record(&mut event_queue, 7200, "b", Decision::Deny);
        assert!(!write(&mut event_queue, INTERVAL * 3, Outcome::Failed).stored);
        assert_eq!(event_queue.next(INTERVAL * 3), Next::Wait(INTERVAL * 4));
        assert!(!write(&mut event_queue, INTERVAL * 4, Outcome::AlreadyExists).stored);
        let changed = write(&mut event_queue, INTERVAL * 5, Outcome::Stored);
        assert_eq!((changed.stored, changed.count), (true, 1));
        assert_eq!(event_queue.next(INTERVAL * 9), Next::Nothing);

        // belay gives up after some failures, until the next verdict.
        for verdict in 1..=2 {
            record(&mut event_queue, 7202, "c", Decision::Deny);
            for n in 0..10 {
                write(&mut event_queue, INTERVAL * (100 * verdict + n), Outcome::Failed);
            }
            assert_eq!(event_queue.next(INTERVAL * (100 * verdict + 50)), Next::Nothing);
        }
    }

    #[test]
    fn keeps_a_limited_number_and_removes_quiet_events_first() {
        let mut event_queue = EventQueue::new(INTERVAL);
        record(&mut event_queue, 7200, "quiet", Decision::Deny);
        write(&mut event_queue, ZERO, Outcome::Stored);
        for n in 0..i64::try_from(MAX_EVENTS).unwrap() {
            record(&mut event_queue, 7100 + n, &format!("n{n}"), Decision::Deny);
        }
        assert_eq!(event_queue.all.len(), MAX_EVENTS);
        assert!(event_queue.all.keys().all(|key| key.involved.uid != "quiet"));
        record(&mut event_queue, 9999, "new", Decision::Deny);
        assert_eq!(event_queue.all.len(), MAX_EVENTS);
        assert!(event_queue.all.keys().any(|key| key.involved.uid == "new"));
        assert!(event_queue.all.keys().all(|key| key.involved.uid != "n0"));
    }
}
