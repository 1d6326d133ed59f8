//! The end of a path: what stands there, and what it refers to.

use super::catalogue::Nameable;
use super::path::Path;
use crate::graph::{RelationId, Strength};
use crate::objects::KindId;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    pub(super) relation: RelationId,
    pub(super) target: Target,
    pub(super) strength: Strength,
    pub(super) optional: Option<Path>,
    /// The path whose value ends the need, and the value.
    pub(super) until: Option<(Path, Vec<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Target {
    Name {
        kind: KindId,
        name: Path,
        namespace: Option<Path>,
        uid: Option<Path>,
    },
    Typed {
        group: Path,
        kind: Path,
        name: Path,
        namespace: Option<Path>,
        default_group: String,
        /// The kinds that the reference can name.
        kinds: Nameable<Vec<KindId>>,
    },
    Labels {
        kind: KindId,
        plain: bool,
    },
    Claims {
        kind: KindId,
    },
    EphemeralClaim {
        kind: KindId,
    },
    SameName {
        kind: KindId,
    },
}
