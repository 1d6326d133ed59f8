//! What `belay why` has found out.

#[cfg(test)]
mod tests;
mod text;

use std::process::ExitCode;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::approvers::{Approvers, Need, needs};
use super::manager::{last_writer, managers};
use super::resolves::by_itself;
use super::terminating::Terminating;
use crate::cluster::{Snapshot, World};
use crate::command::denials::{Denial, lately};
use crate::command::document::{Content, NotRead, Object, ReportedVerdict, policy_name};
use crate::command::hold_state::cause_text;
use crate::command::status::{Leader, LeaderState};
use crate::command::target::{
    Session, approvals_unread, right_to_approve, right_to_approve_content, situation,
};
use crate::decide::{
    Blocker, Cause, Decision, Item, Verdict, ineffective_approvals, policy_names, remedies,
    required_approvals, sentence,
};
use crate::graph::{Graph, Node};
use crate::hold::keeping_policies;
use crate::objects::ObjectRef;
use crate::policy::api::Action;
use crate::policy::{ApprovalTerms, ObjectFacts, Policy};

/// Everything that is said.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The object.
    object: Object,
    /// You, the subject of the request. Absent for files. (A `user` is an object that uses this
    /// one.)
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// Whether you can delete the object now, and nothing would keep it.
    pub deletable: bool,
    /// The verdict on a DELETE. `Unknown` means that it is refused only because reads failed.
    verdict: ReportedVerdict,
    /// The blockers, and the reasons to warn or to record.
    blockers: Vec<Why>,
    /// The number of further blockers.
    more: usize,
    /// What to do instead of an approval. Absent if nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    way_out: Option<String>,
    /// The approval that releases the object while in use. Absent if belay does not hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// Who can approve everything that is required, from RBAC. Absent if no approval is
    /// required, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_approve: Option<Vec<String>>,
    /// Who can approve as well if they may create approvals.
    may_approve_if_creating: Vec<String>,
    /// Whether you can approve. Absent if no approval is required, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    you_may: Option<bool>,
    /// Known automatic changes.
    by_itself: Vec<String>,
    /// The approvals that allow the delete.
    approvals: Vec<String>,
    /// Approvals that have not expired and do not count, with the reason.
    uncounted: Vec<String>,
    /// The policies that exempt you.
    exempted: Vec<String>,
    /// The policies that protect the object.
    policies: Vec<Protecting>,
    /// What keeps the Terminating object. Absent if it is not Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<Terminating>,
    /// The managers: owners, creators, and tools that apply it.
    managed_by: Vec<String>,
    /// The last writer and the time. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<String>,
    /// The refused requests of the last 24 hours.
    refused: Vec<Denial>,
    /// Failed reads. The answer may be incomplete.
    not_read: Vec<NotRead>,
    /// Failed reads of evidence for refusals and for the causes.
    evidence_not_read: Vec<NotRead>,
    /// The leader.
    leader: Leader,
    #[serde(skip)]
    approvers: Option<Approvers>,
    #[serde(skip)]
    named: String,
    #[serde(skip)]
    now: Timestamp,
    /// Whether files were asked in the place of a cluster.
    #[serde(skip)]
    of_files: bool,
}

/// A policy of the object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Protecting {
    /// The name.
    name: String,
    /// The action of the policy.
    action: Action,
    /// The names of the enabled modes.
    protects: Vec<&'static str>,
    #[serde(skip)]
    named: String,
}

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Why {
    /// The verdict for this blocker.
    verdict: ReportedVerdict,
    /// The reason of the refusal, as in `status.reason` of the API server's answer.
    reason: &'static str,
    /// The protected object: this one, or one that would be deleted with it.
    object: Object,
    /// The message.
    says: String,
    /// The policies that decide.
    policies: Vec<String>,
    /// The causes.
    causes: Vec<Because>,
    /// The number of omitted causes.
    more: usize,
    /// The required approval.
    approval: Approval,
    #[serde(skip)]
    by: String,
}

/// What makes a policy refuse.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Because {
    /// The message.
    says: String,
    /// The user, by the owner that the policy means, or by the topmost owner. Absent if the
    /// cause is not a use.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Object>,
    /// The dependent of that owner that uses the object. Absent if the owner itself uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<Object>,
    /// The field in the manifest of the user. Absent if the cause is not a use.
    #[serde(skip_serializing_if = "Option::is_none")]
    field_path: Option<String>,
}

/// What it takes to delete all the same.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approval {
    /// The number of required approvers.
    required: usize,
    /// The approvers so far.
    given: Vec<String>,
    /// The permission that an approver needs.
    right: String,
    /// The command that approves.
    command: String,
    /// Whether who has approved could be read.
    #[serde(skip)]
    known: bool,
}

impl Content for Report {
    const KIND: &'static str = "Why";
}

impl Report {
    pub async fn new(session: &Session, snapshot: &Snapshot, verdict: &Verdict) -> Self {
        // Whoever may not read the Lease is told nothing about it.
        let leader = Leader::from_lease(&session.visitor.leader().await);
        let unled = leader.state == LeaderState::Nobody;
        let terminating = Terminating::of(session, snapshot, unled).await;
        let passes = matches!(verdict.decision, Decision::Allow | Decision::Audit | Decision::Warn);
        let deletable = match &terminating {
            Some(terminating) => terminating.goes(),
            None => passes,
        };
        let hold = terminating.as_ref().and_then(|terminating| terminating.hold.as_ref());
        let held = hold.is_some_and(|hold| !hold.free);
        let now = session.visitor.now();
        let (client, written) = (&session.visitor.caller.client, snapshot.written());
        let (needs, accounts) = asked(session, &snapshot.context.world.read(), verdict, held);
        let ((refused, events), approvers) = tokio::join!(
            lately(client, written, &session.target, session.uid(), now),
            Approvers::of(session, &needs, &accounts),
        );
        let events = events.or_else(|| snapshot.not_held("", "events").map(Into::into));
        let mut not_read: Vec<NotRead> = snapshot.unread().into_iter().map(Into::into).collect();
        not_read.extend(approvers.iter().flat_map(|approvers| approvers.unread.clone()));
        let evidence = terminating.iter().flat_map(|terminating| terminating.unread.clone());
        let mut evidence_not_read: Vec<NotRead> = evidence.chain(events).collect();
        evidence_not_read.sort_by(|one, other| one.resource.cmp(&other.resource));
        evidence_not_read.dedup_by(|one, other| one.resource == other.resource);
        evidence_not_read.retain(|one| !not_read.iter().any(|told| told.resource == one.resource));
        let known = approvals_unread(snapshot).is_none();
        let world = snapshot.context.world.read();
        let blockers = verdict.blockers.iter().map(|b| Why::of(&world, verdict, b, known));
        Self {
            object: session.named(),
            subject: session.visitor.me.name.clone(),
            deletable,
            verdict: if verdict.is_unknown() {
                ReportedVerdict::Unknown
            } else {
                verdict.decision.into()
            },
            blockers: blockers.collect(),
            more: verdict.more,
            way_out: way_out(verdict),
            approval: letting_go(session, &world, known).filter(|_| held),
            may_approve: approvers.as_ref().and_then(Approvers::names),
            may_approve_if_creating: approvers.iter().flat_map(|all| all.unsure.clone()).collect(),
            you_may: approvers.as_ref().and_then(|approvers| approvers.you),
            by_itself: by_itself(&world, verdict),
            approvals: verdict.overrides.approvals.clone(),
            uncounted: match held {
                true => holding_uncounted(session, &world),
                false => verdict.ineffective_approvals.iter().map(ToString::to_string).collect(),
            },
            exempted: verdict.overrides.exempted.iter().map(ToString::to_string).collect(),
            policies: protecting(session, &world),
            terminating,
            managed_by: managers(&session.object),
            written_by: last_writer(&session.object),
            refused,
            not_read,
            evidence_not_read,
            leader,
            approvers,
            named: session.target.quoted(),
            now,
            of_files: session.visitor.asks_files(),
        }
    }

    /// 0 if it can be deleted, 1 if not, 3 if that is not known.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match (self.deletable, &self.terminating, self.verdict) {
            (true, ..) => 0,
            (false, None, ReportedVerdict::Unknown) => 3,
            (false, Some(terminating), _) if terminating.is_unsure() => 3,
            (false, ..) => 1,
        })
    }
}

impl Why {
    fn of(world: &World, verdict: &Verdict, blocker: &Blocker, known: bool) -> Self {
        // With its content an approval of the target covers what goes along.
        let covered = if blocker.is_content { &verdict.target } else { &blocker.object };
        let scope = if blocker.is_content { " --scope content" } else { "" };
        Self {
            verdict: blocker.outcome.into(),
            reason: blocker.reason.as_str(),
            object: Object::of(&blocker.object, &world.graph.kinds),
            says: sentence(&verdict.target, blocker),
            policies: blocker.policies.iter().map(policy_name).collect(),
            causes: blocker.causes.iter().map(|cause| Because::of(&world.graph, cause)).collect(),
            more: blocker.more,
            approval: Approval {
                required: blocker.people,
                given: given(world, blocker),
                right: match blocker.is_content {
                    true => right_to_approve_content(covered),
                    false => right_to_approve(covered),
                },
                command: format!(
                    "kubectl belay approve {} --reason \"…\"{scope}",
                    covered.arguments()
                ),
                known,
            },
            by: policy_names(blocker),
        }
    }
}

impl Because {
    fn of(graph: &Graph, because: &Cause) -> Self {
        let (user, through, field_path) = match because {
            Cause::User { root, through, path } => (
                Some(Object::named(graph, root)),
                through.as_ref().map(|through| Object::named(graph, through)),
                Some(path.clone()).filter(|path| !path.is_empty()),
            ),
            _ => (None, None, None),
        };
        Self { says: cause_text(because), user, through, field_path }
    }
}

/// Who has approved what a blocker says, so far.
fn given(world: &World, blocker: &Blocker) -> Vec<String> {
    let ObjectRef { group, resource, namespace, name, .. } = &blocker.object;
    let node = world
        .graph
        .kinds
        .find_resource(group, resource)
        .and_then(|kind| world.graph.object(kind, namespace, name));
    let Some(node) = node else { return Vec::new() };
    let situation = situation(world);
    required_approvals(&situation, &Item::of_node(&situation, node), &saying(world, blocker))
        .map_or_else(Vec::new, |consent| consent.people)
}

/// The policies that a blocker names.
fn saying<'w>(world: &'w World, blocker: &Blocker) -> Vec<&'w Policy> {
    let policies = world.policies.iter();
    policies.filter(|policy| blocker.policies.contains(&policy.source)).collect()
}

/// What helps beside an approval, as a refusal says it.
fn way_out(verdict: &Verdict) -> Option<String> {
    let stands = matches!(verdict.decision, Decision::Deny | Decision::Hold);
    remedies(verdict).0.filter(|_| stands)
}

/// The approvals that would help, and the service accounts whose yes counts for
/// all of them.
fn asked(
    session: &Session,
    world: &World,
    verdict: &Verdict,
    held: bool,
) -> (Vec<Need>, Vec<String>) {
    let (needs, policies) = match held {
        true => {
            let need = Need { object: session.target.clone(), content: false };
            (vec![need], holding(session, world))
        }
        false => {
            let deciding = verdict.blockers.iter().filter(|b| b.outcome == verdict.decision);
            (needs(verdict), deciding.flat_map(|blocker| saying(world, blocker)).collect())
        }
    };
    let terms = ApprovalTerms::all(policies.iter().map(|policy| &policy.approval));
    (needs, terms.map_or_else(Vec::new, |terms| terms.accounts))
}

/// The object, as it is known.
fn node<'w>(session: &Session, world: &'w World) -> Option<Node<'w>> {
    let (kind, namespace, name) = session.place(world)?;
    world.graph.object(kind, &namespace, &name)
}

/// The policies by which it is held.
fn holding<'w>(session: &Session, world: &'w World) -> Vec<&'w Policy> {
    let Some(node) = node(session, world) else { return Vec::new() };
    let applied = keeping_policies(&situation(world), ObjectFacts::of_node(node));
    applied.iter().map(|applied| applied.policy).collect()
}

/// The approvals of a held object that do not count.
fn holding_uncounted(session: &Session, world: &World) -> Vec<String> {
    let Some(node) = node(session, world) else { return Vec::new() };
    let (situation, policies) = (situation(world), holding(session, world));
    let found = ineffective_approvals(&situation, &Item::of_node(&situation, node), &policies);
    found.iter().map(ToString::to_string).collect()
}

/// What it takes to have belay let go of a held object all the same.
fn letting_go(session: &Session, world: &World, known: bool) -> Option<Approval> {
    let (situation, node) = (situation(world), node(session, world)?);
    let policies = holding(session, world);
    let consent = required_approvals(&situation, &Item::of_node(&situation, node), &policies)?;
    Some(Approval {
        required: consent.terms.required,
        given: consent.people,
        right: right_to_approve(&session.target),
        command: format!("kubectl belay approve {} --reason \"…\"", session.target.arguments()),
        known,
    })
}

/// The policies of the object, each with what it protects against: of some
/// ways a plain DELETE says nothing.
fn protecting(session: &Session, world: &World) -> Vec<Protecting> {
    let Some(node) = node(session, world) else { return Vec::new() };
    let applied = situation(world).policies_of(ObjectFacts::of_node(node));
    let told = applied.iter().map(|applied| Protecting {
        name: policy_name(&applied.policy.source),
        action: applied.action,
        protects: applied.policy.modes.names(),
        named: applied.policy.source.to_string(),
    });
    told.collect()
}
