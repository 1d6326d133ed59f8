//! Verdicts on reviews that belay can't judge, because the review is unreadable, or data is
//! missing or late.

use super::causes::is_in_other_namespace;
use super::{
    AdmissionPhase, Blocker, Cause, Decision, DenialStatus, LiveRead, NextStep, Reason, Review,
    Verdict,
};
use crate::objects::{ObjectRef, and_more, full_name, in_namespace, quote_if_ambiguous};

/// The decision for unreadable reviews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailurePolicy {
    /// Refuse the request.
    #[value(name = "Fail", alias = "fail")]
    Fail,
    /// Let the request pass.
    #[value(name = "Ignore", alias = "ignore")]
    Ignore,
}

/// The verdict on an unreadable review. `detail` describes the error.
pub fn decide_unreadable(target: ObjectRef, detail: String, policy: FailurePolicy) -> Verdict {
    match policy {
        FailurePolicy::Fail => deny_without_policy(target, Cause::Unknown(detail, None)),
        FailurePolicy::Ignore => Verdict::allow(target),
    }
}

/// The verdict on a review that belay can't judge now; `what` gives the reason. The
/// mutating phase allows the request, because it only adds holds and the validating
/// phase follows.
pub fn decide_unknown(review: &Review<'_>, what: String) -> Verdict {
    decide_unknown_with(review, what, Some(NextStep::Retry))
}

/// Like [`decide_unknown`], with this next step.
pub(super) fn decide_unknown_with(
    review: &Review<'_>,
    what: String,
    next: Option<NextStep>,
) -> Verdict {
    let resource = &review.resource;
    let is_eviction = resource.resource == "pods" && resource.subresource == "eviction";
    match review.phase {
        AdmissionPhase::Mutate => Verdict::allow(review.target()),
        AdmissionPhase::Validate => Verdict {
            denial_status: if is_eviction {
                DenialStatus::TooManyRequests
            } else {
                DenialStatus::Forbidden
            },
            ..deny_without_policy(review.target(), Cause::NotEvaluated(what, next))
        },
    }
}

/// The final verdict when there is no time for the reads that it still needs. A denial
/// stays, and any other verdict becomes a denial.
pub fn decide_unconfirmed(review: &Review<'_>, verdict: Verdict) -> Verdict {
    if verdict.decision == Decision::Deny {
        return Verdict { needed_reads: Vec::new(), ..verdict };
    }
    let Some(first) = verdict.needed_reads.first() else { return verdict };
    let others = and_more(verdict.needed_reads.len() - 1, "read");
    let what = format!(
        "there was no time left for the live read of {}{others}",
        describe_read(first, &verdict.target)
    );
    decide_unknown(review, what)
}

/// A description of a read, with names as kubectl prints them.
fn describe_read(read: &LiveRead, target: &ObjectRef) -> String {
    let (group, resource, namespace, name) = match read {
        LiveRead::Object(ObjectRef { group, resource, namespace, name, .. }) => {
            (group, resource, namespace, format!(" {}", quote_if_ambiguous(name)))
        }
        LiveRead::List { group, resource, namespace, .. } => {
            (group, resource, namespace, String::new())
        }
    };
    if is_in_other_namespace(target.own_namespace(), namespace) {
        return "objects in another namespace".to_owned();
    }
    format!("{}{name}{}", full_name(group, resource), in_namespace(&quote_if_ambiguous(namespace)))
}

fn deny_without_policy(target: ObjectRef, cause: Cause) -> Verdict {
    // belay evaluated no policy.
    let blocker = Blocker {
        causes: vec![cause],
        required_approvals: 0,
        ..Blocker::new(Decision::Deny, Reason::Unknown, target.clone())
    };
    Verdict::from_blockers(target, vec![blocker])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::ListPart;
    use crate::decide::{DeleteOptions, Operation, Resource, ReviewDetails, message};
    use crate::policy::Requester;

    fn review(phase: AdmissionPhase, subresource: &'static str) -> Review<'static> {
        Review {
            uid: "1".into(),
            phase,
            operation: Operation::Delete,
            resource: Resource {
                group: "".into(),
                resource: "pods".into(),
                subresource: subresource.into(),
            },
            name: "p".into(),
            namespace: "db".into(),
            requester: Requester::default(),
            dry_run: false,
            options: DeleteOptions::default(),
            object: None,
            old_object: None,
            details: ReviewDetails::default(),
            labelled: false,
        }
    }

    fn verdict(decision: Decision, reads: usize) -> Verdict {
        let read = LiveRead::List {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "db".to_owned(),
            part: ListPart::All,
        };
        let allow = Verdict::allow(ObjectRef::default());
        Verdict { decision, needed_reads: vec![read; reads], ..allow }
    }

    #[test]
    fn an_unconfirmed_verdict_denies_and_a_denial_stays() {
        let review = review(AdmissionPhase::Validate, "");
        for decision in [Decision::Allow, Decision::Audit, Decision::Warn, Decision::Hold] {
            let unconfirmed = decide_unconfirmed(&review, verdict(decision, 3));
            assert_eq!(
                (unconfirmed.decision, unconfirmed.reason),
                (Decision::Deny, Some(Reason::Unknown))
            );
            assert_eq!(
                message(&unconfirmed).unwrap(),
                "belay can't check this request for pods \"p\": there was no time left for the live read of \
                 deployments.apps in namespace db and 2 more reads. Try again."
            );
            let confirmed = verdict(decision, 0);
            assert_eq!(decide_unconfirmed(&review, confirmed.clone()), confirmed);
        }
        let denied = decide_unconfirmed(&review, verdict(Decision::Deny, 1));
        assert_eq!(denied, verdict(Decision::Deny, 0));
    }

    #[test]
    fn h152_the_name_of_an_owner_that_was_not_read_has_quotation_marks() {
        let review = review(AdmissionPhase::Validate, "");
        let name = "x. To delete it, first delete Namespace prod.";
        let owner = LiveRead::Object(ObjectRef::new(("", "pods"), "db", name));
        let verdict = Verdict { needed_reads: vec![owner], ..Verdict::allow(review.target()) };
        let late = message(&decide_unconfirmed(&review, verdict)).unwrap();
        assert!(
            late.contains(&format!("the live read of pods {name:?} in namespace db")),
            "{late}"
        );
    }

    #[test]
    fn an_unknown_review_is_allowed_in_the_mutating_phase_and_an_eviction_is_retried() {
        let what = || "the weather".to_owned();
        let allowed = decide_unknown(&review(AdmissionPhase::Mutate, ""), what());
        assert_eq!(allowed, Verdict::allow(review(AdmissionPhase::Mutate, "").target()));
        let verdict = decide_unknown(&review(AdmissionPhase::Validate, "eviction"), what());
        assert_eq!(
            (verdict.decision, verdict.denial_status),
            (Decision::Deny, DenialStatus::TooManyRequests)
        );
        let verdict = decide_unknown(&review(AdmissionPhase::Validate, ""), what());
        assert_eq!(verdict.denial_status, DenialStatus::Forbidden);
    }
}
