//! Requests to the API server, and what can come of them.
//!
//! Everything goes through here that is read by kind number and not by a Rust
//! type: what is watched and read live are objects of any kind, of which belay
//! keeps a few hundred bytes, so their JSON is looked at once, as it arrived.

use std::pin::pin;

use futures_util::AsyncReadExt as _;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use kube::Api;
use kube::api::{ListParams, PatchParams, PostParams};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::api_error::shortened;
use crate::objects::{ApiError, KindInfo, Object, null_is_default, read_shallow};

/// The name under which belay writes, as managedFields show it.
pub const MANAGER: &str = "belay";

/// Parameters of what belay creates or replaces.
pub fn post_params(dry_run: bool) -> PostParams {
    PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) }
}

/// Parameters of a patch by belay.
pub fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// How much of an object is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its metadata alone.
    Metadata,
    /// All of it.
    Whole,
}

/// The metadata of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PageMetadata {
    /// The version of everything in it.
    pub resource_version: String,
    /// Where the next page begins; empty: this is the last one.
    #[serde(rename = "continue")]
    pub next: String,
}

/// The path of all objects of a kind, in a namespace or (empty) in all.
pub fn collection(info: &KindInfo, namespace: &str) -> String {
    let version = info.versions.first().map_or("v1", String::as_str);
    let root = match info.group.as_str() {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    match namespace {
        "" => format!("{root}/{}", info.resource),
        _ => format!("{root}/namespaces/{}/{}", escaped(namespace), info.resource),
    }
}

/// The path of one object. Names come from references, too, where anybody can
/// write anything: none of it may become another path.
pub fn item(info: &KindInfo, namespace: &str, name: &str) -> String {
    format!("{}/{}", collection(info, namespace), escaped(name))
}

/// The form in which an answer is wanted.
pub fn accept(detail: Detail, list: bool) -> String {
    let partial = if list { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
    match detail {
        Detail::Whole => "application/json".to_owned(),
        Detail::Metadata => format!("application/json;as={partial};g=meta.k8s.io;v=v1"),
    }
}

/// A GET.
pub fn get(path: &str, detail: Detail, list: bool) -> Result<Request<Vec<u8>>, ApiError> {
    Request::get(path)
        .header(ACCEPT, accept(detail, list))
        .header(ACCEPT_ENCODING, "identity")
        .body(Vec::new())
        .map_err(|error| ApiError::Other(format!("no such path can be asked for: {error}")))
}

/// Sends a request and reads the answer. A client can have the API server store
/// bytes that are no text, in managedFields for example: these are replaced, so
/// that one object doesn't make a whole list unreadable.
pub async fn text(client: &kube::Client, request: Request<Vec<u8>>) -> kube::Result<String> {
    let mut bytes = Vec::new();
    let mut answer = pin!(client.request_stream(request).await?);
    answer.read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Objects on a page at the most.
pub const PAGE: usize = 500;

/// How often a list is begun whose pages the API server no longer has.
pub const BEGINNINGS: usize = 3;

/// A page of a list of objects that have a Rust type.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(deserialize_with = "null_is_default")]
    items: Vec<Box<RawValue>>,
}

/// The objects of a list. What its writer made unreadable concerns no other object.
#[derive(Debug)]
pub struct Listed<K> {
    /// Those that can be read.
    pub objects: Vec<K>,
    /// The names of the others.
    pub unreadable: Vec<String>,
}

/// Reads all objects that have this Rust type, without their managedFields. When
/// the API server no longer has what the pages are of, the list begins again.
pub async fn all_of<K>(api: Api<K>, params: ListParams) -> Result<Listed<K>, ApiError>
where
    K: kube::Resource + DeserializeOwned,
{
    let requests = kube::core::Request::new(api.resource_url());
    let client = api.into_client();
    let failed = |error: String| ApiError::Unreadable(shortened(&error));
    'again: for _ in 0..BEGINNINGS {
        let (mut whole, mut params) =
            (Listed { objects: Vec::new(), unreadable: Vec::new() }, params.clone());
        params.limit = u32::try_from(PAGE).ok();
        loop {
            let request = requests.list(&params).map_err(|error| failed(error.to_string()))?;
            let page = match text(&client, request).await.map_err(ApiError::from) {
                Ok(page) => serde_json::from_str::<Page>(&page)
                    .map_err(|_| failed("the answer is no list".to_owned()))?,
                Err(ApiError::Expired) => continue 'again,
                Err(error) => return Err(error),
            };
            for item in &page.items {
                match read_shallow(item.get()).and_then(K::deserialize) {
                    Ok(object) => whole.objects.push(object),
                    Err(_) => {
                        let object = serde_json::from_str::<Object<'_>>(item.get());
                        let name = object.map(|object| object.metadata.name.to_string());
                        whole.unreadable.push(name.unwrap_or_else(|_| "(no name)".to_owned()));
                    }
                }
            }
            match page.metadata.next {
                next if next.is_empty() => return Ok(whole),
                next => params = params.continue_token(&next),
            }
        }
    }
    Err(ApiError::Expired)
}

/// Reads one object's JSON; `None` if it is not there.
pub async fn object(
    client: &kube::Client,
    info: &KindInfo,
    namespace: &str,
    name: &str,
    detail: Detail,
) -> Result<Option<String>, ApiError> {
    let path = item(info, namespace, name);
    match text(client, get(&path, detail, false)?).await.map_err(ApiError::from) {
        Ok(text) => Ok(Some(text)),
        Err(ApiError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Patches one object's metadata, as belay's own field manager: the server
/// writes down when.
pub async fn patch(
    client: &kube::Client,
    info: &KindInfo,
    (namespace, name): (&str, &str),
    patch: &json_patch::Patch,
) -> Result<(), ApiError> {
    let path = format!("{}?fieldManager={MANAGER}", item(info, namespace, name));
    let body = serde_json::to_vec(patch).unwrap_or_default();
    let request = Request::patch(path)
        .header(ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        .header(CONTENT_TYPE, "application/json-patch+json")
        .body(body)
        .map_err(|error| ApiError::Other(format!("no such patch can be sent: {error}")))?;
    text(client, request).await?;
    Ok(())
}

/// A value in a query.
pub fn escaped(value: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            // Writing into a String cannot fail.
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_leave_their_place_in_a_path() {
        let kinds = crate::objects::Kinds::default();
        let pods = kinds.info(kinds.find("", "Pod").unwrap());
        assert_eq!(item(pods, "a/b", "p?q"), "/api/v1/namespaces/a%2Fb/pods/p%3Fq");
        assert_eq!(collection(pods, ""), "/api/v1/pods");
    }
}
