//! Waits until objects are deleted, and explains what stays.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::CommandError;
use super::document::Object;
use super::place::ClusterArguments;
use super::screen::progress;
use super::session::UserSession;
use super::stuck::{StuckObject, explain_objects};
use crate::cluster::{AwaitedObject, Removals};
use crate::objects::{KindInfo, Uid};

/// How long to wait before the first explanation.
const EXPLAIN_AFTER: Duration = Duration::from_secs(15);

pub fn awaited(info: KindInfo, object: &Object) -> Awaited<'_> {
    let (namespace, name) = (object.namespace.clone(), object.name.clone());
    (object, AwaitedObject { info, namespace, name, uid: Uid::new(&object.uid) })
}

/// The object of a report, and the same as one to wait for.
pub type Awaited<'o> = (&'o Object, AwaitedObject);

/// Waits for objects until a deadline.
pub struct Waiter {
    removals: Removals,
    cluster: ClusterArguments,
    deadline: Instant,
}

impl Waiter {
    pub fn new(client: kube::Client, cluster: ClusterArguments, deadline: Instant) -> Self {
        Self { removals: Removals::new(client), cluster, deadline }
    }

    /// A waiter that keeps the last states of the objects.
    pub fn with_states(client: kube::Client, cluster: ClusterArguments, deadline: Instant) -> Self {
        Self { removals: Removals::with_states(client), cluster, deadline }
    }

    /// Takes the states of the objects that have changed since the last call.
    pub fn take_states(&self) -> Vec<Value> {
        self.removals.take_states()
    }

    pub fn cluster(&self) -> ClusterArguments {
        self.cluster.clone()
    }

    /// Watches these objects as well, before their DELETE.
    pub async fn watch(&self, objects: &[Awaited<'_>]) -> Result<(), CommandError> {
        let awaited: Vec<_> = objects.iter().map(|(_, awaited)| awaited.clone()).collect();
        let watched = self.removals.watch(&awaited).await;
        watched.map_err(|(kind, why)| {
            CommandError::Remote(format!(
                "cannot watch {kind}: {why}; next: this needs the RBAC verbs get, list and watch \
                 on it"
            ))
        })
    }

    /// Waits until these objects are deleted, and adds them to `deleted`. Returns the objects
    /// that exist at the deadline.
    pub async fn wait(
        &self,
        mut waiting: Vec<Awaited<'_>>,
        deleted: &mut Vec<Object>,
    ) -> Vec<Object> {
        let mut explain_at = Some(Instant::now() + EXPLAIN_AFTER);
        loop {
            let changed = self.removals.changed();
            waiting.retain(|(object, awaited)| {
                let exists = self.removals.exists(awaited);
                if !exists {
                    progress(&format!("deleted {}", object.typed));
                    deleted.push((*object).clone());
                }
                exists
            });
            if waiting.is_empty() {
                return Vec::new();
            }
            let next = explain_at.map_or(self.deadline, |time| time.min(self.deadline));
            tokio::select! {
                () = changed => {}
                () = sleep_until(next) => {
                    let remaining = waiting.iter().map(|(object, _)| (*object).clone());
                    let remaining: Vec<Object> = remaining.collect();
                    if Instant::now() >= self.deadline {
                        return remaining;
                    }
                    explain_at = None;
                    for line in explain(self.cluster(), &remaining).await {
                        progress(&line.line());
                    }
                }
            }
        }
    }
}

/// Why these objects are still Terminating. Empty if that is unknown.
pub async fn explain(cluster: ClusterArguments, objects: &[Object]) -> Vec<StuckObject> {
    let places: HashSet<&str> = objects.iter().map(Object::own_namespace).collect();
    let namespace = match places.len() {
        1 => places.into_iter().next().unwrap_or_default(),
        _ => "",
    };
    let uids = objects.iter().map(|object| object.uid.clone()).collect();
    let Ok(session) = UserSession::open(cluster).await else { return Vec::new() };
    explain_objects(&session, namespace, &uids).await.unwrap_or_default()
}
