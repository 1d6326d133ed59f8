//! Why a Namespace stays Terminating, from its conditions.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::admission::{ask_who_refuses, is_of_belay};
use super::finding::{Cause, Finding};
use super::refusal::{denies, is_refusal, policy_message, webhook_name};
use crate::cluster::terminating::{DeadConversion, Evidence, Survey, TerminatingObject};
use crate::decide::{APPROVE, TO_OVERRIDE, approve_command_with};
use crate::objects::{ObjectRef, condition, texts_at};

/// The message of a condition with status True.
pub fn message(object: &Value, kind: &str) -> Option<String> {
    let condition = condition(object, kind).filter(|condition| condition["status"] == "True")?;
    condition.get("message")?.as_str().map(str::to_owned)
}

/// The next step when the conversion webhook of a kind does not answer.
pub fn repair_conversion(dead: &DeadConversion) -> String {
    format!(
        "repair the webhook; to see its address: kubectl get crd {} -o \
         jsonpath={{.spec.conversion}}",
        dead.definition
    )
}

/// The time in which the controller may not have written its first report.
const JUST_BEGUN: SignedDuration = SignedDuration::from_secs(15);

/// The finding about a controller that has written nothing. In the first seconds of a deletion, the
/// controller deletes the content and writes nothing.
fn silent_controller(found: &TerminatingObject, now: Timestamp) -> Finding {
    let (says, next) = match now.duration_since(found.since) < JUST_BEGUN {
        true => (
            "the deletion has just begun, and the namespace controller has not finished yet",
            format!(
                "if it still exists in a minute: kubectl belay why {}",
                found.object_ref.arguments()
            ),
        ),
        false => (
            "the namespace controller has reported no reason",
            "check that kube-controller-manager runs, and its log".to_owned(),
        ),
    };
    Finding::new(Cause::Unknown, says, next)
}

/// The causes why a Namespace stays, at this time.
pub fn why_namespace_stays(
    found: &TerminatingObject,
    survey: &Survey,
    evidence: &Evidence,
    now: Timestamp,
) -> Vec<Finding> {
    let name = &found.object_ref.name;
    let condition = |kind: &str| message(&found.object, kind);
    let mut findings = Vec::new();
    let discovery = condition("NamespaceDeletionDiscoveryFailure")
        .or_else(|| condition("NamespaceDeletionGroupVersionParsingFailure"));
    if let Some(message) = discovery {
        findings.push(discovery_failure(message, evidence));
    }
    let failed = condition("NamespaceDeletionContentFailure");
    if let Some(message) = &failed {
        findings.extend(content_failure(message, name, evidence));
    }
    let remaining =
        [condition("NamespaceContentRemaining"), condition("NamespaceFinalizersRemaining")];
    let remaining: Vec<String> = remaining.into_iter().flatten().collect();
    let content = || survey.objects.iter().filter(|other| other.object_ref.namespace == *name);
    if !remaining.is_empty() || content().next().is_some() {
        let more = content().count().saturating_sub(3);
        let more =
            (more > 0).then(|| format!("and {}", crate::objects::more(more, "Terminating object")));
        let shown: Vec<&ObjectRef> = content().take(3).map(|other| &other.object_ref).collect();
        let says = "the namespace controller waits for the objects in it";
        let next = match shown.first() {
            Some(first) => format!("kubectl belay why {}", first.arguments()),
            None => format!("kubectl belay stuck -n {name}"),
        };
        let states = shown.iter().map(|o| format!("{} is Terminating as well", o.sentence_name()));
        let failed = failed.filter(|_| findings.is_empty());
        findings.push(
            Finding::new(Cause::Content, says, next)
                .with(failed.into_iter().chain(remaining).chain(states).chain(more)),
        );
    } else if let Some(message) = failed.filter(|_| findings.is_empty()) {
        let says = "the namespace controller could not delete the objects in it";
        let next = format!("kubectl describe namespace {name}");
        findings.push(Finding::new(Cause::Content, says, next).with([message]));
    }
    findings.extend(foreign_finalizers(found));
    // The fields that could not be read may contain the reason.
    if found.unread.is_some() {
        return findings;
    }
    // The namespace controller reads every kind before it writes conditions. It retries failed
    // reads for a long time.
    if found.object.pointer("/status/conditions").is_none() && !evidence.conversions.is_empty() {
        let says = "the namespace controller reads every kind first, and a conversion webhook \
                    does not answer";
        findings.push(failed_conversion(says, None, evidence));
    }
    if findings.is_empty() {
        findings.push(silent_controller(found, now));
    }
    findings
}

/// The finalizers in `spec.finalizers` that the namespace controller does not remove.
fn foreign_finalizers(found: &TerminatingObject) -> Option<Finding> {
    let names = texts_at(&found.object, "/spec/finalizers");
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "kubernetes").collect();
    let says = format!("spec.finalizers has {}, which belay does not know", names.join(", "));
    let next = format!(
        "check that the controllers that added them run; to list them: kubectl get namespace {} -o \
         jsonpath={{.spec.finalizers}}",
        found.object_ref.name
    );
    (!names.is_empty()).then(|| Finding::new(Cause::Controller, says, next))
}

/// The finding that the namespace controller cannot discover all kinds.
fn discovery_failure(message: String, evidence: &Evidence) -> Finding {
    let says = "the namespace controller cannot discover the kinds";
    let broken = evidence.broken.iter();
    let next = match broken.clone().next() {
        Some(api) => format!(
            "repair its server; or, if it is no longer needed: kubectl delete apiservice {}",
            api.name
        ),
        None => "kubectl get apiservices".to_owned(),
    };
    let broken = broken.take(5).map(|api| format!("apiservice/{}: {}", api.name, api.why));
    Finding::new(Cause::BrokenApi, says, next).with([message].into_iter().chain(broken))
}

/// The finding about a known reason why the content could not be listed or deleted.
fn content_failure(message: &str, name: &str, evidence: &Evidence) -> Option<Finding> {
    if message.contains("conversion webhook") {
        let says = "the namespace controller cannot read the objects in it: a conversion webhook \
                    does not answer";
        return Some(failed_conversion(says, Some(message), evidence));
    }
    is_refusal(message).then(|| {
        let says = "the deletion of the objects in it was refused";
        let next = match policy_message(message).is_some() {
            true => {
                "ask the author of the policy that refuses; to list them: kubectl get \
                 validatingadmissionpolicies,validatingadmissionpolicybindings"
            }
            false => {
                "ask the owner of the webhook that refuses; to list them: kubectl get \
                 validatingwebhookconfigurations,mutatingwebhookconfigurations"
            }
        };
        let next = allow_content(message, name)
            .or_else(|| ask_who_refuses(message, evidence))
            .unwrap_or_else(|| next.to_owned());
        Finding::new(Cause::Refused, says, next).with([message.to_owned()])
    })
}

/// The next step if belay denies the DELETE of an object in this Namespace. The command `denials`
/// does not list this denial, because the API server creates no Event in a Terminating Namespace.
fn allow_content(message: &str, name: &str) -> Option<String> {
    if !is_of_belay(webhook_name(message)?) || !denies(message) {
        return None;
    }
    let commands = message.split_once(TO_OVERRIDE).map(|(_, commands)| commands);
    let approval = commands.and_then(|all| all.strip_prefix(APPROVE)?.split_once(" --reason "));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:/ ".contains(c);
    let object = approval
        .map(|(object, _)| object)
        .filter(|object| object.chars().all(is_plain) && object.ends_with(&format!(" -n {name}")));
    let Some(object) = object else {
        return Some(format!(
            "belay denies this; to see the objects: kubectl belay impact namespaces/{name}"
        ));
    };
    Some(format!("belay denies this; to approve it: {}", approve_command_with(object)))
}

/// The finding that the objects of a kind can't be read, because its conversion webhook does not
/// answer.
fn failed_conversion(says: &str, message: Option<&str>, evidence: &Evidence) -> Finding {
    let dead = evidence.conversions.iter();
    let next = dead.clone().next().map_or_else(|| "kubectl get crd".to_owned(), repair_conversion);
    let dead = dead.take(5).map(|dead| format!("crd/{}: {}", dead.definition, dead.problem.why));
    let texts = message.map(str::to_owned).into_iter().chain(dead);
    Finding::new(Cause::ConversionWebhook, says, next).with(texts)
}
