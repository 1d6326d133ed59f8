//! The words for the change of an UPDATE.

use super::remedy::MAX_DESCRIBED;
use super::{ChangeDescription, Review};
use crate::graph::MAX_LIST_ENTRIES;
use crate::objects::{KeyedSet, ORPHAN, Object, OwnerReference, and_more, quote_if_ambiguous};

/// The change by which an UPDATE leads to a deletion.
pub(super) fn describe_change(review: &Review<'_>) -> ChangeDescription {
    let unknown = || ChangeDescription {
        subject: "this change lets".to_owned(),
        step: None,
        lets_delete_target: false,
    };
    let of_owners = |subject: String, step| ChangeDescription {
        subject,
        step: Some(step),
        lets_delete_target: true,
    };
    let (Some(old), Some(new)) = (&review.old_object, &review.object) else {
        return unknown();
    };
    let dont_change = "don't change the owner references";
    let [before, after] = [old, new].map(|object| object.metadata.owner_references.as_slice());
    if before.len().max(after.len()) > MAX_LIST_ENTRIES {
        return of_owners("the change of the owner references lets".to_owned(), dont_change);
    }
    let orphans = |object: &Object<'_>| {
        object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN)
    };
    match (owners_only_in(after, before), owners_only_in(before, after)) {
        ((0, _), (0, _)) if orphans(old) && !orphans(new) => ChangeDescription {
            subject: format!("the removal of the finalizer \"{ORPHAN}\" lets"),
            step: Some("keep the finalizer"),
            lets_delete_target: false,
        },
        ((0, _), (0, _)) => unknown(),
        ((1, added), (0, _)) => of_owners(
            format!("the new owner reference ({added}) lets"),
            "don't add this owner reference",
        ),
        ((_, added), (0, _)) => of_owners(
            format!("the new owner references ({added}) let"),
            "don't add these owner references",
        ),
        ((0, _), (1, removed)) => of_owners(
            format!("the removal of the owner reference ({removed}) lets"),
            "keep the owner reference",
        ),
        ((0, _), (_, removed)) => of_owners(
            format!("the removal of owner references ({removed}) lets"),
            "keep the owner references",
        ),
        ((_, added), (_, removed)) => of_owners(
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
