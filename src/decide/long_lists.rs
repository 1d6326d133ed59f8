//! Objects with more finalizers or owner references than controllers write. belay does not
//! check such lists. It denies the request if a policy protects the object.

use super::item::JudgedObject;
use super::judgement::Judgement;
use super::{Cause, Operation, Reason, Review};
use crate::graph::MAX_LIST_ENTRIES;
use crate::objects::{Object, is_hold};

/// Denies the request if policies protect such an object and too few people have approved. Returns
/// whether the request is denied, so that no other check is needed.
pub(super) fn judge_long_lists<'a>(
    judgement: &mut Judgement<'a>,
    review: &Review<'_>,
    target: &JudgedObject<'a>,
) -> bool {
    let objects = || [&review.object, &review.old_object].into_iter().flatten();
    // belay itself may have added the hold.
    let finalizers = |object: &Object<'_>| {
        let all = object.metadata.finalizers.iter().flatten();
        all.filter(|name| !is_hold(name)).count()
    };
    // The garbage collector must be able to remove the reference to an owner that is deleted with
    // Orphan. Otherwise the owner stays, and it may belong to another namespace.
    let identities = &judgement.situation.policies.identities;
    let by_collector = review.operation == Operation::Update
        && identities.is_garbage_collector(&review.requester.name);
    let owners = |object: &Object<'_>| match by_collector {
        true => 0,
        false => object.metadata.owner_references.len(),
    };
    let counts = [
        ("finalizers", objects().map(finalizers).max().unwrap_or_default()),
        ("owner references", objects().map(owners).max().unwrap_or_default()),
    ];
    let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > MAX_LIST_ENTRIES)
    else {
        return false;
    };
    for applied in judgement.binding_policies(target) {
        let text = format!("has {count} {what}; belay supports at most {MAX_LIST_ENTRIES}");
        judgement.add_finding(&applied, target, Reason::Unknown, (vec![Cause::TooLarge(text)], 0));
    }
    judgement.is_denied(target)
}
