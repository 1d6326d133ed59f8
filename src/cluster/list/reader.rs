//! Reads a list page by page.

use http::Request;
use kube::api::ListParams;
use kube::core::Status;
use serde_json::json;
use tokio::time::Instant;

use super::page::{Buffers, PageStream};
use crate::cluster::api::{self, Detail};
use crate::cluster::api_error::ReadFailure;
use crate::objects::{ApiError, KindInfo, Object};

/// The maximum number of objects on a page.
const MAX_PAGE: usize = 500;

/// How often the reader starts a list whose version expires.
const MAX_STARTS: usize = 3;

/// The number of objects on the first page, when their size is unknown.
const FIRST_PAGE: usize = 20;

/// The intended maximum size of a page, in bytes.
const PAGE_BYTES: usize = 4 << 20;

/// Which objects to list.
#[derive(Debug, Clone, Copy)]
pub struct ListQuery<'a> {
    pub info: &'a KindInfo,
    /// The namespace; empty: all.
    pub namespace: &'a str,
    /// How much of each object to read.
    pub detail: Detail,
    /// The label selector; empty: all objects.
    pub labels: &'a str,
}

/// The next part of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// The JSON of an object.
    Object(&'a str),
    /// The version of the pages expired, and the list starts again. The caller must drop the
    /// objects of the earlier version.
    Again,
    /// The end of the list.
    End,
}

/// One step in reading a list.
enum Step {
    /// An object of the page was read.
    Object,
    PageEnd,
    End,
}

/// Reads a list, consistent with everything stored before.
///
/// The API server ends its answer at an object that it can't encode as JSON (H176). The reader then
/// requests the objects before this object, and only the metadata of this object. It returns an
/// object with the same name that can't be parsed.
pub struct ListReader<'a> {
    client: &'a kube::Client,
    requests: kube::core::Request,
    params: ListParams,
    detail: Detail,
    buffers: Buffers,
    /// How many objects the next page may have.
    limit: usize,
    /// Whether to read only the first object.
    only_first: bool,
    page: Option<PageStream>,
    /// How many objects of the page were read.
    objects: usize,
    /// How many objects at the start of the page were already returned, before an answer broke off.
    returned: usize,
    /// Whether the API server can't encode the next object, so that the next page has its metadata.
    is_unencodable: bool,
    /// The object that is returned in place of an object that can't be encoded.
    unreadable: Option<String>,
    /// The continue token of the current page, or of the next one.
    continue_token: String,
    starts: usize,
    is_over: bool,
    version: String,
    sent: Instant,
}

impl<'a> ListReader<'a> {
    pub fn new(client: &'a kube::Client, query: ListQuery<'_>, buffers: Buffers) -> Self {
        let ListQuery { info, namespace, detail, labels } = query;
        let mut params = ListParams::default();
        if !labels.is_empty() {
            params = params.labels(labels);
        }
        let requests = api::requests(info, namespace);
        Self { detail, ..Self::with_requests(client, requests, params, buffers) }
    }

    /// Lists whole objects with these requests.
    pub fn with_requests(
        client: &'a kube::Client,
        requests: kube::core::Request,
        params: ListParams,
        buffers: Buffers,
    ) -> Self {
        Self {
            client,
            requests,
            params,
            detail: Detail::Whole,
            buffers,
            limit: FIRST_PAGE,
            only_first: false,
            page: None,
            objects: 0,
            returned: 0,
            is_unencodable: false,
            unreadable: None,
            continue_token: String::new(),
            starts: 0,
            is_over: false,
            version: String::new(),
            sent: Instant::now(),
        }
    }

    /// Reads only the first object.
    pub fn first(self) -> Self {
        Self { limit: 1, only_first: true, ..self }
    }

    /// Reads the next part. After an error, the next call requests the same page again.
    pub async fn next(&mut self) -> Result<Next<'_>, ReadFailure> {
        let step = loop {
            match self.advance().await {
                Ok(Step::PageEnd) => {}
                Ok(Step::Object) if self.objects <= self.returned => {}
                Ok(step) => break step,
                Err(failure) if self.reduce_page(&failure.error) => {
                    // Without a continue token, the next answer may have other objects.
                    if self.objects > 0 && self.continue_token.is_empty() {
                        return Ok(Next::Again);
                    }
                    self.returned = self.returned.max(self.objects);
                }
                Err(failure) => return self.handle_failure(failure).map(|()| Next::Again),
            }
        };
        Ok(match step {
            Step::Object => Next::Object(self.object()),
            _ => Next::End,
        })
    }

    /// Reads the next page, and returns its wanted objects; `None` after the end of the list. It
    /// is for callers that work on each object for a long time, so that the API server need not
    /// wait for them.
    pub async fn next_page(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Vec<String>>, ReadFailure> {
        let mut objects = Vec::new();
        // The caller may have stopped waiting in the middle of a page.
        self.page = None;
        loop {
            match self.advance().await {
                Ok(Step::Object) => {
                    let json = self.object();
                    if is_wanted(json) {
                        objects.push(json.to_owned());
                    }
                }
                Ok(Step::PageEnd) => return Ok(Some(objects)),
                Ok(Step::End) => return Ok(None),
                Err(failure) if self.reduce_page(&failure.error) => objects.clear(),
                Err(failure) => {
                    self.handle_failure(failure)?;
                    objects.clear();
                }
            }
        }
    }

    /// Handles a failure. Returns Ok if the list starts again.
    fn handle_failure(&mut self, failure: ReadFailure) -> Result<(), ReadFailure> {
        self.page = None;
        (self.returned, self.is_unencodable) = (0, false);
        if failure.error == ApiError::Expired {
            self.continue_token.clear();
            self.starts += 1;
            if self.starts < MAX_STARTS {
                return Ok(());
            }
            self.starts = 0;
        }
        Err(failure)
    }

    /// Prepares to read the page again, after an answer that ended at an object that the API server
    /// can't encode. Returns false if the failure has another reason.
    fn reduce_page(&mut self, error: &ApiError) -> bool {
        let is_encoding =
            matches!(error, ApiError::Status { code: 500, message } if message.contains("json: "));
        if !is_encoding
            || self.detail == Detail::Metadata
            || self.is_unencodable
            || self.objects >= self.limit
        {
            return false;
        }
        self.page = None;
        self.is_unencodable = self.limit == 1;
        self.limit = self.objects.max(1);
        true
    }

    /// The JSON of the current object.
    fn object(&self) -> &str {
        let page = self.page.as_ref().map_or("", PageStream::object);
        self.unreadable.as_deref().unwrap_or(page)
    }

    /// When the last page was requested.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    /// The resource version of the list, after its end.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Reads one object, or the end of a page.
    async fn advance(&mut self) -> Result<Step, ReadFailure> {
        if self.is_over {
            return Ok(Step::End);
        }
        let page = match &mut self.page {
            Some(page) => page,
            None => {
                self.sent = Instant::now();
                self.objects = 0;
                let body = api::send(self.client, self.request()?).await?;
                self.page.insert(PageStream::new(body, self.buffers.clone()))
            }
        };
        if page.advance().await? {
            if let Some(status) = parse_status(page.object()) {
                return Err(ApiError::of_status(status.code, &status.message).into());
            }
            self.objects += 1;
            self.unreadable = self.is_unencodable.then(|| unreadable_object(page.object()));
            return Ok(Step::Object);
        }
        let metadata = page.finish()?;
        if let Some(object_bytes) = page.bytes().checked_div(self.objects)
            && !self.only_first
        {
            self.limit =
                PAGE_BYTES.checked_div(object_bytes).unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
        }
        self.page = None;
        self.returned = self.returned.saturating_sub(self.objects);
        self.is_unencodable = false;
        self.is_over = metadata.next.is_empty();
        self.continue_token = metadata.next;
        self.version = metadata.resource_version;
        Ok(Step::PageEnd)
    }

    fn request(&self) -> Result<Request<Vec<u8>>, ApiError> {
        let params = ListParams {
            limit: u32::try_from(self.limit).ok(),
            continue_token: Some(self.continue_token.clone()).filter(|token| !token.is_empty()),
            ..self.params.clone()
        };
        Ok(match self.detail {
            Detail::Whole if !self.is_unencodable => self.requests.list(&params),
            _ => self.requests.list_metadata(&params),
        }?)
    }
}

/// Parses the error that the API server sends in place of an object before it ends its answer.
fn parse_status(json: &str) -> Option<Status> {
    json.starts_with(r#"{"kind":"Status","apiVersion":"v1","#)
        .then(|| serde_json::from_str(json).unwrap_or_default())
}

/// The JSON of an object of this name that every reader rejects, because of its labels.
fn unreadable_object(metadata: &str) -> String {
    let object: Object<'_> = serde_json::from_str(metadata).unwrap_or_default();
    let (namespace, name) = (&*object.metadata.namespace, &*object.metadata.name);
    json!({"metadata": {"namespace": namespace, "name": name, "labels": false}}).to_string()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{self, Poll};

    use parking_lot::Mutex;

    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::objects::Kinds;

    /// An answer of the API server: HTTP status code and body.
    type Answer = (u16, String);

    /// An API server with these answers, and the queries of its requests.
    fn script(answers: Vec<Answer>) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (queries, mut answers) = (asked.clone(), answers.into_iter());
        let client = local_client(move |request| {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/a/pods");
            let query = request.uri().query().unwrap_or_default();
            queries.lock().push(query.trim_start_matches('&').to_owned());
            Some(answers.next().unwrap_or_else(|| failed(404)))
        });
        (client, asked)
    }

    fn failed(code: u16) -> Answer {
        let (code, status) = failure(code, "no", ("", ""));
        (code, status.to_string())
    }

    fn page(objects: usize, size: usize, next: &str) -> Answer {
        let objects: Vec<_> =
            (0..objects).map(|n| json!({"n": n, "x": "x".repeat(size)})).collect();
        let page =
            json!({"metadata": {"continue": next, "resourceVersion": "7"}, "items": objects});
        (200, page.to_string())
    }

    fn list(client: &kube::Client) -> ListReader<'_> {
        let kinds = Kinds::default();
        let info = kinds.info(kinds.find("", "Pod").unwrap());
        let query = ListQuery { info, namespace: "a", detail: Detail::Whole, labels: "" };
        ListReader::new(client, query, Buffers::new(1))
    }

    /// The number of objects since the last start of the list, and the queries of the requests.
    async fn read(answers: Vec<Answer>) -> (Result<usize, ApiError>, Vec<String>) {
        let (client, asked) = script(answers);
        let mut list = list(&client);
        let mut objects = 0;
        let result = loop {
            match list.next().await {
                Ok(Next::Object(_)) => objects += 1,
                Ok(Next::Again) => objects = 0,
                Ok(Next::End) => break Ok(objects),
                Err(failure) => break Err(failure.error),
            }
        };
        let asked = asked.lock().clone();
        (result, asked)
    }

    #[tokio::test]
    async fn small_objects_make_pages_longer() {
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
    async fn starts_again_when_the_version_expires_but_not_forever() {
        let expired = || failed(410);
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
    async fn reads_whole_pages_and_omits_unwanted_objects() {
        let (client, asked) = script(vec![page(3, 1, "2"), failed(404), page(1, 1, "")]);
        let mut list = list(&client);
        let is_wanted = |json: &str| !json.contains(r#""n":1"#);
        assert_eq!(list.next_page(is_wanted).await.unwrap().map(|page| page.len()), Some(2));
        assert!(list.next_page(is_wanted).await.is_err());
        assert_eq!(list.next_page(is_wanted).await.unwrap().map(|page| page.len()), Some(1));
        assert_eq!(list.next_page(is_wanted).await.unwrap(), None);
        assert_eq!(asked.lock()[1..], ["limit=500&continue=2", "limit=500&continue=2"]);
    }

    /// A page whose second object does not arrive.
    struct StuckPage(&'static [u8]);

    impl futures_util::io::AsyncRead for StuckPage {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
            _: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }
    }

    impl futures_util::io::AsyncBufRead for StuckPage {
        fn poll_fill_buf(
            self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
        ) -> Poll<io::Result<&[u8]>> {
            if self.0.is_empty() { Poll::Pending } else { Poll::Ready(Ok(self.0)) }
        }

        fn consume(mut self: Pin<&mut Self>, read: usize) {
            self.0 = &self.0[read..];
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_was_cancelled_in_its_middle_is_read_again_from_its_start() {
        let (client, _) = script(vec![page(2, 1, "2"), page(3, 1, "")]);
        let mut list = list(&client);
        assert_eq!(list.next_page(|_| true).await.unwrap().map(|page| page.len()), Some(2));
        let stuck = StuckPage(br#"{"items": [{"n": 0}, "#);
        list.page = Some(PageStream::new(Box::pin(stuck), Buffers::new(1)));
        let limit = std::time::Duration::from_secs(1);
        assert!(list.advance().await.is_ok(), "the first object");
        assert!(tokio::time::timeout(limit, list.advance()).await.is_err());
        let again = tokio::time::timeout(limit, list.next_page(|_| true)).await.unwrap();
        assert_eq!(again.unwrap().map(|page| page.len()), Some(3));
    }

    #[tokio::test]
    async fn an_empty_page_is_not_the_end() {
        let (objects, asked) = read(vec![page(0, 0, "2"), page(2, 1, "")]).await;
        assert_eq!((objects, asked.len()), (Ok(2), 2));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error() {
        let (code, text) = page(3, 10, "");
        let half = (code, text[..text.len() - 4].to_owned());
        assert!(matches!(read(vec![half]).await.0, Err(ApiError::Unreadable(_))));
    }

    const ENCODING: &str = "json: error calling MarshalJSON for type X: impossible";

    /// An answer that ends at an object that the API server can't encode.
    fn broken_page(objects: usize) -> Answer {
        let (code, text) = page(objects, 1, "2");
        let items = &text[..text.find(']').unwrap()];
        let comma = if objects > 0 { "," } else { "" };
        let start = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure""#;
        (code, format!("{items}{comma}{start},\"message\":\"{ENCODING}\",\"code\":500}}\n"))
    }

    fn metadata_page(name: &str, next: &str) -> Answer {
        let object = json!({"metadata": {"name": name, "namespace": "a", "labels": {}}});
        let page = json!({"metadata": {"continue": next, "resourceVersion": "7"},
            "items": [object]});
        (200, page.to_string())
    }

    #[tokio::test]
    async fn h176_an_object_that_the_api_server_cannot_encode_is_the_only_unreadable_one() {
        let pages = || {
            vec![
                page(20, 1, "2"),
                broken_page(3),
                page(3, 1, "3"),
                broken_page(0),
                broken_page(0),
                metadata_page("bad", "4"),
                page(2, 1, ""),
            ]
        };
        let (objects, asked) = read(pages()).await;
        assert_eq!(objects, Ok(26));
        assert_eq!(
            asked,
            [
                "limit=20",
                "limit=500&continue=2",
                "limit=3&continue=2",
                "limit=500&continue=3",
                "limit=1&continue=3",
                "limit=1&continue=3",
                "limit=500&continue=4"
            ]
        );
        let (client, _) = script(pages());
        let mut list = list(&client);
        let mut found = Vec::new();
        while let Some(page) = list.next_page(|_| true).await.unwrap() {
            found.extend(page);
        }
        assert_eq!(found.len(), 26);
        let is_unreadable = |json: &&String| serde_json::from_str::<Object<'_>>(json).is_err();
        let unreadable: Vec<_> = found.iter().filter(is_unreadable).collect();
        assert_eq!(unreadable, [r#"{"metadata":{"labels":false,"name":"bad","namespace":"a"}}"#]);

        // Without a continue token, the objects before the broken one are read again.
        let first = vec![broken_page(3), page(3, 1, "2"), failed(500), page(1, 1, "")];
        assert_eq!(read(first).await.0, Err(ApiError::of_status(500, "no")));
        let (code, status) = failure(500, ENCODING, ("", ""));
        let buffered = || (code, status.to_string());
        let first = vec![broken_page(3), page(3, 1, "2"), buffered(), buffered()];
        let pages = [first, vec![metadata_page("bad", "")]].concat();
        assert_eq!(read(pages).await.0, Ok(4));
        // The metadata of an object is not reduced further.
        assert!(read(vec![buffered(), buffered(), buffered()]).await.0.is_err());
    }
}
