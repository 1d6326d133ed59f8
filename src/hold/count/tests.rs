//! Who counts, and what has to be read before that is known.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::*;
use crate::decide::ObjectSource;
use crate::graph::Graph;
use crate::objects::{ApiError, HOLD, ObjectRef, Uid, Unreadable, split_api_version};
use crate::policy::{Approval, Approvals, Pause, Policy, PolicySet, PolicySource};
use crate::relations::Catalogue;

/// When the target was deleted, and a minute later, when it is counted.
const DELETED: i64 = 1_767_268_800;
const NOW: i64 = DELETED + 60;

struct World {
    catalogue: Catalogue,
    policies: PolicySet,
    /// What is known of the cluster.
    known: Graph,
    known_policies: bool,
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
    let owner = json!({"apiVersion": owner["apiVersion"], "kind": kind, "name": name, "uid": name});
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn feed(catalogue: &Catalogue, graph: &mut Graph, manifest: &Value) {
    let (group, _) = split_api_version(manifest["apiVersion"].as_str().unwrap());
    let kind = graph.kinds.find(group, manifest["kind"].as_str().unwrap()).unwrap();
    catalogue.feed(graph, kind, &manifest.to_string()).unwrap();
}

impl World {
    fn new(policies: Value) -> Self {
        let catalogue = Catalogue::new(&kinds(), &[]).unwrap();
        let compile = |spec: &Value| {
            let mut spec = spec.clone();
            spec["targets"] = json!([{"apiGroups": [""], "resources": ["secrets"]}]);
            if let Some(place) = spec.as_object_mut().unwrap().remove("place") {
                spec["targets"][0]["namespaceSelector"] = place;
            }
            Policy::compile("p", &serde_json::from_value(spec).unwrap()).unwrap()
        };
        let policies = policies.as_array().unwrap().iter().map(compile).collect();
        let policies = PolicySet::new(policies, &catalogue);
        let mut world = Self {
            catalogue,
            policies,
            known_policies: true,
            known: Graph::new(kinds()),
            reads: LiveReads { graph: Graph::new(kinds()), results: HashMap::new() },
        };
        let target = object(
            "Secret",
            "s",
            json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [HOLD]}}),
        );
        feed(&world.catalogue, &mut world.known, &target);
        feed(&world.catalogue, &mut world.reads.graph, &without_hold(&target));
        world
    }

    fn while_used() -> Self {
        Self::new(json!([{"protect": {"whileUsed": {}}}]))
    }

    fn situation(&self) -> Situation<'_> {
        let (graph, policies) = (&self.known, &self.policies);
        Situation::new(graph, policies, ObjectSource::Cluster(&self.reads), NOW)
    }

    fn count(&self) -> UseCheck {
        let kind = self.reads.graph.kinds.find("", "Secret").unwrap();
        let target = self.reads.graph.find(kind, "a", "s").unwrap();
        check_use(&self.situation(), self.known_policies, &self.reads, target)
    }

    fn wants(&self) -> Vec<LiveRead> {
        match self.count() {
            UseCheck::NeedsReads(reads) => reads,
            other => panic!("{other:?}"),
        }
    }

    /// Carries these reads out: they find whatever was given.
    fn read(&mut self, reads: Vec<LiveRead>) {
        for read in reads {
            let (LiveRead::List { group, resource, .. }
            | LiveRead::Object(ObjectRef { group, resource, .. })) = &read;
            let kind = self.reads.graph.kinds.find_resource(group, resource).unwrap();
            self.reads.graph.set_complete(kind, true);
            self.reads.results.insert(read, Ok(()));
        }
    }

    /// All lists were read, and this was found.
    fn found(mut self, objects: &[Value]) -> Self {
        self.read(self.wants());
        for object in objects {
            feed(&self.catalogue, &mut self.reads.graph, object);
        }
        self
    }

    fn keeps(&self) -> Vec<String> {
        match self.count() {
            UseCheck::InUse(causes) => causes
                .iter()
                .map(|cause| match cause {
                    Cause::User { root, through: None, .. } => root.to_string(),
                    Cause::User { root, through: Some(through), .. } => format!("{root} {through}"),
                    other => format!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

const UNUSED: UseCheck = UseCheck::Releasable(ReleaseReason::Unused);

#[test]
fn lists_come_first_and_of_those_the_producers() {
    let world = World::while_used();
    let reads = world.wants();
    let names: Vec<&str> = reads
        .iter()
        .map(|read| match read {
            LiveRead::List { resource, first: false, .. } => resource.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    let at =
        |name: &str| names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{names:?}"));
    for pair in [
        ["deployments", "replicasets"],
        ["replicasets", "pods"],
        ["cronjobs", "jobs"],
        ["jobs", "pods"],
        ["statefulsets", "pods"],
        ["pods", "persistentvolumes"],
    ] {
        assert!(at(pair[0]) < at(pair[1]), "{names:?}");
    }
    assert_eq!(world.found(&[]).count(), UNUSED);
}

#[test]
fn an_object_that_cannot_be_read_may_be_a_user_in_its_namespace() {
    for (namespace, keeps) in [("a", true), ("b", false)] {
        let mut world = World::while_used().found(&[]);
        let pods = world.reads.graph.kinds.find("", "Pod").unwrap();
        let place = Some((namespace.to_owned(), "bad".to_owned()));
        let bad = Unreadable { name: place, ..Unreadable::of_unknown_place() };
        world.reads.graph.set_unreadable(pods, &bad);
        let unknown = UnknownUse::UnreadableUser("Pod a/bad can't be read".to_owned());
        assert_eq!(unknown.to_string(), "Pod a/bad can't be read, so it may use it");
        let expected = if keeps { UseCheck::Unknown(unknown) } else { UNUSED };
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
        assert_eq!(World::while_used().found(&[object("Pod", "p", spec)]).count(), expected);
    }
}

#[test]
fn what_no_policy_protects_any_more_is_free_with_no_read() {
    let free = |policies| World::new(policies).count();
    let unprotected = UseCheck::Releasable(ReleaseReason::Unprotected);
    assert_eq!(free(json!([])), unprotected);
    assert_eq!(free(json!([{"protect": {"whileUsed": {}}, "action": "Audit"}])), unprotected);
    assert_eq!(free(json!([{"protect": {"whileUsed": {}}, "action": "Warn"}])), unprotected);
    assert_eq!(free(json!([{"protect": {"fromOrphaning": {}}}])), unprotected);
    let mut world = World::while_used();
    world.policies.pauses = vec![Pause { expires: NOW + 1, ..Pause::default() }];
    assert!(
        matches!(world.count(), UseCheck::NeedsReads(_)),
        "a pause releases nothing that is held"
    );
}

/// Without the kind DeletionPolicy there seems to be no policy at all.
#[test]
fn unread_policies_release_nothing() {
    let mut world = World::new(json!([]));
    world.known_policies = false;
    assert_eq!(world.count(), UseCheck::Unknown(UnknownUse::PoliciesUnread));
}

/// The API server sets the creation time after other webhooks have answered, which may take as
/// long as a write. Within settle, no object counts as new.
#[test]
fn a_create_that_began_before_the_delete_is_no_newcomer_within_settle() {
    let policies = json!([{"protect": {"whileUsed": {}}, "settleSeconds": 45}]);
    let at = |seconds| pod("p", json!({"metadata": {"creationTimestamp": time(seconds)}}));
    assert_eq!(World::new(policies.clone()).found(&[at(50)]).keeps(), ["Pod a/p"]);
    assert_eq!(World::new(policies).found(&[at(51)]).count(), UNUSED);
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
        own_uid: "1".into(),
        approver: approver.into(),
        object: ObjectRef::new(("", "secrets"), "a", "s"),
        uid: Uid::new("s"),
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
    world = world.found(&[pod("p", json!({}))]);
    world.policies.identities.own = Some("belay".to_owned());
    world.policies.approvals = Approvals::new([approval("belay")]);
    assert_eq!(world.keeps(), ["Pod a/p"]);

    // So nothing is held by what only an approval would release.
    let always = json!({"protect": {"always": {}}, "exemptSubjects": exempt});
    assert_eq!(
        World::new(json!([always])).count(),
        UseCheck::Releasable(ReleaseReason::Unprotected)
    );
    let used = json!({"protect": {"whileUsed": {}}});
    assert_eq!(World::new(json!([always, used])).found(&[]).count(), UNUSED);
}

#[test]
fn an_unknown_user_keeps_the_object() {
    let place = json!({"matchLabels": {"env": "prod"}});
    let world = World::new(json!([{"protect": {"whileUsed": {}}, "place": place}]));
    assert_eq!(world.count(), UseCheck::Unknown(UnknownUse::NamespaceLabels("a".to_owned())));
    let mut world = World::while_used().found(&[]);
    let list =
        world.reads.results.keys().find(
            |read| matches!(read, LiveRead::List { resource, .. } if resource == "replicasets"),
        );
    let list = list.unwrap().clone();
    world.reads.results.insert(list, Err(ApiError::Forbidden("403 Forbidden".into())));
    let UseCheck::Unknown(why) = world.count() else { panic!("it was released") };
    assert_eq!(why.to_string(), "objects of kind ReplicaSet may use it: 403 Forbidden");
}

#[test]
fn users_count_unless_they_have_finished() {
    let done = pod("done", json!({"status": {"phase": "Succeeded"}}));
    assert_eq!(World::while_used().found(std::slice::from_ref(&done)).count(), UNUSED);
    let world = World::while_used().found(&[done, pod("p", json!({}))]);
    assert_eq!(world.keeps(), ["Pod a/p"]);
    // One that is being replaced needs it still.
    let mut going = pod("q", json!({"metadata": {"deletionTimestamp": time(0)}}));
    json_patch::merge(&mut going, &owned("ReplicaSet", "r"));
    let owner = object("ReplicaSet", "r", json!({}));
    let world = World::while_used().found(&[going, owner]);
    assert_eq!(world.keeps(), ["ReplicaSet a/r Pod a/q"]);
}

/// A policy about another resource beside that of the target.
fn beside(resource: &str, protect: Value) -> World {
    let mut world = World::while_used();
    let spec =
        json!({"targets": [{"apiGroups": [""], "resources": [resource]}], "protect": protect});
    let used = json!({"targets": [{"apiGroups": [""], "resources": ["secrets"]}], "protect": {"whileUsed": {}}});
    let compile = |name: &str, spec: Value| {
        Policy::compile(name, &serde_json::from_value(spec).unwrap()).unwrap()
    };
    let policies = vec![compile("p", used), compile("beside", spec)];
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
fn h20_a_dependent_whose_delete_is_refused_counts() {
    let dependent = || owned_pod("p", ("Secret", "s"));
    assert_eq!(World::while_used().found(&[dependent()]).count(), UNUSED);
    let always = || beside("pods", json!({"always": {}})).found(&[dependent()]);
    assert_eq!(always().keeps(), ["Secret a/s Pod a/p"]);

    // What a label protects is protected.
    let mut labelled = dependent();
    labelled["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    assert_eq!(World::while_used().found(&[labelled]).keeps(), ["Secret a/s Pod a/p"]);

    // With an approval of it the collector deletes it.
    let mut world = always();
    let of_pod = Approval {
        object: ObjectRef::new(("", "pods"), "a", "p"),
        uid: Uid::new("p"),
        ..approval("bob")
    };
    world.policies.approvals = Approvals::new([of_pod]);
    assert_eq!(world.count(), UNUSED);
}

#[test]
fn h20_what_is_below_a_refusing_dependent_or_above_it_counts() {
    let mut label = object("ReplicaSet", "r", owned("Secret", "s"));
    label["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let world = World::while_used().found(&[label, owned_pod("below", ("ReplicaSet", "r"))]);
    assert_eq!(world.keeps(), ["Secret a/s Pod a/below"]);

    // The DELETE of the Pod would cascade to a protected object.
    let mut above = owned("Pod", "above");
    above["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let protected = object("ReplicaSet", "r", above);
    let world = World::while_used().found(&[owned_pod("above", ("Secret", "s")), protected]);
    assert_eq!(world.keeps(), ["Secret a/s Pod a/above"]);

    // Beside it others go.
    let mut label = object("ReplicaSet", "r", owned("Secret", "s"));
    label["metadata"]["labels"] = json!({"belay.dev/protect": "Always"});
    let world = World::while_used().found(&[label, owned_pod("beside", ("Secret", "s"))]);
    assert_eq!(world.count(), UNUSED);
}

#[test]
fn h20_a_dependent_in_use_counts_unless_its_own_hold_lets_it_wait() {
    // Pods have no hold. This one is not in use.
    let used = json!({"whileUsed": {}});
    let mut world = beside("pods", used.clone()).found(&[owned_pod("p", ("Secret", "s"))]);
    // What could use Pods is to be read first.
    while let UseCheck::NeedsReads(reads) = world.count() {
        world.read(reads);
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
    let count = |objects: &[Value]| {
        let mut world = beside("serviceaccounts", used.clone()).found(objects);
        while let UseCheck::NeedsReads(reads) = world.count() {
            world.read(reads);
        }
        world
    };
    let bare = account(json!([]));
    assert_eq!(count(std::slice::from_ref(&bare)).count(), UNUSED);
    assert_eq!(count(&[bare, user.clone()]).keeps(), ["Secret a/s ServiceAccount a/bot"]);
    let held = [account(json!([HOLD])), user];
    assert_eq!(count(&held).keeps(), ["Secret a/s ServiceAccount a/bot"], "under Deny it stays");
    let waits = json!({"whileUsed": {"onDelete": "Hold"}});
    let mut world = beside("serviceaccounts", waits).found(&held);
    while let UseCheck::NeedsReads(reads) = world.count() {
        world.read(reads);
    }
    assert_eq!(world.count(), UNUSED);
    // A policy that does not bind the collector refuses nothing.
    let bob = json!([{"kind": "User", "name": "bob"}]);
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["pods"]}],
        "subjects": bob, "protect": {"always": {}}});
    let only = Policy::compile("only", &serde_json::from_value(spec).unwrap()).unwrap();
    assert!(!only.may_refuse_collector());
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["pods"]}],
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts"}], "protect": {"always": {}}});
    let all = Policy::compile("all", &serde_json::from_value(spec).unwrap()).unwrap();
    assert!(all.may_refuse_collector());
}

#[test]
fn a_newcomer_waits_unless_something_older_owns_it() {
    let late = json!({"metadata": {"creationTimestamp": time(30)}});
    let newcomer = pod("p", late.clone());
    assert_eq!(World::while_used().found(std::slice::from_ref(&newcomer)).count(), UNUSED);
    // The clocks of API servers may differ a little.
    let early = pod("p", json!({"metadata": {"creationTimestamp": time(5)}}));
    assert_eq!(World::while_used().found(&[early]).keeps(), ["Pod a/p"]);
    // Of a kind that no list has: its owner has to be read.
    let mut made = newcomer;
    json_patch::merge(&mut made, &owned("Database", "d"));
    let mut world = World::while_used().found(&[made]);
    let read = world.wants();
    assert!(matches!(&read[..], [LiveRead::Object(read)] if read.resource == "databases"));
    world.read(read.clone());
    assert_eq!(world.count(), UNUSED, "it is gone");
    world.reads.results.insert(read[0].clone(), Err(ApiError::Other("500".into())));
    assert_eq!(world.keeps(), ["Pod a/p"], "the owner is not known");
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.keeps(), ["Database a/d Pod a/p"]);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", late));
    assert_eq!(world.count(), UNUSED, "it is as new");
}

#[test]
fn whom_a_policy_means_is_read_at_the_top() {
    let by = json!([{"apiGroups": ["example.com"], "resources": ["databases"]}]);
    let mut world = World::new(json!([{"protect": {"whileUsed": {"by": by}}}]));
    world = world.found(&[pod("other", json!({})), {
        let mut pod = pod("p", json!({}));
        json_patch::merge(&mut pod, &owned("Database", "d"));
        pod
    }]);
    world.read(world.wants());
    assert_eq!(world.count(), UNUSED);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.keeps(), ["Database a/d Pod a/p"]);
}

#[test]
fn a_release_counts_a_user_by_every_owner_above_it() {
    let by = json!([{"apiGroups": ["example.com"], "resources": ["databases"]}]);
    let owners = |owners: [(&str, &str); 2]| {
        let owners =
            owners.map(|(kind, name)| owned(kind, name)["metadata"]["ownerReferences"][0].clone());
        json!({"metadata": {"ownerReferences": owners}})
    };
    let user = pod("p", owners([("ConfigMap", "front"), ("ConfigMap", "middle")]));
    let middle = owners([("ConfigMap", "front"), ("Database", "d")]);
    let mut world = World::new(json!([{"protect": {"whileUsed": {"by": by}}}])).found(&[
        user,
        object("ConfigMap", "middle", middle),
        object("ConfigMap", "front", json!({})),
    ]);
    world.read(world.wants());
    assert_eq!(world.count(), UNUSED);
    feed(&world.catalogue, &mut world.reads.graph, &object("Database", "d", json!({})));
    assert_eq!(world.keeps(), ["ConfigMap a/front Pod a/p"]);
}

/// A kind of Kubernetes' own that an older server does not have is not waited
/// for; a custom one is asked for, so that its absence is proved.
#[test]
fn a_built_in_kind_that_is_not_served_has_no_objects() {
    let mut world = World::while_used();
    let kind = world.known.kinds.find("", "Pod").unwrap();
    assert!(world.wants().iter().any(|read| format!("{read:?}").contains("\"pods\"")));
    world.known.kinds.forget(kind);
    assert!(!world.wants().iter().any(|read| format!("{read:?}").contains("\"pods\"")));
}

/// ReplicaSets were listed, then one was made, then its Pod, then Pods were
/// listed: that the ReplicaSet is not in its list does not make it absent.
#[test]
fn an_owner_that_no_list_has_is_asked_for() {
    let mut made = pod("p", json!({"metadata": {"creationTimestamp": time(60)}}));
    json_patch::merge(&mut made, &owned("ReplicaSet", "r"));
    let world = World::while_used().found(&[made]);
    let read = world.wants();
    assert!(matches!(&read[..], [LiveRead::Object(read)] if read.name == "r"), "{read:?}");
}

/// A Terminating Pod that uses the Secret and has a finalizer. It owns the Secret, itself or
/// through a ConfigMap, by a reference that the watch has seen added.
fn owned_by_its_user(finalizer: &str, (added, between): (Option<bool>, bool)) -> UseCheck {
    let mut world = World::while_used();
    let secrets = world.known.kinds.find("", "Secret").unwrap();
    let maps = world.known.kinds.find("", "ConfigMap").unwrap();
    assert!(world.known.delete(secrets, "a", "s", None));
    if added.is_some() {
        world.known.track_owner_versions();
        for kind in [secrets, maps] {
            world.known.set_complete(kind, true);
        }
    }
    let between = between.then(|| object("ConfigMap", "between", owned("Pod", "p")));
    let terminating = json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [HOLD]}});
    let target = object("Secret", "s", terminating);
    let mut owned_target = target.clone();
    let owner = if between.is_some() { ("ConfigMap", "between") } else { ("Pod", "p") };
    json_patch::merge(&mut owned_target, &owned(owner.0, owner.1));
    if added == Some(true) {
        feed(&world.catalogue, &mut world.known, &target);
    }
    for object in between.iter().chain([&owned_target]) {
        feed(&world.catalogue, &mut world.known, object);
    }
    feed(&world.catalogue, &mut world.reads.graph, &without_hold(&owned_target));
    let user = json!({"metadata": {"deletionTimestamp": time(0), "finalizers": [finalizer]}});
    let found: Vec<_> = between.into_iter().chain([pod("p", user)]).collect();
    world.found(&found).count()
}

#[test]
fn h115_an_owner_counts_until_its_clean_up_ends_unless_it_always_was_one() {
    let kept = |count: UseCheck| matches!(count, UseCheck::InUse(_));
    for between in [false, true] {
        let count = |finalizer: &str, added| owned_by_its_user(finalizer, (added, between));
        assert!(kept(count("example.com/cleanup", Some(true))), "an added reference");
        assert!(kept(count("example.com/cleanup", None)), "a reference of unknown age");
        assert_eq!(count("example.com/cleanup", Some(false)), UNUSED);
        for added in [Some(true), None, Some(false)] {
            assert_eq!(count("foregroundDeletion", added), UNUSED, "{added:?}");
        }
    }
}
