//! An object that a verdict looks at, wherever it stands.

use super::{Named, Review, Situation, Target};
use crate::graph::{Node, NodeId};
use crate::objects::{FOREGROUND, HOLD, HoldAge, KindId, ORPHAN, Object, Uid, split_api_version};
use crate::policy::{Facts, Identity};

/// Finalizers whose controllers do nothing but wait. Under any other one a
/// deletionTimestamp starts a clean-up, and what stands behind the object goes
/// though the object stays.
const HARMLESS: &[&str] = &[
    HOLD,
    FOREGROUND,
    ORPHAN,
    "kubernetes.io/pvc-protection",
    "kubernetes.io/pv-protection",
    "kubernetes.io/vac-protection",
    "batch.kubernetes.io/job-tracking",
    "resource.kubernetes.io/delete-protection",
];

/// The target as the review has it, or an object that would go along as the
/// graph has it.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(super) facts: Facts<'a>,
    /// Its kind, if belay knows one that is served.
    pub(super) kind: Option<KindId>,
    /// Its place in the graph, whether the graph has the object or not.
    pub(super) place: Option<NodeId>,
    /// Its node, if the graph has this very object.
    pub(super) node: Option<Node<'a>>,
    /// The object, if the review has it.
    object: Option<&'a Object<'a>>,
}

/// An owner reference, resolved as far as its coordinates (R1).
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    /// The owner's kind, if it is known.
    pub(super) kind: Option<KindId>,
    pub(super) version: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: Uid,
}

impl<'a> Item<'a> {
    /// The target of a review, as this one of its objects has it.
    pub(super) fn of_review(
        situation: &Situation<'a>,
        review: &'a Review<'a>,
        object: &'a Object<'a>,
    ) -> Self {
        let graph = situation.graph;
        let resource = (review.resource.group.as_str(), review.resource.resource.as_str());
        // The request says a Namespace's own name as its namespace, too.
        let is_namespace = resource == ("", "namespaces");
        let namespace = if is_namespace { "" } else { review.namespace.as_str() };
        let facts = Facts::of_object(resource, (namespace, review.target_name()), object);
        let kind = graph.kinds.find_resource(resource.0, resource.1);
        let place = kind.and_then(|kind| graph.find(kind, namespace, facts.name));
        let uid = Uid::new(&object.metadata.uid);
        let node = place.and_then(|id| graph.get(id)).filter(|node| node.uid() == uid);
        Self { facts, kind, place, node, object: Some(object) }
    }

    /// An object of the graph.
    pub(crate) fn of_node(situation: &Situation<'a>, node: Node<'a>) -> Self {
        Self {
            facts: Facts::of_node(situation.graph, node),
            kind: Some(node.kind()),
            place: Some(node.id()),
            node: Some(node),
            object: None,
        }
    }

    pub(super) fn uid(&self) -> Uid {
        match (self.object, self.node) {
            (Some(object), _) => Uid::new(&object.metadata.uid),
            (None, Some(node)) => node.uid(),
            (None, None) => Uid::NONE,
        }
    }

    /// The uid as the API server writes it.
    pub(super) fn uid_text(&self) -> String {
        match self.object {
            Some(object) => object.metadata.uid.to_string(),
            None => self.uid().to_string(),
        }
    }

    pub(super) fn deleted(&self) -> Option<i64> {
        match self.object {
            Some(object) => object.deleted(),
            None => self.node.and_then(Node::deleted),
        }
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.deleted().is_some()
    }

    pub(super) fn hold(&self) -> HoldAge {
        match self.object {
            Some(object) => object.hold_age(),
            None => self.node.map_or(HoldAge::NotHeld, Node::hold),
        }
    }

    /// Whether the hold is there and may be relied on.
    pub(super) fn is_held(&self, situation: &Situation<'_>) -> bool {
        self.hold().is_effective(situation.now)
    }

    pub(super) fn finalizers(&self) -> Vec<&'a str> {
        match (self.object, self.node) {
            (Some(object), _) => {
                object.metadata.finalizers.iter().flatten().map(|f| f.as_str()).collect()
            }
            (None, Some(node)) => node.finalizers().iter().collect(),
            (None, None) => Vec::new(),
        }
    }

    /// Whether the hold alone decides when it goes: it may be relied on, and a
    /// deletionTimestamp starts nobody's clean-up.
    pub(super) fn may_wait(&self, situation: &Situation<'_>) -> bool {
        self.is_held(situation) && self.finalizers().iter().all(|f| HARMLESS.contains(f))
    }

    /// Its owner references.
    pub(super) fn owners(&self, situation: &Situation<'a>) -> Vec<Claim<'a>> {
        let kinds = &situation.graph.kinds;
        if let Some(object) = self.object {
            let claims = object.metadata.owner_references.iter().map(|reference| {
                let (group, version) = split_api_version(&reference.api_version);
                let kind = kinds.find(group, &reference.kind);
                let namespaced = kind.is_none_or(|kind| kinds.info(kind).namespaced);
                let namespace = if namespaced { self.facts.namespace } else { "" };
                let (name, uid) = (reference.name.as_str(), Uid::new(&reference.uid));
                Claim { kind, version, namespace, name, uid }
            });
            return claims.collect();
        }
        self.node.map_or_else(Vec::new, |node| claims(situation, node))
    }

    pub(super) fn identity(&self) -> Identity<'a> {
        let Facts { group, resource, namespace, name, .. } = self.facts;
        Identity { group, resource, namespace, name, uid: self.uid() }
    }

    pub(super) fn target(&self) -> Target {
        let Facts { group, resource, namespace, name, .. } = self.facts;
        Target {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Item<'_> {
    /// The object, as people name it; by its resource where the kind is not
    /// known.
    pub(super) fn named(&self, situation: &Situation<'_>) -> Named {
        let kind = self.kind.map(|kind| situation.graph.kinds.info(kind).kind.clone());
        Named {
            kind: kind.unwrap_or_else(|| self.facts.resource.to_owned()),
            namespace: self.facts.namespace.to_owned(),
            name: self.facts.name.to_owned(),
        }
    }
}

/// The owner references of an object of the graph.
pub(super) fn claims<'a>(situation: &Situation<'a>, node: Node<'a>) -> Vec<Claim<'a>> {
    let graph = situation.graph;
    let claims = node.owners().iter().map(|owner| {
        let (kind, namespace, name) = graph.coordinates(owner.to);
        let kind = graph.kinds.is_served(kind).then_some(kind);
        Claim { kind, version: &owner.version, namespace, name, uid: owner.uid }
    });
    claims.collect()
}

/// An object of the graph, as people name it.
pub(crate) fn named(situation: &Situation<'_>, node: Node<'_>) -> Named {
    Named {
        kind: situation.graph.kinds.info(node.kind()).kind.clone(),
        namespace: node.namespace().to_owned(),
        name: node.name().to_owned(),
    }
}
