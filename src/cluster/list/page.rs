//! Reads one answer object by object.

use std::sync::Arc;

use futures_util::AsyncBufReadExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::scanner::{ListScanner, SMALL};
use crate::cluster::api::{Body, PageMetadata};
use crate::objects::ApiError;

/// Limits how many large objects are in memory at a time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Buffers(Arc<Semaphore>);

impl Buffers {
    /// Allows this many large objects.
    pub fn new(objects: usize) -> Self {
        Self(Arc::new(Semaphore::new(objects)))
    }

    /// Waits until one more large object is allowed.
    pub async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }
}

/// An answer that is being received.
pub struct PageStream {
    body: Body,
    scanner: ListScanner,
    buffers: Buffers,
    /// The permit for the current object, if it is large.
    large: Option<OwnedSemaphorePermit>,
    /// The object with replaced bytes, if it is not valid UTF-8.
    replaced: Option<String>,
    bytes: usize,
}

impl PageStream {
    /// A page of a list.
    pub fn new(body: Body, buffers: Buffers) -> Self {
        Self { body, scanner: ListScanner::new(), buffers, large: None, replaced: None, bytes: 0 }
    }

    /// The number of bytes read so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the next object. Returns false at the end.
    pub async fn advance(&mut self) -> Result<bool, ApiError> {
        self.scanner.clear();
        (self.large, self.replaced) = (None, None);
        loop {
            let broken = |error| ApiError::Unreachable(format!("the answer broke off: {error}"));
            let arrived = self.body.fill_buf().await.map_err(broken)?;
            if arrived.is_empty() {
                return Ok(false);
            }
            if self.large.is_none() && self.scanner.kept() + arrived.len() > SMALL {
                self.large = self.buffers.acquire().await;
            }
            let (used, is_complete) = self.scanner.scan(arrived)?;
            self.body.consume_unpin(used);
            self.bytes += used;
            if is_complete {
                let element = self.scanner.element();
                let replaced = || String::from_utf8_lossy(element).into_owned();
                self.replaced = std::str::from_utf8(element).err().map(|_| replaced());
                return Ok(true);
            }
            if self.scanner.kept() <= SMALL {
                self.large = None;
            }
        }
    }

    /// The JSON of the current object. Invalid UTF-8 is replaced: the API server stores it, for
    /// example in managedFields.
    pub fn object(&self) -> &str {
        let text = || std::str::from_utf8(self.scanner.element()).unwrap_or_default();
        self.replaced.as_deref().unwrap_or_else(text)
    }

    /// Returns the metadata of the list after the end of the page.
    pub fn finish(&mut self) -> Result<PageMetadata, ApiError> {
        Ok(self.scanner.finish()?)
    }
}

/// Reads an answer that is one object, and converts its JSON.
pub async fn read_object<T>(
    body: Body,
    buffers: &Buffers,
    convert: impl FnOnce(&str) -> T,
) -> Result<T, ApiError> {
    let malformed =
        || ApiError::Unreadable("the answer of the API server is not an object".to_owned());
    let mut page = PageStream::new(body, buffers.clone());
    page.scanner = ListScanner::for_object();
    if !page.advance().await? {
        return Err(malformed());
    }
    let converted = convert(page.object());
    match page.advance().await {
        Ok(false) if page.finish().is_ok() => Ok(converted),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::io::Cursor;

    use super::*;

    fn body(bytes: impl Into<Vec<u8>>) -> Body {
        Box::pin(Cursor::new(bytes.into()))
    }

    #[tokio::test]
    async fn invalid_utf_8_is_replaced_only_in_its_own_object() {
        let list = b"{\"items\": [{\"a\": \"\xff\"}, {\"b\": \"\xc3\xbc\"}]}";
        let mut page = PageStream::new(body(*list), Buffers::new(1));
        let mut found = Vec::new();
        while page.advance().await.unwrap() {
            found.push(page.object().to_owned());
        }
        assert_eq!(found, ["{\"a\": \"\u{fffd}\"}", "{\"b\": \"ü\"}"]);
        assert!(page.finish().is_ok());
    }

    #[tokio::test]
    async fn large_objects_are_read_one_after_the_other_and_small_ones_do_not_wait() {
        let buffers = Buffers::new(1);
        let large = format!("{{\"items\": [{{\"a\": \"{}\"}}, {{}}]}}", "x".repeat(2 * SMALL));
        let mut first = PageStream::new(body(large.clone()), buffers.clone());
        assert!(first.advance().await.unwrap());
        let mut second = PageStream::new(body(large), buffers.clone());
        let waiting = tokio::spawn(async move { second.advance().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let mut small = PageStream::new(body("{\"items\": [{}]}"), buffers);
        assert!(small.advance().await.unwrap());
        // The next object is a small one.
        assert!(first.advance().await.unwrap());
        assert!(waiting.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn one_object_is_read_whole_or_not_at_all() {
        let buffers = Buffers::new(1);
        let read = |text: &'static str| read_object(body(text), &buffers, str::to_owned);
        assert_eq!(read("{\"a\": 1}\n").await, Ok("{\"a\": 1}".to_owned()));
        for text in ["", "{\"a\": 1", "<html>", "{} {}"] {
            assert!(read(text).await.is_err(), "{text}");
        }
    }
}
