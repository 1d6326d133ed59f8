//! One live read, as a conversation with the API server.

use std::future::Future;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::api::{self, BEGINNINGS, ListQuery, PAGE, Page, Trouble};
use super::super::world::{Detail, World};
use crate::decide::LiveRead;
use crate::objects::{KindInfo, Kinds};

/// What a read found: the objects, as the API server wrote them. Cheap to
/// clone, for those who share a read.
#[derive(Debug, Clone, Default)]
pub struct Found(Arc<[Box<RawValue>]>);

impl Found {
    /// These objects.
    pub fn new(objects: Vec<Box<RawValue>>) -> Self {
        Self(objects.into())
    }

    /// The JSON of each.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|object| object.get())
    }
}

/// Who sends a GET and brings the text of the answer.
pub trait Transport: Clone + Send + Sync + 'static {
    /// The answer.
    fn get(
        &self,
        path: &str,
        detail: Detail,
        list: bool,
    ) -> impl Future<Output = Result<String, Failure>> + Send;
}

/// An answer that is none.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Why.
    pub trouble: Trouble,
    /// The resource and the name that a Status is about; empty where it names
    /// none.
    pub about: (String, String),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, about: Default::default() }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let about = match &error {
            kube::Error::Api(status) => status.details.as_ref(),
            _ => None,
        };
        let about = about.map(|details| (details.kind.clone(), details.name.clone()));
        Self { trouble: error.into(), about: about.unwrap_or_default() }
    }
}

impl Failure {
    /// Whether it says that exactly this object is not there: a path that is
    /// not served is a 404 as well, and says nothing of objects.
    fn is_absence(&self, resource: &str, name: &str) -> bool {
        let (kind, named) = &self.about;
        self.trouble == Trouble::NotFound && kind == resource && named == name
    }
}

impl Transport for kube::Client {
    async fn get(&self, path: &str, detail: Detail, list: bool) -> Result<String, Failure> {
        Ok(api::text(self, api::get(path, detail, list)?).await?)
    }
}

/// What is known of the kind that is to be read.
#[derive(Debug, Clone)]
pub struct Known {
    info: KindInfo,
    detail: Detail,
    /// Whether its objects can be listed. What cannot be has no objects that
    /// last.
    lists: bool,
}

impl Known {
    /// What the world knows of it; `None`: that it is served is not known.
    pub fn of(world: &World, read: &LiveRead) -> Option<Self> {
        let (group, resource) = coordinates(read);
        let kinds = &world.graph.kinds;
        let kind = kinds.find_resource(group, resource)?;
        Some(Self {
            info: kinds.info(kind).clone(),
            detail: world.detail(kind),
            lists: world.served.get(&kind).is_none_or(|served| served.list),
        })
    }

    /// The place to ask in: what lives in no namespace is asked for in none.
    fn place<'a>(&self, namespace: &'a str) -> &'a str {
        if self.info.namespaced { namespace } else { "" }
    }
}

/// Group and plural name of what is read.
pub fn coordinates(read: &LiveRead) -> (&str, &str) {
    match read {
        LiveRead::Object { group, resource, .. } | LiveRead::List { group, resource, .. } => {
            (group, resource)
        }
    }
}

/// Carries a read out. An error is words that finish the sentence "objects of
/// kind Pod may need it:".
pub async fn carry_out(
    transport: &impl Transport,
    known: Option<&Known>,
    read: &LiveRead,
) -> Result<Found, String> {
    let outcome = match (known, read) {
        (None, _) => Err(Trouble::NotFound.into()),
        (Some(known), LiveRead::Object { namespace, name, .. }) => {
            object(transport, known, namespace, name).await
        }
        (Some(known), LiveRead::List { .. }) if !known.lists => Ok(Found::default()),
        (Some(known), LiveRead::List { namespace, first, .. }) => {
            list(transport, known, namespace, *first).await
        }
    };
    match outcome {
        Ok(found) => Ok(found),
        Err(Failure { trouble: Trouble::NotFound, .. }) => not_found(transport, read).await,
        Err(failure) => Err(failure.trouble.words()),
    }
}

/// What a 404 upon this read proves: that there is nothing, or, in words, that
/// it is not known.
pub async fn not_found(transport: &impl Transport, read: &LiveRead) -> Result<Found, String> {
    let (group, resource) = coordinates(read);
    is_served_nowhere(transport, group, resource).await.map(|()| Found::default())
}

/// Whether anything can have this name. References name what their writers
/// please, and what the API server takes for no name is not one object's path.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

async fn object(
    transport: &impl Transport,
    known: &Known,
    namespace: &str,
    name: &str,
) -> Result<Found, Failure> {
    let namespace = known.place(namespace);
    if !is_name(name) || !(namespace.is_empty() || is_name(namespace)) {
        return Ok(Found::default());
    }
    let path = api::item(&known.info, namespace, name);
    match transport.get(&path, known.detail, false).await {
        Ok(text) => {
            let object = RawValue::from_string(text)
                .map_err(|_| Trouble::Failed("the API server's answer is no object".to_owned()))?;
            Ok(Found::new(vec![object]))
        }
        Err(failure) if failure.is_absence(&known.info.resource, name) => Ok(Found::default()),
        Err(failure) => Err(failure),
    }
}

/// A list, page by page. When the API server no longer has what the pages are
/// of, it begins again: half of one list and half of another is neither.
async fn list(
    transport: &impl Transport,
    known: &Known,
    namespace: &str,
    first: bool,
) -> Result<Found, Failure> {
    let limit = if first { 1 } else { PAGE };
    'again: for _ in 0..BEGINNINGS {
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let query = ListQuery { limit, next: &next, labels: "" };
            let path = api::page_path(&known.info, known.place(namespace), query);
            let page = match transport.get(&path, known.detail, true).await {
                Ok(text) => Page::read(&text)?,
                Err(Failure { trouble: Trouble::Expired, .. }) => continue 'again,
                Err(failure) => return Err(failure),
            };
            objects.extend(page.items);
            if page.metadata.next.is_empty() || (first && !objects.is_empty()) {
                return Ok(Found::new(objects));
            }
            next = page.metadata.next;
        }
    }
    Err(Trouble::Expired.into())
}

/// Whether nobody serves this kind, so that it has no objects. A path that is
/// not found proves nothing by itself: it is so, too, when belay asks for a
/// version that is no longer served. Only that there is no CRD, live, and that
/// nobody else has the kind in that group, means none.
async fn is_served_nowhere(
    transport: &impl Transport,
    group: &str,
    resource: &str,
) -> Result<(), String> {
    if resource.is_empty() {
        return Err("belay does not know this kind".to_owned());
    }
    if Kinds::is_built_in_group(group) {
        return Err(Trouble::NotFound.words());
    }
    let unknown = |failure: Failure| {
        format!("whether there are such objects cannot be read: {}", failure.trouble.words())
    };
    let name = format!("{resource}.{group}");
    let path =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", api::escaped(&name));
    match transport.get(&path, Detail::Metadata, false).await {
        Ok(_) => return Err(format!("CRD {name} is there, and belay asked for what it lacks")),
        Err(failure) if failure.is_absence("customresourcedefinitions", &name) => {}
        Err(failure) => return Err(unknown(failure)),
    }
    for version in versions(transport, group).await.map_err(unknown)? {
        let text = transport.get(&version, Detail::Whole, false).await.map_err(unknown)?;
        let Resources { resources } = parsed(&text).map_err(unknown)?;
        if resources.iter().any(|known| known.name == resource) {
            return Err("the API server names them and does not serve them".to_owned());
        }
    }
    Ok(())
}

/// The paths of the versions of a group: of other CRDs' kinds, or of an
/// aggregated API server's. None: nobody has the group.
async fn versions(transport: &impl Transport, group: &str) -> Result<Vec<String>, Failure> {
    let path = format!("/apis/{}", api::escaped(group));
    match transport.get(&path, Detail::Whole, false).await {
        Ok(text) => {
            let Group { versions } = parsed(&text)?;
            let path = |version: &str| format!("{path}/{}", api::escaped(version));
            Ok(versions.iter().map(|served| path(&served.version)).collect())
        }
        Err(Failure { trouble: Trouble::NotFound, .. }) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// An APIGroup, as far as it is read.
#[derive(Deserialize)]
struct Group {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// An APIResourceList, as far as it is read.
#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|_| Trouble::Failed("discovery is not what it should be".to_owned()).into())
}
