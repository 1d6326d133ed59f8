//! The finalizers of other controllers: whether the controller still runs.

use super::finalizers::{is_tool, removal, writer};
use super::finding::{Cause, Finding};
use crate::cluster::terminating::{Evidence, ServiceProblem, TerminatingObject, Workload};
use crate::objects::and_more;

/// Components that run outside of workloads.
const SYSTEM: &[&str] = &[
    "kube-controller-manager",
    "cloud-controller-manager",
    "kube-apiserver",
    "kube-scheduler",
    "kubelet",
    "k3s",
    "k0s",
];

/// The findings about a finalizer of another controller.
pub fn foreign_finalizer(
    finalizer: &str,
    index: usize,
    found: &TerminatingObject,
    evidence: &Evidence,
) -> Finding {
    let manager = writer(finalizer, &found.object);
    let by = manager.as_deref().map_or_else(String::new, |who| format!(", added by {who}"));
    let owner = manager.as_deref().filter(|who| !is_tool(who));
    let name = format!("the finalizer {finalizer}{by}");
    let off = removal((finalizer, index), found, evidence, "");
    let gone = format!("if that controller is gone for good, and its work is done: {off}");
    let api = Api::of(finalizer, evidence);
    let unread = || "not all workloads of the cluster could be read".to_owned();
    let manifest = || match &manager {
        Some(tool) if is_tool(tool) => Some(format!("{tool} does not say who removes it")),
        None if found.object.pointer("/metadata/managedFields").is_some() => {
            Some("managedFields do not say who added it".to_owned())
        }
        None => Some(
            "without managedFields it is unknown who added it (kubectl get has \
             --show-managed-fields)"
                .to_owned(),
        ),
        _ => None,
    };
    if let Some(who) = owner.filter(|who| SYSTEM.contains(who)) {
        let says = format!("{name}, was not removed yet");
        let next = format!("check that {who} runs, and its log");
        return Finding::new(Cause::Owner, says, next);
    }
    let workloads = &evidence.workloads;
    // Editors of the object write its managedFields, so the domain counts as well.
    let named = owner.map(|who| (matching(workloads, who), "of that name or image".to_owned()));
    let of_domain = || {
        let word = api.word()?;
        Some((mentioning(workloads, word), format!("with {word} in its name or image")))
    };
    let (candidates, likeness) =
        named.filter(|(found, _)| !found.is_empty()).or_else(of_domain).unwrap_or_default();
    if !candidates.is_empty() {
        let unread = evidence.more_workloads.then(unread);
        return PossibleControllers::new(&candidates, likeness)
            .finding(&name)
            .with(manifest().into_iter().chain(unread));
    }
    // Only a complete search proves that no controller exists.
    if evidence.more_workloads {
        let says = format!("{name}: whether the controller that removes it runs is not known");
        return Finding::new(Cause::Unknown, says, gone)
            .with([unread()].into_iter().chain(manifest()).chain(api.webhook_notes()));
    }
    let none = match owner {
        Some(who) => Some(format!(
            "no Deployment, StatefulSet or DaemonSet is called {who} or runs an image of that \
             name; editors of the object can change who added the finalizer"
        )),
        None => api
            .word()
            .map(|word| format!("no Deployment, StatefulSet or DaemonSet has {word} in its name")),
    };
    let (cause, seems) = match api.is_gone() || api.is_abandoned() {
        true => (Cause::OwnerGone, "the controller that removes it seems to be gone"),
        false => (Cause::Unknown, "the controller that removes it is not known"),
    };
    Finding::new(cause, format!("{name}: {seems}"), gone)
        .with(manifest().into_iter().chain(none).chain(api.webhook_notes()))
}

/// How many candidates a finding names.
const MAX_NAMED: usize = 3;

const ONLY_LIKENESS: &str =
    "only the name or image matches: users who can create workloads choose both";

/// The workloads that may be the controller. Users of any namespace choose the names and
/// images of their workloads, so none of them is proven to be it.
struct PossibleControllers<'w> {
    running: Vec<&'w Workload>,
    down: Vec<&'w Workload>,
    /// What they have in common with the finalizer.
    likeness: String,
}

impl<'w> PossibleControllers<'w> {
    fn new(all: &[&'w Workload], likeness: String) -> Self {
        let (running, down) = all.iter().partition(|one| one.ready > 0);
        Self { running, down, likeness }
    }

    fn finding(&self, name: &str) -> Finding {
        let Self { running, down, likeness } = self;
        let (named_down, named_running) = (one_per_namespace(down), one_per_namespace(running));
        let named = || named_down.iter().chain(&named_running);
        let not_running = || match down.len() {
            1 => format!("a workload {likeness} does not run: {}", named_text(&named_down, 1)),
            count => format!("workloads {likeness} do not run: {}", named_text(&named_down, count)),
        };
        let runs = || match running.len() {
            1 => format!("a workload {likeness} runs: {}", named_text(&named_running, 1)),
            count => format!("workloads {likeness} run: {}", named_text(&named_running, count)),
        };
        let (cause, says) = match (down.is_empty(), running.is_empty()) {
            (true, _) => (Cause::Owner, format!("{name}, was not removed yet; {}", runs())),
            (false, true) => (Cause::OwnerDown, format!("{name}: {}", not_running())),
            // Each of them can be the controller.
            (false, false) => (Cause::Unknown, format!("{name}: {}; {}", not_running(), runs())),
        };
        let commands = named().map(|one| {
            let verb = if one.ready > 0 { "logs" } else { "describe" };
            format!("kubectl {verb} {}/{} -n {}", one.kind, one.name, one.namespace)
        });
        let commands = commands.collect::<Vec<_>>().join(", or ");
        let next = match running.len() + down.len() {
            1 => format!("if that workload is the controller: {commands}"),
            _ => format!("find out which workload is the controller; for that one: {commands}"),
        };
        let ready = named().map(|one| {
            format!("{}/{} -n {} has {} ready Pods", one.kind, one.name, one.namespace, one.ready)
        });
        Finding::new(cause, says, next).with(ready.chain([ONLY_LIKENESS.to_owned()]))
    }
}

/// One workload of each namespace, up to the limit. The workloads of one namespace thus
/// can't displace those of another one.
fn one_per_namespace<'w>(workloads: &[&'w Workload]) -> Vec<&'w Workload> {
    let mut named: Vec<&Workload> = Vec::new();
    for one in workloads {
        if named.len() < MAX_NAMED && named.iter().all(|other| other.namespace != one.namespace) {
            named.push(one);
        }
    }
    named
}

/// The named ones of so many workloads as text.
fn named_text(named: &[&Workload], count: usize) -> String {
    let names = named.iter().map(|one| format!("{}/{}", one.namespace, one.name));
    names.collect::<Vec<_>>().join(", ") + &and_more(count - named.len(), "workload")
}

/// The workloads that a field manager may be: by name or by image.
fn matching<'w>(workloads: &'w [Workload], manager: &str) -> Vec<&'w Workload> {
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_it = |one: &&Workload| {
        begins(&one.name, manager)
            || begins(manager, &one.name)
            || one.name.strip_suffix(manager).is_some_and(|rest| rest.ends_with('-'))
            || one.images.iter().any(|image| begins(image, manager))
    };
    workloads.iter().filter(is_it).collect()
}

/// The workloads that have a word in a name of theirs.
fn mentioning<'w>(workloads: &'w [Workload], word: &str) -> Vec<&'w Workload> {
    // Whole parts of a name: `app` is in the name of everything.
    let has = |name: &String| format!("-{name}-").contains(&format!("-{word}-"));
    let has = |one: &&Workload| has(&one.name) || one.images.iter().any(has);
    workloads.iter().filter(|one| word.len() > 2 && has(one)).collect()
}

/// The API groups of a finalizer's domain.
struct Api<'e> {
    /// The domain, such as `example.com`. `None`: the finalizer names no domain, or one of
    /// Kubernetes.
    base: Option<String>,
    served: Vec<String>,
    stale: bool,
    /// Whether more may be served, or more webhooks be there.
    more: (bool, bool),
    /// The webhooks of this domain: each by its description, and what is wrong with its
    /// Service.
    webhooks: Vec<(String, Option<&'e ServiceProblem>)>,
}

impl<'e> Api<'e> {
    fn of(finalizer: &str, evidence: &'e Evidence) -> Self {
        let domain = finalizer.split('/').next().unwrap_or_default();
        let base = base(domain).filter(|base| !["kubernetes.io", "k8s.io"].contains(base));
        let related = |group: &&String| base.is_some() && self::base(group) == base;
        let hooks = evidence.webhooks.iter().filter(|hook| related(&&hook.name));
        let hooks = hooks.map(|hook| {
            (format!("the webhook {} ({})", hook.name, hook.configuration), hook.silence.as_ref())
        });
        let conversions = evidence.conversions.iter();
        let conversions = conversions.filter(|dead| related(&&dead.definition)).map(|dead| {
            (format!("the conversion webhook of {}", dead.definition), Some(&dead.silence))
        });
        Self {
            base: base.map(str::to_owned),
            served: evidence.groups.iter().filter(related).cloned().collect(),
            stale: evidence.stale.iter().any(|group| related(&group)),
            more: (evidence.more_groups, evidence.more_webhooks),
            webhooks: hooks.chain(conversions).collect(),
        }
    }

    /// Whether nothing of it remains: neither CRDs nor a webhook.
    fn is_gone(&self) -> bool {
        let left = self.stale || self.more.0 || self.answers() || !self.served.is_empty();
        self.base.is_some() && !left
    }

    /// Whether its CRDs and webhooks remain without a controller. An uninstall that deletes
    /// only the workloads leaves this state.
    fn is_abandoned(&self) -> bool {
        let gone =
            |(_, silence): &(String, Option<&ServiceProblem>)| silence.is_some_and(|s| s.gone);
        self.webhooks.iter().any(gone) && !self.answers()
    }

    /// Whether one of its webhooks seems to, or may.
    fn answers(&self) -> bool {
        self.more.1 || self.webhooks.iter().any(|(_, silence)| silence.is_none())
    }

    /// The usual word in the names of this domain's components.
    fn word(&self) -> Option<&str> {
        self.base.as_deref()?.split('.').next()
    }

    fn webhook_notes(&self) -> Vec<String> {
        let Some(base) = &self.base else { return Vec::new() };
        let kinds = match (&self.served[..], self.stale) {
            ([], true) => format!("the API of {base} does not answer"),
            ([], false) if self.more.0 => format!("whether kinds of {base} exist is not known"),
            ([], false) => format!("no API group of {base} is served: its kinds are gone"),
            (served, _) => format!("still served: {}", served.join(", ")),
        };
        let webhooks = self.webhooks.iter().take(3).map(|(what, silence)| match silence {
            Some(ServiceProblem { why, .. }) => format!("{what} does not answer: {why}"),
            None => format!("no problem is known of {what}"),
        });
        [kinds].into_iter().chain(webhooks).collect()
    }
}

/// The last two labels of a domain.
fn base(domain: &str) -> Option<&str> {
    let mut dots = domain.rmatch_indices('.').map(|(at, _)| at);
    dots.next()?;
    Some(dots.next().map_or(domain, |at| &domain[at + 1..]))
}
