//! Automatic changes: the blockers of an object that are deleted or end anyway, and the
//! approvals and pauses that expire.

use jiff::Timestamp;

use crate::cluster::World;
use crate::decide::{Blocker, Cause, Decision, ObjectName, Verdict};

/// Sentences about the known automatic changes.
pub fn automatic_changes(world: &World, verdict: &Verdict) -> Vec<String> {
    let mut says = Vec::new();
    let deciding = verdict.blockers.iter().filter(|b| b.decision == verdict.decision);
    for blocker in deciding.filter(|b| matches!(b.decision, Decision::Deny | Decision::Hold)) {
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

/// How a cause ends without any further action.
fn ends(world: &World, blocker: &Blocker, cause: &Cause) -> Option<String> {
    let object = blocker.object.quoted();
    match cause {
        Cause::User { root, .. } if is_terminating(world, root) => {
            Some(format!("{root} is Terminating: once it is gone, it no longer needs {object}"))
        }
        // A finished Job uses nothing, and neither do its Pods.
        Cause::User { root, .. } if root.object.is_of(("batch", "jobs")) => {
            Some(format!("once {root} has ended, it no longer needs {object}"))
        }
        Cause::Content { object: named, .. } | Cause::Exists(named) | Cause::Dependent(named) => {
            let says = "is Terminating: once it is gone, it does not block the delete";
            is_terminating(world, named).then(|| format!("{named} {says}"))
        }
        _ => None,
    }
}

/// Whether an object is Terminating.
fn is_terminating(world: &World, ObjectName { object, .. }: &ObjectName) -> bool {
    world.graph.object_by_ref(object).is_some_and(|node| node.is_terminating())
}

/// Until when an approval is good.
fn approval(world: &World, name: &str) -> Option<String> {
    let approval = world.policies.approvals.iter().find(|approval| approval.name == name)?;
    let until = Timestamp::from_second(approval.expires).ok()?;
    Some(format!("approval {name} expires at {until}"))
}

/// The end of the active pause.
fn pause(world: &World) -> Option<String> {
    let pause = world.policies.pause(world.clock.now().as_second())?;
    let (by, until) = (&pause.by, pause.until());
    Some(format!("the pause by {by} ends at {until}; until then belay refuses nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Reason;
    use crate::graph::{Edges, ObjectPhase};
    use crate::objects::{Kinds, Object, ObjectRef};
    use crate::policy::{Pause, PolicySource};

    fn target() -> ObjectRef {
        ObjectRef::new(("", "secrets"), "shop", "key")
    }

    fn user(kind: &str) -> Cause {
        let kinds = Kinds::default();
        let found = ["", "apps", "batch"].into_iter().find_map(|group| kinds.find(group, kind));
        let object = ObjectRef::of_kind(kinds.info(found.unwrap()), "shop", "web");
        let root = ObjectName { kind: kind.to_owned(), object };
        Cause::User { root, through: None, path: "spec".to_owned() }
    }

    fn refused(causes: Vec<Cause>) -> Verdict {
        let blocker = Blocker {
            policies: vec![PolicySource::Policy("p".to_owned())],
            causes,
            ..Blocker::new(Decision::Deny, Reason::InUse, target())
        };
        Verdict::from_blockers(target(), vec![blocker])
    }

    /// A world with this object shop/web in it.
    fn world(group: &str, kind: &str, json: &str) -> World {
        let mut world = World::default();
        let kind = world.graph.kinds.find(group, kind).unwrap();
        let object: Object<'_> = serde_json::from_str(json).unwrap();
        world.graph.apply(kind, &object, ObjectPhase::Active, Edges::default());
        world
    }

    #[test]
    fn only_automatic_changes_are_reported() {
        let living = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}"#;
        let going = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}}"#;
        let lives = world("", "Pod", living);
        assert_eq!(automatic_changes(&lives, &refused(vec![user("Pod")])), [""; 0]);
        let goes = world("", "Pod", going);
        assert_eq!(
            automatic_changes(&goes, &refused(vec![user("Deployment"), Cause::Always])),
            [""; 0]
        );
        assert_eq!(
            automatic_changes(&goes, &refused(vec![user("Pod"), user("Pod")])),
            ["Pod shop/web is Terminating: once it is gone, it no longer needs secrets \"key\""]
        );
        assert_eq!(
            automatic_changes(&world("batch", "Job", living), &refused(vec![user("Job")])),
            ["once Job shop/web has ended, it no longer needs secrets \"key\""]
        );
    }

    #[test]
    fn a_pause_is_reported_with_its_end() {
        let mut world = World::default();
        let expires = Timestamp::now().as_second() + 600;
        let pause = Pause { by: "bob".to_owned(), expires, ..Pause::default() };
        world.policies.pauses = vec![pause];
        let mut noted = refused(vec![Cause::Always]);
        noted.decision = Decision::Audit;
        let said = automatic_changes(&world, &noted).join("\n");
        assert!(said.starts_with("the pause by bob ends at ") && said.ends_with("nothing"));
        assert_eq!(automatic_changes(&World::default(), &noted), [""; 0]);
    }
}
