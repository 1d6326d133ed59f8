//! The policies in the log: when each was in force, and what it means. The referee
//! implements their documentation independently of belay.

use std::collections::BTreeMap;

use serde_json::Value;

use super::event::{SECOND, Span};
use super::history::{History, Key, Life};
use super::object::Version;

/// A policy must have been ready for this long before the referee applies it: replicas and
/// API servers load it one after the other.
pub const MARGIN: i64 = 5 * SECOND;

/// A policy as it was written, for as long as that was in force.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: Value,
    /// The time from which it was ready until it changed.
    pub span: Span,
}

/// Every policy that was ever ready, with action Deny.
pub fn policies(history: &History) -> Vec<Policy> {
    let mut found = Vec::new();
    for life in history.of_kind("deletionpolicies") {
        let mut since: Option<Policy> = None;
        for version in &life.versions {
            let Some(whole) = &version.whole else { continue };
            let same = since.as_ref().is_some_and(|policy| policy.spec == whole["spec"]);
            if is_ready(whole) && version.deleted.is_none() {
                if !same {
                    found.extend(since.take().map(|policy| ended(policy, version.span.from)));
                    let span = Span { from: version.span.to, to: i64::MAX };
                    let (name, spec) = (life.key.3.clone(), whole["spec"].clone());
                    since = Some(Policy { name, spec, span });
                }
            } else if since.is_some() {
                found.extend(since.take().map(|policy| ended(policy, version.span.from)));
            }
        }
        let end = life.certain_until().min(life.deleted.as_ref().map_or(i64::MAX, |(s, _)| s.from));
        found.extend(since.map(|policy| ended(policy, end)));
    }
    found.retain(|policy| policy.spec["action"].as_str().unwrap_or("Deny") == "Deny");
    found
}

fn ended(policy: Policy, end: i64) -> Policy {
    Policy { span: Span { to: end, ..policy.span }, ..policy }
}

fn is_ready(policy: &Value) -> bool {
    let conditions = policy["status"]["conditions"].as_array();
    let is = |kind: &str| {
        conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
    };
    let observed = &policy["status"]["observedGeneration"];
    is("Ready") && is("Watching") && *observed == policy["metadata"]["generation"]
}

impl Policy {
    /// Whether it was in force all the time between, and well before.
    pub fn held_through(&self, from: i64, to: i64) -> bool {
        self.span.from + MARGIN <= from && to <= self.span.to
    }

    /// Whether it has this mode.
    pub fn has(&self, mode: &str) -> bool {
        !self.spec["protect"][mode].is_null()
    }

    /// Whether it puts holds on.
    pub fn holds(&self) -> bool {
        let always = self.has("always") && self.spec["exemptSubjects"].is_null();
        self.spec["hold"] != "Never" && (always || self.has("whileUsed"))
    }

    /// How many people have to approve.
    pub fn required(&self) -> usize {
        self.spec["approval"]["required"].as_u64().unwrap_or(1) as usize
    }

    /// Whether it speaks of an object with these labels. What the control plane
    /// makes in every namespace has no hold, and is deleted with its namespace.
    pub fn matches(&self, history: &History, key: &Key, version: &Version) -> bool {
        if key.1 == "configmaps" && key.3 == "kube-root-ca.crt" {
            return false;
        }
        let list = |name: &str| self.spec[name].as_array().into_iter().flatten();
        let is_one = |target: &Value| is_target(history, target, key, version);
        list("targets").any(is_one) && !list("exclude").any(is_one)
    }
}

/// The shapes of targets that the soak uses. A new shape must be added to the referee
/// first, so an unknown shape is an error of the program and not a policy that matches
/// nothing.
fn is_target(history: &History, target: &Value, key: &Key, version: &Version) -> bool {
    let names = |field: &str, name: &str| {
        let list = target[field].as_array().into_iter().flatten();
        list.into_iter().any(|text| text == name || text == "*")
    };
    for field in target.as_object().into_iter().flatten().map(|(field, _)| field.as_str()) {
        let known = ["apiGroups", "resources", "namespaceSelector", "objectSelector"];
        assert!(known.contains(&field), "the referee does not know targets with {field}");
    }
    let (group, resource, namespace, _) = key;
    names("apiGroups", group)
        && names("resources", resource)
        && selects(&target["objectSelector"], &version.labels)
        && (target["namespaceSelector"].is_null()
            || match resource.as_str() {
                "namespaces" => selects(&target["namespaceSelector"], &version.labels),
                _ => in_namespace(history, &target["namespaceSelector"], namespace, version.span),
            })
}

/// Labels of Namespaces do not change while a soak runs.
fn in_namespace(history: &History, selector: &Value, namespace: &str, span: Span) -> bool {
    let key = (String::new(), "namespaces".to_owned(), String::new(), namespace.to_owned());
    let there = |life: &&Life| life.created().is_some_and(|made| made.from <= span.to);
    let life = history.at_place(&key).filter(there).last();
    let labels = life.and_then(|life| life.last()).map(|version| &version.labels);
    namespace.is_empty() || labels.is_some_and(|labels| selects(selector, labels))
}

fn selects(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let fields = selector.as_object().into_iter().flatten();
    for (field, _) in fields {
        assert_eq!(field, "matchLabels", "the referee does not know selectors with {field}");
    }
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
}

/// Whether users may have approved the deletion of this object for this policy, which was
/// requested at one time and completed by another: they named the object, or one whose
/// deletion cascades to it. If the referee can't decide, it assumes an approval.
pub fn is_approved(
    history: &History,
    policy: &Policy,
    life: &Life,
    asked: i64,
    until: i64,
) -> bool {
    let above = owners_above(history, life);
    let (group, resource, namespace, _) = &life.key;
    let places = [
        (String::new(), "namespaces".to_owned(), String::new(), namespace.clone()),
        (
            "apiextensions.k8s.io".to_owned(),
            "customresourcedefinitions".to_owned(),
            String::new(),
            format!("{resource}.{group}"),
        ),
    ];
    let around = places.iter().flat_map(|key| history.at_place(key));
    let around = around.map(|life| (life.uid.as_str(), i64::MIN));
    let above: Vec<_> = above.into_iter().chain(around).collect();
    is_approved_with(history, policy, life, (asked, until), &above)
}

/// The same with the objects above the object, each with the start of the ownership.
pub fn is_approved_with(
    history: &History,
    policy: &Policy,
    life: &Life,
    (asked, until): (i64, i64),
    above: &[(&str, i64)],
) -> bool {
    let namespace = &life.key.2;
    // A service account's approval counts where a policy lists it; the soak's
    // list none.
    let mut people: Vec<&str> = Vec::new();
    for approval in history.of_kind("deletionapprovals") {
        let Some(first) = approval.versions.first().filter(|first| first.span.from <= until) else {
            continue;
        };
        let Some(whole) = &first.whole else { continue };
        let spec = &whole["spec"];
        let of = &spec["targetRef"]["uid"];
        // The time when the object above was deleted is checked separately.
        let covers = |(uid, since): &(&str, i64)| *of == *uid && *since <= first.span.to;
        let names = match *of == life.uid.as_str() {
            true => expires(spec).is_some_and(|time| time + MARGIN >= asked),
            false => {
                let content = spec["scope"] == "Content" && reaches(spec, namespace);
                content && above.iter().any(covers)
            }
        };
        let counts = |name: &&str| names && !name.starts_with("system:serviceaccount:");
        people.extend(spec["approver"].as_str().filter(counts));
    }
    people.sort_unstable();
    people.dedup();
    people.len() >= policy.required()
}

/// The owners above an object, and since when they are above it: an owner
/// reference that its object was created with has been there always.
fn owners_above<'h>(history: &'h History, life: &'h Life) -> BTreeMap<&'h str, i64> {
    let mut above = BTreeMap::new();
    let mut next = vec![(life, i64::MIN)];
    while let Some((life, below)) = next.pop() {
        for (number, version) in life.versions.iter().enumerate() {
            let added = if number == 0 { i64::MIN } else { version.span.from };
            let since = added.max(below);
            for owner in &version.owners {
                let known = above.entry(owner.as_str()).or_insert(i64::MAX);
                if since < *known {
                    *known = since;
                    next.extend(history.lives.get(owner).map(|owner| (owner, since)));
                }
            }
        }
    }
    above
}

/// Whether the content of an approved object may be in a namespace: the right to approve
/// was checked in one namespace, or in the whole cluster.
fn reaches(approval: &Value, namespace: &str) -> bool {
    let of = &approval["targetRef"];
    let is_namespace =
        of["resource"] == "namespaces" && of["group"].as_str().is_none_or(str::is_empty);
    let checked = if is_namespace { &of["name"] } else { &of["namespace"] };
    checked.as_str().is_none_or(|checked| checked.is_empty() || checked == namespace)
}

fn expires(approval: &Value) -> Option<i64> {
    super::event::time(&approval["expirationTime"])
}
