//! The graph of objects and their references.
//!
//! [`Graph`] is a plain struct with `apply` and `delete`. A [`Listing`] replaces all objects of a
//! kind. Every object has a node, and so has every object that a reference names. A reference to
//! an absent object is an edge that starts to count when the object is created.
//!
//! ```text
//!              owner                    use (needs, mentions, produces)
//!  Pod web-1 ───────► ReplicaSet web    Pod web-1 ───────► Secret tls
//!      │
//!      └─ content ──► Namespace shop    (an object to its Namespace, a custom
//!                                        resource to its CRD)
//! ```
//!
//! [`fates`] computes the effects of a deletion on other objects, by the rules R1 to R14
//! of docs/THEORY.md. Admission, `impact` and the release share it.

mod absence;
mod coverage;
mod coverage_methods;
mod deleted_objects;
mod dependents;
mod edges;
mod fates;
mod hypothesis;
mod id_set;
mod listing;
mod node;
mod node_id;
mod nodes;
mod owners;
mod steps;
mod store;
mod stored;
mod users;
mod waves;

pub use coverage::Incomplete;
pub use deleted_objects::{DeletedObject, PastOwner, RememberedOwner};
pub use edges::{
    EdgeQualifier, Edges, OwnerEdge, RelationId, Requirement, Selector, SelectorEdge, Strength,
    UnresolvedUse, UseEdge,
};
pub use fates::{
    Certainty, DeletionOutcome, DeletionRequest, Fate, Fates, Propagation, RefusesDelete, fates,
};
pub use listing::Listing;
pub use node::Node;
pub use node_id::NodeId;
pub use owners::{NamedOwner, search_owners};
pub use steps::{SEARCH_STEPS, StepBudget, StepCounter};
pub use store::{ApplyResult, Graph};
pub use stored::{MAX_LIST_ENTRIES, MAX_OWNER_LEVELS, ObjectPhase, OwnerRef};
pub use users::{ObjectUser, SelectorTarget, UserEdge};
pub use waves::{Deleter, DeletionToOrder, WaveObject, Waves, waves};
