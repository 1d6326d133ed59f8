//! What a verdict is computed from, beside the question itself.

use std::collections::HashSet;

use crate::graph::{Graph, Node};
use crate::objects::KindId;
use crate::policy::{Applied, Facts, Places, PolicySet};

/// Everything that is known at the moment of a question.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The cluster, as far as it is known.
    pub graph: &'a Graph,
    /// What people have said.
    pub policies: &'a PolicySet,
    /// What has been read live for this very question.
    pub live: Live<'a>,
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// What stands behind the graph.
#[derive(Clone, Copy)]
pub enum Live<'a> {
    /// Nothing: the graph is the truth itself (a folder of files).
    Graph,
    /// A cluster, of which this has been read live.
    Read(&'a LiveReads),
}

/// Something to read from the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LiveRead {
    /// One object, by name.
    Object {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// Namespace; empty for a cluster-scoped object.
        namespace: String,
        /// Name.
        name: String,
    },
    /// The objects of a kind.
    List {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// In which namespace; empty: in all.
        namespace: String,
        /// Whether the first one is enough.
        first: bool,
    },
}

/// What has been read live. Whoever reads applies every object to `graph` with
/// its edges, marks the kinds that were listed complete and those that could
/// not be incomplete, and notes each read, whatever came of it.
#[derive(Debug, Default)]
pub struct LiveReads {
    /// What was found. It numbers kinds as the situation's graph does.
    pub graph: Graph,
    /// What was read.
    pub done: HashSet<LiveRead>,
}

impl<'a> Situation<'a> {
    /// The policies of an object.
    pub(super) fn applied(&self, facts: Facts<'_>) -> Vec<Applied<'a>> {
        self.policies.of(self.places(), facts, self.now)
    }

    /// Where objects live.
    pub(crate) fn places(&self) -> Places<'a> {
        Places::new(self.graph)
    }

    /// What was read live.
    pub(super) fn reads(&self) -> Option<&'a LiveReads> {
        match self.live {
            Live::Graph => None,
            Live::Read(reads) => Some(reads),
        }
    }

    /// An object that was read live: `Some(None)` if it was read and is not
    /// there.
    pub(super) fn read_object(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Option<Option<Node<'a>>> {
        let reads = self.reads().filter(|reads| !reads.done.is_empty())?;
        if !reads.done.contains(&self.object_read(kind, namespace, name)) {
            return None;
        }
        let found = reads.graph.find(kind, namespace, name).and_then(|id| reads.graph.get(id));
        // What could not be read is not absent.
        if found.is_none() && !reads.graph.is_complete(kind) {
            return None;
        }
        Some(found)
    }

    /// Whether this is still to be read before the verdict is final.
    pub(super) fn is_unread(&self, read: &LiveRead) -> bool {
        self.reads().is_some_and(|reads| !reads.done.contains(read))
    }

    /// The read of one object.
    pub(crate) fn object_read(&self, kind: KindId, namespace: &str, name: &str) -> LiveRead {
        let info = self.graph.kinds.info(kind);
        LiveRead::Object {
            group: info.group.clone(),
            resource: info.resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The read of the objects of a kind.
    pub(crate) fn list(&self, kind: KindId, namespace: &str, first: bool) -> LiveRead {
        let info = self.graph.kinds.info(kind);
        LiveRead::List {
            group: info.group.clone(),
            resource: info.resource.clone(),
            namespace: if info.namespaced { namespace.to_owned() } else { String::new() },
            first,
        }
    }
}
