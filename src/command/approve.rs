//! `belay approve`: one person's reasoned, expiring yes, in one step.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ObjectMeta, PostParams};
use serde::Serialize;

use super::duration::{duration, told};
use super::screen::{Format, document};
use super::target::{
    Session, TargetArguments, as_me, right_to_approve, right_to_approve_content, situation, unknown,
};
use super::{CommandError, block_on, print};
use crate::cluster::Snapshot;
use crate::decide::{Blocker, Consent, Decision, Item, arguments, consent, sentence};
use crate::hold::keeping;
use crate::objects::{FOREGROUND, Object, split_api_version};
use crate::policy::api::{Action, DeletionApproval, DeletionApprovalSpec, Scope, TargetRef};
use crate::policy::{Facts, Policy};

/// How long an approval lasts where nobody says how long.
const USUAL: Duration = Duration::from_secs(1800);

#[derive(Debug, Args)]
pub struct ApproveArguments {
    #[command(flatten)]
    target: TargetArguments,

    /// Why: somebody will read it one day
    #[arg(long, value_name = "TEXT", required = true)]
    reason: String,

    /// The object alone, or also what lives in it and what certainly goes with
    /// it
    #[arg(long, value_name = "object|content", default_value = "object", ignore_case = true)]
    scope: ScopeArgument,

    /// For how long, such as 45s, 30m or 1h30m [default: 30m, or less if the
    /// policies allow less]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lasts: Option<Duration>,

    /// How the answer is written
    #[arg(
        short,
        long,
        value_name = "table|json|yaml",
        default_value = "table",
        ignore_case = true
    )]
    output: Format,
}

/// What was approved, and what is still missing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Approved {
    /// The name of the approval.
    name: String,
    /// The object, as a person types it.
    object: String,
    approver: String,
    reason: String,
    /// What it covers.
    scope: Scope,
    until: String,
    /// Whether it counts for the policies that refuse.
    counts: bool,
    /// The same in sentences, with what comes next.
    says: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArgument {
    /// The object alone
    Object,
    /// What lives in it and what certainly goes with it, too
    Content,
}

pub fn run(arguments: ApproveArguments) -> Result<ExitCode, CommandError> {
    if arguments.reason.trim().is_empty() {
        return Err(CommandError::Usage(
            "--reason is blank: say why, somebody will read it one day".to_owned(),
        ));
    }
    block_on(approve(arguments))?
}

async fn approve(arguments: ApproveArguments) -> Result<ExitCode, CommandError> {
    let ApproveArguments { target, reason, scope, lasts, output } = arguments;
    let session = target.open().await?;
    let content = scope == ScopeArgument::Content;
    // Nobody is locked out because policies cannot be read: the API server
    // checks an approval by itself.
    let (snapshot, unread) = match session.rules().await {
        Ok(snapshot) if snapshot.context.world.read().loaded => (Some(snapshot), None),
        Ok(snapshot) => (None, snapshot.unread().into_iter().next().map(|unread| unread.why)),
        Err(why) => (None, Some(why)),
    };
    let policies = match &snapshot {
        Some(snapshot) => refusing(&session, snapshot, content).await,
        None => Vec::new(),
    };
    let shortest = policies.iter().min_by_key(|policy| policy.approval.longest_seconds);
    let most = shortest.and_then(|policy| u64::try_from(policy.approval.longest_seconds).ok());
    let most = most.map(Duration::from_secs);
    let asked = lasts.unwrap_or(USUAL);
    let lasts = most.map_or(asked, |most| asked.min(most));
    let created = create(&session, &reason, content, lasts).await?;

    let name = created.metadata.name.clone().unwrap_or_default();
    let until = created.spec.expiration_time.0;
    let mut first = format!(
        "approved: {} may be deleted until {until} ({})",
        arguments_of(&session),
        told(lasts)
    );
    if let Some(policy) = shortest.filter(|_| lasts < asked) {
        first.push_str(&format!(
            "; {} is more than {} allows for one approval",
            told(asked),
            policy.source
        ));
    }
    let what = match content {
        true => "it, what lives in it and what certainly goes with it",
        false => "this object alone",
    };
    let second = format!(
        "approval {name} by {}, for {what}; made again under its name it is another object",
        session.me.name
    );
    let mut says = vec![first, second];
    if let Some(why) = unread {
        says.push(format!(
            "the policies cannot be read, so it is not known whether they ask for more: {}",
            as_me(&why)
        ));
    }
    let (mut counts, reason) = (true, created.spec.reason.clone());
    if let Some(snapshot) = &snapshot {
        snapshot.approve(created);
        let along = if content { None } else { along(&session, snapshot).await };
        match outcome(&session, snapshot, &policies) {
            None if along.is_some() => {}
            None => says.push("no policy protects it now: it needs no approval".to_owned()),
            Some(Consent { terms, people }) => {
                counts = people.contains(&session.me.name);
                let right = right(&session, content);
                says.push(missing(&session, &policies, terms.required, &people, &right));
            }
        }
        if let Some(refusal) = along {
            says.push(format!(
                "it cannot be deleted by this: {refusal}; next: kubectl belay approve {} --reason \
                 \"…\" --scope content",
                arguments_of(&session)
            ));
        }
        if let Some(why) = given_up(&session, snapshot).await {
            says.push(format!(
                "{why}, and the garbage collector was refused and tries again ever later; now \
                 delete it: kubectl delete {}",
                arguments_of(&session)
            ));
        }
    }
    let approved = Approved {
        name,
        object: arguments_of(&session),
        approver: session.me.name.clone(),
        reason,
        scope: if content { Scope::Content } else { Scope::Object },
        until: until.to_string(),
        counts,
        says,
    };
    print(&match document(output, "Approved", &approved)? {
        Some(document) => document,
        None => approved.says.join("\n") + "\n",
    })?;
    Ok(if counts { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn arguments_of(session: &Session) -> String {
    arguments(&session.target)
}

/// The policies of which the approval is to satisfy the terms: those of the
/// object; and with its content those of what would go along.
async fn refusing(session: &Session, snapshot: &Snapshot, content: bool) -> Vec<Policy> {
    let mut sources = Vec::new();
    if content {
        snapshot.objects(session.near()).await;
        if let Ok(verdict) = super::why::verdict(session, snapshot).await {
            let along = verdict.blockers.into_iter().filter(|blocker| blocker.along);
            sources.extend(along.flat_map(|blocker| blocker.policies));
        }
    }
    let world = snapshot.context.world.read();
    let Some((kind, namespace, name)) = session.place(&world) else { return Vec::new() };
    let situation = situation(&world);
    if let Some(node) = world.graph.object(kind, &namespace, &name) {
        let applied = situation.applied(Facts::of_node(node));
        let enforcing = applied.iter().filter(|applied| applied.action == Action::Deny);
        sources.extend(enforcing.map(|applied| applied.policy.source.clone()));
        // A pause lets people delete; what is held by then is held on.
        if session.terminating().is_some() {
            let keeping = keeping(&situation, Facts::of_node(node));
            sources.extend(keeping.iter().map(|applied| applied.policy.source.clone()));
        }
    }
    let policies = world.policies.iter().filter(|policy| sources.contains(&policy.source));
    policies.cloned().collect()
}

/// What a DELETE would take along that an approval of the object alone does not
/// cover: whoever gave one reads it here, and not in the next refusal.
async fn along(session: &Session, snapshot: &Snapshot) -> Option<String> {
    if session.terminating().is_some() {
        return None;
    }
    snapshot.objects(session.near()).await;
    let verdict = super::why::verdict(session, snapshot).await.ok()?;
    let refuses = |blocker: &&Blocker| blocker.along && blocker.outcome == Decision::Deny;
    let blocker = verdict.blockers.iter().find(refuses)?;
    Some(as_me(&sentence(&verdict.target, blocker)))
}

/// Who has approved by now, against what is asked for.
fn outcome(session: &Session, snapshot: &Snapshot, policies: &[Policy]) -> Option<Consent> {
    let world = snapshot.context.world.read();
    let (kind, namespace, name) = session.place(&world)?;
    let situation = situation(&world);
    let node = world.graph.object(kind, &namespace, &name)?;
    let policies: Vec<&Policy> = policies.iter().collect();
    consent(&situation, &Item::of_node(&situation, node), &policies)
}

/// How many are missing, and who they may be.
fn missing(
    session: &Session,
    policies: &[Policy],
    required: usize,
    people: &[String],
    right: &str,
) -> String {
    let strictest = policies.iter().max_by_key(|policy| policy.approval.required);
    let by = strictest.map_or(String::new(), |policy| policy.source.to_string());
    if !people.contains(&session.me.name) {
        let names: Vec<String> = policies.iter().map(|policy| policy.source.to_string()).collect();
        return format!(
            "it does not count: {} is a service account, and approval.serviceAccounts of {} does \
             not list it; a person approves, with {right}",
            session.me.name,
            names.join(", ")
        );
    }
    match required.saturating_sub(people.len()) {
        0 => format!("enough people have approved ({} of {required})", people.len()),
        left => {
            let more = if left == 1 {
                "1 more person has".to_owned()
            } else {
                format!("{left} more people have")
            };
            format!(
                "{more} to approve: {by} asks for {required}, and so far it is {}; it takes {right}",
                people.join(", ")
            )
        }
    }
}

async fn create(
    session: &Session,
    reason: &str,
    content: bool,
    lasts: Duration,
) -> Result<DeletionApproval, CommandError> {
    let target = &session.target;
    let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
    let until = session.me.now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    let spec = DeletionApprovalSpec {
        target_ref: TargetRef {
            group: target.group.clone(),
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: session.uid().to_owned(),
        },
        approver: session.me.name.clone(),
        reason: reason.to_owned(),
        expiration_time: Time(until),
        scope: if content { Scope::Content } else { Scope::Object },
        exempts: Vec::new(),
    };
    let mut approval = DeletionApproval::new("", spec);
    let generate_name = Some(beginning(&format!("{}-{}", target.resource, target.name)));
    approval.metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
    let api: Api<DeletionApproval> = Api::all(session.caller.client.clone());
    let created = api.create(&PostParams::default(), &approval).await;
    created.map_err(|error| refused(session, content, error))
}

/// The beginning of a name, readable and sound whatever the object is called.
fn beginning(text: &str) -> String {
    let sound = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let text: String = text.chars().map(sound).take(48).collect();
    format!("{}-", text.trim_matches('-'))
}

/// The right that it takes to approve this.
fn right(session: &Session, content: bool) -> String {
    match content {
        true => right_to_approve_content(&session.target),
        false => right_to_approve(&session.target),
    }
}

/// What the API server says, with what next.
fn refused(session: &Session, content: bool, error: kube::Error) -> CommandError {
    let kube::Error::Api(status) = error else {
        return unknown(format!("cannot create the approval: {}", crate::cluster::said(&error)));
    };
    // What a ValidatingAdmissionPolicy says comes after words of the API
    // server's own.
    let said = status.message.rsplit_once("denied request: ").map(|(_, said)| said);
    let right = right(session, content);
    CommandError::Refused(match (status.code, said) {
        (403, Some(said)) if said.contains("approve-deletion") => format!(
            "{said}; next: ask somebody who has it, or have an administrator bind {right} to {}",
            session.me.name
        ),
        (_, Some(said)) if said.contains("expirationTime") => {
            format!("{said}; next: choose another --for")
        }
        (_, Some(said)) => said.to_owned(),
        (403, None) => format!(
            "{} may not create approvals; next: have an administrator bind the RBAC verb create on \
             deletionapprovals.belay.dev to {0}, beside {right}",
            session.me.name
        ),
        (404, None) => "the kind deletionapprovals.belay.dev is not installed; next: belay admin \
                        crds | kubectl apply -f -"
            .to_owned(),
        _ => return unknown(format!("cannot create the approval: {}", status.message)),
    })
}

/// Why a collector that was refused does not come again: somebody has to send
/// the DELETE.
async fn given_up(session: &Session, snapshot: &Snapshot) -> Option<String> {
    let text = session.object.to_string();
    let object: Object<'_> = serde_json::from_str(&text).ok()?;
    if object.is_terminating() || object.metadata.owner_references.is_empty() {
        return None;
    }
    let mut said = None;
    for reference in &object.metadata.owner_references {
        let (group, _) = split_api_version(&reference.api_version);
        let info = {
            let kinds = &snapshot.context.world.read().graph.kinds;
            kinds.info(kinds.find(group, &reference.kind)?).clone()
        };
        let place = if info.namespaced { session.target.namespace.as_str() } else { "" };
        let name = reference.name.as_str();
        let owner = session.caller.object(&info, place, name).await.ok()?;
        let text = |pointer: &str| owner.as_ref()?.pointer(pointer)?.as_str();
        let foreground = owner.as_ref().and_then(|owner| owner.pointer("/metadata/finalizers"));
        let foreground = foreground.and_then(|list| list.as_array()).into_iter().flatten();
        if text("/metadata/uid") != Some(reference.uid.as_str()) {
            said = Some(format!("its owner {} {name} is gone", reference.kind));
        } else if text("/metadata/deletionTimestamp").is_some()
            && foreground.filter_map(|f| f.as_str()).any(|f| f == FOREGROUND)
        {
            said = Some(format!(
                "its owner {} {name} is being deleted and waits for it",
                reference.kind
            ));
        } else {
            return None;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_approval_is_sound_whatever_the_object_is_called() {
        assert_eq!(beginning("configmaps-settings"), "configmaps-settings-");
        assert_eq!(beginning("clusterroles-system:node.x"), "clusterroles-system-node-x-");
        assert!(beginning(&"a".repeat(300)).len() < 60);
    }
}
