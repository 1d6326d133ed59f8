//! Which users count, and which reads a count needs.

mod bounds;
mod owners;

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::decide::{ListPart, ObjectSource};
use crate::graph::Graph;
use crate::objects::{ApiError, HOLD, ObjectRef, Uid, Unreadable, split_api_version};
use crate::policy::{Approval, Approvals, Pause, Policy, PolicySet, PolicySource};
use crate::relations::Catalogue;

/// The time of the deletion of the target.
const DELETED: i64 = 1_767_268_800;

/// The time of the count.
const NOW: i64 = DELETED + 60;

struct World {
    catalogue: Catalogue,
    policies: PolicySet,
    /// The graph of the watches.
    watched: Graph,
    policies_known: bool,
    reads: LiveReads,
}

fn kinds() -> Kinds {
    let mut kinds = Kinds::default();
    kinds.learn(Kinds::custom("example.com", "v1", "Database", "databases", true));
    kinds
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(DELETED + seconds).unwrap().to_string()
}

fn object(kind: &str, name: &str, more: Value) -> Value {
    let api_version = match kind {
        "Deployment" | "ReplicaSet" => "apps/v1",
        "Database" => "example.com/v1",
        _ => "v1",
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": name, "namespace": "a", "uid": name, "creationTimestamp": time(-60),
    }});
    json_patch::merge(&mut object, &more);
    object
}

fn pod(name: &str, more: Value) -> Value {
    let mut pod =
        object("Pod", name, json!({"spec": {"volumes": [{"secret": {"secretName": "s"}}]}}));
    json_patch::merge(&mut pod, &more);
    pod
}

fn owned(kind: &str, name: &str) -> Value {
    let owner = object(kind, name, json!({}));
    let owner = json!({
        "apiVersion": owner["apiVersion"], "kind": kind, "name": name, "uid": name,
        "controller": true,
    });
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn feed(catalogue: &Catalogue, graph: &mut Graph, manifest: &Value) {
    let (group, _) = split_api_version(manifest["apiVersion"].as_str().unwrap());
    let kind = graph.kinds.find(group, manifest["kind"].as_str().unwrap()).unwrap();
    catalogue.parse_and_apply(graph, kind, &manifest.to_string()).unwrap();
}

impl World {
    fn new(policies: Value) -> Self {
        let catalogue = Catalogue::new(&kinds(), &[]).unwrap();
        let compile = |spec: &Value| {
            let mut spec = spec.clone();
            spec["targets"] = json!([{"apiGroups": [""], "resources": ["secrets"]}]);
            if let Some(namespaces) = spec.as_object_mut().unwrap().remove("namespaces") {
                spec["targets"][0]["namespaceSelector"] = namespaces;
            }
            Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap()
        };
        let policies = policies.as_array().unwrap().iter().map(compile).collect();
        let policies = PolicySet::new(policies, &catalogue);
        let mut world = Self {
            catalogue,
            policies,
            policies_known: true,
            watched: Graph::new(kinds()),
            reads: LiveReads { graph: Graph::new(kinds()), results: HashMap::new() },
        };
        let target = object(
            "Secret",
            "s",
            json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [HOLD]}}),
        );
        feed(&world.catalogue, &mut world.watched, &target);
        feed(&world.catalogue, &mut world.reads.graph, &without_hold(&target));
        world
    }

    fn while_used() -> Self {
        Self::new(json!([{"protect": {"whileUsed": {}}}]))
    }

    fn situation(&self) -> Situation<'_> {
        let (graph, policies) = (&self.watched, &self.policies);
        Situation::new(graph, policies, ObjectSource::Cluster(&self.reads), NOW)
    }

    fn count(&self) -> UseCheck {
        let kind = self.reads.graph.kinds.find("", "Secret").unwrap();
        let target = self.reads.graph.find(kind, "a", "s").unwrap();
        check_use(&self.situation(), self.policies_known, &self.reads, target)
    }

    fn needed_reads(&self) -> Vec<LiveRead> {
        match self.count() {
            UseCheck::NeedsReads(reads) => reads.concat(),
            other => panic!("{other:?}"),
        }
    }

    /// Marks these reads as successful. They find the objects in the graph.
    fn read(&mut self, reads: Vec<LiveRead>) {
        for read in reads {
            let (LiveRead::List { group, resource, .. }
            | LiveRead::Object(ObjectRef { group, resource, .. })) = &read;
            let kind = self.reads.graph.kinds.find_resource(group, resource).unwrap();
            self.reads.graph.set_complete(kind, true);
            self.reads.results.insert(read, Ok(()));
        }
    }

    /// Reads all lists, which contain these objects.
    fn with_listed(mut self, objects: &[Value]) -> Self {
        self.read(self.needed_reads());
        for object in objects {
            feed(&self.catalogue, &mut self.reads.graph, object);
        }
        self
    }

    fn causes(&self) -> Vec<String> {
        match self.count() {
            UseCheck::InUse(causes) => causes
                .iter()
                .map(|cause| match cause {
                    Cause::User { owner, user: None, .. } => owner.to_string(),
                    Cause::User { owner, user: Some(user), .. } => format!("{owner} {user}"),
                    other => format!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

const UNUSED: UseCheck = UseCheck::Releasable(ReleaseReason::Unused);

#[test]
fn controllers_are_listed_before_the_objects_that_they_create() {
    let world = World::while_used();
    let reads = world.needed_reads();
    let names: Vec<&str> = reads
        .iter()
        .map(|read| match read {
            LiveRead::List { resource, part: ListPart::All, .. } => resource.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    let position =
        |name: &str| names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{names:?}"));
    for pair in [
        ["deployments", "replicasets"],
        ["replicasets", "pods"],
        ["cronjobs", "jobs"],
        ["jobs", "pods"],
        ["statefulsets", "pods"],
        ["pods", "persistentvolumes"],
    ] {
        assert!(position(pair[0]) < position(pair[1]), "{names:?}");
    }
    assert_eq!(world.with_listed(&[]).count(), UNUSED);
}

#[test]
fn the_reads_that_several_objects_need_have_one_order() {
    let [deployments, pods, more_pods] =
        [("apps", "deployments", "a"), ("", "pods", "a"), ("", "pods", "b")].map(
            |(group, resource, namespace)| LiveRead::List {
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                part: ListPart::All,
            },
        );
    let reads = vec![pods.clone(), deployments.clone(), more_pods.clone()];
    assert_eq!(into_batches(reads), [vec![deployments], vec![pods, more_pods]]);
}

#[test]
fn an_object_that_cannot_be_read_may_be_a_user_in_its_namespace() {
    for (namespace, is_kept) in [("a", true), ("b", false)] {
        let mut world = World::while_used().with_listed(&[]);
        let pods = world.reads.graph.kinds.find("", "Pod").unwrap();
        let name = Some((namespace.to_owned(), "bad".to_owned()));
        let bad = Unreadable { name, ..Unreadable::of_unknown_name() };
        world.reads.graph.set_unreadable(pods, &bad);
        let unknown = UnknownUse::UnreadableUser("Pod a/bad can't be read".to_owned());
        assert_eq!(unknown.to_string(), "Pod a/bad can't be read, so it may use the object");
        let expected = if is_kept { UseCheck::Unknown(unknown) } else { UNUSED };
        assert_eq!(world.count(), expected);
    }
}

#[test]
fn an_object_with_too_many_references_may_be_a_user_in_its_namespace() {
    for (count, expected) in [
        (4_000, UNUSED),
        (
            4_001,
            UseCheck::Unknown(UnknownUse::UnreadableUser(
                "Pod a/p has more than 4000 references".to_owned(),
            )),
        ),
    ] {
        let sources = (0..count).map(|n| json!({"configMap": {"name": format!("c{n}")}}));
        let sources: Vec<_> = sources.collect();
        let spec = json!({"spec": {"volumes": [{"projected": {"sources": sources}}]}});
        assert_eq!(World::while_used().with_listed(&[object("Pod", "p", spec)]).count(), expected);
    }
}

#[test]
fn an_unprotected_object_is_released_without_reads() {
    let count = |policies| World::new(policies).count();
    let unprotected = UseCheck::Releasable(ReleaseReason::Unprotected);
    assert_eq!(count(json!([])), unprotected);
    assert_eq!(count(json!([{"protect": {"whileUsed": {}}, "action": "Audit"}])), unprotected);
    assert_eq!(count(json!([{"protect": {"whileUsed": {}}, "action": "Warn"}])), unprotected);
    assert_eq!(count(json!([{"protect": {"fromOrphaning": {}}}])), unprotected);
    let mut world = World::while_used();
    world.policies.pauses = vec![Pause { expires: NOW + 1, ..Pause::default() }];
    assert!(
        matches!(world.count(), UseCheck::NeedsReads(_)),
        "a pause releases nothing that is held"
    );
}

/// Without the CRD of policies, no policy seems to exist.
#[test]
fn unread_policies_release_nothing() {
    let mut world = World::new(json!([]));
    world.policies_known = false;
    assert_eq!(world.count(), UseCheck::Unknown(UnknownUse::PoliciesUnread));
}

/// The API server sets the creation time after other webhooks have answered, which may take as
/// long as a write. Within settle, no object counts as new.
#[test]
fn a_create_that_began_before_the_delete_is_no_newcomer_within_settle() {
    let policies = json!([{"protect": {"whileUsed": {}}, "settleSeconds": 45}]);
    let created_at = |seconds| pod("p", json!({"metadata": {"creationTimestamp": time(seconds)}}));
    assert_eq!(World::new(policies.clone()).with_listed(&[created_at(50)]).causes(), ["Pod a/p"]);
    assert_eq!(World::new(policies).with_listed(&[created_at(51)]).count(), UNUSED);
}

#[test]
fn always_keeps_the_object_until_it_is_approved() {
    let mut world = World::new(json!([{"protect": {"always": {}, "whileUsed": {}}}]));
    assert_eq!(world.count(), UseCheck::InUse(vec![Cause::Always]));
    world.policies.approvals = Approvals::new([approval("bob")]);
    assert_eq!(world.count(), UseCheck::Releasable(ReleaseReason::Approved));
}

fn approval(approver: &str) -> Approval {
    Approval {
        name: "yes".into(),
        uid: "1".into(),
        approver: approver.into(),
        target: ObjectRef::new(("", "secrets"), "a", "s"),
        target_uid: Uid::new("s"),
        content: true,
        exempts: vec![PolicySource::Policy("p".into())],
        version: 0,
        created: NOW - 60,
        expires: NOW + 60,
    }
}

/// Any client that can post to the webhook can make belay write such a record.
#[test]
fn h02_the_record_of_an_exemption_releases_no_hold() {
    let exempt = json!([{"kind": "User", "name": "carol"}]);
    let mut world = World::new(json!([{"protect": {"whileUsed": {}}, "exemptSubjects": exempt}]));
    world = world.with_listed(&[pod("p", json!({}))]);
    world.policies.identities.own = Some("belay".to_owned());
    world.policies.approvals = Approvals::new([approval("belay")]);
    assert_eq!(world.causes(), ["Pod a/p"]);

    // So a policy that exempts a subject and requires an approval keeps no hold.
    let always = json!({"protect": {"always": {}}, "exemptSubjects": exempt});
    assert_eq!(
        World::new(json!([always])).count(),
        UseCheck::Releasable(ReleaseReason::Unprotected)
    );
    let used = json!({"protect": {"whileUsed": {}}});
    assert_eq!(World::new(json!([always, used])).with_listed(&[]).count(), UNUSED);
}

#[test]
fn an_unknown_user_keeps_the_object() {
    let namespaces = json!({"matchLabels": {"env": "prod"}});
    let world = World::new(json!([{"protect": {"whileUsed": {}}, "namespaces": namespaces}]));
    assert_eq!(world.count(), UseCheck::Unknown(UnknownUse::NamespaceLabels("a".to_owned())));
    let mut world = World::while_used().with_listed(&[]);
    let list =
        world.reads.results.keys().find(
            |read| matches!(read, LiveRead::List { resource, .. } if resource == "replicasets"),
        );
    let list = list.unwrap().clone();
    world.reads.results.insert(list, Err(ApiError::Forbidden("403 Forbidden".into())));
    let UseCheck::Unknown(why) = world.count() else { panic!("it was released") };
    assert_eq!(
        why.to_string(),
        "belay could not list the objects of kind ReplicaSet, and one of them may use the \
         object: 403 Forbidden"
    );
}

#[test]
fn users_count_unless_they_have_finished() {
    let done = pod("done", json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(World::while_used().with_listed(std::slice::from_ref(&done)).count(), UNUSED);
    let world = World::while_used().with_listed(&[done, pod("p", json!({}))]);
    assert_eq!(world.causes(), ["Pod a/p"]);
    // A Terminating user counts while its owner can replace it.
    let mut terminating = pod("q", json!({"metadata": {"deletionTimestamp": time(0)}}));
    json_patch::merge(&mut terminating, &owned("ReplicaSet", "r"));
    let owner = object("ReplicaSet", "r", json!({}));
    let world = World::while_used().with_listed(&[terminating, owner]);
    assert_eq!(world.causes(), ["ReplicaSet a/r Pod a/q"]);
}

/// A world with another policy, for this resource.
fn with_policy_for(resource: &str, protect: Value) -> World {
    let mut world = World::while_used();
    let spec =
        json!({"targets": [{"apiGroups": [""], "resources": [resource]}], "protect": protect});
    let used = json!({"targets": [{"apiGroups": [""], "resources": ["secrets"]}], "protect": {"whileUsed": {}}});
    let compile = |name: &str, spec: Value| {
        Policy::compile(name, &serde_json::from_value(spec).unwrap()).unwrap()
    };
    let policies = vec![compile("p", used), compile("other", spec)];
    world.policies = PolicySet::new(policies, &world.catalogue);
    world
}

/// A Pod that uses the target and has this owner.
fn owned_pod(name: &str, owner: (&str, &str)) -> Value {
    let mut pod = pod(name, json!({}));
    json_patch::merge(&mut pod, &owned(owner.0, owner.1));
    pod
}

#[test]
fn h20_a_dependent_whose_delete_is_denied_counts() {
    let dependent = || owned_pod("p", ("Secret", "s"));
    assert_eq!(World::while_used().with_listed(&[dependent()]).count(), UNUSED);
    let always = || with_policy_for("pods", json!({"always": {}})).with_listed(&[dependent()]);
    assert_eq!(always().causes(), ["Pod a/p"]);

    // A label protects as well.
    let mut labelled = dependent();
    labelled["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    assert_eq!(World::while_used().with_listed(&[labelled]).causes(), ["Pod a/p"]);

    // With an approval of the Pod, the garbage collector deletes it.
    let mut world = always();
    let of_pod = Approval {
        target: ObjectRef::new(("", "pods"), "a", "p"),
        target_uid: Uid::new("p"),
        ..approval("bob")
    };
    world.policies.approvals = Approvals::new([of_pod]);
    assert_eq!(world.count(), UNUSED);
}

#[test]
fn h20_dependents_and_owners_of_a_protected_dependent_count() {
    let mut protected = object("ReplicaSet", "r", owned("Secret", "s"));
    protected["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let below = owned_pod("below", ("ReplicaSet", "r"));
    let world = World::while_used().with_listed(&[protected, below]);
    assert_eq!(world.causes(), ["ReplicaSet a/r Pod a/below"]);

    // The DELETE of the Pod would cascade to a protected object.
    let mut protected = object("ReplicaSet", "r", owned("Pod", "above"));
    protected["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let world = World::while_used().with_listed(&[owned_pod("above", ("Secret", "s")), protected]);
    assert_eq!(world.causes(), ["Pod a/above"]);

    // Other dependents of the target are deleted.
    let mut protected = object("ReplicaSet", "r", owned("Secret", "s"));
    protected["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let beside = owned_pod("beside", ("Secret", "s"));
    let world = World::while_used().with_listed(&[protected, beside]);
    assert_eq!(world.count(), UNUSED);
}

#[test]
fn h20_a_dependent_in_use_counts_if_belay_denies_its_delete() {
    // Pods have no hold. This one is not in use.
    let used = json!({"whileUsed": {}});
    let mut world =
        with_policy_for("pods", used.clone()).with_listed(&[owned_pod("p", ("Secret", "s"))]);
    // The count reads the kinds that can use Pods.
    while let UseCheck::NeedsReads(reads) = world.count() {
        world.read(reads.concat());
    }
    assert_eq!(world.count(), UNUSED);
    // A ServiceAccount that another Pod uses, without a hold and with one.
    let account = |finalizers: Value| {
        let mut account = object("ServiceAccount", "bot", owned("Secret", "s"));
        account["imagePullSecrets"] = json!([{"name": "s"}]);
        account["metadata"]["finalizers"] = finalizers;
        account
    };
    let user = object("Pod", "q", json!({"spec": {"serviceAccountName": "bot"}}));
    let with_account = |objects: &[Value]| {
        let mut world = with_policy_for("serviceaccounts", used.clone()).with_listed(objects);
        while let UseCheck::NeedsReads(reads) = world.count() {
            world.read(reads.concat());
        }
        world
    };
    let without_hold = account(json!([]));
    assert_eq!(with_account(std::slice::from_ref(&without_hold)).count(), UNUSED);
    assert_eq!(with_account(&[without_hold, user.clone()]).causes(), ["ServiceAccount a/bot"]);
    let held = [account(json!([HOLD])), user];
    assert_eq!(with_account(&held).causes(), ["ServiceAccount a/bot"], "belay denies its DELETE");
    let hold = json!({"whileUsed": {"onDelete": "Hold"}});
    let mut world = with_policy_for("serviceaccounts", hold).with_listed(&held);
    while let UseCheck::NeedsReads(reads) = world.count() {
        world.read(reads.concat());
    }
    assert_eq!(world.count(), UNUSED);
    // A policy that does not bind the garbage collector does not deny its DELETEs.
    let bob = json!([{"kind": "User", "name": "bob"}]);
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["pods"]}],
        "subjects": bob, "protect": {"always": {}}});
    let for_bob = Policy::compile("for-bob", &serde_json::from_value(spec).unwrap()).unwrap();
    assert!(!for_bob.binds_collector_under_any_name());
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["pods"]}],
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts"}], "protect": {"always": {}}});
    let for_accounts =
        Policy::compile("for-accounts", &serde_json::from_value(spec).unwrap()).unwrap();
    assert!(for_accounts.binds_collector_under_any_name());
}

/// An older API server may lack a built-in kind. For a custom kind, only a read proves that it
/// has no objects.
#[test]
fn a_built_in_kind_that_is_not_served_has_no_objects() {
    let mut world = World::while_used();
    let kind = world.watched.kinds.find("", "Pod").unwrap();
    assert!(world.needed_reads().iter().any(|read| format!("{read:?}").contains("\"pods\"")));
    world.watched.kinds.forget(kind);
    assert!(!world.needed_reads().iter().any(|read| format!("{read:?}").contains("\"pods\"")));
}
