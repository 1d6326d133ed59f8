//! The cluster side: everything that talks to the API server.
//!
//! It runs on threads of its own. The threads that answer reviews read the cached state
//! ([`world`]) and request live reads ([`live`]). [`certificates`] rotates certificates,
//! [`expired_approvals`] deletes approvals, and [`terminating`] reads the facts from which
//! `command::diagnosis` explains why an object stays.

mod account;
mod api;
mod api_error;
mod caller;
pub mod certificates;
mod clock;
mod connection;
mod context;
pub(crate) mod crds;
mod decider;
mod deep_objects;
mod delete;
mod discovery;
mod dry_run;
mod dump;
pub mod election;
mod event;
mod exemption;
mod expired_approvals;
pub mod feed;
mod holding;
pub(crate) mod holds;
pub mod journal;
mod kubeconfig;
mod list;
mod live;
mod local_api;
mod pace;
mod patch_rights;
pub(crate) mod paths;
mod pause_reports;
pub mod registration;
pub(crate) mod release;
mod rights;
mod secret;
pub(crate) mod selftest;
mod start;
pub mod status;
pub(crate) mod terminating;
pub(crate) mod uninstall;
mod world;

pub(crate) use account::{UserIdentity, account, user_of};
pub(crate) use api::{Detail, MANAGER};
pub(crate) use api_error::{chain as error_chain, is_denied_by_belay, shortened};
pub(crate) use caller::{Access, Caller};
pub(crate) use clock::Clock;
pub use context::{Certificates, Context, Paths, Registered, Settings, Signals};
pub use decider::ClusterDecider;
pub(crate) use delete::DeleteResponse;
pub use discovery::read_names;
pub(crate) use dump::dump;
pub use exemption::approval_of;
pub(crate) use feed::{AwaitedObject, KindsInFiles, Removals, SearchScope, Snapshot, UnreadKind};
pub use holding::{HoldCounts, HoldProgress};
pub(crate) use holds::kinds_with_holds;
pub(crate) use list::{Buffers, ListQuery, ListReader, Listed, Next, list_all, read_list};
pub use live::{CollectedReads, LiveApi, LiveObjects, ReadAnswer, ReadGroup, Reader, merge};
pub(crate) use live::{LiveQuestion, answer_with_reads};
pub(crate) use local_api::{failure, local_client};
pub use start::{Cluster, Options, StartError, instance, replica};
pub(crate) use world::RELEASE_REQUESTED;
pub use world::{ObjectKey, ServedVerbs, SharedWorld, World};
