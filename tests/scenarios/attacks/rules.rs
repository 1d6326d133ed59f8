//! Attempts to evade the requests that belay reviews: subjects, labels, subresources,
//! repeated DELETEs, tokens, and the webhooks themselves.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::manifest::{
    Manifest as _, claim, config_map, deletion_policy, object, pod, reader, workload,
};
use crate::harness::rbac::rule;
use crate::harness::{ControlPlane, Install, Shared, eventually};
use crate::people::{Person, field};
use crate::team::{SOON, Team};
use crate::{World, policy, program, world};

const LIMIT: Duration = Duration::from_secs(60);

/// belay without a policy for Pods or for objects in namespaces.
fn labels_alone() -> Arc<World> {
    static WORLD: Shared<World> = Shared::new();
    WORLD.get(|| {
        let plane = ControlPlane::start()?;
        let belay = Install::of_everything(1).on(&plane, program())?;
        Ok(World { plane, belay })
    })
}

/// The fields of an object that a merge patch changes.
fn patch(
    plane: &ControlPlane,
    who: &std::path::Path,
    args: &[&str],
    patch: &str,
) -> Result<String, String> {
    let args = [&["patch", "--type=merge", "-p", patch], args].concat();
    let output = plane.kubectl_as(who, &args).unwrap();
    if output.ok() { Ok(output.stdout) } else { Err(output.stderr) }
}

#[test]
fn f01_what_a_policy_of_some_subjects_protects_is_deleted_for_the_others() {
    let team = Team::new(&world().plane, "f01");
    let spec = |protect: Value| {
        json!({"targets": [policy::target("", "configmaps", &team.ns)],
            "subjects": [{"kind": "User", "name": "bob"}], "protect": protect})
    };
    policy::apply(team.plane, &team.ns, spec(json!({"always": {}})));
    team.apply(&config_map("owner"));
    team.apply(&config_map("owned").with_owner(team.owner("ConfigMap", "owner")));
    // jane's DELETE reports "deleted", and the object is. The garbage collector deletes the
    // rest.
    team.deleted(&["configmap/owner"]);
    team.wait_until_deleted("configmap/owner");
    team.wait_until_deleted("configmap/owned");
    let path = ".status.notHeld[*].why";
    eventually("the reason in the status", LIMIT, || {
        let why = field(team.plane, "default", &format!("deletionpolicy/{}", team.ns), path);
        if why.contains("binds only some subjects") { Ok(()) } else { Err(why.into()) }
    })
    .unwrap();

    let hold = deletion_policy("f01-hold", spec(json!({"whileUsed": {"onDelete": "Hold"}})));
    let refused = team.plane.apply_to(&["create", "-f", "-"], &hold).unwrap().failure().unwrap();
    assert!(refused.contains("a policy with subjects places no hold"), "{refused}");
}

#[test]
fn h09_annotations_that_a_policy_reads_are_not_changed_through_status() {
    let plane = &world().plane;
    let ns = plane.namespace("h09").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    let tier = json!({"example.com/tier": "gold"});
    let target = policy::target("", "persistentvolumeclaims", &ns);
    let target = target.with(json!({"matchAnnotations": tier}));
    policy::apply(plane, &ns, json!({"targets": [target], "protect": {"always": {}}}));
    let annotations = json!({"metadata": {"annotations": tier}});
    plane.apply(&claim("data").with_namespace(&ns).with(annotations)).unwrap();
    let change = r#"{"metadata":{"annotations":{"example.com/tier":"tin"}}}"#;
    for way in [&[][..], &["--subresource=status"]] {
        let args = [&["pvc", "data", "-n", &ns], way].concat();
        let refused = patch(plane, &who, &args, change).unwrap_err();
        assert!(refused.contains("annotate.belay.dev\" denied the request"), "{way:?}: {refused}");
    }
}

#[test]
fn h11_a_labelled_pod_is_not_evicted() {
    let world = labels_alone();
    let plane = &world.plane;
    let ns = plane.namespace("h11").unwrap();
    let who = Person::editor(plane, &ns).kubeconfig;
    plane.apply(&pod("kept").with_namespace(&ns).with_protect_label("Always")).unwrap();
    plane.apply(&pod("plain").with_namespace(&ns)).unwrap();
    let evict = |name: &str| {
        let path = format!("/api/v1/namespaces/{ns}/pods/{name}/eviction");
        let eviction = object("policy/v1", "Eviction", name).with_namespace(&ns);
        plane.kubectl_with(Some(&who), &["create", "--raw", &path, "-f", "-"], &eviction).unwrap()
    };
    let refused = evict("kept").failure().unwrap();
    assert!(refused.contains("label belay.dev/protect=Always"), "{refused}");
    assert_eq!(field(plane, &ns, "pod/kept", ".metadata.deletionTimestamp"), "");
    evict("plain").success().unwrap();
}

/// The API server stores no Eviction, so etcd does not limit its size. Large reviews at the same
/// moment time out, and `evict.belay.dev` has failurePolicy Ignore.
#[test]
fn h132_an_eviction_has_no_large_fields() {
    let team = Team::new(&world().plane, "h132");
    team.apply(&pod("kept").with_protect_label("Always"));
    team.apply(&pod("plain"));
    let evict = |name: &str, metadata: &Value, options: &Value| {
        let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction", team.ns);
        let eviction = object("policy/v1", "Eviction", name).with_namespace(&team.ns);
        let fields = json!({"metadata": metadata, "deleteOptions": options});
        team.send(&["create", "--raw", &path, "-f", "-"], &eviction.with(fields))
    };
    let all = |count: usize, value: &str| -> Value {
        (0..count).map(|n| (format!("{}{n}", "k".repeat(250)), json!(value))).collect()
    };
    let [long, none] = [json!("<".repeat(254)), json!({})];
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "kept", "uid": "x"});
    let metadata = [
        json!({"annotations": {"a": "<".repeat(1_025)}}),
        json!({"annotations": {"k".repeat(254): ""}}),
        json!({"annotations": all(17, "")}),
        json!({"labels": {"a": long}}),
        json!({"labels": {"k".repeat(254): ""}}),
        json!({"labels": all(17, "")}),
        json!({"finalizers": ["example.com/a"]}),
        json!({"ownerReferences": [owner]}),
        json!({"generateName": long}),
        json!({"resourceVersion": long}),
    ];
    let options = [
        json!({"kind": long}),
        json!({"apiVersion": long}),
        json!({"propagationPolicy": long}),
        json!({"preconditions": {"uid": long}}),
        json!({"preconditions": {"resourceVersion": long}}),
        json!({"dryRun": ["All", "All"]}),
        json!({"dryRun": [long]}),
    ];
    let metadata = metadata.iter().map(|fields| (fields, &none));
    for (metadata, options) in metadata.chain(options.iter().map(|fields| (&none, fields))) {
        let refused = evict("plain", metadata, options).failure().unwrap();
        assert!(refused.contains("an Eviction may have at most"), "{metadata}{options}: {refused}");
    }
    // The API server checks the size before it asks belay.
    let large = json!({"annotations": {"a": "<".repeat(3_000_000)}});
    let refused = evict("kept", &large, &none).failure().unwrap();
    assert!(refused.contains("evictions.belay.dev"), "{refused}");
    assert!(!refused.contains("admission webhook"), "{refused}");
    team.assert_exists("pod/kept");

    // Others pass. The API server drops managedFields, uid and selfLink of the sender.
    let manager = |name: &str| {
        json!({"manager": name, "operation": "Update", "apiVersion": "policy/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {}}}})
    };
    let metadata = json!({"labels": all(16, &"v".repeat(63)), "uid": long, "selfLink": long,
        "annotations": all(16, &"<".repeat(1_024)), "managedFields": [manager("a"), manager("b")]});
    let uid = team.field("pod/plain", ".metadata.uid");
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "propagationPolicy": "Background", "preconditions": {"uid": uid}});
    evict("plain", &metadata, &options).success().unwrap();
    team.wait_until_deleted("pod/plain");
}

/// Nothing that a client puts into an object may make belay answer with an error: where a
/// webhook has failurePolicy Ignore the request would pass.
#[test]
fn h92_texts_of_any_length_in_an_object_let_nothing_pass() {
    let team = Team::new(&world().plane, "h92");
    let (plane, ns) = (team.plane, &team.ns);
    let long = "x".repeat(1_025);
    // The API server stores it, and sends every request about the object to belay.
    let target = policy::target("", "configmaps", ns).with(json!({"names": ["child"]}));
    let subjects = json!([{"kind": "User", "name": team.name}]);
    let spec = json!({"targets": [target], "protect": {"always": {}}, "subjects": subjects});
    policy::apply(plane, ns, spec);
    team.apply(
        &workload("Deployment", "owner", &pod("owner")).with(json!({"spec": {"replicas": 0}})),
    );
    let uid = field(plane, ns, "deployment/owner", ".metadata.uid");
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "owner", "uid": uid});
    team.apply(&config_map("child").with_owner(owner));
    eventually("a refusal", SOON, || {
        team.delete(&["deployment/owner", "--dry-run=server"]).failure()
    })
    .unwrap();
    let generate_name = json!({"metadata": {"generateName": long}});
    plane.patch("deployment/owner", ns, &generate_name);
    let refused = team.refused(&["deployment/owner"]);
    assert!(refused.contains("configmap \"child\""), "{refused}");
    // Nor does it keep unprotected objects.
    plane.delete(&["configmap/child"], ns);
    team.wait_until_deleted("configmap/child");
    eventually("a DELETE that passes", SOON, || team.delete(&["deployment/owner"]).success())
        .unwrap();
}

#[test]
fn h13_a_repeated_delete_does_not_turn_orphaning_into_deletion() {
    let team = Team::new(&world().plane, "h13");
    let (plane, ns) = (team.plane, &team.ns);
    let target = policy::target("", "configmaps", ns).with(json!({"names": ["child"]}));
    policy::apply(plane, ns, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    team.apply(&config_map("owner"));
    team.apply(&config_map("child").with_owner(team.owner("ConfigMap", "owner")));
    team.apply(&reader("user", "configMapRef", "child"));
    team.refused(&["configmap/owner"]);

    // The owner stays while it is being orphaned, as it does for a moment otherwise.
    let binding = team.keep_collector_from("configmap/child");
    team.delete(&["configmap/owner", "--cascade=orphan"]).success().unwrap();
    let finalizers = team.field("configmap/owner", ".metadata.finalizers");
    assert!(finalizers.contains("\"orphan\""), "{finalizers}");
    let again = team.delete(&["configmap/owner"]);
    let refused = again.failure().unwrap();
    assert!(refused.contains("in use"), "{refused}");
    team.assert_exists("configmap/child");
    team.remove_binding(&binding);
}

#[test]
fn h14_a_token_that_an_editor_makes_strips_no_finalizer_of_kubernetes() {
    let plane = &world().plane;
    let ns = plane.namespace("h14").unwrap();
    // An editor may create tokens of it.
    let account = Person::operator(plane, &ns, &ns, "build").kubeconfig;
    policy::protect(plane, &ns, "persistentvolumeclaims", json!({"fromStripping": {}}));
    plane.apply(&claim("data").with_namespace(&ns)).unwrap();
    plane.apply(&pod("user").with_namespace(&ns).with_claim("data")).unwrap();
    eventually("the finalizer of the claim", LIMIT, || {
        let finalizers = field(plane, &ns, "pvc/data", ".metadata.finalizers");
        if finalizers.contains("pvc-protection") { Ok(()) } else { Err(finalizers.into()) }
    })
    .unwrap();
    let strip = r#"{"metadata":{"finalizers":null}}"#;
    let refused = patch(plane, &account, &["pvc", "data", "-n", &ns], strip).unwrap_err();
    assert!(refused.contains("you may not remove the finalizer"), "{refused}");
    // It may still remove the finalizer of an operator.
    let add = r#"{"metadata":{"finalizers":["kubernetes.io/pvc-protection","example.com/x"]}}"#;
    patch(plane, &account, &["pvc", "data", "-n", &ns], add).unwrap();
    let remove = r#"{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}"#;
    patch(plane, &account, &["pvc", "data", "-n", &ns], remove).unwrap();
}

#[test]
fn h16_with_labels_alone_a_namespace_with_content_is_not_finalized() {
    let world = labels_alone();
    let plane = &world.plane;
    let ns = plane.namespace("h16").unwrap();
    let who = Person::of(plane, &ns);
    who.may(&[rule("", "namespaces, namespaces/finalize", "*")]);
    plane.apply(&config_map("kept").with_namespace(&ns).with_protect_label("Always")).unwrap();
    let mut namespace = plane.api().get(&format!("namespace/{ns}"), "").unwrap().unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    let path = format!("/api/v1/namespaces/{ns}/finalize");
    let finalize = || who.send(&["replace", "--raw", &path, "-f", "-"], &namespace);
    let refused = finalize().failure().unwrap();
    assert!(refused.contains("finalize.belay.dev\" denied the request"), "{refused}");
    assert!(refused.contains("label belay.dev/protect=Always"), "{refused}");
}

#[test]
fn h17_a_webhook_that_is_not_as_it_was_installed_is_reported_by_name() {
    let world = labels_alone();
    let World { plane, belay } = &*world;
    let name = "h17";
    let target = json!({"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"],
        "names": [name]});
    policy::apply(plane, name, json!({"targets": [target], "protect": {"always": {}}}));
    let configuration = "validatingwebhookconfiguration/belay";
    let read = |path: &str| plane.api().field(configuration, "", path).unwrap();
    let names = read(".webhooks[*].name");
    let index = names.split(' ').position(|name| name == "delete.belay.dev").unwrap();
    let write = |field: &str, value: &str| {
        let path = format!("/webhooks/{index}/{field}");
        let value: Value = serde_json::from_str(value).unwrap();
        let patch = json!([{"op": "replace", "path": path, "value": value}]);
        plane.patch(configuration, "", &patch);
    };
    let ready = |status: &str, says: &str| {
        let of = |field: &str| format!(".status.conditions[?(@.type==\"Ready\")].{field}");
        let paths = ["status", "reason", "message"].map(of).join(" ");
        let is_met = |said: &str| said.starts_with(status) && said.contains(says);
        plane.api().wait_field(("deletionpolicy/h17", ""), LIMIT, &paths, is_met).unwrap();
    };
    let nothing = r#"{"matchLabels":{"kubernetes.io/metadata.name":"none"}}"#;
    for (field, value) in [
        ("failurePolicy", "\"Ignore\""),
        ("namespaceSelector", nothing),
        ("objectSelector", nothing),
        ("matchConditions", r#"[{"name":"never","expression":"false"}]"#),
    ] {
        let before = match read(&format!(".webhooks[{index}].{field}")) {
            text if text.starts_with(['{', '[']) => text,
            text => format!("{text:?}"),
        };
        write(field, value);
        ready("False", &format!("webhook delete.belay.dev ({field})"));
        assert!(belay.metric("belay_registration_changed{configuration=\"validating\"}") > 0.5);
        write(field, &before);
        ready("True", "");
    }
    let log: String = belay.replicas.iter().map(|replica| replica.process.log()).collect();
    assert!(log.contains("delete.belay.dev (failurePolicy)"), "{log}");
    eventually("the Event", LIMIT, || {
        let paths = ".involvedObject.name .reason .message";
        let mut events = plane.api().fields("events", "belay", "", paths)?;
        events.retain(|event| event.starts_with("belay Changed "));
        let said = events.join(" ");
        if said.contains("delete.belay.dev (failurePolicy)") { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
}

#[test]
fn a_kind_that_belay_may_not_patch_gets_no_hold_and_the_policy_reports_it() {
    let world = labels_alone();
    let plane = &world.plane;
    let name = "unpatched";
    let target = json!({"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"]});
    policy::apply(plane, name, json!({"targets": [target], "protect": {"whileUsed": {}}}));
    let class = object("node.k8s.io/v1", "RuntimeClass", name);
    plane.apply(&class.with(json!({"handler": "none"}))).unwrap();
    // belay could not remove a hold that it adds here.
    let object = format!("runtimeclass/{name}");
    assert_eq!(field(plane, "default", &object, ".metadata.finalizers"), "");
    eventually("the reason in the status", LIMIT, || {
        let path = ".status.conditions[?(@.type==\"Holding\")]";
        let said = field(plane, "default", &format!("deletionpolicy/{name}"), path);
        let told = ["Forbidden", "runtimeclasses.node.k8s.io", "rbac.watchAlso"];
        if told.iter().all(|word| said.contains(word)) { Ok(()) } else { Err(said.into()) }
    })
    .unwrap();
    plane.kubectl(&["delete", &object, "--timeout=60s"]).unwrap().success().unwrap();
}
