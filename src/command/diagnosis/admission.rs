//! The webhooks and policies that refuse, or may refuse, the writes that a deletion needs.

use super::finalizers::{finalizers_of, removal};
use super::finding::{Cause, Finding};
use super::orphaning::refused_orphaning;
use super::refusal::{explain_unencodable, is_refusal, is_unanswered, webhook_name};
use crate::cluster::terminating::{
    Dependent, Evidence, ObjectEvent, Survey, TerminatingObject, Webhook, WebhookAddress,
};
use crate::objects::{
    EVENT_REPORTER, FOREGROUND, ObjectRef, WOULD_DENY_EVENT, is_hold, more as count_more,
    quote_if_ambiguous,
};

/// The maximum number of webhooks that a finding names.
const MAX_NAMED: usize = 5;

/// The next step if belay does not answer. belay never advises to delete its own webhook
/// configurations, because then it protects nothing.
const SILENT_BELAY: &str = "belay does not answer: kubectl belay status";

/// Whether a webhook with this name is belay's own.
pub fn is_of_belay(name: &str) -> bool {
    name.ends_with(".belay.dev")
}

/// The next step about a webhook that does not answer and that must be asked before a finalizer
/// of this object is removed.
fn repair_webhook(webhook: &Webhook, found: &TerminatingObject, finalizers: &[&str]) -> String {
    if !is_of_belay(&webhook.name) {
        let configuration = &webhook.configuration;
        return format!("repair it; or, if it is no longer needed: kubectl delete {configuration}");
    }
    // This command also works while belay's webhooks do not answer: it impersonates belay's
    // account, and the API server does not ask them about writes of that account.
    match finalizers.iter().any(|finalizer| is_hold(finalizer)) {
        true => {
            let object = found.object_ref.arguments();
            format!("{SILENT_BELAY}; to release only this object: kubectl belay release {object}")
        }
        false => SILENT_BELAY.to_owned(),
    }
}

/// The next step about the webhook that a refusal names; `None` if it names no existing webhook.
pub fn ask_who_refuses(message: &str, evidence: &Evidence) -> Option<String> {
    if let Some(why) = explain_unencodable(message) {
        return Some(why.to_owned());
    }
    let name = webhook_name(message)?;
    if is_of_belay(name) {
        let next = match is_unanswered(message) {
            true => SILENT_BELAY,
            false => "belay denies this: kubectl belay denials lists the reasons",
        };
        return Some(next.to_owned());
    }
    let webhook = evidence.webhooks.iter().find(|webhook| webhook.name == name)?;
    let configuration = &webhook.configuration;
    Some(format!(
        "ask the owner of the webhook {name}; to see it: kubectl get {configuration} -o yaml"
    ))
}

/// The step that shows why the deletion of an object is refused.
pub fn see_who_refuses(object: &ObjectRef) -> String {
    let object = object.arguments();
    format!("to see who refuses its deletion: kubectl delete {object} --dry-run=server")
}

/// The refusals of requests that would remove a finalizer or a dependent.
pub fn refusals(
    found: &TerminatingObject,
    survey: &Survey,
    evidence: &Evidence,
    finalizers: &[&str],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let events = evidence.events.get(&found.uid).into_iter().flatten();
    let own_events = events.filter(|event| is_refused(event)).take(3);
    // belay's Events report the requests of all users. Controllers report their own.
    let (of_belay, of_controllers): (Vec<&ObjectEvent>, Vec<_>) =
        own_events.partition(|event| event.by == EVENT_REPORTER);
    for (events, says) in [
        (of_controllers, "a controller that works on its deletion was refused"),
        (of_belay, "belay refused a request to remove a finalizer"),
    ] {
        if !events.is_empty() {
            let finding = Finding::new(
                Cause::Refused,
                says,
                next_step(&events, evidence, describe(&found.object_ref)),
            );
            findings.push(finding.with(events.into_iter().map(event_text)));
        }
    }
    let waits_for_dependents = finalizers.contains(&FOREGROUND);
    let dependents = survey.blocking_dependents(&found.uid).filter(|_| waits_for_dependents);
    findings.extend(dependents.filter_map(|dependent| refused_dependent(dependent, evidence)));
    let denials = evidence.orphaning_denials.get(&found.uid);
    findings.extend(denials.and_then(|denials| refused_orphaning(denials)));
    for webhook in
        evidence.webhooks.iter().filter(|webhook| webhook.keeps(found, &evidence.namespace_labels))
    {
        let says = format!(
            "no finalizer can be removed: the API server must ask the webhook {}, which does not \
             answer",
            webhook.name
        );
        let next = repair_webhook(webhook, found, finalizers);
        let why = webhook.problem.iter().map(|problem| problem.why.clone());
        let conditions = webhook.has_conditions.then(|| CONDITIONS.to_owned());
        let finding = Finding::new(Cause::Refused, says, next);
        findings.push(finding.with(why.chain(conditions)));
    }
    findings
}

/// The finding that the deletion of a dependent was refused; `None` if no Event reports that.
pub fn refused_dependent(dependent: &Dependent, evidence: &Evidence) -> Option<Finding> {
    let events = evidence.events.get(&dependent.uid).into_iter().flatten();
    // belay writes an Event about an object that is not Terminating only if it denied the DELETE.
    let of_belay = |event: &ObjectEvent| {
        let is_denial = event.by == EVENT_REPORTER && event.reason != WOULD_DENY_EVENT;
        is_denial && !dependent.terminating
    };
    let events = events.filter(|event| is_refused(event) || of_belay(event));
    let events: Vec<&ObjectEvent> = events.take(3).collect();
    let object = &dependent.object_ref;
    let refused_by_belay = events.iter().any(|event| event.by == EVENT_REPORTER);
    let next = match (refused_by_belay, dependent.terminating) {
        _ if events.is_empty() => return None,
        (true, _) => format!("kubectl belay why {}", object.arguments()),
        (false, true) => next_step(&events, evidence, describe(object)),
        (false, false) => next_step(&events, evidence, see_who_refuses(object)),
    };
    let object = object.sentence_name();
    let message = format!("it waits for its dependent {object}, whose deletion was refused");
    let finding = Finding::new(Cause::Refused, message, next);
    Some(finding.with(events.into_iter().map(event_text)))
}

/// Whether an Event reports a refused request.
fn is_refused(event: &ObjectEvent) -> bool {
    is_refusal(&event.message) || (event.by == EVENT_REPORTER && event.reason == "FinalizerGuarded")
}

/// The step about the webhook that one of the Events names, or another step.
fn next_step(events: &[&ObjectEvent], evidence: &Evidence, other: String) -> String {
    let webhook = events.iter().find_map(|event| ask_who_refuses(&event.message, evidence));
    webhook.unwrap_or(other)
}

fn describe(object: &ObjectRef) -> String {
    format!("kubectl describe {}", object.arguments())
}

const CONDITIONS: &str = "the API server asks it only where its matchConditions match";

fn event_text(event: &ObjectEvent) -> String {
    // Users who may create Events write these texts (H153).
    let [reason, by] = [&event.reason, &event.by].map(|name| quote_if_ambiguous(name));
    format!("Event {reason} by {by}: {}", event.message)
}

/// The finding about webhooks that may refuse the removal of a finalizer. `None` if another
/// finding explains why the object stays.
pub fn webhooks_that_may_refuse(
    found: &TerminatingObject,
    evidence: &Evidence,
    findings: &[Finding],
) -> Option<Finding> {
    // With these causes, a webhook may refuse the removal of the finalizer by hand.
    let leaves_refusal_possible =
        |cause| matches!(cause, Cause::Controller | Cause::ControllerGone | Cause::Unknown);
    if findings.iter().any(|finding| !leaves_refusal_possible(finding.cause)) {
        return None;
    }
    let asked = evidence
        .webhooks
        .iter()
        .filter(|webhook| webhook.is_called_for(found, &evidence.namespace_labels));
    // belay writes an Event when it refuses a request. A webhook with failurePolicy Ignore
    // that is not running refuses nothing.
    let asked = asked.filter(|webhook| {
        !is_of_belay(&webhook.name) && (webhook.required || webhook.problem.is_none())
    });
    let mut asked: Vec<&Webhook> = asked.collect();
    // Webhooks behind a Service come last, because belay can check whether they answer.
    asked.sort_by_key(|webhook| matches!(webhook.address, WebhookAddress::Service(_)));
    let more = asked.len().saturating_sub(MAX_NAMED);
    let webhooks = match &asked[..] {
        [] => return None,
        [one] => format!("the webhook {}", one.name),
        several => format!("{} webhooks", several.len()),
    };
    let says = format!(
        "before a finalizer is removed, the API server asks {webhooks}; the answer is unknown"
    );
    let finalizers = finalizers_of(&found.object);
    let next = match finalizers.first() {
        Some(first) => {
            let command = removal((first, 0), found, evidence, " --dry-run=server");
            format!("to find out without a change: {command}")
        }
        None => {
            let configuration = asked.first().map_or("", |webhook| &webhook.configuration);
            format!("kubectl get {configuration} -o yaml")
        }
    };
    let shown = asked.into_iter().take(MAX_NAMED).map(describe_location);
    let more = (more > 0).then(|| format!("and {}", count_more(more, "webhook")));
    Some(Finding::new(Cause::Unknown, says, next).with(shown.chain(more)))
}

/// Where a webhook runs, and what happens if it does not answer.
fn describe_location(webhook: &Webhook) -> String {
    let Webhook { configuration, name, address, required, has_conditions, .. } = webhook;
    let location = match address {
        WebhookAddress::Service((namespace, name)) => {
            format!("it is behind the Service {namespace}/{name}")
        }
        WebhookAddress::Host(host) => {
            format!("it is at {host}, outside the cluster, so belay cannot know whether it answers")
        }
        WebhookAddress::Unknown => "its configuration names no address".to_owned(),
    };
    let required = match (address, required) {
        (WebhookAddress::Service(_), _) | (_, false) => "",
        (_, true) => "; without an answer, the request is refused (failurePolicy Fail)",
    };
    let conditions = if *has_conditions { format!("; {CONDITIONS}") } else { String::new() };
    format!("{configuration}: {name}: {location}{required}{conditions}")
}
