//! `belay why`: what stands against the end of an object, now and for me.

mod approvers;
mod manager;
mod rbac;
mod report;
mod resolves;
mod terminating;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

pub use self::report::Report;
use super::document::document;
use super::place::FromArguments;
use super::screen::OutputArguments;
use super::target::{Session, TargetArguments, unprotected};
use super::{CommandError, block_on, print};
use crate::cluster::Snapshot;
use crate::decide::{
    AdmissionPhase, DeleteOptions, Operation, Resource, Review, ReviewDetails, User, Verdict,
};
use crate::objects::{Object, is_namespace};

/// How long the live reads of a verdict may take.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct WhyArguments {
    #[command(flatten)]
    target: TargetArguments,

    #[command(flatten)]
    from: FromArguments,

    #[command(flatten)]
    output: OutputArguments,
}

pub fn run(arguments: WhyArguments) -> Result<ExitCode, CommandError> {
    block_on(why(arguments))?
}

async fn why(arguments: WhyArguments) -> Result<ExitCode, CommandError> {
    let WhyArguments { target, from, output } = arguments;
    let session = target.open_in(&from).await?;
    let snapshot = session.rules().await?;
    if !snapshot.context.world.read().loaded {
        return Err(CommandError::Remote(unprotected(&session, &snapshot)));
    }
    snapshot.objects(session.near()).await;
    let verdict = verdict(&session, &snapshot).await?;
    let report = Report::new(&session, &snapshot, &verdict).await;
    print(&match document(output.output, &report)? {
        Some(document) => document,
        None => report.text(output.all),
    })?;
    Ok(report.exit_code())
}

/// The verdict on a plain DELETE by whoever asks. Nothing is sent: the question
/// is put as the API server would, as a dry run.
pub async fn verdict(session: &Session, snapshot: &Snapshot) -> Result<Verdict, CommandError> {
    let text = session.object.to_string();
    let object: Object<'_> = serde_json::from_str(&text)
        .map_err(|_| CommandError::Remote("the API server's answer is no object".to_owned()))?;
    let target = &session.target;
    // Of a Namespace a request says its own name as its namespace, too.
    let is_namespace = is_namespace(&target.group, &target.resource);
    let namespace = if is_namespace { &target.name } else { &target.namespace };
    let whole = serde_json::value::to_raw_value(&session.object).ok();
    let review = Review {
        uid: "".into(),
        phase: AdmissionPhase::Validate,
        operation: Operation::Delete,
        resource: Resource {
            group: target.group.as_str().into(),
            resource: target.resource.as_str().into(),
            subresource: "".into(),
        },
        name: target.name.as_str().into(),
        namespace: namespace.as_str().into(),
        user: User {
            name: session.visitor.me.name.as_str().into(),
            groups: session.visitor.me.groups.iter().map(|group| group.as_str().into()).collect(),
        },
        dry_run: true,
        options: DeleteOptions::default(),
        object: None,
        old_object: Some(object),
        details: ReviewDetails::read(whole.as_deref(), None),
        labelled: false,
    };
    Ok(snapshot.decide(&review, Instant::now() + LIMIT).await)
}
