//! The status of policies, written by the leader.
//!
//! ```text
//!  stored policies ────────────┐
//!  registration, holds, graph ─┼─► conditions ─┐
//!  journals of all replicas ───┼─► last24h     ├─► one merge patch per policy,
//!  objects, in slices ─────────┴─► counts     ─┘    after a change
//! ```

mod conditions;
mod counts;
mod policies;
mod watched;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::Api;
use kube::api::Patch;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::counts::PolicyCounts;
pub use self::policies::{KindsOfPolicy, StoredPolicies, StoredPolicy};
use self::watched::Watched;
use self::writer::{StatusWriter, Urgency};
use super::Context;
use super::api::patch_params;
use super::holding::HoldProgress;
use super::journal::{Activity, replica};
use super::pace::{Backoff, within};
use crate::objects::{ApiError, KindId};
use crate::policy::api::{DeletionPolicy, DeletionPolicyStatus};
use crate::timing::Timing;

/// The number of writes between two reads of all policies.
const BATCH: usize = 20;

/// The longest time between two reads of the journals, because their entries expire.
const EXPIRY: Duration = Duration::from_secs(60);

/// The data for the numbers of all statuses.
#[derive(Default)]
struct StatusNumbers {
    activity: Mutex<Option<Activity>>,
    counted: Mutex<Option<CountedPolicies>>,
    /// Notified after an update of `activity` or `counted`.
    changed: Notify,
}

/// The counts, and the state that they are based on.
struct CountedPolicies {
    counts: PolicyCounts,
    /// The value of `Signals::changed` before the count.
    changed: u64,
    /// The kinds whose objects were all known.
    complete: BTreeSet<KindId>,
    /// The progress of the holds before the count. The status reports this progress, so that it
    /// reports no hold on an object that the count does not contain.
    holding: Arc<HashMap<String, HoldProgress>>,
}

/// Writes the status of all policies while this replica is the leader, until belay shuts
/// down.
pub async fn run(
    context: Context,
    stored: watch::Receiver<Arc<StoredPolicies>>,
    kinds_read_by: KindsOfPolicy,
) {
    let lead = async || {
        let numbers = StatusNumbers::default();
        tokio::join!(
            read_journals(&context, &numbers),
            count_objects(&context, &numbers),
            write_statuses(&context, stored.clone(), kinds_read_by, &numbers),
        );
    };
    context.signals.until_end(context.signals.while_leading(lead, std::future::pending)).await;
}

async fn read_journals(context: &Context, numbers: &StatusNumbers) {
    let timing = &context.settings.timing;
    let mut backoff = Backoff::from(timing.retry);
    let mut last: Option<(Vec<String>, Instant)> = None;
    loop {
        let mut wait = timing.status.journals;
        let read = async {
            let versions = replica::versions(context).await?;
            let is_unchanged = |(last_versions, read_at): &(Vec<String>, Instant)| {
                *last_versions == versions && read_at.elapsed() < EXPIRY
            };
            if last.as_ref().is_some_and(is_unchanged) {
                return Ok::<_, ApiError>(None);
            }
            let read = replica::read_all(context, Timestamp::now()).await?;
            last = Some((versions, Instant::now()));
            Ok(Some(read))
        };
        match read.await {
            Ok(read) => {
                if let Some((activity, stale)) = read {
                    *numbers.activity.lock() = Some(activity);
                    numbers.changed.notify_one();
                    replica::delete_stale(context, &stale).await;
                }
                if backoff.record_success() {
                    tracing::info!("the journals of all replicas are read again");
                }
            }
            Err(error) => {
                let retry = backoff.fail(|| {
                    tracing::warn!(%error, "cannot read the journals of all replicas");
                });
                wait = wait.max(retry);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

async fn count_objects(context: &Context, numbers: &StatusNumbers) {
    let timing = &context.settings.timing.status;
    let mut signal = context.signals.changed.subscribe();
    let mut holding = context.signals.holding.subscribe();
    let (mut last, mut last_holds) = (None, Instant::now());
    let mut progress = holding.borrow().clone();
    loop {
        let changed = *signal.borrow_and_update();
        let last_progress = std::mem::replace(&mut progress, holding.borrow_and_update().clone());
        let has_progress = !Arc::ptr_eq(&progress, &last_progress);
        if has_progress {
            last_holds = Instant::now();
        }
        // belay counts again soon after it wrote holds, because watches deliver them later.
        let interval = match last_holds.elapsed() < timing.counts {
            true => timing.gather,
            false => timing.counts,
        };
        let (revision, complete) = {
            let graph = &context.world.read().graph;
            (graph.revision(), graph.complete_kinds())
        };
        // New policies and kinds are counted at once, because Ready waits for the count.
        let is_due = has_progress
            || last.as_ref().is_none_or(|(counted, last_revision, start): &(_, u64, Instant)| {
                *counted != (changed, complete.clone())
                    || (*last_revision != revision && start.elapsed() >= interval)
            });
        if is_due {
            let start = Instant::now();
            let counts = counts::count(context).await;
            last = Some(((changed, complete.clone()), revision, start));
            *numbers.counted.lock() =
                Some(CountedPolicies { counts, changed, complete, holding: progress.clone() });
            numbers.changed.notify_one();
            // Counting takes at most a twentieth of the time of one thread.
            tokio::time::sleep(start.elapsed() * 19).await;
        }
        tokio::select! {
            _ = signal.changed() => {}
            _ = holding.changed() => {}
            () = tokio::time::sleep(timing.look) => {}
        }
    }
}

async fn write_statuses(
    context: &Context,
    mut stored: watch::Receiver<Arc<StoredPolicies>>,
    kinds_read_by: KindsOfPolicy,
    numbers: &StatusNumbers,
) {
    let signals = &context.signals;
    let mut changed = signals.changed.subscribe();
    let mut registered = signals.registered.subscribe();
    let api: Api<DeletionPolicy> = Api::all(context.client.clone());
    let Timing { status: timing, retry, .. } = &context.settings.timing;
    let (mut writer, mut backoff) = (StatusWriter::new(timing.write), Backoff::from(*retry));
    let started = Instant::now();
    let mut watched = Watched::default();
    loop {
        let policies = stored.borrow_and_update().clone();
        watched.refresh(context, kinds_read_by).await;
        let statuses = statuses(context, &policies, &watched, numbers, &mut writer);
        let mut due: Vec<(Urgency, &String, DeletionPolicyStatus)> = statuses
            .into_iter()
            .filter_map(|(name, status)| {
                let urgency = writer.urgency(name, &status, started.elapsed())?;
                Some((urgency, name, status))
            })
            .collect();
        due.sort_by_key(|(urgency, ..)| *urgency);
        let more = due.len() > BATCH;
        for (_, name, status) in due.into_iter().take(BATCH) {
            match write(&api, name, &status).await {
                Ok(()) => {
                    writer.record_write(name, status, started.elapsed());
                    if backoff.record_success() {
                        tracing::info!("the status of policies is written again");
                    }
                }
                Err(ApiError::NotFound) => writer.remove(name),
                Err(error) => {
                    let wait = backoff.fail(|| {
                        tracing::warn!(policy = name, %error, "cannot write the status of a policy");
                    });
                    tokio::time::sleep(wait).await;
                    break;
                }
            }
            tokio::time::sleep(timing.between).await;
        }
        if more {
            continue;
        }
        // The sender of the policies may be dropped earlier. The context keeps the other senders.
        let feed = async {
            if stored.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = feed => {}
            _ = changed.changed() => {}
            _ = registered.changed() => {}
            () = numbers.changed.notified() => {}
            () = tokio::time::sleep(timing.look) => continue,
        }
        tokio::time::sleep(timing.gather).await;
    }
}

/// Computes the status of each policy.
fn statuses<'w>(
    context: &Context,
    stored: &'w StoredPolicies,
    watched: &Watched,
    numbers: &StatusNumbers,
    writer: &mut StatusWriter,
) -> Vec<(&'w String, DeletionPolicyStatus)> {
    writer.record_read(&stored.policies);
    let now = Timestamp::now();
    let registered = context.signals.registered.borrow().clone();
    let pause = context.world.read().policies.pause(now.as_second()).cloned();
    let mut watching = watched.by_policy(context);
    let (activity, counted) = (numbers.activity.lock(), numbers.counted.lock());
    let mut statuses = Vec::new();
    for (name, policy) in &stored.policies {
        let Some(last) = writer.known(name) else { continue };
        let valid = policy.problems.is_empty();
        let kinds = watching.remove(name.as_str()).filter(|_| valid);
        let is_counted = match (&kinds, &*counted) {
            (Some(kinds), Some(counted)) => {
                counted.changed >= policy.loaded_at && kinds.is_counted_by(&counted.complete)
            }
            (Some(_), None) => false,
            (None, _) => true,
        };
        let (watching_condition, unknown_kinds) = match kinds {
            Some(kinds) => (kinds.condition, kinds.unserved.to_vec()),
            None if valid => continue,
            None => (conditions::not_watching(), Vec::new()),
        };
        let mut ready = conditions::ready(policy, &registered, pause.as_ref())
            .with_watching(&watching_condition);
        let is_ready = |before: &Condition| before.type_ == "Ready" && before.status == "True";
        if !is_counted && !last.conditions.iter().any(is_ready) {
            ready = ready.while_counting();
        }
        let mut conditions = vec![ready, watching_condition];
        let mut status = DeletionPolicyStatus {
            observed_generation: Some(policy.generation),
            unknown_kinds,
            ..last.clone()
        };
        // Numbers that are not read or counted yet keep their values, which are those of the last
        // leader or of the last spec. So does the condition Holding.
        let mut kept = None;
        match counted.as_ref().and_then(|counted| counted.holding.get(name)) {
            _ if !valid => (status.not_held, status.holds_effective_time) = (Vec::new(), None),
            Some(holding) if holding.generation >= policy.loaded_at => {
                conditions.push(conditions::holding(name, holding));
                status.not_held = conditions::not_held(holding);
                let effective = holding.counts.effective_at;
                let effective = effective.filter(|second| *second > now.as_second());
                let effective = effective.and_then(|second| Timestamp::from_second(second).ok());
                status.holds_effective_time = effective.map(Time);
            }
            _ => kept = last.conditions.iter().find(|before| before.type_ == "Holding").cloned(),
        }
        status.conditions =
            conditions::conditions(&last.conditions, conditions, policy.generation, now);
        status.conditions.extend(kept);
        if let Some(activity) = &*activity {
            status.last_24h = activity.last_day(name);
            status.recent = activity.recent(name).to_vec();
        }
        if let Some(CountedPolicies { counts, .. }) = &*counted {
            let count = counts.get(name).copied().unwrap_or_default();
            (status.protected_objects, status.held_objects) = (count.protected, count.held);
        }
        statuses.push((name, status));
    }
    statuses
}

async fn write(
    api: &Api<DeletionPolicy>,
    name: &str,
    status: &DeletionPolicyStatus,
) -> Result<(), ApiError> {
    let patch = self::writer::patch(status)
        .map_err(|error| ApiError::Other(format!("the status is no JSON: {error}")))?;
    let params = patch_params();
    within(api.patch_status(name, &params, &Patch::Merge(patch))).await.map(drop)
}
