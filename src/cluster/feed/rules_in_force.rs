//! Decides which of the stored policies and relations are in force.
//!
//! An invalid new version does not replace a valid old one, and a missing CRD does not
//! remove its objects: the accidental deletion of the CRD of DeletionPolicy must not end
//! all protection.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;

use super::own_kinds::{OwnKindState, OwnObjects};
use crate::objects::ApiError;
use crate::policy::api::{Check as _, Problem};
use crate::policy::{Approvals, Pause, Policy, compile_relation};
use crate::relations::CustomRelation;

/// The policies and relations in force.
#[derive(Debug)]
pub struct RulesInForce {
    /// After a CRD was deleted and re-created, policies are re-created one by one. Missing
    /// policies count as deleted only after this time without a change.
    thaw: Duration,
    pub policies: BTreeMap<String, Policy>,
    pub relations: BTreeMap<String, CustomRelation>,
    /// The problems of policies that can't be used.
    pub problems: BTreeMap<String, Vec<Problem>>,
    frozen: Freeze,
    /// The names of the stored policies at the last update. A difference shows that policies
    /// are still being re-created.
    stored: BTreeSet<String>,
}

/// Whether the CRDs of belay's own kinds exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnCrds {
    /// All exist, and none is Terminating.
    Present,
    /// One is missing or Terminating.
    Absent,
    /// They could not be read.
    Unknown,
}

#[derive(Debug, Default, PartialEq)]
enum Freeze {
    #[default]
    No,
    /// Since a CRD was deleted, or since the last change after it was re-created.
    Since(Instant),
}

/// What an update changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RulesChange {
    /// Whether policies have changed.
    pub policies: bool,
    /// Whether relations have changed.
    pub relations: bool,
    /// When to update again without a change.
    pub retry_after: Option<Duration>,
}

impl RulesInForce {
    pub fn new(thaw: Duration) -> Self {
        Self {
            thaw,
            policies: BTreeMap::new(),
            relations: BTreeMap::new(),
            problems: BTreeMap::new(),
            frozen: Freeze::default(),
            stored: BTreeSet::new(),
        }
    }

    /// Whether deleted policies stay in force for now.
    pub fn is_frozen(&self) -> bool {
        self.frozen != Freeze::No
    }

    /// The first stored policy that this version of belay can't read or compile, or Relation that
    /// it can't read, without a valid earlier version in force. It may protect any object.
    /// Relations that belay can read but not compile are only logged.
    pub fn first_unreadable(&self, own_objects: &OwnObjects) -> Option<String> {
        let policies = own_objects.policies.all.keys();
        let policies = policies.filter(|name| !self.policies.contains_key(*name));
        let relations = own_objects.relations.all.iter().filter(|(_, relation)| relation.is_err());
        let relations = relations.filter(|(name, _)| !self.relations.contains_key(*name));
        let policies = policies.map(|name| format!("DeletionPolicy {name}"));
        policies.chain(relations.map(|(name, _)| format!("Relation {name}"))).next()
    }

    /// Whether an update would remove a policy or relation. The feed then reads the CRDs to
    /// learn why the objects are missing.
    pub fn would_remove(&self, own_objects: &OwnObjects) -> bool {
        self.is_frozen()
            || self.policies.keys().any(|name| !own_objects.policies.all.contains_key(name))
            || self.relations.keys().any(|name| !own_objects.relations.all.contains_key(name))
    }

    /// Applies the stored objects.
    pub fn update(&mut self, own_objects: &OwnObjects, crds: OwnCrds, now: Instant) -> RulesChange {
        let crd_missing = crds == OwnCrds::Absent
            || is_absent(&own_objects.policies)
            || is_absent(&own_objects.relations);
        let mut change = RulesChange::default();
        if crd_missing
            && (self.is_frozen() || !self.policies.is_empty() || !self.relations.is_empty())
        {
            self.frozen = Freeze::Since(now);
        }
        let stored: BTreeSet<String> = own_objects.policies.all.keys().cloned().collect();
        if self.is_frozen() && stored != self.stored {
            self.frozen = Freeze::Since(now);
        }
        self.stored = stored;
        let may_remove = match self.frozen {
            Freeze::No => !crd_missing && crds == OwnCrds::Present,
            Freeze::Since(since) => {
                let any_stored = !self.stored.is_empty() || self.policies.is_empty();
                let quiet = now.saturating_duration_since(since) >= self.thaw;
                let thaws = !crd_missing && crds == OwnCrds::Present && any_stored && quiet;
                if thaws {
                    self.frozen = Freeze::No;
                } else {
                    change.retry_after = Some(self.thaw / 4);
                }
                thaws
            }
        };
        change.policies = self.update_policies(own_objects, may_remove);
        change.relations = self.update_relations(own_objects, may_remove);
        if crds == OwnCrds::Unknown && self.would_remove(own_objects) {
            change.retry_after = Some(Duration::from_secs(2));
        }
        change
    }

    fn update_policies(&mut self, own_objects: &OwnObjects, may_remove: bool) -> bool {
        let mut changed = may_remove && remove_deleted(&mut self.policies, &own_objects.policies);
        self.problems.retain(|name, _| own_objects.policies.all.contains_key(name));
        for (name, stored) in &own_objects.policies.all {
            let compiled = match stored {
                Ok(policy) => Policy::compile(name, &policy.spec).map(|compiled| {
                    let mut compiled = compiled.with_annotations(policy.annotations());
                    compiled.created = policy.creation_timestamp().map(|time| time.0.as_second());
                    compiled
                }),
                Err(_) => Err(vec![UNREADABLE]),
            };
            match compiled {
                Ok(policy) => {
                    self.problems.remove(name);
                    if self.policies.get(name) != Some(&policy) {
                        self.policies.insert(name.clone(), policy);
                        changed = true;
                    }
                }
                Err(problems) => {
                    if self.problems.get(name) != Some(&problems) {
                        tracing::warn!(
                            policy = name,
                            "this policy is invalid; see its status. The last valid version stays \
                             in effect"
                        );
                        self.problems.insert(name.clone(), problems);
                    }
                }
            }
        }
        changed
    }

    fn update_relations(&mut self, own_objects: &OwnObjects, may_remove: bool) -> bool {
        let mut changed = may_remove && remove_deleted(&mut self.relations, &own_objects.relations);
        for (name, stored) in &own_objects.relations.all {
            let compiled = match stored {
                Err(error) => Err(error.to_string()),
                Ok(relation) => match relation.spec.problems().first() {
                    Some(problem) => Err(format!("{}: {}", problem.field, problem.message)),
                    None => compile_relation(name, &relation.spec)
                        .map_err(|(field, message)| format!("{field}: {message}")),
                },
            };
            match compiled {
                Ok(custom) if self.relations.get(name) != Some(&custom) => {
                    self.relations.insert(name.clone(), custom);
                    changed = true;
                }
                Ok(_) => {}
                Err(why) => {
                    tracing::warn!(
                        relation = name,
                        why,
                        "this Relation is invalid; the last valid version stays in effect"
                    );
                }
            }
        }
        changed
    }
}

/// Removes the rules that are no longer stored. Returns whether it removed any.
fn remove_deleted<R, T>(in_force: &mut BTreeMap<String, R>, stored: &OwnKindState<T>) -> bool {
    let before = in_force.len();
    in_force.retain(|name, _| stored.all.contains_key(name));
    in_force.len() != before
}

/// The problem of a policy that this version can't parse.
const UNREADABLE: Problem = Problem {
    field: String::new(),
    message: "this version of belay cannot read it: it was written for another version",
};

fn is_absent<K>(state: &OwnKindState<K>) -> bool {
    state.error == Some(ApiError::NotFound)
}

/// The approvals that this version can read.
pub fn approvals(own_objects: &OwnObjects) -> Approvals {
    Approvals::new(own_objects.approvals.all.values().filter_map(|approval| approval.clone().ok()))
}

/// The pauses that this version can read.
pub fn pauses(own_objects: &OwnObjects) -> Vec<Pause> {
    own_objects.pauses.all.values().filter_map(|pause| pause.clone().ok()).collect()
}
