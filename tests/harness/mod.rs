//! A real control plane for tests, and belay in front of it.
//!
//! ```text
//! ControlPlane ── etcd ── kube-apiserver ── kube-controller-manager
//!      │                        │            (optional: scheduler, kwok)
//!      │               CONNECT clusterIP:port
//!      └── EgressProxy ─────────┴──► a belay, on a port of this machine
//! ```
//!
//! Every process ends with the test program, regardless of how the program ends.

// Each program that includes the harness uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod api;
pub mod api_server;
pub mod audit;
pub mod belay;
pub mod chart;
pub mod client;
pub mod clock;
pub mod crd;
pub mod direct;
pub mod folder;
pub mod install;
pub mod kubectl;
pub mod kubelet;
pub mod link;
pub mod load;
pub mod manifest;
pub mod pki;
pub mod plane;
pub mod policy;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod random;
pub mod rbac;
pub mod roles;
pub mod shared;
pub mod timing;
pub mod wait;

pub use api::Api;
pub use belay::Belay;
pub use chart::Chart;
pub use install::{Install, Installed};
pub use kubelet::Kubelet;
pub use link::Link;
pub use load::Load;
pub use plane::{ControlPlane, Options};
pub use proxy::Fault;
pub use shared::{Shared, lock};
pub use timing::{intervals, is_long};
pub use wait::{eventually, pause, pause_async};

/// The error of a harness function: a sentence. Tests unwrap it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
