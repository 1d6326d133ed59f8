//! Applies kinds, relations, policies, approvals and pauses.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::Feed;
use super::crds::Crd;
use super::discovery::DiscoveryChange;
use super::own_kinds::OwnObjects;
use super::rules_in_force::{self, OwnCrds, RulesChange};
use crate::cluster::context::send_changed;
use crate::cluster::status::{StoredPolicies, StoredPolicy};
use crate::cluster::world::World;
use crate::objects::{ApiError, KindId, Kinds, full_name};
use crate::policy::api::GROUP;
use crate::policy::{Policy, Rules};
use crate::relations::CustomRelation;

impl Feed {
    /// Applies kinds, relations, policies, approvals and pauses.
    pub(super) fn update_rules(&mut self, own_crds: OwnCrds) -> RulesChange {
        let crds = self.watches.crds.lock().clone();
        let custom_kinds =
            crds.values().map(|crd| (crd.info.group.clone(), crd.info.resource.clone()));
        self.custom_kinds.extend(custom_kinds);
        let own_objects = self.own_objects.lock();
        let counts = own_objects.reads().map(|kind| kind.changes);
        let synced = own_objects.reads().iter().all(|kind| kind.synced);
        // Before the first complete read, a missing object does not count as deleted. A new
        // kind alone does not compile thousands of policies again.
        let due = !self.in_force
            || self.applied_changes[..2] != counts[..2]
            || self.rules.would_remove(&own_objects);
        let change = match synced && due {
            true => self.rules.update(&own_objects, own_crds, Instant::now()),
            false => RulesChange::default(),
        };
        self.in_force |= synced;
        // Before the first update, no stored object has been compiled.
        let unreadable_name =
            if self.in_force { self.rules.first_unreadable(&own_objects) } else { None };
        if unreadable_name != self.unreadable_name {
            if let Some(unreadable_name) = &unreadable_name {
                tracing::error!(
                    unreadable_name,
                    "this version of belay cannot apply this object, and releases no hold until it \
                     can; correct it, or run the version that wrote it"
                );
            }
            self.unreadable_name = unreadable_name;
        }
        let policies_current = synced
            && !self.rules.is_frozen()
            && own_objects.policies.error.is_none()
            && self.unreadable_name.is_none();
        let approvals = (self.applied_changes[2..] != counts[2..]).then(|| {
            (rules_in_force::approvals(&own_objects), rules_in_force::pauses(&own_objects))
        });
        self.applied_changes = counts;
        let missing = first_missing(&own_objects);
        drop(own_objects);

        let learned = self.learn(crds);
        if learned.scope_changed {
            // References to a kind depend on its scope.
            self.watches.outdate(|_| true);
        }
        let kinds_changed = learned.changed;
        if kinds_changed {
            self.watches.learn_owner_kinds();
        }
        let first = synced && !self.context.world.read().loaded;
        let rules_changed = change.policies || change.relations || kinds_changed || first;
        if rules_changed {
            self.rebuild();
        }
        let mut world = self.context.world.write();
        if approvals.is_some() || rules_changed {
            // Any waiting object may be unused now.
            world.waiting.check_all = true;
            self.context.signals.waiting.notify_one();
        }
        if let Some((approvals, pauses)) = approvals {
            world.policies.approvals = approvals;
            world.policies.pauses = pauses;
        }
        let was = (world.loaded, world.policies_current);
        world.loaded |= synced;
        world.policies_current = policies_current;
        let changed = rules_changed || was != (world.loaded, world.policies_current);
        let loaded = world.loaded;
        drop(world);
        if changed {
            self.context.signals.change();
        }
        self.publish_policies();
        match (loaded, missing) {
            (true, _) => self.conditions.loaded.set(true),
            (false, Some(why)) => self.conditions.loaded.explain(&why),
            (false, None) => {}
        }
        self.conditions.effective.set(!self.rules.is_frozen() && self.unreadable_name.is_none());
        change
    }

    /// Applies changed kinds. With thousands of kinds, this holds the lock for a long time. So
    /// unchanged kinds are not applied again.
    fn learn(&mut self, crds: BTreeMap<String, Crd>) -> DiscoveryChange {
        let same = self
            .applied_kinds
            .as_ref()
            .is_some_and(|(discovery, applied)| *discovery == self.discovery && *applied == crds);
        if same {
            return DiscoveryChange { changed: false, scope_changed: false };
        }
        let mut world = self.context.world.write();
        let learned = self.discovery.learn(&mut world, &crds, &self.custom_kinds);
        drop(world);
        self.applied_kinds = Some((self.discovery.clone(), crds));
        learned
    }

    /// Publishes the stored policies, and the times at which they came into force.
    fn publish_policies(&self) {
        let now = *self.context.signals.changed.borrow();
        let before = self.stored_policies.borrow().clone();
        let own_objects = self.own_objects.lock();
        let policies = own_objects.policies.all.iter().map(|(name, policy)| {
            let read = policy.as_ref().ok();
            let generation = read.and_then(|policy| policy.metadata.generation).unwrap_or_default();
            let known = before.policies.get(name).filter(|known| known.generation == generation);
            let stored = StoredPolicy {
                generation,
                status: read.and_then(|policy| policy.status.clone()).unwrap_or_default(),
                problems: self.rules.problems.get(name).cloned().unwrap_or_default(),
                loaded_at: known.map_or(now, |known| known.loaded_at),
            };
            (name.clone(), stored)
        });
        let stored = StoredPolicies { policies: policies.collect() };
        drop(own_objects);
        send_changed(&self.stored_policies, Arc::new(stored));
    }

    /// Compiles catalogue and policies without the lock: with thousands of policies this
    /// takes time.
    fn rebuild(&mut self) {
        let kinds = self.context.world.read().graph.kinds.clone();
        let relations: Vec<CustomRelation> = self.rules.relations.values().cloned().collect();
        let policies: Vec<Policy> = self.rules.policies.values().cloned().collect();
        let (identities, labelled) = (self.identities.clone(), &self.context.settings.labelled);
        let rules = match Rules::compile(&kinds, &relations, policies, identities, Some(labelled)) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(
                    %error,
                    "cannot compile the rules; the last valid ones stay in effect"
                );
                return;
            }
        };
        let mut world = self.context.world.write();
        let World { policies: old, graph, .. } = &mut *world;
        rules.set_kept_annotations(graph);
        let Rules { catalogue, policies: mut set } = rules;
        set.approvals = std::mem::take(&mut old.approvals);
        set.pauses = std::mem::take(&mut old.pauses);
        let before: HashSet<&str> = old.annotation_keys().collect();
        let reread = set.annotation_keys().any(|key| !before.contains(key));
        let unserved = unserved_kinds(&relations, &self.context.settings.labelled, &graph.kinds);
        self.unserved_count = set.unknown_kinds(&graph.kinds).len() + unserved.len();
        let old_catalogue = std::mem::replace(&mut world.catalogue, catalogue);
        world.policies = set;
        // Kinds whose relations changed, or whose annotations were not kept, must be read
        // again.
        let World { catalogue, graph, policies, .. } = &*world;
        let is_stale = |kind: KindId| {
            let info = graph.kinds.info(kind);
            !catalogue.reads_like(&old_catalogue, kind)
                || (reread && policies.names_kind(&info.group, &info.resource))
        };
        self.watches.outdate(is_stale);
        for (named_by, resource) in unserved.difference(&self.unserved) {
            tracing::warn!(
                named_by,
                resource,
                "a Relation or --labelled-kinds names a kind that is not installed; it takes \
                 effect once the kind is"
            );
        }
        self.unserved = unserved;
    }
}

/// The kinds that the API server does not serve, each with the Relation or the setting that
/// names it.
fn unserved_kinds(
    relations: &[CustomRelation],
    labelled: &[(String, String)],
    kinds: &Kinds,
) -> BTreeSet<(String, String)> {
    let by_relations = relations.iter().flat_map(|custom| {
        let by = format!("Relation {}", custom.name);
        custom.kinds().map(move |(group, resource)| (by.clone(), group, resource))
    });
    let by_setting = labelled.iter().map(|(group, resource)| {
        ("--labelled-kinds".to_owned(), group.as_str(), resource.as_str())
    });
    let named = by_relations.chain(by_setting);
    let unserved =
        named.filter(|(_, group, resource)| kinds.find_resource(group, resource).is_none());
    unserved.map(|(by, group, resource)| (by, full_name(group, resource))).collect()
}

/// Why belay has not read its own kinds yet: the reason of the first unread kind.
fn first_missing(own_objects: &OwnObjects) -> Option<String> {
    own_objects.reads().iter().find_map(|kind| match (kind.resource, kind.error) {
        (name, Some(ApiError::NotFound)) => Some(format!(
            "the kind {name}.{GROUP} is not installed; install it with kubectl belay admin crds | \
             kubectl apply -f -"
        )),
        (name, Some(error)) => Some(format!("{name}.{GROUP} cannot be read: {error}")),
        (name, None) => (!kind.synced).then(|| format!("{name}.{GROUP} have not been read yet")),
    })
}
