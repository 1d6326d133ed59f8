//! `kubectl belay denials`: lists recent denials, from the status of the policies and
//! from Events.

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{FailedRead, Object};
use super::duration::{format_age, parse_duration};
use super::place::{ClusterArguments, ListScopeArguments};
use super::report::{ListArguments, Report, View, WatchArguments, name_lines};
use super::screen::{Field, Progress, Table, Tone};
use super::session::UserSession;
use super::{CommandError, block_on};
use crate::cluster::{list_all, read_names};
use crate::objects::{ApiError, EVENT_REPORTER, KindInfo, Kinds, ObjectRef, split_api_version};
use crate::policy::api::DeletionPolicy;
use crate::timing::Timing;

/// The number of rows without --all.
const SHOWN: usize = 30;

/// How long a policy keeps its recent denials.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The namespace of Events about cluster-scoped objects.
const OUTSIDE: &str = "default";

/// How far the clock of a replica may be ahead of the API server's clock, in seconds.
const CLOCK_SKEW: i64 = 60;

/// An Event and a status entry about the same denial differ by less than this.
const SAME: i64 = 700;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 no denials, 1 denials, 2 wrong arguments, 3 unknown (failed reads)"
)]
pub struct DenialsArguments {
    #[command(flatten)]
    near: ListScopeArguments,

    /// Show requests that were allowed and that action Deny would deny
    #[arg(long)]
    would: bool,

    /// How far back to search. Each policy keeps its ten latest verdicts, for one day
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_duration)]
    since: Duration,

    #[command(flatten)]
    output: ListArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    place: ClusterArguments,
}

pub fn run(arguments: DenialsArguments) -> Result<ExitCode, CommandError> {
    let DenialsArguments { output, watch, .. } = arguments;
    block_on(watch.print(output, false, async || denials(arguments.clone()).await))?
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
    let now = session.now();
    let mut not_read = Vec::new();
    let policies = match policies {
        Ok(policies) => policies,
        Err(error @ ApiError::Forbidden(_)) => {
            not_read.push(FailedRead::new("deletionpolicies.belay.dev", &error));
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
            not_read.push(FailedRead::new("events", &error));
            Vec::new()
        }
    };
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    let asked = DenialFilter::new(would, now, since);
    let mut kinds = Kinds::default();
    if !knows_all(&kinds, &policies, &events) {
        // Without discovery, objects of other kinds lack their plural or their kind.
        kinds = read_names(&session.caller.client).await.map_or(kinds, |names| names.kinds());
    }
    let mut items = items(&policies, &events, &kinds, asked);
    if let Some(namespace) = &near.namespace {
        items.retain(|item| item.is_in(namespace));
    }
    // A user who may not read the Lease does not see who is the leader.
    let unled = matches!(leader, Ok(None));
    let age_seconds = (would && !unled).then(delay);
    let policies = policy_counts(&policies);
    Ok(Denials { items, policies, age_seconds, not_read, would, unled })
}

/// Whether these are the kinds of all denials.
fn knows_all(kinds: &Kinds, policies: &[DeletionPolicy], events: &[Event]) -> bool {
    let recent = policies.iter().flat_map(|policy| &policy.status).flat_map(|s| &s.recent);
    let targets = recent.map(|recent| ObjectRef::parse_display(&recent.target));
    let of_event = |event: &Event| {
        let version = event.involved_object.api_version.as_deref().unwrap_or_default();
        let kind = event.involved_object.kind.as_deref().unwrap_or_default();
        kinds.find(split_api_version(version).0, kind).is_some()
    };
    let mut targets = targets.map(|of| kinds.find_resource(&of.group, &of.resource).is_some());
    targets.all(|known| known) && events.iter().all(of_event)
}

/// How long a verdict takes at most until the status of its policy contains it, in seconds.
fn delay() -> u64 {
    let Timing { journal, status, .. } = Timing::default();
    let all = [journal.gather, journal.write, status.journals, status.gather, status.write];
    all.iter().sum::<Duration>().as_secs() + 1
}

/// The Events that belay has written.
const OURS: &str = "reportingComponent=belay";

/// All of them, or those in one namespace if the user may not list all, and whether they are
/// all.
async fn all_events(client: &kube::Client, near: &str) -> Result<(Vec<Event>, bool), ApiError> {
    let params = ListParams::default().fields(OURS);
    let (api, near) = (Api::all(client.clone()), Api::namespaced(client.clone(), near));
    match list_all(api, params.clone()).await {
        Ok(listed) => Ok((listed.objects, true)),
        Err(ApiError::Forbidden(_)) => Ok((list_all(near, params).await?.objects, false)),
        Err(error) => Err(error),
    }
}

/// The Events of one object, which are in its namespace.
async fn events(
    client: &kube::Client,
    target: &ObjectRef,
    uid: &str,
) -> Result<Vec<Event>, ApiError> {
    let namespace = if target.namespace.is_empty() { OUTSIDE } else { &target.namespace };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("{OURS},involvedObject.uid={uid}"));
    Ok(list_all(api, params).await?.objects)
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

/// One thing that was refused, or would have been.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The time of the last request.
    #[schemars(with = "String")]
    time: Timestamp,
    /// How many seconds ago that was.
    #[serde(skip)]
    ago: i64,
    /// The target of the request.
    object: Object,
    /// The same, as the status of a policy has it.
    #[serde(skip)]
    target: String,
    /// `Deny`, `Warn` or `Audit`.
    verdict: String,
    /// The reason, such as `InUse`. Absent if an older version of belay recorded the denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The user. Absent if only an Event is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The policies that decide. Empty if only an Event is known, whose message names them.
    policies: Vec<String>,
    /// The message of the refusal.
    message: String,
    /// The number of requests of all users. Absent if no Event counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i32>,
}

/// The verdicts of one policy in a day.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PolicyCounts {
    /// The name.
    name: String,
    /// The number of refused requests.
    denied_last_24h: i64,
    /// The number of accepted requests that action Deny would have refused.
    would_deny_last_24h: i64,
    /// The number of held objects.
    held_last_24h: i64,
}

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denials {
    /// The requests that belay refused or would have refused, newest first.
    items: Vec<Denial>,
    /// The counts of the last 24 hours in the whole cluster, for each policy with a count.
    policies: Vec<PolicyCounts>,
    /// How many seconds old the list can be: it contains all requests before that. Absent without
    /// `--would`, because a replica writes Events of denials at once, and without a leader,
    /// because the list then contains no newer requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<u64>,
    /// Failed reads. The list may be incomplete.
    not_read: Vec<FailedRead>,
    /// Whether it is about what went through.
    #[serde(skip)]
    would: bool,
    /// Whether belay has no leader, which writes the statuses.
    #[serde(skip)]
    unled: bool,
}

/// The matching denials, newest first.
fn items(
    policies: &[DeletionPolicy],
    events: &[Event],
    kinds: &Kinds,
    asked: DenialFilter,
) -> Vec<Denial> {
    let mut items: Vec<Denial> = Vec::new();
    for policy in policies {
        let name = policy.metadata.name.clone().unwrap_or_default();
        for recent in policy.status.iter().flat_map(|status| &status.recent) {
            let fits = match recent.verdict.as_str() {
                "Deny" => !asked.would,
                "Audit" | "Warn" => asked.would,
                _ => false,
            };
            if !fits || recent.time.0 < asked.since {
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
                    ago: asked.ago(recent.time.0),
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
    // Events exist only for denied requests. They add denials of the label and older
    // ones.
    let refused = events.iter().filter(|event| !asked.would && is_denial(event));
    let told: Vec<Denial> = refused.filter_map(|event| of_event(event, kinds, asked)).collect();
    for denial in told.into_iter().filter(|denial| denial.time >= asked.since) {
        let same = |item: &&mut Denial| {
            let apart = item.time.as_second().abs_diff(denial.time.as_second());
            let uid = &item.object.uid;
            is_same(&item.target, &denial.target)
                && apart <= SAME.unsigned_abs()
                && (uid.is_empty() || *uid == denial.object.uid)
                && (item.reason.is_none() || item.reason == denial.reason)
        };
        // An Event counts the requests of all users, and each replica has its own Events.
        match items.iter_mut().filter(same).max_by_key(|item| item.time) {
            Some(item) => {
                item.count = match (item.count, denial.count) {
                    (Some(one), Some(other)) => Some(one.saturating_add(other)),
                    (one, other) => one.or(other),
                };
                if item.subject.is_none() && item.time < denial.time {
                    (item.time, item.ago) = (denial.time, denial.ago);
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

fn is_denial(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
        && event.reporting_component.as_deref() == Some(EVENT_REPORTER)
}

/// Whether the Event is in the namespace where belay writes Events about such objects. Users
/// who may create Events in one namespace could otherwise report objects of another.
fn is_in_its_namespace(event: &Event, kind: Option<&KindInfo>) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let [place, involved] = [&event.metadata.namespace, &event.involved_object.namespace].map(text);
    let (outside, inside) = (involved.is_empty() && place == OUTSIDE, involved == place);
    match kind {
        Some(kind) if kind.namespaced => inside,
        Some(_) => outside,
        None => outside || inside,
    }
}

/// The denial that an Event reports, or `None` if belay does not write such Events.
fn of_event(event: &Event, kinds: &Kinds, asked: DenialFilter) -> Option<Denial> {
    let involved = &event.involved_object;
    let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref())?.0;
    if asked.ago(time) < -CLOCK_SKEW || event.count.is_some_and(|count| count < 1) {
        return None;
    }
    let message = event.message.clone().unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, namespace) = (text(&involved.kind), text(&involved.namespace));
    let name = text(&involved.name);
    let group = split_api_version(involved.api_version.as_deref().unwrap_or_default()).0;
    let info = kinds.find(group, &kind).map(|kind| kinds.info(kind));
    if !is_in_its_namespace(event, info) {
        return None;
    }
    let (target, object) = match info {
        Some(info) => {
            (ObjectRef::of_kind(info, &namespace, &name), Object::of_kind(info, &namespace, &name))
        }
        // The plural is unknown. kubectl and belay accept the kind in lower case as well.
        None => {
            let target = ObjectRef::new((group, &kind.to_lowercase()), &namespace, &name);
            let object = Object::of_unknown(&kind, &namespace, &name);
            let typed = target.arguments();
            (target, Object { typed, ..object })
        }
    };
    Some(Denial {
        time,
        ago: asked.ago(time),
        object: object.with_uid(&text(&involved.uid)),
        target: target.to_string(),
        verdict: "Deny".to_owned(),
        reason: event.reason.clone(),
        subject: None,
        policies: Vec::new(),
        message,
        count: event.count,
    })
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

impl Report for Denials {
    const KIND: &'static str = "DenialList";

    /// 1 if a request was refused, 3 if that is unknown, 0 if none was.
    fn exit_code(&self) -> u8 {
        match (self.items.is_empty(), self.is_certain()) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 0,
        }
    }

    fn names(&self) -> Option<String> {
        Some(name_lines(self.items.iter().map(|item| item.object.typed.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn text(&self, view: View) -> String {
        let mut text = String::new();
        if self.items.is_empty() {
            text.push_str(match (self.would, self.is_certain()) {
                (true, _) => "no allowed request would have been denied\n",
                (false, true) => "no denials\n",
                (false, false) => "no denials found, but some reads failed\n",
            });
        } else {
            let heading = ["AGE", "VERDICT", "OBJECT", "USER"];
            let heading = view.columns(heading, ["TIME", "POLICIES"], "MESSAGE");
            let list = (&*self.items, SHOWN, "denials");
            let row = |table: &mut Table, item: &Denial| table.row(item.row(view));
            text.push_str(&view.table_in_turns(&heading, list, Denial::namespace, row));
        }
        for PolicyCounts { name, denied_last_24h, would_deny_last_24h, held_last_24h } in
            &self.policies
        {
            let line = format!(
                "policy {name}, whole cluster, last 24h: {denied_last_24h} denied, \
                 {would_deny_last_24h} would be denied, {held_last_24h} held"
            );
            text.push_str(&view.screen.paragraph(0, &line));
        }
        // A replica writes Events of denials at once.
        let stale = match (self.unled, self.age_seconds) {
            (true, _) => Some(
                "belay has no leader, so no policy reports newer requests; check that the belay \
                 Pods run"
                    .to_owned(),
            ),
            (false, Some(age)) => Some(format!(
                "under load, policies report a request after up to {age} s; the newest may be \
                 missing"
            )),
            (false, None) => None,
        };
        text.extend(stale.map(|stale| view.screen.paragraph(0, &stale)));
        text + &view.not_read(&self.not_read)
    }
}

impl Denials {
    /// Whether everything was read. Events do not contain requests that were allowed.
    fn is_certain(&self) -> bool {
        self.would || self.not_read.is_empty()
    }
}

impl Denial {
    fn namespace(&self) -> &str {
        &self.object.namespace
    }

    /// Whether it is about a Namespace or something in it.
    fn is_in(&self, namespace: &str) -> bool {
        let Object { group, kind, namespace: place, name, .. } = &self.object;
        let itself = group.is_empty() && kind == "Namespace" && name == namespace;
        place == namespace || itself
    }

    /// In one line, below the object that it is about.
    pub fn line(&self) -> String {
        let ago = format_age(self.ago);
        let by = self.subject.as_ref().map_or_else(String::new, |user| format!(", {user}"));
        format!("{ago} ago{by}: {}", self.message)
    }

    fn row(&self, view: View) -> Vec<Field> {
        let (tone, verdict) = match self.verdict.as_str() {
            "Deny" => (Tone::Bad, "denied".to_owned()),
            other => (Tone::Doubtful, other.to_lowercase()),
        };
        let times = self.count.filter(|count| *count > 1);
        let times = times.map_or(String::new(), |count| format!(" ({count} times by all users)"));
        let first = [
            format_age(self.ago).into(),
            Field::toned(tone, verdict),
            self.target.as_str().into(),
            self.subject.as_deref().unwrap_or("-").into(),
        ];
        // Only the message of an Event names the policies.
        let policies = match self.policies.as_slice() {
            [] => "-".to_owned(),
            names => names.join(","),
        };
        let wide = [self.time.to_string().into(), policies.into()];
        view.columns(first, wide, format!("{}{times}", self.message).into())
    }
}
