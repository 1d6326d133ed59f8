//! Computes the conditions of a policy.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::policies::StoredPolicy;
use crate::cluster::Registered;
use crate::cluster::holding::{BackfillStop, HoldCounts, HoldProgress, RefusedHolds};
use crate::cluster::journal::to_the_second;

use crate::decide::{AdmissionPhase, NoHoldReason};
use crate::graph::{Graph, Incomplete};
use crate::objects::{ApiError, KindId, full_name, text_enum};
use crate::policy::api::NotHeld;
use crate::policy::{BACKFILL_ANNOTATION, Pause, WHY_NO_HOLD_WITH_SUBJECTS};

/// The number of kinds that a message names.
const MAX_NAMED: usize = 5;

/// A condition without its transition time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyCondition {
    type_: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl PolicyCondition {
    fn new(
        type_: &'static str,
        (status, reason): (&'static str, &'static str),
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason, message: message.into() }
    }

    /// The condition Ready while the numbers of the status are incomplete.
    pub(super) fn while_counting(self) -> Self {
        self.unready("Counting", "belay reads and counts the objects of this policy")
    }

    /// The condition Ready with this condition Watching: False while a kind can't be watched.
    pub(super) fn with_watching(self, watching: &Self) -> Self {
        let failed = [IncompleteReason::Forbidden, IncompleteReason::Failed];
        if failed.iter().all(|failed| failed.reason() != watching.reason) {
            return self;
        }
        self.unready(
            "NotWatched",
            "belay can't watch a kind that this policy needs; see the condition Watching",
        )
    }

    fn unready(self, reason: &'static str, message: &str) -> Self {
        match self.status {
            "True" => Self { status: "False", reason, message: message.to_owned(), ..self },
            _ => self,
        }
    }
}

/// The condition Ready, as far as it depends on the requests that the API server sends.
/// `with_watching` adds the state of the watches.
pub(super) fn ready(
    policy: &StoredPolicy,
    registered: &Registered,
    pause: Option<&Pause>,
) -> PolicyCondition {
    let ready = |reason, message| PolicyCondition::new("Ready", ("True", reason), message);
    let not_ready = |reason, message| PolicyCondition::new("Ready", ("False", reason), message);
    if !policy.problems.is_empty() {
        let texts = policy.problems.iter().map(|p| format!("{}: {}", p.field, p.message));
        return not_ready("Invalid", texts.collect::<Vec<_>>().join("; "));
    }
    if !registered.missing.is_empty() {
        let mut phases = registered.missing.iter().map(|(phase, _)| *phase);
        let effect = match phases.all(|phase| phase == AdmissionPhase::Mutate) {
            true => "new objects get no hold, and a removed hold is not restored",
            false => "the API server sends no requests to belay",
        };
        let names = registered.missing.iter().map(|(_, name)| name.as_str());
        let missing = names.collect::<Vec<_>>().join(", ");
        return not_ready(
            "ConfigurationMissing",
            format!(
                "{missing} does not exist, so {effect}; install belay again, because belay never creates it"
            ),
        );
    }
    if !registered.changed.is_empty() {
        let changed = registered.changed.join(", ");
        return not_ready(
            "ConfigurationChanged",
            format!(
                "{changed} differs from the manifest of this version of belay, so the API server may \
                 not send all requests that this policy needs; install the chart and the image of \
                 the same version again, because belay does not write these fields"
            ),
        );
    }
    if registered.generation.is_none_or(|generation| generation < policy.loaded_at) {
        let message = "the webhook configurations do not contain the rules of this policy yet";
        return not_ready("NotRegistered", message.to_owned());
    }
    if let Some(pause @ Pause { name, by, .. }) = pause {
        let until = pause.until();
        let message = format!("pause {name} by {by}: policies are not enforced until {until}");
        return ready("Paused", message);
    }
    ready("Registered", "the API server sends the requests that this policy needs".to_owned())
}

text_enum! {
    /// Why the objects of a kind are incomplete, most serious first. `Forbidden` and `Failed` make
    /// the policy not Ready.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum IncompleteReason {
        Forbidden = "Forbidden",
        Failed = "Failed",
        NotInstalled = "NotInstalled",
        Unreadable = "Unreadable",
        Reading = "Reading",
    }

    fn reason;
}

const NOT_SERVED: Incomplete = Incomplete::Failed(ApiError::NotFound);

impl IncompleteReason {
    fn new(why: &Incomplete) -> Self {
        match why {
            Incomplete::Failed(ApiError::NotFound) => Self::NotInstalled,
            Incomplete::Failed(ApiError::Forbidden(_)) => Self::Forbidden,
            Incomplete::NotYetRead => Self::Reading,
            Incomplete::Failed(_) | Incomplete::OtherReason(_) => Self::Failed,
        }
    }
}

/// Whether belay knows all objects that verdicts of the policy need. `needs` are the kinds to read,
/// `unknown` the kinds that the API server does not serve.
pub(super) fn watching(
    graph: &Graph,
    needs: &BTreeSet<KindId>,
    unknown: &[String],
) -> PolicyCondition {
    let mut missing: Vec<(IncompleteReason, String, String)> = unknown
        .iter()
        .map(|name| (IncompleteReason::NotInstalled, name.clone(), NOT_SERVED.to_string()))
        .collect();
    for kind in needs.iter().filter(|kind| !graph.is_complete(**kind)) {
        let info = graph.kinds.info(*kind);
        // A kind that was never served has no plural name.
        let name = if info.resource.is_empty() { &info.kind } else { &info.resource };
        let name = full_name(&info.group, name);
        if unknown.contains(&name) {
            continue;
        }
        let why = match graph.kinds.is_served(*kind) {
            true => graph.why_incomplete(*kind),
            false => &NOT_SERVED,
        };
        missing.push((IncompleteReason::new(why), name, why.to_string()));
    }
    for kind in needs.iter().filter(|kind| graph.is_complete(**kind)) {
        if let Some((_, object)) = graph.malformed_in(*kind, "") {
            let info = graph.kinds.info(*kind);
            let name = full_name(&info.group, &info.resource);
            let why = format!("{object}, so it may use anything");
            missing.push((IncompleteReason::Unreadable, name, why));
        }
    }
    missing.sort();
    let Some((first, ..)) = missing.first() else {
        let message = format!("all objects of {} kinds are known", needs.len());
        return PolicyCondition::new("Watching", ("True", "Synced"), message);
    };
    let texts = missing.iter().map(|(_, name, why)| format!("{name}: {why}"));
    PolicyCondition::new("Watching", ("False", first.reason()), first_kinds(texts, "; ", ";"))
}

/// The condition Watching of an invalid policy, which is not in force.
pub(super) fn not_watching() -> PolicyCondition {
    let message = "belay watches nothing for an invalid policy";
    PolicyCondition::new("Watching", ("Unknown", "Invalid"), message)
}

/// Joins the texts about the first kinds. If there are more, `before_more` and their number follow.
fn first_kinds(
    texts: impl ExactSizeIterator<Item = String>,
    separator: &str,
    before_more: &str,
) -> String {
    let more = texts.len().saturating_sub(MAX_NAMED);
    let named = texts.take(MAX_NAMED).collect::<Vec<_>>().join(separator);
    if more > 0 { format!("{named}{before_more} and {more} more kinds") } else { named }
}

/// Why a kind without the right to patch gets no hold, and how to grant the right.
const NO_RIGHT: &str = "belay's ServiceAccount may not patch them; add them to rbac.watchAlso of \
     the chart";

/// Whether the objects of a policy have the hold.
pub(super) fn holding(policy: &str, holding: &HoldProgress) -> PolicyCondition {
    let HoldProgress { counts, unread, unsafe_kinds, forbidden, .. } = holding;
    let HoldProgress { binds_some, stopped, refused, .. } = holding;
    let HoldCounts { done, total, terminating, .. } = counts;
    if *binds_some {
        let message = format!(
            "no object gets the hold: {WHY_NO_HOLD_WITH_SUBJECTS}; admission denials protect them"
        );
        return PolicyCondition::new("Holding", ("False", "BindsSome"), message);
    }
    let mut message = match (total, terminating) {
        (0, 0) => "no object needs the hold".to_owned(),
        (0, _) => format!("no object needs the hold, except Terminating ones ({terminating})"),
        _ => format!("{done} of {total} objects have the hold"),
    };
    if *unread {
        message.push_str("; belay has not read all objects yet");
    }
    if !unsafe_kinds.is_empty() {
        let kinds = first_kinds(unsafe_kinds.iter().cloned(), ", ", "");
        message.push_str(&format!(
            "; hold Auto adds none to {kinds}, where it is unsafe: admission denials \
             protect those"
        ));
    }
    if !forbidden.is_empty() {
        let kinds = first_kinds(forbidden.iter().cloned(), ", ", "");
        message.push_str(&format!("; none on {kinds}: {NO_RIGHT}"));
    }
    let largest = stopped.iter().map(|stopped| stopped.missing).max();
    if let Some(largest) = largest {
        message.push_str(&too_many(policy, stopped, largest));
    }
    if let Some(RefusedHolds { objects, first, why }) = refused {
        message.push_str(&format!(
            "; holds that the API server refuses: {objects} (belay retries every minute): \
             {first}: {why}"
        ));
    }
    let finding = match largest {
        Some(_) => ("False", "TooManyObjects"),
        None if !forbidden.is_empty() => ("False", "Forbidden"),
        None if refused.is_some() => ("False", "Refused"),
        None if *unread => ("False", "Counting"),
        None if done >= total => ("True", "InPlace"),
        None => ("False", "Progressing"),
    };
    PolicyCondition::new("Holding", finding, message)
}

/// The objects of a policy that get no hold, for programs.
pub(super) fn not_held(holding: &HoldProgress) -> Vec<NotHeld> {
    let HoldProgress { unsafe_kinds, stopped, binds_some, forbidden, .. } = holding;
    let none = |resource: &str, why: &str| NotHeld {
        resource: resource.to_owned(),
        why: why.to_owned(),
        objects: None,
    };
    let all_kinds = binds_some.then(|| none("*", WHY_NO_HOLD_WITH_SUBJECTS));
    let forbidden = forbidden.iter().map(|resource| none(resource, NO_RIGHT));
    let unsafe_kinds =
        unsafe_kinds.iter().map(|resource| none(resource, NoHoldReason::Kind.message()));
    let stopped = stopped.iter().map(|BackfillStop { resource, missing, limit }| NotHeld {
        resource: resource.clone(),
        why: format!("more existing objects lack the hold than the limit of {limit}"),
        objects: i64::try_from(*missing).ok(),
    });
    all_kinds.into_iter().chain(unsafe_kinds).chain(forbidden).chain(stopped).collect()
}

/// A stopped backfill, and how to continue it.
fn too_many(policy: &str, stopped: &[BackfillStop], largest: usize) -> String {
    let texts = stopped.iter().map(|BackfillStop { resource, missing, limit }| {
        format!("{missing} {resource} lack it, more than the limit of {limit}")
    });
    let texts = first_kinds(texts, ", ", ",");
    format!(
        "; {texts}, so only new objects get the hold. To continue, narrow the policy, or run: \
         kubectl annotate --overwrite deletionpolicy {policy} {BACKFILL_ANNOTATION}={largest}"
    )
}

/// The conditions to write. A condition keeps its transition time while its status is the same.
pub(super) fn conditions(
    before: &[Condition],
    findings: Vec<PolicyCondition>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |finding: PolicyCondition| {
        let same = before.iter().find(|condition| {
            condition.type_ == finding.type_ && condition.status == finding.status
        });
        let since = same.map(|condition| condition.last_transition_time.clone());
        Condition {
            type_: finding.type_.to_owned(),
            status: finding.status.to_owned(),
            reason: finding.reason.to_owned(),
            message: finding.message,
            observed_generation: Some(generation),
            last_transition_time: since.unwrap_or_else(|| Time(to_the_second(now))),
        }
    };
    findings.into_iter().map(condition).collect()
}

#[cfg(test)]
mod tests;
