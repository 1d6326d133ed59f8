//! The permissions of the chart: only the necessary ones, and all that the program
//! needs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::helm::{Objects, Render, strings};
use crate::program::printed;

/// A permission: a verb on a resource of a group, and the resource name if it is
/// restricted.
type Right = (String, String, String, String);

/// The permissions of a rule, one by one.
fn rights(rules: &Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        let names = match strings(&rule["resourceNames"]) {
            names if names.is_empty() => vec![""],
            names => names,
        };
        for group in strings(&rule["apiGroups"]) {
            for resource in strings(&rule["resources"]) {
                for verb in strings(&rule["verbs"]) {
                    let right = |name: &str| {
                        (group.to_owned(), resource.to_owned(), verb.to_owned(), name.to_owned())
                    };
                    rights.extend(names.iter().map(|name| right(name)));
                }
            }
        }
    }
    rights
}

fn of_role(objects: &Objects, kind: &str, name: &str) -> BTreeSet<Right> {
    rights(&objects.get(kind, name)["rules"])
}

/// The cluster-wide permissions of belay's account.
fn cluster(objects: &Objects) -> BTreeSet<Right> {
    let both = ["belay-kinds", "belay-own"].map(|name| of_role(objects, "ClusterRole", name));
    both.into_iter().flatten().collect()
}

fn plain(relations: &str) -> Render {
    let none = "argo certManager cloudNativePg clusterApi crossplane externalSecrets flux gatewayApi \
                istio keda prometheusOperator strimzi velero volumeSnapshots";
    let off = none.split(' ').map(|family| format!("\"{family}\":{}", family == relations));
    Render::default().set(&format!("relations={{{}}}", off.collect::<Vec<_>>().join(",")))
}

#[test]
fn without_relations_the_rights_are_those_that_the_program_prints() {
    let service = "--service=belay/belay";
    let rendered = plain("").objects();
    let manifests = printed(&["admin", "manifests", service]);
    assert_eq!(cluster(&rendered), of_role(&manifests, "ClusterRole", "belay"));
    assert_eq!(of_role(&rendered, "Role", "belay"), of_role(&manifests, "Role", "belay"));

    let also = plain("").set("rbac.watchAlso=[\"secrets\",\"example.com/widgets\"]").objects();
    let options = ["--watch-also=secrets", "--watch-also=example.com/widgets"];
    let manifests = printed(&["admin", "manifests", service, options[0], options[1]]);
    assert_eq!(cluster(&also), of_role(&manifests, "ClusterRole", "belay"));

    let everything = plain("").set("rbac.watchEverything=true").objects();
    let manifests = printed(&["admin", "manifests", service, "--watch-everything"]);
    assert_eq!(cluster(&everything), of_role(&manifests, "ClusterRole", "belay"));
}

#[test]
fn belay_is_bound_to_the_sum_that_users_extend_by_a_label() {
    let objects = Render::default().objects();
    let sum = objects.get("ClusterRole", "belay");
    assert_eq!(sum.get("rules"), None, "the control plane writes them");
    let selectors = &sum["aggregationRule"]["clusterRoleSelectors"];
    let label = "belay.dev/aggregate-to-belay";
    assert_eq!(selectors[0]["matchLabels"][label], "true");
    assert_eq!(selectors.as_array().unwrap().len(), 1);
    assert_eq!(objects.get("ClusterRole", "belay-kinds")["metadata"]["labels"][label], "true");
    for (kind, name) in [
        ("ClusterRoleBinding", "belay"),
        ("ClusterRoleBinding", "belay-own"),
        ("RoleBinding", "belay"),
    ] {
        let binding = objects.get(kind, name);
        assert_eq!(binding["roleRef"]["name"], name);
        let subjects =
            serde_json::json!([{"kind": "ServiceAccount", "name": "belay", "namespace": "belay"}]);
        assert_eq!(binding["subjects"], subjects);
    }
    let view = Render::default().set("rbac.aggregateView=true").objects();
    assert!(view.get("ClusterRole", "belay").to_string().contains("aggregate-to-view"));
}

#[test]
fn users_of_the_role_view_read_no_approvals() {
    let name = "belay-aggregate-to-view";
    let role = of_role(&Render::default().objects(), "ClusterRole", name);
    let kinds: BTreeSet<_> = role.into_iter().map(|(_, resource, ..)| resource).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["deletionpolicies", "pauses", "relations"]);
    let without = Render::default().set("rbac.aggregateToView=false").objects();
    assert_eq!(without.find("ClusterRole", name), None);
}

#[test]
fn secrets_are_readable_only_if_the_values_protect_them() {
    let may = |render: Render| {
        let rights = cluster(&render.objects());
        let verbs = rights.into_iter().filter(|(group, resource, ..)| {
            ["", "*"].contains(&&**group) && ["secrets", "*"].contains(&&**resource)
        });
        verbs.map(|(_, _, verb, _)| verb).filter(|v| v != "approve-deletion").collect::<Vec<_>>()
    };
    let profile = |name: &str| Render::default().set(&format!("profile={name:?}"));
    for render in [profile("observe"), profile("guarded")] {
        assert_eq!(may(render), [""; 0]);
    }
    let all = ["get", "list", "patch", "update", "watch"];
    let on = "policies.secretsInUse.enabled=true";
    for render in [
        profile("guarded").set(on),
        profile("observe").set(on),
        profile("guarded").set("rbac.watchAlso=[\"secrets\"]"),
        profile("guarded").set("labelledKinds=[\"configmaps\",\"secrets\"]"),
    ] {
        assert_eq!(may(render), all);
    }
    assert!(!may(profile("strict")).is_empty());
    // Without both policies strict needs none.
    let neither = "policies={\"secretsInUse\":{\"enabled\":false},\
                   \"namespacesWithContent\":{\"enabled\":false}}";
    assert_eq!(may(profile("strict").set(neither)), [""; 0]);
}

#[test]
fn a_family_adds_only_the_right_to_read_its_kinds() {
    let without = cluster(&plain("").objects());
    for (family, group, resource) in [
        ("certManager", "cert-manager.io", "certificates"),
        ("cloudNativePg", "postgresql.cnpg.io", "clusters"),
        ("volumeSnapshots", "snapshot.storage.k8s.io", "volumesnapshots"),
    ] {
        let with = cluster(&plain(family).objects());
        let more: BTreeSet<_> = with.difference(&without).collect();
        assert!(more.iter().any(|(g, r, ..)| (&**g, &**r) == (group, resource)), "{more:?}");
        for (group, resource, verb, _) in more {
            assert!(group.contains('.') || resource != "secrets", "{family}: {resource}");
            assert!(["get", "list", "watch"].contains(&&**verb), "{family}: {verb} {resource}");
        }
        assert!(without.is_subset(&with));
    }
}

#[test]
fn whatever_has_a_relation_can_be_read() {
    let everything = crate::helm::chart().join("ci/everything-values.yaml");
    let render = Render::default().with(&everything).set("fullnameOverride=\"belay\"");
    let objects = render.set("rbac.watchAlso=[]").set("profile=\"guarded\"").objects();
    let rights = cluster(&objects);
    let relations = objects.of("Relation");
    assert!(relations.len() > 100);
    for relation in relations {
        let from = &relation["spec"]["from"];
        for verb in ["get", "list", "watch"] {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let right =
                (text(&from["group"]), text(&from["resource"]), verb.to_owned(), String::new());
            assert!(rights.contains(&right), "{right:?}");
        }
    }
}

#[test]
fn without_rbac_there_is_no_role_and_no_binding() {
    let objects = Render::default().set("rbac.create=false").set("crds.keep=false").objects();
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        assert_eq!(objects.of(kind).len(), 0, "{kind}");
    }
}

#[test]
fn hooks_may_do_what_they_are_for() {
    let objects = Render::default().set("crds.keep=false").objects();
    let definitions = [
        "deletionapprovals.belay.dev",
        "deletionpolicies.belay.dev",
        "pauses.belay.dev",
        "relations.belay.dev",
    ];
    let right = |group: &str, resource: &str, verb: &str, name: &str| {
        (group.to_owned(), resource.to_owned(), verb.to_owned(), name.to_owned())
    };
    let (group, kind) = ("apiextensions.k8s.io", "customresourcedefinitions");
    let registered = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
        .map(|kind| right("admissionregistration.k8s.io", kind, "list", ""));
    let counts = [right("belay.dev", "*", "list", "")].into_iter().chain(registered);
    for (name, verbs, more) in [
        ("belay-crds-upgrade", ["get", "update"], vec![right(group, kind, "create", "")]),
        ("belay-crds-delete", ["get", "delete"], counts.collect()),
    ] {
        let named = verbs.iter().flat_map(|v| definitions.map(|d| right(group, kind, v, d)));
        assert_eq!(of_role(&objects, "ClusterRole", name), named.chain(more).collect());
    }
    let test = objects.get("Role", "belay-selftest");
    assert_eq!(test["metadata"]["namespace"], "default");
    let expected = [("configmaps", "create"), ("events", "create"), ("events", "delete")];
    let expected = expected.map(|(resource, verb)| right("", resource, verb, "")).into();
    assert_eq!(rights(&test["rules"]), expected);
    // It deletes only belay's own objects, by name.
    let cluster = of_role(&objects, "ClusterRole", "belay-uninstall");
    let deletes: BTreeSet<_> = cluster.iter().filter(|(_, _, verb, _)| verb == "delete").collect();
    assert_eq!(deletes.len(), 3);
    let own = |(group, _, _, name): &&Right| group == "belay.dev" || name == "belay";
    assert!(deletes.iter().all(own), "{deletes:?}");
    let kinds = objects.get("ClusterRoleBinding", "belay-uninstall-kinds");
    assert_eq!(kinds["roleRef"]["name"], "belay", "it reads and patches what belay does");
}
