//! Computes the conditions of a policy.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::policies::StoredPolicy;
use crate::cluster::Registered;
use crate::cluster::holding::{BackfillStop, HoldProgress, RefusedHolds};
use crate::cluster::journal::to_the_second;

use crate::decide::NoHoldReason;
use crate::graph::{Graph, Incomplete};
use crate::objects::{ApiError, KindId, full_name, text_enum};
use crate::policy::api::NotHeld;
use crate::policy::{BACKFILL, BINDS_SOME, Pause};

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

/// Whether the API server sends the requests that the policy needs, without the kinds to watch.
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
        let mutating = |missing: &String| missing.starts_with("Mutating");
        let effect = match registered.missing.iter().all(mutating) {
            true => "new objects get no hold, and a removed hold is not restored",
            false => "the API server sends no requests to belay",
        };
        let missing = registered.missing.join(", ");
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
                "{changed} differs from the installed manifest, so the API server may not send all \
                 requests that this policy needs; install belay again, because belay does not write \
                 these fields"
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
    /// Why the objects of a kind are incomplete. The first ones make the policy not Ready.
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
            Incomplete::Unread => Self::Reading,
            Incomplete::Failed(_) | Incomplete::NotRead(_) => Self::Failed,
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

/// The texts about the first kinds, and how many more there are, after `before_more`.
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
    let HoldProgress { done, total, none_on, forbidden, binds_some, stopped, refused } = holding;
    if *binds_some {
        let message =
            format!("no object gets the hold: {BINDS_SOME}; admission denials protect them");
        return PolicyCondition::new("Holding", ("False", "BindsSome"), message);
    }
    let mut message = format!("{done} of {total} objects have the hold");
    if !none_on.is_empty() {
        let kinds = first_kinds(none_on.iter().cloned(), ", ", "");
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
        None if done >= total => ("True", "InPlace"),
        None => ("False", "Progressing"),
    };
    PolicyCondition::new("Holding", finding, message)
}

/// The objects of a policy that get no hold, for programs.
pub(super) fn not_held(holding: &HoldProgress) -> Vec<NotHeld> {
    let HoldProgress { none_on, stopped, binds_some, forbidden, .. } = holding;
    let none = |resource: &str, why: &str| NotHeld {
        resource: resource.to_owned(),
        why: why.to_owned(),
        objects: None,
    };
    let all_kinds = binds_some.then(|| none("*", BINDS_SOME));
    let forbidden = forbidden.iter().map(|resource| none(resource, NO_RIGHT));
    let none_on = none_on.iter().map(|resource| none(resource, NoHoldReason::Kind.message()));
    let stopped = stopped.iter().map(|BackfillStop { resource, missing, limit }| NotHeld {
        resource: resource.clone(),
        why: format!("more existing objects lack it than the limit of {limit}"),
        objects: i64::try_from(*missing).ok(),
    });
    all_kinds.into_iter().chain(none_on).chain(forbidden).chain(stopped).collect()
}

/// A stopped backfill, and how to continue it.
fn too_many(policy: &str, stopped: &[BackfillStop], largest: usize) -> String {
    let texts = stopped.iter().map(|BackfillStop { resource, missing, limit }| {
        format!("{missing} {resource} lack it, more than the limit of {limit}")
    });
    let texts = first_kinds(texts, ", ", ",");
    format!(
        "; {texts}, so only new objects get the hold. To continue, narrow the policy, or run: \
         kubectl annotate --overwrite deletionpolicy {policy} {BACKFILL}={largest}"
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
mod tests {
    use super::*;
    use crate::objects::ApiError;
    use crate::objects::{Flaw, Kinds, Unreadable};
    use crate::policy::api::{DeletionPolicyStatus, Problem};

    fn policy(problems: Vec<Problem>) -> StoredPolicy {
        StoredPolicy {
            generation: 3,
            status: DeletionPolicyStatus::default(),
            problems,
            loaded_at: 5,
        }
    }

    fn registered(generation: Option<u64>, missing: &[&str]) -> Registered {
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let changed = Vec::new();
        Registered { generation, bundle: None, token: None, missing, changed, there: true }
    }

    #[test]
    fn ready_depends_on_the_requests_that_the_api_server_sends() {
        let good = policy(Vec::new());
        for (registered, status, reason) in [
            (registered(None, &[]), "False", "NotRegistered"),
            (registered(Some(4), &[]), "False", "NotRegistered"),
            (registered(Some(5), &[]), "True", "Registered"),
            (registered(Some(9), &[]), "True", "Registered"),
            (registered(Some(9), &["x/belay"]), "False", "ConfigurationMissing"),
        ] {
            let finding = ready(&good, &registered, None);
            assert_eq!((finding.status, finding.reason), (status, reason), "{registered:?}");
        }
        let tampered = Registered {
            changed: vec!["V/belay webhook delete.belay.dev (failurePolicy)".to_owned()],
            ..registered(Some(9), &[])
        };
        let finding = ready(&good, &tampered, None);
        assert_eq!((finding.status, finding.reason), ("False", "ConfigurationChanged"));
        assert!(finding.message.starts_with(&tampered.changed[0]), "{}", finding.message);
        let missing =
            ready(&good, &registered(None, &["ValidatingWebhookConfiguration/belay"]), None);
        assert!(missing.message.starts_with("ValidatingWebhookConfiguration/belay does not exist"));
        let holds = ready(&good, &registered(None, &["MutatingWebhookConfiguration/belay"]), None);
        assert!(holds.message.contains("so new objects get no hold"), "{}", holds.message);
        let pause = Pause {
            name: "p".into(),
            by: "carol".into(),
            expires: 1_800_000_000,
            ..Pause::default()
        };
        let paused = ready(&good, &registered(Some(9), &[]), Some(&pause));
        assert_eq!((paused.status, paused.reason), ("True", "Paused"));
        let message = "pause p by carol: policies are not enforced until 2027-01-15T08:00:00Z";
        assert_eq!(paused.message, message);
        let problem = |field: &str| Problem { field: field.to_owned(), message: "is empty" };
        let bad = policy(vec![problem("spec.targets"), problem("spec.protect")]);
        let finding = ready(&bad, &registered(Some(9), &[]), None);
        assert_eq!((finding.status, finding.reason), ("False", "Invalid"));
        assert_eq!(finding.message, "spec.targets: is empty; spec.protect: is empty");
    }

    #[test]
    fn watching_names_incomplete_kinds_with_reasons_and_lasting_ones_first() {
        let mut graph = Graph::default();
        let kind = |graph: &Graph, kind| graph.kinds.find("", kind).unwrap();
        let (pods, claims) = (kind(&graph, "Pod"), kind(&graph, "PersistentVolumeClaim"));
        let needs = BTreeSet::from([pods, claims]);
        graph.set_complete(pods, true);
        let finding = watching(&graph, &needs, &[]);
        assert_eq!((finding.status, finding.reason), ("False", "Reading"));
        assert_eq!(finding.message, "persistentvolumeclaims: they have not been read yet");

        for (error, reason) in [
            (ApiError::NotFound, "NotInstalled"),
            (ApiError::of_status(403, "no"), "Forbidden"),
            (ApiError::of_status(401, "who"), "Forbidden"),
            (ApiError::of_status(500, "conversion webhook"), "Failed"),
            (ApiError::Expired, "Failed"),
        ] {
            graph.set_incomplete(claims, error.clone());
            let finding = watching(&graph, &needs, &[]);
            assert_eq!(finding.reason, reason);
            let ready = ready(&policy(Vec::new()), &registered(Some(9), &[]), None);
            let ready = ready.with_watching(&finding);
            let expected = match reason {
                "NotInstalled" => ("True", "Registered"),
                _ => ("False", "NotWatched"),
            };
            assert_eq!((ready.status, ready.reason), expected);
            assert!(finding.message.contains(&error.to_string()), "{}", finding.message);
        }
        let unknown = ["gadgets.example.com".to_owned()];
        let finding = watching(&graph, &needs, &unknown);
        assert_eq!(finding.reason, "Failed");
        assert!(finding.message.starts_with("persistentvolumeclaims: the list changed"));
        assert!(finding.message.contains("; gadgets.example.com: the API server does not serve"));

        graph.set_complete(claims, true);
        assert_eq!(watching(&graph, &needs, &[]).status, "True");
        let place = Some(("shop".to_owned(), "bad".to_owned()));
        let bad = Unreadable { name: place, ..Unreadable::of_unknown_place() };
        graph.set_unreadable(pods, &Unreadable { flaw: Flaw::TooManyReferences, ..bad.clone() });
        assert_eq!(watching(&graph, &needs, &[]).status, "True", "every tenant can write these");
        graph.set_unreadable(pods, &bad);
        let finding = watching(&graph, &needs, &[]);
        assert_eq!((finding.status, finding.reason), ("False", "Unreadable"));
        assert_eq!(finding.message, "pods: Pod shop/bad can't be read, so it may use anything");
        let widget = graph.kinds.learn(Kinds::custom("x.dev", "v1", "Widget", "widgets", true));
        graph.kinds.forget(widget);
        let finding = watching(&graph, &BTreeSet::from([widget]), &[]);
        assert_eq!(finding.reason, "NotInstalled");
        // Each kind appears once.
        let twice = watching(&graph, &BTreeSet::from([widget]), &["widgets.x.dev".to_owned()]);
        assert_eq!(finding, twice);
    }

    #[test]
    fn holding_reports_progress_and_kinds_without_holds() {
        let mut progress = HoldProgress { done: 120, total: 500, ..HoldProgress::default() };
        let finding = holding("p", &progress);
        assert_eq!((finding.status, finding.reason), ("False", "Progressing"));
        assert_eq!(finding.message, "120 of 500 objects have the hold");
        let some = HoldProgress { binds_some: true, ..HoldProgress::default() };
        let finding = holding("p", &some);
        assert_eq!((finding.status, finding.reason), ("False", "BindsSome"));
        let no_right =
            HoldProgress { forbidden: vec!["jobs.batch".to_owned()], ..HoldProgress::default() };
        let finding = holding("p", &no_right);
        assert_eq!((finding.status, finding.reason), ("False", "Forbidden"));
        assert!(finding.message.contains("rbac.watchAlso"), "{}", finding.message);
        assert_eq!(not_held(&no_right)[0].resource, "jobs.batch");
        progress.refused = Some(RefusedHolds {
            objects: 2,
            first: "configmaps shop/big".to_owned(),
            why: "the API server answers 413: too large".to_owned(),
        });
        let finding = holding("p", &progress);
        assert_eq!((finding.status, finding.reason), ("False", "Refused"));
        let says = "; holds that the API server refuses: 2 (belay retries every minute): \
                    configmaps shop/big: the API server answers 413: too large";
        assert!(finding.message.ends_with(says), "{}", finding.message);
        progress.refused = None;
        progress.done = 500;
        progress.none_on = vec!["pods".to_owned(), "nodes".to_owned()];
        let finding = holding("p", &progress);
        assert_eq!((finding.status, finding.reason), ("True", "InPlace"));
        assert!(finding.message.contains("adds none to pods, nodes, where"), "{}", finding.message);
    }

    #[test]
    fn a_paused_backfill_says_how_to_continue() {
        let stopped = |resource: &str, missing| BackfillStop {
            resource: resource.to_owned(),
            missing,
            limit: 5000,
        };
        let stopped = vec![stopped("configmaps", 12_000), stopped("secrets", 7000)];
        let pods = vec!["pods".to_owned()];
        let still = HoldProgress {
            done: 3,
            total: 19_003,
            none_on: pods,
            stopped,
            ..HoldProgress::default()
        };
        let texts = not_held(&still).into_iter().map(|one| (one.resource, one.objects, one.why));
        let late = "more existing objects lack it than the limit of 5000".to_owned();
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [
                (
                    "pods".to_owned(),
                    None,
                    "a hold on this kind is unsafe or does not protect".to_owned()
                ),
                ("configmaps".to_owned(), Some(12_000), late.clone()),
                ("secrets".to_owned(), Some(7000), late),
            ]
        );
        let still = HoldProgress { none_on: Vec::new(), ..still };
        let finding = holding("all-settings", &still);
        assert_eq!((finding.status, finding.reason), ("False", "TooManyObjects"));
        assert_eq!(
            finding.message,
            "3 of 19003 objects have the hold; 12000 configmaps lack it, more than the limit of \
             5000, 7000 secrets lack it, more than the limit of 5000, so only new objects get the \
             hold. To continue, narrow the policy, or run: kubectl annotate --overwrite \
             deletionpolicy all-settings belay.dev/backfill-max-objects=12000"
        );
        let many = (0..7).map(|n| BackfillStop { resource: format!("k{n}"), missing: 9, limit: 1 });
        let many = HoldProgress { stopped: many.collect(), ..HoldProgress::default() };
        assert!(holding("p", &many).message.contains(", and 2 more kinds"));
    }

    #[test]
    fn the_time_of_a_transition_stays_while_the_status_does() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let policy = policy(Vec::new());
        let waiting = || vec![ready(&policy, &registered(None, &[]), None), not_watching()];
        let first = conditions(&[], waiting(), 3, at(100));
        assert_eq!(first[0].last_transition_time, Time(at(100)));
        let missing = vec![ready(&policy, &registered(None, &["x"]), None), not_watching()];
        let second = conditions(&first, missing, 4, at(200));
        assert_eq!(second[0].last_transition_time, Time(at(100)));
        assert_eq!(second[0].reason, "ConfigurationMissing");
        assert_eq!(second[0].observed_generation, Some(4));
        let third =
            conditions(&second, vec![ready(&policy, &registered(Some(5), &[]), None)], 4, at(300));
        assert_eq!(third[0].last_transition_time, Time(at(300)));
        assert_eq!(third.len(), 1);
    }
}
