//! The report of `status`, as data and as a table.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::election::LeaderInfo;
use crate::command::document::{NotRead, Object};
use crate::command::duration::format_age;
use crate::command::report::{Report, View};
use crate::command::screen::{Field, Screen, Table, Tone};
use crate::policy::api::{
    Action, DeletionPolicy, DeletionPolicySpec, HoldMode, NotHeld, OnDelete, Pause, Protect,
};
use crate::policy::{BINDS_SOME, mode_names};

/// The number of policies without --all.
pub(super) const SHOWN: usize = 60;

/// A certificate that expires within this many seconds is reported.
const SOON: i64 = 7 * 86_400;

/// Reasons of conditions that require action. A kind that is not served is not a problem:
/// policies may name kinds that are added later. Data that has not been read yet will be
/// read soon.
const FAILING_REASONS: [&str; 4] = ["Forbidden", "Failed", "Refused", "TooManyObjects"];

/// The kind of the webhook configuration that denies requests.
pub const VALIDATING: &str = "ValidatingWebhookConfiguration";

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
    /// Whether the API server sends requests about it to belay. Absent if unknown, such as
    /// without a leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    /// The number of protected objects.
    protected: i64,
    /// The number of these objects with the hold.
    held: i64,
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
    /// The effects on a DELETE, for people.
    #[serde(skip)]
    effects: String,
    /// Whether it is not as it should be.
    #[serde(skip)]
    wrong: bool,
}

/// Why no policy is in effect, or no status of a policy is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The API server sends no DELETE to belay.
    NoWebhooks,
    /// There is no leader, which writes the statuses.
    NoLeader,
}

impl Outage {
    pub fn new(leader: &Leader, configurations: &[WebhookConfiguration]) -> Option<Self> {
        let is_missing = |one: &WebhookConfiguration| !one.present && one.object.kind == VALIDATING;
        match leader.state {
            _ if configurations.iter().any(is_missing) => Some(Self::NoWebhooks),
            LeaderState::Nobody => Some(Self::NoLeader),
            LeaderState::Replica | LeaderState::Unknown => None,
        }
    }
}

impl PolicyStatus {
    pub fn new(policy: &DeletionPolicy, outage: Option<Outage>) -> Self {
        let status = policy.status.clone().unwrap_or_default();
        let stale = status.observed_generation != policy.metadata.generation;
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let holds_not_all = status.not_held.iter().any(|none| none.resource != "*");
        let notes = status.conditions.iter().filter(|condition| {
            // True conditions have no message, except for holds that are incomplete.
            condition.status != "True"
                || condition.reason == "Paused"
                || (condition.type_ == "Holding" && holds_not_all)
        });
        let notes = notes.map(|c| format!("{}: {}: {}", c.type_, c.reason, c.message));
        let amiss = status.conditions.iter().any(|condition| {
            condition.status != "True" && FAILING_REASONS.contains(&condition.reason.as_str())
        });
        let stale = stale.then(|| "belay has not processed the latest version yet".to_owned());
        let notes: Vec<String> = stale.iter().cloned().chain(notes).collect();
        Self {
            wrong: ready.is_none_or(|ready| ready.status != "True") || stale.is_some() || amiss,
            name: policy.metadata.name.clone().unwrap_or_default(),
            action: policy.spec.action,
            effects: effects(&policy.spec),
            protects: modes(&policy.spec.protect),
            ready: match outage {
                Some(Outage::NoWebhooks) => Some(false),
                Some(Outage::NoLeader) => None,
                None => ready.map(|ready| ready.status == "True"),
            },
            protected: status.protected_objects,
            held: status.held_objects,
            denied_last_24h: status.last_24h.denied,
            would_deny_last_24h: status.last_24h.would_deny,
            not_held: never_held(&policy.spec, status.protected_objects)
                .map_or(status.not_held, |never| vec![never]),
            unknown_kinds: status.unknown_kinds,
            notes,
        }
    }
}

/// Why no object of a policy gets a hold, whatever its kind. `None`: some objects may.
fn never_held(spec: &DeletionPolicySpec, protected: i64) -> Option<NotHeld> {
    let why = match spec.action {
        _ if spec.hold == HoldMode::Never => NEVER,
        _ if spec.protect.always.is_none() && spec.protect.while_used.is_none() => NO_MODE,
        _ if !spec.subjects.is_empty() => BINDS_SOME,
        // Elsewhere it may refuse.
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

/// The action of a policy. A policy with action Deny can hold objects in use instead.
fn effects(spec: &DeletionPolicySpec) -> String {
    let holds =
        spec.protect.while_used.as_ref().is_some_and(|used| used.on_delete == OnDelete::Hold);
    match (spec.action, holds, modes(&spec.protect).len()) {
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
#[derive(Debug, Serialize, JsonSchema)]
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
    Nobody,
    /// The Lease could not be read.
    Unknown,
}

impl Leader {
    /// From the Lease.
    pub fn from_lease<E>(read: &Result<Option<LeaderInfo>, E>) -> Self {
        let (state, name) = match read {
            Ok(Some(led)) => (LeaderState::Replica, Some(led.replica.clone())),
            Ok(None) => (LeaderState::Nobody, None),
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
    pub fn in_force(pause: Pause, now: Timestamp) -> Option<Self> {
        let until = pause.spec.expiration_time.0;
        (now < until).then(|| Self::from_pause(pause))
    }

    /// The text about a pause.
    pub fn from_pause(pause: Pause) -> Self {
        Self {
            name: pause.metadata.name.unwrap_or_default(),
            by: pause.spec.by,
            reason: pause.spec.reason,
            until: pause.spec.expiration_time.0,
        }
    }
}

/// A webhook configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookConfiguration {
    /// The object.
    pub object: Object,
    /// Whether it exists.
    pub present: bool,
}

/// When a certificate ends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Expiry {
    /// The expiry.
    #[schemars(with = "String")]
    until: Timestamp,
    #[serde(skip)]
    left: i64,
}

impl Expiry {
    pub fn new(until: Timestamp, now: Timestamp) -> Self {
        Self { until, left: until.as_second().saturating_sub(now.as_second()) }
    }

    /// The first of some.
    pub fn soonest(ends: Vec<i64>, now: Timestamp) -> Option<Self> {
        let until = Timestamp::from_second(ends.into_iter().min()?).ok()?;
        Some(Self::new(until, now))
    }

    fn is_soon(&self) -> bool {
        self.left < SOON
    }

    fn line(&self, what: &str) -> (Tone, String) {
        let Self { until, left } = self;
        let tone = if self.is_soon() { Tone::Bad } else { Tone::Plain };
        let left =
            if *left < 0 { "EXPIRED".to_owned() } else { format!("{} left", format_age(*left)) };
        (tone, format!("certificates: {what} expires {until} ({left})"))
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
    /// The certificate that the leader serves. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Expiry>,
    /// The CA in the webhook configurations; of several, the first to expire. Absent if there
    /// is none, or if it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority: Option<Expiry>,
    /// Failed reads.
    pub not_read: Vec<NotRead>,
}

impl Report for StatusReport {
    const KIND: &'static str = "Status";

    fn text(&self, view: View) -> String {
        let screen = view.screen;
        let mut text = String::new();
        for (tone, line) in self.lines() {
            for line in screen.lines(0, &line) {
                text.push_str(&(screen.paint(tone, &line) + "\n"));
            }
        }
        if self.policies.is_empty() {
            text.push_str(
                "no policies: only objects with the label belay.dev/protect are protected\n",
            );
        } else {
            let heading = ["POLICY", "ACTION", "READY", "PROTECTED", "HELD", "DENIED", "PROTECTS"];
            let row = |table: &mut Table, policy: &PolicyStatus| policy.row(table, screen);
            text.push_str(&view.table(&heading, (&self.policies, SHOWN, "policies"), row));
        }
        text + &view.not_read(&self.not_read)
    }

    /// 1 if something is not as it should be, 3 if that could not be read.
    fn exit_code(&self) -> u8 {
        let wrong = self.leader.state == LeaderState::Nobody
            || !self.pauses.is_empty()
            || self.configurations.iter().any(|configuration| !configuration.present)
            || self.policies.iter().any(|policy| policy.wrong)
            || self.certificate.iter().chain(&self.authority).any(Expiry::is_soon);
        match (wrong, self.not_read.is_empty()) {
            (true, _) => 1,
            (false, false) => 3,
            (false, true) => 0,
        }
    }
}

impl StatusReport {
    /// How belay itself is.
    fn lines(&self) -> Vec<(Tone, String)> {
        let mut lines = vec![match &self.leader {
            Leader { name: Some(name), .. } => (Tone::Good, format!("leader: {name}")),
            Leader { state: LeaderState::Unknown, .. } => {
                (Tone::Doubtful, "leader: unknown".to_owned())
            }
            Leader { .. } => (Tone::Bad, "leader: none, so no replica updates the status of policies; check that the belay Pods \
                 run".to_owned()),
        }];
        for WebhookConfiguration { object, present } in &self.configurations {
            let name = format!("{}/{}", object.kind.to_lowercase(), object.name);
            lines.push(match present {
                true => (Tone::Plain, format!("webhooks: {name} exists")),
                false => (Tone::Bad, format!(
                    "webhooks: {name} is MISSING, so belay gets no requests; install belay again"
                )),
            });
        }
        lines.extend(match (&self.certificate, self.leader.state) {
            (Some(end), _) => Some(end.line("the serving certificate")),
            (None, LeaderState::Replica) => {
                let says = "certificates: the expiry of the serving certificate is unknown";
                Some((Tone::Doubtful, says.to_owned()))
            }
            (None, LeaderState::Nobody | LeaderState::Unknown) => None,
        });
        lines.extend(self.authority.as_ref().map(|end| end.line("the CA certificate")));
        for PauseReport { name, by, reason, until } in &self.pauses {
            let says = format!(
                "PAUSED: belay denies nothing until {until}: pause {name} by {by}: {reason}. To end \
                 it: kubectl belay pause --end"
            );
            lines.push((Tone::Bad, says));
        }
        lines
    }
}

impl PolicyStatus {
    fn row(&self, table: &mut Table, screen: Screen) {
        let ready = match self.ready {
            Some(true) => Field::toned(Tone::Good, "yes"),
            Some(false) => Field::toned(Tone::Bad, "NO"),
            None => Field::toned(Tone::Doubtful, "unknown"),
        };
        let denied = match self.would_deny_last_24h {
            0 => self.denied_last_24h.to_string(),
            would => format!("{} (+{would} would)", self.denied_last_24h),
        };
        table.row([
            Field::toned(Tone::Strong, self.name.as_str()),
            self.effects.as_str().into(),
            ready,
            self.protected.to_string().into(),
            self.held.to_string().into(),
            denied.into(),
            self.protects.join(", ").into(),
        ]);
        // Objects that were held before a change of the policy stay held.
        let none = self.not_held.iter().filter(|none| none.resource == "*" && self.held == 0);
        for NotHeld { why, .. } in none {
            table.below(&screen.paragraph(2, &format!("no hold: {why}")));
        }
        for note in &self.notes {
            table.below(&screen.paragraph(2, note));
        }
        if !self.unknown_kinds.is_empty() {
            let kinds = self.unknown_kinds.join(", ");
            table.below(&screen.paragraph(2, &format!("unknown kinds: {kinds}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::Format;
    use serde_json::{Value, json};

    fn policy(conditions: &Value, observed: i64) -> PolicyStatus {
        let policy: DeletionPolicy = serde_json::from_value(json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
            "metadata": {"name": "kept", "generation": 2},
            "spec": {"targets": [], "protect": {"always": {}, "whileUsed": {}}, "action": "Warn"},
            "status": {"observedGeneration": observed, "protectedObjects": 40, "heldObjects": 38,
                "notHeld": [{"resource": "pods", "why": "harm"}],
                "unknownKinds": ["gadgets.test"], "last24h": {"denied": 3, "wouldDeny": 2, "held": 0},
                "conditions": conditions}
        }))
        .unwrap();
        PolicyStatus::new(&policy, None)
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn well() -> PolicyStatus {
        policy(&json!([condition("Ready", "True", "Registered", "it is asked")]), 2)
    }

    fn report(policies: Vec<PolicyStatus>) -> StatusReport {
        let led = LeaderInfo { replica: "belay-0".to_owned(), certificate_until: None };
        let object = Object {
            kind: "ValidatingWebhookConfiguration".to_owned(),
            name: "belay".to_owned(),
            ..Object::default()
        };
        StatusReport {
            policies,
            leader: Leader::from_lease(&Ok::<_, ()>(Some(led))),
            pauses: Vec::new(),
            configurations: vec![WebhookConfiguration { object, present: true }],
            certificate: Some(Expiry { until: Timestamp::UNIX_EPOCH, left: 86_400 * 60 }),
            authority: None,
            not_read: Vec::new(),
        }
    }

    const PIPE: View = View { screen: Screen::pipe(), all: false };

    fn text(report: &StatusReport) -> String {
        report.render(Format::Table, PIPE).unwrap()
    }

    fn code(report: &StatusReport) -> u8 {
        report.exit_code()
    }

    #[test]
    fn policies_are_reported_with_their_objects() {
        let report = report(vec![well()]);
        assert_eq!(
            text(&report),
            "leader: belay-0\n\
             webhooks: validatingwebhookconfiguration/belay exists\n\
             certificates: the serving certificate expires 1970-01-01T00:00:00Z (60d left)\n\
             POLICY   ACTION   READY   PROTECTED   HELD   DENIED         PROTECTS\n\
             kept     Warn     yes     40          38     3 (+2 would)   always, whileUsed\n  \
             unknown kinds: gadgets.test\n"
        );
        assert_eq!(code(&report), 0);
    }

    #[test]
    fn objects_without_a_hold_are_reported_with_the_reason() {
        let told = |change: Value| {
            let mut policy = json!({
                "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
                "metadata": {"name": "kept"},
                "spec": {"targets": [], "protect": {"whileUsed": {}}},
                "status": {"protectedObjects": 4, "notHeld": [{"resource": "pods", "why": "harm"}]}
            });
            let spec = policy["spec"].as_object_mut().unwrap();
            spec.extend(change.as_object().unwrap().clone());
            let policy: DeletionPolicy = serde_json::from_value(policy).unwrap();
            serde_json::to_value(PolicyStatus::new(&policy, None)).unwrap()["notHeld"].clone()
        };
        let all = |why: &str| json!([{"resource": "*", "why": why, "objects": 4}]);
        assert_eq!(told(json!({})), json!([{"resource": "pods", "why": "harm"}]));
        assert_eq!(told(json!({"hold": "Never"})), all(NEVER));
        assert_eq!(told(json!({"protect": {"fromOrphaning": {}}})), all(NO_MODE));
        let some = json!({"subjects": [{"kind": "User", "name": "bob"}]});
        assert_eq!(told(some), all(BINDS_SOME));
        assert_eq!(told(json!({"action": "Audit"})), all(ONLY_RECORDS));
        assert_eq!(told(json!({"action": "Warn"})), all(ONLY_WARNS));
        let overrides = json!([{"namespaceSelector": {}, "action": "Deny"}]);
        let elsewhere = json!({"action": "Warn", "actionOverrides": overrides});
        assert_eq!(told(elsewhere), json!([{"resource": "pods", "why": "harm"}]));
    }

    #[test]
    fn a_policy_reports_its_problems_and_where_it_holds_nothing() {
        let conditions = json!([
            condition("Ready", "True", "Registered", "it is asked"),
            condition("Watching", "False", "Forbidden", "secrets: you may not"),
            condition("Holding", "True", "InPlace", "2 of 2 objects; hold Auto adds none to pods"),
        ]);
        let notes = policy(&conditions, 1).notes;
        assert_eq!(
            notes,
            [
                "belay has not processed the latest version yet",
                "Watching: Forbidden: secrets: you may not",
                "Holding: InPlace: 2 of 2 objects; hold Auto adds none to pods",
            ]
        );
        assert_eq!(well().notes, [""; 0]);
    }

    #[test]
    fn without_webhooks_or_a_leader_no_policy_is_ready() {
        let mut report = report(Vec::new());
        let policy: DeletionPolicy = serde_json::from_value(json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy", "metadata": {"name": "p"},
            "spec": {"targets": [], "protect": {"whileUsed": {"onDelete": "Hold"}}},
            "status": {"conditions": [condition("Ready", "True", "Registered", "")]}
        }))
        .unwrap();
        let ready = |report: &StatusReport| {
            let outage = Outage::new(&report.leader, &report.configurations);
            PolicyStatus::new(&policy, outage).ready
        };
        assert_eq!(ready(&report), Some(true));
        report.leader = Leader::from_lease(&Err(()));
        assert_eq!(ready(&report), Some(true), "there may be a leader");
        report.leader = Leader::from_lease(&Ok::<_, ()>(None));
        assert_eq!(ready(&report), None);
        report.configurations[0].present = false;
        assert_eq!(ready(&report), Some(false));
        assert_eq!(PolicyStatus::new(&policy, None).effects, "Hold");
    }

    #[test]
    fn what_is_wrong_is_loud_and_is_the_exit_code() {
        let ready = |status: &str| policy(&json!([condition("Ready", status, "Invalid", "x")]), 2);
        assert_eq!(code(&report(vec![ready("False")])), 1);
        assert!(text(&report(vec![ready("False")])).contains("   NO      "));
        assert_eq!(code(&report(vec![policy(&json!([]), 2)])), 1);
        let mut unled = report(vec![well()]);
        unled.leader = Leader::from_lease(&Ok::<_, ()>(None));
        assert!(text(&unled).starts_with("leader: none, so no replica updates"));
        assert_eq!(code(&unled), 1);
        let mut missing = report(vec![well()]);
        missing.configurations[0].present = false;
        assert!(text(&missing).contains("MISSING"));
        assert_eq!(code(&missing), 1);
        let mut blind = report(vec![well()]);
        blind.leader = Leader::from_lease(&Err(()));
        blind.not_read.push(NotRead { resource: "leases".to_owned(), why: "no".to_owned() });
        assert_eq!(code(&blind), 3);
        let now = Timestamp::from_second(1000).unwrap();
        for (ends, says, expected) in [
            (vec![900, 9_000_000], "EXPIRED", 1),
            (vec![1000 + 86_400], "24h left", 1),
            (vec![1000 + 86_400 * 30], "30d left", 0),
        ] {
            let mut report = report(vec![well()]);
            let served = Expiry::soonest(ends.clone(), now);
            report.authority = Expiry::soonest(ends, now);
            assert!(text(&report).contains(says), "{}", text(&report));
            assert_eq!(code(&report), expected, "{says}");
            // The same applies to the served certificate.
            (report.certificate, report.authority) = (served, None);
            assert!(text(&report).contains(says), "{}", text(&report));
            assert_eq!(code(&report), expected, "{says}");
        }
        let mut silent = report(vec![well()]);
        silent.certificate = None;
        assert!(
            text(&silent).contains("the expiry of the serving certificate is unknown"),
            "{}",
            text(&silent)
        );
        assert_eq!(code(&silent), 0);
    }

    #[test]
    fn a_pause_is_loud_while_it_is_in_force() {
        let pause = |expires: i64| -> Option<PauseReport> {
            let until = Timestamp::from_second(expires).unwrap().to_string();
            let pause = serde_json::from_value(json!({"apiVersion": "belay.dev/v1alpha1",
                "kind": "Pause", "metadata": {"name": "p"},
                "spec": {"by": "alice", "reason": "INC-1", "expirationTime": until}}));
            PauseReport::in_force(pause.unwrap(), Timestamp::from_second(1000).unwrap())
        };
        assert!(pause(1000).is_none());
        let mut report = report(vec![well()]);
        report.pauses.extend(pause(1060));
        assert!(text(&report).contains("PAUSED: belay denies nothing until 1970-01-01T00:17:40Z"));
        let json: Value =
            serde_json::from_str(&report.render(Format::Json, PIPE).unwrap()).unwrap();
        assert_eq!(json["kind"], "Status");
        assert_eq!(json["leader"], json!({"state": "Replica", "name": "belay-0"}));
        assert_eq!(json["policies"][0]["protects"][1], "whileUsed");
        assert_eq!(json["pauses"][0]["by"], "alice");
        assert_eq!(code(&report), 1);
    }
}
