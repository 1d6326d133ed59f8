//! Match conditions in CEL: the API server evaluates them and does not call belay for
//! requests that no policy concerns.
//!
//! With failurePolicy Fail, an error in a condition makes the API server reject the request. `*/*`
//! matches objects without metadata, without an old object or without any fields (Scale, Binding,
//! Eviction, TokenRequest), so every field is read with has() or `.?`. Lists are compared as a
//! whole: that costs linear time, while a test for one removed element costs quadratic time, and an
//! expression over the cost limit is an error as well. Any loop over a map costs quadratic time in
//! the API server, which no limit bounds: an object of 60,000 annotations took 10 s. So long maps
//! are not looped over, and the API server asks belay.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

use super::namespaces::{CEL_KIND, cel_list};
use crate::objects::{HOLD, Kinds, former_holds};

/// A condition for calling belay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// On UPDATE: finalizers, owner references, labels or belay's annotations differ. With more
    /// than 256 annotations: any annotation differs.
    Changes,
    /// On UPDATE: any annotation differs.
    AnnotationsChange,
    /// On UPDATE: belay's hold is removed from an object that is not Terminating.
    HoldRemoved,
    /// On DELETE: the request does more than repeat an earlier DELETE.
    NoRepeat,
    /// On DELETE: the garbage collector may remove the owner references of the dependents.
    Orphaning,
    /// The opposite of `Orphaning`.
    NotOrphaning,
    /// A finalizer is added to or removed from the spec of a Namespace.
    SpecFinalizersChange,
    /// The client is not belay.
    NotOurs,
}

const CHANGES: &str = "request.operation != 'UPDATE' || \
(has(object.metadata) && has(oldObject.metadata) && (\
oldObject.metadata.?finalizers.orValue([]) != object.metadata.?finalizers.orValue([]) || \
oldObject.metadata.?ownerReferences.orValue([]) != object.metadata.?ownerReferences.orValue([]) || \
oldObject.metadata.?labels.orValue({}) != object.metadata.?labels.orValue({}) || \
oldObject.metadata.?annotations.orValue({}) != object.metadata.?annotations.orValue({}) && (\
oldObject.metadata.?annotations.orValue({}).size() > 256 || \
object.metadata.?annotations.orValue({}).size() > 256 || \
!oldObject.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') || \
oldObject.metadata.?annotations[?a] == object.metadata.?annotations[?a]) || \
!object.metadata.?annotations.orValue({}).all(a, !a.startsWith('belay.dev/') || \
a in oldObject.metadata.?annotations.orValue({})))))";

const ANNOTATIONS_CHANGE: &str = "request.operation != 'UPDATE' || \
(has(object.metadata) && has(oldObject.metadata) && \
oldObject.metadata.?annotations.orValue({}) != object.metadata.?annotations.orValue({}))";

// Each additional name of the hold costs one more pass through both lists.
fn hold_removed(former: &[String]) -> String {
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

// A repeated request can change how dependents are deleted, and can remove the finalizers
// orphan and foregroundDeletion, which policies may guard. It certainly has no effect in two cases:
// - The object has foregroundDeletion and not orphan, and the request has Foreground.
// - The object has neither finalizer, and the request has Background.
// Requests for Namespaces always reach belay, because their content is checked each time.
const NO_REPEAT: &str = "request.operation != 'DELETE' || oldObject == null || \
!has(oldObject.metadata) || !has(oldObject.metadata.deletionTimestamp) || \
request.resource.resource == 'namespaces' || \
'orphan' in oldObject.metadata.?finalizers.orValue([]) || \
('foregroundDeletion' in oldObject.metadata.?finalizers.orValue([]) ? \
request.?options.?propagationPolicy.orValue('') != 'Foreground' : \
request.?options.?propagationPolicy.orValue('') != 'Background' && \
request.?options.?orphanDependents.orValue(true) != false)";

// The finalizer orphan of the object has the same effect as the option, unless the request has
// another option. Without an option, some kinds orphan by default (R8). Each of them has only one
// served version, and the default depends on the version.
fn orphaning() -> String {
    let kinds = Kinds::orphaning_by_default();
    let kinds: Vec<_> = kinds.map(|(group, resource)| format!("{group}/{resource}")).collect();
    format!(
        "request.operation == 'DELETE' && ( \
request.?options.?propagationPolicy.orValue('') == 'Orphan' || \
request.?options.?orphanDependents.orValue(false) == true || \
{CEL_KIND} in {} && \
request.?options.?propagationPolicy.orValue('') == '' && \
request.?options.?orphanDependents.orValue(true) == true || \
oldObject != null && has(oldObject.metadata) && \
'orphan' in oldObject.metadata.?finalizers.orValue([]))",
        cel_list(&kinds)
    )
}

const SPEC_FINALIZERS_CHANGE: &str = "request.operation != 'UPDATE' || \
oldObject.?spec.?finalizers.orValue([]) != object.?spec.?finalizers.orValue([])";

impl Condition {
    /// `account` is belay's own user name. Without one, no client is belay.
    pub(super) fn render(self, account: Option<&str>) -> Option<MatchCondition> {
        let (name, expression) = match self {
            Self::Changes => ("changes", CHANGES.to_owned()),
            Self::AnnotationsChange => ("annotations-change", ANNOTATIONS_CHANGE.to_owned()),
            Self::HoldRemoved => ("hold-removed", hold_removed(former_holds())),
            Self::NoRepeat => ("no-repeat", NO_REPEAT.to_owned()),
            Self::Orphaning => ("orphaning", orphaning()),
            Self::NotOrphaning => ("not-orphaning", format!("!({})", orphaning())),
            Self::SpecFinalizersChange => {
                ("spec-finalizers-change", SPEC_FINALIZERS_CHANGE.to_owned())
            }
            Self::NotOurs => ("not-belay", format!("request.userInfo.username != '{}'", account?)),
        };
        Some(MatchCondition { name: name.to_owned(), expression })
    }
}
