//! Approvals and pauses, as people with and without rights send them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belay::decide::{AdmissionPhase, Decision, ObjectSource, Situation, Verdict, decide};
use belay::graph::Graph;
use belay::policy::api::MAX_APPROVAL_SECONDS;
use belay::policy::{Approval, Approvals, Policy, PolicySet};
use belay::relations::Catalogue;
use belay::webhook::{Parsed, parse_review};
use serde_json::{Value, json};

use super::{approval, in_seconds, installed, pause};
use crate::harness::kubectl::Output;
use crate::harness::manifest::Manifest as _;
use crate::harness::rbac::{rule, user};
use crate::harness::{Api, ControlPlane, eventually};

/// The kinds that can't be edited, and the messages for an attempt.
pub const UNCHANGEABLE: [(&str, &str); 2] = [
    ("DeletionApproval", "an approval cannot be changed: delete it and approve again"),
    ("Pause", "a pause cannot be changed: delete it and pause again"),
];

/// Two users who may create approvals and pauses, and nothing else so far.
struct People {
    plane: &'static ControlPlane,
    /// A namespace of this test.
    namespace: String,
    alice: String,
    alice_config: PathBuf,
    bob: String,
    bob_config: PathBuf,
}

impl People {
    fn new(prefix: &str) -> Self {
        let (plane, _) = installed();
        let namespace = plane.namespace(prefix).unwrap();
        let (alice, bob) = (format!("alice-{namespace}"), format!("bob-{namespace}"));
        let people = Self {
            plane,
            alice_config: plane.user(&alice, None).unwrap(),
            bob_config: plane.user(&bob, None).unwrap(),
            namespace,
            alice,
            bob,
        };
        let verbs = "create, get, patch, update, delete";
        let rules = &[rule("belay.dev", "deletionapprovals, pauses", verbs)];
        people.grant("senders", None, rules, &[&people.alice, &people.bob]);
        for user in [&people.alice, &people.bob] {
            people.until_allowed(user, "create", "pauses.belay.dev", "");
        }
        people
    }

    /// A role with these rules and its binding: in a namespace, or everywhere.
    fn grant(&self, name: &str, namespace: Option<&str>, rules: &[Value], users: &[&str]) {
        let name = format!("{name}-{}", self.namespace);
        let users: Vec<Value> = users.iter().map(|name| user(name)).collect();
        self.plane.grant(&name, namespace, rules, &users).unwrap();
    }

    /// The authorizer sees a binding a moment after it is stored.
    fn until_allowed(&self, user: &str, verb: &str, object: &str, namespace: &str) {
        eventually("the right", Duration::from_secs(30), || {
            self.plane.api().may(user, verb, object, namespace)
        })
        .unwrap();
    }

    fn refused(&self, config: &Path, object: &Value, words: &str) {
        let refusal = create(config, object).failure().unwrap();
        assert!(refusal.contains(words), "{words}\nis not in\n{refusal}");
        assert!(refusal.contains("(Forbidden)"), "{refusal}");
    }

    fn accepted(&self, config: &Path, object: &Value) {
        let output = create(config, object);
        assert_eq!(output.stderr, "");
        output.success().unwrap();
    }

    /// An approval by alice, as `name` in this test.
    fn by_alice(&self, name: &str, namespace: &str, resource: &str) -> Value {
        let name = format!("{name}-{}", self.namespace);
        approval(&name, &self.alice, in_seconds(3600), namespace, resource)
    }

    /// Stored objects can't be edited, not even by the administrator.
    fn cannot_be_edited(&self, config: &Path, object: &Value, edit: &Value) {
        let kind = object["kind"].as_str().unwrap();
        let words = UNCHANGEABLE.iter().find(|(k, _)| *k == kind).unwrap().1;
        let (kind, name) = (format!("{kind}.belay.dev"), object["metadata"]["name"].as_str());
        let patch = json!({"spec": edit}).to_string();
        let args = ["patch", &kind, name.unwrap(), "--type=merge", "-p", &patch];
        for config in [config, self.plane.kubeconfig()] {
            let refusal = self.plane.kubectl_as(config, &args).unwrap().failure().unwrap();
            assert!(refusal.contains(words), "{refusal}");
        }
        // Labels are not part of the approval.
        let label = ["label", "--overwrite", &kind, name.unwrap(), "seen=yes"];
        self.plane.kubectl_as(config, &label).unwrap().success().unwrap();
    }
}

/// Creates an object as this user and returns kubectl's output.
fn create(config: &Path, object: &Value) -> Output {
    Api::of(config).unwrap().create(object, "default").unwrap()
}

/// The same as a dry run: the object that would be stored, or the Status of the refusal.
fn would_create(config: &Path, object: &Value) -> Result<Value, Value> {
    Api::of(config).unwrap().would_create(object, "default").unwrap()
}

fn set(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

const UNTIL: &str = "/spec/expirationTime";

/// The lifetimes that are refused for every user, regardless of rights.
fn lifetimes_are_bounded(people: &People, config: &Path, good: &Value) {
    let words = " now: it must be in the future, and at most 24 hours ahead";
    for seconds in [-3600, 0, MAX_APPROVAL_SECONDS + 60, 400 * MAX_APPROVAL_SECONDS] {
        let until = in_seconds(seconds);
        let wrong = set(good.clone(), UNTIL, json!(until));
        people.refused(config, &wrong, &format!("spec.expirationTime is {until}, and it is "));
        people.refused(config, &wrong, words);
    }
    // A creation time that the user sends is ignored.
    let mut wrong = set(good.clone(), UNTIL, json!(in_seconds(3 * MAX_APPROVAL_SECONDS)));
    wrong["metadata"]["creationTimestamp"] = json!(in_seconds(3 * MAX_APPROVAL_SECONDS - 60));
    people.refused(config, &wrong, words);
    // Other ways to write a time.
    let hour = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let written = [hour.to_string(), hour.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()];
    for written in written {
        let right = set(good.clone(), UNTIL, json!(written));
        would_create(config, &right).unwrap();
    }
    let latest = set(good.clone(), UNTIL, json!(in_seconds(MAX_APPROVAL_SECONDS - 60)));
    would_create(config, &latest).unwrap();
}

#[test]
fn s24_an_approval_is_checked_against_who_sent_it() {
    let people = People::new("approve");
    let here = people.namespace.clone();
    let there = people.plane.namespace("elsewhere").unwrap();
    let rules = &[rule("", "persistentvolumeclaims", "approve-deletion")];
    people.grant("approvers", Some(&here), rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "persistentvolumeclaims", &here);
    let good = people.by_alice("good", &here, "persistentvolumeclaims");
    let (alice, bob) = (&people.alice, &people.bob);

    // The name of another user, in both directions.
    let forged = format!("spec.approver is {alice}, but you are {bob}: approve as yourself");
    people.refused(&people.bob_config, &good, &forged);
    let words = format!("spec.approver is {bob}, but you are {alice}: ");
    people.refused(&people.alice_config, &set(good.clone(), "/spec/approver", json!(bob)), &words);
    // A server-side apply that creates is a creation.
    let args = ["apply", "--server-side", "-f", "-"];
    let applied = people.plane.kubectl_with(Some(&people.bob_config), &args, &good);
    let applied = applied.unwrap().failure().unwrap();
    assert!(applied.contains(&forged), "{applied}");

    // No right at all, a right elsewhere, a right to another resource.
    let own = set(good.clone(), "/spec/approver", json!(bob));
    let words = format!(
        "{bob} may not approve-deletion of persistentvolumeclaims data in namespace {here}: this \
         needs the RBAC verb approve-deletion"
    );
    people.refused(&people.bob_config, &own, &words);
    let words = format!(
        "{alice} may not approve-deletion of persistentvolumeclaims data in namespace {there}: "
    );
    let elsewhere = people.by_alice("elsewhere", &there, "persistentvolumeclaims");
    people.refused(&people.alice_config, &elsewhere, &words);
    let everywhere = people.by_alice("everywhere", "", "persistentvolumeclaims");
    let words = format!("{alice} may not approve-deletion of persistentvolumeclaims data: ");
    people.refused(&people.alice_config, &everywhere, &words);
    let other = people.by_alice("other", &here, "secrets");
    let words = format!("{alice} may not approve-deletion of secrets data in namespace {here}: ");
    people.refused(&people.alice_config, &other, &words);
    let group = set(good.clone(), "/spec/targetRef/group", json!("example.com"));
    let words = format!(
        "{alice} may not approve-deletion of persistentvolumeclaims.example.com data in namespace {here}: "
    );
    people.refused(&people.alice_config, &group, &words);

    lifetimes_are_bounded(&people, &people.alice_config, &good);
    for blank in ["", " \t "] {
        let wrong = set(good.clone(), "/spec/reason", json!(blank));
        let refusal = create(&people.alice_config, &wrong).failure().unwrap();
        assert!(refusal.contains("reason is blank: state why"), "{refusal}");
    }

    people.accepted(&people.alice_config, &good);
    for edit in [
        json!({"expirationTime": in_seconds(7200)}),
        json!({"scope": "Content"}),
        json!({"targetRef": {"name": "other"}}),
        json!({"approver": bob}),
    ] {
        people.cannot_be_edited(&people.alice_config, &good, &edit);
    }
}

/// A right to one object by name is one.
#[test]
fn the_right_to_approve_may_be_for_one_name() {
    let people = People::new("by-name");
    let here = people.namespace.clone();
    let claims = rule("", "persistentvolumeclaims", "approve-deletion");
    let rules = &[claims.with(json!({"resourceNames": ["data"]}))];
    people.grant("approvers", Some(&here), rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "persistentvolumeclaims/data", &here);
    let good = people.by_alice("good", &here, "persistentvolumeclaims");
    let other = set(good.clone(), "/spec/targetRef/name", json!("other"));
    let words = format!(
        "{} may not approve-deletion of persistentvolumeclaims other in namespace {here}: ",
        people.alice
    );
    people.refused(&people.alice_config, &other, &words);
    people.accepted(&people.alice_config, &good);
}

#[test]
fn the_right_to_approve_a_namespace_is_asked_inside_it() {
    let people = People::new("whole");
    let here = people.namespace.clone();
    let there = people.plane.namespace("elsewhere").unwrap();
    let rules = &[rule("", "namespaces", "approve-deletion")];
    people.grant("approvers", Some(&here), rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "namespaces", &here);

    let good = people.by_alice("good", "", "namespaces");
    let good = set(good, "/spec/targetRef/name", json!(here));
    let other = set(good.clone(), "/spec/targetRef/name", json!(there));
    let words = |name: &str| {
        format!(
            "{} may not approve-deletion of namespaces {name} in namespace {name}: this needs",
            people.alice
        )
    };
    people.refused(&people.alice_config, &other, &words(&there));
    // A namespace in the reference to a cluster-scoped target changes nothing.
    let lying = set(other, "/spec/targetRef/namespace", json!(here));
    people.refused(&people.alice_config, &lying, &words(&there));
    // Another group's resource of the same name is no Namespace.
    let foreign = set(good.clone(), "/spec/targetRef/group", json!("example.com"));
    let words =
        format!("{} may not approve-deletion of namespaces.example.com {here}: ", people.alice);
    people.refused(&people.alice_config, &foreign, &words);
    people.accepted(&people.alice_config, &good);
}

#[test]
fn scope_content_takes_the_right_to_everything_in_the_namespace() {
    let people = People::new("everything");
    let here = people.namespace.clone();
    let namespaces = &[rule("", "*", "approve-deletion")];
    people.grant("core", Some(&here), namespaces, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "namespaces", &here);
    let good = people.by_alice("content", "", "namespaces");
    let mut good = set(good, "/spec/targetRef/name", json!(here));
    good["spec"]["scope"] = json!("Content");

    let words = format!(
        "{} may not approve-deletion of everything in namespace {here}: scope Content needs the \
         RBAC verb approve-deletion on every resource (*) of every API group (*)",
        people.alice
    );
    people.refused(&people.alice_config, &good, &words);
    // An approval of only the object requires only its own right.
    let alone = people.by_alice("alone", "", "namespaces");
    people.accepted(&people.alice_config, &set(alone, "/spec/targetRef/name", json!(here)));
    let everything = &[rule("*", "*", "approve-deletion")];
    people.grant("everything", Some(&here), everything, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "*.*", &here);
    people.accepted(&people.alice_config, &good);
}

#[test]
fn a_target_outside_of_namespaces_takes_a_right_that_holds_everywhere() {
    let people = People::new("cluster");
    let here = people.namespace.clone();
    let rules = &[rule("", "persistentvolumes", "approve-deletion")];
    people.grant("approvers", Some(&here), rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "persistentvolumes", &here);
    let good = people.by_alice("volume", "", "persistentvolumes");
    let words = format!(
        "{} may not approve-deletion of persistentvolumes data: this needs the RBAC verb \
         approve-deletion",
        people.alice
    );
    people.refused(&people.alice_config, &good, &words);
    people.grant("approvers", None, rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "persistentvolumes", "");
    people.accepted(&people.alice_config, &good);

    // Its content may be in any namespace.
    let mut content = people.by_alice("content", "", "persistentvolumes");
    content["spec"]["scope"] = json!("Content");
    let words = format!("{} may not approve-deletion of everything: scope", people.alice);
    people.refused(&people.alice_config, &content, &words);
}

#[test]
fn s24_a_pause_is_checked_against_who_sent_it() {
    let people = People::new("pause");
    let (alice, bob) = (&people.alice, &people.bob);
    let rules = &[rule("belay.dev", "pauses", "pause")];
    // A right in a namespace has no effect on a cluster-scoped kind.
    people.grant("pausers", Some(&people.namespace), rules, &[bob]);
    people.grant("pausers", None, rules, &[alice]);
    people.until_allowed(&people.alice, "pause", "pauses.belay.dev", "");
    people.until_allowed(&people.bob, "pause", "pauses.belay.dev", &people.namespace);
    let good = pause(&format!("good-{}", people.namespace), alice, in_seconds(3600));

    let words = format!("spec.by is {alice}, but you are {bob}: pause as yourself");
    people.refused(&people.bob_config, &good, &words);
    let own = set(good.clone(), "/spec/by", json!(bob));
    let words =
        format!("{bob} may not pause belay: this needs the RBAC verb pause on pauses.belay.dev");
    people.refused(&people.bob_config, &own, &words);
    lifetimes_are_bounded(&people, &people.alice_config, &good);
    people.accepted(&people.alice_config, &good);
    people.cannot_be_edited(
        &people.alice_config,
        &good,
        &json!({"expirationTime": in_seconds(7200)}),
    );
}

/// The API server cannot see whose uid it is that an approval carries. The
/// decision can: it compares everything.
#[test]
fn s24_an_approval_whose_uid_belongs_to_another_object_approves_nothing() {
    let people = People::new("uids");
    let here = people.namespace.clone();
    let there = people.plane.namespace("foreign").unwrap();
    let rules = &[rule("", "configmaps", "approve-deletion")];
    people.grant("approvers", Some(&here), rules, &[&people.alice]);
    people.until_allowed(&people.alice, "approve-deletion", "configmaps", &here);
    let stored = |namespace: &str| {
        let create = ["create", "configmap", "data", "-n", namespace, "-o", "json"];
        let text = people.plane.kubectl(&create).unwrap().success().unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let (own, foreign) = (stored(&here), stored(&there));
    let approve = |name: &str, of: &Value| {
        let approval = people.by_alice(name, &here, "configmaps");
        let approval = set(approval, "/spec/targetRef/uid", of["metadata"]["uid"].clone());
        people.accepted(&people.alice_config, &approval);
        let name = approval["metadata"]["name"].as_str().unwrap().to_owned();
        let name = format!("deletionapprovals.belay.dev/{name}");
        let stored = people.plane.api().get(&name, "").unwrap().unwrap();
        Approval::compile(&serde_json::from_value(stored).unwrap()).unwrap()
    };

    let lying = approve("lying", &foreign);
    for object in [&own, &foreign] {
        let verdict = decided(object, &lying);
        assert_eq!(verdict.decision, Decision::Deny, "{verdict:?}");
    }
    let honest = approve("honest", &own);
    assert_eq!(decided(&own, &honest).decision, Decision::Allow);
    assert_eq!(decided(&foreign, &honest).decision, Decision::Deny);
}

/// The verdict on the DELETE of a ConfigMap that a policy always protects.
fn decided(object: &Value, approval: &Approval) -> Verdict {
    let spec = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
        "protect": {"always": {}}});
    let policy = Policy::compile("vault", &serde_json::from_value(spec).unwrap()).unwrap();
    let mut graph = Graph::default();
    let catalogue = Catalogue::new(&graph.kinds, &[]).unwrap();
    let kind = graph.kinds.find("", "ConfigMap").unwrap();
    catalogue.parse_and_apply(&mut graph, kind, &object.to_string()).unwrap();
    let mut policies = PolicySet::new(vec![policy], &catalogue);
    policies.approvals = Approvals::new([approval.clone()]);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "DELETE", "userInfo": {"username": "alice"}, "oldObject": object,
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "data", "namespace": object["metadata"]["namespace"]}});
    let bytes = review.to_string().into_bytes();
    let Parsed::Review(review) = parse_review(&bytes, AdmissionPhase::Validate).unwrap() else {
        panic!("unreadable")
    };
    let now = jiff::Timestamp::now().as_second();
    let situation = Situation::new(&graph, &policies, ObjectSource::Files, now);
    decide(&situation, &review)
}
