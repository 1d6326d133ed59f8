//! Compiled policies.

use std::collections::BTreeMap;

use super::api::{
    Action, Check as _, Counting, DeletionPolicySpec, ExistingSelector, HoldMode, LabelSelector,
    OnDelete, OptionalReferences, Owned, Problem, Protect, Subject,
};
use super::facts::{NamespaceLabels, ObjectFacts};
use super::finalizer_guard::FinalizerGuard;
use super::identities::{Requester, garbage_collector_identities, includes};
use super::selectors::{LabelRequirements, MatchResult, Matcher, UserMatcher};
use crate::objects::{PROTECT_LABEL, Text};

/// The annotation of a DeletionPolicy with the limit of existing objects of one kind that get
/// the hold; 0 for no limit.
pub const BACKFILL_ANNOTATION: &str = "belay.dev/backfill-max-objects";

/// Why a policy with subjects places no hold.
pub const WHY_NO_HOLD_WITH_SUBJECTS: &str =
    "the policy binds only some subjects, and others may delete what it protects";

/// The source of a policy. Messages show it as the name of the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicySource {
    /// The label `belay.dev/protect` with this value, on the object itself.
    Label(&'static str),
    /// The DeletionPolicy of this name.
    Policy(String),
}

impl std::fmt::Display for PolicySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Label(value) => write!(f, "label {PROTECT_LABEL}={value}"),
            Self::Policy(name) => write!(f, "policy {name}"),
        }
    }
}

/// A compiled policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its source.
    pub source: PolicySource,
    /// The protected objects. An object must match one entry.
    pub(super) targets: Vec<Matcher>,
    exclude: Vec<Matcher>,
    subjects: Vec<Subject>,
    exempt: Vec<Subject>,
    /// The modes of protection.
    pub modes: Modes,
    /// Whether belay adds the hold to its objects.
    pub hold: HoldMode,
    action: Action,
    overrides: Vec<(LabelRequirements, Action)>,
    /// The terms of approvals.
    pub approval: ApprovalTerms,
    /// The minimum time that a deleted object stays held.
    pub settle_seconds: i64,
    /// The limit of existing objects of one kind that get the hold; 0 for no limit;
    /// `None` for the setting of belay.
    pub backfill_limit: Option<usize>,
    /// The creation time of the policy, in seconds since 1970; `None` if unknown.
    pub created: Option<i64>,
}

/// The modes that a policy enables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Modes {
    /// Denies the DELETE without an approval.
    pub always: bool,
    /// Denies the DELETE, or holds the object, while it has users.
    pub while_used: Option<WhileUsedMode>,
    /// Denies the DELETE of a Namespace or CRD with content.
    pub while_not_empty: Option<WhileNotEmptyMode>,
    /// Denies the DELETE while one of these objects exists.
    pub while_exists: Vec<WhileExistsEntry>,
    /// Denies requests that orphan the object or its dependents.
    pub from_orphaning: bool,
    /// Denies that users remove finalizers of controllers.
    pub from_stripping: Option<FinalizerGuard>,
}

impl Modes {
    /// Whether one of them can deny the DELETE of an object without users.
    pub fn protects_unused(&self) -> bool {
        self.always || self.while_not_empty.is_some() || !self.while_exists.is_empty()
    }

    /// The names of the enabled modes, as a policy writes them.
    pub fn names(&self) -> Vec<&'static str> {
        mode_names([
            self.always,
            self.while_used.is_some(),
            self.while_not_empty.is_some(),
            !self.while_exists.is_empty(),
            self.from_orphaning,
            self.from_stripping.is_some(),
        ])
    }
}

/// The names of the enabled modes. `enabled` has the order of [`Modes`].
pub fn mode_names(enabled: [bool; 6]) -> Vec<&'static str> {
    let names =
        ["always", "whileUsed", "whileNotEmpty", "whileExists", "fromOrphaning", "fromStripping"];
    enabled.into_iter().zip(names).filter(|(enabled, _)| *enabled).map(|(_, name)| name).collect()
}

/// The mode `whileUsed`.
#[derive(Debug, Clone, PartialEq)]
pub struct WhileUsedMode {
    /// The users that count; empty for all users.
    pub by: Vec<UserMatcher>,
    /// The effect of a DELETE while the object has users.
    pub on_delete: OnDelete,
    /// Whether references with `optional: true` count.
    pub optional: bool,
}

/// The mode `whileNotEmpty`.
#[derive(Debug, Clone, PartialEq)]
pub struct WhileNotEmptyMode {
    /// Whether all objects count, or only protected ones.
    pub counts_all: bool,
    /// The objects that do not count.
    pub ignore: Vec<Matcher>,
    /// Whether objects with an owner count.
    pub owned: bool,
}

/// The mode `whileExists`: objects whose existence protects another object.
#[derive(Debug, Clone, PartialEq)]
pub struct WhileExistsEntry {
    /// Their kinds, as pairs of group and resource.
    pub kinds: Vec<(String, String)>,
    /// The requirements on the labels of their Namespaces.
    pub namespace_selector: LabelRequirements,
}

/// The terms of approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalTerms {
    /// The number of different people who must approve.
    pub required: usize,
    /// The longest duration of an approval.
    pub longest_seconds: i64,
    /// Service accounts whose approval counts, as `namespace/name`.
    pub accounts: Vec<String>,
}

impl Policy {
    /// Compiles a policy from the API, or returns all its problems.
    pub fn compile(name: &str, spec: &DeletionPolicySpec) -> Result<Self, Vec<Problem>> {
        let problems = spec.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self::from_spec(PolicySource::Policy(name.to_owned()), spec))
    }

    fn from_spec(source: PolicySource, spec: &DeletionPolicySpec) -> Self {
        let DeletionPolicySpec {
            targets,
            exclude,
            subjects,
            exempt_subjects,
            protect,
            hold,
            action,
            action_overrides,
            approval,
            settle_seconds,
        } = spec;
        Self {
            source,
            targets: targets.iter().map(Matcher::compile).collect(),
            exclude: exclude.iter().map(Matcher::compile).collect(),
            subjects: subjects.clone(),
            exempt: exempt_subjects.clone(),
            modes: Modes::from_spec(protect),
            hold: *hold,
            action: *action,
            overrides: action_overrides
                .iter()
                .map(|o| (LabelRequirements::compile(Some(&o.namespace_selector)), o.action))
                .collect(),
            approval: ApprovalTerms {
                required: usize::try_from(approval.required).unwrap_or(1),
                longest_seconds: approval.max_duration_seconds,
                accounts: approval.service_accounts.clone(),
            },
            settle_seconds: *settle_seconds,
            backfill_limit: None,
            created: None,
        }
    }

    /// Applies the annotations of the DeletionPolicy. An invalid number has no effect.
    #[must_use]
    pub fn with_annotations(self, annotations: &BTreeMap<String, String>) -> Self {
        let limit = annotations.get(BACKFILL_ANNOTATION).and_then(|text| text.parse().ok());
        Self { backfill_limit: limit, ..self }
    }

    /// The policy for one value of the label `belay.dev/protect`.
    pub(super) fn for_label(value: &'static str, protect: Protect) -> Self {
        let with_label = LabelSelector {
            match_labels: [(PROTECT_LABEL.to_owned(), value.to_owned())].into(),
            ..LabelSelector::default()
        };
        let any = || vec!["*".to_owned()];
        let target = super::api::TargetSelector {
            api_groups: any(),
            resources: any(),
            object_selector: Some(with_label),
            ..super::api::TargetSelector::default()
        };
        // The label does not protect approvals and pauses. Otherwise an approver could create
        // approvals that can't be deleted.
        let records = super::api::TargetSelector {
            api_groups: vec![super::api::GROUP.to_owned()],
            resources: ["deletionapprovals", "pauses"].map(str::to_owned).into(),
            ..super::api::TargetSelector::default()
        };
        let spec = DeletionPolicySpec {
            targets: vec![target],
            exclude: vec![records],
            protect,
            ..DeletionPolicySpec::default()
        };
        Self::from_spec(PolicySource::Label(value), &spec)
    }

    /// Whether the policy binds the sender of a request.
    pub fn binds(&self, requester: &Requester<'_>) -> bool {
        self.subjects.is_empty() || includes(&self.subjects, requester)
    }

    /// Whether the policy exempts the sender of a request. belay records exemptions.
    pub fn exempts(&self, requester: &Requester<'_>) -> bool {
        includes(&self.exempt, requester)
    }

    /// Whether the policy applies to DELETEs by the garbage collector under at least one of the
    /// names in [`garbage_collector_identities`].
    pub fn binds_collector_under_any_name(&self) -> bool {
        garbage_collector_identities()
            .into_iter()
            .any(|collector| self.binds_and_does_not_exempt(collector))
    }

    /// Whether the policy applies to DELETEs by the garbage collector under all names in
    /// [`garbage_collector_identities`].
    pub fn binds_collector_under_every_name(&self) -> bool {
        garbage_collector_identities()
            .into_iter()
            .all(|collector| self.binds_and_does_not_exempt(collector))
    }

    /// Whether it binds a requester with this name and these groups, and does not exempt it.
    fn binds_and_does_not_exempt(&self, (name, groups): (&str, &[&str])) -> bool {
        let groups = groups.iter().map(|group| Text::from(*group)).collect();
        let requester = Requester { name: name.into(), groups };
        self.binds(&requester) && !self.exempts(&requester)
    }

    /// Whether an entry of `targets` matches an object and no entry of `exclude` does.
    pub(super) fn matches(
        &self,
        target: &Matcher,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> MatchResult {
        let matched = target.matches(namespace_labels, facts);
        if matched == MatchResult::No {
            return matched;
        }
        let mut exclusion = MatchResult::No;
        for exclude in &self.exclude {
            match exclude.matches(namespace_labels, facts) {
                MatchResult::Yes => return MatchResult::No,
                MatchResult::Unknown => exclusion = MatchResult::Unknown,
                MatchResult::No => {}
            }
        }
        if exclusion == MatchResult::Unknown { MatchResult::Unknown } else { matched }
    }

    /// The action of the policy for an object, and whether it is certain. If the labels
    /// of its Namespace are unknown, this is the strictest possible action.
    pub(super) fn action_for(
        &self,
        namespace_labels: NamespaceLabels<'_>,
        facts: ObjectFacts<'_>,
    ) -> (Action, bool) {
        // Overrides select namespaces, so they do not apply to cluster-scoped objects.
        if facts.namespace.is_empty() && !facts.is_namespace() {
            return (self.action, true);
        }
        let mut possible: Option<Action> = None;
        for (selector, action) in &self.overrides {
            match selector.match_namespace(namespace_labels, facts) {
                MatchResult::No => {}
                MatchResult::Yes => return strictest_of(possible, *action),
                MatchResult::Unknown => possible = possible.max(Some(*action)),
            }
        }
        strictest_of(possible, self.action)
    }

    /// The kinds that its targets name, as pairs of group and resource. Both can be `*`.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &str)> {
        self.targets.iter().flat_map(Matcher::kinds)
    }

    /// Its targets, each with the kinds that it names.
    pub fn targets_by_kind(&self) -> impl Iterator<Item = ((&str, &str), &Matcher)> {
        self.targets.iter().flat_map(|target| target.kinds().map(move |kind| (kind, target)))
    }

    /// Whether its targets name this kind.
    pub fn names_kind(&self, group: &str, resource: &str) -> bool {
        self.targets.iter().any(|target| target.names_kind(group, resource))
    }

    /// The strictest of its action and its overrides.
    pub fn strictest_action(&self) -> Action {
        self.overrides.iter().map(|(_, action)| *action).fold(self.action, Action::max)
    }

    /// The keys of the Namespace labels that it reads.
    pub fn namespace_label_keys(&self) -> impl Iterator<Item = &str> {
        let selectors = self.targets.iter().chain(&self.exclude).map(Matcher::namespace_selector);
        let overrides = self.overrides.iter().map(|(selector, _)| selector);
        selectors.chain(overrides).flat_map(LabelRequirements::keys)
    }

    /// The annotations that it reads.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        let ignored = self.modes.while_not_empty.iter().flat_map(|mode| &mode.ignore);
        self.targets.iter().chain(&self.exclude).chain(ignored).flat_map(Matcher::annotation_keys)
    }

    /// Whether it binds all subjects. A policy with subjects does not delay the release of an
    /// object, because another subject may have deleted the object without a denial.
    pub fn binds_all_subjects(&self) -> bool {
        self.subjects.is_empty()
    }

    /// Whether a release waits for this policy.
    pub fn delays_release(&self) -> bool {
        self.binds_all_subjects() && self.has_release_condition()
    }

    /// Whether one of its modes can keep a hold.
    fn has_release_condition(&self) -> bool {
        self.requires_approval_to_release() || self.modes.while_used.is_some()
    }

    /// Whether it would add the hold to objects if it bound all subjects.
    pub fn would_place_hold_without_subjects(&self) -> bool {
        self.hold == HoldMode::Auto && self.has_release_condition() && !self.binds_all_subjects()
    }

    /// Whether belay adds the hold to its objects. It does so only if a release waits for
    /// this policy.
    pub fn places_hold(&self) -> bool {
        self.hold == HoldMode::Auto && self.delays_release()
    }

    /// Whether a subject that the policy exempts or does not bind can delete a protected object
    /// at once by deleting its owner. False if the policy protects only used objects and its hold
    /// keeps them.
    pub fn allows_delete_through_owner(&self) -> bool {
        let without_hold = self.modes.while_used.is_some() && !self.places_hold();
        // If the policy names subjects, other subjects can delete the owner. The policy then stops
        // the cascade only if it binds the garbage collector.
        let can_bypass = !self.exempt.is_empty()
            || !(self.binds_all_subjects() || self.binds_collector_under_any_name());
        can_bypass && (self.modes.protects_unused() || without_hold)
    }

    /// Whether only an approval releases a hold. A policy with exempt subjects does not require
    /// this, because an object that an exempt subject deletes would wait for an approval.
    pub fn requires_approval_to_release(&self) -> bool {
        self.modes.always && self.exempt.is_empty()
    }
}

/// The strictest possible action, and whether it is certain.
fn strictest_of(possible: Option<Action>, action: Action) -> (Action, bool) {
    possible.map_or((action, true), |possible| (possible.max(action), possible == action))
}

impl Modes {
    fn from_spec(protect: &Protect) -> Self {
        let Protect {
            always,
            while_used,
            while_not_empty,
            while_exists,
            from_orphaning,
            from_stripping,
        } = protect;
        Self {
            always: always.is_some(),
            while_used: while_used.as_ref().map(|mode| WhileUsedMode {
                by: mode.by.iter().map(UserMatcher::compile).collect(),
                on_delete: mode.on_delete,
                optional: mode.optional_references == OptionalReferences::Count,
            }),
            while_not_empty: while_not_empty.as_ref().map(|mode| WhileNotEmptyMode {
                counts_all: mode.counting == Counting::Any,
                ignore: mode.ignore.iter().map(Matcher::compile).collect(),
                owned: mode.owned == Owned::Count,
            }),
            while_exists: while_exists.iter().flatten().map(WhileExistsEntry::compile).collect(),
            from_orphaning: from_orphaning.is_some(),
            from_stripping: from_stripping.as_ref().map(FinalizerGuard::compile),
        }
    }
}

impl WhileExistsEntry {
    fn compile(existing: &ExistingSelector) -> Self {
        let ExistingSelector { api_groups, resources, namespace_selector } = existing;
        let kinds =
            api_groups.iter().flat_map(|g| resources.iter().map(|r| (g.clone(), r.clone())));
        Self {
            kinds: kinds.collect(),
            namespace_selector: LabelRequirements::compile(namespace_selector.as_ref()),
        }
    }
}
