//! The life of every object, according to the audit log.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::event::{Event, Span};
use super::object::Version;

/// Group, plural name, namespace, name.
pub type Key = (String, String, String, String);

/// One object under one uid.
#[derive(Debug, Clone)]
pub struct Life {
    /// Its key.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// Every version, by its number.
    pub versions: Vec<Version>,
    /// The first DELETE that was accepted, and whose it was.
    pub deleted: Option<(Span, String)>,
    /// When it was removed from storage, and by whose request.
    pub gone: Option<(Span, String)>,
    /// Requests that may have removed it, although their responses don't show it.
    pub doubts: Vec<(Span, String)>,
    /// Writes that were cut off, and may have been carried out.
    pub cut_off: Vec<(Span, String)>,
}

/// All lives.
#[derive(Debug, Default)]
pub struct History {
    /// By uid.
    pub lives: BTreeMap<String, Life>,
    by_place: HashMap<Key, Vec<String>>,
    by_kind: HashMap<String, Vec<String>>,
    by_need: HashMap<Key, Vec<String>>,
    by_owner: HashMap<String, Vec<String>>,
}

impl Life {
    /// When it was created.
    pub fn created(&self) -> Option<Span> {
        self.versions.first().map(|version| version.span)
    }

    /// The newest version that was certainly stored by then.
    pub fn at(&self, moment: i64) -> Option<&Version> {
        self.versions.iter().rev().find(|version| version.span.to <= moment)
    }

    /// Every version that was, or may have been, the newest at some time
    /// between.
    pub fn between(&self, from: i64, to: i64) -> impl Iterator<Item = &Version> {
        let first = self.versions.iter().rposition(|version| version.span.to <= from);
        let versions = &self.versions[first.unwrap_or(0)..];
        versions.iter().filter(move |version| version.span.from <= to)
    }

    /// The last version.
    pub fn last(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// When it became Terminating, according to its versions.
    pub fn terminating(&self) -> Option<i64> {
        self.versions.iter().find_map(|version| version.deleted)
    }

    /// Whether a write of such a user, cut off between these versions, may have changed the first into
    /// the second.
    pub fn may_be_changed_by(
        &self,
        is_such: impl Fn(&str) -> bool,
        (old, new): (&Version, &Version),
    ) -> bool {
        self.cut_off
            .iter()
            .any(|(span, by)| is_such(by) && span.to >= old.span.from && span.from <= new.span.to)
    }

    /// The last moment at which it certainly existed.
    pub fn certain_until(&self) -> i64 {
        let gone = self.gone.iter().map(|(span, _)| span.from);
        let doubts = self.doubts.iter().map(|(span, _)| span.from);
        gone.chain(doubts).min().unwrap_or(i64::MAX)
    }

    /// Whether it certainly existed at this moment.
    pub fn was_there(&self, moment: i64) -> bool {
        self.created().is_some_and(|made| made.to <= moment) && moment <= self.certain_until()
    }

    /// The name in reports.
    pub fn title(&self) -> String {
        let (group, resource, namespace, name) = &self.key;
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group} {namespace}/{name} ({})", self.uid)
    }
}

impl History {
    /// Processes one event.
    pub fn take(&mut self, event: &Event) {
        let is_write = matches!(
            event.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        );
        if !is_write || !event.complete {
            return;
        }
        match (event.verb.as_str(), event.is_done()) {
            ("deletecollection", true) => self.collection(event),
            ("deletecollection", false) => self.broken_off(event),
            ("delete", true) => self.delete(event),
            (_, true) if event.subresource.is_empty() || is_whole(&event.subresource) => {
                self.write(event);
            }
            ("delete" | "update" | "patch", false) => self.failed(event),
            _ => {}
        }
    }

    /// A write that was cut off may have been carried out. And of two writes that end
    /// the same object at the same time, one is answered as if there had been none, and
    /// the other one with the object as it was before.
    fn failed(&mut self, event: &Event) {
        if !event.subresource.is_empty() || !(event.code == 404 || event.code >= 500) {
            return;
        }
        let Event { group, resource, namespace, name, .. } = event;
        let key = (group.clone(), resource.clone(), namespace.clone(), name.clone());
        for uid in self.by_place.get(&key).into_iter().flatten() {
            let Some(life) = self.lives.get_mut(uid).filter(|life| life.gone.is_none()) else {
                continue;
            };
            let cut_off = event.verb == "delete" && event.code >= 500;
            if event.code >= 500 {
                life.cut_off.push((event.span, event.user.clone()));
            }
            if life.terminating().is_some() || life.deleted.is_some() || cut_off {
                life.doubts.push((event.span, event.user.clone()));
            }
        }
    }

    fn key(event: &Event, object: &Value) -> Key {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        (event.group.clone(), event.resource.clone(), namespace, name)
    }

    /// Records a version and returns the uid of its object.
    fn version(&mut self, event: &Event, object: &Value) -> Option<String> {
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let version = Version::of(&event.group, &event.resource, object, event.span, &event.user)?;
        let key = Self::key(event, object);
        if !self.lives.contains_key(&uid) {
            self.replaced(&key, event);
            self.by_place.entry(key.clone()).or_default().push(uid.clone());
            self.by_kind.entry(key.1.clone()).or_default().push(uid.clone());
        }
        let of = |need: &super::object::Need| {
            (need.0.to_owned(), need.1.to_owned(), key.2.clone(), need.2.clone())
        };
        for need in version.mentions.iter().map(of) {
            note(self.by_need.entry(need).or_default(), &uid);
        }
        for owner in &version.owners {
            note(self.by_owner.entry(owner.clone()).or_default(), &uid);
        }
        let life = self.lives.entry(uid.clone()).or_insert_with(|| Life {
            key,
            uid: uid.clone(),
            versions: Vec::new(),
            deleted: None,
            gone: None,
            doubts: Vec::new(),
            cut_off: Vec::new(),
        });
        // Answers are not in the order of storage.
        match life.versions.binary_search_by_key(&version.number, |version| version.number) {
            Ok(_) => {}
            Err(at) => {
                life.versions.insert(at, version);
                for next in at.max(1)..life.versions.len() {
                    let (before, after) = life.versions.split_at_mut(next);
                    if after[0].partial {
                        after[0].complete(&before[next - 1]);
                    } else if next > at {
                        break;
                    }
                }
            }
        }
        Some(uid)
    }

    /// An object is created under a name: the previous object with the name no longer
    /// exists.
    fn replaced(&mut self, key: &Key, event: &Event) {
        for uid in self.by_place.get(key).into_iter().flatten() {
            let Some(life) = self.lives.get_mut(uid).filter(|life| life.gone.is_none()) else {
                continue;
            };
            if let Some((span, by)) = life.doubts.last().cloned() {
                life.gone = Some((Span { from: span.from, to: event.span.to }, by));
            }
        }
    }

    fn write(&mut self, event: &Event) {
        let Some(uid) = self.version(event, &event.response) else { return };
        let Some(life) = self.lives.get_mut(&uid) else { return };
        // It was alive after the write began. A delete that was broken off at the same time may
        // have been carried out after the write.
        life.doubts.retain(|(span, _)| span.to > event.span.from);
        let over = Version::of(&event.group, &event.resource, &event.response, event.span, "");
        if over.is_some_and(|version| version.over) {
            life.gone.get_or_insert((event.span, event.user.clone()));
            self.record_removal(event, &uid);
        }
    }

    fn delete(&mut self, event: &Event) {
        let at_once = event.response["kind"] == "Status";
        let said = if at_once {
            event.response["details"]["uid"].as_str().map(str::to_owned)
        } else {
            self.version(event, &event.response)
        };
        let Some(life) = said.as_ref().and_then(|uid| self.lives.get_mut(uid)) else { return };
        let metadata = &event.response["metadata"];
        let graceful = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
        let kept = metadata["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            || event.response["spec"]["finalizers"].as_array().is_some_and(|l| !l.is_empty());
        life.deleted.get_or_insert((event.span, event.user.clone()));
        if at_once || !(graceful || kept) {
            life.gone.get_or_insert((event.span, event.user.clone()));
            if let Some(uid) = said {
                self.record_removal(event, &uid);
            }
        }
    }

    /// The response lists the deleted objects as they were before: those with finalizers,
    /// or with a finalizer added at the last moment, stay Terminating.
    fn collection(&mut self, event: &Event) {
        for item in event.response["items"].as_array().into_iter().flatten() {
            let Some(uid) = item["metadata"]["uid"].as_str() else { continue };
            let Some(life) = self.lives.get_mut(uid) else { continue };
            life.deleted.get_or_insert((event.span, event.user.clone()));
            life.doubts.push((event.span, event.user.clone()));
        }
    }

    fn broken_off(&mut self, event: &Event) {
        for life in self.lives.values_mut().filter(|life| life.gone.is_none()) {
            let (group, resource, namespace, _) = &life.key;
            if (group, resource) == (&event.group, &event.resource)
                && (event.namespace.is_empty() || *namespace == event.namespace)
            {
                life.doubts.push((event.span, event.user.clone()));
            }
        }
    }

    /// With a CustomResourceDefinition its objects leave storage, and the log
    /// has no line of it.
    fn record_removal(&mut self, event: &Event, uid: &str) {
        if event.resource != "customresourcedefinitions" {
            return;
        }
        let Some(life) = self.lives.get(uid) else { return };
        let begun = life.deleted.clone().unwrap_or((event.span, event.user.clone()));
        let (resource, group) = life.key.3.split_once('.').unwrap_or_default();
        let (resource, group) = (resource.to_owned(), group.to_owned());
        let span = Span { from: begun.0.from, to: event.span.to };
        for life in self.lives.values_mut().filter(|life| life.gone.is_none()) {
            if life.key.0 == group && life.key.1 == resource {
                life.deleted.get_or_insert(begun.clone());
                life.gone = Some((span, begun.1.clone()));
            }
        }
    }

    /// The final content of the API server decides what the log leaves open. Returns the
    /// differences between the log and the API server.
    pub fn settle(
        &mut self,
        there: &BTreeSet<String>,
        judged: &dyn Fn(&Key) -> bool,
    ) -> Vec<String> {
        let mut disagree = Vec::new();
        for life in self.lives.values_mut().filter(|life| judged(&life.key)) {
            match (there.contains(&life.uid), &life.gone, life.doubts.first()) {
                (true, None, _) | (false, Some(_), _) => {}
                (false, None, Some((first, by))) => {
                    let last = life.doubts.last().map_or(first.to, |(span, _)| span.to);
                    life.deleted.get_or_insert((*first, by.clone()));
                    life.gone = Some((Span { from: first.from, to: last }, by.clone()));
                }
                (false, None, None) => {
                    disagree.push(format!(
                        "{} left storage, and the log does not say how",
                        life.title()
                    ));
                }
                (true, Some(_), _) => {
                    disagree.push(format!(
                        "{} is there, and the log says that it is gone",
                        life.title()
                    ));
                }
            }
        }
        for uid in there.iter().filter(|uid| !self.lives.contains_key(*uid)) {
            disagree.push(format!("an object {uid} is there, and the log does not say since when"));
        }
        disagree
    }

    fn all(&self, uids: Option<&Vec<String>>) -> Vec<&Life> {
        uids.into_iter().flatten().filter_map(|uid| self.lives.get(uid)).collect()
    }

    /// The lives of a kind, by its plural name.
    pub fn of_kind(&self, resource: &str) -> Vec<&Life> {
        self.all(self.by_kind.get(resource))
    }

    /// The objects that may ever have used this one: by the relations of Kubernetes, or as
    /// a custom resource.
    pub fn possible_users(&self, key: &Key) -> Vec<&Life> {
        let mut found = self.all(self.by_need.get(key));
        for resource in ["widgets", "gadgets"] {
            found.extend(self.of_kind(resource).into_iter().filter(|life| life.key.2 == key.2));
        }
        found
    }

    /// The objects that were ever owned by this uid.
    pub fn owned_by(&self, uid: &str) -> Vec<&Life> {
        self.all(self.by_owner.get(uid))
    }

    /// The lives under a place.
    pub fn at_place(&self, key: &Key) -> impl Iterator<Item = &Life> {
        let uids = self.by_place.get(key).into_iter().flatten();
        uids.filter_map(|uid| self.lives.get(uid))
    }
}

/// Adds a uid once. Most are added many times in a row.
fn note(uids: &mut Vec<String>, uid: &str) {
    if uids.iter().rev().all(|known| known != uid) {
        uids.push(uid.to_owned());
    }
}

/// Subresources whose answer is the object itself.
fn is_whole(subresource: &str) -> bool {
    matches!(subresource, "status" | "finalize" | "resize" | "ephemeralcontainers")
}
