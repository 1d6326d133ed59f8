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

use super::document::{Content, NotRead, Object, document};
use super::duration::{age, duration};
use super::place::{NearArguments, PlaceArguments};
use super::screen::{Field, OutputArguments, Progress, Screen, Table, Tone, cut};
use super::visitor::Visitor;
use super::{CommandError, block_on, print};
use crate::cluster::journal::target_text;
use crate::cluster::list_all;
use crate::objects::{ApiError, Kinds, ObjectRef, split_api_version};
use crate::policy::api::DeletionPolicy;

/// The number of rows without --all.
const SHOWN: usize = 30;

/// How far back a policy remembers.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// An Event and a status that speak of the same thing are this close.
const SAME: i64 = 700;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no denials, 1 denials, 2 wrong arguments, 3 unknown (failed reads)"
)]
pub struct DenialsArguments {
    #[command(flatten)]
    near: NearArguments,

    /// Show requests that were allowed and that action Deny would deny
    #[arg(long)]
    would: bool,

    /// How far back to search. A policy keeps the ten most recent verdicts of a day
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    since: Duration,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    place: PlaceArguments,
}

pub fn run(arguments: DenialsArguments) -> Result<ExitCode, CommandError> {
    block_on(denials(arguments))?
}

async fn denials(arguments: DenialsArguments) -> Result<ExitCode, CommandError> {
    let DenialsArguments { near, would, since, output, place } = arguments;
    let visitor = Visitor::open(place).await?;
    let progress = Progress::begin();
    progress.say(|| "reading policies and Events".to_owned());
    let (policies, events) =
        tokio::join!(visitor.all::<DeletionPolicy>(), all_events(&visitor.caller.client));
    let (policies, now) = (policies?, visitor.now());
    let (events, not_read) = match events {
        Ok(events) => (events, Vec::new()),
        Err(error) => (Vec::new(), vec![not_read(&error)]),
    };
    let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
    let asked = Asked { would, since: now.saturating_sub(since).unwrap_or(Timestamp::MIN) };
    let mut items = items(&policies, &events, asked);
    if let Some(namespace) = &near.namespace {
        items.retain(|item| item.is_in(namespace));
    }
    let said = Denials { items, policies: sums(&policies), not_read };
    drop(progress);
    print(&said.rendered(output, would, Screen::stdout(), now)?)?;
    Ok(said.exit_code(would))
}

fn not_read(error: &ApiError) -> NotRead {
    let why = error.to_string();
    NotRead { resource: "events".to_owned(), why }
}

/// The Events that belay has written.
const OURS: &str = "reportingComponent=belay";

async fn all_events(client: &kube::Client) -> Result<Vec<Event>, ApiError> {
    let api: Api<Event> = Api::all(client.clone());
    Ok(list_all(api, ListParams::default().fields(OURS)).await?.objects)
}

/// Those of one object, which are in its namespace.
async fn events(
    client: &kube::Client,
    target: &ObjectRef,
    uid: &str,
) -> Result<Vec<Event>, ApiError> {
    let namespace = if target.namespace.is_empty() { "default" } else { &target.namespace };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("{OURS},involvedObject.uid={uid}"));
    Ok(list_all(api, params).await?.objects)
}

/// The denials of one object in the last day, newest first, from policies and Events, and
/// whether all could be read.
pub async fn lately(
    client: &kube::Client,
    mut policies: Vec<DeletionPolicy>,
    target: &ObjectRef,
    uid: &str,
    now: Timestamp,
) -> (Vec<Denial>, Option<NotRead>) {
    let (events, unread) = match events(client, target, uid).await {
        Ok(events) => (events, None),
        Err(error) => (Vec::new(), Some(not_read(&error))),
    };
    let target = target_text(target);
    for status in policies.iter_mut().filter_map(|policy| policy.status.as_mut()) {
        status.recent.retain(|recent| recent.target == target);
    }
    let since = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN);
    (items(&policies, &events, Asked { would: false, since }), unread)
}

/// Which are asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    would: bool,
    since: Timestamp,
}

/// One thing that was refused, or would have been.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The time of the last request.
    #[schemars(with = "String")]
    time: Timestamp,
    /// The target of the request.
    object: Object,
    /// The same, as the status of a policy has it.
    #[serde(skip)]
    target: String,
    /// `Deny`, `Warn` or `Audit`.
    verdict: String,
    /// The user. Absent if only an Event is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The policies that decide. Empty if only an Event is known, whose message names them.
    policies: Vec<String>,
    /// The message of the refusal.
    message: String,
    /// The number of requests. Absent if no Event counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i32>,
}

/// The verdicts of one policy in a day.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Sum {
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
    policies: Vec<Sum>,
    /// Failed reads. The list may be incomplete.
    not_read: Vec<NotRead>,
}

/// The matching denials, newest first.
fn items(policies: &[DeletionPolicy], events: &[Event], asked: Asked) -> Vec<Denial> {
    let kinds = Kinds::default();
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
                    && item.verdict == recent.verdict
                    && item.subject.as_ref() == Some(&recent.user)
            });
            match same {
                Some(item) => item.policies.push(name.clone()),
                None => items.push(Denial {
                    time: recent.time.0,
                    object: of_status(&recent.target, &kinds),
                    target: recent.target.clone(),
                    verdict: recent.verdict.clone(),
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
    let told: Vec<Denial> = refused.filter_map(|event| of_event(event, &kinds)).collect();
    for denial in told.into_iter().filter(|denial| denial.time >= asked.since) {
        let same = |item: &&mut Denial| {
            let apart = item.time.as_second().abs_diff(denial.time.as_second());
            is_same(&item.target, &denial.target) && apart <= SAME.unsigned_abs()
        };
        match items.iter_mut().find(same) {
            Some(item) => {
                item.count = denial.count.max(item.count);
                // Events have fields that the status does not have.
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

/// Parses the target in the status of a policy, such as `deployments.apps shop/web`.
fn of_status(target: &str, kinds: &Kinds) -> Object {
    let (resource, place) = target.split_once(' ').unwrap_or(("", target));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let target = ObjectRef::new((group, resource), namespace, name);
    Object::of(&target, kinds)
}

/// The resource without its group, and the namespace.
fn parts(target: &str) -> (&str, &str) {
    let (resource, place) = target.split_once(' ').unwrap_or(("", target));
    (resource.split('.').next().unwrap_or_default(), place)
}

/// Whether a status and an Event are about the same object. If the message of an Event
/// does not contain the plural, the kind is compared, because most plurals begin with it.
fn is_same(status: &str, event: &str) -> bool {
    let ((plural, place), (kind, other)) = (parts(status), parts(event));
    let stem = kind.strip_suffix('y').unwrap_or(kind);
    place == other && plural.starts_with(stem)
}

fn is_denial(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
        && event.reporting_component.as_deref() == Some("belay")
}

fn of_event(event: &Event, kinds: &Kinds) -> Option<Denial> {
    let involved = &event.involved_object;
    let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref())?.0;
    let message = event.message.clone().unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, namespace) = (text(&involved.kind), text(&involved.namespace));
    let name = text(&involved.name);
    // A message that begins with the object contains its plural, as the status does.
    let plural =
        message.split_once(' ').filter(|(_, rest)| rest.starts_with(&format!("\"{name}\"")));
    let resource = plural.map_or(kind.to_lowercase(), |(plural, _)| plural.to_owned());
    let slash = if namespace.is_empty() { "" } else { "/" };
    let target = format!("{resource} {namespace}{slash}{name}");
    let group = split_api_version(involved.api_version.as_deref().unwrap_or_default()).0;
    let object = match (kinds.find(group, &kind), plural) {
        (Some(known), _) => Object::of_kind(kinds.info(known), &namespace, &name),
        (None, Some(_)) => Object { kind, ..of_status(&target, kinds) },
        (None, None) => Object::of_unknown(&kind, &namespace, &name),
    };
    Some(Denial {
        time,
        object: object.with_uid(&text(&involved.uid)),
        target,
        verdict: "Deny".to_owned(),
        subject: None,
        policies: Vec::new(),
        message,
        count: event.count,
    })
}

fn sums(policies: &[DeletionPolicy]) -> Vec<Sum> {
    let sums = policies.iter().filter_map(|policy| {
        let day = policy.status.as_ref()?.last_24h;
        let name = policy.metadata.name.clone()?;
        let sum = Sum {
            name,
            denied_last_24h: day.denied,
            would_deny_last_24h: day.would_deny,
            held_last_24h: day.held,
        };
        (day.denied + day.would_deny + day.held > 0).then_some(sum)
    });
    sums.collect()
}

impl Content for Denials {
    const KIND: &'static str = "DenialList";
}

impl Denials {
    /// Whether everything was read. Allowed requests have no Events.
    fn is_certain(&self, would: bool) -> bool {
        would || self.not_read.is_empty()
    }

    /// 1 if something was refused, 3 if that is not known, 0 if nothing was.
    fn exit_code(&self, would: bool) -> ExitCode {
        ExitCode::from(match (self.items.is_empty(), self.is_certain(would)) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 0,
        })
    }

    fn rendered(
        &self,
        output: OutputArguments,
        would: bool,
        screen: Screen,
        now: Timestamp,
    ) -> Result<String, CommandError> {
        if let Some(text) = document(output.output, self)? {
            return Ok(text);
        }
        let mut text = String::new();
        if self.items.is_empty() {
            text.push_str(match (would, self.is_certain(would)) {
                (true, _) => "no allowed request would have been denied\n",
                (false, true) => "no denials\n",
                (false, false) => "no denials found, but some reads failed\n",
            });
        } else {
            let mut table = Table::new(&["AGE", "VERDICT", "OBJECT", "USER", "MESSAGE"]);
            let (shown, more) = cut(&self.items, SHOWN, output.all);
            shown.iter().for_each(|item| table.row(item.row(now)));
            text.push_str(&table.text(screen));
            text.extend(more.map(|more| more + "\n"));
        }
        for Sum { name, denied_last_24h, would_deny_last_24h, held_last_24h } in &self.policies {
            let line = format!(
                "policy {name}, whole cluster, last 24h: {denied_last_24h} denied, \
                 {would_deny_last_24h} would be denied, {held_last_24h} held"
            );
            text.push_str(&screen.paragraph(0, &line));
        }
        for NotRead { resource, why } in &self.not_read {
            text.push_str(&screen.paragraph(0, &format!("not read: {resource}: {why}")));
        }
        Ok(text)
    }
}

impl Denial {
    /// Whether it is about a Namespace or something in it.
    fn is_in(&self, namespace: &str) -> bool {
        let Object { group, kind, namespace: place, name, .. } = &self.object;
        let itself = group.is_empty() && kind == "Namespace" && name == namespace;
        place == namespace || itself
    }

    /// In one line, below the object that it is about.
    pub fn said(&self, now: Timestamp) -> String {
        let ago = age(now.as_second().saturating_sub(self.time.as_second()));
        let by = self.subject.as_ref().map_or_else(String::new, |user| format!(", {user}"));
        format!("{ago} ago{by}: {}", self.message)
    }

    fn row(&self, now: Timestamp) -> [Field; 5] {
        let (tone, verdict) = match self.verdict.as_str() {
            "Deny" => (Tone::Bad, "denied".to_owned()),
            other => (Tone::Doubtful, other.to_lowercase()),
        };
        let times = self.count.filter(|count| *count > 1);
        let times = times.map_or(String::new(), |count| format!(" ({count} times)"));
        [
            age(now.as_second().saturating_sub(self.time.as_second())).into(),
            Field::toned(tone, verdict),
            self.target.as_str().into(),
            self.subject.as_deref().unwrap_or("-").into(),
            format!("{}{times}", self.message).into(),
        ]
    }
}
