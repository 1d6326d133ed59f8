//! The situation of a row: its objects, policies, approvals and live reads.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::row::{LIBRARY, NOW, Row};
use crate::decide::{ListPart, LiveRead, LiveReads};
use crate::graph::{Graph, Incomplete};
use crate::objects::{ApiError, Flaw, Kinds, ObjectRef, Uid, Unreadable, split_api_version};
use crate::policy::api::{DeletionPolicySpec, Scope};
use crate::policy::{Approval, Approvals, Identities, Pause, Policy, PolicySet, PolicySource};
use crate::relations::Catalogue;

/// The kind, namespace and name in `StatefulSet db/postgres`, or in `StorageClass fast`.
pub(super) fn split(name: &str) -> (&str, &str, &str) {
    let (kind, rest) = name.split_once(' ').unwrap_or_else(|| panic!("{name}"));
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    (kind, namespace, name)
}

pub(super) fn uid(kind: &str, name: &str) -> String {
    format!("uid-{kind}-{name}")
}

pub(super) fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The manifest for a short form such as `{is: Pod db/x, owners: [ReplicaSet y], held: true}`.
pub(super) fn object(kinds: &Kinds, short: &Value) -> Value {
    let mut fields: Map<String, Value> = short.as_object().unwrap().clone();
    let is = fields.remove("is").unwrap();
    let (kind, namespace, name) = split(is.as_str().unwrap());
    let mut metadata = json!({
        "name": name,
        "uid": uid(kind, name),
        "creationTimestamp": time(-3600),
        // The object was written after all approvals.
        "resourceVersion": "20",
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    let mut take = |field: &str| fields.remove(field);
    if let Some(Value::Array(owners)) = take("owners") {
        // The first owner is the controller.
        let owners = owners.iter().enumerate().map(|(index, owner)| {
            let Some(owner) = owner.as_str() else { return owner.clone() };
            let (kind, _, name) = split(owner);
            json!({"apiVersion": api_version(kinds, kind), "kind": kind, "name": name,
                "uid": uid(kind, name), "blockOwnerDeletion": true, "controller": index == 0})
        });
        metadata["ownerReferences"] = owners.collect();
    }
    let mut finalizers: Vec<Value> =
        take("finalizers").map(|f| f.as_array().unwrap().clone()).unwrap_or_default();
    // `true`: the hold was added at CREATE. A number: belay added it this many seconds ago.
    match take("held") {
        Some(Value::Bool(true)) => finalizers.push(json!("belay.dev/hold")),
        Some(Value::Number(ago)) => {
            finalizers.push(json!("belay.dev/hold"));
            metadata["managedFields"] = json!([{
                "time": time(-ago.as_i64().unwrap()),
                "fieldsV1": {"f:metadata": {"f:finalizers": {"v:\"belay.dev/hold\"": {}}}},
            }]);
        }
        _ => {}
    }
    if !finalizers.is_empty() {
        metadata["finalizers"] = json!(finalizers);
    }
    if let Some(ago) = take("terminating") {
        metadata["deletionTimestamp"] = json!(time(-ago.as_i64().unwrap()));
    }
    for field in ["labels", "annotations", "uid"] {
        if let Some(value) = take(field) {
            metadata[field] = value;
        }
    }
    // The PersistentVolumeClaims, Secrets and ConfigMaps that a Pod or a template mounts.
    let mut volumes = Vec::new();
    for (field, volume) in [
        ("claims", json!({"persistentVolumeClaim": {"claimName": ""}})),
        ("secrets", json!({"secret": {"secretName": ""}})),
        ("configs", json!({"configMap": {"name": ""}})),
    ] {
        for name in take(field).iter().flat_map(|names| names.as_array().unwrap()) {
            let mut volume = volume.clone();
            for source in volume.as_object_mut().unwrap().values_mut() {
                for value in source.as_object_mut().unwrap().values_mut() {
                    *value = name.clone();
                }
            }
            volumes.push(volume);
        }
    }
    let mut manifest = json!({"apiVersion": api_version(kinds, kind), "kind": kind});
    manifest["metadata"] = metadata;
    if !volumes.is_empty() {
        match kind {
            "Pod" => manifest["spec"] = json!({"volumes": volumes}),
            _ => manifest["spec"] = json!({"template": {"spec": {"volumes": volumes}}}),
        }
    }
    json_patch::merge(&mut manifest, &Value::Object(fields));
    manifest
}

pub(super) fn api_version(kinds: &Kinds, kind: &str) -> String {
    let found = kinds.iter().find(|(id, info)| info.kind == kind && kinds.is_served(*id));
    let (_, info) = found.unwrap_or_else(|| panic!("no kind {kind}"));
    let slash = if info.group.is_empty() { "" } else { "/" };
    format!("{}{slash}{}", info.group, info.versions[0])
}

/// The kinds of the tables: the built-in ones, and some custom ones.
pub(super) fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    for (kind, resource) in [("Database", "databases"), ("Backup", "backups")] {
        kinds.learn(Kinds::custom("example.com", "v1", kind, resource, true));
    }
    kinds.learn(Kinds::custom("argoproj.io", "v1alpha1", "Application", "applications", true));
    kinds
}

pub(super) fn policy(library: &BTreeMap<String, Value>, wanted: &Value) -> Policy {
    let value = match wanted {
        Value::String(name) => {
            let mut value = library.get(name).unwrap_or_else(|| panic!("no policy {name}")).clone();
            value["name"] = json!(name);
            value
        }
        other => other.clone(),
    };
    let mut fields = value.as_object().unwrap().clone();
    // `like: name` changes a policy of the library.
    if let Some(base) = fields.remove("like") {
        let mut like = library[base.as_str().unwrap()].clone();
        json_patch::merge(&mut like, &Value::Object(fields));
        fields = like.as_object().unwrap().clone();
    }
    let name = fields.remove("name").unwrap();
    // `kinds: [configmaps, databases.example.com]` is short for targets.
    if let Some(Value::Array(kinds)) =
        fields.remove("kinds").filter(|_| !fields.contains_key("targets"))
    {
        let targets = kinds.iter().map(|kind| {
            let (resource, group) =
                kind.as_str().unwrap().split_once('.').unwrap_or((kind.as_str().unwrap(), ""));
            json!({"apiGroups": [group], "resources": [resource]})
        });
        fields.insert("targets".into(), targets.collect());
    }
    let spec: DeletionPolicySpec = serde_json::from_value(Value::Object(fields)).unwrap();
    Policy::compile(name.as_str().unwrap(), &spec).unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

pub(super) fn feed(graph: &mut Graph, catalogue: &Catalogue, objects: &[Value]) {
    for short in objects {
        let manifest = object(&graph.kinds, short);
        let api_version = manifest["apiVersion"].as_str().unwrap();
        let (group, _) = split_api_version(api_version);
        let kind = graph.kinds.find(group, manifest["kind"].as_str().unwrap()).unwrap();
        catalogue.parse_and_apply(graph, kind, &manifest.to_string()).unwrap();
    }
}

pub(super) fn read_text(read: &LiveRead) -> String {
    let dotted = |group: &str, resource: &str| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group}")
    };
    match read {
        LiveRead::Object(ObjectRef { group, resource, namespace, name, .. }) => {
            format!("get {} {namespace}/{name}", dotted(group, resource))
        }
        LiveRead::List { group, resource, namespace, part } => {
            let part = match part {
                ListPart::All => "list",
                ListPart::First => "first of",
                ListPart::Labelled => "labelled",
            };
            format!("{part} {} in {namespace}/", dotted(group, resource))
        }
    }
}

/// The situation of a row.
pub(super) struct Prepared {
    pub(super) graph: Graph,
    pub(super) policies: PolicySet,
    pub(super) reads: Option<LiveReads>,
}

pub(super) fn prepare(row: &Row) -> Prepared {
    let library: BTreeMap<String, Value> = serde_saphyr::from_str(LIBRARY).unwrap();
    let catalogue = Catalogue::new(&kinds(), &[]).unwrap();
    let policies = row.policies.iter().map(|p| policy(&library, p)).collect();
    let mut policies = PolicySet::new(policies, &catalogue);
    policies.identities = Identities {
        own: Some("system:serviceaccount:belay:belay".to_owned()),
        ..Identities::default()
    };
    policies.approvals = Approvals::new(row.approvals.iter().enumerate().map(|(n, approval)| {
        let (kind, namespace, name) = split(&approval.of);
        let kinds = kinds();
        let (_, info) = kinds.iter().find(|(_, info)| info.kind == kind).unwrap();
        let uid = approval.uid.clone().unwrap_or_else(|| uid(kind, name));
        Approval {
            name: format!("yes-{n}"),
            uid: n.to_string(),
            approver: approval.by.clone(),
            target: ObjectRef::of_kind(info, namespace, name),
            target_uid: Uid::new(&uid),
            content: approval.scope == Scope::Content,
            exempts: approval.exempts.iter().cloned().map(PolicySource::Policy).collect(),
            version: 10,
            created: NOW + approval.given * 60,
            expires: NOW + approval.until * 60,
        }
    }));
    if row.paused {
        policies.pauses = vec![Pause { expires: NOW + 60, ..Pause::default() }];
    }
    let mut graph = Graph::new(kinds());
    graph.keep_annotations(policies.annotation_keys().map(str::to_owned));
    let ids: Vec<_> = graph.kinds.iter().map(|(id, _)| id).collect();
    ids.iter().for_each(|id| graph.set_complete(*id, true));
    for (kind, why) in &row.incomplete {
        let (id, _) =
            kinds().iter().find(|(_, i)| i.kind == *kind).map(|(id, i)| (id, i.clone())).unwrap();
        graph.set_incomplete(id, Incomplete::Failed(api_error(why)));
    }
    for kind in &row.stale {
        let id = graph.kinds.iter().find(|(_, info)| info.kind == *kind).unwrap().0;
        graph.set_stale(id);
    }
    graph.track_owner_versions();
    feed(&mut graph, &catalogue, &row.before);
    feed(&mut graph, &catalogue, &row.objects);
    let malformed = Unreadable::of_unknown_name().flaw;
    mark_unreadable(&mut graph, &row.unreadable, malformed);
    mark_unreadable(&mut graph, &row.too_many, Flaw::TooManyReferences);
    for deleted in &row.gone {
        let (kind, namespace, name) = split(deleted);
        let (group, _) = split_owned(&api_version(&graph.kinds, kind));
        let kind = graph.kinds.find(&group, kind).unwrap();
        assert!(graph.delete(kind, namespace, name, None), "{deleted}");
    }
    let reads = row.live.as_ref().map(|live| {
        let mut reads = LiveReads { graph: Graph::new(kinds()), ..LiveReads::default() };
        feed(&mut reads.graph, &catalogue, &live.found);
        mark_unreadable(&mut reads.graph, &live.unreadable, malformed);
        reads
    });
    Prepared { graph, policies, reads }
}

pub(super) fn api_error(why: &str) -> ApiError {
    match why {
        "not served" => ApiError::NotFound,
        _ if why.contains("forbidden") => ApiError::Forbidden(why.to_owned()),
        _ => ApiError::Other(why.to_owned()),
    }
}

pub(super) fn mark_unreadable(graph: &mut Graph, objects: &[String], flaw: Flaw) {
    for object in objects {
        let (kind, namespace, name) = split(object);
        let kind = graph.kinds.iter().find(|(_, info)| info.kind == kind).unwrap().0;
        let name = Some((namespace.to_owned(), name.to_owned()));
        assert!(graph.set_unreadable(kind, &Unreadable { name, flaw }));
    }
}

pub(super) fn split_owned(api_version: &str) -> (String, String) {
    let (group, version) = split_api_version(api_version);
    (group.to_owned(), version.to_owned())
}
