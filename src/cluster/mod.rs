//! The cluster side: everything that talks to the API server.
//!
//! It runs on threads of its own. The threads that answer reviews read what it
//! knows ([`world`]) and hand it what has to be read live.

mod account;
mod api;
mod api_error;
mod caller;
pub mod certificates;
mod clock;
mod context;
mod decider;
pub mod definitions;
mod discovery;
mod dump;
pub mod election;
mod event;
mod exemption;
mod expired;
pub mod feed;
mod holding;
pub mod holds;
pub mod journal;
mod kubeconfig;
mod list;
mod live;
mod local_api;
mod pace;
mod patch_rights;
pub mod paths;
mod paused;
pub mod registration;
pub mod release;
mod rights;
mod secret;
pub mod selftest;
mod start;
pub mod status;
pub mod terminating;
pub mod uninstall;
mod world;

pub use account::{account, user_of};
pub use api::Detail;
pub use api_error::chain as error_chain;
pub use caller::{Access, Caller, Me};
pub use clock::Clock;
pub use context::{Certificates, Context, Paths, Registered, Settings, Signals};
pub use decider::ClusterDecider;
pub use discovery::read_names;
pub use dump::dump;
pub use exemption::approval_of;
pub use feed::{Around, Held, Reach, Snapshot, Unread};
pub use holding::Holding;
pub use list::{Listed, list_all};
pub use live::{Answer, CollectedReads, Found, LiveApi, ReadGroup, Reader, merge};
pub(crate) use live::{Confirm, confirm};
pub(crate) use local_api::{failure, local_client};
pub use start::{Cluster, Options, StartError, replica};
pub use world::{Place, Served, SharedWorld, World};
