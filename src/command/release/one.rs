//! One held, Terminating object: it is looked at now, and what came of it is
//! said.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::said::{Answer, State};
use crate::cluster::election::LeaderInfo;
use crate::cluster::release::by_hand::{self, Outcome};
use crate::cluster::{Context, Place, Snapshot};
use crate::command::CommandError;
use crate::command::hold_state::{cause_text, why_free};
use crate::command::refusal::is_unasked;
use crate::command::screen::Format;
use crate::command::target::{Session, TargetArguments, approvals_unread, situation, unprotected};
use crate::command::visitor::Visitor;
use crate::decide::{Cause, ExemptionRecords, Item, required_approvals, sufficient_approvals};
use crate::hold::{Count, TargetState, Waiting, keeping_policies};
use crate::objects::{ApiError, is_hold};
use crate::policy::{ObjectFacts, Policy};

/// How often it is looked whether belay's Lease has run out.
const ASK: Duration = Duration::from_secs(1);

/// How often it is looked whether the object is gone.
const LOOK: Duration = Duration::from_millis(250);

pub async fn release(
    target: TargetArguments,
    limit: Duration,
    force: Option<String>,
    output: Format,
) -> Result<ExitCode, CommandError> {
    let session = target.open().await?;
    if let Some(name) = force.as_ref().filter(|name| **name != session.target.name) {
        return Err(CommandError::Usage(format!(
            "--force={name} is not the name of {}; type exactly --force={}",
            session.target.quoted(),
            session.target.name
        )));
    }
    let object = session.named();
    let answer = match not_held(&session) {
        Some(why) => Answer::new(State::NotHeld, why),
        None => look(session, limit, force.is_some()).await?,
    };
    answer.told(object, output)
}

/// Has it looked at, and says what came of it. An error: that could not be tried.
async fn look(session: Session, limit: Duration, force: bool) -> Result<Answer, CommandError> {
    let Some(sight) = TargetState::read(&session.object) else {
        return Err(CommandError::Remote("the API server's answer is no object".to_owned()));
    };
    let snapshot = session.rules().await?;
    let Some(place) = session.place(&snapshot.context.world.read()) else {
        return Err(CommandError::Remote(
            "its kind has only just appeared; next: try again".to_owned(),
        ));
    };
    let work = Work { session, snapshot, place, sight, limit };
    if force {
        return work.by_force().await;
    }
    match work.session.visitor.leader().await {
        Ok(None) => work.alone().await,
        // Whoever may not read the Lease may still ask: if nobody hears, that
        // is what is said in the end.
        Ok(Some(_)) | Err(_) => work.ask().await,
    }
}

/// Why there is nothing to release, and what next.
fn not_held(session: &Session) -> Option<String> {
    let (what, typed) = (session.target.quoted(), session.target.arguments());
    if session.terminating().is_none() {
        return Some(format!(
            "{what} is not Terminating, so there is nothing to release; next: kubectl delete \
             {typed}, or kubectl belay why {typed}"
        ));
    }
    if session.finalizers().any(is_hold) {
        return None;
    }
    let others: Vec<&str> = session.finalizers().collect();
    Some(match others[..] {
        [] => format!(
            "{what} is Terminating and belay does not hold it; next: kubectl belay why {typed}"
        ),
        _ => format!(
            "{what} is Terminating and not held by belay, but by {}; next: kubectl belay why {typed} \
             says who takes that off",
            others.join(", ")
        ),
    })
}

/// A release, with what it takes.
struct Work {
    session: Session,
    snapshot: Snapshot,
    place: Place,
    sight: TargetState,
    limit: Duration,
}

impl Work {
    /// Belay lives: it is asked, and does it.
    async fn ask(&self) -> Result<Answer, CommandError> {
        let Session { visitor: Visitor { caller, me, .. }, info, target, .. } = &self.session;
        let at = (target.namespace.as_str(), target.name.as_str());
        let what = target.quoted();
        let asked = caller.ask_for_release(info, at, &self.sight.uid, me.now).await;
        match asked {
            // It was let go of before anybody asked, or the next look says so.
            Ok(()) | Err(ApiError::NotFound) => {}
            Err(ApiError::Status { message, .. }) if is_unasked(&message) => {
                return self.unheard(&message).await;
            }
            Err(error) => {
                let next = match &error {
                    ApiError::Forbidden(_) => "it takes the RBAC verb patch on it",
                    _ => "next: try again",
                };
                return Err(CommandError::Remote(format!(
                    "cannot ask belay to look at {what}: {error}; {next}"
                )));
            }
        }
        let until = Instant::now() + self.limit;
        while Instant::now() < until {
            if let Some(done) = self.done().await? {
                return Ok(done);
            }
            tokio::time::sleep(LOOK).await;
        }
        // Whoever led may have died, and its Lease run out meanwhile.
        if let Ok(None) = self.session.visitor.leader().await {
            return self.alone().await;
        }
        let Snapshot { context, reader, .. } = &self.snapshot;
        let object =
            caller.object(info, at.0, at.1).await.map_err(|error| unread(&what, &error))?;
        let Some(object) = object else { return Ok(gone(&what)) };
        Ok(match by_hand::look(context, reader, &self.place, &object).await {
            Count::Kept(causes) => self.waits(&causes),
            Count::Unknown(why) => self.unsure(&why.to_string()),
            Count::Free(free) => held(format!(
                "{what} is still held, and {}: settleSeconds of its policies may not have passed \
                 yet; next: see belay's log, or try again",
                why_free(free)
            )),
            Count::Read(_) => self.unsure("what may need it could not be read in time"),
        })
    }

    /// Belay was asked and nothing came of it. If it has just died, its Lease
    /// runs out in a moment, and then its work is anybody's.
    async fn unheard(&self, why: &str) -> Result<Answer, CommandError> {
        eprintln!("belay does not answer; if it is dead, its Lease runs out within seconds");
        let until = Instant::now() + self.limit;
        loop {
            let next = match self.session.visitor.leader().await {
                Ok(None) => return self.alone().await,
                Ok(Some(_)) if Instant::now() < until => {
                    tokio::time::sleep(ASK).await;
                    continue;
                }
                Ok(Some(LeaderInfo { replica: name, .. })) => format!(
                    "{name} renews belay's Lease all the same; next: see its log, and try again"
                ),
                Err(why) => {
                    format!("cannot read who leads belay: {why}; {}", self.takes())
                }
            };
            return Err(CommandError::Remote(format!(
                "cannot ask belay to look at {}: {why}; {next}",
                self.session.target.quoted()
            )));
        }
    }

    /// Nobody leads: the same pass, by the one who asks.
    async fn alone(&self) -> Result<Answer, CommandError> {
        let Snapshot { context, reader, .. } = &self.snapshot;
        if !context.world.read().known {
            return Err(CommandError::Remote(format!(
                "nobody leads belay, and you cannot do its work: {}",
                unprotected(&self.session, &self.snapshot)
            )));
        }
        let (context, hand) = self.hand().await;
        let outcome =
            by_hand::drive(&context, reader, &self.place, self.sight.clone(), self.limit).await;
        let unable = |why: &str| self.unsure(&format!("{why}; {}", hand.says()));
        match outcome {
            Outcome::Ended(_) => match self.done().await? {
                Some(done) => Ok(done.by(hand.account(), hand.done())),
                None => Ok(unable("somebody has changed it meanwhile")),
            },
            Outcome::Waits(Some(Waiting::For(causes))) => Ok(self.waits(&causes)),
            Outcome::Waits(Some(Waiting::Stranded)) => Ok(held(format!(
                "{} is still held: its Namespace was forced away, and nothing in it can be \
                 written; next: make the Namespace again",
                self.session.target.quoted()
            ))),
            Outcome::Waits(Some(Waiting::Unknown(why))) => Ok(unable(&why)),
            Outcome::Waits(None) => Ok(unable("the API server did not answer in time")),
        }
    }

    /// By whose hand the work of a dead belay is done. Its webhooks refuse
    /// every write that they should be asked about, and are not asked about its
    /// own account's alone; so whoever may be that account is. Everybody else
    /// writes with their own rights, which is enough once the webhooks are gone.
    async fn hand(&self) -> (Context, Hand) {
        let Session { visitor: Visitor { caller, .. }, info, target, .. } = &self.session;
        let (context, account) = (&self.snapshot.context, self.session.visitor.own_user());
        match caller.acting_as(&account, info, &target.namespace).await {
            Some(client) => (Context { client, ..context.clone() }, Hand::Belay(account)),
            None => (context.clone(), Hand::Own(self.takes())),
        }
    }

    /// Who gets past the webhooks of a dead belay.
    fn takes(&self) -> String {
        let Visitor { installation: (namespace, _), account: name, .. } = &self.session.visitor;
        format!(
            "while its webhooks do not answer it takes somebody with the RBAC verb impersonate on \
             serviceaccounts {name} in namespace {namespace}, such as a cluster administrator, who \
             types the same"
        )
    }

    /// Enough people have approved, and the one who asks knows what it is.
    async fn by_force(&self) -> Result<Answer, CommandError> {
        let (what, typed) = (self.session.target.quoted(), self.session.target.arguments());
        if !self.snapshot.context.world.read().known {
            let why = unprotected(&self.session, &self.snapshot);
            return Err(CommandError::Remote(format!("{what} cannot be released by force: {why}")));
        }
        if let Some(why) = approvals_unread(&self.snapshot) {
            return Err(CommandError::Remote(format!(
                "{what} cannot be released by force: it is not known who has approved it: {why}; \
                 next: it takes the RBAC verb list on deletionapprovals.belay.dev; have an \
                 administrator bind it to {}, if that is what is missing",
                self.session.visitor.me.name
            )));
        }
        if let Err(why) = self.approved() {
            return Ok(held(format!(
                "{what} cannot be released by force: {why}; next: kubectl belay approve {typed} \
                 --reason \"…\""
            )));
        }
        // A belay that lives checks the approvals once more.
        let (context, hand) = match self.session.visitor.leader().await {
            Ok(None) => {
                let (context, hand) = self.hand().await;
                (context, Some(hand))
            }
            Ok(Some(_)) | Err(_) => (self.snapshot.context.clone(), None),
        };
        let forced = by_hand::force(&context, &self.place, self.sight.clone()).await;
        forced.map_err(|why| {
            let next = hand.as_ref().map_or_else(
                || "next: try again; if belay has just died, in 20 seconds".to_owned(),
                Hand::says,
            );
            CommandError::Remote(format!(
                "the hold of {what} could not be taken off: {why}; {next}"
            ))
        })?;
        match self.done().await? {
            Some(done) => Ok(match &hand {
                Some(hand) => done.by(hand.account(), hand.done()),
                None => done,
            }),
            None => Err(CommandError::Remote(format!(
                "the hold of {what} is there again; next: try again"
            ))),
        }
    }

    /// Whether enough people have approved; if not, what is missing.
    fn approved(&self) -> Result<(), String> {
        let world = self.snapshot.context.world.read();
        let situation = situation(&world);
        let (kind, namespace, name) = &self.place;
        let node = world.graph.object(*kind, namespace, name);
        let node = node.ok_or("it could not be read")?;
        let keeping = keeping_policies(&situation, ObjectFacts::of_node(node));
        let policies: Vec<&Policy> = keeping.iter().map(|applied| applied.policy).collect();
        let item = Item::of_node(&situation, node);
        match sufficient_approvals(&situation, &item, &policies, ExemptionRecords::Ignored) {
            Some(approvals) if !approvals.is_empty() => Ok(()),
            Some(_) => Err("no approval of it is in force".to_owned()),
            None => {
                let (given, required) = required_approvals(&situation, &item, &policies)
                    .map_or((0, 1), |consent| (consent.people.len(), consent.terms.required));
                Err(format!("{given} of {required} people have approved it"))
            }
        }
    }

    /// What has become of it, if the hold is off.
    async fn done(&self) -> Result<Option<Answer>, CommandError> {
        let Session { visitor: Visitor { caller, .. }, info, target, .. } = &self.session;
        let what = target.quoted();
        let object = caller
            .object(info, &target.namespace, &target.name)
            .await
            .map_err(|error| unread(&what, &error))?;
        let object = object.filter(|object| {
            object.pointer("/metadata/uid").and_then(Value::as_str) == Some(&self.sight.uid)
        });
        let Some(object) = object else { return Ok(Some(gone(&what))) };
        let left = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let left: Vec<&str> = left.into_iter().flatten().filter_map(Value::as_str).collect();
        Ok((!left.iter().any(|finalizer| is_hold(finalizer))).then(|| {
            let says = match left.is_empty() {
                true => format!("the hold of {what} is off, and it goes"),
                false => format!(
                    "the hold of {what} is off; it is still kept by {}: kubectl belay why {} says \
                     who takes that off",
                    left.join(", "),
                    target.arguments()
                ),
            };
            Answer::new(State::Released, says).kept(&left)
        }))
    }

    /// Somebody needs it.
    fn waits(&self, causes: &[Cause]) -> Answer {
        let typed = self.session.target.arguments();
        let causes: Vec<String> = causes.iter().map(cause_text).collect();
        let says = format!(
            "{} is still held: it waits for {}; next: kubectl belay why {typed}, or kubectl belay \
             approve {typed} --reason \"…\"",
            self.session.target.quoted(),
            causes.join(", ")
        );
        held(says).waiting(causes)
    }

    /// Nobody knows whether somebody does.
    fn unsure(&self, why: &str) -> Answer {
        let typed = self.session.target.arguments();
        let says = format!(
            "{} is still held: it is not known whether it may go: {why}; next: kubectl belay why \
             {typed}, or kubectl belay approve {typed} --reason \"…\"",
            self.session.target.quoted()
        );
        Answer::new(State::Unknown, says)
    }
}

/// By whose hand the work of a dead belay is done.
enum Hand {
    /// As belay's own account, of this name.
    Belay(String),
    /// With one's own rights; and what it takes where they are not enough.
    Own(String),
}

impl Hand {
    /// As whom, if not as oneself.
    fn account(&self) -> Option<&str> {
        match self {
            Self::Belay(account) => Some(account),
            Self::Own(_) => None,
        }
    }

    /// What is said when it was enough.
    fn done(&self) -> String {
        let so = "nobody leads belay, so this was done";
        match self {
            Self::Belay(account) => format!("{so} as {account}, as you may"),
            Self::Own(_) => format!("{so} with your own rights"),
        }
    }

    /// What is said when it was not.
    fn says(&self) -> String {
        match self {
            Self::Belay(_) => self.done(),
            Self::Own(takes) => format!("{}; {takes}", self.done()),
        }
    }
}

fn unread(what: &str, error: &ApiError) -> CommandError {
    CommandError::Remote(format!("cannot read {what}: {error}"))
}

fn gone(what: &str) -> Answer {
    Answer::new(State::Gone, format!("{what} is gone"))
}

fn held(says: String) -> Answer {
    Answer::new(State::Held, says)
}
