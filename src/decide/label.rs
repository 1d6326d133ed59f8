//! Protection by label alone: `belay.dev/protect: Always`.

use super::{Blocker, Door, HoldChange, Operation, Reason, Review, Target, Verdict};

/// Kinds on which a hold is harm, or no protection at all: a finalizer on a
/// Namespace or a CRD saves only the shell, and the others are taken away and
/// made again by machines all day.
const NEVER_HELD: &[(&str, &str)] = &[
    ("", "namespaces"),
    ("", "pods"),
    ("", "nodes"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
];

/// The verdict that needs nothing but the review: a labelled object gets the
/// hold when it is created, and its DELETE is refused.
pub fn decide_by_label(review: &Review<'_>) -> Verdict {
    let target = target(review);
    if !review.resource.subresource.is_empty() {
        return Verdict::allow(target);
    }
    match (review.door, review.operation) {
        (Door::Mutate, Operation::Create) => create(review, target),
        (Door::Validate, Operation::Delete) => delete(review, target),
        _ => Verdict::allow(target),
    }
}

fn create(review: &Review<'_>, target: Target) -> Verdict {
    let mut verdict = Verdict::allow(target);
    let Some(object) = &review.object else { return verdict };
    let kind = (review.resource.group.as_str(), review.resource.resource.as_str());
    if is_always(object.protect_label()) && !object.is_held() && !NEVER_HELD.contains(&kind) {
        verdict.hold = Some(match object.metadata.finalizers {
            None => HoldChange::First,
            Some(_) => HoldChange::Append,
        });
    }
    verdict
}

fn delete(review: &Review<'_>, target: Target) -> Verdict {
    match review.old_object.as_ref().and_then(|o| o.protect_label()) {
        label @ Some(value) if is_always(label) => {
            Verdict::deny(target, Reason::Protected, Blocker::Label(value.to_owned()))
        }
        _ => Verdict::allow(target),
    }
}

fn is_always(label: Option<&str>) -> bool {
    label == Some("Always")
}

fn target(review: &Review<'_>) -> Target {
    Target {
        resource: review.resource.resource.to_string(),
        group: review.resource.group.to_string(),
        namespace: review.namespace.to_string(),
        name: review.target_name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Decision, DeleteOptions, Resource, User};
    use crate::objects::Object;

    fn review<'a>(
        door: Door,
        operation: Operation,
        resource: &'a str,
        object: &'a str,
    ) -> Review<'a> {
        let parsed: Object<'a> = serde_json::from_str(object).unwrap();
        let (new, old) = match operation {
            Operation::Delete => (None, Some(parsed)),
            _ => (Some(parsed), None),
        };
        Review {
            uid: "1".into(),
            door,
            operation,
            resource: Resource { resource: resource.into(), ..Resource::default() },
            name: "".into(),
            namespace: "db".into(),
            user: User::default(),
            dry_run: false,
            options: DeleteOptions::default(),
            object: new,
            old_object: old,
        }
    }

    const LABELLED: &str = r#"{"metadata":{"name":"a","labels":{"belay.dev/protect":"Always"}}}"#;

    #[test]
    fn a_labelled_object_is_not_deleted_and_is_named_even_in_a_collection_delete() {
        let verdict =
            decide_by_label(&review(Door::Validate, Operation::Delete, "configmaps", LABELLED));
        assert_eq!(verdict.decision, Decision::Deny);
        assert_eq!(verdict.reason, Some(Reason::Protected));
        assert_eq!(verdict.target.name, "a");
    }

    #[test]
    fn other_values_of_the_label_protect_nothing_here() {
        let object = r#"{"metadata":{"name":"a","labels":{"belay.dev/protect":"always"}}}"#;
        let verdict =
            decide_by_label(&review(Door::Validate, Operation::Delete, "configmaps", object));
        assert_eq!(verdict.decision, Decision::Allow);
    }

    #[test]
    fn the_hold_is_put_on_once_and_where_it_helps() {
        let held = r#"{"metadata":{"labels":{"belay.dev/protect":"Always"},"finalizers":["belay.dev/hold"]}}"#;
        let listed =
            r#"{"metadata":{"labels":{"belay.dev/protect":"Always"},"finalizers":["x/y"]}}"#;
        for (resource, object, expected) in [
            ("configmaps", LABELLED, Some(HoldChange::First)),
            ("configmaps", listed, Some(HoldChange::Append)),
            ("configmaps", held, None),
            ("namespaces", LABELLED, None),
            ("pods", LABELLED, None),
        ] {
            let verdict =
                decide_by_label(&review(Door::Mutate, Operation::Create, resource, object));
            assert_eq!(verdict.hold, expected, "{resource} {object}");
        }
    }

    #[test]
    fn the_validating_phase_never_patches_and_the_mutating_phase_never_patches_a_delete() {
        let verdict =
            decide_by_label(&review(Door::Validate, Operation::Create, "configmaps", LABELLED));
        assert_eq!(verdict.hold, None);
        let verdict =
            decide_by_label(&review(Door::Mutate, Operation::Delete, "configmaps", LABELLED));
        assert_eq!((verdict.hold, verdict.decision), (None, Decision::Allow));
    }
}
