//! The errors, according to the log.

use super::event::SECOND;
use super::history::{History, Life};
use super::object::Version;
use super::policy::{MARGIN, Policy, is_approved, is_approved_with};
use super::uses::{HOLD, PERHAPS, Use, counts, is_newcomer, needed};

/// A finding of the referee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A protected object left storage.
    Lost { target: String, policy: String, why: String },
    /// A person took a hold or a guarded finalizer off.
    Stripped { target: String, policy: String, finalizer: String, by: String },
    /// A protected object lost a protected owner.
    Orphaned { target: String, policy: String, owner: String, by: String },
    /// A person took the protection off by its labels.
    Released { target: String, policy: String, by: String },
    /// An object has the hold, and is not in use.
    Stuck { target: String, why: String },
    /// belay writes to an object again and again.
    Busy { target: String, writes: usize },
    /// The log and the API server do not agree: the referee may be wrong.
    Disagree(String),
}

impl Finding {
    /// Its name in the counts of the report.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "lost",
            Self::Stripped { .. } => "stripped",
            Self::Orphaned { .. } => "orphaned",
            Self::Released { .. } => "released",
            Self::Stuck { .. } => "stuck",
            Self::Busy { .. } => "busy",
            Self::Disagree(_) => "disagree",
        }
    }
}

/// The numbers of checked objects.
#[derive(Debug, Clone, Copy, Default)]
pub struct Looked {
    /// Removals of objects under a policy in force.
    pub judged: usize,
    /// Of those, the ones that users had approved.
    pub approved: usize,
    /// How often the referee could not decide.
    pub unsure: usize,
}

/// The data of the referee.
pub struct Judge<'h> {
    /// The lives.
    pub history: &'h History,
    /// The policies that were ever in force.
    pub policies: &'h [Policy],
    /// Whose writes are belay's.
    pub belay: &'h str,
    /// The end of the log.
    pub end: i64,
}

/// Whether this is a person, or acts for one: system accounts are trusted with finalizers.
pub fn is_person(user: &str) -> bool {
    !user.starts_with("system:")
}

impl Judge<'_> {
    /// All findings, and the numbers of checked objects.
    pub fn findings(&self) -> (Vec<Finding>, Looked) {
        let (mut findings, mut looked) = (Vec::new(), Looked::default());
        for life in self.history.lives.values() {
            if life.key.0 != "belay.dev" {
                self.lost(life, &mut findings, &mut looked);
                self.changed(life, &mut findings);
                self.stuck(life, &mut findings);
                self.busy(life, &mut findings);
            }
        }
        (findings, looked)
    }

    /// The policies that matched an object all the time between.
    fn in_force<'s>(
        &'s self,
        life: &'s Life,
        from: i64,
        to: i64,
    ) -> impl Iterator<Item = &'s Policy> {
        self.policies.iter().filter(move |policy| {
            policy.held_through(from, to)
                && life
                    .between(from - MARGIN, to)
                    .all(|version| policy.matches(self.history, &life.key, version))
        })
    }

    /// A protected object has left storage.
    fn lost(&self, life: &Life, findings: &mut Vec<Finding>, looked: &mut Looked) {
        let (Some((gone, by)), Some((deleted, deleter))) = (&life.gone, &life.deleted) else {
            return;
        };
        let Some(made) = life.created() else { return };
        // An interrupted DELETE of a collection shows only in the versions.
        let terminating = life.terminating().unwrap_or(i64::MAX);
        let asked = deleted.from.min(gone.from).min(terminating);
        if made.to > asked {
            return;
        }
        for policy in self.in_force(life, asked, gone.to) {
            looked.judged += 1;
            if is_approved(self.history, policy, life, asked, gone.to) {
                looked.approved += 1;
                continue;
            }
            let lost = |why: String| Finding::Lost {
                target: life.title(),
                policy: policy.name.clone(),
                why: format!("{why}; deleted by {deleter}, taken out by {by}"),
            };
            if policy.has("always") {
                findings.push(lost("it is always protected".to_owned()));
            }
            if policy.has("whileUsed") {
                let mut users = self.users(life, asked, gone.to, &mut looked.unsure);
                users.truncate(3);
                if !users.is_empty() {
                    findings.push(lost(format!("needed by {}", users.join(", "))));
                }
            }
        }
    }

    /// The users of an object from before its deletion, or from before the last check of
    /// belay, until the object was removed. A check begins when belay has written its token; a write
    /// that removes the hold ends it.
    fn users(&self, life: &Life, asked: i64, gone: i64, unsure: &mut usize) -> Vec<String> {
        let looks = life.versions.iter().filter(|v| v.by == self.belay && v.has(HOLD));
        let looked = looks.map(|v| v.span.from).filter(|from| *from > asked).max();
        let mut users = Vec::new();
        for user in self.history.possible_users(&life.key) {
            let before = needed(self.history, user, &life.key, asked, gone);
            let later = looked.is_some_and(|looked| {
                needed(self.history, user, &life.key, looked, gone)
                    && !is_newcomer(self.history, life, user, looked, PERHAPS.0)
            });
            if !before && !later {
                continue;
            }
            match counts(self.history, life, user, gone) {
                Use::Counts => users.push(user.title()),
                Use::Unsure => *unsure += 1,
                Use::Excused => {}
            }
        }
        users
    }

    /// Finalizers, owners and labels that went.
    fn changed(&self, life: &Life, findings: &mut Vec<Finding>) {
        for pair in life.versions.windows(2) {
            let [old, new] = pair else { continue };
            let span = new.span;
            let policies: Vec<_> = self
                .policies
                .iter()
                .filter(|policy| {
                    policy.held_through(span.from, span.to)
                        && life
                            .between(span.from - MARGIN, span.from)
                            .filter(|version| version.number <= old.number)
                            .all(|version| policy.matches(self.history, &life.key, version))
                        && policy.matches(self.history, &life.key, old)
                        && !is_approved(self.history, policy, life, span.from, span.to)
                })
                .collect();
            let target = || life.title();
            for policy in policies {
                let name = || policy.name.clone();
                // The answer to a later request shows the change of a write that was cut off.
                let may_be_of_program = life.may_be_changed_by(|by| !is_person(by), (old, new));
                if is_person(&new.by) && !may_be_of_program {
                    for finalizer in old.finalizers.iter().filter(|f| !new.has(f)) {
                        if self.is_guarded(policy, life, finalizer, new.span.to) {
                            let (finalizer, by) = (finalizer.clone(), new.by.clone());
                            let (target, policy) = (target(), name());
                            findings.push(Finding::Stripped { target, policy, finalizer, by });
                        }
                    }
                    if !policy.matches(self.history, &life.key, new) {
                        let by = new.by.clone();
                        findings.push(Finding::Released { target: target(), policy: name(), by });
                    }
                }
                if policy.has("fromOrphaning") {
                    for owner in old.owners.iter().filter(|o| !new.owners.contains(o)) {
                        if self.is_orphaning(policy, owner, new, span.to) {
                            findings.push(Finding::Orphaned {
                                target: target(),
                                policy: name(),
                                owner: owner.clone(),
                                by: new.by.clone(),
                            });
                        }
                    }
                }
            }
        }
    }

    /// Whether this finalizer was not to go, and stayed away.
    fn is_guarded(&self, policy: &Policy, life: &Life, finalizer: &str, when: i64) -> bool {
        if finalizer == HOLD {
            let back = |life: &Life| {
                let mut later = life.versions.iter().filter(|version| version.span.to > when);
                later.any(|version| version.has(HOLD) && version.span.to < when + 60 * SECOND)
            };
            return policy.holds() && !back(life);
        }
        // A finalizer that no longer guards anything may be removed; the referee can't
        // decide that for those of Kubernetes.
        let patterns = policy.spec["protect"]["fromStripping"]["finalizers"].as_array();
        let own = !finalizer.contains('/') || finalizer.starts_with("kubernetes.io/");
        policy.has("fromStripping")
            && !own
            && patterns.is_none_or(|patterns| {
                patterns.iter().filter_map(|p| p.as_str()).any(|pattern| {
                    pattern
                        .strip_suffix('*')
                        .map_or(pattern == finalizer, |start| finalizer.starts_with(start))
                })
            })
    }

    /// Whether an owner still existed and was not being deleted with its dependents. The
    /// control plane may leave them to another owner.
    fn is_orphaning(&self, policy: &Policy, owner: &str, new: &Version, when: i64) -> bool {
        let solid = |uid: &str| {
            let life = self.history.lives.get(uid).filter(|life| life.was_there(when));
            let version = life.and_then(|life| life.at(when));
            version.filter(|version| version.deleted.is_none() || version.has("orphan"))
        };
        let life = self.history.lives.get(owner);
        let approved = life.is_some_and(|life| is_approved(self.history, policy, life, when, when));
        let excused = || !is_person(&new.by) && new.owners.iter().any(|uid| solid(uid).is_some());
        solid(owner).is_some() && !excused() && !approved
    }

    /// A waiting object is checked now and then, and after a change: never this often for
    /// long.
    fn busy(&self, life: &Life, findings: &mut Vec<Finding>) {
        const WRITES: usize = 100;
        let own = life.versions.iter().filter(|version| version.by == self.belay);
        let mut times: Vec<i64> = own.map(|version| version.span.from).collect();
        times.sort_unstable();
        if times.windows(WRITES).any(|some| some[WRITES - 1] - some[0] <= 10 * SECOND) {
            findings.push(Finding::Busy { target: life.title(), writes: times.len() });
        }
    }

    /// Finds objects that are still held at the end without a reason.
    fn stuck(&self, life: &Life, findings: &mut Vec<Finding>) {
        let Some(version) = life.last().filter(|v| life.gone.is_none() && v.has(HOLD)) else {
            return;
        };
        if version.labels.contains_key("belay.dev/protect") {
            return;
        }
        let mine = |policy: &&Policy| {
            policy.span.to >= self.end && policy.matches(self.history, &life.key, version)
        };
        let policies: Vec<&Policy> = self.policies.iter().filter(mine).collect();
        if policies.iter().all(|policy| !policy.holds()) {
            let why = "no policy that is in force puts a hold on it".to_owned();
            findings.push(Finding::Stuck { target: life.title(), why });
            return;
        }
        if version.deleted.is_none() {
            return;
        }
        let asked = life.deleted.as_ref().map_or(self.end, |(span, _)| span.from);
        // The next leader does not know since when an approved object owns another.
        let yes =
            |policy: &Policy| is_approved_with(self.history, policy, life, (asked, self.end), &[]);
        let kept = policies.iter().filter(|policy| !yes(policy));
        let kept = kept.into_iter().any(|policy| {
            let used = || {
                let users = self.history.possible_users(&life.key);
                // A user that counts for belay may be a newcomer to the referee, and vice
                // versa. In the end either is an explanation.
                users.into_iter().any(|user| {
                    user.gone.is_none()
                        && needed(self.history, user, &life.key, self.end, self.end)
                        && counts(self.history, life, user, self.end) != Use::Excused
                        && !is_newcomer(self.history, life, user, self.end, PERHAPS.1)
                })
            };
            policy.has("always") || (policy.has("whileUsed") && used())
        });
        if !kept {
            let why = "it is Terminating, and nothing needs it".to_owned();
            findings.push(Finding::Stuck { target: life.title(), why });
        }
    }
}
