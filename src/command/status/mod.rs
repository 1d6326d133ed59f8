//! `kubectl belay status`: shows the policies, their coverage and the health of belay;
//! with `--plan`, the coverage of policies in files.

mod plan;
mod report;

use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;

pub use self::plan::PlanReport;
use self::report::{Expiry, Outage, PolicyStatus, VALIDATING, WebhookConfiguration};
pub use self::report::{Leader, LeaderState, PauseReport, StatusReport, effects};
use super::document::{FailedRead, Object};
use super::place::ClusterArguments;
use super::report::{ListArguments, WatchArguments};
use super::session::UserSession;
use super::{CommandError, block_on};
use crate::certs;
use crate::objects::{ApiError, Kinds, ObjectRef, full_name};
use crate::policy::api::{DeletionPolicy, Pause};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 healthy, 1 problems, 2 wrong arguments, 3 unknown (failed reads)"
)]
pub struct StatusArguments {
    #[command(flatten)]
    plan: plan::PlanArguments,

    #[command(flatten)]
    output: ListArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

pub fn run(arguments: StatusArguments) -> Result<ExitCode, CommandError> {
    let StatusArguments { output, watch, .. } = arguments;
    if arguments.plan.plan {
        let StatusArguments { plan, cluster, .. } = arguments;
        let plan = async || plan::read(plan.clone(), cluster.clone()).await;
        return block_on(watch.print(output, true, plan))?;
    }
    block_on(watch.print(output, false, async || status(arguments.cluster.clone()).await))?
}

async fn status(cluster: ClusterArguments) -> Result<StatusReport, CommandError> {
    let session = UserSession::open(cluster).await?;
    let (policies, pauses, leader, (configurations, ca_expiries)) = tokio::join!(
        session.list_all::<DeletionPolicy>(),
        session.try_list_all::<Pause>(),
        session.leader(),
        configurations(&session),
    );
    let now = session.now();
    let mut not_read = Vec::new();
    if let Err(error) = &leader {
        not_read.push(FailedRead::new("leases.coordination.k8s.io", error));
    }
    let pauses = pauses.unwrap_or_else(|error| {
        not_read.push(FailedRead::new("pauses.belay.dev", &error));
        Vec::new()
    });
    let configurations = configurations.into_iter().filter_map(|read| match read {
        Ok(configuration) => Some(configuration),
        Err(unread) => {
            not_read.push(unread);
            None
        }
    });
    let configurations: Vec<WebhookConfiguration> = configurations.collect();
    let certificate_until =
        leader.as_ref().ok().and_then(Option::as_ref).and_then(|info| info.certificate_until);
    let leader = Leader::from_lease(&leader);
    let outage = Outage::new(&leader, &configurations);
    let policies = policies?;
    Ok(StatusReport {
        policies: policies.iter().map(|policy| PolicyStatus::new(policy, outage, now)).collect(),
        leader,
        pauses: pauses.into_iter().filter_map(|pause| PauseReport::if_active(pause, now)).collect(),
        configurations,
        certificate: certificate_until.map(|until| Expiry::new(until, now)),
        authority: Expiry::first(ca_expiries, now),
        not_read,
    })
}

/// Reads the webhook configurations and the expiry of their CA certificates.
async fn configurations(
    session: &UserSession,
) -> (Vec<Result<WebhookConfiguration, FailedRead>>, Vec<i64>) {
    let client = &session.caller.client;
    let (_, name) = &session.installation;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let (validating, mutating) = tokio::join!(validating.get_opt(name), mutating.get_opt(name));
    let kinds = Kinds::default();
    let mut ca_expiries = Vec::new();
    let hooks = validating.as_ref().ok().and_then(Option::as_ref);
    let hooks =
        hooks.and_then(|configuration| configuration.webhooks.as_ref()).into_iter().flatten();
    for bundle in hooks.filter_map(|hook| hook.client_config.ca_bundle.as_ref()) {
        let certificates = certs::certificates(&bundle.0).unwrap_or_default();
        ca_expiries.extend(certificates.iter().filter_map(certs::expiry));
    }
    let report = |kind: &str, present: Result<bool, kube::Error>| {
        let resource = format!("{}s", kind.to_lowercase());
        let group = "admissionregistration.k8s.io".to_owned();
        let target = ObjectRef { resource, group, name: name.clone(), ..ObjectRef::default() };
        match present {
            Ok(present) => {
                let object = Object { kind: kind.to_owned(), ..Object::of(&target, &kinds) };
                Ok(WebhookConfiguration { object, present })
            }
            Err(error) => {
                let resource = full_name(&target.group, &target.resource);
                Err(FailedRead::new(&resource, &ApiError::from(error)))
            }
        }
    };
    let all = vec![
        report(VALIDATING, validating.map(|object| object.is_some())),
        report("MutatingWebhookConfiguration", mutating.map(|object| object.is_some())),
    ];
    (all, ca_expiries)
}
