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
    Blocker, Cause, Decision, Item, Verdict, consent, named_by, sentence, uncounted, ways,
};
use crate::graph::{Graph, Node};
use crate::hold::keeping;
use crate::objects::ObjectRef;
use crate::policy::api::Action;
use crate::policy::{Facts, Policy, Terms};

/// Everything that is said.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What is asked about.
    object: Object,
    /// Who asks; not there of files, where it is nobody in particular. A `user`
    /// is somebody else: an object that needs this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// Whether it could be deleted now, by the one who asks, and would go.
    pub deletable: bool,
    /// The verdict on a DELETE; `Unknown`: it is refused for nothing but what
    /// is not known.
    verdict: ReportedVerdict,
    /// What stands against it, or is told of it.
    blockers: Vec<Why>,
    /// How many more reasons there are.
    more: usize,
    /// What else than an approval helps; not there where nothing is known to.
    #[serde(skip_serializing_if = "Option::is_none")]
    way_out: Option<String>,
    /// What it takes to have belay let go of it although something needs it; not
    /// there if belay does not hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Approval>,
    /// Who may approve all that is asked for, as RBAC says; not there if nothing
    /// is, or it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_approve: Option<Vec<String>>,
    /// Who may as well, if they may create approvals.
    may_approve_if_creating: Vec<String>,
    /// Whether the one who asks may; not there if nothing is asked for, or nobody
    /// says.
    #[serde(skip_serializing_if = "Option::is_none")]
    you_may: Option<bool>,
    /// What is known to change by itself.
    by_itself: Vec<String>,
    /// The approvals by which it passes.
    approvals: Vec<String>,
    /// Approvals that are in force and do not count, and why.
    uncounted: Vec<String>,
    /// The policies that exempt the one who asks.
    exempted: Vec<String>,
    /// The policies that protect it, in whatever way.
    policies: Vec<Protecting>,
    /// What keeps it although it is deleted; not there if it is not Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<Terminating>,
    /// What owns it, made it, or keeps it as it is written somewhere.
    managed_by: Vec<String>,
    /// Who wrote it last, and when; not there if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<String>,
    /// What of it was refused in the last day.
    refused: Vec<Denial>,
    /// What could not be read, and might say more.
    not_read: Vec<NotRead>,
    /// What could not be read, and might say more of what was refused and of
    /// why it stays.
    evidence_not_read: Vec<NotRead>,
    /// Who leads belay.
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
    /// Its name.
    name: String,
    /// What happens when it refuses.
    action: Action,
    /// Against what it protects, by the names of the modes that are switched on.
    protects: Vec<&'static str>,
    #[serde(skip)]
    named: String,
}

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Why {
    /// The verdict for this reason alone.
    verdict: ReportedVerdict,
    /// The fixed word of a refusal, as in `status.reason` of the API server's answer.
    reason: &'static str,
    /// The object that is protected: this one, or one that would go along.
    object: Object,
    /// The reason in words.
    says: String,
    /// The policies that say so.
    policies: Vec<String>,
    /// What makes them say so.
    causes: Vec<Because>,
    /// How many causes are not listed.
    more: usize,
    /// What it takes to delete it all the same.
    approval: Approval,
    #[serde(skip)]
    by: String,
}

/// What makes a policy refuse.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Because {
    /// In words.
    says: String,
    /// Who needs it, by the owner that is meant or the one at the top; not there if it is no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Object>,
    /// By which of the objects of that owner; not there if by the owner itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<Object>,
    /// Where in the manifest of who needs it; not there if it is no use.
    #[serde(skip_serializing_if = "Option::is_none")]
    field_path: Option<String>,
}

/// What it takes to delete all the same.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Approval {
    /// How many different people.
    required: usize,
    /// Who has approved so far.
    given: Vec<String>,
    /// The right that it takes to approve.
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
        let leader = Leader::of(&session.visitor.leader().await);
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
            approvals: verdict.passed.approvals.clone(),
            uncounted: match held {
                true => holding_uncounted(session, &world),
                false => verdict.uncounted.iter().map(ToString::to_string).collect(),
            },
            exempted: verdict.passed.exempted.iter().map(ToString::to_string).collect(),
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
        let covered = if blocker.along { &verdict.target } else { &blocker.object };
        let scope = if blocker.along { " --scope content" } else { "" };
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
                right: match blocker.along {
                    true => right_to_approve_content(covered),
                    false => right_to_approve(covered),
                },
                command: format!(
                    "kubectl belay approve {} --reason \"…\"{scope}",
                    covered.arguments()
                ),
                known,
            },
            by: named_by(blocker),
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
    let ObjectRef { group, resource, namespace, name } = &blocker.object;
    let node = world
        .graph
        .kinds
        .find_resource(group, resource)
        .and_then(|kind| world.graph.object(kind, namespace, name));
    let Some(node) = node else { return Vec::new() };
    let situation = situation(world);
    consent(&situation, &Item::of_node(&situation, node), &saying(world, blocker))
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
    ways(verdict).0.filter(|_| stands)
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
    let terms = Terms::all(policies.iter().map(|policy| &policy.approval));
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
    let applied = keeping(&situation(world), Facts::of_node(node));
    applied.iter().map(|applied| applied.policy).collect()
}

/// The approvals of a held object that do not count.
fn holding_uncounted(session: &Session, world: &World) -> Vec<String> {
    let Some(node) = node(session, world) else { return Vec::new() };
    let (situation, policies) = (situation(world), holding(session, world));
    let found = uncounted(&situation, &Item::of_node(&situation, node), &policies);
    found.iter().map(ToString::to_string).collect()
}

/// What it takes to have belay let go of a held object all the same.
fn letting_go(session: &Session, world: &World, known: bool) -> Option<Approval> {
    let (situation, node) = (situation(world), node(session, world)?);
    let policies = holding(session, world);
    let consent = consent(&situation, &Item::of_node(&situation, node), &policies)?;
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
    let applied = situation(world).applied(Facts::of_node(node));
    let told = applied.iter().map(|applied| Protecting {
        name: policy_name(&applied.policy.source),
        action: applied.action,
        protects: applied.policy.modes.names(),
        named: applied.policy.source.to_string(),
    });
    told.collect()
}
