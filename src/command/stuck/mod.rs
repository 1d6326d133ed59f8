//! `belay stuck`: all objects that have been Terminating for too long, and the reasons. It
//! changes nothing, and needs no belay in the cluster.

mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};

pub use self::report::{StuckObject, StuckReport};
use super::CommandError;
use super::delete_answer::{policies_release_holds, users_of_hold};
use super::diagnosis::{
    Hold, HoldState, UndoAdviser, Unreleased, finalizers_of, find_causes, guarded_finalizers,
    may_deny_orphaning, orphaning_denials,
};
use super::duration::{format_duration, parse_duration};
use super::place::{ClusterArguments, ScopeArguments, SourceArguments};
use super::report::{Format, ListArguments, WatchArguments};
use super::screen::Progress;
use super::session::UserSession;
use super::target::add_object;
use crate::cluster::Snapshot;
use crate::cluster::terminating::{
    Evidence, Survey, TerminatingObject, evidence, read_whole, survey,
};
use crate::objects::{KindInfo, is_hold, order_by_turns, text_at};

/// The number of concurrent reads of objects and counts of holds.
const MAX_CONCURRENT: usize = 8;

/// The users are counted for at most this many holds, and belay decides about the dependents of at
/// most this many owners, unless the user requests all: both take live reads.
const MAX_CHECKED: usize = 30;

/// The number of objects whose Events are read, unless the user requests all: many stuck
/// objects usually have the same reason.
const MAX_EVENT_READS: usize = 60;

#[derive(Debug, Clone, Args)]
pub struct StuckArguments {
    #[command(flatten)]
    scope: ScopeArguments,

    #[command(flatten)]
    from: SourceArguments,

    /// Leave out objects that have been Terminating for less time
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    longer_than: Duration,

    #[command(flatten)]
    output: ListArguments,

    #[command(flatten)]
    watch: WatchArguments,

    #[command(flatten)]
    place: ClusterArguments,
}

pub async fn run(arguments: StuckArguments) -> Result<ExitCode, CommandError> {
    let StuckArguments { output, watch, .. } = arguments;
    let files = arguments.from.is_given();
    watch.print(output, files, async || stuck(arguments.clone()).await).await
}

async fn stuck(arguments: StuckArguments) -> Result<StuckReport, CommandError> {
    let StuckArguments { scope, from, longer_than, output, place, .. } = arguments;
    let session = match from.archive(&place)? {
        Some(archive) => UserSession::of_files(archive, &place).await?,
        None => UserSession::open(place).await?,
    };
    let namespace = scope.namespace(&session.caller, &from);
    let snapshot = session.read_rules().await?;
    let progress = Progress::begin();
    let near = session.caller.namespace.as_str();
    let survey = survey(&snapshot, (&namespace, near), &|done, all, objects| {
        progress.say(|| format!("reading kind {done} of {all} … {objects} objects"));
    })
    .await;
    let now = session.me.now();
    let longest = SignedDuration::try_from(longer_than).unwrap_or(SignedDuration::MAX);
    let before = now.saturating_sub(longest).unwrap_or(Timestamp::MIN);
    let late = survey.objects.iter().filter(|object| object.since <= before).cloned();
    let snapshot = &snapshot;
    let late = read_late(snapshot, late).await;
    progress.say(|| format!("finding out why {} objects stay Terminating", late.len()));
    // Output for programs is complete.
    let all = output.all || !matches!(output.output, Format::Table | Format::Wide);
    let (items, evidence) = explain(&session, snapshot, &survey, &late, all).await;
    Ok(StuckReport {
        items,
        not_read: survey.unread.iter().cloned().map(Into::into).collect(),
        evidence_not_read: evidence.unread.iter().cloned().map(Into::into).collect(),
        of_files: session.asks_files(),
        place: namespace,
        longer_than: format_duration(longer_than),
    })
}

/// Explains why the objects with these uids stay Terminating. `namespace`: the namespace of all
/// of them; empty: they are in several, or cluster-scoped.
pub async fn explain_objects(
    session: &UserSession,
    namespace: &str,
    uids: &HashSet<String>,
) -> Result<Vec<StuckObject>, CommandError> {
    let snapshot = session.read_rules().await?;
    let near = session.caller.namespace.as_str();
    let survey = survey(&snapshot, (namespace, near), &|_, _, _| {}).await;
    let remaining = survey.objects.iter().filter(|object| uids.contains(&object.uid)).cloned();
    let remaining = read_late(&snapshot, remaining).await;
    Ok(explain(session, &snapshot, &survey, &remaining, false).await.0)
}

/// The objects as `explain` needs them.
async fn read_late(
    snapshot: &Snapshot,
    late: impl Iterator<Item = TerminatingObject>,
) -> Vec<TerminatingObject> {
    let read = late.map(|mut object| async move {
        if needs_whole(&object) {
            read_whole(snapshot, &mut object).await;
        }
        object
    });
    futures_util::stream::iter(read).buffered(MAX_CONCURRENT).collect().await
}

/// Finds the causes why these objects stay. `all`: without the limits of reads.
async fn explain(
    session: &UserSession,
    snapshot: &Snapshot,
    survey: &Survey,
    late: &[TerminatingObject],
    all: bool,
) -> (Vec<StuckObject>, Evidence) {
    let most = |few: usize| if all { usize::MAX } else { few };
    let by_turns = order_by_turns(late, most(MAX_EVENT_READS), namespace_of);
    let (mut evidence, holds) = tokio::join!(
        evidence(snapshot, &by_turns, survey, most(MAX_EVENT_READS)),
        check_holds(session, snapshot, late, most(MAX_CHECKED)),
    );
    evidence.guarded = guarded_finalizers(session, snapshot, late).await;
    let owners = late.iter().filter(|object| may_deny_orphaning(snapshot, survey, object));
    let owners: Vec<&TerminatingObject> = owners.collect();
    let owners = order_by_turns(&owners, most(MAX_CHECKED), |owner| namespace_of(owner));
    for (index, owner) in owners.into_iter().enumerate() {
        if index >= most(MAX_CHECKED) {
            evidence.unchecked_orphaning.insert(owner.uid.clone());
            continue;
        }
        let denials = orphaning_denials(session, snapshot, survey, owner).await;
        evidence.orphaning_denials.insert(owner.uid.clone(), denials);
    }
    let now = session.me.now();
    let (mut items, mut adviser) = (Vec::new(), UndoAdviser::new(session));
    for object in late {
        let hold = holds.get(&object.uid).cloned().unwrap_or_default();
        let causes = find_causes(object, survey, &evidence, &hold, now);
        let mut item = StuckObject::new(object, causes, now);
        if item.loses_data {
            let volume = text_at(&object.object, "/spec/volumeName");
            item.undo = adviser.advice(&object.object_ref, volume).await;
        }
        items.push(item);
    }
    (items, evidence)
}

/// The namespace of an object. Namespaces take turns.
fn namespace_of(object: &TerminatingObject) -> &str {
    &object.object_ref.namespace
}

/// Whether the metadata of an object does not explain why it stays.
fn needs_whole(object: &TerminatingObject) -> bool {
    let kinds = [
        "namespaces",
        "pods",
        "persistentvolumeclaims",
        "persistentvolumes",
        "customresourcedefinitions.apiextensions.k8s.io",
    ];
    kinds.contains(&object.info.full_name().as_str()) || is_held(object)
}

fn is_held(object: &TerminatingObject) -> bool {
    finalizers_of(&object.object).into_iter().any(is_hold)
}

/// belay's holds on these objects, by the uid of the object. The users of at most this many holds
/// are counted.
async fn check_holds(
    session: &UserSession,
    snapshot: &Snapshot,
    late: &[TerminatingObject],
    most: usize,
) -> HashMap<String, Hold> {
    let held: Vec<&TerminatingObject> = late.iter().filter(|object| is_held(object)).collect();
    if held.is_empty() {
        return HashMap::new();
    }
    // belay may be installed in the cluster although the files do not contain it.
    let installed = snapshot.is_installed() || session.asks_files();
    // A user who may not read the Lease does not see who is the leader.
    let no_leader = installed && session.lacks_leader().await;
    let held = order_by_turns(&held, most, |held| namespace_of(held));
    let checked = held.iter().take(if installed { most } else { 0 });
    let kinds: BTreeMap<String, &KindInfo> =
        checked.map(|held| (held.info.full_name(), &held.info)).collect();
    let unreleased = kinds.into_iter().map(|(kind, info)| async move {
        (kind, Unreleased::read(session, info, policies_release_holds(snapshot, info)).await)
    });
    let unreleased = futures_util::stream::iter(unreleased).buffer_unordered(MAX_CONCURRENT);
    let unreleased: HashMap<String, Option<Unreleased>> = unreleased.collect().await;
    let unreleased = &unreleased;
    let holds = held.into_iter().enumerate().map(|(index, held)| async move {
        let state = match installed && index < most {
            true => {
                let unreleased = unreleased.get(&held.info.full_name()).cloned().flatten();
                Some(check_hold(session, snapshot, held).await.with_unreleased(unreleased))
            }
            false => None,
        };
        let is_left_out = installed && index >= most;
        (held.uid.clone(), Hold { state, is_left_out, installed, no_leader })
    });
    futures_util::stream::iter(holds).buffer_unordered(MAX_CONCURRENT).collect().await
}

/// What the hold waits for, if belay releases holds on objects of the kind.
async fn check_hold(
    session: &UserSession,
    snapshot: &Snapshot,
    held: &TerminatingObject,
) -> HoldState {
    add_object(snapshot, &held.object_ref, &held.object).await;
    users_of_hold(session, snapshot, (&held.info, &held.object_ref), &held.object).await
}
