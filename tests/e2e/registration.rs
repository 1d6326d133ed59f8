//! Which requests the API server sends to the webhooks, and when: the registration on a
//! real API server. No server answers here, so a request that is sent under failurePolicy
//! Fail fails.

mod conditions;
mod helm;
mod rights;
mod selected;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belay::cluster::registration::manifests::{Address, skeleton};
use belay::cluster::registration::run;
use belay::cluster::{Context, Paths, Settings, Signals, World};
use belay::decide::AdmissionPhase;
use belay::policy::api::DeletionPolicySpec;
use belay::policy::{Policy, PolicySet};
use belay::telemetry::{Metrics, Readiness};
use belay::webhook::SecretPath;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Options, intervals};

const LIMIT: Duration = Duration::from_secs(20);

/// A separate control plane for this module: requests of other tests must not reach the
/// webhooks.
fn plane() -> &'static ControlPlane {
    static PLANE: OnceLock<Result<ControlPlane, String>> = OnceLock::new();
    let start = || {
        let options = Options { controllers: false, ..Options::default() };
        let plane = ControlPlane::start_with(&options).map_err(|error| error.to_string())?;
        plane.create_namespace("belay").map_err(|error| error.to_string())?;
        Ok(plane)
    };
    PLANE.get_or_init(start).as_ref().unwrap()
}

fn address(name: &str) -> Address {
    Address::Service { namespace: "belay".to_owned(), name: name.to_owned(), port: 443 }
}

fn account(name: &str) -> String {
    format!("system:serviceaccount:belay:{name}")
}

fn policy(groups: &[&str], resources: &[&str]) -> Value {
    json!({
        "targets": [{"apiGroups": groups, "resources": resources}],
        "protect": {"always": {}},
    })
}

fn policies(specs: &[Value]) -> PolicySet {
    let compiled = specs.iter().map(|spec| {
        let spec: DeletionPolicySpec = serde_json::from_value(spec.clone()).unwrap();
        Policy::compile("p", &spec).unwrap()
    });
    PolicySet::new(compiled.collect(), &World::default().catalogue)
}

/// An installation with the driver of one replica, which is the leader.
struct Installed {
    name: String,
    context: Context,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating: Api<MutatingWebhookConfiguration>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Installed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Installed {
    /// Installs both configurations and runs the driver.
    async fn with(name: &str, specs: &[Value]) -> Self {
        let client = plane().client().await.unwrap();
        let installed = skeleton(name, &address(name), &account(name));
        let create = PostParams::default();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        mutating.create(&create, &installed.mutating).await.unwrap();
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client);
        validating.create(&create, &installed.validating).await.unwrap();
        Self::beside(name, specs).await
    }

    /// Only the driver.
    async fn beside(name: &str, specs: &[Value]) -> Self {
        Self::driven_by(plane().client().await.unwrap(), name, specs).await
    }

    /// Only the driver, with the rights of this user.
    async fn driven_by(user: kube::Client, name: &str, specs: &[Value]) -> Self {
        let client = plane().client().await.unwrap();
        let mut world = World { loaded: true, policies_current: true, ..World::default() };
        world.policies = policies(specs);
        let context = Context {
            client: user,
            world: Arc::new(RwLock::new(world)),
            settings: Arc::new(Settings {
                certificates: belay::cluster::Certificates::Files { authorities: None },
                backfill: 0,
                timeout_seconds: 5,
                timing: intervals().parse().unwrap(),
                namespace: "belay".to_owned(),
                name: name.to_owned(),
                replica: format!("{name}-a"),
                instance: "registration-test".to_owned(),
                labelled: Vec::new(),
            }),
            metrics: Metrics::default(),
            readiness: Readiness::default(),
            signals: Arc::new(Signals::default()),
        };
        context.signals.leading.send_replace(true);
        context.signals.bundle.send_replace(Some("-----BEGIN".into()));
        let secret_path = SecretPath::parse(&"1".repeat(64)).unwrap();
        let paths = Paths { register: secret_path.clone(), accepted: vec![secret_path] };
        context.signals.paths.send_replace(Some(paths));
        let task = tokio::spawn(run(context.clone()));
        let (validating, mutating) = (Api::all(client.clone()), Api::all(client));
        Self { name: name.to_owned(), context, validating, mutating, task }
    }

    /// Waits until both webhook configurations match this change of policies.
    async fn in_place(&self, generation: u64) {
        let mut registered = self.context.signals.registered.subscribe();
        let waited = registered.wait_for(|registered| {
            registered.generation == Some(generation)
                && registered.bundle.as_deref() == Some("-----BEGIN")
        });
        let waited = tokio::time::timeout(LIMIT, waited).await.map(drop);
        let now = self.context.signals.registered.borrow().clone();
        waited.unwrap_or_else(|_| panic!("not in place: {now:?}"));
    }

    /// The resources of a webhook of the validating webhook configuration.
    async fn resources(&self, entry: &str) -> Vec<String> {
        let live = self.validating.get(&self.name).await.unwrap();
        let entry = live.webhooks.unwrap().into_iter().find(|webhook| webhook.name == entry);
        let rules = entry.unwrap().rules.unwrap_or_default();
        rules.into_iter().flat_map(|rule| rule.resources.unwrap_or_default()).collect()
    }

    fn counts(&self, line: &str) -> bool {
        self.context.metrics.encode().lines().any(|l| l == line)
    }
}

/// Waits for something that a background task does.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        crate::harness::pause_async(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_follow_policies_and_are_restored_after_they_were_emptied() {
    let it = Installed::with("reg-rules", &[policy(&["reg.example.com"], &["widgets"])]).await;
    it.in_place(0).await;
    assert_eq!(it.resources("delete.belay.dev").await, ["widgets"]);
    assert_eq!(it.resources("update.belay.dev").await, ["widgets/*"]);
    assert_eq!(it.resources("evict.belay.dev").await, ["pods/eviction"]);
    assert_eq!(it.context.readiness.describe(), "[+]registration ok\n");

    // New policies are not a repair, whatever they change.
    it.context.world.write().policies = policies(&[policy(&["reg.example.com"], &["gadgets"])]);
    it.context.signals.change();
    it.in_place(1).await;
    assert_eq!(it.resources("delete.belay.dev").await, ["gadgets"]);
    assert!(!it.context.metrics.encode().contains("registration_repairs_total{"));

    // A PUT without rules and CA bundles, as a forced install sends it.
    let repaired = |count: u32, side: &str| {
        format!("belay_registration_repairs_total{{configuration=\"{side}\"}} {count}")
    };
    for count in 1..=3 {
        let mut wiped = it.validating.get(&it.name).await.unwrap();
        for webhook in wiped.webhooks.iter_mut().flatten() {
            webhook.rules = None;
            webhook.client_config.ca_bundle = None;
        }
        it.validating.replace(&it.name, &PostParams::default(), &wiped).await.unwrap();
        let took =
            until("the repair", async || it.resources("delete.belay.dev").await == ["gadgets"])
                .await;
        assert!(took < Duration::from_secs(1), "{took:?}");
        until("the count", async || it.counts(&repaired(count, "validating"))).await;
    }
    assert!(!it.context.metrics.encode().contains("configuration=\"mutating\"} 1"));

    // Other CAs of belay are not a repair; a CA of another writer is.
    it.context.signals.bundle.send_replace(Some("-----BEGIN CERTIFICATE".into()));
    let mut registered = it.context.signals.registered.subscribe();
    let stands = registered.wait_for(|r| r.bundle.as_deref() == Some("-----BEGIN CERTIFICATE"));
    drop(tokio::time::timeout(LIMIT, stands).await.unwrap().unwrap());
    assert!(it.counts(&repaired(3, "validating")));
    let theirs =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]);
    let theirs: json_patch::Patch = serde_json::from_value(theirs).unwrap();
    let theirs = Patch::Json::<()>(theirs);
    it.mutating.patch(&it.name, &PatchParams::default(), &theirs).await.unwrap();
    until("the count", async || it.counts(&repaired(1, "mutating"))).await;

    // While the CRD of policies is missing, nothing is removed.
    {
        let mut world = it.context.world.write();
        world.policies_current = false;
        world.policies = policies(&[]);
    }
    it.context.signals.change();
    let mut wiped = it.validating.get(&it.name).await.unwrap();
    wiped.webhooks.iter_mut().flatten().for_each(|webhook| webhook.rules = None);
    it.validating.replace(&it.name, &PostParams::default(), &wiped).await.unwrap();
    until("the repair", async || it.resources("delete.belay.dev").await == ["gadgets"]).await;

    // belay does not change fields of other writers.
    let live = it.validating.get(&it.name).await.unwrap();
    let managed = live.metadata.managed_fields.unwrap_or_default();
    let ours = managed.iter().find(|entry| entry.manager.as_deref() == Some("belay")).unwrap();
    let fields = serde_json::to_string(&ours.fields_v1).unwrap();
    assert!(fields.contains("f:rules") && !fields.contains("f:failurePolicy"), "{fields}");

    it.context.signals.ending.send_replace(true);
    until("the end", async || it.task.is_finished()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstalled_webhook_configuration_stays_deleted_and_is_reported() {
    let it = Installed::with("reg-gone", &[policy(&["reg.example.com"], &["widgets"])]).await;
    it.in_place(0).await;
    it.validating.delete(&it.name, &DeleteParams::default()).await.unwrap();
    let missing = "belay_registration_missing{configuration=\"validating\"} 1";
    until("the metric", async || it.counts(missing)).await;
    assert!(it.counts("belay_registration_missing{configuration=\"mutating\"} 0"));
    let registered = it.context.signals.registered.borrow().clone();
    let name = "ValidatingWebhookConfiguration/reg-gone".to_owned();
    assert_eq!(registered.missing, [(AdmissionPhase::Validate, name)]);
    assert_eq!(registered.generation, None);
    // belay stays ready: it answers every request.
    assert!(it.context.readiness.is_ready());
    assert!(it.context.readiness.describe().starts_with("[!]registration a webhook"));

    // Only one Event is written.
    let events: Api<Event> = Api::namespaced(it.context.client.clone(), "belay");
    let about = ListParams::default().fields("involvedObject.name=reg-gone");
    until("the Event", async || events.list(&about).await.unwrap().items.len() == 1).await;
    it.context.signals.change();
    it.context.signals.bundle.send_replace(Some("-----BEGIN".into()));
    let told = events.list(&about).await.unwrap().items.pop().unwrap();
    assert_eq!(told.involved_object.kind.as_deref(), Some("ValidatingWebhookConfiguration"));
    assert_eq!(told.reason.as_deref(), Some("Missing"));

    // The other one is still updated, and this one stays deleted.
    let mut wiped = it.mutating.get(&it.name).await.unwrap();
    wiped.webhooks.iter_mut().flatten().for_each(|webhook| webhook.rules = None);
    it.mutating.replace(&it.name, &PostParams::default(), &wiped).await.unwrap();
    until("the repair", async || {
        let live = it.mutating.get(&it.name).await.unwrap();
        live.webhooks.unwrap()[0].rules.is_some()
    })
    .await;
    assert_eq!(it.validating.get_opt(&it.name).await.unwrap(), None);
    assert_eq!(events.list(&about).await.unwrap().items.len(), 1);

    // Installed again, it is filled in.
    let again = skeleton(&it.name, &address(&it.name), &account(&it.name)).validating;
    it.validating.create(&PostParams::default(), &again).await.unwrap();
    it.in_place(1).await;
    assert!(it.counts("belay_registration_missing{configuration=\"validating\"} 0"));
    assert_eq!(it.context.readiness.describe(), "[+]registration ok\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_lead_looks_and_writes_nothing() {
    let leader = Installed::with("reg-two", &[policy(&["reg.example.com"], &["widgets"])]).await;
    let other = Installed::beside("reg-two", &[policy(&["reg.example.com"], &["widgets"])]).await;
    other.context.signals.leading.send_replace(false);
    leader.in_place(0).await;
    other.in_place(0).await;
    // It knows policies that the webhook configurations lack, and reports it.
    other.context.world.write().policies = policies(&[]);
    other.context.signals.change();
    let mut registered = other.context.signals.registered.subscribe();
    let differs = registered.wait_for(|registered| registered.generation.is_none());
    drop(tokio::time::timeout(LIMIT, differs).await.unwrap().unwrap());
    assert_eq!(leader.resources("delete.belay.dev").await, ["widgets"]);
    // Until it becomes the leader.
    leader.context.signals.leading.send_replace(false);
    other.context.signals.leading.send_replace(true);
    other.in_place(1).await;
    assert_eq!(other.resources("delete.belay.dev").await, Vec::<String>::new());
}
