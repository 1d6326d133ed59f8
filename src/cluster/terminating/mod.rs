//! Finds all Terminating objects and the reasons why they are not deleted, with the
//! permissions of the caller. Read-only.

mod evidence;
mod list_reader;
mod services;
mod webhooks;

use std::cell::Cell;
use std::collections::HashMap;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

#[cfg(test)]
pub use self::evidence::BrokenApi;
pub use self::evidence::{Evidence, ObjectEvent, Workload, evidence};
pub use self::services::DeadConversion;
#[cfg(test)]
pub use self::webhooks::Rule;
pub use self::webhooks::{ServiceProblem, Webhook, WebhookAddress};
use super::api;
use super::api::Detail;
use super::feed::{Snapshot, UnreadKind};
use super::list::{ListQuery, read_list};
use crate::objects::{ApiError, KindInfo, Object, ObjectRef, full_name, read_shallow};

/// The number of kinds that are read at the same time.
const AT_ONCE: usize = 8;

/// An object that is Terminating.
#[derive(Debug, Clone)]
pub struct TerminatingObject {
    /// Its kind.
    pub info: KindInfo,
    /// Which object it is.
    pub object_ref: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Since when it should be deleted. For a Pod, that is after its grace period.
    pub since: Timestamp,
    /// It: at least its metadata.
    pub object: Value,
    /// Why it is no more than that, though more was asked for.
    pub unread: Option<ApiError>,
}

/// An object that a foreground deletion of its owner waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// Which object it is.
    pub object_ref: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Whether it is Terminating itself.
    pub terminating: bool,
}

/// When a Terminating object got its DELETE. Its deletionTimestamp is the end of the grace
/// period.
pub fn deleted_at(object: &Value) -> Option<Timestamp> {
    let metadata = object.get("metadata")?;
    let until: Timestamp = metadata.get("deletionTimestamp")?.as_str()?.parse().ok()?;
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    until.checked_sub(SignedDuration::from_secs(grace.unwrap_or(0))).ok()
}

/// The Terminating objects and their blocking dependents.
#[derive(Debug, Default)]
pub struct Survey {
    /// Terminating objects, oldest first.
    pub objects: Vec<TerminatingObject>,
    /// What blocks the end of its owner, by the uid of that.
    pub dependents: HashMap<String, Vec<Dependent>>,
    /// The kinds of which not all could be read.
    pub unread: Vec<UnreadKind>,
}

/// Receives the numbers of read kinds, all kinds and objects.
pub type Progress<'t> = &'t dyn Fn(usize, usize, usize);

/// Reads every object of every kind, in one namespace or in all. Of a kind that the user may
/// not list in the whole cluster, it reads the objects in the namespace `near`.
pub async fn survey(
    snapshot: &Snapshot,
    (namespace, near): (&str, &str),
    report_progress: Progress<'_>,
) -> Survey {
    let kinds = kinds(snapshot, namespace);
    let (done, objects) = (Cell::new(0_usize), Cell::new(0_usize));
    let all = kinds.len();
    let client = &snapshot.context.client;
    let count = |more: usize| {
        objects.set(objects.get() + more);
        report_progress(done.get(), all, objects.get());
    };
    let reads = kinds.into_iter().map(|info| {
        let (count, done) = (&count, &done);
        async move {
            let mut read = kind(client, &info, namespace, count).await;
            let mut failed = read.as_ref().err().cloned();
            let has_near = namespace.is_empty() && !near.is_empty();
            if info.namespaced && has_near && is_forbidden(&failed) {
                read = kind(client, &info, near, count).await;
                if read.is_ok() {
                    failed = Some(ApiError::forbidden_outside(near));
                }
            }
            done.set(done.get() + 1);
            count(0);
            (info, read, failed)
        }
    });
    let mut reads = futures_util::stream::iter(reads).buffer_unordered(AT_ONCE);
    let mut survey = Survey::default();
    let mut reads_near = false;
    while let Some((info, read, failed)) = reads.next().await {
        reads_near |= info.full_name() == "namespaces" && is_forbidden(&failed);
        let resource = full_name(&info.group, &info.resource);
        survey.unread.extend(failed.map(|why| UnreadKind { resource, why }));
        if let Ok(part) = read {
            survey.add(part);
        }
    }
    for group in &snapshot.stale {
        let why = "its server does not answer, so its kinds are unknown".to_owned();
        let why = ApiError::Unreachable(why);
        survey.unread.push(UnreadKind { resource: format!("*.{group}"), why });
    }
    let itself = if namespace.is_empty() && reads_near { near } else { namespace };
    if !itself.is_empty() {
        survey.namespace(snapshot, itself).await;
    }
    survey.unread.sort();
    survey.unread.dedup();
    survey.objects.sort_by(|a, b| {
        let order = |object: &TerminatingObject| {
            let ObjectRef { namespace, name, .. } = &object.object_ref;
            (object.since, namespace.clone(), name.clone())
        };
        order(a).cmp(&order(b))
    });
    // The same object may be served by several groups.
    let mut seen = std::collections::HashSet::new();
    survey.objects.retain(|found| seen.insert(found.uid.clone()));
    survey
}

fn is_forbidden(failed: &Option<ApiError>) -> bool {
    matches!(failed, Some(ApiError::Forbidden(_)))
}

/// The kinds to read. Events are left out: they expire, and there are more of them than
/// of any other kind.
fn kinds(snapshot: &Snapshot, namespace: &str) -> Vec<KindInfo> {
    let world = snapshot.context.world.read();
    let listed = world.served.iter().filter(|(_, served)| served.list);
    let infos = listed.map(|(kind, _)| world.graph.kinds.info(*kind));
    let wanted = infos.filter(|info| {
        info.resource != "events"
            && !info.versions.is_empty()
            && (info.namespaced || namespace.is_empty())
    });
    let mut kinds: Vec<KindInfo> = wanted.cloned().collect();
    kinds.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    kinds
}

/// What one kind adds.
#[derive(Debug, Default)]
struct Part {
    objects: Vec<TerminatingObject>,
    dependents: Vec<(String, Dependent)>,
}

impl Survey {
    fn add(&mut self, part: Part) {
        self.objects.extend(part.objects);
        for (owner, dependent) in part.dependents {
            self.dependents.entry(owner).or_default().push(dependent);
        }
    }

    /// Adds the Namespace itself.
    async fn namespace(&mut self, snapshot: &Snapshot, name: &str) {
        let info = {
            let kinds = &snapshot.context.world.read().graph.kinds;
            kinds.find("", "Namespace").map(|kind| kinds.info(kind).clone())
        };
        let Some(info) = info else { return };
        match api::object(&snapshot.context.client, &info, "", name, Detail::Metadata).await {
            Ok(Some(json)) => {
                let mut part = Part::default();
                match part.take(&info, &json) {
                    Ok(()) => self.add(part),
                    Err(_) => self.unread.push(UnreadKind {
                        resource: format!("namespaces/{name}"),
                        why: ApiError::Unreadable("it does not have the expected form".to_owned()),
                    }),
                }
            }
            Ok(None) => {}
            Err(error) => {
                self.unread.push(UnreadKind { resource: format!("namespaces/{name}"), why: error })
            }
        }
    }
}

impl Part {
    /// Takes one object in, as the API server wrote it.
    fn take(&mut self, info: &KindInfo, json: &str) -> Result<(), serde_json::Error> {
        let object: Object<'_> = serde_json::from_str(json)?;
        let metadata = &object.metadata;
        let text = |text: &str| text.to_owned();
        let object_ref = ObjectRef::of_kind(info, &metadata.namespace, &metadata.name);
        for reference in &metadata.owner_references {
            if reference.block_owner_deletion == Some(true) {
                let dependent = Dependent {
                    object_ref: object_ref.clone(),
                    uid: text(&metadata.uid),
                    terminating: object.is_terminating(),
                };
                self.dependents.push((text(&reference.uid), dependent));
            }
        }
        if let Some(deleted) = object.deleted() {
            self.objects.push(TerminatingObject {
                info: info.clone(),
                object_ref,
                uid: text(&metadata.uid),
                since: Timestamp::from_second(deleted).unwrap_or(Timestamp::MIN),
                object: serde_json::from_str(json)?,
                unread: None,
            });
        }
        Ok(())
    }
}

/// All objects of one kind.
async fn kind(
    client: &kube::Client,
    info: &KindInfo,
    namespace: &str,
    count: &dyn Fn(usize),
) -> Result<Part, ApiError> {
    let take = |part: &mut Part, json: &str| {
        count(1);
        let odd =
            |_| ApiError::Unreadable("one of them does not have the expected form".to_owned());
        part.take(info, json).map_err(odd)
    };
    let query = ListQuery { info, namespace, detail: Detail::Metadata, labels: "" };
    read_list(client, query, take).await
}

/// Reads the whole object instead of its metadata. A deleted or forbidden object stays as
/// it was; a forbidden one is recorded.
pub async fn read_whole(snapshot: &Snapshot, found: &mut TerminatingObject) {
    let TerminatingObject { info, object_ref, uid, .. } = &*found;
    let ObjectRef { namespace, name, .. } = object_ref;
    let read = api::object(&snapshot.context.client, info, namespace, name, Detail::Whole).await;
    match read.map(|json| json.and_then(|json| read_shallow(&json).ok())) {
        Ok(Some(read)) if read.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid) => {
            found.object = read;
        }
        Ok(_) => {}
        Err(error) => found.unread = Some(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::objects::Kinds;

    #[test]
    fn the_time_of_a_delete_is_before_the_grace_period() {
        let object = |grace: i64| {
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z",
                "deletionGracePeriodSeconds": grace}})
        };
        let deleted = |grace: i64| deleted_at(&object(grace)).unwrap().to_string();
        assert_eq!(deleted(0), "2026-01-01T00:00:30Z");
        assert_eq!(deleted(30), "2026-01-01T00:00:00Z");
        assert_eq!(deleted_at(&object(i64::MIN)), None);
        assert_eq!(deleted_at(&json!({"metadata": {}})), None);
    }

    #[test]
    fn what_is_terminating_is_found_and_what_its_owner_waits_for() {
        let info = Kinds::custom("", "v1", "ConfigMap", "configmaps", true);
        let mut part = Part::default();
        part.take(
            &info,
            r#"{"metadata": {"name": "a", "namespace": "shop", "uid": "u-a",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x.dev/y"]}}"#,
        )
        .unwrap();
        let reference = |blocks: &str| {
            format!(
                r#"{{"metadata": {{"name": "b", "namespace": "shop", "uid": "u-b",
                "ownerReferences": [{{"apiVersion": "v1", "kind": "ConfigMap", "name": "a",
                "uid": "u-a"{blocks}}}]}}}}"#
            )
        };
        part.take(&info, &reference(r#", "blockOwnerDeletion": true"#)).unwrap();
        // The collector does not wait for these.
        part.take(&info, &reference(r#", "blockOwnerDeletion": false"#)).unwrap();
        part.take(&info, &reference("")).unwrap();
        let mut survey = Survey::default();
        survey.add(part);
        let [found] = &survey.objects[..] else { panic!("{survey:?}") };
        assert_eq!((found.object_ref.name.as_str(), found.uid.as_str()), ("a", "u-a"));
        assert_eq!(found.since.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(found.object["metadata"]["finalizers"][0], "x.dev/y");
        let [dependent] = &survey.dependents["u-a"][..] else { panic!("{survey:?}") };
        assert_eq!((dependent.object_ref.name.as_str(), dependent.terminating), ("b", false));
    }
}
