//! What a release is told, what it says, and the numbers it goes by.

use std::sync::Arc;
use std::time::Duration;

use super::count::{Count, ReleaseReason};
use super::patch::{HoldRemoval, TargetState, TokenWrite};
use crate::decide::{Cause, LiveRead};

/// The numbers of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// How long an object has been Terminating, for us, before it is looked
    /// at: the greatest `settleSeconds` of its policies.
    pub settle: Duration,
    /// How old the last read may be when the removal is sent.
    pub fresh: Duration,
    /// How long a whole pass may take.
    pub pass: Duration,
    /// When to look again after a first failure; each further one doubles it.
    pub retry: Duration,
    /// At the latest after this.
    pub retry_most: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // The API server gives a write 34 seconds, etcd 7 more.
            settle: Duration::from_secs(45),
            fresh: Duration::from_secs(2),
            pass: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            retry_most: Duration::from_secs(120),
        }
    }
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// 200, with the object.
    Done(TargetState),
    /// 404: the object is not there, or what is not there is its Namespace
    /// (`details.kind` of the answer is `namespaces`).
    Missing {
        /// Whether it is the Namespace.
        namespace: bool,
    },
    /// 409 or 422: the object is not what was looked at.
    Refused,
    /// No answer, or one that leaves open whether it was carried out: a
    /// time-out, a connection that broke, a 5xx.
    Lost,
    /// 401, 403, 405, 429 and the like: it was certainly not carried out.
    Failed(Arc<str>),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// The watch shows the object like this.
    Seen(TargetState),
    /// The watch says that the object is gone.
    Gone,
    /// Look now: it is time, a user went, or a person asks. While something is
    /// under way it is remembered for when that is over; before settle has
    /// passed it is answered with the time when it has.
    Look,
    /// What the GET of the target came to.
    Got(Answer),
    /// What writing the token came to.
    Marked(Answer),
    /// All was read that was asked for; that there is none of it was proved as well.
    Read {
        /// When the last page was asked for, which may be long after the read began.
        asked: Option<Duration>,
    },
    /// The read failed: 403, 405, 5xx, a time-out, a partial discovery.
    Unreadable(Arc<str>),
    /// What the count came to.
    Counted(Count),
    /// What the removal came to.
    Removed(Answer),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// Come back with [`Input::Look`] at this time; it replaces any earlier
    /// one.
    LookAt(Duration),
    /// GET the target, live.
    Get,
    /// Write the token.
    Mark(TokenWrite),
    /// Read this, live and consistently: no `resourceVersion`.
    Read(LiveRead),
    /// Ask [`super::count`] with what was read in this pass, as
    /// [`crate::decide::LiveReads`]: every read that has been answered stands
    /// in its `done`, an absent kind or object with Ok; and the target goes in
    /// last, as [`super::as_released`] makes it, so that no list puts the hold
    /// back.
    Count,
    /// Throw away what was read: the pass is over. So it is when the release
    /// has [`Output::Ended`].
    Forget,
    /// Take the hold off.
    Remove(HoldRemoval),
    /// What status says.
    Waits(Waiting),
    /// It is over.
    Ended(End),
}

/// What a target waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// These keep it.
    For(Vec<Cause>),
    /// Something is not known; the words say what, and why.
    Unknown(Arc<str>),
    /// Its Namespace was forced away: it can be read, and not be written until
    /// the Namespace is made again.
    Stranded,
}

/// How a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// We took the hold off.
    Released(ReleaseReason),
    /// It is gone, or another object stands in its place, or somebody else
    /// took the hold off. So it looks, too, when we did and the answer was
    /// lost.
    Gone,
}
