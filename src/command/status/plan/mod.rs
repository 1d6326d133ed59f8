//! `kubectl belay status --plan`: shows the coverage of policies in files. belay need not
//! be installed.
//!
//! ```text
//!  -f policies ─► rules ─┬► cluster: Snapshot, a list of each kind ─┐
//!                        └► --from: files::World ───────────────────┴► Tally ─► report
//! ```

mod report;
mod tally;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize as _;
use serde_json::{Value, json};

pub use self::report::PlanReport;
use self::tally::PlanCounts;
use crate::cluster::World;
use crate::cluster::feed::plan::{policies, targets};
use crate::command::CommandError;
use crate::command::document::FailedRead;
use crate::command::files::{self, read_nonempty, stdin_once};
use crate::command::place::ClusterArguments;
use crate::command::screen::Progress;
use crate::command::session::UserSession;
use crate::command::target::SILENT;
use crate::decide::{ObjectSource, Situation};
use crate::graph::Graph;
use crate::objects::{KindId, KindInfo, Object};
use crate::policy::{Identities, PolicySet};

#[derive(Debug, Clone, Args)]
pub struct PlanArguments {
    /// Show what policies in files would cover. belay and its CRDs need not be installed
    #[arg(long, requires = "filename")]
    pub plan: bool,

    /// With --plan: policies and relations, as files, folders, or - for standard input
    #[arg(short, long, value_name = "FILE|DIR|-", requires = "plan", value_delimiter = ',')]
    filename: Vec<PathBuf>,

    /// With --plan, use the objects in files instead of a cluster: a folder, manifests,
    /// the output of kubectl get -o yaml, or - for standard input
    #[arg(long, value_name = "DIR|FILE|-", requires = "plan", value_delimiter = ',')]
    from: Vec<PathBuf>,
}

/// Reads both, and counts.
pub async fn read(
    arguments: PlanArguments,
    place: ClusterArguments,
) -> Result<PlanReport, CommandError> {
    let PlanArguments { filename, from, .. } = arguments;
    stdin_once(filename.iter().chain(&from))?;
    let files = read_nonempty(&filename)?;
    let rules = files::read_rules(&files)?;
    if rules.specs.is_empty() {
        let text = "-f names no DeletionPolicy; name the files or folders that have one";
        return Err(CommandError::Usage(text.to_owned()));
    }
    match from.is_empty() {
        true => of_cluster(rules, place).await,
        false => {
            place.asks_no_cluster()?;
            of_files(rules, &files, &from, &place.installation()?.0)
        }
    }
}

/// The time of a plan: a pause releases nothing, and approvals are not part of a plan.
const WHENEVER: i64 = 0;

fn situation<'w>(graph: &'w Graph, policies: &'w PolicySet) -> Situation<'w> {
    Situation::new(graph, policies, ObjectSource::Files, WHENEVER)
}

async fn of_cluster(
    rules: files::UserRules,
    place: ClusterArguments,
) -> Result<PlanReport, CommandError> {
    let files::UserRules { specs, policies: written, relations } = rules;
    let session = UserSession::open(place).await?;
    let snapshot = session.plan_rules(written, &relations).await?;
    let (places, named): (Option<KindId>, BTreeSet<KindId>) = {
        let world = snapshot.context.world.read();
        let named = policies(&world).flat_map(|policy| targets(&world, policy)).collect();
        (world.graph.kinds.find("", "Namespace"), named)
    };
    let mut not_read = BTreeMap::new();
    // Only the labels of Namespaces matter here; users are not read.
    if let Some(kind) = places {
        match snapshot.read_metadata(kind).await {
            Ok(objects) => {
                for object in
                    objects.iter().filter_map(|json| serde_json::from_str(json.get()).ok())
                {
                    snapshot.insert(kind, &object);
                }
            }
            Err(error) => drop(not_read.insert("namespaces".to_owned(), error.to_string())),
        }
    }
    let mut tally = PlanCounts::default();
    let progress = Progress::begin();
    for kind in named {
        let listed = snapshot.read_metadata(kind).await;
        let world = snapshot.context.world.read();
        let World { graph, policies, .. } = &*world;
        let (situation, info) = (situation(graph, policies), graph.kinds.info(kind));
        progress.say(|| format!("counting {} …", info.full_name()));
        match listed {
            Ok(objects) => objects
                .iter()
                .filter_map(|json| serde_json::from_str(json.get()).ok())
                .for_each(|object| tally.add(&situation, info, &object)),
            Err(error) => drop(not_read.insert(info.full_name(), error.to_string())),
        }
    }
    drop(progress);
    for group in &snapshot.stale {
        not_read.insert(format!("every kind of {group}"), SILENT.to_owned());
    }
    let not_read = not_read.into_iter();
    let not_read = not_read.map(|(resource, why)| FailedRead { resource, why });
    let world = snapshot.context.world.read();
    let known = (&world.policies, &world.graph.kinds);
    Ok(PlanReport::new(&specs, known, &tally, &snapshot.stale, not_read.collect()))
}

fn of_files(
    rules: files::UserRules,
    policies: &[files::File],
    from: &[PathBuf],
    namespace: &str,
) -> Result<PlanReport, CommandError> {
    let mut seen: Vec<(KindInfo, Value)> = Vec::new();
    let see = &mut |info: &KindInfo, object: &Value| {
        seen.push((info.clone(), json!({"metadata": object.get("metadata")})));
    };
    let identities = Identities::of_namespace(namespace);
    let world = files::World::read_plan(policies, &read_nonempty(from)?, identities, see)?;
    let files::World { graph, policies, .. } = world;
    let mut tally = PlanCounts::default();
    for (info, object) in &seen {
        // The error was reported when the object was stored.
        if let Ok(object) = Object::deserialize(object) {
            tally.add(&situation(&graph, &policies), info, &object);
        }
    }
    let stale = HashSet::new();
    Ok(PlanReport::new(&rules.specs, (&policies, &graph.kinds), &tally, &stale, Vec::new()))
}
