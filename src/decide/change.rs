//! The words for the change of an UPDATE.

use super::Review;
use super::remedy::MAX_DESCRIBED;
use crate::graph::MAX_LIST_ENTRIES;
use crate::objects::{KeyedSet, ORPHAN, Object, OwnerReference, and_more, clear_name};

/// The change by which an UPDATE leads to a deletion, as the beginning of a sentence.
pub(super) fn describe_change(review: &Review<'_>) -> String {
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else {
        return THIS_CHANGE.to_owned();
    };
    let [before, after] = [old, new].map(|object| object.metadata.owner_references.as_slice());
    if before.len().max(after.len()) > MAX_LIST_ENTRIES {
        return "the change of the owner references lets".to_owned();
    }
    let orphans = |object: &Object<'_>| {
        object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN)
    };
    match (owners_only_in(after, before), owners_only_in(before, after)) {
        ((0, _), (0, _)) if orphans(old) && !orphans(new) => {
            format!("the removal of the finalizer {ORPHAN} lets")
        }
        ((0, _), (0, _)) => THIS_CHANGE.to_owned(),
        ((1, added), (0, _)) => format!("the new owner reference ({added}) lets"),
        ((_, added), (0, _)) => format!("the new owner references ({added}) let"),
        ((0, _), (1, removed)) => format!("the removal of the owner reference ({removed}) lets"),
        ((0, _), (_, removed)) => format!("the removal of owner references ({removed}) lets"),
        ((_, added), (_, removed)) => {
            format!("the change of owner references (new: {added}; removed: {removed}) lets")
        }
    }
}

/// The owners in one list of references that are not in the other: their number and names.
fn owners_only_in(list: &[OwnerReference<'_>], other: &[OwnerReference<'_>]) -> (usize, String) {
    fn identity<'o>(of: &'o OwnerReference<'_>) -> [&'o str; 4] {
        [&of.api_version, &of.kind, &of.name, &of.uid].map(|text| text.as_str())
    }
    let other: KeyedSet<_> = other.iter().map(identity).collect();
    let only: Vec<_> = list.iter().filter(|of| !other.contains(&identity(of))).collect();
    let name =
        |of: &&OwnerReference<'_>| format!("{} {}", clear_name(&of.kind), clear_name(&of.name));
    let names: Vec<String> = only.iter().take(MAX_DESCRIBED).map(name).collect();
    let more = and_more(only.len() - names.len(), "object");
    (only.len(), names.join(", ") + &more)
}

/// The beginning of the sentence about any other change.
const THIS_CHANGE: &str = "this change lets";
