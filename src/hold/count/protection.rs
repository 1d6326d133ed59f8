//! The policies that delay the release of a held object.

use super::{ReleaseReason, UnknownUse};
use crate::decide::{JudgedObject, RecordScope, Situation, sufficient_approvals};
use crate::graph::Node;
use crate::policy::{AppliedPolicy, ObjectFacts, Policy, WhileUsedMode};

/// What protects an object.
pub enum Protection<'p> {
    /// It is unknown whether a policy protects it.
    Unknown(UnknownUse),
    /// Nothing protects it, for this reason.
    None(ReleaseReason),
    /// A policy protects it, also while nothing uses it.
    Always,
    /// Policies protect it while it is used.
    WhileUsed(WhileUsedModes<'p>),
}

/// The protection of an object by policies with `whileUsed`.
pub struct WhileUsedModes<'p> {
    /// The mode `whileUsed` of each policy.
    pub modes: Vec<&'p WhileUsedMode>,
    /// The longest `settleSeconds` of the policies.
    pub settle_seconds: i64,
}

/// The longest `settleSeconds` of these policies.
pub fn longest_settle_seconds(applied: &[AppliedPolicy<'_>]) -> i64 {
    applied.iter().map(|applied| applied.policy.settle_seconds).max().unwrap_or_default()
}

pub fn protection<'p>(situation: &Situation<'p>, node: Node<'p>) -> Protection<'p> {
    let applied = situation.release_policies(ObjectFacts::of_node(node));
    if applied.is_empty() {
        return Protection::None(ReleaseReason::Unprotected);
    }
    // Approvals may name the container of the object, or an owner that no longer exists. Only
    // the graph of the watches has these, so `situation` must not have the graph of live reads.
    let policies: Vec<&Policy> = applied.iter().map(|applied| applied.policy).collect();
    // Exemption records do not shorten the wait for a release.
    let item = JudgedObject::of_node(situation, node);
    if sufficient_approvals(situation, &item, &policies, RecordScope::Ignored).is_some() {
        return Protection::None(ReleaseReason::Approved);
    }
    if applied.iter().any(|applied| !applied.certain) {
        return Protection::Unknown(UnknownUse::NamespaceLabels(node.namespace().to_owned()));
    }
    if applied.iter().any(|applied| applied.policy.requires_approval_to_release()) {
        return Protection::Always;
    }
    let modes = applied.iter().filter_map(|applied| applied.policy.modes.while_used.as_ref());
    let settle_seconds = longest_settle_seconds(&applied);
    Protection::WhileUsed(WhileUsedModes { modes: modes.collect(), settle_seconds })
}
