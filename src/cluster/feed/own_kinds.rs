//! Reads the objects of belay's own kinds into memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::watcher::WatchSink;
use crate::objects::{ApiError, Unreadable, read_tolerant};
use crate::policy::api::{self, DeletionPolicy, Relation};
use crate::policy::{Approval, Pause};

/// The objects of belay's own kinds. Approvals and pauses are stored in compiled form, because
/// approvers may write metadata of any size.
#[derive(Debug, Default)]
pub struct OwnObjects {
    pub policies: OwnKindState<DeletionPolicy>,
    pub relations: OwnKindState<Relation>,
    pub approvals: OwnKindState<Approval>,
    pub pauses: OwnKindState<Pause>,
}

/// Why this version of belay can't parse an object that another version wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OtherVersion(pub String);

/// The objects by name.
type ByName<T> = BTreeMap<String, Result<T, OtherVersion>>;

#[derive(Debug)]
pub struct OwnKindState<T> {
    /// All objects that belay does not ignore.
    pub all: ByName<T>,
    /// Whether a list was read to its end once.
    pub synced: bool,
    /// Why the objects are unknown now.
    pub error: Option<ApiError>,
    /// Counts changes.
    pub changes: u64,
}

impl<T> Default for OwnKindState<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), synced: false, error: None, changes: 0 }
    }
}

/// What was read of one of belay's own kinds.
pub struct OwnKindReads<'a> {
    pub resource: &'static str,
    pub synced: bool,
    pub error: Option<&'a ApiError>,
    pub changes: u64,
}

impl<T> OwnKindState<T> {
    fn reads(&self, resource: &'static str) -> OwnKindReads<'_> {
        let Self { synced, error, changes, .. } = self;
        OwnKindReads { resource, synced: *synced, error: error.as_ref(), changes: *changes }
    }
}

impl OwnObjects {
    /// The reads of each kind. Only changes of the first two kinds need a compile.
    pub fn reads(&self) -> [OwnKindReads<'_>; 4] {
        [
            self.policies.reads("deletionpolicies"),
            self.relations.reads("relations"),
            self.approvals.reads("deletionapprovals"),
            self.pauses.reads("pauses"),
        ]
    }
}

/// One of belay's own kinds. `convert` returns `None` for objects that belay ignores.
pub struct OwnKind<K, T> {
    pub convert: fn(K) -> Option<T>,
    pub state: fn(&mut OwnObjects) -> &mut OwnKindState<T>,
}

pub const POLICIES: OwnKind<DeletionPolicy, DeletionPolicy> =
    OwnKind { convert: Some, state: |own_objects| &mut own_objects.policies };

pub const RELATIONS: OwnKind<Relation, Relation> =
    OwnKind { convert: Some, state: |own_objects| &mut own_objects.relations };

pub const APPROVALS: OwnKind<api::DeletionApproval, Approval> = OwnKind {
    convert: |approval| Approval::compile(&approval),
    state: |own_objects| &mut own_objects.approvals,
};

pub const PAUSES: OwnKind<api::Pause, Pause> = OwnKind {
    convert: |pause| Some(Pause::compile(&pause)),
    state: |own_objects| &mut own_objects.pauses,
};

/// Receives the watch events of one of belay's own kinds.
pub struct OwnSink<K, T> {
    own_objects: Arc<Mutex<OwnObjects>>,
    own_kind: OwnKind<K, T>,
    changed: Arc<Notify>,
    listed: Option<ByName<T>>,
}

impl<K, T> OwnSink<K, T> {
    pub fn new(
        own_objects: Arc<Mutex<OwnObjects>>,
        own_kind: OwnKind<K, T>,
        changed: Arc<Notify>,
    ) -> Self {
        Self { own_objects, own_kind, changed, listed: None }
    }

    fn update(&self, change: impl FnOnce(&mut OwnKindState<T>)) {
        let mut own_objects = self.own_objects.lock();
        let state = (self.own_kind.state)(&mut own_objects);
        change(state);
        state.changes += 1;
        drop(own_objects);
        self.changed.notify_one();
    }
}

/// Returns name and object. An object that this version of belay can't parse does not affect
/// the others.
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
    // Users who may write such an object may write managedFields of any form.
    match read_tolerant(json).and_then(K::deserialize) {
        Ok(object) => Ok((object.name_any(), Ok(object))),
        Err(error) => {
            let object_name = serde_json::from_str(json);
            let ObjectName { metadata } =
                object_name.map_err(|error| Unreadable::new(json, &error))?;
            Ok((metadata.name, Err(OtherVersion(error.to_string()))))
        }
    }
}

impl<K: DeserializeOwned + Resource, T> OwnSink<K, T> {
    /// Returns name and converted object.
    fn parse(&self, json: &str) -> Result<(String, Option<Result<T, OtherVersion>>), Unreadable> {
        let (name, object) = read(json)?;
        Ok((name, object.map(self.own_kind.convert).transpose()))
    }
}

impl<K: DeserializeOwned + Resource, T: Send> WatchSink for OwnSink<K, T> {
    fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = self.parse(json)?;
        if let (Some(listed), Some(object)) = (&mut self.listed, object) {
            listed.insert(name, object);
        }
        Ok(())
    }

    fn end(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        self.update(|state| {
            state.all = listed;
            state.synced = true;
            state.error = None;
        });
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = self.parse(json)?;
        self.update(|state| match object {
            Some(object) => drop(state.all.insert(name, object)),
            None => drop(state.all.remove(&name)),
        });
        Ok(())
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, _) = read::<K>(json)?;
        self.update(|state| {
            state.all.remove(&name);
        });
        Ok(())
    }

    fn skip(&mut self) {
        tracing::warn!(
            "an event of one of belay's own kinds can't be read; belay lists the kind again"
        );
    }

    // The objects stay in force while the connection is down.
    fn disconnected(&mut self) {}

    fn current(&mut self) {
        let unknown = (self.own_kind.state)(&mut self.own_objects.lock()).error.is_some();
        if unknown {
            self.update(|state| state.error = None);
        }
    }

    fn failed(&mut self, error: &ApiError, _: Duration) {
        let mut own_objects = self.own_objects.lock();
        let state = (self.own_kind.state)(&mut own_objects);
        let new = state.error.as_ref() != Some(error) && (error.is_lasting() || !state.synced);
        drop(own_objects);
        if new {
            self.update(|state| state.error = Some(error.clone()));
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
        let own_objects = Arc::<Mutex<OwnObjects>>::default();
        let mut own = OwnSink::new(own_objects.clone(), APPROVALS, Arc::default());
        let finalizers: Vec<String> = (0..10_000).map(|n| format!("a.b/{n}")).collect();
        let large = json!({"finalizers": finalizers, "annotations": {"a": "b".repeat(100_000)}});
        own.begin();
        own.add_listed(&approval("one", &large)).unwrap();
        own.end();
        own.change(&approval("two", &large)).unwrap();
        let state = format!("{:?}", own_objects.lock().approvals.all);
        assert!(state.contains("two") && state.len() < 2_000, "{} bytes", state.len());
    }

    #[test]
    fn h42_an_approval_that_is_being_deleted_does_not_count() {
        let own_objects = Arc::<Mutex<OwnObjects>>::default();
        let mut own = OwnSink::new(own_objects.clone(), APPROVALS, Arc::default());
        let ending = json!({"deletionTimestamp": "2020-01-01T00:00:01Z", "finalizers": ["a.b/c"]});
        let names = || own_objects.lock().approvals.all.keys().cloned().collect::<Vec<_>>();
        own.begin();
        for (name, more) in [("one", json!({})), ("two", json!({})), ("three", ending.clone())] {
            own.add_listed(&approval(name, &more)).unwrap();
        }
        own.end();
        assert_eq!(names(), ["one", "two"]);
        own.change(&approval("two", &ending)).unwrap();
        assert_eq!(names(), ["one"]);
        own.remove(&approval("two", &ending)).unwrap();
        assert_eq!(names(), ["one"]);
    }
}
