//! Reports the reasons why objects keep their holds, each only once.

use std::collections::BTreeMap;

use super::report::{HeldObject, HeldReason, UninstallEvent, count_by_kind};
use crate::objects::{ApiError, ObjectRef};

/// Reports changes since the last report.
pub struct ChangeReporter<'a> {
    report: &'a dyn Fn(UninstallEvent),
    /// The reason of each object that waits.
    waits: BTreeMap<ObjectRef, HeldReason>,
    /// The failures of the last round.
    failures: Vec<UninstallEvent>,
    /// Why the policies could not be read.
    refresh_error: Option<ApiError>,
}

impl<'a> ChangeReporter<'a> {
    pub fn new(report: &'a dyn Fn(UninstallEvent)) -> Self {
        Self { report, waits: BTreeMap::new(), failures: Vec::new(), refresh_error: None }
    }

    /// Reports an object that waits, if its reason is new.
    pub fn report_wait(&mut self, held: HeldObject) {
        let before = self.waits.insert(held.target.clone(), held.reason.clone());
        if before.as_ref() != Some(&held.reason) {
            (self.report)(UninstallEvent::Waits(held));
        }
    }

    /// Reports the kinds that a round could not read, and the objects whose hold it could not
    /// remove, with one line for each kind.
    pub fn report_failures(
        &mut self,
        unread: &[(String, String)],
        skipped: &[String],
        failed: &[HeldObject],
    ) {
        let unread = unread.iter().map(|(kind, why)| {
            UninstallEvent::Warning(format!("{kind} may have holds and cannot be read: {why}"))
        });
        let skipped = (!skipped.is_empty()).then(|| {
            UninstallEvent::Step(format!(
                "not checked, because they cannot be read: {}; no policy names them, nor does \
                 belay's record of holds",
                skipped.join(", ")
            ))
        });
        let failed = count_by_kind(failed).into_iter();
        let failed = failed.map(|(kind, count, reason)| UninstallEvent::Fails(kind, count, reason));
        let failures: Vec<UninstallEvent> =
            skipped.into_iter().chain(unread).chain(failed).collect();
        for event in failures.iter().filter(|event| !self.failures.contains(event)) {
            (self.report)(event.clone());
        }
        self.failures = failures;
    }

    /// Reports that the policies could not be read, if the error is new. `None`: they were read.
    pub fn report_refresh(&mut self, error: Option<ApiError>) {
        if let Some(error) = &error
            && self.refresh_error.as_ref() != Some(error)
        {
            (self.report)(UninstallEvent::Warning(format!(
                "the served kinds and policies cannot be read: {error}; belay tries again"
            )));
        }
        self.refresh_error = error;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn reports_a_failure_again_after_it_had_ended() {
        let events = Mutex::new(Vec::new());
        let report = |event| events.lock().push(event);
        let mut reporter = ChangeReporter::new(&report);
        let unread = |why: &str| vec![("secrets".to_owned(), why.to_owned())];
        for unread in [unread("a"), unread("a"), unread("b"), vec![], unread("b"), unread("a")] {
            reporter.report_failures(&unread, &[], &[]);
        }
        let texts = ["a", "b", "b", "a"]
            .map(|why| format!("secrets may have holds and cannot be read: {why}"));
        assert_eq!(events.lock().drain(..).collect::<Vec<_>>(), texts.map(UninstallEvent::Warning));
        let error = || Some(ApiError::NotFound);
        for error in [error(), error(), None, error()] {
            reporter.report_refresh(error);
        }
        assert_eq!(events.lock().len(), 2);
    }
}
