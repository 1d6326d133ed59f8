//! The verdicts of each policy in the last day: counts by hour, and the most recent
//! verdicts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, shortened};
use crate::decide::Decision;
use crate::objects::{ObjectRef, order_by_turns};
use crate::policy::PolicySource;
use crate::policy::api::{LastDay, RecentVerdict};

const MAX_RECENT: usize = 10;

/// The same verdict for the same user and object within this time is a repetition.
const REPETITION_SECONDS: i64 = 600;

const HOURS_PER_DAY: i64 = 24;

const MAX_TEXT_BYTES: usize = 300;

/// The activity of all policies, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    policies: BTreeMap<String, PolicyActivity>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct PolicyActivity {
    /// The key counts hours since 1970.
    hours: BTreeMap<i64, LastDay>,
    /// Newest first.
    recent: Vec<RecentVerdict>,
}

impl Activity {
    pub fn record(&mut self, entry: &Entry) {
        let hour = hour(entry.time);
        for source in &entry.policies {
            // The label is not an object, so it has no status.
            let PolicySource::Policy(name) = source else { continue };
            let policy = self.policies.entry(name.clone()).or_default();
            let sums = policy.hours.entry(hour).or_default();
            match entry.decision {
                Decision::Deny => sums.denied = sums.denied.saturating_add(1),
                Decision::Warn | Decision::Audit => {
                    sums.would_deny = sums.would_deny.saturating_add(1);
                }
                Decision::Hold | Decision::Allow => {}
            }
            sums.held = sums.held.saturating_add(i64::from(entry.is_held));
            policy.recent.push(RecentVerdict {
                time: Time(entry.time),
                target: shortened(entry.target.to_string(), MAX_TEXT_BYTES),
                uid: Some(entry.uid.clone()).filter(|uid| !uid.is_empty()),
                verdict: entry.decision.as_str().to_owned(),
                reason: Some(entry.reason.as_str().to_owned()),
                user: shortened(entry.user.clone(), MAX_TEXT_BYTES),
                message: entry.message.clone(),
            });
            policy.sort_and_deduplicate();
        }
    }

    /// Adds the activity that another replica recorded.
    pub fn merge(&mut self, other: Self) {
        for (name, theirs) in other.policies {
            let policy = self.policies.entry(name).or_default();
            for (hour, sums) in theirs.hours {
                let mine = policy.hours.entry(hour).or_default();
                *mine = add(*mine, sums);
            }
            policy.recent.extend(theirs.recent);
            policy.sort_and_deduplicate();
        }
    }

    /// Also drops entries from the future, which a wrong clock may have written.
    pub fn drop_expired(&mut self, now: Timestamp) {
        let hours = hour(now) - HOURS_PER_DAY + 1..=hour(now) + 1;
        for policy in self.policies.values_mut() {
            policy.hours.retain(|hour, _| hours.contains(hour));
            policy.recent.retain(|recent| hours.contains(&hour(recent.time.0)));
        }
        self.policies.retain(|_, policy| !policy.hours.is_empty() || !policy.recent.is_empty());
    }

    pub fn retain_policies(&mut self, exists: impl Fn(&str) -> bool) {
        self.policies.retain(|name, _| exists(name));
    }

    /// Shrinks the JSON to at most this many bytes. It drops recent verdicts first, then the
    /// policies without verdicts for the longest time.
    pub fn shrink_to(&mut self, limit: usize) {
        for newest in [5, 2, 0] {
            if self.size() <= limit {
                return;
            }
            self.policies.values_mut().for_each(|policy| policy.shorten_recent(newest));
        }
        let last_hour =
            |policy: &PolicyActivity| policy.hours.last_key_value().map(|(hour, _)| *hour);
        while self.size() > limit {
            let mut names: Vec<_> = self
                .policies
                .iter()
                .map(|(name, policy)| (last_hour(policy), name.clone()))
                .collect();
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

    pub fn last_day(&self, policy: &str) -> LastDay {
        let hours = self.policies.get(policy).into_iter().flat_map(|policy| policy.hours.values());
        hours.fold(LastDay::default(), |sum, hour| add(sum, *hour))
    }

    pub fn recent(&self, policy: &str) -> &[RecentVerdict] {
        self.policies.get(policy).map_or(&[], |policy| &policy.recent)
    }
}

impl PolicyActivity {
    /// Repetitions count once, so that a client that retries does not push out other
    /// verdicts.
    fn sort_and_deduplicate(&mut self) {
        self.recent.sort_by_key(|recent| std::cmp::Reverse(recent.time.0));
        let mut distinct: Vec<RecentVerdict> = Vec::new();
        for recent in std::mem::take(&mut self.recent) {
            if !distinct.iter().any(|newer| is_repetition(&recent, newer)) {
                distinct.push(recent);
            }
        }
        self.recent = distinct;
        self.shorten_recent(MAX_RECENT);
    }

    /// Namespaces take turns, so that the users of one namespace can't push out the verdicts of
    /// others.
    fn shorten_recent(&mut self, limit: usize) {
        let kept = order_by_turns(&self.recent, limit, namespace).into_iter().take(limit);
        self.recent = kept.cloned().collect();
    }
}

fn namespace(recent: &RecentVerdict) -> String {
    ObjectRef::parse_display(&recent.target).namespace
}

fn is_repetition(older: &RecentVerdict, newer: &RecentVerdict) -> bool {
    older.user == newer.user
        && older.target == newer.target
        && (&older.verdict, &older.reason) == (&newer.verdict, &newer.reason)
        && newer.time.0.as_second() - older.time.0.as_second() <= REPETITION_SECONDS
}

fn add(one: LastDay, other: LastDay) -> LastDay {
    LastDay {
        denied: one.denied.saturating_add(other.denied),
        would_deny: one.would_deny.saturating_add(other.would_deny),
        held: one.held.saturating_add(other.held),
    }
}

fn hour(time: Timestamp) -> i64 {
    time.as_second().div_euclid(3600)
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;
    use crate::decide::Reason;

    const DAY: i64 = 86_400;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn targets(activity: &Activity) -> Vec<(i64, &str)> {
        activity.recent("kept").iter().map(|r| (r.time.0.as_second(), r.target.as_str())).collect()
    }

    #[test]
    fn sums_cover_the_last_day_and_expire_hour_by_hour() {
        let mut activity = Activity::default();
        let start = 1000 * DAY;
        for hour in 0..30 {
            activity.record(&entry(start + hour * 3600, "a", Decision::Deny));
        }
        activity.record(&entry(start + 29 * 3600, "b", Decision::Warn));
        activity.record(&entry(start + 29 * 3600, "b", Decision::Audit));
        activity.record(&entry(start + 29 * 3600, "c", Decision::Hold));
        activity.drop_expired(at(start + 29 * 3600 + 3599));
        assert_eq!(activity.last_day("kept"), LastDay { denied: 24, would_deny: 2, held: 1 });
        // The label has no status.
        assert_eq!(activity.policies.len(), 1);
        assert_eq!(activity.last_day("other"), LastDay::default());
        activity.drop_expired(at(start + 29 * 3600 + DAY));
        assert_eq!(activity, Activity::default());
        // An entry from the future is dropped.
        activity.record(&entry(start + 9 * DAY, "a", Decision::Deny));
        activity.drop_expired(at(start));
        assert_eq!(activity, Activity::default());
    }

    #[test]
    fn a_repetition_moves_up_and_drops_no_entry() {
        let mut activity = Activity::default();
        activity.record(&entry(1000, "first", Decision::Deny));
        for second in 0..500 {
            activity.record(&entry(1001 + second, "again", Decision::Deny));
        }
        assert_eq!(
            targets(&activity),
            [(1500, "configmaps shop/again"), (1000, "configmaps shop/first")]
        );
        // After ten minutes the same verdict is recorded again, and so is another
        // verdict.
        activity.record(&entry(1500 + 601, "again", Decision::Deny));
        activity.record(&entry(1500 + 602, "again", Decision::Hold));
        assert_eq!(activity.recent("kept").len(), 4);
        // The same user is denied for another reason in the same second.
        let guarded = entry(1500 + 601, "again", Decision::Deny);
        activity.record(&Entry { reason: Reason::FinalizerGuarded, ..guarded });
        assert_eq!(activity.recent("kept").len(), 5);
        assert_eq!(activity.last_day("kept").denied, 503);
        for n in 0..50 {
            activity.record(&entry(3000 + n, &format!("n{n}"), Decision::Deny));
        }
        let newest: Vec<_> = (0..10).map(|n| 3049 - n).collect();
        assert_eq!(
            targets(&activity).into_iter().map(|(time, _)| time).collect::<Vec<_>>(),
            newest
        );
    }

    #[test]
    fn h123_one_namespace_does_not_push_out_the_verdicts_of_others() {
        let mut activity = Activity::default();
        let deny =
            |activity: &mut Activity, second, resource: &str, namespace: &str, name: &str| {
                let mut entry = entry(second, name, Decision::Deny);
                entry.target.resource = resource.into();
                entry.target.namespace = namespace.into();
                activity.record(&entry);
            };
        deny(&mut activity, 1, "configmaps", "prod", "s");
        deny(&mut activity, 2, "persistentvolumes", "", "v");
        for n in 0..30 {
            deny(&mut activity, 10 + n, "configmaps", "eve", &format!("f{n}"));
        }
        let listed = targets(&activity);
        assert_eq!(listed.len(), MAX_RECENT);
        assert_eq!(listed[8..], [(2, "persistentvolumes v"), (1, "configmaps prod/s")]);
        assert_eq!(listed[7], (32, "configmaps eve/f22"));
        // When others need entries, the namespace keeps its three newest.
        for n in 0..5 {
            let (namespace, name) = (format!("team{n}"), format!("x{n}"));
            deny(&mut activity, 50 + n, "configmaps", &namespace, &name);
        }
        let listed = targets(&activity);
        let of_eve: Vec<_> = listed.iter().filter(|(_, t)| t.contains(" eve/")).collect();
        assert_eq!(listed.len(), MAX_RECENT);
        let newest =
            [(39, "configmaps eve/f29"), (38, "configmaps eve/f28"), (37, "configmaps eve/f27")];
        assert_eq!(of_eve, newest.iter().collect::<Vec<_>>());
        assert_eq!(listed[9], (1, "configmaps prod/s"));
        // The same applies when a replica merges the verdicts of another.
        let mut other = Activity::default();
        for n in 0..10 {
            deny(&mut other, 100 + n, "configmaps", "eve", &format!("g{n}"));
        }
        activity.merge(other);
        assert_eq!(targets(&activity)[9], (1, "configmaps prod/s"));
    }

    #[test]
    fn activities_of_replicas_are_summed_in_either_order() {
        let (mut one, mut two) = (Activity::default(), Activity::default());
        for n in 0..8 {
            one.record(&entry(5000 + 2 * n, &format!("one{n}"), Decision::Deny));
            two.record(&entry(5001 + 2 * n, &format!("two{n}"), Decision::Deny));
        }
        two.record(&entry(5600, "one7", Decision::Deny));
        two.record(&entry(9000, "x", Decision::Hold));
        let (mut a, mut b) = (one.clone(), two.clone());
        a.merge(two);
        b.merge(one);
        assert_eq!(a, b);
        assert_eq!(a.last_day("kept"), LastDay { denied: 17, would_deny: 0, held: 1 });
        // A verdict that two replicas recorded appears once.
        assert_eq!(targets(&a)[1], (5600, "configmaps shop/one7"));
        assert_eq!(targets(&a).iter().filter(|(_, t)| t.ends_with("one7")).count(), 1);
        assert_eq!(a.recent("kept").len(), MAX_RECENT);
    }

    #[test]
    fn serializes_and_shrinks_to_a_limit() {
        let mut activity = Activity::default();
        for policy in 0..200 {
            for n in 0..12 {
                let mut entry = entry(3600 * policy + n, &format!("n{n}"), Decision::Deny);
                entry.policies = vec![PolicySource::Policy(format!("p{policy}"))];
                entry.message = "ö".repeat(500);
                activity.record(&entry);
            }
        }
        let text = serde_json::to_string(&activity).unwrap();
        assert_eq!(serde_json::from_str::<Activity>(&text).unwrap(), activity);
        assert!(text.len() < 200 * 10 * 1_300, "{}", text.len());
        let mut small = activity.clone();
        small.shrink_to(text.len());
        assert_eq!(small, activity);
        small.shrink_to(600_000);
        assert!(small.size() <= 600_000 && small.policies.len() == 200);
        assert_eq!(small.recent("p0").len(), 2);
        small.shrink_to(2_000);
        assert!(small.size() <= 2_000);
        // The counts of the most recently active policy are dropped last.
        assert!(small.policies.contains_key("p199") && !small.policies.contains_key("p0"));
        small.retain_policies(|name| name == "p199");
        assert_eq!(small.policies.len(), 1);
        small.shrink_to(0);
    }
}
