//! Watches the Secret. While this replica is the leader, it carries out the rotation step
//! by step.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::sync::watch;
use tokio::time::Instant;

use super::replicas::Replicas;
use super::rotation::{self, CaCertificate, Content, Observations, Step, Waiting};
use super::{content, publish};
use crate::certs::{CertError, CertificateAndKey, CertificateAndKeyError, Serving};
use crate::cluster::context::{Context, Registered};
use crate::cluster::pace::jittered;
use crate::cluster::secret::{self, Follower, IDLE};
use crate::objects::ApiError;
use crate::telemetry::ReadinessCondition;
use crate::timing;

/// How certificates are created and rotated.
#[derive(Debug, Clone)]
pub struct OwnSettings {
    /// The server names that the API server expects.
    pub names: Vec<String>,
    /// The validity of a new certificate.
    pub days: u32,
    /// Intervals of reads and retries.
    pub timing: timing::Certificates,
}

/// Follows the Secret.
pub struct Driver<'a> {
    context: Context,
    replicas: &'a Replicas,
    own: OwnSettings,
    serving: Arc<Serving>,
    condition: ReadinessCondition,
    serial: watch::Sender<Option<String>>,
    secrets: Api<Secret>,
    name: String,
    /// The Secret from the last watch event; `None` if it does not exist. Answers to
    /// writes are ignored, because later events may be older.
    secret: Option<Secret>,
    /// Whether the watch has reported a state.
    known: bool,
    /// The certificate that was last served or tried.
    tried: [Vec<u8>; 2],
    /// The CA certificates in both webhook configurations, and since when.
    trusted: (BTreeSet<CaCertificate>, Instant),
    /// belay creates no certificate before this time.
    rest_until: Instant,
    /// The last logged reason for waiting.
    logged_wait: Option<Waiting>,
}

impl<'a> Driver<'a> {
    pub fn new(
        context: &Context,
        replicas: &'a Replicas,
        own: OwnSettings,
        serving: Arc<Serving>,
        condition: ReadinessCondition,
        serial: watch::Sender<Option<String>>,
    ) -> Self {
        let secrets = Api::namespaced(context.client.clone(), &context.settings.namespace);
        Self {
            name: format!("{}-tls", context.settings.name),
            context: context.clone(),
            replicas,
            own,
            serving,
            condition,
            serial,
            secrets,
            secret: None,
            known: false,
            tried: Default::default(),
            trusted: (BTreeSet::new(), Instant::now()),
            rest_until: Instant::now(),
            logged_wait: None,
        }
    }

    /// Follows the Secret until the future is dropped.
    pub async fn run(mut self) {
        let (signals, name) = (self.context.signals.clone(), self.name.clone());
        let (secrets, longest) = (self.secrets.clone(), self.own.timing.retry);
        secret::follow(&mut self, &signals, (&secrets, &name), longest).await;
    }

    fn content(&self) -> Content {
        content::read(self.secret.as_ref(), &self.own.names)
    }

    fn serve(&self, pair: CertificateAndKey) {
        if pair.expires < Timestamp::now().as_second() {
            tracing::warn!(
                secret = self.name,
                "the certificate has expired: every client will refuse it"
            );
        }
        let serial = pair.serial.clone();
        self.serving.replace(pair, &self.context.metrics);
        self.condition.set(true);
        tracing::info!(serial, "serving the certificate in the Secret");
        self.serial.send_replace(Some(serial));
    }

    fn wait(&mut self, waiting: Waiting, now: i64) -> Duration {
        let kind = std::mem::discriminant(&waiting);
        let is_news = self.logged_wait.as_ref().map(std::mem::discriminant) != Some(kind);
        self.logged_wait = Some(waiting);
        if waiting == Waiting::Permission && is_news {
            tracing::error!(
                secret = self.name,
                "the Secret contains a certificate that belay did not create, so belay does not \
                 write it; delete the Secret, or annotate it with {}=yes, and belay creates its \
                 own; or let belay read certificates from files",
                secret::REQUESTED
            );
        } else if is_news {
            tracing::debug!(?waiting, "certificate rotation");
        }
        match waiting {
            Waiting::Due(due) => {
                Duration::from_secs(u64::try_from(due - now).unwrap_or_default()).min(IDLE)
            }
            Waiting::Margin(left) => left,
            Waiting::Replicas => jittered(self.own.timing.ask),
            Waiting::Configurations | Waiting::Permission => IDLE,
        }
    }

    /// The Secret after a step.
    fn after(&self, step: &Step, content: &Content) -> Result<Secret, ApiError> {
        let OwnSettings { names, days, .. } = &self.own;
        let failed = |error: CertError| ApiError::Other(error.to_string());
        let fresh = || content::generate(names, *days).map_err(failed);
        Ok(match (step, self.secret.clone()) {
            (Step::Stage, Some(secret)) => content::stage(secret, &self.name, fresh()?),
            (Step::Promote, Some(secret)) => content::promote(secret, &self.name),
            (Step::Drop, Some(secret)) => content::drop_old(secret),
            (_, secret) => {
                // Replicas may still serve a certificate from an earlier content of the Secret.
                let mut trusted = rotation::to_trust(content);
                if let Some(bundle) = self.context.signals.bundle.borrow().as_deref() {
                    trusted.extend(content::parse_ca_certificates(bundle.as_bytes()));
                }
                let place = (self.context.settings.namespace.as_str(), self.name.as_str());
                content::make(secret, place, fresh()?, &trusted)
            }
        })
    }
}

impl Follower for Driver<'_> {
    const NOT_WATCHED: &'static str = "the Secret with the certificate cannot be watched; the \
                                       last certificate stays in use; check that belay's account \
                                       may get, list and watch it";
    const NOT_CHANGED: &'static str = "cannot create or rotate the certificate; belay retries";

    fn apply(&mut self, secret: Option<Secret>) {
        self.secret = secret;
        self.known = true;
        let trust = rotation::to_trust(&self.content());
        // While the Secret does not exist, replicas still serve the last certificate.
        if !trust.is_empty() {
            publish(&self.context, content::bundle(&trust));
        }
        let Some(secret) = &self.secret else { return };
        let served = content::served(secret);
        if served.iter().all(|part| part.is_empty()) || self.tried == served {
            return;
        }
        self.tried = served.map(<[u8]>::to_vec);
        let [certificate, key] = served;
        match CertificateAndKey::read(certificate, key) {
            Ok(pair) => self.serve(pair),
            Err(
                CertificateAndKeyError::Certificate(error) | CertificateAndKeyError::Key(error),
            ) => {
                self.context.metrics.count_certificate_failure();
                tracing::error!(
                    error,
                    secret = self.name,
                    "the certificate in the Secret is unusable; the last valid one stays in use"
                );
            }
        }
    }

    fn apply_registered(&mut self, registered: &Registered) -> Option<Instant> {
        let bundle = registered.bundle.as_deref();
        let trusted =
            bundle.map(|pem| content::parse_ca_certificates(pem.as_bytes())).unwrap_or_default();
        if trusted != self.trusted.0 {
            self.trusted = (trusted, Instant::now());
        }
        None
    }

    async fn step(&mut self, leads: bool) -> Result<Duration, ApiError> {
        if !leads || !self.known {
            self.logged_wait = None;
            return Ok(IDLE);
        }
        let content = self.content();
        let now = Timestamp::now().as_second();
        let mut seen = Observations {
            trusted: self.trusted.0.clone(),
            trusted_for: self.trusted.1.elapsed(),
            margin: self.own.timing.margin,
            served: None,
        };
        let mut step = rotation::step(&content, &seen, now);
        if step == Step::Wait(Waiting::Replicas) {
            seen.served = Some(self.replicas.served().await?);
            step = rotation::step(&content, &seen, now);
        }
        match step {
            Step::Wait(waiting) => Ok(self.wait(waiting, now)),
            Step::Make | Step::Stage if Instant::now() < self.rest_until => {
                Ok(self.rest_until.saturating_duration_since(Instant::now()))
            }
            Step::Make | Step::Stage | Step::Promote | Step::Drop => {
                self.logged_wait = None;
                let secret = self.after(&step, &content)?;
                secret::write(&self.secrets, &secret).await?;
                if matches!(step, Step::Make | Step::Stage) {
                    self.rest_until = Instant::now() + self.own.timing.rest;
                }
                tracing::info!(secret = self.name, done = ?step, "certificate rotation");
                Ok(self.own.timing.echo)
            }
        }
    }
}
