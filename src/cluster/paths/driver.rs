//! Follows the Secret, and rotates its secret paths while this replica is the leader.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::time::Instant;

use super::content;
use super::rotation::{Content, DatedPath, Step, path_to_register, step};
use crate::cluster::context::{Context, Paths, Registered, send_changed};
use crate::cluster::secret::{self, Follower, IDLE};
use crate::objects::ApiError;
use crate::telemetry::ReadinessCondition;
use crate::timing;
use crate::webhook::{AcceptedPaths, SecretPath};

/// Follows the Secret.
pub struct Driver {
    context: Context,
    rotation: timing::Paths,
    accepted: Arc<AcceptedPaths>,
    condition: ReadinessCondition,
    secrets: Api<Secret>,
    name: String,
    /// The Secret from the last watch event; `None` if it does not exist.
    secret: Option<Secret>,
    /// Whether the watch has reported a state.
    is_read: bool,
    /// The last valid secret paths, the newest last. They stay in use while the Secret is missing
    /// or invalid.
    paths: Vec<DatedPath>,
    /// Since when the newest secret path is known.
    newest_since: Instant,
    /// The secret path in all webhooks, and since when belay has seen it there.
    registered: (Option<SecretPath>, Instant),
}

impl Driver {
    pub fn new(
        context: Context,
        accepted: Arc<AcceptedPaths>,
        condition: ReadinessCondition,
    ) -> Self {
        Self {
            rotation: context.settings.timing.paths,
            secrets: Api::namespaced(context.client.clone(), &context.settings.namespace),
            name: format!("{}-path", context.settings.name),
            context,
            accepted,
            condition,
            secret: None,
            is_read: false,
            paths: Vec::new(),
            newest_since: Instant::now(),
            registered: (None, Instant::now()),
        }
    }

    /// Runs until the caller drops it.
    pub async fn run(mut self) {
        let (signals, name) = (self.context.signals.clone(), self.name.clone());
        let (secrets, longest) = (self.secrets.clone(), self.rotation.retry);
        secret::follow(&mut self, &signals, (&secrets, &name), longest).await;
    }

    fn accepted_paths(&self) -> Vec<SecretPath> {
        self.paths.iter().map(|dated| dated.path.clone()).collect()
    }

    /// Publishes the path for the registration. Returns when it may change without an
    /// event.
    fn publish(&self) -> Option<Instant> {
        let seen_for = self.newest_since.elapsed();
        let now = Timestamp::now().as_second();
        let register = path_to_register(&self.paths, &self.rotation, seen_for, now)?.clone();
        let is_newest = self.paths.last().is_some_and(|newest| newest.path == register);
        let paths = Paths { register, accepted: self.accepted_paths() };
        send_changed(&self.context.signals.paths, Some(paths));
        (!is_newest).then(|| self.newest_since + self.rotation.settle)
    }

    /// The secret paths in use and a new one. Those in use stay even if the Secret was deleted,
    /// because the API servers use one of them.
    fn with_new_path(&self, now: i64) -> Result<Vec<DatedPath>, ApiError> {
        let path = SecretPath::generate().map_err(|error| ApiError::Other(error.to_string()))?;
        let new = DatedPath { path, made: now };
        Ok(self.paths.iter().cloned().chain([new]).collect())
    }
}

impl Follower for Driver {
    const NOT_WATCHED: &'static str = "cannot watch the Secret with the secret paths; the last \
                                       secret paths stay in use; check that belay's account may \
                                       list and watch it";
    const NOT_CHANGED: &'static str =
        "cannot write the Secret with the secret paths; belay retries";

    fn apply(&mut self, secret: Option<Secret>) {
        let content = content::read(secret.as_ref());
        self.secret = secret;
        self.is_read = true;
        let Some(newest) = content.paths.last() else {
            if self.secret.is_some() {
                tracing::error!(
                    secret = self.name,
                    "the Secret for the secret paths contains none; the last secret paths stay in \
                     use, and the leader adds a new one"
                );
            }
            return;
        };
        if self.paths.last() != Some(newest) {
            self.newest_since = Instant::now();
            tracing::info!(secret = self.name, "a new secret path is accepted");
        }
        self.paths = content.paths;
        self.accepted.replace(self.accepted_paths());
        self.condition.set(true);
    }

    fn apply_registered(&mut self, registered: &Registered) -> Option<Instant> {
        if registered.secret_path != self.registered.0 {
            self.registered = (registered.secret_path.clone(), Instant::now());
        }
        self.publish()
    }

    async fn step(&mut self, leads: bool) -> Result<Duration, ApiError> {
        if !leads || !self.is_read {
            return Ok(IDLE);
        }
        let content = content::read(self.secret.as_ref());
        let newest = content.paths.last().map(|newest| &newest.path);
        let (path, since) = &self.registered;
        let registered_for = (path.is_some() && path.as_ref() == newest).then(|| since.elapsed());
        let now = Timestamp::now().as_second();
        let next = step(&content, &self.rotation, registered_for, now);
        let (paths, answered) = match &next {
            Step::Wait(wait) => return Ok(wait.unwrap_or(IDLE).min(IDLE)),
            Step::Add => (self.with_new_path(now)?, true),
            Step::Drop => (only_newest(content), false),
        };
        let place = (self.context.settings.namespace.as_str(), self.name.as_str());
        let written = content::with_paths(self.secret.clone(), place, &paths, answered);
        let written = written.map_err(|error| ApiError::Other(error.to_string()))?;
        secret::write(&self.secrets, &written).await?;
        tracing::info!(secret = self.name, done = ?next, "rotation of the secret path");
        Ok(self.rotation.echo)
    }
}

fn only_newest(content: Content) -> Vec<DatedPath> {
    content.paths.into_iter().next_back().into_iter().collect()
}
