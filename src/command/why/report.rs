//! What `belay why` says, as data and as sentences.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Serialize;

use super::manager::{last_writer, managers};
use super::terminating::Terminating;
use crate::cluster::{Snapshot, World};
use crate::command::denials::{Denial, lately};
use crate::command::screen::{cut, harmless};
use crate::command::target::{
    Session, as_me, right_to_approve, right_to_approve_content, situation,
};
use crate::decide::{
    Blocker, Cause, Decision, Item, Target, Verdict, arguments, cause, consent, named_by, quoted,
    sentence,
};
use crate::hold::Free;
use crate::policy::{Facts, Policy};

/// Everything that is said.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The object, as a person types it.
    object: String,
    /// Who asks. A `user` is somebody else here: one that needs the object.
    subject: String,
    /// Whether it could be deleted now, by the one who asks, and would go.
    pub deletable: bool,
    /// The verdict on a DELETE.
    decision: &'static str,
    /// What stands against it.
    blockers: Vec<Why>,
    /// How many more reasons there are.
    more: usize,
    /// The approvals by which it passes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<String>,
    /// The policies that exempt the one who asks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exempted: Vec<String>,
    /// The policies that protect it, in whatever way.
    policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminating: Option<Terminating>,
    /// What owns it, made it, or keeps it as it is written somewhere.
    managed_by: Vec<String>,
    /// Who wrote it last, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_by: Option<String>,
    /// What of it was refused in the last day.
    refused: Vec<Denial>,
    /// What could not be read, and might say more.
    unread: Vec<Missing>,
    /// Whether nobody leads belay: then it is most likely down.
    unled: bool,
    #[serde(skip)]
    named: String,
    #[serde(skip)]
    now: Timestamp,
}

/// So many refusals are told.
const REFUSALS: usize = 3;

#[derive(Debug, Serialize)]
struct Missing {
    resource: String,
    why: String,
}

/// One reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Why {
    outcome: &'static str,
    reason: &'static str,
    /// The object that is protected.
    object: String,
    /// The reason in words.
    says: String,
    policies: Vec<String>,
    causes: Vec<Because>,
    /// How many causes are not listed.
    more: usize,
    approval: Approval,
    #[serde(skip)]
    by: String,
}

/// What makes a policy refuse.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Because {
    says: String,
    /// Who needs it, by the owner at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// By whom of its.
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<String>,
    /// Where in the user's manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    field_path: Option<String>,
}

/// What it takes to delete all the same.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Approval {
    /// How many different people.
    required: usize,
    /// Who has approved so far.
    given: Vec<String>,
    /// Who may.
    right: String,
    command: String,
}

impl Report {
    pub async fn new(session: &Session, snapshot: &Snapshot, verdict: &Verdict) -> Self {
        let terminating = Terminating::of(session, snapshot).await;
        let passes = matches!(verdict.decision, Decision::Allow | Decision::Audit | Decision::Warn);
        let deletable = match &terminating {
            Some(terminating) => terminating.goes(),
            None => passes,
        };
        // Whoever may not read the Lease is told nothing about it.
        let unled = matches!(session.leader().await, Ok(None));
        let now = session.now();
        let (client, written) = (&session.caller.client, snapshot.written());
        let refused = lately(client, written, &session.target, session.uid(), now).await;
        let world = snapshot.context.world.read();
        let unread = snapshot.unread().into_iter();
        Self {
            object: arguments(&session.target),
            subject: session.me.name.clone(),
            deletable,
            decision: verdict.decision.as_str(),
            blockers: verdict.blockers.iter().map(|b| Why::of(&world, verdict, b)).collect(),
            more: verdict.more,
            approvals: verdict.passed.approvals.clone(),
            exempted: verdict.passed.exempted.iter().map(ToString::to_string).collect(),
            policies: protecting(session, &world),
            terminating,
            managed_by: managers(&session.object),
            written_by: last_writer(&session.object),
            refused,
            unread: unread
                .map(|unread| Missing { resource: unread.resource, why: as_me(&unread.why) })
                .collect(),
            unled,
            named: quoted(&session.target),
            now,
        }
    }

    /// In sentences; `all`: with nothing left out.
    pub fn text(&self, all: bool) -> String {
        let Self { named, subject: user, .. } = self;
        // Writing into a String cannot fail.
        let mut text = String::new();
        let _ = match (&self.terminating, self.decision) {
            (Some(terminating), _) => write!(text, "{}", terminating.text(named)),
            (None, "Deny") => writeln!(text, "{named} cannot be deleted now by {user}:"),
            (None, "Hold") => {
                writeln!(text, "{named} can be deleted by {user}, and stays Terminating for now:")
            }
            (None, "Allow") => writeln!(text, "{named} can be deleted now by {user}"),
            (None, _) => writeln!(text, "{named} can be deleted now by {user}; what belay notes:"),
        };
        for why in &self.blockers {
            why.tell(&mut text);
        }
        if self.more > 0 {
            let _ = writeln!(text, "- and {} more reasons", self.more);
        }
        if !self.approvals.is_empty() {
            let _ = writeln!(text, "approved by {}", self.approvals.join(", "));
        }
        if !self.exempted.is_empty() {
            let _ = writeln!(text, "{user} is exempt by {}", self.exempted.join(", "));
        }
        if self.policies.is_empty() {
            let _ = writeln!(text, "no policy protects it");
        } else {
            let _ = writeln!(text, "protected by: {}", self.policies.join("; "));
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
        for Missing { resource, why } in &self.unread {
            let _ = writeln!(text, "not read: {resource}: {why}");
        }
        if self.unled {
            text.push_str(
                "nobody leads belay: if it is down, the API server refuses every delete of a kind \
                 that a policy names; next: see that its Pods run\n",
            );
        }
        text
    }
}

impl Why {
    fn of(world: &World, verdict: &Verdict, blocker: &Blocker) -> Self {
        // With its content an approval of the target covers what goes along.
        let covered = if blocker.along { &verdict.target } else { &blocker.object };
        let scope = if blocker.along { " --scope content" } else { "" };
        Self {
            outcome: blocker.outcome.as_str(),
            reason: blocker.reason.as_str(),
            object: arguments(&blocker.object),
            says: as_me(&sentence(&verdict.target, blocker)),
            policies: blocker.policies.iter().map(ToString::to_string).collect(),
            causes: blocker.causes.iter().map(Because::of).collect(),
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
            },
            by: named_by(blocker),
        }
    }

    fn tell(&self, text: &mut String) {
        let _ = writeln!(text, "- {}; {} ({})", self.says, self.by, self.reason);
        let Approval { required, given, right, command } = &self.approval;
        let people =
            if *required == 1 { "1 person".to_owned() } else { format!("{required} people") };
        let given = match given.len() {
            0 => String::new(),
            _ => format!(", so far {}", given.join(", ")),
        };
        let _ = writeln!(text, "  approve: {command} ({people}{given}; it takes {right})");
    }
}

impl Because {
    fn of(because: &Cause) -> Self {
        let (user, through, field_path) = match because {
            Cause::User { root, through, path } => (
                Some(root.to_string()),
                through.as_ref().map(ToString::to_string),
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
    let situation = situation(world);
    let Target { group, resource, namespace, name } = &blocker.object;
    let node = world
        .graph
        .kinds
        .find_resource(group, resource)
        .and_then(|kind| world.graph.object(kind, namespace, name));
    let Some(node) = node else { return Vec::new() };
    let policies = world.policies.iter().filter(|policy| blocker.policies.contains(&policy.source));
    let policies: Vec<&Policy> = policies.collect();
    consent(&situation, &Item::of_node(&situation, node), &policies)
        .map_or_else(Vec::new, |consent| consent.people)
}

/// The policies of the object, each with what it protects against: of some
/// ways a plain DELETE says nothing.
fn protecting(session: &Session, world: &World) -> Vec<String> {
    let Some((kind, namespace, name)) = session.place(world) else { return Vec::new() };
    let Some(node) = world.graph.object(kind, &namespace, &name) else { return Vec::new() };
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
        let named: Vec<&str> = named.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        format!("{} ({}, action {:?})", applied.policy.source, named.join(", "), applied.action)
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_and_who_needs_it_have_names_of_their_own() {
        let report = Report {
            object: "configmaps/settings -n shop".to_owned(),
            subject: "alice".to_owned(),
            deletable: true,
            decision: "Allow",
            blockers: Vec::new(),
            more: 0,
            approvals: Vec::new(),
            exempted: Vec::new(),
            policies: Vec::new(),
            terminating: None,
            unread: Vec::new(),
            managed_by: vec!["Helm release web\u{1b}[2J".to_owned()],
            written_by: None,
            refused: Vec::new(),
            unled: true,
            named: "configmaps \"settings\"".to_owned(),
            now: Timestamp::UNIX_EPOCH,
        };
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
}
