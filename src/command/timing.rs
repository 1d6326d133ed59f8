//! The option with which tests shorten the intervals of a command that waits.

use clap::Args;

use crate::timing::Timing;

#[derive(Debug, Clone, Copy, Args)]
pub struct TimingArguments {
    /// For tests: intervals as GROUP.NAME=SECONDS,…; the others keep their
    /// default
    #[arg(long, value_name = "INTERVALS", env = "BELAY_TIMING", hide = true)]
    timing: Option<Timing>,
}

impl TimingArguments {
    /// The intervals to use.
    pub fn read(self) -> Timing {
        if self.timing.is_some() {
            tracing::warn!(
                "--timing or BELAY_TIMING has shortened the intervals of belay; they are for tests \
                 only: remove the setting in production"
            );
        }
        self.timing.unwrap_or_default()
    }
}
