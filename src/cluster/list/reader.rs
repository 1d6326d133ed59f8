//! A list, page by page.

use tokio::time::Instant;

use super::page::{Buffers, PageStream};
use super::{Failure, Transport};
use crate::cluster::api::Detail;
use crate::cluster::api::{BEGINNINGS, PAGE, collection, escaped};
use crate::objects::{ApiError, KindInfo};

/// Objects on the first page: how large they are is not known yet.
const FIRST: usize = 20;

/// So many bytes a page should have at the most.
const BYTES: usize = 4 << 20;

/// What to ask of a list.
#[derive(Debug, Clone, Copy)]
pub struct ListQuery<'a> {
    /// The kind.
    pub info: &'a KindInfo,
    /// In which namespace; empty: in all.
    pub namespace: &'a str,
    /// How much of each object.
    pub detail: Detail,
    /// Which labels; empty: any.
    pub labels: &'a str,
}

/// What comes next in a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// The JSON of an object.
    Object(&'a str),
    /// The API server no longer has what the pages are of, and the list begins
    /// again: half of one and half of another is neither.
    Again,
    /// The list has been read.
    End,
}

/// One step in reading a list.
enum Step {
    /// To the object of the page.
    Object,
    PageEnd,
    End,
}

/// Reads a list, consistent with everything stored before.
pub struct ListReader<'a, T> {
    transport: &'a T,
    query: ListQuery<'a>,
    buffers: Buffers,
    /// How many objects the next page may have.
    limit: usize,
    /// Whether the first object is enough.
    is_first_enough: bool,
    page: Option<PageStream>,
    objects: usize,
    /// Where the page begins that is read now, or next.
    from: String,
    beginnings: usize,
    is_over: bool,
    version: String,
    sent: Instant,
}

impl<'a, T: Transport> ListReader<'a, T> {
    /// Nothing is asked for yet.
    pub fn new(transport: &'a T, query: ListQuery<'a>, buffers: Buffers) -> Self {
        Self {
            transport,
            query,
            buffers,
            limit: FIRST,
            is_first_enough: false,
            page: None,
            objects: 0,
            from: String::new(),
            beginnings: 0,
            is_over: false,
            version: String::new(),
            sent: Instant::now(),
        }
    }

    /// The same, if the first object is enough.
    pub fn first(self) -> Self {
        Self { limit: 1, is_first_enough: true, ..self }
    }

    /// What comes next. After an error the same page is asked for once more.
    pub async fn next(&mut self) -> Result<Next<'_>, Failure> {
        let step = loop {
            match self.advance().await {
                Ok(Step::PageEnd) => {}
                Ok(step) => break step,
                Err(failure) => return self.failed(failure).map(|()| Next::Again),
            }
        };
        Ok(match (step, &self.page) {
            (Step::Object, Some(page)) => Next::Object(page.object()),
            _ => Next::End,
        })
    }

    /// The objects of the next page that are wanted; `None`: the list has been
    /// read. For callers that work on each object for a long time, so that the
    /// API server does not wait for them.
    pub async fn next_page(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Vec<String>>, Failure> {
        let mut objects = Vec::new();
        loop {
            match self.advance().await {
                Ok(Step::Object) => {
                    let json = self.page.as_ref().map_or("", PageStream::object);
                    if is_wanted(json) {
                        objects.push(json.to_owned());
                    }
                }
                Ok(Step::PageEnd) => return Ok(Some(objects)),
                Ok(Step::End) => return Ok(None),
                Err(failure) => {
                    self.failed(failure)?;
                    objects.clear();
                }
            }
        }
    }

    /// Whether the list begins again.
    fn failed(&mut self, failure: Failure) -> Result<(), Failure> {
        self.page = None;
        if failure.error == ApiError::Expired {
            self.from.clear();
            self.beginnings += 1;
            if self.beginnings < BEGINNINGS {
                return Ok(());
            }
            self.beginnings = 0;
        }
        Err(failure)
    }

    /// When the last page was asked for.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// The version of the list, once it has been read.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Goes on by one step.
    async fn advance(&mut self) -> Result<Step, Failure> {
        if self.is_over {
            return Ok(Step::End);
        }
        let page = match &mut self.page {
            Some(page) => page,
            None => {
                self.sent = Instant::now();
                let path = self.path();
                let body = self.transport.get(&path, self.query.detail, true).await?;
                self.objects = 0;
                self.page.insert(PageStream::new(body, self.buffers.clone()))
            }
        };
        if page.advance().await? {
            self.objects += 1;
            return Ok(Step::Object);
        }
        let metadata = page.finish()?;
        if let Some(each) = page.bytes().checked_div(self.objects)
            && !self.is_first_enough
        {
            self.limit = BYTES.checked_div(each).unwrap_or(PAGE).clamp(1, PAGE);
        }
        self.page = None;
        self.is_over = metadata.next.is_empty();
        self.from = metadata.next;
        self.version = metadata.resource_version;
        Ok(Step::PageEnd)
    }

    /// The path of the page.
    fn path(&self) -> String {
        let ListQuery { info, namespace, labels, .. } = self.query;
        let mut path = format!("{}?limit={}", collection(info, namespace), self.limit);
        for (key, value) in [("continue", self.from.as_str()), ("labelSelector", labels)] {
            if !value.is_empty() {
                path.push_str(&format!("&{key}={}", escaped(value)));
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use futures_util::io::Cursor;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::super::Body;
    use super::*;
    use crate::objects::Kinds;

    /// An API server that answers one request after the other, and what it was
    /// asked.
    #[derive(Clone)]
    struct Script {
        answers: Arc<Mutex<VecDeque<Result<String, ApiError>>>>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Transport for Script {
        async fn get(&self, path: &str, _: Detail, _: bool) -> Result<Body, Failure> {
            self.asked.lock().push(path.replace("/api/v1/namespaces/a/pods?", ""));
            let answer = self.answers.lock().pop_front().unwrap_or(Err(ApiError::NotFound))?;
            Ok(Box::pin(Cursor::new(answer.into_bytes())))
        }
    }

    fn page(objects: usize, size: usize, next: &str) -> Result<String, ApiError> {
        let objects: Vec<_> =
            (0..objects).map(|n| json!({"n": n, "x": "x".repeat(size)})).collect();
        Ok(json!({"metadata": {"continue": next, "resourceVersion": "7"}, "items": objects})
            .to_string())
    }

    /// How many objects of the last beginning were read, and what was asked.
    async fn read(
        answers: Vec<Result<String, ApiError>>,
    ) -> (Result<usize, ApiError>, Vec<String>) {
        let script =
            Script { answers: Arc::new(Mutex::new(answers.into())), asked: Arc::default() };
        let kinds = Kinds::default();
        let info = kinds.info(kinds.find("", "Pod").unwrap());
        let query = ListQuery { info, namespace: "a", detail: Detail::Whole, labels: "" };
        let mut list = ListReader::new(&script, query, Buffers::new(1));
        let mut objects = 0;
        let result = loop {
            match list.next().await {
                Ok(Next::Object(_)) => objects += 1,
                Ok(Next::Again) => objects = 0,
                Ok(Next::End) => break Ok(objects),
                Err(failure) => break Err(failure.error),
            }
        };
        let asked = script.asked.lock().clone();
        (result, asked)
    }

    #[tokio::test]
    async fn pages_are_as_long_as_their_objects_are_small() {
        let (objects, asked) =
            read(vec![page(20, 10, "2"), page(500, 10, "3"), page(3, 10, "")]).await;
        assert_eq!(objects, Ok(523));
        assert_eq!(asked, ["limit=20", "limit=500&continue=2", "limit=500&continue=3"]);

        let large = vec![
            page(20, 1 << 20, "2"),
            page(3, 1 << 20, "3"),
            page(1, 9 << 20, "4"),
            page(1, 0, ""),
        ];
        let (objects, asked) = read(large).await;
        assert_eq!(objects, Ok(25));
        assert_eq!(
            asked,
            ["limit=20", "limit=3&continue=2", "limit=3&continue=3", "limit=1&continue=4"]
        );
    }

    #[tokio::test]
    async fn begins_again_when_the_pages_are_gone_and_not_for_ever() {
        let expired = || Err(ApiError::Expired);
        let (objects, asked) =
            read(vec![page(20, 1, "2"), expired(), page(7, 1, "2"), page(1, 1, "")]).await;
        assert_eq!(objects, Ok(8), "none of the first list");
        assert_eq!(
            asked,
            ["limit=20", "limit=500&continue=2", "limit=500", "limit=500&continue=2"]
        );
        let (result, _) = read(vec![expired(), expired(), expired(), page(1, 1, "")]).await;
        assert_eq!(result, Err(ApiError::Expired));
    }

    #[tokio::test]
    async fn pages_are_read_as_a_whole_and_what_is_not_wanted_is_left_out() {
        let answers = vec![page(3, 1, "2"), Err(ApiError::NotFound), page(1, 1, "")];
        let script =
            Script { answers: Arc::new(Mutex::new(answers.into())), asked: Arc::default() };
        let kinds = Kinds::default();
        let info = kinds.info(kinds.find("", "Pod").unwrap());
        let query = ListQuery { info, namespace: "a", detail: Detail::Whole, labels: "" };
        let mut list = ListReader::new(&script, query, Buffers::new(1));
        let is_wanted = |json: &str| !json.contains(r#""n":1"#);
        assert_eq!(list.next_page(is_wanted).await.unwrap().map(|page| page.len()), Some(2));
        assert!(list.next_page(is_wanted).await.is_err());
        assert_eq!(list.next_page(is_wanted).await.unwrap().map(|page| page.len()), Some(1));
        assert_eq!(list.next_page(is_wanted).await.unwrap(), None);
        assert_eq!(script.asked.lock()[1..], ["limit=500&continue=2", "limit=500&continue=2"]);
    }

    #[tokio::test]
    async fn an_empty_page_is_not_the_end() {
        let (objects, asked) = read(vec![page(0, 0, "2"), page(2, 1, "")]).await;
        assert_eq!((objects, asked.len()), (Ok(2), 2));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error() {
        let half = page(3, 10, "").map(|text| text[..text.len() - 4].to_owned());
        assert!(matches!(read(vec![half]).await.0, Err(ApiError::Unreadable(_))));
    }
}
