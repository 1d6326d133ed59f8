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
//! One task keeps all of it in step: whatever changes wakes it, and it makes
//! what is watched and what is in force follow.

mod definitions;
mod discovery;
mod force;
mod objects;
mod own;
pub mod plan;
mod snapshot;
#[cfg(test)]
mod tests;
mod waiting;
mod watches;
mod watching;

pub use self::snapshot::{Around, Held, Reach, Snapshot, Unread};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::definitions::Definition;
use self::discovery::{Discovery, Learned, discover};
use self::force::{Defined, Force, Taken};
pub(super) use self::objects::resource;
use self::own::{Own, Part, Said};
use self::watches::Watches;
use self::watching::{Server, Source, watch as follow};
use super::api;
use super::api::Detail;
use super::context::Context;
use super::pace::Backoff;
use super::status::{Written, WrittenPolicy};
use super::trouble::Trouble;
use super::world::World;
use crate::objects::{KindId, Kinds, full_name};
use crate::policy::api::GROUP;
use crate::policy::{Identities, Policy, Rules};
use crate::relations::Custom;
use crate::telemetry::{Condition, Fed, Readiness};
use crate::timing::Retry;

/// Several changes in a row are one.
const TOGETHER: Duration = Duration::from_millis(30);

/// How long a single question may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Keeps the world in step with the cluster until belay ends. What belay is
/// not ready without is said at once, before the first answer of the API
/// server.
pub fn run(
    context: Context,
    identities: Identities,
    written: watch::Sender<Arc<Written>>,
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

/// What the feed says of itself.
struct Conditions {
    /// The policies were read.
    loaded: Condition,
    /// Each watch was read to the end of its list, or cannot be.
    synced: Condition,
    /// What is in force is what people have written.
    written: Condition,
}

impl Conditions {
    fn new(readiness: &Readiness) -> Self {
        let conditions = Self {
            loaded: readiness.condition("policies"),
            synced: readiness.condition("feed"),
            written: readiness.remark(
                "policy-kinds",
                "what people have written cannot be read, because its kind has vanished (install it \
                 again: belay admin crds) or another version of belay wrote it (the log names it): \
                 what was in force stays in force, and nothing that is held is let go of",
            ),
        };
        conditions.written.set(true);
        conditions.loaded.explain("they have not been read yet");
        conditions.synced.explain("the API server has not said which kinds it serves");
        conditions
    }
}

struct Feed {
    context: Context,
    identities: Identities,
    said: Arc<Mutex<Said>>,
    server: Server,
    watches: Watches,
    /// Custom kinds that have had a CRD.
    custom: HashSet<(String, String)>,
    discovery: Discovery,
    /// What kinds were learnt from last.
    learnt: Option<(Discovery, BTreeMap<String, Definition>)>,
    asked: Instant,
    force: Force,
    /// Whether policies and relations have been taken in once.
    in_force: bool,
    /// How many changes of each kind of belay's own have been taken in.
    taken: [u64; 4],
    own: Vec<JoinHandle<()>>,
    news: Arc<Notify>,
    conditions: Conditions,
    /// The policies as they are written, for whoever reports on them.
    written: watch::Sender<Arc<Written>>,
    /// How many kinds policies name that nobody serves.
    unknown: usize,
    /// How many objects can't be read, by resource.
    unreadable: Vec<(String, usize)>,
    /// What is written and cannot be read.
    lacking: Option<String>,
    /// The kinds that are named and nobody serves, each by who names it.
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
        written: watch::Sender<Arc<Written>>,
    ) -> Self {
        let synced = &conditions.synced;
        let retry = context.settings.timing.retry;
        let discovery = retried(synced, retry, || discover(&context.client)).await;
        identities.own = Some(retried(synced, retry, || who_am_i(&context.client)).await);
        identities.namespace = Some(context.settings.namespace.clone());
        let news = context.signals.plan.clone();
        context.world.write().graph.date_owners();
        let server = Server::new(context.client.clone(), context.settings.timing);
        let watches = Watches::new(context.clone(), server.clone());
        let force = Force::new(context.settings.timing.feed.thaw);
        let mut feed = Self {
            context,
            identities,
            said: Arc::default(),
            server,
            watches,
            custom: HashSet::new(),
            discovery,
            learnt: None,
            asked: Instant::now(),
            force,
            in_force: false,
            taken: [0; 4],
            own: Vec::new(),
            news,
            conditions,
            written,
            unknown: 0,
            unreadable: Vec::new(),
            lacking: None,
            absent: BTreeSet::new(),
        };
        feed.watch_own();
        feed
    }

    fn watch_own(&mut self) {
        self.start_own(own::POLICIES);
        self.start_own(own::RELATIONS);
        self.start_own(own::APPROVALS);
        self.start_own(own::PAUSES);
    }

    fn start_own<K, T>(&mut self, part: Part<K, T>)
    where
        K: kube::Resource + serde::de::DeserializeOwned + 'static,
        T: Send + 'static,
    {
        let source = Source { info: part.info(), detail: Detail::Whole, labels: "" };
        let sink = Own::new(self.said.clone(), part, self.news.clone());
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
                        tokio::time::sleep(TOGETHER).await;
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
        let would_lose = self.force.would_lose(&self.said.lock());
        let defined = if would_lose { self.defined().await } else { Defined::Yes };
        let taken = self.take_in(defined);
        self.watches.follow().await;
        self.report();
        taken.again
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
        match timeout(LIMIT, discover(&self.context.client)).await {
            Ok(Ok(discovery)) => self.discovery = discovery,
            Ok(Err(trouble)) => {
                tracing::warn!(trouble = trouble.words(), "discovery failed; what was known stays");
            }
            Err(_) => tracing::warn!("discovery did not answer; what was known stays"),
        }
    }

    /// Whether the definitions of policies and relations are there, live.
    async fn defined(&self) -> Defined {
        let info = {
            let world = self.context.world.read();
            let kind = world
                .graph
                .kinds
                .find_resource("apiextensions.k8s.io", "customresourcedefinitions");
            kind.map(|kind| world.graph.kinds.info(kind).clone())
        };
        let Some(info) = info else { return Defined::Unknown };
        for name in ["deletionpolicies.belay.dev", "relations.belay.dev"] {
            let read = api::object(&self.context.client, &info, "", name, Detail::Metadata);
            match timeout(LIMIT, read).await {
                Ok(Ok(Some(json))) if !is_terminating(&json) => {}
                Ok(Ok(_)) => return Defined::No,
                Ok(Err(_)) | Err(_) => return Defined::Unknown,
            }
        }
        Defined::Yes
    }

    /// Takes in kinds, relations, policies, approvals and pauses.
    fn take_in(&mut self, defined: Defined) -> Taken {
        let definitions = self.watches.definitions.lock().clone();
        self.custom.extend(
            definitions.values().map(|definition| {
                (definition.info.group.clone(), definition.info.resource.clone())
            }),
        );
        let said = self.said.lock();
        let counts = [
            said.policies.changes,
            said.relations.changes,
            said.approvals.changes,
            said.pauses.changes,
        ];
        let synced = said.policies.synced
            && said.relations.synced
            && said.approvals.synced
            && said.pauses.synced;
        // Before everything was read once, what is not there is not gone.
        // Thousands of policies are not compiled again for each kind that comes.
        let due = !self.in_force || self.taken[..2] != counts[..2] || self.force.would_lose(&said);
        let taken = match synced && due {
            true => self.force.take(&said, defined, Instant::now()),
            false => Taken::default(),
        };
        self.in_force |= synced;
        // What has only just been read was not compiled yet.
        let lacks = if self.in_force { self.force.lacks(&said) } else { None };
        if lacks != self.lacking {
            if let Some(lacks) = &lacks {
                tracing::error!(
                    lacks,
                    "this cannot be read by this version of belay: nothing that is held is let go \
                     of until it can; write it anew, or run the version that wrote it"
                );
            }
            self.lacking = lacks;
        }
        let known = synced
            && !self.force.is_frozen()
            && said.policies.trouble.is_none()
            && self.lacking.is_none();
        let approvals = (self.taken[2..] != counts[2..])
            .then(|| (force::approvals(&said), force::pauses(&said)));
        self.taken = counts;
        let missing = first_missing(&said);
        drop(said);

        let learned = self.learn(definitions);
        if learned.moved {
            // What refers to a kind was placed by where its objects were
            // believed to live.
            self.watches.outdate(|_| true);
        }
        let kinds = learned.changed;
        if kinds {
            self.watches.learn_owners();
        }
        let first = synced && !self.context.world.read().loaded;
        let rules = taken.policies || taken.relations || kinds || first;
        if rules {
            self.rebuild();
        }
        let mut world = self.context.world.write();
        if approvals.is_some() || rules {
            // Whatever waits may be free now.
            world.waiting.all = true;
            self.context.signals.waiting.notify_one();
        }
        if let Some((approvals, pauses)) = approvals {
            world.policies.approvals = approvals;
            world.policies.pauses = pauses;
        }
        let was = (world.loaded, world.known);
        world.loaded |= synced;
        world.known = known;
        let changed = rules || was != (world.loaded, world.known);
        let loaded = world.loaded;
        drop(world);
        if changed {
            self.context.signals.change();
        }
        self.tell();
        match (loaded, missing) {
            (true, _) => self.conditions.loaded.set(true),
            (false, Some(why)) => self.conditions.loaded.explain(&why),
            (false, None) => {}
        }
        self.conditions.written.set(!self.force.is_frozen() && self.lacking.is_none());
        taken
    }

    /// Takes in kinds, if there is anything new of them: with thousands that
    /// takes a while, in which no verdict can be given.
    fn learn(&mut self, definitions: BTreeMap<String, Definition>) -> Learned {
        let same = self.learnt.as_ref().is_some_and(|(discovery, defined)| {
            *discovery == self.discovery && *defined == definitions
        });
        if same {
            return Learned { changed: false, moved: false };
        }
        let mut world = self.context.world.write();
        let learned = self.discovery.learn(&mut world, &definitions, &self.custom);
        drop(world);
        self.learnt = Some((self.discovery.clone(), definitions));
        learned
    }

    /// Tells what is written, and since when it is in force.
    fn tell(&self) {
        let now = *self.context.signals.changed.borrow();
        let before = self.written.borrow().clone();
        let said = self.said.lock();
        let policies = said.policies.all.iter().map(|(name, policy)| {
            let read = policy.as_ref().ok();
            let generation = read.and_then(|policy| policy.metadata.generation).unwrap_or_default();
            let known = before.policies.get(name).filter(|known| known.generation == generation);
            let written = WrittenPolicy {
                generation,
                status: read.and_then(|policy| policy.status.clone()).unwrap_or_default(),
                problems: self.force.problems.get(name).cloned().unwrap_or_default(),
                loaded_at: known.map_or(now, |known| known.loaded_at),
            };
            (name.clone(), written)
        });
        let written = Written { policies: policies.collect() };
        drop(said);
        self.written.send_if_modified(|old| {
            let changed = **old != written;
            if changed {
                *old = Arc::new(written);
            }
            changed
        });
    }

    /// Makes catalogue and policies anew. That takes a while with thousands of
    /// policies, and nobody waits for it.
    fn rebuild(&mut self) {
        let kinds = self.context.world.read().graph.kinds.clone();
        let relations: Vec<Custom> = self.force.relations.values().cloned().collect();
        let policies: Vec<Policy> = self.force.policies.values().cloned().collect();
        let rules = match Rules::load(&kinds, &relations, policies, self.identities.clone()) {
            Ok(rules) => rules,
            Err(error) => {
                return tracing::error!(%error, "the rules cannot be compiled; the last good ones stay");
            }
        };
        let mut world = self.context.world.write();
        let World { policies: old, graph, .. } = &mut *world;
        rules.prepare(graph);
        let Rules { catalogue, policies: mut set } = rules;
        set.approvals = std::mem::take(&mut old.approvals);
        set.pauses = std::mem::take(&mut old.pauses);
        let before: HashSet<&str> = old.annotation_keys().collect();
        let reread = set.annotation_keys().any(|key| !before.contains(key));
        let absent = absent_kinds(&relations, &self.context.settings.labelled, &graph.kinds);
        self.unknown = set.unknown_kinds(&graph.kinds).len() + absent.len();
        let before = std::mem::replace(&mut world.catalogue, catalogue);
        world.policies = set;
        // What reads other edges, or annotations that were not kept, has to be
        // read again.
        let World { catalogue, graph, policies, .. } = &*world;
        let is_stale = |kind: KindId| {
            let info = graph.kinds.info(kind);
            !catalogue.reads_like(&before, kind)
                || (reread && policies.names(&info.group, &info.resource))
        };
        self.watches.outdate(is_stale);
        for (named_by, resource) in absent.difference(&self.absent) {
            tracing::warn!(
                named_by,
                resource,
                "a kind is named that is not installed; that counts once the kind is"
            );
        }
        self.absent = absent;
    }

    /// Tells readiness and metrics how it goes.
    fn report(&mut self) {
        let state = self.watches.state();
        if self.unreadable != state.unreadable {
            self.context.metrics.unreadable(&state.unreadable);
            self.unreadable = state.unreadable;
            // The status of policies names one.
            self.context.signals.change();
        }
        self.context.metrics.fed(&Fed { unknown: self.unknown, ..state.fed });
        // Once ready belay stays ready: only verdicts that need a kind that is
        // not read yet fail closed.
        if state.waiting.is_empty() && self.context.world.read().loaded {
            self.conditions.synced.set(true);
        } else {
            self.conditions.synced.explain(&format!("reading {}", state.waiting.join(", ")));
        }
    }
}

/// The kinds that are named and nobody serves, each by who names it: a Relation
/// of somebody, or the setting.
fn absent_kinds(
    relations: &[Custom],
    labelled: &[(String, String)],
    kinds: &Kinds,
) -> BTreeSet<(String, String)> {
    let by_relations = relations.iter().flat_map(|custom| {
        let by = format!("Relation {}", custom.name);
        custom.kinds().map(move |(group, resource)| (by.clone(), group, resource))
    });
    let by_setting = labelled.iter().map(|(group, resource)| {
        ("--labelled-kinds".to_owned(), group.as_str(), resource.as_str())
    });
    let named = by_relations.chain(by_setting);
    let absent =
        named.filter(|(_, group, resource)| kinds.find_resource(group, resource).is_none());
    absent.map(|(by, group, resource)| (by, full_name(group, resource))).collect()
}

/// The kind of belay's own that is not installed, or cannot be read.
fn first_missing(said: &Said) -> Option<String> {
    let of = |name: &str, synced: bool, trouble: &Option<Trouble>| match trouble {
        Some(Trouble::NotFound) => Some(format!(
            "the kind {name}.{GROUP} is not installed; install it with belay admin crds | kubectl apply -f -"
        )),
        Some(trouble) => Some(format!("{name}.{GROUP} cannot be read: {}", trouble.words())),
        None if !synced => Some(format!("{name}.{GROUP} have not been read yet")),
        None => None,
    };
    of("deletionpolicies", said.policies.synced, &said.policies.trouble)
        .or_else(|| of("relations", said.relations.synced, &said.relations.trouble))
        .or_else(|| of("deletionapprovals", said.approvals.synced, &said.approvals.trouble))
        .or_else(|| of("pauses", said.pauses.synced, &said.pauses.trouble))
}

/// Whether the metadata of an object has a deletionTimestamp.
fn is_terminating(json: &str) -> bool {
    serde_json::from_str::<crate::objects::Object<'_>>(json).is_ok_and(|o| o.is_terminating())
}

/// The name under which the API server knows belay.
async fn who_am_i(client: &kube::Client) -> Result<String, Trouble> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.ok_or_else(|| Trouble::Failed("the API server does not say who belay is".to_owned()))
}

/// Tries until it succeeds, and says meanwhile why it does not.
async fn retried<T, F: Future<Output = Result<T, Trouble>>>(
    condition: &Condition,
    retry: Retry,
    attempt: impl Fn() -> F,
) -> T {
    let mut backoff = Backoff::from(retry);
    loop {
        let trouble = match timeout(LIMIT, attempt()).await {
            Ok(Ok(value)) => return value,
            Ok(Err(trouble)) => trouble.words(),
            Err(_) => format!("the API server did not answer within {} s", LIMIT.as_secs()),
        };
        condition.explain(&trouble);
        tracing::warn!(trouble, "the API server cannot be asked; it is tried again");
        tokio::time::sleep(backoff.next()).await;
    }
}
