//! The AdmissionReview of the API server, parsed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::objects::{Object, ObjectRef, Text, is_hold, is_namespace, text_enum};
use crate::policy::Requester;

text_enum! {
    /// The admission phase.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum AdmissionPhase {
        /// The mutating phase: the answer may have a patch.
        Mutate = "mutate",
        /// The validating phase: the object is final.
        Validate = "validate",
    }

    /// The name in metrics and logs.
    pub fn as_str;
}

text_enum! {
    /// The operation of the request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
    #[allow(missing_docs)] // The names are Kubernetes' own.
    pub enum Operation {
        Create = "create",
        Update = "update",
        Delete = "delete",
        Connect = "connect",
    }

    /// The name in metrics and logs.
    pub fn as_str;
}

/// A resource of the API, as in a URL.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resource<'a> {
    /// The API group; empty for the core group.
    pub group: Text<'a>,
    /// The plural name, for example `persistentvolumeclaims`.
    pub resource: Text<'a>,
    /// The subresource, for example `status`; empty for the object itself.
    pub subresource: Text<'a>,
}

/// The options of a DELETE that change what it does to dependents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteOptions<'a> {
    /// `propagationPolicy`; `None` if the client did not set it.
    pub propagation_policy: Option<Text<'a>>,
    /// `orphanDependents`, the older spelling.
    pub orphan_dependents: Option<bool>,
}

/// One admission review.
#[derive(Debug)]
pub struct Review<'a> {
    /// The uid of the review, which the answer repeats. It is no key for the request,
    /// because the API server may send several reviews for one request.
    pub uid: Text<'a>,
    /// The admission phase.
    pub phase: AdmissionPhase,
    /// The operation.
    pub operation: Operation,
    /// The resource of the object.
    pub resource: Resource<'a>,
    /// The name in the request; empty for a deletecollection, and before the API server
    /// fills in `generateName`.
    pub name: Text<'a>,
    /// The object's namespace.
    pub namespace: Text<'a>,
    /// Who sends the request.
    pub requester: Requester<'a>,
    /// Whether the request is a dry run.
    pub dry_run: bool,
    /// Options of a DELETE, or of the deletion by an eviction.
    pub options: DeleteOptions<'a>,
    /// The new object; `None` for a DELETE.
    pub object: Option<Object<'a>>,
    /// The stored object; `None` for a CREATE.
    pub old_object: Option<Object<'a>>,
    /// Fields of the objects that only some decisions need.
    pub details: ReviewDetails,
    /// Whether the API server sent the review to the webhook for labelled objects. If a policy may
    /// select the object as well, the API server sends another review for the request.
    pub labelled: bool,
}

impl<'a> Review<'a> {
    /// A dry run of a DELETE by this user, without an object.
    pub fn of_dry_run(user: &'a str, groups: &'a [String]) -> Self {
        let groups = groups.iter().map(|group| group.as_str().into()).collect();
        Self {
            uid: "".into(),
            phase: AdmissionPhase::Validate,
            operation: Operation::Delete,
            resource: Resource::default(),
            name: "".into(),
            namespace: "".into(),
            requester: Requester { name: user.into(), groups },
            dry_run: true,
            options: DeleteOptions::default(),
            object: None,
            old_object: None,
            details: ReviewDetails::default(),
            labelled: false,
        }
    }
}

/// Fields of the objects that only some decisions need. They are parsed in a second pass,
/// and only when needed ([`Review::needs_details`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewDetails {
    /// Whether an UPDATE that removes the hold changes anything else.
    pub rest_changes: bool,
    /// `spec.finalizers` of the stored Namespace.
    pub old_spec_finalizers: Vec<String>,
    /// `spec.finalizers` of the new Namespace.
    pub new_spec_finalizers: Vec<String>,
}

impl ReviewDetails {
    /// Reads the details from the raw objects. The objects are compared as text, field by
    /// field, because an object may have millions of values and any depth. The API server
    /// writes equal fields as equal text; other text counts as changed.
    pub fn read(old: Option<&RawValue>, new: Option<&RawValue>) -> Self {
        let (old, new) = (Parts::read(old), Parts::read(new));
        Self {
            rest_changes: old.rest != new.rest || old.finalizers != new.finalizers,
            old_spec_finalizers: old.spec_finalizers,
            new_spec_finalizers: new.spec_finalizers,
        }
    }
}

/// The parts of an object that [`ReviewDetails`] compares.
#[derive(Default)]
struct Parts<'a> {
    /// The text of each field. The key is `true` for fields of the metadata. The finalizers
    /// and the fields that the API server maintains are left out.
    rest: BTreeMap<(bool, Text<'a>), &'a str>,
    /// The finalizers other than the hold.
    finalizers: Vec<Text<'a>>,
    spec_finalizers: Vec<String>,
}

/// The fields of a spec that belay reads.
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
    /// The memory of the lists and maps in bytes, without the JSON itself.
    pub fn list_bytes(&self) -> usize {
        let objects = self.object.iter().chain(&self.old_object);
        let listed: usize = objects.map(|object| object.metadata.list_bytes()).sum();
        let owned: usize = self.requester.groups.iter().map(Text::owned_bytes).sum();
        listed + owned + self.requester.groups.capacity() * size_of::<Text<'_>>()
    }

    /// An owned copy, which another thread can decide.
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
            requester: Requester {
                name: self.requester.name.to_static(),
                groups: self.requester.groups.iter().map(Text::to_static).collect(),
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

    /// Whether the decision needs [`ReviewDetails`].
    pub fn needs_details(&self) -> bool {
        let is_namespace = is_namespace(&self.resource.group, &self.resource.resource);
        match self.operation {
            Operation::Update => is_namespace || self.removes_hold(),
            Operation::Delete => is_namespace,
            Operation::Create | Operation::Connect => false,
        }
    }

    /// Whether the request evicts a Pod. The object in the review is an Eviction.
    pub fn is_eviction(&self) -> bool {
        let Self { resource, operation, .. } = self;
        let is_pod = resource.group.is_empty() && resource.resource == "pods";
        is_pod && resource.subresource == "eviction" && *operation == Operation::Create
    }

    /// Whether the request removes the hold.
    pub fn removes_hold(&self) -> bool {
        let held = |object: &Option<Object<'_>>| object.as_ref().is_some_and(Object::is_held);
        held(&self.old_object) && !held(&self.object)
    }

    /// The object in question, for messages.
    pub fn target(&self) -> ObjectRef {
        let object = self.old_object.as_ref().or(self.object.as_ref());
        ObjectRef::new(
            (&self.resource.group, &self.resource.resource),
            &self.namespace,
            self.target_name(),
        )
        .with_kind(object.map_or("", |object| self.kind_name(object)))
    }

    /// The kind of the target, from this object of the review.
    pub(super) fn kind_name<'o>(&self, object: &'o Object<'_>) -> &'o str {
        if self.is_eviction() { "Pod" } else { object.kind.as_str() }
    }

    /// The name of the target. A deletecollection has no name in the request, so the name
    /// comes from the stored object.
    pub fn target_name(&self) -> &str {
        if !self.name.is_empty() {
            return &self.name;
        }
        let object = self.old_object.as_ref().or(self.object.as_ref());
        object.map_or("", |o| o.metadata.name.as_str())
    }
}
