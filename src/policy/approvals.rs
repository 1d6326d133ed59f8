//! Approvals and pauses, compiled, and what it takes to satisfy policies. Which
//! approvals are in force for an object is for the decision to say.

use super::api::{DeletionApproval, Scope};
use super::compiled::{ApprovalTerms, Policy, Source};
use super::identities::account;
use crate::objects::{KeyedMap, Uid};

/// So far ahead of belay's clock an approval may have been given.
const SKEW_SECONDS: i64 = 300;

/// So much the clocks of two API servers may differ.
const SERVERS_SKEW_SECONDS: i64 = 5;

/// A pause: everything is Audit until it expires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pause {
    /// Its name.
    pub name: String,
    /// Its own uid, by which Events about it are found.
    pub uid: String,
    /// Who pauses.
    pub by: String,
    /// Until when, in seconds since 1970.
    pub expires: i64,
}

impl Pause {
    /// Compiles what somebody wrote.
    pub fn compile(pause: &super::api::Pause) -> Self {
        Self {
            name: pause.metadata.name.clone().unwrap_or_default(),
            uid: pause.metadata.uid.clone().unwrap_or_default(),
            by: pause.spec.by.clone(),
            expires: pause.spec.expiration_time.0.as_second(),
        }
    }

    /// When it ends, as people read it.
    pub fn until(&self) -> String {
        let end = jiff::Timestamp::from_second(self.expires);
        end.map_or_else(|_| self.expires.to_string(), |end| end.to_string())
    }
}

/// One person's yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its name.
    pub name: String,
    /// Its own uid: belay's own approvals are replaced under the same name.
    pub own_uid: String,
    /// Who gave it.
    pub approver: String,
    /// For what.
    pub group: String,
    /// For what.
    pub resource: String,
    /// For what.
    pub namespace: String,
    /// For what.
    pub object: String,
    /// For which identity.
    pub uid: Uid,
    /// Whether it covers what goes along, too.
    pub content: bool,
    /// The policies that exempted somebody, where belay itself recorded that;
    /// of anybody else's approval it is not read.
    pub exempts: Vec<Source>,
    /// Its resourceVersion. The API server takes those of all kinds from one
    /// counter, so it tells what came before the approval.
    pub version: u64,
    /// When it was given, in seconds since 1970.
    pub created: i64,
    /// Until when it is in force.
    pub expires: i64,
}

impl Approval {
    /// Compiles what somebody wrote. `None` without a creation time: the API
    /// server sets it, and without it nobody knows how long the approval lasts.
    /// `None` as well for one that is being deleted: its approver took it back.
    pub fn compile(approval: &DeletionApproval) -> Option<Self> {
        if approval.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = &approval.spec;
        let target = &spec.target_ref;
        Some(Self {
            name: approval.metadata.name.clone().unwrap_or_default(),
            own_uid: approval.metadata.uid.clone().unwrap_or_default(),
            approver: spec.approver.clone(),
            group: target.group.clone(),
            resource: target.resource.clone(),
            namespace: target.namespace.clone(),
            object: target.name.clone(),
            uid: Uid::new(&target.uid),
            content: spec.scope == Scope::Content,
            exempts: spec.exempts.iter().cloned().map(Source::Policy).collect(),
            version: approval
                .metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
            created: approval.metadata.creation_timestamp.as_ref()?.0.as_second(),
            expires: spec.expiration_time.0.as_second(),
        })
    }

    /// Whether it names exactly this object: a uid alone would let somebody
    /// with rights in one namespace approve what is in another.
    pub fn names(&self, identity: &Identity<'_>) -> bool {
        self.uid == identity.uid
            && self.group == identity.group
            && self.resource == identity.resource
            && self.namespace == identity.namespace
            && self.object == identity.name
    }

    /// Whether its content may be in this namespace: only where the API server
    /// checked the right to approve. That of a cluster-scoped object other than
    /// a Namespace is checked in the whole cluster.
    pub fn reaches(&self, namespace: &str) -> bool {
        let checked = match (self.group.as_str(), self.resource.as_str()) {
            ("", "namespaces") => &self.object,
            _ => &self.namespace,
        };
        checked.is_empty() || checked == namespace
    }

    /// Whether it was there when its object was deleted. The clocks of two API
    /// servers may differ a little.
    pub fn precedes(&self, deleted: i64) -> bool {
        self.created <= deleted.saturating_add(SERVERS_SKEW_SECONDS)
    }

    /// Whether it is in force for what was created at this time: before it expires, and
    /// after that for what was being deleted by then, and for content that was there, so
    /// that a cascade which began in time may end.
    pub fn is_in_force(&self, deleted: Option<i64>, created: i64, now: i64) -> bool {
        // The clocks of an API server and of belay may differ a little.
        let given = self.created <= now.saturating_add(SKEW_SECONDS);
        let ends = deleted.is_some_and(|deleted| deleted <= self.expires);
        given && (now < self.expires || (ends && created <= self.expires))
    }
}

/// An object, under exactly one identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// API group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Its uid.
    pub uid: Uid,
}

/// All approvals.
#[derive(Debug, Default)]
pub struct Approvals {
    by_uid: KeyedMap<Uid, Vec<Approval>>,
}

impl Approvals {
    /// These approvals.
    pub fn new(approvals: impl IntoIterator<Item = Approval>) -> Self {
        let mut all = Self::default();
        for approval in approvals {
            // An object without a uid is not stored; nothing can name it.
            if !approval.uid.is_none() {
                all.by_uid.entry(approval.uid).or_default().push(approval);
            }
        }
        all
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Approval> {
        self.by_uid.values().flatten()
    }

    /// Those that name this uid, whatever else they say.
    pub fn of_uid(&self, uid: Uid) -> &[Approval] {
        self.by_uid.get(&uid).map_or(&[], Vec::as_slice)
    }
}

impl ApprovalTerms {
    /// What satisfies all of several policies: the greatest number of people,
    /// the shortest duration, only accounts that every one of them lists.
    pub fn all<'t>(terms: impl IntoIterator<Item = &'t Self>) -> Option<Self> {
        terms.into_iter().fold(None, |all: Option<Self>, terms| {
            let Some(mut all) = all else { return Some(terms.clone()) };
            all.required = all.required.max(terms.required);
            all.longest_seconds = all.longest_seconds.min(terms.longest_seconds);
            all.accounts.retain(|account| terms.accounts.contains(account));
            Some(all)
        })
    }

    /// Whether these approvals are enough: of enough different people, each
    /// short enough.
    pub fn are_met(&self, approvals: &[&Approval]) -> bool {
        self.people(approvals).len() >= self.required
    }

    /// Those of the people who gave these approvals whose yes counts, each
    /// once.
    pub fn people<'p>(&self, approvals: &[&'p Approval]) -> Vec<&'p str> {
        let counting = approvals.iter().filter(|approval| self.discount(approval).is_none());
        let mut people: Vec<&str> = counting.map(|approval| approval.approver.as_str()).collect();
        people.sort_unstable();
        people.dedup();
        people
    }

    /// Why an approval does not count; none: it counts.
    fn discount(&self, approval: &Approval) -> Option<DiscountReason> {
        let seconds = approval.expires.saturating_sub(approval.created);
        if !(1..=self.longest_seconds).contains(&seconds) {
            return Some(DiscountReason::TooLong { longest_seconds: self.longest_seconds });
        }
        let (namespace, name) = account(&approval.approver)?;
        let listed = |listed: &String| listed.split_once('/') == Some((namespace, name));
        (!self.accounts.iter().any(listed)).then_some(DiscountReason::Unlisted)
    }
}

impl Policy {
    /// The first of these policies for which an approval does not count, and
    /// why; none: it counts for all.
    pub fn discounting<'p>(
        approval: &Approval,
        policies: impl IntoIterator<Item = &'p Self>,
    ) -> Option<(&'p Self, DiscountReason)> {
        let discounts = policies
            .into_iter()
            .filter_map(|policy| Some((policy, policy.approval.discount(approval)?)));
        discounts.min_by_key(|(_, why)| *why)
    }
}

/// Why an approval does not count for a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscountReason {
    /// It lasts longer than this.
    TooLong {
        /// What the policy allows.
        longest_seconds: i64,
    },
    /// The policy does not list the service account that gave it.
    Unlisted,
    /// It was given before the object became part of the approved content.
    Attached,
}

impl DiscountReason {
    /// The words after "the approval": what is wrong with it for a policy.
    pub fn explain(self, policy: &Source) -> String {
        match self {
            Self::TooLong { longest_seconds } => {
                let longest = format_seconds(longest_seconds.unsigned_abs());
                format!("lasts longer than {policy} allows ({longest})")
            }
            Self::Unlisted => {
                format!("is by a service account that approval.serviceAccounts of {policy} lacks")
            }
            Self::Attached => {
                "was given before the owners on the way to the approved object changed".to_owned()
            }
        }
    }
}

/// A duration as people write it: `1h30m`.
pub fn format_seconds(seconds: u64) -> String {
    let parts = [(seconds / 3600, "h"), (seconds % 3600 / 60, "m"), (seconds % 60, "s")];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, unit)| format!("{number}{unit}")).collect()
}
