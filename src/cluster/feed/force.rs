//! From what people have written to what is in force.
//!
//! What is written wrongly does not take down what was right before, and a kind
//! that vanishes takes nothing with it: an accident that deletes the
//! definition of DeletionPolicy must not be how all protection ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;

use super::own::{Kept, Said};
use crate::objects::ApiError;
use crate::policy::api::{Check as _, Problem};
use crate::policy::{Approvals, Pause, Policy, compile_relation};
use crate::relations::CustomRelation;

/// Policies and relations as they are in force.
#[derive(Debug)]
pub struct Force {
    /// After their kind has vanished and come back, policies are written again
    /// one by one. Only when that has been over for so long are those believed to
    /// be gone that did not come back.
    thaw: Duration,
    pub policies: BTreeMap<String, Policy>,
    pub relations: BTreeMap<String, CustomRelation>,
    /// What is wrong with those that cannot be used as they are written.
    pub problems: BTreeMap<String, Vec<Problem>>,
    frozen: Freeze,
    /// The policies that were written when it was looked last: as long as they
    /// come back one by one, others may still come.
    written: BTreeSet<String>,
}

/// Whether the definitions of belay's own kinds are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defined {
    /// They are, and stay.
    Yes,
    /// One is absent, or on its way out.
    No,
    /// Nobody can say.
    Unknown,
}

#[derive(Debug, Default, PartialEq)]
enum Freeze {
    #[default]
    No,
    /// Since a kind vanished, or something changed after it came back.
    Since(Instant),
}

/// What taking in came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Whether policies have changed.
    pub policies: bool,
    /// Whether relations have changed.
    pub relations: bool,
    /// When to look again, though nobody says that something changed.
    pub again: Option<Duration>,
}

impl Force {
    /// Nothing is in force yet.
    pub fn new(thaw: Duration) -> Self {
        Self {
            thaw,
            policies: BTreeMap::new(),
            relations: BTreeMap::new(),
            problems: BTreeMap::new(),
            frozen: Freeze::default(),
            written: BTreeSet::new(),
        }
    }

    /// Whether what is in force is what people have written.
    pub fn is_frozen(&self) -> bool {
        self.frozen != Freeze::No
    }

    /// A policy or Relation that is written, and of which nothing is in force:
    /// this version of belay cannot read it. What it protects is not known to
    /// be free.
    pub fn lacks(&self, said: &Said) -> Option<String> {
        let policies = said.policies.all.keys();
        let policies = policies.filter(|name| !self.policies.contains_key(*name));
        let relations = said.relations.all.iter().filter(|(_, written)| written.is_err());
        let relations = relations.filter(|(name, _)| !self.relations.contains_key(*name));
        let policies = policies.map(|name| format!("DeletionPolicy {name}"));
        policies.chain(relations.map(|(name, _)| format!("Relation {name}"))).next()
    }

    /// Whether something would go: then it has to be known why.
    pub fn would_lose(&self, said: &Said) -> bool {
        self.is_frozen()
            || self.policies.keys().any(|name| !said.policies.all.contains_key(name))
            || self.relations.keys().any(|name| !said.relations.all.contains_key(name))
    }

    /// Takes in what is written.
    pub fn take(&mut self, said: &Said, defined: Defined, now: Instant) -> Taken {
        let vanished =
            defined == Defined::No || is_absent(&said.policies) || is_absent(&said.relations);
        let mut taken = Taken::default();
        if vanished && (self.is_frozen() || !self.policies.is_empty() || !self.relations.is_empty())
        {
            self.frozen = Freeze::Since(now);
        }
        let written: BTreeSet<String> = said.policies.all.keys().cloned().collect();
        if self.is_frozen() && written != self.written {
            self.frozen = Freeze::Since(now);
        }
        self.written = written;
        let may_lose = match self.frozen {
            Freeze::No => !vanished && defined == Defined::Yes,
            Freeze::Since(since) => {
                let written = !self.written.is_empty() || self.policies.is_empty();
                let quiet = now.saturating_duration_since(since) >= self.thaw;
                let thaws = !vanished && defined == Defined::Yes && written && quiet;
                if thaws {
                    self.frozen = Freeze::No;
                } else {
                    taken.again = Some(self.thaw / 4);
                }
                thaws
            }
        };
        taken.policies = self.take_policies(said, may_lose);
        taken.relations = self.take_relations(said, may_lose);
        if defined == Defined::Unknown && self.would_lose(said) {
            taken.again = Some(Duration::from_secs(2));
        }
        taken
    }

    fn take_policies(&mut self, said: &Said, may_lose: bool) -> bool {
        let mut changed = false;
        if may_lose {
            let before = self.policies.len();
            self.policies.retain(|name, _| said.policies.all.contains_key(name));
            changed |= self.policies.len() != before;
        }
        self.problems.retain(|name, _| said.policies.all.contains_key(name));
        for (name, written) in &said.policies.all {
            let compiled = match written {
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
                            "this policy cannot be used as it is written; its status says why, and what was in force before stays"
                        );
                        self.problems.insert(name.clone(), problems);
                    }
                }
            }
        }
        changed
    }

    fn take_relations(&mut self, said: &Said, may_lose: bool) -> bool {
        let mut changed = false;
        if may_lose {
            let before = self.relations.len();
            self.relations.retain(|name, _| said.relations.all.contains_key(name));
            changed |= self.relations.len() != before;
        }
        for (name, written) in &said.relations.all {
            let compiled = match written {
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
                    tracing::warn!(relation = name, why, "this Relation cannot be used");
                }
            }
        }
        changed
    }
}

/// What is said of a policy that is no policy of this version.
const UNREADABLE: Problem = Problem {
    field: String::new(),
    message: "this version of belay cannot read it: it was written for another one",
};

fn is_absent<K>(kept: &Kept<K>) -> bool {
    kept.error == Some(ApiError::NotFound)
}

/// The approvals that can be counted.
pub fn approvals(said: &Said) -> Approvals {
    Approvals::new(said.approvals.all.values().filter_map(|approval| approval.clone().ok()))
}

/// The pauses.
pub fn pauses(said: &Said) -> Vec<Pause> {
    said.pauses.all.values().filter_map(|pause| pause.clone().ok()).collect()
}
