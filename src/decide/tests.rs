//! The tables: each row is a few lines of YAML with a situation, a question and the expected
//! answer. The files are in `tables/`. Each row names the rule of docs/THEORY.md or the
//! scenario that it covers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::graph::{Graph, Incomplete};
use crate::objects::{
    ApiError, Flaw, Kinds, Object, Unreadable, set_former_hold_for_tests, split_api_version,
};
use crate::policy::api::{DeletionPolicySpec, Scope};
use crate::policy::{Approval, Approvals, Identities, Pause, Policy, PolicySet, PolicySource};
use crate::relations::Catalogue;

/// 2026-01-01T12:00:00Z: "now" in every row.
const NOW: i64 = 1_767_268_800;

const TABLES: &[(&str, &str)] = &[
    ("delete", include_str!("tables/delete.yaml")),
    ("content", include_str!("tables/content.yaml")),
    ("orphaning", include_str!("tables/orphaning.yaml")),
    ("hold", include_str!("tables/hold.yaml")),
    ("update", include_str!("tables/update.yaml")),
    ("approvals", include_str!("tables/approvals.yaml")),
    ("policies", include_str!("tables/policies.yaml")),
    ("live", include_str!("tables/live.yaml")),
];

const LIBRARY: &str = include_str!("tables/library.yaml");

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    row: String,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    scenarios: Vec<u8>,
    #[serde(default)]
    policies: Vec<Value>,
    #[serde(default)]
    approvals: Vec<ApprovalRow>,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    objects: Vec<Value>,
    /// The same objects as they were before the approvals.
    #[serde(default)]
    before: Vec<Value>,
    /// Objects that were deleted before the request.
    #[serde(default)]
    gone: Vec<String>,
    /// Kinds of which the graph does not have all objects, each with the reason.
    #[serde(default)]
    incomplete: BTreeMap<String, String>,
    /// Kinds whose watch is not connected.
    #[serde(default)]
    stale: Vec<String>,
    /// Objects that can't be read.
    #[serde(default)]
    unreadable: Vec<String>,
    /// Objects with too many references.
    #[serde(default, rename = "too-many")]
    too_many: Vec<String>,
    /// The live reads, for rows with a cluster.
    live: Option<LiveRow>,
    ask: Ask,
    expect: Expect,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveRow {
    /// The successful reads, in the form of [`read_text`].
    #[serde(default)]
    done: Vec<String>,
    #[serde(default)]
    found: Vec<Value>,
    #[serde(default)]
    failed: BTreeMap<String, String>,
    /// Objects of the lists that can't be read.
    #[serde(default)]
    unreadable: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApprovalRow {
    by: String,
    of: String,
    /// Another uid than that of the object.
    uid: Option<String>,
    #[serde(default)]
    scope: Scope,
    #[serde(default)]
    exempts: Vec<String>,
    /// The times of the creation and of the expiry, in minutes from now.
    #[serde(default = "five_minutes_ago")]
    given: i64,
    #[serde(default = "in_half_an_hour")]
    until: i64,
}

fn five_minutes_ago() -> i64 {
    -5
}

fn in_half_an_hour() -> i64 {
    30
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Ask {
    delete: Option<String>,
    /// The old object, if it differs from the object in the graph.
    object: Option<Value>,
    update: Option<String>,
    subresource: String,
    /// A merge patch from the old object to the new one.
    patch: Value,
    finalize: Option<String>,
    evict: Option<String>,
    /// The request has no name, because it is a deletecollection.
    nameless: bool,
    create: Option<Value>,
    by: Option<String>,
    groups: Vec<String>,
    options: Options,
    mutating: bool,
    dry_run: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Options {
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Expect {
    verdict: String,
    message: Option<String>,
    warning: Option<String>,
    /// The finalizers after the patch has been applied.
    after: Option<Vec<String>>,
    code: Option<u16>,
    #[serde(default)]
    approved: Vec<String>,
    #[serde(default)]
    exempted: Vec<String>,
    #[serde(default)]
    records: bool,
    #[serde(default)]
    confirm: Vec<String>,
    would: Option<String>,
}

fn rows() -> Vec<(&'static str, Row)> {
    let parse = |(file, text): &(&'static str, &str)| {
        let rows: Vec<Row> = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{file}: {e}"));
        rows.into_iter().map(|row| (*file, row)).collect::<Vec<_>>()
    };
    TABLES.iter().flat_map(parse).collect()
}

/// `StatefulSet db/postgres`, or `StorageClass fast`.
fn split(name: &str) -> (&str, &str, &str) {
    let (kind, rest) = name.split_once(' ').unwrap_or_else(|| panic!("{name}"));
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    (kind, namespace, name)
}

fn uid(kind: &str, name: &str) -> String {
    format!("uid-{kind}-{name}")
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The manifest for a short form such as `{is: Pod db/x, owners: [ReplicaSet y], held: true}`.
fn object(kinds: &Kinds, short: &Value) -> Value {
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

fn api_version(kinds: &Kinds, kind: &str) -> String {
    let found = kinds.iter().find(|(id, info)| info.kind == kind && kinds.is_served(*id));
    let (_, info) = found.unwrap_or_else(|| panic!("no kind {kind}"));
    let slash = if info.group.is_empty() { "" } else { "/" };
    format!("{}{slash}{}", info.group, info.versions[0])
}

/// The kinds of the tables: the built-in ones, and some custom ones.
fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    for (kind, resource) in [("Database", "databases"), ("Backup", "backups")] {
        kinds.learn(Kinds::custom("example.com", "v1", kind, resource, true));
    }
    kinds.learn(Kinds::custom("argoproj.io", "v1alpha1", "Application", "applications", true));
    kinds
}

fn policy(library: &BTreeMap<String, Value>, wanted: &Value) -> Policy {
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

fn feed(graph: &mut Graph, catalogue: &Catalogue, objects: &[Value]) {
    for short in objects {
        let manifest = object(&graph.kinds, short);
        let api_version = manifest["apiVersion"].as_str().unwrap();
        let (group, _) = split_api_version(api_version);
        let kind = graph.kinds.find(group, manifest["kind"].as_str().unwrap()).unwrap();
        catalogue.feed(graph, kind, &manifest.to_string()).unwrap();
    }
}

fn read_text(read: &LiveRead) -> String {
    let dotted = |group: &str, resource: &str| {
        let dot = if group.is_empty() { "" } else { "." };
        format!("{resource}{dot}{group}")
    };
    match read {
        LiveRead::Object(crate::objects::ObjectRef {
            group, resource, namespace, name, ..
        }) => {
            format!("get {} {namespace}/{name}", dotted(group, resource))
        }
        LiveRead::List { group, resource, namespace, first } => {
            let all = if *first { "first of" } else { "list" };
            format!("{all} {} in {namespace}/", dotted(group, resource))
        }
    }
}

/// The situation of a row.
struct Prepared {
    graph: Graph,
    policies: PolicySet,
    reads: Option<LiveReads>,
}

fn prepare(row: &Row) -> Prepared {
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
            own_uid: n.to_string(),
            approver: approval.by.clone(),
            object: crate::objects::ObjectRef::of_kind(info, namespace, name),
            uid: crate::objects::Uid::new(&uid),
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
    let malformed = Unreadable::of_unknown_place().flaw;
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

fn api_error(why: &str) -> ApiError {
    match why {
        "not served" => ApiError::NotFound,
        _ if why.contains("forbidden") => ApiError::Forbidden(why.to_owned()),
        _ => ApiError::Other(why.to_owned()),
    }
}

fn mark_unreadable(graph: &mut Graph, objects: &[String], flaw: Flaw) {
    for object in objects {
        let (kind, namespace, name) = split(object);
        let kind = graph.kinds.iter().find(|(_, info)| info.kind == kind).unwrap().0;
        let name = Some((namespace.to_owned(), name.to_owned()));
        assert!(graph.set_unreadable(kind, &Unreadable { name, flaw }));
    }
}

fn split_owned(api_version: &str) -> (String, String) {
    let (group, version) = split_api_version(api_version);
    (group.to_owned(), version.to_owned())
}

/// The phase, operation, subresource, old object and new object of the request of a row.
fn request(row: &Row) -> (AdmissionPhase, Operation, String, Option<Value>, Option<Value>) {
    let kinds = kinds();
    let old = |name: &str| {
        let mut all = row.ask.object.iter().chain(&row.objects);
        let found = all.find(|o| o["is"] == json!(name)).unwrap_or_else(|| panic!("no {name}"));
        object(&kinds, found)
    };
    let ask = &row.ask;
    let phase = if ask.mutating { AdmissionPhase::Mutate } else { AdmissionPhase::Validate };
    let patched = |name: &str| {
        let mut new = old(name);
        json_patch::merge(&mut new, &ask.patch);
        new
    };
    let subresource = ask.subresource.clone();
    if let Some(name) = &ask.delete {
        (phase, Operation::Delete, subresource, Some(old(name)), None)
    } else if let Some(name) = &ask.update {
        (phase, Operation::Update, subresource, Some(old(name)), Some(patched(name)))
    } else if let Some(name) = &ask.finalize {
        (phase, Operation::Update, "finalize".into(), Some(old(name)), Some(patched(name)))
    } else if let Some(name) = &ask.evict {
        let pod = old(name);
        let metadata =
            json!({"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]});
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata});
        (AdmissionPhase::Validate, Operation::Create, "eviction".into(), None, Some(eviction))
    } else {
        let mut new = object(&kinds, ask.create.as_ref().expect("a request"));
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("uid");
        (AdmissionPhase::Mutate, Operation::Create, subresource, None, Some(new))
    }
}

fn check(file: &str, row: &Row) -> Result<(), String> {
    let Prepared { graph, policies, reads } = prepare(row);
    let (phase, operation, subresource, old, new) = request(row);
    let one = old.as_ref().or(new.as_ref()).unwrap();
    let kind = if subresource == "eviction" { "Pod" } else { one["kind"].as_str().unwrap() };
    let (group, _) = split_owned(&api_version(&graph.kinds, kind));
    let info = graph.kinds.info(graph.kinds.find(&group, kind).unwrap()).clone();
    let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    // The objects are parsed from text, as in a request.
    let (old_text, new_text) =
        (old.as_ref().map(Value::to_string), new.as_ref().map(Value::to_string));
    let slim = |text: &'static str| serde_json::from_str::<Object<'_>>(text).unwrap();
    let leak = |text: Option<String>| text.map(|text| slim(String::leak(text)));
    let user = row.ask.by.clone().unwrap_or_else(|| "alice".to_owned());
    let mut review = Review {
        uid: "1".into(),
        phase,
        operation,
        resource: Resource {
            group: info.group.as_str().into(),
            resource: info.resource.as_str().into(),
            subresource: subresource.as_str().into(),
        },
        name: if row.ask.nameless { "" } else { text("/metadata/name") }.into(),
        namespace: text("/metadata/namespace").into(),
        user: Requester {
            name: user.as_str().into(),
            groups: row.ask.groups.iter().map(|g| g.as_str().into()).collect(),
        },
        dry_run: row.ask.dry_run,
        options: DeleteOptions {
            propagation_policy: row.ask.options.propagation_policy.as_deref().map(Into::into),
            orphan_dependents: row.ask.options.orphan_dependents,
        },
        object: leak(new_text),
        old_object: leak(old_text),
        details: ReviewDetails::default(),
        labelled: false,
    };
    if review.needs_details() {
        let raw = |object: &Option<Value>| {
            object.as_ref().map(|object| serde_json::value::to_raw_value(object).unwrap())
        };
        let (old, new) = (raw(&old), raw(&new));
        review.details = ReviewDetails::read(old.as_deref(), new.as_deref());
    }
    let mut reads = reads;
    if let (Some(reads), Some(live)) = (&mut reads, &row.live) {
        // The verdict lists the reads before the first one is made.
        let none = LiveReads::default();
        let live_none = ObjectSource::Cluster(&none);
        let situation = Situation::new(&graph, &policies, live_none, NOW);
        let asked = decide(&situation, &review).needed_reads;
        if let Some(odd) =
            live.done.iter().find(|done| !asked.iter().any(|a| read_text(a) == **done))
        {
            return Err(format!("{file}: {}\n  no row asks to {odd}, but {asked:?}", row.row));
        }
        if let Some(odd) = live.failed.keys().find(|f| !asked.iter().any(|a| read_text(a) == **f)) {
            return Err(format!("{file}: {}\n  no row asks to {odd}, but {asked:?}", row.row));
        }
        for asked in asked {
            let name = read_text(&asked);
            if let Some(why) = live.failed.get(&name) {
                reads.results.insert(asked, Err(api_error(why)));
            } else if live.done.contains(&name) {
                reads.results.insert(asked, Ok(()));
            }
        }
    }
    let live = reads.as_ref().map_or(ObjectSource::Files, ObjectSource::Cluster);
    let situation = Situation::new(&graph, &policies, live, NOW);
    let verdict = decide(&situation, &review);
    compare(file, row, &verdict, new.as_ref())
}

fn compare(file: &str, row: &Row, verdict: &Verdict, new: Option<&Value>) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        if expected != found {
            wrong.push(format!("  {what}\n    expected {expected}\n    found    {found}"));
        }
    };
    let reason = verdict.reason.filter(|_| verdict.decision != Decision::Allow);
    let word = reason.map_or(String::new(), |reason| format!(" {}", reason.as_str()));
    same("verdict", &row.expect.verdict, &format!("{}{word}", verdict.decision.as_str()));
    same("message", &row.expect.message, &message(verdict));
    same("facts that the message leaves out", &Vec::<String>::new(), &missing_texts(verdict));
    let warnings = warnings(verdict);
    assert!(warnings.iter().all(|w| w.chars().count() <= 120), "{warnings:?}");
    same("warning", &row.expect.warning, &warnings.first().cloned());
    let after = verdict.hold.as_ref().map(|_| {
        let mut patched = new.unwrap().clone();
        json_patch::patch(&mut patched, &patch(verdict).unwrap()).unwrap();
        let finalizers = patched["metadata"]["finalizers"].as_array().unwrap().clone();
        finalizers.iter().map(|f| f.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    });
    same("finalizers", &row.expect.after, &after);
    same("approved by", &row.expect.approved, &verdict.overrides.approvals);
    let exempted: Vec<_> = verdict.overrides.exempted.iter().map(ToString::to_string).collect();
    same("exempted by", &row.expect.exempted, &exempted);
    same("records", &row.expect.records, &verdict.exemption.is_some());
    let confirm: Vec<_> = verdict.needed_reads.iter().map(read_text).collect();
    same("confirm", &row.expect.confirm, &confirm);
    if let Some(code) = row.expect.code {
        let found = match verdict.denial_status {
            DenialStatus::Forbidden => 403,
            DenialStatus::TooManyRequests => 429,
        };
        same("code", &code, &found);
    }
    let annotations = audit_annotations(verdict);
    let would = annotations.iter().find(|(key, _)| *key == "would-deny").map(|(_, v)| v.clone());
    if row.expect.would.is_some() {
        same("would", &row.expect.would, &would);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{file}: {}\n{}", row.row, wrong.join("\n")))
}

/// The texts in the causes of a denial that its message does not contain.
fn missing_texts(verdict: &Verdict) -> Vec<String> {
    let message = message(verdict).unwrap_or_default();
    let mut missing = Vec::new();
    for StatusCause { reason, message: text, field } in denial(verdict).unwrap_or_default().1 {
        let parts: Vec<&str> = match reason {
            // In the message, the text may begin a sentence with an upper-case letter.
            "NextStep" => vec![text.split_at(1).1],
            // The message has the name, and the namespace if it is not that of the target.
            "Object" => text.split([' ', '/']).skip(1).filter(|part| *part != "-n").collect(),
            "Cause" => text.trim_end_matches(')').split(" (").chain([field.as_str()]).collect(),
            _ => vec![&text],
        };
        // The message has the name of a dependent in quotes.
        let is_in_message = |part: &str| {
            let name = part.rsplit('/').next().unwrap_or(part);
            message.contains(part) || reason == "Cause" && message.contains(&format!("{name:?}"))
        };
        let parts = parts.into_iter().filter(|part| !is_in_message(part));
        missing.extend(parts.map(|part| format!("{reason}: {part}")));
    }
    missing
}

fn run(wanted: impl Fn(&Row) -> bool) {
    let rows: Vec<_> = rows().into_iter().filter(|(_, row)| wanted(row)).collect();
    assert!(!rows.is_empty(), "no row matches");
    let failed: Vec<_> = rows.iter().filter_map(|(file, row)| check(file, row).err()).collect();
    assert!(failed.is_empty(), "{} of {} rows\n{}", failed.len(), rows.len(), failed.join("\n\n"));
}

fn scenario(number: u8) {
    run(|row| row.scenarios.contains(&number));
}

/// The rules that rows test. docs/THEORY.md describes them.
const RULES: &[(&str, &str)] = &[
    ("D1", "DELETE: approved, so it is allowed and recorded"),
    ("D2-namespace", "a Terminating Namespace without spec.finalizers and with content is denied"),
    ("D2-changed", "a repeated DELETE with another propagation is decided again"),
    ("D2-same", "a repeated DELETE that changes nothing is allowed"),
    ("D3-always", "in a cascade the DELETE of an always protected object is denied"),
    ("D3-along", "in a cascade, the objects that a held object deletes or orphans are judged"),
    ("D3-hold", "in a cascade an effective hold and no foreign finalizer is Hold"),
    ("D3-on", "in a cascade all other DELETEs are decided as outside of one"),
    ("D4", "a DELETE that may delete an always protected object is denied"),
    ("D5-deny", "a DELETE that may delete an object in use is denied if a user remains"),
    ("D5-hold", "or is Hold, only with an effective hold"),
    ("D5-foreign", "and with no foreign finalizer"),
    ("D5-doomed", "doomed users do not count if the hold is effective"),
    ("D6-exists", "whileExists with such an object is denied"),
    ("D6-not-empty", "whileNotEmpty with content is denied"),
    ("D5-unreadable", "an unreadable object counts as a user of each kind that its kind can use"),
    ("D6-unreadable", "unreadable content is denied"),
    ("M-elsewhere", "causes in other namespaces are one cause, without names and number"),
    ("D7", "a DELETE that orphans an object protected from orphaning is denied"),
    ("D8", "all other DELETEs are allowed"),
    ("U-approved", "UPDATE: approved, so it is allowed and recorded"),
    ("U-hold-only", "only the hold is removed: denied in the mutating phase"),
    ("U-hold-validating", "the hold is removed in the validating phase: denied"),
    (
        "U-put-back",
        "other fields change as well: the hold is restored at its index, with a warning",
    ),
    ("U-terminating", "Terminating: denied, next step release"),
    ("U-own", "belay's own account releases"),
    ("U-remover", "a remover removes a guarded finalizer: allowed"),
    ("U-nothing-left", "the finalizer guards no object any more: allowed"),
    ("U-strip", "any other removal of a guarded finalizer: denied"),
    ("U-owner-absent", "the control plane may remove a reference to an absent owner"),
    ("U-owner-approved", "a user with an approval may remove an owner reference"),
    (
        "U-owner-terminating",
        "the control plane may remove a reference to an owner that is deleted without orphaning",
    ),
    ("U-owner-other", "the control plane may remove a reference if another solid owner remains"),
    ("U-owner-uid", "an added reference with the uid of an owner counts as a removal of the owner"),
    ("U-owner-goes", "any other removal of an owner reference: denied"),
    ("U-orphan-goes", "the finalizer orphan of a Terminating owner is removed: decided as DELETE"),
    ("U-owner-comes", "an owner reference is added and no solid owner remains: decided as DELETE"),
    ("U-owner-going", "an added owner is being deleted with its own owners: decided as DELETE"),
    ("U-owner-opens", "an added owner allows a deletion of the object: decided as DELETE"),
    ("U-labels", "a change of labels weakens protection: denied without an approval"),
    ("U-finalize", "namespaces/finalize with remaining protected content is denied for every user"),
    ("E-evict", "an eviction of a protected Pod is answered 429"),
    ("Z-no-patch-on-delete", "never a patch on DELETE"),
    ("Z-no-finalizer-after-deletion", "never a finalizer added after deletionTimestamp"),
    ("Z-dry", "dry run decides the same and writes nothing"),
    ("Z-hold", "Hold answers Allow with a warning that names the user that the hold waits for"),
    ("Z-warn", "Warn warns"),
    ("Z-audit", "Audit records"),
    ("C-hold", "CREATE of a protected object adds the hold"),
    ("H-kinds", "no hold on Namespaces, CRDs, Pods, Nodes, Leases, EndpointSlices"),
    ("H-hooks", "nor on Helm and Argo hooks"),
    ("H-helm", "nor on Helm release Secrets"),
    ("H-listed", "nor on custom resources whose manifest lists finalizers"),
    ("H-argo", "nor on argoproj.io"),
    ("M-root", "the root owner is named"),
    ("M-three", "up to three blockers, then a count"),
    ("L-allow", "an Allow without an effective hold is confirmed live"),
    ("L-hold", "an Allow with an effective hold is not confirmed live"),
    ("L-stale", "but it is while the watch of a kind is not connected"),
    ("L-content", "an Allow for a Namespace or CRD is always confirmed live"),
    ("L-deny", "a Deny whose users have owners is confirmed by reads of the topmost owners"),
    ("L-owner", "an added owner reference is confirmed by a read of the owner"),
    ("L-exists", "a verdict reports nothing about an object that does not exist"),
    ("L-failed", "after a failed live read the verdict is Unknown"),
    ("P-strictest", "all policies apply, the strictest verdict wins, all are named"),
    ("P-exempt", "requests of exempt subjects are allowed and recorded"),
    (
        "P-record",
        "an exemption record allows the DELETEs that follow from that deletion, and no others",
    ),
    ("P-subjects", "a policy binds only its subjects"),
    ("P-exclude", "exclude has precedence"),
    ("P-annotations", "annotations match by their value"),
    ("P-places", "namespace selectors work as for webhooks"),
    ("P-override", "the first override that matches wins"),
    ("P-pause", "during a Pause each action is Audit"),
    ("P-by", "by matches the user or one of its owners"),
    ("P-optional", "optional references count if the policy counts them"),
    ("P-warn-no-hold", "policies with action Warn or Audit add no hold"),
];

#[test]
fn every_row_of_every_table() {
    set_former_hold_for_tests();
    run(|_| true);
}

/// Every user can write owner references. Long chains, ladders in which every rung has two
/// owners, and cliques must not stop belay.
#[test]
fn owner_references_of_any_shape_are_checked_within_limits() {
    let mut objects = vec![
        json!({"is": "Secret shop/key", "held": true, "owners": ["ConfigMap c0"]}),
        json!({"is": "Pod shop/long", "owners": ["ConfigMap l0"], "secrets": ["key"]}),
        json!({"is": "Pod shop/wide", "owners": ["ConfigMap w0a", "ConfigMap w0b"], "secrets": ["key"]}),
        json!({"is": "Pod shop/round", "owners": ["ConfigMap c0"], "secrets": ["key"]}),
    ];
    for at in 0..3_000 {
        let owner = format!("ConfigMap l{}", at + 1);
        objects.push(json!({"is": format!("ConfigMap shop/l{at}"), "owners": [owner]}));
    }
    for at in 0..40 {
        let owners = [format!("ConfigMap w{}a", at + 1), format!("ConfigMap w{}b", at + 1)];
        for side in ["a", "b"] {
            objects.push(json!({"is": format!("ConfigMap shop/w{at}{side}"), "owners": owners}));
        }
    }
    let clique: Vec<_> = (0..30).map(|at| format!("ConfigMap c{at}")).collect();
    for at in 0..30 {
        objects.push(json!({"is": format!("ConfigMap shop/c{at}"), "owners": clique}));
    }
    let row: Row = serde_json::from_value(json!({
        "row": "any shape", "policies": ["secret-in-use"], "objects": objects,
        "approvals": [{"by": "bob", "of": "ConfigMap shop/other", "scope": "Content"}],
        "ask": {"delete": "Secret shop/key"},
        "expect": {"verdict": "Deny InUse"},
    }))
    .unwrap();
    let wrong = check("here", &row).unwrap_err();
    assert!(!wrong.contains("  verdict"), "{wrong}");
}

/// A verdict has a few reasons and the number of the others, without the approved ones.
#[test]
fn ten_thousand_protected_objects_are_one_verdict() {
    let mut objects = vec![json!({"is": "Namespace shop"})];
    objects.extend((0..10_000).map(|n| json!({"is": format!("ConfigMap shop/c{n}")})));
    let row = |approved: &str, verdict: &str, names: Value| -> Row {
        serde_json::from_value(json!({
            "row": "many", "policies": ["vault"], "objects": objects,
            "approvals": [{"by": "bob", "of": approved, "scope": "Content"}],
            "ask": {"delete": "Namespace shop"},
            "expect": {"verdict": verdict, "approved": names},
        }))
        .unwrap()
    };
    check("here", &row("Namespace shop", "Allow", json!(["yes-0"]))).unwrap();
    let wrong = check("here", &row("Namespace other", "Deny Protected", json!([]))).unwrap_err();
    assert!(
        wrong.contains("There are 9997 more reasons.") && !wrong.contains("  verdict"),
        "{wrong}"
    );
}

#[test]
fn every_rule_has_a_row_and_every_row_names_an_existing_rule() {
    let rows = rows();
    let named = |rule: &str| rows.iter().any(|(_, row)| row.rules.iter().any(|r| r == rule));
    let untested: Vec<_> = RULES.iter().filter(|(rule, _)| !named(rule)).collect();
    assert!(untested.is_empty(), "no row for {untested:?}");
    let known = |rule: &String| RULES.iter().any(|(known, _)| known == rule);
    let unknown: Vec<_> =
        rows.iter().flat_map(|(_, row)| &row.rules).filter(|r| !known(r)).collect();
    assert!(unknown.is_empty(), "no such rule: {unknown:?}");
}

#[test]
fn s01_a_crd_with_custom_resources_stays() {
    scenario(1);
}

#[test]
fn s02_a_namespace_with_protected_content_stays() {
    scenario(2);
}

#[test]
fn s03_inside_an_approved_namespace_deletes_pass() {
    scenario(3);
}

#[test]
fn s04_of_all_claims_the_protected_one_alone_is_denied() {
    scenario(4);
}

#[test]
fn s05_the_hold_is_not_stripped() {
    scenario(5);
}

#[test]
fn s06_a_controller_takes_its_own_finalizer_off() {
    scenario(6);
}

#[test]
fn s07_apply_from_git_keeps_the_hold() {
    scenario(7);
}

#[test]
fn s08_finalize_waits_for_protected_content() {
    scenario(8);
}

#[test]
fn s09_every_shape_of_orphaning_is_denied() {
    scenario(9);
}

#[test]
fn s10_the_collectors_own_patches_pass() {
    scenario(10);
}

#[test]
fn s11_a_cascade_waits_on_the_hold() {
    scenario(11);
}

#[test]
fn s12_foreground_waits_for_what_is_held() {
    scenario(12);
}

#[test]
fn s13_create_makes_the_array_and_adds_nothing_twice() {
    scenario(13);
}

#[test]
fn s14_a_terminating_object_gets_no_finalizer() {
    scenario(14);
}

#[test]
fn s15_a_deletion_timestamp_is_no_way_around() {
    scenario(15);
}

#[test]
fn s16_taking_the_label_off_is_taking_protection_off() {
    scenario(16);
}

#[test]
fn s17_what_the_cache_has_not_seen_is_found_live() {
    scenario(17);
}

#[test]
fn s19_a_dry_run_has_the_real_verdict_and_records_nothing() {
    scenario(19);
}

#[test]
fn s20_replace_force_is_denied_clearly() {
    scenario(20);
}

#[test]
fn s21_evictions_and_cleanups_do_not_deadlock() {
    scenario(21);
}

#[test]
fn s22_what_is_used_is_protected() {
    scenario(22);
}

#[test]
fn s23_the_same_name_elsewhere_does_not_match() {
    scenario(23);
}

#[test]
fn s24_approvals_bind_uid_time_and_people() {
    scenario(24);
}

#[test]
fn s25_cycles_are_found_and_can_be_broken() {
    scenario(25);
}

#[test]
fn s31_what_cannot_be_read_is_never_a_silent_allow() {
    scenario(31);
}

#[test]
fn s32_a_tool_moves_objects_under_an_approval() {
    scenario(32);
}

#[test]
fn s33_a_hold_patched_on_during_admission_is_not_relied_on() {
    scenario(33);
}

#[test]
fn s35_delete_sts_and_pvc() {
    scenario(35);
}

#[test]
fn s36_prune_before_apply() {
    scenario(36);
}

#[test]
fn s37_apply_before_prune() {
    scenario(37);
}

#[test]
fn s38_a_recreated_pod_counts() {
    scenario(38);
}

#[test]
fn s39_a_manifest_that_lists_finalizers_gets_no_hold() {
    scenario(39);
}

#[test]
fn s41_deleted_in_parallel() {
    scenario(41);
}

#[test]
fn s43_a_pod_that_will_be_replaced_counts() {
    scenario(43);
}

#[test]
fn s44_a_finished_job_uses_nothing() {
    scenario(44);
}

#[test]
fn s45_a_hold_prints_a_warning() {
    scenario(45);
}

#[test]
fn s46_only_verdicts_that_need_a_kind_fail_closed() {
    scenario(46);
}

#[test]
fn s47_an_absent_owner_is_a_delete() {
    scenario(47);
}

#[test]
fn s48_pairs_can_be_deleted() {
    scenario(48);
}
