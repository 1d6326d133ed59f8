//! `kubectl belay denials`: lists recent denials, from the status of the policies and
//! from Events.

mod events;
mod report;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;

use self::events::{all_events, events, is_listed, parse_event};
use self::report::PolicyCounts;
pub use self::report::{Denial, Denials};
use super::CommandError;
use super::document::{FailedRead, Object};
use super::duration::parse_duration;
use super::place::{ClusterArguments, ListScopeArguments};
use super::report::{ListArguments, WatchArguments};
use super::screen::Progress;
use super::session::UserSession;
use crate::cluster::read_names;
use crate::objects::{ApiError, Kinds, ObjectRef, split_api_version};
use crate::policy::api::DeletionPolicy;
use crate::timing::Timing;

/// How long a policy keeps its recent denials.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The times of an Event and of a status entry about the same denial differ by at most this many
/// seconds.
const MAX_DIFFERENCE: i64 = 700;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0: none found; 1: denials found; 2: wrong arguments; 3: unknown, because a read failed"
)]
pub struct DenialsArguments {
    #[command(flatten)]
    near: ListScopeArguments,

    /// List requests that belay allowed only because of Audit, Warn or a Pause
    #[arg(long)]
    would: bool,

    /// How far back to search. Each policy keeps its ten latest requests, for one day
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    since: Duration,

    #[command(flatten)]
    output: ListArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    place: ClusterArguments,
}

/// The resource of the policies.
const POLICIES: &str = "deletionpolicies.belay.dev";

pub async fn run(arguments: DenialsArguments) -> Result<ExitCode, CommandError> {
    let DenialsArguments { output, watch, .. } = arguments;
    watch.print(output, false, async || denials(arguments.clone()).await).await
}

async fn denials(arguments: DenialsArguments) -> Result<Denials, CommandError> {
    let DenialsArguments { near, would, since, place, .. } = arguments;
    let session = UserSession::open(place).await?;
    let progress = Progress::begin();
    progress.say(|| "reading policies and Events".to_owned());
    let own = near.namespace.as_deref().unwrap_or(&session.caller.namespace);
    let (policies, events, leader) = tokio::join!(
        session.try_list_all::<DeletionPolicy>(),
        all_events(&session.caller.client, own),
        session.leader(),
    );
    let now = session.me.now();
    let mut not_read = Vec::new();
    let policies = match policies {
        Ok(policies) => policies,
        Err(error @ ApiError::Forbidden(_)) => {
            not_read.push(FailedRead::new(POLICIES, &error));
            Vec::new()
        }
        Err(error) => return Err(session.own_kind_error::<DeletionPolicy>(error)),
    };
    let events = match events {
        Ok((events, is_complete)) => {
            if !is_complete && near.namespace.is_none() {
                not_read.push(FailedRead::new("events", &ApiError::forbidden_outside(own)));
            }
            events
        }
        Err(error) => {
            let error = match error {
                ApiError::Forbidden(_) if near.namespace.is_none() => ApiError::Other(format!(
                    "forbidden for you in namespace {own}; name another namespace with -n"
                )),
                error => error,
            };
            not_read.push(FailedRead::new("events", &error));
            Vec::new()
        }
    };
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    let filter = DenialFilter::new(would, now, since);
    let mut kinds = Kinds::default();
    if !knows_all(&kinds, &policies, &events) {
        // Without discovery, objects of other kinds lack their plural or their kind.
        kinds = read_names(&session.caller.client).await.map_or(kinds, |names| names.kinds());
    }
    let mut items = items(&policies, &events, &kinds, filter);
    if let Some(namespace) = &near.namespace {
        items.retain(|item| item.is_in(namespace));
    }
    // A user who may not read the Lease does not see who is the leader.
    let has_no_leader = matches!(leader, Ok(None));
    let uninstalled = match has_no_leader {
        true => session.webhooks().await.uninstalled,
        false => None,
    };
    let policies = policy_counts(&policies);
    let age_seconds = ((would || !policies.is_empty()) && !has_no_leader).then(delay);
    Ok(Denials { items, policies, age_seconds, not_read, would, has_no_leader, uninstalled })
}

/// Whether `kinds` contains the kinds of all denials.
fn knows_all(kinds: &Kinds, policies: &[DeletionPolicy], events: &[Event]) -> bool {
    let recent = policies.iter().flat_map(|policy| &policy.status).flat_map(|s| &s.recent);
    let targets = recent.map(|recent| ObjectRef::parse_display(&recent.target));
    let is_known = |event: &Event| {
        let version = event.involved_object.api_version.as_deref().unwrap_or_default();
        let kind = event.involved_object.kind.as_deref().unwrap_or_default();
        kinds.find(split_api_version(version).0, kind).is_some()
    };
    let mut targets =
        targets.map(|target| kinds.find_resource(&target.group, &target.resource).is_some());
    targets.all(|known| known) && events.iter().all(is_known)
}

/// How long a verdict takes at most until the status of its policy contains it, in seconds.
fn delay() -> u64 {
    let Timing { journal, status, .. } = Timing::default();
    let all = [journal.gather, journal.write, status.journals, status.gather, status.write];
    all.iter().sum::<Duration>().as_secs() + 1
}

/// The denials of one object in the last day and since `since`, newest first, from policies
/// and Events, and whether all could be read. A denial in a status may have no uid, so `since`
/// excludes those of an earlier object of the same name.
pub async fn recent_denials(
    client: &kube::Client,
    mut policies: Vec<DeletionPolicy>,
    target: &ObjectRef,
    uid: &str,
    kinds: &Kinds,
    (since, now): (Timestamp, Timestamp),
) -> (Vec<Denial>, Option<FailedRead>) {
    let (events, unread) = match events(client, target, uid).await {
        Ok(events) => (events, None),
        Err(error) => (Vec::new(), Some(FailedRead::new("events", &error))),
    };
    let target = target.to_string();
    for status in policies.iter_mut().filter_map(|policy| policy.status.as_mut()) {
        status.recent.retain(|recent| recent.target == target);
    }
    let mut filter = DenialFilter::new(false, now, DAY);
    filter.since = filter.since.max(since);
    let mut items = items(&policies, &events, kinds, filter);
    // An Event selected by its uid may name another object.
    items.retain(|item| is_same(&target, &item.target));
    (items, unread)
}

/// The selected denials.
#[derive(Debug, Clone, Copy)]
struct DenialFilter {
    would: bool,
    since: Timestamp,
    now: Timestamp,
}

impl DenialFilter {
    fn new(would: bool, now: Timestamp, longest: SignedDuration) -> Self {
        Self { would, now, since: now.saturating_sub(longest).unwrap_or(Timestamp::MIN) }
    }

    /// How many seconds ago this time was.
    fn ago(self, time: Timestamp) -> i64 {
        self.now.as_second().saturating_sub(time.as_second())
    }
}

/// The matching denials, newest first.
fn items(
    policies: &[DeletionPolicy],
    events: &[Event],
    kinds: &Kinds,
    filter: DenialFilter,
) -> Vec<Denial> {
    let mut items: Vec<Denial> = Vec::new();
    for policy in policies {
        let name = policy.metadata.name.clone().unwrap_or_default();
        for recent in policy.status.iter().flat_map(|status| &status.recent) {
            let fits = match recent.verdict.as_str() {
                "Deny" => !filter.would,
                "Audit" | "Warn" => filter.would,
                _ => false,
            };
            if !fits || recent.time.0 < filter.since {
                continue;
            }
            // A request that several policies deny appears once.
            let same = items.iter_mut().find(|item| {
                item.time == recent.time.0
                    && item.target == recent.target
                    && (&item.verdict, &item.reason) == (&recent.verdict, &recent.reason)
                    && item.subject.as_ref() == Some(&recent.user)
            });
            match same {
                Some(item) => item.policies.push(name.clone()),
                None => items.push(Denial {
                    time: recent.time.0,
                    ago: filter.ago(recent.time.0),
                    object: Object::of(&ObjectRef::parse_display(&recent.target), kinds)
                        .with_uid(recent.uid.as_deref().unwrap_or_default()),
                    target: recent.target.clone(),
                    verdict: recent.verdict.clone(),
                    reason: recent.reason.clone(),
                    subject: Some(recent.user.clone()),
                    policies: vec![name.clone()],
                    message: recent.message.clone(),
                    count: None,
                }),
            }
        }
    }
    // Events add requests that the label denies, or would deny without a Pause, and older denials.
    let listed = events.iter().filter(|event| is_listed(event, filter.would));
    let listed: Vec<Denial> =
        listed.filter_map(|event| parse_event(event, kinds, filter)).collect();
    for denial in listed.into_iter().filter(|denial| denial.time >= filter.since) {
        let same = |item: &&mut Denial| {
            let apart = item.time.as_second().abs_diff(denial.time.as_second());
            let uid = &item.object.uid;
            is_same(&item.target, &denial.target)
                && apart <= MAX_DIFFERENCE.unsigned_abs()
                && (uid.is_empty() || *uid == denial.object.uid)
                && (item.reason.is_none() || item.reason == denial.reason)
        };
        // An Event counts the requests of all users, and each replica has its own Events.
        match items.iter_mut().filter(same).max_by_key(|item| item.time) {
            Some(item) => {
                item.count = match (item.count, denial.count) {
                    (Some(first), Some(second)) => Some(first.saturating_add(second)),
                    (first, second) => first.or(second),
                };
                if item.subject.is_none() && item.time < denial.time {
                    (item.time, item.ago) = (denial.time, denial.ago);
                    item.message.clone_from(&denial.message);
                }
                // A status has only the first sentences of a long message.
                let start = item.message.strip_suffix('…').map(str::trim_end);
                if start.is_some_and(|start| denial.message.starts_with(start)) {
                    item.message = denial.message;
                }
                // Events have fields that the status may not have.
                item.object.uid = denial.object.uid;
                if item.object.kind.is_empty() {
                    item.object.kind = denial.object.kind;
                }
            }
            None => items.push(denial),
        }
    }
    items.sort_by(|a, b| (b.time, &a.target).cmp(&(a.time, &b.target)));
    items
}

/// Whether a status and an Event are about the same object. An Event has the
/// kind and no plural, so an unknown kind is compared with the start of the plural.
fn is_same(status: &str, event: &str) -> bool {
    let [status, event] = [status, event].map(ObjectRef::parse_display);
    let stem = event.resource.strip_suffix('y').unwrap_or(&event.resource);
    (&status.namespace, &status.name) == (&event.namespace, &event.name)
        && status.resource.starts_with(stem)
}

fn policy_counts(policies: &[DeletionPolicy]) -> Vec<PolicyCounts> {
    let sums = policies.iter().filter_map(|policy| {
        let day = policy.status.as_ref()?.last_24h;
        let name = policy.metadata.name.clone()?;
        let sum = PolicyCounts {
            name,
            denied_last_24h: day.denied,
            would_deny_last_24h: day.would_deny,
            held_last_24h: day.held,
        };
        (day.denied + day.would_deny + day.held > 0).then_some(sum)
    });
    sums.collect()
}
