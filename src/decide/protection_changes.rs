//! Changes of labels and annotations that remove or weaken protection. They need the same
//! approval as a deletion.

use super::content::Container;
use super::delete::require_known_content;
use super::item::JudgedObject;
use super::judgement::Judgement;
use super::users::relevant_users;
use super::{Cause, ObjectName, Reason, Review};
use crate::objects::{LABEL_VALUES, NumberSet};
use crate::policy::{AppliedPolicy, Policy, PolicySource};

pub(super) fn judge_weaker_protection<'a>(
    judgement: &mut Judgement<'a>,
    review: &'a Review<'a>,
    target: &JudgedObject<'a>,
) {
    let Some(new) = &review.object else { return };
    let situation = judgement.situation;
    let after = JudgedObject::of_review(&situation, review, new).facts;
    let before = judgement.binding_policies(target);
    let name = target.object_name();
    judge_lost_policies(judgement, target, &name, &before, &situation.policies_of(after));
    if review.old_object.as_ref().is_some_and(|old| old.metadata.labels != new.metadata.labels) {
        let item = JudgedObject::of_review(&situation, review, new);
        judge_lost_users(judgement, target, &item, &before);
    }

    // The labels of a Namespace also decide which policies apply to its content.
    let Some(container) = Container::from_item(target).filter(|_| target.facts.is_namespace())
    else {
        return;
    };
    let differs = |key: &str| target.facts.labels.get(key) != after.labels.get(key);
    let reads_changed_label = |policy: &Policy| policy.namespace_label_keys().any(differs);
    if !situation.policies.iter().any(reads_changed_label) {
        return;
    }
    let namespace_labels =
        situation.namespace_labels().with_labels(target.facts.name, after.labels);
    for item in container.judged_objects(situation) {
        let mut before = judgement.binding_policies(&item);
        before.retain(|applied| reads_changed_label(applied.policy));
        if !before.is_empty() {
            let after = situation.policies_with_labels(namespace_labels, item.facts);
            let name = item.object_name();
            judge_lost_policies(judgement, target, &name, &before, &after);
        }
    }
    require_known_content(judgement, target, false, reads_changed_label);
}

/// Denies a change of labels after which a selector of a user no longer matches the
/// object.
fn judge_lost_users<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    after: &JudgedObject<'a>,
    before: &[AppliedPolicy<'a>],
) {
    let situation = judgement.situation;
    for applied in before {
        let Some(mode) = &applied.policy.modes.while_used else { continue };
        let users = |item| {
            let users = relevant_users(&situation, item, mode, situation.graph);
            users.map(|user| user.node.id()).collect::<NumberSet<_>>()
        };
        if !users(target).is_subset(&users(after)) {
            let causes = vec![Cause::WeakerProtection(target.object_name())];
            judgement.add_finding(applied, target, Reason::Protected, (causes, 0));
        }
    }
}

/// Denies a change after which a policy no longer applies to the object of this name, or has
/// a milder action.
fn judge_lost_policies<'a>(
    judgement: &mut Judgement<'a>,
    target: &JudgedObject<'a>,
    name: &ObjectName,
    before: &[AppliedPolicy<'a>],
    after: &[AppliedPolicy<'a>],
) {
    for applied in before {
        // The label value `Always` denies each DELETE that `WhileUsed` denies.
        let [always, while_used] = LABEL_VALUES.map(PolicySource::Label);
        let replaces = |policy: &Policy| {
            std::ptr::eq(policy, applied.policy)
                || (applied.policy.source == while_used && policy.source == always)
        };
        let still_applies =
            after.iter().any(|other| replaces(other.policy) && other.action >= applied.action);
        if !still_applies {
            judgement.add_finding(
                applied,
                target,
                Reason::Protected,
                (vec![Cause::WeakerProtection(name.clone())], 0),
            );
        }
    }
}
