//! An object of a review, of the graph or of live reads.

use super::{ObjectName, Review, Situation};
use crate::graph::{Node, OwnerRef, SEARCH_STEPS};
use crate::objects::{
    CLAIM_PROTECTION, FOREGROUND, HoldAge, KindId, LONGEST_NAME, ORPHAN, Object, ObjectRef, Uid,
    is_hold, is_namespace, split_api_version,
};
use crate::policy::{ObjectFacts, ObjectIdentity};

/// Finalizers whose controllers only wait. For any other finalizer a deletionTimestamp
/// starts a clean-up, which deletes external resources while the object still exists.
pub(crate) const WAITING_FINALIZERS: &[&str] = &[
    FOREGROUND,
    ORPHAN,
    CLAIM_PROTECTION,
    "kubernetes.io/pv-protection",
    "kubernetes.io/vac-protection",
    "batch.kubernetes.io/job-tracking",
    "resource.kubernetes.io/delete-protection",
    "scheduling.k8s.io/podgroup-protection",
];

/// The target from a review, an object from the graph, or an object that was read live.
#[derive(Clone, Copy)]
pub(crate) struct JudgedObject<'a> {
    pub(super) facts: ObjectFacts<'a>,
    /// The kind, if it is served.
    pub(super) kind: Option<KindId>,
    /// The name of the kind; empty if it is unknown.
    kind_name: &'a str,
    /// The node, if the graph has the object with this uid.
    pub(super) node: Option<Node<'a>>,
    uid: Uid,
    /// The age of the hold. It is stored here because the search for it reads all finalizers.
    hold: HoldAge,
    data: ObjectData<'a>,
    /// Whether only approvals with scope Content count, because its content is unknown.
    pub(crate) needs_content_approval: bool,
}

/// The newest data of an object.
#[derive(Clone, Copy)]
enum ObjectData<'a> {
    Review(&'a Object<'a>),
    Node(Node<'a>),
}

impl<'a> JudgedObject<'a> {
    /// The target of a review, with the data of one of its objects.
    pub(super) fn of_review(
        situation: &Situation<'a>,
        review: &'a Review<'a>,
        object: &'a Object<'a>,
    ) -> Self {
        let resource = (review.resource.group.as_str(), review.resource.resource.as_str());
        // A request for a Namespace has the name of the Namespace as its namespace.
        let is_namespace = is_namespace(resource.0, resource.1);
        let namespace = if is_namespace { "" } else { review.namespace.as_str() };
        // The API server may not have generated the name yet. Then the prefix matches at least
        // the policies of the name, so belay may add a surplus hold but misses none.
        let name = match review.target_name() {
            "" => object.metadata.generate_name.as_str(),
            name => name,
        };
        let facts = ObjectFacts::of_object(resource, (namespace, name), object);
        let graph = situation.graph;
        let kind = graph.kinds.find_resource(resource.0, resource.1);
        let node = kind.and_then(|kind| graph.object(kind, facts.namespace, facts.name));
        let uid = Uid::new(&object.metadata.uid);
        let node = node.filter(|node| node.uid() == uid);
        let kind_name = match kind {
            Some(kind) => situation.graph.kinds.info(kind).kind.as_str(),
            None => review.kind_name(object),
        };
        let age = object.hold_age();
        let hold = node.map_or(age, |node| node.hold().updated_by(age));
        let data = ObjectData::Review(object);
        Self { facts, kind, kind_name, node, uid, hold, data, needs_content_approval: false }
    }

    /// An object of the situation's graph, or one that was read live.
    pub(crate) fn of_node(situation: &Situation<'a>, node: Node<'a>) -> Self {
        Self {
            facts: ObjectFacts::of_node(node),
            kind: Some(node.kind()),
            kind_name: &node.info().kind,
            node: situation.graph.find_counterpart(node),
            uid: node.uid(),
            hold: node.hold(),
            data: ObjectData::Node(node),
            needs_content_approval: false,
        }
    }

    /// The work of the search for the policies of the object.
    pub(super) fn policy_search_steps(&self) -> usize {
        SEARCH_STEPS + self.facts.labels.lookup_steps()
    }

    pub(super) fn uid(&self) -> Uid {
        self.uid
    }

    /// The uid as the API server writes it.
    pub(super) fn uid_text(&self) -> String {
        match self.data {
            ObjectData::Review(object) => object.metadata.uid.to_string(),
            ObjectData::Node(node) => node.uid().to_string(),
        }
    }

    /// The time of the creation, in seconds since 1970.
    pub(super) fn creation_time(&self) -> i64 {
        match self.data {
            ObjectData::Review(object) => object.created().unwrap_or(i64::MIN),
            ObjectData::Node(node) => node.creation_time(),
        }
    }

    /// The resourceVersion; `u64::MAX` if it is unknown.
    pub(super) fn version(&self) -> u64 {
        match self.data {
            ObjectData::Review(object) => object.metadata.version(),
            ObjectData::Node(_) => u64::MAX,
        }
    }

    pub(super) fn deletion_time(&self) -> Option<i64> {
        match self.data {
            ObjectData::Review(object) => object.deleted(),
            ObjectData::Node(node) => node.deletion_time(),
        }
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.deletion_time().is_some()
    }

    pub(super) fn hold(&self) -> HoldAge {
        self.hold
    }

    pub(super) fn has_effective_hold(&self, situation: &Situation<'_>) -> bool {
        self.hold().is_effective(situation.now)
    }

    pub(super) fn finalizers(&self) -> Vec<&'a str> {
        match self.data {
            ObjectData::Review(object) => {
                object.metadata.finalizers.iter().flatten().map(|f| f.as_str()).collect()
            }
            ObjectData::Node(node) => node.finalizers().iter().collect(),
        }
    }

    /// Whether a deletion may leave the object to the release: the hold is effective, and no
    /// other controller starts a clean-up.
    pub(super) fn can_wait_for_release(&self, situation: &Situation<'_>) -> bool {
        self.has_effective_hold(situation) && only_wait(self.finalizers())
    }

    /// After how many seconds the object can wait for the release, if only the age of the hold
    /// prevents that now.
    pub(super) fn seconds_until_it_can_wait(&self, situation: &Situation<'_>) -> Option<i64> {
        let seconds = self.hold().effective_in(situation.now)?;
        only_wait(self.finalizers()).then_some(seconds)
    }

    pub(super) fn owners(&self, situation: &Situation<'a>) -> Vec<OwnerRef<'a>> {
        let kinds = &situation.graph.kinds;
        let object = match self.data {
            ObjectData::Review(object) => object,
            ObjectData::Node(node) => return node.owner_refs().collect(),
        };
        let owner_refs = object.metadata.owner_references.iter().map(|reference| {
            let (group, version) = split_api_version(&reference.api_version);
            // A live read copies the name, so belay resolves no reference with a long name.
            let kind = (reference.name.len() <= LONGEST_NAME)
                .then(|| kinds.find(group, &reference.kind))
                .flatten();
            let namespace = kind.map_or(self.facts.namespace, |kind| {
                kinds.info(kind).namespace_or_empty(self.facts.namespace)
            });
            let (name, uid) = (reference.name.as_str(), Uid::new(&reference.uid));
            OwnerRef { kind, version: Some(version), namespace, name, uid }
        });
        owner_refs.collect()
    }

    /// The kinds of the objects that the object uses by name; none if its edges are unknown.
    pub(super) fn used_kinds(&self) -> impl Iterator<Item = KindId> + use<'a> {
        let node = match self.data {
            ObjectData::Review(_) => self.node,
            ObjectData::Node(node) => Some(node),
        };
        node.into_iter().flat_map(Node::used_kinds)
    }

    pub(super) fn identity(&self) -> ObjectIdentity<'a> {
        let ObjectFacts { group, resource, namespace, name, .. } = self.facts;
        ObjectIdentity { group, resource, namespace, name, uid: self.uid() }
    }

    pub(super) fn object_ref(&self) -> ObjectRef {
        let ObjectFacts { group, resource, namespace, name, .. } = self.facts;
        ObjectRef::new((group, resource), namespace, name).with_kind(self.kind_name)
    }
}

impl JudgedObject<'_> {
    /// The object by kind and name; by its resource if the kind is unknown.
    pub(super) fn object_name(&self) -> ObjectName {
        let kind = if self.kind_name.is_empty() { self.facts.resource } else { self.kind_name };
        let ObjectFacts { group, resource, namespace, name, .. } = self.facts;
        let object = ObjectRef::new((group, resource), namespace, name);
        ObjectName { kind: kind.to_owned(), object }
    }
}

/// Whether the controllers of all these finalizers only wait.
pub(crate) fn only_wait<'f>(finalizers: impl IntoIterator<Item = &'f str>) -> bool {
    let mut finalizers = finalizers.into_iter();
    finalizers.all(|finalizer| is_hold(finalizer) || WAITING_FINALIZERS.contains(&finalizer))
}

/// An object of a graph by kind and name.
pub(crate) fn object_name(node: Node<'_>) -> ObjectName {
    ObjectName { kind: node.info().kind.clone(), object: node.object_ref() }
}
