//! The conditions by which the API server itself sorts out what belay has
//! nothing to say about, in CEL.
//!
//! Under failurePolicy Fail an error in one of them refuses the request, and
//! `*/*` brings objects without metadata, without an old object or with no
//! fields at all (Scale, Binding, Eviction, TokenRequest). So every field is
//! asked for with has() or `.?`. Lists are compared as a whole: that costs as
//! much as they are long, while "one of them is gone" costs the square of it,
//! and an expression that costs too much is an error as well.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use crate::objects::{HOLD, former_holds};

/// A condition that has to hold before belay is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// On UPDATE: finalizers, owner references, labels or belay's annotations
    /// differ.
    Changes,
    /// On UPDATE: any annotation differs.
    AnnotationsChange,
    /// On UPDATE: our hold goes from an object that is not Terminating.
    HoldGoes,
    /// On DELETE: it is no repeat that changes nothing.
    NoRepeat,
    /// A finalizer goes from the spec of a Namespace, or comes.
    SpecFinalizersChange,
    /// Somebody else than belay asks.
    NotOurs,
}

const CHANGES: &str = "request.operation != 'UPDATE' || \
(has(object.metadata) && has(oldObject.metadata) && (\
oldObject.metadata.?finalizers.orValue([]) != object.metadata.?finalizers.orValue([]) || \
oldObject.metadata.?ownerReferences.orValue([]) != object.metadata.?ownerReferences.orValue([]) || \
oldObject.metadata.?labels.orValue({}) != object.metadata.?labels.orValue({}) || \
!oldObject.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') || \
oldObject.metadata.?annotations[?a] == object.metadata.?annotations[?a]) || \
!object.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') || \
a in oldObject.metadata.?annotations.orValue({}))))";

const ANNOTATIONS_CHANGE: &str = "request.operation != 'UPDATE' || \
(has(object.metadata) && has(oldObject.metadata) && \
oldObject.metadata.?annotations.orValue({}) != object.metadata.?annotations.orValue({}))";

// A name more of the hold is a pass more through both lists.
fn hold_goes(former: &[String]) -> String {
    let in_list = |object: &str| {
        let names = std::iter::once(HOLD).chain(former.iter().map(String::as_str));
        let tests =
            names.map(|name| format!("'{name}' in {object}.metadata.?finalizers.orValue([])"));
        tests.collect::<Vec<_>>().join(" || ")
    };
    format!(
        "request.operation != 'UPDATE' || \
(has(object.metadata) && has(oldObject.metadata) && \
!has(oldObject.metadata.deletionTimestamp) && \
({}) && !({}))",
        in_list("oldObject"),
        in_list("object"),
    )
}

// A repeat can change how dependents go: only one that says Background, or
// Foreground where that is under way, surely does not, and neither where the
// dependents are being orphaned: then it deletes them. A Namespace is always
// asked about, because its content is looked at each time.
const NO_REPEAT: &str = "request.operation != 'DELETE' || oldObject == null || \
!has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp) || \
request.resource.resource == 'namespaces' || \
'orphan' in oldObject.metadata.?finalizers.orValue([]) || \
!(request.?options.?propagationPolicy.orValue('') == 'Background' || \
request.?options.?orphanDependents.orValue(true) == false || \
(request.?options.?propagationPolicy.orValue('') == 'Foreground' && \
'foregroundDeletion' in oldObject.metadata.?finalizers.orValue([])))";

const SPEC_FINALIZERS_CHANGE: &str = "request.operation != 'UPDATE' || \
oldObject.?spec.?finalizers.orValue([]) != object.?spec.?finalizers.orValue([])";

impl Condition {
    /// The condition; `account` is belay's own user name. Without one nothing
    /// is belay's own.
    pub(super) fn render(self, account: Option<&str>) -> Option<MatchCondition> {
        let (name, expression) = match self {
            Self::Changes => ("changes", CHANGES.to_owned()),
            Self::AnnotationsChange => ("annotations-change", ANNOTATIONS_CHANGE.to_owned()),
            Self::HoldGoes => ("hold-goes", hold_goes(former_holds())),
            Self::NoRepeat => ("no-repeat", NO_REPEAT.to_owned()),
            Self::SpecFinalizersChange => {
                ("spec-finalizers-change", SPEC_FINALIZERS_CHANGE.to_owned())
            }
            Self::NotOurs => ("not-belay", format!("request.userInfo.username != '{}'", account?)),
        };
        Some(MatchCondition { name: name.to_owned(), expression })
    }
}
