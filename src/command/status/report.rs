//! The report of `status`, as data and as a table.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::leader::{Leader, LeaderState};
use super::policy::{PolicyStatus, policy_lines};
use super::unreleased::UnreleasedHolds;
use crate::command::document::FailedRead;
use crate::command::duration::format_age;
use crate::command::place::Installation;
use crate::command::report::{Report, View, exit_code_of};
use crate::command::screen::{Table, Tone};
use crate::command::webhooks::{
    INSTALL_AGAIN, REMOVED_HOLDS, RunningUninstall, VALIDATING, WebhookConfiguration, are_inactive,
};
use crate::policy::api::Pause;

/// The maximum number of policies in a table, without `--all`.
pub(super) const MAX_POLICIES: usize = 60;

/// The status reports a certificate that expires within this number of seconds as a problem.
const MIN_REMAINING_SECONDS: i64 = 7 * 86_400;

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

/// An uninstall of belay that holds the Lease.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UninstallStatus {
    /// The name with which the uninstall has taken the Lease.
    name: String,
    /// When the uninstall last renewed the Lease.
    #[schemars(with = "String")]
    renewed: Timestamp,
    /// Whether it has missed a renewal.
    may_have_stopped: bool,
    /// How to follow the uninstall, and how to stop it.
    next_steps: Vec<String>,
    #[serde(skip)]
    age: String,
}

impl UninstallStatus {
    pub fn new(
        lease: RunningUninstall,
        Installation { namespace, name: installation }: &Installation,
    ) -> Self {
        let next_steps = [
            format!(
                "to see the remaining work: kubectl belay admin uninstall --dry-run \
                 --installation={namespace}/{installation}"
            ),
            format!(
                "to follow a helm uninstall: kubectl -n {namespace} logs -f \
                 job/{installation}-uninstall"
            ),
            format!(
                "to stop it: interrupt its command, or for Helm: kubectl -n {namespace} delete \
                 job/{installation}-uninstall"
            ),
            format!("to keep belay then: {INSTALL_AGAIN}"),
        ];
        Self {
            may_have_stopped: lease.may_have_stopped(),
            age: lease.age_text(),
            name: lease.name,
            renewed: lease.renewed,
            next_steps: next_steps.into(),
        }
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
    /// The uninstall that holds the Lease. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninstall: Option<UninstallStatus>,
    /// The certificate that the leader serves. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Expiry>,
    /// The kinds with holds that belay may no longer release, because no policy and no value of the
    /// chart grants it the rights.
    pub unreleased_holds: Vec<UnreleasedHolds>,
    /// The sentence if belay is uninstalled.
    #[serde(skip)]
    pub uninstalled: Option<String>,
    /// What the API server does while belay is down.
    #[serde(skip)]
    pub effect_of_outage: &'static str,
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
            text.push_str(match are_inactive(&self.configurations) {
                true => "no policies, and belay protects nothing\n",
                false => {
                    "no policies: only objects with the label belay.dev/protect are protected\n"
                }
            });
        } else {
            let heading = ["POLICY", "ACTION", "READY", "PROTECTED", "HOLDS", "DENIED"];
            let heading = view.columns(heading, ["WITHOUT HOLDS"], "RULES");
            let is_counted = self.leader.state != LeaderState::NoLeader;
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
            || self.configurations.iter().any(|configuration| !configuration.has_rules)
            || !self.unreleased_holds.is_empty()
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
        if let Some(uninstalled) = self.uninstalled.as_ref().filter(|_| self.pauses.is_empty()) {
            return vec![(Tone::Bad, uninstalled.clone())];
        }
        let is_inactive = are_inactive(&self.configurations);
        let mut lines = vec![match (&self.uninstall, &self.leader) {
            (Some(UninstallStatus { name, age, may_have_stopped, .. }), _) => {
                let effect = match (is_inactive, may_have_stopped) {
                    (false, _) => "no replica updates the status of policies".to_owned(),
                    (true, false) => {
                        format!("belay denies nothing, and the uninstall {REMOVED_HOLDS}")
                    }
                    (true, true) => {
                        "belay denies nothing, and objects keep the holds that it has not removed"
                            .to_owned()
                    }
                };
                (Tone::Bad, format!("UNINSTALL in progress by {name} {age}: {effect}"))
            }
            (None, Leader { name: Some(name), .. }) => (Tone::Good, format!("leader: {name}")),
            (None, Leader { state: LeaderState::Unknown, .. }) => {
                (Tone::Doubtful, "leader: unknown".to_owned())
            }
            // Without webhooks, belay is not installed, or the user has disabled it.
            (None, Leader { .. }) if is_inactive => (Tone::Bad, "leader: none".to_owned()),
            (None, Leader { .. }) => (
                Tone::Bad,
                format!(
                    "leader: none; while belay is down, {}, and no replica updates the status of \
                     policies; next: check that the belay Pods run",
                    self.effect_of_outage
                ),
            ),
        }];
        for WebhookConfiguration { object, present, has_rules } in &self.configurations {
            let name = format!("{}/{}", object.kind.to_lowercase(), object.name);
            lines.push(match present {
                true if *has_rules => (Tone::Plain, format!("webhooks: {name} exists")),
                true => {
                    let effect = match object.kind == VALIDATING {
                        true => "belay denies nothing",
                        false => "new objects get no hold",
                    };
                    let text = format!(
                        "webhooks: {name} has no rules, so {effect}; a replica adds them within \
                         seconds after it becomes the leader"
                    );
                    (Tone::Bad, text)
                }
                false if self.uninstall.is_some() => {
                    (Tone::Bad, format!("webhooks: {name} was deleted by the uninstall"))
                }
                false => (
                    Tone::Bad,
                    format!(
                        "webhooks: {name} is MISSING, so belay gets no requests; to install it \
                         again: {INSTALL_AGAIN}"
                    ),
                ),
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
        lines.extend(self.unreleased_holds.iter().map(|holds| (Tone::Bad, holds.line())));
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

#[cfg(test)]
mod tests;
