//! Waits until objects are deleted, and explains what stays.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

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

/// An object of a report, and the same object in the form that [`Removals`] waits for.
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

    /// Waits until these objects are deleted. Returns the objects that exist at the deadline.
    pub async fn wait(&self, mut waiting: Vec<Awaited<'_>>) -> Vec<Object> {
        let awaited = waiting.clone();
        let explained = async {
            sleep(EXPLAIN_AFTER).await;
            let exist = awaited.into_iter().filter(|(_, awaited)| self.removals.exists(awaited));
            explain(self.cluster(), &objects_of(exist)).await
        };
        let mut explained = pin!(explained.fuse());
        loop {
            let changed = self.removals.changed();
            waiting.retain(|(object, awaited)| {
                let exists = self.removals.exists(awaited);
                if !exists {
                    progress(&format!("deleted {}", object.arguments));
                }
                exists
            });
            if waiting.is_empty() {
                return Vec::new();
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(self.deadline) => return objects_of(waiting),
                stays = &mut explained => stays.iter().for_each(|object| progress(&object.line())),
            }
        }
    }
}

fn objects_of<'o>(waiting: impl IntoIterator<Item = Awaited<'o>>) -> Vec<Object> {
    waiting.into_iter().map(|(object, _)| object.clone()).collect()
}

/// Why these objects are still Terminating. Empty, after a warning, if that is unknown.
pub async fn explain(cluster: ClusterArguments, objects: &[Object]) -> Vec<StuckObject> {
    read_reasons(cluster, objects).await.unwrap_or_else(|error| {
        progress(&format!("warning: cannot explain why objects are still Terminating: {error}"));
        Vec::new()
    })
}

async fn read_reasons(
    cluster: ClusterArguments,
    objects: &[Object],
) -> Result<Vec<StuckObject>, CommandError> {
    let places: HashSet<&str> = objects.iter().map(Object::own_namespace).collect();
    let namespace = match places.len() {
        1 => places.into_iter().next().unwrap_or_default(),
        _ => "",
    };
    let uids = objects.iter().map(|object| object.uid.clone()).collect();
    explain_objects(&UserSession::open(cluster).await?, namespace, &uids).await
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use clap::Parser as _;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::cluster::local_client;
    use crate::objects::Kinds;

    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        cluster: ClusterArguments,
    }

    /// The arguments for an API server at this address.
    fn cluster_at(address: SocketAddr) -> (ClusterArguments, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        let line = ["test".into(), "--kubeconfig".into(), kubeconfig.into_os_string()];
        (Arguments::parse_from(line).cluster, folder)
    }

    fn gizmo() -> (KindInfo, Object) {
        let info = Kinds::custom("example.com", "v1", "Gizmo", "gizmos", true);
        let object = Object::of_kind(&info, "shop", "one").with_uid("one");
        (info, object)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_deadline_although_the_explanation_has_not_ended() {
        // The server accepts connections, and answers no request.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (cluster, _folder) = cluster_at(server.local_addr().unwrap());
        let deadline = Instant::now() + EXPLAIN_AFTER + Duration::from_secs(1);
        let waiter = Waiter::new(local_client(|_| None::<(u16, String)>), cluster, deadline);
        let (info, object) = gizmo();
        let remaining = waiter.wait(vec![awaited(info, &object)]).await;
        assert_eq!(remaining, std::slice::from_ref(&object));
        assert_eq!(Instant::now(), deadline);
    }

    #[tokio::test]
    async fn reasons_that_can_not_be_read_are_an_error() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (cluster, _folder) = cluster_at(server.local_addr().unwrap());
        drop(server);
        assert!(read_reasons(cluster, &[gizmo().1]).await.is_err());
    }
}
