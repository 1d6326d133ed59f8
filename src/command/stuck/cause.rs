//! Why an object that is Terminating stays: what was read in, words out.

use serde_json::Value;

use super::finalizer::foreign;
use super::finding::{Cause, Finding};
use super::refused::{perhaps, refusals};
use super::text::{named, texts, way_out};
use crate::cluster::terminating::{Dependent, Evidence, Found, Survey};
use crate::command::finalizers::known;
use crate::command::hold_state::{HoldState, NOT_RELEASED};
use crate::objects::{FOREGROUND, full_name, is_hold};

/// What is known of our hold.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// What it waits for.
    pub waits: Known,
    /// Whether belay's kinds are served.
    pub installed: bool,
    /// Whether nobody leads belay.
    pub unled: bool,
}

/// What a hold waits for, as far as anybody counted.
#[derive(Debug, Clone, Default)]
pub enum Known {
    /// This.
    Counted(HoldState),
    /// There are many, and of this one it was not asked.
    NotAsked,
    /// It was counted, and this is not known.
    Unsure(String),
    /// It could not be counted.
    #[default]
    Unknown,
}

impl Known {
    /// Of what was counted.
    pub fn of(waits: HoldState) -> Self {
        match waits.known {
            true => Self::Counted(waits),
            false => Self::Unsure(waits.r#for.join("; ")),
        }
    }
}

/// Every reason why an object stays, the likeliest first.
pub fn findings(found: &Found, survey: &Survey, evidence: &Evidence, hold: &Hold) -> Vec<Finding> {
    let finalizers = texts(found.object.pointer("/metadata/finalizers"));
    let mut findings: Vec<Finding> = refusals(found, survey, evidence, &finalizers);
    for (index, finalizer) in finalizers.iter().enumerate() {
        let finding = match *finalizer {
            name if is_hold(name) => held(found, hold),
            FOREGROUND => foreground(found, survey),
            CLEANUP => content_of_kind(found, survey),
            "kubernetes.io/pvc-protection" => claimed(found, evidence),
            "kubernetes.io/pv-protection" => bound(found),
            name => match known(name) {
                Some(who) => waits(found, name, who),
                None => foreign(name, index, found, evidence),
            },
        };
        findings.push(finding.of(finalizer));
    }
    let definition = full_name(&found.info.group, &found.info.resource);
    let named = if found.is(DEFINITIONS) { &found.name } else { &definition };
    findings.extend(conversion(named, evidence));
    if found.is(("", "namespaces")) {
        findings.extend(super::namespace::findings(found, survey, evidence));
    }
    if found.is(("", "pods")) {
        findings.extend(pod(found, evidence, finalizers.is_empty()));
    }
    findings.extend(perhaps(found, evidence, &findings));
    findings.extend(hidden(found));
    if findings.is_empty() {
        let next = format!("kubectl get {} -o yaml", found.object_ref().arguments());
        findings.push(Finding::new(Cause::Unknown, "no finalizer keeps it", next));
    }
    findings.sort_by_key(|finding| finding.cause);
    findings
}

/// That more may keep it than is told: of some kinds more than their metadata
/// says why they stay.
fn hidden(found: &Found) -> Option<Finding> {
    let why = found.unread.as_ref()?;
    let says = "only its metadata could be read, which does not say what else keeps it";
    let place = match found.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let next = format!(
        "ask for the right: kubectl auth can-i get {}{place}",
        full_name(&found.info.group, &found.info.resource)
    );
    Some(Finding::new(Cause::Unknown, says, next).shown([why.to_string()]))
}

/// The finalizer that the API server takes off a definition.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

fn held(found: &Found, hold: &Hold) -> Finding {
    let object = found.object_ref().arguments();
    let finding = |says: String, next: String| Finding::new(Cause::HeldByBelay, says, next);
    if !hold.installed {
        return finding(
            "belay has left its hold on it, and is not installed any more".to_owned(),
            "belay release --all".to_owned(),
        )
        .shown(["the API server does not serve the kinds of belay.dev".to_owned()]);
    }
    let release = format!("kubectl belay release {object}");
    let unled = hold.unled.then(|| "nobody leads belay: see that its Pods run".to_owned());
    let why = format!("kubectl belay why {object}");
    let finding = match &hold.waits {
        Known::NotAsked => finding("belay holds it; --all counts for whom".to_owned(), why),
        Known::Unknown => {
            finding("belay holds it; for whom could not be found out".to_owned(), why)
        }
        Known::Unsure(what) => {
            finding("belay holds it; for whom is not known".to_owned(), why).shown([what.clone()])
        }
        Known::Counted(HoldState { free: true, released_by_belay: false, r#for, .. }) => {
            finding(format!("belay's hold is on it: {}; {NOT_RELEASED}", r#for.join(", ")), release)
        }
        Known::Counted(HoldState { free: true, r#for, .. }) => {
            finding(format!("belay holds it, and may let go: {}", r#for.join(", ")), release)
        }
        Known::Counted(HoldState { r#for, .. }) => finding(
            format!("belay holds it for: {}", r#for.first().map_or("", String::as_str)),
            why,
        )
        .shown(r#for.iter().skip(1).take(4).map(|also| format!("and for {also}"))),
    };
    finding.shown(unled)
}

fn foreground(found: &Found, survey: &Survey) -> Finding {
    let dependents = survey.dependents.get(&found.uid).map_or(&[][..], Vec::as_slice);
    let finding = |says: String, next: String| Finding::new(Cause::Foreground, says, next);
    let Some(first) = dependents.first() else {
        let unread = survey.unread.first().map(|unread| {
            format!("{} could not be read{}", unread.resource, others(survey.unread.len()))
        });
        return finding(
            "the garbage collector waits for dependents, of which none was found".to_owned(),
            "see that kube-controller-manager runs, and what it logs".to_owned(),
        )
        .shown(unread);
    };
    let more = match dependents.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let state = |dependent: &Dependent| match dependent.terminating {
        true => format!("{} is Terminating itself", named(dependent)),
        false => format!("{} has not been deleted", named(dependent)),
    };
    // The collector deletes them at once, and tells nobody who refused it that.
    let next = match dependents.iter().find(|dependent| !dependent.terminating) {
        Some(left) => format!(
            "see who refuses its end: kubectl delete {} --dry-run=server",
            left.object_ref().arguments()
        ),
        None => format!("kubectl describe {}", first.object_ref().arguments()),
    };
    finding(format!("the garbage collector waits for {}{more} to be gone", named(first)), next)
        .shown(dependents.iter().take(5).map(state))
}

/// What keeps a CustomResourceDefinition: objects of its kind.
fn content_of_kind(found: &Found, survey: &Survey) -> Finding {
    let text = |pointer: &str| found.object.pointer(pointer).and_then(Value::as_str);
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let of_it = |other: &&Found| {
        Some(other.info.group.as_str()) == group && Some(other.info.resource.as_str()) == plural
    };
    let stuck: Vec<&Found> = survey.found.iter().filter(of_it).collect();
    let message = super::namespace::message(&found.object, "Terminating");
    let examples = stuck
        .iter()
        .take(3)
        .map(|other| format!("{} is Terminating itself", other.object_ref().arguments()));
    let says = match stuck.len() {
        0 => "the API server waits for its objects to be gone".to_owned(),
        count => format!("the API server waits for its objects, of which {count} do not go"),
    };
    let next = format!("kubectl get {} -A", found.name);
    Finding::new(Cause::Content, says, next).shown(message.into_iter().chain(examples))
}

fn conversion(definition: &str, evidence: &Evidence) -> Option<Finding> {
    let dead = evidence.conversions.iter().find(|dead| dead.definition == definition)?;
    let says = format!("nobody can read {definition}: the conversion webhook does not answer");
    let finding = Finding::new(Cause::ConversionWebhook, says, way_out(dead));
    Some(finding.shown([dead.silence.why.clone()]))
}

fn claimed(found: &Found, evidence: &Evidence) -> Finding {
    let place = (found.namespace.clone(), found.name.clone());
    let pods = evidence.users.get(&place).map_or(&[][..], Vec::as_slice);
    let Some(first) = pods.first() else {
        return waits(found, "kubernetes.io/pvc-protection", "the PVC protection controller");
    };
    let says = format!("Pod {first} uses it{}", others(pods.len()));
    let next = format!("kubectl describe pods/{first} -n {}", found.namespace);
    let shown = pods.iter().take(5).map(|pod| format!("spec.volumes of Pod {pod} name it"));
    Finding::new(Cause::InUse, says, next).shown(shown)
}

fn bound(found: &Found) -> Finding {
    let text = |pointer: &str| found.object.pointer(pointer).and_then(Value::as_str);
    let claim = text("/spec/claimRef/namespace").zip(text("/spec/claimRef/name"));
    match claim.filter(|_| text("/status/phase") == Some("Bound")) {
        Some((namespace, name)) => Finding::new(
            Cause::InUse,
            format!("the claim {namespace}/{name} is bound to it"),
            format!("kubectl describe pvc/{name} -n {namespace}"),
        )
        .shown(["spec.claimRef names it, and status.phase is Bound".to_owned()]),
        None => waits(found, "kubernetes.io/pv-protection", "the PV protection controller"),
    }
}

fn others(count: usize) -> String {
    if count > 1 { format!(", and {} more", count - 1) } else { String::new() }
}

/// A finalizer that somebody takes off who belongs to Kubernetes.
fn waits(found: &Found, finalizer: &str, who: &str) -> Finding {
    let says = format!("{finalizer} is taken off by {who}");
    Finding::new(Cause::Owner, says, format!("kubectl describe {}", found.object_ref().arguments()))
}

/// What a Pod waits for beside finalizers: its kubelet.
fn pod(found: &Found, evidence: &Evidence, alone: bool) -> Option<Finding> {
    let node = found.object.pointer("/spec/nodeName").and_then(Value::as_str)?;
    let object = found.object_ref().arguments();
    let force = format!("kubectl delete {object} --grace-period=0 --force");
    let gone = |says: String, shown: &str| {
        let next = format!("see that nothing of it runs any more, and then: {force}");
        Some(Finding::new(Cause::NodeGone, says, next).shown([shown.to_owned()]))
    };
    match evidence.nodes.as_ref().map(|nodes| nodes.get(node)) {
        // Of some Nodes that somebody has written down the others are not gone.
        Some(None) if evidence.of_files => None,
        Some(None) => {
            gone(format!("its node {node} exists no more"), "there is no Node of that name")
        }
        Some(Some(false)) => gone(
            format!("its node {node} is not ready, so nobody ends it there"),
            "the condition Ready of the Node is not True",
        ),
        Some(Some(true)) if alone => Some(Finding::new(
            Cause::Owner,
            format!("the kubelet of node {node} has not ended it yet"),
            format!("kubectl describe {object}"),
        )),
        None if alone => Some(Finding::new(
            Cause::Unknown,
            format!("the kubelet of node {node} has not ended it; the node could not be read"),
            format!("kubectl get node {node}"),
        )),
        _ => None,
    }
}
