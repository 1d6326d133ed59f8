//! The session of a user with a cluster, or with files instead of one.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::CommandError;
use super::files::Archive;
use super::place::{ClusterArguments, Installation};
use super::screen::progress;
use super::serve::{LABELLED_KINDS, parse_kinds};
use super::webhooks::{Webhooks, not_installed_text};
use crate::cluster::Clock;
use crate::cluster::election::{LeaderInfo, leader};
use crate::cluster::registration::manifests::TIMEOUT_SECONDS;
use crate::cluster::{
    Caller, Certificates, KindsInFiles, Listed, Settings, Snapshot, UserIdentity, account,
    instance, kinds_with_holds, list_all, read_names, user_of,
};
use crate::objects::{ApiError, KindNames};
use crate::policy::{Identities, Policy};
use crate::relations::CustomRelation;
use crate::timing::Timing;

/// The user of a command, and the cluster or the files that the command reads.
pub struct UserSession {
    pub caller: Caller,
    /// The user as the API server reports it; empty for files.
    pub me: UserIdentity,
    pub installation: Installation,
    /// The name of belay's service account in the installation.
    pub account: String,
    /// The kinds and namespaces in the files; `None` for a cluster.
    kinds_in_files: Option<KindsInFiles>,
}

impl UserSession {
    pub async fn open(cluster: ClusterArguments) -> Result<Self, CommandError> {
        let installation = cluster.installation()?;
        Self::connect(cluster.connect().await?, installation).await
    }

    /// Opens the archive, or connects to the cluster without one. It also returns the names of the
    /// served kinds.
    pub async fn open_with_names(
        archive: Option<Archive>,
        cluster: ClusterArguments,
    ) -> Result<(Self, KindNames), CommandError> {
        if let Some(archive) = archive {
            let names = archive.names().clone();
            return Ok((Self::of_files(archive, &cluster).await?, names));
        }
        let installation = cluster.installation()?;
        let caller = cluster.connect().await?;
        let client = caller.client.clone();
        let (session, names) =
            tokio::join!(Self::connect(caller, installation), read_names(&client));
        Ok((session?, names.map_err(no_kinds)?))
    }

    /// Opens a session that reads files.
    pub async fn of_files(
        archive: Archive,
        cluster: &ClusterArguments,
    ) -> Result<Self, CommandError> {
        let installation = cluster.installation()?;
        let kinds_in_files = Some(archive.kinds_in_files());
        let caller = Caller::with_client(archive.client());
        let Installation { namespace, name } = &installation;
        let account = account(&caller.client, namespace, name).await;
        let me = UserIdentity::new(String::new(), Vec::new(), Timestamp::now());
        Ok(Self { caller, me, installation, account, kinds_in_files })
    }

    async fn connect(caller: Caller, installation: Installation) -> Result<Self, CommandError> {
        let Installation { namespace, name } = &installation;
        let (me, account) =
            tokio::join!(caller.who_am_i(), account(&caller.client, namespace, name));
        let me = me.map_err(|why| {
            CommandError::Remote(format!(
                "cannot ask the API server at {} for your user name: {why}; next: check whether \
                 kubectl auth whoami reaches it",
                caller.address()
            ))
        })?;
        Ok(Self { caller, me, installation, account, kinds_in_files: None })
    }

    /// Whether the session reads files instead of a cluster. Files don't contain the
    /// current user, the leader and the permissions.
    pub fn asks_files(&self) -> bool {
        self.kinds_in_files.is_some()
    }

    /// The text before a kind that is not served.
    pub fn unserved_prefix(&self) -> &'static str {
        match self.asks_files() {
            true => "neither Kubernetes nor the files have a kind",
            false => "the API server serves no kind",
        }
    }

    /// The time after this duration, in whole seconds.
    pub fn end_of(&self, lasts: Duration) -> Timestamp {
        let until = self.me.now().saturating_add(lasts).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(until.as_second()).unwrap_or(until)
    }

    /// The username of belay.
    pub fn own_user(&self) -> String {
        user_of(&self.installation.namespace, &self.account)
    }

    /// The settings with which a command runs code of the server.
    pub fn settings(&self) -> Settings {
        let Installation { namespace, name } = &self.installation;
        Settings {
            namespace: namespace.clone(),
            name: name.clone(),
            replica: self.me.name.clone(),
            instance: instance(),
            labelled: parse_kinds(LABELLED_KINDS),
            certificates: Certificates::Files { authorities: None },
            // A command adds no holds.
            backfill: 0,
            timeout_seconds: TIMEOUT_SECONDS,
            timing: Timing::default(),
        }
    }

    /// The identities that count for every policy.
    pub fn identities(&self) -> Identities {
        Identities {
            own: Some(self.own_user()),
            ..Identities::of_namespace(&self.installation.namespace)
        }
    }

    /// A clock that shows the time of the API server.
    pub fn clock(&self) -> Clock {
        Clock::from_server(self.me.now())
    }

    /// Reads the served kinds and belay's own objects with the rights of the user.
    pub async fn read_rules(&self) -> Result<Snapshot, CommandError> {
        let client = self.caller.client.clone();
        let snapshot = Snapshot::read_rules(client, self.settings(), self.identities()).await;
        self.with_clock(snapshot)
    }

    /// Reads the served kinds. The snapshot contains these policies and relations instead of the
    /// objects in the cluster.
    pub async fn plan_rules(
        &self,
        policies: Vec<Policy>,
        relations: &[CustomRelation],
    ) -> Result<Snapshot, CommandError> {
        let client = self.caller.client.clone();
        let (settings, identities) = (self.settings(), self.identities());
        let snapshot =
            Snapshot::with_rules(client, settings, identities, policies, relations).await;
        self.with_clock(snapshot)
    }

    /// Sets the clock and the kinds in files of a snapshot.
    fn with_clock(&self, snapshot: Result<Snapshot, ApiError>) -> Result<Snapshot, CommandError> {
        let mut snapshot = snapshot.map_err(no_kinds)?;
        snapshot.context.world.write().clock = self.clock();
        snapshot.kinds_in_files.clone_from(&self.kinds_in_files);
        Ok(snapshot)
    }

    /// Lists all objects of a kind of belay. Unreadable objects are reported on standard error.
    pub async fn list_all<K>(&self) -> Result<Vec<K>, CommandError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        self.try_list_all().await.map_err(|why| match why {
            ApiError::Forbidden(_) => {
                let kind = format!("{}.{}", K::plural(&()), K::group(&()));
                CommandError::Remote(format!(
                    "you may not list {kind} in the whole cluster; next: ask an administrator of the \
                     cluster to run the command. kubectl belay why TYPE/NAME works without this right"
                ))
            }
            why => self.own_kind_error::<K>(why),
        })
    }

    /// Like `list_all`, but returns the error of the API server.
    pub async fn try_list_all<K>(&self) -> Result<Vec<K>, ApiError>
    where
        K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::all(self.caller.client.clone());
        let Listed { objects, unreadable } = list_all(api, ListParams::default()).await?;
        if !unreadable.is_empty() {
            let names = unreadable.join(", ");
            progress(&format!("left out, because they can't be read: {} {names}", K::plural(&())));
        }
        Ok(objects)
    }

    /// The error of a read or write of belay's own objects of a kind.
    pub fn own_kind_error<K: kube::Resource<DynamicType = ()>>(
        &self,
        error: ApiError,
    ) -> CommandError {
        let kind = format!("{}.{}", K::plural(&()), K::group(&()));
        match error {
            ApiError::NotFound => CommandError::Remote(not_installed_text()),
            ApiError::Forbidden(detail) => CommandError::Remote(format!(
                "you may not ({detail}); next: have an administrator bind that RBAC verb on {kind} \
                 to {}",
                self.me.name
            )),
            error => {
                CommandError::Remote(format!("the API server cannot answer about {kind}: {error}"))
            }
        }
    }

    /// Whether belay's account may watch and patch all objects of a kind, which it needs to release
    /// holds. `None` if it is unknown.
    pub async fn belay_may_release(&self, group: &str, resource: &str) -> Option<bool> {
        if self.asks_files() {
            return None;
        }
        let account = (self.installation.namespace.as_str(), self.account.as_str());
        let may = async |verb| self.caller.account_may(account, verb, (group, resource)).await;
        match tokio::join!(may("watch"), may("patch")) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// The kinds whose objects may have holds, from belay's record; `None` if it can't be read.
    pub async fn kinds_with_holds(&self) -> Option<BTreeSet<String>> {
        if self.asks_files() {
            return None;
        }
        let Installation { namespace, name } = &self.installation;
        kinds_with_holds(&self.caller.client, namespace, name).await.ok()
    }

    /// The webhook configurations of the installation.
    pub async fn webhooks(&self) -> Webhooks {
        Webhooks::read(&self.caller.client, &self.installation, self.me.now()).await
    }

    /// The leader, if there is one.
    pub async fn leader(&self) -> Result<Option<LeaderInfo>, ApiError> {
        if self.asks_files() {
            return Err(ApiError::Other("files do not contain the leader".to_owned()));
        }
        let Installation { namespace, name } = &self.installation;
        leader(&self.caller.client, (namespace, name), self.me.now()).await
    }

    /// Whether belay is known to have no leader.
    pub async fn lacks_leader(&self) -> bool {
        matches!(self.leader().await, Ok(None))
    }
}

fn no_kinds(error: ApiError) -> CommandError {
    CommandError::Remote(format!("cannot discover the kinds: {error}"))
}
