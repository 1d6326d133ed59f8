//! Limits how many holds a policy adds to existing objects.
//!
//! With a selector that is too wide, belay would write to every object of a cluster, and write
//! again to remove the holds when the policy is corrected. So belay first counts the objects.
//! If there are too many, it does not start and reports that in the status of the policy. New
//! objects still get their hold when they are created.
//!
//! An object that is newer than the policy lacks the hold because belay was down, or because
//! its creator avoided the hold. Only a few of each namespace count, so that one tenant can't
//! stop the backfill of the others.

use std::collections::{BTreeMap, BTreeSet};

use super::survey::{HoldTask, Survey};
use crate::cluster::feed::plan::policies;
use crate::cluster::holding::BackfillStop;
use crate::cluster::world::World;
use crate::objects::KindId;
use crate::policy::{BACKFILL_ANNOTATION, PolicySource};

/// For each namespace, newer objects count only up to the limit divided by this number.
const NAMESPACE_DIVISOR: usize = 10;

/// The objects of a kind that lack the hold of a policy.
#[derive(Default)]
struct MissingHolds<'a> {
    all: usize,
    /// Objects that are older than the policy, or cluster-scoped.
    older: usize,
    /// The number of other objects in each namespace.
    newer: BTreeMap<&'a str, usize>,
}

impl<'a> MissingHolds<'a> {
    fn add(&mut self, task: &'a HoldTask, policy_created: Option<i64>) {
        self.all += 1;
        let newer = policy_created.is_some_and(|policy| task.created > policy);
        if newer && !task.namespace.is_empty() {
            *self.newer.entry(&task.namespace).or_default() += 1;
        } else {
            self.older += 1;
        }
    }

    fn exceeds(&self, limit: usize) -> bool {
        let per_namespace = (limit / NAMESPACE_DIVISOR).max(1);
        let newer: usize = self.newer.values().map(|count| (*count).min(per_namespace)).sum();
        self.older + newer > limit
    }
}

/// The policies and kinds for which belay adds no holds to existing objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Backfill {
    /// The policies and kinds with too many missing holds.
    stopped: BTreeMap<(String, KindId), BackfillStop>,
    /// The policies and kinds whose number of missing holds is still unknown.
    unread: BTreeSet<(String, KindId)>,
}

impl Backfill {
    /// Compares the missing holds with the limits. `default_limit` applies to policies without the
    /// annotation.
    pub fn new(world: &World, survey: &Survey, default_limit: usize) -> Self {
        let limits: BTreeMap<&str, (usize, Option<i64>)> = policies(world)
            .filter_map(|policy| {
                let PolicySource::Policy(name) = &policy.source else { return None };
                let limit = policy.backfill_limit.unwrap_or(default_limit);
                Some((name.as_str(), (limit, policy.created)))
            })
            .collect();
        let limit_of = |name: &str| limits.get(name).copied().unwrap_or((default_limit, None));
        let mut missing: BTreeMap<(&str, KindId), MissingHolds<'_>> = BTreeMap::new();
        for ((kind, sources), tasks) in &survey.missing {
            for source in sources {
                let PolicySource::Policy(name) = source else { continue };
                let missing = missing.entry((name.as_str(), *kind)).or_default();
                let (_, created) = limit_of(name);
                tasks.iter().for_each(|task| missing.add(task, created));
            }
        }
        // While the kind or the Namespaces are not read to their end, the count is incomplete.
        let graph = &world.graph;
        let namespaces = graph.kinds.namespace();
        let is_counted = |kind: KindId| {
            graph.is_complete(kind) && namespaces.is_none_or(|kind| graph.is_complete(kind))
        };
        let mut backfill = Self::default();
        for ((name, kind), missing) in missing {
            let (limit, _) = limit_of(name);
            let key = (name.to_owned(), kind);
            if limit == 0 {
                continue;
            }
            if missing.exceeds(limit) {
                let resource = graph.kinds.info(kind).full_name();
                let missing = missing.all;
                backfill.stopped.insert(key, BackfillStop { resource, missing, limit });
            } else if !is_counted(kind) {
                backfill.unread.insert(key);
            }
        }
        backfill
    }

    /// Whether belay may add the hold to an existing object of this kind, for at least one of
    /// the policies that want it. The label selects one object at a time, so its holds are not
    /// counted.
    pub fn allows(&self, kind: KindId, sources: &[PolicySource]) -> bool {
        sources.iter().any(|source| match source {
            PolicySource::Label(_) => true,
            PolicySource::Policy(name) => {
                let key = (name.clone(), kind);
                !self.stopped.contains_key(&key) && !self.unread.contains(&key)
            }
        })
    }

    /// The kinds for which the backfill of a policy is stopped.
    pub fn stopped(&self, policy: &str) -> Vec<BackfillStop> {
        let of_policy = |((name, _), stopped): (&(String, KindId), &BackfillStop)| {
            (name == policy).then(|| stopped.clone())
        };
        self.stopped.iter().filter_map(of_policy).collect()
    }

    /// Whether all missing holds could be counted.
    pub fn is_counted(&self) -> bool {
        self.unread.is_empty()
    }

    /// The number of stopped backfills.
    pub fn stopped_count(&self) -> usize {
        self.stopped.len()
    }

    /// Logs the backfills that were not stopped before.
    pub fn log_new(&self, before: &Self) {
        let new = self.stopped.iter().filter(|(key, _)| !before.stopped.contains_key(*key));
        for ((policy, _), BackfillStop { resource, missing, limit }) in new {
            tracing::warn!(
                policy,
                resource,
                missing,
                limit,
                "more existing objects lack the hold of this policy than the limit, so none gets \
                 it; to raise the limit, set its annotation {BACKFILL_ANNOTATION}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::cluster::world::store;
    use crate::decide::LiveReads;
    use crate::graph::NodeId;
    use crate::policy::api::DeletionPolicySpec;
    use crate::policy::{Policy, PolicySet};
    use crate::relations::Catalogue;

    /// A policy on ConfigMaps or Secrets, or both.
    fn policy(name: &str, resources: &str) -> Policy {
        let text = format!(
            "{{targets: [{{apiGroups: [''], resources: [{resources}]}}], protect: {{whileUsed: {{}}}}}}"
        );
        let spec: DeletionPolicySpec = serde_saphyr::from_str(&text).unwrap();
        Policy::compile(name, &spec).unwrap()
    }

    /// Three ConfigMaps and a Secret without the hold, all read.
    fn world(policies: Vec<Policy>) -> World {
        let mut world = World { loaded: true, policies_current: true, ..World::default() };
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        let names =
            [("configmaps", "a"), ("configmaps", "b"), ("configmaps", "c"), ("secrets", "s")];
        for (resource, name) in names {
            let kind = kind(&world, resource);
            let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
            let World { graph, catalogue, .. } = &mut world;
            store(graph, catalogue, kind, &object.to_string(), None).unwrap();
        }
        for resource in ["configmaps", "secrets", "namespaces"] {
            let kind = kind(&world, resource);
            world.graph.set_complete(kind, true);
        }
        world.policies = PolicySet::new(policies, &world.catalogue);
        world
    }

    fn kind(world: &World, resource: &str) -> KindId {
        world.graph.kinds.find_resource("", resource).unwrap()
    }

    fn backfill(world: &World, default_limit: usize) -> Backfill {
        let kinds = ["configmaps", "secrets"].map(|resource| kind(world, resource));
        let nodes: Vec<NodeId> =
            kinds.into_iter().flat_map(|kind| world.graph.objects_of_kind(kind)).collect();
        let mut survey = Survey::default();
        survey.add(world, &LiveReads::default(), &nodes, 0);
        Backfill::new(world, &survey, default_limit)
    }

    fn policy_source(name: &str) -> PolicySource {
        PolicySource::Policy(name.to_owned())
    }

    #[test]
    fn above_the_limit_no_hold_is_added_and_other_kinds_continue() {
        let world = world(vec![policy("p", "configmaps, secrets")]);
        let (maps, secrets) = (kind(&world, "configmaps"), kind(&world, "secrets"));
        let found = backfill(&world, 2);
        assert!(!found.allows(maps, &[policy_source("p")]));
        assert!(found.allows(secrets, &[policy_source("p")]));
        let stopped = BackfillStop { resource: "configmaps".into(), missing: 3, limit: 2 };
        assert_eq!((found.stopped_count(), found.stopped("p")), (1, vec![stopped]));
        assert!(found.stopped("q").is_empty());
        // The limit itself is allowed, and 0 means no limit.
        assert_eq!(backfill(&world, 3), Backfill::default());
        assert_eq!(backfill(&world, 0), Backfill::default());
    }

    #[test]
    fn the_annotation_of_a_policy_sets_only_its_own_limit() {
        let mut wide = policy("wide", "configmaps");
        wide.backfill_limit = Some(3);
        let world = world(vec![policy("p", "configmaps"), wide]);
        let maps = kind(&world, "configmaps");
        let found = backfill(&world, 2);
        assert!(
            found.allows(maps, &[policy_source("p"), policy_source("wide")]),
            "one of them is enough"
        );
        assert!(!found.allows(maps, &[policy_source("p")]));
        assert!(found.allows(maps, &[policy_source("p"), PolicySource::Label("Always")]));
    }

    #[test]
    fn newer_objects_of_one_namespace_do_not_stop_the_others() {
        let mut written = policy("p", "configmaps");
        written.created = Some(100);
        let mut world = world(vec![written.clone()]);
        let maps = kind(&world, "configmaps");
        let add = |world: &mut World, count: usize, namespace: &str, created: &str| {
            for n in 0..count {
                let name = format!("{created}-{n}");
                let object = json!({"metadata": {"name": name, "namespace": namespace,
                    "uid": format!("{namespace}-{name}"), "creationTimestamp": created}});
                let World { graph, catalogue, .. } = &mut *world;
                store(graph, catalogue, maps, &object.to_string(), None).unwrap();
            }
        };
        let (newer, older) = ("1970-01-01T00:01:41Z", "1970-01-01T00:01:40Z");
        // The three objects of unknown age count, and one newer object of each namespace.
        add(&mut world, 50, "attacker", newer);
        assert_eq!(backfill(&world, 4), Backfill::default());
        assert_eq!(backfill(&world, 3).stopped_count(), 1);
        // A policy that is too wide stops: objects in many namespaces count, and all older ones.
        add(&mut world, 1, "other", newer);
        add(&mut world, 1, "another", newer);
        let stopped = BackfillStop { resource: "configmaps".into(), missing: 55, limit: 4 };
        assert_eq!(backfill(&world, 4).stopped("p"), [stopped]);
        add(&mut world, 50, "old", older);
        assert_eq!(backfill(&world, 50).stopped_count(), 1);
        assert_eq!(backfill(&world, 61), Backfill::default());
        // For a policy without a creation time, no object is newer.
        written.created = None;
        world.policies = PolicySet::new(vec![written], &world.catalogue);
        assert_eq!(backfill(&world, 61).stopped_count(), 1);
    }

    #[test]
    fn no_backfill_starts_before_all_objects_are_counted() {
        let mut world = world(vec![policy("p", "configmaps")]);
        for resource in ["configmaps", "namespaces"] {
            let (unread, maps) = (kind(&world, resource), kind(&world, "configmaps"));
            world.graph.set_incomplete(unread, "they are being read");
            let found = backfill(&world, 5);
            assert!(!found.allows(maps, &[policy_source("p")]), "{resource}");
            assert_eq!(found.stopped_count(), 0, "an incomplete count is not reported");
            assert_eq!(
                backfill(&world, 2).stopped_count(),
                1,
                "unread objects can only raise the count"
            );
            assert_eq!(backfill(&world, 0), Backfill::default());
            world.graph.set_complete(unread, true);
        }
        assert_eq!(backfill(&world, 5), Backfill::default());
    }
}
