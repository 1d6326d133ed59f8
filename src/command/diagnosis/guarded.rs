//! The finalizers that the user may not remove without an approval, because a policy with
//! `fromStripping` guards them.

use std::collections::HashMap;

use futures_util::future::join_all;
use serde::Deserialize as _;

use super::finalizers::finalizers_of;
use crate::cluster::terminating::TerminatingObject;
use crate::cluster::{Snapshot, World};
use crate::command::session::UserSession;
use crate::command::target::situation;
use crate::objects::{NAMESPACES, Object, ObjectRef, Text, is_hold};
use crate::policy::api::Action;
use crate::policy::{ObjectFacts, Requester};

/// The maximum number of Namespaces to read. If the labels of a Namespace are unknown, a policy may
/// select its objects.
const MAX_NAMESPACES: usize = 30;

/// The finalizers of these objects whose removal by the user belay denies without an approval, by
/// the uid of the object.
pub async fn guarded_finalizers(
    session: &UserSession,
    snapshot: &Snapshot,
    found: &[TerminatingObject],
) -> HashMap<String, Vec<String>> {
    let namespaces = namespaces_to_read(&snapshot.context.world.read(), found);
    join_all(namespaces.iter().map(|namespace| snapshot.look_up_namespace(namespace))).await;
    let groups = session.me.groups.iter().map(|group| Text::from(&**group)).collect();
    let user = Requester { name: session.me.name.as_str().into(), groups };
    let world = snapshot.context.world.read();
    let guarded = |found: &TerminatingObject| (found.uid.clone(), guarded(&world, &user, found));
    found.iter().map(guarded).collect()
}

/// The Namespaces that are not in the graph and whose labels decide whether a policy guards a
/// finalizer of these objects.
fn namespaces_to_read(world: &World, found: &[TerminatingObject]) -> Vec<String> {
    if world.policies.iter().all(|policy| policy.modes.from_stripping.is_none()) {
        return Vec::new();
    }
    let mut namespaces = Vec::new();
    for found in found.iter().filter(|found| foreign_finalizers(found).next().is_some()) {
        let namespace = &found.object_ref.namespace;
        let is_known = namespaces.contains(namespace)
            || namespace.is_empty()
            || world.graph.object_by_ref(&ObjectRef::new(NAMESPACES, "", namespace)).is_some();
        if !is_known && namespaces.len() < MAX_NAMESPACES {
            namespaces.push(namespace.clone());
        }
    }
    namespaces
}

fn foreign_finalizers(found: &TerminatingObject) -> impl Iterator<Item = &str> {
    finalizers_of(&found.object).into_iter().filter(|name| !is_hold(name))
}

fn guarded(world: &World, user: &Requester<'_>, found: &TerminatingObject) -> Vec<String> {
    let Ok(object) = Object::deserialize(&found.object) else { return Vec::new() };
    let ObjectRef { group, resource, namespace, name, .. } = &found.object_ref;
    let facts = ObjectFacts::of_object((group, resource), (namespace, name), &object);
    let mut applied = situation(world).policies_of(facts);
    applied.retain(|applied| {
        let policy = applied.policy;
        applied.action == Action::Deny && policy.binds(user) && !policy.exempts(user)
    });
    let guards = || applied.iter().flat_map(|applied| &applied.policy.modes.from_stripping);
    let is_guarded = |finalizer: &&str| {
        guards().any(|guard| guard.denies(user, finalizer, &world.policies.identities))
    };
    foreign_finalizers(found).filter(is_guarded).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::graph::{Edges, ObjectPhase};
    use crate::objects::{HOLD, Kinds};
    use crate::policy::api::DeletionPolicySpec;
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    #[test]
    fn reads_each_namespace_once_and_only_some() {
        let found = |namespace: &str, finalizer: &str| {
            let info = Kinds::custom("", "v1", "ConfigMap", "configmaps", true);
            TerminatingObject {
                object_ref: ObjectRef::of_kind(&info, namespace, "a"),
                info,
                uid: String::new(),
                since: Timestamp::MIN,
                object: json!({"metadata": {"finalizers": [finalizer]}}),
                unread: None,
            }
        };
        let mut all = vec![
            found("b", "x.dev/y"),
            found("a", "x.dev/y"),
            found("known", "x.dev/y"),
            found("b", "x.dev/y"),
            found("held", HOLD),
            found("", "x.dev/y"),
        ];
        let mut world = World::default();
        let spec = "{targets: [{apiGroups: [''], resources: [configmaps]}], protect: \
                    {fromStripping: {}}}";
        let spec: DeletionPolicySpec = serde_saphyr::from_str(spec).unwrap();
        let policy = Policy::compile("p", &spec).unwrap();
        let kind = world.graph.kinds.namespace().unwrap();
        let known = r#"{"metadata": {"name": "known", "uid": "u"}}"#;
        let known: Object<'_> = serde_json::from_str(known).unwrap();
        world.graph.apply(kind, &known, ObjectPhase::Active, Edges::default());
        assert!(namespaces_to_read(&world, &all).is_empty(), "no policy guards a finalizer");
        world.policies = PolicySet::new(vec![policy], &Catalogue::default());
        assert_eq!(namespaces_to_read(&world, &all), ["b", "a"]);
        all.extend((0..100).map(|n| found(&format!("n{n}"), "x.dev/y")));
        assert_eq!(namespaces_to_read(&world, &all).len(), MAX_NAMESPACES);
    }
}
