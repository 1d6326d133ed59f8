//! The objects of a kind that have a hold, read page by page.

use std::time::Duration;

use tokio::time::sleep;

use crate::cluster::api::Detail;
use crate::cluster::list::{Buffers, ListQuery, ListReader};
use crate::cluster::pace::{Backoff, within};
use crate::objects::{ApiError, KindInfo, Object, Unreadable};

/// How often belay requests a page.
const MAX_TRIES: usize = 5;

/// An object with a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    /// The namespace; empty if cluster-scoped.
    pub namespace: String,
    pub name: String,
    pub is_terminating: bool,
}

/// Reads all objects of a kind once.
pub struct HeldPages<'a> {
    list: ListReader<'a>,
    /// The failed requests for the next page.
    failures: usize,
    backoff: Backoff,
    first_unreadable: Option<Unreadable>,
}

impl<'a> HeldPages<'a> {
    pub fn new(client: &'a kube::Client, info: &KindInfo) -> Self {
        let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
        Self {
            list: ListReader::new(client, query, Buffers::new(1)),
            failures: 0,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(5)),
            first_unreadable: None,
        }
    }

    /// Reads the next page, and returns its objects with a hold; `None` after the last page.
    pub async fn next(&mut self) -> Result<Option<Vec<HeldObject>>, ApiError> {
        loop {
            match within(self.list.next_page(|json| !matches!(read_held(json), Ok(None)))).await {
                Ok(page) => {
                    self.failures = 0;
                    self.backoff.record_success();
                    return Ok(page.map(|page| self.read_page(&page)));
                }
                Err(error) => {
                    self.failures += 1;
                    if error.is_lasting() || self.failures == MAX_TRIES {
                        return Err(error);
                    }
                    sleep(self.backoff.next()).await;
                }
            }
        }
    }

    fn read_page(&mut self, page: &[String]) -> Vec<HeldObject> {
        let mut objects = Vec::new();
        for json in page {
            match read_held(json) {
                Ok(object) => objects.extend(object),
                Err(unreadable) => drop(self.first_unreadable.get_or_insert(unreadable)),
            }
        }
        objects
    }

    /// The first object that can't be parsed, so that belay does not know whether it has a hold.
    pub fn first_unreadable(&self) -> Option<ApiError> {
        let unreadable = self.first_unreadable.as_ref()?;
        Some(ApiError::Unreadable(unreadable.describe()))
    }
}

/// Parses an object; `None` if it has no hold.
fn read_held(json: &str) -> Result<Option<HeldObject>, Unreadable> {
    let object: Object<'_> =
        serde_json::from_str(json).map_err(|error| Unreadable::new(json, &error))?;
    Ok(object.is_held().then(|| HeldObject {
        namespace: object.metadata.namespace.to_string(),
        name: object.metadata.name.to_string(),
        is_terminating: object.is_terminating(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::objects::Kinds;

    #[tokio::test(start_paused = true)]
    async fn every_page_may_fail_some_times() {
        // Each page fails until its last try.
        let mut requests = 0;
        let client = local_client(move |_| {
            requests += 1;
            if requests % MAX_TRIES != 0 {
                return Some(failure(500, "oops", ("", "")));
            }
            let next = if requests < 4 * MAX_TRIES { "more" } else { "" };
            let object = json!({"metadata": {"name": requests.to_string(), "namespace": "n",
                "finalizers": [crate::objects::HOLD]}});
            Some((200, json!({"metadata": {"continue": next}, "items": [object]})))
        });
        let info = Kinds::custom("", "v1", "ConfigMap", "configmaps", true);
        let mut pages = HeldPages::new(&client, &info);
        let mut names = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            names.extend(page.into_iter().map(|object| object.name));
        }
        assert_eq!(names, ["5", "10", "15", "20"]);
    }
}
