//! The report of `status`, as data and as a table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::election::LeaderInfo;
use crate::command::document::FailedRead;
use crate::command::duration::format_age;
use crate::command::place::Installation;
use crate::command::report::{Report, View, exit_code_of};
use crate::command::screen::{Field, Table, Tone};
use crate::command::webhooks::{WebhookConfiguration, is_missing};
use crate::policy::api::{
    Action, DeletionPolicy, DeletionPolicySpec, HoldMode, NotHeld, OnDelete, Pause, Protect,
};
use crate::policy::{WHY_NO_HOLD_WITH_SUBJECTS, mode_names};

/// The maximum number of policies in a table, without `--all`.
pub(super) const MAX_POLICIES: usize = 60;

/// The status reports a certificate that expires within this number of seconds as a problem.
const MIN_REMAINING_SECONDS: i64 = 7 * 86_400;

/// The reasons of conditions that require action. The other reasons don't: a policy may name
/// kinds that are added later, and belay soon reads the data that it has not read yet.
const FAILING_REASONS: [&str; 4] = ["Forbidden", "Failed", "Refused", "TooManyObjects"];

/// One policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// The name.
    name: String,
    /// The action of the policy.
    action: Action,
    /// The names of the enabled modes.
    protects: Vec<&'static str>,
    /// Whether the API server sends requests about its latest version to belay, and belay watches
    /// all kinds that it needs. Absent if unknown: without a leader, and if neither the Lease nor
    /// the webhook configurations could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    /// The number of protected objects.
    protected: i64,
    /// The number of these objects with the hold.
    held: i64,
    /// From this time on all holds are effective; before, a policy with `onDelete: Hold` refuses
    /// the DELETE of an object in use whose hold is not effective yet. Absent if all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds_effective_time: Option<String>,
    /// The seconds until all holds are effective.
    #[serde(skip)]
    effective_in: i64,
    /// The number of refused requests in the last 24 hours.
    denied_last_24h: i64,
    /// The number of accepted requests that action Deny would have refused.
    would_deny_last_24h: i64,
    /// Kinds of which some protected objects get no hold.
    not_held: Vec<NotHeld>,
    /// Kinds that the policy names and the API server does not serve.
    unknown_kinds: Vec<String>,
    /// Problems of the policy, and the kinds without holds.
    notes: Vec<String>,
    /// The effects on a DELETE, for the table.
    #[serde(skip)]
    effects: String,
    /// Whether the policy has a problem that requires action.
    #[serde(skip)]
    has_problem: bool,
    /// Whether a pause suspends it.
    paused: bool,
}

/// A problem that affects all policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The API server sends no DELETE to belay.
    NoWebhooks,
    /// There is no leader, so no replica updates the status of policies.
    NoLeader,
    /// Neither the Lease nor the webhook configuration could be read.
    Unknown,
}

impl Outage {
    pub fn new(leader: &Leader, configurations: &[WebhookConfiguration]) -> Option<Self> {
        match leader.state {
            _ if is_missing(configurations) => Some(Self::NoWebhooks),
            LeaderState::NoLeader => Some(Self::NoLeader),
            LeaderState::Unknown if configurations.is_empty() => Some(Self::Unknown),
            LeaderState::Replica | LeaderState::Unknown => None,
        }
    }
}

impl PolicyStatus {
    pub fn new(policy: &DeletionPolicy, outage: Option<Outage>, now: Timestamp) -> Self {
        let status = policy.status.clone().unwrap_or_default();
        let stale = status.observed_generation != policy.metadata.generation;
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let lacks_some_holds = status.not_held.iter().any(|kind| kind.resource != "*");
        let notes = status.conditions.iter().filter(|condition| {
            // A condition with status True is a problem only if some kinds get no hold.
            condition.status != "True" || (condition.type_ == "Holding" && lacks_some_holds)
        });
        let notes = notes.map(|c| format!("{}: {}: {}", c.type_, c.reason, c.message));
        let is_failing = status.conditions.iter().any(|condition| {
            condition.status != "True" && FAILING_REASONS.contains(&condition.reason.as_str())
        });
        let stale = stale.then(|| "belay has not processed the latest version yet".to_owned());
        let notes: Vec<String> = stale.iter().cloned().chain(notes).collect();
        let effective_time =
            status.holds_effective_time.map(|time| time.0).filter(|time| *time > now);
        Self {
            paused: ready.is_some_and(|ready| ready.reason == "Paused"),
            has_problem: ready.is_none_or(|ready| ready.status != "True")
                || stale.is_some()
                || is_failing,
            name: policy.metadata.name.clone().unwrap_or_default(),
            action: policy.spec.action,
            effects: effects(
                policy.spec.action,
                policy.spec.protect.while_used.as_ref().map(|used| used.on_delete),
                modes(&policy.spec.protect).len(),
            ),
            protects: modes(&policy.spec.protect),
            ready: match outage {
                Some(Outage::NoWebhooks) => Some(false),
                Some(Outage::NoLeader | Outage::Unknown) => None,
                None if stale.is_some() => Some(false),
                None => ready.map(|ready| ready.status == "True"),
            },
            protected: status.protected_objects,
            held: status.held_objects,
            holds_effective_time: effective_time.map(|time| time.to_string()),
            effective_in: effective_time.map_or(0, |time| time.as_second() - now.as_second()),
            denied_last_24h: status.last_24h.denied,
            would_deny_last_24h: status.last_24h.would_deny,
            not_held: never_held(&policy.spec, status.protected_objects)
                .map_or(status.not_held, |not_held| vec![not_held]),
            unknown_kinds: status.unknown_kinds,
            notes,
        }
    }
}

/// The policies for `-o name`, one on each line.
pub(super) fn policy_lines<'p>(names: impl Iterator<Item = &'p str>) -> String {
    names.map(|name| format!("deletionpolicies.belay.dev/{name}\n")).collect()
}

/// The reason why a policy adds no hold to any object; `None` if it may add some.
fn never_held(spec: &DeletionPolicySpec, protected: i64) -> Option<NotHeld> {
    let why = match spec.action {
        _ if spec.hold == HoldMode::Never => NEVER,
        _ if spec.protect.always.is_none() && spec.protect.while_used.is_none() => NO_MODE,
        _ if !spec.subjects.is_empty() => WHY_NO_HOLD_WITH_SUBJECTS,
        // The policy may have action Deny in some namespaces.
        _ if !spec.action_overrides.is_empty() => return None,
        Action::Audit => ONLY_RECORDS,
        Action::Warn => ONLY_WARNS,
        Action::Deny => return None,
    };
    let objects = Some(protected);
    Some(NotHeld { resource: "*".to_owned(), why: why.to_owned(), objects })
}

/// Why a policy adds no hold.
pub(super) const NEVER: &str = "the policy has hold: Never";
pub(super) const NO_MODE: &str = "the policy enables neither always nor whileUsed";
pub(super) const ONLY_RECORDS: &str = "the policy has action Audit";
pub(super) const ONLY_WARNS: &str = "the policy has action Warn";

/// The text about the action of a policy with this many modes: with action Deny,
/// `whileUsed: {onDelete: Hold}` accepts a DELETE and holds the object.
pub fn effects(action: Action, on_delete: Option<OnDelete>, modes: usize) -> String {
    match (action, on_delete == Some(OnDelete::Hold), modes) {
        (Action::Deny, true, 1) => "Hold".to_owned(),
        (Action::Deny, true, _) => "Deny, Hold".to_owned(),
        (action, ..) => format!("{action:?}"),
    }
}

/// The enabled modes.
pub(super) fn modes(protect: &Protect) -> Vec<&'static str> {
    let Protect {
        always,
        while_used,
        while_not_empty,
        while_exists,
        from_orphaning,
        from_stripping,
    } = protect;
    mode_names([
        always.is_some(),
        while_used.is_some(),
        while_not_empty.is_some(),
        while_exists.is_some(),
        from_orphaning.is_some(),
        from_stripping.is_some(),
    ])
}

/// The leader.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Leader {
    /// Whether there is a leader.
    pub state: LeaderState,
    /// The name of the replica. Absent if there is no leader, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Whether belay has a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum LeaderState {
    /// A replica is the leader.
    Replica,
    /// There is no leader: belay is most likely down.
    #[serde(rename = "Nobody")]
    NoLeader,
    /// The Lease could not be read.
    Unknown,
}

impl Leader {
    /// From the Lease.
    pub fn from_lease<E>(lease: &Result<Option<LeaderInfo>, E>) -> Self {
        let (state, name) = match lease {
            Ok(Some(info)) => (LeaderState::Replica, Some(info.replica.clone())),
            Ok(None) => (LeaderState::NoLeader, None),
            Err(_) => (LeaderState::Unknown, None),
        };
        Self { state, name }
    }
}

/// A pause that is in force.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PauseReport {
    /// The name.
    pub name: String,
    /// The user who created it.
    pub by: String,
    /// The reason that the user gave.
    pub reason: String,
    /// The expiry.
    #[schemars(with = "String")]
    pub until: Timestamp,
}

impl PauseReport {
    /// `None` if the pause has ended.
    pub fn if_active(pause: Pause, now: Timestamp) -> Option<Self> {
        let until = pause.spec.expiration_time.0;
        (now < until).then(|| Self::from_pause(pause))
    }

    pub fn from_pause(pause: Pause) -> Self {
        Self {
            name: pause.metadata.name.unwrap_or_default(),
            by: pause.spec.by,
            reason: pause.spec.reason,
            until: pause.spec.expiration_time.0,
        }
    }
}

/// An uninstall of belay that runs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningUninstall {
    /// The name with which the uninstall has taken the Lease.
    name: String,
    /// How to follow the uninstall, and how to stop it.
    next_steps: Vec<String>,
}

impl RunningUninstall {
    pub fn new(name: String, Installation { namespace, name: of }: &Installation) -> Self {
        let next_steps = [
            format!(
                "to see what it still waits for: kubectl belay admin uninstall --dry-run \
                 --installation={namespace}/{of}"
            ),
            format!(
                "to follow a helm uninstall: kubectl -n {namespace} logs -f job/{of}-uninstall"
            ),
            format!(
                "to stop it: interrupt its command, or for Helm: kubectl -n {namespace} delete \
                 job/{of}-uninstall; then install belay again, so that it protects"
            ),
        ];
        Self { name, next_steps: next_steps.into() }
    }
}

/// When a certificate ends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Expiry {
    /// The expiry.
    #[schemars(with = "String")]
    until: Timestamp,
    #[serde(skip)]
    remaining_seconds: i64,
}

impl Expiry {
    pub fn new(until: Timestamp, now: Timestamp) -> Self {
        let remaining_seconds = until.as_second().saturating_sub(now.as_second());
        Self { until, remaining_seconds }
    }

    /// The earliest of these times.
    pub fn first(times: Vec<i64>, now: Timestamp) -> Option<Self> {
        let until = Timestamp::from_second(times.into_iter().min()?).ok()?;
        Some(Self::new(until, now))
    }

    fn is_soon(&self) -> bool {
        self.remaining_seconds < MIN_REMAINING_SECONDS
    }

    fn line(&self, what: &str) -> (Tone, String) {
        let Self { until, remaining_seconds: seconds } = self;
        let tone = if self.is_soon() { Tone::Bad } else { Tone::Plain };
        let remaining = match *seconds {
            ..0 => "EXPIRED".to_owned(),
            seconds => format!("{} left", format_age(seconds)),
        };
        (tone, format!("certificates: {what} expires {until} ({remaining})"))
    }
}

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// The policies.
    pub policies: Vec<PolicyStatus>,
    /// The leader.
    pub leader: Leader,
    /// The active Pauses. During a Pause belay refuses nothing.
    pub pauses: Vec<PauseReport>,
    /// The webhook configurations.
    pub configurations: Vec<WebhookConfiguration>,
    /// The uninstall that has deleted these configurations and still runs. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<RunningUninstall>,
    /// The certificate that the leader serves. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Expiry>,
    /// The CA in the webhook configurations; of several, the first to expire. Absent if there
    /// is none, or if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<Expiry>,
    /// Failed reads.
    pub not_read: Vec<FailedRead>,
}

impl Report for StatusReport {
    const KIND: &'static str = "Status";

    fn text(&self, view: View) -> String {
        let screen = view.screen;
        let mut text = String::new();
        let common = self.common_notes();
        let notes = common.iter().map(|(note, whose)| (Tone::Bad, format!("{whose}: {note}")));
        for (tone, line) in self.lines().into_iter().chain(notes) {
            for line in screen.lines(0, &line) {
                text.push_str(&(screen.paint(tone, &line) + "\n"));
            }
        }
        if self.policies.is_empty() {
            text.push_str(match is_missing(&self.configurations) {
                true => "no policies, and belay protects nothing\n",
                false => {
                    "no policies: only objects with the label belay.dev/protect are protected\n"
                }
            });
        } else {
            let heading = ["POLICY", "ACTION", "READY", "PROTECTED", "HOLDS", "DENIED"];
            let heading = view.columns(heading, ["WITHOUT HOLDS"], "RULES");
            let is_counted = self.leader.state != LeaderState::NoLeader && self.uninstall.is_none();
            let row = |table: &mut Table, policy: &PolicyStatus| {
                policy.row(table, view, (&common, is_counted));
            };
            text.push_str(&view.table(&heading, (&self.policies, MAX_POLICIES, "policies"), row));
        }
        text + &view.not_read(&self.not_read)
    }

    fn names(&self) -> Option<String> {
        Some(policy_lines(self.policies.iter().map(|policy| policy.name.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    /// 1 if there is a problem, 3 if a read failed.
    fn exit_code(&self) -> u8 {
        let has_problem = self.leader.state == LeaderState::NoLeader
            || !self.pauses.is_empty()
            || self.configurations.iter().any(|configuration| !configuration.present)
            || self.policies.iter().any(|policy| policy.has_problem)
            || self.certificate.iter().chain(&self.authority).any(Expiry::is_soon);
        exit_code_of(has_problem, self.not_read.is_empty())
    }
}

impl StatusReport {
    /// The notes that several policies share, each with the names of these policies.
    fn common_notes(&self) -> BTreeMap<&str, String> {
        let mut policies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for policy in &self.policies {
            for note in &policy.notes {
                policies.entry(note).or_default().push(&policy.name);
            }
        }
        policies.retain(|_, names| names.len() > 1);
        let whose = |names: Vec<&str>| match names.len() == self.policies.len() {
            true => "all policies".to_owned(),
            false => format!("policies {}", names.join(", ")),
        };
        policies.into_iter().map(|(note, names)| (note, whose(names))).collect()
    }

    /// The lines about the health of belay.
    fn lines(&self) -> Vec<(Tone, String)> {
        let mut lines = vec![match &self.leader {
            // An uninstall that runs has taken the Lease.
            Leader { name: Some(name), .. } if self.uninstall.is_some() => {
                let says = "belay denies nothing, and the uninstall removes all holds";
                (Tone::Bad, format!("UNINSTALL in progress by {name}: {says}"))
            }
            Leader { name: Some(name), .. } => (Tone::Good, format!("leader: {name}")),
            Leader { state: LeaderState::Unknown, .. } => {
                (Tone::Doubtful, "leader: unknown".to_owned())
            }
            // Without webhooks, belay is not installed, or the user has disabled it.
            Leader { .. } if is_missing(&self.configurations) => {
                (Tone::Bad, "leader: none".to_owned())
            }
            Leader { .. } => (Tone::Bad, "leader: none, so no replica updates the status of policies; check that the belay Pods \
                 run".to_owned()),
        }];
        for WebhookConfiguration { object, present } in &self.configurations {
            let name = format!("{}/{}", object.kind.to_lowercase(), object.name);
            lines.push(match present {
                true => (Tone::Plain, format!("webhooks: {name} exists")),
                false if self.uninstall.is_some() => {
                    (Tone::Bad, format!("webhooks: {name} was deleted by the uninstall"))
                }
                false => (Tone::Bad, format!(
                    "webhooks: {name} is MISSING, so belay gets no requests; install belay again"
                )),
            });
        }
        let steps = self.uninstall.iter().flat_map(|uninstall| &uninstall.next_steps);
        lines.extend(steps.map(|step| (Tone::Plain, step.clone())));
        lines.extend(match (&self.certificate, self.leader.state) {
            _ if self.uninstall.is_some() => None,
            (Some(expiry), _) => Some(expiry.line("the serving certificate")),
            (None, LeaderState::Replica) => {
                let line = "certificates: the expiry of the serving certificate is unknown";
                Some((Tone::Doubtful, line.to_owned()))
            }
            (None, LeaderState::NoLeader | LeaderState::Unknown) => None,
        });
        lines.extend(self.authority.as_ref().map(|expiry| expiry.line("the CA certificate")));
        for PauseReport { name, by, reason, until } in &self.pauses {
            let line = format!(
                "PAUSED: belay denies nothing until {until}: pause {name} by {by}: {reason}. To end \
                 it: kubectl belay pause --end"
            );
            lines.push((Tone::Bad, line));
        }
        lines
    }
}

impl PolicyStatus {
    fn row(
        &self,
        table: &mut Table,
        view: View,
        (common, is_counted): (&BTreeMap<&str, String>, bool),
    ) {
        let screen = view.screen;
        let ready = match self.ready {
            Some(true) if self.paused => Field::toned(Tone::Bad, "paused"),
            Some(true) => Field::toned(Tone::Good, "yes"),
            Some(false) => Field::toned(Tone::Bad, "NO"),
            None => Field::toned(Tone::Doubtful, "unknown"),
        };
        // No replica counts without a leader, or if an uninstall has taken the Lease.
        let count = |count: i64| match is_counted {
            true => count.to_string().into(),
            false => Field::toned(Tone::Doubtful, "unknown"),
        };
        let denied = match self.would_deny_last_24h {
            0 => self.denied_last_24h.to_string(),
            count => format!("{} ({count} not enforced)", self.denied_last_24h),
        };
        let first = [
            Field::toned(Tone::Strong, self.name.as_str()),
            self.effects.as_str().into(),
            ready,
            count(self.protected),
            count(self.held),
            denied.into(),
        ];
        let not_held: Vec<&str> = self.not_held.iter().map(|kind| &*kind.resource).collect();
        let not_held = if not_held.is_empty() { "-".to_owned() } else { not_held.join(",") };
        table.row(view.columns(first, [not_held.into()], self.protects.join(", ").into()));
        // Objects that got the hold before a change of the policy keep it.
        let all_kinds = self.not_held.iter().filter(|kind| kind.resource == "*" && self.held == 0);
        for NotHeld { why, .. } in all_kinds {
            table.below(&screen.paragraph(2, &format!("no hold: {why}")));
        }
        if self.effective_in > 0 {
            let line = format!(
                "holds: effective in {}; until then belay denies the deletion of objects in use \
                 with newer holds",
                format_age(self.effective_in)
            );
            table.below(&screen.paragraph(2, &line));
        }
        for note in self.notes.iter().filter(|note| !common.contains_key(note.as_str())) {
            table.below(&screen.paragraph(2, note));
        }
        if !self.unknown_kinds.is_empty() {
            let kinds = self.unknown_kinds.join(", ");
            table.below(&screen.paragraph(2, &format!("unknown kinds: {kinds}")));
        }
    }
}

#[cfg(test)]
mod tests;
