//! The requests to the API server about objects of any kind.
//!
//! kube::Client is the port to the API server: in a cluster it sends requests over the
//! network, and [`super::local_api`] answers them from files or from a test. kube's typed
//! `Api` serves the kinds that have a Rust type. The functions here serve all others:
//! belay keeps a few hundred bytes of such an object, so it scans the JSON as it arrives.

use std::fmt::Debug;
use std::pin::Pin;

use futures_util::{AsyncBufRead, AsyncReadExt as _, TryStreamExt as _};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http_body_util::BodyExt as _;
use kube::api::{
    Api, DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::client;
use kube::core::{Status, request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::pace::within;
use crate::objects::{ApiError, KindInfo};

/// The field manager of belay's writes.
pub const MANAGER: &str = "belay";

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");

/// The parameters for objects that belay creates or replaces.
pub fn post_params(dry_run: bool) -> PostParams {
    PostParams { dry_run, field_manager: Some(MANAGER.to_owned()) }
}

/// The parameters for belay's patches.
pub fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// How much of an object to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Only the metadata.
    Metadata,
    /// The whole object.
    Whole,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PageMetadata {
    /// The resource version of the list.
    pub resource_version: String,
    /// The continue token of the next page; empty: this is the last page.
    #[serde(rename = "continue")]
    pub next: String,
}

impl From<request::Error> for ApiError {
    fn from(error: request::Error) -> Self {
        Self::Other(format!("the request can't be built: {error}"))
    }
}

/// Builds requests about the objects of a kind, in a namespace or (empty) in all.
pub fn requests(info: &KindInfo, namespace: &str) -> request::Request {
    let root = if info.group.is_empty() { "/api" } else { "/apis" };
    let root = format!("{root}/{}", info.api_version());
    request::Request::new(match namespace {
        "" => format!("{root}/{}", info.resource),
        _ => format!("{root}/namespaces/{}/{}", escaped(namespace), info.resource),
    })
}

pub fn get_request(
    info: &KindInfo,
    (namespace, name): (&str, &str),
    detail: Detail,
) -> Result<Request<Vec<u8>>, ApiError> {
    let (requests, name) = (requests(info, namespace), escaped(name));
    Ok(match detail {
        Detail::Metadata => requests.get_metadata(&name, &GetParams::default()),
        Detail::Whole => requests.get(&name, &GetParams::default()),
    }?)
}

/// The request that patches one object as belay's field manager. `detail` is how much of
/// the patched object the API server sends back.
pub fn patch_request<P: Serialize>(
    info: &KindInfo,
    (namespace, name): (&str, &str),
    patch: &Patch<P>,
    detail: Detail,
) -> Result<Request<Vec<u8>>, ApiError> {
    let (requests, name) = (requests(info, namespace), escaped(name));
    Ok(match detail {
        Detail::Metadata => requests.patch_metadata(&name, &patch_params(), patch),
        Detail::Whole => requests.patch(&name, &patch_params(), patch),
    }?)
}

/// The request that replaces one object by its protobuf, as belay's field manager. `detail` is how
/// much of the new object the API server sends back, as JSON.
pub fn replace_request(
    info: &KindInfo,
    (namespace, name): (&str, &str),
    object: Vec<u8>,
    detail: Detail,
) -> Result<Request<Vec<u8>>, ApiError> {
    let accepts = get_request(info, (namespace, name), detail)?.into_parts().0.headers;
    let requests = requests(info, namespace);
    let mut request = requests.replace(&escaped(name), &post_params(false), object)?;
    request.headers_mut().extend(accepts);
    request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    Ok(request)
}

/// The request that watches the objects of a kind after a version, in a namespace or (empty) in
/// all. `None`: the watch starts with all existing objects.
pub fn watch_request(
    (info, namespace): (&KindInfo, &str),
    detail: Detail,
    (labels, seconds): (&str, u32),
    version: Option<&str>,
) -> Result<Request<Vec<u8>>, ApiError> {
    let mut params = WatchParams::default().timeout(seconds);
    if !labels.is_empty() {
        params = params.labels(labels);
    }
    if version.is_none() {
        params = params.initial_events();
    }
    let (requests, version) = (requests(info, namespace), version.unwrap_or_default());
    Ok(match detail {
        Detail::Metadata => requests.watch_metadata(&params, version),
        Detail::Whole => requests.watch(&params, version),
    }?)
}

/// The stream of bytes of an answer.
pub type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// How much of an answer about a failure is read. If the API server
/// can't patch an object, it quotes the object twice, in up to 18 MB.
const MAX_FAILURE: u64 = 64 << 10;

/// Sends a request. The caller reads the answer while it arrives.
pub async fn send(client: &kube::Client, request: Request<Vec<u8>>) -> kube::Result<Body> {
    let response = client.send(request.map(client::Body::from)).await?;
    let code = response.status();
    let body = response.into_body().into_data_stream().map_err(std::io::Error::other);
    let mut body: Body = Box::pin(body.into_async_read());
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(body);
    }
    let mut bytes = Vec::new();
    let read = (&mut body).take(MAX_FAILURE).read_to_end(&mut bytes).await;
    read.map_err(|error| kube::Error::Service(error.into()))?;
    let status = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        Status::failure(text.trim(), "Unreadable").with_code(code.as_u16())
    });
    Err(kube::Error::Api(Box::new(status)))
}

/// Sends a request and reads the answer to its end.
pub async fn answer(client: &kube::Client, request: Request<Vec<u8>>) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    let mut body = send(client, request).await?;
    let read = body.read_to_end(&mut bytes).await;
    read.map_err(|error| ApiError::Unreachable(format!("the answer broke off: {error}")))?;
    Ok(bytes)
}

/// Reads the JSON of one object; `None` if it does not exist. Invalid UTF-8, for example in
/// managedFields, is replaced.
pub async fn object(
    client: &kube::Client,
    info: &KindInfo,
    namespace: &str,
    name: &str,
    detail: Detail,
) -> Result<Option<String>, ApiError> {
    let bytes = existing(answer(client, get_request(info, (namespace, name), detail)?).await)?;
    Ok(bytes.map(|bytes| {
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }))
}

/// Reads the protobuf of one object; `None` if it does not exist.
pub async fn protobuf(
    client: &kube::Client,
    info: &KindInfo,
    namespace_and_name: (&str, &str),
) -> Result<Option<Vec<u8>>, ApiError> {
    let mut request = get_request(info, namespace_and_name, Detail::Whole)?;
    request.headers_mut().insert(ACCEPT, PROTOBUF);
    existing(answer(client, request).await)
}

fn existing<T>(answer: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ApiError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the object with this name, and this uid if there is one. Returns whether the name
/// existed. If another object has the name now, the error is a conflict.
pub async fn delete_exactly<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<String>,
) -> Result<bool, ApiError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let same = Preconditions { uid, ..Preconditions::default() };
    match within(api.delete(name, &DeleteParams::default().preconditions(same))).await {
        Ok(_) => Ok(true),
        Err(ApiError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The characters that need no escape in a path (RFC 3986, unreserved characters).
const UNRESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Escapes a name as one segment of a path. Users can write any text as a name into a reference,
/// and such a text must not change the path.
pub fn escaped(name: &str) -> String {
    utf8_percent_encode(name, &UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::local_api::{failure, local_client};

    #[tokio::test]
    async fn h131_of_a_failure_that_quotes_an_object_the_beginning_is_read() {
        let message = format!(" \"\" is invalid: patch: {}", "<".repeat(MAX_FAILURE as usize));
        let client = local_client(move |_| Some(failure(422, &message, ("pods", "web"))));
        let request = Request::get("/").body(Vec::new()).unwrap();
        let Err(kube::Error::Api(status)) = send(&client, request).await else { panic!() };
        assert_eq!(status.code, 422);
        assert!(status.message.contains(" is invalid: patch: <"), "{}", status.message);
        assert!(status.message.len() as u64 <= MAX_FAILURE);
    }

    #[test]
    fn names_do_not_leave_their_place_in_a_path() {
        let kinds = crate::objects::Kinds::default();
        let pods = kinds.info(kinds.find("", "Pod").unwrap());
        let request = get_request(pods, ("a/b", "p?q"), Detail::Whole).unwrap();
        assert_eq!(request.uri(), "/api/v1/namespaces/a%2Fb/pods/p%3Fq");
        assert_eq!(requests(pods, "").url_path, "/api/v1/pods");
    }
}
