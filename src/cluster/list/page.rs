//! One answer, read object by object.

use std::sync::Arc;

use futures_util::AsyncBufReadExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::scanner::{ListScanner, SMALL};
use super::{Body, PageMetadata};
use crate::cluster::api::Trouble;

/// The memory for large objects that are being read: so many at a time. Cheap
/// to clone.
#[derive(Debug, Clone)]
pub struct Buffers(Arc<Semaphore>);

impl Buffers {
    /// For so many large objects.
    pub fn new(objects: usize) -> Self {
        Self(Arc::new(Semaphore::new(objects)))
    }

    /// Waits for the memory of one.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }
}

/// An answer that arrives.
pub struct PageStream {
    body: Body,
    scanner: ListScanner,
    buffers: Buffers,
    large: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl PageStream {
    /// A page of a list.
    pub fn new(body: Body, buffers: Buffers) -> Self {
        Self { body, scanner: ListScanner::new(), buffers, large: None, bytes: 0 }
    }

    /// How many bytes have been read.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes on to the next object; whether there is one.
    pub async fn advance(&mut self) -> Result<bool, Trouble> {
        self.scanner.clear();
        self.large = None;
        loop {
            let broken = |error| Trouble::Failed(format!("the answer broke off: {error}"));
            let arrived = self.body.fill_buf().await.map_err(broken)?;
            if arrived.is_empty() {
                return Ok(false);
            }
            if self.large.is_none() && self.scanner.kept() + arrived.len() > SMALL {
                self.large = self.buffers.take().await;
            }
            let (used, is_complete) = self.scanner.scan(arrived)?;
            self.body.consume_unpin(used);
            self.bytes += used;
            if is_complete {
                let no_text = |_| Trouble::Failed("one of them is no text".to_owned());
                return std::str::from_utf8(self.scanner.element()).map(|_| true).map_err(no_text);
            }
            if self.scanner.kept() <= SMALL {
                self.large = None;
            }
        }
    }

    /// The JSON of the object that it has come to.
    pub fn object(&self) -> &str {
        // It was looked at when it was complete.
        std::str::from_utf8(self.scanner.element()).unwrap_or_default()
    }

    /// What the page says of the list, when it has been read to its end.
    pub fn finish(&mut self) -> Result<PageMetadata, Trouble> {
        Ok(self.scanner.finish()?)
    }
}

/// Reads an answer that is one object, and makes something of its JSON.
pub async fn read_object<T>(
    body: Body,
    buffers: &Buffers,
    make: impl FnOnce(&str) -> T,
) -> Result<T, Trouble> {
    let no_object = || Trouble::Failed("the API server's answer is no object".to_owned());
    let mut page = PageStream::new(body, buffers.clone());
    page.scanner = ListScanner::for_object();
    if !page.advance().await? {
        return Err(no_object());
    }
    let made = make(page.object());
    match page.advance().await {
        Ok(false) if page.finish().is_ok() => Ok(made),
        _ => Err(no_object()),
    }
}
