//! Requests a check of one held, Terminating object, and reports the result.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ReleaseOptions;
use super::answer::{ReleaseOutput, ReleaseState};
use crate::cluster::election::LeaderInfo;
use crate::cluster::release::{DriverReport, manual};
use crate::cluster::{Context, ObjectKey, Snapshot};
use crate::command::CommandError;
use crate::command::delete_answer::hold_state;
use crate::command::diagnosis::{
    BlockingFinalizer, HoldState, consent_to, finalizers_of, holding_policies, is_unanswered,
    reason_text, unread_approvals,
};
use crate::command::place::Installation;
use crate::command::report::Format;
use crate::command::screen::progress;
use crate::command::session::UserSession;
use crate::command::target::{
    TargetArguments, TargetObject, read_rules, situation, unknown_policies_text,
};
use crate::decide::{JudgedObject, RecordScope, approve_command, sufficient_approvals};
use crate::hold::{ReleaseReason, TargetState, WaitReason};
use crate::objects::{ApiError, and_more, is_hold, text_at};

/// The interval between two checks whether belay's Lease has expired.
const LEASE_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two checks whether the object was deleted.
const OBJECT_INTERVAL: Duration = Duration::from_millis(250);

pub async fn release(
    target: TargetArguments,
    options: ReleaseOptions,
    output: Format,
) -> Result<ExitCode, CommandError> {
    let target = target.read_one().await?;
    let object_ref = &target.object_ref;
    if let Some(name) = options.force.as_ref().filter(|name| **name != object_ref.name) {
        return Err(CommandError::Usage(format!(
            "--force={name} is not the name of {}; type exactly --force={}",
            object_ref.quoted(),
            object_ref.name
        )));
    }
    let result = match why_not_held(&target) {
        Some(why) => ReleaseOutput::new(target.document(), ReleaseState::NotHeld, why),
        None => release_held(target, &options).await?,
    };
    result.print_or_fail(output)
}

/// Releases a held object, or reports why it stays. An error means that belay could not be asked.
async fn release_held(
    target: TargetObject,
    options: &ReleaseOptions,
) -> Result<ReleaseOutput, CommandError> {
    let Some(observed) = TargetState::read(&target.json) else {
        return Err(CommandError::Remote(
            "the answer of the API server is not an object".to_owned(),
        ));
    };
    let snapshot = read_rules(&target.session, std::slice::from_ref(&target)).await?;
    let Some(key) = snapshot.context.world.read().key(&target.object_ref) else {
        return Err(CommandError::Remote(
            "its kind was installed a moment ago; next: try again".to_owned(),
        ));
    };
    let limit = options.timeout;
    let release = Release { target, snapshot, key, observed, limit };
    if options.force.is_some() {
        return release.force(options.dry_run).await;
    }
    if options.dry_run {
        return Ok(release.preview().await);
    }
    match release.target.session.leader().await {
        Ok(None) => release.release_without_leader().await,
        // A user who may not read the Lease may still ask belay. If no leader responds, the
        // command reports that.
        Ok(Some(_)) | Err(_) => release.ask_leader().await,
    }
}

/// Why there is nothing to release, and the next step.
fn why_not_held(target: &TargetObject) -> Option<String> {
    let (what, typed) = (target.object_ref.quoted(), target.object_ref.arguments());
    if target.terminating_since().is_none() {
        return Some(format!(
            "{what} is not Terminating, so there is nothing to release; next: kubectl belay why \
             {typed}"
        ));
    }
    let finalizers = finalizers_of(&target.json);
    if finalizers.iter().any(|finalizer| is_hold(finalizer)) {
        return None;
    }
    Some(match finalizers[..] {
        [] => format!(
            "belay does not hold {what}, which is Terminating; next: kubectl belay why {typed}"
        ),
        _ => format!(
            "belay does not hold {what}. These finalizers keep it: {}; next: kubectl belay why \
             {typed}",
            other_finalizers_text(target, &target.json)
        ),
    })
}

/// The answer if the hold was removed, or would be removed for the reason `dry_run`.
fn removed_answer(target: &TargetObject, object: &Value, dry_run: Option<&str>) -> ReleaseOutput {
    let (what, typed) = (target.object_ref.sentence_name(), target.object_ref.arguments());
    let mut remaining = finalizers_of(object);
    remaining.retain(|finalizer| !is_hold(finalizer));
    let (state, removed, deletes, keep) = match dry_run {
        None => (ReleaseState::Released, "was removed".to_owned(), "now deletes", "keep"),
        Some(why) => {
            let removed = format!("would be removed: {why}");
            (ReleaseState::WouldRelease, removed, "would then delete", "would keep")
        }
    };
    let sentence = match remaining.is_empty() {
        true => format!("the hold of {what} {removed}; the API server {deletes} the object"),
        false => format!(
            "the hold of {what} {removed}; other finalizers {keep} the object: {}; next: kubectl \
             belay why {typed}",
            other_finalizers_text(target, object)
        ),
    };
    ReleaseOutput::new(target.document(), state, sentence).with_finalizers(remaining)
}

/// The finalizers of other controllers that keep an object, each with the controller that
/// removes it.
fn other_finalizers_text(target: &TargetObject, object: &Value) -> String {
    let (finalizers, more) = BlockingFinalizer::first(object, &target.object_ref);
    let texts = finalizers.iter().filter(|finalizer| !finalizer.ours).map(
        |BlockingFinalizer { name, removed_by, .. }| format!("{name} (removed by {removed_by})"),
    );
    texts.collect::<Vec<_>>().join("; ") + &and_more(more, "finalizer")
}

/// A release in progress.
struct Release {
    target: TargetObject,
    snapshot: Snapshot,
    key: ObjectKey,
    observed: TargetState,
    limit: Duration,
}

impl Release {
    /// Asks the leader to release the object, and waits for the result.
    async fn ask_leader(&self) -> Result<ReleaseOutput, CommandError> {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let UserSession { caller, me, .. } = &**session;
        let what = object_ref.quoted();
        let context = &self.snapshot.context;
        let asked = manual::request_check(context, &self.key, &self.observed, me.now()).await;
        match asked {
            // NotFound: belay released the object before the request.
            Ok(()) | Err(ApiError::NotFound) => {}
            Err(ApiError::Status { message, .. }) if is_unanswered(&message) => {
                return self.wait_for_lease_expiry(&message).await;
            }
            Err(error) => {
                let next = match &error {
                    ApiError::Forbidden(_) => "this needs the RBAC verb patch on it",
                    _ => "next: try again",
                };
                return Err(CommandError::Remote(format!(
                    "cannot ask belay to release {what}: {error}; {next}"
                )));
            }
        }
        let deadline = Instant::now() + self.limit;
        while Instant::now() < deadline {
            if let Some(answer) = self.read_result().await? {
                return Ok(answer);
            }
            tokio::time::sleep(OBJECT_INTERVAL).await;
        }
        // The leader may have stopped, and its Lease may have expired since the request.
        if self.target.session.lacks_leader().await {
            return self.release_without_leader().await;
        }
        let (_, namespace, name) = &self.key;
        let object = caller.object(info, namespace, name).await;
        let object = object.map_err(|error| read_error(&what, &error))?;
        let Some(object) = object else { return Ok(self.deleted_answer()) };
        Ok(self.held_answer(self.hold_state(&object).await))
    }

    /// What the hold of the object waits for.
    async fn hold_state(&self, object: &Value) -> HoldState {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        hold_state(session, &self.snapshot, (info, object_ref), object).await
    }

    /// Waits because the leader did not respond to the request. If the leader has just stopped,
    /// its Lease expires soon, and then this command releases the object.
    async fn wait_for_lease_expiry(&self, why: &str) -> Result<ReleaseOutput, CommandError> {
        progress("belay does not answer; if it is dead, its Lease expires within seconds");
        let deadline = Instant::now() + self.limit;
        loop {
            let next = match self.target.session.leader().await {
                Ok(None) => return self.release_without_leader().await,
                Ok(Some(_)) if Instant::now() < deadline => {
                    tokio::time::sleep(LEASE_INTERVAL).await;
                    continue;
                }
                Ok(Some(LeaderInfo { replica: name, .. })) => {
                    format!("but {name} renews belay's Lease; next: see its log, and try again")
                }
                Err(why) => {
                    format!("cannot read the leader of belay: {why}; {}", self.impersonation_hint())
                }
            };
            return Err(CommandError::Remote(format!(
                "cannot ask belay to release {}: {why}; {next}",
                self.target.object_ref.quoted()
            )));
        }
    }

    /// Releases the object without a leader: the command runs the code of the leader itself.
    async fn release_without_leader(&self) -> Result<ReleaseOutput, CommandError> {
        let Snapshot { context, reader, .. } = &self.snapshot;
        if !context.world.read().policies_current {
            return Err(CommandError::Remote(format!(
                "belay has no leader, and your permissions do not suffice to release the hold: {}",
                unknown_policies_text(&self.target.session, &self.snapshot)
            )));
        }
        let (context, actor) = self.choose_actor().await;
        let outcome =
            manual::run_release(&context, reader, &self.key, self.observed.clone(), self.limit)
                .await;
        let unknown = |why: &str| self.unknown_answer(&format!("{why}; {}", actor.failure_text()));
        match outcome {
            Some(DriverReport::Ended(_)) => match self.read_result().await? {
                Some(answer) => Ok(answer.with_actor(actor.account(), actor.success_text())),
                None => Ok(unknown("it was changed meanwhile")),
            },
            Some(DriverReport::Waits(why @ WaitReason::InUse(_))) => Ok(self.held_answer(
                HoldState::new(&self.target.object_ref, Err(why), |_| false),
            )),
            Some(DriverReport::Waits(WaitReason::Stranded)) => Ok(self.answer(ReleaseState::Held, format!(
                "{} is still held: its Namespace was removed by force, and nothing in it can be \
                 written; next: re-create the Namespace",
                self.target.object_ref.quoted()
            ))),
            Some(DriverReport::Waits(WaitReason::Unknown(why))) => Ok(unknown(&why)),
            None => Ok(unknown("the API server did not answer in time")),
        }
    }

    /// Chooses the account that releases the object while belay is down. The API server then
    /// refuses every write that it must send to belay's webhooks with failurePolicy Fail. It
    /// sends them no writes of belay's own account, so the command impersonates that account if
    /// the user has the right. Other users write with their own rights, which works only after
    /// the webhooks were deleted.
    async fn choose_actor(&self) -> (Context, Actor) {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let (context, account) = (&self.snapshot.context, session.own_user());
        match session.caller.acting_as(&account, info, &object_ref.namespace).await {
            Some(client) => (Context { client, ..context.clone() }, Actor::Belay(account)),
            None => (context.clone(), Actor::User(self.impersonation_hint())),
        }
    }

    /// The text about the users who can release the object while belay's webhooks do not answer.
    fn impersonation_hint(&self) -> String {
        let UserSession { installation, account: name, .. } = &*self.target.session;
        let Installation { namespace, .. } = installation;
        format!(
            "while its webhooks do not answer, only a user with the RBAC verb impersonate on \
             serviceaccounts {name} in namespace {namespace} can do this, such as a cluster \
             administrator, with the same command"
        )
    }

    /// Whether the object would be released now.
    async fn preview(&self) -> ReleaseOutput {
        let hold = self.hold_state(&self.target.json).await;
        match hold.free && hold.released_by_belay {
            true => {
                let why = hold.reasons.join(", ");
                removed_answer(&self.target, &self.target.json, Some(&why))
            }
            false => self.held_answer(hold),
        }
    }

    /// Removes the hold with `--force`, if the object has enough approvals.
    async fn force(&self, dry_run: bool) -> Result<ReleaseOutput, CommandError> {
        let what = self.target.object_ref.quoted();
        if !self.snapshot.context.world.read().policies_current {
            let why = unknown_policies_text(&self.target.session, &self.snapshot);
            return Err(CommandError::Remote(format!("{what} cannot be released by force: {why}")));
        }
        if let Some(why) = unread_approvals(&self.snapshot) {
            return Err(CommandError::Remote(format!(
                "{what} cannot be released by force: its approvals cannot be read: {why}; next: \
                 have an administrator bind the RBAC verb list on deletionapprovals.belay.dev to \
                 {}, if you lack it",
                self.target.session.me.name
            )));
        }
        let why = match self.check_approvals() {
            Ok(reason) => reason_text(reason),
            Err(why) => {
                return Ok(self.answer(
                    ReleaseState::Held,
                    format!(
                        "{what} cannot be released by force: {why}; next: {}",
                        approve_command(&self.target.object_ref, false)
                    ),
                ));
            }
        };
        if dry_run {
            let why = Some(why);
            return Ok(removed_answer(&self.target, &self.target.json, why));
        }
        // If belay runs, its webhook checks the approvals again, so the command acts as the user.
        let (context, actor) = match self.target.session.leader().await {
            Ok(None) => {
                let (context, actor) = self.choose_actor().await;
                (context, Some(actor))
            }
            Ok(Some(_)) | Err(_) => (self.snapshot.context.clone(), None),
        };
        let forced = manual::force_release(&context, &self.key, self.observed.clone()).await;
        forced.map_err(|why| {
            let next = actor
                .as_ref()
                .map_or_else(|| "next: try again in 20 seconds".to_owned(), Actor::failure_text);
            CommandError::Remote(format!("the hold of {what} could not be removed: {why}; {next}"))
        })?;
        match self.read_result().await? {
            Some(answer) => Ok(match &actor {
                Some(actor) => answer.with_actor(actor.account(), actor.success_text()),
                None => answer,
            }),
            None => Err(CommandError::Remote(format!("{what} has a hold again; next: try again"))),
        }
    }

    /// Checks that enough people have approved. The error is the reason why not.
    fn check_approvals(&self) -> Result<ReleaseReason, String> {
        let world = self.snapshot.context.world.read();
        let situation = situation(&world);
        let object = &self.target.object_ref;
        let node = world.graph.object_by_ref(object).ok_or("it could not be read")?;
        let policies = holding_policies(&world, object);
        let judged = JudgedObject::of_node(&situation, node);
        match sufficient_approvals(&situation, &judged, &policies, RecordScope::Ignored) {
            // belay does not guard a hold that no policy wants.
            _ if policies.is_empty() => Ok(ReleaseReason::Unprotected),
            Some(approvals) if !approvals.is_empty() => Ok(ReleaseReason::Approved),
            Some(_) => Err("it has no valid approval".to_owned()),
            None => {
                let (given, required) = consent_to(&world, object, &policies)
                    .map_or((0, 1), |consent| {
                        (consent.approver_names.len(), consent.terms.required)
                    });
                Err(format!("{given} of {required} people have approved it"))
            }
        }
    }

    /// Reads the object again. `None`: it still has the hold.
    async fn read_result(&self) -> Result<Option<ReleaseOutput>, CommandError> {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let what = object_ref.quoted();
        let object = session
            .caller
            .object(info, &object_ref.namespace, &object_ref.name)
            .await
            .map_err(|error| read_error(&what, &error))?;
        let object =
            object.filter(|object| text_at(object, "/metadata/uid") == &*self.observed.uid);
        let Some(object) = object else { return Ok(Some(self.deleted_answer())) };
        let is_held = finalizers_of(&object).iter().any(|finalizer| is_hold(finalizer));
        Ok((!is_held).then(|| removed_answer(&self.target, &object, None)))
    }

    fn answer(&self, state: ReleaseState, sentence: String) -> ReleaseOutput {
        ReleaseOutput::new(self.target.document(), state, sentence)
    }

    fn deleted_answer(&self) -> ReleaseOutput {
        let sentence = format!("{} is deleted", self.target.object_ref.sentence_name());
        self.answer(ReleaseState::Gone, sentence)
    }

    /// The answer for an object that still has the hold.
    fn held_answer(&self, hold: HoldState) -> ReleaseOutput {
        let what = self.target.object_ref.quoted();
        let next = match (hold.free, &hold.unreleased) {
            (true, None) => "see belay's log, or try again".to_owned(),
            // Without a leader, this command has released the hold itself.
            _ => hold.next(&self.target.object_ref, false),
        };
        let sentence = format!("cannot release {what}: {}; next: {next}", hold.why_not_released());
        match hold {
            HoldState { free: false, known: true, reasons, .. } => {
                self.answer(ReleaseState::Held, sentence).with_users(reasons)
            }
            HoldState { known: true, .. } => self.answer(ReleaseState::Held, sentence),
            HoldState { .. } => self.answer(ReleaseState::Unknown, sentence),
        }
    }

    /// The answer if it is unknown whether the object is in use.
    fn unknown_answer(&self, why: &str) -> ReleaseOutput {
        self.held_answer(HoldState::unknown(why))
    }
}

/// The account that releases an object while belay is down.
enum Actor {
    /// belay's own account, with this name.
    Belay(String),
    /// The user, with a hint in case the permissions of the user are not enough.
    User(String),
}

impl Actor {
    /// The impersonated account, if any.
    fn account(&self) -> Option<&str> {
        match self {
            Self::Belay(account) => Some(account),
            Self::User(_) => None,
        }
    }

    /// The message after success.
    fn success_text(&self) -> String {
        let sentence = "belay has no leader, so this was done";
        match self {
            Self::Belay(account) => format!("{sentence} as {account}, by impersonation"),
            Self::User(_) => format!("{sentence} with your own permissions"),
        }
    }

    /// The message after a failure.
    fn failure_text(&self) -> String {
        match self {
            Self::Belay(_) => self.success_text(),
            Self::User(hint) => format!("{}; {hint}", self.success_text()),
        }
    }
}

fn read_error(what: &str, error: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot read {what}: {error}"))
}
