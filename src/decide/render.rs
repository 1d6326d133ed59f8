//! A verdict, rendered: for the person, for the audit log, for the API server.

use std::fmt::{self, Write as _};

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use serde_json::json;

use super::{
    Blocker, Cause, ContentReason, Decision, HoldChange, HoldPlace, ObjectName, Reason,
    RefusedStep, Verdict,
};
use crate::graph::Propagation;
use crate::objects::{HOLD, ObjectRef, and_more, more, one_line, one_line_name};
use crate::policy::Source;

/// How many blockers a message describes.
pub(super) const MOST_DESCRIBED: usize = 3;

/// Kubernetes asks webhooks for warnings of at most this length.
const LONGEST_WARNING: usize = 120;

/// Kinds whose references can't be changed.
const FIXED: &[(&str, &str)] = &[
    ("", "pods"),
    ("batch", "jobs"),
    ("resource.k8s.io", "resourceclaims"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattributesclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
];

/// Fields of a StatefulSet that can't be changed.
const FIXED_FIELDS: &[&str] = &["spec.volumeClaimTemplates", "spec.serviceName"];

/// Controllers that `kubectl scale` scales to 0.
const SCALABLE: &[(&str, &str)] = &[
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "replicasets"),
    ("", "replicationcontrollers"),
];

/// Other controllers of Kubernetes that re-create Pods.
const OTHER_CONTROLLERS: &[(&str, &str)] =
    &[("apps", "daemonsets"), ("batch", "jobs"), ("batch", "cronjobs")];

/// The words in the warning about a hold.
pub(crate) const HOLD_WARNING: &str = " stays Terminating until ";

/// All causes in other namespaces than the object.
const ELSEWHERE: &str = "an object in another namespace";

/// The longest message, in characters.
const LONGEST: usize = 8_192;

/// The message of a denial: why the request is denied, what to do first, how to
/// override the policies, and the command that gives details. `None` when the request
/// passes.
pub fn message(verdict: &Verdict) -> Option<String> {
    (verdict.decision == Decision::Deny).then(|| one_line(&denial(verdict), LONGEST).into_owned())
}

/// The blockers that decide a verdict.
pub(super) fn deciding(verdict: &Verdict) -> Vec<&Blocker> {
    verdict.blockers.iter().filter(|blocker| blocker.outcome == verdict.decision).collect()
}

/// The number of the deciding blockers that a message doesn't describe.
pub(super) fn undescribed(verdict: &Verdict, deciding: &[&Blocker]) -> usize {
    deciding.len().saturating_sub(MOST_DESCRIBED) + verdict.more
}

/// The message of a denial, or of the denial that action Warn or Audit replaces.
fn denial(verdict: &Verdict) -> String {
    let deciding = deciding(verdict);
    let Some(first) = deciding.first() else { return String::new() };
    if first.policies.is_empty() {
        return unreadable(&verdict.target, first);
    }
    let mut text = String::new();
    for (reason, blocker) in reasons(verdict, &deciding) {
        let _ = write!(text, "{reason}; {}. ", policy_names(&blocker));
    }
    match undescribed(verdict, &deciding) {
        0 => {}
        1 => text.push_str("There is 1 more reason. "),
        more => {
            let _ = write!(text, "There are {more} more reasons. ");
        }
    }
    for approval in &verdict.ineffective_approvals {
        let _ = write!(text, "{}. ", capitalize(&approval.to_string()));
    }
    if let Some(Remedy { goal, action }) = remedy(verdict, first) {
        let _ = match goal {
            Some(goal) => write!(text, "To {goal}, {action}. "),
            None => write!(text, "{}. ", capitalize(&action)),
        };
    }
    let commands = approval_commands(verdict, &deciding);
    let commands: Vec<String> = commands.iter().map(ToString::to_string).collect();
    let commands = commands.join(" and ");
    let target = verdict.target.arguments();
    let _ = write!(text, "To override: {commands}. Details: kubectl belay why {target}");
    text
}

/// The described reasons of a denial, each with its blocker. The policies of an owner and of
/// its dependent may give the same reason.
pub(super) fn reasons(verdict: &Verdict, deciding: &[&Blocker]) -> Vec<(String, Blocker)> {
    let mut reasons: Vec<(String, Blocker)> = Vec::new();
    for blocker in deciding.iter().take(MOST_DESCRIBED) {
        let reason = sentence_about(verdict, blocker);
        let Some((_, known)) = reasons.iter_mut().find(|(known, _)| *known == reason) else {
            reasons.push((reason, (*blocker).clone()));
            continue;
        };
        let new = blocker.policies.iter().filter(|source| !known.policies.contains(source));
        let new: Vec<Source> = new.cloned().collect();
        known.policies.extend(new);
    }
    reasons
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map_or_else(String::new, |c| c.to_uppercase().to_string());
    first + letters.as_str()
}

/// A command that approves, and how many different people must run it.
#[derive(PartialEq)]
pub(super) struct ApprovalCommand {
    pub(super) command: String,
    pub(super) people: usize,
}

impl fmt::Display for ApprovalCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command)?;
        if self.people > 1 { write!(f, " ({} people must approve)", self.people) } else { Ok(()) }
    }
}

/// The commands that approve the request: for the target, with its content if something
/// protected is certainly deleted with it, and for the objects that this approval does not
/// cover.
pub(super) fn approval_commands(verdict: &Verdict, deciding: &[&Blocker]) -> Vec<ApprovalCommand> {
    let of_target = |blocker: &&&Blocker| blocker.is_content || blocker.object == verdict.target;
    let mut commands = Vec::new();
    let mut add = |object: &ObjectRef, content: bool, blockers: &[&&Blocker]| {
        let people = blockers.iter().map(|blocker| blocker.people).fold(1, usize::max);
        let command = ApprovalCommand { command: approve_command(object, content), people };
        if !commands.contains(&command) {
            commands.push(command);
        }
    };
    let covered: Vec<_> = deciding.iter().filter(of_target).collect();
    if !covered.is_empty() {
        add(&verdict.target, covered.iter().any(|blocker| blocker.is_content), &covered);
    }
    let others = deciding.iter().filter(|blocker| !of_target(blocker));
    others.take(MOST_DESCRIBED).for_each(|blocker| add(&blocker.object, false, &[blocker]));
    commands
}

/// The command that approves the deletion of an object, or of its content as well.
pub(crate) fn approve_command(object: &ObjectRef, content: bool) -> String {
    let scope = if content { " --scope content" } else { "" };
    format!("kubectl belay approve {}{scope} --reason \"…\"", object.arguments())
}

/// What helps against the blockers that decide: an action other than an approval, and the
/// commands that approve.
pub(crate) fn remedies(verdict: &Verdict) -> (Option<String>, Vec<String>) {
    let deciding = deciding(verdict);
    match deciding.first() {
        Some(first) if !first.policies.is_empty() => {
            let action = remedy(verdict, first).map(|remedy| remedy.action);
            let commands = approval_commands(verdict, &deciding);
            (action, commands.iter().map(ToString::to_string).collect())
        }
        _ => (None, Vec::new()),
    }
}

/// The message of a denial for which no policy is the reason.
fn unreadable(target: &ObjectRef, blocker: &Blocker) -> String {
    let target = target.quoted();
    let what = match blocker.causes.first() {
        Some(Cause::Unknown(what, _)) => what,
        Some(Cause::NotEvaluated(what, next)) => {
            let next =
                next.map_or_else(String::new, |next| format!(" {}.", capitalize(next.as_str())));
            return format!("belay can't check this request for {target}: {what}.{next}");
        }
        _ => "it has an unexpected form",
    };
    format!(
        "belay can't read the AdmissionReview of {target}: {what}. belay denies the request \
         because it runs with --failure-policy Fail."
    )
}

/// The namespace of an object that the request deletes as well, if the target does not
/// name it.
fn namespace_suffix(target: &ObjectRef, object: &ObjectRef) -> String {
    match object.namespace.as_str() {
        namespace if namespace.is_empty() || namespace == target.own_namespace() => String::new(),
        namespace => format!(" in namespace {namespace}"),
    }
}

/// One reason for a denial of this request, without the policies.
fn sentence_about(verdict: &Verdict, blocker: &Blocker) -> String {
    let Verdict { target, is_update, .. } = verdict;
    match is_update {
        true => {
            let suffix = namespace_suffix(target, &blocker.object);
            let object = blocker.object.quoted();
            let subject = format!("this change lets Kubernetes delete {object}{suffix}, which");
            sentence_with(target, blocker, &subject)
        }
        false => sentence(target, blocker),
    }
}

/// One reason for a denial of a DELETE, without the policies.
pub(crate) fn sentence(target: &ObjectRef, blocker: &Blocker) -> String {
    let object = blocker.object.quoted();
    let subject = match blocker.object != *target {
        true => {
            let suffix = namespace_suffix(target, &blocker.object);
            format!("deleting {} also deletes {object}{suffix}, which", target.quoted())
        }
        false => object,
    };
    sentence_with(target, blocker, &subject)
}

fn sentence_with(target: &ObjectRef, blocker: &Blocker, subject: &str) -> String {
    let object = blocker.object.quoted();
    let is_other = blocker.object != *target;
    let list = list(blocker);
    let first = blocker.causes.first();
    match (blocker.reason, first) {
        (Reason::Protected, Some(Cause::WeakerProtection(named))) => {
            format!("this change of {object} weakens the protection of {named}")
        }
        (Reason::Protected, _) => format!("{subject} is protected"),
        (Reason::InUse, Some(Cause::CheckedAtRelease)) => {
            format!("{subject} stays until belay confirms that nothing uses it")
        }
        (Reason::InUse, _) => format!("{subject} is in use by {list}"),
        (Reason::NotEmpty, _) if is_other => format!("{} contains {list}", target.quoted()),
        (Reason::NotEmpty, _) => format!("{subject} is not empty: it contains {list}"),
        (Reason::StillNeeded, _) => {
            let one = blocker.causes.len() + blocker.more == 1;
            let exist = if one { "exists" } else { "exist" };
            format!("{subject} can't be deleted while {list} {exist}")
        }
        (Reason::WouldOrphan, Some(Cause::Dependent(_))) => {
            let one = blocker.causes.len() + blocker.more == 1;
            let their = if one { "its" } else { "their" };
            let ObjectRef { kind, .. } = &blocker.object;
            let owner = ObjectName { kind: kind.clone(), object: blocker.object.clone() };
            format!("{} would lose {their} owner {owner}", dependents(target, blocker))
        }
        (Reason::WouldOrphan, _) => format!("{object} would lose its owner {list}"),
        (Reason::FinalizerGuarded, Some(Cause::Hold { .. })) => {
            format!("only belay may remove the finalizer {HOLD} from {object}")
        }
        (Reason::FinalizerGuarded, Some(Cause::LostFinalizer(_))) => {
            format!("this DELETE removes the finalizer {list} from {object}")
        }
        (Reason::FinalizerGuarded, _) => {
            format!("you may not remove the finalizer {list} from {object}")
        }
        (Reason::Unknown, Some(Cause::TooLarge(what))) => format!("{object} {what}"),
        (Reason::Unknown, _) => format!("belay can't check this request for {object}: {list}"),
    }
}

/// The dependents that a blocker lists, and the number of the others.
fn dependents(target: &ObjectRef, blocker: &Blocker) -> String {
    let name = |cause: &Cause| match cause {
        Cause::Dependent(ObjectName { kind, object }) => {
            let suffix = namespace_suffix(target, object);
            format!("{}{suffix}", object.clone().with_kind(kind).quoted())
        }
        other => describe_cause(other),
    };
    let names: Vec<String> = blocker.causes.iter().map(name).collect();
    match blocker.more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The causes that a blocker lists, and the number of the others.
fn list(blocker: &Blocker) -> String {
    let causes: Vec<String> = blocker.causes.iter().map(describe_cause).collect();
    let noun = if blocker.reason == Reason::FinalizerGuarded { "finalizer" } else { "object" };
    causes.join(", ") + &and_more(blocker.more, noun)
}

pub(crate) fn describe_cause(cause: &Cause) -> String {
    match cause {
        Cause::User { root, through: None, path } => format!("{root} ({})", one_line_name(path)),
        Cause::User { root, through: Some(ObjectName { kind, object }), path } => {
            let [kind, name, path] = [kind, &object.name, path].map(|text| one_line_name(text));
            format!("{root} ({kind} {name}, {path})")
        }
        Cause::Content { object, why: ContentReason::Anything } => object.to_string(),
        Cause::Content { object, why: ContentReason::Bound } => format!("{object}, which is bound"),
        Cause::Content { object, why: ContentReason::Protected(by) } => {
            format!("{object}, which is protected ({by})")
        }
        Cause::Content { object, why: ContentReason::Held(by) } => {
            format!("{object}, which has the finalizer {HOLD} ({by})")
        }
        Cause::Exists(object) | Cause::Dependent(object) | Cause::Owner(object) => {
            object.to_string()
        }
        Cause::RepeatedUid(owner) => format!("{owner} (an added reference has its uid)"),
        Cause::Finalizer(name) | Cause::LostFinalizer(name) => one_line_name(name).into_owned(),
        Cause::Hold { .. } => HOLD.to_owned(),
        Cause::Elsewhere { causes, .. } => match causes[..] {
            [Cause::Unknown(..)] => format!("{ELSEWHERE} can't be read"),
            _ => ELSEWHERE.to_owned(),
        },
        Cause::Unknown(what, _) | Cause::NotEvaluated(what, _) | Cause::TooLarge(what) => {
            one_line(what, LONGEST).into_owned()
        }
        Cause::Always | Cause::CheckedAtRelease | Cause::WeakerProtection(_) => String::new(),
    }
}

/// All causes of a verdict, those in other namespaces as well: for belay's own log.
pub fn causes(verdict: &Verdict) -> String {
    let verdict = verdict.clone().in_full();
    let lists: Vec<String> = verdict.blockers.iter().map(list).collect();
    one_line(&lists.join("; "), LONGEST).into_owned()
}

/// The policies of a blocker, by name.
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

/// What helps other than an approval.
pub(super) struct Remedy {
    /// What it is good for, such as `delete it`.
    goal: Option<String>,
    /// What to do, such as `first delete Pod shop/web`.
    pub(super) action: String,
}

pub(super) fn remedy(verdict: &Verdict, blocker: &Blocker) -> Option<Remedy> {
    let target = &verdict.target;
    let it = || if blocker.object == *target { "it".to_owned() } else { target.quoted() };
    let goal = || match verdict.is_update {
        true => "make this change".to_owned(),
        false => format!("delete {}", it()),
    };
    let to_delete = |action| Some(Remedy { goal: Some(goal()), action });
    let passing_cascade = verdict.passing_propagation.map(|propagation| {
        let word = match propagation {
            Propagation::Background => "background",
            Propagation::Foreground => "foreground",
            Propagation::Orphan => "orphan",
        };
        format!("use --cascade={word}")
    });
    let alone = |action: String| Some(Remedy { goal: None, action });
    let all_objects = || {
        let causes: Vec<&Cause> = blocker.causes.iter().collect();
        objects_to_delete(verdict, blocker, &causes, blocker.more)
    };
    match (blocker.reason, blocker.causes.first()?) {
        _ if let Some(seconds) = verdict.retry_seconds => {
            to_delete(format!("retry in {seconds} s, when belay's hold is effective"))
        }
        // To delete these would lose data.
        (Reason::InUse | Reason::StillNeeded, _) if is_needed_by_volumes(blocker) => {
            alone(format!("keep {} while these volumes or claims exist", it()))
        }
        (Reason::InUse | Reason::FinalizerGuarded, _) if passing_cascade.is_some() => {
            to_delete(passing_cascade?)
        }
        (Reason::InUse, _) if blocker.is_own_use(target) => {
            to_delete(own_use_step(verdict, blocker)?)
        }
        (Reason::InUse, Cause::User { .. } | Cause::Elsewhere { .. }) => {
            to_delete(step_with_users(verdict, blocker)?)
        }
        (Reason::NotEmpty, Cause::Content { why: ContentReason::Held(_), .. }) => {
            let objects = all_objects()?;
            to_delete(format!("first delete {objects} and wait until it is removed"))
        }
        (Reason::NotEmpty | Reason::StillNeeded, _) => {
            to_delete(format!("first delete {}", all_objects()?))
        }
        (Reason::WouldOrphan, Cause::Owner(_)) if blocker.object == *target => {
            alone("keep the owner reference".to_owned())
        }
        (Reason::WouldOrphan, Cause::RepeatedUid(_)) => {
            alone("leave out the reference with the uid of the owner".to_owned())
        }
        (Reason::WouldOrphan, _) if loses_dependent(target, blocker) => {
            alone("keep the owner reference".to_owned())
        }
        (Reason::WouldOrphan, _) => to_delete(passing_cascade?),
        (Reason::FinalizerGuarded, Cause::LostFinalizer(_)) => None,
        (Reason::FinalizerGuarded, Cause::Hold { terminating: true }) => {
            alone(format!("release it with kubectl belay release {}", target.arguments()))
        }
        (Reason::FinalizerGuarded, Cause::Hold { terminating: false }) => alone(
            "keep the finalizer: belay removes it after the object is deleted and nothing uses it"
                .to_owned(),
        ),
        (Reason::FinalizerGuarded, _) => {
            alone("let the controller of the finalizer remove it".to_owned())
        }
        (Reason::Unknown, cause) => {
            let cause = match cause {
                Cause::Elsewhere { causes, .. } => causes.first()?,
                cause => cause,
            };
            let Cause::Unknown(_, Some(next)) = cause else { return None };
            alone(next.as_str().to_owned())
        }
        _ => None,
    }
}

/// Whether volumes or claims keep the object of a blocker.
fn is_needed_by_volumes(blocker: &Blocker) -> bool {
    blocker.causes.iter().any(|cause| match cause {
        Cause::User { root, .. } => root.object.is_volume(),
        Cause::Exists(object) => object.object.is_volume(),
        _ => false,
    })
}

/// The first step against the users of an object. They are mostly wanted, so they lose the
/// reference. Without their volume they are worth nothing, and some references can't be
/// changed.
fn step_with_users(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let holds_data = blocker.object.is_volume();
    let is_changeable = |cause: &&Cause| match cause {
        Cause::User { root, path, .. } => {
            root.object != verdict.target
                && !is_one_of(&root.object, FIXED)
                && !FIXED_FIELDS.iter().any(|field| path.starts_with(field))
        }
        _ => true,
    };
    let causes = blocker.causes.iter();
    let (change, delete): (Vec<&Cause>, Vec<&Cause>) =
        causes.partition(|cause| !holds_data && is_changeable(cause));
    if change.is_empty() {
        let objects = objects_to_delete(verdict, blocker, &delete, blocker.more)?;
        return Some(format!("first delete {objects}"));
    }
    let only = match change[..] {
        [Cause::User { root, .. }] if blocker.more == 0 => Some(one_line_name(&root.kind)),
        _ => None,
    };
    let the = if only.is_some() { "the reference" } else { "the references" };
    let from = join(names(verdict, blocker, &change, blocker.more))?;
    let remove = format!("remove {the} from {from}");
    if !delete.is_empty() {
        let objects = objects_to_delete(verdict, blocker, &delete, 0)?;
        return Some(format!("first delete {objects}, and {remove}"));
    }
    // Hidden users may be volumes.
    let is_hidden = |cause: &&Cause| matches!(cause, Cause::Elsewhere { .. });
    let may_delete =
        !change.iter().any(is_hidden) && objects_to_delete(verdict, blocker, &change, 0).is_some();
    let or = match only {
        _ if !may_delete => String::new(),
        Some(kind) => format!(", or delete the {kind}"),
        None => ", or delete these objects".to_owned(),
    };
    Some(format!("first {remove}{or}"))
}

/// The objects that these causes of a blocker name.
fn names(verdict: &Verdict, blocker: &Blocker, causes: &[&Cause], others: usize) -> Vec<String> {
    let name = |cause: &&Cause| match (cause.object_to_delete(&verdict.target), cause) {
        (Some(object), _) => Some(object.to_string()),
        (None, Cause::Elsewhere { .. }) if blocker.reason == Reason::InUse => {
            Some("its users in other namespaces".to_owned())
        }
        (None, Cause::Elsewhere { .. }) => Some("the objects in other namespaces".to_owned()),
        (None, _) => None,
    };
    let mut names: Vec<String> = causes.iter().filter_map(name).collect();
    if others > 0 && !names.is_empty() {
        names.push(more(others, "object"));
    }
    names
}

/// The objects to delete before the object of a blocker, for the words "first delete …".
/// `None` if there are none, or if belay would deny their DELETE as well.
fn objects_to_delete(
    verdict: &Verdict,
    blocker: &Blocker,
    causes: &[&Cause],
    more: usize,
) -> Option<String> {
    let named: Vec<&ObjectName> =
        causes.iter().filter_map(|cause| cause.object_to_delete(&verdict.target)).collect();
    let refused = verdict.refused_steps.iter().filter(|step| named.contains(&&step.object));
    let refused: Vec<&RefusedStep> = refused.collect();
    if refused.iter().any(|step| step.first.is_empty()) {
        return None;
    }
    let before: Vec<String> =
        refused.iter().flat_map(|step| &step.first).map(ToString::to_string).collect();
    let mut objects = names(verdict, blocker, causes, more);
    objects.retain(|object| !before.contains(object));
    let objects = join(objects)?;
    Some(match join(before) {
        Some(before) => format!("{before}, then {objects}"),
        None => objects,
    })
}

/// What helps if only the target uses an object that is deleted as well.
fn own_use_step(verdict: &Verdict, blocker: &Blocker) -> Option<String> {
    let target = &verdict.target;
    let is_itself = |cause: &Cause| matches!(cause, Cause::User { through: None, .. });
    if blocker.causes.iter().any(is_itself) {
        let first = || "first remove the reference".to_owned();
        return (!is_one_of(target, FIXED)).then(first);
    }
    // The target re-creates its Pods.
    if is_one_of(target, SCALABLE) {
        return Some("first scale it to 0".to_owned());
    }
    if is_one_of(target, OTHER_CONTROLLERS) {
        return None;
    }
    step_with_users(verdict, blocker)
}

fn is_one_of(object: &ObjectRef, kinds: &[(&str, &str)]) -> bool {
    kinds.iter().any(|kind| object.is_of(*kind))
}

/// `a, b and c`, each once.
fn join(words: Vec<String>) -> Option<String> {
    let mut each: Vec<String> = Vec::new();
    for word in words {
        if !each.contains(&word) {
            each.push(word);
        }
    }
    let (last, others) = each.split_last()?;
    Some(match others {
        [] => last.clone(),
        others => format!("{} and {last}", others.join(", ")),
    })
}

/// Whether the request is about a dependent, and the policy protects its owner.
fn loses_dependent(target: &ObjectRef, blocker: &Blocker) -> bool {
    blocker.object != *target && matches!(blocker.causes.first(), Some(Cause::Dependent(_)))
}

/// The warnings for a request that passes.
pub fn warnings(verdict: &Verdict) -> Vec<String> {
    let mut warnings = Vec::new();
    if verdict.hold.as_ref().is_some_and(|hold| hold.restored) {
        let text = "belay restored the finalizer";
        warnings.push(format!("{text} {HOLD}, and removes it when nothing uses the object"));
    }
    let Some(blocker) = verdict.blockers.first().filter(|b| b.outcome == verdict.decision) else {
        return warnings;
    };
    let policies = policy_names(blocker);
    match verdict.decision {
        Decision::Hold => {
            let object = blocker.object.quoted();
            let user = blocker.causes.first().and_then(|cause| match cause {
                Cause::User { root, .. } => Some(root.to_string()),
                Cause::Elsewhere { .. } => Some(ELSEWHERE.to_owned()),
                _ => None,
            });
            let others = (blocker.causes.len() + blocker.more).saturating_sub(1);
            let until = match user {
                Some(user) if others == 0 => format!("{user} no longer uses it"),
                Some(user) => format!("{user}{} no longer use it", and_more(others, "object")),
                _ => "belay confirms that nothing uses it".to_owned(),
            };
            warnings.push(format!("{object}{HOLD_WARNING}{until}; {policies}"));
        }
        Decision::Warn => {
            let sentence = sentence(&verdict.target, blocker);
            warnings.push(format!("belay would deny this: {sentence}; {policies}"));
        }
        Decision::Allow | Decision::Audit | Decision::Deny => {}
    }
    let short = |warning: String| one_line(&warning, LONGEST_WARNING).into_owned();
    warnings.into_iter().map(short).collect()
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
        annotations.push(("would-deny", one_line(&denial(verdict), LONGEST).into_owned()));
    }
    if let Some(HoldChange { restored, .. }) = verdict.hold {
        annotations.push(("hold", if restored { "restored" } else { "added" }.to_owned()));
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
