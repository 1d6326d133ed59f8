//! Uninstalls belay from a cluster, whether or not it is running. No object stays Terminating
//! because of belay, and no object in use is lost.
//!
//! ```text
//!  the Lease ─► both webhook configurations ─► every hold ─► belay's own objects ─► the Lease
//!  no replica    new objects get no hold        withdrawal     own_objects
//!  writes holds
//! ```
//!
//! It uses the leader's code for the election, for writes of holds, and for the release of
//! Terminating objects. Unlike a leader, it needs no webhook, no watch and no Namespace of belay.
//!
//! Each step first reads the current state. So a user can repeat the uninstall after it was
//! killed at any point, and a repetition changes nothing.

mod changes;
mod configurations;
mod kinds;
mod own_objects;
mod owners;
mod planner;
mod report;
mod terminating;
#[cfg(test)]
mod tests;
mod withdrawal;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

pub use self::configurations::installed;
pub use self::own_objects::removal_step;
pub use self::report::{
    HeldObject, HeldReason, UninstallCounts, UninstallEvent, UninstallReport, count_by_kind, holds,
};

use self::configurations::Configurations;
use self::own_objects::OwnObjects;
use self::withdrawal::Withdrawal;
use super::clock::Clock;
use super::context::Settings;
use super::election::{Election, PreviousLeader, uninstall_name};
use super::feed::Snapshot;
use super::holds::Record;
use super::release::run_reporting;
use super::world::World;
use crate::objects::ApiError;
use crate::policy::Identities;

#[derive(Debug, Clone, Copy, Default)]
pub struct UninstallOptions {
    /// Whether to release also Terminating objects that are in use.
    pub abandon: bool,
    /// Whether to write nothing.
    pub dry_run: bool,
    /// The time limit for removing holds and waiting; `None`: until no object is in use.
    pub limit: Option<Duration>,
}

/// Why an uninstall did not start or did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UninstallError {
    /// The served kinds can't be read.
    Kinds(ApiError),
    /// A webhook configuration, or the list of a kind of them, can't be read.
    ReadConfiguration(String, ApiError),
    /// Webhook configurations of another installation exist, which may be in use.
    OtherInstallation {
        /// The namespace of the other installation, if known.
        namespace: Option<String>,
        /// The name of the other installation.
        name: String,
    },
    /// The Lease can't be taken.
    Lease(ApiError),
    /// This webhook configuration can't be deleted.
    DeleteConfiguration(String, ApiError),
    /// The record of the kinds that may have holds can't be read.
    Record(ApiError),
    /// This signal ended the uninstall.
    Interrupted {
        signal: &'static str,
        /// Whether the webhook configurations are deleted; `None` if unknown.
        are_deleted: Option<bool>,
    },
}

/// The uninstall of one installation.
pub struct Uninstall<'a> {
    /// The client of the API server.
    pub client: kube::Client,
    /// The settings of the installation. The replica is this process.
    pub settings: Settings,
    /// The user names that belay knows.
    pub identities: Identities,
    pub clock: Clock,
    pub options: UninstallOptions,
    /// Receives the events of the uninstall.
    pub report: &'a dyn Fn(UninstallEvent),
}

impl Uninstall<'_> {
    /// Runs all steps. Calls `catch_signal` before the first change. After a signal it releases the
    /// Lease, so that replicas need not wait until it expires.
    pub async fn run<S: Future<Output = &'static str>>(
        &self,
        catch_signal: impl FnOnce() -> S,
    ) -> Result<UninstallReport, UninstallError> {
        let snapshot = self.snapshot().await?;
        let configurations = Configurations::read(&self.client, &self.settings).await?;
        let context = snapshot.context.clone();
        let election = Election::of_uninstall(&context);
        if self.options.dry_run {
            configurations.report_plan(&self.settings.name, self.report);
            self.own_objects(&election, configurations.exist()).report_plan(self.clock.now()).await;
            (self.report)(UninstallEvent::Step(ended_protection(&snapshot.context.world.read())));
            return self.withdraw(snapshot, &configurations, Duration::ZERO).await;
        }
        let Settings { namespace, name, .. } = &self.settings;
        let signal = pin!(catch_signal());
        let previous = election.take_over().await.map_err(UninstallError::Lease)?;
        let Some(PreviousLeader { name: leader, may_act_for }) = previous else {
            (self.report)(UninstallEvent::Step(format!("already deleted: Namespace {namespace}")));
            return tokio::select! {
                done = self.withdraw(snapshot, &configurations, Duration::ZERO) => done,
                signal = signal => Err(self.interrupted(signal).await),
            };
        };
        (self.report)(UninstallEvent::Step(match leader {
            Some(leader) => format!("the Lease is taken from {leader}"),
            None => "the Lease is taken; there was no leader".to_owned(),
        }));
        let work = async {
            let done = tokio::select! {
                done = self.withdraw(snapshot, &configurations, may_act_for) => done,
                never = election.run_candidate() => match never {},
            };
            if done.as_ref().is_ok_and(UninstallReport::is_clean) {
                let may_be_registered = self.configurations_exist().await.unwrap_or(true);
                self.own_objects(&election, may_be_registered).delete_all(self.clock.now()).await;
            }
            done
        };
        let outcome = tokio::select! {
            done = work => Ok(done),
            signal = signal => Err(signal),
        };
        let is_complete = matches!(&outcome, Ok(Ok(report)) if report.is_clean());
        if !is_complete && let Err(error) = election.step_down().await {
            // A replica that gets the Lease releases the remaining objects when they are unused. It
            // adds no holds, because no leader does so without webhook configurations.
            (self.report)(UninstallEvent::Warning(format!(
                "cannot release the Lease {name}: {error}; replicas take it after it expires"
            )));
        }
        match outcome {
            Ok(done) => done,
            Err(signal) => Err(self.interrupted(signal).await),
        }
    }

    /// Whether a webhook configuration exists; `None` if unknown.
    async fn configurations_exist(&self) -> Option<bool> {
        let read = Configurations::read(&self.client, &self.settings).await;
        read.ok().map(|configurations| configurations.exist())
    }

    /// The error after a signal. The user waits, so it reads only for a short time.
    async fn interrupted(&self, signal: &'static str) -> UninstallError {
        let limit = self.settings.timing.lease.farewell;
        let exist = tokio::time::timeout(limit, self.configurations_exist()).await;
        let are_deleted = exist.ok().flatten().map(|exist| !exist);
        UninstallError::Interrupted { signal, are_deleted }
    }

    fn own_objects<'a>(
        &'a self,
        election: &'a Election<'a>,
        may_be_registered: bool,
    ) -> OwnObjects<'a> {
        let Self { client, settings, identities, report, .. } = self;
        let own_user = identities.own.as_deref().unwrap_or_default();
        OwnObjects { client, settings, own_user, may_be_registered, election, report }
    }

    async fn snapshot(&self) -> Result<Snapshot, UninstallError> {
        // No other process has this name.
        let replica = self.settings.replica.rsplit('/').next().unwrap_or_default();
        let settings = Settings { replica: uninstall_name(replica), ..self.settings.clone() };
        let snapshot =
            Snapshot::read_rules(self.client.clone(), settings, self.identities.clone()).await;
        let snapshot = snapshot.map_err(UninstallError::Kinds)?;
        let mut world = snapshot.context.world.write();
        world.clock = self.clock;
        // An approval does not cover dependents that were added later.
        world.graph.track_owner_versions();
        drop(world);
        Ok(snapshot)
    }

    /// Deletes the webhook configurations, and removes holds until none remains, or until the
    /// remaining holds must stay.
    async fn withdraw(
        &self,
        snapshot: Snapshot,
        configurations: &Configurations,
        leader_may_act_for: Duration,
    ) -> Result<UninstallReport, UninstallError> {
        let context = snapshot.context.clone();
        let record = Record::new(&context).read().await.map_err(UninstallError::Record)?;
        let record: BTreeSet<String> = record.into_keys().collect();
        if !self.options.dry_run {
            configurations.delete(&self.client, &self.settings.name, self.report).await?;
            if !leader_may_act_for.is_zero() {
                (self.report)(UninstallEvent::Progress(format!(
                    "waiting {} s for the previous leader to stop",
                    leader_may_act_for.as_secs()
                )));
                // Meanwhile the API server stores all requests that belay answered.
                sleep(leader_may_act_for).await;
            }
        }
        let (listed, unknown) = {
            let world = context.world.read();
            let (unserved, unknown) = kinds::unserved(&world, &snapshot.stale, &record);
            if !unserved.is_empty() {
                (self.report)(UninstallEvent::Warning(format!(
                    "the API server no longer serves {}, whose objects had holds; if only an \
                     aggregated API server is down, run this again when it is up",
                    unserved.join(", ")
                )));
            }
            (kinds::listed_kinds(&world, &self.settings, &record), unknown)
        };
        Ok(self.remove_holds(snapshot, &listed, &unknown).await)
    }

    /// Removes the holds of objects of these kinds, while releases run. belay does not know whether
    /// the API server serves the `unknown` kinds.
    async fn remove_holds(
        &self,
        snapshot: Snapshot,
        listed: &[kinds::ListedKind],
        unknown: &[String],
    ) -> UninstallReport {
        let (sender, reports) = mpsc::unbounded_channel();
        let releases = run_reporting(snapshot.context.clone(), snapshot.reader.clone(), sender);
        let mut withdrawal = Withdrawal::new(self, snapshot, reports);
        tokio::select! {
            done = withdrawal.run(listed, unknown) => done,
            never = releases => match never {},
        }
    }
}

/// The text about the policies and the label that no longer apply.
fn ended_protection(world: &World) -> String {
    let sources = world.policies.iter().map(|policy| policy.source.to_string());
    format!("would no longer apply: {}", sources.collect::<Vec<_>>().join(", "))
}
