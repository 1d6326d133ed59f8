//! The release of a hold, before the deletion of its object: which users have to be
//! deleted first. A release itself counts users in live reads ([`super::check_use`]).

use super::UnknownUse;
use super::count::{Protection, protection};
use crate::decide::{JudgedObject, Situation, counting_users};
use crate::graph::{Node, NodeId};

/// What the release of a hold will wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldForecast {
    /// Only the settle time: no policy protects the object, or its deletion is approved.
    Unprotected,
    /// The deletion of these users, in a stable order. There may be none.
    Users(Vec<NodeId>),
    /// An approval, because a policy protects the object always.
    Approval,
    /// It is unknown what.
    Unknown(UnknownUse),
}

/// What the release of the hold of `node` will wait for, by the graph and the policies of
/// the situation. `known` is whether the policies are known.
pub fn forecast(situation: &Situation<'_>, known: bool, node: Node<'_>) -> HoldForecast {
    if !known {
        return HoldForecast::Unknown(UnknownUse::PoliciesUnread);
    }
    let kept = match protection(situation, node) {
        Protection::Not(_) => return HoldForecast::Unprotected,
        Protection::Always => return HoldForecast::Approval,
        Protection::Uncertain => {
            let place = node.namespace().to_owned();
            return HoldForecast::Unknown(UnknownUse::NamespaceLabels(place));
        }
        Protection::WhileUsed(kept) => kept,
    };
    let item = JudgedObject::of_node(situation, node);
    let users = kept.modes.into_iter();
    let users = users.flat_map(|mode| counting_users(situation, &item, mode, situation.graph));
    let mut users: Vec<NodeId> = users.map(|user| user.node.id()).collect();
    users.sort_unstable();
    users.dedup();
    HoldForecast::Users(users)
}
