//! What an uninstall reports: while it runs, and at the end.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::decide::Cause;
use crate::hold::WaitReason;
use crate::objects::{ObjectRef, full_name};

/// An event during an uninstall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UninstallEvent {
    /// A completed step.
    Step(String),
    /// A problem that the user should know.
    Warning(String),
    Progress(String),
    /// A Terminating object keeps its hold for now.
    Waits(HeldObject),
    /// The hold was removed although this reason blocks its release.
    Abandoned(HeldObject),
    /// The number of objects of a kind that keep their holds, and the reason of one of them.
    Fails(String, usize, HeldReason),
}

/// The counts of removed holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UninstallCounts {
    /// Holds that were removed from objects that stay.
    pub released: usize,
    /// Terminating objects that were released because they are not in use.
    pub released_terminating: usize,
    /// Objects that were released although they are in use.
    pub abandoned: usize,
}

impl Display for UninstallCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { released, released_terminating, abandoned } = self;
        write!(f, "removed {}", holds(*released))?;
        let counts =
            [(released_terminating, "released", "Terminating "), (abandoned, "abandoned", "")];
        for (count, what, which) in counts {
            let s = if *count == 1 { "" } else { "s" };
            if *count > 0 {
                write!(f, ", {what} {count} {which}object{s}")?;
            }
        }
        Ok(())
    }
}

/// The number of holds as text.
pub fn holds(count: usize) -> String {
    if count == 1 { "1 hold".to_owned() } else { format!("{count} holds") }
}

/// An object that still has its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    pub target: ObjectRef,
    pub reason: HeldReason,
}

/// Why an object still has its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldReason {
    /// The object is Terminating and in use by these users.
    InUse(Vec<Cause>),
    /// The object is Terminating, and its users are unknown.
    Unknown(String),
    /// The object is not Terminating, but its owner or Namespace is or may be. Without its hold it
    /// would be deleted even if it is in use.
    OwnerTerminating(String),
    /// The API server does not serve the kind.
    Unserved,
    /// The Namespace was removed first, so the API server can't write the object.
    Stranded,
    /// The API server rejects the patch with this message.
    Refused(String),
    /// The time limit was reached before its check.
    Late,
    /// The object is not Terminating, and this is a dry run.
    DryRun,
}

impl From<WaitReason> for HeldReason {
    fn from(why: WaitReason) -> Self {
        match why {
            WaitReason::InUse(causes) => Self::InUse(causes),
            WaitReason::Unknown(why) => Self::Unknown(why.to_string()),
            WaitReason::Stranded => Self::Stranded,
        }
    }
}

impl HeldReason {
    /// Whether the reason may disappear without another uninstall, so that waiting can help.
    pub fn may_end(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::Unknown(_) | Self::OwnerTerminating(_))
    }
}

/// The result of an uninstall.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UninstallReport {
    /// The counts of removed holds.
    pub tally: UninstallCounts,
    /// The objects that still have a hold.
    pub left: Vec<HeldObject>,
    /// Kinds whose objects may have holds and that could not be listed, each with the
    /// reason.
    pub unread: Vec<(String, String)>,
}

impl UninstallReport {
    /// Whether no hold remains.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.unread.is_empty()
    }
}

/// Counts the objects of each kind, each with the reason of one object. Stranded objects are
/// counted separately, because the user must solve them in another way.
pub fn count_by_kind<'a>(
    left: impl IntoIterator<Item = &'a HeldObject>,
) -> Vec<(String, usize, HeldReason)> {
    let mut kinds: BTreeMap<(String, bool), (usize, &HeldReason)> = BTreeMap::new();
    for HeldObject { target, reason } in left {
        let kind = full_name(&target.group, &target.resource);
        kinds.entry((kind, *reason == HeldReason::Stranded)).or_insert((0, reason)).0 += 1;
    }
    kinds.into_iter().map(|((kind, _), (count, why))| (kind, count, why.clone())).collect()
}
