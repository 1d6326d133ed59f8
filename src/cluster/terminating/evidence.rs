//! Collects the facts that explain why an object is not deleted: API servers, workloads,
//! nodes and recent Events.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use serde_json::Value;

use super::list_reader::{ListReader, name};
use super::services::DeadConversion;
use super::webhooks::{LabelsByNamespace, Webhook};
use super::{CONCURRENT_READS, Dependent, Survey, TerminatingObject, deleted_at};
use crate::cluster::feed::{Snapshot, UnreadKind};
use crate::cluster::list::{Listed, list_all};
use crate::decide::{Verdict, only_wait};
use crate::objects::{
    ApiError, CLAIMS, CRDS, ObjectRef, condition, is_plain_name, list_at, one_line_name, text_at,
    texts_at,
};

/// The facts that explain why objects are not deleted.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The API groups that are served.
    pub groups: BTreeSet<String>,
    /// Whether there may be more groups, because CRDs could not be read.
    pub more_groups: bool,
    /// Whether there may be more webhooks than are known.
    pub more_webhooks: bool,
    /// Whether the source is files. Files may leave out existing objects.
    pub of_files: bool,
    /// The API groups whose server does not answer.
    pub unavailable_groups: BTreeSet<String>,
    /// The APIServices that are not available.
    pub broken: Vec<BrokenApi>,
    /// The workloads of the cluster.
    pub workloads: Vec<Workload>,
    /// Whether there may be more workloads, because a read failed.
    pub more_workloads: bool,
    /// The nodes, and whether each is ready; `None`: not read.
    pub nodes: Option<BTreeMap<String, bool>>,
    /// The webhooks that the API server calls before it stores changes.
    pub webhooks: Vec<Webhook>,
    /// The labels of Namespaces, if a webhook selects by them.
    pub namespace_labels: LabelsByNamespace,
    /// Kinds whose conversion webhook does not answer.
    pub conversions: Vec<DeadConversion>,
    /// Events by uid of their object, newest first.
    pub events: HashMap<String, Vec<ObjectEvent>>,
    /// The Pods that use a PersistentVolumeClaim, by its namespace and name.
    pub users: ClaimUsers,
    /// The finalizers that the user can't remove without an approval, by uid.
    pub guarded: HashMap<String, Vec<String>>,
    /// The denials of the garbage collector's requests to remove the owner references of dependents,
    /// by uid of the owner.
    pub orphaning_denials: HashMap<String, Vec<Verdict>>,
    /// The uids of the owners for which these denials are unknown, because there are many owners.
    pub unchecked_orphaning: HashSet<String>,
    /// The failed reads.
    pub unread: Vec<UnreadKind>,
}

/// An APIService that is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenApi {
    /// Its name, such as `v1beta1.metrics.k8s.io`.
    pub name: String,
    pub group: String,
    /// The message of its condition.
    pub why: String,
}

/// A Deployment, StatefulSet or DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The short name of the kind, for kubectl.
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    /// The names of its images, without registry and version.
    pub images: Vec<String>,
    /// The number of ready Pods.
    pub ready: i64,
}

/// A reported Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// The reporting component.
    pub by: String,
    pub reason: String,
    pub message: String,
}

/// Reads the facts about these objects. It reads Events only for the first `max_events` of them,
/// because each takes a request.
pub async fn evidence(
    snapshot: &Snapshot,
    found: &[&TerminatingObject],
    survey: &Survey,
    max_events: usize,
) -> Evidence {
    let (groups, unavailable_groups) = {
        let world = snapshot.context.world.read();
        let served = world.served.keys().map(|kind| world.graph.kinds.info(*kind).group.clone());
        (served.collect(), snapshot.stale.iter().cloned().collect())
    };
    let mut evidence = Evidence { groups, unavailable_groups, ..Evidence::default() };
    if found.is_empty() {
        return evidence;
    }
    let reader = ListReader { snapshot, unread: Mutex::default() };
    evidence.more_groups = reader.readable_kind(CRDS.0, CRDS.1, "").is_none();
    evidence.of_files = snapshot.kinds_in_files.is_some();
    let pods = found.iter().any(|found| found.object_ref.is_of(("", "pods")));
    // The workloads may be the controllers of other finalizers.
    let has_others =
        |found: &&TerminatingObject| !only_wait(texts_at(&found.object, "/metadata/finalizers"));
    let foreign = found.iter().any(has_others);
    let (broken, workloads, nodes, webhooks, conversions, events, users) = tokio::join!(
        reader.broken(),
        async { if foreign { reader.workloads().await } else { Default::default() } },
        async { if pods { reader.nodes().await } else { None } },
        reader.webhooks(found),
        reader.conversions(),
        reader.events(found.get(..max_events).unwrap_or(found), survey),
        reader.users(found),
    );
    (evidence.workloads, evidence.more_workloads) = workloads;
    (evidence.broken, evidence.nodes) = (broken, nodes);
    evidence.more_webhooks = webhooks.is_none();
    (evidence.webhooks, evidence.namespace_labels) = webhooks.unwrap_or_default();
    (evidence.conversions, evidence.events, evidence.users) = (conversions, events, users);
    evidence.unread = reader.unread.into_inner();
    evidence.unread.sort();
    evidence.unread.dedup();
    evidence
}

/// When an Event happened last.
fn last_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let old = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref());
    let new = series.or(event.event_time.as_ref());
    old.map(|time| time.0).or(new.map(|time| time.0))
}

impl ListReader<'_> {
    async fn broken(&self) -> Vec<BrokenApi> {
        let all = self.all("apiregistration.k8s.io", "apiservices", "").await;
        all.unwrap_or_default().iter().filter_map(broken).collect()
    }

    /// Reads the workloads. Returns also whether there may be more.
    async fn workloads(&self) -> (Vec<Workload>, bool) {
        let (deployments, sets, daemons) = tokio::join!(
            self.all("apps", "deployments", ""),
            self.all("apps", "statefulsets", ""),
            self.all("apps", "daemonsets", ""),
        );
        let kinds = [("deploy", deployments), ("sts", sets), ("ds", daemons)];
        let more = kinds.iter().any(|(_, all)| all.is_none());
        let read = |(kind, all): (&'static str, Option<Vec<Value>>)| {
            all.into_iter().flatten().filter_map(move |object| workload(kind, &object))
        };
        (kinds.into_iter().flat_map(read).collect(), more)
    }

    async fn nodes(&self) -> Option<BTreeMap<String, bool>> {
        let all = self.all("", "nodes", "").await?;
        let ready = |node: &Value| Some((name(node)?.to_owned(), is_true(node, "Ready")));
        Some(all.iter().filter_map(ready).collect())
    }

    /// The Events about the objects and about their blocking dependents, since the DELETE of
    /// the objects.
    async fn events(
        &self,
        found: &[&TerminatingObject],
        survey: &Survey,
    ) -> HashMap<String, Vec<ObjectEvent>> {
        let mut requests: Vec<(String, String, Timestamp)> = Vec::new();
        for found in found {
            let since = deleted_at(&found.object).unwrap_or(found.since);
            requests.push((found.object_ref.namespace.clone(), found.uid.clone(), since));
            let dependents = survey.blocking_dependents(&found.uid);
            let request = |d: &Dependent| (d.object_ref.namespace.clone(), d.uid.clone(), since);
            requests.extend(dependents.take(3).map(request));
        }
        let reads = requests.into_iter().map(|(namespace, uid, since)| async move {
            let events = self.events_of(&namespace, &uid, since).await;
            (uid, events)
        });
        let reads = futures_util::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
        reads.filter(|(_, events)| std::future::ready(!events.is_empty())).collect().await
    }

    async fn events_of(&self, namespace: &str, uid: &str, since: Timestamp) -> Vec<ObjectEvent> {
        // Events about cluster-scoped objects are in the namespace default.
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        if self.readable_kind("", "events", namespace).is_none() {
            return Vec::new();
        }
        let api: Api<Event> = Api::namespaced(self.snapshot.context.client.clone(), namespace);
        let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        let Listed { objects: mut events, unreadable } =
            list_all(api, params).await.unwrap_or_else(|why| {
                self.add_unread("events".to_owned(), why);
                Listed::default()
            });
        // An editor can write such an Event, so the report names it.
        if let Some(name) = unreadable.first() {
            let resource = ObjectRef::new(("", "events"), namespace, name).arguments();
            let why = ApiError::Unreadable("the Event has an unexpected form".to_owned());
            self.add_unread(resource, why);
        }
        // The times of Events and of a DELETE are whole seconds.
        events.retain(|event| last_time(event).is_none_or(|time| time >= since));
        events.sort_by_key(|event| std::cmp::Reverse(last_time(event)));
        let reported = events.into_iter().take(20).map(|event| {
            let source = event.source.and_then(|source| source.component);
            let component = event.reporting_component.filter(|name| !name.is_empty());
            ObjectEvent {
                by: component.or(source).unwrap_or_default(),
                reason: event.reason.unwrap_or_default(),
                message: event.message.unwrap_or_default(),
            }
        });
        reported.collect()
    }

    async fn users(&self, found: &[&TerminatingObject]) -> ClaimUsers {
        let claims = found.iter().filter(|found| found.object_ref.is_of(CLAIMS));
        let namespaces: BTreeSet<&str> =
            claims.map(|found| found.object_ref.namespace.as_str()).collect();
        let mut users = ClaimUsers::new();
        for namespace in namespaces {
            for pod in self.all("", "pods", namespace).await.unwrap_or_default() {
                for claim in claims_of(&pod) {
                    let key = (namespace.to_owned(), claim);
                    users.entry(key).or_default().extend(ClaimUser::read(&pod));
                }
            }
        }
        users
    }
}

/// The users of claims, by namespace and name of the claim.
pub type ClaimUsers = HashMap<(String, String), Vec<ClaimUser>>;

/// A Pod that uses a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimUser {
    /// The name of the Pod.
    pub pod: String,
    /// The kind and the name of the workload to scale down or to delete.
    pub controller: Option<String>,
    /// Whether the Pod has succeeded or failed. Scaling down its workload does not delete it.
    pub has_ended: bool,
    pub is_terminating: bool,
}

/// The kinds of workloads that create Pods, with their API versions.
const WORKLOADS: [(&str, &str); 5] = [
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

impl ClaimUser {
    fn read(pod: &Value) -> Option<Self> {
        let mut owners = list_at(pod, "/metadata/ownerReferences").iter();
        let controller = owners.find(|owner| owner["controller"] == true);
        let words = controller.and_then(|owner| {
            let text = |field: &str| owner[field].as_str();
            let (version, kind, name) = (text("apiVersion")?, text("kind")?, text("name")?);
            // An editor writes owner references. The garbage collector deletes a Pod whose owner
            // of one of these kinds does not exist.
            if !WORKLOADS.contains(&(version, kind)) || !is_plain_name(name) {
                return None;
            }
            // A Deployment names its ReplicaSets with the hash that is a label of their Pods.
            let hash = pod.pointer("/metadata/labels/pod-template-hash").and_then(Value::as_str);
            let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
            let (kind, name) = match deployment {
                Some(deployment) if kind == "ReplicaSet" => ("Deployment", deployment),
                _ => (kind, name),
            };
            Some(format!("{kind} {}", one_line_name(name)))
        });
        let has_ended = matches!(text_at(pod, "/status/phase"), "Succeeded" | "Failed");
        let is_terminating = deleted_at(pod).is_some();
        Some(Self { pod: name(pod)?.to_owned(), controller: words, has_ended, is_terminating })
    }
}

fn is_true(object: &Value, condition_type: &str) -> bool {
    condition(object, condition_type).is_some_and(|condition| condition["status"] == "True")
}

fn broken(service: &Value) -> Option<BrokenApi> {
    let available = condition(service, "Available")?;
    if available["status"] == "True" {
        return None;
    }
    Some(BrokenApi {
        name: name(service)?.to_owned(),
        group: service.pointer("/spec/group")?.as_str()?.to_owned(),
        why: format!("{}: {}", text_at(available, "/reason"), text_at(available, "/message")),
    })
}

fn workload(kind: &'static str, object: &Value) -> Option<Workload> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let containers = list_at(object, "/spec/template/spec/containers");
    let image = |container: &Value| {
        let image = container.get("image")?.as_str()?;
        let last = image.rsplit('/').next().unwrap_or_default();
        last.split([':', '@']).next().map(str::to_owned)
    };
    let ready_counts = ["/status/readyReplicas", "/status/numberReady"];
    Some(Workload {
        kind,
        namespace: text("/metadata/namespace")?.to_owned(),
        name: text("/metadata/name")?.to_owned(),
        images: containers.iter().filter_map(image).collect(),
        ready: ready_counts
            .iter()
            .find_map(|pointer| object.pointer(pointer)?.as_i64())
            .unwrap_or_default(),
    })
}

/// The PersistentVolumeClaims that Kubernetes keeps while this Pod exists (claim protection). They
/// are kept for a Pod on a node, also after the Pod has ended.
fn claims_of(pod: &Value) -> Vec<String> {
    if text_at(pod, "/spec/nodeName").is_empty() {
        return Vec::new();
    }
    let volumes = list_at(pod, "/spec/volumes").iter();
    let names = volumes.filter_map(|v| v.pointer("/persistentVolumeClaim/claimName")?.as_str());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
