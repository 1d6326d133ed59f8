//! The question: what the API server asks, after it was read from the wire.

use serde_json::Value;

use super::Target;
use crate::objects::{Object, Text, is_hold};
use crate::policy::Person;

/// Which of the two admission phases asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// The mutating phase: answers may carry a patch.
    Mutate,
    /// The validating phase: the object is final.
    Validate,
}

impl Door {
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
    pub door: Door,
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
    /// Options of a DELETE.
    pub options: DeleteOptions<'a>,
    /// The object as it would be stored; absent on DELETE.
    pub object: Option<Object<'a>>,
    /// The object as it is stored; absent on CREATE.
    pub old_object: Option<Object<'a>>,
    /// What the slim objects do not have, where a question needs it.
    pub extra: Extra,
    /// Whether it is asked because the object carries the label. Where a policy
    /// names the kind as well, the same is asked again without that.
    pub labelled: bool,
}

/// What some questions need beyond the slim objects. It takes a second look at
/// the bytes, so it is read only for those ([`Review::wants_extra`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extra {
    /// Whether anything else changes in an UPDATE that drops the hold.
    pub rest_changes: bool,
    /// `spec.finalizers` of a Namespace as it is stored.
    pub old_spec_finalizers: Vec<String>,
    /// `spec.finalizers` of a Namespace as it would be stored.
    pub new_spec_finalizers: Vec<String>,
}

impl Extra {
    /// Reads it from the whole objects.
    pub fn read(old: Option<&Value>, new: Option<&Value>) -> Self {
        let finalizers = |object: Option<&Value>| {
            let list = object.and_then(|object| object.pointer("/spec/finalizers"));
            let list = list.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            rest_changes: old.map(without_hold) != new.map(without_hold),
            old_spec_finalizers: finalizers(old),
            new_spec_finalizers: finalizers(new),
        }
    }
}

/// The object without the hold, and without what the server keeps by itself.
fn without_hold(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for kept_by_the_server in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(kept_by_the_server);
        }
        let finalizers = metadata.remove("finalizers");
        if let Some(Value::Array(mut finalizers)) = finalizers {
            finalizers.retain(|finalizer| !finalizer.as_str().is_some_and(is_hold));
            if !finalizers.is_empty() {
                metadata.insert("finalizers".to_owned(), Value::Array(finalizers));
            }
        }
    }
    object
}

impl Review<'_> {
    /// Whether the question needs [`Extra`].
    pub fn wants_extra(&self) -> bool {
        let is_namespace = self.resource.group.is_empty() && self.resource.resource == "namespaces";
        match self.operation {
            Operation::Update => is_namespace || self.drops_hold(),
            Operation::Delete => is_namespace,
            Operation::Create | Operation::Connect => false,
        }
    }

    /// Whether the object would lose the hold.
    pub fn drops_hold(&self) -> bool {
        let held = |object: &Option<Object<'_>>| object.as_ref().is_some_and(Object::is_held);
        held(&self.old_object) && !held(&self.object)
    }

    /// The object in question, for messages.
    pub fn target(&self) -> Target {
        Target {
            resource: self.resource.resource.to_string(),
            group: self.resource.group.to_string(),
            namespace: self.namespace.to_string(),
            name: self.target_name().to_owned(),
        }
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
