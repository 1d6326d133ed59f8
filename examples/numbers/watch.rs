//! A plain watch that records when events arrive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::AsyncBufReadExt as _;
use http::Request;
use tokio::runtime::Runtime;

use crate::harness::{ControlPlane, Result};

/// The events of an object.
#[derive(Debug, Clone)]
pub struct ObjectEvents {
    /// When the first event arrived.
    pub first: Instant,
    /// When belay started its last pass over the object; the pass writes a token to
    /// it.
    pub pass: Option<Instant>,
    /// When the deletion event arrived.
    pub deleted: Option<Instant>,
    token: Option<String>,
}

/// Watches of several kinds whose objects have unique names. It is cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<HashMap<String, ObjectEvents>>>);

impl Watch {
    /// Starts a watch of another collection on this runtime, as an administrator. It
    /// starts with the existing objects.
    pub fn add(&self, runtime: &Runtime, plane: &ControlPlane, collection: &str) -> Result<()> {
        let (client, watch) = (runtime.block_on(plane.client())?, self.clone());
        let path = format!("{collection}?watch=true");
        let _detached = runtime.spawn(async move {
            if let Err(error) = watch.listen(client, &path).await {
                eprintln!("the bare watch of {path} ended: {error}");
            }
        });
        Ok(())
    }

    async fn listen(&self, client: kube::Client, path: &str) -> Result<()> {
        // The API server closes a watch that reads too slowly. The next one continues after the
        // last event.
        let mut version = String::new();
        loop {
            let path = format!("{path}&resourceVersion={version}");
            let request = Request::get(path).body(Vec::new())?;
            let mut lines = Box::pin(client.request_stream(request).await?);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).await? > 0 {
                let (now, event) = (Instant::now(), String::from_utf8_lossy(&line));
                if event.starts_with("{\"type\":\"ERROR\"") {
                    return Err(event.into());
                }
                self.take(now, &event);
                if let Some(last) = field(&event, "\"resourceVersion\":\"") {
                    last.clone_into(&mut version);
                }
                line.clear();
            }
        }
    }

    fn take(&self, now: Instant, event: &str) {
        // The first name in an event is the name of the object.
        let Some(name) = field(event, "\"name\":\"") else { return };
        let mut all = self.all();
        let new = ObjectEvents { first: now, pass: None, deleted: None, token: None };
        let events = all.entry(name.to_owned()).or_insert(new);
        if event.starts_with("{\"type\":\"DELETED\"") {
            events.deleted = Some(now);
            return;
        }
        let token = field(event, "\"belay.dev/release-token\":\"");
        if token.is_some() && token != events.token.as_deref() {
            events.token = token.map(str::to_owned);
            events.pass = Some(now);
        }
    }

    /// The events of the object with this name.
    pub fn events_of(&self, name: &str) -> Option<ObjectEvents> {
        self.all().get(name).cloned()
    }

    /// The number of held objects: they exist, and belay has checked them since their
    /// DELETE.
    pub fn waiting(&self, names: &[String]) -> usize {
        let all = self.all();
        let waits = |events: &ObjectEvents| events.pass.is_some() && events.deleted.is_none();
        names.iter().filter(|name| all.get(*name).is_some_and(waits)).count()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, ObjectEvents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text between the first occurrence of this key and the next quotation mark.
fn field<'t>(event: &'t str, key: &str) -> Option<&'t str> {
    event.split_once(key)?.1.split('"').next()
}
