//! The cluster side: everything that talks to the API server.
//!
//! It runs on threads of its own. The threads that answer reviews read what it
//! knows ([`world`]) and hand it what has to be read live.

mod api;
pub mod certificates;
mod context;
pub mod decider;
pub mod election;
pub mod exemption;
pub mod feed;
mod holds;
pub mod journal;
pub mod live;
mod pace;
mod patience;
pub mod registration;
mod start;
pub mod status;
mod world;

pub use context::{Certificates, Context, Registered, Settings, Signals};
pub use start::{Cluster, Options, StartError};
pub use world::{Detail, Served, SharedWorld, World};
