//! The causes of one finding.
//!
//! Whoever deletes an object may not be allowed to read other namespaces, so
//! causes there are kept apart: they are one cause, which shows none of them.

use super::{Cause, Verdict};

/// So many causes are listed; of the others their number is told.
pub(super) const LISTED: usize = 3;

/// The causes that keep one object, as they are found.
#[derive(Default)]
pub(super) struct CauseList {
    /// The namespace of the object; empty for a cluster-scoped one.
    pub(super) namespace: String,
    here: Found,
    elsewhere: Found,
}

#[derive(Default)]
struct Found {
    /// As many as are listed.
    causes: Vec<Cause>,
    /// How many more there are.
    more: usize,
}

impl CauseList {
    /// The causes that keep an object in this namespace.
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Adds a cause in a namespace. It is put into words only if it is listed.
    pub(super) fn add(&mut self, namespace: &str, cause: impl FnOnce() -> Cause) {
        let apart = is_elsewhere(&self.namespace, namespace);
        let found = if apart { &mut self.elsewhere } else { &mut self.here };
        if found.causes.len() < LISTED {
            found.causes.push(cause());
        } else {
            found.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.here.causes.is_empty() && self.elsewhere.causes.is_empty()
    }

    /// How many are not listed.
    pub(super) fn more(&self) -> usize {
        self.here.more + self.elsewhere.more
    }

    /// The causes that are listed, and how many more there are.
    pub(super) fn into_causes(self) -> (Vec<Cause>, usize) {
        let Found { mut causes, more } = self.here;
        let elsewhere = self.elsewhere;
        if !elsewhere.causes.is_empty() {
            causes.push(Cause::Elsewhere { causes: elsewhere.causes, more: elsewhere.more });
        }
        (causes, more)
    }
}

/// Whether an object in a namespace is in another one than this object. What is
/// cluster-scoped is in none.
pub(super) fn is_elsewhere(namespace: &str, other: &str) -> bool {
    !namespace.is_empty() && !other.is_empty() && namespace != other
}

/// A cause for an object in a namespace, which is about an object in another one.
pub(super) fn cause_of_object(namespace: &str, other: &str, cause: Cause) -> Cause {
    match is_elsewhere(namespace, other) {
        true => Cause::Elsewhere { causes: vec![cause], more: 0 },
        false => cause,
    }
}

impl Verdict {
    /// The same with the causes in other namespaces, for those who may read these.
    pub fn in_full(mut self) -> Self {
        for blocker in &mut self.blockers {
            let mut full = Vec::new();
            for cause in std::mem::take(&mut blocker.causes) {
                match cause {
                    Cause::Elsewhere { causes, more } => {
                        full.extend(causes);
                        blocker.more += more;
                    }
                    other => full.push(other),
                }
            }
            blocker.more += full.len().saturating_sub(LISTED);
            full.truncate(LISTED);
            blocker.causes = full;
        }
        self
    }
}
