//! What each policy said in the last day: sums by the hour, and the newest few
//! of it in words.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, shortened};
use crate::decide::Decision;
use crate::objects::{ObjectRef, full_name};
use crate::policy::Source;
use crate::policy::api::{LastDay, Recent};

/// So many of the newest are kept in words.
const NEWEST: usize = 10;

/// Within this many seconds the same thing said to the same person about the
/// same object is a repetition.
const REPEATED: i64 = 600;

/// So many hours are a day.
const HOURS: i64 = 24;

/// What is kept of a message, in bytes.
const MESSAGE: usize = 300;

/// What the policies said, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Book {
    policies: BTreeMap<String, Page>,
}

/// What one policy said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Page {
    /// By hours since 1970.
    hours: BTreeMap<i64, LastDay>,
    /// The newest first.
    recent: Vec<Recent>,
}

impl Book {
    /// Takes in what was said.
    pub fn note(&mut self, entry: &Entry) {
        let hour = hour(entry.time);
        for source in &entry.policies {
            // The label has no status that could show it.
            let Source::Policy(name) = source else { continue };
            let page = self.policies.entry(name.clone()).or_default();
            let sums = page.hours.entry(hour).or_default();
            match entry.decision {
                Decision::Deny => sums.denied = sums.denied.saturating_add(1),
                Decision::Hold => sums.held = sums.held.saturating_add(1),
                Decision::Warn | Decision::Audit => {
                    sums.would_deny = sums.would_deny.saturating_add(1);
                }
                Decision::Allow => {}
            }
            page.recent.push(Recent {
                time: Time(entry.time),
                target: shortened(shown(&entry.target), MESSAGE),
                verdict: entry.decision.as_str().to_owned(),
                user: shortened(entry.user.clone(), MESSAGE),
                message: shortened(entry.message.clone(), MESSAGE),
            });
            page.settle();
        }
    }

    /// Takes in what another replica heard.
    pub fn merge(&mut self, other: Self) {
        for (name, theirs) in other.policies {
            let page = self.policies.entry(name).or_default();
            for (hour, sums) in theirs.hours {
                let mine = page.hours.entry(hour).or_default();
                *mine = sum(*mine, sums);
            }
            page.recent.extend(theirs.recent);
            page.settle();
        }
    }

    /// Forgets what is older than a day, and what no clock can have written.
    pub fn age(&mut self, now: Timestamp) {
        let hours = hour(now) - HOURS + 1..=hour(now) + 1;
        for page in self.policies.values_mut() {
            page.hours.retain(|hour, _| hours.contains(hour));
            page.recent.retain(|recent| hours.contains(&hour(recent.time.0)));
        }
        self.policies.retain(|_, page| !page.hours.is_empty() || !page.recent.is_empty());
    }

    /// Forgets the policies that are none any more.
    pub fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.policies.retain(|name, _| exists(name));
    }

    /// Makes it fit into so many bytes of JSON: first the words go, then what
    /// said the least lately.
    pub fn fit(&mut self, most: usize) {
        for newest in [5, 2, 0] {
            if self.size() <= most {
                return;
            }
            self.policies.values_mut().for_each(|page| page.recent.truncate(newest));
        }
        let newest = |page: &Page| page.hours.last_key_value().map(|(hour, _)| *hour);
        while self.size() > most {
            let mut names: Vec<_> =
                self.policies.iter().map(|(name, page)| (newest(page), name.clone())).collect();
            if names.is_empty() {
                return;
            }
            names.sort();
            for (_, name) in names.iter().take(names.len().div_ceil(4)) {
                self.policies.remove(name);
            }
        }
    }

    fn size(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }

    /// What a policy said in the last day.
    pub fn last_day(&self, policy: &str) -> LastDay {
        let hours = self.policies.get(policy).into_iter().flat_map(|page| page.hours.values());
        hours.fold(LastDay::default(), |all, one| sum(all, *one))
    }

    /// The newest of what a policy said.
    pub fn recent(&self, policy: &str) -> &[Recent] {
        self.policies.get(policy).map_or(&[], |page| &page.recent)
    }
}

impl Page {
    /// The newest first, repetitions once, and not too many: whoever tries
    /// again and again does not push out what others were told.
    fn settle(&mut self) {
        self.recent.sort_by_key(|recent| std::cmp::Reverse(recent.time.0));
        let mut kept: Vec<Recent> = Vec::new();
        for recent in std::mem::take(&mut self.recent) {
            if kept.len() >= NEWEST {
                break;
            }
            if !kept.iter().any(|newer| is_repetition(&recent, newer)) {
                kept.push(recent);
            }
        }
        self.recent = kept;
    }
}

fn is_repetition(older: &Recent, newer: &Recent) -> bool {
    older.user == newer.user
        && older.target == newer.target
        && older.verdict == newer.verdict
        && newer.time.0.as_second() - older.time.0.as_second() <= REPEATED
}

fn sum(one: LastDay, other: LastDay) -> LastDay {
    LastDay {
        denied: one.denied.saturating_add(other.denied),
        would_deny: one.would_deny.saturating_add(other.would_deny),
        held: one.held.saturating_add(other.held),
    }
}

fn hour(time: Timestamp) -> i64 {
    time.as_second().div_euclid(3600)
}

/// `configmaps shop/settings`, as the status of a policy names an object.
pub fn shown(target: &ObjectRef) -> String {
    let ObjectRef { resource, group, namespace, name } = target;
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name}", full_name(group, resource))
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    const DAY: i64 = 86_400;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn targets(book: &Book) -> Vec<(i64, &str)> {
        book.recent("kept").iter().map(|r| (r.time.0.as_second(), r.target.as_str())).collect()
    }

    #[test]
    fn sums_are_of_the_last_day_and_age_hour_by_hour() {
        let mut book = Book::default();
        let start = 1000 * DAY;
        for hour in 0..30 {
            book.note(&entry(start + hour * 3600, "a", Decision::Deny));
        }
        book.note(&entry(start + 29 * 3600, "b", Decision::Warn));
        book.note(&entry(start + 29 * 3600, "b", Decision::Audit));
        book.note(&entry(start + 29 * 3600, "c", Decision::Hold));
        book.age(at(start + 29 * 3600 + 3599));
        assert_eq!(book.last_day("kept"), LastDay { denied: 24, would_deny: 2, held: 1 });
        // The label has no status.
        assert_eq!(book.policies.len(), 1);
        assert_eq!(book.last_day("other"), LastDay::default());
        book.age(at(start + 29 * 3600 + DAY));
        assert_eq!(book, Book::default());
        // A clock that was years ahead does not stay for years.
        book.note(&entry(start + 9 * DAY, "a", Decision::Deny));
        book.age(at(start));
        assert_eq!(book, Book::default());
    }

    #[test]
    fn a_repetition_moves_up_and_pushes_nobody_out() {
        let mut book = Book::default();
        book.note(&entry(1000, "first", Decision::Deny));
        for second in 0..500 {
            book.note(&entry(1001 + second, "again", Decision::Deny));
        }
        assert_eq!(
            targets(&book),
            [(1500, "configmaps shop/again"), (1000, "configmaps shop/first")]
        );
        // After ten quiet minutes it is news, and so is another verdict.
        book.note(&entry(1500 + 601, "again", Decision::Deny));
        book.note(&entry(1500 + 602, "again", Decision::Hold));
        assert_eq!(book.recent("kept").len(), 4);
        assert_eq!(book.last_day("kept").denied, 502);
        for n in 0..50 {
            book.note(&entry(3000 + n, &format!("n{n}"), Decision::Deny));
        }
        let newest: Vec<_> = (0..10).map(|n| 3049 - n).collect();
        assert_eq!(targets(&book).into_iter().map(|(time, _)| time).collect::<Vec<_>>(), newest);
    }

    #[test]
    fn books_of_replicas_are_summed_in_either_order() {
        let (mut one, mut two) = (Book::default(), Book::default());
        for n in 0..8 {
            one.note(&entry(5000 + 2 * n, &format!("one{n}"), Decision::Deny));
            two.note(&entry(5001 + 2 * n, &format!("two{n}"), Decision::Deny));
        }
        two.note(&entry(5600, "one7", Decision::Deny));
        two.note(&entry(9000, "x", Decision::Hold));
        let (mut a, mut b) = (one.clone(), two.clone());
        a.merge(two);
        b.merge(one);
        assert_eq!(a, b);
        assert_eq!(a.last_day("kept"), LastDay { denied: 17, would_deny: 0, held: 1 });
        // What one replica said and another repeated stands there once.
        assert_eq!(targets(&a)[1], (5600, "configmaps shop/one7"));
        assert_eq!(targets(&a).iter().filter(|(_, t)| t.ends_with("one7")).count(), 1);
        assert_eq!(a.recent("kept").len(), NEWEST);
    }

    #[test]
    fn it_is_written_and_read_and_has_bounds() {
        let mut book = Book::default();
        for policy in 0..200 {
            for n in 0..12 {
                let mut entry = entry(3600 * policy + n, &format!("n{n}"), Decision::Deny);
                entry.policies = vec![Source::Policy(format!("p{policy}"))];
                entry.message = "ö".repeat(5000);
                book.note(&entry);
            }
        }
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<Book>(&text).unwrap(), book);
        assert!(text.len() < 200 * 10 * 500, "{}", text.len());
        let mut small = book.clone();
        small.fit(text.len());
        assert_eq!(small, book);
        small.fit(300_000);
        assert!(small.size() <= 300_000 && small.policies.len() == 200);
        assert_eq!(small.recent("p0").len(), 2);
        small.fit(2_000);
        assert!(small.size() <= 2_000);
        // The sums of what spoke last are the last to go.
        assert!(small.policies.contains_key("p199") && !small.policies.contains_key("p0"));
        small.keep(|name| name == "p199");
        assert_eq!(small.policies.len(), 1);
        small.fit(0);
    }
}
