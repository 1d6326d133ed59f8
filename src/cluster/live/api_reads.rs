//! Carries out one live read.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::api::{self, Detail};
use super::super::api_error::ReadFailure;
use super::super::discovery::check_unserved;
use super::super::list::{ListQuery, ListReader, Next, read_object};
use super::super::world::World;
use super::memory::{ReadAccount, ReadMemory, ReservedMemory};
use super::queue::ReadGroup;
use crate::decide::{ListPart, LiveRead};
use crate::graph::Graph;
use crate::objects::{
    ApiError, KindId, KindInfo, ObjectRef, PROTECT_LABEL, Unreadable, is_path_segment,
};
use crate::relations::Catalogue;

/// The memory of an object besides its JSON, in bytes.
const OVERHEAD: usize = 64;

/// The objects of a read as JSON, with only the fields that verdicts read. Cheap to clone,
/// because several callers may share a read.
#[derive(Debug, Clone, Default)]
pub struct LiveObjects {
    objects: Arc<[Box<RawValue>]>,
    /// The objects of a list that can't be parsed.
    unreadable: Arc<[Unreadable]>,
    /// The reserved memory for the objects, and for the graph that is built from them.
    reserved: Vec<Arc<Vec<ReservedMemory>>>,
    /// Which fields of the objects were kept; `None`: all.
    pruner: Option<Arc<ObjectPruner>>,
    /// When the last request was sent.
    requested_at: Option<Instant>,
}

/// Removes the fields of objects that verdicts do not read.
#[derive(Debug)]
struct ObjectPruner {
    kind: KindId,
    /// Its relations read the fields to keep.
    catalogue: Arc<Catalogue>,
    /// The keys of the annotations to keep.
    annotations: BTreeSet<String>,
}

impl LiveObjects {
    /// Wraps whole objects, without reserved memory.
    pub fn new(objects: Vec<Box<RawValue>>) -> Self {
        Self { objects: objects.into(), ..Self::default() }
    }

    /// The JSON of each object.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.objects.iter().map(|object| object.get())
    }

    /// The objects of a list that can't be parsed. Each may use any object.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// When the last request was sent; `None` if no request was necessary.
    pub fn requested_at(&self) -> Option<Instant> {
        self.requested_at
    }

    /// Whether the objects contain all fields that this catalogue reads and all annotations that
    /// this graph keeps.
    pub fn has_fields_for(&self, catalogue: &Catalogue, graph: &Graph) -> bool {
        self.pruner.as_ref().is_none_or(|pruner| {
            pruner.catalogue.reads_like(catalogue, pruner.kind)
                && graph.kept_annotations().all(|key| pruner.annotations.contains(key))
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.objects().map(|object| object.len() + OVERHEAD).sum()
    }

    /// Keeps this memory reserved as long as a clone of the objects exists.
    pub(super) fn with_reserved(mut self, memory: Vec<ReservedMemory>) -> Self {
        self.reserved.push(Arc::new(memory));
        self
    }
}

/// How to read a kind.
#[derive(Debug, Clone)]
pub struct KindToRead {
    info: KindInfo,
    detail: Detail,
    /// Which fields of its objects to keep.
    pruner: Arc<ObjectPruner>,
    /// Whether its objects can be listed. The API server stores no objects of kinds that can't be
    /// listed.
    can_list: bool,
}

impl KindToRead {
    /// Finds the kind in the world; `None` if the world does not know that it is served.
    pub fn find(world: &World, read: &LiveRead) -> Option<Self> {
        let (group, resource) = read.kind();
        let kinds = &world.graph.kinds;
        let kind = kinds.find_resource(group, resource)?;
        let annotations = world.policies.annotation_keys().map(str::to_owned).collect();
        let catalogue = Arc::clone(&world.catalogue);
        Some(Self {
            info: kinds.info(kind).clone(),
            detail: world.detail(kind),
            pruner: Arc::new(ObjectPruner { kind, catalogue, annotations }),
            can_list: world.served.get(&kind).is_none_or(|served| served.list),
        })
    }

    /// The result of a read, with its reserved memory.
    fn result(
        &self,
        read: PrunedObjects,
        account: ReadAccount,
        requested_at: Instant,
    ) -> LiveObjects {
        let pruner = Some(Arc::clone(&self.pruner));
        let reserved = vec![Arc::new(account.into_reserved())];
        let (objects, unreadable) = (read.objects.into(), read.unreadable.into());
        LiveObjects { objects, unreadable, reserved, pruner, requested_at: Some(requested_at) }
    }

    /// Removes the fields that verdicts do not read.
    fn prune(&self, json: &str) -> Result<Box<RawValue>, Unreadable> {
        let ObjectPruner { kind, catalogue, annotations } = &*self.pruner;
        catalogue.prune(*kind, json, |key| annotations.contains(key))
    }
}

#[derive(Default)]
struct PrunedObjects {
    objects: Vec<Box<RawValue>>,
    unreadable: Vec<Unreadable>,
}

/// Carries out reads of one group.
pub struct ApiReads<'a> {
    pub client: &'a kube::Client,
    pub memory: &'a ReadMemory,
    /// The group that causes the read.
    pub group: &'a ReadGroup,
    /// The deadline of the read.
    pub deadline: Instant,
}

impl ApiReads<'_> {
    /// Carries out a read. The text of an error completes the sentence "belay does not know all
    /// objects of kind Pod: …".
    pub async fn carry_out(
        &self,
        kind: Option<&KindToRead>,
        read: &LiveRead,
    ) -> Result<LiveObjects, ApiError> {
        let outcome = match (kind, read) {
            (None, _) => Err(ApiError::NotFound.into()),
            (Some(kind), LiveRead::Object(ObjectRef { namespace, name, .. })) => {
                self.object(kind, namespace, name).await
            }
            (Some(kind), LiveRead::List { .. }) if !kind.can_list => Ok(LiveObjects::default()),
            (Some(kind), LiveRead::List { namespace, part, .. }) => {
                self.list(kind, namespace, *part).await
            }
        };
        match outcome {
            Ok(found) => Ok(found),
            // A 404 proves that there are no objects only if no API server serves the kind.
            Err(ReadFailure { error: ApiError::NotFound, .. }) => {
                let (group, resource) = read.kind();
                check_unserved(self.client, group, resource).await.map(|()| LiveObjects::default())
            }
            Err(failure) => Err(failure.error),
        }
    }

    async fn object(
        &self,
        kind: &KindToRead,
        namespace: &str,
        name: &str,
    ) -> Result<LiveObjects, ReadFailure> {
        let namespace = kind.info.namespace_or_empty(namespace);
        // No object has such a name, and it would change the path of the request.
        if !is_path_segment(name) || !(namespace.is_empty() || is_path_segment(namespace)) {
            return Ok(LiveObjects::default());
        }
        let request = api::get_request(&kind.info, (namespace, name), kind.detail)?;
        let requested_at = Instant::now();
        match api::send(self.client, request).await.map_err(ReadFailure::from) {
            Ok(body) => {
                let unreadable = |error: Unreadable| ApiError::Unreadable(error.to_string());
                let read = |json: &str| kind.prune(json).map_err(unreadable);
                let object = read_object(body, &self.memory.buffers, read).await??;
                let mut account = self.memory.account(self.group, self.deadline);
                reserve(&mut account, object.get().len()).await?;
                let read = PrunedObjects { objects: vec![object], ..PrunedObjects::default() };
                Ok(kind.result(read, account, requested_at))
            }
            Err(failure) if failure.is_absence(&kind.info.resource, name) => {
                Ok(LiveObjects::default())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Reads a list, or a part of it.
    async fn list(
        &self,
        kind: &KindToRead,
        namespace: &str,
        part: ListPart,
    ) -> Result<LiveObjects, ReadFailure> {
        let KindToRead { info, detail, .. } = kind;
        let namespace = info.namespace_or_empty(namespace);
        let labels = if part == ListPart::Labelled { PROTECT_LABEL } else { "" };
        let query = ListQuery { info, namespace, detail: *detail, labels };
        let mut list = ListReader::new(self.client, query, self.memory.buffers.clone());
        if part == ListPart::First {
            list = list.first();
        }
        let mut account = self.memory.account(self.group, self.deadline);
        let mut read = PrunedObjects::default();
        loop {
            match list.next().await? {
                Next::Object(json) => {
                    match kind.prune(json) {
                        Ok(object) => {
                            reserve(&mut account, object.get().len()).await?;
                            read.objects.push(object);
                        }
                        Err(unreadable) => {
                            reserve(&mut account, unreadable.name_len()).await?;
                            read.unreadable.push(unreadable);
                        }
                    }
                    if part == ListPart::First {
                        break;
                    }
                }
                Next::Again => {
                    read = PrunedObjects::default();
                    account.clear();
                }
                Next::End => break,
            }
        }
        Ok(kind.result(read, account, list.sent()))
    }
}

/// Waits until the memory of an object of this length is reserved.
async fn reserve(account: &mut ReadAccount, length: usize) -> Result<(), ApiError> {
    let reserved = account.reserve(length + OVERHEAD).await;
    reserved.map_err(|why| ApiError::Other(why.to_owned()))
}
