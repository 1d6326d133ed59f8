//! Everything that an answer is computed from, read from a cluster or from
//! files.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::Value;

use super::change::Change;
use super::stock::{BODIES, Stock};
use super::targets::{Asked, SelectorTarget, WhereArguments, namespaces};
use crate::cluster::{Caller, Me, Reach, Snapshot, World};
use crate::command::CommandError;
use crate::command::document::NotRead;
use crate::command::files::{self, File, read_nonempty};
use crate::command::screen::Progress;
use crate::command::target::{self, SILENT, UNSERVED, UNSERVED_IN_FILES};
use crate::command::visitor::Visitor;
use crate::graph::{Graph, NodeId};
use crate::objects::{ApiError, KindId, KindInfo, KindNames};
use crate::policy::{Identities, PolicySet};

/// Everything that is known.
pub struct Scene {
    /// The objects.
    pub graph: Graph,
    /// What people have written.
    pub policies: PolicySet,
    /// Whether that is known.
    pub rules: Rules,
    /// What of it could not be read.
    pub rules_not_read: Vec<NotRead>,
    /// What stands behind the objects.
    pub stock: Stock,
    /// The objects that are meant.
    pub targets: Vec<NodeId>,
    /// Those that are not there, as they are typed.
    pub missing: Vec<String>,
    /// Those that are meant and could not be looked for.
    pub unseen: Vec<String>,
    /// What of the objects could not be read.
    pub not_read: Vec<NotRead>,
    /// Who asks; none: nobody in particular, of files.
    pub person: Option<(Caller, Me)>,
    /// Kinds of which everything in a namespace was read.
    pub in_namespace: HashSet<(KindId, String)>,
    /// The groups whose server does not answer: nobody knows all their kinds.
    pub stale: HashSet<String>,
}

impl Scene {
    /// Where nothing is asked about.
    pub fn empty() -> Self {
        Self {
            graph: Graph::default(),
            policies: PolicySet::default(),
            rules: Rules::Known,
            rules_not_read: Vec::new(),
            stock: Stock::default(),
            targets: Vec::new(),
            missing: Vec::new(),
            unseen: Vec::new(),
            not_read: Vec::new(),
            person: None,
            in_namespace: HashSet::new(),
            stale: HashSet::new(),
        }
    }
}

/// What is known of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// They are known.
    Known,
    /// There are none: belay is not installed, or the files have no policy.
    None,
    /// They cannot be read.
    Unknown,
}

/// Reads it. `mentions`: whether who merely mentions something is to be found
/// in other namespaces, too.
pub async fn read(
    asked: &Asked,
    place: WhereArguments,
    mentions: bool,
) -> Result<Scene, CommandError> {
    let scene = match place.from.is_given() {
        false => of_cluster(asked, place, mentions).await,
        true => {
            place.place.asks_no_cluster()?;
            let (namespace, _) = place.place.installation()?;
            let identities = Identities::of_namespace(&namespace);
            of_files(asked, &place.from.files, place.namespace.as_deref(), identities)
        }
    }?;
    // That nothing is there of what a change takes out is an answer.
    if scene.targets.is_empty() && asked.change().is_none() {
        let none = match (scene.missing.as_slice(), scene.unseen.as_slice()) {
            ([], []) => "nothing is selected".to_owned(),
            ([], _) => format!("cannot read {}", unread(&scene)),
            (missing, []) => format!("there is no {}", missing.join(", ")),
            (missing, _) => {
                format!("there is no {}; cannot read {}", missing.join(", "), unread(&scene))
            }
        };
        let next = match (scene.missing.is_empty(), scene.unseen.is_empty()) {
            (true, false) => "it takes the RBAC verbs get and list on it, if it is there",
            _ => "see whether the namespace is the right one (-n)",
        };
        return Err(CommandError::Remote(format!("{none}; next: {next}")));
    }
    Ok(scene)
}

fn of_files(
    asked: &Asked,
    from: &[PathBuf],
    namespace: Option<&str>,
    identities: Identities,
) -> Result<Scene, CommandError> {
    let files = read_nonempty(from)?;
    let mut stock = Stock::default();
    let own = namespace.unwrap_or("default");
    let see = &mut |info: &KindInfo, object: &Value| stock.see(info, object);
    let (layers, home): (Vec<&[File]>, &str) = match asked.change() {
        // What is taken out is there, and what stays is as it will be; what
        // was seen of a cluster is truer than both.
        Some(Change { old, new, .. }) => (vec![old, new, &files], own),
        None => (vec![&files], "default"),
    };
    let world = files::World::read_layers(&layers, (home, identities), see)?;
    let names = files::read_names(&world.graph.kinds, layers.into_iter().flatten())?;
    let sought = asked.sought(&names, own, UNSERVED_IN_FILES)?;
    let (targets, mut missing) = asked.find(&world.graph, &sought);
    let files::World { graph, policies, notes } = world;
    let rules = if notes.policies == 0 { Rules::None } else { Rules::Known };
    let unserved = Unserved::of(asked, &names, own, UNSERVED_IN_FILES, &HashSet::new());
    missing.extend(unserved.missing);
    sound(&sought, &missing)?;
    Ok(Scene {
        graph,
        policies,
        rules,
        rules_not_read: Vec::new(),
        stock,
        targets,
        missing,
        unseen: unserved.unseen.iter().map(|(typed, _)| typed.clone()).collect(),
        not_read: unserved.unseen.into_iter().map(not_looked_for).collect(),
        person: None,
        in_namespace: HashSet::new(),
        stale: HashSet::new(),
    })
}

async fn of_cluster(
    asked: &Asked,
    place: WhereArguments,
    mentions: bool,
) -> Result<Scene, CommandError> {
    let WhereArguments { namespace, place, .. } = place;
    let (visitor, names) = Visitor::open_with_names(place).await?;
    let own = namespace.unwrap_or_else(|| visitor.caller.namespace.clone());
    let sought = asked.sought(&names, &own, UNSERVED)?;
    let snapshot = visitor.rules().await?;
    let (rules, rules_not_read) = rules(&snapshot);
    let progress = Progress::begin();
    let reach = Reach { namespaces: namespaces(&sought), mentions };
    let around = snapshot.around(&reach, BODIES, |kinds, objects| {
        progress.say(|| format!("reading {kinds} kinds … {objects} objects"));
    });
    let around = around.await;
    drop(progress);
    // What may not be listed can often be read by its name.
    for name in reach.namespaces.iter().flatten() {
        // If not, the verdict says that its labels are not known.
        let _ = look_up(&snapshot, ("", "namespaces"), "", name).await;
    }
    let mut unseen = Vec::new();
    for one in &sought {
        let KindInfo { group, resource, .. } = &one.info;
        let (Some(namespace), Some(name)) = (&one.namespace, &one.name) else { continue };
        if let Err(error) = look_up(&snapshot, (group, resource), namespace, name).await {
            unseen.push((one.typed(), error.to_string()));
        }
    }
    let world = std::mem::take(&mut *snapshot.context.world.write());
    let World { graph, policies, .. } = world;
    let mut stock = Stock::default();
    for (kind, body) in &around.bodies {
        // The graph has taken it in, so it is JSON.
        if let Ok(object) = serde_json::from_str(body.get()) {
            stock.see(graph.kinds.info(*kind), &object);
        }
    }
    let unread = around.unread.into_iter();
    let unread = unread.map(|(resource, why)| NotRead { resource, why });
    let mut not_read: Vec<NotRead> = unread.collect();
    for group in &snapshot.stale {
        let why = SILENT.to_owned();
        not_read.push(NotRead { resource: format!("every kind of {group}"), why });
    }
    let (targets, mut missing) = asked.find(&graph, &sought);
    let unserved = Unserved::of(asked, &names, &own, UNSERVED, &snapshot.stale);
    missing.extend(unserved.missing);
    unseen.extend(unserved.unseen);
    // What could not be looked for may be there.
    missing.retain(|typed| unseen.iter().all(|(other, _)| other != typed));
    sound(&sought, &missing)?;
    not_read.extend(unseen.iter().cloned().map(not_looked_for));
    Ok(Scene {
        graph,
        policies,
        rules,
        rules_not_read,
        stock,
        targets,
        missing,
        unseen: unseen.into_iter().map(|(typed, _)| typed).collect(),
        not_read,
        person: Some((visitor.caller, visitor.me)),
        in_namespace: around.in_namespace,
        stale: snapshot.stale,
    })
}

/// What manifests name of kinds that nobody serves.
struct Unserved {
    /// What is not there, as it is typed.
    missing: Vec<String>,
    /// What could not be looked for, and why.
    unseen: Vec<(String, String)>,
}

impl Unserved {
    /// `nobody`: words before the name of a kind; `stale`: the groups whose
    /// server does not answer.
    fn of(
        asked: &Asked,
        names: &KindNames,
        own: &str,
        nobody: &str,
        stale: &HashSet<String>,
    ) -> Self {
        let mut unserved = Self { missing: Vec::new(), unseen: Vec::new() };
        for one in asked.unserved(names, own) {
            let typed = one.typed();
            if stale.contains(&one.group) {
                unserved.unseen.push((typed, SILENT.to_owned()));
            } else if asked.change().is_some() {
                // Of a kind that nobody serves there is nothing to prune.
                unserved.missing.push(typed);
            } else {
                // The kind may be misspelt, and a dump has not every kind.
                unserved.unseen.push((typed, target::unserved(names, &one.kind, nobody)));
            }
        }
        unserved
    }
}

fn not_looked_for((resource, why): (String, String)) -> NotRead {
    NotRead { resource, why }
}

/// What could not be looked for, and why.
fn unread(scene: &Scene) -> String {
    let unseen = scene.not_read.iter().filter(|one| scene.unseen.contains(&one.resource));
    let said = unseen.map(|NotRead { resource, why }| format!("{resource} ({why})"));
    said.collect::<Vec<_>>().join(", ")
}

/// Reads an object by its name, unless it is known; an error says why that
/// failed.
async fn look_up(
    snapshot: &Snapshot,
    kind: (&str, &str),
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    let kind = {
        let world = snapshot.context.world.read();
        let kind = world.graph.kinds.find_resource(kind.0, kind.1);
        kind.filter(|kind| world.graph.object(*kind, namespace, name).is_none())
    };
    match kind {
        Some(kind) => snapshot.look_up(kind, namespace, name).await.map(drop),
        None => Ok(()),
    }
}

/// Whether belay's kinds are there, and what of them could not be read.
fn rules(snapshot: &Snapshot) -> (Rules, Vec<NotRead>) {
    let unread = snapshot.unread().into_iter().map(NotRead::from);
    match (snapshot.context.world.read().loaded, snapshot.is_installed()) {
        (true, _) => (Rules::Known, unread.collect()),
        (false, false) => (Rules::None, Vec::new()),
        (false, true) => (Rules::Unknown, unread.collect()),
    }
}

/// That an object is missing which a person has named ends it; one of a
/// manifest was perhaps never applied.
fn sound(sought: &[SelectorTarget], missing: &[String]) -> Result<(), CommandError> {
    let named = sought.iter().filter(|one| !one.may_be_missing()).map(SelectorTarget::typed);
    let named: Vec<String> = named.filter(|typed| missing.contains(typed)).collect();
    if named.is_empty() {
        return Ok(());
    }
    Err(CommandError::Remote(format!(
        "there is no {}; next: see whether the name and the namespace (-n) are right",
        named.join(", ")
    )))
}
