//! Answers of the API server, read object by object while they arrive.
//!
//! ```text
//!  ListReader ──► PageStream ──► ListScanner
//!   pages, their    one answer    finds the objects in its bytes
//!   size, 410
//! ```
//!
//! One object is in memory at a time, whatever the API server sends: objects
//! are as large as their writers please.

mod page;
mod reader;
mod scanner;

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

pub use self::page::{Buffers, read_object};
pub use self::reader::{ListQuery, ListReader, Next};
use self::scanner::ListError;
use crate::objects::{ApiError, Object, read_shallow};

impl From<ListError> for ApiError {
    fn from(error: ListError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Reads a whole list, and adds each object to the result. When the API server
/// no longer has the version of the pages, it begins again with an empty result.
pub async fn read_list<T: Default>(
    client: &kube::Client,
    query: ListQuery<'_>,
    take: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    read_whole(ListReader::new(client, query, Buffers::new(1)), take).await
}

async fn read_whole<T: Default>(
    mut list: ListReader<'_>,
    mut take: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    let mut whole = T::default();
    loop {
        match list.next().await? {
            Next::Object(json) => take(&mut whole, json)?,
            Next::Again => whole = T::default(),
            Next::End => return Ok(whole),
        }
    }
}

/// The objects of a list. An object that its writer made unreadable affects no other one.
#[derive(Debug)]
pub struct Listed<K> {
    /// Those that can be read.
    pub objects: Vec<K>,
    /// The names of the others.
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
    let take = |listed: &mut Listed<K>, object| match object {
        Ok(object) => listed.objects.push(object),
        Err(UnreadableObject { name }) => listed.unreadable.push(name),
    };
    fold_all(api, params, take).await
}

/// An object that can't be read as its Rust type.
#[derive(Debug)]
pub struct UnreadableObject {
    /// Its name.
    pub name: String,
}

/// The same, and adds each object to the result.
pub async fn fold_all<K, T: Default>(
    api: Api<K>,
    params: ListParams,
    mut take: impl FnMut(&mut T, Result<K, UnreadableObject>),
) -> Result<T, ApiError>
where
    K: kube::Resource + DeserializeOwned,
{
    let requests = kube::core::Request::new(api.resource_url());
    let client = api.into_client();
    let list = ListReader::with_requests(&client, requests, params, Buffers::new(1));
    let read = |json: &str| {
        read_shallow(json).and_then(K::deserialize).map_err(|_| {
            let object = serde_json::from_str::<Object<'_>>(json);
            let name = object.map(|object| object.metadata.name.to_string());
            UnreadableObject { name: name.unwrap_or_else(|_| "(no name)".to_owned()) }
        })
    };
    let take = |whole: &mut T, json: &str| {
        take(whole, read(json));
        Ok(())
    };
    read_whole(list, take).await
}
