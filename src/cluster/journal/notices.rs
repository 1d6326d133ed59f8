//! Which Events are written when, so that somebody who tries a thousand times
//! in a loop makes one Event with a count, and a storm of denials is no storm
//! of writes.
//!
//! Namespaces take turns, so that a storm in one delays no Event in another. Objects
//! that may be made up share one turn, because any namespace can be made up.
//!
//! Pure: what time it is is an argument, as the time since the process began,
//! which no clock that is put back can stop.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::entry::Entry;
use crate::cluster::event::InvolvedObject;
use crate::decide::Decision;
use crate::objects::ObjectRef;
use crate::policy::Source;

/// So many Events are remembered; those that were quiet longest are forgotten.
const MOST: usize = 2_000;

/// So many writes there are at the most in one second.
const A_SECOND: usize = 20;

/// What is told in one Event: the same about the same object in the same hour.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) uid: String,
    pub(super) reason: &'static str,
    pub(super) policies: Vec<Source>,
    pub(super) hour: i64,
}

/// Whose turn it is to have an Event written: a namespace, or none for objects that
/// may not exist.
type Group = Option<String>;

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) involved: InvolvedObject,
    group: Group,
    /// Whether a request was refused; if not, the object is held.
    pub(super) denied: bool,
    pub(super) message: String,
    pub(super) count: i32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// Whether it stands in the cluster, so that it is changed and not made.
    pub(super) stored: bool,
    /// Whether the cluster does not have the count.
    unsaid: bool,
    /// When it was written last.
    written: Option<Duration>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This is to be written, now.
    Write(Key, Box<Notice>),
    /// Something is to be written, from this time on.
    Wait(Duration),
    /// Nothing is to be written.
    Nothing,
}

/// What came of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is stored.
    Stored,
    /// One of its name was there when it was to be made: an answer of before
    /// was lost, and the one that is there has the count of then.
    There,
    /// Events live for an hour or so; this one does no more.
    Gone,
    /// It cannot be written: a Terminating namespace takes none.
    Refused,
}

/// All Events that are remembered.
#[derive(Debug)]
pub(super) struct Notices {
    /// How often the count of an Event is written.
    every: Duration,
    all: HashMap<Key, Notice>,
    /// When there were writes in the last second.
    writes: VecDeque<Duration>,
    /// The number of the last write, and of the last one of each group.
    turn: u64,
    turns: HashMap<Group, u64>,
}

impl Notices {
    /// None yet.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, all: HashMap::new(), writes: VecDeque::new(), turn: 0, turns: HashMap::new() }
    }

    /// Takes in what was said about an object.
    pub(super) fn note(&mut self, entry: &Entry, involved: InvolvedObject) {
        let denied = match entry.decision {
            Decision::Deny => true,
            Decision::Hold => false,
            Decision::Allow | Decision::Audit | Decision::Warn => return,
        };
        let key = Key {
            uid: involved.uid.clone(),
            reason: if denied { entry.reason.as_str() } else { "Held" },
            policies: entry.policies.clone(),
            hour: entry.time.as_second().div_euclid(3600),
        };
        if !self.all.contains_key(&key) {
            self.make_room();
        }
        let group = entry.proved.then(|| involved.namespace.clone());
        let notice = self.all.entry(key).or_insert_with(|| Notice {
            involved,
            group,
            denied,
            message: String::new(),
            count: 0,
            first: entry.time,
            last: entry.time,
            stored: false,
            unsaid: true,
            written: None,
        });
        notice.message = message(&notice.involved, entry);
        notice.count = notice.count.saturating_add(1);
        notice.last = notice.last.max(entry.time);
        notice.unsaid = true;
    }

    fn make_room(&mut self) {
        while self.all.len() >= MOST {
            let mut groups: HashMap<&Group, usize> = HashMap::new();
            for notice in self.all.values() {
                *groups.entry(&notice.group).or_default() += 1;
            }
            // Of the group with the most.
            let largest = groups.into_iter().max_by_key(|(group, count)| (*count, *group));
            let Some((group, _)) = largest else { return };
            let its = self.all.iter().filter(|(_, notice)| notice.group == *group);
            let quietest = its.min_by_key(|(_, notice)| (notice.unsaid, notice.last));
            let Some(key) = quietest.map(|(key, _)| key.clone()) else { return };
            self.all.remove(&key);
        }
        if self.turns.len() > MOST {
            self.turns.retain(|group, _| self.all.values().any(|notice| notice.group == *group));
        }
    }

    /// What is to be done at this time. What is to be written counts as
    /// written; [`Notices::wrote`] says what came of it.
    pub(super) fn next(&mut self, now: Duration) -> Next {
        let every = self.every;
        let due = |notice: &Notice| notice.written.map_or(Duration::ZERO, |time| time + every);
        let unsaid = self.all.values().filter(|notice| notice.unsaid);
        let Some(earliest) = unsaid.map(due).min() else { return Next::Nothing };
        if earliest > now {
            return Next::Wait(earliest);
        }
        while self.writes.front().is_some_and(|time| *time + Duration::from_secs(1) <= now) {
            self.writes.pop_front();
        }
        if let Some(first) = self.writes.front().filter(|_| self.writes.len() >= A_SECOND) {
            return Next::Wait(*first + Duration::from_secs(1));
        }
        let ready = self.all.iter_mut().filter(|(_, notice)| notice.unsaid && due(notice) <= now);
        let next = ready
            .min_by_key(|(_, notice)| (self.turns.get(&notice.group), due(notice), notice.first));
        let Some((key, notice)) = next else { return Next::Nothing };
        self.writes.push_back(now);
        self.turn += 1;
        self.turns.insert(notice.group.clone(), self.turn);
        notice.written = Some(now);
        notice.unsaid = false;
        Next::Write(key.clone(), Box::new(notice.clone()))
    }

    /// What came of a write. What was refused is tried again when it is said
    /// again.
    pub(super) fn wrote(&mut self, key: &Key, outcome: Outcome) {
        let Some(notice) = self.all.get_mut(key) else { return };
        // What was refused, or not answered, says nothing of whether it stands
        // there: to make what does is refused as long as it lasts.
        match outcome {
            Outcome::Stored | Outcome::There => notice.stored = true,
            Outcome::Gone => notice.stored = false,
            Outcome::Refused => {}
        }
        notice.unsaid |= matches!(outcome, Outcome::Gone | Outcome::There);
    }
}

/// What an Event says. That of a cluster-scoped object is in a namespace whose users
/// may not read others, so it names only the object and the policies.
fn message(involved: &InvolvedObject, entry: &Entry) -> String {
    if !involved.namespace.is_empty() {
        return entry.message.clone();
    }
    let Entry { target, decision, policies, .. } = entry;
    let target = ObjectRef { namespace: String::new(), ..target.clone() };
    let object = target.quoted();
    let what = if *decision == Decision::Deny { "denied a request" } else { "keeps its hold" };
    let policies: Vec<String> = policies.iter().map(Source::to_string).collect();
    let by = if policies.is_empty() { String::new() } else { format!("; {}", policies.join(", ")) };
    format!("{object}: belay {what}{by}. Why: kubectl belay why {}", target.arguments())
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    const ZERO: Duration = Duration::ZERO;
    const EVERY: Duration = Duration::from_secs(10);

    fn involved(uid: &str) -> InvolvedObject {
        InvolvedObject { uid: uid.to_owned(), ..InvolvedObject::default() }
    }

    fn say(notices: &mut Notices, second: i64, uid: &str, decision: Decision) {
        notices.note(&entry(second, uid, decision), involved(uid));
    }

    fn write(notices: &mut Notices, now: Duration, outcome: Outcome) -> Notice {
        match notices.next(now) {
            Next::Write(key, notice) => {
                notices.wrote(&key, outcome);
                *notice
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_loop_is_one_event_whose_count_is_written_every_ten_seconds() {
        let mut notices = Notices::new(EVERY);
        assert_eq!(notices.next(ZERO), Next::Nothing);
        say(&mut notices, 7200, "a", Decision::Deny);
        let made = write(&mut notices, ZERO, Outcome::Stored);
        assert_eq!((made.count, made.stored, made.denied), (1, false, true));
        assert_eq!(notices.next(ZERO), Next::Nothing);
        for n in 0..999 {
            say(&mut notices, 7200 + n / 100, "a", Decision::Deny);
        }
        assert_eq!(notices.next(Duration::from_secs(9)), Next::Wait(EVERY));
        let changed = write(&mut notices, EVERY, Outcome::Stored);
        assert_eq!((changed.count, changed.stored), (1000, true));
        assert_eq!((changed.first.as_second(), changed.last.as_second()), (7200, 7209));
        assert_eq!(notices.next(EVERY * 10), Next::Nothing);
    }

    #[test]
    fn another_object_reason_policy_or_hour_is_another_event() {
        let mut notices = Notices::new(EVERY);
        say(&mut notices, 7200, "a", Decision::Deny);
        say(&mut notices, 7200, "b", Decision::Deny);
        say(&mut notices, 7200, "a", Decision::Hold);
        say(&mut notices, 7200 + 3600, "a", Decision::Deny);
        let mut other = entry(7200, "a", Decision::Deny);
        other.policies.pop();
        notices.note(&other, involved("a"));
        // Nobody looks at Events for these.
        say(&mut notices, 7200, "c", Decision::Warn);
        say(&mut notices, 7200, "c", Decision::Audit);
        let held = (0..5).filter(|_| !write(&mut notices, ZERO, Outcome::Stored).denied).count();
        assert_eq!(held, 1);
        assert_eq!(notices.next(ZERO), Next::Nothing);
    }

    #[test]
    fn a_storm_is_twenty_writes_a_second() {
        let mut notices = Notices::new(EVERY);
        for n in 0..100 {
            say(&mut notices, 7200, &format!("n{n}"), Decision::Deny);
        }
        let second = Duration::from_secs(1);
        for n in 0..5 {
            let now = second * n;
            for _ in 0..20 {
                write(&mut notices, now, Outcome::Stored);
            }
            let next = if n < 4 { Next::Wait(now + second) } else { Next::Nothing };
            assert_eq!(notices.next(now), next);
        }
    }

    /// H67: a caller who knows the path makes up objects, or a tenant tries again and
    /// again, and Events of other namespaces are never written.
    #[test]
    fn h67_a_storm_delays_no_event_of_another_namespace() {
        for proved in [true, false] {
            let mut notices = Notices::new(EVERY);
            let storm = |count: usize, first: usize, notices: &mut Notices| {
                for n in first..first + count {
                    let uid = format!("storm-{n}");
                    let entry = Entry { proved, ..entry(7400, &uid, Decision::Deny) };
                    let namespace = if proved { "storm".into() } else { format!("made-up-{n}") };
                    notices.note(
                        &entry,
                        InvolvedObject { uid, namespace, ..InvolvedObject::default() },
                    );
                }
            };
            storm(MOST, 0, &mut notices);
            let other =
                InvolvedObject { uid: "other".into(), namespace: "shop".into(), ..involved("") };
            notices.note(&entry(7300, "other", Decision::Deny), other);
            storm(MOST, MOST, &mut notices);
            let first = [(); 2].map(|()| write(&mut notices, ZERO, Outcome::Stored).involved.uid);
            assert!(first.contains(&"other".to_owned()), "{first:?}");
        }
    }

    #[test]
    fn what_is_gone_is_made_again_and_what_is_refused_waits_until_it_is_said_again() {
        let mut notices = Notices::new(EVERY);
        say(&mut notices, 7200, "a", Decision::Deny);
        write(&mut notices, ZERO, Outcome::Stored);
        say(&mut notices, 7201, "a", Decision::Deny);
        assert!(write(&mut notices, EVERY, Outcome::Gone).stored);
        let again = write(&mut notices, EVERY * 2, Outcome::Refused);
        assert_eq!((again.stored, again.count), (false, 2));
        assert_eq!(notices.next(EVERY * 9), Next::Nothing);
        say(&mut notices, 7202, "a", Decision::Deny);
        assert!(!write(&mut notices, EVERY * 9, Outcome::Stored).stored);
    }

    #[test]
    fn after_a_write_that_failed_what_stands_there_is_changed_and_not_made_again() {
        let mut notices = Notices::new(EVERY);
        say(&mut notices, 7200, "a", Decision::Deny);
        write(&mut notices, ZERO, Outcome::Stored);
        say(&mut notices, 7201, "a", Decision::Deny);
        assert!(write(&mut notices, EVERY, Outcome::Refused).stored);
        say(&mut notices, 7202, "a", Decision::Deny);
        assert!(write(&mut notices, EVERY * 2, Outcome::Stored).stored);

        // It was made and nobody heard of it: its count is written with the
        // next write, without anybody's saying it again.
        say(&mut notices, 7200, "b", Decision::Deny);
        assert!(!write(&mut notices, EVERY * 3, Outcome::Refused).stored);
        say(&mut notices, 7201, "b", Decision::Deny);
        assert!(!write(&mut notices, EVERY * 4, Outcome::There).stored);
        let changed = write(&mut notices, EVERY * 5, Outcome::Stored);
        assert_eq!((changed.stored, changed.count), (true, 2));
        assert_eq!(notices.next(EVERY * 9), Next::Nothing);
    }

    #[test]
    fn no_more_than_so_many_are_remembered_and_the_quiet_ones_are_forgotten_first() {
        let mut notices = Notices::new(EVERY);
        say(&mut notices, 7200, "said", Decision::Deny);
        write(&mut notices, ZERO, Outcome::Stored);
        for n in 0..i64::try_from(MOST).unwrap() {
            say(&mut notices, 7100 + n, &format!("n{n}"), Decision::Deny);
        }
        assert_eq!(notices.all.len(), MOST);
        assert!(notices.all.keys().all(|key| key.uid != "said"));
        say(&mut notices, 9999, "new", Decision::Deny);
        assert_eq!(notices.all.len(), MOST);
        assert!(notices.all.keys().any(|key| key.uid == "new"));
        assert!(notices.all.keys().all(|key| key.uid != "n0"));
    }
}
