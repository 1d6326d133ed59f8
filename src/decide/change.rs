//! The words for the change of an UPDATE.

use super::remedy::MAX_DESCRIBED;
use super::{ChangeDescription, Review};
use crate::graph::MAX_LIST_ENTRIES;
use crate::objects::{KeyedSet, ORPHAN, Object, OwnerReference, and_more, quote_if_ambiguous};

/// The change by which an UPDATE leads to a deletion.
pub(super) fn describe_change(review: &Review<'_>) -> ChangeDescription {
    let (subject, step) = subject_and_step(review);
    let lets_delete_target = step.is_some_and(|step| step != KEEP_FINALIZER);
    ChangeDescription { subject, step, lets_delete_target }
}

/// The step for a change of finalizers. The other steps are for changes of owners.
const KEEP_FINALIZER: &str = "keep the finalizer";

fn subject_and_step(review: &Review<'_>) -> (String, Option<&'static str>) {
    let this_change = || ("this change lets".to_owned(), None);
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else {
        return this_change();
    };
    let dont_change = Some("don't change the owner references");
    let [before, after] = [old, new].map(|object| object.metadata.owner_references.as_slice());
    if before.len().max(after.len()) > MAX_LIST_ENTRIES {
        return ("the change of the owner references lets".to_owned(), dont_change);
    }
    let orphans = |object: &Object<'_>| {
        object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN)
    };
    match (owners_only_in(after, before), owners_only_in(before, after)) {
        ((0, _), (0, _)) if orphans(old) && !orphans(new) => {
            (format!("the removal of the finalizer {ORPHAN} lets"), Some(KEEP_FINALIZER))
        }
        ((0, _), (0, _)) => this_change(),
        ((1, added), (0, _)) => (
            format!("the new owner reference ({added}) lets"),
            Some("don't add this owner reference"),
        ),
        ((_, added), (0, _)) => (
            format!("the new owner references ({added}) let"),
            Some("don't add these owner references"),
        ),
        ((0, _), (1, removed)) => (
            format!("the removal of the owner reference ({removed}) lets"),
            Some("keep the owner reference"),
        ),
        ((0, _), (_, removed)) => (
            format!("the removal of owner references ({removed}) lets"),
            Some("keep the owner references"),
        ),
        ((_, added), (_, removed)) => (
            format!("the change of owner references (new: {added}; removed: {removed}) lets"),
            dont_change,
        ),
    }
}

/// The owners in one list of references that are not in the other: their number and names.
fn owners_only_in(list: &[OwnerReference<'_>], other: &[OwnerReference<'_>]) -> (usize, String) {
    fn identity<'o>(owner: &'o OwnerReference<'_>) -> [&'o str; 4] {
        [&owner.api_version, &owner.kind, &owner.name, &owner.uid].map(|text| text.as_str())
    }
    let other: KeyedSet<_> = other.iter().map(identity).collect();
    let only: Vec<_> = list.iter().filter(|owner| !other.contains(&identity(owner))).collect();
    let name = |owner: &&OwnerReference<'_>| {
        format!("{} {}", quote_if_ambiguous(&owner.kind), quote_if_ambiguous(&owner.name))
    };
    let names: Vec<String> = only.iter().take(MAX_DESCRIBED).map(name).collect();
    let more = and_more(only.len() - names.len(), "object");
    (only.len(), names.join(", ") + &more)
}
