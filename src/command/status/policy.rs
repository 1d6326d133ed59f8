//! The status of one policy, and its row in the table of `status`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::leader::Outage;
use crate::command::duration::format_age;
use crate::command::report::View;
use crate::command::screen::{Field, Table, Tone};
use crate::objects::HoldAge;
use crate::policy::api::{
    Action, DeletionPolicy, DeletionPolicySpec, HoldMode, NotHeld, OnDelete, Protect,
};
use crate::policy::{WHY_NO_HOLD_WITH_SUBJECTS, mode_names};

/// The reasons of conditions that require action. The other reasons don't: a policy may name
/// kinds that are added later, and belay soon reads the data that it has not read yet.
const FAILING_REASONS: [&str; 4] = ["Forbidden", "Failed", "Refused", "TooManyObjects"];

/// One policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// The name.
    pub(super) name: String,
    /// The action of the policy.
    action: Action,
    /// The names of the enabled modes.
    protects: Vec<&'static str>,
    /// Whether the API server sends requests about its latest version to belay, and belay watches
    /// all kinds that it needs. Absent if unknown: without a leader, and if neither the Lease nor
    /// the webhook configurations could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready: Option<bool>,
    /// The number of protected objects.
    protected: i64,
    /// The number of these objects with the hold.
    held: i64,
    /// From this time on all holds are effective; before, a policy with `onDelete: Hold` refuses
    /// the DELETE of an object in use whose hold is not effective yet. Absent if all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holds_effective_time: Option<String>,
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
    pub(super) notes: Vec<String>,
    /// The effects on a DELETE, for the table.
    #[serde(skip)]
    pub(super) effects: String,
    /// The counts that belay is still changing: `protected` and `held`.
    #[serde(skip)]
    counting: (bool, bool),
    /// Whether the policy has a problem that requires action.
    #[serde(skip)]
    pub(super) has_problem: bool,
    /// Whether a pause suspends it.
    paused: bool,
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
        let has_reason =
            |reason: &str| status.conditions.iter().any(|condition| condition.reason == reason);
        let is_counting = has_reason("Counting");
        let counting = (is_counting, is_counting || has_reason("Progressing"));
        let is_failing = status.conditions.iter().any(|condition| {
            condition.status != "True" && FAILING_REASONS.contains(&condition.reason.as_str())
        });
        let stale = stale.then(|| "belay has not processed the latest version yet".to_owned());
        let notes: Vec<String> = stale.iter().cloned().chain(notes).collect();
        let effective_time =
            status.holds_effective_time.map(|time| time.0).filter(|time| *time > now);
        Self {
            counting,
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

impl PolicyStatus {
    /// Adds a note if the status still reports a Pause. The caller knows that no Pause is active.
    pub fn note_ended_pause(&mut self) {
        if self.paused {
            self.notes.push(PAUSE_ENDED.to_owned());
        }
    }

    /// Replaces the note that webhook configurations are missing. The caller knows that they exist:
    /// in the first seconds after an install, belay has not updated the condition yet.
    pub fn replace_note_of_missing_webhooks(&mut self) {
        for note in self.notes.iter_mut().filter(|note| note.starts_with(MISSING_WEBHOOKS)) {
            *note = format!(
                "{MISSING_WEBHOOKS}: the webhook configurations were missing and exist now; the \
                 leader updates this status"
            );
        }
    }
}

/// The note of a policy whose status still reports a Pause that has ended.
const PAUSE_ENDED: &str = "the pause has ended, and belay enforces its policies again; it updates this \
                           status within a minute";

/// The start of the note that webhook configurations are missing.
const MISSING_WEBHOOKS: &str = "Ready: ConfigurationMissing";

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
pub(super) const NEVER: &str = "the policy sets hold to Never";
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

impl PolicyStatus {
    /// Adds the row. `common`: the notes that several policies share, which are printed elsewhere;
    /// `is_counted`: whether the counts are current.
    pub(super) fn row(
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
        let count = |count: i64, is_counting: bool| match is_counted {
            true if is_counting => Field::toned(Tone::Doubtful, "counting"),
            true => count.to_string().into(),
            false => Field::toned(Tone::Doubtful, "unknown"),
        };
        let denied = match self.would_deny_last_24h {
            0 => self.denied_last_24h.to_string(),
            count => format!("{} ({count} would be denied)", self.denied_last_24h),
        };
        let first = [
            Field::toned(Tone::Strong, self.name.as_str()),
            self.effects.as_str().into(),
            ready,
            count(self.protected, self.counting.0),
            count(self.held, self.counting.1),
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
                "holds: belay relies on a hold only {} s after adding it to an existing object \
                 (the newest hold: in {}). Before that, belay denies the deletion of the object if \
                 it is in use",
                HoldAge::SETTLED_SECONDS,
                format_age(self.effective_in)
            );
            table.below(&screen.paragraph(2, &line));
        }
        for note in self.notes.iter().filter(|note| !common.contains_key(note.as_str())) {
            table.below(&screen.paragraph(2, note));
        }
        if !self.unknown_kinds.is_empty() {
            table.below(&screen.paragraph(2, &unknown_kinds_text(&self.unknown_kinds)));
        }
    }
}

/// The kinds of a policy that no API server or CRD defines, and what to do.
pub(super) fn unknown_kinds_text(kinds: &[String]) -> String {
    let kinds = kinds.join(", ");
    format!("unknown kinds: {kinds}; use plural names (kubectl api-resources) or install the CRDs")
}
