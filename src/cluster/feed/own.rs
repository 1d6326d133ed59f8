//! What people write: the kinds of belay's own, read into memory as they stand
//! in the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::watching::Sink;
use crate::objects::{ApiError, KindInfo, Kinds, Unreadable, read_shallow};
use crate::policy::api::{self, DeletionPolicy, GROUP, Relation};
use crate::policy::{Approval, Pause};

/// Everything that people have written, by name. Of approvals and pauses only
/// what counts is kept: approvers write them, with metadata of any size.
#[derive(Debug, Default)]
pub struct Said {
    pub policies: Kept<DeletionPolicy>,
    pub relations: Kept<Relation>,
    pub approvals: Kept<Approval>,
    pub pauses: Kept<Pause>,
}

/// An object that another version of belay has written, and what this one does not
/// understand of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OtherVersion(pub String);

/// The objects by name.
type ByName<T> = BTreeMap<String, Result<T, OtherVersion>>;

/// The objects of one kind.
#[derive(Debug)]
pub struct Kept<T> {
    /// All of them, as far as they count.
    pub all: ByName<T>,
    /// Whether all of them have been read once.
    pub synced: bool,
    /// Why they are not known now, if they are not.
    pub error: Option<ApiError>,
    /// Counts changes.
    pub changes: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), synced: false, error: None, changes: 0 }
    }
}

/// A kind of belay's own, and what is kept of an object; none: it does not count.
pub struct Part<K, T> {
    pub kind: &'static str,
    pub resource: &'static str,
    pub keep: fn(K) -> Option<T>,
    pub place: fn(&mut Said) -> &mut Kept<T>,
}

pub const POLICIES: Part<DeletionPolicy, DeletionPolicy> = Part {
    kind: "DeletionPolicy",
    resource: "deletionpolicies",
    keep: Some,
    place: |said| &mut said.policies,
};

pub const RELATIONS: Part<Relation, Relation> =
    Part { kind: "Relation", resource: "relations", keep: Some, place: |said| &mut said.relations };

pub const APPROVALS: Part<api::DeletionApproval, Approval> = Part {
    kind: "DeletionApproval",
    resource: "deletionapprovals",
    keep: |approval| Approval::compile(&approval),
    place: |said| &mut said.approvals,
};

pub const PAUSES: Part<api::Pause, Pause> = Part {
    kind: "Pause",
    resource: "pauses",
    keep: |pause| Some(Pause::compile(&pause)),
    place: |said| &mut said.pauses,
};

impl<K, T> Part<K, T> {
    /// The kind, as it is served.
    pub fn info(&self) -> KindInfo {
        Kinds::custom(GROUP, "v1alpha1", self.kind, self.resource, false)
    }
}

/// Takes in the objects of one kind.
pub struct Own<K, T> {
    said: Arc<Mutex<Said>>,
    part: Part<K, T>,
    news: Arc<Notify>,
    listed: Option<ByName<T>>,
}

impl<K, T> Own<K, T> {
    /// Nothing is known yet.
    pub fn new(said: Arc<Mutex<Said>>, part: Part<K, T>, news: Arc<Notify>) -> Self {
        Self { said, part, news, listed: None }
    }

    fn note(&self, change: impl FnOnce(&mut Kept<T>)) {
        let mut said = self.said.lock();
        let kept = (self.part.place)(&mut said);
        change(kept);
        kept.changes += 1;
        drop(said);
        self.news.notify_one();
    }
}

/// Name and object. An object that another version of belay has written may
/// say what this one does not understand: that is its own trouble alone.
fn read<K: DeserializeOwned + Resource>(
    json: &str,
) -> Result<(String, Result<K, OtherVersion>), Unreadable> {
    #[derive(serde::Deserialize)]
    struct ObjectName {
        metadata: Name,
    }
    #[derive(serde::Deserialize)]
    struct Name {
        name: String,
    }
    // Who may write such an object may write its managedFields, in any shape.
    match read_shallow(json).and_then(K::deserialize) {
        Ok(object) => Ok((object.name_any(), Ok(object))),
        Err(error) => {
            let named = serde_json::from_str(json);
            let ObjectName { metadata } = named.map_err(|error| Unreadable::new(json, &error))?;
            Ok((metadata.name, Err(OtherVersion(error.to_string()))))
        }
    }
}

impl<K: DeserializeOwned + Resource, T> Own<K, T> {
    /// Name and what is kept of an object.
    fn keep(&self, json: &str) -> Result<(String, Option<Result<T, OtherVersion>>), Unreadable> {
        let (name, object) = read(json)?;
        Ok((name, object.map(self.part.keep).transpose()))
    }
}

impl<K: DeserializeOwned + Resource, T: Send> Sink for Own<K, T> {
    fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    fn list(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = self.keep(json)?;
        if let (Some(listed), Some(object)) = (&mut self.listed, object) {
            listed.insert(name, object);
        }
        Ok(())
    }

    fn end(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        self.note(|kept| {
            kept.all = listed;
            kept.synced = true;
            kept.error = None;
        });
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = self.keep(json)?;
        self.note(|kept| match object {
            Some(object) => drop(kept.all.insert(name, object)),
            None => drop(kept.all.remove(&name)),
        });
        Ok(())
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, _) = read::<K>(json)?;
        self.note(|kept| {
            kept.all.remove(&name);
        });
        Ok(())
    }

    fn skip(&mut self) {
        tracing::warn!("an event of a kind of belay's own can't be read; it is listed again");
    }

    // What was read last stays true enough while a connection is down.
    fn disconnected(&mut self) {}

    fn current(&mut self) {
        let unknown = (self.part.place)(&mut self.said.lock()).error.is_some();
        if unknown {
            self.note(|kept| kept.error = None);
        }
    }

    fn broken(&mut self, error: &ApiError, _: Duration) {
        let mut said = self.said.lock();
        let kept = (self.part.place)(&mut said);
        let new = kept.error.as_ref() != Some(error) && (error.is_lasting() || !kept.synced);
        drop(said);
        if new {
            self.note(|kept| kept.error = Some(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn approval(name: &str, more: &Value) -> String {
        let mut metadata = json!({"name": name, "uid": name, "resourceVersion": "7",
            "creationTimestamp": "2020-01-01T00:00:00Z"});
        for (field, value) in more.as_object().unwrap() {
            metadata[field] = value.clone();
        }
        let target = json!({"resource": "configmaps", "namespace": "n", "name": "a", "uid": "u"});
        json!({"metadata": metadata, "spec": {"targetRef": target, "approver": "carol",
            "reason": "because", "expirationTime": "2020-01-01T01:00:00Z"}})
        .to_string()
    }

    #[test]
    fn h41_of_an_approval_only_what_counts_is_kept() {
        let said = Arc::<Mutex<Said>>::default();
        let mut own = Own::new(said.clone(), APPROVALS, Arc::default());
        let finalizers: Vec<String> = (0..10_000).map(|n| format!("a.b/{n}")).collect();
        let large = json!({"finalizers": finalizers, "annotations": {"a": "b".repeat(100_000)}});
        own.begin();
        own.list(&approval("one", &large)).unwrap();
        own.end();
        own.change(&approval("two", &large)).unwrap();
        let kept = format!("{:?}", said.lock().approvals.all);
        assert!(kept.contains("two") && kept.len() < 2_000, "{} bytes", kept.len());
    }

    #[test]
    fn h42_an_approval_that_is_being_deleted_does_not_count() {
        let said = Arc::<Mutex<Said>>::default();
        let mut own = Own::new(said.clone(), APPROVALS, Arc::default());
        let ending = json!({"deletionTimestamp": "2020-01-01T00:00:01Z", "finalizers": ["a.b/c"]});
        let names = || said.lock().approvals.all.keys().cloned().collect::<Vec<_>>();
        own.begin();
        for (name, more) in [("one", json!({})), ("two", json!({})), ("three", ending.clone())] {
            own.list(&approval(name, &more)).unwrap();
        }
        own.end();
        assert_eq!(names(), ["one", "two"]);
        own.change(&approval("two", &ending)).unwrap();
        assert_eq!(names(), ["one"]);
        own.remove(&approval("two", &ending)).unwrap();
        assert_eq!(names(), ["one"]);
    }
}
