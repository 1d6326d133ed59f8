//! What of it changes by itself: what stands against the end of an object and
//! goes anyway, and what runs out.

use jiff::Timestamp;

use crate::cluster::World;
use crate::decide::{Blocker, Cause, Decision, ObjectName, Verdict};

/// Sentences about what is known to change; of everything else nothing.
pub fn by_itself(world: &World, verdict: &Verdict) -> Vec<String> {
    let mut says = Vec::new();
    let deciding = verdict.blockers.iter().filter(|b| b.outcome == verdict.decision);
    for blocker in deciding.filter(|b| matches!(b.outcome, Decision::Deny | Decision::Hold)) {
        let of_causes = blocker.causes.iter().filter_map(|cause| ends(world, blocker, cause));
        says.extend(of_causes);
    }
    says.extend(verdict.overrides.approvals.iter().filter_map(|name| approval(world, name)));
    if matches!(verdict.decision, Decision::Audit | Decision::Warn) {
        says.extend(pause(world));
    }
    let mut told: Vec<String> = Vec::new();
    for said in says {
        if !told.contains(&said) {
            told.push(said);
        }
    }
    told
}

/// How a cause ends with nobody doing anything more.
fn ends(world: &World, blocker: &Blocker, cause: &Cause) -> Option<String> {
    let object = blocker.object.quoted();
    match cause {
        Cause::User { root, .. } if is_going(world, root) => Some(format!(
            "{root} is Terminating: once it is gone it does not need {object} any more"
        )),
        // A Job that has ended uses nothing, and neither do its Pods.
        Cause::User { root, .. } if is_job(world, root) => {
            Some(format!("once {root} has ended it does not need {object} any more"))
        }
        Cause::Content { object: named, .. } | Cause::Exists(named) | Cause::Dependent(named) => {
            let says = "is Terminating: once it is gone it is in nobody's way";
            is_going(world, named).then(|| format!("{named} {says}"))
        }
        _ => None,
    }
}

/// Whether all objects that this may be are Terminating. A name says no group,
/// so there may be several.
fn is_going(world: &World, ObjectName { kind, namespace, name }: &ObjectName) -> bool {
    let graph = &world.graph;
    let kinds = graph.kinds.iter().filter(|(_, info)| info.kind == *kind);
    let nodes = kinds.filter_map(|(id, _)| graph.object(id, namespace, name));
    let going: Vec<bool> = nodes.map(|node| node.is_terminating()).collect();
    !going.is_empty() && going.iter().all(|going| *going)
}

/// Whether this is a Job of Kubernetes' own: others may be called so, too.
fn is_job(world: &World, ObjectName { kind, namespace, name }: &ObjectName) -> bool {
    let graph = &world.graph;
    let job = graph.kinds.find("batch", "Job").filter(|_| kind == "Job");
    job.is_some_and(|job| graph.object(job, namespace, name).is_some())
}

/// Until when an approval is good.
fn approval(world: &World, name: &str) -> Option<String> {
    let approval = world.policies.approvals.iter().find(|approval| approval.name == name)?;
    let until = Timestamp::from_second(approval.expires).ok()?;
    Some(format!("approval {name} ends at {until}"))
}

/// Until when nothing is refused.
fn pause(world: &World) -> Option<String> {
    let pause = world.policies.pause(world.clock.now().as_second())?;
    let (by, until) = (&pause.by, pause.until());
    Some(format!("the pause by {by} ends at {until}: until then nothing is refused"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Reason;
    use crate::graph::{Edges, Progress};
    use crate::objects::{Object, ObjectRef};
    use crate::policy::{Pause, Source};

    fn target() -> ObjectRef {
        ObjectRef::new(("", "secrets"), "shop", "key")
    }

    fn user(kind: &str) -> Cause {
        let root = ObjectName {
            kind: kind.to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        Cause::User { root, through: None, path: "spec".to_owned() }
    }

    fn refused(causes: Vec<Cause>) -> Verdict {
        let blocker = Blocker {
            outcome: Decision::Deny,
            reason: Reason::InUse,
            policies: vec![Source::Policy("p".to_owned())],
            object: target(),
            causes,
            more: 0,
            people: 1,
            is_content: false,
        };
        Verdict::from_blockers(target(), vec![blocker])
    }

    /// A world with this object shop/web in it.
    fn world(group: &str, kind: &str, json: &str) -> World {
        let mut world = World::default();
        let kind = world.graph.kinds.find(group, kind).unwrap();
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        world.graph.apply(kind, &object, Progress::Ordinary, Edges::default());
        world
    }

    #[test]
    fn what_goes_by_itself_is_said_and_nothing_else() {
        let living = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}"#;
        let going = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}}"#;
        let lives = world("", "Pod", living);
        assert_eq!(by_itself(&lives, &refused(vec![user("Pod"), user("Job")])), [""; 0]);
        let goes = world("", "Pod", going);
        assert_eq!(by_itself(&goes, &refused(vec![user("Deployment"), Cause::Always])), [""; 0]);
        assert_eq!(
            by_itself(&goes, &refused(vec![user("Pod"), user("Pod")])),
            [
                "Pod shop/web is Terminating: once it is gone it does not need secrets \"key\" any more"
            ]
        );
        assert_eq!(
            by_itself(&world("batch", "Job", living), &refused(vec![user("Job")])),
            ["once Job shop/web has ended it does not need secrets \"key\" any more"]
        );
    }

    #[test]
    fn a_pause_is_told_with_its_end() {
        let mut world = World::default();
        let expires = Timestamp::now().as_second() + 600;
        let pause = Pause { by: "bob".to_owned(), expires, ..Pause::default() };
        world.policies.pauses = vec![pause];
        let mut noted = refused(vec![Cause::Always]);
        noted.decision = Decision::Audit;
        let said = by_itself(&world, &noted).join("\n");
        assert!(said.starts_with("the pause by bob ends at ") && said.ends_with("refused"));
        assert_eq!(by_itself(&World::default(), &noted), [""; 0]);
    }
}
