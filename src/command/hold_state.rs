//! What keeps an object that belay holds, as commands say it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::cluster::release::by_hand::look;
use crate::cluster::{Place, Snapshot};
use crate::decide::{Cause, describe_cause};
use crate::hold::{Count, ReleaseReason};

/// What a release waits for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldState {
    /// Whether nothing uses the object.
    pub free: bool,
    /// Whether belay releases holds on objects of the kind. If not, a user must.
    pub released_by_belay: bool,
    /// Whether `free` is certain.
    pub known: bool,
    /// The users, or what is unknown.
    pub r#for: Vec<String>,
}

/// Why a hold stays though nothing keeps it.
pub const NOT_RELEASED: &str =
    "belay releases none on this kind, which neither a policy nor --labelled-kinds names";

impl HoldState {
    /// Counts who keeps an object.
    pub async fn of(snapshot: &Snapshot, place: &Place, object: &Value) -> Self {
        let count = look(&snapshot.context, &snapshot.reader, place, object).await;
        let world = snapshot.context.world.read();
        let info = world.graph.kinds.info(place.0);
        Self::new(count, world.policies.releases_any(&info.group, &info.resource))
    }

    fn new(count: Count, released_by_belay: bool) -> Self {
        let (free, known, r#for) = match count {
            Count::Free(free) => (true, true, vec![why_free(free).to_owned()]),
            Count::Kept(causes) => (false, true, causes.iter().map(cause_text).collect()),
            Count::Unknown(why) => (false, false, vec![why.to_string()]),
            Count::Read(_) => (false, false, vec!["not all of it has been read".to_owned()]),
        };
        Self { free, released_by_belay, known, r#for }
    }
}

/// Why a hold may go, in words.
pub fn why_free(free: ReleaseReason) -> &'static str {
    match free {
        ReleaseReason::Approved => "enough people have approved",
        ReleaseReason::Unprotected => "no policy protects it any more",
        ReleaseReason::Unused => "nothing needs it",
    }
}

/// A cause in words of its own.
pub fn cause_text(because: &Cause) -> String {
    match because {
        Cause::Always => "it is always protected, until enough people have approved".to_owned(),
        Cause::Unproved => "belay has not seen yet that nothing needs it".to_owned(),
        Cause::WeakerProtection(named) => {
            format!("a change would weaken the protection of {named}")
        }
        Cause::User { root, path, .. } if path.is_empty() => root.to_string(),
        other => describe_cause(other),
    }
}
