//! The verdict on the whole set, by the code that decides admission.

use super::inspection::{Inspection, Rules};
use crate::cluster::{Confirm, confirm};
use crate::command::document::ReportedVerdict;
use crate::command::target::SILENT;
use crate::decide::{
    AdmissionPhase, Decision, DeleteOptions, LiveRead, LiveReads, ObjectSource, Operation,
    Requester, Resource, Review, ReviewDetails, Situation, Verdict, decide_together,
};
use crate::graph::{Node, NodeId, Propagation};
use crate::objects::{ApiError, Kinds};

/// How often a verdict may ask for more before it is final.
const ROUNDS: usize = 6;

/// The verdict on deleting these objects together with this propagation policy; `None` if
/// nothing decides.
pub async fn verdict(
    inspection: &Inspection,
    targets: &[NodeId],
    cascade: Propagation,
) -> Option<Verdict> {
    match (&inspection.rules, &inspection.person) {
        _ if targets.is_empty() => None,
        (Rules::Unknown, _) | (Rules::None, Some(_)) => None,
        _ => Some(decide(inspection, targets, cascade).await),
    }
}

/// The verdict as a report has it.
pub fn report_verdict(inspection: &Inspection, verdict: Option<&Verdict>) -> ReportedVerdict {
    if !inspection.forbidden_targets().is_empty() {
        return ReportedVerdict::Deny;
    }
    let Some(verdict) = verdict else {
        return match inspection.rules {
            _ if inspection.targets.is_empty() && inspection.unseen.is_empty() => {
                ReportedVerdict::Allow
            }
            Rules::None if inspection.person.is_some() => ReportedVerdict::NoPolicies,
            _ => ReportedVerdict::Unknown,
        };
    };
    match verdict.decision {
        // Targets that could not be read may be denied.
        decision if decision != Decision::Deny && !inspection.unseen.is_empty() => {
            ReportedVerdict::Unknown
        }
        // Only the label protects objects without a policy.
        Decision::Allow if inspection.rules == Rules::None => ReportedVerdict::NoPolicies,
        Decision::Deny if verdict.is_unknown() => ReportedVerdict::Unknown,
        decision => decision.into(),
    }
}

async fn decide(inspection: &Inspection, targets: &[NodeId], cascade: Propagation) -> Verdict {
    let graph = &inspection.graph;
    let nodes: Vec<Node<'_>> = targets.iter().filter_map(|id| graph.get(*id)).collect();
    let (name, groups) = match &inspection.person {
        Some((_, me)) => (me.name.as_str(), me.groups.as_slice()),
        None => ("", &[][..]),
    };
    let policy = match cascade {
        Propagation::Background => "Background",
        Propagation::Foreground => "Foreground",
        Propagation::Orphan => "Orphan",
    };
    let review = Review {
        uid: "".into(),
        phase: AdmissionPhase::Validate,
        operation: Operation::Delete,
        resource: Resource::default(),
        name: "".into(),
        namespace: "".into(),
        user: Requester {
            name: name.into(),
            groups: groups.iter().map(|group| group.as_str().into()).collect(),
        },
        dry_run: true,
        options: DeleteOptions { propagation_policy: Some(policy.into()), orphan_dependents: None },
        object: None,
        old_object: None,
        // A Namespace that is Terminating still has the finalizer that every Namespace has.
        details: ReviewDetails {
            old_spec_finalizers: vec!["kubernetes".to_owned()],
            ..ReviewDetails::default()
        },
        labelled: false,
    };
    let now = inspection.now();
    let decide = |live: ObjectSource<'_>| {
        let situation = Situation::new(graph, &inspection.policies, live, now);
        // All of this was read with the rights of the user, or from files.
        decide_together(&situation, &review, &nodes).with_other_namespaces()
    };
    if inspection.person.is_none() {
        return decide(ObjectSource::Files);
    }
    let mut question = ImpactReview { inspection, decide, reads: LiveReads::default() };
    match confirm(&mut question, ROUNDS).await {
        Ok(verdict) => verdict,
        // The reads don't converge.
        Err(_) => decide(ObjectSource::Files),
    }
}

/// The verdict for an inspection. All live reads were carried out before.
struct ImpactReview<'a, D> {
    inspection: &'a Inspection,
    decide: D,
    reads: LiveReads,
}

impl<D: Fn(ObjectSource<'_>) -> Verdict> Confirm for ImpactReview<'_, D> {
    type Answer = Verdict;

    async fn answer(&mut self) -> Option<(Verdict, Vec<LiveRead>)> {
        let mut verdict = (self.decide)(ObjectSource::Cluster(&self.reads));
        let reads = std::mem::take(&mut verdict.needed_reads);
        Some((verdict, reads))
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let answered = reads.into_iter().map(|read| {
            let answer = answer(self.inspection, &read);
            (read, answer)
        });
        self.reads.results.extend(answered);
    }
}

/// Answers a live read from the data, which is seconds old.
fn answer(inspection: &Inspection, read: &LiveRead) -> Result<(), ApiError> {
    let graph = &inspection.graph;
    match read {
        // The graph has it, or has not.
        LiveRead::Object(_) => Err(ApiError::Other("it was read with the others".to_owned())),
        LiveRead::List { group, resource, namespace, .. } => {
            let Some(kind) = graph.kinds.find_resource(group, resource) else {
                return served_nowhere(inspection, group);
            };
            let here = || inspection.in_namespace.contains(&(kind, namespace.clone()));
            match graph.is_complete(kind) || here() {
                true => Ok(()),
                false => Err(ApiError::Other(graph.why_incomplete(kind).to_string())),
            }
        }
    }
}

/// Whether a kind that discovery does not contain has no objects, as in the live reads of
/// admission.
fn served_nowhere(inspection: &Inspection, group: &str) -> Result<(), ApiError> {
    if inspection.stale.contains(group) {
        return Err(ApiError::Other(SILENT.to_owned()));
    }
    // Built-in kinds have no CRD whose absence would prove it.
    match Kinds::is_built_in_group(group) {
        true => Err(ApiError::NotFound),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_server_that_does_not_answer_is_no_absence() {
        let mut inspection = Inspection::empty();
        inspection.stale.insert("silent.example.com".to_owned());
        let list = |group: &str| LiveRead::List {
            group: group.to_owned(),
            resource: "gizmos".to_owned(),
            namespace: String::new(),
            first: true,
        };
        assert_eq!(answer(&inspection, &list("example.com")), Ok(()));
        assert_eq!(
            answer(&inspection, &list("silent.example.com")),
            Err(ApiError::Other(SILENT.to_owned()))
        );
        assert_eq!(answer(&inspection, &list("apps")), Err(ApiError::NotFound));
    }
}
