//! The verdict on the whole set, by the code that decides admission.

use super::scene::{Rules, Scene};
use crate::cluster::Trouble;
use crate::command::document::Word;
use crate::command::target::SILENT;
use crate::decide::{
    Decision, DeleteOptions, Door, Extra, Live, LiveRead, LiveReads, Operation, Resource, Review,
    Situation, User, Verdict, decide_together,
};
use crate::graph::{Node, Propagation};
use crate::objects::Kinds;

/// How often a verdict may ask for more before it is final.
const ROUNDS: usize = 6;

/// The verdict, and the word for it.
pub struct Ruling {
    /// The word.
    pub word: Word,
    /// The verdict; none where nobody decides.
    pub verdict: Option<Verdict>,
}

/// What is said of deleting all targets, in this way.
pub fn ruling(scene: &Scene, cascade: Option<Propagation>) -> Ruling {
    match (&scene.rules, &scene.person) {
        _ if scene.targets.is_empty() && scene.unseen.is_empty() => {
            return Ruling { word: Word::Allow, verdict: None };
        }
        (Rules::Unknown, _) => return Ruling { word: Word::Unknown, verdict: None },
        (Rules::None, Some(_)) => return Ruling { word: Word::NoPolicies, verdict: None },
        _ => {}
    }
    if scene.targets.is_empty() {
        return Ruling { word: Word::Unknown, verdict: None };
    }
    let verdict = verdict(scene, cascade);
    let word = match verdict.decision {
        // Those that could not be looked for may be refused.
        decision if decision != Decision::Deny && !scene.unseen.is_empty() => Word::Unknown,
        // The label protects with no policy written; nothing else does.
        Decision::Allow if scene.rules == Rules::None => Word::NoPolicies,
        Decision::Deny if verdict.is_unknown() => Word::Unknown,
        decision => decision.into(),
    };
    Ruling { word, verdict: Some(verdict) }
}

fn verdict(scene: &Scene, cascade: Option<Propagation>) -> Verdict {
    let graph = &scene.graph;
    let nodes: Vec<Node<'_>> = scene.targets.iter().filter_map(|id| graph.get(*id)).collect();
    let (name, groups) = match &scene.person {
        Some((_, me)) => (me.name.as_str(), me.groups.as_slice()),
        None => ("", &[][..]),
    };
    let policy = cascade.map(|cascade| match cascade {
        Propagation::Background => "Background".into(),
        Propagation::Foreground => "Foreground".into(),
        Propagation::Orphan => "Orphan".into(),
    });
    let review = Review {
        uid: "".into(),
        door: Door::Validate,
        operation: Operation::Delete,
        resource: Resource::default(),
        name: "".into(),
        namespace: "".into(),
        user: User {
            name: name.into(),
            groups: groups.iter().map(|group| group.as_str().into()).collect(),
        },
        dry_run: true,
        options: DeleteOptions { propagation_policy: policy, orphan_dependents: None },
        object: None,
        old_object: None,
        // Of a Namespace that is Terminating: it still has the one that every
        // Namespace has.
        extra: Extra { old_spec_finalizers: vec!["kubernetes".to_owned()], ..Extra::default() },
        labelled: false,
    };
    let now = match &scene.person {
        Some((_, me)) => me.now.as_second(),
        None => jiff::Timestamp::now().as_second(),
    };
    let mut reads = LiveReads::default();
    for _ in 0..ROUNDS {
        let live = if scene.person.is_some() { Live::Read(&reads) } else { Live::Graph };
        let situation = Situation::new(graph, &scene.policies, live, now);
        // Everything here was read with the rights of the user, or from files.
        let verdict = decide_together(&situation, &review, &nodes).in_full();
        if verdict.confirm.is_empty() {
            return verdict;
        }
        for read in verdict.confirm {
            let answer = answer(scene, &read);
            reads.done.insert(read, answer);
        }
    }
    // What is asked for again and again cannot be told.
    let situation = Situation::new(graph, &scene.policies, Live::Graph, now);
    decide_together(&situation, &review, &nodes).in_full()
}

/// What a live read would say: everything was read a moment ago, so that it is
/// known already.
fn answer(scene: &Scene, read: &LiveRead) -> Result<(), String> {
    let graph = &scene.graph;
    match read {
        // The graph has it, or has not.
        LiveRead::Object { .. } => Err("it was read along with all others".to_owned()),
        LiveRead::List { group, resource, namespace, .. } => {
            let Some(kind) = graph.kinds.find_resource(group, resource) else {
                return served_nowhere(scene, group);
            };
            let here = || scene.in_namespace.contains(&(kind, namespace.clone()));
            match graph.is_complete(kind) || here() {
                true => Ok(()),
                false => Err(graph.why_incomplete(kind).to_string()),
            }
        }
    }
}

/// Whether nobody serves a kind that discovery does not name, so that it has no
/// objects: as the reader has it that confirms what admission says.
fn served_nowhere(scene: &Scene, group: &str) -> Result<(), String> {
    if scene.stale.contains(group) {
        return Err(SILENT.to_owned());
    }
    // Kinds of Kubernetes' own have no CRD whose absence would prove it.
    match Kinds::is_built_in_group(group) {
        true => Err(Trouble::NotFound.words()),
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
        assert_eq!(answer(&scene, &list("silent.example.com")), Err(SILENT.to_owned()));
        assert_eq!(answer(&scene, &list("apps")), Err(Trouble::NotFound.words()));
    }
}
