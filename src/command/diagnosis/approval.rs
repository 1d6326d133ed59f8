//! The approvals that an object needs: who may give them, which policies require them, and
//! who gave them.

use crate::cluster::{Snapshot, World};
use crate::command::target::situation;
use crate::decide::{Blocker, JudgedObject, RequiredApprovals, Situation, required_approvals};
use crate::objects::{ApiError, ObjectRef, full_name, in_namespace};
use crate::policy::api::GROUP;
use crate::policy::{ObjectFacts, Policy, PolicySet};

/// The text of the right to approve the deletion of an object. `content`: the approval also
/// covers the objects that are deleted as well.
pub fn right_to_approve(target: &ObjectRef, content: bool) -> String {
    let kind = match content {
        true => "every resource (*) of every API group (*)".to_owned(),
        false => full_name(&target.group, &target.resource),
    };
    let scope = match (target.own_namespace(), content) {
        ("", true) => " everywhere".to_owned(),
        (namespace, _) => in_namespace(namespace),
    };
    format!("the RBAC verb approve-deletion on {kind}{scope}")
}

/// The error if the approvals could not be read.
pub fn unread_approvals(snapshot: &Snapshot) -> Option<ApiError> {
    let approvals = format!("deletionapprovals.{GROUP}");
    let unread = snapshot.unread().into_iter().find(|unread| unread.resource == approvals);
    unread.map(|unread| unread.why.clone())
}

/// The policies for which belay holds an object.
pub fn holding_policies<'w>(world: &'w World, object: &ObjectRef) -> Vec<&'w Policy> {
    let Some(node) = world.graph.object_by_ref(object) else { return Vec::new() };
    let applied = situation(world).release_policies(ObjectFacts::of_node(node));
    applied.iter().map(|applied| applied.policy).collect()
}

/// The approvals that these policies require together, and the users who have approved the
/// deletion so far; `None` if they require no approval.
pub fn consent_to(
    world: &World,
    object: &ObjectRef,
    policies: &[&Policy],
) -> Option<RequiredApprovals> {
    let situation = situation(world);
    required_approvals(&situation, &object_in(&situation, object)?, policies)
}

fn object_in<'a>(situation: &Situation<'a>, object: &ObjectRef) -> Option<JudgedObject<'a>> {
    Some(JudgedObject::of_node(situation, situation.graph.object_by_ref(object)?))
}

/// The policies that a blocker names.
pub fn policies_of<'p>(policies: &'p PolicySet, blocker: &Blocker) -> Vec<&'p Policy> {
    policies.iter().filter(|policy| blocker.policies.contains(&policy.source)).collect()
}

/// The people whose approvals count for the object of a blocker of a verdict on this target. For the
/// content of the target, they have scope Content.
pub fn given_approvals(
    situation: &Situation<'_>,
    target: &ObjectRef,
    blocker: &Blocker,
) -> Vec<String> {
    let Some(mut object) = object_in(situation, &blocker.object) else { return Vec::new() };
    object.needs_content_approval =
        blocker.covered_by_content_approval && blocker.object == *target;
    let policies = policies_of(situation.policies, blocker);
    let required = required_approvals(situation, &object, &policies);
    required.map_or_else(Vec::new, |required| required.approver_names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_to_approve_names_the_kind_and_the_namespace_of_the_access_check() {
        for ((resource, group, namespace), says) in [
            (("configmaps", "", "shop"), "configmaps in namespace shop"),
            (("deployments", "apps", "shop"), "deployments.apps in namespace shop"),
            (("namespaces", "", ""), "namespaces in namespace x"),
            (("persistentvolumes", "", ""), "persistentvolumes"),
        ] {
            let target = ObjectRef::new((group, resource), namespace, "x");
            let right = right_to_approve(&target, false);
            assert_eq!(right, format!("the RBAC verb approve-deletion on {says}"));
            // An approval with the content needs more rights, in the same namespace.
            let place = says.split_once(' ').map_or("everywhere", |(_, place)| place);
            let right = right_to_approve(&target, true);
            assert!(right.ends_with(&format!("every API group (*) {place}")), "{right}");
        }
    }
}
