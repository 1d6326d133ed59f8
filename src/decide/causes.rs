//! The causes of one finding.
//!
//! A user who deletes an object may lack the right to read other namespaces. So all
//! causes in other namespaces are one cause, which shows no details.

use super::{Cause, Verdict};

/// The limit of causes that messages list. For more causes, messages show only their number.
pub(crate) const MAX_LISTED_CAUSES: usize = 3;

/// The causes that keep one object.
#[derive(Default)]
pub(super) struct CauseList {
    /// The namespace of the object, or the name of the Namespace; empty for another
    /// cluster-scoped object.
    pub(super) namespace: String,
    same_namespace: ListedCauses,
    elsewhere: ListedCauses,
    /// Whether belay did not look for further causes.
    pub(super) may_have_others: bool,
}

#[derive(Default)]
struct ListedCauses {
    /// At most the number that messages list.
    causes: Vec<Cause>,
    /// The number of further causes.
    more: usize,
}

impl CauseList {
    /// The causes that keep an object in this namespace.
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Adds a cause in a namespace. The cause is built only if messages list it.
    pub(super) fn add(&mut self, namespace: &str, cause: impl FnOnce() -> Cause) {
        let is_elsewhere = is_in_other_namespace(&self.namespace, namespace);
        let listed = if is_elsewhere { &mut self.elsewhere } else { &mut self.same_namespace };
        if listed.causes.len() < MAX_LISTED_CAUSES {
            listed.causes.push(cause());
        } else {
            listed.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.same_namespace.causes.is_empty() && self.elsewhere.causes.is_empty()
    }

    /// The listed causes, and the number of the others.
    pub(super) fn into_causes(self) -> (Vec<Cause>, usize) {
        let ListedCauses { mut causes, more } = self.same_namespace;
        let elsewhere = self.elsewhere;
        if !elsewhere.causes.is_empty() {
            causes.push(Cause::Elsewhere { causes: elsewhere.causes, more: elsewhere.more });
        }
        causes.extend(self.may_have_others.then_some(Cause::PerhapsOthers));
        (causes, more)
    }
}

/// Whether two objects are in different namespaces. A cluster-scoped object is in no
/// namespace.
pub(super) fn is_in_other_namespace(namespace: &str, other: &str) -> bool {
    !namespace.is_empty() && !other.is_empty() && namespace != other
}

/// A cause about an object in another namespace, hidden if needed.
pub(super) fn hide_if_elsewhere(namespace: &str, other: &str, cause: Cause) -> Cause {
    match is_in_other_namespace(namespace, other) {
        true => Cause::Elsewhere { causes: vec![cause], more: 0 },
        false => cause,
    }
}

impl Verdict {
    /// The verdict with the causes in other namespaces, for users who may read them.
    pub fn with_other_namespaces(mut self) -> Self {
        for blocker in &mut self.blockers {
            let mut all = Vec::new();
            for cause in std::mem::take(&mut blocker.causes) {
                match cause {
                    Cause::Elsewhere { causes, more } => {
                        all.extend(causes);
                        blocker.more += more;
                    }
                    other => all.push(other),
                }
            }
            blocker.more += all.len().saturating_sub(MAX_LISTED_CAUSES);
            all.truncate(MAX_LISTED_CAUSES);
            blocker.causes = all;
        }
        self
    }
}
