//! A verdict, rendered: for the person, for the audit log, for the API server.

use std::fmt::Write as _;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use serde_json::json;

use super::{
    Blocker, Cause, ContentReason, Decision, HoldChange, HoldPlace, ObjectName, Reason, Verdict,
};
use crate::objects::{HOLD, ObjectRef, one_line, one_line_name};
use crate::policy::Source;

/// So many blockers are told in words; of the others their number.
const TOLD: usize = 3;

/// Kubernetes asks for warnings that are no longer.
const WARNING: usize = 120;

/// All causes in other namespaces than the object.
const ELSEWHERE: &str = "an object in another namespace";

/// No message is longer.
const LONGEST: usize = 8_192;

/// The sentence a person reads: what stands against the request, and the way
/// out. `None` when the request passes.
pub fn message(verdict: &Verdict) -> Option<String> {
    (verdict.decision == Decision::Deny).then(|| one_line(&refusal(verdict), LONGEST).into_owned())
}

/// What stands against the request, whatever comes of it.
fn refusal(verdict: &Verdict) -> String {
    let told: Vec<_> =
        verdict.blockers.iter().filter(|blocker| blocker.outcome == verdict.decision).collect();
    let Some(first) = told.first() else { return String::new() };
    if first.policies.is_empty() {
        return unreadable(&verdict.target, first);
    }
    let mut text = String::new();
    for blocker in told.iter().take(TOLD) {
        let _ = write!(text, "{}; {}. ", sentence(&verdict.target, blocker), policy_names(blocker));
    }
    let more = told.len().saturating_sub(TOLD) + verdict.more;
    if more > 0 {
        let _ = write!(text, "There are {more} more reasons. ");
    }
    for ineffective_approvals in &verdict.ineffective_approvals {
        let says = ineffective_approvals.to_string();
        let mut letters = says.chars();
        let first = letters.next().map_or_else(String::new, |c| c.to_uppercase().to_string());
        let _ = write!(text, "{first}{}. ", letters.as_str());
    }
    let ways = remedy(verdict, first);
    let approvals = approve(verdict, &told).join(" and ");
    let ways = ways.into_iter().chain([approvals]).collect::<Vec<_>>().join(", or ");
    let why = verdict.target.arguments();
    let _ = write!(text, "Way out: {ways}. Why: kubectl belay why {why}");
    text
}

/// The approvals that let the request pass: of the target, with its content
/// where something that certainly goes along is protected, and of what it
/// would not cover.
fn approve(verdict: &Verdict, told: &[&Blocker]) -> Vec<String> {
    let of_target = |blocker: &&&Blocker| blocker.is_content || blocker.object == verdict.target;
    let people = |blockers: &[&&Blocker]| {
        let people = blockers.iter().map(|blocker| blocker.people).max().unwrap_or(1);
        if people > 1 { format!(" ({people} people)") } else { String::new() }
    };
    let mut commands = Vec::new();
    let mut command = |object: &ObjectRef, content: bool, blockers: &[&&Blocker]| {
        let content = if content { " --scope content" } else { "" };
        let people = people(blockers);
        let object = object.arguments();
        let command = format!("kubectl belay approve {object} --reason \"…\"{content}{people}");
        if !commands.contains(&command) {
            commands.push(command);
        }
    };
    let covered: Vec<_> = told.iter().filter(of_target).collect();
    if !covered.is_empty() {
        command(&verdict.target, covered.iter().any(|blocker| blocker.is_content), &covered);
    }
    let others = told.iter().filter(|blocker| !of_target(blocker));
    others.take(TOLD).for_each(|blocker| command(&blocker.object, false, &[blocker]));
    commands
}

/// What helps against what stands against the request: what else than an
/// approval, and the commands that approve.
pub(crate) fn remedies(verdict: &Verdict) -> (Option<String>, Vec<String>) {
    let told: Vec<_> =
        verdict.blockers.iter().filter(|blocker| blocker.outcome == verdict.decision).collect();
    match told.first() {
        Some(first) if !first.policies.is_empty() => {
            (remedy(verdict, first), approve(verdict, &told))
        }
        _ => (None, Vec::new()),
    }
}

fn unreadable(target: &ObjectRef, blocker: &Blocker) -> String {
    let what = match blocker.causes.first() {
        Some(Cause::Unknown(what)) => what,
        Some(Cause::Unproven(what)) => {
            let target = target.quoted();
            return format!(
                "belay cannot tell whether {target} may go: {what}. Way out: try again."
            );
        }
        _ => "it is not what was expected",
    };
    format!(
        "belay could not read the review of {}: {what}. The request is refused because belay runs \
         with --failure-policy Fail.",
        target.quoted(),
    )
}

/// The namespace of an object that a DELETE of the target deletes as well, if the target
/// does not name it.
fn namespace_suffix(target: &ObjectRef, object: &ObjectRef) -> String {
    match object.namespace.as_str() {
        namespace if namespace.is_empty() || namespace == target.own_namespace() => String::new(),
        namespace => format!(" in namespace {namespace}"),
    }
}

/// What one blocker says.
pub(crate) fn sentence(target: &ObjectRef, blocker: &Blocker) -> String {
    let object = blocker.object.quoted();
    let along = blocker.object != *target;
    // What goes along is told with what takes it.
    let subject = match along {
        true => {
            let suffix = namespace_suffix(target, &blocker.object);
            format!("{} takes {object}{suffix} along, which", target.quoted())
        }
        false => object.clone(),
    };
    let list = list(blocker);
    let first = blocker.causes.first();
    match (blocker.reason, first) {
        (Reason::Protected, Some(Cause::WeakerProtection(named))) => {
            format!("after this change of {object} {named} would be protected less")
        }
        (Reason::Protected, _) => format!("{subject} is protected"),
        (Reason::InUse, Some(Cause::Unproved)) => {
            format!("{subject} stays until belay has seen that nothing needs it")
        }
        (Reason::InUse, _) => format!("{subject} is in use by {list}"),
        (Reason::NotEmpty, _) if along => format!("{} still holds {list}", target.quoted()),
        (Reason::NotEmpty, _) => format!("{subject} is not empty: {list}"),
        (Reason::StillNeeded, _) => format!("{subject} is still needed by {list}"),
        (Reason::WouldOrphan, Some(Cause::Dependent(_))) => {
            format!("{object} would leave {list} without an owner")
        }
        (Reason::WouldOrphan, _) => format!("{object} would lose its owner {list}"),
        (Reason::FinalizerGuarded, Some(Cause::Hold { .. })) => {
            format!("{HOLD} is not taken off {object} by hand")
        }
        (Reason::FinalizerGuarded, _) => {
            format!("the finalizer {list} of {object} is not yours to take off")
        }
        (Reason::Unknown, Some(Cause::TooLarge(what))) => format!("{object} {what}"),
        (Reason::Unknown, _) => format!("belay cannot tell whether {object} may go: {list}"),
    }
}

/// The causes, with the number of those that are not told.
fn list(blocker: &Blocker) -> String {
    let told: Vec<String> = blocker.causes.iter().map(describe_cause).collect();
    let mut text = told.join(", ");
    if blocker.more > 0 {
        let _ = write!(text, " and {} more", blocker.more);
    }
    text
}

pub(crate) fn describe_cause(cause: &Cause) -> String {
    match cause {
        Cause::User { root, through: None, path } => format!("{root} ({})", one_line_name(path)),
        Cause::User { root, through: Some(ObjectName { kind, name, .. }), path } => {
            let [kind, name, path] = [kind, name, path].map(|text| one_line_name(text));
            format!("{root} ({kind} {name}, {path})")
        }
        Cause::Content { object, why: ContentReason::Anything } => object.to_string(),
        Cause::Content { object, why: ContentReason::Bound } => format!("{object} is bound"),
        Cause::Content { object, why: ContentReason::Protected(by) } => {
            format!("{object}, which is protected ({by})")
        }
        Cause::Content { object, why: ContentReason::Held(by) } => {
            format!("{object}, which is held ({by})")
        }
        Cause::Exists(object) | Cause::Dependent(object) | Cause::Owner(object) => {
            object.to_string()
        }
        Cause::Finalizer(name) => one_line_name(name).into_owned(),
        Cause::Hold { .. } => HOLD.to_owned(),
        Cause::Elsewhere { causes, .. } => match causes[..] {
            [Cause::Unknown(_)] => format!("{ELSEWHERE} can't be read"),
            _ => ELSEWHERE.to_owned(),
        },
        Cause::Unknown(what) | Cause::Unproven(what) | Cause::TooLarge(what) => {
            one_line(what, LONGEST).into_owned()
        }
        Cause::Always | Cause::Unproved | Cause::WeakerProtection(_) => String::new(),
    }
}

/// All causes of a verdict, those in other namespaces as well: for belay's own log.
pub fn causes(verdict: &Verdict) -> String {
    let verdict = verdict.clone().in_full();
    let lists: Vec<String> = verdict.blockers.iter().map(list).collect();
    one_line(&lists.join("; "), LONGEST).into_owned()
}

/// The policies, by name.
pub(crate) fn policy_names(blocker: &Blocker) -> String {
    let names: Vec<&str> = blocker
        .policies
        .iter()
        .filter_map(|source| match source {
            Source::Policy(name) => Some(name.as_str()),
            Source::Label(_) => None,
        })
        .collect();
    let labels = blocker.policies.iter().filter(|source| matches!(source, Source::Label(_)));
    let mut parts: Vec<String> = labels.map(Source::to_string).collect();
    match names[..] {
        [] => {}
        [name] => parts.push(format!("policy {name}")),
        _ => parts.push(format!("policies {}", names.join(", "))),
    }
    parts.join(", ")
}

/// What else than an approval helps.
fn remedy(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let target = &verdict.target;
    let one = blocker.causes.len() + blocker.more == 1;
    let it = if one { "it" } else { "them" };
    match (blocker.reason, blocker.causes.first()?) {
        (Reason::InUse, Cause::User { .. } | Cause::Elsewhere { .. }) => {
            Some(format!("delete {it} first or take the reference out"))
        }
        (Reason::NotEmpty, Cause::Content { why: ContentReason::Held(_), .. }) => {
            Some("delete it and wait until it is gone".to_owned())
        }
        (Reason::NotEmpty, _) | (Reason::StillNeeded, _) => Some(format!("delete {it} first")),
        (Reason::WouldOrphan, Cause::Owner(_)) if blocker.object == *target => {
            Some("leave its owner reference as it is".to_owned())
        }
        (Reason::WouldOrphan, _) if loses_dependent(target, blocker) => {
            Some("leave the owner reference as it is".to_owned())
        }
        // What would be refused as well is no advice.
        (Reason::WouldOrphan, _) if !verdict.background_passes => None,
        // The sentence before speaks of the dependent, which is not meant here.
        (Reason::WouldOrphan, _) if blocker.object != *target => {
            Some(format!("delete {} with --cascade=background", target.arguments()))
        }
        (Reason::WouldOrphan, _) => Some("delete it with --cascade=background".to_owned()),
        (Reason::FinalizerGuarded, Cause::Hold { terminating: true }) => {
            Some(format!("kubectl belay release {}", target.arguments()))
        }
        (Reason::FinalizerGuarded, Cause::Hold { terminating: false }) => {
            Some("leave it: once the object is deleted it goes when nothing needs it".to_owned())
        }
        (Reason::FinalizerGuarded, _) => Some("leave it to its controller".to_owned()),
        (Reason::Unknown, Cause::TooLarge(_)) => None,
        (Reason::Unknown, _) => Some("try again when belay can read it".to_owned()),
        _ => None,
    }
}

/// Whether the request is about a dependent, and its owner is what is
/// protected: the other way round than everywhere else.
fn loses_dependent(target: &ObjectRef, blocker: &Blocker) -> bool {
    blocker.object != *target && matches!(blocker.causes.first(), Some(Cause::Dependent(_)))
}

/// What a person is told although the request passes.
pub fn warnings(verdict: &Verdict) -> Vec<String> {
    let mut warnings = Vec::new();
    if verdict.hold.as_ref().is_some_and(|hold| hold.restored) {
        warnings
            .push(format!("{HOLD} was put back: belay takes it off when nothing needs the object"));
    }
    let Some(blocker) = verdict.blockers.first().filter(|b| b.outcome == verdict.decision) else {
        return warnings;
    };
    let policies = policy_names(blocker);
    match verdict.decision {
        Decision::Hold => {
            let object = format!("{}/{}", blocker.object.resource, blocker.object.name);
            let user = blocker.causes.first().and_then(|cause| match cause {
                Cause::User { root, .. } => Some(root.to_string()),
                Cause::Elsewhere { .. } => Some(ELSEWHERE.to_owned()),
                _ => None,
            });
            let others = (blocker.causes.len() + blocker.more).saturating_sub(1);
            let until = match user {
                Some(user) if others == 0 => format!("{user} no longer needs it"),
                Some(user) => format!("{user} and {others} more no longer need it"),
                _ => "belay has seen that nothing needs it".to_owned(),
            };
            warnings.push(format!("{object} stays Terminating until {until}; {policies}"));
        }
        Decision::Warn => {
            warnings.push(format!(
                "belay would refuse: {}; {policies}",
                sentence(&verdict.target, blocker)
            ));
        }
        Decision::Allow | Decision::Audit | Decision::Deny => {}
    }
    warnings.into_iter().map(|warning| one_line(&warning, WARNING).into_owned()).collect()
}

/// What the API server writes into its audit log beside the request. Keys are
/// prefixed with the webhook's name by the API server.
pub fn audit_annotations(verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut annotations = vec![("verdict", verdict.decision.as_str().to_owned())];
    if let Some(reason) = verdict.reason {
        annotations.push(("reason", reason.as_str().to_owned()));
    }
    let sources = |sources: &mut dyn Iterator<Item = &Source>| {
        let mut names: Vec<String> = sources.map(Source::to_string).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    let refusing = sources(&mut verdict.blockers.iter().flat_map(|blocker| &blocker.policies));
    let exempted = sources(&mut verdict.overrides.exempted.iter());
    let approved = verdict.overrides.approvals.join(", ");
    for (key, value) in
        [("policies", refusing), ("exempted-by", exempted), ("approved-by", approved)]
    {
        if !value.is_empty() {
            annotations.push((key, value));
        }
    }
    if matches!(verdict.decision, Decision::Audit | Decision::Warn) {
        annotations.push(("would-deny", one_line(&refusal(verdict), LONGEST).into_owned()));
    }
    if let Some(HoldChange { restored, .. }) = verdict.hold {
        annotations.push(("hold", if restored { "put back" } else { "added" }.to_owned()));
    }
    annotations
}

/// The JSON patch (RFC 6902) that carries the verdict out; `None` when the
/// object stays as it is. Where something is there already, a `test` guards
/// that it is what the verdict saw.
pub fn patch(verdict: &Verdict) -> Option<Patch> {
    let list = || PointerBuf::from_tokens(["metadata", "finalizers"]);
    let add = |path, value| PatchOperation::Add(AddOperation { path, value });
    Some(Patch(match &verdict.hold.as_ref()?.place {
        HoldPlace::First => vec![add(list(), json!([HOLD]))],
        HoldPlace::At { index, finalizers } => {
            let index = index.to_string();
            let place = PointerBuf::from_tokens(["metadata", "finalizers", index.as_str()]);
            let test = TestOperation { path: list(), value: json!(finalizers) };
            vec![PatchOperation::Test(test), add(place, json!(HOLD))]
        }
    }))
}
