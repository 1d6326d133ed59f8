//! The answers of the API server about all targets, merged with the verdict of the command.

use std::collections::{BTreeSet, HashMap};

use futures_util::{StreamExt as _, stream};

use super::Cascade;
use super::nodes::have_all_pods_of_belay;
use super::order::{RequiredOrder, accepted_in_order};
use super::target_effects::TargetEffects;
use crate::command::delete_answer::{
    CONCURRENT_DELETES, DeleteAnswer, ServerAnswer, ServerDenial, hold_reason_in,
};
use crate::command::inspect::inspection::{Inspection, PolicyState};
use crate::command::place::Installation;
use crate::command::webhooks::VALIDATING;
use crate::decide::{Reason, Verdict, object_name};
use crate::graph::{Graph, Node, NodeId};
use crate::objects::CRDS;

/// The limit of objects about which the command asks the API server.
pub const MAX_ASKED: usize = 100;

/// Why the answer about one of several objects is unknown.
const ASKED_ALONE: &str = "the API server judges the DELETE of each object alone, and other \
                           targets may use this one; delete those first";

/// The warning about the deletion of belay itself.
const ENDS_PROTECTION: &str = "this deletes the webhook configurations of belay: afterwards belay \
                               protects nothing; next: kubectl belay admin uninstall";

/// The answers about all targets.
pub struct TargetAnswers {
    /// The merged answer.
    pub answer: DeleteAnswer,
    /// The targets that belay denies only because other targets use them, each with the targets
    /// that must be deleted before it.
    pub predecessors: RequiredOrder,
    /// The targets whose DELETE the API server accepts in the given order, after the accepted
    /// targets before them. Empty for one target.
    pub accepted: Vec<NodeId>,
    /// The further targets whose DELETE the API server accepts in another order.
    pub accepted_later: Vec<NodeId>,
}

/// Asks the API server about each target with a dry run. `None` for files, and if no target can be
/// deleted.
pub async fn ask_server(
    inspection: &Inspection,
    targets: &[NodeId],
    verdict: Option<&Verdict>,
    cascade: Cascade,
) -> Option<TargetAnswers> {
    let (caller, _) = inspection.caller.as_ref()?;
    let nodes = targets.iter().filter_map(|target| inspection.graph.get(*target));
    // The API server has accepted the DELETE of a Terminating object.
    let nodes: Vec<_> = nodes.filter(|node| !node.is_terminating()).collect();
    let first = nodes.first().map(|node| node.object_ref())?;
    let asking = nodes.iter().take(MAX_ASKED).map(|node| async {
        let (object, uid) = (node.object_ref(), node.uid().to_string());
        let propagation = Some(cascade.into());
        let answer = ServerAnswer::ask(caller, node.info(), (&object, &uid), propagation).await;
        (node.id(), object, answer)
    });
    let asking = stream::iter(asking).buffered(CONCURRENT_DELETES).collect::<Vec<_>>();
    let (mut answers, webhooks) = tokio::join!(asking, inspection.webhooks());
    let webhooks = webhooks.unwrap_or_default();
    let complete = inspection.rules_not_read.is_empty() && inspection.not_read.is_empty();
    let (mut predecessors, mut accepted) = (RequiredOrder::new(), Vec::new());
    let mut denied_now = RequiredOrder::new();
    let effects =
        (nodes.len() > 1).then(|| TargetEffects::new(inspection, targets, cascade.into()));
    if let Some(effects) = &effects {
        let passes = verdict.is_some_and(|verdict| verdict.decision.passes());
        let target_users = TargetUsers::new(&inspection.graph, effects);
        let mut denied = Vec::new();
        for (id, _, answer) in &mut answers {
            let ServerAnswer::Denies(denial) = answer else {
                accepted.extend(matches!(answer, ServerAnswer::Accepts(_)).then_some(*id));
                continue;
            };
            let users = target_users.users_in(denial, *id, &accepted);
            if let Users::Targets(earlier) = &users {
                match earlier.iter().all(|target| accepted.contains(target)) {
                    true => accepted.push(*id),
                    false => drop(denied_now.insert(*id, earlier.clone())),
                }
            }
            denied.push((*id, users, answer));
        }
        // A known verdict of the command already judges the targets that use each other.
        let first_in_cycle = match complete && verdict.is_some() {
            true => Vec::new(),
            false => {
                let order: Vec<NodeId> = denied.iter().map(|(id, ..)| *id).collect();
                first_of_each_cycle(&order, &accepted, denied_now.clone())
            }
        };
        for (id, users, answer) in denied {
            match users {
                Users::Targets(_) if first_in_cycle.contains(&id) => {}
                // The verdict of the command judges all targets together.
                Users::Targets(_) | Users::Unknown if complete && !passes => {}
                Users::Targets(earlier) => {
                    predecessors.insert(id, earlier);
                    *answer = ServerAnswer::Accepts(Vec::new());
                }
                Users::Unknown if complete => *answer = ServerAnswer::Accepts(Vec::new()),
                Users::Unknown => *answer = ServerAnswer::Unknown(ASKED_ALONE.to_owned()),
                Users::Others => {}
            }
        }
    }
    let mut answers: Vec<_> =
        answers.into_iter().map(|(_, object, answer)| (object, answer)).collect();
    if let Some(node) = nodes.get(MAX_ASKED) {
        let why = format!("there are more than {MAX_ASKED} objects");
        answers.push((node.object_ref(), ServerAnswer::Unknown(why)));
    }
    // Without belay's kinds, there is no policy.
    let no_policy =
        (inspection.policy_state == PolicyState::None).then(|| Verdict::allow(first.clone()));
    let local = verdict.cloned().or(no_policy);
    let mut server = Some(ServerAnswer::merge(answers));
    // The API server judged each target alone, so its answers omit objects that only several
    // targets delete together.
    let is_denied_together = matches!(server, Some(ServerAnswer::Accepts(_)))
        && !webhooks.are_inactive()
        && effects.zip(verdict).is_some_and(|(effects, verdict)| {
            effects.are_denied_together(&inspection.graph, verdict)
        });
    if is_denied_together {
        server = None;
        accepted = accepted_in_order(inspection, &accepted, cascade.into()).await;
    }
    let mut answer = DeleteAnswer::merge(&first, local, complete, server, &webhooks);
    let ends =
        !webhooks.are_inactive() && nodes.iter().any(|node| ends_protection(inspection, *node));
    answer.warnings.extend(ends.then(|| ENDS_PROTECTION.to_owned()));
    if !webhooks.are_inactive() && have_all_pods_of_belay(inspection) {
        answer.warnings.push(format!(
            "this ends all Pods of belay: until they run on another Node, {}",
            webhooks.effect_of_outage()
        ));
    }
    let accepted_later = accepted_later(&accepted, denied_now);
    Some(TargetAnswers { answer, predecessors, accepted, accepted_later })
}

/// Returns what the hold waits for, from the warning of a dry-run DELETE. Only for one Terminating
/// target whose policies the caller can't read.
pub async fn ask_hold_reason(inspection: &Inspection) -> Option<String> {
    let (caller, _) = inspection.caller.as_ref()?;
    let [target] = inspection.deletable_targets()[..] else { return None };
    let node = inspection.graph.get(target)?;
    if inspection.policy_state != PolicyState::Unknown || !node.is_terminating() || !node.is_held()
    {
        return None;
    }
    let (object, uid) = (node.object_ref(), node.uid().to_string());
    match ServerAnswer::ask(caller, node.info(), (&object, &uid), None).await {
        ServerAnswer::Accepts(warnings) => hold_reason_in(&warnings),
        _ => None,
    }
}

/// The denied targets whose DELETE is accepted after the DELETEs of their users. `denied`: the
/// denied targets, each with the targets that must be deleted before it.
fn accepted_later(accepted: &[NodeId], mut denied: RequiredOrder) -> Vec<NodeId> {
    let mut later = Vec::new();
    loop {
        let is_free = |users: &BTreeSet<NodeId>| {
            users.iter().all(|user| accepted.contains(user) || later.contains(user))
        };
        let free = denied.iter().find(|(_, users)| is_free(users)).map(|(id, _)| *id);
        let Some(id) = free else { return later };
        denied.remove(&id);
        later.push(id);
    }
}

/// The first target of each cycle of denied targets that use each other, in the order of `targets`.
/// These targets need an approval. With their approvals, no cycle remains.
fn first_of_each_cycle(
    targets: &[NodeId],
    accepted: &[NodeId],
    mut denied: RequiredOrder,
) -> Vec<NodeId> {
    let (mut deleted, mut first) = (accepted.to_vec(), Vec::new());
    loop {
        let later = accepted_later(&deleted, denied.clone());
        denied.retain(|id, _| !later.contains(id));
        deleted.extend(later);
        let Some(id) = targets.iter().copied().find(|id| waits_for_itself(&denied, *id)) else {
            return first;
        };
        denied.remove(&id);
        first.push(id);
        deleted.push(id);
    }
}

/// Whether a target must be deleted before itself, directly or through other targets.
fn waits_for_itself(predecessors: &RequiredOrder, target: NodeId) -> bool {
    let (mut seen, mut next) = (vec![target], 0);
    while let Some(id) = seen.get(next).copied() {
        next += 1;
        for earlier in predecessors.get(&id).into_iter().flatten() {
            if *earlier == target {
                return true;
            }
            if !seen.contains(earlier) {
                seen.push(*earlier);
            }
        }
    }
    false
}

/// Whether the deletion of this object ends the protection: belay's Namespace owns its webhook
/// configurations.
fn ends_protection(inspection: &Inspection, node: Node<'_>) -> bool {
    let Installation { namespace, name } = &inspection.installation;
    match (node.info().group.as_str(), node.info().kind.as_str()) {
        ("", "Namespace") => node.name() == namespace,
        ("admissionregistration.k8s.io", VALIDATING) => node.name() == name,
        _ => false,
    }
}

/// The users in a denial of one of several targets.
enum Users {
    /// All users are deleted with these targets.
    Targets(BTreeSet<NodeId>),
    /// Some users are not deleted with targets, or the reason is not a use.
    Others,
    /// All users may be deleted with targets, but the denial omits some, or the caller may not read
    /// them.
    Unknown,
}

/// The objects that the deletion of the targets deletes, by the name in a denial.
struct TargetUsers<'g> {
    graph: &'g Graph,
    /// The targets that delete an object.
    deleted_by: HashMap<String, Vec<NodeId>>,
}

impl<'g> TargetUsers<'g> {
    fn new(graph: &'g Graph, effects: &TargetEffects) -> Self {
        let mut deleted_by = HashMap::<String, Vec<NodeId>>::new();
        for (target, lost) in &effects.alone {
            for node in lost.iter().filter_map(|id| graph.get(*id)) {
                deleted_by.entry(object_name(node).to_string()).or_default().push(*target);
            }
        }
        Self { graph, deleted_by }
    }

    /// The users in a denial of `target`. If several targets delete a user, an accepted target is
    /// preferred.
    fn users_in(&self, denial: &ServerDenial, target: NodeId, accepted: &[NodeId]) -> Users {
        let mut earlier = BTreeSet::new();
        let mut is_unknown = denial.verdict.more > 0;
        for (blocker, texts) in denial.verdict.blockers.iter().zip(&denial.blocker_texts) {
            let is_use =
                matches!(blocker.reason, Reason::InUse | Reason::StillNeeded | Reason::NotEmpty);
            if !is_use || texts.causes.is_empty() {
                return Users::Others;
            }
            // To deny the DELETE of a CRD, belay reads only one custom resource. There may be more.
            is_unknown |= blocker.more > 0 || blocker.object.is_of(CRDS);
            for (user, _) in &texts.causes {
                // A user that its owner deletes: `StatefulSet shop/db (Pod db-0)`.
                let user = user.rsplit_once(" (").map_or(user.as_str(), |(owner, _)| owner);
                let targets = self.deleted_by.get(user).into_iter().flatten();
                let mut others = targets.filter(|other| **other != target);
                let accepted = others.clone().find(|other| accepted.contains(other));
                match accepted.or_else(|| others.next()) {
                    Some(other) => {
                        earlier.insert(*other);
                    }
                    None if self.exists(user) => return Users::Others,
                    None => is_unknown = true,
                }
            }
        }
        if is_unknown { Users::Unknown } else { Users::Targets(earlier) }
    }

    /// Whether the caller could read the object with this name.
    fn exists(&self, name: &str) -> bool {
        let kind = name.split(' ').next().unwrap_or_default();
        let kinds = self.graph.kinds.iter().filter(|(_, info)| info.kind == kind);
        let mut objects = kinds.flat_map(|(kind, _)| self.graph.objects_of_kind(kind));
        let is_named = |node| object_name(node).to_string() == name;
        objects.any(|id| self.graph.get(id).is_some_and(is_named))
    }
}
