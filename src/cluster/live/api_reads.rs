//! One live read, as a conversation with the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::api::{self, Detail};
use super::super::api_error::ReadFailure;
use super::super::discovery::{read_kinds, read_versions};
use super::super::list::{ListQuery, ListReader, Next, read_object};
use super::super::world::World;
use super::memory::{ReadAccount, ReadMemory, ReservedMemory};
use super::queue::ReadGroup;
use crate::decide::LiveRead;
use crate::graph::Graph;
use crate::objects::{ApiError, KindId, KindInfo, Kinds, ObjectRef, Unreadable};
use crate::relations::Catalogue;

/// What an object takes beside its JSON.
const OVERHEAD: usize = 64;

/// What a read found: what verdicts read of each object, as JSON. Cheap to
/// clone, for those who share a read.
#[derive(Debug, Clone, Default)]
pub struct ReadObjects {
    objects: Arc<[Box<RawValue>]>,
    /// Objects of a list that can't be read.
    unreadable: Arc<[Unreadable]>,
    /// The memory that the objects take, and the graph that is made of them.
    held: Vec<Arc<Vec<ReservedMemory>>>,
    /// What is there of the objects; `None`: all.
    pruned: Option<Arc<ObjectPruner>>,
    /// When the last of it was asked for.
    sent: Option<Instant>,
}

/// What is there of objects that were read.
#[derive(Debug)]
struct ObjectPruner {
    kind: KindId,
    /// What this reads.
    catalogue: Arc<Catalogue>,
    /// The annotations with these keys.
    annotations: BTreeSet<String>,
}

impl ReadObjects {
    /// These objects.
    pub fn new(objects: Vec<Box<RawValue>>) -> Self {
        Self { objects: objects.into(), ..Self::default() }
    }

    /// The JSON of each.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.objects.iter().map(|object| object.get())
    }

    /// The objects of a list that can't be read: any may use anything.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// When the last of it was asked for; `None`: nothing had to be.
    pub fn sent(&self) -> Option<Instant> {
        self.sent
    }

    /// Whether the objects have all that this catalogue reads and this graph
    /// keeps.
    pub fn has_all_of(&self, catalogue: &Catalogue, graph: &Graph) -> bool {
        self.pruned.as_ref().is_none_or(|pruned| {
            pruned.catalogue.reads_like(catalogue, pruned.kind)
                && graph.kept_annotations().all(|key| pruned.annotations.contains(key))
        })
    }

    /// How much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.objects().map(|object| object.len() + OVERHEAD).sum()
    }

    /// Holds this for as long as there is a clone of it.
    pub(super) fn holding(mut self, shares: Vec<ReservedMemory>) -> Self {
        self.held.push(Arc::new(shares));
        self
    }
}

/// What is known of the kind that is to be read.
#[derive(Debug, Clone)]
pub struct KindToRead {
    info: KindInfo,
    detail: Detail,
    /// What is kept of its objects.
    pruned: Arc<ObjectPruner>,
    /// Whether its objects can be listed. What cannot be has no objects that
    /// last.
    lists: bool,
}

impl KindToRead {
    /// What the world knows of it; `None`: that it is served is not known.
    pub fn find(world: &World, read: &LiveRead) -> Option<Self> {
        let (group, resource) = coordinates(read);
        let kinds = &world.graph.kinds;
        let kind = kinds.find_resource(group, resource)?;
        let annotations = world.policies.annotation_keys().map(str::to_owned).collect();
        let catalogue = Arc::clone(&world.catalogue);
        Some(Self {
            info: kinds.info(kind).clone(),
            detail: world.detail(kind),
            pruned: Arc::new(ObjectPruner { kind, catalogue, annotations }),
            lists: world.served.get(&kind).is_none_or(|served| served.list),
        })
    }

    /// The place to ask in: what lives in no namespace is asked for in none.
    fn place<'a>(&self, namespace: &'a str) -> &'a str {
        if self.info.namespaced { namespace } else { "" }
    }

    /// What is found, with the memory that it takes.
    fn found(&self, read: ObjectsRead, account: ReadAccount, sent: Instant) -> ReadObjects {
        let pruned = Some(Arc::clone(&self.pruned));
        let held = vec![Arc::new(account.into_shares())];
        let (objects, unreadable) = (read.objects.into(), read.unreadable.into());
        ReadObjects { objects, unreadable, held, pruned, sent: Some(sent) }
    }

    /// What verdicts read of an object.
    fn prune(&self, json: &str) -> Result<Box<RawValue>, Unreadable> {
        let ObjectPruner { kind, catalogue, annotations } = &*self.pruned;
        catalogue.prune(*kind, json, |key| annotations.contains(key))
    }
}

/// The objects of one read.
#[derive(Default)]
struct ObjectsRead {
    objects: Vec<Box<RawValue>>,
    unreadable: Vec<Unreadable>,
}

/// Group and plural name of what is read.
pub fn coordinates(read: &LiveRead) -> (&str, &str) {
    match read {
        LiveRead::Object(ObjectRef { group, resource, .. })
        | LiveRead::List { group, resource, .. } => (group, resource),
    }
}

/// How a read is carried out.
pub struct ApiReads<'a> {
    pub client: &'a kube::Client,
    pub memory: &'a ReadMemory,
    /// Who causes it.
    pub group: &'a ReadGroup,
    /// It waits no longer than this.
    pub until: Instant,
}

impl ApiReads<'_> {
    /// Carries a read out. The text of an error finishes the sentence "objects of
    /// kind Pod may need it:".
    pub async fn carry_out(
        &self,
        known: Option<&KindToRead>,
        read: &LiveRead,
    ) -> Result<ReadObjects, ApiError> {
        let outcome = match (known, read) {
            (None, _) => Err(ApiError::NotFound.into()),
            (Some(known), LiveRead::Object(ObjectRef { namespace, name, .. })) => {
                self.object(known, namespace, name).await
            }
            (Some(known), LiveRead::List { .. }) if !known.lists => Ok(ReadObjects::default()),
            (Some(known), LiveRead::List { namespace, first, .. }) => {
                self.list(known, namespace, *first).await
            }
        };
        match outcome {
            Ok(found) => Ok(found),
            // It proves that there is nothing, or that this is not known.
            Err(ReadFailure { error: ApiError::NotFound, .. }) => {
                let (group, resource) = coordinates(read);
                self.is_served_nowhere(group, resource).await.map(|()| ReadObjects::default())
            }
            Err(failure) => Err(failure.error),
        }
    }

    async fn object(
        &self,
        known: &KindToRead,
        namespace: &str,
        name: &str,
    ) -> Result<ReadObjects, ReadFailure> {
        let namespace = known.place(namespace);
        if !is_name(name) || !(namespace.is_empty() || is_name(namespace)) {
            return Ok(ReadObjects::default());
        }
        let request = api::get_request(&known.info, (namespace, name), known.detail)?;
        let sent = Instant::now();
        match api::send(self.client, request).await.map_err(ReadFailure::from) {
            Ok(body) => {
                let unreadable = |error: Unreadable| ApiError::Unreadable(error.to_string());
                let read = |json: &str| known.prune(json).map_err(unreadable);
                let object = read_object(body, &self.memory.buffers, read).await??;
                let mut account = self.memory.account(self.group, self.until);
                hold(&mut account, object.get().len()).await?;
                let read = ObjectsRead { objects: vec![object], ..ObjectsRead::default() };
                Ok(known.found(read, account, sent))
            }
            Err(failure) if failure.is_absence(&known.info.resource, name) => {
                Ok(ReadObjects::default())
            }
            Err(failure) => Err(failure),
        }
    }

    /// The objects of a list, or one of them.
    async fn list(
        &self,
        known: &KindToRead,
        namespace: &str,
        first: bool,
    ) -> Result<ReadObjects, ReadFailure> {
        let KindToRead { info, detail, .. } = known;
        let namespace = known.place(namespace);
        let query = ListQuery { info, namespace, detail: *detail, labels: "" };
        let mut list = ListReader::new(self.client, query, self.memory.buffers.clone());
        if first {
            list = list.first();
        }
        let mut account = self.memory.account(self.group, self.until);
        let mut read = ObjectsRead::default();
        loop {
            match list.next().await? {
                Next::Object(json) => {
                    match known.prune(json) {
                        Ok(object) => {
                            hold(&mut account, object.get().len()).await?;
                            read.objects.push(object);
                        }
                        Err(unreadable) => {
                            hold(&mut account, unreadable.place_len()).await?;
                            read.unreadable.push(unreadable);
                        }
                    }
                    if first {
                        break;
                    }
                }
                Next::Again => {
                    read = ObjectsRead::default();
                    account.clear();
                }
                Next::End => break,
            }
        }
        Ok(known.found(read, account, list.sent()))
    }

    /// Whether no API server serves this kind, so that it has no objects. A 404 of
    /// a path is no proof: belay gets one, too, when it asks for a version that is
    /// no longer served. The proof is that a live read finds no CRD, and that no
    /// version of the group has the kind.
    async fn is_served_nowhere(&self, group: &str, resource: &str) -> Result<(), ApiError> {
        if resource.is_empty() {
            return Err(ApiError::Other("belay does not know this kind".to_owned()));
        }
        if Kinds::is_built_in_group(group) {
            return Err(ApiError::NotFound);
        }
        let unknown = |error: ApiError| {
            ApiError::Other(format!("whether there are such objects cannot be read: {error}"))
        };
        let name = format!("{resource}.{group}");
        let request = api::get_request(&crds(), ("", &name), Detail::Metadata)?;
        match api::send(self.client, request).await.map_err(ReadFailure::from) {
            Ok(_) => {
                let why =
                    format!("CRD {name} exists, but does not serve the version that belay reads");
                return Err(ApiError::Other(why));
            }
            Err(failure) if failure.is_absence(CRDS, &name) => {}
            Err(failure) => return Err(unknown(failure.error)),
        }
        for version in read_versions(self.client, group).await.map_err(unknown)? {
            let kinds = read_kinds(self.client, group, &version).await.map_err(unknown)?;
            if kinds.iter().any(|info| info.resource == resource) {
                let why = "the API server lists this kind and does not serve it";
                return Err(ApiError::Other(why.to_owned()));
            }
        }
        Ok(())
    }
}

/// The plural of CRDs.
const CRDS: &str = "customresourcedefinitions";

fn crds() -> KindInfo {
    Kinds::custom("apiextensions.k8s.io", "v1", "CustomResourceDefinition", CRDS, false)
}

/// Whether anything can have this name. References name what their writers
/// please, and what the API server takes for no name is not one object's path.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

/// Waits for the memory of an object of this length.
async fn hold(account: &mut ReadAccount, length: usize) -> Result<(), ApiError> {
    let held = account.hold(length + OVERHEAD).await;
    held.map_err(|why| ApiError::Other(why.to_owned()))
}
