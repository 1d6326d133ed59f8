//! The question: what the API server asks, after it was read from the wire.

use crate::objects::{Object, Text};

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
}

impl Review<'_> {
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
