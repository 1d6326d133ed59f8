//! `kubectl belay stuck`, on a dump.

use serde_json::{Value, json};

use super::{belay, fed, folder, is_as_in};

#[test]
fn why_the_objects_of_a_dump_do_not_go() {
    let line = "stuck --from ../going --longer-than 1s";
    let said = belay(line);
    assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
    is_as_in("stuck.txt", line, &ageless(&said.stdout));
}

/// Without the days that have passed since the dump.
fn ageless(text: &str) -> String {
    let masked = |word: &str| match word.strip_suffix('d') {
        Some(days) if days.parse::<u32>().is_ok() => "…d".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(masked).collect::<Vec<_>>().join(" ");
    text.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn a_kind_that_a_dump_leaves_out_proves_nothing() {
    // Without the StatefulSets it is unknown whether the operator exists.
    let dump = std::fs::read_to_string(folder("going").join("dump.yaml")).unwrap();
    let objects = |dump: &str| {
        let said = fed("stuck --from - -o json", dump);
        assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
        let said: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        let of = said["items"].as_array().unwrap().iter().map(|item| {
            (
                item["object"]["name"].as_str().unwrap().to_owned(),
                item["causes"][0]["cause"].clone(),
            )
        });
        of.collect::<std::collections::BTreeMap<_, _>>()
    };
    let whole = objects(&dump);
    assert_eq!((&whole["bucket"], &whole["parent"]), (&"OwnerDown".into(), &"Refused".into()));
    // A dump without CRDs does not contain the list of kinds, and a dump without policies
    // does not contain the users that belay waits for.
    assert_eq!((&whole["tenant"], &whole["settings"]), (&"Unknown".into(), &"HeldByBelay".into()));
    // A dump with a CRD shows that no CRD of this domain exists, and one with webhooks that
    // no webhook of it does.
    let definition = "
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: gizmos.other.example, uid: 00000000-0000-4000-8000-0000000000ff}
  spec:
    group: other.example
    names: {kind: Gizmo, plural: gizmos}
    scope: Namespaced
    versions: [{name: v1, served: true, storage: true}]
";
    let webhooks = "
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: other, uid: 00000000-0000-4000-8000-0000000000fe}
- apiVersion: admissionregistration.k8s.io/v1
  kind: MutatingWebhookConfiguration
  metadata: {name: other, uid: 00000000-0000-4000-8000-0000000000fd}
";
    let with_apis =
        |dump: &str| format!("{}{definition}{}", dump.trim_end(), webhooks.trim_start());
    let known = objects(&format!("{}{definition}", dump.trim_end()));
    assert_eq!(known["tenant"], "Unknown");
    assert_eq!(objects(&with_apis(&dump))["tenant"], "OwnerGone");
    let gone = with_apis(&dump.replace("name: bucket-operator", "name: other"));
    assert_eq!(objects(&gone)["bucket"], "OwnerGone");
    let part = gone.replace("kind: StatefulSet", "kind: Deployment");
    assert_eq!(objects(&part)["bucket"], "Unknown");
    // A controller that is in the dump exists, even if other kinds are missing.
    let seen = dump.replace("kind: StatefulSet", "kind: Deployment");
    assert_eq!(objects(&seen)["bucket"], "OwnerDown");
    // A dump of one namespace does not contain the others.
    let shop = gone.replace("namespace: buckets", "namespace: shop");
    let shop = objects(&shop.replace("namespace: kube-system", "namespace: shop"));
    assert_eq!(shop["bucket"], "Unknown");
}

/// ConfigMaps that the garbage collector can't orphan, because belay denies the UPDATE of each
/// dependent.
fn owners_to_orphan(namespace: &str, count: usize) -> Vec<Value> {
    let object = |name: String, metadata: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let uid = format!("{namespace}-{name}");
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["uid"] = uid.clone().into();
        object["metadata"]["name"] = name.into();
        (object, uid)
    };
    let with_dependent = |index: usize| {
        let terminating =
            json!({"finalizers": ["orphan"], "deletionTimestamp": "2020-01-01T00:00:00Z"});
        let (owner, uid) = object(format!("owner-{index}"), terminating);
        let name = &owner["metadata"]["name"];
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
        let references = json!({"ownerReferences": [reference]});
        [owner, object(format!("child-{index}"), references).0]
    };
    (0..count).flat_map(with_dependent).collect()
}

#[test]
fn h133_many_owners_of_one_namespace_cost_few_verdicts_and_cannot_hide_others() {
    let policy = json!({"apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
        "metadata": {"name": "orphans"}, "spec": {"protect": {"fromOrphaning": {}},
            "targets": [{"apiGroups": [""], "resources": ["configmaps"]}]}});
    // The last one comes after the limit.
    let owners = owners_to_orphan("eve", 40).into_iter().chain(owners_to_orphan("prod", 1));
    let items: Vec<Value> = owners.chain([policy]).collect();
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let counts = |options: &str| {
        let said = fed(&format!("stuck --from - {options}"), &dump);
        assert_eq!((said.code, said.stderr.as_str()), (1, ""), "{said:?}");
        let count = |text: &str| said.stdout.matches(text).count();
        let of_prod = said.stdout.contains("belay approve configmaps/child-0 -n prod ");
        let denials = count("belay denies the removal of the owner reference of");
        (denials, count("use --all to check whether belay denies that"), of_prod)
    };
    assert_eq!(counts(""), (30, 11, true));
    assert_eq!(counts("--all"), (41, 0, true));
    // Output for programs is complete.
    assert_eq!(counts("-o json"), (41, 0, true));
}

#[test]
fn only_what_is_asked_for_is_looked_at() {
    let none = belay("stuck --from ../going -n other");
    let says = "nothing in namespace other has been Terminating for longer than 2m\n";
    assert_eq!((none.code, none.stdout.as_str()), (0, says), "{none:?}");
    let none = belay("stuck --from ../going/policies.yaml");
    let says = "nothing in the files has been Terminating for longer than 2m\n";
    assert_eq!((none.code, none.stdout.as_str()), (0, says), "{none:?}");
    let wrong = belay("stuck --from ../going --kubeconfig x");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""), "{wrong:?}");
}

#[test]
fn h180_thousands_of_finalizers_of_one_object_are_counted() {
    let finalizers: Vec<String> = (0..40_000).map(|n| format!("x.dev/f{n}")).collect();
    let object = |name: &str, deleted: Option<&str>| {
        let (namespace, uid) = ("shop", name);
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid,
            "finalizers": finalizers, "deletionTimestamp": deleted});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    };
    let policy = json!({"apiVersion": "belay.dev/v1alpha1", "kind": "DeletionPolicy",
        "metadata": {"name": "p"}, "spec": {"protect": {"always": {}},
        "targets": [{"apiGroups": ["apps"], "resources": ["deployments"]}]}});
    let items = [object("ending", Some("2026-01-01T00:00:00Z")), object("live", None), policy];
    let all = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    for (line, lines) in [
        ("stuck", 160),
        ("stuck -o json", 320),
        ("why cm/ending", 160),
        ("why cm/ending -o json", 500),
        ("why cm/live", 40),
        ("why cm/live -o json", 100),
        ("impact cm/ending", 10),
        ("impact cm/live -o json", 100),
    ] {
        let said = fed(&format!("{line} -n shop --from -"), &all);
        let counts = said.stdout.lines().count();
        let shown: String = said.stdout.chars().take(5000).collect();
        assert!(counts <= lines && said.stdout.len() < 60_000, "{line}: {counts}: {shown}");
        let all = said.stdout.contains("39980 more finalizers")
            && said.stdout.contains("x.dev/f19")
            && said.stdout.contains(" -n shop -o yaml");
        assert!(all, "{line}: {}{shown}", said.stderr);
    }
}
