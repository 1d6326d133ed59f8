//! Registers belay with the API server: which requests it sends to belay.
//!
//! The manifests contain two webhook configurations without rules and CA certificates
//! ([`manifests`]), which match no request. The leader adds the rules and match conditions
//! (from the policies, [`rules`]), the CA certificates and the secret path. It writes them
//! with one JSON patch for each configuration ([`patch`]), and restores them when another
//! client changes them ([`run`]). The other fields belong to the installation: belay
//! reports changes to them and does not write them ([`changed`]).
//!
//! ```text
//!   policies, kinds, owners ─► rules ─┐
//!   CA certificates ──────────────────┼─► patch ─► API server ─┐
//!   the stored configuration ─────────┘                        │
//!            ▲────────────────────── watch ────────────────────┘
//! ```
//!
//! belay's Namespace owns both configurations ([`owner`]), so that they are deleted with
//! it.
//!
//! A patch never creates a configuration: a configuration that was uninstalled stays
//! deleted.

mod changed;
mod conditions;
mod driver;
mod events;
mod follow;
mod kind_set;
pub mod manifests;
mod namespaces;
mod objects;
mod observed;
mod owner;
mod patch;
mod rules;
pub(crate) mod stored;

pub use driver::run;
