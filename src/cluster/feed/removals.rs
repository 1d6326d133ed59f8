//! Waits until objects are deleted, with one watch for each kind and namespace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::watcher::{WatchClient, WatchSink, WatchTarget, watch};
use crate::cluster::api::{self, Detail};
use crate::objects::{
    ApiError, KindInfo, Object, Uid, Unreadable, full_name, read_without_managed_fields,
};
use crate::timing::Timing;

/// The time between two reads of an object that the user may read, but not watch.
const POLL: Duration = Duration::from_secs(1);

/// The time limit for the first list of a watch.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// A kind and a namespace; for cluster-scoped objects, the namespace is empty.
type KindAndNamespace = (String, String, String);

fn kind_and_namespace(info: &KindInfo, namespace: &str) -> KindAndNamespace {
    (info.group.clone(), info.resource.clone(), namespace.to_owned())
}

/// The watches of the objects that a command waits for.
pub struct Removals {
    client: kube::Client,
    watch_client: WatchClient,
    state: Arc<State>,
    tasks: Mutex<HashMap<KindAndNamespace, JoinHandle<()>>>,
}

struct State {
    /// How much of each object the watches receive. They keep states only if it is whole.
    detail: Detail,
    watches: Mutex<HashMap<KindAndNamespace, WatchState>>,
    changed: Notify,
}

#[derive(Default)]
struct WatchState {
    /// The objects to wait for.
    awaited: Vec<AwaitedObject>,
    /// Whether the objects are read again and again, because the user may not watch them.
    polled: bool,
    /// The existing objects, after the first list.
    existing: Option<HashSet<Uid>>,
    /// The last error before the first list.
    error: Option<ApiError>,
    /// The new states of the awaited objects.
    seen: HashMap<Uid, String>,
}

impl WatchState {
    /// Adds objects to wait for. Until they are read, a polled object counts as existing.
    fn add(&mut self, mut objects: Vec<AwaitedObject>) {
        let known: HashSet<Uid> = self.awaited.iter().map(|object| object.uid).collect();
        objects.retain(|object| !known.contains(&object.uid));
        if let (true, Some(existing)) = (self.polled, &mut self.existing) {
            existing.extend(objects.iter().map(|object| object.uid));
        }
        self.awaited.extend(objects);
    }

    /// Keeps the state of an awaited object.
    fn keep(&mut self, uid: Uid, json: &str) {
        if self.awaited.iter().any(|object| object.uid == uid) {
            self.seen.insert(uid, json.to_owned());
        }
    }

    /// Stores the result of reading the first `count` objects. Objects that were added meanwhile
    /// count as existing.
    fn store_poll(&mut self, count: usize, mut existing: HashSet<Uid>) {
        existing.extend(self.awaited.iter().skip(count).map(|object| object.uid));
        self.existing = Some(existing);
    }
}

/// An object to wait for.
#[derive(Debug, Clone)]
pub struct AwaitedObject {
    /// The kind.
    pub info: KindInfo,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid. Another object of this name does not count.
    pub uid: Uid,
}

impl Removals {
    /// Creates a value that has no watches yet.
    pub fn new(client: kube::Client) -> Self {
        Self::with_detail(client, Detail::Metadata)
    }

    /// Creates a value that has no watches yet. Its watches keep each new state of the objects,
    /// including the state at their deletion.
    pub fn with_states(client: kube::Client) -> Self {
        Self::with_detail(client, Detail::Whole)
    }

    fn with_detail(client: kube::Client, detail: Detail) -> Self {
        let watch_client = WatchClient::new(client.clone(), Timing::default());
        let (watches, changed) = (Mutex::default(), Notify::default());
        let state = Arc::new(State { detail, watches, changed });
        Self { client, watch_client, state, tasks: Mutex::default() }
    }

    /// Takes the states of the objects that have changed since the last call. An object of a list may
    /// have neither apiVersion nor kind.
    pub fn take_states(&self) -> Vec<Value> {
        let mut watches = self.state.watches.lock();
        let seen = watches.values_mut().flat_map(|watch| watch.seen.drain());
        seen.filter_map(|(_, json)| read_without_managed_fields(&json).ok()).collect()
    }

    /// Watches these objects as well. Returns when the state of all of them is known.
    pub async fn watch(&self, objects: &[AwaitedObject]) -> Result<(), (String, ApiError)> {
        let mut by_kind: HashMap<KindAndNamespace, Vec<AwaitedObject>> = HashMap::new();
        for object in objects {
            let key = kind_and_namespace(&object.info, &object.namespace);
            by_kind.entry(key).or_default().push(object.clone());
        }
        for (key, objects) in by_kind {
            let Some(info) = objects.first().map(|object| object.info.clone()) else { continue };
            self.state.watches.lock().entry(key.clone()).or_default().add(objects);
            let (client, watch_client) = (self.client.clone(), self.watch_client.clone());
            self.tasks.lock().entry(key).or_insert_with_key(|key| {
                tokio::spawn(watch_or_poll(
                    client,
                    watch_client,
                    self.state.clone(),
                    key.clone(),
                    info,
                ))
            });
        }
        let known = async {
            loop {
                let changed = self.state.changed.notified();
                if self.unknown().is_none() {
                    return;
                }
                changed.await;
            }
        };
        let _elapsed = tokio::time::timeout(LIST_LIMIT, known).await;
        self.unknown().map_or(Ok(()), Err)
    }

    /// The first kind whose objects are unknown, and the reason.
    fn unknown(&self) -> Option<(String, ApiError)> {
        let watches = self.state.watches.lock();
        let unknown = watches.iter().find(|(_, state)| state.existing.is_none());
        unknown.map(|((group, resource, _), state)| {
            let error = state.error.clone().unwrap_or(ApiError::TimedOut(LIST_LIMIT));
            (full_name(group, resource), error)
        })
    }

    /// Whether an object exists.
    pub fn exists(&self, object: &AwaitedObject) -> bool {
        let watches = self.state.watches.lock();
        let state = watches.get(&kind_and_namespace(&object.info, &object.namespace));
        let existing = state.and_then(|state| state.existing.as_ref());
        existing.is_none_or(|existing| existing.contains(&object.uid))
    }

    /// Returns after the next change after this call.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.state.changed.notified()
    }
}

impl Drop for Removals {
    fn drop(&mut self) {
        self.tasks.get_mut().values().for_each(JoinHandle::abort);
    }
}

/// Watches the objects of a kind in a namespace, or reads them again and again if the user may not
/// watch them.
async fn watch_or_poll(
    client: kube::Client,
    watch_client: WatchClient,
    state: Arc<State>,
    key: KindAndNamespace,
    info: KindInfo,
) {
    let forbidden = Arc::new(Notify::new());
    let namespace = key.2.clone();
    let target = WatchTarget { info, detail: state.detail, labels: "", namespace };
    let sink = RemovalSink {
        state: state.clone(),
        key: key.clone(),
        listed: HashSet::new(),
        forbidden: forbidden.clone(),
    };
    tokio::select! {
        () = watch(watch_client, target, sink) => return,
        () = forbidden.notified() => {}
    }
    loop {
        let objects = match state.watches.lock().get_mut(&key) {
            Some(watch) => {
                watch.polled = true;
                watch.awaited.clone()
            }
            None => return,
        };
        let mut existing = HashSet::new();
        let mut error = None;
        for AwaitedObject { info, namespace, name, uid } in &objects {
            match api::object(&client, info, namespace, name, state.detail).await {
                Ok(Some(json)) if read_uid(&json) == Some(*uid) => {
                    existing.insert(*uid);
                    state.keep(&key, *uid, &json);
                }
                Ok(_) => {}
                Err(why) => error = Some(why),
            }
        }
        if let Some(watch) = state.watches.lock().get_mut(&key) {
            match error {
                None => watch.store_poll(objects.len(), existing),
                Some(_) => watch.error = error,
            }
        }
        state.changed.notify_waiters();
        tokio::time::sleep(POLL).await;
    }
}

impl State {
    /// Keeps the state of an object, if objects are read as a whole.
    fn keep(&self, key: &KindAndNamespace, uid: Uid, json: &str) {
        if let (Detail::Whole, Some(watch)) = (self.detail, self.watches.lock().get_mut(key)) {
            watch.keep(uid, json);
        }
    }
}

fn read_uid(json: &str) -> Option<Uid> {
    let object: Object<'_> = serde_json::from_str(json).ok()?;
    Some(Uid::new(&object.metadata.uid))
}

/// Receives the events of one watch.
struct RemovalSink {
    state: Arc<State>,
    key: KindAndNamespace,
    listed: HashSet<Uid>,
    forbidden: Arc<Notify>,
}

impl RemovalSink {
    /// Reads the uid of an object, and keeps its state.
    fn read(&self, json: &str) -> Option<Uid> {
        let uid = read_uid(json)?;
        self.state.keep(&self.key, uid, json);
        Some(uid)
    }

    fn update(&self, change: impl FnOnce(&mut WatchState)) {
        if let Some(state) = self.state.watches.lock().get_mut(&self.key) {
            change(state);
        }
        self.state.changed.notify_waiters();
    }
}

impl WatchSink for RemovalSink {
    fn begin(&mut self) {
        self.listed.clear();
    }

    fn add_listed(&mut self, json: &str) -> Result<(), Unreadable> {
        self.listed.extend(self.read(json));
        Ok(())
    }

    fn end(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        self.update(|state| state.existing = Some(listed));
    }

    fn change(&mut self, json: &str) -> Result<(), Unreadable> {
        if let (Some(uid), Some(state)) =
            (self.read(json), self.state.watches.lock().get_mut(&self.key))
        {
            state.existing.get_or_insert_default().insert(uid);
        }
        Ok(())
    }

    fn remove(&mut self, json: &str) -> Result<(), Unreadable> {
        if let Some(uid) = self.read(json) {
            self.update(|state| {
                if let Some(existing) = &mut state.existing {
                    existing.remove(&uid);
                }
            });
        }
        Ok(())
    }

    fn skip(&mut self) {}

    fn current(&mut self) {}

    fn disconnected(&mut self) {}

    fn failed(&mut self, error: &ApiError, _: Duration) {
        match error {
            // The CRD of the kind was deleted, and all objects of the kind before it.
            ApiError::NotFound => self.update(|state| state.existing = Some(HashSet::new())),
            ApiError::Forbidden(_) => self.forbidden.notify_one(),
            error => self.update(|state| state.error = Some(error.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{failure, local_client};
    use crate::objects::Kinds;

    #[tokio::test]
    async fn an_object_that_is_added_to_a_polled_kind_exists() {
        let client = local_client(|request| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            Some(match name.as_str() {
                "gizmos" => failure(403, "no", ("gizmos", "")),
                name => (200, json!({"metadata": {"name": name, "uid": name}})),
            })
        });
        let gizmo = |name: &str| AwaitedObject {
            info: Kinds::custom("example.com", "v1", "Gizmo", "gizmos", true),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: Uid::new(name),
        };
        let removals = Removals::new(client);
        for name in ["one", "two"] {
            removals.watch(&[gizmo(name)]).await.unwrap();
            assert!(removals.exists(&gizmo(name)), "{name}");
        }
    }
}
