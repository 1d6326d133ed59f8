//! Predicts, before the deletion of an object, which users must be deleted before belay
//! releases its hold. A release itself counts users in live reads ([`super::check_use`]).

use super::UnknownUse;
use super::count::{Protection, protection};
use crate::decide::{JudgedObject, Situation, relevant_users};
use crate::graph::{Node, NodeId};

/// What the release of a hold will wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldForecast {
    /// Only for the settle time: no policy protects the object, or its deletion is approved.
    Unprotected,
    /// For the deletion of these users, in a stable order; possibly none.
    Users(Vec<NodeId>),
    /// For an approval, because a policy always protects the object.
    Approval,
    /// For this condition, copied from belay's warning on a dry run of the DELETE. Only `impact`
    /// sets it; [`forecast`] does not return it.
    Reported(String),
    /// Unknown, for this reason.
    Unknown(UnknownUse),
}

/// Predicts what the release of the hold of `node` will wait for. `policies_known` is as in
/// [`super::check_use`].
pub fn forecast(situation: &Situation<'_>, policies_known: bool, node: Node<'_>) -> HoldForecast {
    if !policies_known {
        return HoldForecast::Unknown(UnknownUse::PoliciesUnread);
    }
    let while_used = match protection(situation, node) {
        Protection::None(_) => return HoldForecast::Unprotected,
        Protection::Always => return HoldForecast::Approval,
        Protection::Unknown(why) => return HoldForecast::Unknown(why),
        Protection::WhileUsed(while_used) => while_used,
    };
    let item = JudgedObject::of_node(situation, node);
    let users = while_used.modes.into_iter();
    let users = users.flat_map(|mode| relevant_users(situation, &item, mode, situation.graph));
    let mut users: Vec<NodeId> = users.map(|user| user.node.id()).collect();
    users.sort_unstable();
    users.dedup();
    HoldForecast::Users(users)
}
