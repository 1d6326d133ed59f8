//! A synthetic cluster for benchmarks and memory measurements.

#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

pub mod verdict;

use belay::graph::{
    EdgeQualifier, Edges, Graph, NodeId, ObjectPhase, RelationId, Strength, UnresolvedUse,
};
use belay::objects::{KindId, Object};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The number of Pods in each namespace. The first namespace has ten thousand.
const PODS: usize = 100;

/// A graph of Pods. Each has an owner (its ReplicaSet) and uses a Secret, a
/// ConfigMap and a ServiceAccount that it shares with others, so there are more
/// than three edges for each object.
pub struct Cluster {
    /// The graph.
    pub graph: Graph,
    pods: KindId,
    secrets: KindId,
    namespaces: KindId,
}

impl Cluster {
    /// Creates a cluster of about this many objects.
    pub fn with(objects: usize) -> Self {
        let mut graph = Graph::default();
        let kind = |group, kind| graph.kinds.find(group, kind).unwrap();
        let (pods, secrets) = (kind("", "Pod"), kind("", "Secret"));
        let accounts = kind("", "ServiceAccount");
        let (config_maps, sets) = (kind("", "ConfigMap"), kind("apps", "ReplicaSet"));
        let namespaces = kind("", "Namespace");
        let all: Vec<KindId> = graph.kinds.iter().map(|(kind, _)| kind).collect();
        all.into_iter().for_each(|kind| graph.set_complete(kind, true));
        let mut cluster = Self { graph, pods, secrets, namespaces };
        let mut number = 0;
        // The users of the measured targets.
        cluster.add_namespace("hot");
        for users in [0, 10, 1_000] {
            if users * 2 > objects {
                continue;
            }
            let secret = format!("used-by-{users}");
            cluster.apply(secrets, "hot", &secret, None, &[]);
            for user in 0..users {
                let name = format!("user-{users}-{user}");
                cluster.apply(pods, "hot", &name, None, &[(secrets, &secret)]);
            }
        }
        while cluster.graph.object_count() < objects {
            let size = if number == 0 && objects >= 20_000 { 10_000 } else { PODS };
            let team = format!("team-{number}");
            cluster.add_namespace(&team);
            cluster.apply(secrets, &team, "credentials", None, &[]);
            cluster.apply(config_maps, &team, "settings", None, &[]);
            cluster.apply(accounts, &team, "robot", None, &[]);
            for set in 0..size / 10 {
                let name = format!("service-{set}-6d5f7c9b8");
                cluster.apply(sets, &team, &name, None, &[]);
                for pod in 0..9 {
                    let pod = format!("{name}-{pod}x7kq");
                    let uses =
                        [(secrets, "credentials"), (config_maps, "settings"), (accounts, "robot")];
                    cluster.apply(pods, &team, &pod, Some(&name), &uses);
                }
            }
            number += 1;
        }
        cluster
    }

    /// A Secret that this many Pods use.
    pub fn secret_with_users(&self, users: usize) -> NodeId {
        self.graph.find(self.secrets, "hot", &format!("used-by-{users}")).unwrap()
    }

    /// A Namespace with ten thousand objects.
    pub fn namespace_of_ten_thousand(&self) -> NodeId {
        self.graph.find(self.namespaces, "", "team-0").unwrap()
    }

    /// A review of an object of this cluster.
    pub fn review(
        &self,
        operation: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Vec<u8> {
        let mut old = json!({
            "apiVersion": "v1", "kind": "Any",
            "metadata": {"name": name, "namespace": namespace, "uid": uid(namespace, name),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": namespace, "app": "web"},
                "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}}}]},
            "spec": {"finalizers": ["kubernetes"]},
            "data": {"key": "c29tZXRoaW5nIG9mIGEgdXN1YWwgbGVuZ3Ro".repeat(20)},
        });
        let mut new = old.clone();
        json_patch::merge(&mut new, patch);
        match operation {
            "CREATE" => old = Value::Null,
            "DELETE" => new = Value::Null,
            _ => {}
        }
        let version = json!({"group": "", "version": "v1", "resource": resource});
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "0b1a1a52-6f27-4c0e-9d0d-6c7d8b2f1a01", "operation": operation,
                "name": name, "namespace": namespace, "resource": version,
                "userInfo": {"username": "alice", "groups": ["dev", "system:authenticated"]},
                "object": new, "oldObject": old, "dryRun": false, "options": {},
            }
        });
        serde_json::to_vec(&review).unwrap()
    }

    fn add_namespace(&mut self, name: &str) {
        self.apply(self.namespaces, "", name, None, &[]);
    }

    fn apply(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        owner: Option<&str>,
        uses: &[(KindId, &str)],
    ) {
        let mut metadata = json!({
            "name": name, "namespace": namespace, "uid": uid(namespace, name),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": owner.unwrap_or("other"), "pod-template-hash": "6d5f7c9b8", "team": namespace},
        });
        if let Some(owner) = owner {
            metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": owner, "uid": uid(namespace, owner), "controller": true, "blockOwnerDeletion": true}]);
        }
        let edges = Edges {
            uses: uses
                .iter()
                .enumerate()
                .map(|(index, (kind, name))| UnresolvedUse {
                    kind: *kind,
                    namespace: namespace.to_owned(),
                    name: (*name).to_owned(),
                    uid: None,
                    strength: Strength::Needs,
                    qualifier: EdgeQualifier::None,
                    relation: RelationId(0),
                    path: format!("spec.containers[0].envFrom[{index}].secretRef.name"),
                })
                .collect(),
            ..Edges::default()
        };
        let value = json!({ "metadata": metadata });
        let object = Object::deserialize(&value).unwrap();
        self.graph.apply(kind, &object, ObjectPhase::Active, edges);
    }
}

/// A unique uid for each name.
fn uid(namespace: &str, name: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (namespace, name).hash(&mut hasher);
    let hash = hasher.finish();
    format!("{:08x}-{:04x}-4000-8000-{:012x}", hash >> 32, hash & 0xffff, hash >> 16)
}

/// A realistic manifest of each of the most common kinds.
pub fn manifests() -> Vec<((&'static str, &'static str), Value)> {
    let metadata = |name: &str| {
        json!({"name": name, "namespace": "shop", "uid": uid("shop", name), "resourceVersion": "123456",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", "pod-template-hash": "6d5f7c9b8"},
            "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {}}}}]})
    };
    let pod = json!({
        "serviceAccountName": "web", "nodeName": "node-1",
        "containers": [{"name": "main", "image": "registry.example.com/web:1.2.3",
            "env": [{"name": "A", "value": "b"}, {"name": "P", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [{"name": "tls", "mountPath": "/tls"}, {"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    });
    let owned = |name: &str, kind: &str, owner: &str| {
        let mut metadata = metadata(name);
        metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner,
            "uid": uid("shop", owner), "controller": true, "blockOwnerDeletion": true}]);
        metadata
    };
    vec![
        (
            ("", "Pod"),
            json!({"metadata": owned("web-1", "ReplicaSet", "web-6d"), "spec": pod, "status": {"phase": "Running"}}),
        ),
        (
            ("apps", "Deployment"),
            json!({"metadata": metadata("web"), "spec": {"replicas": 3, "template": {"spec": pod}}}),
        ),
        (
            ("apps", "ReplicaSet"),
            json!({"metadata": owned("web-6d", "Deployment", "web"), "spec": {"replicas": 3, "template": {"spec": pod}}}),
        ),
        (
            ("", "ConfigMap"),
            json!({"metadata": metadata("settings"), "data": {"a": "b".repeat(500)}}),
        ),
        (
            ("", "Service"),
            json!({"metadata": metadata("web"), "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}),
        ),
        (
            ("", "PersistentVolumeClaim"),
            json!({"metadata": metadata("data"), "spec": {"volumeName": "pv-1", "storageClassName": "fast"}, "status": {"phase": "Bound"}}),
        ),
    ]
}
