//! Counts and logs a verdict.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::Shared;
use crate::decide::{AdmissionPhase, Blocker, Decision, Reason, Recordable, Verdict, causes};
use crate::objects::one_line_name;
use crate::policy::PolicySource;
use crate::telemetry::{LineLimit, NamespaceLineLimit, ReviewLabels};

/// The data of a request for metrics and logs.
pub(super) struct ReviewSummary {
    pub(super) phase: AdmissionPhase,
    pub(super) operation: &'static str,
    pub(super) class: &'static str,
    pub(super) user: String,
    pub(super) dry_run: bool,
}

pub(super) fn record_verdict(
    shared: &Shared,
    summary: &ReviewSummary,
    verdict: &Verdict,
    took: Duration,
) {
    let ReviewSummary { phase, operation, class, user, dry_run } = summary;
    let labels = ReviewLabels {
        webhook: phase.as_str(),
        operation,
        verdict: verdict.decision.as_str(),
        action: action(verdict),
        subject_class: class,
    };
    shared.metrics.count_answered(&labels, took);
    if verdict.recordable == Recordable::No {
        return;
    }
    for (policy, reason, outcome) in policy_outcomes(verdict) {
        shared.metrics.count_denied(&policy, reason.as_str(), outcome.as_str());
    }
    let message = match verdict.decision {
        Decision::Allow => return,
        Decision::Audit => "would be denied, recorded",
        Decision::Warn => "would be denied, warned",
        Decision::Hold => "held",
        Decision::Deny => "denied",
    };
    static UNCONFIRMED: LineLimit = LineLimit::new();
    static CONFIRMED: LazyLock<NamespaceLineLimit> = LazyLock::new(NamespaceLineLimit::default);
    let now = Instant::now();
    let admitted = match verdict.recordable {
        Recordable::Unconfirmed => UNCONFIRMED.admit_log_line(now),
        _ => CONFIRMED.admit_log_line(&verdict.target.namespace, now),
    };
    let Some(suppressed) = admitted else { return };
    tracing::info!(
        operation,
        reason = verdict.reason.map_or("", |reason| reason.as_str()),
        policies = policy_list(verdict),
        causes = causes(verdict),
        resource = &*one_line_name(&verdict.target.resource),
        namespace = &*one_line_name(&verdict.target.namespace),
        name = &*one_line_name(&verdict.target.name),
        user,
        dry_run,
        left_out = (suppressed > 0).then_some(suppressed),
        "{message}"
    );
}

/// The action of the strictest denying policy. Approvals and exemptions only apply to action
/// Deny, so a request that passed because of them has action Deny.
fn action(verdict: &Verdict) -> &'static str {
    let passed = !verdict.overrides.approvals.is_empty() || !verdict.overrides.exempted.is_empty();
    match verdict.decision {
        Decision::Allow if passed => Decision::Deny.as_str(),
        Decision::Allow => "None",
        outcome => outcome.as_str(),
    }
}

/// The outcomes by policy and reason, each once. Without a policy, as for an unreadable review, the
/// name is `no policy`.
fn policy_outcomes(verdict: &Verdict) -> BTreeSet<(String, Reason, Decision)> {
    let outcomes = |blocker: &Blocker| {
        let Blocker { reason, decision, .. } = *blocker;
        let mut names: Vec<String> = blocker.policies.iter().map(label).collect();
        if names.is_empty() {
            names.push("no policy".to_owned());
        }
        names.into_iter().map(move |name| (name, reason, decision))
    };
    verdict.blockers.iter().flat_map(outcomes).collect()
}

/// The policy as a metric label. Names of DeletionPolicies have no spaces.
fn label(source: &PolicySource) -> String {
    match source {
        PolicySource::Policy(name) => name.clone(),
        PolicySource::Label(value) => format!("label {value}"),
    }
}

/// The policies that decide the verdict.
fn policy_list(verdict: &Verdict) -> String {
    let decisive = verdict.deciding_blockers();
    let names: BTreeSet<String> = decisive.flat_map(|b| &b.policies).map(label).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::ObjectRef;

    fn blocker(outcome: Decision, reason: Reason, policies: &[&str]) -> Blocker {
        Blocker {
            policies: policies
                .iter()
                .map(|name| PolicySource::Policy((*name).to_owned()))
                .collect(),
            ..Blocker::new(outcome, reason, ObjectRef::default())
        }
    }

    #[test]
    fn policies_count_once_per_reason() {
        let mut with_label = blocker(Decision::Deny, Reason::Protected, &["kept"]);
        with_label.policies.push(PolicySource::Label("Always"));
        let blockers = vec![
            with_label,
            blocker(Decision::Deny, Reason::Protected, &["kept"]),
            blocker(Decision::Deny, Reason::InUse, &["kept"]),
            blocker(Decision::Warn, Reason::InUse, &["new"]),
        ];
        let verdict = Verdict::from_blockers(ObjectRef::default(), blockers);
        let deny = Decision::Deny;
        let entry = |name: &str, reason, outcome| (name.to_owned(), reason, outcome);
        assert_eq!(
            policy_outcomes(&verdict).into_iter().collect::<Vec<_>>(),
            [
                entry("kept", Reason::Protected, deny),
                entry("kept", Reason::InUse, deny),
                entry("label Always", Reason::Protected, deny),
                entry("new", Reason::InUse, Decision::Warn),
            ]
        );
        assert_eq!(action(&verdict), "Deny");
        assert_eq!(policy_list(&verdict), "kept, label Always");
    }

    #[test]
    fn approved_requests_have_action_deny() {
        let mut verdict = Verdict::allow(ObjectRef::default());
        assert_eq!(action(&verdict), "None");
        verdict.overrides.approvals.push("yes".to_owned());
        assert_eq!(action(&verdict), "Deny");
        verdict.overrides.approvals.clear();
        verdict.overrides.exempted.push(PolicySource::Label("Always"));
        assert_eq!(action(&verdict), "Deny");
        let unreadable = blocker(Decision::Deny, Reason::Unknown, &[]);
        let verdict = Verdict::from_blockers(ObjectRef::default(), vec![unreadable]);
        let (policy, ..) = policy_outcomes(&verdict).into_iter().next().unwrap();
        assert_eq!(policy, "no policy");
    }
}
