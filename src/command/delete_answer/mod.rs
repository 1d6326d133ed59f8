//! Whether the user can delete an object. The answer of the API server to a dry run decides. The
//! command also computes a verdict from the objects that the user may read. This verdict explains
//! the answer, and decides only if there is no answer.

mod server;

pub use self::server::{DeniedBlocker, ServerAnswer, ServerDenial};
use serde_json::Value;

use crate::cluster::Snapshot;
use crate::cluster::release::manual::check_manually;
use crate::command::diagnosis::{HoldState, Unreleased};
use crate::command::document::{FailedRead, ReportedVerdict};
use crate::command::session::UserSession;
use crate::command::webhooks::{RunningUninstall, Webhooks};
use crate::decide::{
    Blocker, Cause, ContentReason, HOLD_WARNING, ObjectName, Reason, Verdict, decide_paused,
};
use crate::objects::{KindInfo, ObjectRef, text_at, without_controls};
use crate::policy::PolicySource;

/// The number of concurrent DELETEs, also as dry runs.
pub const CONCURRENT_DELETES: usize = 8;

/// What was not read if the answer of the API server is unknown.
pub const DRY_RUN: &str = "the answer to a dry run of the DELETE";

/// The warning about a DELETE that a policy denies and the API server accepts.
const UNANSWERED: &str = "a policy denies this, but the API server accepts it: belay does not \
                          answer, does not watch the kind of a protected object, or an object has \
                          just changed; next: kubectl belay status";

/// The merged answer about a DELETE.
#[derive(Debug)]
pub struct DeleteAnswer {
    /// The verdict of belay. If it is unknown because the policies were not read, it has no
    /// blockers.
    pub verdict: Verdict,
    /// The verdict for reports.
    pub reported: ReportedVerdict,
    /// The texts of the blockers if the API server sent them, in the order of the blockers.
    pub blocker_texts: Vec<DeniedBlocker>,
    /// The next step instead of an approval, if the API server sent it.
    pub next_step: Option<String>,
    /// The reason of the API server, if it refuses the DELETE and belay does not.
    pub refused: Option<String>,
    /// The warnings: from the API server (if its answer replaces the verdict), and about policies not
    /// enforced.
    pub warnings: Vec<String>,
    /// What belay's hold waits for, if the answer of the API server replaces the verdict.
    pub hold_reason: Option<String>,
    /// Why the answer of the API server is unknown.
    pub unanswered: Option<FailedRead>,
    /// Whether belay may not watch an object for which the verdict of the command is a denial: the
    /// webhooks exist, and the API server accepts the DELETE or denies it for other reasons.
    pub is_unwatched: bool,
    /// Whether the API server refuses the DELETE because belay does not answer. An approval changes
    /// nothing then.
    pub is_belay_silent: bool,
}

/// What the hold on a Terminating object waits for. If the user may not read all of it, belay's
/// warning about a dry run of the DELETE decides.
pub async fn hold_state(
    session: &UserSession,
    snapshot: &Snapshot,
    (info, object_ref): (&KindInfo, &ObjectRef),
    object: &Value,
) -> HoldState {
    let is_named = policies_release_holds(snapshot, info);
    let (users, unreleased) = tokio::join!(
        users_of_hold(session, snapshot, (info, object_ref), object),
        Unreleased::read(session, info, is_named),
    );
    users.with_unreleased(unreleased)
}

/// Whether the policies let belay release holds on objects of a kind. True if they are unknown.
pub fn policies_release_holds(snapshot: &Snapshot, info: &KindInfo) -> bool {
    let world = snapshot.context.world.read();
    !world.loaded || world.policies.releases_any_hold(&info.group, &info.resource)
}

/// What the hold waits for, where belay releases the holds on the kind.
pub async fn users_of_hold(
    session: &UserSession,
    snapshot: &Snapshot,
    (info, object_ref): (&KindInfo, &ObjectRef),
    object: &Value,
) -> HoldState {
    let key = {
        let world = snapshot.context.world.read();
        world.key(object_ref).filter(|_| world.loaded)
    };
    let check = match &key {
        Some(key) => Some(check_manually(&snapshot.context, &snapshot.reader, key, object).await),
        None => None,
    };
    let state = match &check {
        Some(check) => HoldState::of_check(object_ref, check),
        // Without its policies, every object looks unprotected.
        None => HoldState::unknown("you may not read the policies"),
    };
    if state.known || session.asks_files() {
        return state;
    }
    let target = (object_ref, text_at(object, UID));
    match ServerAnswer::ask(&session.caller, info, target, None).await {
        ServerAnswer::Accepts(warnings) => {
            let kinds = &snapshot.context.world.read().graph.kinds;
            let is_terminating =
                |user: &ObjectRef| check.as_ref().is_some_and(|check| check.is_terminating(user));
            let mut states = warnings.iter().filter_map(|text| {
                HoldState::from_warning(text, object_ref, kinds, is_terminating)
            });
            states.next().unwrap_or(state)
        }
        _ => state,
    }
}

/// What belay's hold waits for, from the warnings of a DELETE.
pub fn hold_reason_in(warnings: &[String]) -> Option<String> {
    let held = warnings.iter().find_map(|warning| warning.split_once(HOLD_WARNING));
    held.map(|(_, until)| without_controls(until))
}

/// The path of the uid in an object.
const UID: &str = "/metadata/uid";

impl DeleteAnswer {
    /// Merges the verdict of the command and the answer of the API server. `local` is `None` if
    /// the policies could not be read. `complete`: the user could read everything, so a different
    /// answer of the API server means that belay was not asked or did not answer.
    pub fn merge(
        target: &ObjectRef,
        local: Option<Verdict>,
        complete: bool,
        server: Option<ServerAnswer>,
        webhooks: &Webhooks,
    ) -> Self {
        let is_policy = local.as_ref().is_some_and(|local| !local.blockers.is_empty());
        let known_verdict = local.as_ref().filter(|verdict| !verdict.is_unknown());
        let passes = known_verdict.map(|verdict| verdict.decision.passes());
        let denied = known_verdict.filter(|_| passes == Some(false)).cloned();
        // A running uninstall removes the holds.
        let keeps_holds =
            webhooks.uninstall.as_ref().is_none_or(RunningUninstall::may_have_stopped);
        let holds = webhooks.are_inactive() && keeps_holds;
        let kept = known_verdict.filter(|_| holds).and_then(kept_without_denial);
        let mut answer = Self::from_verdict(target, local);
        match server {
            None => {}
            Some(ServerAnswer::Accepts(_)) if passes == Some(true) && !webhooks.are_inactive() => {}
            Some(ServerAnswer::Accepts(_)) if kept.is_some() => {
                answer = Self::from_verdict(target, kept);
                answer.warnings.extend(webhooks.why_inactive());
            }
            Some(ServerAnswer::Accepts(warnings)) => {
                let until = hold_reason_in(&warnings);
                answer = Self::from_verdict(target, Some(Verdict::allow(target.clone())));
                answer.reported = match warnings.is_empty() {
                    true => ReportedVerdict::Allow,
                    false if until.is_some() => ReportedVerdict::Hold,
                    false => ReportedVerdict::Warn,
                };
                answer.hold_reason = until;
                answer.warnings = warnings.iter().map(|text| without_controls(text)).collect();
                let why = match webhooks.why_inactive() {
                    Some(inactive) => is_policy.then_some(inactive),
                    None if denied.as_ref().is_some_and(denies_only_labelled_content) => None,
                    None => (complete && passes == Some(false)).then(|| UNANSWERED.to_owned()),
                };
                answer.warnings.extend(why);
                answer.is_unwatched = passes == Some(false) && !webhooks.are_inactive();
            }
            Some(ServerAnswer::Denies(denial)) => match denied {
                None => answer = Self::from_denial(target, *denial),
                Some(local) if denial.verdict.is_unknown() => {
                    answer = Self::from_denial(target, denial.with_local_reasons(local));
                }
                // belay can read what the user may not, and the user may read what belay does not
                // watch.
                Some(local) if !is_confirmed(&local, &denial) => {
                    answer = Self::from_denial(target, *denial);
                    answer.is_unwatched = true;
                }
                Some(_) => {}
            },
            Some(ServerAnswer::Unknown(why)) => {
                answer.unanswered = Some(FailedRead { resource: DRY_RUN.to_owned(), why });
            }
            Some(refused @ (ServerAnswer::Refuses(_) | ServerAnswer::BelaySilent)) => {
                answer.is_belay_silent = matches!(refused, ServerAnswer::BelaySilent);
                answer.refused = refused.refusal();
            }
        }
        answer
    }

    fn from_verdict(target: &ObjectRef, verdict: Option<Verdict>) -> Self {
        let reported = verdict.as_ref().map_or(ReportedVerdict::Unknown, ReportedVerdict::new);
        Self {
            verdict: verdict.unwrap_or_else(|| Verdict::allow(target.clone())),
            reported,
            blocker_texts: Vec::new(),
            next_step: None,
            refused: None,
            warnings: Vec::new(),
            hold_reason: None,
            unanswered: None,
            is_unwatched: false,
            is_belay_silent: false,
        }
    }

    fn from_denial(target: &ObjectRef, denial: ServerDenial) -> Self {
        let ServerDenial { verdict, blocker_texts, next_step } = denial;
        // It is a denial also if belay denies the DELETE only because its own reads failed.
        let reported = ReportedVerdict::Deny;
        Self { reported, blocker_texts, next_step, ..Self::from_verdict(target, Some(verdict)) }
    }

    /// Whether the API server accepts the DELETE and no hold keeps the object.
    pub fn deletes(&self) -> bool {
        use ReportedVerdict::{Allow, Audit, Warn};
        self.refused.is_none() && matches!(self.reported, Allow | Audit | Warn)
    }
}

/// The verdict on a DELETE if belay denies and records nothing. It contains only the blockers of
/// objects that keep their hold. `None` if there is no such object.
fn kept_without_denial(denied: &Verdict) -> Option<Verdict> {
    let accepted = decide_paused(denied.clone());
    let holds = accepted.blockers.iter().filter(|blocker| accepted.keeps_by_hold(blocker));
    let blockers: Vec<_> = holds.cloned().collect();
    (!blockers.is_empty()).then_some(Verdict { blockers, ..accepted })
}

/// The labelled objects in a Namespace that keep the Namespace. belay knows such an object only if
/// it watches its kind.
fn labelled_content(blocker: &Blocker) -> impl Iterator<Item = &ObjectName> {
    blocker.causes.iter().filter_map(|cause| match cause {
        Cause::Content { object, why: ContentReason::Protected(PolicySource::Label(_)) } => {
            Some(object)
        }
        _ => None,
    })
}

/// Whether all reasons of this denial are content with the label.
fn denies_only_labelled_content(denied: &Verdict) -> bool {
    denied.deciding_blockers().all(|blocker| match blocker.reason {
        Reason::NotEmpty => labelled_content(blocker).count() == blocker.causes.len(),
        // belay denies the DELETE of that object, whichever controller sends it.
        _ => {
            let is_label = |source: &PolicySource| matches!(source, PolicySource::Label(_));
            blocker.object != denied.target && blocker.policies.iter().all(is_label)
        }
    })
}

/// Whether the denial by belay confirms the parts of the command's verdict that may be wrong:
/// unknown facts, and content that belay may not know.
fn is_confirmed(local: &Verdict, denial: &ServerDenial) -> bool {
    let is_content = |object: &ObjectName| {
        let text = format!("{object} (");
        let mut causes = denial.blocker_texts.iter().flat_map(|texts| &texts.causes);
        causes.any(|(cause, _)| cause.starts_with(&text))
    };
    let has_as_much = |blocker: &Blocker| {
        let key = (blocker.reason, blocker.object.arguments());
        let mut others = denial.verdict.blockers.iter();
        others.any(|other| {
            (other.reason, other.object.arguments()) == key && other.more >= blocker.more
        })
    };
    local.deciding_blockers().all(|blocker| match blocker.reason {
        Reason::Unknown => false,
        Reason::NotEmpty if blocker.object.is_namespace() => {
            labelled_content(blocker).all(is_content) && has_as_much(blocker)
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::document::Object;
    use crate::command::webhooks::{VALIDATING, WebhookConfiguration};
    use crate::decide::{Blocker, Decision, Reason, describe_cause};

    fn verdict(outcome: Decision, reason: Reason) -> Verdict {
        let target = ObjectRef::default();
        let blocker = Blocker::new(outcome, reason, target.clone());
        Verdict::from_blockers(target, vec![blocker])
    }

    #[test]
    fn without_webhooks_nothing_is_recorded_and_an_uninstall_holds_nothing() {
        use ReportedVerdict::{Allow, Hold};
        let object = Object { kind: VALIDATING.to_owned(), ..Object::default() };
        // `uninstall`: the seconds since the uninstall has renewed the Lease.
        let missing = |uninstall: Option<i64>| Webhooks {
            configurations: vec![WebhookConfiguration {
                object: object.clone(),
                present: false,
                has_rules: false,
            }],
            uninstall: uninstall.and_then(RunningUninstall::of_age),
            ..Webhooks::default()
        };
        let held = |decision| {
            let mut verdict = verdict(decision, Reason::InUse);
            verdict.blockers.iter_mut().for_each(|blocker| blocker.held = true);
            verdict
        };
        let audited = || verdict(Decision::Audit, Reason::InUse);
        for (local, uninstall, reported, blockers) in [
            (audited(), None, Allow, 0),
            (held(Decision::Audit), None, Hold, 1),
            (held(Decision::Deny), None, Hold, 1),
            (held(Decision::Audit), Some(20), Allow, 0),
            (held(Decision::Deny), Some(20), Allow, 0),
            // It may have stopped, and holds remain.
            (held(Decision::Deny), Some(21), Hold, 1),
        ] {
            let (target, webhooks) = (ObjectRef::default(), missing(uninstall));
            let server = Some(ServerAnswer::Accepts(Vec::new()));
            let answer = DeleteAnswer::merge(&target, Some(local), true, server, &webhooks);
            assert_eq!((answer.reported, answer.verdict.blockers.len()), (reported, blockers));
            let why: Vec<_> = webhooks.why_inactive().into_iter().collect();
            assert_eq!((answer.warnings, why.len()), (vec![why[0].to_owned()], 1));
        }
    }

    #[test]
    fn a_denial_confirms_labelled_content_that_it_names() {
        let namespace = ObjectRef::new(("", "namespaces"), "", "shop");
        let name = |name: &str| ObjectName {
            kind: "Secret".to_owned(),
            object: ObjectRef::new(("", "secrets"), "shop", name),
        };
        let content = |of: &str| Cause::Content {
            object: name(of),
            why: ContentReason::Protected(PolicySource::Label("Always")),
        };
        let local = |causes| {
            let blocker = Blocker::new(Decision::Deny, Reason::NotEmpty, namespace.clone());
            Verdict::from_blockers(namespace.clone(), vec![Blocker { causes, ..blocker }])
        };
        let denial = ServerDenial {
            verdict: local(Vec::new()),
            blocker_texts: vec![DeniedBlocker {
                message: String::new(),
                causes: vec![(describe_cause(&content("key")), String::new())],
            }],
            next_step: None,
        };
        assert!(is_confirmed(&local(vec![content("key")]), &denial));
        assert!(!is_confirmed(&local(vec![content("key"), content("ke")]), &denial));
    }

    #[test]
    fn the_api_server_decides() {
        use ReportedVerdict::{Allow, Deny, Hold, Unknown, Warn};
        let deny = || Some(verdict(Decision::Deny, Reason::InUse));
        let unknown = || Some(verdict(Decision::Deny, Reason::Unknown));
        let warn = || Some(verdict(Decision::Warn, Reason::InUse));
        let mixed = || {
            let blocker = |reason| Blocker::new(Decision::Deny, reason, ObjectRef::default());
            let blockers = [Reason::InUse, Reason::Unknown].map(blocker);
            Some(Verdict::from_blockers(ObjectRef::default(), blockers.to_vec()))
        };
        let accepts = |warnings: &[&str]| {
            ServerAnswer::Accepts(warnings.iter().map(ToString::to_string).collect())
        };
        let held = ["configmap \"a\" stays Terminating until it is unused"];
        let denies_for = |reason| {
            let verdict = verdict(Decision::Deny, reason);
            let denial = ServerDenial { verdict, blocker_texts: Vec::new(), next_step: None };
            ServerAnswer::Denies(Box::new(denial))
        };
        let denies = || denies_for(Reason::Protected);
        let refuses = || ServerAnswer::Refuses("no".to_owned());
        let unknown_answer = || ServerAnswer::Unknown("late".to_owned());
        let rows = [
            // The local verdict, whether it is complete, the answer of the API server, the result.
            (None, false, Some(accepts(&[])), Allow, None, true),
            (None, false, Some(accepts(&["careful"])), Warn, None, true),
            (None, false, Some(accepts(&held)), Hold, None, false),
            (None, false, Some(denies()), Deny, Some(Reason::Protected), false),
            (None, false, Some(refuses()), Unknown, None, false),
            (None, false, Some(unknown_answer()), Unknown, None, false),
            (deny(), true, None, Deny, Some(Reason::InUse), false),
            (deny(), true, Some(accepts(&[])), Allow, None, true),
            (deny(), false, Some(accepts(&[])), Allow, None, true),
            (deny(), false, Some(denies()), Deny, Some(Reason::InUse), false),
            (deny(), true, Some(denies_for(Reason::Unknown)), Deny, Some(Reason::Unknown), false),
            (unknown(), true, Some(accepts(&[])), Allow, None, true),
            (unknown(), false, Some(denies()), Deny, Some(Reason::Protected), false),
            (
                unknown(),
                false,
                Some(denies_for(Reason::Unknown)),
                Deny,
                Some(Reason::Unknown),
                false,
            ),
            (None, false, Some(denies_for(Reason::Unknown)), Deny, Some(Reason::Unknown), false),
            (unknown(), false, Some(unknown_answer()), Unknown, Some(Reason::Unknown), false),
            (warn(), false, Some(accepts(&[])), Warn, Some(Reason::InUse), true),
            (mixed(), false, Some(denies()), Deny, Some(Reason::Protected), false),
            (mixed(), false, Some(denies_for(Reason::Unknown)), Deny, Some(Reason::Unknown), false),
            (warn(), true, Some(denies()), Deny, Some(Reason::Protected), false),
            (warn(), true, Some(refuses()), Warn, Some(Reason::InUse), false),
        ];
        for (number, (local, complete, server, reported, reason, deletes)) in
            rows.into_iter().enumerate()
        {
            let target = ObjectRef::default();
            let answer =
                DeleteAnswer::merge(&target, local, complete, server, &Webhooks::default());
            let result = (answer.reported, answer.verdict.reason, answer.deletes());
            assert_eq!(result, (reported, reason, deletes), "row {number}");
        }
    }
}
