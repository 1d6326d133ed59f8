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

use std::future::Future;
use std::pin::Pin;

use futures_util::AsyncBufRead;

pub use self::page::{Buffers, read_object};
pub use self::reader::{ListQuery, ListReader, Next};
use self::scanner::ListError;

use super::api::{self, Detail};
use crate::objects::ApiError;

/// The bytes of an answer, as they arrive.
pub type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// Sends a GET and brings the answer.
pub trait Transport: Clone + Send + Sync + 'static {
    /// The answer, once it has begun.
    fn get(
        &self,
        path: &str,
        detail: Detail,
        list: bool,
    ) -> impl Future<Output = Result<Body, Failure>> + Send;
}

impl Transport for kube::Client {
    async fn get(&self, path: &str, detail: Detail, list: bool) -> Result<Body, Failure> {
        Ok(Box::pin(self.request_stream(api::get(path, detail, list)?).await?))
    }
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Why.
    pub error: ApiError,
    /// The resource and the name that a Status is about; empty where it names
    /// none.
    pub about: (String, String),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self { error, about: Default::default() }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

impl From<ListError> for ApiError {
    fn from(error: ListError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let about = match &error {
            kube::Error::Api(status) => status.details.as_ref(),
            _ => None,
        };
        let about = about.map(|details| (details.kind.clone(), details.name.clone()));
        Self { error: error.into(), about: about.unwrap_or_default() }
    }
}

impl Failure {
    /// Whether it proves that exactly this object is absent. A path that is not
    /// served is a 404 as well, and proves nothing about objects.
    pub fn is_absence(&self, resource: &str, name: &str) -> bool {
        let (kind, named) = &self.about;
        self.error == ApiError::NotFound && kind == resource && named == name
    }
}

/// Reads a whole list, and adds each object to the result. When the API server
/// no longer has the version of the pages, it begins again with an empty result.
pub async fn read_list<T: Default>(
    client: &kube::Client,
    query: ListQuery<'_>,
    mut take: impl FnMut(&mut T, &str) -> Result<(), ApiError>,
) -> Result<T, ApiError> {
    let mut list = ListReader::new(client, query, Buffers::new(1));
    let mut whole = T::default();
    loop {
        match list.next().await? {
            Next::Object(json) => take(&mut whole, json)?,
            Next::Again => whole = T::default(),
            Next::End => return Ok(whole),
        }
    }
}
