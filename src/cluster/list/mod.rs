//! Answers of the API server, read object by object while they arrive.
//!
//! ```text
//!  ListReader ──► PageStream ──► ListScanner
//!   pages, their    one answer    finds the objects in its bytes
//!   size, 410
//! ```
//!
//! Only one object is in memory at a time, because users can create large objects.

mod page;
mod reader;
mod scanner;
mod value;

use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

pub use self::page::{Buffers, read_object};
pub use self::reader::{ListQuery, ListReader, Next};
use self::scanner::ListError;
pub use self::value::is_too_deep;
use crate::cluster::discovery::check_unserved;
use crate::objects::{ApiError, KindInfo, Kinds, Object, read_tolerant};

impl From<ListError> for ApiError {
    fn from(error: ListError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Reads a result list, and calls `add` with each object. If the version of the pages expires,
/// it starts again with an empty result.
pub async fn read_list<T: Default>(
    client: &kube::Client,
    query: ListQuery<'_>,
    add: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    read_to_end(ListReader::new(client, query, Buffers::new(1)), add).await
}

/// How often, and with which pause, a reader checks whether the API server still serves a kind that
/// it can't list. Discovery lags behind the deletion of a CRD.
const UNSERVED_CHECKS: usize = 4;
const UNSERVED_PAUSE: Duration = Duration::from_millis(500);

/// Like [`read_list`], for a kind that discovery has listed earlier. If no API server serves it any
/// longer, it has no objects.
pub async fn read_list_if_served<T: Default>(
    client: &kube::Client,
    query: ListQuery<'_>,
    add: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    let KindInfo { group, resource, .. } = query.info;
    match read_list(client, query, add).await {
        Err(ApiError::NotFound) if !Kinds::is_built_in_group(group) => {
            for _ in 0..UNSERVED_CHECKS {
                if check_unserved(client, group, resource).await.is_ok() {
                    return Ok(T::default());
                }
                sleep(UNSERVED_PAUSE).await;
            }
            Err(ApiError::NotFound)
        }
        read => read,
    }
}

async fn read_to_end<T: Default>(
    mut list: ListReader<'_>,
    mut add: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    let mut result = T::default();
    loop {
        match list.next().await? {
            Next::Object(json) => add(&mut result, json)?,
            Next::Again => result = T::default(),
            Next::End => return Ok(result),
        }
    }
}

/// The objects of a list. An object that can't be parsed does not affect the others.
#[derive(Debug)]
pub struct Listed<K> {
    /// The objects that could be parsed.
    pub objects: Vec<K>,
    /// The names of the other objects.
    pub unreadable: Vec<String>,
}

impl<K> Default for Listed<K> {
    fn default() -> Self {
        Self { objects: Vec::new(), unreadable: Vec::new() }
    }
}

/// Reads all objects that have this Rust type, without their managedFields.
pub async fn list_all<K>(api: Api<K>, params: ListParams) -> Result<Listed<K>, ApiError>
where
    K: kube::Resource + DeserializeOwned,
{
    let add = |listed: &mut Listed<K>, object| match object {
        Ok(object) => listed.objects.push(object),
        Err(name) => listed.unreadable.push(name),
    };
    fold_all(api, params, add).await
}

/// Reads all objects that have this Rust type, and calls `add` with each, or with the name of an
/// object that can't be parsed.
pub async fn fold_all<K, T: Default>(
    api: Api<K>,
    params: ListParams,
    mut add: impl FnMut(&mut T, Result<K, String>),
) -> Result<T, ApiError>
where
    K: kube::Resource + DeserializeOwned,
{
    let requests = kube::core::Request::new(api.resource_url());
    let client = api.into_client();
    let list = ListReader::with_requests(&client, requests, params, Buffers::new(1));
    let read = |json: &str| {
        read_tolerant(json).and_then(K::deserialize).map_err(|_| {
            let object = serde_json::from_str::<Object<'_>>(json);
            let name = object.map(|object| object.metadata.name.to_string());
            name.unwrap_or_else(|_| "(no name)".to_owned())
        })
    };
    let add = |result: &mut T, json: &str| {
        add(result, read(json));
        Ok(())
    };
    read_to_end(list, add).await
}
