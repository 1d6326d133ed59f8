//! What `belay why` says, as data and as sentences.

use std::collections::BTreeSet;
use std::fmt::Write as _;
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
use crate::command::document::{Content, NotRead, Object, Word, policy_name};
use crate::command::screen::{cut, harmless};
use crate::command::status::{Leader, LeaderState};
use crate::command::target::{
    Session, approvals_unread, as_me, right_to_approve, right_to_approve_content, situation,
};
use crate::decide::{
    Blocker, Cause, Decision, Item, Target, Verdict, arguments, cause, consent, named_by, quoted,
    sentence, ways,
};
use crate::graph::{Graph, Node};
use crate::hold::{Free, keeping};
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
    verdict: Word,
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

impl Protecting {
    fn said(&self) -> String {
        format!("{} ({}, action {:?})", self.named, self.protects.join(", "), self.action)
    }
}

/// So many refusals are told.
const REFUSALS: usize = 3;

/// One reason.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Why {
    /// The verdict for this reason alone.
    verdict: Word,
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
    /// Who needs it, by the owner at the top; not there if it is no use.
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
            verdict: if verdict.is_unknown() { Word::Unknown } else { verdict.decision.into() },
            blockers: blockers.collect(),
            more: verdict.more,
            way_out: way_out(verdict),
            approval: letting_go(session, &world, known).filter(|_| held),
            may_approve: approvers.as_ref().and_then(Approvers::names),
            may_approve_if_creating: approvers.iter().flat_map(|all| all.unsure.clone()).collect(),
            you_may: approvers.as_ref().and_then(|approvers| approvers.you),
            by_itself: by_itself(&world, verdict),
            approvals: verdict.passed.approvals.clone(),
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
            named: quoted(&session.target),
            now,
        }
    }

    /// 0 if it can be deleted, 1 if not, 3 if that is not known.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match (self.deletable, &self.terminating, self.verdict) {
            (true, ..) => 0,
            (false, None, Word::Unknown) => 3,
            (false, ..) => 1,
        })
    }

    /// In sentences; `all`: with nothing left out.
    pub fn text(&self, all: bool) -> String {
        let Self { named, subject, .. } = self;
        let by = if subject.is_empty() { String::new() } else { format!(" by {subject}") };
        // Writing into a String cannot fail.
        let mut text = String::new();
        let _ = match (&self.terminating, self.verdict) {
            (Some(terminating), _) => write!(text, "{}", terminating.text(named)),
            (None, Word::Deny) => writeln!(text, "{named} cannot be deleted now{by}:"),
            (None, Word::Unknown) => {
                writeln!(text, "whether {named} can be deleted{by} is not known:")
            }
            (None, Word::Hold) => {
                writeln!(text, "{named} can be deleted{by}, and stays Terminating for now:")
            }
            (None, Word::Allow) => writeln!(text, "{named} can be deleted now{by}"),
            (None, _) => writeln!(text, "{named} can be deleted now{by}; what belay notes:"),
        };
        let mut told = BTreeSet::new();
        for why in &self.blockers {
            let _ = writeln!(text, "- {}; {} ({})", why.says, why.by, why.reason);
            // What one approval covers is approved once.
            let approve = why.approval.text();
            if told.insert(approve.clone()) {
                text.push_str(&approve);
            }
        }
        if self.more > 0 {
            let _ = writeln!(text, "- and {} more reasons", self.more);
        }
        text.extend(self.approval.as_ref().map(Approval::text));
        if let Some(way_out) = &self.way_out {
            let _ = writeln!(text, "way out: {way_out}");
        }
        for said in &self.by_itself {
            let _ = writeln!(text, "by itself: {}", harmless(said));
        }
        text.extend(self.approvers.as_ref().map(|approvers| approvers.text(all)));
        if !self.approvals.is_empty() {
            let _ = writeln!(text, "approved by {}", self.approvals.join(", "));
        }
        if !self.exempted.is_empty() {
            let _ = writeln!(text, "{subject} is exempt by {}", self.exempted.join(", "));
        }
        if self.policies.is_empty() {
            let _ = writeln!(text, "no policy protects it");
        } else {
            let said: Vec<String> = self.policies.iter().map(Protecting::said).collect();
            let _ = writeln!(text, "protected by: {}", said.join("; "));
        }
        let managed = match (self.managed_by.as_slice(), &self.written_by) {
            ([], Some(last)) => format!("nobody who says so; last written by {last}"),
            (all, _) => all.join("; "),
        };
        if !managed.is_empty() {
            let _ = writeln!(text, "managed by: {}", harmless(&managed));
        }
        let (shown, more) = cut(&self.refused, REFUSALS, all);
        for denial in shown {
            let _ = writeln!(text, "refused {}", harmless(&denial.said(self.now)));
        }
        text.extend(more.map(|more| format!("refused before that: {more}\n")));
        // What is not read for the same reason takes one line.
        for alike in self.not_read.chunk_by(|one, next| one.why == next.why) {
            let names: Vec<&str> = alike.iter().map(|unread| unread.resource.as_str()).collect();
            let why = alike.first().map_or("", |unread| unread.why.as_str());
            let _ = writeln!(text, "not read: {}: {why}", names.join(", "));
        }
        if !self.evidence_not_read.is_empty() {
            let names = self.evidence_not_read.iter().map(|unread| unread.resource.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "not read, and might say more: {names}");
        }
        if self.leader.state == LeaderState::Nobody {
            text.push_str(
                "nobody leads belay: if it is down, the API server refuses every delete of a kind \
                 that a policy names; next: see that its Pods run\n",
            );
        }
        text
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
            says: as_me(&sentence(&verdict.target, blocker)),
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
                    arguments(covered)
                ),
                known,
            },
            by: named_by(blocker),
        }
    }
}

impl Approval {
    fn text(&self) -> String {
        let Self { required, given, right, command, known } = self;
        let people =
            if *required == 1 { "1 person".to_owned() } else { format!("{required} people") };
        let given = match (known, given.len()) {
            (false, _) => ", who has so far could not be read".to_owned(),
            (true, 0) => String::new(),
            (true, _) => format!(", so far {}", given.join(", ")),
        };
        format!("  approve: {command} ({people}{given}; it takes {right})\n")
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
        Self { says: words(because), user, through, field_path }
    }
}

/// Why a hold may go, in words.
pub fn why_free(free: Free) -> &'static str {
    match free {
        Free::Approved => "enough people have approved",
        Free::Unprotected => "no policy protects it any more",
        Free::Unused => "nothing needs it",
    }
}

/// A cause in words of its own.
pub fn words(because: &Cause) -> String {
    match because {
        Cause::Always => "it is always protected, until enough people have approved".to_owned(),
        Cause::Unproved => "belay has not seen yet that nothing needs it".to_owned(),
        Cause::LetsGo(named) => format!("{named} would be protected less"),
        Cause::User { root, path, .. } if path.is_empty() => root.to_string(),
        other => as_me(&cause(other)),
    }
}

/// Who has approved what a blocker says, so far.
fn given(world: &World, blocker: &Blocker) -> Vec<String> {
    let Target { group, resource, namespace, name } = &blocker.object;
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

/// What it takes to have belay let go of a held object all the same.
fn letting_go(session: &Session, world: &World, known: bool) -> Option<Approval> {
    let (situation, node) = (situation(world), node(session, world)?);
    let policies = holding(session, world);
    let consent = consent(&situation, &Item::of_node(&situation, node), &policies)?;
    Some(Approval {
        required: consent.terms.required,
        given: consent.people,
        right: right_to_approve(&session.target),
        command: format!("kubectl belay approve {} --reason \"…\"", arguments(&session.target)),
        known,
    })
}

/// The policies of the object, each with what it protects against: of some
/// ways a plain DELETE says nothing.
fn protecting(session: &Session, world: &World) -> Vec<Protecting> {
    let Some(node) = node(session, world) else { return Vec::new() };
    let applied = situation(world).applied(Facts::of_node(node));
    let told = applied.iter().map(|applied| {
        let modes = &applied.policy.modes;
        let named = [
            (modes.always, "always"),
            (modes.while_used.is_some(), "whileUsed"),
            (modes.while_not_empty.is_some(), "whileNotEmpty"),
            (!modes.while_exists.is_empty(), "whileExists"),
            (modes.from_orphaning, "fromOrphaning"),
            (modes.from_stripping.is_some(), "fromStripping"),
        ];
        Protecting {
            name: policy_name(&applied.policy.source),
            action: applied.action,
            protects: named.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect(),
            named: applied.policy.source.to_string(),
        }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report that says little.
    fn report() -> Report {
        Report {
            object: Object::default(),
            subject: "alice".to_owned(),
            deletable: true,
            verdict: Word::Allow,
            blockers: Vec::new(),
            more: 0,
            way_out: None,
            approval: None,
            may_approve: None,
            may_approve_if_creating: Vec::new(),
            you_may: None,
            by_itself: Vec::new(),
            approvals: Vec::new(),
            exempted: Vec::new(),
            policies: Vec::new(),
            terminating: None,
            not_read: Vec::new(),
            evidence_not_read: Vec::new(),
            managed_by: vec!["Helm release web\u{1b}[2J".to_owned()],
            written_by: None,
            refused: Vec::new(),
            leader: Leader::of(&Ok::<_, ()>(None)),
            approvers: None,
            named: "configmaps \"settings\"".to_owned(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn who_asks_and_who_needs_it_have_names_of_their_own() {
        let report = report();
        let said = serde_json::to_value(&report).unwrap();
        assert_eq!((&said["subject"], said.get("user")), (&"alice".into(), None));
        assert_eq!(
            report.text(false).lines().next(),
            Some("configmaps \"settings\" can be deleted now by alice")
        );
        // It is the verdict of a belay that lives.
        let text = report.text(false);
        assert!(text.contains("nobody leads belay: "), "{text}");
        // What people have written into an object is nothing that a terminal obeys.
        assert!(text.contains("\nmanaged by: Helm release web [2J\n"), "{text}");
    }

    fn blocker(says: &str) -> Why {
        Why {
            verdict: Word::Deny,
            reason: "InUse",
            object: Object::default(),
            says: says.to_owned(),
            policies: vec!["policy p".to_owned()],
            causes: Vec::new(),
            more: 0,
            approval: Approval {
                required: 1,
                given: Vec::new(),
                right: "a right".to_owned(),
                command: "kubectl belay approve x".to_owned(),
                known: true,
            },
            by: "policy p".to_owned(),
        }
    }

    #[test]
    fn the_ways_out_are_told_once() {
        let unread = |resource: &str, why: &str| NotRead {
            resource: resource.to_owned(),
            why: why.to_owned(),
        };
        let forbidden = "forbidden for you";
        let report = Report {
            deletable: false,
            verdict: Word::Deny,
            blockers: vec![blocker("a"), blocker("b")],
            way_out: Some("delete it first".to_owned()),
            by_itself: vec!["once Job shop/a has ended".to_owned()],
            approvers: Some(Approvers {
                named: vec!["alice".to_owned(), "group sre".to_owned()],
                you: Some(true),
                ..Approvers::default()
            }),
            not_read: vec![unread("a", "x"), unread("b", forbidden), unread("c", forbidden)],
            evidence_not_read: vec![unread("events", forbidden), unread("nodes", "x")],
            leader: Leader::of(&Err(())),
            ..report()
        };
        assert_eq!(
            report.text(false),
            "configmaps \"settings\" cannot be deleted now by alice:\n\
             - a; policy p (InUse)\n\
             \x20 approve: kubectl belay approve x (1 person; it takes a right)\n\
             - b; policy p (InUse)\n\
             way out: delete it first\n\
             by itself: once Job shop/a has ended\n\
             may approve: alice, group sre; you: yes\n\
             no policy protects it\n\
             managed by: Helm release web [2J\n\
             not read: a: x\n\
             not read: b, c: forbidden for you\n\
             not read, and might say more: events, nodes\n"
        );
        assert_eq!(format!("{:?}", report.exit_code()), format!("{:?}", ExitCode::from(1)));
    }

    #[test]
    fn what_is_not_known_is_no_refusal() {
        let report = Report {
            deletable: false,
            verdict: Word::Unknown,
            blockers: vec![blocker("belay cannot tell")],
            ..report()
        };
        let text = report.text(false);
        let first = "whether configmaps \"settings\" can be deleted by alice is not known:\n";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(format!("{:?}", report.exit_code()), format!("{:?}", ExitCode::from(3)));
    }
}
