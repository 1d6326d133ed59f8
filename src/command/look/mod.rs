//! What people see before they delete: `kubectl belay impact`, what goes with
//! something, and `kubectl belay used-by`, who needs it.
//!
//! ```text
//!  command line ─► targets ─┐            ┌─► verdict (decide)  ─┐              text, Markdown,
//!  cluster ─► Snapshot ─────┼─► Scene ───┼─► outcome (fates)   ─┼─► report ─► JSON, YAML
//!  files ─► files::World ───┘            └─► stock             ─┘
//! ```
//!
//! There is no second answer to what a deletion does: the fates are those of
//! the graph, and the verdict is that of admission.

mod change;
mod impact;
mod say;
mod scene;
mod stock;
mod targets;
mod tree;
mod used_by;
mod verdict;

pub use impact::{Impact, ImpactArguments, run as impact};
pub use used_by::{UsedBy, UsedByArguments, run as used_by};
