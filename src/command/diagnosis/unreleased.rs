//! Kinds with holds that belay does not release, and how to remove these holds.

use std::fmt;

use crate::command::session::UserSession;
use crate::decide::approve_command_with;
use crate::objects::{KindInfo, ObjectRef, full_name, shell_word, watch_also_value};

/// Why belay does not release holds on objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreleased {
    /// The reason, with belay as its subject.
    why: String,
    /// The step of an administrator, if more rights of belay are enough.
    grant: Option<String>,
}

impl Unreleased {
    /// Why belay does not release holds on objects of a kind; `None` if it does. `is_named`:
    /// whether a policy or `--labelled-kinds` names the kind.
    pub async fn read(session: &UserSession, info: &KindInfo, is_named: bool) -> Option<Self> {
        let may = session.belay_may_release(&info.group, &info.resource).await;
        // Without a leader, the command `release` removes every hold.
        if is_named && may != Some(false) || session.lacks_leader().await {
            return None;
        }
        // belay also watches the kinds in its record, to remove the holds of former policies.
        let recorded = match is_named {
            true => None,
            false => session.kinds_with_holds().await,
        };
        let recorded = recorded.map(|kinds| kinds.contains(&info.full_name()));
        match may {
            Some(true) if recorded != Some(false) => None,
            Some(false) => Some(Self::forbidden(&info.group, &info.resource)),
            _ => Some(Self {
                why: UNNAMED.to_owned(),
                grant: (recorded != Some(false)).then(|| grant(&info.group, &info.resource)),
            }),
        }
    }

    /// The reason if belay lacks rights on the kind.
    pub fn forbidden(group: &str, resource: &str) -> Self {
        let kind = full_name(group, resource);
        Self {
            why: format!("belay may not watch and patch {kind}, so it releases no hold on them"),
            grant: Some(grant(group, resource)),
        }
    }

    /// The reason, and the step of an administrator.
    pub fn advice(&self) -> String {
        match &self.grant {
            Some(grant) => format!("{self}; next: {grant}"),
            None => self.to_string(),
        }
    }

    /// How to remove the hold of a Terminating object. `needs_no_approval`: whether no further
    /// approval is required.
    pub fn next(&self, object: &ObjectRef, needs_no_approval: bool) -> String {
        let force = || {
            let (object, name) = (object.arguments(), shell_word(&object.name));
            let force = format!("kubectl belay release {object} --force={name}");
            match needs_no_approval {
                true => force,
                false => format!("{} (after {})", force, approve_command_with(&object)),
            }
        };
        match &self.grant {
            Some(grant) => format!("{grant}; to release only this object: {}", force()),
            None => force(),
        }
    }
}

impl fmt::Display for Unreleased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The reason where neither a policy nor the setting names the kind.
const UNNAMED: &str = "belay releases no hold on this kind, which neither a policy nor \
                       --labelled-kinds names";

/// How an administrator grants belay the rights to release the holds on a kind.
fn grant(group: &str, resource: &str) -> String {
    let kind = watch_also_value(group, resource);
    format!(
        "have an administrator add {kind} to the chart value rbac.watchAlso \
         (docs/guides/profiles.md) until belay has removed the holds"
    )
}
