//! One verdict, as the journal records it.

use jiff::Timestamp;

use crate::decide::{
    Blocker, Decision, Reason, Recordable, Review, Verdict, audit_annotations, message, warnings,
};
use crate::objects::{ObjectRef, one_line_name};
use crate::policy::PolicySource;

/// The message of an Event may have at most 1024 bytes.
const MAX_MESSAGE_BYTES: usize = 1000;

/// One outcome of one request. A verdict has several outcomes when its policies act
/// differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// In whole seconds.
    pub time: Timestamp,
    pub target: ObjectRef,
    /// Empty if the review does not contain it.
    pub uid: String,
    /// Never Allow.
    pub decision: Decision,
    pub reason: Reason,
    pub policies: Vec<PolicySource>,
    pub user: String,
    /// The message for Events and the status.
    pub message: String,
    /// Whether the object is known to exist.
    pub proved: bool,
    /// Whether the hold keeps the object after the accepted DELETE. During a Pause, the decision
    /// may be Audit then.
    pub is_held: bool,
}

impl Entry {
    /// One entry for each outcome of a final verdict. Allowed requests and dry runs have
    /// none.
    pub fn from_verdict(review: &Review<'_>, verdict: &Verdict, now: Timestamp) -> Vec<Self> {
        if review.dry_run || verdict.decision == Decision::Allow {
            return Vec::new();
        }
        let outcomes = [Decision::Deny, Decision::Hold, Decision::Warn, Decision::Audit];
        let outcomes = outcomes.into_iter().filter(|outcome| {
            // An object whose deletion is denied is not held.
            *outcome != Decision::Hold || verdict.decision == Decision::Hold
        });
        outcomes.filter_map(|outcome| Self::for_outcome(review, verdict, outcome, now)).collect()
    }

    fn for_outcome(
        review: &Review<'_>,
        verdict: &Verdict,
        outcome: Decision,
        now: Timestamp,
    ) -> Option<Self> {
        let has_outcome = |blocker: &&Blocker| blocker.decision == outcome;
        let blockers: Vec<Blocker> = verdict.blockers.iter().filter(has_outcome).cloned().collect();
        let mut policies: Vec<PolicySource> =
            blockers.iter().flat_map(|blocker| blocker.policies.iter().cloned()).collect();
        policies.sort_unstable();
        policies.dedup();
        let is_held = blockers.iter().any(|blocker| verdict.keeps_by_hold(blocker));
        let part = Verdict::from_blockers(verdict.target.clone(), blockers);
        // Only the deciding outcome gets the advice of the verdict. The Event names no approvers.
        let part = match outcome == verdict.decision {
            true => Verdict {
                blockers: part.blockers,
                ineffective_approvals: Vec::new(),
                ..verdict.clone()
            },
            false => part,
        };
        Some(Self {
            time: to_the_second(now),
            uid: uid(review, &verdict.target),
            decision: outcome,
            reason: part.reason?,
            policies,
            user: one_line_name(&review.requester.name).into_owned(),
            message: shortened_message(message_text(&part), MAX_MESSAGE_BYTES),
            proved: verdict.recordable == Recordable::Confirmed,
            is_held,
            target: part.target,
        })
    }
}

impl Entry {
    /// Whether a DeletionPolicy is a reason. Its status then lists the verdict.
    pub fn names_policy(&self) -> bool {
        self.policies.iter().any(|source| matches!(source, PolicySource::Policy(_)))
    }
}

/// The uid of the target, if the review contains the target itself. The review of an eviction
/// contains an Eviction instead.
fn uid(review: &Review<'_>, target: &ObjectRef) -> String {
    let resource = &review.resource;
    let is_target = resource.group == target.group.as_str()
        && resource.resource == target.resource.as_str()
        && resource.subresource != "eviction";
    let object = review.old_object.as_ref().or(review.object.as_ref());
    object.filter(|_| is_target).map(|object| object.metadata.uid.to_string()).unwrap_or_default()
}

/// The message that the user receives, or would receive if the policy were enforced.
fn message_text(verdict: &Verdict) -> String {
    let text = match verdict.decision {
        Decision::Deny => message(verdict),
        Decision::Hold => warnings(verdict).pop(),
        Decision::Warn | Decision::Audit | Decision::Allow => audit_annotations(verdict)
            .into_iter()
            .find_map(|(key, value)| (key == "would-deny").then_some(value)),
    };
    text.unwrap_or_default()
}

/// Cuts a text to at most this many bytes.
pub(super) fn shortened(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

/// Cuts a text after a whole sentence, so that it cuts no command, or else after a word.
pub(super) fn shortened_message(text: String, limit: usize) -> String {
    let short = shortened(text, limit);
    let start = short.strip_suffix('…').and_then(|cut| {
        let end = cut.rfind(". ").map(|end| end + 1).or_else(|| cut.rfind(' '))?;
        Some(&cut[..end])
    });
    start.map(|start| format!("{start} …")).unwrap_or(short)
}

/// Kubernetes stores whole seconds, so times that are compared with stored ones need the
/// same precision.
pub(in crate::cluster) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::decide::{
        AdmissionPhase, Cause, DeleteOptions, ObjectName, Operation, Resource, ReviewDetails,
        decide_unreadable,
    };
    use crate::objects::Object;
    use crate::policy::Requester;

    fn review<'a>(object: Object<'a>, dry_run: bool) -> Review<'a> {
        Review {
            uid: "1".into(),
            phase: AdmissionPhase::Validate,
            operation: Operation::Delete,
            resource: Resource { resource: "configmaps".into(), ..Resource::default() },
            name: "settings".into(),
            namespace: "shop".into(),
            requester: Requester { name: "alice".into(), groups: Default::default() },
            dry_run,
            options: DeleteOptions::default(),
            object: None,
            old_object: Some(object),
            details: ReviewDetails::default(),
            labelled: false,
        }
    }

    fn blocker(outcome: Decision, reason: Reason, policy: &str, target: &ObjectRef) -> Blocker {
        let pod =
            ObjectName { kind: "Pod".into(), object: ObjectRef::new(("", "pods"), "shop", "web") };
        let cause = match reason {
            Reason::InUse => Cause::User { owner: pod, user: None, path: "spec".into() },
            _ => Cause::Always,
        };
        Blocker {
            policies: vec![PolicySource::Policy(policy.to_owned())],
            causes: vec![cause],
            ..Blocker::new(outcome, reason, target.clone())
        }
    }

    #[test]
    fn a_verdict_has_one_entry_for_each_outcome() {
        let object: Object<'_> =
            serde_json::from_str(r#"{"metadata": {"name": "settings", "uid": "u-1"}}"#).unwrap();
        let review = review(object, false);
        let target = review.target();
        let blockers = vec![
            blocker(Decision::Deny, Reason::Protected, "b", &target),
            blocker(Decision::Deny, Reason::Protected, "a", &target),
            blocker(Decision::Hold, Reason::InUse, "held", &target),
            blocker(Decision::Warn, Reason::InUse, "new", &target),
        ];
        let verdict = Verdict::from_blockers(target.clone(), blockers.clone());
        let now = Timestamp::from_millisecond(1_700_000_000_900).unwrap();
        let entries = Entry::from_verdict(&review, &verdict, now);
        let [denied, warned] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(denied.decision, Decision::Deny);
        assert_eq!(denied.reason, Reason::Protected);
        assert_eq!(denied.policies, ["a", "b"].map(|name| PolicySource::Policy(name.to_owned())));
        assert_eq!((denied.uid.as_str(), denied.user.as_str()), ("u-1", "alice"));
        assert_eq!(denied.time, Timestamp::from_second(1_700_000_000).unwrap());
        assert!(denied.message.starts_with("configmaps \"settings\" is protected; policies b, a."));
        assert_eq!(warned.decision, Decision::Warn);
        assert!(warned.message.contains("in use by Pod shop/web"), "{}", warned.message);

        // The message has the advice of the answer. Here the hold is too new.
        let young = Verdict::from_blockers(
            target.clone(),
            vec![blocker(Decision::Deny, Reason::InUse, "held", &target)],
        );
        let young = Verdict { retry_seconds: Some(31), ..young };
        let entries = Entry::from_verdict(&review, &young, now);
        assert!(entries[0].message.contains("To delete it, retry in 31 s"), "{entries:?}");

        let held = Verdict::from_blockers(target.clone(), blockers[2..].to_vec());
        let entries = Entry::from_verdict(&review, &held, now);
        assert_eq!([entries[0].is_held, entries[1].is_held], [true, false]);
        assert_eq!(entries[0].decision, Decision::Hold);
        assert!(entries[0].message.contains("stays Terminating until"), "{}", entries[0].message);

        // During a Pause, belay denies nothing, and the hold remains.
        let paused =
            Blocker { held: true, ..blocker(Decision::Audit, Reason::Protected, "held", &target) };
        let paused = Verdict::from_blockers(target, vec![paused]);
        let entries = Entry::from_verdict(&review, &paused, now);
        assert_eq!((entries[0].decision, entries[0].is_held), (Decision::Audit, true));
    }

    #[test]
    fn allowed_requests_and_dry_runs_are_not_recorded() {
        let object = || serde_json::from_str::<Object<'_>>(r#"{"metadata": {}}"#).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let asked = review(object(), false);
        assert_eq!(Entry::from_verdict(&asked, &Verdict::allow(asked.target()), now), []);
        let fail = crate::decide::FailurePolicy::Fail;
        let denied = decide_unreadable(asked.target(), "it is torn".into(), fail);
        assert_eq!(Entry::from_verdict(&asked, &denied, now).len(), 1);
        assert_eq!(Entry::from_verdict(&review(object(), true), &denied, now), []);
    }

    #[test]
    fn the_uid_of_an_eviction_is_not_used() {
        let object: Object<'_> = serde_json::from_str(r#"{"metadata": {"uid": "e-1"}}"#).unwrap();
        let mut review = review(object, false);
        review.resource.resource = "pods".into();
        let target = review.target();
        assert_eq!(uid(&review, &target), "e-1");
        review.resource.subresource = "eviction".into();
        assert_eq!(uid(&review, &target), "");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("äöü".to_owned(), 6), "äöü");
        assert_eq!(shortened("äöüß".to_owned(), 6), "ä…");
        assert_eq!(shortened("abcdef".to_owned(), 5), "ab…");
        let message = "It is used. Details: kubectl belay why x".to_owned();
        assert_eq!(shortened_message(message.clone(), 30), "It is used. …");
        assert_eq!(shortened_message(message.clone(), 99), message);
    }

    /// An entry about a ConfigMap.
    pub(in crate::cluster) fn entry(second: i64, name: &str, decision: Decision) -> Entry {
        Entry {
            proved: true,
            is_held: decision == Decision::Hold,
            time: Timestamp::from_second(second).unwrap(),
            target: ObjectRef {
                resource: "configmaps".into(),
                namespace: "shop".into(),
                name: name.into(),
                ..ObjectRef::default()
            },
            uid: format!("uid-of-{name}"),
            decision,
            reason: Reason::Protected,
            policies: vec![PolicySource::Policy("kept".into()), PolicySource::Label("Always")],
            user: "alice".into(),
            message: "it is protected".into(),
        }
    }
}
