//! Decides which status is written when.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::policies::StoredPolicy;
use crate::policy::api::DeletionPolicyStatus;

/// The policies and their last known status.
#[derive(Debug)]
pub(super) struct StatusWriter {
    statuses: BTreeMap<String, PolicyStatus>,
    /// The minimum time between two writes of changed numbers of one policy.
    interval: Duration,
}

#[derive(Debug)]
struct PolicyStatus {
    /// The status when the policy was read last.
    seen: DeletionPolicyStatus,
    /// The newest known status. belay's own write replaces it before belay reads the write back.
    known: DeletionPolicyStatus,
    /// When belay wrote the status last.
    written: Option<Duration>,
}

impl StatusWriter {
    pub(super) fn new(interval: Duration) -> Self {
        Self { statuses: BTreeMap::new(), interval }
    }

    /// Stores the policies that were read, and removes deleted ones.
    pub(super) fn record_read(&mut self, policies: &BTreeMap<String, StoredPolicy>) {
        self.statuses.retain(|name, _| policies.contains_key(name));
        for (name, policy) in policies {
            let seen = &policy.status;
            match self.statuses.get_mut(name) {
                None => {
                    let status =
                        PolicyStatus { seen: seen.clone(), known: seen.clone(), written: None };
                    self.statuses.insert(name.clone(), status);
                }
                Some(status) if status.seen != *seen => {
                    status.seen = seen.clone();
                    status.known = seen.clone();
                }
                Some(_) => {}
            }
        }
    }

    /// The last known status of a policy.
    pub(super) fn known(&self, name: &str) -> Option<&DeletionPolicyStatus> {
        self.statuses.get(name).map(|status| &status.known)
    }

    /// Whether to write a status now, and in which order.
    pub(super) fn urgency(
        &self,
        name: &str,
        wanted: &DeletionPolicyStatus,
        now: Duration,
    ) -> Option<Urgency> {
        let PolicyStatus { known, written, .. } = self.statuses.get(name)?;
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
            Some(time) if *time + self.interval > now => None,
            time => Some(Urgency::Since(*time)),
        }
    }

    /// Called after a write.
    pub(super) fn record_write(&mut self, name: &str, status: DeletionPolicyStatus, now: Duration) {
        if let Some(policy) = self.statuses.get_mut(name) {
            policy.known = status;
            policy.written = Some(now);
        }
    }

    /// Forgets a policy that no longer exists.
    pub(super) fn remove(&mut self, name: &str) {
        self.statuses.remove(name);
    }
}

/// How urgent a write is. The most urgent one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// `conditions`, `observedGeneration`, `notHeld` or `unknownKinds` have changed.
    AtOnce,
    /// Only other fields have changed, such as counts. The status with the oldest last write comes
    /// first.
    Since(Option<Duration>),
}

/// The merge patch of a status. Serialization omits some empty fields. The patch contains them
/// with null, so that their old values are removed.
pub(super) fn patch(status: &DeletionPolicyStatus) -> Result<Value, serde_json::Error> {
    let omitted_if_empty = [
        "conditions",
        "observedGeneration",
        "holdsEffectiveTime",
        "notHeld",
        "unknownKinds",
        "recent",
    ];
    let mut fields: Map<String, Value> =
        omitted_if_empty.into_iter().map(|field| (field.to_owned(), Value::Null)).collect();
    if let Value::Object(present) = serde_json::to_value(status)? {
        fields.extend(present);
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
        let mut writer = StatusWriter::new(Duration::from_secs(5));
        assert_eq!(writer.urgency("a", &empty, second), None);
        writer.record_read(&policies(&empty));
        assert_eq!(writer.urgency("a", &empty, second), None);
        let denied = |denied| DeletionPolicyStatus {
            last_24h: LastDay { denied, ..LastDay::default() },
            ..DeletionPolicyStatus::default()
        };
        assert_eq!(writer.urgency("a", &denied(1), second), Some(Urgency::Since(None)));
        writer.record_write("a", denied(1), second);
        assert_eq!(writer.urgency("a", &denied(1), second), None);
        assert_eq!(writer.urgency("a", &denied(2), second * 5), None);
        let later = writer.urgency("a", &denied(2), second * 6);
        assert_eq!(later, Some(Urgency::Since(Some(second))));
        let mut changed = denied(2);
        changed.observed_generation = Some(2);
        let at_once = writer.urgency("a", &changed, second);
        assert!(at_once == Some(Urgency::AtOnce) && at_once < later);
    }

    #[test]
    fn corrects_foreign_writes_and_ignores_old_reads() {
        let now = Duration::from_secs(100);
        let status = |held_objects| DeletionPolicyStatus { held_objects, ..Default::default() };
        let mut writer = StatusWriter::new(Duration::from_secs(5));
        writer.record_read(&policies(&status(0)));
        writer.record_write("a", status(1), now);
        // The write has not been read back yet.
        writer.record_read(&policies(&status(0)));
        assert_eq!(writer.known("a"), Some(&status(1)));
        writer.record_read(&policies(&status(1)));
        assert_eq!(writer.urgency("a", &status(1), now * 2), None);
        writer.record_read(&policies(&status(9)));
        assert!(writer.urgency("a", &status(1), now * 2).is_some());
        writer.record_read(&BTreeMap::new());
        assert_eq!(writer.known("a"), None);
    }

    #[test]
    fn empty_fields_are_removed_with_null() {
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
