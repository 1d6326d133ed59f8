//! The two webhook configurations of an installation. Without them, belay gets no requests.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{FailedRead, Object};
use super::duration::format_age;
use super::place::Installation;
use crate::certs;
use crate::cluster::election::{LeaderInfo, is_left_behind, leader};
use crate::cluster::registration::stored::{configuration_kind, kind_name, parse_webhooks};
use crate::cluster::uninstall::{installed, removal_step};
use crate::decide::AdmissionPhase;
use crate::lease::MAX_RENEWAL_INTERVAL;
use crate::objects::{ApiError, Kinds, ObjectRef, full_name};

/// The kind of the webhook configuration that denies requests.
pub const VALIDATING: &str = kind_name(AdmissionPhase::Validate);

/// How to create the webhook configurations again. The command does not know the state of the
/// release.
pub const INSTALL_AGAIN: &str = "helm install, or if the release still exists, helm upgrade or helm \
                                 rollback (docs/guides/uninstall.md, \"Install belay again\")";

/// The holds that a running uninstall removes.
pub const REMOVED_HOLDS: &str =
    "removes all holds, but without --abandon not those of Terminating objects in use";

/// The sentence if that configuration has no rules.
const NO_RULES: &str = "the webhook configurations of belay have no rules, so belay refuses nothing; \
                        next: kubectl belay status";

/// The sentence if the CRDs of belay don't exist.
pub const NOT_INSTALLED: &str =
    "belay is not installed in this cluster: the API server does not serve its kinds";

/// The sentence if the CRDs of belay don't exist, and the command that installs belay.
pub fn not_installed_text() -> String {
    format!(
        "{NOT_INSTALLED}; next: helm install belay charts/belay --namespace belay \
         --create-namespace (docs/guides/install.md)"
    )
}

/// The sentence if neither the configurations nor the Lease of belay exist.
pub const UNINSTALLED: &str = "belay is not installed (its CRDs remain), so it denies nothing";

/// What the API server does while no replica answers.
const REFUSES_ALL: &str = "the API server refuses every delete of a kind that a policy names";
const ACCEPTS_ALL: &str =
    "the API server accepts the deletes that policies deny (failurePolicy Ignore)";

/// A webhook configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookConfiguration {
    /// The object.
    pub object: Object,
    /// Whether it exists.
    pub present: bool,
    /// Whether it has rules. The leader adds them. Without rules the API server sends no requests.
    pub has_rules: bool,
}

/// An uninstall that holds the Lease.
#[derive(Debug, Clone)]
pub struct RunningUninstall {
    /// The name with which it has taken the Lease.
    pub name: String,
    /// When it last renewed the Lease.
    pub renewed: Timestamp,
    /// The seconds since then.
    age: i64,
}

impl RunningUninstall {
    /// `None` if a replica holds the Lease.
    pub fn new(leader: &LeaderInfo, now: Timestamp) -> Option<Self> {
        let renewed = leader.renewed.filter(|_| leader.is_uninstall())?;
        let age = now.duration_since(renewed).as_secs().max(0);
        Some(Self { name: leader.replica.clone(), renewed, age })
    }

    #[cfg(test)]
    pub fn of_age(seconds: i64) -> Option<Self> {
        let renewed = Some(Timestamp::UNIX_EPOCH);
        let replica = crate::cluster::election::uninstall_name("ann");
        let info = LeaderInfo { replica, renewed, certificate_until: None };
        Self::new(&info, Timestamp::from_second(seconds).ok()?)
    }

    /// Whether it has missed a renewal.
    pub fn may_have_stopped(&self) -> bool {
        Duration::from_secs(self.age.unsigned_abs()) > 2 * MAX_RENEWAL_INTERVAL
    }

    /// Its age, and whether it may have stopped.
    pub fn age_text(&self) -> String {
        let stopped = if self.may_have_stopped() { "; it may have stopped" } else { "" };
        format!("(last renewed {} ago{stopped})", format_age(self.age))
    }

    /// The sentence while the API server sends no DELETE to belay.
    fn text(&self) -> String {
        let age = self.age_text();
        let holds = match self.may_have_stopped() {
            true => "objects keep the holds that it has not removed".to_owned(),
            false => format!("it {REMOVED_HOLDS}"),
        };
        format!(
            "an uninstall of belay is in progress {age}: {holds}, and belay refuses nothing; next: \
             kubectl belay status"
        )
    }
}

/// The webhook configurations of an installation.
#[derive(Debug, Default)]
pub struct Webhooks {
    /// The configurations that could be read.
    pub configurations: Vec<WebhookConfiguration>,
    /// When the certificates of their CAs expire, in seconds since 1970.
    pub ca_expiries: Vec<i64>,
    /// Failed reads of the configurations.
    pub not_read: Vec<FailedRead>,
    /// Whether the API server accepts deletes while no replica answers.
    pub ignores_failures: bool,
    /// The uninstall that has deleted the configurations and holds the Lease.
    pub uninstall: Option<RunningUninstall>,
    /// The sentence if belay is uninstalled: the Lease does not exist either, or an uninstall has
    /// left it behind.
    pub uninstalled: Option<String>,
}

impl Webhooks {
    /// Reads the configurations of this installation.
    pub async fn read(client: &kube::Client, installation: &Installation, now: Timestamp) -> Self {
        let Installation { namespace, name } = installation;
        let read = async |phase| {
            let kind = configuration_kind(phase);
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            (kind, api.get_opt(name).await)
        };
        let (validating, mutating) =
            tokio::join!(read(AdmissionPhase::Validate), read(AdmissionPhase::Mutate));
        let mut webhooks = Self::default();
        if let (_, Ok(Some(configuration))) = &validating {
            let hooks = parse_webhooks(configuration.data.get("webhooks")).unwrap_or_default();
            // Only this webhook counts: some others ignore failures in every installation.
            webhooks.ignores_failures =
                hooks.iter().any(|hook| hook.judges_deletes() && hook.ignores_failures());
            for bundle in hooks.iter().filter_map(|hook| hook.bundle()) {
                let certificates = certs::certificates(bundle).unwrap_or_default();
                webhooks.ca_expiries.extend(certificates.iter().filter_map(certs::expiry));
            }
        }
        for (kind, found) in [validating, mutating] {
            webhooks.add(&kind, name, found);
        }
        if webhooks.are_inactive() {
            let holder = leader(client, (namespace, name), now).await.ok().flatten();
            webhooks.uninstall = holder.and_then(|holder| RunningUninstall::new(&holder, now));
        }
        if webhooks.not_read.is_empty() && webhooks.configurations.iter().all(|c| !c.present) {
            webhooks.uninstalled = uninstalled_text(client, installation).await;
        }
        webhooks
    }

    fn add(
        &mut self,
        kind: &ApiResource,
        name: &str,
        found: Result<Option<DynamicObject>, kube::Error>,
    ) {
        match found {
            Ok(found) => {
                let target = ObjectRef::new((&kind.group, &kind.plural), "", name);
                let object = Object::of(&target, &Kinds::default());
                let (present, has_rules) = (found.is_some(), found.as_ref().is_some_and(has_rules));
                self.configurations.push(WebhookConfiguration { object, present, has_rules });
            }
            Err(error) => {
                let resource = full_name(&kind.group, &kind.plural);
                self.not_read.push(FailedRead::new(&resource, &ApiError::from(error)));
            }
        }
    }

    /// Whether it is known that both configurations exist.
    pub fn are_present(&self) -> bool {
        self.not_read.is_empty() && self.configurations.iter().all(|found| found.present)
    }

    /// What the API server does while belay is down.
    pub fn effect_of_outage(&self) -> &'static str {
        if self.ignores_failures { ACCEPTS_ALL } else { REFUSES_ALL }
    }

    /// The sentence if no replica is the leader.
    pub fn no_leader_text(&self) -> String {
        let effect = self.effect_of_outage();
        format!("belay has no leader: while it is down, {effect}; next: check that its Pods run")
    }

    /// Whether it is known that the API server sends no DELETE to belay.
    pub fn are_inactive(&self) -> bool {
        are_inactive(&self.configurations)
    }

    /// Why belay refuses nothing, with the next step; `None` if the API server may send DELETEs to
    /// belay.
    pub fn why_inactive(&self) -> Option<String> {
        let denying = self.configurations.iter().find(|found| found.is_inactive_and_denies())?;
        Some(match &self.uninstall {
            Some(uninstall) => uninstall.text(),
            None if denying.present => NO_RULES.to_owned(),
            None => format!(
                "the webhook configurations of belay are missing, so belay refuses nothing; next: \
                 install belay again: {INSTALL_AGAIN}"
            ),
        })
    }
}

impl WebhookConfiguration {
    /// Whether it is the configuration that denies requests, and the API server sends none.
    fn is_inactive_and_denies(&self) -> bool {
        !self.has_rules && self.object.kind == VALIDATING
    }
}

/// Whether it is known that the API server sends no DELETE to belay.
pub fn are_inactive(configurations: &[WebhookConfiguration]) -> bool {
    configurations.iter().any(WebhookConfiguration::is_inactive_and_denies)
}

/// Whether a webhook of a configuration has rules.
fn has_rules(configuration: &DynamicObject) -> bool {
    let webhooks = configuration.data["webhooks"].as_array();
    let mut rules =
        webhooks.into_iter().flatten().filter_map(|webhook| webhook["rules"].as_array());
    rules.any(|rules| !rules.is_empty())
}

/// The sentence if belay is uninstalled, with the next step. The webhook configurations of this
/// installation don't exist.
async fn uninstalled_text(
    client: &kube::Client,
    Installation { namespace, name }: &Installation,
) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match leases.get_opt(name).await {
        Ok(None) if matches!(installed(client).await, Ok(None)) => Some(UNINSTALLED.to_owned()),
        Ok(Some(lease)) if is_left_behind(&lease) => {
            let owner = lease.metadata.owner_references?.into_iter().next()?;
            let step = removal_step(client, namespace, &owner).await;
            Some(format!(
                "belay is uninstalled, so it denies nothing, but its replicas still run; next: {step}"
            ))
        }
        _ => None,
    }
}
