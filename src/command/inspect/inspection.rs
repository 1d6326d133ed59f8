//! The data of `impact` and `used-by`, from a cluster or from files.

use std::collections::{HashMap, HashSet};

use super::backing::{BackingResources, READ_WHOLE};
use super::change::Change;
use super::targets::{MissingTarget, ResolvedTarget, SearchArguments, TargetQuery, namespaces};
use crate::cluster::{Caller, SearchScope, Snapshot, UserIdentity, World};
use crate::command::CommandError;
use crate::command::document::FailedRead;
use crate::command::files::{Archive, read_nonempty};
use crate::command::place::Installation;
use crate::command::screen::Progress;
use crate::command::session::UserSession;
use crate::command::target::{self, SILENT, not_found};
use crate::command::webhooks::Webhooks;
use crate::decide::{ObjectSource, Situation};
use crate::graph::{Graph, Node, NodeId};
use crate::objects::{ApiError, KindId, KindInfo, KindNames, ObjectRef, Uid, is_namespace};
use crate::policy::PolicySet;

/// The Namespaces that the API server never deletes (admission plugin NamespaceLifecycle).
const FORBIDDEN_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

/// The data of `impact` and `used-by`.
#[derive(Default)]
pub struct Inspection {
    /// The objects.
    pub graph: Graph,
    /// belay's own objects.
    pub policies: PolicySet,
    /// Whether belay's own objects are known.
    pub policy_state: PolicyState,
    /// Failed reads of belay's own objects.
    pub rules_not_read: Vec<FailedRead>,
    /// The resources outside the cluster.
    pub backing: BackingResources,
    pub targets: Vec<NodeId>,
    pub missing: Vec<MissingTarget>,
    /// Targets that could not be read.
    pub unread_targets: Vec<String>,
    /// Failed reads of objects.
    pub not_read: Vec<FailedRead>,
    /// The caller; `None` for files.
    pub caller: Option<(Caller, UserIdentity)>,
    pub installation: Installation,
    /// Whether belay has no leader. Without a leader, holds are not released.
    pub no_leader: bool,
    /// The kinds of which all objects in a namespace were read, each with that namespace.
    pub complete_in_namespace: HashSet<(KindId, String)>,
    /// The API groups whose server does not answer. Their objects are unknown.
    pub silent_groups: HashSet<String>,
    /// The resourceVersions of the objects around the targets, by uid.
    pub versions: HashMap<Uid, String>,
}

impl Inspection {
    /// Whether all objects of a kind in a namespace were read. An empty namespace is the whole
    /// cluster.
    pub fn has_read(&self, kind: KindId, namespace: &str) -> bool {
        let is_read = || self.complete_in_namespace.contains(&(kind, namespace.to_owned()));
        self.graph.is_complete(kind) || is_read()
    }

    /// The API groups whose server does not answer, if the object is a Namespace. Without the
    /// discovery of all kinds, the namespace controller does not remove the last finalizer.
    pub fn groups_blocking(&self, node: Node<'_>) -> Vec<&str> {
        let info = node.info();
        if !is_namespace(&info.group, &info.resource) {
            return Vec::new();
        }
        let mut groups: Vec<&str> = self.silent_groups.iter().map(String::as_str).collect();
        groups.sort_unstable();
        groups
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
        match &self.caller {
            Some((_, me)) => me.now().as_second(),
            None => jiff::Timestamp::now().as_second(),
        }
    }

    /// The objects and policies that were read, for a decision now.
    pub fn situation(&self) -> Situation<'_> {
        Situation::new(&self.graph, &self.policies, ObjectSource::Files, self.now())
    }

    /// The webhook configurations of the installation; `None` for files.
    pub async fn webhooks(&self) -> Option<Webhooks> {
        let (caller, me) = self.caller.as_ref()?;
        Some(Webhooks::read(&caller.client, &self.installation, me.now()).await)
    }

    /// Whether belay is known to enforce no policy, because its webhook configurations are missing.
    pub async fn lacks_webhooks(&self) -> bool {
        self.webhooks().await.is_some_and(|webhooks| webhooks.are_inactive())
    }
}

/// Whether belay's own objects, such as policies, are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PolicyState {
    /// They are known.
    #[default]
    Known,
    /// There are none: belay is not installed, or the files have no policy.
    None,
    /// The user may not read them.
    Unknown,
}

/// `mentions`: whether to find objects in other namespaces that only mention the targets.
pub async fn read(
    query: &TargetQuery,
    arguments: SearchArguments,
    mentions: bool,
) -> Result<Inspection, CommandError> {
    let inspection = read_objects(query, arguments, mentions).await?;
    // If none of the removed objects exists, or a selection is empty, there is nothing to report.
    let may_have_none = match query.change() {
        Some(_) => true,
        None => query.may_have_no_targets() && inspection.unread_targets.is_empty(),
    };
    if inspection.targets.is_empty() && !may_have_none {
        let problem = match (inspection.missing.as_slice(), inspection.unread_targets.as_slice()) {
            ([], []) => return Ok(inspection),
            ([], _) => format!("cannot read {}", unread_text(&inspection)),
            (missing, []) => missing_text(missing),
            (missing, _) => {
                format!("{}; cannot read {}", missing_text(missing), unread_text(&inspection))
            }
        };
        let next = match (inspection.missing.is_empty(), inspection.unread_targets.is_empty()) {
            (true, false) => {
                "if it exists, ask a person with the RBAC verbs get and list on it to run the command"
            }
            _ => "check the namespace (-n)",
        };
        // kubectl delete exits with 1 if an object that the user named does not exist.
        let is_read = inspection.unread_targets.is_empty();
        return Err(match query.may_have_missing_objects() && is_read {
            true => CommandError::Refused(format!(
                "{problem}; next: {next}, unless it was deleted before"
            )),
            false => CommandError::Remote(format!("{problem}; next: {next}")),
        });
    }
    Ok(inspection)
}

/// The content of the files; `None` if the command reads a cluster.
fn archive(
    query: &TargetQuery,
    arguments: &SearchArguments,
) -> Result<Option<Archive>, CommandError> {
    let SearchArguments { namespace, from, cluster } = arguments;
    let Some(Change { old, new, .. }) = query.change().filter(|_| from.is_given()) else {
        return from.archive(cluster);
    };
    cluster.check_unused()?;
    // The removed objects are only in the old manifests. If several layers contain an object, the
    // last layer wins: the files with the state of the cluster.
    let files = read_nonempty(&from.files)?;
    Archive::read_layers(&[old, new, &files], namespace.as_deref().unwrap_or("default")).map(Some)
}

async fn read_objects(
    query: &TargetQuery,
    arguments: SearchArguments,
    mentions: bool,
) -> Result<Inspection, CommandError> {
    let archive = archive(query, &arguments)?;
    let SearchArguments { namespace, cluster, .. } = arguments;
    let (session, names) = UserSession::open_with_names(archive, cluster).await?;
    let prefix = session.unserved_prefix();
    let default_namespace = namespace.unwrap_or_else(|| session.caller.namespace.clone());
    let resolved = query.resolve(&names, &default_namespace, prefix)?;
    let (snapshot, leader) = tokio::join!(session.read_rules(), session.leader());
    let snapshot = snapshot?;
    let (policy_state, rules_not_read) = policy_state(&snapshot);
    let progress = Progress::begin();
    // Files are read completely.
    let namespaces = if session.asks_files() { None } else { namespaces(&resolved) };
    let scope = SearchScope { namespaces, mentions };
    let surroundings = snapshot.read_surroundings(&scope, READ_WHOLE, |kinds, objects| {
        progress.say(|| format!("reading {kinds} kinds … {objects} objects"));
    });
    let surroundings = surroundings.await;
    drop(progress);
    // Without permission to list a kind, an object may be readable by name.
    for name in scope.namespaces.iter().flatten() {
        // If this fails, the verdict reports that the labels of the Namespace are unknown.
        let _ = look_up(&snapshot, ("", "namespaces"), "", name).await;
    }
    let mut unread_targets = Vec::new();
    for target in &resolved {
        let KindInfo { group, resource, .. } = &target.info;
        let (Some(namespace), Some(name)) = (&target.namespace, &target.name) else { continue };
        if let Err(error) = look_up(&snapshot, (group, resource), namespace, name).await {
            unread_targets.push((target.as_typed(), error.to_string()));
        }
    }
    let world = std::mem::take(&mut *snapshot.context.world.write());
    let World { graph, policies, .. } = world;
    let mut backing = BackingResources::default();
    for (kind, body) in &surroundings.bodies {
        // The graph has parsed the same text, so it is valid JSON.
        if let Ok(object) = serde_json::from_str(body.get()) {
            backing.record(graph.kinds.info(*kind), &object);
        }
    }
    let unread = surroundings.unread.into_iter();
    let unread = unread.map(|(resource, why)| FailedRead { resource, why });
    let mut not_read: Vec<FailedRead> = unread.collect();
    for group in &snapshot.stale {
        let why = SILENT.to_owned();
        not_read.push(FailedRead { resource: format!("every kind of {group}"), why });
    }
    let (targets, mut missing) = query.find(&graph, &resolved);
    let unserved = UnservedTargets::new(query, &names, &default_namespace, prefix, &snapshot.stale);
    missing.extend(unserved.missing);
    unread_targets.extend(unserved.unread_targets);
    // A target that could not be read may exist.
    missing.retain(|target| unread_targets.iter().all(|(other, _)| *other != target.typed));
    // A selection from a list that could not be read is not known to be empty.
    for target in resolved.iter().filter(|target| targets.is_empty() && target.name.is_none()) {
        let KindInfo { group, resource, .. } = &target.info;
        let Some(kind) = graph.kinds.find_resource(group, resource) else { continue };
        let list = target.namespace.clone().map(|namespace| (kind, namespace));
        let is_read = list.is_some_and(|list| surroundings.in_namespace.contains(&list));
        if !is_read && !graph.is_complete(kind) {
            let why = graph.why_incomplete(kind).to_string();
            unread_targets.push((target.as_typed(), why));
        }
    }
    require_existing(&resolved, &missing)?;
    not_read.extend(unread_targets.iter().cloned().map(failed_read));
    Ok(Inspection {
        graph,
        policies,
        policy_state,
        rules_not_read,
        backing,
        targets,
        missing,
        unread_targets: unread_targets.into_iter().map(|(typed, _)| typed).collect(),
        not_read,
        caller: (!session.asks_files()).then_some((session.caller, session.me)),
        installation: session.installation,
        no_leader: matches!(leader, Ok(None)),
        complete_in_namespace: surroundings.in_namespace,
        silent_groups: snapshot.stale,
        versions: surroundings.versions,
    })
}

/// The targets in manifests whose kinds the API server does not serve.
struct UnservedTargets {
    missing: Vec<MissingTarget>,
    /// Targets that could not be read, each with the error.
    unread_targets: Vec<(String, String)>,
}

impl UnservedTargets {
    /// `prefix`: the text before an unknown kind; `silent_groups`: the API groups whose server
    /// does not answer.
    fn new(
        query: &TargetQuery,
        names: &KindNames,
        default_namespace: &str,
        prefix: &str,
        silent_groups: &HashSet<String>,
    ) -> Self {
        let mut unserved = Self { missing: Vec::new(), unread_targets: Vec::new() };
        for manifest in query.unserved(names, default_namespace) {
            let typed = manifest.as_typed();
            if silent_groups.contains(&manifest.group) {
                unserved.unread_targets.push((typed, SILENT.to_owned()));
            } else if query.may_have_no_targets() {
                // A kind that is not served has no objects.
                let kind = (&*manifest.group, &*manifest.kind.to_lowercase());
                let namespace = manifest.namespace.as_deref().unwrap_or_default();
                let message = not_found(&ObjectRef::new(kind, namespace, &manifest.name));
                unserved.missing.push(MissingTarget { typed, message });
            } else {
                // The user may have misspelt the kind, and a dump may lack its CRD.
                unserved
                    .unread_targets
                    .push((typed, target::unserved(names, &manifest.kind, prefix)));
            }
        }
        unserved
    }
}

fn failed_read((resource, why): (String, String)) -> FailedRead {
    FailedRead { resource, why }
}

/// The targets that could not be read, each with the error.
fn unread_text(inspection: &Inspection) -> String {
    let is_target = |read: &&FailedRead| inspection.unread_targets.contains(&read.resource);
    let unread = inspection.not_read.iter().filter(is_target);
    let texts = unread.map(|FailedRead { resource, why }| format!("{resource} ({why})"));
    texts.collect::<Vec<_>>().join(", ")
}

/// Reads an object by name unless the graph contains it.
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
fn policy_state(snapshot: &Snapshot) -> (PolicyState, Vec<FailedRead>) {
    let unread = snapshot.unread().into_iter().map(FailedRead::from);
    let world = snapshot.context.world.read();
    let has_files_without_policy =
        snapshot.kinds_in_files.is_some() && world.policies.iter().next().is_none();
    match (world.loaded, snapshot.is_installed()) {
        _ if has_files_without_policy => (PolicyState::None, Vec::new()),
        (true, _) => (PolicyState::Known, unread.collect()),
        (false, false) => (PolicyState::None, Vec::new()),
        (false, true) => (PolicyState::Unknown, unread.collect()),
    }
}

/// Returns an error if an object that the user named does not exist. An object in a
/// manifest may be missing, because the manifest may never have been applied.
fn require_existing(
    resolved: &[ResolvedTarget],
    missing: &[MissingTarget],
) -> Result<(), CommandError> {
    let named = resolved.iter().filter(|target| !target.may_be_missing);
    let named: HashSet<String> = named.map(ResolvedTarget::as_typed).collect();
    let missing = missing.iter().filter(|target| named.contains(&target.typed));
    let missing: Vec<MissingTarget> = missing.cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CommandError::Remote(format!(
        "{}; next: check the name and the namespace (-n)",
        missing_text(&missing)
    )))
}

/// The messages about objects that do not exist.
pub fn missing_text(missing: &[MissingTarget]) -> String {
    missing.iter().map(|target| target.message.as_str()).collect::<Vec<_>>().join(", ")
}
