//! The verdict on the deletion of all targets together, by the code that decides admission.

use super::inspection::{Inspection, PolicyState};
use crate::cluster::{LiveQuestion, answer_with_reads};
use crate::command::document::ReportedVerdict;
use crate::command::target::SILENT;
use crate::decide::{
    DeleteOptions, LiveRead, LiveReads, ObjectSource, Review, ReviewDetails, Situation, Verdict,
    decide_together,
};
use crate::graph::{Node, NodeId, Propagation};
use crate::objects::{ApiError, Kinds};

/// How many times a verdict may request more reads.
const MAX_ROUNDS: usize = 6;

/// The verdict on the deletion of these objects together, with this propagation policy; `None`
/// if there are no targets or no known policies.
pub async fn verdict(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
) -> Option<Verdict> {
    verdict_at(inspection, targets, cascade, inspection.now()).await
}

/// The verdict at a time, in seconds since 1970: an approval may expire before.
pub async fn verdict_at(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
    now: i64,
) -> Option<Verdict> {
    match (&inspection.policy_state, &inspection.caller) {
        _ if targets.is_empty() => None,
        (PolicyState::Unknown, _) | (PolicyState::None, Some(_)) => None,
        _ => Some(decide(inspection, targets, cascade, now).await),
    }
}

/// The verdict for a report. `known` is the verdict on the targets that were read and that the API
/// server may delete. The result also covers the other targets.
pub fn report_verdict(inspection: &Inspection, known: Option<ReportedVerdict>) -> ReportedVerdict {
    if !inspection.forbidden_targets().is_empty() {
        return ReportedVerdict::Deny;
    }
    let Some(known) = known else {
        return match inspection.policy_state {
            _ if inspection.targets.is_empty() && inspection.unread_targets.is_empty() => {
                ReportedVerdict::Allow
            }
            PolicyState::None if inspection.caller.is_some() => ReportedVerdict::NoPolicies,
            _ => ReportedVerdict::Unknown,
        };
    };
    match known {
        ReportedVerdict::Deny => ReportedVerdict::Deny,
        // Targets that could not be read may be denied.
        _ if !inspection.unread_targets.is_empty() => ReportedVerdict::Unknown,
        // Without a policy, only the label belay.dev/protect protects objects.
        ReportedVerdict::Allow if inspection.policy_state == PolicyState::None => {
            ReportedVerdict::NoPolicies
        }
        known => known,
    }
}

async fn decide(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
    now: i64,
) -> Verdict {
    let graph = &inspection.graph;
    let nodes: Vec<Node<'_>> = targets.iter().filter_map(|id| graph.get(*id)).collect();
    let (name, groups) = match &inspection.caller {
        Some((_, me)) => (me.name.as_str(), me.groups.as_slice()),
        None => ("", &[][..]),
    };
    let review = Review {
        options: DeleteOptions {
            propagation_policy: Some(cascade.as_str().into()),
            orphan_dependents: None,
        },
        ..delete_review(name, groups)
    };
    let decide = |live: ObjectSource<'_>| {
        let situation = Situation::new(graph, &inspection.policies, live, now);
        // The verdict may name objects of other namespaces: they were read with the rights of the
        // user, or from files.
        decide_together(&situation, &review, &nodes).with_other_namespaces()
    };
    if inspection.caller.is_none() {
        return decide(ObjectSource::Files);
    }
    let mut impact_review = ImpactReview { inspection, decide, reads: LiveReads::default() };
    match answer_with_reads(&mut impact_review, MAX_ROUNDS).await {
        Ok(verdict) => verdict,
        // The verdict requested more reads in every round.
        Err(_) => decide(ObjectSource::Files),
    }
}

/// A review of the DELETE of an object in the graph by this user.
pub fn delete_review<'u>(name: &'u str, groups: &'u [String]) -> Review<'u> {
    // A Namespace that is Terminating still has the finalizer that every Namespace has.
    let old_spec_finalizers = vec!["kubernetes".to_owned()];
    Review {
        details: ReviewDetails { old_spec_finalizers, ..ReviewDetails::default() },
        ..Review::of_dry_run(name, groups)
    }
}

/// Confirms a verdict. It answers the live reads from the inspection, whose data was read before.
struct ImpactReview<'a, D> {
    inspection: &'a Inspection,
    decide: D,
    reads: LiveReads,
}

impl<D: Fn(ObjectSource<'_>) -> Verdict> LiveQuestion for ImpactReview<'_, D> {
    type Answer = Verdict;

    async fn answer(&mut self) -> Option<(Verdict, Vec<LiveRead>)> {
        let mut verdict = (self.decide)(ObjectSource::Cluster(&self.reads));
        let mut reads = std::mem::take(&mut verdict.needed_reads);
        reads.append(&mut verdict.advisory_reads);
        Some((verdict, reads))
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let results = reads.into_iter().map(|read| {
            let result = read_result(self.inspection, &read);
            (read, result)
        });
        self.reads.results.extend(results);
    }
}

/// The result of a live read, from the data of the inspection, which is seconds old.
fn read_result(inspection: &Inspection, read: &LiveRead) -> Result<(), ApiError> {
    let graph = &inspection.graph;
    match read {
        // The object was read with the others, so another read shows nothing new.
        LiveRead::Object(_) => Err(ApiError::Other("it was read with the others".to_owned())),
        LiveRead::List { group, resource, namespace, .. } => {
            let Some(kind) = graph.kinds.find_resource(group, resource) else {
                return unserved_result(inspection, group);
            };
            match inspection.has_read(kind, namespace) {
                true => Ok(()),
                false => Err(ApiError::Other(graph.why_incomplete(kind).to_string())),
            }
        }
    }
}

/// The result of a read of a kind that discovery does not contain. `Ok`: the kind has no
/// objects. Admission decides this in the same way.
fn unserved_result(inspection: &Inspection, group: &str) -> Result<(), ApiError> {
    if inspection.silent_groups.contains(group) {
        return Err(ApiError::Other(SILENT.to_owned()));
    }
    // A built-in kind has no CRD, so a missing CRD proves nothing.
    match Kinds::is_built_in_group(group) {
        true => Err(ApiError::NotFound),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::ListPart;

    #[test]
    fn a_kind_whose_server_does_not_answer_is_not_absent() {
        let mut inspection = Inspection::default();
        inspection.silent_groups.insert("silent.example.com".to_owned());
        let list = |group: &str| LiveRead::List {
            group: group.to_owned(),
            resource: "gizmos".to_owned(),
            namespace: String::new(),
            part: ListPart::First,
        };
        assert_eq!(read_result(&inspection, &list("example.com")), Ok(()));
        assert_eq!(
            read_result(&inspection, &list("silent.example.com")),
            Err(ApiError::Other(SILENT.to_owned()))
        );
        assert_eq!(read_result(&inspection, &list("apps")), Err(ApiError::NotFound));
    }
}
