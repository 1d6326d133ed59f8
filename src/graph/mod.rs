//! Who needs whom.
//!
//! A plain struct with `apply`, `delete` and `reset`. Every object has a node,
//! and so has everything that an object refers to: a reference to what is
//! absent is an edge all the same, and starts to count when the object
//! appears.
//!
//! ```text
//!              owner                    use (needs, mentions, produces)
//!  Pod web-1 ───────► ReplicaSet web    Pod web-1 ───────► Secret tls
//!      │
//!      └─ content ──► Namespace shop    (an object to its Namespace, a custom
//!                                        resource to its CRD)
//! ```
//!
//! [`fates`] answers what a deletion does to everything else, by the rules R1
//! to R14 of docs/THEORY.md. It is the one answer that admission, the preview
//! and the release share.

mod dependents;
mod edges;
mod fates;
mod gaps;
mod gone;
mod id_set;
mod listing;
mod node;
mod nodes;
mod query;
mod slot;
mod store;
mod work;

pub use edges::{
    Edges, Excuse, MOST_REFERENCES, NewUse, OpenEdge, OwnerEdge, RelationId, Requirement, Selector,
    Strength, UseEdge,
};
pub use fates::{Certainty, Cut, Fate, Fates, Outcome, Propagation, Request, fates};
pub use gaps::Incomplete;
pub use gone::{Gone, PastOwner, RememberedOwner};
pub use listing::Listing;
pub use node::Node;
pub use query::{Sought, User, Via};
pub use slot::{Claim, DEEPEST, MANY, NodeId, Progress};
pub use store::{Applied, Graph};
pub use work::{Meter, Work};
