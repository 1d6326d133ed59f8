//! `kubectl belay used-by`, on a folder.

use super::{assert_snapshot, belay, fed};

#[test]
fn reports_the_users_of_a_secret_by_their_topmost_owners() {
    assert_snapshot("used-by.txt", 1, "used-by secret/db-creds -n shop --from .");
}

#[test]
fn weak_users_are_counted_and_listed_on_request() {
    assert_snapshot("used-by-weak.txt", 0, "used-by deploy/web -n shop --from .");
    assert_snapshot("used-by-weak-all.txt", 0, "used-by deploy/web -n shop --from . --all");
}

#[test]
fn follows_uses_to_a_depth_and_in_reverse() {
    assert_snapshot("used-by-deep.txt", 1, "used-by pv/pvc-1f2a --from . --depth 3");
    assert_snapshot("uses.txt", 0, "used-by sts/postgres -n shop --from . --reverse");
}

#[test]
fn programs_get_every_edge() {
    let json = belay("used-by secret/db-creds -n shop --from . -o json");
    let said: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(said["kind"], "UsedBy");
    let uses = said["uses"].as_array().unwrap();
    // Two workloads, the ReplicaSet between, and three Pods.
    assert_eq!(uses.len(), 6, "{json:?}");
    assert!(uses.iter().all(|one| one["means"] == "needs"), "{json:?}");
}

/// As a dump of Pods has it: `kubectl get pods -A -o yaml`.
const PODS: &str = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: \
    {name: web, namespace: shop}\n  spec: {containers: [{name: main, envFrom: [{secretRef: {name: \
    db-creds}}, {configMapRef: {name: colours, optional: true}}]}]}\n";

#[test]
fn a_missing_object_can_have_users() {
    let said = fed("used-by secret/db-creds -n shop --from -", PODS);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    assert_eq!(
        said.stdout,
        "secret/db-creds -n shop  used by 1  not found\n\
         └─ pod/web               needs      spec.containers[0].envFrom[0].secretRef.name\n"
    );
    let json = fed("used-by secret/db-creds -n shop --from - -o json", PODS);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&json["present"], &json["uses"][0]["object"]["name"]),
        (&false.into(), &"web".into())
    );
    // A user with an optional reference does not need the object.
    let weak = fed("used-by cm/colours -n shop --from -", PODS);
    assert_eq!(weak.code, 0, "{weak:?}");
    assert!(
        weak.stdout.contains("used by no object that blocks its deletion  not found"),
        "{weak:?}"
    );
    // An object that no manifest names is a mistake. A missing object is not reported as
    // unused.
    for line in ["used-by secret/other -n shop", "used-by secret/db-creds -n shop --reverse"] {
        let none = fed(&format!("{line} --from -"), PODS);
        assert_eq!((none.code, none.stdout.as_str()), (3, ""), "{line}: {none:?}");
        assert!(none.stderr.contains(" not found in namespace \"shop\""), "{line}: {none:?}");
    }
    let there = belay("used-by secret/db-creds -n shop --from . -o json");
    let there: serde_json::Value = serde_json::from_str(&there.stdout).unwrap();
    assert_eq!(there["present"], true);
}

/// The EndpointSlice of a Service mentions it in a label, and another one mentions it, too.
const SLICES: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", "uid":
        "u"}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-a",
        "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "u"}]}},
    {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "own",
        "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}}]}"#;

#[test]
fn a_service_is_no_user_of_itself_by_its_endpoint_slice() {
    let said = fed("used-by svc/web -n shop --from - --all", SLICES);
    assert!(said.stdout.contains("endpointslice/own"), "{said:?}");
    assert!(!said.stdout.contains("web-a"), "{said:?}");
}

#[test]
fn cascaded_objects_are_listed_without_users() {
    let place = belay("used-by ns/shop --from .");
    assert_eq!((place.code, place.stderr.as_str()), (0, ""), "{place:?}");
    let says = "16 objects would be deleted with it; next: kubectl belay impact namespace/shop\n";
    assert!(place.stdout.ends_with(says), "{place:?}");
    let kind = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: \
        {name: gizmos.example.com}\nspec: {group: example.com, scope: Namespaced, names: {kind: \
        Gizmo, plural: gizmos}, versions: [{name: v1, served: true}]}\n---\napiVersion: \
        example.com/v1\nkind: Gizmo\nmetadata: {name: one, namespace: shop}\n";
    let text = fed("used-by crd/gizmos.example.com --from -", kind);
    assert!(text.stdout.contains("\n1 object would be deleted with it; next: "), "{text:?}");
    let json = fed("used-by crd/gizmos.example.com --from - -o json", kind);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["goesAlong"], 1, "{json}");
}

/// A RoleBinding whose name looks like a part of the tree, and has an invisible character.
const BINDING: &str = r#"{"kind": "List", "apiVersion": "v1", "items": [{
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
    "metadata": {"name": "a  deleted\u200b$(id)", "namespace": "shop"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}}]}"#;

#[test]
fn h181_ambiguous_names_have_quotation_marks() {
    let said = fed("used-by role/reader -n shop --from -", BINDING);
    let line = "└─ 'rolebinding/a  deleted $(id)'  needs      roleRef.name\n";
    assert!(said.code == 1 && said.stdout.ends_with(line), "{said:?}");
    let said = fed("impact rolebindings --all -n shop --from -", BINDING);
    let line = "'rolebinding/a  deleted $(id)' -n shop";
    assert!(said.stdout.contains(line), "{said:?}");
}
