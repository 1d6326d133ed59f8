//! `kubectl belay used-by`: lists the users of an object, or the objects that it uses.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::inspection::{self, Inspection};
use super::targets::{SearchArguments, TargetQuery};
use super::tree::{TreeLine, draw};
use crate::command::CommandError;
use crate::command::document::{FailedRead, Object};
use crate::command::picture::{DrawnFate, Picture};
use crate::command::report::{GraphArguments, Report, View, name_lines};
use crate::command::screen::{Field, Screen, Tone};
use crate::graph::{
    DeletionRequest, EdgeQualifier, Graph, NodeId, ObjectPhase, Propagation, Strength, fates,
};
use crate::objects::and_more;

#[derive(Debug, Args)]
#[command(
    mut_arg("all", |all| {
        all.help("Also list references that block no deletion, and print long lists completely")
    }),
    after_help = "With --all, the command also lists objects with these values in the second column. They \
                  block no deletion and do not change the exit code:\n\
                  \x20 mentions     it only mentions the object\n\
                  \x20 makes        it creates the object\n\
                  \x20 has ended    it no longer runs\n\
                  \x20 optional     it runs without the object\n\
                  \x20 scaled down  it has 0 replicas\n\n\
                  Dependents and content of the object are deleted with it, so they are only counted; \
                  kubectl belay impact lists them.\n\nExit codes: 0: not in use, or with --reverse; 1: in use; \
                  2: wrong arguments; 3: unknown, because a read failed"
)]
pub struct UsedByArguments {
    /// The object. TYPE is a plural, singular or short name of a kind, with its group if
    /// the name is ambiguous
    #[arg(value_name = "TYPE/NAME", num_args = 1..=2, required = true)]
    target: Vec<String>,

    #[command(flatten)]
    search: SearchArguments,

    /// Show what the object uses, instead of what uses it
    #[arg(long)]
    reverse: bool,

    /// The depth of the search: 2 also lists the objects that use the listed ones
    #[arg(long, value_name = "NUMBER", default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    depth: u8,

    #[command(flatten)]
    output: GraphArguments,
}

/// The report.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedBy {
    /// The object.
    object: Object,
    /// Whether the object exists. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    present: Option<bool>,
    /// Whether `uses` lists what the object uses, instead of what uses the object.
    reverse: bool,
    /// The objects that use the object, or with `--reverse` those that it uses.
    uses: Vec<Use>,
    /// The number of omitted weaker edges. `--all` omits none.
    weaker: usize,
    /// The number of objects that would be deleted with it: its content and its dependents.
    /// They don't count as uses.
    #[serde(rename = "goesAlong")]
    cascaded: usize,
    /// Failed reads. The list may be incomplete.
    not_read: Vec<FailedRead>,
    /// The uses as a tree, for the text output.
    #[serde(skip)]
    tree: TreeLine,
    /// The depth of the search.
    #[serde(skip)]
    depth: u8,
    #[serde(skip)]
    exit_code: u8,
}

/// One use.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Use {
    /// The object that uses the other one, or with `--reverse` the used one.
    object: Object,
    /// The topmost owner of the object that uses the other one.
    root: Object,
    /// The strength of the edge: `needs`, `mentions`, `makes`, `has ended`, `optional` or
    /// `scaled down`.
    means: &'static str,
    /// The field with the reference, in the manifest of the object that uses the other one.
    field_path: String,
    /// The distance from the object.
    depth: u8,
    /// Whether the used object exists.
    present: bool,
    /// The object at the other end of the edge.
    #[serde(skip)]
    other_end: Object,
    #[serde(skip)]
    id: NodeId,
    /// The node of `root`.
    #[serde(skip)]
    root_id: NodeId,
}

impl Use {
    /// The row of `-o wide`, which has a line for each reference.
    fn row(&self) -> [Field; 5] {
        let owner = if self.root == self.object { "-" } else { &self.root.arguments };
        [
            self.object.arguments.as_str().into(),
            owner.into(),
            self.means.into(),
            self.depth.to_string().into(),
            self.field_path.as_str().into(),
        ]
    }
}

pub async fn run(arguments: UsedByArguments) -> Result<ExitCode, CommandError> {
    let UsedByArguments { target, search, reverse, depth, output } = arguments;
    // A missing object uses nothing, but others may use it.
    let query = TargetQuery::one(&target, !reverse)?;
    let inspection = inspection::read(&query, search, output.all).await?;
    let mut walk = Walk {
        inspection: &inspection,
        reverse,
        all: output.all,
        max_depth: depth,
        seen: HashSet::new(),
        uses: Vec::new(),
        weaker: 0,
    };
    let Some(target) = inspection.targets.first().copied() else {
        return Ok(ExitCode::from(3));
    };
    let tree = walk.tree(target);
    let needed = walk.uses.iter().any(|one| one.means == "needs" && one.depth == 1);
    let unknown = !inspection.not_read.is_empty();
    let report = UsedBy {
        depth,
        object: Object::at(&inspection.graph, target),
        present: inspection
            .unread_targets
            .is_empty()
            .then(|| inspection.graph.get(target).is_some()),
        reverse,
        uses: walk.uses,
        weaker: walk.weaker,
        cascaded: count_cascaded(&inspection.graph, target),
        not_read: inspection.not_read.clone(),
        tree,
        exit_code: match (reverse, needed, unknown) {
            (true, ..) | (false, false, false) => 0,
            (false, true, _) => 1,
            (false, false, true) => 3,
        },
    };
    report.print(output)
}

/// A walk along the edges, away from the target.
struct Walk<'s> {
    inspection: &'s Inspection,
    reverse: bool,
    all: bool,
    max_depth: u8,
    seen: HashSet<NodeId>,
    uses: Vec<Use>,
    weaker: usize,
}

impl Walk<'_> {
    /// The tree with the target at its root.
    fn tree(&mut self, target: NodeId) -> TreeLine {
        self.seen.insert(target);
        let below = self.branches(&[target], 1);
        let label = Object::at(&self.inspection.graph, target).label("");
        TreeLine { label, below, ..TreeLine::default() }
    }

    /// The users of these objects, or the objects that they use, by topmost owner.
    fn branches(&mut self, objects: &[NodeId], depth: u8) -> Vec<TreeLine> {
        let graph = &self.inspection.graph;
        let mut roots: BTreeMap<(String, String, NodeId), Vec<Use>> = BTreeMap::new();
        for id in objects {
            let uses = match self.reverse {
                true => used(graph, *id, depth),
                false => users(graph, *id, depth),
            };
            for one in uses {
                if one.means != "needs" && !self.all {
                    self.weaker += 1;
                    continue;
                }
                let key = (one.root.kind.clone(), one.root.name.clone(), one.root_id);
                roots.entry(key).or_default().push(one);
            }
        }
        let mut branches = Vec::new();
        for ((.., root), uses) in roots {
            self.uses.extend(uses.iter().cloned());
            let mut next: Vec<NodeId> = uses.iter().map(|one| one.id).chain([root]).collect();
            next.retain(|id| self.seen.insert(*id));
            let below = match depth < self.max_depth && !next.is_empty() {
                true => self.branches(&next, depth + 1),
                false => Vec::new(),
            };
            branches.push(branch(&uses, below, graph.coordinates(self.target()).1));
        }
        branches
    }

    fn target(&self) -> NodeId {
        // The walk starts only if there is a target.
        self.inspection.targets[0]
    }
}

/// One line for all uses with the same topmost owner.
fn branch(uses: &[Use], below: Vec<TreeLine>, namespace: &str) -> TreeLine {
    let mut uses: Vec<&Use> = uses.iter().collect();
    uses.sort_by_key(|one| (one.means != "needs", one.object != one.root, one.object.name.clone()));
    let Some(first) = uses.first() else { return TreeLine::default() };
    let through = match first.object == first.root {
        true => String::new(),
        false => format!("{}, ", first.object.label(&first.root.namespace)),
    };
    let more = and_more(uses.len() - 1, "reference");
    let absent = if first.present { "" } else { "   not found" };
    TreeLine {
        label: first.root.label(namespace),
        kind: first.root.kind_word(),
        state: first.means.to_owned(),
        tone: if first.means == "needs" { Tone::Strong } else { Tone::Quiet },
        note: format!("{through}{}{more}{absent}", first.field_path),
        rank: u8::from(first.means != "needs"),
        below,
    }
}

/// The uses of an object by other objects.
fn users(graph: &Graph, object: NodeId, depth: u8) -> Vec<Use> {
    let users = graph.users(object).filter(|user| {
        // An owner is no user of itself by a dependent that mentions it, such as an EndpointSlice.
        let mentions_owner =
            || user.strength() == Strength::Mentions && user.node.topmost_owner().id() == object;
        user.node.id() != object && !mentions_owner()
    });
    let mut uses: Vec<Use> = users
        .map(|user| {
            let finished = user.node.phase() == ObjectPhase::Finished;
            let root = user.node.topmost_owner().id();
            Use {
                object: Object::at(graph, user.node.id()),
                root: Object::at(graph, root),
                means: meaning(user.strength(), user.qualifier(), finished),
                field_path: user.path().to_owned(),
                depth,
                present: true,
                other_end: Object::at(graph, object),
                id: user.node.id(),
                root_id: root,
            }
        })
        .collect();
    uses.sort_by_key(|one| (one.id, one.field_path.clone()));
    uses
}

/// The objects that an object uses.
fn used(graph: &Graph, user: NodeId, depth: u8) -> Vec<Use> {
    let Some(node) = graph.get(user) else { return Vec::new() };
    let finished = node.phase() == ObjectPhase::Finished;
    let new_use = |id: NodeId, means: &'static str, path: &str| Use {
        object: Object::at(graph, id),
        root: Object::at(graph, id),
        means,
        field_path: path.to_owned(),
        depth,
        present: graph.get(id).is_some(),
        other_end: Object::at(graph, user),
        id,
        root_id: id,
    };
    let edges = node.uses().iter();
    let mut uses: Vec<Use> = edges
        .map(|edge| new_use(edge.to, meaning(edge.strength, edge.qualifier, finished), &edge.path))
        .collect();
    for edge in node.selector_edges() {
        let matching =
            graph.objects_of_kind(edge.kind).filter_map(|id| graph.get(id)).filter(|other| {
                let in_namespace = edge.namespace.is_empty() || other.namespace() == edge.namespace;
                in_namespace && edge.selector.matches(other.name(), |key| other.labels().get(key))
            });
        let means = meaning(edge.strength, EdgeQualifier::None, finished);
        let mut matching: Vec<NodeId> = matching.map(|other| other.id()).collect();
        matching.sort_unstable();
        uses.extend(matching.into_iter().map(|id| new_use(id, means, &edge.path)));
    }
    uses
}

/// The number of objects that a deletion cascades to: the content of a Namespace, the
/// objects of a CRD, and dependents without another owner.
fn count_cascaded(graph: &Graph, target: NodeId) -> usize {
    let deletion = graph
        .get(target)
        .map(|node| (target, Propagation::of_node_delete(node, Some(Propagation::Background))));
    let targets: Vec<(NodeId, Propagation)> = deletion.into_iter().collect();
    let fates = fates(graph, &DeletionRequest::new(&targets));
    fates.iter().filter(|(id, _)| *id != target && fates.may_be_lost(*id)).count()
}

/// The meaning of an edge in one word.
fn meaning(strength: Strength, qualifier: EdgeQualifier, finished: bool) -> &'static str {
    match (strength, qualifier, finished) {
        (Strength::Mentions, ..) => "mentions",
        (Strength::Produces, ..) => "makes",
        (Strength::Needs, _, true) => "has ended",
        (Strength::Needs, EdgeQualifier::Optional, _) => "optional",
        (Strength::Needs, EdgeQualifier::ScaledDown, _) => "scaled down",
        (Strength::Needs, EdgeQualifier::None, false) => "needs",
    }
}

impl Report for UsedBy {
    const KIND: &'static str = "UsedBy";

    fn exit_code(&self) -> u8 {
        self.exit_code
    }

    fn names(&self) -> Option<String> {
        Some(name_lines(self.uses.iter().map(|one| one.object.arguments.as_str())))
    }

    fn unread(&self) -> &[FailedRead] {
        &self.not_read
    }

    fn picture(&self) -> Option<Picture> {
        let title = match self.reverse {
            false => format!("objects that use {}", self.object.label("")),
            true => format!("objects that {} uses", self.object.label("")),
        };
        let mut picture = Picture::new(title, &self.object.namespace, &self.not_read);
        if self.weaker > 0 {
            picture = picture.with_note(self.weaker_text());
        }
        let target = picture.node(&self.object);
        target.set_target();
        if self.present == Some(false) {
            target.set_fate(DrawnFate::Unchanged, "not found", "");
        }
        for one in &self.uses {
            let word = if one.present { one.means } else { "not found" };
            let (user, used) = match self.reverse {
                false => (&one.object, &one.other_end),
                true => (&one.other_end, &one.object),
            };
            if one.object != self.object {
                picture.node(&one.object).set_fate(DrawnFate::Unchanged, word, "");
            }
            picture.add_edge(user, used, &one.field_path, one.means != "needs");
            if one.root != one.object {
                picture.add_edge(&one.object, &one.root, "metadata.ownerReferences", false);
            }
        }
        Some(picture)
    }

    fn text(&self, view: View) -> String {
        let screen = view.screen;
        let mut root = self.tree.clone();
        root.sort();
        let direct = root.below.len();
        let is_needed = self.uses.iter().any(|one| one.means == "needs" && one.depth == 1);
        root.state = match (self.reverse, direct) {
            (false, count) if !is_needed && self.weaker + count > 0 => {
                "used by no object that blocks its deletion".to_owned()
            }
            (false, 0) => "used by no object".to_owned(),
            (true, 0) => "uses no other objects".to_owned(),
            (false, count) => format!("used by {count}"),
            (true, count) => format!("uses {count}"),
        };
        if self.present == Some(false) {
            root.note = "not found".to_owned();
        }
        let mut text = match view.wide && !self.uses.is_empty() {
            true => {
                let heading = ["OBJECT", "OWNER", "STRENGTH", "DEPTH", "FIELD"];
                view.table(&heading, (&self.uses, usize::MAX, ""), |table, one| {
                    table.row(one.row())
                })
            }
            false => draw(&[root], screen, view.is_complete()),
        };
        if self.weaker > 0 {
            let more = self.weaker_text();
            let object = self.object.label("");
            let reverse = if self.reverse { " --reverse" } else { "" };
            let depth = match self.depth {
                1 => String::new(),
                depth => format!(" --depth {depth}"),
            };
            let next = format!("kubectl belay used-by {object}{reverse}{depth} --all");
            let pronoun = if self.weaker == 1 { "it" } else { "them" };
            let more = screen.paint(Tone::Quiet, &more);
            text.push_str(&format!("{more}; to list {pronoun}: {next}\n"));
        }
        text.push_str(&self.cascaded_text(screen));
        for FailedRead { resource, why } in FailedRead::grouped(&self.not_read, view.verbose) {
            let line = format!("not read    {resource} ({why}): there may be more");
            text.push_str(&screen.paragraph(0, &line));
        }
        text
    }
}

impl UsedBy {
    /// The number of omitted edges.
    fn weaker_text(&self) -> String {
        match self.weaker {
            1 => "not listed: 1 reference that blocks no deletion".to_owned(),
            more => format!("not listed: {more} references that block no deletion"),
        }
    }

    /// The line about the objects that would be deleted as well. An object without users can
    /// still have content.
    fn cascaded_text(&self, screen: Screen) -> String {
        if self.reverse || self.cascaded == 0 {
            return String::new();
        }
        let objects = if self.cascaded == 1 { "object" } else { "objects" };
        let bound = if self.not_read.is_empty() { "" } else { "at least " };
        let Self { object, cascaded, .. } = self;
        let next = format!("kubectl belay impact {}", object.label(""));
        screen.paragraph(
            0,
            &format!("{bound}{cascaded} {objects} would be deleted with it; next: {next}"),
        )
    }
}
