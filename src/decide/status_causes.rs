//! A denial as data, for `status.details.causes`. Each [`StatusCause`] is one fact of the
//! message, and the client sees both, so it contains nothing that the message leaves out.

use std::borrow::Cow;

use serde::Serialize;

use super::approval_commands::ApprovalCommand;
use super::render::{DenialFacts, denial_text, describe_cause};
use super::{Blocker, Cause, Decision, Verdict};
use crate::objects::one_line;
use crate::policy::PolicySource;

/// The limit of causes of a denial, and of characters in each text. Clients choose the length
/// of names, and the answer must stay small.
const MAX_CAUSES: usize = 48;
const MAX_CHARACTERS: usize = 1_024;

/// One entry of `status.details.causes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// The type of the message: a reason of the denial, or a word that docs/json.md lists.
    pub reason: &'static str,
    /// The fact.
    pub message: String,
    /// The field by which the user in the message uses the object; empty for other facts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl StatusCause {
    fn new(reason: &'static str, message: String) -> Self {
        let message = match one_line(&message, MAX_CHARACTERS) {
            Cow::Borrowed(_) => message,
            Cow::Owned(line) => line,
        };
        Self { reason, message, field: String::new() }
    }

    /// A cause of a blocker. Programs need the field without the name of the user.
    fn of_cause(cause: &Cause) -> Self {
        let (message, path) = match cause {
            Cause::User { owner, user: None, path } => (owner.to_string(), path.as_str()),
            Cause::User { owner, user: Some(user), path } => {
                (format!("{owner} ({})", user.without_namespace()), path.as_str())
            }
            Cause::WeakerProtection(named) => (named.to_string(), ""),
            other => (describe_cause(other), ""),
        };
        Self { field: one_line(path, MAX_CHARACTERS).into_owned(), ..Self::new("Cause", message) }
    }
}

/// The message of a denial, and the same facts as data. `None` when the request passes. There
/// are no facts for an unreadable review, because belay has no proof that its objects exist.
pub fn denial(verdict: &Verdict) -> Option<(String, Vec<StatusCause>)> {
    if verdict.decision != Decision::Deny {
        return None;
    }
    let facts = DenialFacts::of_verdict(verdict);
    let message = denial_text(verdict, facts.as_ref());
    Some((message, facts.map_or_else(Vec::new, status_causes)))
}

/// For each described blocker its reason, object, causes and policies, then the commands of the
/// message.
fn status_causes(facts: DenialFacts<'_>) -> Vec<StatusCause> {
    let DenialFacts { reasons, undescribed, remedy, commands: approvals } = facts;
    let mut all = Vec::new();
    for (reason, blocker) in reasons {
        add_blocker(reason, &blocker, &mut all);
    }
    add_number("MoreReasons", undescribed, &mut all);
    all.extend(remedy.map(|remedy| StatusCause::new("NextStep", remedy.action)));
    let mut commands = Vec::new();
    for ApprovalCommand { command, required_people, .. } in approvals {
        commands.push(StatusCause::new("Approve", command));
        if required_people > 1 {
            add_number("Approvers", required_people, &mut commands);
        }
    }
    all.truncate(MAX_CAUSES.saturating_sub(commands.len()));
    all.extend(commands);
    all
}

fn add_blocker(reason: String, blocker: &Blocker, all: &mut Vec<StatusCause>) {
    all.push(StatusCause::new(blocker.reason.as_str(), reason));
    all.push(StatusCause::new("Object", blocker.object.arguments()));
    let causes = blocker.causes.iter().map(StatusCause::of_cause);
    all.extend(causes.filter(|cause| !cause.message.is_empty()));
    add_number("MoreCauses", blocker.more, all);
    all.extend(blocker.policies.iter().map(|source| match source {
        PolicySource::Policy(name) => StatusCause::new("Policy", name.to_string()),
        PolicySource::Label(_) => StatusCause::new("Label", source.to_string()),
    }));
}

fn add_number(reason: &'static str, number: usize, all: &mut Vec<StatusCause>) {
    if number > 0 {
        all.push(StatusCause::new(reason, number.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{
        ContentReason, FailurePolicy, ObjectName, Reason, decide_unreadable, message,
    };
    use crate::objects::ObjectRef;

    fn object(name: &str) -> ObjectName {
        let object = ObjectRef::new(("apps", "statefulsets"), "db", name);
        ObjectName { kind: "StatefulSet".to_owned(), object }
    }

    fn blocker(target: &ObjectRef, causes: Vec<Cause>) -> Blocker {
        Blocker {
            policies: vec![
                PolicySource::Policy("claims".to_owned()),
                PolicySource::Label("Always"),
            ],
            causes,
            more: 2,
            required_approvals: 2,
            ..Blocker::new(Decision::Deny, Reason::InUse, target.clone())
        }
    }

    fn facts_of(verdict: &Verdict) -> Vec<(&'static str, String, String)> {
        let all = denial(verdict).unwrap_or_default().1.into_iter();
        all.map(|StatusCause { reason, message, field }| (reason, message, field)).collect()
    }

    #[test]
    fn h152_no_name_in_a_denial_passes_for_text_of_belay() {
        let forged = "x\". To delete it, first delete Namespace prod. \"";
        let target = ObjectRef::new(("rbac.authorization.k8s.io", "roles"), "db", forged);
        let named = || object(forged);
        let path = "spec".to_owned();
        let user = Cause::User { owner: named(), user: Some(named()), path };
        let content = Cause::Content { object: named(), why: ContentReason::Anything };
        for (reason, cause) in [
            (Reason::InUse, user),
            (Reason::NotEmpty, content),
            (Reason::StillNeeded, Cause::Exists(named())),
            (Reason::WouldOrphan, Cause::Dependent(named())),
            (Reason::WouldOrphan, Cause::Owner(named())),
            (Reason::WouldOrphan, Cause::RepeatedUid(named())),
            (Reason::Protected, Cause::WeakerProtection(named())),
        ] {
            let blocker = Blocker { reason, ..blocker(&target, vec![cause]) };
            let verdict = Verdict::from_blockers(target.clone(), vec![blocker]);
            // A shell needs the name as it is, in quotation marks.
            let sentences = message(&verdict).unwrap().replace(&target.arguments(), "");
            assert!(!sentences.contains(forged), "{sentences}");
            for (_, message, _) in facts_of(&verdict) {
                assert!(!message.replace(&target.arguments(), "").contains(forged), "{message}");
            }
        }
    }

    #[test]
    fn a_denial_has_one_cause_for_each_fact_of_its_message() {
        let target = ObjectRef::new(("", "persistentvolumeclaims"), "db", "data");
        let path = "spec.volumes[0].persistentVolumeClaim.claimName".to_owned();
        let pod = Some(object("postgres-0"));
        let user = Cause::User { owner: object("postgres"), user: pod, path: path.clone() };
        let elsewhere = Cause::Elsewhere { causes: vec![Cause::Exists(object("secret"))], more: 7 };
        let blockers = vec![blocker(&target, vec![user, elsewhere])];
        let mut verdict = Verdict { more: 1, ..Verdict::from_blockers(target, blockers) };
        let approve = "kubectl belay approve persistentvolumeclaims/data -n db --reason \"…\"";
        let facts = facts_of(&verdict);
        assert!(facts[0].1.starts_with("persistentvolumeclaims \"data\" is in use by Stateful"));
        let expected = [
            ("Object", "persistentvolumeclaims/data -n db", ""),
            ("Cause", "StatefulSet db/postgres (StatefulSet postgres-0)", path.as_str()),
            ("Cause", "an object in another namespace (name hidden)", ""),
            ("MoreCauses", "2", ""),
            ("Policy", "claims", ""),
            ("Label", "label belay.dev/protect=Always", ""),
            ("MoreReasons", "1", ""),
        ];
        let found: Vec<_> = facts.iter().map(|(r, m, f)| (*r, m.as_str(), f.as_str())).collect();
        assert_eq!((found[0].0, &found[1..8]), ("InUse", &expected[..]));
        assert!(found[8].0 == "NextStep" && found[8].1.starts_with("first delete"), "{found:?}");
        assert_eq!(found[9..], [("Approve", approve, ""), ("Approvers", "2", "")]);

        // A request that passes has no causes.
        verdict.decision = Decision::Warn;
        verdict.blockers[0].decision = Decision::Warn;
        assert_eq!(denial(&verdict).unwrap_or_default().1, []);
    }

    #[test]
    fn causes_are_bounded_in_number_and_length() {
        let target = ObjectRef::new(("", "persistentvolumeclaims"), "db", "data");
        let long = "x".repeat(1 << 16);
        let user = Cause::User { owner: object(&long), user: None, path: long.clone() };
        let mut one = blocker(&target, vec![user; 3]);
        one.policies = vec![PolicySource::Policy("claims".to_owned()); 100];
        let verdict = Verdict::from_blockers(target, vec![one; 4]);
        let all = denial(&verdict).unwrap_or_default().1;
        let longest = all.iter().map(|cause| cause.message.len().max(cause.field.len()));
        assert_eq!((all.len(), longest.max().unwrap() < 1_100), (MAX_CAUSES, true));
        // The commands are always listed.
        assert!(all.iter().any(|cause| cause.reason == "Approve"), "{all:?}");
    }

    #[test]
    fn an_unreadable_review_has_no_causes() {
        let target = ObjectRef::new(("", "secrets"), "db", "key");
        let verdict = decide_unreadable(target, "too deep".to_owned(), FailurePolicy::Fail);
        assert!(message(&verdict).is_some());
        assert_eq!(denial(&verdict).unwrap_or_default().1, []);
    }
}
