//! The data of `impact` and `used-by`, from a cluster or from files.

use std::collections::HashSet;
use std::path::PathBuf;

use serde_json::Value;

use super::backing::{BackingResources, READ_WHOLE};
use super::change::Change;
use super::targets::{ResolvedTarget, SearchArguments, TargetQuery, namespaces};
use crate::cluster::{Caller, SearchScope, Snapshot, UserIdentity, World};
use crate::command::CommandError;
use crate::command::document::FailedRead;
use crate::command::files::{self, File, read_nonempty};
use crate::command::screen::Progress;
use crate::command::session::UserSession;
use crate::command::target::{self, SILENT, UNSERVED, UNSERVED_IN_FILES};
use crate::graph::{Graph, NodeId};
use crate::objects::{ApiError, KindId, KindInfo, KindNames, is_namespace};
use crate::policy::{Identities, PolicySet};

/// The Namespaces that the API server never deletes (admission plugin NamespaceLifecycle).
const FORBIDDEN_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

/// The data of `impact` and `used-by`.
pub struct Inspection {
    /// The objects.
    pub graph: Graph,
    /// belay's own objects.
    pub policies: PolicySet,
    /// Whether that is known.
    pub rules: Rules,
    /// Failed reads of belay's own objects.
    pub rules_not_read: Vec<FailedRead>,
    /// Resources outside the cluster.
    pub backing: BackingResources,
    /// The targets.
    pub targets: Vec<NodeId>,
    /// Missing targets, as the user typed them.
    pub missing: Vec<String>,
    /// Targets that could not be read.
    pub unseen: Vec<String>,
    /// Failed reads of objects.
    pub not_read: Vec<FailedRead>,
    /// The caller; `None` for files.
    pub person: Option<(Caller, UserIdentity)>,
    /// Kinds whose objects in a namespace were all read.
    pub in_namespace: HashSet<(KindId, String)>,
    /// The groups whose server does not answer, so their kinds are incomplete.
    pub stale: HashSet<String>,
}

impl Inspection {
    /// Without targets.
    pub fn empty() -> Self {
        Self {
            graph: Graph::default(),
            policies: PolicySet::default(),
            rules: Rules::Known,
            rules_not_read: Vec::new(),
            backing: BackingResources::default(),
            targets: Vec::new(),
            missing: Vec::new(),
            unseen: Vec::new(),
            not_read: Vec::new(),
            person: None,
            in_namespace: HashSet::new(),
            stale: HashSet::new(),
        }
    }

    /// The targets that the API server never deletes.
    pub fn forbidden_targets(&self) -> Vec<NodeId> {
        self.targets.iter().copied().filter(|id| self.is_forbidden(*id)).collect()
    }

    /// The targets that the API server may delete.
    pub fn deletable_targets(&self) -> Vec<NodeId> {
        self.targets.iter().copied().filter(|id| !self.is_forbidden(*id)).collect()
    }

    fn is_forbidden(&self, id: NodeId) -> bool {
        let (kind, _, name) = self.graph.coordinates(id);
        let info = self.graph.kinds.info(kind);
        is_namespace(&info.group, &info.resource) && FORBIDDEN_NAMESPACES.contains(&name)
    }

    /// The time, in seconds since 1970.
    pub fn now(&self) -> i64 {
        match &self.person {
            Some((_, me)) => me.now.as_second(),
            None => jiff::Timestamp::now().as_second(),
        }
    }
}

/// Whether belay's own objects are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rules {
    /// They are known.
    Known,
    /// There are none: belay is not installed, or the files have no policy.
    None,
    /// They cannot be read.
    Unknown,
}

/// `mentions`: whether to find objects in other namespaces that only mention the targets.
pub async fn read(
    query: &TargetQuery,
    place: SearchArguments,
    mentions: bool,
) -> Result<Inspection, CommandError> {
    let inspection = match place.from.is_given() {
        false => of_cluster(query, place, mentions).await,
        true => {
            place.place.asks_no_cluster()?;
            let (namespace, _) = place.place.installation()?;
            let identities = Identities::of_namespace(&namespace);
            of_files(query, &place.from.files, place.namespace.as_deref(), identities)
        }
    }?;
    // If none of the removed objects exists, there is nothing to report.
    if inspection.targets.is_empty() && query.change().is_none() {
        let none = match (inspection.missing.as_slice(), inspection.unseen.as_slice()) {
            ([], []) => "no objects are selected".to_owned(),
            ([], _) => format!("cannot read {}", unread(&inspection)),
            (missing, []) => format!("there is no {}", missing.join(", ")),
            (missing, _) => {
                format!("there is no {}; cannot read {}", missing.join(", "), unread(&inspection))
            }
        };
        let next = match (inspection.missing.is_empty(), inspection.unseen.is_empty()) {
            (true, false) => "this needs the RBAC verbs get and list on it, if it exists",
            _ => "check the namespace (-n)",
        };
        return Err(CommandError::Remote(format!("{none}; next: {next}")));
    }
    Ok(inspection)
}

fn of_files(
    query: &TargetQuery,
    from: &[PathBuf],
    namespace: Option<&str>,
    identities: Identities,
) -> Result<Inspection, CommandError> {
    let files = read_nonempty(from)?;
    let mut backing = BackingResources::default();
    let own = namespace.unwrap_or("default");
    let see = &mut |info: &KindInfo, object: &Value| backing.record(info, object);
    let (layers, home): (Vec<&[File]>, &str) = match query.change() {
        // The old manifests contain removed objects, the new ones the others. The cluster
        // takes precedence.
        Some(Change { old, new, .. }) => (vec![old, new, &files], own),
        None => (vec![&files], "default"),
    };
    let world = files::World::read_layers(&layers, (home, identities), see)?;
    let names = files::read_names(&world.graph.kinds, layers.into_iter().flatten())?;
    let resolved = query.resolved(&names, own, UNSERVED_IN_FILES)?;
    let (targets, mut missing) = query.find(&world.graph, &resolved);
    let files::World { graph, policies, notes } = world;
    let rules = if notes.policies == 0 { Rules::None } else { Rules::Known };
    let unserved = UnservedTargets::new(query, &names, own, UNSERVED_IN_FILES, &HashSet::new());
    missing.extend(unserved.missing);
    require_existing(&resolved, &missing)?;
    Ok(Inspection {
        graph,
        policies,
        rules,
        rules_not_read: Vec::new(),
        backing,
        targets,
        missing,
        unseen: unserved.unseen.iter().map(|(typed, _)| typed.clone()).collect(),
        not_read: unserved.unseen.into_iter().map(unread_kind).collect(),
        person: None,
        in_namespace: HashSet::new(),
        stale: HashSet::new(),
    })
}

async fn of_cluster(
    query: &TargetQuery,
    place: SearchArguments,
    mentions: bool,
) -> Result<Inspection, CommandError> {
    let SearchArguments { namespace, place, .. } = place;
    let (session, names) = UserSession::open_with_names(place).await?;
    let own = namespace.unwrap_or_else(|| session.caller.namespace.clone());
    let resolved = query.resolved(&names, &own, UNSERVED)?;
    let snapshot = session.read_rules().await?;
    let (rules, rules_not_read) = rules(&snapshot);
    let progress = Progress::begin();
    let reach = SearchScope { namespaces: namespaces(&resolved), mentions };
    let around = snapshot.read_surroundings(&reach, READ_WHOLE, |kinds, objects| {
        progress.say(|| format!("reading {kinds} kinds … {objects} objects"));
    });
    let around = around.await;
    drop(progress);
    // Without permission to list a kind, an object may be readable by name.
    for name in reach.namespaces.iter().flatten() {
        // Otherwise the verdict reports that its labels are unknown.
        let _ = look_up(&snapshot, ("", "namespaces"), "", name).await;
    }
    let mut unseen = Vec::new();
    for one in &resolved {
        let KindInfo { group, resource, .. } = &one.info;
        let (Some(namespace), Some(name)) = (&one.namespace, &one.name) else { continue };
        if let Err(error) = look_up(&snapshot, (group, resource), namespace, name).await {
            unseen.push((one.as_typed(), error.to_string()));
        }
    }
    let world = std::mem::take(&mut *snapshot.context.world.write());
    let World { graph, policies, .. } = world;
    let mut backing = BackingResources::default();
    for (kind, body) in &around.bodies {
        // The graph accepted it, so it is valid JSON.
        if let Ok(object) = serde_json::from_str(body.get()) {
            backing.record(graph.kinds.info(*kind), &object);
        }
    }
    let unread = around.unread.into_iter();
    let unread = unread.map(|(resource, why)| FailedRead { resource, why });
    let mut not_read: Vec<FailedRead> = unread.collect();
    for group in &snapshot.stale {
        let why = SILENT.to_owned();
        not_read.push(FailedRead { resource: format!("every kind of {group}"), why });
    }
    let (targets, mut missing) = query.find(&graph, &resolved);
    let unserved = UnservedTargets::new(query, &names, &own, UNSERVED, &snapshot.stale);
    missing.extend(unserved.missing);
    unseen.extend(unserved.unseen);
    // A target that could not be read may exist.
    missing.retain(|typed| unseen.iter().all(|(other, _)| other != typed));
    require_existing(&resolved, &missing)?;
    not_read.extend(unseen.iter().cloned().map(unread_kind));
    Ok(Inspection {
        graph,
        policies,
        rules,
        rules_not_read,
        backing,
        targets,
        missing,
        unseen: unseen.into_iter().map(|(typed, _)| typed).collect(),
        not_read,
        person: Some((session.caller, session.me)),
        in_namespace: around.in_namespace,
        stale: snapshot.stale,
    })
}

/// Manifest objects of kinds that the API server does not serve.
struct UnservedTargets {
    /// Missing targets, as the user typed them.
    missing: Vec<String>,
    /// Failed reads of targets.
    unseen: Vec<(String, String)>,
}

impl UnservedTargets {
    /// `prefix`: the text before an unknown kind; `stale`: the groups whose server does
    /// not answer.
    fn new(
        query: &TargetQuery,
        names: &KindNames,
        own: &str,
        prefix: &str,
        stale: &HashSet<String>,
    ) -> Self {
        let mut unserved = Self { missing: Vec::new(), unseen: Vec::new() };
        for one in query.unserved(names, own) {
            let typed = one.as_typed();
            if stale.contains(&one.group) {
                unserved.unseen.push((typed, SILENT.to_owned()));
            } else if query.change().is_some() {
                // A kind that is not served has no objects to prune.
                unserved.missing.push(typed);
            } else {
                // The kind may be misspelt, and a dump has not every kind.
                unserved.unseen.push((typed, target::unserved(names, &one.kind, prefix)));
            }
        }
        unserved
    }
}

fn unread_kind((resource, why): (String, String)) -> FailedRead {
    FailedRead { resource, why }
}

/// What could not be searched, and why.
fn unread(inspection: &Inspection) -> String {
    let unseen = inspection.not_read.iter().filter(|one| inspection.unseen.contains(&one.resource));
    let said = unseen.map(|FailedRead { resource, why }| format!("{resource} ({why})"));
    said.collect::<Vec<_>>().join(", ")
}

/// Reads an object by name unless it is known.
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

/// Whether belay's kinds exist, and the failed reads of them.
fn rules(snapshot: &Snapshot) -> (Rules, Vec<FailedRead>) {
    let unread = snapshot.unread().into_iter().map(FailedRead::from);
    match (snapshot.context.world.read().loaded, snapshot.is_installed()) {
        (true, _) => (Rules::Known, unread.collect()),
        (false, false) => (Rules::None, Vec::new()),
        (false, true) => (Rules::Unknown, unread.collect()),
    }
}

/// A missing object that the user named ends the command. A missing object of a manifest
/// may never have been applied.
fn require_existing(resolved: &[ResolvedTarget], missing: &[String]) -> Result<(), CommandError> {
    let named = resolved.iter().filter(|one| !one.may_be_missing()).map(ResolvedTarget::as_typed);
    let named: Vec<String> = named.filter(|typed| missing.contains(typed)).collect();
    if named.is_empty() {
        return Ok(());
    }
    Err(CommandError::Remote(format!(
        "there is no {}; next: check the name and the namespace (-n)",
        named.join(", ")
    )))
}
