//! All causes why an object stays Terminating, found in the evidence.

use jiff::Timestamp;
use serde_json::Value;

use super::admission::{refusals, refused_dependent, see_who_refuses, webhooks_that_may_refuse};
use super::controller::foreign_finalizer;
use super::finalizers::{finalizers_of, first_finalizers, more_finalizers, remover};
use super::finding::{Cause, Finding};
use super::hold::Hold;
use super::irreversible::why_irreversible;
use super::namespace::{message, repair_conversion, why_namespace_stays};
use super::orphaning::unchecked_orphaning;
use crate::cluster::terminating::{ClaimUser, Dependent, Evidence, Survey, TerminatingObject};
use crate::decide::{ObjectName, step_to_find_out};
use crate::objects::{
    ApiError, CLAIM_PROTECTION, CRDS, FOREGROUND, ORPHAN, ObjectRef, and_more, is_hold,
    namespace_option, shell_word, text_at,
};

/// The causes why an object stays at this time, the most likely first.
pub fn find_causes(
    found: &TerminatingObject,
    survey: &Survey,
    evidence: &Evidence,
    hold: &Hold,
    now: Timestamp,
) -> Vec<Finding> {
    let finalizers = finalizers_of(&found.object);
    let mut findings: Vec<Finding> = refusals(found, survey, evidence, &finalizers);
    let (first, more) = first_finalizers(finalizers.iter().copied());
    for (index, finalizer) in first {
        let finding = match finalizer {
            name if is_hold(name) => hold.finding(&found.object_ref),
            FOREGROUND => foreground_deletion(found, survey, evidence),
            ORPHAN if evidence.unchecked_orphaning.contains(&found.uid) => {
                unchecked_orphaning(&found.object_ref)
            }
            CLEANUP => content_of_kind(found, survey),
            CLAIM_PROTECTION => mounted_claim(found, evidence),
            name @ ("kubernetes.io/pv-protection" | "kubernetes.io/pv-controller") => {
                bound_volume(found, name)
            }
            name => match remover(name) {
                Some((controller, when)) => {
                    kubernetes_finalizer(found, name, &format!("{controller}, when {when}"))
                }
                None => foreign_finalizer(name, index, found, evidence),
            },
        };
        findings.push(finding.with_finalizer(finalizer));
    }
    if let Some((says, next)) = more_finalizers(more, &found.object_ref) {
        findings.push(Finding::new(Cause::Controller, says, next));
    }
    let own_crd = found.info.full_name();
    let crd = if found.object_ref.is_of(CRDS) { &found.object_ref.name } else { &own_crd };
    findings.extend(dead_conversion(crd, evidence));
    if found.object_ref.is_namespace() {
        findings.extend(why_namespace_stays(found, survey, evidence, now));
    }
    if found.object_ref.is_of(("", "pods")) {
        findings.extend(pod_without_kubelet(found, evidence, finalizers.is_empty()));
    }
    findings.extend(webhooks_that_may_refuse(found, evidence, &findings));
    findings.extend(unread_object(found));
    if findings.is_empty() {
        let next = format!("kubectl get {} -o yaml", found.object_ref.arguments());
        findings.push(Finding::new(Cause::Unknown, "no finalizer keeps it", next));
    }
    findings.sort_by_key(|finding| finding.cause);
    findings
}

/// What removes each finalizer of an object that is not Terminating, except belay's hold.
pub fn explain_finalizers(found: &TerminatingObject, evidence: &Evidence) -> Vec<String> {
    let (first, more) = first_finalizers(finalizers_of(&found.object));
    let more = more_finalizers(more, &found.object_ref);
    let foreign = first.into_iter().filter(|(_, name)| !is_hold(name));
    let explained = foreign.map(|(index, name)| match remover(name) {
        Some((controller, when)) => {
            format!("finalizer {name} is removed by {controller}, when {when}")
        }
        None => foreign_finalizer(name, index, found, evidence).message,
    });
    explained.chain(more.map(|(says, command)| format!("{says}: {command}"))).collect()
}

/// The finding that only the metadata of the object could be read, so causes in the other fields
/// are unknown.
fn unread_object(found: &TerminatingObject) -> Option<Finding> {
    let why = found.unread.as_ref()?;
    let says = "only its metadata could be read, so other causes are unknown";
    let option = namespace_option(&found.object_ref.namespace);
    let kind = found.info.full_name();
    let next = match why {
        ApiError::Unreadable(_) => {
            let name = shell_word(&found.object_ref.name);
            format!("examine the object: kubectl get {kind} {name}{option} -o yaml")
        }
        _ => format!("ask for the permission: kubectl auth can-i get {kind}{option}"),
    };
    Some(Finding::new(Cause::Unknown, says, next).with([why.to_string()]))
}

/// The finalizer that the API server removes from a CRD.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn foreground_deletion(found: &TerminatingObject, survey: &Survey, evidence: &Evidence) -> Finding {
    let dependents: Vec<&Dependent> = survey.blocking_dependents(&found.uid).collect();
    let finding = |says: String, next: String| Finding::new(Cause::Foreground, says, next);
    let Some(first) = dependents.first() else {
        let unread = survey.unread.first().map(|unread| {
            let more = and_more(survey.unread.len() - 1, "kind");
            format!("{}{more} could not be read", unread.resource)
        });
        return finding(
            "the garbage collector waits for dependents, of which none was found".to_owned(),
            "check that kube-controller-manager runs, and its log".to_owned(),
        )
        .with(unread);
    };
    let more = and_more(dependents.len() - 1, "dependent");
    let state = |dependent: &&Dependent| match dependent.terminating {
        true => format!("{} is Terminating as well", dependent.object_ref.sentence_name()),
        false => format!("{} is not Terminating", dependent.object_ref.sentence_name()),
    };
    // The garbage collector deletes dependents at once. If one is not Terminating, its DELETE
    // was refused. If an Event reports by whom, the finding about the refusal has the same step.
    let next = match dependents.iter().find(|dependent| !dependent.terminating) {
        Some(remaining) => refused_dependent(remaining, evidence)
            .map_or_else(|| see_who_refuses(&remaining.object_ref), |refused| refused.next),
        None => format!("kubectl describe {}", first.object_ref.arguments()),
    };
    finding(
        format!(
            "the garbage collector waits for the deletion of {}{more}",
            first.object_ref.sentence_name()
        ),
        next,
    )
    .with(dependents.iter().take(5).map(state))
}

/// The finding that a CRD waits for the objects of its kind.
fn content_of_kind(found: &TerminatingObject, survey: &Survey) -> Finding {
    let text = |pointer: &str| text_at(&found.object, pointer);
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let of_kind =
        |other: &&TerminatingObject| other.info.group == group && other.info.resource == plural;
    let stuck: Vec<&TerminatingObject> = survey.objects.iter().filter(of_kind).collect();
    let message = message(&found.object, "Terminating");
    let examples = stuck
        .iter()
        .take(3)
        .map(|other| format!("{} is Terminating as well", other.object_ref.sentence_name()));
    let says = match stuck.len() {
        0 => "the API server waits for the deletion of its objects".to_owned(),
        count => format!("the API server waits for its objects, of which {count} stay Terminating"),
    };
    let next = format!("kubectl get {} -A", found.object_ref.name);
    Finding::new(Cause::Content, says, next).with(message.into_iter().chain(examples))
}

fn dead_conversion(crd: &str, evidence: &Evidence) -> Option<Finding> {
    let dead = evidence.conversions.iter().find(|dead| dead.definition == crd)?;
    let says = format!("no client can read {crd}: its conversion webhook does not answer");
    let finding = Finding::new(Cause::ConversionWebhook, says, repair_conversion(dead));
    Some(finding.with([dead.problem.why.clone()]))
}

fn mounted_claim(found: &TerminatingObject, evidence: &Evidence) -> Finding {
    let claim = &found.object_ref;
    let key = (claim.namespace.clone(), claim.name.clone());
    let pods = evidence.users.get(&key).map_or(&[][..], Vec::as_slice);
    let Some(first) = pods.iter().find(|user| !user.is_terminating).or(pods.first()) else {
        return kubernetes_finalizer(found, CLAIM_PROTECTION, "the PVC protection controller");
    };
    let ClaimUser { pod, controller, has_ended, is_terminating } = first;
    let of = controller.as_ref().map(|controller| format!(" of {controller}")).unwrap_or_default();
    let says = format!(
        "Pod {pod}{of}{}{} use{} it",
        match (is_terminating, has_ended) {
            (true, _) => ", which is Terminating,",
            (false, true) => ", which has ended,",
            (false, false) => "",
        },
        and_more(pods.len() - 1, "Pod"),
        if pods.len() == 1 { "s" } else { "" }
    );
    let user = ObjectRef::new(("", "pods"), &claim.namespace, pod);
    let step = match controller.as_ref().filter(|_| !has_ended) {
        _ if *is_terminating => {
            step_to_find_out(&ObjectName { kind: "Pod".to_owned(), object: user.clone() })
        }
        // A controller without Pods still keeps belay's hold.
        Some(controller) if finalizers_of(&found.object).into_iter().any(is_hold) => {
            format!("delete {controller}")
        }
        Some(controller) => format!("scale down or delete {controller}"),
        None => format!("delete Pod {pod}"),
    };
    let loss = match text_at(&found.object, "/spec/volumeName") {
        "" => String::new(),
        volume => {
            format!(
                "; then the data of volume {volume} is destroyed, unless its reclaimPolicy is Retain"
            )
        }
    };
    let command = if *is_terminating { "belay why" } else { "describe" };
    let next = format!("kubectl {command} {}", user.arguments());
    let shown = pods.iter().take(5).map(|user| format!("spec.volumes of Pod {} name it", user.pod));
    let shown = shown.chain([format!("to end the use, {step}{loss}")]);
    Finding::new(Cause::InUse, says, next).with(shown)
}

fn bound_volume(found: &TerminatingObject, finalizer: &str) -> Finding {
    let text = |pointer: &str| text_at(&found.object, pointer);
    let (namespace, name) = (text("/spec/claimRef/namespace"), text("/spec/claimRef/name"));
    match text("/status/phase") {
        "Bound" if !name.is_empty() => Finding::new(
            Cause::InUse,
            format!("the claim {namespace}/{name} is bound to it"),
            format!("kubectl describe pvc/{name} -n {namespace}"),
        )
        .with(["spec.claimRef names it, and status.phase is Bound".to_owned()])
        .with(lost_data_of_volume(found)),
        _ => match remover(finalizer) {
            Some((controller, when)) => {
                kubernetes_finalizer(found, finalizer, &format!("{controller}, when {when}"))
            }
            None => kubernetes_finalizer(found, finalizer, "kube-controller-manager"),
        },
    }
}

/// What happens to the data of a Terminating volume; `None` if its storage stays.
fn lost_data_of_volume(found: &TerminatingObject) -> Option<String> {
    let deletes = text_at(&found.object, "/spec/persistentVolumeReclaimPolicy") == "Delete";
    let why = why_irreversible(&found.info).filter(|_| deletes)?;
    Some(format!("when the claim is deleted, the data is destroyed (reclaimPolicy Delete): {why}"))
}

/// A finalizer that a component of Kubernetes removes.
fn kubernetes_finalizer(found: &TerminatingObject, finalizer: &str, controller: &str) -> Finding {
    let says = format!("{finalizer} is removed by {controller}");
    Finding::new(
        Cause::Controller,
        says,
        format!("kubectl describe {}", found.object_ref.arguments()),
    )
}

/// The finding that the kubelet has not stopped a Pod. `no_finalizers`: the Pod waits only for
/// its kubelet.
fn pod_without_kubelet(
    found: &TerminatingObject,
    evidence: &Evidence,
    no_finalizers: bool,
) -> Option<Finding> {
    let node = found.object.pointer("/spec/nodeName").and_then(Value::as_str)?;
    // With a grace period of 0, the API server deletes the Pod when its last finalizer is removed.
    let grace =
        found.object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    if grace == Some(0) && !no_finalizers {
        return None;
    }
    let object = found.object_ref.arguments();
    let force = format!("kubectl delete {object} --grace-period=0 --force");
    let no_kubelet = |says: String, shown: &str| {
        let next = format!("check that none of its containers runs, and then: {force}");
        Some(Finding::new(Cause::NodeGone, says, next).with([shown.to_owned()]))
    };
    match evidence.nodes.as_ref().map(|nodes| nodes.get(node)) {
        // A dump with some of the Nodes does not prove that the others were deleted.
        Some(None) if evidence.of_files => None,
        Some(None) => {
            no_kubelet(format!("its node {node} does not exist"), "there is no Node of that name")
        }
        Some(Some(false)) => no_kubelet(
            format!("its node {node} is not ready, so its kubelet does not stop it"),
            "the condition Ready of the Node is not True",
        ),
        Some(Some(true)) if no_finalizers => Some(Finding::new(
            Cause::Controller,
            format!("the kubelet of node {node} has not stopped it yet"),
            format!("kubectl describe {object}"),
        )),
        None if no_finalizers => Some(Finding::new(
            Cause::Unknown,
            format!("the kubelet of node {node} has not stopped it; the node could not be read"),
            format!("kubectl get node {node}"),
        )),
        _ => None,
    }
}
