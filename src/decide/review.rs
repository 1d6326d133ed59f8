//! The question: what the API server asks, after it was read from the wire.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::objects::{Object, ObjectRef, Text, is_hold, is_namespace};
use crate::policy::Person;

/// Which of the two admission phases asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdmissionPhase {
    /// The mutating phase: answers may carry a patch.
    Mutate,
    /// The validating phase: the object is final.
    Validate,
}

impl AdmissionPhase {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// What is being done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object is to go.
    Delete,
    /// A connection to a subresource.
    Connect,
}

impl Operation {
    /// The name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Connect => "connect",
        }
    }
}

/// A resource: what a URL of the API names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource<'a> {
    /// The API group; empty for the core group.
    pub group: Text<'a>,
    /// The plural name, for example `persistentvolumeclaims`.
    pub resource: Text<'a>,
    /// The subresource, for example `status`; empty for the object itself.
    pub subresource: Text<'a>,
}

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct User<'a> {
    /// The name that authentication gave.
    pub name: Text<'a>,
    /// The groups that authentication gave.
    pub groups: Vec<Text<'a>>,
}

impl User<'_> {
    /// The one whom policies speak of.
    pub fn person(&self) -> Person<'_> {
        Person { name: &self.name, groups: &self.groups }
    }

    /// A small, fixed set of words for metrics: no user name is ever a label.
    pub fn class(&self) -> &'static str {
        let name = self.name.as_str();
        if name.starts_with("system:serviceaccount:kube-system:") {
            "controller"
        } else if name.starts_with("system:serviceaccount:") {
            "serviceaccount"
        } else if name.starts_with("system:node:") {
            "node"
        } else if name.starts_with("system:") {
            "system"
        } else {
            "user"
        }
    }
}

/// The options of a DELETE that change what it does to dependents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteOptions<'a> {
    /// `propagationPolicy`, only where the client set it.
    pub propagation_policy: Option<Text<'a>>,
    /// `orphanDependents`, the older spelling.
    pub orphan_dependents: Option<bool>,
}

/// One admission review.
#[derive(Debug)]
pub struct Review<'a> {
    /// The review's own uid; the answer repeats it. Never a key: the API
    /// server asks several times about one request, each with a fresh uid.
    pub uid: Text<'a>,
    /// Which phase asks.
    pub phase: AdmissionPhase,
    /// What is being done.
    pub operation: Operation,
    /// To which kind of thing.
    pub resource: Resource<'a>,
    /// The object's name as the request has it: absent on a collection delete
    /// and while `generateName` has not been filled in.
    pub name: Text<'a>,
    /// The object's namespace.
    pub namespace: Text<'a>,
    /// Who asks.
    pub user: User<'a>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Options of a DELETE, or of the DELETE that an eviction is.
    pub options: DeleteOptions<'a>,
    /// The object as it would be stored; absent on DELETE.
    pub object: Option<Object<'a>>,
    /// The object as it is stored; absent on CREATE.
    pub old_object: Option<Object<'a>>,
    /// What the slim objects do not have, where a question needs it.
    pub details: ReviewDetails,
    /// Whether it is asked because the object carries the label. Where a policy
    /// names the kind as well, the same is asked again without that.
    pub labelled: bool,
}

/// What some questions need beyond the slim objects. It takes a second look at
/// the bytes, so it is read only for those ([`Review::needs_details`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewDetails {
    /// Whether anything else changes in an UPDATE that drops the hold.
    pub rest_changes: bool,
    /// `spec.finalizers` of a Namespace as it is stored.
    pub old_spec_finalizers: Vec<String>,
    /// `spec.finalizers` of a Namespace as it would be stored.
    pub new_spec_finalizers: Vec<String>,
}

impl ReviewDetails {
    /// Reads it from the whole objects. They are compared as the text that
    /// they are, part by part, and not built: an object may have millions of
    /// values and be nested at any depth. The API server writes equal parts
    /// alike; what it did not write alike counts as changed.
    pub fn read(old: Option<&RawValue>, new: Option<&RawValue>) -> Self {
        let (old, new) = (Parts::read(old), Parts::read(new));
        Self {
            rest_changes: old.rest != new.rest || old.finalizers != new.finalizers,
            old_spec_finalizers: old.spec_finalizers,
            new_spec_finalizers: new.spec_finalizers,
        }
    }
}

/// What of an object [`ReviewDetails`] compares.
#[derive(Default)]
struct Parts<'a> {
    /// By field, or by field of the metadata; without the finalizers, and
    /// without the fields that the API server maintains.
    rest: BTreeMap<(bool, Text<'a>), &'a str>,
    /// The finalizers without the hold.
    finalizers: Vec<Text<'a>>,
    spec_finalizers: Vec<String>,
}

/// What is read of a spec, which may have any number of fields.
#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default)]
    finalizers: Option<&'a RawValue>,
}

type Fields<'a> = BTreeMap<Text<'a>, &'a RawValue>;

impl<'a> Parts<'a> {
    fn read(object: Option<&'a RawValue>) -> Self {
        let mut parts = Self::default();
        let fields = object.and_then(|object| fields(object)).unwrap_or_default();
        for (name, value) in fields {
            if name == "spec" {
                let spec: Option<Spec<'_>> = serde_json::from_str(value.get()).ok();
                let list = spec.and_then(|spec| list(spec.finalizers?)).unwrap_or_default();
                parts.spec_finalizers = list.iter().map(ToString::to_string).collect();
            }
            let metadata = if name == "metadata" { self::fields(value) } else { None };
            match metadata {
                Some(metadata) => parts.add_metadata(metadata),
                None => {
                    parts.rest.insert((false, name), value.get());
                }
            }
        }
        parts
    }

    fn add_metadata(&mut self, metadata: Fields<'a>) {
        for (name, value) in metadata {
            match name.as_str() {
                "managedFields" | "resourceVersion" | "generation" => {}
                "finalizers" => {
                    self.finalizers = list(value).unwrap_or_default();
                    self.finalizers.retain(|finalizer| !is_hold(finalizer));
                }
                _ => {
                    self.rest.insert((true, name), value.get());
                }
            }
        }
    }
}

fn fields(object: &RawValue) -> Option<Fields<'_>> {
    serde_json::from_str(object.get()).ok()
}

fn list(value: &RawValue) -> Option<Vec<Text<'_>>> {
    serde_json::from_str(value.get()).ok()
}

impl Review<'_> {
    /// The bytes in memory of its lists and maps, beside the JSON itself.
    pub fn list_bytes(&self) -> usize {
        let objects = self.object.iter().chain(&self.old_object);
        let listed: usize = objects.map(|object| object.metadata.list_bytes()).sum();
        let owned: usize = self.user.groups.iter().map(Text::owned_bytes).sum();
        listed + owned + self.user.groups.len() * size_of::<Text<'_>>()
    }

    /// The same, borrowed from nothing, so that another thread can decide it.
    pub fn to_static(&self) -> Review<'static> {
        let Resource { group, resource, subresource } = &self.resource;
        let [group, resource, subresource] = [group, resource, subresource].map(Text::to_static);
        let DeleteOptions { propagation_policy, orphan_dependents } = &self.options;
        Review {
            uid: self.uid.to_static(),
            phase: self.phase,
            operation: self.operation,
            resource: Resource { group, resource, subresource },
            name: self.name.to_static(),
            namespace: self.namespace.to_static(),
            user: User {
                name: self.user.name.to_static(),
                groups: self.user.groups.iter().map(Text::to_static).collect(),
            },
            dry_run: self.dry_run,
            options: DeleteOptions {
                propagation_policy: propagation_policy.as_ref().map(Text::to_static),
                orphan_dependents: *orphan_dependents,
            },
            object: self.object.as_ref().map(Object::to_static),
            old_object: self.old_object.as_ref().map(Object::to_static),
            details: self.details.clone(),
            labelled: self.labelled,
        }
    }

    /// Whether the question needs [`ReviewDetails`].
    pub fn needs_details(&self) -> bool {
        let is_namespace = is_namespace(&self.resource.group, &self.resource.resource);
        match self.operation {
            Operation::Update => is_namespace || self.drops_hold(),
            Operation::Delete => is_namespace,
            Operation::Create | Operation::Connect => false,
        }
    }

    /// Whether a Pod is to be evicted. The object is an Eviction.
    pub fn evicts(&self) -> bool {
        let Self { resource, operation, .. } = self;
        let is_pod = resource.group.is_empty() && resource.resource == "pods";
        is_pod && resource.subresource == "eviction" && *operation == Operation::Create
    }

    /// Whether the object would lose the hold.
    pub fn drops_hold(&self) -> bool {
        let held = |object: &Option<Object<'_>>| object.as_ref().is_some_and(Object::is_held);
        held(&self.old_object) && !held(&self.object)
    }

    /// The object in question, for messages.
    pub fn target(&self) -> ObjectRef {
        ObjectRef::new(
            (&self.resource.group, &self.resource.resource),
            &self.namespace,
            self.target_name(),
        )
    }

    /// The name of the target. A collection delete names nothing in the
    /// request, so the stored object has the last word.
    pub fn target_name(&self) -> &str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let object = self.old_object.as_ref().or(self.object.as_ref());
        object.map_or("", |o| o.metadata.name.as_str())
    }
}
