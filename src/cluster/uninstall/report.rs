//! What an uninstall reports: while it runs, and at the end.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::decide::Cause;
use crate::objects::{ObjectRef, full_name};

/// What happened while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// This was done.
    Step(String),
    /// This was done or found, and a person should know.
    Warning(String),
    /// How far it is.
    Progress(String),
    /// It is Terminating under the hold, and stays for now.
    Waits(HeldObject),
    /// Its hold was removed in spite of this reason.
    Abandoned(HeldObject),
    /// So many objects of this kind keep their holds; why one of them does.
    Fails(String, usize, Reason),
}

/// What was done so far.
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

/// So many holds, in words.
pub fn holds(count: usize) -> String {
    if count == 1 { "1 hold".to_owned() } else { format!("{count} holds") }
}

/// An object that still has its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldObject {
    /// Which.
    pub target: ObjectRef,
    /// Why.
    pub reason: Reason,
}

/// Why an object still has its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is Terminating, and these need it.
    InUse(Vec<Cause>),
    /// It is Terminating, and it is unknown whether something needs it.
    Unknown(String),
    /// It is not Terminating, and its owner or Namespace is, or may be: without its
    /// hold it would be deleted, whatever uses it.
    Leaving(String),
    /// Its kind is not served.
    Unserved,
    /// Its Namespace was deleted by force: nothing in it can be written.
    Stranded,
    /// The API server refuses the patch, and says this.
    Refused(String),
    /// The time was up before its turn.
    Late,
    /// It is not Terminating, and this is a dry run.
    DryRun,
}

impl Reason {
    /// Whether it may end without another uninstall, so that waiting is worth it.
    pub fn may_end(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::Unknown(_) | Self::Leaving(_))
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UninstallReport {
    /// What was done.
    pub tally: UninstallCounts,
    /// The objects that still have their hold.
    pub left: Vec<HeldObject>,
    /// Kinds whose objects may have holds and that could not be listed, each with the
    /// reason.
    pub unread: Vec<(String, String)>,
}

impl UninstallReport {
    /// Whether nothing is left.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.unread.is_empty()
    }
}

/// How many objects of each kind there are, and why one of them is among them.
/// Stranded ones are counted apart, because they need something else.
pub fn count_by_kind<'a>(
    left: impl IntoIterator<Item = &'a HeldObject>,
) -> Vec<(String, usize, Reason)> {
    let mut kinds: BTreeMap<(String, bool), (usize, &Reason)> = BTreeMap::new();
    for HeldObject { target, reason } in left {
        let kind = full_name(&target.group, &target.resource);
        kinds.entry((kind, *reason == Reason::Stranded)).or_insert((0, reason)).0 += 1;
    }
    kinds.into_iter().map(|((kind, _), (count, why))| (kind, count, why.clone())).collect()
}
