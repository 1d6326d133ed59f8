//! What an uninstall says, as values; whoever runs it finds the words.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::decide::Cause;
use crate::objects::{ObjectRef, full_name};

/// What is worth telling while it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The Lease is ours, and who had it.
    Seized(Option<String>),
    /// Somebody had taken it back, and it was taken again.
    SeizedAgain(String),
    /// It cannot be renewed, because of this.
    LeaseFails(String),
    /// This is there no more.
    Deleted(String),
    /// This was not there.
    Absent(String),
    /// Whoever led may believe to lead for so long still.
    Outwaits(Duration),
    /// How far it is: holds that were taken off, kinds still to be looked at.
    Progress(Tally, usize),
    /// Kinds of the record that nobody serves.
    Unserved(Vec<String>),
    /// Kinds that may not be listed, and on whose objects belay has put no
    /// holds as far as is known.
    Skipped(Vec<String>),
    /// Objects of this kind may have holds and could not be listed, because of
    /// that.
    Unread(String, String),
    /// The holds of so many objects of this kind could not be taken off, of
    /// one of them because of that.
    Fails(String, usize, Why),
    /// This is Terminating under the hold, and stays for now.
    Waits(Left),
    /// So many do.
    StillWaiting(usize),
    /// Its hold is taken off though this kept it.
    Abandoned(Left),
    /// This of belay's own could not be deleted, because of that.
    Behind(String, String),
    /// What is left goes with this, when whoever installed belay deletes it.
    Bequeathed(String),
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Holds taken off objects that stay.
    pub released: usize,
    /// Objects that were Terminating and are let go of, because nothing needs
    /// them.
    pub let_go: usize,
    /// Objects that were let go of though something needs them.
    pub abandoned: usize,
}

/// An object that has its hold still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Which.
    pub target: ObjectRef,
    /// Why.
    pub why: Why,
}

/// Why an object has its hold still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It is Terminating, and these need it.
    InUse(Vec<Cause>),
    /// It is Terminating, and it is not known whether something needs it.
    Unknown(String),
    /// It is not Terminating, and its owner or Namespace is, or may be: it is
    /// about to go, and without its hold it would, whoever uses it.
    Going(String),
    /// Nobody serves its kind now.
    Unserved,
    /// Its Namespace was forced away: nothing in it can be written.
    Stranded,
    /// The API server does not take the patch, and says this.
    Refused(String),
    /// The time was up before its turn came.
    Late,
    /// It is not Terminating, and nobody was to take it off: a dry run.
    Untouched,
}

impl Why {
    /// Whether it may end by itself, so that it is worth waiting for.
    pub fn may_end(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::Unknown(_) | Self::Going(_))
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// What was done.
    pub tally: Tally,
    /// What has its hold still.
    pub left: Vec<Left>,
    /// Kinds whose objects may have holds and could not be listed, each with
    /// the reason.
    pub unread: Vec<(String, String)>,
}

impl Ended {
    /// Whether nothing is left.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.unread.is_empty()
    }
}

/// How many objects of each kind there are, and why one of them is among them;
/// those that are stranded by themselves, because it takes something else.
pub fn by_kind<'a>(
    left: impl IntoIterator<Item = (&'a ObjectRef, &'a Why)>,
) -> Vec<(String, usize, Why)> {
    let mut kinds: BTreeMap<(String, bool), (usize, &Why)> = BTreeMap::new();
    for (target, why) in left {
        let kind = full_name(&target.group, &target.resource);
        kinds.entry((kind, *why == Why::Stranded)).or_insert((0, why)).0 += 1;
    }
    kinds.into_iter().map(|((kind, _), (count, why))| (kind, count, why.clone())).collect()
}
