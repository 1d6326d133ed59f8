//! `belay approve`: approves the deletion of objects.

mod outcome;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ObjectMeta, PostParams};
use schemars::JsonSchema;
use serde::Serialize;

use self::outcome::{ApprovalEffect, missing_approvals, read_consent};
use super::CommandError;
use super::diagnosis::{
    denies, holding_policies, orphaning_blockers, policy_message, right_to_approve,
    verdict_on_delete, verdict_on_orphaning,
};
use super::document::Object;
use super::duration::{format_duration, parse_duration};
use super::place::SourceArguments;
use super::reason::parse_reason;
use super::report::{FormatArguments, ObjectReport, Report, View, print_each};
use super::target::{TargetArguments, TargetObject, Targets, read_rules, situation};
use super::webhooks::not_installed_text;
use crate::cluster::Snapshot;
use crate::objects::{ApiError, Uid};
use crate::policy::api::{Action, DeletionApproval, DeletionApprovalSpec, Scope, TargetRef};
use crate::policy::{ObjectFacts, Policy};

/// The default lifetime of an approval.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(1800);

#[derive(Debug, Args)]
pub struct ApproveArguments {
    #[command(flatten)]
    targets: TargetArguments,

    /// The reason, for the record
    #[arg(long, value_name = "TEXT", required = true, value_parser = parse_reason)]
    reason: String,

    /// What the approval covers. A denial prints the command with the scope that it needs
    #[arg(long, value_name = "object|content", default_value = "object", ignore_case = true)]
    scope: ScopeArgument,

    /// How long the approval is valid, for example 45s, 30m or 1h30m [default: 30m, or
    /// less if a policy allows less]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<Duration>,

    #[command(flatten)]
    output: FormatArguments,
}

/// What was approved, and what is still missing.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Approved")]
pub struct ApproveOutput {
    /// The name of the approval.
    name: String,
    /// The object that may be deleted. The approval does not apply to a re-created object.
    object: Object,
    /// The approver.
    approver: String,
    /// The reason that the approver gave.
    reason: String,
    /// The scope of the approval.
    scope: Scope,
    /// The expiry.
    until: String,
    /// Whether the approval counts for the policies that refuse.
    counts: bool,
    /// The output for people, with the next step.
    lines: Vec<String>,
}

impl Report for ApproveOutput {
    const KIND: &'static str = "Approved";

    fn text(&self, _: View) -> String {
        self.lines.join("\n") + "\n"
    }

    /// 1 if the approval does not count.
    fn exit_code(&self) -> u8 {
        u8::from(!self.counts)
    }
}

impl ObjectReport for ApproveOutput {
    const LIST: &'static str = "ApprovedList";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArgument {
    /// Only the object. This also approves the deletion of a Namespace or CRD that is not empty. If
    /// a policy denies the deletion of an object that would be deleted as well, belay still denies
    /// the DELETE
    Object,
    /// The object and everything that is deleted with it, even if a policy protects one of these.
    /// With --cascade=orphan, also the dependents that lose their owner: you need this scope if a
    /// policy protects a dependent with fromOrphaning
    Content,
}

pub async fn run(arguments: ApproveArguments) -> Result<ExitCode, CommandError> {
    let ApproveArguments { targets, reason, scope, lasts, output } = arguments;
    let Targets { session, objects, unread } = targets.read(&SourceArguments::default()).await?;
    // If one object can't be read, the command approves none.
    let mut unread: Vec<CommandError> = unread.into_iter().map(|unread| unread.error).collect();
    if let Some(last) = unread.pop() {
        unread.iter().for_each(CommandError::print);
        return Err(last);
    }
    let content = scope == ScopeArgument::Content;
    // The command can approve without the policies, because the API server checks the approval
    // as well.
    let (snapshot, unread) = match read_rules(&session, &objects).await {
        Ok(snapshot) if snapshot.context.world.read().loaded => (Some(snapshot), None),
        Ok(snapshot) => (None, snapshot.unread().into_iter().next().map(|unread| unread.why)),
        Err(error) => (None, Some(ApiError::Other(error.to_string()))),
    };
    let mut requests = Vec::new();
    for target in &objects {
        let policies = match &snapshot {
            Some(snapshot) => policies_to_satisfy(target, snapshot, content).await,
            None => Vec::new(),
        };
        requests.push(Request::new(target, policies, &reason, content, lasts));
    }
    if let [_, _, ..] = requests[..] {
        for request in &requests {
            request.create(true).await?;
        }
    }
    let (mut created, mut failed) = (Vec::new(), None);
    for request in &requests {
        match request.create(false).await {
            Ok(approval) => created.push(approval),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if let Some(snapshot) = &snapshot {
        created.iter().cloned().for_each(|approval| snapshot.add_approval(approval));
    }
    let mut reports = Vec::new();
    for (request, approval) in requests.iter().zip(created) {
        reports.push(request.report(approval, snapshot.as_ref(), unread.as_ref()).await);
    }
    match failed {
        Some(error) if reports.is_empty() => Err(error),
        // Some approvals were created before the failure, so the command prints them.
        Some(error) => print_each(reports, Vec::new(), output.output).and(Err(error)),
        None => print_each(reports, Vec::new(), output.output),
    }
}

/// Approves a deletion that has begun, unless the user has already approved it. The approval of a
/// Namespace covers its content. Returns the text for the user.
pub async fn approve_release(
    target: &TargetObject,
    reason: &str,
) -> Result<Vec<String>, CommandError> {
    let content = target.object_ref.is_namespace();
    let (snapshot, policies) = policies_of_release(target).await;
    if snapshot.as_ref().is_some_and(|snapshot| is_approved(target, snapshot, &policies, content)) {
        return Ok(vec!["its deletion is already approved".to_owned()]);
    }
    let request = Request::new(target, policies, reason, content, None);
    let approval = request.create(false).await?;
    if let Some(snapshot) = &snapshot {
        snapshot.add_approval(approval.clone());
    }
    Ok(request.report(approval, snapshot.as_ref(), None).await.lines)
}

/// Whether an approval of the user covers the deletion and counts. An approval that expires after
/// the deletion began stays in force.
fn is_approved(
    target: &TargetObject,
    snapshot: &Snapshot,
    policies: &[Policy],
    content: bool,
) -> bool {
    let world = snapshot.context.world.read();
    world.policies.approvals.of_uid(Uid::new(target.uid())).iter().any(|given| {
        given.approver == target.session.me.name
            && (given.content || !content)
            && Policy::reason_not_counted(given, policies).is_none()
    })
}

/// Checks that the user may approve a deletion that has begun, but creates no approval. Returns why
/// the approval would not be enough; `None` if it would be, or if the policies can't be read.
pub async fn check_release(
    target: &TargetObject,
    reason: &str,
) -> Result<Option<String>, CommandError> {
    let content = target.object_ref.is_namespace();
    let (snapshot, policies) = policies_of_release(target).await;
    let consent = snapshot.and_then(|snapshot| read_consent(target, &snapshot, &policies));
    let missing =
        consent.and_then(|consent| missing_approvals(&target.session.me.name, &policies, &consent));
    Request::new(target, policies, reason, content, None).create(true).await?;
    Ok(missing)
}

/// The policies whose terms the approval of a release must satisfy.
async fn policies_of_release(target: &TargetObject) -> (Option<Snapshot>, Vec<Policy>) {
    let content = target.object_ref.is_namespace();
    let snapshot = read_rules(&target.session, std::slice::from_ref(target)).await.ok();
    let snapshot = snapshot.filter(|snapshot| snapshot.context.world.read().loaded);
    let policies = match &snapshot {
        Some(snapshot) => policies_to_satisfy(target, snapshot, content).await,
        None => Vec::new(),
    };
    (snapshot, policies)
}

/// An approval to create.
struct Request<'a> {
    target: &'a TargetObject,
    /// The policies whose terms the approval must satisfy.
    policies: Vec<Policy>,
    reason: &'a str,
    content: bool,
    /// The requested lifetime. `None`: the default.
    requested: Option<Duration>,
    /// The lifetime that the policies allow.
    lifetime: Duration,
}

impl<'a> Request<'a> {
    fn new(
        target: &'a TargetObject,
        policies: Vec<Policy>,
        reason: &'a str,
        content: bool,
        lasts: Option<Duration>,
    ) -> Self {
        let longest = lasts.unwrap_or(DEFAULT_LIFETIME);
        let max = policies.iter().map(|policy| policy.approval.longest_seconds).min();
        let max = max.and_then(|max| u64::try_from(max).ok()).map(Duration::from_secs);
        let lifetime = max.map_or(longest, |max| longest.min(max));
        Self { target, policies, reason, content, requested: lasts, lifetime }
    }

    /// Creates the approval, or with `dry_run` asks whether the API server would accept it.
    async fn create(&self, dry_run: bool) -> Result<DeletionApproval, CommandError> {
        let Self { target, reason, content, lifetime, .. } = *self;
        let object = &target.object_ref;
        let spec = DeletionApprovalSpec {
            target_ref: TargetRef::new(object, target.uid()),
            approver: target.session.me.name.clone(),
            reason: reason.to_owned(),
            expiration_time: Time(target.session.end_of(lifetime)),
            scope: if content { Scope::Content } else { Scope::Object },
            exempts: Vec::new(),
        };
        let mut approval = DeletionApproval::new("", spec);
        let generate_name = Some(name_prefix(&format!("{}-{}", object.resource, object.name)));
        approval.metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
        let api: Api<DeletionApproval> = Api::all(target.session.caller.client.clone());
        let parameters = PostParams { dry_run, ..PostParams::default() };
        let created = api.create(&parameters, &approval).await;
        created.map_err(|error| refusal_error(target, content, error))
    }

    /// The report on the created approval. `unread`: why the policies could not be read.
    async fn report(
        &self,
        created: DeletionApproval,
        snapshot: Option<&Snapshot>,
        unread: Option<&ApiError>,
    ) -> ApproveOutput {
        let Self { target, policies, content, requested, lifetime, .. } = self;
        let name = created.metadata.name.unwrap_or_default();
        let effect = match snapshot {
            Some(snapshot) => {
                ApprovalEffect::new(target, snapshot, policies, (&name, *content)).await
            }
            None => ApprovalEffect::default(),
        };
        let until = created.spec.expiration_time.0;
        let subject = target.object_ref.arguments();
        let subject = if effect.passes { subject + " may be deleted" } else { subject + "," };
        let strictest = policies.iter().min_by_key(|policy| policy.approval.longest_seconds);
        let limiting = strictest.filter(|_| *lifetime < requested.unwrap_or(DEFAULT_LIFETIME));
        let limit = limiting.map_or_else(String::new, |policy| {
            let instead = requested.map_or_else(String::new, |requested| {
                format!(" instead of {}", format_duration(requested))
            });
            format!(
                "{instead}, because {} allows no longer approval; to extend it, approve again",
                policy.source
            )
        });
        let lasts = format_duration(*lifetime);
        let first = format!("approved: {subject} until {until} ({lasts}{limit})");
        let object = &target.object_ref;
        let what = match (content, object.resource.as_str()) {
            (true, _) => "the object and everything that is deleted with it",
            (false, _) if object.is_namespace() => {
                "this Namespace, which is deleted with all objects in it"
            }
            (false, "customresourcedefinitions") => {
                "this CRD, which is deleted with all objects of its kind"
            }
            (false, _) => "this object alone",
        };
        let approver = target.session.me.name.clone();
        let second = format!(
            "approval {name} by {approver}, for {what}; it does not cover a new object of the \
             same name"
        );
        let mut lines = vec![first, second];
        lines.extend(unread.map(|why| {
            format!(
                "the policies cannot be read, so it is unknown whether they require more approvals or \
                 a shorter duration: {why}"
            )
        }));
        lines.extend(effect.sentences);
        ApproveOutput {
            name,
            object: target.document(),
            approver,
            reason: created.spec.reason,
            scope: created.spec.scope,
            until: until.to_string(),
            counts: effect.counts,
            lines,
        }
    }
}

/// The policies whose terms the approval must satisfy: the policies of the object. For an
/// approval with its content, also the policies of the objects that are deleted as well.
async fn policies_to_satisfy(
    target: &TargetObject,
    snapshot: &Snapshot,
    content: bool,
) -> Vec<Policy> {
    let mut sources = Vec::new();
    if content && let Ok(verdict) = verdict_on_delete(target, snapshot).await {
        let content_blockers =
            verdict.blockers.into_iter().filter(|blocker| blocker.covered_by_content_approval);
        sources.extend(content_blockers.flat_map(|blocker| blocker.policies));
    }
    if let Some(verdict) = verdict_on_orphaning(target, snapshot).await {
        let covered = orphaning_blockers(&verdict)
            .filter(|blocker| content || !blocker.covered_by_content_approval);
        sources.extend(covered.flat_map(|blocker| blocker.policies.iter().cloned()));
    }
    let world = snapshot.context.world.read();
    if let Some(node) = world.graph.object_by_ref(&target.object_ref) {
        // The policies apply again after a Pause, so the approval must satisfy them.
        let applied = situation(&world).policies_ignoring_pause(ObjectFacts::of_node(node));
        let enforcing = applied.iter().filter(|applied| applied.action == Action::Deny);
        sources.extend(enforcing.map(|applied| applied.policy.source.clone()));
        // A pause does not release holds, so a Terminating object also needs the approvals that
        // its hold requires.
        if target.terminating_since().is_some() {
            let holding = holding_policies(&world, &target.object_ref);
            sources.extend(holding.into_iter().map(|policy| policy.source.clone()));
            // The content of a Terminating Namespace keeps its holds.
            let members = world.graph.objects_in_namespace(node.id());
            let members = members.filter_map(|id| world.graph.get(id));
            let held = members.filter(|member| content && member.is_held());
            let holding = held.flat_map(|member| holding_policies(&world, &member.object_ref()));
            sources.extend(holding.map(|policy| policy.source.clone()));
        }
    }
    let policies = world.policies.iter().filter(|policy| sources.contains(&policy.source));
    policies.cloned().collect()
}

/// The start of the name of an approval: readable, and valid whatever the object is called.
fn name_prefix(text: &str) -> String {
    let replace = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let text: String = text.chars().map(replace).take(48).collect();
    format!("{}-", text.trim_matches('-'))
}

/// The error if the API server refuses an approval, with the next step.
fn refusal_error(target: &TargetObject, content: bool, error: kube::Error) -> CommandError {
    match error {
        kube::Error::Api(status) => {
            let right = right_to_approve(&target.object_ref, content);
            match refusal_text(status.code, &status.message, &target.session.me.name, &right) {
                Some(text) => CommandError::Refused(text),
                None => {
                    CommandError::Remote(format!("cannot create the approval: {}", status.message))
                }
            }
        }
        error => CommandError::Remote(format!(
            "cannot create the approval: {}",
            crate::cluster::error_chain(&error)
        )),
    }
}

/// The reason for a refusal of an approval, with the next step. `None`: the request was not
/// refused.
fn refusal_text(code: u16, message: &str, me: &str, right: &str) -> Option<String> {
    // The API server adds a prefix with the name of the policy to the message of a
    // ValidatingAdmissionPolicy.
    let policy_text = policy_message(message);
    let policy_text = policy_text.filter(|_| message.contains("'approvals.belay.dev'"));
    match (code, policy_text) {
        (403, Some(policy_text)) if policy_text.contains("approve-deletion") => Some(format!(
            "{policy_text}; next: ask a person who has it, or have an administrator bind {right} \
             to {me}"
        )),
        (_, Some(policy_text)) if policy_text.contains("expirationTime") => {
            Some(format!("{policy_text}; next: choose another --for"))
        }
        (_, Some(policy_text)) => Some(policy_text.to_owned()),
        (403, None) if message.contains("cannot create resource") => Some(format!(
            "{me} may not create approvals; next: have an administrator bind the RBAC verb create \
             on deletionapprovals.belay.dev to {me}, beside {right}"
        )),
        // A webhook may refuse with any code.
        (code, None) if code == 403 || denies(message) => Some(format!(
            "the approval was refused, and not by belay: {message}; next: ask the owner of the \
             webhook or policy that refused it"
        )),
        (404, None) => Some(not_installed_text()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_prefix_of_an_approval_is_valid_for_every_object_name() {
        assert_eq!(name_prefix("configmaps-settings"), "configmaps-settings-");
        assert_eq!(name_prefix("clusterroles-system:node.x"), "clusterroles-system-node-x-");
        assert!(name_prefix(&"a".repeat(300)).len() < 60);
    }

    #[test]
    fn the_source_of_a_refused_approval_follows_from_its_message() {
        let text_of = |code, message: &str| refusal_text(code, message, "bob", "a right");
        let begin = "deletionapprovals.belay.dev \"x\" is forbidden: ";
        let own = format!(
            "{begin}ValidatingAdmissionPolicy 'approvals.belay.dev' with binding \
             'approvals.belay.dev' denied request: bob may not approve-deletion of x"
        );
        let text = text_of(403, &own).unwrap();
        assert_eq!(
            text,
            "bob may not approve-deletion of x; next: ask a person who has it, or have an \
             administrator bind a right to bob"
        );
        let rbac = format!("{begin}User \"bob\" cannot create resource \"deletionapprovals\"");
        assert!(text_of(403, &rbac).unwrap().contains("the RBAC verb create on deletionapprovals"));
        // The message of a webhook or policy of another owner is shown unchanged.
        let hook = "admission webhook \"no.example.com\" denied the request: not on Fridays";
        let policy = format!(
            "{begin}ValidatingAdmissionPolicy 'fridays' with binding 'f' denied request: no"
        );
        for (code, message) in [(403, hook), (400, hook), (422, policy.as_str())] {
            let text = text_of(code, message).unwrap();
            assert!(text.contains(message) && !text.contains("RBAC"), "{text}");
        }
        assert_eq!(text_of(500, "etcd is away"), None);
    }
}
