//! What a verdict is computed from, beside the question itself.

use std::collections::HashMap;

use crate::graph::{Graph, Node, StepLimit};
use crate::objects::{ApiError, KindId, full_name};
use crate::policy::{AppliedPolicy, NamespaceLabels, ObjectFacts, PolicySet};

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
    /// What an answer may cost. [`super::decide`] sets it for each review, and
    /// the release for each pass.
    pub work: StepLimit<'a>,
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

impl LiveRead {
    /// Its kind, as people name it.
    pub fn kind_name(&self) -> String {
        let (Self::Object { group, resource, .. } | Self::List { group, resource, .. }) = self;
        full_name(group, resource)
    }
}

/// What has been read live. Whoever reads applies every object to `graph` with
/// its edges, and notes each read and whether it succeeded. Of a read that did,
/// what is not in the graph is not there; one that failed proves nothing.
#[derive(Debug, Default)]
pub struct LiveReads {
    /// What was found. It numbers kinds as the situation's graph does, those
    /// that only the reads have found behind them.
    pub graph: Graph,
    /// What was read, and why a read failed.
    pub done: HashMap<LiveRead, Result<(), ApiError>>,
}

/// What every Namespace has by itself, and gets again when it is deleted. No
/// policy means it.
const DEFAULT_OBJECTS: &[(&str, &str)] =
    &[("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

impl<'a> Situation<'a> {
    /// What is known, for work without a limit.
    pub fn new(graph: &'a Graph, policies: &'a PolicySet, live: Live<'a>, now: i64) -> Self {
        Self { graph, policies, live, now, work: StepLimit::default() }
    }

    /// The policies of an object.
    pub(crate) fn policies_of(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        self.policies_at(self.places(), facts)
    }

    /// The policies of an object, as if nobody had paused. A pause lets people
    /// delete; it does not let go of what is held.
    pub(crate) fn policies_despite_pause(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        if self.is_default_object(facts) {
            return Vec::new();
        }
        self.policies.policies_despite_pause(self.places(), facts)
    }

    /// The policies of an object in these places.
    pub(super) fn policies_at(
        &self,
        places: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> Vec<AppliedPolicy<'a>> {
        if self.is_default_object(facts) {
            return Vec::new();
        }
        self.policies.policies_of(places, facts, self.now)
    }

    /// Whether this is what every Namespace has by itself.
    pub(super) fn is_default_object(&self, facts: ObjectFacts<'_>) -> bool {
        facts.group.is_empty() && DEFAULT_OBJECTS.contains(&(facts.resource, facts.name))
    }

    /// Where objects live.
    pub(super) fn places(&self) -> NamespaceLabels<'a> {
        NamespaceLabels::new(self.graph)
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
        let read = reads.done.get(&self.object_read(kind, namespace, name))?;
        read.as_ref().ok()?;
        Some(reads.graph.object(kind, namespace, name))
    }

    /// Whether this is still to be read before the verdict is final.
    pub(super) fn is_unread(&self, read: &LiveRead) -> bool {
        self.reads().is_some_and(|reads| !reads.done.contains_key(read))
    }

    /// Whether the absence of objects of a kind is a fact: because this list
    /// was read live, or, where that is not asked for, because the graph has
    /// them all as of now. Where the watch is not connected the list is asked
    /// for in any case. If not: what is to be read, or why it is unknown.
    pub(super) fn absence(&self, kind: KindId, list: LiveRead, live: bool) -> Absence {
        self.absence_unless(kind, list, live, Graph::unreadable_in)
    }

    /// The same, always live, where the metadata of objects says enough: an object with
    /// too many references counts as any other.
    pub(super) fn absence_by_metadata(&self, kind: KindId, list: LiveRead) -> Absence {
        self.absence_unless(kind, list, true, Graph::malformed_in)
    }

    fn absence_unless(
        &self,
        kind: KindId,
        list: LiveRead,
        live: bool,
        unreadable: for<'g> fn(&'g Graph, KindId, &str) -> Option<(&'g str, String)>,
    ) -> Absence {
        let known = self.graph.is_current(kind);
        let proved = |graph: &Graph, namespace| match unreadable(graph, kind, namespace) {
            None => Absence::Proved,
            Some((namespace, object)) => {
                Absence::Unreadable { object, namespace: namespace.to_owned() }
            }
        };
        let LiveRead::List { namespace, .. } = &list else { return Absence::Unread(list) };
        if known && !live {
            return proved(self.graph, namespace);
        }
        match self.reads().map(|reads| (reads, reads.done.get(&list))) {
            Some((_, None)) => Absence::Unread(list),
            Some((reads, Some(Ok(())))) => proved(&reads.graph, namespace),
            Some((_, Some(Err(why)))) => Absence::Unknown(why.to_string()),
            None if known => proved(self.graph, namespace),
            None => Absence::Unknown(self.why_unknown(kind, namespace)),
        }
    }

    /// Why not all objects of a kind in a namespace (empty: in any) are known.
    pub(super) fn why_unknown(&self, kind: KindId, namespace: &str) -> String {
        let graph = self.graph;
        if !graph.is_complete(kind) {
            return graph.why_incomplete(kind).to_string();
        }
        match graph.unreadable(kind, namespace) {
            Some(object) => object,
            None => "the watch of them is not connected".to_owned(),
        }
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

/// Whether that nothing was found means something.
pub(super) enum Absence {
    /// It does.
    Proved,
    /// This has to be read first.
    Unread(LiveRead),
    /// All were looked at, and this one can't be read: it may be anything.
    Unreadable {
        /// That, in words.
        object: String,
        /// Its namespace; empty for a cluster-scoped object, or if it is unknown.
        namespace: String,
    },
    /// Nobody can tell, and why.
    Unknown(String),
}
