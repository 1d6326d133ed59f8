//! Whether belay has a leader, and whether it can enforce policies.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::election::LeaderInfo;
use crate::command::webhooks::{WebhookConfiguration, are_inactive};

/// The leader.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Leader {
    /// Whether there is a leader.
    pub state: LeaderState,
    /// The name of the replica. Absent if there is no leader, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
}

/// Whether belay has a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum LeaderState {
    /// A replica is the leader.
    Replica,
    /// There is no leader: belay is most likely down.
    #[serde(rename = "Nobody")]
    NoLeader,
    /// The Lease could not be read.
    Unknown,
}

impl Leader {
    pub const NONE: Self = Self { state: LeaderState::NoLeader, name: None };

    /// From the Lease.
    pub fn from_lease<E>(lease: &Result<Option<LeaderInfo>, E>) -> Self {
        let (state, name) = match lease {
            Ok(Some(info)) => (LeaderState::Replica, Some(info.replica.clone())),
            Ok(None) => (LeaderState::NoLeader, None),
            Err(_) => (LeaderState::Unknown, None),
        };
        Self { state, name }
    }
}

/// A problem that affects all policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The API server sends no DELETE to belay.
    NoWebhooks,
    /// There is no leader, so no replica updates the status of policies.
    NoLeader,
    /// Neither the Lease nor the webhook configuration could be read.
    Unknown,
}

impl Outage {
    pub fn new(leader: &Leader, configurations: &[WebhookConfiguration]) -> Option<Self> {
        match leader.state {
            _ if are_inactive(configurations) => Some(Self::NoWebhooks),
            LeaderState::NoLeader => Some(Self::NoLeader),
            LeaderState::Unknown if configurations.is_empty() => Some(Self::Unknown),
            LeaderState::Replica | LeaderState::Unknown => None,
        }
    }
}
