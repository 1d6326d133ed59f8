//! Policies: the objects that users write, and the compiled form that verdicts use.
//!
//! [`api`] has the objects as they are in the cluster. The other modules compile them: a
//! [`PolicySet`] finds the policies of an object by its kind, and [`Approvals`] finds the
//! approvals of an object by its uid. [`Approval::is_in_force`] and [`ApprovalTerms::are_met`]
//! decide when approvals count; `decide::approved` finds those that cover an object.

pub mod api;
mod approvals;
mod compiled;
mod facts;
mod finalizer_guard;
mod identities;
mod policy_set;
mod relation;
mod rules;
mod selectors;

#[cfg(test)]
mod tests;

pub use approvals::{
    Approval, Approvals, IneffectiveReason, MAX_CLOCK_DIFFERENCE_SECONDS, ObjectIdentity, Pause,
    format_seconds,
};
pub use compiled::{
    ApprovalTerms, BACKFILL_ANNOTATION, Modes, Policy, PolicySource, WHY_NO_HOLD_WITH_SUBJECTS,
    WhileExistsEntry, WhileNotEmptyMode, WhileUsedMode, mode_names,
};
pub use facts::{KeyValues, NamespaceLabels, ObjectFacts};
pub use finalizer_guard::FinalizerGuard;
pub use identities::{
    Identities, Requester, exempt_namespaces, garbage_collector_identities, parse_service_account,
};
pub use policy_set::{AppliedPolicy, PolicySet};
pub use relation::compile as compile_relation;
pub use rules::Rules;
pub use selectors::{Glob, LabelRequirements, MatchResult, Matcher, NAME_LABEL, UserMatcher};
