//! `belay stuck`: everything that has been Terminating for too long, and why.
//! It changes nothing, and needs no belay in the cluster.

mod cause;
mod finalizer;
mod finding;
mod namespace;
mod refused;
mod report;
#[cfg(test)]
mod tests;
mod text;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};

pub use self::cause::{Hold, Known, findings};
pub use self::finding::{Cause, Finding};
pub use self::report::Report;
use self::report::Stuck;
use super::duration::{duration, format_duration};
use super::hold_state::HoldState;
use super::place::{FromArguments, PlaceArguments, ScopeArguments};
use super::screen::{Format, OutputArguments, Progress, Screen};
use super::visitor::Visitor;
use super::{CommandError, block_on, print};
use crate::cluster::Snapshot;
use crate::cluster::terminating::{Found, evidence, read_whole, survey};
use crate::objects::is_hold;

/// So many objects are read, and holds counted, at once.
const AT_ONCE: usize = 8;

/// Of so many holds it is counted for whom they are, unless all is asked for:
/// each takes live reads.
const COUNTED: usize = 30;

/// Of so many objects the Events are read, unless all is asked for: of a
/// thousand that are stuck most are so for the reason of the first.
const ASKED: usize = 60;

#[derive(Debug, Args)]
pub struct StuckArguments {
    #[command(flatten)]
    scope: ScopeArguments,

    #[command(flatten)]
    from: FromArguments,

    /// Leave out objects that have been Terminating for less time
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    longer_than: Duration,

    #[command(flatten)]
    output: OutputArguments,

    #[command(flatten)]
    place: PlaceArguments,
}

pub fn run(arguments: StuckArguments) -> Result<ExitCode, CommandError> {
    block_on(stuck(arguments))?
}

async fn stuck(arguments: StuckArguments) -> Result<ExitCode, CommandError> {
    let StuckArguments { scope, from, longer_than, output, place } = arguments;
    let visitor = match from.archive(&place)? {
        Some(archive) => Visitor::of_files(archive, &place).await?,
        None => Visitor::open(place).await?,
    };
    let namespace = scope.namespace(&visitor.caller, &from);
    let snapshot = visitor.rules().await?;
    let progress = Progress::begin();
    let survey = survey(&snapshot, &namespace, &|done, all, objects| {
        progress.say(|| format!("reading kind {done} of {all} … {objects} objects"));
    })
    .await;
    let now = visitor.now();
    let longest = SignedDuration::try_from(longer_than).unwrap_or(SignedDuration::MAX);
    let before = now.saturating_sub(longest).unwrap_or(Timestamp::MIN);
    let late = survey.found.iter().filter(|found| found.since <= before).cloned();
    let snapshot = &snapshot;
    let read = late.map(|mut found| async move {
        if says_more(&found) {
            read_whole(snapshot, &mut found).await;
        }
        found
    });
    let late: Vec<Found> = futures_util::stream::iter(read).buffered(AT_ONCE).collect().await;
    progress.say(|| format!("asking why {} objects do not go", late.len()));
    // What a program reads leaves nothing out.
    let all = output.all || output.output != Format::Table;
    let most = |few: usize| if all { usize::MAX } else { few };
    let found: Vec<&Found> = late.iter().collect();
    let (evidence, holds) = tokio::join!(
        evidence(snapshot, &found, &survey, most(ASKED)),
        holds(&visitor, snapshot, &late, most(COUNTED)),
    );
    let items = late.iter().map(|found| {
        let hold = holds.get(&found.uid).cloned().unwrap_or_default();
        Stuck::new(found, findings(found, &survey, &evidence, &hold), now)
    });
    let report = Report {
        items: items.collect(),
        not_read: survey.unread.iter().cloned().map(Into::into).collect(),
        evidence_not_read: evidence.unread.iter().cloned().map(Into::into).collect(),
        of_files: visitor.asks_files(),
        place: namespace,
        longer_than: format_duration(longer_than),
    };
    drop(progress);
    print(&report.rendered(output, Screen::stdout())?)?;
    Ok(report.exit_code())
}

/// Whether more than its metadata says why it stays.
fn says_more(found: &Found) -> bool {
    let kinds = [
        "namespaces",
        "pods",
        "persistentvolumes",
        "customresourcedefinitions.apiextensions.k8s.io",
    ];
    kinds.contains(&found.info.full_name().as_str()) || is_held(found)
}

fn is_held(found: &Found) -> bool {
    text::texts(found.object.pointer("/metadata/finalizers")).into_iter().any(is_hold)
}

/// For whom belay holds what it holds.
async fn holds(
    visitor: &Visitor,
    snapshot: &Snapshot,
    late: &[Found],
    most: usize,
) -> HashMap<String, Hold> {
    let held: Vec<&Found> = late.iter().filter(|found| is_held(found)).collect();
    if held.is_empty() {
        return HashMap::new();
    }
    // A dump may leave belay out that its cluster has.
    let installed = snapshot.is_installed() || visitor.asks_files();
    // Whoever may not read the Lease is told nothing about it.
    let unled = installed && matches!(visitor.leader().await, Ok(None));
    // Without the policies nothing would seem to be protected.
    let counts = installed && snapshot.context.world.read().loaded;
    let holds = held.into_iter().enumerate().map(|(index, found)| async move {
        let waits = match (counts, index < most) {
            (true, true) => waits(snapshot, found).await,
            (true, false) => Known::NotAsked,
            (false, _) => Known::Unknown,
        };
        (found.uid.clone(), Hold { waits, installed, unled })
    });
    futures_util::stream::iter(holds).buffer_unordered(AT_ONCE).collect().await
}

async fn waits(snapshot: &Snapshot, found: &Found) -> Known {
    let (kind, near) = {
        let kinds = &snapshot.context.world.read().graph.kinds;
        let kind = kinds.find_resource(&found.info.group, &found.info.resource);
        (kind, kinds.find("", "Namespace"))
    };
    let Some(kind) = kind else { return Known::Unknown };
    if let Some(near) = near.filter(|_| !found.namespace.is_empty()) {
        // If it cannot be read, the count says that its labels are not known.
        let _ = snapshot.look_up(near, "", &found.namespace).await;
    }
    snapshot.put(kind, &found.object);
    let place = (kind, found.namespace.clone(), found.name.clone());
    Known::of(HoldState::of(snapshot, &place, &found.object).await)
}
