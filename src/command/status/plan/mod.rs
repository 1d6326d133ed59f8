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
use crate::cluster::feed::plan::{policies, target_kinds};
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

/// Counts the objects that the policies in the files would cover.
pub async fn read(
    arguments: PlanArguments,
    cluster: ClusterArguments,
) -> Result<PlanReport, CommandError> {
    let PlanArguments { filename, from, .. } = arguments;
    stdin_once(filename.iter().chain(&from))?;
    let files = read_nonempty(&filename)?;
    let rules = files::read_rules(&files)?;
    if rules.specs.is_empty() {
        let text = "-f names no DeletionPolicy; name the files or folders that have one";
        return Err(CommandError::usage(text));
    }
    match from.is_empty() {
        true => plan_for_cluster(rules, cluster).await,
        false => {
            cluster.check_unused()?;
            plan_for_files(rules, &files, &from, &cluster.installation()?.namespace)
        }
    }
}

/// The time for the situation of a plan. No result depends on it, because a plan contains no
/// pauses and no approvals.
const ANY_TIME: i64 = 0;

fn situation<'w>(graph: &'w Graph, policies: &'w PolicySet) -> Situation<'w> {
    Situation::new(graph, policies, ObjectSource::Files, ANY_TIME)
}

async fn plan_for_cluster(
    rules: files::UserRules,
    cluster: ClusterArguments,
) -> Result<PlanReport, CommandError> {
    let files::UserRules { specs, policies: user_policies, relations } = rules;
    let session = UserSession::open(cluster).await?;
    let snapshot = session.plan_rules(user_policies, &relations).await?;
    let (namespaces, kinds): (Option<KindId>, BTreeSet<KindId>) = {
        let world = snapshot.context.world.read();
        let kinds = policies(&world).flat_map(|policy| target_kinds(&world, policy)).collect();
        (world.graph.kinds.namespace(), kinds)
    };
    let mut not_read = BTreeMap::new();
    // Policies select objects by the labels of Namespaces. The plan does not need the users.
    if let Some(kind) = namespaces {
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
    let mut counts = PlanCounts::default();
    let progress = Progress::begin();
    for kind in kinds {
        let listed = snapshot.read_metadata(kind).await;
        let world = snapshot.context.world.read();
        let World { graph, policies, .. } = &*world;
        let (situation, info) = (situation(graph, policies), graph.kinds.info(kind));
        progress.say(|| format!("counting {} …", info.full_name()));
        match listed {
            Ok(objects) => objects
                .iter()
                .filter_map(|json| serde_json::from_str(json.get()).ok())
                .for_each(|object| counts.add(&situation, info, &object)),
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
    let compiled = (&world.policies, &world.graph.kinds);
    Ok(PlanReport::new(&specs, compiled, &counts, &snapshot.stale, not_read.collect()))
}

fn plan_for_files(
    rules: files::UserRules,
    policies: &[files::File],
    from: &[PathBuf],
    namespace: &str,
) -> Result<PlanReport, CommandError> {
    let mut objects: Vec<(KindInfo, Value)> = Vec::new();
    let on_object = &mut |info: &KindInfo, object: &Value| {
        objects.push((info.clone(), json!({"metadata": object.get("metadata")})));
    };
    let identities = Identities::of_namespace(namespace);
    let world = files::World::read_plan(policies, &read_nonempty(from)?, identities, on_object)?;
    let files::World { graph, policies, .. } = world;
    let mut counts = PlanCounts::default();
    for (info, object) in &objects {
        // `read_plan` has reported invalid objects.
        if let Ok(object) = Object::deserialize(object) {
            counts.add(&situation(&graph, &policies), info, &object);
        }
    }
    let stale = HashSet::new();
    Ok(PlanReport::new(&rules.specs, (&policies, &graph.kinds), &counts, &stale, Vec::new()))
}
