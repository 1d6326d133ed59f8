//! The cluster side: everything that talks to the API server.
//!
//! It runs on threads of its own. The threads that answer reviews read what it
//! knows ([`world`]) and hand it what has to be read live.

mod api;
mod context;
mod decider;
mod exemption;
mod live;
mod world;

pub use context::{Context, Registered, Settings, Signals};
pub use decider::ClusterDecider;
pub use exemption::approval_of;
pub use live::{Answer, CarryOut, Found, Gathered, Reader, merge};
pub use world::{Detail, Served, SharedWorld, World};
