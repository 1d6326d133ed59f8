//! The report of `belay why`.

mod blockers;
#[cfg(test)]
mod tests;
mod text;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use self::blockers::{Approval, ExplainedBlocker, explained_blockers};
use super::approvers::{Approvers, NeededApproval, needed_approvals};
use super::automatic::automatic_changes;
use super::content::NamespaceStay;
use super::manager::{last_writer, managers};
use super::rbac::RbacReader;
use super::terminating::{Terminating, read_finalizer_texts};
use crate::cluster::terminating::deleted_at;
use crate::cluster::{Snapshot, World};
use crate::command::delete_answer::DeleteAnswer;
use crate::command::denials::{Denial, recent_denials};
use crate::command::diagnosis::{
    Collection, Unreleased, consent_to, holding_policies, is_orphaning, policies_of,
    right_to_approve, unread_approvals,
};
use crate::command::document::{FailedRead, Object, ReportedVerdict, policy_name};
use crate::command::report::{ObjectReport, Report, View};
use crate::command::session::UserSession;
use crate::command::status::{Leader, LeaderState, effects};
use crate::command::target::{TargetObject, situation};
use crate::command::webhooks::{NOT_INSTALLED, Webhooks};
use crate::decide::{
    Blocker, Decision, JudgedObject, Verdict, approve_command, ineffective_approvals, remedies,
};
use crate::objects::{PROTECT_LABEL, label_warning};
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, ApprovalTerms, ObjectFacts, Policy};

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Why")]
pub struct WhyReport {
    /// The object.
    object: Object,
    /// You, the subject of the request. Absent for files. (A `user` is an object that uses this
    /// one.)
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// Whether you can delete the object now, and nothing would keep it.
    pub deletable: bool,
    /// belay's verdict on a DELETE. `Unknown` means that it is refused only because reads failed,
    /// or that the API server does not report it.
    verdict: ReportedVerdict,
    /// Why the API server refuses a DELETE by you for another reason than a policy. Absent if it
    /// does not, or was not asked: for files and Terminating objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused_otherwise: Option<String>,
    /// As in [`DeleteAnswer`].
    #[serde(skip)]
    is_belay_silent: bool,
    /// Why policies are not enforced, and what keeps the object Terminating after its DELETE. If
    /// the answer of the API server replaces the verdict, also the warnings of that answer.
    warnings: Vec<String>,
    /// The blockers, and the reasons to warn or to record.
    blockers: Vec<ExplainedBlocker>,
    /// The number of further blockers.
    more: usize,
    /// Why belay denies a DELETE with `--cascade=orphan`: it orphans dependents. Empty if belay does
    /// not deny it for this reason.
    orphaning: Vec<ExplainedBlocker>,
    /// What to do instead of an approval for `orphaning`. Absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    orphaning_next_step: Option<String>,
    /// What to do instead of an approval. Absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
    /// The approval that releases the object while in use. Absent if belay does not hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// Who can approve everything that is required, from RBAC. Absent if no approval is
    /// required, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_approve: Option<Vec<String>>,
    /// Further subjects that can approve, if they may create approvals.
    may_approve_if_creating: Vec<String>,
    /// Whether you can approve. Absent if no approval is required, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    you_may: Option<bool>,
    /// Known automatic changes of the verdict.
    automatic: Vec<String>,
    /// The approvals that allow the delete.
    approvals: Vec<String>,
    /// Approvals that have not expired and do not count, with the reason.
    uncounted: Vec<String>,
    /// The policies that exempt you.
    exempted: Vec<String>,
    /// The policies that protect the object.
    policies: Vec<ProtectingPolicy>,
    /// A warning about the label `belay.dev/protect`. Absent if its value is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    label_warning: Option<String>,
    /// What keeps the Terminating object. Absent if it is not Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<Terminating>,
    /// What removes each finalizer of an object that is not Terminating, except belay's hold.
    finalizers: Vec<String>,
    /// Why the garbage collector deletes the object. Absent if it does not, or if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<String>,
    /// The managers: owners, creators, and tools that apply it.
    managed_by: Vec<String>,
    /// The last writer and the time. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<String>,
    /// The refused requests of the last 24 hours.
    refused: Vec<Denial>,
    /// Failed reads. The answer may be incomplete.
    not_read: Vec<FailedRead>,
    /// Failed reads of evidence for refusals and for the causes.
    evidence_not_read: Vec<FailedRead>,
    /// The leader.
    leader: Leader,
    #[serde(skip)]
    approvers: Option<Approvers>,
    #[serde(skip)]
    named: String,
    /// Whether the data is from files instead of a cluster.
    #[serde(skip)]
    of_files: bool,
    /// Whether the policies could be read.
    #[serde(skip)]
    knows_policies: bool,
    /// Why the API server sends no DELETE to belay, if it is known that it sends none.
    #[serde(skip)]
    why_webhooks_inactive: Option<String>,
    /// The text for a belay without a leader.
    #[serde(skip)]
    no_leader_text: String,
}

/// A policy of the object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ProtectingPolicy {
    /// The name.
    name: String,
    /// The action of the policy.
    action: Action,
    /// The names of the enabled modes.
    protects: Vec<&'static str>,
    #[serde(skip)]
    named: String,
    /// The effects on a DELETE, as in `status`.
    #[serde(skip)]
    effects: String,
}

impl Report for WhyReport {
    const KIND: &'static str = "Why";

    fn text(&self, view: View) -> String {
        view.screen.wrap(&text::text(self, view.is_complete(), view.verbose))
    }

    /// 0 if the API server accepts the DELETE, 1 if not, 3 if that is unknown. For a Terminating
    /// object: 0 if nothing blocks the deletion.
    fn exit_code(&self) -> u8 {
        match (self.deletable, &self.terminating, self.verdict) {
            (true, ..) => 0,
            // The API server accepts the DELETE, and the object stays Terminating.
            (
                false,
                None,
                ReportedVerdict::Hold
                | ReportedVerdict::Allow
                | ReportedVerdict::Audit
                | ReportedVerdict::Warn,
            ) if self.refused_otherwise.is_none() => 0,
            (false, None, ReportedVerdict::Unknown) if self.refused_otherwise.is_none() => 3,
            (false, Some(terminating), _) if terminating.is_unknown() => 3,
            (false, ..) => 1,
        }
    }
}

impl ObjectReport for WhyReport {
    const LIST: &'static str = "WhyList";
}

/// The reads that the reports on all objects of a command share.
pub struct SharedReads {
    leader: Leader,
    rbac: RbacReader,
    pub webhooks: Webhooks,
}

impl SharedReads {
    pub async fn read(session: &UserSession) -> Self {
        // If the user may not read the Lease, the leader is unknown.
        let leader = async { Leader::from_lease(&session.leader().await) };
        let webhooks = async {
            // Files may contain only a part of the cluster.
            match session.asks_files() {
                true => Webhooks::default(),
                false => session.webhooks().await,
            }
        };
        let (leader, webhooks) = tokio::join!(leader, webhooks);
        Self { leader, rbac: RbacReader::default(), webhooks }
    }
}

impl WhyReport {
    /// Adds what keeps a Namespace Terminating after its DELETE.
    pub fn with_stay(mut self, stay: NamespaceStay) -> Self {
        let NamespaceStay { reasons, unread } = stay;
        self.deletable &= reasons.is_empty();
        self.warnings.extend(reasons);
        self.not_read.extend(unread.into_iter().map(FailedRead::from));
        self
    }

    /// Adds the answer about a DELETE with `--cascade=orphan`.
    pub fn with_orphaning(mut self, snapshot: &Snapshot, answer: DeleteAnswer) -> Self {
        let known = unread_approvals(snapshot).is_none();
        let world = snapshot.context.world.read();
        self.orphaning = explained_blockers(&world, &answer, is_orphaning, known);
        let mut verdict = answer.verdict;
        // The step of the answer is about the first deciding blocker.
        let sent = match verdict.deciding_blockers().next() {
            Some(first) if is_orphaning(first) => answer.next_step,
            _ => None,
        };
        verdict.blockers.retain(is_orphaning);
        self.orphaning_next_step = sent.or_else(|| steps_without_approval(&verdict));
        self
    }

    /// Adds that belay does not release the hold of the object after its DELETE.
    pub fn with_unreleased(mut self, unreleased: Option<Unreleased>) -> Self {
        if let Some(unreleased) = unreleased {
            self.deletable = false;
            self.warnings.push(format!("it has belay's hold, and {}", unreleased.advice()));
        }
        self
    }

    pub async fn new(
        target: &TargetObject,
        snapshot: &Snapshot,
        answer: DeleteAnswer,
        shared: &mut SharedReads,
    ) -> Self {
        let (verdict, session) = (&answer.verdict, &target.session);
        let SharedReads { leader, rbac, webhooks } = shared;
        let leader = leader.clone();
        let no_leader = leader.state == LeaderState::NoLeader;
        let terminating = Terminating::read(target, snapshot, no_leader).await;
        let deletable = match &terminating {
            Some(terminating) => terminating.is_unblocked(),
            None => answer.deletes(),
        };
        let hold = terminating.as_ref().and_then(|terminating| terminating.hold.as_ref());
        let held = hold.is_some_and(|hold| !hold.free);
        let now = session.me.now();
        // Denials before the accepted DELETE don't explain why the object stays.
        let since = deleted_at(&target.json).or_else(|| target.created_at());
        let since = since.unwrap_or(Timestamp::MIN);
        let (client, written) = (&session.caller.client, snapshot.stored_policies());
        let kinds = snapshot.context.world.read().graph.kinds.clone();
        // If the API server refuses the DELETE, the policies may deny it as well.
        let only_holds = answer.refused.is_some() && verdict.decision == Decision::Hold;
        let is_unjudged = answer.refused.is_some() && answer.reported == ReportedVerdict::Unknown;
        let (needs, accounts) = needed_approvals_and_accounts(
            target,
            &snapshot.context.world.read(),
            verdict,
            held || is_unjudged,
        );
        let ((refused, events), mut approvers, collection, (finalizers, unread)) = tokio::join!(
            recent_denials(client, written, &target.object_ref, target.uid(), &kinds, (since, now)),
            async {
                // Files don't name the current user, and rarely contain RBAC objects.
                let asks_none = session.asks_files() || answer.is_belay_silent || only_holds;
                let needs = if asks_none { &[] } else { needs.as_slice() };
                Approvers::find((&session.caller, &session.me), needs, accounts.as_deref(), rbac)
                    .await
            },
            Collection::read(target, snapshot),
            read_finalizer_texts(target, snapshot),
        );
        let events = events.or_else(|| snapshot.absent_from_files("", "events").map(Into::into));
        let mut not_read: Vec<FailedRead> = snapshot.unread().into_iter().map(Into::into).collect();
        not_read.extend(approvers.iter().flat_map(|approvers| approvers.unread.clone()));
        not_read.extend(answer.unanswered.clone());
        let unread_for_causes =
            terminating.iter().flat_map(|terminating| terminating.unread.clone());
        let mut evidence_not_read: Vec<FailedRead> =
            unread_for_causes.chain(unread).chain(events).collect();
        evidence_not_read.sort_by(|one, other| one.resource.cmp(&other.resource));
        evidence_not_read.dedup_by(|one, other| one.resource == other.resource);
        evidence_not_read
            .retain(|one| !not_read.iter().any(|other| other.resource == one.resource));
        let known = unread_approvals(snapshot).is_none();
        let world = snapshot.context.world.read();
        // The hold of a Terminating object already explains the blockers with decision Hold.
        let is_shown = |blocker: &Blocker| !(hold.is_some() && blocker.decision == Decision::Hold);
        let blockers = explained_blockers(&world, &answer, is_shown, known);
        let approval = approval_of_hold(target, &world, known).filter(|_| held);
        if let Some(approvers) = &mut approvers {
            let mut all =
                blockers.iter().map(|blocker| &blocker.approval).chain(&approval).peekable();
            approvers.has_approved =
                all.peek().is_some() && all.all(|one| one.given.contains(&session.me.name));
        }
        let own_step =
            steps_without_approval(verdict).filter(|_| !answer.is_belay_silent && !only_holds);
        Self {
            object: target.document(),
            subject: session.me.name.clone(),
            deletable,
            verdict: answer.reported,
            refused_otherwise: answer.refused,
            is_belay_silent: answer.is_belay_silent,
            warnings: answer.warnings,
            blockers,
            more: verdict.more,
            orphaning: Vec::new(),
            orphaning_next_step: None,
            next_step: answer
                .next_step
                .or_else(|| hold.and_then(|hold| hold.step.clone()))
                .or(own_step),
            approval,
            may_approve: approvers.as_ref().and_then(Approvers::names),
            may_approve_if_creating: approvers.iter().flat_map(|all| all.unsure.clone()).collect(),
            you_may: approvers
                .as_ref()
                .and_then(|approvers| approvers.you.map(|you| you && !approvers.has_approved)),
            automatic: automatic_changes(&world, verdict),
            // A denied request may pass for some of its content.
            approvals: match verdict.decision.passes() {
                true => verdict.overrides.approvals.clone(),
                false => Vec::new(),
            },
            uncounted: match held {
                true => uncounted_of_hold(target, &world),
                false => verdict.ineffective_approvals.iter().map(ToString::to_string).collect(),
            },
            exempted: verdict.overrides.exempted.iter().map(ToString::to_string).collect(),
            policies: protecting_policies(target, &world),
            label_warning: label_warning(target.json["metadata"]["labels"][PROTECT_LABEL].as_str()),
            terminating,
            finalizers,
            collected: collection.why,
            managed_by: managers(&target.json, &collection.missing_owners),
            written_by: last_writer(&target.json),
            refused,
            not_read,
            evidence_not_read,
            leader,
            approvers,
            named: target.object_ref.quoted(),
            of_files: session.asks_files(),
            knows_policies: world.loaded,
            why_webhooks_inactive: match session.asks_files() || snapshot.is_installed() {
                true => webhooks.why_inactive(),
                false => Some(NOT_INSTALLED.to_owned()),
            },
            no_leader_text: webhooks.no_leader_text(),
        }
    }
}

/// How to delete the object without an approval, as a denial describes it.
fn steps_without_approval(verdict: &Verdict) -> Option<String> {
    let is_blocked = matches!(verdict.decision, Decision::Deny | Decision::Hold);
    remedies(verdict).0.filter(|_| is_blocked)
}

/// The required approvals, and the service accounts that may give all of them; `None` if the
/// policies are unknown. `is_own`: whether the approval of the object itself is required, whatever
/// the verdict is.
fn needed_approvals_and_accounts(
    target: &TargetObject,
    world: &World,
    verdict: &Verdict,
    is_own: bool,
) -> (Vec<NeededApproval>, Option<Vec<String>>) {
    let (needs, policies) = match is_own {
        true => {
            let need = NeededApproval { object: target.object_ref.clone(), content: false };
            (vec![need], holding_policies(world, &target.object_ref))
        }
        false => {
            let deciding = verdict.deciding_blockers();
            let policies = deciding.flat_map(|blocker| policies_of(&world.policies, blocker));
            (needed_approvals(verdict), policies.collect())
        }
    };
    let terms = ApprovalTerms::merge(policies.iter().map(|policy| &policy.approval));
    (needs, world.loaded.then(|| terms.map_or_else(Vec::new, |terms| terms.accounts)))
}

/// The approvals of a held object that do not count.
fn uncounted_of_hold(target: &TargetObject, world: &World) -> Vec<String> {
    let Some(node) = world.graph.object_by_ref(&target.object_ref) else { return Vec::new() };
    let (situation, policies) = (situation(world), holding_policies(world, &target.object_ref));
    let ineffective =
        ineffective_approvals(&situation, &JudgedObject::of_node(&situation, node), &policies);
    ineffective.iter().map(ToString::to_string).collect()
}

/// The approvals that a release of a held object requires.
fn approval_of_hold(target: &TargetObject, world: &World, known: bool) -> Option<Approval> {
    let policies = holding_policies(world, &target.object_ref);
    let consent = consent_to(world, &target.object_ref, &policies);
    // Without its policies, every object looks unprotected.
    let (required, given) = match consent {
        Some(consent) => (Some(consent.terms.required), consent.approver_names),
        None if world.loaded => return None,
        None => (None, Vec::new()),
    };
    Some(Approval {
        required,
        given,
        right: right_to_approve(&target.object_ref, false),
        command: approve_command(&target.object_ref, false),
        known,
    })
}

/// The policies that protect the object. Some of them don't affect the verdict on a plain
/// DELETE.
fn protecting_policies(target: &TargetObject, world: &World) -> Vec<ProtectingPolicy> {
    let Some(node) = world.graph.object_by_ref(&target.object_ref) else { return Vec::new() };
    let situation = situation(world);
    let applied = situation.policies_ignoring_pause(ObjectFacts::of_node(node));
    let pause = situation.policies.pause(situation.now);
    let pause = pause.map_or_else(String::new, |pause| format!(", paused until {}", pause.until()));
    let report = |applied: &AppliedPolicy<'_>| {
        let Policy { source, modes, .. } = applied.policy;
        let (protects, on_delete) =
            (modes.names(), modes.while_used.as_ref().map(|used| used.on_delete));
        ProtectingPolicy {
            name: policy_name(source),
            action: applied.action,
            named: source.to_string(),
            effects: effects(applied.action, on_delete, protects.len()) + &pause,
            protects,
        }
    };
    applied.iter().map(report).collect()
}
