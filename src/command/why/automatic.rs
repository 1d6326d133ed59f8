//! Changes of a verdict that happen without any action: a blocking user is Terminating, or is a
//! Job that will finish; an approval expires; a Pause ends.

use jiff::Timestamp;

use crate::cluster::World;
use crate::decide::{Blocker, Cause, Decision, ObjectName, Verdict};
use crate::objects::{FOREGROUND, ORPHAN};

/// A sentence for each known automatic change.
pub fn automatic_changes(world: &World, verdict: &Verdict) -> Vec<String> {
    let mut changes = Vec::new();
    let deciding = verdict.deciding_blockers();
    for blocker in deciding.filter(|b| matches!(b.decision, Decision::Deny | Decision::Hold)) {
        let causes = blocker.causes.iter();
        changes.extend(causes.filter_map(|cause| cause_end(world, blocker, cause)));
    }
    let approvals = verdict.overrides.approvals.iter().filter(|_| verdict.decision.passes());
    changes.extend(approvals.filter_map(|name| approval_end(world, name)));
    if matches!(verdict.decision, Decision::Audit | Decision::Warn) {
        changes.extend(pause_end(world));
    }
    let mut distinct: Vec<String> = Vec::new();
    for change in changes {
        if !distinct.contains(&change) {
            distinct.push(change);
        }
    }
    distinct
}

/// How a cause ends without any action of the user.
fn cause_end(world: &World, blocker: &Blocker, cause: &Cause) -> Option<String> {
    let object = blocker.object.quoted();
    match cause {
        Cause::User { owner, .. } if is_deleted_automatically(world, owner) => Some(format!(
            "no action needed for {owner}: it is being deleted, and then no longer needs {object}"
        )),
        // A finished Job uses nothing, and neither do its Pods.
        Cause::User { owner, .. } if owner.object.is_of(("batch", "jobs")) => {
            Some(format!("once {owner} has ended, it no longer needs {object}"))
        }
        Cause::Content { object: name, .. } | Cause::Exists(name) | Cause::Dependent(name) => {
            let text = "it is being deleted, and then no longer blocks the delete";
            is_deleted_automatically(world, name)
                .then(|| format!("no action needed for {name}: {text}"))
        }
        _ => None,
    }
}

/// The finalizers that a controller of Kubernetes removes even if the user does nothing.
const REMOVED_AUTOMATICALLY: &[&str] = &[FOREGROUND, ORPHAN, "batch.kubernetes.io/job-tracking"];

/// Whether an object is Terminating and has only finalizers that never need an action of a user.
/// belay's hold and the protection finalizers may need one.
fn is_deleted_automatically(world: &World, ObjectName { object, .. }: &ObjectName) -> bool {
    world.graph.object_by_ref(object).is_some_and(|node| {
        let mut finalizers = node.finalizers().iter();
        node.is_terminating() && finalizers.all(|name| REMOVED_AUTOMATICALLY.contains(&name))
    })
}

/// When an approval expires.
fn approval_end(world: &World, name: &str) -> Option<String> {
    let approval = world.policies.approvals.iter().find(|approval| approval.name == name)?;
    let until = Timestamp::from_second(approval.expires).ok()?;
    Some(format!("approval {name} expires at {until}; then the delete needs a new approval"))
}

/// When the active pause ends.
fn pause_end(world: &World) -> Option<String> {
    let pause = world.policies.pause(world.clock.now().as_second())?;
    let (by, until) = (&pause.by, pause.until());
    Some(format!("the pause by {by} ends at {until}; until then belay refuses nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Reason;
    use crate::graph::{Edges, ObjectPhase};
    use crate::objects::{HOLD, Kinds, Object, ObjectRef, Uid};
    use crate::policy::{Approval, Approvals, Pause, PolicySource};

    fn target() -> ObjectRef {
        ObjectRef::new(("", "secrets"), "shop", "key")
    }

    fn user(kind: &str) -> Cause {
        let kinds = Kinds::default();
        let found = ["", "apps", "batch"].into_iter().find_map(|group| kinds.find(group, kind));
        let object = ObjectRef::of_kind(kinds.info(found.unwrap()), "shop", "web");
        let owner = ObjectName { kind: kind.to_owned(), object };
        Cause::User { owner, user: None, path: "spec".to_owned() }
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
            ["no action needed for Pod shop/web: it is being deleted, and then no longer needs \
              secrets \"key\""]
        );
        for finalizer in [HOLD, "kubernetes.io/pvc-protection", "db.example.net/drop"] {
            let kept = format!(
                r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["{finalizer}"]}}}}"#
            );
            let kept = world("", "Pod", &kept);
            assert_eq!(automatic_changes(&kept, &refused(vec![user("Pod")])), [""; 0]);
        }
        assert_eq!(
            automatic_changes(&world("batch", "Job", living), &refused(vec![user("Job")])),
            ["once Job shop/web has ended, it no longer needs secrets \"key\""]
        );
    }

    #[test]
    fn the_end_of_an_approval_does_not_read_as_the_end_of_the_block() {
        let mut world = World::default();
        let approval = Approval {
            name: "a".to_owned(),
            uid: "u-a".to_owned(),
            approver: "alice".to_owned(),
            target: target(),
            target_uid: Uid::new("u"),
            content: false,
            exempts: Vec::new(),
            version: 0,
            created: 0,
            expires: 0,
        };
        world.policies.approvals = Approvals::new([approval]);
        let mut allowed = Verdict::allow(target());
        allowed.overrides.approvals = vec!["a".to_owned()];
        let says =
            "approval a expires at 1970-01-01T00:00:00Z; then the delete needs a new approval";
        assert_eq!(automatic_changes(&world, &allowed), [says]);
        // The approval of an object in a Namespace whose delete is denied.
        let mut denied = refused(vec![user("Pod")]);
        denied.overrides.approvals = allowed.overrides.approvals;
        assert_eq!(automatic_changes(&world, &denied), [""; 0]);
    }

    #[test]
    fn a_pause_is_reported_with_its_end() {
        let mut world = World::default();
        let expires = Timestamp::now().as_second() + 600;
        let pause = Pause { by: "bob".to_owned(), expires, ..Pause::default() };
        world.policies.pauses = vec![pause];
        let mut noted = refused(vec![Cause::Always]);
        noted.decision = Decision::Audit;
        let text = automatic_changes(&world, &noted).join("\n");
        assert!(text.starts_with("the pause by bob ends at ") && text.ends_with("nothing"));
        assert_eq!(automatic_changes(&World::default(), &noted), [""; 0]);
    }
}
