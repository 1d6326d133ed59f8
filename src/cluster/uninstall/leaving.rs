//! What is on its way out and takes others along: an object whose owner or
//! Namespace is Terminating goes soon, though it is not Terminating itself.
//! Without its hold it would be lost, whoever uses it.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::Instant;

use super::news::Why;
use crate::cluster::api::{self, Detail};
use crate::cluster::discovery::read_kinds;
use crate::cluster::pace::within;
use crate::objects::{ApiError, KindInfo, Kinds, read_shallow, split_api_version};

/// An object as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    /// It stays, as far as is known.
    Stays,
    /// It is on its way out.
    Goes,
    /// It is not there, or another one is in its place.
    Absent,
    /// This is why nobody knows.
    Unknown(String),
}

/// What is remembered of an answer, and since when.
type Answers<T> = Mutex<HashMap<String, (Instant, T)>>;

/// Finds out whose owner or Namespace is on its way out, by live reads: no
/// watch and no list knows every kind of owner.
pub struct Leaving<'a> {
    client: &'a kube::Client,
    /// For so long what was read is believed: many objects have the same owner.
    fresh: Duration,
    stands: Answers<Stand>,
    /// The kinds of a version, by their kind; none: it is not served.
    served: Answers<Result<Vec<KindInfo>, String>>,
}

fn read_before<T: Clone>(answers: &Answers<T>, key: &str, fresh: Duration) -> Option<T> {
    let answers = answers.lock();
    let (at, answer) = answers.get(key)?;
    (at.elapsed() < fresh).then(|| answer.clone())
}

fn remember<T: Clone>(answers: &Answers<T>, key: String, answer: &T) {
    answers.lock().insert(key, (Instant::now(), answer.clone()));
}

impl<'a> Leaving<'a> {
    pub fn new(client: &'a kube::Client, fresh: Duration) -> Self {
        Self { client, fresh, stands: Mutex::default(), served: Mutex::default() }
    }

    /// Why this object, which is not Terminating, goes soon, or may; none: as
    /// far as its owners and its Namespace say it stays. What cannot be found
    /// out counts as going, and who is absent takes nobody along any more.
    pub async fn why(&self, object: &Value) -> Option<Why> {
        let metadata = object.get("metadata")?;
        let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if !namespace.is_empty() {
            let info = Kinds::custom("", "v1", "Namespace", "namespaces", false);
            let stand = self.stand(&info, "", namespace, None).await;
            if let Some(why) = why(format_args!("its Namespace {namespace}"), stand) {
                return Some(why);
            }
        }
        let owners = metadata.get("ownerReferences").filter(|owners| !owners.is_null())?;
        let Ok(owners) = Vec::<OwnerReference>::deserialize(owners) else {
            return Some(Why::Going("its owner references cannot be read".to_owned()));
        };
        for owner in owners {
            let OwnerReference { api_version, kind, name, uid, .. } = owner;
            let stand = match self.kind(&api_version, &kind).await {
                Ok(Some(info)) if info.namespaced && namespace.is_empty() => Stand::Absent,
                Ok(Some(info)) => {
                    let place = if info.namespaced { namespace } else { "" };
                    self.stand(&info, place, &name, Some(&uid)).await
                }
                Ok(None) => Stand::Absent,
                Err(why) => Stand::Unknown(why),
            };
            if let Some(why) = why(format_args!("its owner {kind} {name}"), stand) {
                return Some(why);
            }
        }
        None
    }

    /// A kind; none: it is not served.
    async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<KindInfo>, String> {
        let kinds = match read_before(&self.served, api_version, self.fresh) {
            Some(kinds) => kinds,
            None => {
                let (group, version) = split_api_version(api_version);
                let kinds = within(read_kinds(self.client, group, version)).await;
                let kinds = match kinds {
                    Err(ApiError::NotFound) => Ok(Vec::new()),
                    kinds => kinds.map_err(|error| error.to_string()),
                };
                remember(&self.served, api_version.to_owned(), &kinds);
                kinds
            }
        };
        Ok(kinds?.into_iter().find(|info| info.kind == kind))
    }

    /// How an object stands; with its uid, where another one may be in its
    /// place.
    async fn stand(&self, info: &KindInfo, ns: &str, name: &str, uid: Option<&str>) -> Stand {
        let key = format!("{} {ns}/{name} {}", info.full_name(), uid.unwrap_or_default());
        if let Some(stand) = read_before(&self.stands, &key, self.fresh) {
            return stand;
        }
        let read = within(api::object(self.client, info, ns, name, Detail::Metadata)).await;
        let stand = match read.map(|json| json.map(|json| read_shallow(&json))) {
            Ok(None) => Stand::Absent,
            Ok(Some(Ok(object))) => of(&object, uid),
            Ok(Some(Err(_))) => Stand::Unknown("the answer is no object".to_owned()),
            Err(error) => Stand::Unknown(error.to_string()),
        };
        remember(&self.stands, key, &stand);
        stand
    }
}

/// How an object stands that is there.
fn of(object: &Value, uid: Option<&str>) -> Stand {
    let text = |field: &str| object.pointer(&format!("/metadata/{field}")).and_then(Value::as_str);
    match (text("uid"), uid) {
        (None, _) => Stand::Unknown("the answer is no object".to_owned()),
        (Some(there), Some(uid)) if there != uid => Stand::Absent,
        _ if text("deletionTimestamp").is_some() => Stand::Goes,
        _ => Stand::Stays,
    }
}

fn why(what: impl Display, stand: Stand) -> Option<Why> {
    match stand {
        Stand::Goes => Some(Why::Going(format!("{what} is"))),
        Stand::Unknown(why) => {
            Some(Why::Going(format!("{what} may be, which cannot be read: {why}")))
        }
        Stand::Stays | Stand::Absent => None,
    }
}
