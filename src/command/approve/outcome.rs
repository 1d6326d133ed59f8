//! The effect of an approval, and the approvals that are still missing.

use crate::cluster::Snapshot;
use crate::command::delete_answer::hold_state;
use crate::command::diagnosis::{
    COLLECTOR_WAITS, Collection, consent_to, finalizers_of, orphaning_blockers, right_to_approve,
    unread_approvals, verdict_on_delete, verdict_on_orphaning,
};
use crate::command::target::{TargetObject, situation};
use crate::decide::{Blocker, Decision, RequiredApprovals, Verdict, approve_command, sentence};
use crate::objects::{ObjectRef, is_hold, more};
use crate::policy::{ApprovalTerms, Policy, parse_service_account};

/// The effect of an approval.
pub struct ApprovalEffect {
    /// Whether the approval counts for the policies that deny the deletion.
    pub counts: bool,
    /// Whether nothing blocks the deletion any longer.
    pub passes: bool,
    /// Further sentences for the user.
    pub sentences: Vec<String>,
}

impl Default for ApprovalEffect {
    /// The effect if the policies can't be read.
    fn default() -> Self {
        Self { counts: true, passes: false, sentences: Vec::new() }
    }
}

impl ApprovalEffect {
    pub async fn new(
        target: &TargetObject,
        snapshot: &Snapshot,
        policies: &[Policy],
        (approval, content): (&str, bool),
    ) -> Self {
        let typed = target.object_ref.arguments();
        let me = &target.session.me.name;
        let verdict = verdict(target, snapshot).await;
        let cascade = verdict.as_ref().filter(|_| !content).and_then(cascade_note);
        let orphaning = verdict_on_orphaning(target, snapshot).await;
        let uses =
            |verdict: &Verdict| verdict.overrides.approvals.iter().any(|name| name == approval);
        // An approval that every DELETE needs also counts for this one.
        let is_for_orphaning =
            orphaning.as_ref().is_some_and(uses) && !verdict.as_ref().is_some_and(uses);
        let orphaning =
            orphaning.as_ref().and_then(|verdict| orphaning_note(verdict, is_for_orphaning));
        let unread = unread_approvals(snapshot);
        let (mut counts, mut is_enough, mut sentences) = (true, true, Vec::new());
        match read_consent(target, snapshot, policies) {
            None if verdict.as_ref().and_then(refusal).is_some() => {}
            None if orphaning.is_some() => {
                sentences.push("without --cascade=orphan, its DELETE needs no approval".to_owned());
            }
            None => {
                sentences.push("no policy protects it now: it needs no approval".to_owned());
                sentences.extend(unreleased_hold(target, snapshot).await);
            }
            Some(consent) => {
                counts = consent.approver_names.contains(me);
                is_enough = consent.approver_names.len() >= consent.terms.required;
                let right = right_to_approve(&target.object_ref, content);
                sentences.push(missing_text(me, policies, &consent, unread.is_none(), &right));
            }
        }
        let unread = unread.filter(|_| !is_enough);
        sentences.extend(unread.map(|why| format!("the other approvals cannot be read: {why}")));
        let passes = is_enough && verdict.as_ref().is_some_and(|verdict| verdict.decision.passes());
        let state = match verdict.as_ref().is_some_and(Verdict::is_unknown) {
            true => "it is unknown whether it can be deleted now",
            false => "it still cannot be deleted",
        };
        if let Some((refusal, required)) = cascade {
            let next = approve_command(&target.object_ref, true);
            let people = match required {
                0 | 1 => String::new(),
                required => format!("; {required} people must approve with --scope content"),
            };
            sentences.push(format!("{state}: {refusal}{people}; next: {next}"));
        } else if let Some(refusal) = verdict.as_ref().filter(|_| is_enough).and_then(refusal) {
            sentences.push(format!("{state}: {refusal}; next: kubectl belay why {typed}"));
        }
        sentences.extend(orphaning);
        sentences.extend(pause_note(target, snapshot));
        sentences.extend(outage_note(target).await);
        if let Some(why) = why_collector_stopped(target, snapshot).await {
            sentences.push(format!(
                "{why}, and {COLLECTOR_WAITS}; next: delete it now: kubectl delete {typed}"
            ));
        }
        Self { counts, passes, sentences }
    }
}

/// Why the hold keeps a Terminating object that needs no approval, and how to remove it; `None` if
/// belay releases it.
async fn unreleased_hold(target: &TargetObject, snapshot: &Snapshot) -> Option<String> {
    target.terminating_since()?;
    finalizers_of(&target.json).into_iter().find(|finalizer| is_hold(finalizer))?;
    let TargetObject { session, info, object_ref, .. } = target;
    let hold = hold_state(session, snapshot, (info, object_ref), &target.json).await;
    hold.unreleased.as_ref()?;
    // Without a leader, `unreleased` is `None`.
    Some(format!("{hold}; next: {}", hold.next(object_ref, false)))
}

/// What the approval changes for a DELETE with `--cascade=orphan`. `verdict` is the verdict on this
/// DELETE. `is_used`: only this DELETE needs the approval. `None` if the approval changes nothing,
/// and no policy denies that the DELETE orphans dependents.
fn orphaning_note(verdict: &Verdict, is_used: bool) -> Option<String> {
    if let Some(blocker) = orphaning_blockers(verdict).next() {
        let object = blocker.object_to_approve(&verdict.target);
        let approve = approve_command(object, blocker.covered_by_content_approval);
        let refusal = sentence(&verdict.target, blocker);
        return Some(format!(
            "with --cascade=orphan, it cannot be deleted: {refusal}; next: {approve}"
        ));
    }
    is_used.then(|| "with --cascade=orphan, the approval also allows its DELETE".to_owned())
}

/// Why a DELETE needs no approval during a Pause; `None` without a Pause.
fn pause_note(target: &TargetObject, snapshot: &Snapshot) -> Option<String> {
    let world = snapshot.context.world.read();
    let pause = world.policies.pause(situation(&world).now)?;
    let is_deleted = target.terminating_since().is_some();
    (!is_deleted)
        .then(|| format!("belay is paused until {}: until then it denies nothing", pause.until()))
}

/// Why belay does not act on the approval; `None` if belay runs, or if that is unknown.
async fn outage_note(target: &TargetObject) -> Option<String> {
    let TargetObject { session, object_ref, .. } = target;
    let has_no_leader = session.lacks_leader().await;
    if target.terminating_since().is_some() {
        let release = format!("kubectl belay release {}", object_ref.arguments());
        return has_no_leader
            .then(|| format!("belay has no leader, so nothing removes its hold; next: {release}"));
    }
    let webhooks = session.webhooks().await;
    let missing = webhooks.why_inactive();
    missing.or_else(|| has_no_leader.then(|| webhooks.no_leader_text()))
}

/// The verdict on a DELETE after the approval; `None` if the object is already Terminating, or
/// the verdict is unknown.
async fn verdict(target: &TargetObject, snapshot: &Snapshot) -> Option<Verdict> {
    if target.terminating_since().is_some() {
        return None;
    }
    verdict_on_delete(target, snapshot).await.ok()
}

/// The blocker that an approval of the object alone does not cover: an object to which the DELETE
/// cascades. Also the number of people who must approve the content.
fn cascade_note(verdict: &Verdict) -> Option<(String, usize)> {
    let is_covered = |blocker: &Blocker| blocker.covered_by_content_approval;
    let text = denial_text(verdict, is_covered)?;
    let covered = verdict.deciding_blockers().filter(|blocker| is_covered(blocker));
    Some((text, covered.map(|blocker| blocker.required_approvals).max().unwrap_or_default()))
}

/// The first blocker that denies the DELETE.
fn refusal(verdict: &Verdict) -> Option<String> {
    denial_text(verdict, |_| true)
}

fn denial_text(verdict: &Verdict, which: impl Fn(&Blocker) -> bool) -> Option<String> {
    let mut denying = verdict.blockers.iter().filter(|b| b.decision == Decision::Deny);
    let blocker = denying.find(|blocker| which(blocker))?;
    Some(sentence(&verdict.target, blocker))
}

/// The approvals so far, and the approvals that the policies require.
pub fn read_consent(
    target: &TargetObject,
    snapshot: &Snapshot,
    policies: &[Policy],
) -> Option<RequiredApprovals> {
    let world = snapshot.context.world.read();
    consent_to(&world, &target.object_ref, &policies.iter().collect::<Vec<_>>())
}

/// Why the user's own approval is not enough; `None` if it is.
pub fn missing_approvals(
    me: &str,
    policies: &[Policy],
    RequiredApprovals { terms, approver_names }: &RequiredApprovals,
) -> Option<String> {
    let unlisted = unlisted_account(me, policies, terms);
    let is_counted = unlisted.is_none() && !approver_names.iter().any(|name| name == me);
    let missing = terms.required.saturating_sub(approver_names.len() + usize::from(is_counted));
    let approvals = more(missing, "approval");
    match (missing, unlisted) {
        (0, _) => None,
        (_, None) => Some(format!("its deletion needs {approvals} beside yours")),
        (_, Some(why)) => {
            Some(format!("its deletion needs {approvals}, and yours does not count: {why}"))
        }
    }
}

/// Why the approvals of the user don't count, if the user is a service account that no policy lists.
fn unlisted_account(me: &str, policies: &[Policy], terms: &ApprovalTerms) -> Option<String> {
    let account = parse_service_account(me).map(|(namespace, name)| format!("{namespace}/{name}"));
    account.filter(|account| !terms.accounts.contains(account)).map(|_| {
        format!(
            "{me} is a service account that approval.serviceAccounts of {} does not list",
            names(policies)
        )
    })
}

fn names(policies: &[Policy]) -> String {
    let names: Vec<String> = policies.iter().map(|policy| policy.source.to_string()).collect();
    names.join(", ")
}

/// The text about missing approvals and the users who may give them. `known`: the existing
/// approvals could be read.
fn missing_text(
    me: &str,
    policies: &[Policy],
    RequiredApprovals { terms, approver_names }: &RequiredApprovals,
    known: bool,
    right: &str,
) -> String {
    let strictest = policies.iter().max_by_key(|policy| policy.approval.required);
    let by = strictest.map_or(String::new(), |policy| policy.source.to_string());
    if !approver_names.iter().any(|name| name == me) {
        return match unlisted_account(me, policies, terms) {
            Some(why) => {
                format!("it does not count: {why}; next: have a person with {right} approve")
            }
            None => format!(
                "it does not count for {}: it is not valid now, or lasts longer than they allow; \
                 next: kubectl belay approvals, and approve again",
                names(policies)
            ),
        };
    }
    let (required, given) = (terms.required, approver_names.join(", "));
    match required.saturating_sub(approver_names.len()) {
        0 => format!("enough people have approved ({} of {required})", approver_names.len()),
        _ if !known => format!(
            "{by} requires approvals by {required} people, of which one is {given}; each needs \
             {right}"
        ),
        count => {
            let people = if count == 1 { "person" } else { "people" };
            format!(
                "{count} more {people} must approve: {by} requires {required}, approved so far by \
                 {given}; each needs {right}"
            )
        }
    }
}

/// Why the garbage collector will not soon retry a refused DELETE, so that the user must send it;
/// `None` if the garbage collector did not try to delete the object.
async fn why_collector_stopped(target: &TargetObject, snapshot: &Snapshot) -> Option<String> {
    let why = Collection::read(target, snapshot).await.why?;
    // After the approval, the garbage collector may have deleted the object.
    let ObjectRef { namespace, name, .. } = &target.object_ref;
    let remaining = target.session.caller.object(&target.info, namespace, name).await.ok()?;
    remaining.map(|_| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ApprovalTerms;

    fn consented(required: usize, accounts: &[&str], people: &[&str]) -> RequiredApprovals {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let accounts = owned(accounts);
        let terms = ApprovalTerms { required, longest_seconds: 600, accounts };
        RequiredApprovals { terms, approver_names: owned(people) }
    }

    #[test]
    fn missing_approvers_are_named_as_far_as_they_are_known() {
        let (ci, right) = ("system:serviceaccount:ops:ci", "a right");
        let text_for = |me: &str, consent: &RequiredApprovals, known: bool| {
            missing_text(me, &[], consent, known, right)
        };
        let text = text_for(ci, &consented(1, &[], &[]), true);
        assert!(text.contains("ops:ci is a service account that "), "{text}");
        // Neither user is an approver.
        for (me, accounts) in [("alice", &[][..]), (ci, &["ops/ci"][..])] {
            let text = text_for(me, &consented(1, accounts, &[]), true);
            assert!(!text.contains("is a service account"), "{text}");
            assert!(text.starts_with("it does not count for "), "{text}");
        }
        let two = consented(2, &[], &["alice"]);
        assert!(text_for("alice", &two, true).starts_with("1 more person must approve: "));
        // Bob may have approved, too.
        assert!(
            text_for("alice", &two, false)
                .contains(" requires approvals by 2 people, of which one is alice")
        );
        let one = consented(1, &[], &["alice"]);
        assert_eq!(text_for("alice", &one, false), "enough people have approved (1 of 1)");
    }
}
