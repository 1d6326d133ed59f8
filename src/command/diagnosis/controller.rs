//! The finalizers of other controllers: whether the controller still runs.

use super::finalizers::{is_tool, removal, writer};
use super::finding::{Cause, Finding};
use crate::cluster::terminating::{Evidence, ServiceProblem, TerminatingObject, Workload};
use crate::objects::{more, quote_if_ambiguous};

/// Components of Kubernetes that often run outside of workloads.
const SYSTEM_COMPONENTS: &[&str] = &[
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
    let name = quote_if_ambiguous(finalizer);
    let is_terminating = found.object.pointer("/metadata/deletionTimestamp").is_some();
    let state = match manager.as_deref() {
        Some(manager) => format!("finalizer {name} was added by {manager}"),
        None if is_terminating => format!("finalizer {name} was not removed yet"),
        None => format!("it has the finalizer {name}"),
    };
    let owner = manager.as_deref().filter(|name| !is_tool(name));
    let find = format!("find the controller of {name} (search its documentation)");
    let remove = || {
        let command = removal((finalizer, index), found, evidence, "");
        format!(
            "if the controller no longer exists and you have cleaned up its resources: {command}"
        )
    };
    let domain = FinalizerDomain::find(finalizer, evidence);
    let unread = || "not all workloads of the cluster could be read".to_owned();
    let writer_note = || match &manager {
        Some(tool) if is_tool(tool) => {
            Some(format!("a user added it with {tool}, so managedFields don't show its controller"))
        }
        None if found.object.pointer("/metadata/managedFields").is_some() => {
            Some("managedFields do not contain the client that added it".to_owned())
        }
        None => {
            let dump = match evidence.of_files {
                true => "; create the dump with --show-managed-fields",
                false => "",
            };
            Some(format!("the client that added it is unknown without managedFields{dump}"))
        }
        _ => None,
    };
    if let Some(component) = owner.filter(|name| SYSTEM_COMPONENTS.contains(name)) {
        let says = match is_terminating {
            true => format!("{state}, which has not removed it yet"),
            false => format!("{state}, which removes it after a DELETE"),
        };
        let next = format!("check that {component} runs, and its log");
        return Finding::new(Cause::Controller, says, next);
    }
    let workloads = &evidence.workloads;
    // The manager's name is only a hint, because every editor of the object can write its
    // managedFields. If no workload matches the name, the domain of the finalizer is searched.
    let by_name = owner.map(|name| matching(workloads, name));
    let by_domain = || domain.word().map(|word| mentioning(workloads, word));
    let candidates =
        by_name.filter(|found| !found.is_empty()).or_else(by_domain).unwrap_or_default();
    if !candidates.is_empty() {
        let unread = evidence.more_workloads.then(unread);
        return PossibleControllers::new(&candidates)
            .finding(&state)
            .with(writer_note().into_iter().chain(unread));
    }
    // Only a complete search proves that no controller exists.
    if evidence.more_workloads {
        return Finding::new(Cause::Unknown, format!("{state}. {NOT_FOUND}"), find)
            .with([unread()].into_iter().chain(writer_note()).chain(domain.webhook_notes()));
    }
    let no_workload = match owner {
        Some(name) => Some(format!(
            "no Deployment, StatefulSet or DaemonSet is called {name} or runs an image of that \
             name; editors of the object can change who added the finalizer"
        )),
        None => domain.word().zip(domain.base.as_deref()).map(|(word, base)| {
            format!(
                "no Deployment, StatefulSet or DaemonSet has \"{word}\" (from {base}) in its name"
            )
        }),
    };
    let says = format!("{state}. {NOT_FOUND}");
    let finding = match domain.is_gone() || domain.is_abandoned() {
        true => Finding::new(Cause::ControllerGone, says, remove()),
        false => Finding::new(Cause::Unknown, says, find).with_further_step(&remove()),
    };
    finding.with(writer_note().into_iter().chain(no_workload).chain(domain.webhook_notes()))
}

/// The maximum number of workloads that a finding names.
const MAX_NAMED: usize = 3;

const NOT_FOUND: &str = "Its controller was not found";

const ONLY_LIKENESS: &str = "this is a guess from names and images of workloads; their creators can \
                             choose any name and image";

/// The workloads that may be the controller. Users choose the names and images of their
/// workloads, so a match proves nothing.
struct PossibleControllers<'w> {
    running: Vec<&'w Workload>,
    down: Vec<&'w Workload>,
}

impl<'w> PossibleControllers<'w> {
    fn new(all: &[&'w Workload]) -> Self {
        let (running, down) = all.iter().partition(|one| one.ready > 0);
        Self { running, down }
    }

    /// `state`: who added the finalizer.
    fn finding(&self, state: &str) -> Finding {
        let Self { running, down } = self;
        let (named_down, named_running) = (one_per_namespace(down), one_per_namespace(running));
        let named = || named_down.iter().chain(&named_running);
        // If workloads of both states exist, each of them can be the controller.
        let cause = match (down.is_empty(), running.is_empty()) {
            (true, _) => Cause::Controller,
            (false, true) => Cause::ControllerDown,
            (false, false) => Cause::Unknown,
        };
        let count = running.len() + down.len();
        let heading = if count == 1 { "Likely controller" } else { "Possible controllers" };
        let texts = named().map(|one| {
            let Workload { kind, namespace, name, ready, .. } = one;
            let pods = if *ready == 1 { "Pod" } else { "Pods" };
            format!("{} {namespace}/{name}, {ready} ready {pods}", kind_of(kind))
        });
        let hidden = count - named().count();
        let hidden = (hidden > 0).then(|| more(hidden, "workload"));
        let texts = texts.chain(hidden).collect::<Vec<_>>().join("; ");
        let says = format!("{state}. {heading}: {texts}");
        let commands = named().map(|one| {
            let verb = if one.ready > 0 { "logs" } else { "describe" };
            format!("kubectl {verb} {}/{} -n {}", one.kind, one.name, one.namespace)
        });
        let commands = commands.collect::<Vec<_>>().join(", or ");
        let next = match count {
            1 => format!("if that workload is the controller: {commands}"),
            _ => format!("find out which workload is the controller; for that one: {commands}"),
        };
        Finding::new(cause, says, next).with([ONLY_LIKENESS.to_owned()])
    }
}

/// The kind of a workload with this short name.
fn kind_of(short_name: &str) -> &str {
    match short_name {
        "deploy" => "Deployment",
        "sts" => "StatefulSet",
        "ds" => "DaemonSet",
        other => other,
    }
}

/// One workload of each namespace, up to the limit, so that the users of one namespace can't
/// displace the workloads of another namespace.
fn one_per_namespace<'w>(workloads: &[&'w Workload]) -> Vec<&'w Workload> {
    let mut named: Vec<&Workload> = Vec::new();
    for one in workloads {
        if named.len() < MAX_NAMED && named.iter().all(|other| other.namespace != one.namespace) {
            named.push(one);
        }
    }
    named
}

/// The workloads whose name or image matches the name of a field manager.
fn matching<'w>(workloads: &'w [Workload], manager: &str) -> Vec<&'w Workload> {
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_match = |one: &&Workload| {
        begins(&one.name, manager)
            || begins(manager, &one.name)
            || one.name.strip_suffix(manager).is_some_and(|rest| rest.ends_with('-'))
            || one.images.iter().any(|image| begins(image, manager))
    };
    workloads.iter().filter(is_match).collect()
}

/// The workloads with this word in their name or image.
fn mentioning<'w>(workloads: &'w [Workload], word: &str) -> Vec<&'w Workload> {
    // Only complete parts of a name count: `app` is in too many names.
    let contains = |name: &String| format!("-{name}-").contains(&format!("-{word}-"));
    let is_match = |one: &&Workload| contains(&one.name) || one.images.iter().any(contains);
    workloads.iter().filter(|one| word.len() > 2 && is_match(one)).collect()
}

/// The domain of a finalizer, with its API groups and webhooks.
struct FinalizerDomain<'e> {
    /// The domain, such as `example.com`. `None`: the finalizer names no domain, or a domain of
    /// Kubernetes.
    base: Option<String>,
    /// The served API groups of the domain.
    served: Vec<String>,
    /// Whether the server of an API group of the domain does not answer.
    has_unavailable_group: bool,
    /// Whether further API groups and further webhooks may exist.
    more: (bool, bool),
    /// The webhooks of the domain: the description, and the problem of the Service.
    webhooks: Vec<(String, Option<&'e ServiceProblem>)>,
}

impl<'e> FinalizerDomain<'e> {
    fn find(finalizer: &str, evidence: &'e Evidence) -> Self {
        let domain = finalizer.split('/').next().unwrap_or_default();
        let base = base(domain).filter(|base| !["kubernetes.io", "k8s.io"].contains(base));
        let related = |group: &&String| base.is_some() && self::base(group) == base;
        let hooks = evidence.webhooks.iter().filter(|hook| related(&&hook.name));
        let hooks = hooks.map(|hook| {
            (format!("the webhook {} ({})", hook.name, hook.configuration), hook.problem.as_ref())
        });
        let conversions = evidence.conversions.iter();
        let conversions = conversions.filter(|dead| related(&&dead.definition)).map(|dead| {
            (format!("the conversion webhook of {}", dead.definition), Some(&dead.problem))
        });
        Self {
            base: base.map(str::to_owned),
            served: evidence.groups.iter().filter(related).cloned().collect(),
            has_unavailable_group: evidence.unavailable_groups.iter().any(|group| related(&group)),
            more: (evidence.more_groups, evidence.more_webhooks),
            webhooks: hooks.chain(conversions).collect(),
        }
    }

    /// Whether no API group and no webhook of the domain remains.
    fn is_gone(&self) -> bool {
        let remains = self.has_unavailable_group
            || self.more.0
            || self.may_answer()
            || !self.served.is_empty();
        self.base.is_some() && !remains
    }

    /// Whether the CRDs and webhooks of the domain remain without a controller, as after an
    /// uninstall that deletes only the workloads.
    fn is_abandoned(&self) -> bool {
        let is_gone =
            |(_, problem): &(String, Option<&ServiceProblem>)| problem.is_some_and(|s| s.missing);
        self.webhooks.iter().any(is_gone) && !self.may_answer()
    }

    /// Whether a webhook of the domain may answer.
    fn may_answer(&self) -> bool {
        self.more.1 || self.webhooks.iter().any(|(_, problem)| problem.is_none())
    }

    /// The first label of the domain, which the names of its components usually contain.
    fn word(&self) -> Option<&str> {
        self.base.as_deref()?.split('.').next()
    }

    fn webhook_notes(&self) -> Vec<String> {
        let Some(base) = &self.base else { return Vec::new() };
        let kinds = match (&self.served[..], self.has_unavailable_group) {
            ([], true) => format!("the API of {base} does not answer"),
            ([], false) if self.more.0 => format!("it is unknown whether kinds of {base} exist"),
            ([], false) => format!("the API server serves no API group of {base}"),
            (served, _) => format!("still served: {}", served.join(", ")),
        };
        let webhooks = self.webhooks.iter().take(3).map(|(what, problem)| match problem {
            Some(ServiceProblem { why, .. }) => format!("{what} does not answer: {why}"),
            None => format!("belay has found no problem with {what}"),
        });
        [kinds].into_iter().chain(webhooks).collect()
    }
}

/// The last two labels of a domain.
fn base(domain: &str) -> Option<&str> {
    let mut dots = domain.rmatch_indices('.').map(|(index, _)| index);
    dots.next()?;
    Some(dots.next().map_or(domain, |index| &domain[index + 1..]))
}
