//! From the API server to what belay knows.
//!
//! ```text
//!  discovery ─┐                                  ┌─► graph (one watch a kind)
//!  CRDs ──────┼─► kinds ─┐                       │
//!  policies ──┤          ├─► catalogue, plan ────┼─► watches begun and ended
//!  relations ─┘          │                       │
//!  owner kinds seen ─────┘                       └─► PolicySet
//! ```
//!
//! One task is woken by every change. It updates the watches and the policies in force.

mod crds;
mod discovery;
mod effective;
mod objects;
mod own_kinds;
pub mod plan;
mod rules;
mod snapshot;
#[cfg(test)]
mod tests;
mod waiting;
mod watcher;
mod watches;

pub use self::snapshot::{KindsInFiles, SearchScope, Snapshot, Surroundings, UnreadKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::crds::Crd;
use self::effective::{EffectiveRules, OwnCrds};
pub(super) use self::objects::resource;
use self::own_kinds::{OwnKind, OwnObjects, OwnSink};
use self::watcher::{WatchServer, WatchTarget, watch as follow};
use self::watches::Watches;
use super::api;
use super::api::Detail;
use super::context::Context;
use super::discovery::Discovery;
use super::pace::{Backoff, within};
use super::status::StoredPolicies;
use crate::objects::ApiError;
use crate::policy::Identities;
use crate::telemetry::{Condition, FeedState, Readiness};
use crate::timing::Retry;

/// Several changes in a row are one.
const CONCURRENT_LISTS: Duration = Duration::from_millis(30);

/// How long a single question may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Keeps the world up to date until belay shuts down. The readiness conditions exist
/// before the first answer of the API server.
pub fn run(
    context: Context,
    identities: Identities,
    written: watch::Sender<Arc<StoredPolicies>>,
) -> impl Future<Output = ()> + Send + 'static {
    let conditions = Conditions::new(&context.readiness);
    async move {
        let mut ending = context.signals.ending.subscribe();
        let feed = async {
            let mut feed = Feed::begin(context, identities, conditions, written).await;
            feed.keep().await;
        };
        tokio::select! {
            () = feed => {}
            _ = ending.wait_for(|ending| *ending) => {}
        }
    }
}

/// The readiness conditions of the feed.
struct Conditions {
    /// The policies were read.
    loaded: Condition,
    /// Each watch was read to the end of its list, or cannot be.
    synced: Condition,
    /// All stored policies are in force.
    written: Condition,
}

impl Conditions {
    fn new(readiness: &Readiness) -> Self {
        let conditions = Self {
            loaded: readiness.condition("policies"),
            synced: readiness.condition("feed"),
            written: readiness.remark(
                "policy-kinds",
                "policies cannot be read, because their kind is not served (install it again: \
                 belay admin crds) or another version of belay wrote them (the log names one): \
                 the last known policies stay in effect, and no hold is released",
            ),
        };
        conditions.written.set(true);
        conditions.loaded.explain("they have not been read yet");
        conditions.synced.explain("the API server has not reported which kinds it serves");
        conditions
    }
}

struct Feed {
    context: Context,
    identities: Identities,
    own_objects: Arc<Mutex<OwnObjects>>,
    server: WatchServer,
    watches: Watches,
    /// Custom kinds that have had a CRD.
    custom: HashSet<(String, String)>,
    discovery: Discovery,
    /// What kinds were learnt from last.
    learnt: Option<(Discovery, BTreeMap<String, Crd>)>,
    asked: Instant,
    effective: EffectiveRules,
    /// Whether policies and relations were applied once.
    in_force: bool,
    /// The number of applied changes of each of belay's own kinds.
    taken: [u64; 4],
    own: Vec<JoinHandle<()>>,
    news: Arc<Notify>,
    conditions: Conditions,
    /// The stored policies, for the status writer.
    written: watch::Sender<Arc<StoredPolicies>>,
    /// The number of kinds that policies name and the API server does not serve.
    unknown: usize,
    /// How many objects can't be read, by resource.
    unreadable: Vec<(String, usize)>,
    /// Stored objects that can't be parsed.
    unreadable_name: Option<String>,
    /// The kinds that the API server does not serve, by the policy that names them.
    absent: BTreeSet<(String, String)>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.own.iter().for_each(JoinHandle::abort);
    }
}

impl Feed {
    async fn begin(
        context: Context,
        mut identities: Identities,
        conditions: Conditions,
        written: watch::Sender<Arc<StoredPolicies>>,
    ) -> Self {
        let synced = &conditions.synced;
        let retry = context.settings.timing.retry;
        let discovery = retried(synced, retry, || Discovery::read(&context.client)).await;
        identities.own = Some(retried(synced, retry, || who_am_i(&context.client)).await);
        identities.namespace = Some(context.settings.namespace.clone());
        let news = context.signals.plan.clone();
        context.world.write().graph.track_owner_versions();
        let server = WatchServer::new(context.client.clone(), context.settings.timing);
        let watches = Watches::new(context.clone(), server.clone());
        let effective = EffectiveRules::new(context.settings.timing.feed.thaw);
        let mut feed = Self {
            context,
            identities,
            own_objects: Arc::default(),
            server,
            watches,
            custom: HashSet::new(),
            discovery,
            learnt: None,
            asked: Instant::now(),
            effective,
            in_force: false,
            taken: [0; 4],
            own: Vec::new(),
            news,
            conditions,
            written,
            unknown: 0,
            unreadable: Vec::new(),
            unreadable_name: None,
            absent: BTreeSet::new(),
        };
        feed.watch_own();
        feed
    }

    fn watch_own(&mut self) {
        self.start_own(own_kinds::POLICIES);
        self.start_own(own_kinds::RELATIONS);
        self.start_own(own_kinds::APPROVALS);
        self.start_own(own_kinds::PAUSES);
    }

    fn start_own<K, T>(&mut self, part: OwnKind<K, T>)
    where
        K: kube::Resource + serde::de::DeserializeOwned + 'static,
        T: Send + 'static,
    {
        let source = WatchTarget { info: part.info(), detail: Detail::Whole, labels: "" };
        let sink = OwnSink::new(self.own_objects.clone(), part, self.news.clone());
        self.own.push(tokio::spawn(follow(self.server.clone(), source, sink)));
    }

    async fn keep(&mut self) {
        let timing = self.context.settings.timing.feed;
        loop {
            let again = self.refresh().await.unwrap_or(timing.discovery);
            let until = tokio::time::sleep(again);
            tokio::pin!(until);
            loop {
                tokio::select! {
                    () = self.news.notified() => {
                        tokio::time::sleep(CONCURRENT_LISTS).await;
                        break;
                    }
                    () = &mut until => break,
                    // How the watches are doing changes with time alone.
                    () = tokio::time::sleep(timing.report) => {
                        self.report();
                        if self.is_discovery_due() {
                            break;
                        }
                        if self.watches.notice_dead() {
                            // Not at once: what panics may do so again.
                            until.as_mut().reset(tokio::time::Instant::now() + timing.revival);
                        }
                    }
                }
            }
        }
    }

    /// Makes everything follow what has changed.
    async fn refresh(&mut self) -> Option<Duration> {
        self.rediscover().await;
        let would_remove = self.effective.would_remove(&self.own_objects.lock());
        let defined = if would_remove { self.own_crds().await } else { OwnCrds::Present };
        let taken = self.update_rules(defined);
        self.watches.follow().await;
        self.report();
        taken.retry_after
    }

    fn is_discovery_due(&self) -> bool {
        let timing = &self.context.settings.timing.feed;
        let vanished = self.watches.any_is_gone();
        self.asked.elapsed() >= if vanished { timing.lost_kind } else { timing.discovery }
    }

    async fn rediscover(&mut self) {
        if !self.is_discovery_due() {
            return;
        }
        self.asked = Instant::now();
        match timeout(LIMIT, Discovery::read(&self.context.client)).await {
            Ok(Ok(discovery)) => self.discovery = discovery,
            Ok(Err(error)) => {
                tracing::warn!(%error, "discovery failed; the known kinds stay in use");
            }
            Err(_) => tracing::warn!("discovery did not answer; the known kinds stay in use"),
        }
    }

    /// Reads the CRDs of policies and relations live.
    async fn own_crds(&self) -> OwnCrds {
        let info = {
            let world = self.context.world.read();
            let kind = world
                .graph
                .kinds
                .find_resource("apiextensions.k8s.io", "customresourcedefinitions");
            kind.map(|kind| world.graph.kinds.info(kind).clone())
        };
        let Some(info) = info else { return OwnCrds::Unknown };
        for name in ["deletionpolicies.belay.dev", "relations.belay.dev"] {
            let read = api::object(&self.context.client, &info, "", name, Detail::Metadata);
            match timeout(LIMIT, read).await {
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
        if self.unreadable != state.unreadable {
            self.context.metrics.unreadable(&state.unreadable);
            self.unreadable = state.unreadable;
            // The status of policies names one.
            self.context.signals.change();
        }
        self.context.metrics.fed(&FeedState { unknown: self.unknown, ..state.fed });
        // Once ready belay stays ready: only verdicts that need a kind that is
        // not read yet fail closed.
        if state.waiting.is_empty() && self.context.world.read().loaded {
            self.conditions.synced.set(true);
        } else {
            self.conditions.synced.explain(&format!("reading {}", state.waiting.join(", ")));
        }
    }
}

/// Whether the metadata of an object has a deletionTimestamp.
fn is_terminating(json: &str) -> bool {
    serde_json::from_str::<crate::objects::Object<'_>>(json).is_ok_and(|o| o.is_terminating())
}

/// The name under which the API server knows belay.
async fn who_am_i(client: &kube::Client) -> Result<String, ApiError> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.ok_or_else(|| {
        ApiError::Unreadable("the API server does not report belay's user name".to_owned())
    })
}

/// Retries until it succeeds, and logs the first error.
async fn retried<T, F: Future<Output = Result<T, ApiError>>>(
    condition: &Condition,
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
