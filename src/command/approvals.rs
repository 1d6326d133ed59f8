//! `belay approvals`: lists who approved which deletion, and until when.

use std::process::ExitCode;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::CommandError;
use super::document::{FailedRead, List, Object};
use super::duration::format_age;
use super::place::{ClusterArguments, ListScopeArguments};
use super::report::{ListArguments, Report, View};
use super::screen::{Field, Tone};
use super::session::UserSession;
use super::target::{SILENT, situation};
use crate::cluster::Snapshot;
use crate::objects::{ApiError, Kinds, ObjectRef, full_name};
use crate::policy::api::{Action, DeletionApproval, Scope};
use crate::policy::{Approval, ObjectFacts, Policy};

/// The maximum number of objects that are read at the same time.
const MAX_CONCURRENT: usize = 16;

/// The maximum number of approvals in the table, without `--all`.
const MAX_APPROVALS: usize = 50;

#[derive(Debug, Args)]
#[command(mut_arg("all", |all| {
    all.help("Also list expired approvals, and print long lists completely")
}))]
pub struct ApprovalsArguments {
    #[command(flatten)]
    scope: ListScopeArguments,

    #[command(flatten)]
    output: ListArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

pub async fn run(arguments: ApprovalsArguments) -> Result<ExitCode, CommandError> {
    let ApprovalsArguments { scope, output, cluster } = arguments;
    let session = UserSession::open(cluster).await?;
    let all = session.list_all::<DeletionApproval>().await?;
    let now = session.me.now();
    let compiled: Vec<_> = all.iter().filter_map(Approval::compile).collect();
    let mut items = select_approvals(all, scope.namespace.as_deref(), output.all, now);
    // A user who may read only approvals still sees when they expire.
    let not_read = match session.read_rules().await {
        Ok(snapshot) => check_objects(&snapshot, &mut items, &compiled).await,
        Err(error) => vec![FailedRead {
            resource: "the objects of the approvals".to_owned(),
            why: error.to_string(),
        }],
    };
    List { items, not_read }.print(output)
}

/// Finds the approvals that don't count. Returns the failed reads of their objects.
async fn check_objects(
    snapshot: &Snapshot,
    items: &mut [ApprovalReport],
    compiled: &[Approval],
) -> Vec<FailedRead> {
    let in_force = items.iter_mut().filter(|item| item.in_force && item.uncounted.is_none());
    let checks = in_force.filter_map(|item| {
        let approval = compiled.iter().find(|approval| approval.name == item.name)?;
        Some(async move {
            let read = why_ineffective(snapshot, approval).await;
            item.is_read = read.is_ok();
            read.map(|why| item.uncounted = why).err()
        })
    });
    let failed: Vec<_> = stream::iter(checks).buffered(MAX_CONCURRENT).collect().await;
    let mut not_read = Vec::new();
    for read in failed.into_iter().flatten() {
        if !not_read.contains(&read) {
            not_read.push(read);
        }
    }
    not_read
}

/// Why an approval does not count for a policy of its object; `None` if it counts.
async fn why_ineffective(
    snapshot: &Snapshot,
    approval: &Approval,
) -> Result<Option<String>, FailedRead> {
    let ObjectRef { group, resource, namespace, name, .. } = &approval.target;
    let unread = |why: String| FailedRead { resource: full_name(group, resource), why };
    let kind = snapshot.context.world.read().graph.kinds.find_resource(group, resource);
    let kind = kind.ok_or_else(|| match snapshot.stale.contains(group) {
        true => unread(SILENT.to_owned()),
        false => unread("its kind is not served".to_owned()),
    })?;
    let failed = |error: ApiError| unread(error.reason_for_user());
    snapshot.look_up(kind, namespace, name).await.map_err(failed)?;
    // The labels of the Namespace select policies.
    let namespace_read = snapshot.look_up_namespace(namespace).await;
    let world = snapshot.context.world.read();
    let node = world.graph.object_by_ref(&approval.target);
    let Some(node) = node.filter(|node| node.uid() == approval.target_uid) else {
        return Ok(Some("is for an object that is deleted".to_owned()));
    };
    // belay records an exemption only for policies that allow it.
    if !approval.exempts.is_empty() {
        return Ok(None);
    }
    namespace_read.map_err(|error| FailedRead {
        resource: "namespaces".to_owned(),
        why: error.reason_for_user(),
    })?;
    let applied = situation(&world).policies_of(ObjectFacts::of_node(node));
    let enforcing = applied.iter().filter(|applied| applied.action == Action::Deny);
    let policies = enforcing.map(|applied| applied.policy);
    let reason = Policy::reason_not_counted(approval, policies);
    Ok(reason.map(|(policy, why)| why.explain(&policy.source)))
}

/// One approval.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalReport {
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
    /// The time of the approval. Absent if the API server does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// The expiry.
    until: String,
    /// Whether `until` is in the future.
    in_force: bool,
    /// Why an approval that has not expired does not count. Absent if it counts, or if its
    /// object could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncounted: Option<String>,
    /// The policies that exempted the subject, if belay recorded an exemption.
    exempts: Vec<String>,
    /// Whether the object could be read.
    #[serde(skip)]
    is_read: bool,
    #[serde(skip)]
    expires: Timestamp,
    /// The seconds until the expiry; negative if it is in the past.
    #[serde(skip)]
    remaining_seconds: i64,
}

impl ApprovalReport {
    fn new(approval: DeletionApproval, kinds: &Kinds, now: Timestamp) -> Self {
        let is_bar = approval.has_record_name() && approval.spec.exempts.is_empty();
        let DeletionApproval { metadata, spec } = approval;
        let target = spec.target_ref.object_ref();
        let expires = spec.expiration_time.0;
        Self {
            name: metadata.name.unwrap_or_default(),
            object: Object::of(&target, kinds).with_uid(&spec.target_ref.uid),
            approver: spec.approver,
            reason: spec.reason,
            scope: spec.scope,
            since: metadata.creation_timestamp.map(|time| time.0.to_string()),
            until: expires.to_string(),
            in_force: now < expires,
            uncounted: match metadata.deletion_timestamp {
                Some(_) => Some("is being deleted".to_owned()),
                None => is_bar.then(|| "only bars exemptions of the object".to_owned()),
            },
            exempts: spec.exempts,
            is_read: true,
            expires,
            remaining_seconds: expires.as_second().saturating_sub(now.as_second()),
        }
    }

    fn row(&self, view: View) -> Vec<Field> {
        let reason = match self.exempts.is_empty() {
            true => self.reason.clone(),
            false => format!("{} (exempt by {})", self.reason, self.exempts.join(", ")),
        };
        let scope = match self.scope {
            Scope::Object => "object",
            Scope::Content => "content",
        };
        let typed = self.object.arguments.as_str().into();
        let first = [typed, self.approver.as_str().into(), self.state(), scope.into()];
        let wide = [&self.name, &self.until, &self.object.uid].map(|text| text.as_str().into());
        view.columns(first, wide, reason.into())
    }

    /// The text about the expiry, or the reason why the approval does not count.
    fn state(&self) -> Field {
        match (&self.uncounted, self.in_force) {
            (Some(why), _) => Field::toned(Tone::Doubtful, format!("no: it {why}")),
            (None, true) if !self.is_read => Field::toned(
                Tone::Doubtful,
                format!("{} left (object not read)", format_age(self.remaining_seconds)),
            ),
            (None, true) => {
                Field::toned(Tone::Good, format!("{} left", format_age(self.remaining_seconds)))
            }
            (None, false) => Field::toned(
                Tone::Quiet,
                format!("expired {} ago", format_age(-self.remaining_seconds)),
            ),
        }
    }
}

/// The selected approvals. The approval that expires last comes first.
fn select_approvals(
    all: Vec<DeletionApproval>,
    namespace: Option<&str>,
    expired: bool,
    now: Timestamp,
) -> Vec<ApprovalReport> {
    let in_scope = |approval: &DeletionApproval| {
        let target = approval.spec.target_ref.object_ref();
        namespace.is_none_or(|namespace| namespace == target.own_namespace())
    };
    // The command reads only approvals, so it knows the kinds of custom resources only by their
    // plural names.
    let kinds = Kinds::default();
    let all =
        all.into_iter().filter(in_scope).map(|approval| ApprovalReport::new(approval, &kinds, now));
    let mut selected: Vec<ApprovalReport> =
        all.filter(|approval| expired || approval.in_force).collect();
    selected.sort_by(|a, b| (b.expires, &a.name).cmp(&(a.expires, &b.name)));
    selected
}

impl Report for List<ApprovalReport> {
    const KIND: &'static str = "ApprovalList";

    fn text(&self, view: View) -> String {
        if self.items.is_empty() {
            return match view.all {
                true => "no approvals\n".to_owned(),
                false => "no unexpired approvals; --all lists expired ones\n".to_owned(),
            };
        }
        let heading = ["OBJECT", "APPROVED BY", "VALID", "SCOPE"];
        let heading = view.columns(heading, ["NAME", "UNTIL", "UID"], "REASON");
        let table =
            view.table(&heading, (&self.items, MAX_APPROVALS, "approvals"), |table, item| {
                table.row(item.row(view))
            });
        table + &view.not_read(&self.not_read)
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn names(&self) -> Option<String> {
        let names =
            self.items.iter().map(|item| format!("deletionapprovals.belay.dev/{}\n", item.name));
        Some(names.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::Format;
    use crate::command::screen::Screen;

    fn rendered(items: Vec<ApprovalReport>, output: Format, all: bool) -> String {
        let list = List { items, not_read: Vec::new() };
        list.render(output, View { screen: Screen::pipe(), all, wide: false, verbose: false })
            .unwrap()
    }

    fn approval(name: &str, namespace: &str, expires: i64) -> DeletionApproval {
        let until = Timestamp::from_second(expires).unwrap().to_string();
        serde_json::from_value(serde_json::json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval",
            "metadata": {"name": name, "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"targetRef": {"resource": "configmaps", "namespace": namespace, "name": "a",
                "uid": "u"}, "approver": "alice", "reason": "agreed\nwith bob",
                "expirationTime": until, "scope": "Content"}
        }))
        .unwrap()
    }

    fn text(namespace: Option<&str>, all: bool, output: Format) -> String {
        let now = Timestamp::from_second(1000).unwrap();
        let approvals = vec![
            approval("old", "shop", 400),
            approval("soon", "shop", 1060),
            approval("late", "other", 2800),
        ];
        let given = select_approvals(approvals, namespace, all, now);
        rendered(given, output, all)
    }

    #[test]
    fn omits_expired_approvals_without_all() {
        assert_eq!(
            text(None, false, Format::Table),
            "OBJECT                   APPROVED BY   VALID      SCOPE     REASON\n\
             configmaps/a -n other   alice         30m left   content   agreed with bob\n\
             configmaps/a -n shop    alice         1m left    content   agreed with bob\n"
                .replacen("OBJECT   ", "OBJECT  ", 1)
        );
        let all = text(Some("shop"), true, Format::Table);
        assert!(all.contains("1m left") && all.contains("expired 10m ago"), "{all}");
        assert!(!all.contains("-n other"), "{all}");
        assert_eq!(
            text(Some("nowhere"), false, Format::Table),
            "no unexpired approvals; --all lists expired ones\n"
        );
    }

    #[test]
    fn f03_an_approval_that_does_not_count_is_not_in_force() {
        let now = Timestamp::from_second(1000).unwrap();
        let mut all = select_approvals(vec![approval("long", "shop", 2800)], None, false, now);
        all[0].uncounted = Some("lasts longer than policy p allows (10m)".to_owned());
        let text = rendered(all, Format::Table, false);
        assert!(text.contains(" no: it lasts longer than policy p allows (10m) "), "{text}");
    }

    #[test]
    fn h169_an_exemption_bar_is_no_approval_in_force() {
        let now = Timestamp::from_second(1000).unwrap();
        let bar =
            select_approvals(vec![approval("belay-exempts-1", "shop", 1100)], None, false, now);
        let text = rendered(bar, Format::Table, false);
        assert!(text.contains(" no: it only bars exemptions of the object "), "{text}");
    }

    #[test]
    fn h42_an_approval_that_is_being_deleted_does_not_count() {
        let now = Timestamp::from_second(1000).unwrap();
        let mut ending = approval("ending", "shop", 2800);
        ending.metadata.deletion_timestamp = ending.metadata.creation_timestamp.clone();
        assert_eq!(Approval::compile(&ending), None);
        let all = select_approvals(vec![ending], None, false, now);
        let text = rendered(all, Format::Table, false);
        assert!(text.contains(" no: it is being deleted "), "{text}");
    }

    #[test]
    fn the_json_contains_the_expiry_of_each_approval() {
        let json: serde_json::Value =
            serde_json::from_str(&text(None, true, Format::Json)).unwrap();
        assert_eq!(json["kind"], "ApprovalList");
        let ends =
            |n: usize| (json["items"][n]["name"].clone(), json["items"][n]["inForce"].clone());
        assert_eq!(ends(0), ("late".into(), true.into()));
        assert_eq!(ends(2), ("old".into(), false.into()));
        assert_eq!(json["items"][1]["until"], "1970-01-01T00:17:40Z");
        assert_eq!(json["items"][1]["scope"], "Content");
    }

    #[test]
    fn the_approval_of_a_namespace_is_found_under_its_name() {
        let mut ns = approval("ns", "", 2000);
        (ns.spec.target_ref.resource, ns.spec.target_ref.name) =
            ("namespaces".into(), "shop".into());
        let now = Timestamp::from_second(1000).unwrap();
        assert_eq!(select_approvals(vec![ns.clone()], Some("shop"), false, now).len(), 1);
        assert_eq!(select_approvals(vec![ns], Some("other"), false, now).len(), 0);
    }
}
