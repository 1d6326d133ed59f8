//! Compares the rights of belay's account with the requests in the API server's audit log.
//! The account has every right that it needs, and needs every right that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::audit::{ACCOUNT, events, forbidden, text};
use crate::harness::chart::RELEASE;
use crate::harness::manifest::{
    Manifest as _, config_map, deletion_policy, documents, object, validating_webhook,
};
use crate::harness::{Chart, ControlPlane, Options, eventually};
use crate::program;

/// A right: group, resource with its subresource, verb.
type Right = (String, String, String);

/// A kind, by group and plural name.
type Kind = (String, String);

/// The limit for every wait. Expired approvals are deleted once a minute.
const LIMIT: Duration = Duration::from_secs(240);

/// The rights that no request shows. The API server asks its authorizer for
/// `approve-deletion` when belay creates an approval for an exemption. Without the right
/// that approval is refused. The verb is part of no request.
const ASKED_FOR_BY_THE_CHECK: [(&str, &str, &str); 1] = [("*", "*", "approve-deletion")];

/// The rights in the whole cluster, and those in its own namespace.
const EVERYWHERE: (&str, &str) = ("clusterrolebindings", "clusterroles");
const AT_HOME: (&str, &str) = ("rolebindings", "roles");

/// Objects of each kind that may be held.
const OBJECTS: &str = include_str!("rights/objects.yaml");

/// The requests of the account.
fn used(plane: &ControlPlane) -> BTreeSet<Right> {
    let mut events = events(plane);
    events.retain(|event| event["user"]["username"] == ACCOUNT);
    let right = |event: &Value| {
        let object = &event["objectRef"];
        let subresource = text(&object["subresource"]);
        let slash = if subresource.is_empty() { "" } else { "/" };
        (
            text(&object["apiGroup"]).to_owned(),
            format!("{}{slash}{subresource}", text(&object["resource"])),
            text(&event["verb"]).to_owned(),
        )
    };
    events.iter().map(right).collect()
}

/// The rights that its bindings grant, as the roles contain them.
fn granted(plane: &ControlPlane, by: (&str, &str)) -> BTreeSet<Right> {
    let get = |kind: &str| plane.api().list(kind, "", "").unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (binding, role) = by;
    let roles = get(role);
    let ours = |subject: &Value| subject["name"] == RELEASE && subject["namespace"] == RELEASE;
    let mut rights = BTreeSet::new();
    for binding in get(binding).iter().filter(|b| list(&b["subjects"]).iter().any(ours)) {
        let named = |role: &&Value| {
            role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
        };
        let rules = roles.iter().find(named).map(|role| list(&role["rules"]));
        for rule in rules.unwrap_or_default() {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    for verb in list(&rule["verbs"]) {
                        let right = [&group, &resource, &verb].map(|part| text(part).to_owned());
                        rights.insert(right.into());
                    }
                }
            }
        }
    }
    rights
}

/// Every kind that the API server has, and whether it lives in namespaces.
fn served(plane: &ControlPlane) -> BTreeMap<Kind, bool> {
    let mut served = BTreeMap::new();
    for namespaced in [true, false] {
        let only = format!("--namespaced={namespaced}");
        let names = plane.kubectl(&["api-resources", "-o", "name", &only]).unwrap();
        for name in names.success().unwrap().lines() {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            served.insert((group.to_owned(), resource.to_owned()), namespaced);
        }
    }
    served
}

/// The same rights for served kinds, one for each kind where a rule contains all of a
/// group.
fn of_served(rights: BTreeSet<Right>, served: &BTreeMap<Kind, bool>) -> BTreeSet<Right> {
    let mut one_by_one = BTreeSet::new();
    for (group, resource, verb) in rights {
        let main = resource.split('/').next().unwrap_or_default();
        if group == "*" || served.contains_key(&(group.clone(), main.to_owned())) {
            one_by_one.insert((group, resource, verb));
        } else if resource == "*" {
            let all = served.keys().filter(|(of, _)| *of == group);
            one_by_one.extend(all.map(|(_, each)| (group.clone(), each.clone(), verb.clone())));
        }
    }
    one_by_one
}

/// The kinds for which it has a right in the whole cluster.
fn kinds(rights: &BTreeSet<Right>, verb: &str) -> BTreeSet<Kind> {
    let with = rights.iter().filter(|(_, _, v)| v == verb);
    with.map(|(group, resource, _)| (group.clone(), resource.clone())).collect()
}

/// Its reads of each kind, its writes to objects, and all its own records.
#[test]
fn every_right_of_its_roles_is_used_and_none_is_missing() {
    // An API server that streams lists logs no list at the start of a watch.
    let options = Options { nodes: 2, streams_lists: false, ..Options::default() };
    let plane = ControlPlane::start_with(&options).unwrap();
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/belay/files/relations");
    let mut values = vec!["--set=profile=observe".to_owned()];
    for entry in std::fs::read_dir(families).unwrap() {
        let family = entry.unwrap().path();
        values.push(format!("--set=relations.{}=true", family.file_stem().unwrap().display()));
    }
    values.push("--set=rbac.watchAlso={secrets}".to_owned());
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let chart = Chart::install(&plane, program(), &values).unwrap();
    chart.wait_for(2).unwrap();
    define_what_is_not_served(&plane);

    let served = served(&plane);
    let everywhere = of_served(granted(&plane, EVERYWHERE), &served);
    let watched = kinds(&everywhere, "watch");
    assert!(watched.len() > 100, "{watched:?}");
    let ns = plane.namespace("proof").unwrap();
    let held = hold_one_of_each(&plane, &ns, &everywhere);
    approve_what_expired(&plane, &ns, &watched, &served);
    exempt_and_deny(&plane, &ns);
    release_and_renew(&plane, &held, &ns);
    let scale = ["scale", "deployment", RELEASE, "-n", RELEASE, "--replicas=1"];
    plane.kubectl(&scale).unwrap().success().unwrap();
    chart.wait_for(1).unwrap();

    let mut all = of_served(granted(&plane, AT_HOME), &served);
    all.extend(everywhere);
    let shown_by_nothing: BTreeSet<Right> = ASKED_FOR_BY_THE_CHECK
        .map(|(group, resource, verb)| (group.into(), resource.into(), verb.into()))
        .into();
    eventually("every right is used", LIMIT, || {
        // A second denial updates the existing Event.
        is_denied(&plane, &ns)?;
        let used = used(&plane);
        let mut idle: BTreeSet<Right> = all.difference(&used).cloned().collect();
        // belay replaces only objects that JSON can't express (H166, H171).
        idle.retain(|(group, resource, verb)| {
            let patch = (group.clone(), resource.clone(), "patch".to_owned());
            verb != "update" || !all.contains(&patch)
        });
        if idle == shown_by_nothing { Ok(()) } else { Err(format!("{idle:?}").into()) }
    })
    .unwrap();
    assert_eq!(forbidden(&plane), Vec::<String>::new());
}

/// Creates CRDs for the kinds in the roles that are not served: the kinds of third-party
/// operators. Missing kinds of Kubernetes stay missing.
fn define_what_is_not_served(plane: &ControlPlane) {
    let served = served(plane);
    let groups: BTreeSet<&String> = served.keys().map(|(group, _)| group).collect();
    let mut missing = kinds(&granted(plane, EVERYWHERE), "watch");
    missing.retain(|(group, _)| !groups.contains(group));
    assert!(missing.len() > 50, "{missing:?}");
    for (group, plural) in &missing {
        let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..]);
        plane.define_kind(group, &kind, plural).unwrap();
    }
}

/// Has every kind watched, and one object of each kind held: an object from before its
/// policy gets the hold late. Returns these kinds.
fn hold_one_of_each(plane: &ControlPlane, ns: &str, rights: &BTreeSet<Right>) -> Vec<String> {
    let create = ["create", "-n", ns, "-f", "-"];
    plane.apply_to(&create, OBJECTS).unwrap().success().unwrap();
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (group, resource) in kinds(rights, "watch") {
        groups.entry(group).or_default().push(resource);
    }
    let target = |(group, resources): (&String, &Vec<String>)| {
        json!({"apiGroups": [group], "resources": resources,
            "objectSelector": {"matchLabels": {"rights": "proof"}}})
    };
    let targets: Vec<Value> = groups.iter().map(target).collect();
    let spec = json!({"targets": targets, "protect": {"whileUsed": {}}});
    plane.apply(&deletion_policy("proof", spec)).unwrap();
    // belay's own rule in its role: the webhook configurations are not objects of policies.
    let ours = ["admissionregistration.k8s.io", "belay.dev"];
    let held: Vec<String> = kinds(rights, "patch")
        .into_iter()
        .filter(|(group, resource)| !ours.contains(&&**group) && resource != "events")
        .map(
            |(group, resource)| {
                if group.is_empty() { resource } else { format!("{resource}.{group}") }
            },
        )
        .collect();
    eventually("a hold on one object of each kind", LIMIT, || {
        let mut all = Vec::new();
        for kind in &held {
            all.extend(plane.api().fields(
                kind,
                "",
                "rights=proof",
                ".kind .metadata.finalizers",
            )?);
        }
        let count = all.iter().filter(|line| line.contains("belay.dev/hold")).count();
        if count == held.len() { Ok(()) } else { Err(format!("{held:?}, and {all:?}").into()) }
    })
    .unwrap();
    held
}

/// Expired approvals, one for an object of each kind. Before belay deletes one, it checks
/// whether the object is Terminating.
fn approve_what_expired(
    plane: &ControlPlane,
    ns: &str,
    kinds: &BTreeSet<Kind>,
    served: &BTreeMap<Kind, bool>,
) {
    // Approvals from a day ago: the check refuses the creation of an expired approval.
    let check = ["delete", "validatingadmissionpolicybinding", "approvals.belay.dev"];
    plane.kubectl(&check).unwrap().success().unwrap();
    let past = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24);
    let past = past.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let approvals: Vec<Value> = kinds
        .iter()
        .enumerate()
        .map(|(number, kind)| {
            let (group, resource) = kind;
            let place = if served[kind] { ns } else { "" };
            let target = json!({"group": group, "resource": resource, "namespace": place,
                "name": "expired", "uid": "0a0a0a0a-0000-4000-8000-000000000000"});
            let spec = json!({"targetRef": target, "approver": "admin", "reason": "it was time",
                "expirationTime": past});
            object("belay.dev/v1alpha1", "DeletionApproval", &format!("proof-{number}"))
                .with(json!({"spec": spec}))
        })
        .collect();
    eventually("an end of the check", LIMIT, || {
        plane.apply_to(&["create", "-f", "-"], &approvals[0])?.success()
    })
    .unwrap();
    let rest = documents(&approvals[1..]);
    plane.apply_to(&["create", "-f", "-"], &rest).unwrap().success().unwrap();
}

/// Deletes a protected object as an exempt user, which is recorded, and as another user,
/// whose denial is an Event. A second policy that exempts the user changes the record.
fn exempt_and_deny(plane: &ControlPlane, ns: &str) {
    let exempt = json!({"exemptSubjects": [{"kind": "User", "name": "admin"}]});
    let policy = |name: &str, object: &str, more: Value| {
        let target = json!({"apiGroups": [""], "resources": ["configmaps"], "names": [object]});
        let spec = json!({"targets": [target], "protect": {"always": {}}});
        plane.apply(&deletion_policy(name, spec.with(more))).unwrap();
        let wait = ["wait", "deletionpolicy", name, "--for=condition=Ready", "--timeout=90s"];
        plane.kubectl(&wait).unwrap().success().unwrap();
    };
    policy("exempt", "exempt", exempt.clone());
    policy("denied", "denied", json!({}));
    eventually("a refusal", LIMIT, || is_denied(plane, ns)).unwrap();
    // The API server asks all webhooks. Another one refuses each DELETE.
    let service = json!({"service": {"namespace": ns, "name": "missing"}});
    plane.apply(&validating_webhook("refuse", ns, ("DELETE", "configmaps"), service)).unwrap();
    plane.apply(&config_map("exempt").with_namespace(ns)).unwrap();
    eventually("the other webhook", LIMIT, || {
        plane.api().delete(&["configmap", "exempt", "--dry-run=server"], ns)?.failure()
    })
    .unwrap();
    // Each replica loads a policy at its own time.
    let wait_for_record = |policies: Value| {
        eventually("the record", LIMIT, || {
            plane.api().delete(&["configmap", "exempt"], ns)?.failure()?;
            let all = plane.api().list("deletionapprovals", "", "")?;
            let found = all.iter().any(|one| one["spec"]["exempts"] == policies);
            if found { Ok(()) } else { Err(format!("{all:?}").into()) }
        })
        .unwrap();
    };
    wait_for_record(json!(["exempt"]));
    policy("exempt-too", "exempt", exempt);
    wait_for_record(json!(["exempt", "exempt-too"]));
    let end = ["delete", "validatingwebhookconfiguration", "refuse"];
    plane.kubectl(&end).unwrap().success().unwrap();
}

fn is_denied(plane: &ControlPlane, ns: &str) -> crate::harness::Result<()> {
    // An object that was deleted too early is re-created for the next attempt.
    plane.kubectl(&["create", "configmap", "denied", "-n", ns])?;
    let delete = ["delete", "configmap", "denied", "-n", ns, "--wait=false"];
    let said = plane.kubectl(&delete)?.failure()?;
    if said.contains("policy denied") { Ok(()) } else { Err(said.into()) }
}

/// Held objects are deleted and released, the certificate is renewed, and a replica that no
/// longer exists has left its counts.
fn release_and_renew(plane: &ControlPlane, held: &[String], ns: &str) {
    let kinds = held.join(",");
    let select = ["-n", ns, "-l", "rights=proof"];
    eventually("the end of the unused objects", LIMIT, || {
        let delete = [&["delete", &kinds, "--wait=false"], &select[..]].concat();
        let said = plane.kubectl(&delete)?.success()?;
        if said.contains("No resources found") { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
    let ask = json!({"metadata": {"annotations": {"belay.dev/rotate-requested": "yes"}}});
    plane.patch("secret/belay-tls", RELEASE, &ask);
    let journal = config_map("belay-journal-gone").with_namespace(RELEASE);
    let journal = journal.with_labels(json!({"belay.dev/journal": RELEASE}));
    let gone = json!({"time": "2020-01-01T00:00:00Z", "activity": {"policies": {}}}).to_string();
    plane.apply(&journal.with(json!({"data": {"journal.json": gone}}))).unwrap();
}

#[test]
fn h162_another_service_account_can_not_use_up_the_requests_of_belay() {
    let plane = crate::plane();
    let chart = Chart::install(&plane, program(), &[]).unwrap();
    chart.wait_for(2).unwrap();
    let level = format!("prioritylevelconfigurations/{RELEASE}");
    let level = plane.api().field(&level, "", ".metadata.uid").unwrap();
    let account = format!("--as=system:serviceaccount:{RELEASE}:{RELEASE}");
    // The API server classifies an impersonated user like the user itself, a moment after the level exists.
    eventually("requests in belay's priority level", LIMIT, || {
        let read = plane.kubectl(&["get", "--raw", "/api", "-v=8", &account])?;
        match read.stderr.contains(&level) {
            true => Ok(()),
            false => Err(read.stderr.into()),
        }
    })
    .unwrap();
}
