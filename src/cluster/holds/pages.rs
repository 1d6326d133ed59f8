//! The objects of a kind that have a hold, read page by page.

use std::time::Duration;

use tokio::time::sleep;

use crate::cluster::api::Detail;
use crate::cluster::list::{Buffers, ListQuery, ListReader};
use crate::cluster::pace::{Backoff, within};
use crate::objects::{ApiError, KindInfo, Object};

/// How often a page is asked for.
const TRIES: usize = 5;

/// An object with a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    /// Its namespace; empty: it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is Terminating.
    pub is_terminating: bool,
}

/// Reads all objects of a kind once.
pub struct HeldPages<'a> {
    list: ListReader<'a>,
    failures: usize,
    backoff: Backoff,
}

impl<'a> HeldPages<'a> {
    /// Nothing is asked for yet.
    pub fn new(client: &'a kube::Client, info: &KindInfo) -> Self {
        let query = ListQuery { info, namespace: "", detail: Detail::Metadata, labels: "" };
        Self {
            list: ListReader::new(client, query, Buffers::new(1)),
            failures: 0,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(5)),
        }
    }

    /// The objects of the next page that have a hold; `None`: all have been read.
    pub async fn next(&mut self) -> Result<Option<Vec<HeldObject>>, ApiError> {
        loop {
            match within(self.list.next_page(|json| held(json).is_some())).await {
                Ok(page) => {
                    return Ok(page.map(|page| page.iter().filter_map(|json| held(json)).collect()));
                }
                Err(error) => {
                    self.failures += 1;
                    if error.is_lasting() || self.failures == TRIES {
                        return Err(error);
                    }
                    sleep(self.backoff.next()).await;
                }
            }
        }
    }
}

fn held(json: &str) -> Option<HeldObject> {
    let object: Object<'_> = serde_json::from_str(json).ok().filter(Object::is_held)?;
    Some(HeldObject {
        namespace: object.metadata.namespace.to_string(),
        name: object.metadata.name.to_string(),
        is_terminating: object.is_terminating(),
    })
}
