//! Decides which status is written when.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::policies::StoredPolicy;
use crate::policy::api::DeletionPolicyStatus;

/// The policies and their last known status.
#[derive(Debug)]
pub(super) struct StatusWriter {
    all: BTreeMap<String, StatusSheet>,
    /// How often sums and counts of one policy are written.
    every: Duration,
}

#[derive(Debug)]
struct StatusSheet {
    /// What the policy had when it was read last.
    seen: DeletionPolicyStatus,
    /// What it has, as far as is known: our own writes count before they are
    /// read back.
    known: DeletionPolicyStatus,
    /// When it was written last.
    written: Option<Duration>,
}

impl StatusWriter {
    /// None yet.
    pub(super) fn new(every: Duration) -> Self {
        Self { all: BTreeMap::new(), every }
    }

    /// Stores the policies that were read and forgets deleted ones.
    pub(super) fn read(&mut self, policies: &BTreeMap<String, StoredPolicy>) {
        self.all.retain(|name, _| policies.contains_key(name));
        for (name, policy) in policies {
            let seen = &policy.status;
            match self.all.get_mut(name) {
                None => {
                    let sheet =
                        StatusSheet { seen: seen.clone(), known: seen.clone(), written: None };
                    self.all.insert(name.clone(), sheet);
                }
                Some(sheet) if sheet.seen != *seen => {
                    sheet.seen = seen.clone();
                    sheet.known = seen.clone();
                }
                Some(_) => {}
            }
        }
    }

    /// The last known status of a policy.
    pub(super) fn known(&self, name: &str) -> Option<&DeletionPolicyStatus> {
        self.all.get(name).map(|sheet| &sheet.known)
    }

    /// Whether a status is to be written now, and how soon: conditions at once,
    /// before what can wait.
    pub(super) fn urgency(
        &self,
        name: &str,
        wanted: &DeletionPolicyStatus,
        now: Duration,
    ) -> Option<Urgency> {
        let StatusSheet { known, written, .. } = self.all.get(name)?;
        if known == wanted {
            return None;
        }
        let at_once = known.conditions != wanted.conditions
            || known.observed_generation != wanted.observed_generation
            || known.not_held != wanted.not_held
            || known.unknown_kinds != wanted.unknown_kinds;
        if at_once {
            return Some(Urgency::AtOnce);
        }
        match written {
            Some(time) if *time + self.every > now => None,
            time => Some(Urgency::Since(*time)),
        }
    }

    /// Called after a write.
    pub(super) fn record_write(&mut self, name: &str, status: DeletionPolicyStatus, now: Duration) {
        if let Some(sheet) = self.all.get_mut(name) {
            sheet.known = status;
            sheet.written = Some(now);
        }
    }

    /// It was not there to be written.
    pub(super) fn forget(&mut self, name: &str) {
        self.all.remove(name);
    }
}

/// How soon a status is written, the soonest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// A condition has changed.
    AtOnce,
    /// Numbers have; what was written longest ago comes first.
    Since(Option<Duration>),
}

/// The merge patch of a status. A field that is left out where it is empty is
/// named all the same, or what stood in it would stay.
pub(super) fn patch(status: &DeletionPolicyStatus) -> Result<Value, serde_json::Error> {
    let empty = [
        "conditions",
        "observedGeneration",
        "holdsEffectiveTime",
        "notHeld",
        "unknownKinds",
        "recent",
    ];
    let mut fields: Map<String, Value> =
        empty.into_iter().map(|field| (field.to_owned(), Value::Null)).collect();
    if let Value::Object(given) = serde_json::to_value(status)? {
        fields.extend(given);
    }
    Ok(json!({"status": fields}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::api::LastDay;

    fn policies(status: &DeletionPolicyStatus) -> BTreeMap<String, StoredPolicy> {
        let policy = StoredPolicy { status: status.clone(), ..StoredPolicy::default() };
        BTreeMap::from([("a".to_owned(), policy)])
    }

    #[test]
    fn numbers_wait_and_conditions_do_not() {
        let (second, empty) = (Duration::from_secs(1), DeletionPolicyStatus::default());
        let mut sheets = StatusWriter::new(Duration::from_secs(5));
        assert_eq!(sheets.urgency("a", &empty, second), None);
        sheets.read(&policies(&empty));
        assert_eq!(sheets.urgency("a", &empty, second), None);
        let denied = |denied| DeletionPolicyStatus {
            last_24h: LastDay { denied, ..LastDay::default() },
            ..DeletionPolicyStatus::default()
        };
        assert_eq!(sheets.urgency("a", &denied(1), second), Some(Urgency::Since(None)));
        sheets.record_write("a", denied(1), second);
        assert_eq!(sheets.urgency("a", &denied(1), second), None);
        assert_eq!(sheets.urgency("a", &denied(2), second * 5), None);
        let later = sheets.urgency("a", &denied(2), second * 6);
        assert_eq!(later, Some(Urgency::Since(Some(second))));
        let mut changed = denied(2);
        changed.observed_generation = Some(2);
        let at_once = sheets.urgency("a", &changed, second);
        assert!(at_once == Some(Urgency::AtOnce) && at_once < later);
    }

    #[test]
    fn corrects_foreign_writes_and_ignores_old_reads() {
        let now = Duration::from_secs(100);
        let of = |held_objects| DeletionPolicyStatus { held_objects, ..Default::default() };
        let mut sheets = StatusWriter::new(Duration::from_secs(5));
        sheets.read(&policies(&of(0)));
        sheets.record_write("a", of(1), now);
        // The write has not been read back yet.
        sheets.read(&policies(&of(0)));
        assert_eq!(sheets.known("a"), Some(&of(1)));
        sheets.read(&policies(&of(1)));
        assert_eq!(sheets.urgency("a", &of(1), now * 2), None);
        sheets.read(&policies(&of(9)));
        assert!(sheets.urgency("a", &of(1), now * 2).is_some());
        sheets.read(&BTreeMap::new());
        assert_eq!(sheets.known("a"), None);
    }

    #[test]
    fn what_is_empty_is_taken_out_by_name() {
        let status = patch(&DeletionPolicyStatus::default()).unwrap()["status"].clone();
        for field in ["conditions", "holdsEffectiveTime", "notHeld", "unknownKinds", "recent"] {
            assert!(status.get(field).is_some_and(Value::is_null), "{field}");
        }
        assert_eq!(status["last24h"], json!({"denied": 0, "wouldDeny": 0, "held": 0}));
        let full = DeletionPolicyStatus {
            unknown_kinds: vec!["gadgets.example.com".to_owned()],
            observed_generation: Some(4),
            ..DeletionPolicyStatus::default()
        };
        let status = patch(&full).unwrap()["status"].clone();
        assert_eq!(status["unknownKinds"], json!(["gadgets.example.com"]));
        assert_eq!(status["observedGeneration"], json!(4));
    }
}
