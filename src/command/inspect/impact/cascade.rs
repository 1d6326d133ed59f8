//! The option `--cascade`.

use clap::ValueEnum;
use kube::api::PropagationPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::Propagation;

/// How a deletion treats dependents, as in kubectl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cascade {
    /// The dependents are deleted after the owner
    Background,
    /// The owner is deleted after its dependents
    Foreground,
    /// The dependents stay
    Orphan,
}

impl From<Cascade> for Propagation {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

impl From<Cascade> for PropagationPolicy {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}
