//! The commands before a deletion: `kubectl belay impact` shows its effects, and `kubectl
//! belay used-by` the users of an object.
//!
//! ```text
//!  command line ─► targets ─┐                 ┌─► verdict (decide) ─┐              text, Markdown,
//!  cluster ─┬─► Snapshot ───┴─► Inspection ───┼─► outcome (fates)  ─┼─► report ─► JSON, YAML
//!  Archive ─┘                                 └─► destroyed        ─┘
//! ```
//!
//! Both commands use the fates of the graph and the verdict of admission, so that their reports
//! agree with the webhook.

mod affinity;
mod backing;
mod change;
mod impact;
mod inspection;
mod label;
mod targets;
mod tree;
mod used_by;
mod verdict;

pub use backing::READ_WHOLE;
pub use impact::{
    Cascade, ClusterIdentity, DeletedBy, DeletionPlan, Drift, Impact, ImpactArguments, PlanChange,
    PlannedObject, ask_hold_reason, assess, plan_order, run as impact,
};
pub use inspection::{Inspection, PolicyState, missing_text, read as read_inspection};
pub use targets::{ObjectSelection, SearchArguments, TargetQuery};
pub use used_by::{UsedBy, UsedByArguments, run as used_by};
pub use verdict::{verdict, verdict_at};
