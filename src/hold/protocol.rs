//! The inputs, outputs and settings of a release.

use std::sync::Arc;
use std::time::Duration;

use super::count::{ReleaseReason, UnknownUse, UseCheck};
use super::patch::{HoldRemoval, TargetState, TokenWrite};
use crate::decide::{Cause, LiveRead};

/// The time limits of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReleaseTiming {
    /// The settle time: how long this process must see the object Terminating before the
    /// first pass. It is the greatest `settleSeconds` of the policies.
    pub settle: Duration,
    /// The limit of the age of the last read when belay sends the removal.
    pub max_read_age: Duration,
    /// The limit of the duration of a pass.
    pub max_pass: Duration,
    /// The wait after a first failure. Each further failure doubles it.
    pub retry: Duration,
    /// The longest wait.
    pub max_retry: Duration,
}

impl Default for ReleaseTiming {
    fn default() -> Self {
        Self {
            // Only tests use this value, because the driver sets it from the policies. A write
            // takes at most 34 s in the API server.
            settle: Duration::from_secs(45),
            max_read_age: Duration::from_secs(2),
            max_pass: Duration::from_secs(60),
            retry: Duration::from_secs(1),
            max_retry: Duration::from_secs(120),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestResult {
    /// 200, with the object.
    Object(TargetState),
    /// 404: the target does not exist.
    TargetMissing,
    /// 404: its Namespace does not exist (`details.kind` of the answer is `namespaces`).
    NamespaceMissing,
    /// 409 or 422: the object has changed.
    Conflict,
    /// No answer, or an answer that does not show whether the API server made the change:
    /// a time-out, a broken connection, a 5xx.
    Unknown,
    /// 401, 403, 405, 429 and similar: the API server did not make the change.
    Failed(Arc<str>),
}

/// An input of a release: an event, or the result of an output.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Input {
    /// The watch reports the object in this state.
    Observed(TargetState),
    /// The watch reports that the object was deleted.
    Deleted,
    /// Start a pass: the scheduled time has come, a user was deleted, or a person requests it.
    /// If a pass is in progress, the next one follows immediately. During the settle time, the
    /// release only schedules a pass for the end of the settle time.
    StartPass,
    /// The result of the GET of the target.
    Got(RequestResult),
    /// The result of the write of the token.
    TokenWritten(RequestResult),
    /// Each read succeeded, or proved that the objects do not exist.
    ReadSucceeded {
        /// The earliest time at which one of these reads requested its last page. `None` if no
        /// read needed a request. Then the time of [`Output::Read`] counts.
        requested_at: Option<Duration>,
    },
    /// A read failed: 403, 405, 5xx, a time-out or an incomplete discovery. The text names its
    /// kind.
    ReadFailed(Arc<str>),
    /// The result of the count.
    UseChecked(UseCheck),
    /// The result of the removal.
    Removed(RequestResult),
}

/// An action for the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// Send [`Input::StartPass`] at this time, and no longer at the time of an earlier output.
    SchedulePass(Duration),
    /// GET the target, live.
    Get,
    WriteToken(TokenWrite),
    /// Read these at the same time, live and consistently: no `resourceVersion`.
    Read(Vec<LiveRead>),
    /// Call [`super::check_use`] with the reads of this pass as [`crate::decide::LiveReads`].
    /// Their `results` have each answered read; an absent kind or object is `Ok`. Their `graph`
    /// has the target in the form of [`super::without_hold`].
    CheckUse,
    /// Drop the reads, because the pass has ended. [`Output::Ended`] ends the pass as well.
    DropReads,
    Remove(HoldRemoval),
    /// The reason to report in the status.
    ReportWait(WaitReason),
    /// The release has ended.
    Ended(ReleaseEnd),
}

/// What a target waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// These causes keep the object.
    InUse(Vec<Cause>),
    /// Something is unknown; the text gives the reason.
    Unknown(Arc<str>),
    /// Its Namespace was removed by force. The object can be read, but not written until
    /// the Namespace is re-created.
    Stranded,
}

impl From<UnknownUse> for WaitReason {
    fn from(why: UnknownUse) -> Self {
        Self::Unknown(why.to_string().into())
    }
}

/// How a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseEnd {
    /// belay removed the hold.
    Released(ReleaseReason),
    /// The object was deleted or replaced, or another client removed the hold. A removal
    /// by belay whose answer was lost looks the same.
    NoLongerHeld,
}
