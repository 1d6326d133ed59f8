//! What keeps an object that belay holds, as commands say it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::decide::{Cause, cause};
use crate::hold::{Count, Free};

/// What a release waits for.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HoldState {
    /// Whether nothing keeps it: belay lets go within moments.
    pub free: bool,
    /// Whether that is known.
    pub known: bool,
    /// Who keeps it, or what is not known.
    pub r#for: Vec<String>,
}

impl HoldState {
    pub fn of(count: Count) -> Self {
        let (free, known, r#for) = match count {
            Count::Free(free) => (true, true, vec![why_free(free).to_owned()]),
            Count::Kept(causes) => (false, true, causes.iter().map(cause_text).collect()),
            Count::Unknown(what) => (false, false, vec![what]),
            Count::Read(_) => (false, false, vec!["not all of it has been read".to_owned()]),
        };
        Self { free, known, r#for }
    }
}

/// Why a hold may go, in words.
pub fn why_free(free: Free) -> &'static str {
    match free {
        Free::Approved => "enough people have approved",
        Free::Unprotected => "no policy protects it any more",
        Free::Unused => "nothing needs it",
    }
}

/// A cause in words of its own.
pub fn cause_text(because: &Cause) -> String {
    match because {
        Cause::Always => "it is always protected, until enough people have approved".to_owned(),
        Cause::Unproved => "belay has not seen yet that nothing needs it".to_owned(),
        Cause::LetsGo(named) => format!("{named} would be protected less"),
        Cause::User { root, path, .. } if path.is_empty() => root.to_string(),
        other => cause(other),
    }
}
