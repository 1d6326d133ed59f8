//! The intervals of belay in tests.

/// Short intervals, with which a busy machine with two cores keeps up. The other intervals have
/// their defaults.
const SHORT: &str = "\
    lease.duration=4,lease.skew=0.5,lease.request=1.2,lease.look=0.5,\
    lease.uninstall=30,\
    feed.discovery=10,feed.lost_kind=1,feed.thaw=8,\
    retry.longest=2,\
    status.look=0.3,status.between=0.05,status.journals=1,status.counts=1,status.write=0.5,\
    journal.write=0.5,journal.events=1,\
    holds.check_interval=1,holds.first_recheck=0.2,holds.unreadable_pause=5,\
    release.metrics_interval=0.5,\
    certificates.poll=1,certificates.margin=1,certificates.ask=0.3,certificates.retry=2,\
    certificates.report=3,certificates.due=8,certificates.gone=15,certificates.sweep=5,\
    paths.settle=2,paths.overlap=3,paths.retry=2,\
    checks.rights=5,checks.pauses=0.3,checks.approvals=2,\
    uninstall.look=1,uninstall.pause=0.5,\
    webhook.drain=1";

/// One interval with its default, so that all intervals are as in production.
const PRODUCTION: &str = "feed.silence=90";

/// Whether `make test-long` runs: with the intervals of production, and with more objects.
pub fn is_long() -> bool {
    std::env::var_os("BELAY_TEST_LONG").is_some()
}

/// The intervals of each belay, unless its test asks for those of production.
pub fn intervals() -> &'static str {
    if is_long() { PRODUCTION } else { SHORT }
}

/// The environment variable that passes the intervals to belay.
pub fn environment() -> (String, String) {
    ("BELAY_TIMING".to_owned(), intervals().to_owned())
}
