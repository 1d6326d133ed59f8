//! Renders a verdict for the user, the audit log and the API server.

use std::borrow::Cow;
use std::fmt::Write as _;

use json_patch::Patch;

use super::approval_commands::{ApprovalCommand, add_override, approval_commands};
use super::remedy::{MAX_DESCRIBED, Remedy, loses_dependent, remedy};
use super::{
    Blocker, Cause, ContentReason, Decision, HoldChange, HoldPosition, ObjectName, Reason, Verdict,
};
use crate::objects::operations::test;
use crate::objects::{
    FOREGROUND, HOLD, ObjectRef, PROTECT_LABEL, and_more, in_namespace, one_line, one_line_name,
};
use crate::policy::PolicySource;

/// The limit of characters in a warning. The API server cuts warnings only if all together have
/// over 4,096 characters.
const MAX_WARNING: usize = 1_024;

/// The words in the warning about a hold, before the condition of its release.
pub(crate) const HOLD_WARNING: &str = " stays Terminating until ";

/// The end of the warning about a hold that users keep.
pub(crate) const NO_LONGER_USES: &str = " no longer use";

/// The end of the warning about a hold that only an approval releases.
pub(crate) const UNTIL_APPROVED: &str = "its deletion is approved";

/// The text for all causes in other namespaces than the object.
pub(crate) const ELSEWHERE: &str = "an object in another namespace";

/// The limit of characters in a message.
const MAX_MESSAGE: usize = 8_192;

/// The message of a denial: why the request is denied, what to do first, how to
/// override the policies, and the command that gives details. `None` when the request
/// passes.
pub fn message(verdict: &Verdict) -> Option<String> {
    (verdict.decision == Decision::Deny)
        .then(|| denial_text(verdict, DenialFacts::of_verdict(verdict).as_ref()))
}

/// The facts of a denial by policies, or of the denial that action Warn or Audit replaces.
pub(super) struct DenialFacts<'v> {
    /// The described reasons, each with its blocker.
    pub(super) reasons: Vec<(String, Cow<'v, Blocker>)>,
    /// The number of the other deciding blockers.
    pub(super) undescribed: usize,
    /// The advised step, besides an approval.
    pub(super) remedy: Option<Remedy>,
    /// The commands that approve.
    pub(super) commands: Vec<ApprovalCommand<'v>>,
}

impl<'v> DenialFacts<'v> {
    /// `None` if no policy is the reason.
    pub(super) fn of_verdict(verdict: &'v Verdict) -> Option<Self> {
        let deciding: Vec<_> = verdict.deciding_blockers().collect();
        let first = deciding.first().filter(|first| !first.policies.is_empty())?;
        let is_described = |blocker: &&Blocker| !is_listed_as_protected(blocker, verdict);
        let described = deciding.iter().copied().filter(is_described);
        Some(Self {
            reasons: reasons(verdict, described.clone()),
            undescribed: described.count().saturating_sub(MAX_DESCRIBED) + verdict.more,
            remedy: remedy(verdict, first),
            commands: approval_commands(verdict, &deciding),
        })
    }
}

/// The text of a denial, or of the denial that action Warn or Audit replaces.
pub(super) fn denial_text(verdict: &Verdict, facts: Option<&DenialFacts<'_>>) -> String {
    let text = match (facts, verdict.deciding_blockers().next()) {
        (Some(facts), _) => text_of_facts(verdict, facts),
        (None, Some(first)) => text_without_policy(verdict, first),
        (None, None) => String::new(),
    };
    one_line(&text, MAX_MESSAGE).into_owned()
}

fn text_of_facts(verdict: &Verdict, facts: &DenialFacts<'_>) -> String {
    let DenialFacts { reasons, undescribed, remedy, commands } = facts;
    let mut text = String::new();
    for (index, (reason, blocker)) in reasons.iter().enumerate() {
        // Other reasons start with the name of an object, or with belay, and keep their case.
        let starts = ["deleting ", "only ", "the ", "this ", "without ", "you "];
        let is_sentence = starts.iter().any(|start| reason.starts_with(start));
        let reason = match index > 0 && is_sentence {
            true => Cow::Owned(capitalize(reason)),
            false => Cow::Borrowed(reason.as_str()),
        };
        let policies = policy_names(blocker);
        let note = owner_note(verdict, blocker, matches!(blocker, Cow::Owned(_)));
        let _ = write!(text, "{reason}; {policies}{note}. ");
    }
    match undescribed {
        0 => {}
        1 => text.push_str("There is 1 more reason. "),
        more => {
            let _ = write!(text, "There are {more} more reasons. ");
        }
    }
    for approval in &verdict.ineffective_approvals {
        let _ = write!(text, "{}. ", capitalize(&approval.to_string()));
    }
    if let Some(Remedy { goal, action }) = remedy {
        let _ = match goal {
            Some(goal) => write!(text, "To {goal}, {action}. "),
            None => write!(text, "{}. ", capitalize(action)),
        };
    }
    add_override(verdict, commands, &mut text);
    let target = verdict.target.arguments();
    let _ = write!(text, ". Details: kubectl belay why {target}");
    text
}

/// The words after the policies of a reason if they protect the owner of the changed object.
/// Without them, a user does not see why the message advises to approve the owner.
/// `is_about_both`: whether the reason also has policies of the changed object.
fn owner_note(verdict: &Verdict, blocker: &Blocker, is_about_both: bool) -> &'static str {
    let is_about_owner =
        verdict.change.is_some() && !is_about_both && loses_dependent(&verdict.target, blocker);
    match blocker.policies.len() {
        _ if !is_about_owner => "",
        1 => " protects the owner",
        _ => " protect the owner",
    }
}

/// Whether the text about another blocker lists this object as protected by the same policy, and
/// there is no other cause.
pub fn is_listed_as_protected(blocker: &Blocker, verdict: &Verdict) -> bool {
    let is_it = |cause: &Cause| match cause {
        Cause::Content { object, why: ContentReason::Protected(by) } => {
            object.object == blocker.object
                && matches!(&blocker.policies[..], [policy] if policy == by)
        }
        _ => false,
    };
    blocker.reason == Reason::Protected
        && blocker.causes == [Cause::Always]
        && verdict
            .deciding_blockers()
            .take(MAX_DESCRIBED)
            .any(|other| other.causes.iter().any(is_it))
}

/// The described reasons of a denial, each with its blocker. The policies of an owner and of
/// its dependent may give the same reason.
fn reasons<'v>(
    verdict: &Verdict,
    described: impl Iterator<Item = &'v Blocker>,
) -> Vec<(String, Cow<'v, Blocker>)> {
    let mut reasons: Vec<(String, Cow<'_, Blocker>)> = Vec::new();
    for blocker in described.take(MAX_DESCRIBED) {
        let reason = sentence_about(verdict, blocker);
        let Some((_, known)) = reasons.iter_mut().find(|(known, _)| *known == reason) else {
            reasons.push((reason, Cow::Borrowed(blocker)));
            continue;
        };
        let new = blocker.policies.iter().filter(|source| !known.policies.contains(source));
        let new: Vec<PolicySource> = new.cloned().collect();
        if !new.is_empty() {
            known.to_mut().policies.extend(new);
        }
    }
    reasons
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map_or_else(String::new, |c| c.to_uppercase().to_string());
    first + letters.as_str()
}

/// The remedies for the deciding blockers: a step other than an approval, and the commands that
/// approve.
pub(crate) fn remedies(verdict: &Verdict) -> (Option<String>, Vec<String>) {
    let Some(DenialFacts { remedy, commands, .. }) = DenialFacts::of_verdict(verdict) else {
        return (None, Vec::new());
    };
    let commands = commands.iter().map(ToString::to_string).collect();
    (remedy.map(|remedy| remedy.action), commands)
}

/// The message of a denial for which no policy is the reason.
fn text_without_policy(verdict: &Verdict, blocker: &Blocker) -> String {
    let target = &verdict.target;
    let mut approve = String::new();
    if blocker.required_approvals > 0 {
        let command = ApprovalCommand::new(target, false, blocker.required_approvals);
        approve.push(' ');
        add_override(verdict, &[command], &mut approve);
        approve.push('.');
    }
    let target = target.quoted();
    let what = match blocker.causes.first() {
        Some(Cause::Unknown(what, _)) => what,
        Some(Cause::NotEvaluated(what, next)) => {
            let next = next
                .as_ref()
                .map_or_else(String::new, |next| format!(" {}.", capitalize(&next.to_string())));
            return format!("belay can't check this request for {target}: {what}.{next}{approve}");
        }
        _ => "it has an unexpected form",
    };
    format!(
        "belay can't read the AdmissionReview of {target}: {what}. belay denies the request \
         because it runs with --failure-policy Fail."
    )
}

/// The namespace of an object that the request deletes as well, unless it is the namespace of the
/// target.
fn namespace_suffix(target: &ObjectRef, object: &ObjectRef) -> String {
    match object.namespace.as_str() {
        namespace if namespace == target.own_namespace() => String::new(),
        namespace => in_namespace(namespace),
    }
}

/// One reason for a denial of this request, without the policies.
fn sentence_about(verdict: &Verdict, blocker: &Blocker) -> String {
    let Verdict { target, change, .. } = verdict;
    match change {
        Some(change) => {
            let suffix = namespace_suffix(target, &blocker.object);
            let object = blocker.object.quoted();
            let deleted = match blocker.object != *target && change.lets_delete_target {
                true => format!("{}, and with it {object}{suffix}", target.quoted()),
                false => format!("{object}{suffix}"),
            };
            let subject = format!("{} Kubernetes delete {deleted}, which", change.subject);
            sentence_with(target, blocker, &subject)
        }
        None => sentence(target, blocker),
    }
}

/// One reason for a denial of a DELETE, without the policies.
pub(crate) fn sentence(target: &ObjectRef, blocker: &Blocker) -> String {
    let object = blocker.object.quoted();
    let subject = match blocker.object != *target {
        true => {
            let suffix = namespace_suffix(target, &blocker.object);
            let deleting = format!("deleting {} also deletes {object}{suffix}", target.quoted());
            if blocker.is_own_use(target) {
                return format!("{deleting} while it is in use by {}", own_users(blocker));
            }
            format!("{deleting}, which")
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
            let protection = if named.object == blocker.object {
                "its protection".to_owned()
            } else {
                format!("the protection of {named}")
            };
            format!("this change of the labels or annotations of {object} weakens {protection}")
        }
        (Reason::Protected, _) => format!("{subject} is protected"),
        (Reason::InUse, Some(Cause::CheckedAtRelease)) => {
            format!("{subject} stays until belay confirms that nothing uses it")
        }
        (Reason::InUse, _) => format!("{subject} is in use by {list}"),
        (Reason::NotEmpty, _) if is_other => format!("{} contains {list}", target.quoted()),
        (Reason::NotEmpty, _) => format!("{subject} is not empty: it contains {list}"),
        (Reason::StillNeeded, _) => {
            format!("{subject} is still needed for {list}")
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
        (Reason::FinalizerGuarded, Some(Cause::LostFinalizer(finalizer))) => {
            let cascade = if finalizer == FOREGROUND { "foreground" } else { "orphan" };
            format!(
                "{object} would lose the finalizer \"{list}\", because this DELETE does not use \
                 --cascade={cascade}"
            )
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
    let describe = |cause: &Cause| match cause {
        // The message names the policy after the list.
        Cause::Content { object, why: ContentReason::Protected(by) }
            if blocker.policies == [by.clone()] =>
        {
            format!("{object} (protected)")
        }
        Cause::Content { object, why: ContentReason::Held(by) }
            if blocker.policies == [by.clone()] =>
        {
            format!("{object} (held by belay)")
        }
        cause => describe_cause(cause),
    };
    let causes: Vec<String> = blocker.causes.iter().map(describe).collect();
    let noun = if blocker.reason == Reason::FinalizerGuarded { "finalizer" } else { "object" };
    causes.join(", ") + &and_more(blocker.more, noun)
}

/// The users that a blocker lists, without the target, which owns all of them.
fn own_users(blocker: &Blocker) -> String {
    let user = |cause: &Cause| match cause {
        Cause::User { user: Some(user), path, .. } => {
            format!("{} ({})", user.without_namespace(), one_line_name(path))
        }
        cause => describe_cause(cause),
    };
    let users: Vec<String> = blocker.causes.iter().map(user).collect();
    users.join(", ") + &and_more(blocker.more, "object")
}

pub(crate) fn describe_cause(cause: &Cause) -> String {
    match cause {
        Cause::User { owner, user: None, path } => format!("{owner} ({})", one_line_name(path)),
        Cause::User { owner, user: Some(user), path } => {
            format!("{owner} ({}, {})", user.without_namespace(), one_line_name(path))
        }
        Cause::Content { object, why: ContentReason::Anything } => object.to_string(),
        Cause::Content { object, why: ContentReason::Terminating } => {
            format!("{object} (already Terminating)")
        }
        Cause::Content { object, why: ContentReason::Bound } => format!("{object} (bound)"),
        Cause::Content { object, why: ContentReason::Protected(by) } => {
            format!("{object} (protected by {by})")
        }
        Cause::Content { object, why: ContentReason::Held(by) } => {
            format!("{object} (held by belay, {by})")
        }
        Cause::Exists(object) | Cause::Dependent(object) | Cause::Owner(object) => {
            object.to_string()
        }
        Cause::RepeatedUid(owner) => {
            format!(
                "{owner} (the request adds a second owner reference with the same uid, so the \
                 garbage collector may remove both)"
            )
        }
        Cause::Finalizer(name) | Cause::LostFinalizer(name) => one_line_name(name).into_owned(),
        Cause::Hold { .. } => HOLD.to_owned(),
        Cause::Elsewhere { causes, .. } => match causes[..] {
            [Cause::Unknown(..)] => format!("{ELSEWHERE} can't be read"),
            _ => format!("{ELSEWHERE} (name hidden)"),
        },
        Cause::Unknown(what, _) | Cause::NotEvaluated(what, _) | Cause::TooLarge(what) => {
            one_line(what, MAX_MESSAGE).into_owned()
        }
        Cause::PerhapsOthers => "perhaps others".to_owned(),
        Cause::Always | Cause::CheckedAtRelease | Cause::WeakerProtection(_) => String::new(),
    }
}

/// All causes of a verdict, also in other namespaces, for belay's own log.
pub fn causes(verdict: &Verdict) -> String {
    let verdict = verdict.clone().with_other_namespaces();
    let lists: Vec<String> = verdict.blockers.iter().map(list).collect();
    one_line(&lists.join("; "), MAX_MESSAGE).into_owned()
}

/// The policies of a blocker, by name.
pub(crate) fn policy_names(blocker: &Blocker) -> String {
    let names: Vec<&str> = blocker
        .policies
        .iter()
        .filter_map(|source| match source {
            PolicySource::Policy(name) => Some(name.as_str()),
            PolicySource::Label(_) => None,
        })
        .collect();
    let labels = blocker.policies.iter().filter(|source| matches!(source, PolicySource::Label(_)));
    let mut parts: Vec<String> = labels.map(PolicySource::to_string).collect();
    // The label has one value. If that value is unknown, the blocker lists each possible value.
    if parts.len() > 1 {
        parts = vec![format!("label {PROTECT_LABEL}")];
    }
    match names[..] {
        [] => {}
        [name] => parts.push(format!("policy {name}")),
        _ => parts.push(format!("policies {}", names.join(", "))),
    }
    parts.join(", ")
}

/// The warnings for a request that passes.
pub fn warnings(verdict: &Verdict) -> Vec<String> {
    let mut warnings = Vec::new();
    if verdict.hold.as_ref().is_some_and(|hold| hold.restored) {
        // The mutating phase warns, and the validating phase may still deny the request.
        let text = "belay keeps the finalizer";
        warnings.push(format!("{text} {HOLD}, and removes it when nothing uses the object"));
    }
    let Some(blocker) = verdict.blockers.first().filter(|b| b.decision == verdict.decision) else {
        return warnings;
    };
    if verdict.decision == Decision::Warn {
        let (sentence, policies) = (sentence_about(verdict, blocker), policy_names(blocker));
        warnings.push(format!("belay would deny this: {sentence}; {policies}"));
    }
    if let Some(held) = verdict.hold_blocker() {
        warnings.push(format!("{}; {}", hold_warning(held), policy_names(held)));
    }
    let short = |warning: String| one_line(&warning, MAX_WARNING).into_owned();
    warnings.into_iter().map(short).collect()
}

/// The annotations that the API server adds to the request in its audit log. It prefixes the
/// keys with the name of the webhook.
pub fn audit_annotations(verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut annotations = vec![("verdict", verdict.decision.as_str().to_owned())];
    if let Some(reason) = verdict.reason {
        annotations.push(("reason", reason.as_str().to_owned()));
    }
    let sources = |sources: &mut dyn Iterator<Item = &PolicySource>| {
        let mut names: Vec<String> = sources.map(PolicySource::to_string).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    let denying = sources(&mut verdict.blockers.iter().flat_map(|blocker| &blocker.policies));
    let exempted = sources(&mut verdict.overrides.exempted.iter());
    let approved = verdict.overrides.approvals.join(", ");
    for (key, value) in
        [("policies", denying), ("exempted-by", exempted), ("approved-by", approved)]
    {
        if !value.is_empty() {
            annotations.push((key, value));
        }
    }
    let is_not_enforced = |decision| matches!(decision, Decision::Audit | Decision::Warn);
    // One policy can hold the object while another one would deny the request.
    let others = verdict.blockers.iter().filter(|other| is_not_enforced(other.decision));
    let denied = match verdict.decision {
        Decision::Hold if others.clone().next().is_some() => {
            let others = others.cloned().collect();
            Cow::Owned(Verdict::from_blockers(verdict.target.clone(), others))
        }
        _ => Cow::Borrowed(verdict),
    };
    if is_not_enforced(denied.decision) {
        let text = denial_text(&denied, DenialFacts::of_verdict(&denied).as_ref());
        annotations.push(("would-deny", text));
    }
    if let Some(HoldChange { restored, .. }) = verdict.hold {
        annotations.push(("hold", if restored { "restored" } else { "added" }.to_owned()));
    }
    annotations
}

/// The warning that the hold keeps an object after the accepted DELETE.
fn hold_warning(blocker: &Blocker) -> String {
    let users = blocker.causes.iter().map_while(|cause| match cause {
        Cause::User { owner, .. } => Some(owner.to_string()),
        Cause::Elsewhere { .. } => Some(ELSEWHERE.to_owned()),
        _ => None,
    });
    let mut length = 0;
    let is_named = |(index, user): &(usize, String)| {
        length += user.len();
        *index == 0 || length <= MAX_WARNING / 2
    };
    let users: Vec<String> = users.enumerate().take_while(is_named).map(|(_, user)| user).collect();
    let others = (blocker.causes.len() + blocker.more).saturating_sub(users.len());
    let until = match users.as_slice() {
        [user] if others == 0 => format!("{user}{NO_LONGER_USES}s it"),
        [_, ..] => {
            format!("{}{}{NO_LONGER_USES} it", users.join(", "), and_more(others, "object"))
        }
        [] if blocker.reason == Reason::Protected || blocker.causes == [Cause::Always] => {
            UNTIL_APPROVED.to_owned()
        }
        [] => "belay confirms that nothing uses it".to_owned(),
    };
    format!("{}{HOLD_WARNING}{until}", blocker.object.quoted())
}

/// The JSON patch (RFC 6902) that adds or restores the hold; `None` if the verdict does not
/// change the object. If the object has finalizers, a `test` ensures that they have not changed.
pub fn patch(verdict: &Verdict) -> Option<Patch> {
    let position = &verdict.hold.as_ref()?.position;
    let mut operations = Vec::new();
    if let HoldPosition::At { finalizers, .. } = position {
        operations.push(test(&["metadata", "finalizers"], finalizers.as_slice()));
    }
    operations.push(position.add_hold());
    Some(Patch(operations))
}
