//! Keeps both webhook configurations up to date.
//!
//! Every replica watches them, so that each knows which requests it receives. Only the
//! leader writes.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;
use kube::core::DynamicObject;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::changed::Changes;
use super::events;
use super::follow::{follow, read};
use super::observed::{ConfigurationEvent, ObservedConfiguration};
use super::owner::OwnerReferenceWriter;
use super::patch::{LeaderFields, bundle, compare, secret_path};
use super::rules::{Rules, rules};
use super::stored::{configuration_kind, kind_name};
use crate::cluster::api::patch_params;
use crate::cluster::context::send_changed;
use crate::cluster::event::create;
use crate::cluster::pace::{Backoff, within};
use crate::cluster::{Context, Paths, Registered};
use crate::decide::AdmissionPhase;
use crate::objects::ApiError;
use crate::telemetry::ReadinessCondition;

/// The interval between two equal Events. The API server deletes Events after an hour.
const EVENT_INTERVAL: Duration = Duration::from_secs(3600);

/// How often belay computes the rules again while it does not know the owners of protected objects.
const OWNERS_INTERVAL: Duration = Duration::from_secs(1);

/// The number of writes, each after a read, before belay waits.
const MAX_ATTEMPTS: usize = 3;

/// Writes both configurations until belay shuts down.
pub async fn run(context: Context) {
    let signals = context.signals.clone();
    let (sender, events_receiver) = mpsc::channel(16);
    let configurations = [AdmissionPhase::Mutate, AdmissionPhase::Validate]
        .map(|phase| ConfigurationState::new(&context, phase));
    let [mutating, validating] = configurations.each_ref().map(|c| (c.api.clone(), c.kind));
    let (name, retry) = (context.settings.name.clone(), context.settings.timing.retry);
    let readiness = context.readiness.optional_condition(
        "registration",
        "a webhook configuration or one of its webhooks is missing, changed or not read yet, so belay \
         does not receive all requests. If this lasts, install belay again",
    );
    let driver = Driver { context, configurations, wanted: None, readiness };
    tokio::select! {
        () = signals.ended() => {}
        () = follow(&mutating.0, (mutating.1, &name), retry, |event| (0, event), sender.clone()) => {}
        () = follow(&validating.0, (validating.1, &name), retry, |event| (1, event), sender) => {}
        () = driver.run(events_receiver) => {}
    }
}

/// The wanted rules of both configurations.
#[derive(Clone, PartialEq)]
struct WantedRules {
    /// The generation of the policies that the rules come from.
    generation: u64,
    rules: Arc<Rules>,
    /// belay's user name, once it is known.
    account: Option<String>,
}

struct Driver {
    context: Context,
    configurations: [ConfigurationState; 2],
    /// `None` until policies were read, because empty rules would remove the rules of an earlier
    /// leader.
    wanted: Option<WantedRules>,
    readiness: ReadinessCondition,
}

struct ConfigurationState {
    phase: AdmissionPhase,
    kind: &'static str,
    api: Api<DynamicObject>,
    observed: ObservedConfiguration,
    /// The wanted fields that belay last saw in the configuration. A later difference from them is
    /// another client's change.
    confirmed: Option<LeaderFields>,
    /// The missing webhooks at the last log line.
    reported_missing_webhooks: Vec<&'static str>,
    changes: Changes,
    /// Whether the log has a line about the missing configuration.
    is_reported_missing: bool,
    /// Time of the next Event.
    event_due: Option<Instant>,
    /// Set after a failure.
    retry_at: Option<Instant>,
    backoff: Backoff,
    owner_writer: OwnerReferenceWriter,
}

impl ConfigurationState {
    fn new(context: &Context, phase: AdmissionPhase) -> Self {
        Self {
            phase,
            kind: kind_name(phase),
            api: Api::all_with(context.client.clone(), &configuration_kind(phase)),
            observed: ObservedConfiguration::Unknown,
            confirmed: None,
            reported_missing_webhooks: Vec::new(),
            changes: Changes::default(),
            is_reported_missing: false,
            event_due: None,
            retry_at: None,
            backoff: Backoff::from(context.settings.timing.retry),
            owner_writer: OwnerReferenceWriter::default(),
        }
    }

    /// Whether the configuration is missing or differs from the manifests.
    fn is_wrong(&self) -> bool {
        self.observed == ObservedConfiguration::Missing || !self.changes.found().is_empty()
    }

    /// The name in metrics.
    fn label(&self) -> &'static str {
        match self.phase {
            AdmissionPhase::Mutate => "mutating",
            AdmissionPhase::Validate => "validating",
        }
    }
}

impl Driver {
    async fn run(mut self, mut events_receiver: mpsc::Receiver<(usize, ConfigurationEvent)>) {
        let signals = self.context.signals.clone();
        let mut changed = signals.changed.subscribe();
        let mut bundle = signals.bundle.subscribe();
        let mut paths = signals.paths.subscribe();
        let mut leading = signals.leading.subscribe();
        loop {
            self.compute_wanted(*changed.borrow_and_update());
            self.compare_with_installed();
            let bundle_now = bundle.borrow_and_update().clone();
            let paths_now = paths.borrow_and_update().clone();
            // belay writes nothing before it has a path. Otherwise requests would arrive before
            // replicas accept them.
            let fields =
                self.wanted.as_ref().zip(paths_now.as_ref()).map(|(wanted, paths)| LeaderFields {
                    rules: wanted.rules.clone(),
                    bundle: bundle_now,
                    secret_path: Some(paths.register.clone()),
                });
            if *leading.borrow_and_update() {
                for index in 0..self.configurations.len() {
                    if let Some(fields) = &fields {
                        self.repair(index, fields).await;
                    }
                    self.repair_owner(index).await;
                    self.write_event(index).await;
                }
            }
            self.report(paths_now.as_ref());
            let retry_at = self.retry_at(*leading.borrow());
            let owners_at = self.owners_unknown().then(|| Instant::now() + OWNERS_INTERVAL);
            let retry_at = retry_at.into_iter().chain(owners_at).min();
            tokio::select! {
                event = events_receiver.recv() => match event {
                    Some((index, event)) => self.apply(index, event),
                    None => return,
                },
                Ok(()) = changed.changed() => {}
                Ok(()) = bundle.changed() => {}
                Ok(()) = paths.changed() => {}
                Ok(()) = leading.changed() => {}
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {}
            }
        }
    }

    /// Computes the wanted content. While the CRD of policies is missing, the last content stays.
    fn compute_wanted(&mut self, generation: u64) {
        let is_same = self.wanted.as_ref().is_some_and(|wanted| wanted.generation == generation);
        if is_same && !self.owners_unknown() {
            return;
        }
        let world = self.context.world.read();
        if !world.loaded || !world.policies_current {
            return;
        }
        let rules = rules(&world, &self.context.settings.labelled);
        let account = world.policies.identities.own.clone();
        drop(world);
        let same = self.wanted.take().map(|wanted| wanted.rules).filter(|old| **old == rules);
        let rules = same.unwrap_or_else(|| Arc::new(rules));
        self.wanted = Some(WantedRules { generation, rules, account });
    }

    fn owners_unknown(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.rules.owners_unknown)
    }

    fn compare_with_installed(&mut self) {
        let settings = &self.context.settings;
        let Some(WantedRules { rules, account: Some(account), .. }) = &self.wanted else {
            return;
        };
        for configuration in &mut self.configurations {
            let (kind, name) = (configuration.kind, &settings.name);
            let now = configuration.observed.webhooks().unwrap_or_default();
            let is_new_result =
                configuration.changes.compare(settings, (configuration.phase, account), now, rules);
            let webhooks = configuration.changes.found();
            self.context.metrics.set_registration_changed(configuration.label(), webhooks.len());
            if !is_new_result {
                continue;
            }
            configuration.event_due = None;
            match webhooks.is_empty() {
                true => {
                    tracing::info!(
                        kind,
                        name,
                        "the webhooks match the manifests of this version again"
                    )
                }
                false => tracing::warn!(
                    kind,
                    name,
                    ?webhooks,
                    "webhooks differ from the manifests of this version, so the API server may not \
                     send all requests to belay that policies need. belay does not write these \
                     fields: install the chart and the image of the same version again"
                ),
            }
        }
    }

    fn apply(&mut self, index: usize, event: ConfigurationEvent) {
        let configuration = &mut self.configurations[index];
        // The API server has validated the configuration. One that belay can't parse is of an
        // unknown version, and is ignored until the next event.
        if let Err(error) = configuration.observed.apply(event) {
            let kind = configuration.kind;
            tracing::warn!(kind, %error, "cannot parse the webhook configuration");
        }
    }

    /// Writes the wanted fields into one configuration, if they differ.
    async fn repair(&mut self, index: usize, fields: &LeaderFields) {
        let configuration = &mut self.configurations[index];
        if configuration.observed.webhooks().is_none() {
            configuration.retry_at = None;
            return;
        }
        if configuration.retry_at.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let name = &self.context.settings.name;
        let kind = configuration.kind;
        let mut error = None;
        for _ in 0..MAX_ATTEMPTS {
            let Some(webhooks) = configuration.observed.webhooks() else { return };
            let Some(patch) = compare(webhooks, configuration.phase, fields).patch else {
                if configuration.retry_at.take().is_some() {
                    tracing::info!(kind, name, "belay has updated the webhook configuration again");
                }
                configuration.backoff.record_success();
                configuration.confirmed = Some(fields.clone());
                return;
            };
            // The wanted content is unchanged, so another client has changed the
            // configuration.
            let is_repair = configuration.confirmed.as_ref() == Some(fields);
            let params = patch_params();
            let patch = Patch::Json::<()>(patch);
            let event = match within(configuration.api.patch(name, &params, &patch)).await {
                Ok(object) => {
                    if is_repair {
                        self.context.metrics.count_registration_repair(configuration.label());
                        tracing::warn!(
                            kind,
                            name,
                            "another client has changed the rules, the CA certificates or the path \
                             of the webhook configuration; belay has restored them"
                        );
                    } else {
                        tracing::info!(kind, name, "belay has updated the webhook configuration");
                    }
                    // belay has not read the new content back, so a difference is not yet another
                    // client's change.
                    configuration.confirmed = None;
                    Ok(ConfigurationEvent::Found(Box::new(object)))
                }
                // A webhook may have moved, so belay reads the configuration again.
                Err(refused) => {
                    let read = match &refused {
                        ApiError::NotFound => Ok(ConfigurationEvent::Missing),
                        ApiError::Forbidden(_) => Err(refused.clone()),
                        _ => read(&configuration.api, name).await,
                    };
                    error = Some(refused);
                    read
                }
            };
            match event {
                Ok(event) => drop(configuration.observed.apply(event)),
                Err(unread) => {
                    error = Some(unread);
                    break;
                }
            }
        }
        if configuration.observed.webhooks().is_none() {
            return;
        }
        let why = match error {
            Some(error) => error.to_string(),
            None => "the API server does not store what belay writes".to_owned(),
        };
        if configuration.retry_at.is_none() {
            tracing::warn!(
                kind,
                name,
                why,
                "cannot update the webhook configuration; belay retries"
            );
        }
        let wait = configuration.backoff.next();
        configuration.retry_at = Some(Instant::now() + wait);
    }

    /// Writes the owner in a separate request, so that the rules are written even if the API server
    /// rejects the owner.
    async fn repair_owner(&mut self, index: usize) {
        let ConfigurationState { kind, api, observed, owner_writer, .. } =
            &mut self.configurations[index];
        owner_writer.repair(&self.context.settings, (*kind, &*api), observed).await;
    }

    /// Writes an Event once an hour while a configuration is missing or changed.
    async fn write_event(&mut self, index: usize) {
        let settings = &self.context.settings;
        let configuration = &mut self.configurations[index];
        let due = configuration.event_due.is_none_or(|due| due <= Instant::now());
        if !configuration.is_wrong() || !due {
            return;
        }
        configuration.event_due = Some(Instant::now() + EVENT_INTERVAL);
        let (kind, now) = (configuration.kind, jiff::Timestamp::now());
        let event = match configuration.observed {
            ObservedConfiguration::Missing => events::missing(settings, kind, now),
            _ => events::changed(settings, kind, now, configuration.changes.found()),
        };
        if let Err(error) = create(&self.context.client, &event).await {
            tracing::warn!(
                %error,
                "cannot write the Event about a webhook configuration"
            );
        }
    }

    /// Publishes the state of both configurations.
    fn report(&mut self, paths: Option<&Paths>) {
        let name = &self.context.settings.name;
        let mut missing = Vec::new();
        let mut changed = Vec::new();
        let mut calls_belay = self.wanted.is_some();
        let (mut bundles, mut secret_paths) = (Vec::new(), Vec::new());
        let mut known = true;
        for configuration in &mut self.configurations {
            let kind = configuration.kind;
            let label = configuration.label();
            let webhooks = match &configuration.observed {
                ObservedConfiguration::Unknown => {
                    (calls_belay, known) = (false, false);
                    continue;
                }
                ObservedConfiguration::Missing => {
                    calls_belay = false;
                    bundles.push(None);
                    missing.push((configuration.phase, format!("{kind}/{name}")));
                    if !std::mem::replace(&mut configuration.is_reported_missing, true) {
                        tracing::warn!(
                            kind,
                            name,
                            "the webhook configuration does not exist, so the API server sends no \
                             requests to it. belay never creates it: install belay again"
                        );
                        self.context.metrics.set_registration_missing(label, true);
                    }
                    // A re-created configuration is another object.
                    configuration.confirmed = None;
                    continue;
                }
                ObservedConfiguration::Exists { webhooks, .. } => webhooks,
            };
            if std::mem::take(&mut configuration.is_reported_missing) {
                tracing::info!(kind, name, "the webhook configuration exists again");
                configuration.event_due = None;
            }
            self.context.metrics.set_registration_missing(label, false);
            bundles.push(bundle(webhooks, configuration.phase));
            // Replicas reject requests with a path that they do not accept.
            let secret_path = secret_path(webhooks, configuration.phase);
            calls_belay &= secret_path
                .as_ref()
                .zip(paths)
                .is_some_and(|(own, paths)| paths.accepted.contains(own));
            secret_paths.push(secret_path);
            let different = configuration.changes.found().iter();
            changed.extend(different.map(|webhook| format!("{kind}/{name} webhook {webhook}")));
            let Some(wanted) = &self.wanted else { continue };
            let only_rules =
                LeaderFields { rules: wanted.rules.clone(), bundle: None, secret_path: None };
            let difference = compare(webhooks, configuration.phase, &only_rules);
            calls_belay &= difference.calls_belay;
            let absent = difference.missing;
            missing.extend(
                absent.iter().map(|webhook| {
                    (configuration.phase, format!("{kind}/{name} webhook {webhook}"))
                }),
            );
            if configuration.reported_missing_webhooks != absent {
                if !absent.is_empty() {
                    tracing::warn!(
                        kind,
                        name,
                        webhooks = ?absent,
                        "webhooks are missing in the webhook configuration, so belay does not \
                         receive all requests that policies need. Install the running version of \
                         belay again"
                    );
                }
                configuration.reported_missing_webhooks = absent;
            }
        }
        self.readiness.set(known && missing.is_empty() && changed.is_empty());
        let same = bundles.len() == 2 && bundles[0] == bundles[1];
        let registered = Registered {
            generation: self
                .wanted
                .as_ref()
                .filter(|_| calls_belay)
                .map(|wanted| wanted.generation),
            bundle: bundles.first().copied().flatten().filter(|_| same).map(Arc::from),
            secret_path: secret_paths.first().cloned().flatten().filter(|first| {
                secret_paths.len() == 2
                    && secret_paths.iter().all(|secret_path| secret_path.as_ref() == Some(first))
            }),
            missing,
            changed,
            any_exists: self.configurations.iter().any(|c| c.observed.webhooks().is_some()),
        };
        send_changed(&self.context.signals.registered, registered);
    }

    /// When to retry without an event.
    fn retry_at(&self, is_leader: bool) -> Option<Instant> {
        let time = |configuration: &ConfigurationState| {
            let missing = configuration.observed == ObservedConfiguration::Missing;
            let event = configuration.event_due.filter(|_| configuration.is_wrong());
            let owner = configuration.owner_writer.retry_at.filter(|_| !missing);
            [configuration.retry_at, event, owner].into_iter().flatten().min()
        };
        self.configurations.iter().filter_map(time).min().filter(|_| is_leader)
    }
}
