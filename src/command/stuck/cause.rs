//! Why an object that is Terminating stays: what was read in, words out.

use serde::Serialize;
use serde_json::Value;

use super::finalizer::{foreign, target};
use crate::cluster::terminating::{
    DeadConversion, DeadWebhook, Dependent, Evidence, Found, Rule, Said, Survey,
};
use crate::command::finalizers::known;
use crate::command::why::Waits;
use crate::decide::arguments;
use crate::objects::{FOREGROUND, full_name, is_hold};

/// The kinds of causes. Of several the one that stands first here is told
/// first: it is the likeliest to be what the others wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Cause {
    /// An admission webhook, or an admission policy, refuses what would let it
    /// go.
    Refused,
    /// An aggregated API does not answer.
    BrokenApi,
    /// The conversion webhook of a kind does not answer.
    ConversionWebhook,
    /// Whoever takes a finalizer off exists no more.
    OwnerGone,
    /// Whoever takes a finalizer off does not run.
    OwnerDown,
    /// Its node is gone, or not ready.
    NodeGone,
    /// belay holds it for somebody.
    HeldByBelay,
    /// A foreground deletion waits for dependents.
    Foreground,
    /// Something is left in it.
    Content,
    /// Somebody still uses it.
    InUse,
    /// Whoever is to let it go is there, and has not.
    Owner,
    /// Nothing that was read says why.
    Unknown,
}

impl Cause {
    /// In the words of a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::Refused => "refused at admission",
            Self::BrokenApi => "an API does not answer",
            Self::ConversionWebhook => "a conversion webhook does not answer",
            Self::OwnerGone => "a finalizer whose owner is gone",
            Self::OwnerDown => "a finalizer whose owner does not run",
            Self::NodeGone => "its node is gone",
            Self::HeldByBelay => "held by belay",
            Self::Foreground => "waits for its dependents",
            Self::Content => "something is left in it",
            Self::InUse => "still in use",
            Self::Owner => "a finalizer that was not taken off yet",
            Self::Unknown => "not known",
        }
    }
}

/// One reason why an object stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Of which kind.
    pub cause: Cause,
    /// The finalizer that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// In a sentence.
    pub says: String,
    /// What shows it.
    pub evidence: Vec<String>,
    /// What to do next.
    pub next: String,
}

impl Finding {
    /// A finding without evidence so far.
    pub fn new(cause: Cause, says: impl Into<String>, next: impl Into<String>) -> Self {
        Self { cause, finalizer: None, says: says.into(), evidence: Vec::new(), next: next.into() }
    }

    /// What shows it.
    pub fn shown(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    fn of(self, finalizer: &str) -> Self {
        Self { finalizer: Some(finalizer.to_owned()), ..self }
    }
}

/// What is known of our hold.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// What it waits for; none: that could not be counted.
    pub waits: Option<Waits>,
    /// Whether belay's kinds are served.
    pub installed: bool,
    /// Whether nobody leads belay.
    pub unled: bool,
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
    let named = if is(found, DEFINITIONS) { &found.name } else { &definition };
    findings.extend(conversion(named, evidence));
    if is(found, ("", "namespaces")) {
        findings.extend(super::namespace::findings(found, survey, evidence));
    }
    if is(found, ("", "pods")) {
        findings.extend(pod(found, evidence, finalizers.is_empty()));
    }
    if findings.is_empty() {
        let next = format!("kubectl get {} -o yaml", arguments(&target(found)));
        findings.push(Finding::new(Cause::Unknown, "no finalizer keeps it", next));
    }
    findings.sort_by_key(|finding| finding.cause);
    findings
}

/// The finalizer that the API server takes off a definition.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

fn is(found: &Found, (group, resource): (&str, &str)) -> bool {
    found.info.group == group && found.info.resource == resource
}

/// The strings of a list.
pub fn texts(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether somebody was refused.
pub fn is_refusal(message: &str) -> bool {
    let signs = ["denied the request", "failed calling webhook", "failed to call webhook"];
    signs.iter().any(|sign| message.contains(sign)) || is_refusal_by_policy(message)
}

/// Whether a ValidatingAdmissionPolicy refused: its words differ from those of a
/// webhook by an article.
pub fn is_refusal_by_policy(message: &str) -> bool {
    message.contains("denied request: ")
}

/// Who is refused what would let the object go.
fn refusals(
    found: &Found,
    survey: &Survey,
    evidence: &Evidence,
    finalizers: &[&str],
) -> Vec<Finding> {
    let describe = |target| format!("kubectl describe {}", arguments(&target));
    let mut findings = Vec::new();
    let refused = |said: &&Said| {
        is_refusal(&said.message) || (said.by == "belay" && said.reason == "FinalizerGuarded")
    };
    let own = evidence.said.get(&found.uid).into_iter().flatten();
    let own: Vec<String> = own.filter(refused).take(3).map(told).collect();
    if !own.is_empty() {
        let says = "whoever works on its end was refused";
        let next = describe(target(found));
        findings.push(Finding::new(Cause::Refused, says, next).shown(own));
    }
    let waits = finalizers.contains(&FOREGROUND);
    for dependent in survey.dependents.get(&found.uid).into_iter().flatten().filter(|_| waits) {
        let said = evidence.said.get(&dependent.uid).into_iter().flatten();
        // What belay says of a living object is that a DELETE was refused.
        let of_belay = |said: &&Said| said.by == "belay" && !dependent.terminating;
        let said = said.filter(|said| refused(said) || of_belay(said));
        let said: Vec<String> = said.take(3).map(told).collect();
        if !said.is_empty() {
            let says = format!("the deletion of {} was refused", named(dependent));
            let next = describe(target_of(dependent));
            findings.push(Finding::new(Cause::Refused, says, next).shown(said));
        }
    }
    let asked = |webhook: &&DeadWebhook| webhook.rules.iter().any(|rule| rule.updates(found));
    for webhook in evidence.webhooks.iter().filter(asked).filter(|_| !finalizers.is_empty()) {
        let says = format!(
            "nobody can take a finalizer off: the API server has to ask the webhook {}, which \
             cannot answer",
            webhook.name
        );
        let next = format!(
            "bring it back; or, if it is gone for good: kubectl delete {}",
            webhook.configuration
        );
        let selects = "it is asked where its selectors and conditions match";
        let selects = webhook.selects.then(|| selects.to_owned());
        let shown = [webhook.why.clone()].into_iter().chain(selects);
        findings.push(Finding::new(Cause::Refused, says, next).shown(shown));
    }
    findings
}

fn told(said: &Said) -> String {
    format!("Event {} by {}: {}", said.reason, said.by, said.message)
}

impl Rule {
    /// Whether it speaks of writes to this object.
    fn updates(&self, found: &Found) -> bool {
        let has = |list: &[String], names: &[&str]| {
            list.iter().any(|entry| names.contains(&entry.as_str()))
        };
        has(&self.groups, &["*", &found.info.group])
            && has(&self.resources, &["*", "*/*", &found.info.resource])
            && has(&self.operations, &["*", "UPDATE"])
    }
}

fn held(found: &Found, hold: &Hold) -> Finding {
    let object = arguments(&target(found));
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
    let finding = match &hold.waits {
        None => finding(
            "belay holds it; for whom could not be found out".to_owned(),
            format!("kubectl belay why {object}"),
        ),
        Some(Waits { free: true, r#for }) => {
            finding(format!("belay holds it, and may let go: {}", r#for.join(", ")), release)
        }
        Some(Waits { r#for, .. }) => finding(
            format!("belay holds it for {}", r#for.first().map_or("", String::as_str)),
            format!("kubectl belay why {object}"),
        )
        .shown(r#for.iter().skip(1).take(4).map(|also| format!("and for {also}"))),
    };
    finding.shown(unled)
}

fn foreground(found: &Found, survey: &Survey) -> Finding {
    let dependents = survey.dependents.get(&found.uid).map_or(&[][..], Vec::as_slice);
    let finding = |says: String, next: String| Finding::new(Cause::Foreground, says, next);
    let Some(first) = dependents.first() else {
        let unread = survey.unread.first();
        let unread = unread.map(|unread| {
            format!("{} could not be read, and {} more", unread.resource, survey.unread.len() - 1)
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
    finding(
        format!("the garbage collector waits for {}{more} to be gone", named(first)),
        format!("kubectl describe {}", arguments(&target_of(first))),
    )
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
        .map(|other| format!("{} is Terminating itself", arguments(&target(other))));
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
    Some(finding.shown([dead.why.clone()]))
}

/// What helps when nobody converts a kind.
pub fn way_out(dead: &DeadConversion) -> String {
    format!(
        "bring the webhook back; what it is: kubectl get crd {} -o jsonpath={{.spec.conversion}}",
        dead.definition
    )
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
    Finding::new(Cause::Owner, says, format!("kubectl describe {}", arguments(&target(found))))
}

/// What a Pod waits for beside finalizers: its kubelet.
fn pod(found: &Found, evidence: &Evidence, alone: bool) -> Option<Finding> {
    let node = found.object.pointer("/spec/nodeName").and_then(Value::as_str)?;
    let object = arguments(&target(found));
    let force = format!("kubectl delete {object} --grace-period=0 --force");
    let gone = |says: String, shown: &str| {
        let next = format!("see that nothing of it runs any more, and then: {force}");
        Some(Finding::new(Cause::NodeGone, says, next).shown([shown.to_owned()]))
    };
    match evidence.nodes.as_ref().map(|nodes| nodes.get(node)) {
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

fn target_of(dependent: &Dependent) -> crate::decide::Target {
    crate::decide::Target {
        group: dependent.info.group.clone(),
        resource: dependent.info.resource.clone(),
        namespace: dependent.namespace.clone(),
        name: dependent.name.clone(),
    }
}

fn named(dependent: &Dependent) -> String {
    let resource = full_name(&dependent.info.group, &dependent.info.resource);
    format!("{resource}/{}", dependent.name)
}
