//! Reads the kinds that CRDs define. CRDs are also stored as objects in the graph.
//!
//! Discovery lists a new kind some seconds later than the watch of CRDs, so belay takes custom
//! kinds from this watch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionCondition, CustomResourceDefinitionNames,
};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;

use super::objects::ObjectSink;
use super::watcher::WatchSink;
use crate::objects::{ApiError, KindInfo, Kinds, Unreadable};

/// The kinds that CRDs define, by the names of the CRDs.
pub type Crds = Arc<Mutex<BTreeMap<String, Crd>>>;

/// The content of a CRD that belay needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crd {
    /// The kind. The stored version comes first, because the API server need not convert it.
    pub info: KindInfo,
    pub terminating: bool,
}

/// Receives the watch events of CRDs.
pub struct CrdSink {
    pub objects: ObjectSink,
    pub crds: Crds,
    pub changed: Arc<Notify>,
    /// The CRDs of the list that is being read.
    listed: Option<BTreeMap<String, Crd>>,
}

#[derive(Deserialize)]
struct CrdFields {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    scope: String,
    names: CustomResourceDefinitionNames,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
}

#[derive(Deserialize, Default)]
struct Status {
    // A new CRD contains null.
    conditions: Option<Vec<CustomResourceDefinitionCondition>>,
}

/// Reads a CRD. Returns `None` while it is not established, or if it serves no version.
pub(super) fn read(json: &str) -> Result<(String, Option<Crd>), Unreadable> {
    let fields = serde_json::from_str(json).map_err(|error| Unreadable::new(json, &error));
    let CrdFields { metadata, spec, status } = fields?;
    let established =
        status.conditions.iter().flatten().any(|c| c.type_ == "Established" && c.status == "True");
    let mut versions: Vec<&Version> = spec.versions.iter().filter(|v| v.served).collect();
    versions.sort_by_key(|version| !version.storage);
    let Some(first) = versions.first().filter(|_| established) else {
        return Ok((metadata.name, None));
    };
    let namespaced = spec.scope == "Namespaced";
    let mut info =
        Kinds::custom(&spec.group, &first.name, &spec.names.kind, &spec.names.plural, namespaced);
    info.versions = versions.iter().map(|version| version.name.clone()).collect();
    let terminating = metadata.deletion_timestamp.is_some();
    Ok((metadata.name, Some(Crd { info, terminating })))
}

impl CrdSink {
    pub fn new(objects: ObjectSink, crds: Crds, changed: Arc<Notify>) -> Self {
        Self { objects, crds, changed, listed: None }
    }

    fn store_crd(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, crd) = read(json)?;
        if let Some(listed) = &mut self.listed {
            listed.extend(crd.map(|crd| (name, crd)));
            return Ok(());
        }
        let mut crds = self.crds.lock();
        if crds.get(&name) == crd.as_ref() {
            return Ok(());
        }
        match crd {
            Some(crd) => crds.insert(name, crd),
            None => crds.remove(&name),
        };
        drop(crds);
        self.changed.notify_one();
        Ok(())
    }
}

impl WatchSink for CrdSink {
    fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
        self.objects.begin();
    }

    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable> {
        let stored = self.store_crd(json);
        self.objects.add_listed(json).and(stored)
    }

    fn end(&mut self) {
        if let Some(listed) = self.listed.take() {
            *self.crds.lock() = listed;
        }
        self.objects.end();
        self.changed.notify_one();
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        let stored = self.objects.change(json);
        stored.and(self.store_crd(json))
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let name = match read(json) {
            Ok((name, _)) => Some(name),
            Err(unreadable) => unreadable.name.map(|(_, name)| name),
        };
        if let Some(name) = name {
            self.crds.lock().remove(&name);
        }
        self.changed.notify_one();
        self.objects.remove(json)
    }

    fn skip(&mut self) {
        self.objects.skip();
    }

    fn current(&mut self) {
        self.objects.current();
    }

    fn disconnected(&mut self) {
        self.objects.disconnected();
    }

    fn failed(&mut self, error: &ApiError, outdated_for: Duration) {
        self.objects.failed(error, outdated_for);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_stored_version_comes_first_and_a_crd_that_is_not_established_has_no_kind() {
        let json = |established: &str| {
            json!({
                "metadata": {"name": "widgets.example.com"},
                "spec": {"group": "example.com", "scope": "Namespaced",
                    "names": {"kind": "Widget", "plural": "widgets"},
                    "versions": [{"name": "v1", "served": true, "storage": false},
                        {"name": "v0", "served": false, "storage": false},
                        {"name": "v2", "served": true, "storage": true}]},
                "status": {"conditions": [{"type": "Established", "status": established}]},
            })
            .to_string()
        };
        let (name, crd) = read(&json("True")).unwrap();
        assert_eq!(name, "widgets.example.com");
        assert_eq!(crd.unwrap().info.versions, ["v2", "v1"]);
        assert_eq!(read(&json("False")).unwrap().1, None);
        let new = json("True").replace(r#"[{"status":"True","type":"Established"}]"#, "null");
        assert_eq!(read(&new).unwrap().1, None);
    }
}
