//! A sweep: the reads that passes over several targets share.
//!
//! The reads of a pass must start after its token was written. After the write, a target joins
//! a sweep that has not started. No target can join a started sweep; later targets form the next
//! one. So each read of a sweep starts after the tokens of all its targets were written. All
//! targets of a sweep are of one kind and in one namespace, so in their first round they need the
//! same lists in the same order. A later round may reuse a read that is older than a list of that
//! round (docs/THEORY.md).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, try_join_all};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OnceCell};
use tokio::time::Instant;

use crate::cluster::live::{CollectedReads, ReadGroup, Reader};
use crate::cluster::world::SharedWorld;
use crate::decide::LiveRead;
use crate::objects::{KeyedMap, KindId};
use crate::webhook::fair::{FairPermit, FairSemaphore, GroupLimits};

/// Two sweeps of one kind in one namespace run at a time, so that one slow read does not
/// stop all of them. The number of passes limits the total.
const CONCURRENT_SWEEPS: GroupLimits = GroupLimits { total: usize::MAX, per_group: 2 };

/// The time limit of a read, including the wait for its turn.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The kind and the namespace of all targets of a sweep.
type Scope = (KindId, String);

/// The sweeps of one process.
#[derive(Clone)]
pub struct Sweeps {
    reader: Reader,
    world: SharedWorld,
    running: FairSemaphore<Scope>,
    /// The sweeps that targets can join.
    forming: Arc<Mutex<KeyedMap<Scope, PendingSweep>>>,
}

/// A sweep that has not started.
type PendingSweep = Shared<BoxFuture<'static, Arc<Sweep>>>;

impl Sweeps {
    pub fn new(reader: Reader, world: SharedWorld) -> Self {
        let running = FairSemaphore::new(CONCURRENT_SWEEPS);
        Self { reader, world, running, forming: Arc::default() }
    }

    /// Joins the next sweep of this scope, and waits until it starts.
    pub async fn join(&self, kind: KindId, namespace: &str) -> Arc<Sweep> {
        let scope = (kind, namespace.to_owned());
        let forming = {
            let mut forming = self.forming.lock();
            let next = || self.clone().form(scope.clone()).boxed().shared();
            forming.entry(scope.clone()).or_insert_with(next).clone()
        };
        forming.await
    }

    /// Waits for the turn of the sweep. Targets can join until then.
    async fn form(self, scope: Scope) -> Arc<Sweep> {
        let turn = self.running.acquire(scope.clone()).await;
        // From now on, targets join the next sweep.
        self.forming.lock().remove(&scope);
        let Self { reader, world, .. } = self;
        let group = ReadGroup::Release(scope.1);
        let collected = AsyncMutex::new(CollectedReads::new(&world.read()));
        Arc::new(Sweep { reader, group, reads: Mutex::default(), collected, _turn: turn })
    }
}

/// The time at which a read requested its last page (`None` if no request was necessary), or why
/// the read failed.
pub type ReadResult = Result<Option<Instant>, Arc<str>>;

/// Reads for several targets. It ends when the last target drops it.
pub struct Sweep {
    reader: Reader,
    group: ReadGroup,
    /// The reads, complete or in progress.
    reads: Mutex<HashMap<LiveRead, Arc<OnceCell<ReadResult>>>>,
    collected: AsyncMutex<CollectedReads>,
    _turn: Option<FairPermit<Scope>>,
}

impl Sweep {
    /// Carries out reads at the same time. Returns the earliest time at which a read requested its
    /// last page.
    pub async fn read_all(&self, reads: Vec<LiveRead>) -> ReadResult {
        let requested_at = try_join_all(reads.into_iter().map(|read| self.read(read))).await?;
        Ok(requested_at.into_iter().flatten().min())
    }

    /// Sends a read, or waits for the answer if another target has sent it.
    async fn read(&self, read: LiveRead) -> ReadResult {
        let result = self.reads.lock().entry(read.clone()).or_default().clone();
        result.get_or_init(|| self.send(read)).await.clone()
    }

    async fn send(&self, read: LiveRead) -> ReadResult {
        let deadline = (Instant::now() + READ_LIMIT).into_std();
        let answers = self.reader.read_all(&self.group, vec![read], deadline).await;
        let requested_at = match answers.first() {
            Some((_, Ok(found))) => found.requested_at(),
            Some((read, Err(why))) => return Err(format!("{}: {why}", read.full_name()).into()),
            None => return Err("the reads have ended".into()),
        };
        self.collected.lock().await.add(answers);
        Ok(requested_at)
    }

    pub async fn collected(&self) -> MutexGuard<'_, CollectedReads> {
        self.collected.lock().await
    }
}

#[cfg(test)]
mod tests {
    use crate::decide::ListPart;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::cluster::context::Context;
    use crate::cluster::local_api::{concurrent_client, failure, local_client};
    use crate::cluster::world::World;
    use serde_json::json;

    const RUNNING: usize = CONCURRENT_SWEEPS.per_group;

    /// Sweeps, and the number of requests that the API server got.
    fn sweeps() -> (Sweeps, KindId, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        let client = local_client(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Some((200, json!({"metadata": {"resourceVersion": "1"}, "items": []})))
        });
        let (sweeps, kind) = sweeps_with(client);
        (sweeps, kind, requests)
    }

    fn sweeps_with(client: kube::Client) -> (Sweeps, KindId) {
        let world = World::default();
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let context = Context::of_test(client, world, &[]);
        (Sweeps::new(Reader::new(context.clone()), context.world), kind)
    }

    fn list(group: &str, resource: &str) -> LiveRead {
        let (group, resource, namespace) = (group.into(), resource.into(), "shop".into());
        LiveRead::List { group, resource, namespace, part: ListPart::All }
    }

    fn pods() -> LiveRead {
        list("", "pods")
    }

    #[tokio::test]
    async fn the_reads_of_a_batch_are_sent_together_and_the_earliest_time_is_returned() {
        // Each answer waits until both requests have arrived.
        let arrived = Arc::new(tokio::sync::Barrier::new(2));
        let (sweeps, kind) = sweeps_with(concurrent_client(move |_| {
            let arrived = arrived.clone();
            async move {
                arrived.wait().await;
                (200, json!({"metadata": {"resourceVersion": "1"}, "items": []}))
            }
        }));
        let sweep = sweeps.join(kind, "shop").await;
        let batch = vec![pods(), list("apps", "deployments")];
        let requested_at = sweep.read_all(batch.clone()).await.unwrap();
        let mut times = Vec::new();
        for read in batch {
            times.push(sweep.read(read).await.unwrap());
        }
        assert_eq!(requested_at, times.into_iter().min().unwrap());
    }

    #[tokio::test]
    async fn a_read_that_fails_names_its_kind() {
        let denied = |_| Some(failure(403, "no", ("", "")));
        let (sweeps, kind) = sweeps_with(local_client(denied));
        let sweep = sweeps.join(kind, "shop").await;
        let why = sweep.read_all(vec![list("apps", "deployments")]).await.unwrap_err();
        assert!(why.starts_with("deployments.apps: "), "{why}");
    }

    #[tokio::test]
    async fn the_targets_of_a_sweep_share_its_reads() {
        let (sweeps, kind, requests) = sweeps();
        let mut running = Vec::new();
        for _ in 0..RUNNING {
            running.push(sweeps.join(kind, "shop").await);
        }
        // All wait for the same sweep.
        let next: Vec<_> =
            (0..20).map(|_| tokio::spawn(join(sweeps.clone(), kind, "shop"))).collect();
        tokio::task::yield_now().await;
        running.clear();
        let mut requested_at = Vec::new();
        for sweep in next {
            requested_at.push(sweep.await.unwrap().read(pods()).await.unwrap());
        }
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        assert!(requested_at.iter().all(|time| time.is_some() && *time == requested_at[0]));
    }

    /// A target whose token was written after the reads of a sweep began must not use them.
    #[tokio::test]
    async fn no_target_joins_a_sweep_that_has_begun() {
        let (sweeps, kind, requests) = sweeps();
        let first = sweeps.join(kind, "shop").await;
        let first_sent = first.read(pods()).await.unwrap();
        let token_written = Instant::now();
        let second = sweeps.join(kind, "shop").await;
        assert!(!Arc::ptr_eq(&first, &second));
        let second_sent = second.read(pods()).await.unwrap();
        assert!(first_sent < Some(token_written) && second_sent >= Some(token_written));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn sweeps_of_other_kinds_and_namespaces_do_not_wait() {
        let (sweeps, kind, _) = sweeps();
        let secret = sweeps.world.read().graph.kinds.find("", "Secret").unwrap();
        let mut running = Vec::new();
        for _ in 0..RUNNING {
            running.push(sweeps.join(kind, "shop").await);
        }
        let waiting = tokio::spawn(join(sweeps.clone(), kind, "shop"));
        running.push(sweeps.join(kind, "other").await);
        running.push(sweeps.join(secret, "shop").await);
        assert!(!waiting.is_finished());
        running.clear();
        waiting.await.unwrap();
    }

    async fn join(sweeps: Sweeps, kind: KindId, namespace: &str) -> Arc<Sweep> {
        sweeps.join(kind, namespace).await
    }
}
