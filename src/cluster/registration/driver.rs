//! Keeps both configurations in step.
//!
//! Every replica looks, so that each knows what the API server asks; the leader
//! alone writes.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::changed::Changes;
use super::events;
use super::follow::{follow, read};
use super::owner::Owned;
use super::patch::{self, Difference, bundle, compare, token};
use super::rules::{Rules, rules};
use super::watched::{News, Watched};
use crate::cluster::api::patch_params;
use crate::cluster::event::create;
use crate::cluster::pace::{Backoff, within};
use crate::cluster::{Context, Paths, Registered};
use crate::decide::AdmissionPhase;
use crate::objects::ApiError;
use crate::telemetry::Condition;
use crate::webhook::PathToken;

/// An Event that says the same is written again after this time, when the API
/// server has forgotten the last one.
const EVENT_AGAIN: Duration = Duration::from_secs(3600);

/// How often a write is tried upon what was read again, before it waits.
const TRIES: usize = 3;

/// Fills both configurations in and keeps them so, until belay ends.
pub async fn run(context: Context) {
    let mut ending = context.signals.ending.subscribe();
    let (tell, heard) = mpsc::channel(16);
    let configurations = [AdmissionPhase::Mutate, AdmissionPhase::Validate]
        .map(|phase| Configuration::new(&context, phase));
    let [mutating, validating] = configurations.each_ref().map(|c| (c.api.clone(), c.kind));
    let (name, retry) = (context.settings.name.clone(), context.settings.timing.retry);
    let remark = context.readiness.remark(
        "registration",
        "a webhook configuration, or an entry of it, is missing, is not as it was installed, or \
         was not read yet: belay is not asked everything; install belay again if it stays so",
    );
    let driver = Driver { context, configurations, wanted: None, remark };
    tokio::select! {
        // An error means that nobody is left who could end it otherwise.
        _ = ending.wait_for(|ending| *ending) => {}
        () = follow(&mutating.0, (mutating.1, &name), retry, |news| (0, news), tell.clone()) => {}
        () = follow(&validating.0, (validating.1, &name), retry, |news| (1, news), tell) => {}
        () = driver.run(heard) => {}
    }
}

/// What both configurations have to ask.
#[derive(Clone, PartialEq)]
struct Wanted {
    /// The change of policies that this follows from.
    generation: u64,
    rules: Arc<Rules>,
    /// The user name of belay's own account, once it is known.
    account: Option<String>,
}

struct Driver {
    context: Context,
    configurations: [Configuration; 2],
    /// Nothing until policies were read: no policies, no rules, would empty
    /// what an earlier belay has filled in.
    wanted: Option<Wanted>,
    remark: Condition,
}

/// What a configuration is filled in with.
#[derive(Clone, PartialEq)]
struct Filled {
    rules: Arc<Rules>,
    bundle: Option<Arc<str>>,
    token: PathToken,
}

struct Configuration {
    phase: AdmissionPhase,
    kind: &'static str,
    api: Api<DynamicObject>,
    watched: Watched,
    /// What was in it when it was last as wanted.
    in_place: Option<Filled>,
    /// Entries that are missing, as they were told.
    told: Vec<&'static str>,
    /// Webhooks that are not as they were installed.
    changes: Changes,
    /// Whether it was told that it is missing.
    told_missing: bool,
    /// When to write the next Event.
    event_due: Option<Instant>,
    /// After a failure: when to write again.
    held_off: Option<Instant>,
    backoff: Backoff,
    owned: Owned,
}

impl Configuration {
    fn new(context: &Context, phase: AdmissionPhase) -> Self {
        let (kind, plural) = match phase {
            AdmissionPhase::Mutate => {
                ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
            }
            AdmissionPhase::Validate => {
                ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
            }
        };
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Self {
            phase,
            kind,
            api: Api::all_with(context.client.clone(), &resource),
            watched: Watched::Unknown,
            in_place: None,
            told: Vec::new(),
            changes: Changes::default(),
            told_missing: false,
            event_due: None,
            held_off: None,
            backoff: Backoff::from(context.settings.timing.retry),
            owned: Owned::default(),
        }
    }

    /// Whether it is missing, or not as it was installed.
    fn is_wrong(&self) -> bool {
        self.watched == Watched::Missing || !self.changes.found().is_empty()
    }

    /// Its name in metrics.
    fn label(&self) -> &'static str {
        match self.phase {
            AdmissionPhase::Mutate => "mutating",
            AdmissionPhase::Validate => "validating",
        }
    }
}

impl Driver {
    async fn run(mut self, mut heard: mpsc::Receiver<(usize, News)>) {
        let signals = self.context.signals.clone();
        let mut changed = signals.changed.subscribe();
        let mut bundle = signals.bundle.subscribe();
        let mut paths = signals.paths.subscribe();
        let mut leading = signals.leading.subscribe();
        loop {
            self.look(*changed.borrow_and_update());
            self.find_changes();
            let bundle_now = bundle.borrow_and_update().clone();
            let paths_now = paths.borrow_and_update().clone();
            // Without a path nothing is filled in: what asks before replicas
            // answer would be refused.
            let filled =
                self.wanted.as_ref().zip(paths_now.as_ref()).map(|(wanted, paths)| Filled {
                    rules: wanted.rules.clone(),
                    bundle: bundle_now,
                    token: paths.register.clone(),
                });
            if *leading.borrow_and_update() {
                for index in 0..self.configurations.len() {
                    if let Some(filled) = &filled {
                        self.put_right(index, filled).await;
                    }
                    self.put_owner(index).await;
                    self.write_event(index).await;
                }
            }
            self.report(paths_now.as_ref());
            let again = self.again(*leading.borrow());
            tokio::select! {
                news = heard.recv() => match news {
                    Some((index, news)) => self.take(index, news),
                    None => return,
                },
                Ok(()) = changed.changed() => {}
                Ok(()) = bundle.changed() => {}
                Ok(()) = paths.changed() => {}
                Ok(()) = leading.changed() => {}
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
        }
    }

    /// Works out what the configurations are to say. While the kind of policies
    /// has vanished nothing is taken back: what was wanted last stays.
    fn look(&mut self, generation: u64) {
        if self.wanted.as_ref().is_some_and(|wanted| wanted.generation == generation) {
            return;
        }
        let world = self.context.world.read();
        if !world.loaded || !world.known {
            return;
        }
        let rules = rules(&world, &self.context.settings.labelled);
        let account = world.policies.identities.own.clone();
        drop(world);
        let same = self.wanted.take().map(|wanted| wanted.rules).filter(|old| **old == rules);
        let rules = same.unwrap_or_else(|| Arc::new(rules));
        self.wanted = Some(Wanted { generation, rules, account });
    }

    /// Compares both configurations with what was installed.
    fn find_changes(&mut self) {
        let settings = &self.context.settings;
        let Some(Wanted { rules, account: Some(account), .. }) = &self.wanted else { return };
        for configuration in &mut self.configurations {
            let (kind, name) = (configuration.kind, &settings.name);
            let now = configuration.watched.entries().unwrap_or_default();
            let differs =
                configuration.changes.compare(settings, (configuration.phase, account), now, rules);
            let webhooks = configuration.changes.found();
            self.context.metrics.registration_changed(configuration.label(), webhooks.len());
            if !differs {
                continue;
            }
            configuration.event_due = None;
            match webhooks.is_empty() {
                true => tracing::info!(kind, name, "the webhooks are as they were installed again"),
                false => tracing::warn!(
                    kind,
                    name,
                    ?webhooks,
                    "webhooks are not as they were installed, so the API server may not ask belay \
                     what policies need; belay does not write these fields, install belay again"
                ),
            }
        }
    }

    fn take(&mut self, index: usize, news: News) {
        let configuration = &mut self.configurations[index];
        // The API server has checked it: what cannot be read is not of a kind
        // that we know, and is left alone until the next news.
        if let Err(error) = configuration.watched.take(news) {
            let kind = configuration.kind;
            tracing::warn!(kind, %error, "the webhook configuration cannot be understood");
        }
    }

    /// Writes what differs, if anything does.
    async fn put_right(&mut self, index: usize, filled: &Filled) {
        let wanted = patch::Wanted {
            rules: &filled.rules,
            bundle: filled.bundle.as_deref(),
            token: Some(&filled.token),
        };
        let configuration = &mut self.configurations[index];
        if configuration.watched.entries().is_none() {
            // There is nothing to try again upon.
            configuration.held_off = None;
            return;
        }
        if configuration.held_off.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let name = &self.context.settings.name;
        let kind = configuration.kind;
        let mut error = None;
        for _ in 0..TRIES {
            let Some(entries) = configuration.watched.entries() else { return };
            let Some(patch) = compare(entries, configuration.phase, wanted).patch else {
                if configuration.held_off.take().is_some() {
                    tracing::info!(kind, name, "the webhook configuration is filled in again");
                }
                configuration.backoff.succeeded();
                configuration.in_place = Some(filled.clone());
                return;
            };
            // Nothing new was wanted, and still it differs: somebody took it
            // out.
            let repair = configuration.in_place.as_ref() == Some(filled);
            let params = patch_params();
            let patch = Patch::Json::<()>(patch);
            let news = match within(configuration.api.patch(name, &params, &patch)).await {
                Ok(object) => {
                    if repair {
                        self.context.metrics.registration_repaired(configuration.label());
                        tracing::warn!(
                            kind,
                            name,
                            "another client has changed the rules, the authorities or the path \
                             of the webhook configuration; belay has restored them"
                        );
                    } else {
                        tracing::info!(kind, name, "the webhook configuration is filled in");
                    }
                    // Until it is changed again nothing about it is a repair.
                    configuration.in_place = None;
                    Ok(News::Is(Box::new(object)))
                }
                // An entry is not where it was: look again. Other refusals read
                // the same, and come back.
                Err(refused) => {
                    let read = match &refused {
                        ApiError::NotFound => Ok(News::None),
                        ApiError::Forbidden(_) => Err(refused.clone()),
                        _ => read(&configuration.api, name).await,
                    };
                    error = Some(refused);
                    read
                }
            };
            match news {
                Ok(news) => drop(configuration.watched.take(news)),
                Err(unread) => {
                    error = Some(unread);
                    break;
                }
            }
        }
        if configuration.watched.entries().is_none() {
            return;
        }
        let why = match error {
            Some(error) => error.to_string(),
            None => "what the API server keeps is not what was written".to_owned(),
        };
        if configuration.held_off.is_none() {
            tracing::warn!(
                kind,
                name,
                why,
                "the webhook configuration cannot be filled in; belay tries again"
            );
        }
        let wait = configuration.backoff.next();
        configuration.held_off = Some(Instant::now() + wait);
    }

    /// Makes belay's Namespace the owner of a configuration. It is a write of its
    /// own: who is refused this fills in the rules all the same.
    async fn put_owner(&mut self, index: usize) {
        let Configuration { kind, api, watched, owned, .. } = &mut self.configurations[index];
        owned.put_right(&self.context.settings, (*kind, &*api), watched).await;
    }

    /// Says in an Event that a configuration is missing or not as it was
    /// installed, once an hour while it is so.
    async fn write_event(&mut self, index: usize) {
        let settings = &self.context.settings;
        let configuration = &mut self.configurations[index];
        let due = configuration.event_due.is_none_or(|due| due <= Instant::now());
        if !configuration.is_wrong() || !due {
            return;
        }
        configuration.event_due = Some(Instant::now() + EVENT_AGAIN);
        let (kind, now) = (configuration.kind, jiff::Timestamp::now());
        let event = match configuration.watched {
            Watched::Missing => events::missing(settings, kind, now),
            _ => events::changed(settings, kind, now, configuration.changes.found()),
        };
        if let Err(error) = create(&self.context.client, &event).await {
            tracing::warn!(
                %error,
                "the Event about a webhook configuration was not written"
            );
        }
    }

    /// Tells everybody what stands there.
    fn report(&mut self, paths: Option<&Paths>) {
        let name = &self.context.settings.name;
        let signals = &self.context.signals;
        let mut missing = Vec::new();
        let mut changed = Vec::new();
        let mut asks = self.wanted.is_some();
        let (mut bundles, mut tokens) = (Vec::new(), Vec::new());
        let mut known = true;
        for configuration in &mut self.configurations {
            let kind = configuration.kind;
            let label = configuration.label();
            let entries = match &configuration.watched {
                Watched::Unknown => {
                    (asks, known) = (false, false);
                    continue;
                }
                Watched::Missing => {
                    asks = false;
                    bundles.push(None);
                    missing.push(format!("{kind}/{name}"));
                    if !std::mem::replace(&mut configuration.told_missing, true) {
                        tracing::warn!(
                            kind,
                            name,
                            "the webhook configuration does not exist, so the API server asks \
                             nothing of it; belay never makes it, install belay again"
                        );
                        self.context.metrics.registration_missing(label, true);
                    }
                    // Whoever makes it again, it is another one.
                    configuration.in_place = None;
                    continue;
                }
                Watched::There { entries, .. } => entries,
            };
            if std::mem::take(&mut configuration.told_missing) {
                tracing::info!(kind, name, "the webhook configuration exists again");
                configuration.event_due = None;
            }
            self.context.metrics.registration_missing(label, false);
            bundles.push(bundle(entries, configuration.phase));
            // A path that replicas do not accept asks nothing.
            let token = token(entries, configuration.phase);
            asks &= token.as_ref().zip(paths).is_some_and(|(t, p)| p.accepted.contains(t));
            tokens.push(token);
            let different = configuration.changes.found().iter();
            changed.extend(different.map(|webhook| format!("{kind}/{name} webhook {webhook}")));
            let Some(wanted) = &self.wanted else { continue };
            let rules_alone = patch::Wanted { rules: &wanted.rules, bundle: None, token: None };
            let compared = compare(entries, configuration.phase, rules_alone);
            let Difference { asks: its, missing: absent, .. } = compared;
            asks &= its;
            missing.extend(absent.iter().map(|entry| format!("{kind}/{name} entry {entry}")));
            if configuration.told != absent {
                if !absent.is_empty() {
                    tracing::warn!(
                        kind,
                        name,
                        entries = ?absent,
                        "the webhook configuration lacks entries, so the API server asks less \
                         than policies need; install belay again, in the version that runs"
                    );
                }
                configuration.told = absent;
            }
        }
        self.remark.set(known && missing.is_empty() && changed.is_empty());
        let same = bundles.len() == 2 && bundles[0] == bundles[1];
        let registered = Registered {
            generation: self.wanted.as_ref().filter(|_| asks).map(|wanted| wanted.generation),
            bundle: bundles.first().copied().flatten().filter(|_| same).map(Arc::from),
            token: tokens.first().cloned().flatten().filter(|first| {
                tokens.len() == 2 && tokens.iter().all(|token| token.as_ref() == Some(first))
            }),
            missing,
            changed,
            there: self.configurations.iter().any(|c| c.watched.entries().is_some()),
        };
        signals.registered.send_if_modified(|known| {
            let differs = *known != registered;
            if differs {
                *known = registered;
            }
            differs
        });
    }

    /// When to look again though nothing has happened.
    fn again(&self, leads: bool) -> Option<Instant> {
        let of = |configuration: &Configuration| {
            let missing = configuration.watched == Watched::Missing;
            let event = configuration.event_due.filter(|_| configuration.is_wrong());
            let owner = configuration.owned.held_off.filter(|_| !missing);
            [configuration.held_off, event, owner].into_iter().flatten().min()
        };
        self.configurations.iter().filter_map(of).min().filter(|_| leads)
    }
}
