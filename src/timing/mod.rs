//! The intervals at which belay checks, retries and writes: all intervals that a user or a test
//! waits for, or that depend on another interval.
//!
//! Production uses [`Timing::default`], which some options of `belay serve`
//! change. Tests pass shorter values with `--timing` or `BELAY_TIMING`. That
//! option can't lengthen an interval, and the relations between intervals are
//! checked ([`Timing::check`]).
//!
//! Other intervals are constants next to the code that uses them: time limits of requests and
//! connections, limits of the cost that a caller can cause, waits that every change ends, polls
//! of at most a second in a command that runs once, and the intervals of the release protocol
//! ([`crate::hold::ReleaseTiming`]), which the model checker uses.

#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::time::Duration;

use crate::lease::renewal_interval;

/// Defines, from one table, a struct for each group, [`Timing`] with all groups, its default,
/// and the list of its intervals by name.
macro_rules! timing {
    ($($(#[$about:meta])* $group:ident: $Group:ident {
        $($(#[$doc:meta])* $name:ident: $default:expr,)*
    })*) => {
        $($(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $Group {
            $($(#[$doc])* pub $name: Duration,)*
        })*

        /// All intervals, by the part of belay that uses them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Timing {
            $($(#[$about])* pub $group: $Group,)*
        }

        impl Default for Timing {
            fn default() -> Self {
                Self { $($group: $Group { $($name: $default,)* },)* }
            }
        }

        impl Timing {
            /// Every interval with its name, `GROUP.NAME`.
            fn intervals(&mut self) -> Vec<(&'static str, &mut Duration)> {
                vec![$($((
                    concat!(stringify!($group), ".", stringify!($name)),
                    &mut self.$group.$name,
                ),)*)*]
            }
        }
    };
}

timing! {
    /// The Lease, by which replicas elect a leader.
    lease: Lease {
        /// How long a write of the Lease is valid, in whole seconds. The leader
        /// renews it after a third, or after 10 s. After this time another replica takes over.
        duration: Duration::from_secs(15),
        /// The allowed difference between the clocks of two replicas. The leader stops this long
        /// before its Lease expires.
        skew: Duration::from_secs(2),
        /// The time limit of a request for the Lease. After a renewal is due, there is time for
        /// two such requests.
        request: Duration::from_secs(3),
        /// How often the other replicas read the Lease.
        look: Duration::from_secs(2),
        /// The time limit for a leader to release the Lease when it stops.
        farewell: Duration::from_secs(2),
        /// How long a write of the Lease by an uninstall is valid. Replicas accept at most ten
        /// times their own `duration`.
        uninstall: Duration::from_secs(120),
    }

    /// Watches and discovery.
    feed: Feed {
        /// How often belay reads discovery if nothing else causes it.
        discovery: Duration::from_secs(60),
        /// How often belay reads discovery while a watched kind is not served.
        lost_kind: Duration::from_secs(2),
        /// How often readiness and metrics report the state of the watches.
        report: Duration::from_millis(250),
        /// The wait before belay restarts a watch that ended because of a bug.
        revival: Duration::from_secs(2),
        /// How long belay keeps policies after their CRD was deleted and re-created: users
        /// create the policies again one by one.
        thaw: Duration::from_secs(30),
        /// How long a watch may be silent before belay connects again. The API server sends a
        /// bookmark every minute if the version of the kind has changed.
        silence: Duration::from_secs(90),
        /// How long a watch must be silent after a reconnect, so that it counts as caught up.
        quiet: Duration::from_millis(500),
        /// The minimum time until the watch of a busy kind, which is never silent, counts as
        /// caught up. The time is at least as long as the gap before the reconnect.
        catch_up: Duration::from_secs(1),
        /// How long a connection must last, so that it counts as stable.
        stable_after: Duration::from_secs(5),
        /// How long a watch may be broken before its kind is incomplete.
        grace: Duration::from_secs(5),
        /// How long belay remembers that a kind owns another one after the last owner
        /// reference was removed, so that each new reference starts no watch.
        owners: Duration::from_secs(120),
    }

    /// The wait between attempts, for parts without their own wait. It doubles with each
    /// attempt.
    retry: Retry {
        /// The first wait.
        first: Duration::from_millis(200),
        /// The longest wait.
        longest: Duration::from_secs(30),
    }

    /// The status of policies.
    status: Status {
        /// How long the leader waits for more changes before it writes.
        gather: Duration::from_millis(200),
        /// How often it checks which kinds are complete, because completion is not an
        /// event.
        look: Duration::from_secs(1),
        /// How long it waits between two writes.
        between: Duration::from_millis(200),
        /// How often it reads the journals of all replicas.
        journals: Duration::from_secs(1),
        /// How often it counts objects, if they have changed.
        counts: Duration::from_secs(10),
        /// How often it writes sums and counts of one policy. Conditions don't
        /// wait.
        write: Duration::from_secs(5),
    }

    /// The journal of each replica, and Events.
    journal: Journal {
        /// How long a replica waits for more entries before it writes them.
        gather: Duration::from_millis(200),
        /// How often it writes its journal.
        write: Duration::from_secs(5),
        /// How often it writes the count of one Event.
        events: Duration::from_secs(10),
    }

    /// Backfill and withdrawal of holds, and the sweep of an uninstall.
    holds: Holds {
        /// How often the leader checks all objects if nothing else causes it.
        check_interval: Duration::from_secs(10),
        /// The first wait before it checks again whether all objects to count were read.
        first_recheck: Duration::from_secs(1),
        /// How often a long backfill publishes its progress.
        progress: Duration::from_secs(5),
        /// The pause for an object that needs no change or can't be written.
        unchanged_pause: Duration::from_secs(600),
        /// The pause for an object that can't be read.
        unreadable_pause: Duration::from_secs(60),
        /// How often all objects of a kind are read if only labelled objects are watched,
        /// for holds on objects that lost their label unseen.
        relist_interval: Duration::from_secs(3600),
        /// The time between two patches.
        patch: Duration::from_millis(40),
    }

    /// The release of holds.
    release: Release {
        /// The minimum time between two passes over one target. A pass reads many lists,
        /// and every tenant can change a user of a target, or request a pass, at any rate.
        /// Causes within this time share one later pass.
        min_pass_interval: Duration::from_secs(2),
        /// How often waiting objects are counted for the metrics.
        metrics_interval: Duration::from_secs(2),
    }

    /// The certificate, and what each replica reports about it.
    certificates: Certificates {
        /// How often certificate files are read (`--certificate-poll`).
        poll: Duration::from_secs(10),
        /// How long the webhook configurations contain a new CA before a
        /// certificate that it signed is served (`--rotation-margin`).
        margin: Duration::from_secs(10),
        /// How often the leader checks which certificates the replicas serve while it waits
        /// for them.
        ask: Duration::from_secs(1),
        /// The minimum time between two new certificates, even if the Secret changes all the
        /// time.
        rest: Duration::from_secs(2),
        /// How long the watch may take to report a write.
        echo: Duration::from_secs(2),
        /// The longest wait between attempts.
        retry: Duration::from_secs(10),
        /// How often a replica reports that it runs.
        report: Duration::from_secs(20),
        /// The time within which a running replica has reported again.
        due: Duration::from_secs(30),
        /// The time without a report after which a replica counts as deleted.
        gone: Duration::from_secs(60),
        /// The time without a report after which the leader deletes the report of a replica.
        forgotten: Duration::from_secs(600),
        /// How often the leader looks for reports to delete.
        sweep: Duration::from_secs(60),
    }

    /// The secret path of the webhooks.
    paths: Paths {
        /// The age of a secret path at which the leader creates the next one (`--path-hours`).
        every: Duration::from_secs(86_400),
        /// How long a new secret path is in the Secret before it is registered, so
        /// that every replica has read it.
        settle: Duration::from_secs(60),
        /// How long a new secret path is registered before the previous one is
        /// removed, so that every API server has read the webhook configurations.
        overlap: Duration::from_secs(600),
        /// How long the watch may take to report a write.
        echo: Duration::from_secs(2),
        /// The longest wait between attempts.
        retry: Duration::from_secs(10),
    }

    /// Regular checks.
    checks: Checks {
        /// How often belay reads which kinds its account may patch.
        rights: Duration::from_secs(30),
        /// How often belay tries again what RBAC forbids, because RBAC reports no change.
        forbidden: Duration::from_secs(5),
        /// How often belay checks whether a Pause began or ended.
        pauses: Duration::from_secs(1),
        /// How often the leader looks for expired approvals.
        approvals: Duration::from_secs(60),
    }

    /// An uninstall.
    uninstall: Uninstall {
        /// How often Terminating objects are checked.
        look: Duration::from_secs(5),
        /// How long it waits between two sweeps that changed nothing.
        pause: Duration::from_secs(3),
        /// How often it prints that objects still wait.
        remind: Duration::from_secs(60),
        /// How often it prints its progress.
        progress: Duration::from_secs(5),
        /// How long belay uses an owner or Namespace that it has read.
        fresh: Duration::from_secs(2),
    }

    /// The webhook server.
    webhook: Webhook {
        /// How long belay answers after SIGTERM while it reports not ready
        /// (`--drain`).
        drain: Duration::from_secs(5),
    }
}

/// The shortest interval that `--timing` accepts.
const SHORTEST: Duration = Duration::from_millis(10);

/// An error in the intervals of `--timing`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TimingError {
    /// A setting has another form.
    #[error("\"{0}\": expected GROUP.NAME=SECONDS")]
    Form(String),
    /// No interval has this name.
    #[error("no interval is called \"{0}\"")]
    Name(String),
    /// A value is no number of seconds in the range of the interval.
    #[error("{name} is \"{value}\": expected between {least} and {most} seconds")]
    Value {
        /// The interval.
        name: String,
        /// Its value.
        value: String,
        /// The shortest, in seconds.
        least: f64,
        /// The longest, in seconds.
        most: f64,
    },
    /// Several intervals do not fit together.
    #[error("{0}")]
    Relation(&'static str),
}

impl FromStr for Timing {
    type Err = TimingError;

    /// Reads `GROUP.NAME=SECONDS,…`. All other intervals keep their default.
    fn from_str(text: &str) -> Result<Self, TimingError> {
        let mut timing = Self::default();
        for setting in text.split(',') {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| TimingError::Form(setting.to_owned()))?;
            let mut intervals = timing.intervals().into_iter();
            let Some((_, interval)) = intervals.find(|(known, _)| *known == name) else {
                return Err(TimingError::Name(name.to_owned()));
            };
            let most = default_interval(name);
            let seconds = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
            *interval =
                seconds.filter(|read| (SHORTEST..=most).contains(read)).ok_or_else(|| {
                    let (least, most) = (SHORTEST.as_secs_f64(), most.as_secs_f64());
                    let (name, value) = (name.to_owned(), value.to_owned());
                    TimingError::Value { name, value, least, most }
                })?;
        }
        timing.check()?;
        Ok(timing)
    }
}

/// The default of an interval.
fn default_interval(name: &str) -> Duration {
    let mut timing = Timing::default();
    let mut intervals = timing.intervals().into_iter();
    intervals.find(|(known, _)| *known == name).map_or(Duration::ZERO, |(_, default)| *default)
}

impl Timing {
    /// Checks the relations between intervals.
    pub fn check(&self) -> Result<(), TimingError> {
        let Self { lease, certificates: Certificates { report, due, gone, forgotten, .. }, .. } =
            self;
        let rules = [
            (
                lease.duration.subsec_nanos() == 0 && lease.uninstall.subsec_nanos() == 0,
                "lease.duration and lease.uninstall have to be whole seconds",
            ),
            (
                renewal_interval(lease.duration) + lease.request + lease.skew < lease.duration,
                "a third of lease.duration, lease.request and lease.skew together have to be \
                 shorter than lease.duration: otherwise a leader can't renew its Lease in time",
            ),
            (
                lease.look < lease.duration,
                "lease.look has to be shorter than lease.duration: otherwise a replica doesn't \
                 see that the leader renews its Lease",
            ),
            (
                (lease.duration..=lease.duration * 10).contains(&lease.uninstall),
                "lease.uninstall may be neither shorter than lease.duration nor longer than ten \
                 times that: replicas don't believe more",
            ),
            (
                report < due && due < gone && gone <= forgotten,
                "certificates.report, .due and .gone have to be in ascending order, and .forgotten \
                 may not be shorter than .gone: otherwise a replica that runs counts as gone",
            ),
        ];
        let violated = rules.into_iter().find(|(holds, _)| !holds);
        violated.map_or(Ok(()), |(_, why)| Err(TimingError::Relation(why)))
    }
}
