//! What people write: the kinds of belay's own, read into memory as they stand
//! in the cluster.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::watching::Sink;
use crate::cluster::api::Trouble;
use crate::objects::{Unreadable, read_shallow};
use crate::policy::api::{DeletionApproval, DeletionPolicy, Pause, Relation};

/// Everything that people have written, by name.
#[derive(Debug, Default)]
pub struct Said {
    pub policies: Kept<DeletionPolicy>,
    pub relations: Kept<Relation>,
    pub approvals: Kept<DeletionApproval>,
    pub pauses: Kept<Pause>,
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Kept<K> {
    /// By name: what cannot be read as what it is says why.
    pub all: BTreeMap<String, Result<K, String>>,
    /// Whether all of them have been read once.
    pub synced: bool,
    /// Why they are not known now, if they are not.
    pub trouble: Option<Trouble>,
    /// Counts changes.
    pub changes: u64,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), synced: false, trouble: None, changes: 0 }
    }
}

/// Takes in the objects of one kind.
pub struct Own<K> {
    said: Arc<Mutex<Said>>,
    part: fn(&mut Said) -> &mut Kept<K>,
    news: Arc<Notify>,
    listed: Option<BTreeMap<String, Result<K, String>>>,
}

impl<K> Own<K> {
    /// Nothing is known yet.
    pub fn new(
        said: Arc<Mutex<Said>>,
        part: fn(&mut Said) -> &mut Kept<K>,
        news: Arc<Notify>,
    ) -> Self {
        Self { said, part, news, listed: None }
    }

    fn note(&self, change: impl FnOnce(&mut Kept<K>)) {
        let mut said = self.said.lock();
        let kept = (self.part)(&mut said);
        change(kept);
        kept.changes += 1;
        drop(said);
        self.news.notify_one();
    }
}

/// Name and object. An object that another version of belay has written may
/// say what this one does not understand: that is its own trouble alone.
fn read<K: DeserializeOwned + Resource>(
    json: &str,
) -> Result<(String, Result<K, String>), Unreadable> {
    #[derive(serde::Deserialize)]
    struct Named {
        metadata: Name,
    }
    #[derive(serde::Deserialize)]
    struct Name {
        name: String,
    }
    // Who may write such an object may write its managedFields, in any shape.
    match read_shallow(json).and_then(K::deserialize) {
        Ok(object) => Ok((object.name_any(), Ok(object))),
        Err(error) => {
            let named = serde_json::from_str(json);
            let Named { metadata } = named.map_err(|error| Unreadable::new(json, &error))?;
            Ok((metadata.name, Err(error.to_string())))
        }
    }
}

impl<K: DeserializeOwned + Resource + Debug + Send> Sink for Own<K> {
    fn begin(&mut self) {
        self.listed = Some(BTreeMap::new());
    }

    fn list(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = read(json)?;
        if let Some(listed) = &mut self.listed {
            listed.insert(name, object);
        }
        Ok(())
    }

    fn end(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        self.note(|kept| {
            kept.all = listed;
            kept.synced = true;
            kept.trouble = None;
        });
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, object) = read(json)?;
        self.note(|kept| {
            kept.all.insert(name, object);
        });
        Ok(())
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        let (name, _) = read::<K>(json)?;
        self.note(|kept| {
            kept.all.remove(&name);
        });
        Ok(())
    }

    fn skip(&mut self) {
        tracing::warn!("an event of a kind of belay's own can't be read; it is listed again");
    }

    // What was read last stays true enough while a connection is down.
    fn disconnected(&mut self) {}

    fn current(&mut self) {
        let unknown = (self.part)(&mut self.said.lock()).trouble.is_some();
        if unknown {
            self.note(|kept| kept.trouble = None);
        }
    }

    fn broken(&mut self, trouble: &Trouble, _: Duration) {
        let lasting = matches!(trouble, Trouble::NotFound | Trouble::Forbidden(_));
        let mut said = self.said.lock();
        let kept = (self.part)(&mut said);
        let new = kept.trouble.as_ref() != Some(trouble) && (lasting || !kept.synced);
        drop(said);
        if new {
            self.note(|kept| kept.trouble = Some(trouble.clone()));
        }
    }
}
