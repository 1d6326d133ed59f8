//! The input of a decision besides the review.

use std::collections::HashMap;

use super::NextStep;
use crate::graph::{Graph, Node, StepCounter};
use crate::objects::{ApiError, KindId, ObjectRef, full_name};
use crate::policy::api::Action;
use crate::policy::{AppliedPolicy, NamespaceLabels, ObjectFacts, PolicySet};

/// Everything that belay knows at the time of a decision.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// The objects of the cluster as the watches report them.
    pub graph: &'a Graph,
    /// The policies and approvals.
    pub policies: &'a PolicySet,
    /// Where the objects come from: files, or a cluster with its live reads.
    pub source: ObjectSource<'a>,
    /// The time, in seconds since 1970.
    pub now: i64,
    /// The limit of work. [`super::decide`] sets it for each review, and the release for
    /// each pass.
    pub work: StepCounter<'a>,
}

/// Where the objects of a decision come from.
#[derive(Clone, Copy)]
pub enum ObjectSource<'a> {
    /// Files: the graph is complete.
    Files,
    /// A cluster, with these live reads.
    Cluster(&'a LiveReads),
}

/// A read from the API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LiveRead {
    /// One object, by name.
    Object(ObjectRef),
    /// The objects of a kind.
    List {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// The namespace; empty for all namespaces.
        namespace: String,
        /// Which objects of the list the read needs.
        part: ListPart,
    },
}

/// The part of a list that a live read needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListPart {
    /// All objects.
    All,
    /// The first object.
    First,
    /// The objects with the label `belay.dev/protect`.
    Labelled,
}

impl LiveRead {
    /// The group and the plural of the kind to read.
    pub fn kind(&self) -> (&str, &str) {
        let (Self::Object(ObjectRef { group, resource, .. }) | Self::List { group, resource, .. }) =
            self;
        (group, resource)
    }

    /// The plural name of the kind with its group.
    pub fn full_name(&self) -> String {
        let (group, resource) = self.kind();
        full_name(group, resource)
    }
}

/// The results of live reads. The reader applies every object to `graph` with its edges
/// and records the result of each read. After a successful read, an object that is not in
/// the graph does not exist. A failed read proves nothing.
#[derive(Debug, Default)]
pub struct LiveReads {
    /// The objects. The kinds have the same numbers as in the situation's graph, and kinds
    /// that only the reads found have higher numbers.
    pub graph: Graph,
    /// The reads with their results.
    pub results: HashMap<LiveRead, Result<(), ApiError>>,
}

/// Objects that the control plane creates in every Namespace and re-creates after a
/// deletion. They are not content of their Namespace.
const DEFAULT_OBJECTS: &[(&str, &str)] =
    &[("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// Whether this object is the CA certificate of the API server, which the control plane mounts into
/// each Pod. A re-created one has the same content, so the Pods keep working.
pub(crate) fn is_root_ca(object: &ObjectRef) -> bool {
    object.is_of(("", "configmaps")) && object.name == DEFAULT_OBJECTS[0].1
}

/// Whether the control plane creates this object in every Namespace.
pub(crate) fn is_default_object(group: &str, resource: &str, name: &str) -> bool {
    group.is_empty() && DEFAULT_OBJECTS.contains(&(resource, name))
}

impl<'a> Situation<'a> {
    /// A situation without a limit of work.
    pub fn new(
        graph: &'a Graph,
        policies: &'a PolicySet,
        source: ObjectSource<'a>,
        now: i64,
    ) -> Self {
        Self { graph, policies, source, now, work: StepCounter::default() }
    }

    /// The policies that apply to an object, with the effect of a Pause.
    pub(crate) fn policies_of(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        self.policies_with_labels(self.namespace_labels(), facts)
    }

    /// The policies that apply to an object, without the effect of a Pause. A Pause
    /// allows deletes, but releases no hold.
    pub(crate) fn policies_ignoring_pause(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        if self.is_default_object_of_terminating_namespace(facts) {
            return Vec::new();
        }
        self.policies.policies_ignoring_pause(self.namespace_labels(), facts)
    }

    /// The policies that delay the release of a held object. Policies with action Warn or Audit
    /// do not delay it.
    pub(crate) fn release_policies(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        let mut applied = self.policies_ignoring_pause(facts);
        applied.retain(|applied| applied.action == Action::Deny && applied.policy.delays_release());
        applied
    }

    /// The policies for which reports count an object as protected. Reports don't count the
    /// objects that Kubernetes creates in every Namespace.
    pub(crate) fn protecting_policies(&self, facts: ObjectFacts<'_>) -> Vec<AppliedPolicy<'a>> {
        match is_default_object(facts.group, facts.resource, facts.name) {
            true => Vec::new(),
            false => self.policies_ignoring_pause(facts),
        }
    }

    /// The policies that apply to an object, with these labels of Namespaces.
    pub(super) fn policies_with_labels(
        &self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> Vec<AppliedPolicy<'a>> {
        if self.is_default_object_of_terminating_namespace(facts) {
            return Vec::new();
        }
        self.policies.policies_of(namespace_labels, facts, self.now)
    }

    /// Whether the object is one that Kubernetes creates in every Namespace, and its Namespace is
    /// Terminating. Policies about such an object do not delay the deletion of the Namespace.
    fn is_default_object_of_terminating_namespace(&self, facts: ObjectFacts<'_>) -> bool {
        let ObjectFacts { group, resource, namespace, name, .. } = facts;
        is_default_object(group, resource, name) && self.is_namespace_terminating(namespace)
    }

    /// Whether the Namespace of this name is Terminating; the name is empty for a
    /// cluster-scoped object.
    pub(super) fn is_namespace_terminating(&self, name: &str) -> bool {
        let kind = self.graph.kinds.namespace().filter(|_| !name.is_empty());
        let namespace = kind.and_then(|kind| self.graph.object(kind, "", name));
        namespace.is_some_and(Node::is_terminating)
    }

    /// The labels of Namespaces.
    pub(super) fn namespace_labels(&self) -> NamespaceLabels<'a> {
        NamespaceLabels::new(self.graph)
    }

    /// The live reads; `None` without a cluster.
    pub(super) fn reads(&self) -> Option<&'a LiveReads> {
        match self.source {
            ObjectSource::Files => None,
            ObjectSource::Cluster(reads) => Some(reads),
        }
    }

    /// The object from a live read; `Some(None)` if it does not exist, `None`
    /// if it was not read.
    pub(super) fn live_object(
        &self,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Option<Option<Node<'a>>> {
        let reads = self.reads().filter(|reads| !reads.results.is_empty())?;
        let read = reads.results.get(&self.read_of_object(kind, namespace, name))?;
        read.as_ref().ok()?;
        Some(reads.graph.object(kind, namespace, name))
    }

    /// Whether the verdict still needs this read.
    pub(super) fn is_unread(&self, read: &LiveRead) -> bool {
        self.reads().is_some_and(|reads| !reads.results.contains_key(read))
    }

    /// Whether belay knows all objects of a kind. If the watch is connected and `live` is false,
    /// the graph is enough. Otherwise belay needs the live read `list`. For objects from files, the
    /// graph is always enough if it is complete.
    pub(super) fn check_completeness(
        &self,
        kind: KindId,
        list: LiveRead,
        live: bool,
    ) -> Completeness {
        self.check_completeness_with(kind, list, live, Graph::unreadable_in)
    }

    /// Like [`Self::check_completeness`], always live, for checks that need only metadata. For
    /// such a check, an object with too many references is readable.
    pub(super) fn check_completeness_by_metadata(
        &self,
        kind: KindId,
        list: LiveRead,
    ) -> Completeness {
        self.check_completeness_with(kind, list, true, Graph::malformed_in)
    }

    fn check_completeness_with(
        &self,
        kind: KindId,
        list: LiveRead,
        live: bool,
        unreadable: for<'g> fn(&'g Graph, KindId, &str) -> Option<(&'g str, String)>,
    ) -> Completeness {
        let is_current = self.graph.is_current(kind);
        let proved = |graph: &Graph, namespace| match unreadable(graph, kind, namespace) {
            None => Completeness::Complete,
            Some((namespace, object)) => {
                Completeness::Unreadable { object, namespace: namespace.to_owned() }
            }
        };
        let LiveRead::List { namespace, .. } = &list else { return Completeness::Unread(list) };
        if is_current && !live {
            return proved(self.graph, namespace);
        }
        match self.reads().map(|reads| (reads, reads.results.get(&list))) {
            Some((_, None)) => Completeness::Unread(list),
            Some((reads, Some(Ok(())))) => proved(&reads.graph, namespace),
            Some((_, Some(Err(why)))) => {
                let kind = self.graph.kinds.info(kind).group_resource();
                Completeness::Unknown(why.to_string(), Some(NextStep::after(why, kind)))
            }
            None if is_current => proved(self.graph, namespace),
            None => {
                let (why, next) = self.why_unknown(kind, namespace);
                Completeness::Unknown(why, next)
            }
        }
    }

    /// Why belay does not know all objects of a kind in a namespace (empty for all), and the
    /// next step.
    pub(super) fn why_unknown(&self, kind: KindId, namespace: &str) -> (String, Option<NextStep>) {
        let graph = self.graph;
        if !graph.is_complete(kind) {
            let why = graph.why_incomplete(kind);
            let kind = graph.kinds.info(kind).group_resource();
            return (why.to_string(), NextStep::for_incomplete(why, kind));
        }
        match graph.describe_unreadable(kind, namespace) {
            Some(object) => (object, Some(NextStep::ChangeObject)),
            None => ("the watch of them is not connected".to_owned(), Some(NextStep::Retry)),
        }
    }

    /// The read of one object.
    pub(crate) fn read_of_object(&self, kind: KindId, namespace: &str, name: &str) -> LiveRead {
        let info = self.graph.kinds.info(kind);
        LiveRead::Object(ObjectRef::of_kind(info, namespace, name))
    }

    /// The read of the objects of a kind.
    pub(crate) fn read_of_list(&self, kind: KindId, namespace: &str, part: ListPart) -> LiveRead {
        let info = self.graph.kinds.info(kind);
        LiveRead::List {
            group: info.group.clone(),
            resource: info.resource.clone(),
            namespace: info.namespace_or_empty(namespace).to_owned(),
            part,
        }
    }
}

/// Whether belay knows all objects of a kind.
pub(super) enum Completeness {
    /// belay knows all objects.
    Complete,
    /// belay must read this list first.
    Unread(LiveRead),
    /// An object of the kind can't be read, so the object may contain anything.
    Unreadable {
        /// A description of the object.
        object: String,
        /// Its namespace; empty for a cluster-scoped object, or if it is unknown.
        namespace: String,
    },
    /// belay does not know all objects; the text gives the reason.
    Unknown(String, Option<NextStep>),
}
