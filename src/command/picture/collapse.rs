//! Collapses a large picture into groups, so that its size has a limit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::{Picture, PictureEdge, PictureNode};
use crate::objects::{and_more, namespace_option};

/// The maximum number of nodes.
pub const MAX_NODES: usize = 50;

/// The maximum number of edges.
const MAX_EDGES: usize = 100;

/// The maximum number of members that a group lists.
const MAX_MEMBERS: usize = 200;

/// The maximum number of members that all groups list.
const MAX_ALL_MEMBERS: usize = 2000;

/// The indices of the nodes that are drawn as one node.
type Unit = Vec<usize>;

impl Picture {
    /// The picture with at most this many nodes, and with a limited number of edges and members.
    pub fn collapsed(mut self, max: usize) -> Self {
        let mut units: Vec<Unit> = (0..self.nodes.len()).map(|index| vec![index]).collect();
        units = self.merged(units, max, true, |node| {
            (node.fate, node.is_target, &node.word, &node.kind, &node.namespace)
        });
        units = self.merged(units, max, true, |node| (node.fate, node.is_target, &node.kind));
        units = self.merged(units, max, false, |node| node.fate);
        units.sort();
        let mut drawn_as = vec![0; self.nodes.len()];
        for (drawn, unit) in units.iter().enumerate() {
            unit.iter().for_each(|index| drawn_as[*index] = drawn);
        }
        let mut unlisted = MAX_ALL_MEMBERS;
        let nodes = units.iter().map(|unit| self.drawn(unit, &mut unlisted)).collect();
        let (edges, omitted) = merged_edges(&self.edges, &drawn_as);
        if omitted > 0 {
            self.notes.push(format!("{omitted} more arrows are not drawn"));
        }
        Self { nodes, edges, index: HashMap::new(), ..self }
    }

    /// Merges units with the same key until there are at most `max`: the least severe and largest
    /// groups first. `whole`: a group is merged completely or not at all.
    fn merged<'n, K: Ord>(
        &'n self,
        units: Vec<Unit>,
        max: usize,
        whole: bool,
        key: impl Fn(&'n PictureNode) -> K,
    ) -> Vec<Unit> {
        let mut count = units.len();
        if count <= max {
            return units;
        }
        let mut groups: BTreeMap<K, Vec<Unit>> = BTreeMap::new();
        for unit in units {
            groups.entry(key(&self.nodes[unit[0]])).or_default().push(unit);
        }
        let mut groups: Vec<Vec<Unit>> = groups.into_values().collect();
        groups.sort_by_key(|group| (self.nodes[group[0][0]].fate, Reverse(group.len())));
        let mut merged = Vec::new();
        for mut group in groups {
            let excess = count.saturating_sub(max);
            let taken = match whole && excess > 0 {
                true => group.len(),
                false => group.len().min(excess + 1),
            };
            group.sort_by_key(Vec::len);
            let rest = group.split_off(taken);
            count -= group.len() - 1;
            merged.push(group.concat());
            merged.extend(rest);
        }
        merged
    }

    /// The node for a unit. `unlisted`: how many members may still be listed.
    fn drawn(&self, unit: &Unit, unlisted: &mut usize) -> PictureNode {
        let nodes: Vec<&PictureNode> = unit.iter().map(|index| &self.nodes[*index]).collect();
        let first = nodes[0];
        if nodes.len() == 1 {
            return first.clone();
        }
        let common = |text: fn(&PictureNode) -> &str| {
            let is_common = nodes.iter().all(|node| text(node) == text(first));
            if is_common { text(first) } else { "" }
        };
        let kind = common(|node| &node.kind);
        let namespace = common(|node| &node.namespace);
        let option = match namespace == self.omitted {
            true => String::new(),
            false => namespace_option(namespace),
        };
        let label = match (kind, nodes.len()) {
            ("", count) => format!("{count} objects{option}"),
            (kind, count) => format!("{kind} × {count}{option}"),
        };
        let shown = nodes.len().min(MAX_MEMBERS).min(*unlisted);
        *unlisted -= shown;
        let members = nodes.iter().take(shown).map(|node| match node.detail.is_empty() {
            true => node.label.clone(),
            false => format!("{} ({})", node.label, node.detail),
        });
        let word = match common(|node| &node.word) {
            "" => first.fate.style().name,
            word => word,
        };
        PictureNode {
            label,
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            fate: first.fate,
            word: word.to_owned(),
            is_target: nodes.iter().any(|node| node.is_target),
            members: members.collect(),
            count: nodes.len(),
            ..PictureNode::default()
        }
    }
}

/// The edges between drawn nodes, one edge for each pair, and the number of omitted edges.
fn merged_edges(edges: &[PictureEdge], drawn_as: &[usize]) -> (Vec<PictureEdge>, usize) {
    let mut merged: Vec<(PictureEdge, usize)> = Vec::new();
    let mut index: HashMap<(usize, usize), usize> = HashMap::new();
    for edge in edges {
        let (from, to) = (drawn_as[edge.from], drawn_as[edge.to]);
        if from == to {
            continue;
        }
        let position = *index.entry((from, to)).or_insert(merged.len());
        match merged.get_mut(position) {
            Some((known, others)) => {
                *others += usize::from(known.label != edge.label);
                known.is_weak &= edge.is_weak;
            }
            None => merged.push((PictureEdge { from, to, ..edge.clone() }, 0)),
        }
    }
    let omitted = merged.len().saturating_sub(MAX_EDGES);
    merged.truncate(MAX_EDGES);
    let edges = merged.into_iter().map(|(edge, others)| PictureEdge {
        label: format!("{}{}", edge.label, and_more(others, "reference")),
        ..edge
    });
    (edges.collect(), omitted)
}
