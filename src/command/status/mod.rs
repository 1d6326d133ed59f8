//! `kubectl belay status`: shows the policies, their coverage and the health of belay;
//! with `--plan`, the coverage of policies in files.

mod leader;
mod plan;
mod policy;
mod report;
mod unreleased;

use std::process::ExitCode;

use self::leader::Outage;
pub use self::leader::{Leader, LeaderState};
pub use self::plan::PlanReport;
use self::policy::PolicyStatus;
pub use self::policy::effects;
use self::report::{Expiry, UninstallStatus};
pub use self::report::{PauseReport, StatusReport};
use self::unreleased::UnreleasedHolds;
use super::CommandError;
use super::document::FailedRead;
use super::place::ClusterArguments;
use super::report::{ListArguments, WatchArguments};
use super::session::UserSession;
use super::webhooks::{RunningUninstall, Webhooks};
use crate::policy::api::{DeletionPolicy, Pause};
use clap::Args;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "ACTION is the action of the policy. For action Deny with whileUsed: {onDelete: Hold}, it is:\n\
                  \x20 Hold        belay accepts the DELETE if it can hold the object, which then stays\n\
                  \x20             Terminating while it is in use\n\
                  \x20 Deny, Hold  the same; the policy also has other rules, which deny\n\nExit codes: 0: healthy; 1: problems; 2: wrong arguments; 3: unknown, because a read failed"
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

pub async fn run(arguments: StatusArguments) -> Result<ExitCode, CommandError> {
    let StatusArguments { output, watch, .. } = arguments;
    if arguments.plan.plan {
        let StatusArguments { plan, cluster, .. } = arguments;
        let plan = async || plan::read(plan.clone(), cluster.clone()).await;
        return watch.print(output, true, plan).await;
    }
    watch.print(output, false, async || status(arguments.cluster.clone()).await).await
}

async fn status(cluster: ClusterArguments) -> Result<StatusReport, CommandError> {
    let session = UserSession::open(cluster).await?;
    let (policies, pauses, leader, webhooks) = tokio::join!(
        session.list_all::<DeletionPolicy>(),
        session.try_list_all::<Pause>(),
        session.leader(),
        session.webhooks(),
    );
    let now = session.me.now();
    let mut not_read = Vec::new();
    if let Err(error) = &leader {
        not_read.push(FailedRead::new("leases.coordination.k8s.io", error));
    }
    let are_pauses_read = pauses.is_ok();
    let pauses = pauses.unwrap_or_else(|error| {
        not_read.push(FailedRead::new("pauses.belay.dev", &error));
        Vec::new()
    });
    let pauses = pauses.into_iter().filter_map(|pause| PauseReport::if_active(pause, now));
    let pauses: Vec<PauseReport> = pauses.collect();
    let effect_of_outage = webhooks.effect_of_outage();
    let are_present = webhooks.are_present();
    let Webhooks { configurations, ca_expiries, not_read: unread, uninstalled, .. } = webhooks;
    not_read.extend(unread);
    let holder = leader.as_ref().ok().and_then(Option::as_ref);
    let certificate_until = holder.and_then(|info| info.certificate_until);
    let uninstall = holder.and_then(|info| RunningUninstall::new(info, now));
    let leader = match uninstall {
        Some(_) => Leader::NONE,
        None => Leader::from_lease(&leader),
    };
    let outage = Outage::new(&leader, &configurations);
    let policies = policies?;
    let mut policies: Vec<PolicyStatus> =
        policies.iter().map(|policy| PolicyStatus::new(policy, outage, now)).collect();
    if are_present {
        policies.iter_mut().for_each(PolicyStatus::replace_note_of_missing_webhooks);
    }
    // Without a leader, no replica updates the status.
    if are_pauses_read && pauses.is_empty() && outage.is_none() {
        policies.iter_mut().for_each(PolicyStatus::note_ended_pause);
    }
    // During and after an uninstall, missing rights are no problem: the uninstall removes the
    // holds.
    let unreleased_holds = match uninstall.is_none() && outage != Some(Outage::NoWebhooks) {
        true => UnreleasedHolds::read_all(&session).await,
        false => Vec::new(),
    };
    Ok(StatusReport {
        policies,
        effect_of_outage,
        uninstalled,
        unreleased_holds,
        leader,
        pauses,
        configurations,
        uninstall: uninstall.map(|lease| UninstallStatus::new(lease, &session.installation)),
        certificate: certificate_until.map(|until| Expiry::new(until, now)),
        authority: Expiry::first(ca_expiries, now),
        not_read,
    })
}
