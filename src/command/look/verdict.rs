//! The verdict on the whole set, by the code that decides admission.

use super::scene::{Rules, Scene};
use crate::cluster::{Confirm, confirm};
use crate::command::document::ReportedVerdict;
use crate::command::target::SILENT;
use crate::decide::{
    AdmissionPhase, Decision, DeleteOptions, Live, LiveRead, LiveReads, Operation, Resource,
    Review, ReviewDetails, Situation, User, Verdict, decide_together,
};
use crate::graph::{Node, Propagation};
use crate::objects::{ApiError, Kinds};

/// How often a verdict may ask for more before it is final.
const ROUNDS: usize = 6;

/// The verdict on deleting all targets, in this way; `None` where nothing decides.
pub async fn verdict(scene: &Scene, cascade: Propagation) -> Option<Verdict> {
    match (&scene.rules, &scene.person) {
        _ if scene.targets.is_empty() => None,
        (Rules::Unknown, _) | (Rules::None, Some(_)) => None,
        _ => Some(decided(scene, cascade).await),
    }
}

/// The verdict as a report has it.
pub fn reported(scene: &Scene, verdict: Option<&Verdict>) -> ReportedVerdict {
    let Some(verdict) = verdict else {
        return match scene.rules {
            _ if scene.targets.is_empty() && scene.unseen.is_empty() => ReportedVerdict::Allow,
            Rules::None if scene.person.is_some() => ReportedVerdict::NoPolicies,
            _ => ReportedVerdict::Unknown,
        };
    };
    match verdict.decision {
        // Those that could not be looked for may be refused.
        decision if decision != Decision::Deny && !scene.unseen.is_empty() => {
            ReportedVerdict::Unknown
        }
        // The label protects with no policy written; nothing else does.
        Decision::Allow if scene.rules == Rules::None => ReportedVerdict::NoPolicies,
        Decision::Deny if verdict.is_unknown() => ReportedVerdict::Unknown,
        decision => decision.into(),
    }
}

async fn decided(scene: &Scene, cascade: Propagation) -> Verdict {
    let graph = &scene.graph;
    let nodes: Vec<Node<'_>> = scene.targets.iter().filter_map(|id| graph.get(*id)).collect();
    let (name, groups) = match &scene.person {
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
        user: User {
            name: name.into(),
            groups: groups.iter().map(|group| group.as_str().into()).collect(),
        },
        dry_run: true,
        options: DeleteOptions { propagation_policy: Some(policy.into()), orphan_dependents: None },
        object: None,
        old_object: None,
        // Of a Namespace that is Terminating: it still has the one that every
        // Namespace has.
        details: ReviewDetails {
            old_spec_finalizers: vec!["kubernetes".to_owned()],
            ..ReviewDetails::default()
        },
        labelled: false,
    };
    let now = match &scene.person {
        Some((_, me)) => me.now.as_second(),
        None => jiff::Timestamp::now().as_second(),
    };
    let decide = |live: Live<'_>| {
        let situation = Situation::new(graph, &scene.policies, live, now);
        // Everything here was read with the rights of the user, or from files.
        decide_together(&situation, &review, &nodes).in_full()
    };
    if scene.person.is_none() {
        return decide(Live::Graph);
    }
    let mut question = SceneQuestion { scene, decide, reads: LiveReads::default() };
    match confirm(&mut question, ROUNDS).await {
        Ok(verdict) => verdict,
        // What is asked for again and again cannot be told.
        Err(_) => decide(Live::Graph),
    }
}

/// The verdict on a scene, whose reads were all carried out before.
struct SceneQuestion<'a, D> {
    scene: &'a Scene,
    decide: D,
    reads: LiveReads,
}

impl<D: Fn(Live<'_>) -> Verdict> Confirm for SceneQuestion<'_, D> {
    type Answer = Verdict;

    async fn answer(&mut self) -> Option<(Verdict, Vec<LiveRead>)> {
        let mut verdict = (self.decide)(Live::Read(&self.reads));
        let reads = std::mem::take(&mut verdict.confirm);
        Some((verdict, reads))
    }

    async fn read(&mut self, reads: Vec<LiveRead>) {
        let answered = reads.into_iter().map(|read| {
            let answer = answer(self.scene, &read);
            (read, answer)
        });
        self.reads.done.extend(answered);
    }
}

/// What a live read would say: everything was read a moment ago, so that it is
/// known already.
fn answer(scene: &Scene, read: &LiveRead) -> Result<(), ApiError> {
    let graph = &scene.graph;
    match read {
        // The graph has it, or has not.
        LiveRead::Object { .. } => {
            Err(ApiError::Other("it was read along with all others".to_owned()))
        }
        LiveRead::List { group, resource, namespace, .. } => {
            let Some(kind) = graph.kinds.find_resource(group, resource) else {
                return served_nowhere(scene, group);
            };
            let here = || scene.in_namespace.contains(&(kind, namespace.clone()));
            match graph.is_complete(kind) || here() {
                true => Ok(()),
                false => Err(ApiError::Other(graph.why_incomplete(kind).to_string())),
            }
        }
    }
}

/// Whether nobody serves a kind that discovery does not name, so that it has no
/// objects: as the reader has it that confirms what admission says.
fn served_nowhere(scene: &Scene, group: &str) -> Result<(), ApiError> {
    if scene.stale.contains(group) {
        return Err(ApiError::Other(SILENT.to_owned()));
    }
    // Kinds of Kubernetes' own have no CRD whose absence would prove it.
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
        let mut scene = Scene::empty();
        scene.stale.insert("silent.example.com".to_owned());
        let list = |group: &str| LiveRead::List {
            group: group.to_owned(),
            resource: "gizmos".to_owned(),
            namespace: String::new(),
            first: true,
        };
        assert_eq!(answer(&scene, &list("example.com")), Ok(()));
        assert_eq!(
            answer(&scene, &list("silent.example.com")),
            Err(ApiError::Other(SILENT.to_owned()))
        );
        assert_eq!(answer(&scene, &list("apps")), Err(ApiError::NotFound));
    }
}
