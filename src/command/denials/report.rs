//! The report of the command.

use std::collections::HashSet;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{POLICIES, delay};
use crate::command::document::{FailedRead, Object};
use crate::command::duration::format_age;
use crate::command::report::{Report, View, exit_code_of, name_lines};
use crate::command::screen::{Field, Table, Tone};
use crate::objects::ObjectRef;

/// The number of rows without --all.
pub(super) const SHOWN: usize = 30;

/// Why a row has no user.
const NO_USER: &str = "USER -: only an Event reports this request, and Events name no user";

/// Where to find the user of such a row if the request is recent.
const USER_LATER: &str = ". For a denial by a policy, the status of the policy adds the user \
                          later; for one by the label belay.dev/protect, only the log of belay \
                          names the user";

/// Why such a row has no user if the policies could not be read.
const USER_IN_POLICIES: &str = ". For a recent denial by a policy, the status of the policy names \
                                the user, but you may not read policies; for one by the label \
                                belay.dev/protect, only the log of belay names the user";

/// Where to find the user of such a row if the request is older: the policy may be newer, or its
/// status no longer contains the request.
const USER_IN_LOG: &str = ". Only the log of belay at that time names the user";

/// A request that belay refused or would have refused.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The time of the last request.
    #[schemars(with = "String")]
    pub(super) time: Timestamp,
    /// How many seconds ago that was.
    #[serde(skip)]
    pub(super) ago: i64,
    /// The target of the request.
    pub(super) object: Object,
    /// The same, as the status of a policy has it.
    #[serde(skip)]
    pub(super) target: String,
    /// `Deny`, `Warn` or `Audit`.
    pub(super) verdict: String,
    /// The reason, such as `InUse`. Absent if an older version of belay recorded the denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The user. Absent if only an Event is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    /// The policies that decide. Empty if only an Event is known, whose message names them.
    pub(super) policies: Vec<String>,
    /// The message of the refusal.
    pub(super) message: String,
    /// The number of requests of all users. Absent if no Event counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<i32>,
}

/// The verdicts of one policy in a day.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyCounts {
    /// The name.
    pub(super) name: String,
    /// The number of refused requests.
    pub(super) denied_last_24h: i64,
    /// The number of accepted requests that action Deny would have refused.
    pub(super) would_deny_last_24h: i64,
    /// The number of held objects.
    pub(super) held_last_24h: i64,
}

impl PolicyCounts {
    /// Whether belay accepted all requests, and kept their objects Terminating.
    fn only_held(&self) -> bool {
        self.denied_last_24h + self.would_deny_last_24h == 0 && self.held_last_24h > 0
    }
}

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denials {
    /// The requests that belay refused or would have refused, newest first.
    pub(super) items: Vec<Denial>,
    /// The counts of the last 24 hours in the whole cluster, for each policy with a count.
    pub(super) policies: Vec<PolicyCounts>,
    /// How many seconds old the counts of the policies can be, and with `--would` also the list: they
    /// contain all requests before that. A replica writes Events of denials at once. Absent without
    /// counts, and without a leader, because there are no newer ones then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) age_seconds: Option<u64>,
    /// Failed reads. The list may be incomplete.
    pub(super) not_read: Vec<FailedRead>,
    /// Whether the list contains allowed requests that action Deny would have denied.
    #[serde(skip)]
    pub(super) would: bool,
    /// Whether belay has no leader, which writes the statuses.
    #[serde(skip)]
    pub(super) has_no_leader: bool,
    /// The sentence if belay is uninstalled.
    #[serde(skip)]
    pub(super) uninstalled: Option<String>,
}

impl Report for Denials {
    const KIND: &'static str = "DenialList";

    /// 1 if a request was refused, 3 if that is unknown, 0 if none was.
    fn exit_code(&self) -> u8 {
        exit_code_of(!self.items.is_empty(), self.not_read.is_empty())
    }

    fn names(&self) -> Option<String> {
        Some(name_lines(self.items.iter().map(|item| item.object.arguments.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn text(&self, view: View) -> String {
        let mut text = String::new();
        if self.items.is_empty() {
            let missing = match self.age_seconds {
                Some(age) => format!("; those of the last {age} s may be missing"),
                None => String::new(),
            };
            text.push_str(&match (self.would, self.not_read.is_empty()) {
                (true, true) => {
                    format!("belay would have denied none of the allowed requests{missing}\n")
                }
                (false, true) => "no denials\n".to_owned(),
                (true, false) => "no such requests found, but some reads failed\n".to_owned(),
                (false, false) => "no denials found, but some reads failed\n".to_owned(),
            });
        } else {
            let heading = ["AGE", "VERDICT", "OBJECT", "USER"];
            let heading = view.columns(heading, ["TIME", "POLICIES"], "MESSAGE");
            let list = (&*self.items, SHOWN, "denials");
            let row = |table: &mut Table, item: &Denial| table.row(item.row(view));
            text.push_str(&view.table_in_turns(&heading, list, Denial::namespace, row));
        }
        let mut without_user = self.items.iter().filter(|item| item.subject.is_none()).peekable();
        if without_user.peek().is_some() {
            let delay = i64::try_from(delay()).unwrap_or(i64::MAX);
            let more = match without_user.any(|item| item.ago <= delay) {
                _ if self.not_read.iter().any(|unread| unread.resource == POLICIES) => {
                    USER_IN_POLICIES
                }
                _ if self.uninstalled.is_some() => "",
                true if !self.has_no_leader => USER_LATER,
                _ => USER_IN_LOG,
            };
            text.push_str(&view.screen.paragraph(0, &format!("{NO_USER}{more}")));
        }
        // The label belay.dev/protect is in no count.
        let listed: HashSet<&str> =
            self.items.iter().flat_map(|item| &item.policies).map(String::as_str).collect();
        // The list has no row for a request that belay accepted and held.
        let is_shown =
            |counts: &&PolicyCounts| listed.contains(counts.name.as_str()) || counts.only_held();
        let mut has_counts = false;
        for PolicyCounts { name, denied_last_24h, would_deny_last_24h, held_last_24h } in
            self.policies.iter().filter(is_shown)
        {
            has_counts = true;
            let line = format!(
                "policy {name}, whole cluster, last 24h: {denied_last_24h} denied, \
                 {would_deny_last_24h} would be denied, {held_last_24h} kept Terminating"
            );
            text.push_str(&view.screen.paragraph(0, &line));
        }
        // A replica writes Events of denials at once.
        let stale = match (self.has_no_leader, self.age_seconds) {
            _ if self.uninstalled.is_some() => self.uninstalled.clone(),
            (true, _) => Some(
                "belay has no leader, so no policy reports newer requests; check that the belay \
                 Pods run"
                    .to_owned(),
            ),
            (false, Some(age)) if self.would && !self.items.is_empty() => {
                Some(format!("the list may lack the requests of the last {age} s"))
            }
            (false, Some(age)) if !self.would && has_counts => {
                Some(format!("the counts may lack the requests of the last {age} s"))
            }
            (false, _) => None,
        };
        text.extend(stale.map(|stale| view.screen.paragraph(0, &stale)));
        text + &view.not_read(&self.not_read)
    }
}

impl Denial {
    fn namespace(&self) -> &str {
        &self.object.namespace
    }

    /// Whether the request was about this Namespace or an object in it.
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        self.object.own_namespace() == namespace
    }

    /// The denial in one line, for a list below its object.
    pub fn line(&self) -> String {
        let ago = format_age(self.ago);
        let by = self.subject.as_ref().map_or_else(String::new, |user| format!(", {user}"));
        format!("{ago} ago{by}: {}", self.message)
    }

    fn row(&self, view: View) -> Vec<Field> {
        let (tone, verdict) = match self.verdict.as_str() {
            "Deny" => (Tone::Bad, "denied".to_owned()),
            _ => (Tone::Doubtful, "would be denied".to_owned()),
        };
        let times = self.count.filter(|count| *count > 1);
        // The message ends with a command to copy.
        let times = times.map_or(String::new(), |count| {
            format!("{count} requests (of all users together), the last one: ")
        });
        let first = [
            format_age(self.ago).into(),
            Field::toned(tone, verdict),
            ObjectRef::parse_display(&self.target).arguments().into(),
            self.subject.as_deref().unwrap_or("-").into(),
        ];
        // Only the message of an Event names the policies.
        let policies = match self.policies.as_slice() {
            [] => "-".to_owned(),
            names => names.join(","),
        };
        let wide = [self.time.to_string().into(), policies.into()];
        view.columns(first, wide, format!("{times}{}", self.message).into())
    }
}
