//! Counts the objects that each policy protects, and those of them that have the hold.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::cluster::{Context, World};
use crate::decide::{ObjectSource, Situation};
use crate::graph::NodeId;
use crate::objects::KindId;
use crate::policy::{ObjectFacts, PolicySource};

/// The maximum time for which a count holds the lock.
const SLICE: Duration = Duration::from_millis(3);

/// The number of objects between two checks of the clock.
const STEP: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PolicyCount {
    pub(super) protected: i64,
    pub(super) held: i64,
}

/// The counts of each policy, by its name.
pub(super) type PolicyCounts = HashMap<String, PolicyCount>;

fn add_objects(world: &World, kind: KindId, objects: &[NodeId], now: i64, into: &mut PolicyCounts) {
    let World { graph, policies, .. } = world;
    let situation = Situation::new(graph, policies, ObjectSource::Files, now);
    // While the lock was free, the number of a deleted object may have gone to another object.
    let nodes = objects.iter().filter_map(|id| graph.get(*id)).filter(|n| n.kind() == kind);
    for node in nodes {
        for applied in situation.protecting_policies(ObjectFacts::of_node(node)) {
            let PolicySource::Policy(name) = &applied.policy.source else { continue };
            if !into.contains_key(name) {
                into.insert(name.clone(), PolicyCount::default());
            }
            if let Some(count) = into.get_mut(name) {
                count.protected += 1;
                count.held += i64::from(node.is_held());
            }
        }
    }
}

/// Counts the objects of all policies in slices, so that other tasks can write in between.
pub(super) async fn count(context: &Context) -> PolicyCounts {
    let kinds: Vec<KindId> = {
        let world = context.world.read();
        let named = |group: &str, resource: &str| world.policies.names_kind(group, resource);
        let kinds = world.graph.kinds.iter();
        let kinds = kinds.filter(|(_, info)| named(&info.group, &info.resource));
        kinds.map(|(kind, _)| kind).collect()
    };
    let mut all = PolicyCounts::new();
    for kind in kinds {
        let objects: Vec<NodeId> = context.world.read().graph.objects_of_kind(kind).collect();
        let mut remaining = objects.as_slice();
        while !remaining.is_empty() {
            {
                let world = context.world.read();
                let start = Instant::now();
                while !remaining.is_empty() && start.elapsed() < SLICE {
                    let (step, rest) = remaining.split_at(remaining.len().min(STEP));
                    add_objects(&world, kind, step, world.clock.now().as_second(), &mut all);
                    remaining = rest;
                }
            }
            tokio::task::yield_now().await;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::world::store;
    use crate::policy::api::{DeletionPolicySpec, Protect, TargetSelector};
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    const NOW: i64 = 1_767_225_670;

    fn policy(name: &str, names: &[&str], protect: Protect) -> Policy {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let target = TargetSelector {
            api_groups: strings(&[""]),
            resources: strings(&["configmaps"]),
            names: strings(names),
            ..TargetSelector::default()
        };
        let spec =
            DeletionPolicySpec { targets: vec![target], protect, ..DeletionPolicySpec::default() };
        Policy::compile(name, &spec).unwrap()
    }

    #[test]
    fn each_object_counts_for_each_policy_that_protects_it() {
        let catalogue = Catalogue::default();
        let always = || Protect { always: Some(Default::default()), ..Protect::default() };
        let in_use = Protect { while_used: Some(Default::default()), ..Protect::default() };
        let policies = vec![
            policy("all", &[], always()),
            policy("one", &["a"], always()),
            policy("used", &[], in_use),
        ];
        let set = PolicySet::new(policies, &catalogue);
        let mut world = World { policies: set, ..World::default() };
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let secrets = world.graph.kinds.find("", "Secret").unwrap();
        for (name, finalizers, more) in [
            ("a", r#"["belay.dev/hold"]"#, ""),
            ("b", "[]", ""),
            ("c", r#"["belay.dev/hold"]"#, ""),
            // Every Namespace has it, so it is not counted.
            ("kube-root-ca.crt", "[]", ""),
            (
                "terminating",
                r#"["belay.dev/hold"]"#,
                r#", "deletionTimestamp": "2026-01-01T00:01:05Z""#,
            ),
        ] {
            let json = format!(
                r#"{{"metadata": {{"name": "{name}", "namespace": "shop", "uid": "{name}",
                    "finalizers": {finalizers}{more}}}}}"#
            );
            store(&mut world.graph, &catalogue, kind, &json, None).unwrap();
        }
        let objects: Vec<_> = world.graph.objects_of_kind(kind).collect();
        let mut all = PolicyCounts::new();
        add_objects(&world, kind, &objects, NOW, &mut all);
        let expected = [
            ("all".to_owned(), PolicyCount { protected: 4, held: 3 }),
            ("one".to_owned(), PolicyCount { protected: 1, held: 1 }),
            ("used".to_owned(), PolicyCount { protected: 4, held: 3 }),
        ];
        assert_eq!(all, expected.into());
        // An id that now belongs to an object of another kind does not count.
        add_objects(&world, secrets, &objects, NOW, &mut all);
        assert_eq!(all["all"].protected, 4);
    }
}
