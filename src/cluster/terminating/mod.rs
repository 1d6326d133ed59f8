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
pub use self::evidence::{ClaimUser, Evidence, ObjectEvent, Workload, evidence};
pub use self::services::DeadConversion;
pub use self::webhooks::{ServiceProblem, Webhook, WebhookAddress};
use super::api;
use super::api::Detail;
use super::feed::{Snapshot, UnreadKind};
use super::list::{ListQuery, read_list_if_served};
use crate::objects::{
    ApiError, KindInfo, Object, ObjectRef, full_name, read_tolerant,
    read_tolerant_with_managed_fields, text_at,
};

/// The number of kinds that are read at the same time.
const CONCURRENT_READS: usize = 8;

#[derive(Debug, Clone)]
pub struct TerminatingObject {
    pub info: KindInfo,
    /// Which object it is.
    pub object_ref: ObjectRef,
    pub uid: String,
    /// Since when it should be deleted. For a Pod, that is after its grace period.
    pub since: Timestamp,
    /// The metadata of the object, or all of it after [`read_whole`].
    pub object: Value,
    /// Why [`read_whole`] could not read the object.
    pub unread: Option<ApiError>,
}

/// An object with an owner reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    /// Which object it is.
    pub object_ref: ObjectRef,
    pub uid: String,
    /// Whether it is Terminating itself.
    pub terminating: bool,
    /// Whether a foreground deletion of the owner waits for it.
    pub blocks_owner: bool,
}

/// When a Terminating object got its DELETE. Its deletionTimestamp is the end of the grace
/// period.
pub fn deleted_at(object: &Value) -> Option<Timestamp> {
    let metadata = object.get("metadata")?;
    let grace_end: Timestamp = metadata.get("deletionTimestamp")?.as_str()?.parse().ok()?;
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    grace_end.checked_sub(SignedDuration::from_secs(grace.unwrap_or(0))).ok()
}

/// The Terminating objects and their blocking dependents.
#[derive(Debug, Default)]
pub struct Survey {
    /// Terminating objects, oldest first.
    pub objects: Vec<TerminatingObject>,
    /// The dependents, by the uid of their owner.
    pub dependents: HashMap<String, Vec<Dependent>>,
    /// The kinds that could not be read completely.
    pub unread: Vec<UnreadKind>,
}

/// Receives the numbers of read kinds, all kinds and objects.
pub type Progress<'t> = &'t dyn Fn(usize, usize, usize);

/// Reads every object of every kind, in one namespace or in all. If the user may not list a kind in
/// the whole cluster, it reads the objects of that kind in the namespace `near`.
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
            let mut read = read_kind(client, &info, namespace, count).await;
            let mut failed = read.as_ref().err().cloned();
            let has_near = namespace.is_empty() && !near.is_empty();
            if info.namespaced && has_near && is_forbidden(&failed) {
                read = read_kind(client, &info, near, count).await;
                if read.is_ok() {
                    failed = Some(ApiError::forbidden_outside(near));
                }
            }
            done.set(done.get() + 1);
            count(0);
            (info, read, failed)
        }
    });
    let mut reads = futures_util::stream::iter(reads).buffer_unordered(CONCURRENT_READS);
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
    let namespace = if namespace.is_empty() && reads_near { near } else { namespace };
    if !namespace.is_empty() {
        survey.read_namespace(snapshot, namespace).await;
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
    // Several groups may serve the same object.
    let mut seen = std::collections::HashSet::new();
    survey.objects.retain(|found| seen.insert(found.uid.clone()));
    survey
}

fn is_forbidden(failed: &Option<ApiError>) -> bool {
    matches!(failed, Some(ApiError::Forbidden(_)))
}

/// The kinds to read. Events are omitted, because they expire, and because there are more of them
/// than of any other kind.
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

/// The Terminating objects and dependents of one kind.
#[derive(Debug, Default)]
struct Part {
    objects: Vec<TerminatingObject>,
    dependents: Vec<(String, Dependent)>,
}

impl Survey {
    /// The dependents that a foreground deletion of the owner with this uid waits for.
    pub fn blocking_dependents(&self, owner: &str) -> impl Iterator<Item = &Dependent> {
        let dependents = self.dependents.get(owner).into_iter().flatten();
        dependents.filter(|dependent| dependent.blocks_owner)
    }

    fn add(&mut self, part: Part) {
        self.objects.extend(part.objects);
        for (owner, dependent) in part.dependents {
            self.dependents.entry(owner).or_default().push(dependent);
        }
    }

    /// Adds the Namespace itself.
    async fn read_namespace(&mut self, snapshot: &Snapshot, name: &str) {
        let info = snapshot.context.world.read().kind_info(("", "namespaces"));
        let Some(info) = info else { return };
        match api::object(&snapshot.context.client, &info, "", name, Detail::Metadata).await {
            Ok(Some(json)) => {
                let mut part = Part::default();
                match part.add(&info, &json) {
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
    fn add(&mut self, info: &KindInfo, json: &str) -> Result<(), serde_json::Error> {
        let object: Object<'_> = serde_json::from_str(json)?;
        let metadata = &object.metadata;
        let object_ref = ObjectRef::of_kind(info, &metadata.namespace, &metadata.name);
        for reference in &metadata.owner_references {
            let dependent = Dependent {
                object_ref: object_ref.clone(),
                uid: metadata.uid.to_string(),
                terminating: object.is_terminating(),
                blocks_owner: reference.block_owner_deletion == Some(true),
            };
            self.dependents.push((reference.uid.to_string(), dependent));
        }
        if let Some(deleted) = object.deleted() {
            self.objects.push(TerminatingObject {
                info: info.clone(),
                object_ref,
                uid: metadata.uid.to_string(),
                since: Timestamp::from_second(deleted).unwrap_or(Timestamp::MIN),
                object: read_tolerant_with_managed_fields(json)?,
                unread: None,
            });
        }
        Ok(())
    }
}

/// Reads all objects of one kind.
async fn read_kind(
    client: &kube::Client,
    info: &KindInfo,
    namespace: &str,
    count: &dyn Fn(usize),
) -> Result<Part, ApiError> {
    let add = |part: &mut Part, json: &str| {
        count(1);
        let malformed =
            |_| ApiError::Unreadable("one of them does not have the expected form".to_owned());
        part.add(info, json).map_err(malformed)
    };
    let query = ListQuery { info, namespace, detail: Detail::Metadata, labels: "" };
    read_list_if_served(client, query, add).await
}

/// Reads the whole object instead of its metadata. If the object was deleted or can't be read,
/// `found` keeps the metadata. A failed read is recorded.
pub async fn read_whole(snapshot: &Snapshot, found: &mut TerminatingObject) {
    let TerminatingObject { info, object_ref, uid, .. } = &*found;
    let ObjectRef { namespace, name, .. } = object_ref;
    let read = api::object(&snapshot.context.client, info, namespace, name, Detail::Whole).await;
    let unreadable = |_| ApiError::Unreadable("its JSON can't be read".to_owned());
    let parse = |json: Option<String>| {
        json.map(|json| read_tolerant(&json).map_err(unreadable)).transpose()
    };
    match read.and_then(parse) {
        Ok(Some(mut read)) if text_at(&read, "/metadata/uid") == uid => {
            // The managedFields are not in `read`. They name the client that added a finalizer.
            let managers = found.object.pointer_mut("/metadata/managedFields");
            if let Some(managers) = managers.map(serde_json::Value::take) {
                read["metadata"]["managedFields"] = managers;
            }
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
    fn finds_terminating_objects_and_blocking_dependents() {
        let info = Kinds::custom("", "v1", "ConfigMap", "configmaps", true);
        let mut part = Part::default();
        part.add(
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
        part.add(&info, &reference(r#", "blockOwnerDeletion": true"#)).unwrap();
        // The garbage collector does not wait for these.
        part.add(&info, &reference(r#", "blockOwnerDeletion": false"#)).unwrap();
        part.add(&info, &reference("")).unwrap();
        let mut survey = Survey::default();
        survey.add(part);
        let [found] = &survey.objects[..] else { panic!("{survey:?}") };
        assert_eq!((found.object_ref.name.as_str(), found.uid.as_str()), ("a", "u-a"));
        assert_eq!(found.since.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(found.object["metadata"]["finalizers"][0], "x.dev/y");
        assert_eq!(survey.dependents["u-a"].len(), 3);
        let blocking: Vec<&Dependent> = survey.blocking_dependents("u-a").collect();
        let [dependent] = blocking[..] else { panic!("{survey:?}") };
        assert_eq!((dependent.object_ref.name.as_str(), dependent.terminating), ("b", false));
    }
}
