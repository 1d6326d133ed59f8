//! Keeps the [`World`](super::World) up to date with the API server. [`Snapshot`] and
//! [`Removals`] serve commands: a `World` that is read once, and a wait for deletions.
//!
//! ```text
//!  discovery ─┐                                  ┌─► graph (one watch a kind)
//!  CRDs ──────┼─► kinds ─┐                       │
//!  policies ──┤          ├─► catalogue, plan ────┼─► watches to start and stop
//!  relations ─┘          │                       │
//!  owner kinds seen ─────┘                       └─► PolicySet
//! ```
//!
//! One task runs after every change. It updates the watches and the policies in force.

mod crds;
mod discovery;
mod objects;
mod own_kinds;
pub(crate) mod plan;
mod removals;
mod rules;
mod rules_in_force;
mod snapshot;
#[cfg(test)]
mod tests;
mod waiting;
mod watcher;
mod watches;

pub use self::removals::{AwaitedObject, Removals};
pub use self::snapshot::{KindsInFiles, SearchScope, Snapshot, Surroundings, UnreadKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::crds::Crd;
pub(super) use self::objects::resource;
use self::own_kinds::{OwnKind, OwnObjects, OwnSink};
use self::rules_in_force::{OwnCrds, RulesInForce};
use self::watcher::{WatchClient, WatchTarget, watch};
use self::watches::Watches;
use super::account::read_identity;
use super::api;
use super::api::Detail;
use super::context::Context;
use super::discovery::Discovery;
use super::pace::{Backoff, within};
use super::status::StoredPolicies;
use crate::objects::{ApiError, CRDS, counted};
use crate::policy::Identities;
use crate::policy::api::kind_info;
use crate::telemetry::{FeedState, Readiness, ReadinessCondition};
use crate::timing::Retry;

/// Changes within this time are applied together.
const BATCH_DELAY: Duration = Duration::from_millis(30);

/// The time limit of one request.
const REQUEST_LIMIT: Duration = Duration::from_secs(15);

/// Keeps the world up to date until belay shuts down. It creates the readiness conditions
/// before the future is polled, so that belay is not ready too early.
pub fn run(
    context: Context,
    identities: Identities,
    stored_policies: watch::Sender<Arc<StoredPolicies>>,
) -> impl Future<Output = ()> + Send + 'static {
    let conditions = Conditions::new(&context.readiness);
    async move {
        let signals = context.signals.clone();
        let feed = async {
            let mut feed = Feed::begin(context, identities, conditions, stored_policies).await;
            feed.follow_changes().await;
        };
        signals.until_end(feed).await;
    }
}

/// The readiness conditions of the feed.
struct Conditions {
    /// The policies were read.
    loaded: ReadinessCondition,
    /// The first list of each watch has ended, with or without success.
    first_lists_ended: ReadinessCondition,
    /// All stored policies are in force.
    effective: ReadinessCondition,
}

impl Conditions {
    fn new(readiness: &Readiness) -> Self {
        let conditions = Self {
            loaded: readiness.condition("policies"),
            first_lists_ended: readiness.condition("feed"),
            effective: readiness.optional_condition(
                "policy-kinds",
                "policies cannot be read, because their kind is not served (install it again: \
                 kubectl belay admin crds | kubectl apply -f -) or another version of belay wrote \
                 them (the log names one): the last known policies stay in effect, and no hold is \
                 released",
            ),
        };
        conditions.effective.set(true);
        conditions.loaded.explain("they have not been read yet");
        let unread_kinds = "the API server has not reported which kinds it serves";
        conditions.first_lists_ended.explain(unread_kinds);
        conditions
    }
}

struct Feed {
    context: Context,
    identities: Identities,
    own_objects: Arc<Mutex<OwnObjects>>,
    watch_client: WatchClient,
    watches: Watches,
    /// Group and plural of all custom kinds that have had a CRD.
    custom_kinds: HashSet<(String, String)>,
    discovery: Discovery,
    /// The discovery and the CRDs that were applied last.
    applied_kinds: Option<(Discovery, BTreeMap<String, Crd>)>,
    /// When discovery was last requested.
    discovered_at: Instant,
    rules: RulesInForce,
    /// Whether policies and relations were applied once.
    in_force: bool,
    /// The number of applied changes of each of belay's own kinds.
    applied_changes: [u64; 4],
    /// The watches of belay's own kinds.
    own_watches: Vec<JoinHandle<()>>,
    /// Notified about each change that the feed must apply.
    changed: Arc<Notify>,
    conditions: Conditions,
    /// The stored policies, for the status writer.
    stored_policies: watch::Sender<Arc<StoredPolicies>>,
    /// The number of kinds that policies, Relations or `--labelled-kinds` name and the API
    /// server does not serve.
    unserved_count: usize,
    /// The number of objects that can't be parsed, by resource.
    unreadable_counts: Vec<(String, usize)>,
    /// A policy that this version of belay can't read or compile, or a Relation that it can't read.
    unreadable_name: Option<String>,
    /// Kinds that the API server does not serve: pairs of the Relation or setting that names
    /// the kind, and the kind.
    unserved: BTreeSet<(String, String)>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.own_watches.iter().for_each(JoinHandle::abort);
    }
}

impl Feed {
    async fn begin(
        context: Context,
        mut identities: Identities,
        conditions: Conditions,
        stored_policies: watch::Sender<Arc<StoredPolicies>>,
    ) -> Self {
        let condition = &conditions.first_lists_ended;
        let retry = context.settings.timing.retry;
        let discovery = retried(condition, retry, || Discovery::read(&context.client)).await;
        let own = retried(condition, retry, || read_identity(&context.client)).await;
        identities.own = Some(own.name);
        identities.namespace = Some(context.settings.namespace.clone());
        let changed = context.signals.plan.clone();
        context.world.write().graph.track_owner_versions();
        let watch_client = WatchClient::new(context.client.clone(), context.settings.timing);
        let watches = Watches::new(context.clone(), watch_client.clone());
        let rules = RulesInForce::new(context.settings.timing.feed.thaw);
        let mut feed = Self {
            context,
            identities,
            own_objects: Arc::default(),
            watch_client,
            watches,
            custom_kinds: HashSet::new(),
            discovery,
            applied_kinds: None,
            discovered_at: Instant::now(),
            rules,
            in_force: false,
            applied_changes: [0; 4],
            own_watches: Vec::new(),
            changed,
            conditions,
            stored_policies,
            unserved_count: 0,
            unreadable_counts: Vec::new(),
            unreadable_name: None,
            unserved: BTreeSet::new(),
        };
        feed.watch_own_kind(own_kinds::POLICIES);
        feed.watch_own_kind(own_kinds::RELATIONS);
        feed.watch_own_kind(own_kinds::APPROVALS);
        feed.watch_own_kind(own_kinds::PAUSES);
        feed
    }

    fn watch_own_kind<K, T>(&mut self, own_kind: OwnKind<K, T>)
    where
        K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + 'static,
        T: Send + 'static,
    {
        let target = WatchTarget {
            info: kind_info::<K>(),
            detail: Detail::Whole,
            labels: "",
            namespace: String::new(),
        };
        let sink = OwnSink::new(self.own_objects.clone(), own_kind, self.changed.clone());
        self.own_watches.push(tokio::spawn(watch(self.watch_client.clone(), target, sink)));
    }

    async fn follow_changes(&mut self) {
        let timing = self.context.settings.timing.feed;
        loop {
            let retry_after = self.refresh().await.unwrap_or(timing.discovery);
            let next_refresh = tokio::time::sleep(retry_after);
            tokio::pin!(next_refresh);
            loop {
                tokio::select! {
                    () = self.changed.notified() => {
                        tokio::time::sleep(BATCH_DELAY).await;
                        break;
                    }
                    () = &mut next_refresh => break,
                    // The lag of a watch grows without an event, so belay reports it regularly.
                    () = tokio::time::sleep(timing.report) => {
                        self.report();
                        if self.is_discovery_due() {
                            break;
                        }
                        if self.watches.mark_panicked() {
                            // belay waits before it restarts the watch, which may panic again.
                            next_refresh.as_mut().reset(tokio::time::Instant::now() + timing.revival);
                        }
                    }
                }
            }
        }
    }

    /// Applies all changes. Returns when to refresh again without another change.
    async fn refresh(&mut self) -> Option<Duration> {
        self.rediscover().await;
        let would_remove = self.rules.would_remove(&self.own_objects.lock());
        let own_crds = if would_remove { self.read_own_crds().await } else { OwnCrds::Present };
        let change = self.update_rules(own_crds);
        self.watches.apply_plan().await;
        self.report();
        change.retry_after
    }

    fn is_discovery_due(&self) -> bool {
        let timing = &self.context.settings.timing.feed;
        let lost_kind = self.watches.any_is_unserved();
        self.discovered_at.elapsed() >= if lost_kind { timing.lost_kind } else { timing.discovery }
    }

    async fn rediscover(&mut self) {
        if !self.is_discovery_due() {
            return;
        }
        self.discovered_at = Instant::now();
        match timeout(REQUEST_LIMIT, Discovery::read(&self.context.client)).await {
            Ok(Ok(discovery)) => self.discovery = discovery,
            Ok(Err(error)) => {
                tracing::warn!(%error, "discovery failed; the known kinds stay in use");
            }
            Err(_) => tracing::warn!("discovery did not answer; the known kinds stay in use"),
        }
    }

    /// Reads the CRDs of policies and relations live.
    async fn read_own_crds(&self) -> OwnCrds {
        let info = self.context.world.read().kind_info(CRDS);
        let Some(info) = info else { return OwnCrds::Unknown };
        for name in ["deletionpolicies.belay.dev", "relations.belay.dev"] {
            let read = api::object(&self.context.client, &info, "", name, Detail::Metadata);
            match timeout(REQUEST_LIMIT, read).await {
                Ok(Ok(Some(json))) if !is_terminating(&json) => {}
                Ok(Ok(_)) => return OwnCrds::Absent,
                Ok(Err(_)) | Err(_) => return OwnCrds::Unknown,
            }
        }
        OwnCrds::Present
    }

    /// Updates readiness and metrics.
    fn report(&mut self) {
        let state = self.watches.state();
        if self.unreadable_counts != state.unreadable {
            self.context.metrics.set_unreadable(&state.unreadable);
            self.unreadable_counts = state.unreadable;
            // The status of policies names one of these objects.
            self.context.signals.change();
        }
        self.context.metrics.set_feed(&FeedState { unknown: self.unserved_count, ..state.fed });
        // belay stays ready after the first time. Verdicts that need a kind that is not read
        // yet fail closed.
        if state.waiting.is_empty() && self.context.world.read().loaded {
            self.conditions.first_lists_ended.set(true);
        } else {
            // /readyz shows this text even to clients without a token, so it contains no names.
            let kinds = counted(state.waiting.len(), "kind");
            self.conditions.first_lists_ended.explain(&format!("reading {kinds}"));
        }
    }
}

/// Whether the metadata of an object has a deletionTimestamp.
fn is_terminating(json: &str) -> bool {
    serde_json::from_str::<crate::objects::Object<'_>>(json).is_ok_and(|o| o.is_terminating())
}

/// Retries until the attempt succeeds, and logs each error.
async fn retried<T, F: Future<Output = Result<T, ApiError>>>(
    condition: &ReadinessCondition,
    retry: Retry,
    attempt: impl Fn() -> F,
) -> T {
    let mut backoff = Backoff::from(retry);
    loop {
        let error = match within(attempt()).await {
            Ok(value) => return value,
            Err(error) => error.to_string(),
        };
        condition.explain(&error);
        tracing::warn!(error, "the API server does not answer; belay retries");
        tokio::time::sleep(backoff.next()).await;
    }
}
