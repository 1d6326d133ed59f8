//! How many holds a policy may add to existing objects.
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
use crate::policy::{BACKFILL, PolicySource};

/// Of the objects in a namespace that are newer than the policy, this part of its
/// number counts at the most.
const PART_OF_NAMESPACE: usize = 10;

/// The objects of a kind that lack the hold of a policy.
#[derive(Default)]
struct MissingHolds<'a> {
    all: usize,
    /// Those that are older than the policy, or in no namespace.
    older: usize,
    /// Others, by namespace.
    newer: BTreeMap<&'a str, usize>,
}

impl<'a> MissingHolds<'a> {
    fn add(&mut self, work: &'a HoldTask, policy_created: Option<i64>) {
        self.all += 1;
        let newer = policy_created.is_some_and(|policy| work.created > policy);
        if newer && !work.namespace.is_empty() {
            *self.newer.entry(&work.namespace).or_default() += 1;
        } else {
            self.older += 1;
        }
    }

    fn exceeds(&self, limit: usize) -> bool {
        let most = (limit / PART_OF_NAMESPACE).max(1);
        let newer: usize = self.newer.values().map(|count| (*count).min(most)).sum();
        self.older + newer > limit
    }
}

/// Where belay adds no hold to existing objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Backfill {
    /// By policy and kind: there would be too many.
    stopped: BTreeMap<(String, KindId), BackfillStop>,
    /// The number of missing holds is still unknown.
    unread: BTreeSet<(String, KindId)>,
}

impl Backfill {
    /// What follows from the missing holds, where a policy may add `usual` of them unless its
    /// annotation contains another number.
    pub fn of(world: &World, survey: &Survey, usual: usize) -> Self {
        let limits: BTreeMap<&str, (usize, Option<i64>)> = policies(world)
            .filter_map(|policy| {
                let PolicySource::Policy(name) = &policy.source else { return None };
                Some((name.as_str(), (policy.backfill.unwrap_or(usual), policy.created)))
            })
            .collect();
        let limit_of = |name: &str| limits.get(name).copied().unwrap_or((usual, None));
        let mut missing: BTreeMap<(&str, KindId), MissingHolds<'_>> = BTreeMap::new();
        for ((kind, sources), work) in &survey.missing {
            for source in sources {
                let PolicySource::Policy(name) = source else { continue };
                let missing = missing.entry((name.as_str(), *kind)).or_default();
                let (_, created) = limit_of(name);
                work.iter().for_each(|work| missing.add(work, created));
            }
        }
        // Of a kind that is being read, and of Namespaces whose labels are, only
        // a part would be counted.
        let graph = &world.graph;
        let places = graph.kinds.find("", "Namespace");
        let is_read = |kind: KindId| {
            graph.is_complete(kind) && places.is_none_or(|places| graph.is_complete(places))
        };
        let mut backfill = Self::default();
        for ((name, kind), missing) in missing {
            let (limit, _) = limit_of(name);
            let place = (name.to_owned(), kind);
            if limit == 0 {
                continue;
            }
            if missing.exceeds(limit) {
                let resource = graph.kinds.info(kind).full_name();
                let missing = missing.all;
                backfill.stopped.insert(place, BackfillStop { resource, missing, limit });
            } else if !is_read(kind) {
                backfill.unread.insert(place);
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
                let place = (name.clone(), kind);
                !self.stopped.contains_key(&place) && !self.unread.contains(&place)
            }
        })
    }

    /// Where the backfill of a policy is paused.
    pub fn stopped(&self, policy: &str) -> Vec<BackfillStop> {
        let of = |((name, _), stopped): (&(String, KindId), &BackfillStop)| {
            (name == policy).then(|| stopped.clone())
        };
        self.stopped.iter().filter_map(of).collect()
    }

    /// Whether everything that is missing could be counted.
    pub fn is_counted(&self) -> bool {
        self.unread.is_empty()
    }

    /// The number of places where backfills are paused.
    pub fn count(&self) -> usize {
        self.stopped.len()
    }

    /// Logs the backfills that are paused and were not before.
    pub fn log_new(&self, before: &Self) {
        let new = self.stopped.iter().filter(|(place, _)| !before.stopped.contains_key(*place));
        for ((policy, _), BackfillStop { resource, missing, limit }) in new {
            tracing::warn!(
                policy,
                resource,
                missing,
                limit,
                "more existing objects lack the hold of this policy than the limit, so none gets \
                 it; to raise the limit, set its annotation {BACKFILL}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::cluster::world::take;
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
        let mut world = World { loaded: true, known: true, ..World::default() };
        world.catalogue = Arc::new(Catalogue::new(&world.graph.kinds, &[]).unwrap());
        let names =
            [("configmaps", "a"), ("configmaps", "b"), ("configmaps", "c"), ("secrets", "s")];
        for (resource, name) in names {
            let kind = kind(&world, resource);
            let object = json!({"metadata": {"name": name, "namespace": "n", "uid": name}});
            let World { graph, catalogue, .. } = &mut world;
            take(graph, catalogue, kind, &object.to_string(), None).unwrap();
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

    fn backfill(world: &World, usual: usize) -> Backfill {
        let kinds = ["configmaps", "secrets"].map(|resource| kind(world, resource));
        let nodes: Vec<NodeId> =
            kinds.into_iter().flat_map(|kind| world.graph.objects_of_kind(kind)).collect();
        let mut survey = Survey::default();
        survey.look(world, &LiveReads::default(), &nodes, 0);
        Backfill::of(world, &survey, usual)
    }

    fn named(name: &str) -> PolicySource {
        PolicySource::Policy(name.to_owned())
    }

    #[test]
    fn more_than_the_number_stop_before_the_first_and_other_kinds_go_on() {
        let world = world(vec![policy("p", "configmaps, secrets")]);
        let (maps, secrets) = (kind(&world, "configmaps"), kind(&world, "secrets"));
        let found = backfill(&world, 2);
        assert!(!found.allows(maps, &[named("p")]));
        assert!(found.allows(secrets, &[named("p")]));
        let stopped = BackfillStop { resource: "configmaps".into(), missing: 3, limit: 2 };
        assert_eq!((found.count(), found.stopped("p")), (1, vec![stopped]));
        assert!(found.stopped("q").is_empty());
        // Exactly so many are not too many, and 0 is no limit.
        assert_eq!(backfill(&world, 3), Backfill::default());
        assert_eq!(backfill(&world, 0), Backfill::default());
    }

    #[test]
    fn a_policy_says_another_number_for_itself_alone() {
        let mut wide = policy("wide", "configmaps");
        wide.backfill = Some(3);
        let world = world(vec![policy("p", "configmaps"), wide]);
        let maps = kind(&world, "configmaps");
        let found = backfill(&world, 2);
        assert!(found.allows(maps, &[named("p"), named("wide")]), "one of them is enough");
        assert!(!found.allows(maps, &[named("p")]));
        assert!(found.allows(maps, &[named("p"), PolicySource::Label("Always")]));
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
                take(graph, catalogue, maps, &object.to_string(), None).unwrap();
            }
        };
        let (newer, older) = ("1970-01-01T00:01:41Z", "1970-01-01T00:01:40Z");
        // The three of unknown age count, and of those one for each namespace.
        add(&mut world, 50, "attacker", newer);
        assert_eq!(backfill(&world, 4), Backfill::default());
        assert_eq!(backfill(&world, 3).count(), 1);
        // A policy that is too wide is: in many namespaces, or for what was there.
        add(&mut world, 1, "other", newer);
        add(&mut world, 1, "another", newer);
        let stopped = BackfillStop { resource: "configmaps".into(), missing: 55, limit: 4 };
        assert_eq!(backfill(&world, 4).stopped("p"), [stopped]);
        add(&mut world, 50, "old", older);
        assert_eq!(backfill(&world, 50).count(), 1);
        assert_eq!(backfill(&world, 61), Backfill::default());
        // Without a time nothing is newer.
        written.created = None;
        world.policies = PolicySet::new(vec![written], &world.catalogue);
        assert_eq!(backfill(&world, 61).count(), 1);
    }

    #[test]
    fn nothing_is_begun_before_everything_is_counted() {
        let mut world = world(vec![policy("p", "configmaps")]);
        for resource in ["configmaps", "namespaces"] {
            let (unread, maps) = (kind(&world, resource), kind(&world, "configmaps"));
            world.graph.set_incomplete(unread, "they are being read");
            let found = backfill(&world, 5);
            assert!(!found.allows(maps, &[named("p")]), "{resource}");
            assert_eq!(found.count(), 0, "an incomplete count is not reported");
            assert_eq!(backfill(&world, 2).count(), 1, "more is only read");
            assert_eq!(backfill(&world, 0), Backfill::default());
            world.graph.set_complete(unread, true);
        }
        assert_eq!(backfill(&world, 5), Backfill::default());
    }
}
