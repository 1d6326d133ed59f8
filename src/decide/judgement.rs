//! Findings against a request, and the verdict from them: which policies bind or exempt
//! the requester, their actions, and the approvals.

mod approval;
mod finding;

use self::finding::{Finding, merge_findings};
use super::ancestors::RecordScope;
use super::approved::sufficient_approvals;
use super::item::JudgedObject;
use super::owners::UserOwners;
use super::{
    Cause, Decision, IneffectiveApproval, LiveRead, NextStep, Operation, Overrides, Reason, Review,
    Situation, Verdict,
};
use crate::objects::HoldAge;
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, ObjectFacts, Policy, PolicySource};

/// The cause of a finding while the reads of a policy with action Warn or Audit are unanswered.
const UNCONFIRMED: &str = "there was no time left to read all objects that may need it";

/// How long an exemption bar lasts. belay replaces an existing bar only if less than half of this
/// time remains. The API server stores a DELETE at most 34 s after the verdict, or never.
const BAR_SECONDS: i64 = 120;

/// The findings for one request.
pub(super) struct Judgement<'a> {
    pub(super) situation: Situation<'a>,
    pub(super) review: &'a Review<'a>,
    pub(super) user_owners: UserOwners<'a>,
    findings: Vec<Finding<'a>>,
    exempted: Vec<&'a Policy>,
    needed_reads: Vec<LiveRead>,
    /// Reads that can only add findings. A request that is denied in any case does not need them.
    reads_to_allow: Vec<LiveRead>,
    /// See [`Verdict::advisory_reads`].
    advisory_reads: Vec<LiveRead>,
    ineffective_approvals: Vec<IneffectiveApproval>,
    leads_to_deletion: bool,
    allows_hold: bool,
    covered_by_content_approval: bool,
}

impl<'a> Judgement<'a> {
    pub(super) fn new(situation: &Situation<'a>, review: &'a Review<'a>) -> Self {
        Self {
            situation: *situation,
            review,
            user_owners: UserOwners::new(situation),
            findings: Vec::new(),
            exempted: Vec::new(),
            needed_reads: Vec::new(),
            reads_to_allow: Vec::new(),
            advisory_reads: Vec::new(),
            ineffective_approvals: Vec::new(),
            leads_to_deletion: false,
            allows_hold: true,
            covered_by_content_approval: false,
        }
    }

    /// Records that the request leads to a deletion, from which other deletions may follow.
    pub(super) fn set_leads_to_deletion(&mut self) {
        self.leads_to_deletion = true;
    }

    /// From now on, a finding denies the request even if a hold would keep the object. An owner
    /// that the UPDATE adds could have an approval, which would release the hold.
    pub(super) fn disallow_hold(&mut self) {
        self.allows_hold = false;
    }

    /// Adds the findings of `judge`. `is_covered`: whether an approval of the target with scope
    /// Content would cover these findings.
    pub(super) fn judge_with_coverage(&mut self, is_covered: bool, judge: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.covered_by_content_approval, is_covered);
        judge(self);
        self.covered_by_content_approval = outer;
    }

    /// The policies of an object that bind the requester.
    pub(super) fn binding_policies(&self, item: &JudgedObject<'a>) -> Vec<AppliedPolicy<'a>> {
        self.situation.work.charge(item.policy_search_steps());
        let mut applied = self.situation.policies_of(item.facts);
        let requester = &self.review.requester;
        let ignores_labels = self.ignores_labels(item);
        let is_left_to_collector = self.is_left_to_collector(item);
        applied.retain(|AppliedPolicy { policy, .. }| {
            policy.binds(requester)
                && !(ignores_labels && matches!(policy.source, PolicySource::Label(_)))
                // The garbage collector has different user names on different control planes.
                && !(is_left_to_collector && policy.binds_collector_under_every_name())
        });
        applied
    }

    /// Whether the label on an object does not bind the requester. The label of a tenant on a
    /// Pod does not stop the control plane from evicting the Pod. Kubernetes copies the label
    /// of a Service to its Endpoints and EndpointSlices, which the control plane writes and
    /// deletes.
    fn ignores_labels(&self, item: &JudgedObject<'a>) -> bool {
        let identities = &self.situation.policies.identities;
        match (item.facts.group, item.facts.resource) {
            ("", "pods") => identities.evicts_pods(&self.review.requester.name),
            ("", "endpoints") | ("discovery.k8s.io", "endpointslices") => {
                !self.is_target(item) || identities.is_control_plane(&self.review.requester.name)
            }
            _ => false,
        }
    }

    /// Whether the control plane evicts a Pod, and `item` is another object that the deletion of
    /// the Pod affects. A tenant could attach such an object to keep the Pod (H158). So belay now
    /// skips the policies that bind the garbage collector. They apply when the garbage collector
    /// sends its own DELETE of this object.
    fn is_left_to_collector(&self, item: &JudgedObject<'a>) -> bool {
        self.control_plane_evicts_pod() && !self.is_target(item)
    }

    fn is_target(&self, item: &JudgedObject<'a>) -> bool {
        let ObjectFacts { group, resource, namespace, name, .. } = item.facts;
        let Review { resource: target, .. } = self.review;
        (group, resource) == (target.group.as_str(), target.resource.as_str())
            && (namespace, name) == (&*self.review.namespace, self.review.target_name())
    }

    /// Whether a control plane controller evicts a Pod, by a DELETE or an Eviction.
    fn control_plane_evicts_pod(&self) -> bool {
        let Review { resource, requester, .. } = self.review;
        (resource.group.as_str(), resource.resource.as_str()) == ("", "pods")
            && self.situation.policies.identities.evicts_pods(&requester.name)
    }

    /// Adds findings because belay does not know all objects that policies could protect: one for
    /// each policy with `always` or `whileUsed` that `applies` selects.
    pub(super) fn add_findings_for_unknown_objects(
        &mut self,
        target: &JudgedObject<'a>,
        what: &Cause,
        applies: impl Fn(&Policy) -> bool,
    ) {
        self.add_unknown(target, what, |policy| {
            (policy.modes.always || policy.modes.while_used.is_some()) && applies(policy)
        });
    }

    /// Adds a finding of each policy that `which` selects and that binds the requester, with its
    /// strictest action.
    pub(super) fn add_unknown(
        &mut self,
        target: &JudgedObject<'a>,
        what: &Cause,
        which: impl Fn(&Policy) -> bool,
    ) {
        let Situation { policies, now, .. } = self.situation;
        let paused = policies.is_paused(now);
        let evicts_pod = self.control_plane_evicts_pod();
        let is_ignored = |policy: &Policy| match policy.source {
            PolicySource::Label(_) => true,
            PolicySource::Policy(_) => {
                !policy.names_kind("", "pods") && policy.binds_collector_under_every_name()
            }
        };
        for policy in policies.iter() {
            let ignored = evicts_pod && is_ignored(policy);
            if policy.binds(&self.review.requester) && !ignored && which(policy) {
                let action = policy.strictest_action();
                let applied = AppliedPolicy { policy, action, paused: false, certain: true };
                let applied = if paused { applied.during_pause() } else { applied };
                self.add_finding(&applied, target, Reason::Unknown, (vec![what.clone()], 0));
            }
        }
    }

    /// Adds a finding of a policy about an object.
    pub(super) fn add_finding(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        reason: Reason,
        (causes, more): (Vec<Cause>, usize),
    ) {
        self.add_finding_or_exemption(applied, item, reason, applied.action.into(), (causes, more));
    }

    /// Adds a finding about users while the hold is not effective yet. After `seconds`, belay
    /// allows the request and holds the object.
    pub(super) fn add_finding_with_retry(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        causes: (Vec<Cause>, usize),
        seconds: i64,
    ) {
        let before = self.findings.len();
        self.add_finding(applied, item, Reason::InUse, causes);
        if let Some(finding) = self.findings.get_mut(before).filter(|_| self.allows_hold) {
            finding.retry = Some(seconds);
        }
    }

    /// Adds a finding, even for a requester whom the policy exempts.
    pub(super) fn add_finding_for_exempt_too(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        reason: Reason,
        causes: Vec<Cause>,
    ) {
        self.push_finding(applied, item, reason, applied.action.into(), (causes, 0));
    }

    /// Adds a finding that lets the hold keep the object until these causes no longer exist. If
    /// no hold is possible, the finding has the action of the policy. A Pause changes no hold. A policy
    /// with action Warn or Audit has no finding: with action Deny, belay would accept the request.
    pub(super) fn add_hold_finding(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        (causes, more): (Vec<Cause>, usize),
    ) {
        if !self.allows_hold {
            self.add_finding(applied, item, Reason::InUse, (causes, more));
        } else if applied.denies_without_pause() {
            self.add_finding_or_exemption(
                applied,
                item,
                Reason::InUse,
                Decision::Hold,
                (causes, more),
            );
        }
    }

    /// Adds a finding. For an exempt requester, notes the exemption instead; a held object in use
    /// also gets a finding with decision Hold.
    fn add_finding_or_exemption(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        reason: Reason,
        mut decision: Decision,
        causes: (Vec<Cause>, usize),
    ) {
        let policy = applied.policy;
        if policy.exempts(&self.review.requester) {
            if applied.action != Action::Deny {
                return;
            }
            self.exempted.push(policy);
            // An exemption releases no hold, and the requester gets a warning.
            if reason != Reason::InUse || item.hold() == HoldAge::NotHeld {
                return;
            }
            decision = Decision::Hold;
        }
        self.push_finding(applied, item, reason, decision, causes);
    }

    fn push_finding(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        reason: Reason,
        decision: Decision,
        (mut causes, more): (Vec<Cause>, usize),
    ) {
        let AppliedPolicy { policy, certain, paused, .. } = *applied;
        let reason = if certain { reason } else { Reason::Unknown };
        if !certain {
            let what = format!("the labels of Namespace {} are unknown", item.facts.namespace);
            let graph = self.situation.graph;
            let kind = graph.kinds.namespace().filter(|kind| !graph.is_complete(*kind));
            let next = kind.map_or(Some(NextStep::Retry), |kind| {
                let info = graph.kinds.info(kind);
                NextStep::for_incomplete(graph.why_incomplete(kind), info.group_resource())
            });
            causes = vec![Cause::Unknown(what, next)];
        }
        self.findings.push(Finding {
            policy,
            decision,
            item: *item,
            reason,
            causes,
            more,
            covered_by_content_approval: self.covered_by_content_approval,
            paused,
            retry: None,
        });
    }

    /// Adds live reads that the findings of a policy for an object need. With action Warn or
    /// Audit, the request does not wait long: if nothing blocks it yet, the reads are advisory, and
    /// a finding reports that the result is unknown.
    pub(super) fn require_reads(
        &mut self,
        applied: &AppliedPolicy<'a>,
        item: &JudgedObject<'a>,
        reads: Vec<LiveRead>,
        is_blocked: bool,
    ) {
        if applied.action == Action::Deny {
            self.require_reads_for_any_action(reads);
        } else if !is_blocked && !reads.is_empty() {
            self.advisory_reads.extend(reads);
            let cause = Cause::Unknown(UNCONFIRMED.to_owned(), Some(NextStep::Retry));
            self.add_finding(applied, item, Reason::Unknown, (vec![cause], 0));
        }
    }

    /// Adds live reads that the verdict needs, independent of a policy.
    pub(super) fn require_reads_for_any_action(
        &mut self,
        reads: impl IntoIterator<Item = LiveRead>,
    ) {
        self.needed_reads.extend(reads);
    }

    /// Adds live reads that can only add findings.
    pub(super) fn require_reads_to_allow(&mut self, reads: Vec<LiveRead>) {
        self.reads_to_allow.extend(reads);
    }

    /// Whether the findings deny this object and no approvals are sufficient.
    pub(super) fn is_denied(&self, item: &JudgedObject<'a>) -> bool {
        let denies = |finding: &&Finding<'_>| {
            finding.decision == Decision::Deny && finding.item.uid() == item.uid()
        };
        let denying: Vec<_> = self.findings.iter().filter(denies).map(|f| f.policy).collect();
        !denying.is_empty()
            && sufficient_approvals(&self.situation, item, &denying, RecordScope::Ignored).is_none()
    }

    /// Adds a finding of every policy that binds the requester, because the limit of work is
    /// reached and the other findings are unknown.
    fn add_budget_exceeded(&mut self, target: &JudgedObject<'a>) {
        let text = "reaches more objects and references than belay follows for one request";
        self.add_unknown(target, &Cause::TooLarge(text.to_owned()), |_| true);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The verdict on these targets. It names the first one.
    pub(super) fn verdict(mut self, targets: &[JudgedObject<'a>]) -> Verdict {
        if let Some(target) = targets.first().filter(|_| self.situation.work.is_used_up()) {
            self.add_budget_exceeded(target);
        }
        let mut overrides = Overrides::default();
        self.remove_approved(&mut overrides, targets);
        self.require_owner_reads(targets);
        let strictest = self.findings.iter().map(|finding| finding.decision).max();
        let passes = strictest.is_none_or(Decision::passes);
        overrides.exempted = sources(self.exempted.iter().copied());
        let deletes = self.is_deletion() && passes && !self.review.dry_run;
        let deleted_target = targets.first().filter(|target| deletes && !target.is_terminating());
        let exemption =
            deleted_target.and_then(|target| self.find_exemption(target, &overrides.exempted));
        let is_known_denial = |finding: &Finding<'_>| {
            // A denial with a retry promises that a later request passes.
            finding.decision == Decision::Deny
                && finding.reason != Reason::Unknown
                && finding.retry.is_none()
        };
        if !self.findings.iter().any(is_known_denial) {
            self.needed_reads.append(&mut self.reads_to_allow);
        }
        for reads in [&mut self.needed_reads, &mut self.advisory_reads] {
            reads.sort_unstable();
            reads.dedup();
        }
        let denying = self.findings.iter().filter(|finding| finding.decision == Decision::Deny);
        // The longest wait, if no denial remains after it.
        let retry_seconds = denying.map(|finding| finding.retry).collect::<Option<Vec<_>>>();
        let retry_seconds = retry_seconds.and_then(|seconds| seconds.into_iter().max());
        let (blockers, more) = merge_findings(&self.situation, self.findings, targets);
        let target = targets.first().map(JudgedObject::object_ref).unwrap_or_default();
        let ineffective_approvals = if passes { Vec::new() } else { self.ineffective_approvals };
        // A subject that may delete a cluster-scoped object has rights in the whole cluster.
        // Namespaces are an exception: a RoleBinding in a Namespace can grant the right
        // to delete it.
        let show_other_namespaces = target.own_namespace().is_empty();
        let verdict = Verdict::from_blockers(target, blockers);
        let verdict = if show_other_namespaces { verdict.with_other_namespaces() } else { verdict };
        Verdict {
            needed_reads: self.needed_reads,
            advisory_reads: self.advisory_reads,
            more,
            overrides,
            exemption,
            ineffective_approvals,
            retry_seconds,
            ..verdict
        }
    }

    /// Whether the request itself deletes an object.
    fn is_deletion(&self) -> bool {
        self.review.operation == Operation::Delete || self.review.is_eviction()
    }
}

fn sources<'a>(policies: impl Iterator<Item = &'a Policy>) -> Vec<PolicySource> {
    let mut sources: Vec<PolicySource> = policies.map(|policy| policy.source.clone()).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}
