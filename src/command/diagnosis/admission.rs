//! Which webhooks and policies refuse, or may refuse, the writes that end an object.

use super::finalizers::{finalizers_of, removal};
use super::finding::{Cause, Finding};
use super::refusal::is_refusal;
use crate::cluster::terminating::{
    Evidence, ObjectEvent, Survey, TerminatingObject, Webhook, WebhookAddress,
};
use crate::objects::{FOREGROUND, ObjectRef, more as count_more};

/// The number of named webhooks that may refuse.
const NAMED: usize = 5;

/// What to do about the webhook that a refusal names. `None`: the refusal names no existing
/// webhook.
pub fn ask_who_refuses(message: &str, evidence: &Evidence) -> Option<String> {
    let (_, rest) = message.split_once("webhook \"")?;
    let (name, _) = rest.split_once('"')?;
    let webhook = evidence.webhooks.iter().find(|webhook| webhook.name == name)?;
    let configuration = &webhook.configuration;
    Some(format!(
        "ask the owner of the webhook {name}; to see it: kubectl get {configuration} -o yaml"
    ))
}

/// The refusals of requests that would remove a finalizer or a dependent.
pub fn refusals(
    found: &TerminatingObject,
    survey: &Survey,
    evidence: &Evidence,
    finalizers: &[&str],
) -> Vec<Finding> {
    let next = |said: &[&ObjectEvent], target: &ObjectRef| {
        let webhook = said.iter().find_map(|said| ask_who_refuses(&said.message, evidence));
        webhook.unwrap_or_else(|| format!("kubectl describe {}", target.arguments()))
    };
    let mut findings = Vec::new();
    let refused = |said: &&ObjectEvent| {
        is_refusal(&said.message) || (said.by == "belay" && said.reason == "FinalizerGuarded")
    };
    let own = evidence.events.get(&found.uid).into_iter().flatten();
    let own: Vec<&ObjectEvent> = own.filter(refused).take(3).collect();
    if !own.is_empty() {
        let says = "a controller that works on its deletion was refused";
        let finding = Finding::new(Cause::Refused, says, next(&own, &found.object_ref));
        findings.push(finding.with(own.into_iter().map(event_text)));
    }
    let waits = finalizers.contains(&FOREGROUND);
    for dependent in survey.dependents.get(&found.uid).into_iter().flatten().filter(|_| waits) {
        let said = evidence.events.get(&dependent.uid).into_iter().flatten();
        // An Event of belay about an object that is not Terminating reports a refused
        // DELETE.
        let of_belay = |said: &&ObjectEvent| said.by == "belay" && !dependent.terminating;
        let said = said.filter(|said| refused(said) || of_belay(said));
        let said: Vec<&ObjectEvent> = said.take(3).collect();
        if !said.is_empty() {
            let says = format!("the deletion of {} was refused", dependent.object_ref.short());
            let finding = Finding::new(Cause::Refused, says, next(&said, &dependent.object_ref));
            findings.push(finding.with(said.into_iter().map(event_text)));
        }
    }
    for webhook in evidence.webhooks.iter().filter(|webhook| webhook.keeps(found, &evidence.places))
    {
        let says = format!(
            "no finalizer can be removed: the API server must ask the webhook {}, which does not \
             answer",
            webhook.name
        );
        let next = format!(
            "repair it; or, if it is gone for good: kubectl delete {}",
            webhook.configuration
        );
        let why = webhook.silence.iter().map(|silence| silence.why.clone());
        let conditions = webhook.conditions.then(|| CONDITIONS.to_owned());
        let finding = Finding::new(Cause::Refused, says, next);
        findings.push(finding.with(why.chain(conditions)));
    }
    findings
}

const CONDITIONS: &str = "the API server asks it only where its matchConditions match";

fn event_text(said: &ObjectEvent) -> String {
    format!("Event {} by {}: {}", said.reason, said.by, said.message)
}

/// The webhooks that may refuse the removal of a finalizer, for an object without another
/// explanation and without an Event about a refusal.
pub fn webhooks_that_may_refuse(
    found: &TerminatingObject,
    evidence: &Evidence,
    findings: &[Finding],
) -> Option<Finding> {
    // A removal by hand can be refused as well.
    let open = |cause| matches!(cause, Cause::Owner | Cause::OwnerGone | Cause::Unknown);
    if findings.iter().any(|finding| !open(finding.cause)) {
        return None;
    }
    let asked =
        evidence.webhooks.iter().filter(|webhook| webhook.is_asked(found, &evidence.places));
    // belay writes an Event when it refuses a request. A webhook with failurePolicy Ignore
    // that is not running refuses nothing.
    let asked = asked.filter(|webhook| {
        !webhook.name.ends_with(".belay.dev") && (webhook.fails || webhook.silence.is_none())
    });
    let mut asked: Vec<&Webhook> = asked.collect();
    // A webhook behind a Service is known to exist.
    asked.sort_by_key(|webhook| matches!(webhook.at, WebhookAddress::Service(_)));
    let more = asked.len().saturating_sub(NAMED);
    let who = match &asked[..] {
        [] => return None,
        [one] => format!("the webhook {}", one.name),
        several => format!("{} webhooks", several.len()),
    };
    let says = format!(
        "before a finalizer is removed, the API server asks {who}; the answer is not known"
    );
    let finalizers = finalizers_of(&found.object);
    let next = match finalizers.first() {
        Some(first) => {
            let dry = removal((first, 0), found, evidence, " --dry-run=server");
            format!("to find out without a change: {dry}")
        }
        None => {
            let configuration = asked.first().map_or("", |webhook| &webhook.configuration);
            format!("kubectl get {configuration} -o yaml")
        }
    };
    let shown = asked.into_iter().take(NAMED).map(describe_location);
    let more = (more > 0).then(|| format!("and {}", count_more(more, "webhook")));
    Some(Finding::new(Cause::Unknown, says, next).with(shown.chain(more)))
}

/// Where a webhook runs, and what happens if it does not answer.
fn describe_location(webhook: &Webhook) -> String {
    let Webhook { configuration, name, at, fails, conditions, .. } = webhook;
    let place = match at {
        WebhookAddress::Service((namespace, name)) => {
            format!("it is behind the Service {namespace}/{name}")
        }
        WebhookAddress::Host(host) => {
            format!("it is at {host}, outside the cluster, so belay cannot know whether it answers")
        }
        WebhookAddress::Nowhere => "its configuration names no address".to_owned(),
    };
    let fails = match (at, fails) {
        (WebhookAddress::Service(_), _) | (_, false) => "",
        (_, true) => "; without an answer, the request is refused (failurePolicy Fail)",
    };
    let conditions = if *conditions { format!("; {CONDITIONS}") } else { String::new() };
    format!("{configuration}: {name}: {place}{fails}{conditions}")
}
