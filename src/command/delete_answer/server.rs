//! The answer of the API server to a dry run of a DELETE by the user. It contains belay's own
//! verdict, even if the user may not read the objects that belay reads. The user gets only the
//! texts of a denial.

use kube::api::PropagationPolicy;
use kube::core::Status;
use kube::core::response::StatusCause;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error;

use crate::cluster::{Caller, DeleteResponse, is_denied_by_belay, shortened};
use crate::command::diagnosis::{explain_unencodable, is_refusal, is_unanswered, webhook_name};
use crate::decide::{Blocker, Decision, Reason, Verdict, approve_command, join_steps, remedies};
use crate::objects::{
    KindInfo, LABEL_VALUES, ObjectRef, full_name, in_namespace, split_full_name, without_controls,
};
use crate::policy::PolicySource;

/// The answer of the API server.
#[derive(Debug)]
pub enum ServerAnswer {
    /// The API server accepts the DELETE, with these warnings.
    Accepts(Vec<String>),
    /// belay denies it.
    Denies(Box<ServerDenial>),
    /// The API server refuses the DELETE for this reason, which is not a denial by belay.
    Refuses(String),
    /// The API server refuses the DELETE because belay does not answer.
    BelaySilent,
    /// The answer is unknown for this reason.
    Unknown(String),
}

/// A denial by belay, parsed from the causes of the answer.
#[derive(Debug)]
pub struct ServerDenial {
    /// The verdict. Its blockers have no causes, because the answer contains only their texts.
    pub verdict: Verdict,
    /// The texts of the blockers, in the same order.
    pub blocker_texts: Vec<DeniedBlocker>,
    /// The next step instead of an approval.
    pub next_step: Option<String>,
}

/// The texts of a blocker.
#[derive(Debug)]
pub struct DeniedBlocker {
    pub message: String,
    /// The text and the field of each cause.
    pub causes: Vec<(String, String)>,
}

impl ServerAnswer {
    /// Asks the API server about a DELETE of the object with this uid. Nothing is deleted.
    pub async fn ask(
        caller: &Caller,
        info: &KindInfo,
        (target, uid): (&ObjectRef, &str),
        propagation: Option<PropagationPolicy>,
    ) -> Self {
        let key = (target.namespace.as_str(), target.name.as_str());
        match caller.dry_run_delete(info, key, uid, propagation).await {
            Ok(Some(DeleteResponse::Accepted(warnings))) => Self::Accepts(warnings),
            Ok(Some(DeleteResponse::Refused(status))) => Self::read(caller, target, &status).await,
            Ok(None) => {
                Self::Unknown("the server of this kind does not document dry runs".to_owned())
            }
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// Reads the Status of a DELETE by the user that the API server did not accept.
    pub async fn read(caller: &Caller, target: &ObjectRef, status: &Status) -> Self {
        let kind = (target.group.as_str(), target.resource.as_str());
        let key = (target.namespace.as_str(), target.name.as_str());
        let may = match status.code {
            403 if !is_refusal(&status.message) => caller.may("delete", kind, key).await,
            _ => None,
        };
        Self::from_status(target, status, may)
    }

    /// The reason why the API server refuses the DELETE; `None` if it may accept it.
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Denies(denial) => {
                let texts = denial.blocker_texts.iter().map(|text| text.message.as_str());
                Some(texts.collect::<Vec<_>>().join("; "))
            }
            Self::Refuses(why) => Some(why.clone()),
            Self::BelaySilent => Some(SILENT_BELAY.to_owned()),
            Self::Accepts(_) | Self::Unknown(_) => None,
        }
    }

    /// Whether the user lacks the right to delete the object. This asks about RBAC only, for a
    /// DELETE that admission would deny now.
    pub async fn ask_right(caller: &Caller, target: &ObjectRef) -> Option<Self> {
        let kind = (target.group.as_str(), target.resource.as_str());
        let key = (target.namespace.as_str(), target.name.as_str());
        let may = caller.may("delete", kind, key).await;
        (may == Some(false)).then(|| Self::Refuses(missing_right_text(target)))
    }

    /// Merges the answers about several objects. The API server was asked about each object
    /// alone.
    pub fn merge(answers: Vec<(ObjectRef, Self)>) -> Self {
        if answers.len() == 1 {
            return answers
                .into_iter()
                .next()
                .map_or(Self::Accepts(Vec::new()), |(_, answer)| answer);
        }
        let (mut warnings, mut denials) = (Vec::new(), Vec::<ServerDenial>::new());
        let (mut refused, mut unknown, mut is_belay_silent) = (None, None, false);
        for (object, answer) in answers {
            match answer {
                Self::Accepts(texts) => warnings.extend(texts),
                Self::Denies(denial) => denials.push(*denial),
                Self::Refuses(why) => {
                    refused = refused.or(Some(format!("{}: {why}", object.quoted())))
                }
                Self::BelaySilent => is_belay_silent = true,
                Self::Unknown(why) => {
                    unknown = unknown.or(Some(format!("{}: {why}", object.quoted())))
                }
            }
        }
        match (ServerDenial::merge(denials), refused, unknown) {
            (Some(denial), ..) => Self::Denies(Box::new(denial)),
            (None, ..) if is_belay_silent => Self::BelaySilent,
            (None, Some(why), _) => Self::Refuses(why),
            (None, None, Some(why)) => Self::Unknown(why),
            (None, None, None) => Self::Accepts(warnings),
        }
    }

    /// Parses a refusal; `may`: whether the user has the right to delete the object.
    fn from_status(target: &ObjectRef, status: &Status, may: Option<bool>) -> Self {
        if let Some(denial) = ServerDenial::parse(target, status) {
            return Self::Denies(Box::new(denial));
        }
        let message = shortened(&without_controls(&status.message));
        if let Some(why) = explain_unencodable(&status.message) {
            return Self::Refuses(format!("{message}; {why}"));
        }
        match status.code {
            403 if may == Some(false) => Self::Refuses(missing_right_text(target)),
            403 => Self::Refuses(message),
            _ if is_silent_belay(&status.message) => Self::BelaySilent,
            _ if is_refusal(&status.message) => Self::Refuses(message),
            // The object was re-created, or a webhook does not support dry runs.
            _ => Self::Unknown(message),
        }
    }
}

/// The sentence for a user without the right to delete the object.
fn missing_right_text(object: &ObjectRef) -> String {
    let kind = full_name(&object.group, &object.resource);
    let scope = in_namespace(&object.namespace);
    let whom = if scope.is_empty() { ", such as an administrator of the cluster," } else { "" };
    format!(
        "you may not delete it; next: ask a person with the RBAC verb delete on {kind}{scope}{whom} \
         to delete it"
    )
}

/// The sentence for a DELETE that the API server refuses because belay does not answer.
const SILENT_BELAY: &str = "belay does not answer, so the API server refuses the delete, also with \
                                an approval; next: have an administrator start belay (kubectl belay \
                                status) or follow docs/guides/emergency.md";

/// Whether the message reports that a webhook of belay did not answer.
fn is_silent_belay(message: &str) -> bool {
    is_unanswered(message) && webhook_name(message).is_some_and(|name| name.ends_with(".belay.dev"))
}

impl ServerDenial {
    /// The denial of a deletion of several objects; `None` if no DELETE is denied.
    fn merge(denials: Vec<Self>) -> Option<Self> {
        let target = denials.first()?.verdict.target.clone();
        let (mut blockers, mut blocker_texts) = (Vec::new(), Vec::new());
        let (mut more, mut steps) = (0, Vec::new());
        for denial in denials {
            blockers.extend(denial.verdict.blockers);
            blocker_texts.extend(denial.blocker_texts);
            more += denial.verdict.more;
            steps.push((denial.verdict.target, denial.next_step));
        }
        let next_step = join_steps(steps, 0);
        let verdict = Verdict { more, ..Verdict::from_blockers(target, blockers) };
        Some(Self { verdict, blocker_texts, next_step })
    }

    /// Adds the reasons in the verdict of the command to this denial, which belay sent because its
    /// own reads failed.
    pub fn with_local_reasons(self, local: Verdict) -> Self {
        let step = remedies(&local).0;
        let next_step = match (self.next_step, step) {
            (Some(first), Some(step)) => Some(format!("{first}; afterwards, {step}")),
            (first, step) => first.or(step),
        };
        let mut verdict = self.verdict;
        let known = local.blockers.into_iter().filter(|blocker| blocker.reason != Reason::Unknown);
        verdict.blockers.extend(known);
        let verdict = Verdict {
            more: local.more,
            ..Verdict::from_blockers(verdict.target, verdict.blockers)
        };
        Self { verdict, next_step, ..self }
    }

    /// Parses the causes of a denial by belay. `None`: belay did not deny the request, or the
    /// answer has no causes.
    fn parse(target: &ObjectRef, status: &Status) -> Option<Self> {
        let causes =
            &status.details.as_ref().filter(|_| is_denied_by_belay(&status.message))?.causes;
        let (mut blockers, mut blocker_texts) =
            (Vec::<Blocker>::new(), Vec::<DeniedBlocker>::new());
        let (mut more, mut next_step, mut commands) = (0, None, Vec::<(&str, usize)>::new());
        for StatusCause { reason, message, field } in causes {
            if let Some(reason) = parse_reason(reason) {
                blockers.push(Blocker::new(Decision::Deny, reason, target.clone()));
                blocker_texts
                    .push(DeniedBlocker { message: without_controls(message), causes: Vec::new() });
                continue;
            }
            let text = || without_controls(message);
            let number = message.parse().unwrap_or(0);
            match (reason.as_str(), blockers.last_mut(), blocker_texts.last_mut()) {
                ("MoreReasons", ..) => more = number,
                ("NextStep", ..) => next_step = Some(text()),
                ("Approve", ..) => commands.push((message, 1)),
                ("Approvers", ..) => {
                    commands.last_mut().into_iter().for_each(|(_, required)| *required = number);
                }
                ("Object", Some(blocker), _) => blocker.object = parse_object(message, target),
                ("MoreCauses", Some(blocker), _) => blocker.more = number,
                ("Policy", Some(blocker), _) => blocker.policies.push(PolicySource::Policy(text())),
                ("Label", Some(blocker), _) => blocker.policies.extend(parse_label(message)),
                ("Cause", _, Some(texts)) => texts.causes.push((text(), without_controls(field))),
                _ => {}
            }
        }
        // An approval of the target with its content covers the blockers without a command.
        let with_content = approve_command(target, true);
        for blocker in &mut blockers {
            let object_command = approve_command(&blocker.object, false);
            let for_object = commands.iter().find(|(command, _)| *command == object_command);
            let for_content = commands.iter().find(|(command, _)| *command == with_content);
            blocker.covered_by_content_approval = for_object.is_none() && for_content.is_some();
            blocker.required_approvals =
                for_object.or(for_content).map_or(1, |(_, required)| *required);
        }
        let verdict = Verdict { more, ..Verdict::from_blockers(target.clone(), blockers) };
        (!blocker_texts.is_empty()).then_some(Self { verdict, blocker_texts, next_step })
    }
}

fn parse_reason(word: &str) -> Option<Reason> {
    let word: serde::de::value::StrDeserializer<'_, Error> = word.into_deserializer();
    Reason::deserialize(word).ok()
}

/// Parses `deployments.apps/web -n shop`. Only the target is returned with its kind.
fn parse_object(arguments: &str, target: &ObjectRef) -> ObjectRef {
    if arguments == target.arguments() {
        return target.clone();
    }
    let (object, namespace) = arguments.split_once(" -n ").unwrap_or((arguments, ""));
    let (kind, name) = object.split_once('/').unwrap_or((object, ""));
    let (resource, group) = split_full_name(kind);
    ObjectRef::new((group, resource), namespace, name)
}

/// Parses `label belay.dev/protect=Always`.
fn parse_label(text: &str) -> Option<PolicySource> {
    LABEL_VALUES.map(PolicySource::Label).into_iter().find(|label| label.to_string() == text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::{Cause, ObjectName, denial, message};

    fn claim() -> ObjectRef {
        ObjectRef::new(("", "persistentvolumeclaims"), "db", "data")
            .with_kind("PersistentVolumeClaim")
    }

    /// The Status that the API server makes of the answer of a webhook.
    fn status(webhook: &str, verdict: &Verdict) -> Status {
        let message = message(verdict).unwrap();
        let status = json!({
            "code": 403,
            "message": format!("admission webhook \"{webhook}\" denied the request: {message}"),
            "details": {"causes": denial(verdict).unwrap_or_default().1},
        });
        serde_json::from_value(status).unwrap()
    }

    fn verdict() -> Verdict {
        let user = ObjectName {
            kind: "StatefulSet".to_owned(),
            object: ObjectRef::new(("apps", "statefulsets"), "db", "postgres"),
        };
        let user = Cause::User { owner: user, user: None, path: "spec.a".to_owned() };
        let policies =
            vec![PolicySource::Policy("claims".to_owned()), PolicySource::Label("Always")];
        let of_target = Blocker {
            policies,
            causes: vec![user],
            more: 3,
            required_approvals: 2,
            ..Blocker::new(Decision::Deny, Reason::InUse, claim())
        };
        let other = ObjectRef::new(("apps", "deployments"), "db", "web");
        let policies = vec![PolicySource::Policy("apps".to_owned())];
        let of_other =
            Blocker { policies, ..Blocker::new(Decision::Deny, Reason::Protected, other) };
        let blockers = vec![of_target, of_other];
        Verdict { more: 4, ..Verdict::from_blockers(claim(), blockers) }
    }

    #[test]
    fn the_verdict_is_read_back_from_its_causes() {
        let mut sent = verdict();
        let denial = ServerDenial::parse(&claim(), &status("delete.belay.dev", &sent)).unwrap();
        assert_eq!(
            denial.blocker_texts[0].causes,
            [("StatefulSet db/postgres".to_owned(), "spec.a".to_owned())]
        );
        assert!(
            denial.blocker_texts[1]
                .message
                .ends_with("deployments.apps \"web\", which is protected")
        );
        assert!(denial.next_step.unwrap().starts_with("first delete StatefulSet db/postgres"));
        sent.blockers[0].causes.clear();
        assert_eq!(denial.verdict, sent);

        // An approval with the content covers the other object.
        sent.blockers[1].covered_by_content_approval = true;
        let denial = ServerDenial::parse(&claim(), &status("delete.belay.dev", &sent)).unwrap();
        assert!(denial.verdict.blockers[1].covered_by_content_approval, "{denial:?}");
    }

    #[test]
    fn distinguishes_other_answers() {
        let read = |code: u16, message: &str, may| {
            let status = json!({"code": code, "message": message});
            let status = serde_json::from_value(status).unwrap();
            format!("{:?}", ServerAnswer::from_status(&claim(), &status, may))
        };
        let unsupported = "admission webhook \"a.example.com\" does not support dry run";
        assert!(read(400, unsupported, None).starts_with("Unknown(\"admission webhook"));
        assert!(read(409, "Precondition failed: UID", None).starts_with("Unknown"));
        assert!(read(403, "may not be deleted", Some(true)).contains("Refuses(\"may not be del"));
        let no_right = read(403, "User cannot delete", Some(false));
        assert!(
            no_right.contains("persistentvolumeclaims in namespace db to delete it"),
            "{no_right}"
        );
        let dead = "Internal error occurred: failed calling webhook \"a.example.com\"";
        assert!(read(500, dead, None).starts_with("Refuses(\"Internal error"));
        let silent = "Internal error occurred: failed calling webhook \"delete.belay.dev\": at /x";
        assert_eq!(read(500, silent, None), "BelaySilent");
        let both = [(); 2].map(|()| (claim(), ServerAnswer::BelaySilent));
        assert!(matches!(ServerAnswer::merge(both.into()), ServerAnswer::BelaySilent));
        // Causes of another webhook are not belay's.
        let foreign = status("a.example.com", &verdict());
        let answer = ServerAnswer::from_status(&claim(), &foreign, None);
        assert!(matches!(answer, ServerAnswer::Refuses(_)), "{answer:?}");
    }
}
