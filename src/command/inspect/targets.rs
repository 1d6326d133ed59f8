//! Parses the object arguments in kubectl's spellings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::change::Change;
use crate::command::CommandError;
use crate::command::document::Object;
use crate::command::files::{Manifest, read_manifests, read_nonempty, stdin_once};
use crate::command::object_words::{ObjectArgument, parse_object, parse_objects};
use crate::command::place::{self, ClusterArguments, SourceArguments};
use crate::command::selector;
use crate::command::target::{not_found, unserved};
use crate::graph::{Graph, NodeId, Requirement};
use crate::objects::{KindInfo, KindNames, ObjectRef, is_namespace, namespace_option};

/// Where to search for objects.
#[derive(Debug, Clone, Args)]
pub struct SearchArguments {
    /// The namespace of the objects [default: the namespace of the context; with --from, the
    /// namespace "default"]
    #[arg(short, long, value_name = "NAME", value_parser = place::namespace)]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub from: SourceArguments,

    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// The objects to select.
#[derive(Debug, Clone, Default, Args)]
pub struct ObjectSelection {
    /// The objects: TYPE/NAME ..., TYPE NAME ..., or TYPE with -l or --all. TYPE is a plural,
    /// singular or short name of a kind, with its group if the name is ambiguous. Without a name,
    /// TYPE can also be a category, such as the kubectl category "all"
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,

    /// The objects in these manifests: files, folders, or - for standard input
    #[arg(short, long, value_name = "FILE|DIR|-", value_delimiter = ',')]
    filename: Vec<PathBuf>,

    /// Select objects by label
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,

    /// Print long lists completely. After a TYPE without a name, also select every object of this
    /// type
    #[arg(long)]
    pub all: bool,

    /// The objects in all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

/// A set of objects, and where to search for them.
#[derive(Debug, Clone, Args)]
pub struct SelectionArguments {
    #[command(flatten)]
    pub objects: ObjectSelection,

    /// Show the effects of pruning. OLD and NEW are files or folders with the manifests before and
    /// after a change; the targets are the objects that only OLD contains. With --from, belay
    /// uses the objects in OLD, NEW and the --from files. If several of them contain an object,
    /// --from wins over NEW, and NEW over OLD
    #[arg(long, num_args = 2, action = ArgAction::Set, value_names = ["OLD", "NEW"])]
    removed: Vec<PathBuf>,

    #[command(flatten)]
    pub search: SearchArguments,
}

/// The targets of a command line, before kinds are resolved.
#[derive(Default)]
pub struct TargetQuery {
    wanted: Vec<ObjectArgument>,
    manifests: Vec<Manifest>,
    change: Option<Change>,
    selector: Vec<Requirement>,
    all_namespaces: bool,
    /// Whether to select a missing object that other objects reference.
    includes_missing: bool,
    /// Whether named objects may be missing: an interrupted command may have deleted them.
    may_be_missing: bool,
    /// Whether all objects and their kinds may be missing.
    all_may_be_missing: bool,
}

/// Objects of one kind.
#[derive(Debug, Clone)]
pub struct ResolvedTarget {
    pub info: KindInfo,
    /// The namespace; empty for cluster-scoped objects, `None` for all namespaces.
    pub namespace: Option<String>,
    /// The name; `None` for all objects that the selector matches.
    pub name: Option<String>,
    /// Whether a missing object is no error: a manifest may never have been applied.
    pub may_be_missing: bool,
}

/// A target that does not exist.
#[derive(Debug, Clone)]
pub struct MissingTarget {
    /// The object as the user typed it.
    pub typed: String,
    pub message: String,
}

impl SelectionArguments {
    /// Whether any of the options names files.
    pub fn reads_files(&self) -> bool {
        self.search.from.is_given() || self.objects.reads_files() || !self.removed.is_empty()
    }

    /// Parses the arguments and reads the manifests.
    pub fn query(&self) -> Result<TargetQuery, CommandError> {
        let Self { objects, removed, search } = self;
        stdin_once(objects.filename.iter().chain(&search.from.files).chain(removed))?;
        let [old, new] = removed.as_slice() else { return objects.query() };
        if objects.is_given() {
            let text = "--removed selects the objects; omit TARGET, -f, -l and -A";
            return Err(CommandError::Usage(text.to_owned()));
        }
        Ok(TargetQuery { change: Some(Change::read(old, new)?), ..TargetQuery::default() })
    }
}

impl ObjectSelection {
    /// Whether the options select objects.
    pub fn is_given(&self) -> bool {
        let Self { targets, filename, selector, all: _, all_namespaces } = self;
        let is_named = !targets.is_empty() || !filename.is_empty() || selector.is_some();
        is_named || *all_namespaces
    }

    /// The manifests that select the objects.
    pub fn files(&self) -> &[PathBuf] {
        &self.filename
    }

    /// Whether manifests select the objects.
    pub fn reads_files(&self) -> bool {
        !self.filename.is_empty()
    }

    /// Parses the arguments and reads the manifests.
    pub fn query(&self) -> Result<TargetQuery, CommandError> {
        let usage = |text: String| CommandError::Usage(text);
        let selector = self.selector.as_deref().map(selector::parse).transpose();
        let selector = selector.map_err(|error| usage(error.to_string()))?;
        let names_only_kinds = matches!(self.targets.as_slice(), [kinds] if !kinds.contains('/'));
        let selected = selector.is_some() || self.all && names_only_kinds;
        if !self.filename.is_empty() && (selected || !self.targets.is_empty()) {
            let text = "-f selects the objects; omit TARGET and -l";
            return Err(usage(text.to_owned()));
        }
        if self.filename.is_empty() && self.targets.is_empty() {
            let text = "no object is named; expected TYPE/NAME, such as pvc/data, or TYPE with -l or \
                        --all, or manifests with -f";
            return Err(usage(text.to_owned()));
        }
        let wanted = parse_objects(&self.targets, selected);
        let wanted = wanted.map_err(|error| usage(error.to_string()))?;
        if self.all_namespaces && wanted.iter().any(|wanted| wanted.name.is_some()) {
            let text = "an object is in one namespace; name it with -n, or omit the name or -A";
            return Err(usage(text.to_owned()));
        }
        Ok(TargetQuery {
            wanted,
            manifests: read_manifests(&read_nonempty(&self.filename)?)?,
            selector: selector.unwrap_or_default(),
            all_namespaces: self.all_namespaces,
            ..TargetQuery::default()
        })
    }
}

impl TargetQuery {
    /// One object, for `used-by`. `includes_missing`: whether to select a missing object that
    /// other objects reference. A dump of Pods shows the users of a Secret without the Secret.
    pub fn one(target: &[String], includes_missing: bool) -> Result<Self, CommandError> {
        let parsed = parse_object(target);
        let (kind, name) = parsed.map_err(|error| CommandError::Usage(error.to_string()))?;
        let wanted = ObjectArgument { kind: kind.to_owned(), name: Some(name.to_owned()) };
        Ok(Self { wanted: vec![wanted], includes_missing, ..Self::default() })
    }

    /// These objects, which may be missing together with their kinds.
    pub fn of_objects<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Self {
        let manifest = |object: &Object| Manifest {
            group: object.group.clone(),
            kind: object.kind.clone(),
            namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: object.name.clone(),
            origin: String::new(),
        };
        let manifests = objects.into_iter().map(manifest).collect();
        Self { manifests, all_may_be_missing: true, ..Self::default() }
    }

    /// The same query, but objects may be missing. If manifests name the objects, all of them may
    /// be missing. A typed name may be misspelt, so one of the typed objects must exist.
    pub fn with_missing_objects(self) -> Self {
        let all_may_be_missing = !self.manifests.is_empty();
        Self { may_be_missing: true, all_may_be_missing, ..self }
    }

    /// Whether named objects may be missing, because the command deletes them.
    pub fn may_have_missing_objects(&self) -> bool {
        self.may_be_missing
    }

    /// Whether an answer without targets is no error.
    pub fn may_have_no_targets(&self) -> bool {
        self.change.is_some() || self.all_may_be_missing
    }

    /// The change of manifests; `None` without `--removed`.
    pub fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    /// Resolves the kinds. `prefix` is the text before an unknown kind.
    pub fn resolve(
        &self,
        names: &KindNames,
        default_namespace: &str,
        prefix: &str,
    ) -> Result<Vec<ResolvedTarget>, CommandError> {
        let mut resolved = Vec::new();
        for ObjectArgument { kind, name } in &self.wanted {
            // As in kubectl, a category precedes a kind with the same name.
            let category = if name.is_none() { names.of_category(kind) } else { Vec::new() };
            let infos = match category.is_empty() {
                true => names.find(kind).into_iter().collect(),
                false => category,
            };
            if infos.is_empty() {
                return Err(CommandError::Remote(unserved(names, kind, prefix)));
            }
            resolved.extend(infos.into_iter().map(|info| ResolvedTarget {
                info: info.clone(),
                namespace: match (info.namespaced, self.all_namespaces) {
                    (true, true) => None,
                    (true, false) => Some(default_namespace.to_owned()),
                    (false, _) => Some(String::new()),
                },
                name: name.clone(),
                may_be_missing: self.may_be_missing,
            }));
        }
        let listed = self.manifest_targets(names, default_namespace);
        for Manifest { group, kind, namespace, name, .. } in &listed {
            // Objects of unknown kinds are reported separately.
            let Some(info) = names.of_object(group, kind) else { continue };
            let namespace = match info.namespaced {
                true => namespace.clone().unwrap_or_else(|| default_namespace.to_owned()),
                false => String::new(),
            };
            resolved.push(ResolvedTarget {
                info: info.clone(),
                namespace: Some(namespace),
                name: Some(name.clone()),
                may_be_missing: true,
            });
        }
        match listed.first() {
            // The API server serves none of the kinds in the manifests.
            Some(Manifest { kind, origin, .. })
                if resolved.is_empty() && !self.may_have_no_targets() =>
            {
                Err(CommandError::Remote(format!("{origin}: {}", unserved(names, kind, prefix))))
            }
            _ => Ok(resolved),
        }
    }

    /// The targets in manifests whose kinds the API server does not serve.
    pub fn unserved(&self, names: &KindNames, default_namespace: &str) -> Vec<&Manifest> {
        let mut unserved = self.manifest_targets(names, default_namespace);
        unserved.retain(|target| names.of_object(&target.group, &target.kind).is_none());
        unserved
    }

    /// The objects in the manifests; for a change, the removed objects.
    fn manifest_targets(&self, names: &KindNames, default_namespace: &str) -> Vec<&Manifest> {
        match &self.change {
            Some(change) => change.removed(names, default_namespace),
            None => self.manifests.iter().collect(),
        }
    }

    /// The targets in the graph, and the missing targets.
    pub fn find(
        &self,
        graph: &Graph,
        resolved: &[ResolvedTarget],
    ) -> (Vec<NodeId>, Vec<MissingTarget>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for target in resolved {
            let mut nodes = target.nodes(graph, &self.selector);
            if nodes.is_empty() && self.includes_missing {
                nodes.extend(target.referenced_node(graph));
            }
            if nodes.is_empty()
                && let Some(name) = &target.name
            {
                let namespace = target.namespace.as_deref().unwrap_or_default();
                let object = ObjectRef::of_kind(&target.info, namespace, name);
                let message = not_found(&object);
                missing.push(MissingTarget { typed: target.as_typed(), message });
            }
            found.extend(nodes);
        }
        let mut seen = BTreeSet::new();
        found.retain(|id| seen.insert(*id));
        (found, missing)
    }
}

impl ResolvedTarget {
    fn nodes(&self, graph: &Graph, selector: &[Requirement]) -> Vec<NodeId> {
        let KindInfo { group, resource, .. } = &self.info;
        let Some(kind) = graph.kinds.find_resource(group, resource) else { return Vec::new() };
        if let (Some(namespace), Some(name)) = (&self.namespace, &self.name) {
            return graph.object(kind, namespace, name).map(|node| node.id()).into_iter().collect();
        }
        let is_selected = |id: &NodeId| {
            graph.get(*id).is_some_and(|node| {
                let namespace = self.namespace.as_ref().is_none_or(|name| node.namespace() == name);
                let name = self.name.as_ref().is_none_or(|name| node.name() == name);
                namespace
                    && name
                    && selector.iter().all(|r| r.is_satisfied_by(|key| node.labels().get(key)))
            })
        };
        let mut nodes: Vec<NodeId> = graph.objects_of_kind(kind).filter(is_selected).collect();
        // The API server lists objects in this order, and kubectl deletes them in it.
        nodes.sort_by_key(|id| {
            let (_, namespace, name) = graph.coordinates(*id);
            (namespace, name)
        });
        nodes
    }

    /// The node of a missing object that another object references.
    fn referenced_node(&self, graph: &Graph) -> Option<NodeId> {
        let KindInfo { group, resource, .. } = &self.info;
        let kind = graph.kinds.find_resource(group, resource)?;
        let id = graph.find(kind, self.namespace.as_deref()?, self.name.as_deref()?)?;
        graph.users(id).next().map(|_| id)
    }

    /// The object as the user typed it.
    pub fn as_typed(&self) -> String {
        let option = self.namespace.as_deref().map_or(" -A".to_owned(), namespace_option);
        let name = self.name.as_ref().map_or(String::new(), |name| format!("/{name}"));
        format!("{}{name}{option}", self.info.full_name())
    }
}

/// The namespaces in which a deletion of these targets can have effects. `None`: all
/// namespaces.
pub fn namespaces(resolved: &[ResolvedTarget]) -> Option<BTreeSet<String>> {
    let namespace = |target: &ResolvedTarget| {
        let is_namespace = is_namespace(&target.info.group, &target.info.resource);
        match (is_namespace, target.info.namespaced) {
            (true, _) => target.name.clone(),
            (false, true) => target.namespace.clone(),
            (false, false) => None,
        }
    };
    resolved.iter().map(namespace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Kinds;

    /// A query for manifests. Each line has a kind, a name and optionally a namespace.
    fn manifest_query(lines: &[&str]) -> TargetQuery {
        let manifest = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            let group = if words[0] == "Gizmo" { "example.com" } else { "" };
            Manifest {
                group: group.to_owned(),
                kind: words[0].to_owned(),
                namespace: words.get(2).map(|place| (*place).to_owned()),
                name: words[1].to_owned(),
                origin: "f:1:1".to_owned(),
            }
        };
        TargetQuery { manifests: lines.iter().map(manifest).collect(), ..TargetQuery::default() }
    }

    #[test]
    fn kinds_that_are_not_served_are_listed_as_typed() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        let query = manifest_query(&["Gizmo a", "Gizmo b shop", "Node c"]);
        let typed: Vec<_> =
            query.unserved(&names, "x").into_iter().map(Manifest::as_typed).collect();
        assert_eq!(typed, ["gizmo.example.com/a", "gizmo.example.com/b -n shop"]);
        let resolved = query.resolve(&names, "x", "no kind").unwrap();
        assert_eq!(resolved.iter().map(ResolvedTarget::as_typed).collect::<Vec<_>>(), ["nodes/c"]);
        // If no kind is served, the command fails.
        let error = manifest_query(&["Gizmo a"]).resolve(&names, "x", "no kind").unwrap_err();
        let expected = "f:1:1: no kind \"Gizmo\"; kubectl api-resources lists the kinds";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn selected_objects_are_in_the_order_of_the_api_server() {
        let mut world = crate::cluster::World::default();
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        for (namespace, name) in [("b", "x"), ("a", "z"), ("a", "y")] {
            let map = format!(
                r#"{{"metadata": {{"namespace": "{namespace}", "name": "{name}", "uid": "{name}"}}}}"#
            );
            world.catalogue.parse_and_apply(&mut world.graph, kind, &map).unwrap();
        }
        let info = world.graph.kinds.info(kind).clone();
        let target = ResolvedTarget { info, namespace: None, name: None, may_be_missing: true };
        let names: Vec<_> = target
            .nodes(&world.graph, &[])
            .into_iter()
            .map(|id| world.graph.coordinates(id).2.to_owned())
            .collect();
        assert_eq!(names, ["y", "z", "x"]);
    }

    #[test]
    fn namespaced_targets_limit_the_search_to_their_namespaces() {
        let names = KindNames::of_kinds(&Kinds::default(), &[]);
        let searched = |line: &str| {
            let owned: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let wanted = parse_objects(&owned, false).unwrap();
            let query = TargetQuery { wanted, ..TargetQuery::default() };
            let resolved = query.resolve(&names, "shop", "no kind").unwrap();
            namespaces(&resolved).map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(searched("pvc/data").as_deref(), Some("shop"));
        assert_eq!(searched("pvc/data ns/team").as_deref(), Some("shop team"));
        // A cluster-scoped owner may own objects in any namespace.
        assert_eq!(searched("pvc/data pv/x"), None);
    }
}
