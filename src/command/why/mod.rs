//! `belay why`: explains what blocks the deletion of an object by the current user.

mod approvers;
mod automatic;
mod content;
mod manager;
mod rbac;
mod report;
mod terminating;

use std::process::ExitCode;

use clap::Args;
use kube::api::PropagationPolicy;

pub use self::approvers::{Approvers, NeededApproval, needed_approvals};
use self::content::NamespaceStay;
pub use self::rbac::RbacReader;
use self::report::SharedReads;
pub use self::report::WhyReport;
use super::CommandError;
use super::delete_answer::{DeleteAnswer, ServerAnswer, policies_release_holds};
use super::diagnosis::{Unreleased, finalizers_of, verdict_on_delete, verdict_on_orphaning};
use super::document::FailedRead;
use super::place::SourceArguments;
use super::report::{OutputArguments, print_each};
use super::target::{
    TargetArguments, TargetObject, Targets, UnreadTarget, read_rules, unknown_policies_text,
};
use super::webhooks::Webhooks;
use crate::cluster::Snapshot;
use crate::decide::Verdict;
use crate::objects::is_hold;

#[derive(Debug, Args)]
pub struct WhyArguments {
    #[command(flatten)]
    targets: TargetArguments,

    #[command(flatten)]
    from: SourceArguments,

    #[command(flatten)]
    output: OutputArguments,
}

pub async fn run(arguments: WhyArguments) -> Result<ExitCode, CommandError> {
    let WhyArguments { targets, from, output } = arguments;
    let Targets { session, objects, unread } = targets.read(&from).await?;
    unread.iter().for_each(|unread| unread.error.print());
    let snapshot = read_rules(&session, &objects).await?;
    let loaded = snapshot.context.world.read().loaded;
    if !loaded && session.asks_files() {
        return Err(CommandError::Remote(unknown_policies_text(&session, &snapshot)));
    }
    let mut shared = SharedReads::read(&session).await;
    let mut reports = Vec::new();
    for target in &objects {
        let (local, server) = tokio::join!(
            async {
                match loaded {
                    true => verdict_on_delete(target, &snapshot).await.map(Some),
                    // Without belay's kinds, there is no policy.
                    false if !snapshot.is_installed() => {
                        Ok(Some(Verdict::allow(target.object_ref.clone())))
                    }
                    false => Ok(None),
                }
            },
            async {
                // The API server has already accepted the DELETE of a Terminating object.
                if session.asks_files() || target.terminating_since().is_some() {
                    return None;
                }
                let object = (&target.object_ref, target.uid());
                Some(ServerAnswer::ask(&session.caller, &target.info, object, None).await)
            },
        );
        let complete = snapshot.unread().is_empty();
        let answer =
            DeleteAnswer::merge(&target.object_ref, local?, complete, server, &shared.webhooks);
        let is_asked = !session.asks_files() && target.terminating_since().is_none();
        let stay = match is_asked && answer.deletes() && !shared.webhooks.are_inactive() {
            true => NamespaceStay::read(target, &snapshot).await,
            false => NamespaceStay::default(),
        };
        let is_held = finalizers_of(&target.json).into_iter().any(is_hold);
        let unreleased = match is_asked && is_held && answer.refused.is_none() {
            true => {
                let is_named = policies_release_holds(&snapshot, &target.info);
                Unreleased::read(&session, &target.info, is_named).await
            }
            false => None,
        };
        // If the API server itself refuses the DELETE, it refuses every cascade.
        let is_refused = answer.refused.is_some();
        let report = WhyReport::new(target, &snapshot, answer, &mut shared).await;
        let report = report.with_stay(stay).with_unreleased(unreleased);
        reports.push(
            match orphaning_answer(target, &snapshot, is_refused, &shared.webhooks).await {
                Some(answer) => report.with_orphaning(&snapshot, answer),
                None => report,
            },
        );
    }
    let not_read = unread.into_iter().map(|UnreadTarget { typed, error }| FailedRead {
        resource: typed,
        why: error.to_string(),
    });
    print_each(reports, not_read.collect(), output)
}

/// The answer about a DELETE with `--cascade=orphan`; `None` if it is the same for every cascade.
async fn orphaning_answer(
    target: &TargetObject,
    snapshot: &Snapshot,
    is_refused: bool,
    webhooks: &Webhooks,
) -> Option<DeleteAnswer> {
    let TargetObject { session, object_ref, .. } = target;
    let loaded = snapshot.context.world.read().loaded;
    let local = match loaded {
        true => Some(verdict_on_orphaning(target, snapshot).await?),
        // The content of a Namespace is deleted with every cascade.
        false if target.terminating_since().is_some() || object_ref.is_namespace() => return None,
        false => None,
    };
    let server = match session.asks_files() || is_refused {
        true => None,
        false => {
            let object = (object_ref, target.uid());
            let orphan = Some(PropagationPolicy::Orphan);
            Some(ServerAnswer::ask(&session.caller, &target.info, object, orphan).await)
        }
    };
    let complete = snapshot.unread().is_empty();
    Some(DeleteAnswer::merge(object_ref, local, complete, server, webhooks))
}
