//! Requests a check of one held, Terminating object, and reports the result.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::ReleaseOptions;
use super::answer::{Answer, ReleaseState};
use crate::cluster::election::LeaderInfo;
use crate::cluster::release::by_hand::{self, ReleaseOutcome};
use crate::cluster::{Context, ObjectKey, Snapshot};
use crate::command::CommandError;
use crate::command::diagnosis::{
    BlockingFinalizer, HoldState, consent_to, finalizers_of, holding_policies, is_unasked,
    unread_approvals,
};
use crate::command::report::Format;
use crate::command::session::UserSession;
use crate::command::target::{TargetArguments, TargetObject, read_rules, situation, unprotected};
use crate::decide::{ExemptionRecords, JudgedObject, approve_command, sufficient_approvals};
use crate::hold::{TargetState, UseCheck, WaitReason};
use crate::objects::{ApiError, is_hold};

/// How often the command checks whether belay's Lease has expired.
const ASK: Duration = Duration::from_secs(1);

/// How often the command checks whether the object was deleted.
const LOOK: Duration = Duration::from_millis(250);

pub async fn release(
    target: TargetArguments,
    options: ReleaseOptions,
    output: Format,
) -> Result<ExitCode, CommandError> {
    let target = target.read_one().await?;
    let named = &target.object_ref;
    if let Some(name) = options.force.as_ref().filter(|name| **name != named.name) {
        return Err(CommandError::Usage(format!(
            "--force={name} is not the name of {}; type exactly --force={}",
            named.quoted(),
            named.name
        )));
    }
    let object = target.document();
    let answer = match why_not_held(&target) {
        Some(why) => Answer::new(ReleaseState::NotHeld, why),
        None => look(target, &options).await?,
    };
    answer.print(object, output)
}

/// Requests a check and reports the result. An error: the check could not be requested.
async fn look(target: TargetObject, options: &ReleaseOptions) -> Result<Answer, CommandError> {
    let Some(observed) = TargetState::read(&target.json) else {
        return Err(CommandError::Remote(
            "the answer of the API server is not an object".to_owned(),
        ));
    };
    let snapshot = read_rules(&target.session, std::slice::from_ref(&target)).await?;
    let Some(place) = target.place(&snapshot.context.world.read()) else {
        return Err(CommandError::Remote(
            "its kind was installed a moment ago; next: try again".to_owned(),
        ));
    };
    let work =
        Release { target, snapshot, place, observed, limit: Duration::from_secs(options.timeout) };
    if options.force.is_some() {
        return work.by_force(options.dry_run).await;
    }
    if options.dry_run {
        return Ok(work.preview().await);
    }
    match work.target.session.leader().await {
        Ok(None) => work.release_without_leader().await,
        // A user who may not read the Lease may still request a check. If no leader
        // responds, the command reports that.
        Ok(Some(_)) | Err(_) => work.ask_leader().await,
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
            "{what} is Terminating and belay does not hold it; next: kubectl belay why {typed}"
        ),
        _ => format!(
            "{what} is Terminating and not held by belay, but by {}; next: kubectl belay why \
             {typed}",
            keepers(target, &target.json)
        ),
    })
}

/// The answer for an object without its hold. `would`: why a dry run would remove the hold.
fn removed_answer(target: &TargetObject, object: &Value, would: Option<&str>) -> Answer {
    let (what, typed) = (target.object_ref.quoted(), target.object_ref.arguments());
    let mut left = finalizers_of(object);
    left.retain(|finalizer| !is_hold(finalizer));
    let (state, removed, deletes, keep) = match would {
        None => (ReleaseState::Released, "was removed".to_owned(), "now deletes", "keep"),
        Some(why) => {
            let removed = format!("would be removed: {why}");
            (ReleaseState::WouldRelease, removed, "would then delete", "would keep")
        }
    };
    let says = match left.is_empty() {
        true => format!("the hold of {what} {removed}; the API server {deletes} the object"),
        false => format!(
            "the hold of {what} {removed}; other finalizers {keep} the object: {}; next: kubectl \
             belay why {typed}",
            keepers(target, object)
        ),
    };
    Answer::new(state, says).kept(&left)
}

/// The finalizers of other controllers that keep an object, and who removes each.
fn keepers(target: &TargetObject, object: &Value) -> String {
    let keepers = BlockingFinalizer::all(object, &target.object_ref);
    let keepers = keepers.iter().filter(|keeper| !keeper.ours).map(
        |BlockingFinalizer { name, removed_by, .. }| format!("{name} (removed by {removed_by})"),
    );
    keepers.collect::<Vec<_>>().join("; ")
}

/// A release in progress.
struct Release {
    target: TargetObject,
    snapshot: Snapshot,
    place: ObjectKey,
    observed: TargetState,
    limit: Duration,
}

impl Release {
    /// belay is running: the command requests a check from it.
    async fn ask_leader(&self) -> Result<Answer, CommandError> {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let UserSession { caller, me, .. } = &**session;
        let at = (object_ref.namespace.as_str(), object_ref.name.as_str());
        let what = object_ref.quoted();
        let asked = by_hand::ask(&caller.client, info, at, &self.observed, me.now).await;
        match asked {
            // belay released it before the request, or the next check reports the reason.
            Ok(()) | Err(ApiError::NotFound) => {}
            Err(ApiError::Status { message, .. }) if is_unasked(&message) => {
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
        let until = Instant::now() + self.limit;
        while Instant::now() < until {
            if let Some(done) = self.find_outcome().await? {
                return Ok(done);
            }
            tokio::time::sleep(LOOK).await;
        }
        // The previous leader may have died, and its Lease expired meanwhile.
        if let Ok(None) = self.target.session.leader().await {
            return self.release_without_leader().await;
        }
        let object =
            caller.object(info, at.0, at.1).await.map_err(|error| unread(&what, &error))?;
        let Some(object) = object else { return Ok(deleted_answer(&what)) };
        Ok(self.held(HoldState::count(&self.snapshot, &self.place, &object).await))
    }

    /// The leader did not respond to the request. If it has just died, its Lease expires
    /// soon, and then this command does the work.
    async fn wait_for_lease_expiry(&self, why: &str) -> Result<Answer, CommandError> {
        eprintln!("belay does not answer; if it is dead, its Lease expires within seconds");
        let until = Instant::now() + self.limit;
        loop {
            let next = match self.target.session.leader().await {
                Ok(None) => return self.release_without_leader().await,
                Ok(Some(_)) if Instant::now() < until => {
                    tokio::time::sleep(ASK).await;
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

    /// There is no leader: the command runs the same pass as the user.
    async fn release_without_leader(&self) -> Result<Answer, CommandError> {
        let Snapshot { context, reader, .. } = &self.snapshot;
        if !context.world.read().policies_current {
            return Err(CommandError::Remote(format!(
                "belay has no leader, and your rights do not suffice to release the hold: {}",
                unprotected(&self.target.session, &self.snapshot)
            )));
        }
        let (context, actor) = self.choose_actor().await;
        let outcome =
            by_hand::drive(&context, reader, &self.place, self.observed.clone(), self.limit).await;
        let unable = |why: &str| self.unsure(&format!("{why}; {}", actor.failure_text()));
        match outcome {
            ReleaseOutcome::Ended(_) => match self.find_outcome().await? {
                Some(done) => Ok(done.by(actor.account(), actor.done())),
                None => Ok(unable("it was changed meanwhile")),
            },
            ReleaseOutcome::Waits(Some(WaitReason::InUse(causes))) => {
                Ok(self.held(HoldState::new(UseCheck::InUse(causes), true)))
            }
            ReleaseOutcome::Waits(Some(WaitReason::Stranded)) => Ok(held(format!(
                "{} is still held: its Namespace was removed by force, and nothing in it can be \
                 written; next: re-create the Namespace",
                self.target.object_ref.quoted()
            ))),
            ReleaseOutcome::Waits(Some(WaitReason::Unknown(why))) => Ok(unable(&why)),
            ReleaseOutcome::Waits(None) => Ok(unable("the API server did not answer in time")),
        }
    }

    /// Chooses the account that does the work of a dead belay. Its webhooks with
    /// failurePolicy Fail refuse every write that they should review. Only the writes of
    /// its own account are not reviewed, so a user who may impersonate that account does.
    /// Other users write with their own rights, which is enough once the webhooks are
    /// deleted.
    async fn choose_actor(&self) -> (Context, Actor) {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let (context, account) = (&self.snapshot.context, session.own_user());
        match session.caller.acting_as(&account, info, &object_ref.namespace).await {
            Some(client) => (Context { client, ..context.clone() }, Actor::Belay(account)),
            None => (context.clone(), Actor::Own(self.impersonation_hint())),
        }
    }

    /// Who can write although the webhooks of a dead belay refuse.
    fn impersonation_hint(&self) -> String {
        let UserSession { installation: (namespace, _), account: name, .. } = &*self.target.session;
        format!(
            "while its webhooks do not answer, only a user with the RBAC verb impersonate on \
             serviceaccounts {name} in namespace {namespace} can do this, such as a cluster \
             administrator, with the same command"
        )
    }

    /// Whether the object would be released now.
    async fn preview(&self) -> Answer {
        let hold = HoldState::count(&self.snapshot, &self.place, &self.target.json).await;
        // A leader does not release the hold of every kind. Without one, this command does.
        let is_released = hold.free
            && (hold.released_by_belay || matches!(self.target.session.leader().await, Ok(None)));
        match is_released {
            true => {
                let why = hold.r#for.join(", ");
                removed_answer(&self.target, &self.target.json, Some(&why))
            }
            false => self.held(hold),
        }
    }

    /// Releases an object with enough approvals, because the user forces it.
    async fn by_force(&self, dry_run: bool) -> Result<Answer, CommandError> {
        let what = self.target.object_ref.quoted();
        if !self.snapshot.context.world.read().policies_current {
            let why = unprotected(&self.target.session, &self.snapshot);
            return Err(CommandError::Remote(format!("{what} cannot be released by force: {why}")));
        }
        if let Some(why) = unread_approvals(&self.snapshot) {
            return Err(CommandError::Remote(format!(
                "{what} cannot be released by force: its approvals cannot be read: {why}; next: \
                 have an administrator bind the RBAC verb list on deletionapprovals.belay.dev to \
                 {}, if that is what is missing",
                self.target.session.me.name
            )));
        }
        if let Err(why) = self.approved() {
            return Ok(held(format!(
                "{what} cannot be released by force: {why}; next: {}",
                approve_command(&self.target.object_ref, false)
            )));
        }
        if dry_run {
            let why = Some("enough users have approved");
            return Ok(removed_answer(&self.target, &self.target.json, why));
        }
        // A running belay checks the approvals again.
        let (context, actor) = match self.target.session.leader().await {
            Ok(None) => {
                let (context, actor) = self.choose_actor().await;
                (context, Some(actor))
            }
            Ok(Some(_)) | Err(_) => (self.snapshot.context.clone(), None),
        };
        let forced = by_hand::force(&context, &self.place, self.observed.clone()).await;
        forced.map_err(|why| {
            let next = actor
                .as_ref()
                .map_or_else(|| "next: try again in 20 seconds".to_owned(), Actor::failure_text);
            CommandError::Remote(format!("the hold of {what} could not be removed: {why}; {next}"))
        })?;
        match self.find_outcome().await? {
            Some(done) => Ok(match &actor {
                Some(actor) => done.by(actor.account(), actor.done()),
                None => done,
            }),
            None => Err(CommandError::Remote(format!("{what} has a hold again; next: try again"))),
        }
    }

    /// Whether enough users have approved. The error names what is missing.
    fn approved(&self) -> Result<(), String> {
        let world = self.snapshot.context.world.read();
        let situation = situation(&world);
        let object = &self.target.object_ref;
        let node = world.graph.object_by_ref(object).ok_or("it could not be read")?;
        let policies = holding_policies(&world, object);
        let item = JudgedObject::of_node(&situation, node);
        match sufficient_approvals(&situation, &item, &policies, ExemptionRecords::Ignored) {
            Some(approvals) if !approvals.is_empty() => Ok(()),
            Some(_) => Err("no approval of it is in effect".to_owned()),
            None => {
                let (given, required) = consent_to(&world, object, &policies)
                    .map_or((0, 1), |consent| (consent.people.len(), consent.terms.required));
                Err(format!("{given} of {required} users have approved it"))
            }
        }
    }

    /// The result, if the hold was removed.
    async fn find_outcome(&self) -> Result<Option<Answer>, CommandError> {
        let TargetObject { session, info, object_ref, .. } = &self.target;
        let what = object_ref.quoted();
        let object = session
            .caller
            .object(info, &object_ref.namespace, &object_ref.name)
            .await
            .map_err(|error| unread(&what, &error))?;
        let object = object.filter(|object| {
            object.pointer("/metadata/uid").and_then(Value::as_str) == Some(&self.observed.uid)
        });
        let Some(object) = object else { return Ok(Some(deleted_answer(&what))) };
        let is_held = finalizers_of(&object).iter().any(|finalizer| is_hold(finalizer));
        Ok((!is_held).then(|| removed_answer(&self.target, &object, None)))
    }

    /// The hold is still there.
    fn held(&self, hold: HoldState) -> Answer {
        let (what, typed) = (self.target.object_ref.quoted(), self.target.object_ref.arguments());
        let next = match hold.free {
            true => {
                "settleSeconds of its policies may not have passed yet; next: see belay's log, \
                     or try again"
                    .to_owned()
            }
            false => {
                let approve = approve_command(&self.target.object_ref, false);
                format!("next: kubectl belay why {typed}, or {approve}")
            }
        };
        let says = format!("{what} is Terminating: {hold}; {next}");
        match hold {
            HoldState { free: false, known: true, r#for, .. } => held(says).waiting(r#for),
            HoldState { known: true, .. } => held(says),
            HoldState { .. } => Answer::new(ReleaseState::Unknown, says),
        }
    }

    /// It is unknown whether something needs it.
    fn unsure(&self, why: &str) -> Answer {
        self.held(HoldState::unknown(why))
    }
}

/// The account that does the work of a dead belay.
enum Actor {
    /// belay's own account, with this name.
    Belay(String),
    /// The user's own rights, with a hint in case they are not enough.
    Own(String),
}

impl Actor {
    /// The impersonated account, if any.
    fn account(&self) -> Option<&str> {
        match self {
            Self::Belay(account) => Some(account),
            Self::Own(_) => None,
        }
    }

    /// The message after success.
    fn done(&self) -> String {
        let so = "belay has no leader, so this was done";
        match self {
            Self::Belay(account) => format!("{so} as {account}, by impersonation"),
            Self::Own(_) => format!("{so} with your own rights"),
        }
    }

    /// The message after a failure.
    fn failure_text(&self) -> String {
        match self {
            Self::Belay(_) => self.done(),
            Self::Own(takes) => format!("{}; {takes}", self.done()),
        }
    }
}

fn unread(what: &str, error: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot read {what}: {error}"))
}

fn deleted_answer(what: &str) -> Answer {
    Answer::new(ReleaseState::Gone, format!("{what} is gone"))
}

fn held(says: String) -> Answer {
    Answer::new(ReleaseState::Held, says)
}
