//! The finalizers that the user may not remove without an approval, because a policy with
//! `fromStripping` guards them.

use serde::Deserialize as _;

use super::finalizers::finalizers_of;
use crate::cluster::Snapshot;
use crate::cluster::terminating::TerminatingObject;
use crate::command::session::UserSession;
use crate::command::target::situation;
use crate::objects::{Object, ObjectRef, Text, is_hold};
use crate::policy::api::Action;
use crate::policy::{ObjectFacts, Requester};

/// The finalizers of an object whose removal by the user belay denies without an approval.
pub async fn guarded_finalizers(
    session: &UserSession,
    snapshot: &Snapshot,
    found: &TerminatingObject,
) -> Vec<String> {
    let foreign = || finalizers_of(&found.object).into_iter().filter(|name| !is_hold(name));
    let has_guards = |snapshot: &Snapshot| {
        let world = snapshot.context.world.read();
        world.policies.iter().any(|policy| policy.modes.from_stripping.is_some())
    };
    let Ok(object) = Object::deserialize(&found.object) else { return Vec::new() };
    if foreign().next().is_none() || !has_guards(snapshot) {
        return Vec::new();
    }
    let ObjectRef { group, resource, namespace, name, .. } = &found.object_ref;
    // Policies select objects by the labels of the Namespace. If the labels are unknown, a policy
    // may apply.
    let _ = snapshot.look_up_namespace(namespace).await;
    let groups = session.me.groups.iter().map(|group| Text::from(&**group)).collect();
    let user = Requester { name: session.me.name.as_str().into(), groups };
    let world = snapshot.context.world.read();
    let facts = ObjectFacts::of_object((group, resource), (namespace, name), &object);
    let mut applied = situation(&world).policies_of(facts);
    applied.retain(|applied| {
        let policy = applied.policy;
        applied.action == Action::Deny && policy.binds(&user) && !policy.exempts(&user)
    });
    let guards = || applied.iter().flat_map(|applied| &applied.policy.modes.from_stripping);
    let is_guarded = |finalizer: &&str| {
        guards().any(|guard| guard.denies(&user, finalizer, &world.policies.identities))
    };
    foreign().filter(is_guarded).map(str::to_owned).collect()
}
