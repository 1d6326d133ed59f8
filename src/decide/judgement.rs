//! What was found against a request, weighed: whom policies bind, whom they
//! exempt, what their action makes of it, and what people have approved.

use super::approved::in_force;
use super::item::Item;
use super::{
    Blocker, Cause, Decision, Exemption, LiveRead, Passed, Reason, Review, Situation, Target,
    Verdict,
};
use crate::policy::api::Action;
use crate::policy::{Applied, Policy, Source, Terms};

/// One thing that a policy holds against the request.
struct Finding<'a> {
    policy: &'a Policy,
    outcome: Decision,
    item: Item<'a>,
    reason: Reason,
    causes: Vec<Cause>,
    more: usize,
}

/// What has been found so far.
pub(super) struct Judgement<'a> {
    pub(super) situation: Situation<'a>,
    review: &'a Review<'a>,
    findings: Vec<Finding<'a>>,
    exempted: Vec<&'a Policy>,
    confirm: Vec<LiveRead>,
    deletes: bool,
}

impl<'a> Judgement<'a> {
    pub(super) fn new(situation: &Situation<'a>, review: &'a Review<'a>) -> Self {
        Self {
            situation: *situation,
            review,
            findings: Vec::new(),
            exempted: Vec::new(),
            confirm: Vec::new(),
            deletes: false,
        }
    }

    /// The request leads to a deletion, from which others may follow.
    pub(super) fn deletes(&mut self) {
        self.deletes = true;
    }

    /// The policies of an object that bind the one who asks.
    pub(super) fn binding(&self, item: &Item<'a>) -> Vec<Applied<'a>> {
        let mut applied = self.situation.applied(item.facts);
        applied.retain(|applied| applied.policy.binds(self.review.user.person()));
        applied
    }

    /// A policy refuses something about an object.
    pub(super) fn refuse(
        &mut self,
        applied: &Applied<'a>,
        item: &Item<'a>,
        reason: Reason,
        (causes, more): (Vec<Cause>, usize),
    ) {
        let outcome = match applied.action {
            Action::Deny => Decision::Deny,
            Action::Warn => Decision::Warn,
            Action::Audit => Decision::Audit,
        };
        self.add(applied, item, reason, outcome, (causes, more));
    }

    /// The object will wait for this, under its hold.
    pub(super) fn wait(
        &mut self,
        applied: &Applied<'a>,
        item: &Item<'a>,
        (causes, more): (Vec<Cause>, usize),
    ) {
        if applied.action == Action::Deny {
            self.add(applied, item, Reason::InUse, Decision::Hold, (causes, more));
        } else {
            self.refuse(applied, item, Reason::InUse, (causes, more));
        }
    }

    fn add(
        &mut self,
        applied: &Applied<'a>,
        item: &Item<'a>,
        reason: Reason,
        outcome: Decision,
        (mut causes, more): (Vec<Cause>, usize),
    ) {
        let Applied { policy, certain, .. } = *applied;
        if policy.exempts(self.review.user.person()) {
            self.exempted.push(policy);
            return;
        }
        let reason = if certain { reason } else { Reason::Unknown };
        if !certain {
            let namespace = item.facts.namespace;
            causes = vec![Cause::Unknown(format!("the labels of Namespace {namespace}"))];
        }
        self.findings.push(Finding { policy, outcome, item: *item, reason, causes, more });
    }

    /// Something has to be read live before the verdict is final.
    pub(super) fn confirm(&mut self, reads: impl IntoIterator<Item = LiveRead>) {
        self.confirm.extend(reads);
    }

    /// Whether nothing has been found so far.
    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The verdict.
    pub(super) fn verdict(mut self, target: &Item<'a>) -> Verdict {
        let mut passed = Passed::default();
        self.take_approved(&mut passed);
        let mut blockers: Vec<Blocker> = Vec::new();
        for finding in self.findings {
            merge(&mut blockers, finding);
        }
        let mut verdict = Verdict::of(target.target(), blockers);
        self.confirm.sort_unstable();
        self.confirm.dedup();
        verdict.confirm = self.confirm;
        passed.exempted = sources(self.exempted.iter().copied());
        let records = self.deletes && !self.exempted.is_empty();
        if records && verdict.decision.passes() && !self.review.dry_run {
            verdict.exemption = Some(Exemption {
                uid: target.uid_text(),
                user: self.review.user.name.to_string(),
                policies: passed.exempted.clone(),
                seconds: Terms::all(self.exempted.iter().map(|policy| &policy.approval))
                    .map_or(0, |terms| terms.longest_seconds),
            });
        }
        verdict.passed = passed;
        verdict
    }

    /// Takes away what enough people have approved, object by object: an
    /// approval for a Namespace is none for a claim in it, unless its scope
    /// says so.
    fn take_approved(&mut self, passed: &mut Passed) {
        if self.situation.policies.approvals.is_empty() {
            return;
        }
        let mut items: Vec<Item<'a>> = Vec::new();
        for finding in &self.findings {
            if !items.iter().any(|item| item.identity() == finding.item.identity()) {
                items.push(finding.item);
            }
        }
        for item in items {
            let of_item = |finding: &Finding<'a>| finding.item.identity() == item.identity();
            let refusing =
                self.findings.iter().filter(|f| of_item(f) && f.outcome == Decision::Deny);
            let Some(terms) = Terms::all(refusing.map(|finding| &finding.policy.approval)) else {
                continue;
            };
            let approvals = in_force(&self.situation, &item);
            if terms.are_met(&approvals, &self.situation.policies.identities) {
                self.findings.retain(|finding| !of_item(finding));
                passed.approvals.extend(approvals.iter().map(|approval| approval.name.clone()));
            }
        }
        passed.approvals.sort_unstable();
        passed.approvals.dedup();
    }
}

/// Findings that say the same of the same object are one blocker, which names
/// all policies that say it.
fn merge(blockers: &mut Vec<Blocker>, finding: Finding<'_>) {
    let Finding { policy, outcome, item, reason, causes, more } = finding;
    let object: Target = item.target();
    let known = blockers.iter_mut().find(|blocker| {
        (blocker.outcome, blocker.reason) == (outcome, reason)
            && blocker.object == object
            && blocker.causes == causes
    });
    match known {
        Some(blocker) => {
            if !blocker.policies.contains(&policy.source) {
                blocker.policies.push(policy.source.clone());
            }
            blocker.more = blocker.more.max(more);
            blocker.people = blocker.people.max(policy.approval.required);
        }
        None => {
            let policies = vec![policy.source.clone()];
            let people = policy.approval.required;
            blockers.push(Blocker { outcome, reason, policies, object, causes, more, people });
        }
    }
}

fn sources<'a>(policies: impl Iterator<Item = &'a Policy>) -> Vec<Source> {
    let mut sources: Vec<Source> = policies.map(|policy| policy.source.clone()).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}
