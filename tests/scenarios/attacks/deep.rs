//! Objects that JSON can't express. Only protobuf can write them.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use crate::harness::kubectl::run;
use crate::harness::manifest::{Manifest as _, config_map, deletion_policy};
use crate::harness::rbac::rule;
use crate::harness::{Api, ControlPlane, Install, eventually};
use crate::team::{SOON, Team};
use crate::{policy, program, world};

const HOLD: &str = "belay.dev/hold";

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push((number % 128) as u8 | 128);
        number /= 128;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of a protobuf message that has a length.
fn field(number: usize, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

/// managedFields that the API server accepts and can't send.
fn deep_fields() -> Vec<u8> {
    let (open, close) = ("{\"f:a\":".repeat(9_998), "}".repeat(9_998));
    managed_fields(&format!("{{\"f:metadata\":{open}{{}}{close}}}"))
}

/// managedFields with this text in place of JSON.
fn managed_fields(json: &str) -> Vec<u8> {
    let entry = [(1, "m"), (2, "Update"), (3, "v1"), (6, "FieldsV1")];
    let entry = entry.map(|(number, text)| field(number, text)).concat();
    field(17, [entry, field(7, field(1, json))].concat())
}

/// A time in a year that JSON can't have, as a field.
fn late_time(number: usize, seconds: usize) -> Vec<u8> {
    field(number, [vec![8], varint(seconds)].concat())
}

fn pair(key: &str, value: &str) -> Vec<u8> {
    [field(1, key), field(2, value)].concat()
}

/// The selector of a workload, and its template with this metadata.
fn selector_and_template(metadata: Vec<u8>) -> [Vec<u8>; 2] {
    let metadata = [field(11, pair("app", "deep")), metadata].concat();
    // No Node has this label.
    let spec = [field(2, pair("web", "web")), field(7, pair("no", "node"))].concat();
    [field(1, pair("app", "deep")), [field(1, metadata), field(2, spec)].concat()]
}

/// The spec of a Deployment without replicas, whose template has this metadata.
fn deployment_spec(metadata: Vec<u8>) -> Vec<u8> {
    let [selector, template] = selector_and_template(metadata);
    field(2, [vec![8, 0], field(2, selector), field(3, template)].concat())
}

/// The spec of a ReplicationController without replicas.
fn replication_controller_spec() -> Vec<u8> {
    let pair = |key: &str, value: &str| [field(1, key), field(2, value)].concat();
    let metadata = field(1, field(11, pair("app", "deep")));
    let template = [metadata, field(2, field(2, pair("web", "web")))].concat();
    field(2, [vec![8, 0], field(2, pair("app", "deep")), field(3, template)].concat())
}

/// An int-or-string with a number, one with a text, and one that JSON can't have.
fn numbers() -> [Vec<u8>; 3] {
    let text = |kind| [vec![8, kind], field(3, "http")].concat();
    [vec![8, 0, 16, 1], text(1), text(2)]
}

/// managedFields without which the API server does not read the fields of the object.
fn no_fields() -> Vec<u8> {
    field(17, "")
}

/// A DaemonSet of the type OnDelete with these limits of a rolling update.
fn daemon_set(max_unavailable: &[u8], max_surge: &[u8]) -> Vec<u8> {
    let [selector, template] = selector_and_template(Vec::new());
    let update = [field(1, max_unavailable), field(2, max_surge)].concat();
    let strategy = [field(1, "OnDelete"), field(2, update)].concat();
    let spec = [field(1, selector), field(2, template), field(3, strategy)].concat();
    object("apps/v1", "DaemonSet", no_fields(), field(2, spec))
}

/// A NetworkPolicy with these ports of incoming and outgoing connections, and this metadata.
fn network_policy(metadata: Vec<u8>, ingress: &[u8], egress: &[u8]) -> Vec<u8> {
    let rule = |port| field(1, field(2, port));
    let spec = [field(1, ""), field(2, rule(ingress)), field(3, rule(egress))].concat();
    let metadata = [no_fields(), metadata].concat();
    object("networking.k8s.io/v1", "NetworkPolicy", metadata, field(2, spec))
}

/// An object of the name `deep` with this further metadata and this spec.
fn object(version: &str, kind: &str, metadata: Vec<u8>, spec: Vec<u8>) -> Vec<u8> {
    let types = [field(1, version), field(2, kind)].concat();
    let object = [field(1, [field(1, "deep"), metadata].concat()), spec].concat();
    [b"k8s\0".to_vec(), field(1, types), field(2, object)].concat()
}

/// Waits until the managedFields of an object are reset. Before, this client can't read it either.
fn wait_until_readable(team: &Team<'_>, name: &str) {
    eventually("readable managedFields", SOON, || match team.plane.api().get(name, &team.ns)? {
        Some(object) if object.is_object() => Ok(()),
        found => Err(format!("{name}: {found:?}").into()),
    })
    .unwrap();
}

/// The API server ends each watch of the kind of such an object, and can't ask a webhook about it.
#[test]
fn h137_managed_fields_that_are_nested_too_deeply_are_reset() {
    let team = Team::new(&world().plane, "h137");
    let targets = [policy::target("", "configmaps, secrets", &team.ns)];
    let protect = json!({"whileUsed": {"onDelete": "Deny"}});
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": protect}));
    let api = Api::of(&team.kubeconfig).unwrap();
    let create = |resource: &str, object| {
        let path = format!("/api/v1/namespaces/{}/{resource}", team.ns);
        api.write_protobuf(Method::POST, &path, object).unwrap();
    };
    create("configmaps", object("v1", "ConfigMap", deep_fields(), Vec::new()));
    create("secrets", object("v1", "Secret", deep_fields(), Vec::new()));
    wait_until_readable(&team, "configmap/deep");
    wait_until_readable(&team, "secret/deep");
}

/// Waits until the API server asks about an orphaning DELETE of this kind.
fn wait_for_orphan_webhook(team: &Team<'_>, resource: &str) {
    eventually("a webhook that asks about orphaning", SOON, || {
        let webhooks = team.plane.api().get("validatingwebhookconfiguration/belay", "")?;
        let is_ready = |webhook: &Value| {
            // If another test protects the kind, the second one is asked.
            (webhook["name"] == "orphan.belay.dev" || webhook["name"] == "delete.belay.dev")
                && webhook.to_string().contains(&format!("\"{resource}\""))
        };
        let webhooks = webhooks.unwrap_or_default();
        let is_ready = webhooks["webhooks"].as_array().is_some_and(|all| all.iter().any(is_ready));
        if is_ready { Ok(()) } else { Err(format!("no rule names {resource}").into()) }
    })
    .unwrap();
}

/// The API server can't ask about such an owner, and no later request is about the dependents that
/// the garbage collector keeps.
#[test]
fn h172_an_owner_with_deep_managed_fields_loses_no_dependents() {
    let team = Team::new(&world().plane, "h172");
    let api = team.plane.api();
    policy::protect(team.plane, &team.ns, "configmaps", json!({"fromOrphaning": {}}));
    let owner = |metadata| object("v1", "ServiceAccount", metadata, Vec::new());
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", team.ns);
    api.write_protobuf(Method::POST, &path, owner(Vec::new())).unwrap();
    team.apply(&config_map("child").with_owner(team.owner("ServiceAccount", "deep")));
    wait_for_orphan_webhook(&team, "serviceaccounts");
    let path = format!("{path}/deep");
    api.write_protobuf(Method::PUT, &path, owner(deep_fields())).unwrap();
    let deleted = api.delete(&["serviceaccount/deep", "--cascade=orphan"], &team.ns).unwrap();
    assert!(!deleted.ok(), "{deleted:?}");
    api.write_protobuf(Method::PUT, &path, owner(Vec::new())).unwrap();
    team.assert_exists("serviceaccount/deep");
}

/// A DELETE without options orphans the dependents of a ReplicationController or a Job.
#[test]
fn h178_an_owner_whose_kind_orphans_by_default_loses_no_dependents() {
    let team = Team::new(&world().plane, "h178");
    let api = team.plane.api();
    policy::protect(team.plane, &team.ns, "configmaps", json!({"fromOrphaning": {}}));
    let owner =
        |metadata| object("v1", "ReplicationController", metadata, replication_controller_spec());
    let path = format!("/api/v1/namespaces/{}/replicationcontrollers", team.ns);
    api.write_protobuf(Method::POST, &path, owner(Vec::new())).unwrap();
    team.apply(&config_map("own"));
    let [real, own] = [("ReplicationController", "deep"), ("ConfigMap", "own")]
        .map(|(kind, name)| team.owner(kind, name));
    let owners = json!({"metadata": {"ownerReferences": [real, own]}});
    team.apply(&config_map("child").with(owners));
    wait_for_orphan_webhook(&team, "replicationcontrollers");
    let path = format!("{path}/deep");
    let delete = ["delete", "--raw", &path];
    let denied = team.kubectl(&delete).failure().unwrap();
    assert!(denied.contains("would lose its owner ReplicationController"), "{denied}");
    assert!(!denied.contains("cascade.belay.dev"), "{denied}");
    api.write_protobuf(Method::PUT, &path, owner(deep_fields())).unwrap();
    team.kubectl(&delete).failure().unwrap();
    api.write_protobuf(Method::PUT, &path, owner(Vec::new())).unwrap();
    team.assert_exists("replicationcontroller/deep");
    let names = team.field("configmap/child", ".metadata.ownerReferences[*].name");
    assert_eq!(names, "deep own");
}

/// The API server applies a JSON patch to the JSON of an object, which has U+FFFD in place of other
/// bytes, and these fields are immutable.
#[test]
fn h166_bytes_that_json_cannot_have_neither_keep_nor_prevent_a_hold() {
    let team = Team::new(&world().plane, "h166");
    let api = Api::of(&team.kubeconfig).unwrap();
    let create = |resource: &str, kind: &str, metadata: &[u8], spec: Vec<u8>| {
        let path = format!("/api/v1/namespaces/{}/{resource}", team.ns);
        let object = object("v1", kind, metadata.to_vec(), spec);
        api.write_protobuf(Method::POST, &path, object).unwrap();
    };
    const BYTES: [u8; 2] = [0xff, 0xfe];
    // Before the policy, which adds the hold.
    create("secrets", "Secret", &[], field(3, BYTES));
    let targets = [policy::target("", "configmaps, secrets, persistentvolumeclaims", &team.ns)];
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": protect}));
    team.wait_for_hold("secret/deep");
    // With a hold, no webhook changes the new object.
    let hold = field(14, HOLD);
    let data = field(2, [field(1, "key"), field(2, BYTES)].concat());
    create("configmaps", "ConfigMap", &hold, [data, vec![4 << 3, 1]].concat());
    let size = [field(1, "storage"), field(2, field(1, "1Gi"))].concat();
    let volume = [field(1, "ReadWriteOnce"), field(2, field(2, size)), field(3, BYTES)].concat();
    create("persistentvolumeclaims", "PersistentVolumeClaim", &hold, field(2, volume));
    let objects = ["secret/deep", "configmap/deep", "persistentvolumeclaim/deep"];
    team.deleted(&objects);
    for object in objects {
        team.wait_until_deleted(object);
    }

    // With a time that the API server can't read back either.
    let data = |bytes| field(2, [field(1, "key"), field(2, bytes)].concat());
    let immutable = [data(BYTES.to_vec()), vec![4 << 3, 1]].concat();
    create("configmaps", "ConfigMap", &hold, immutable);
    let managers = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
        "time": "9999-12-31T23:59:59-23:59", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    let patch = json!({"metadata": {"managedFields": managers}}).to_string();
    team.kubectl(&["patch", "configmap/deep", "--type=strategic", "-p", &patch]).success().unwrap();
    team.deleted(&["configmap/deep"]);
    team.wait_until_deleted("configmap/deep");
    // In JSON, each of these bytes becomes three, and the object too large.
    create("configmaps", "ConfigMap", &hold, data(vec![0xff; 700_000]));
    team.deleted(&["configmap/deep"]);
    team.wait_until_deleted("configmap/deep");
}

/// A patch of such a port loses its text, and the API server rejects it in a Pod and in the
/// template of a Job. A Pod would also end the watch of the kubelet of this world.
#[test]
fn h171_a_port_that_json_cannot_have_keeps_neither_deep_fields_nor_a_hold() {
    let team = Team::new(&world().plane, "h171");
    let belay = json!({"kind": "ServiceAccount", "namespace": "belay", "name": "belay"});
    team.plane.grant("jobs", None, &[rule("batch", "jobs", "patch, update")], &[belay]).unwrap();
    let api = Api::of(&team.kubeconfig).unwrap();
    let port = [vec![8, 0, 16, 80], field(3, "http")].concat();
    let probe = field(1, field(2, [field(1, "/"), field(2, port)].concat()));
    let container = [field(1, "web"), field(2, "web"), field(10, probe)].concat();
    let pod = [field(2, container), field(3, "Never")].concat();
    // Without Pods.
    let spec = field(2, [vec![8, 0], field(6, field(2, pod))].concat());
    let label = field(11, [field(1, "belay.dev/protect"), field(2, "WhileUsed")].concat());
    let metadata = [label, field(14, HOLD), deep_fields()].concat();
    let path = format!("/apis/batch/v1/namespaces/{}/jobs", team.ns);
    api.write_protobuf(Method::POST, &path, object("batch/v1", "Job", metadata, spec)).unwrap();
    wait_until_readable(&team, "job/deep");
    team.deleted(&["job/deep"]);
    team.wait_until_deleted("job/deep");
}

/// Protobuf has more years than JSON, and no client needs the time of a template.
#[test]
fn h167_times_of_templates_that_json_cannot_have_neither_keep_a_hold_nor_deep_fields() {
    let team = Team::new(&world().plane, "h167");
    let api = Api::of(&team.kubeconfig).unwrap();
    let targets = [policy::target("apps", "deployments", &team.ns)];
    let protect = json!({"whileUsed": {"onDelete": "Hold"}});
    policy::apply(team.plane, &team.ns, json!({"targets": targets, "protect": protect}));
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", team.ns);
    const YEAR_20000: usize = 568_971_820_800;
    for fields in [Vec::new(), deep_fields()] {
        let metadata = [field(14, HOLD), fields].concat();
        let spec = deployment_spec(late_time(8, YEAR_20000));
        let deployment = object("apps/v1", "Deployment", metadata, spec);
        api.write_protobuf(Method::POST, &path, deployment).unwrap();
        wait_until_readable(&team, "deployment/deep");
        team.deleted(&["deployment/deep"]);
        team.wait_until_deleted("deployment/deep");
    }
}

/// The API server can't send a list of the kind of such an object to any client.
#[test]
fn h163_no_template_has_managed_fields() {
    let team = Team::new(&world().plane, "h163");
    let api = Api::of(&team.kubeconfig).unwrap();
    let labels = json!({"app": "deep"});
    let pod = json!({"restartPolicy": "Always", "containers": [{"name": "web", "image": "web"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "deep"},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}});
    api.create(&deployment, &team.ns).unwrap().success().unwrap();
    // Without entries, the API server does not read the new ones.
    let reset = json!({"metadata": {"managedFields": [{}]}});
    api.patch("deployment/deep", &team.ns, &reset).unwrap().success().unwrap();
    let spec = deployment_spec(managed_fields("}"));
    let path = format!("/apis/apps/v1/namespaces/{}/deployments/deep", team.ns);
    let changed = object("apps/v1", "Deployment", Vec::new(), spec);
    is_refused(&api, &path, changed);
    api.list("deployments", &team.ns, "").unwrap();

    let fields = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {}}]);
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"template": job});
    let cron = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"metadata": {}, "spec": job}});
    let claim = json!({"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}});
    let claims = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    let workload = json!({"selector": {"matchLabels": labels}, "template": template});
    let stateful = json!({"selector": {"matchLabels": labels}, "template": template,
        "serviceName": "deep", "volumeClaimTemplates": claims});
    let own = "/spec/template/metadata";
    for (version, kind, spec, path) in [
        ("v1", "PodTemplate", template.clone(), "/template/metadata"),
        ("v1", "ReplicationController", json!({"selector": labels, "template": template}), own),
        ("apps/v1", "DaemonSet", workload.clone(), own),
        ("apps/v1", "Deployment", workload.clone(), own),
        ("apps/v1", "ReplicaSet", workload, own),
        ("apps/v1", "StatefulSet", stateful.clone(), own),
        ("apps/v1", "StatefulSet", stateful, "/spec/volumeClaimTemplates/0/metadata"),
        ("batch/v1", "Job", job, own),
        ("batch/v1", "CronJob", cron.clone(), "/spec/jobTemplate/metadata"),
        ("batch/v1", "CronJob", cron, "/spec/jobTemplate/spec/template/metadata"),
    ] {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "new"}});
        let content = if kind == "PodTemplate" { "template" } else { "spec" };
        object[content] = spec;
        object.pointer_mut(path).unwrap()["managedFields"] = fields.clone();
        let refused = team.plane.api().create(&object, &team.ns).unwrap();
        let refusal = refused.failure().unwrap();
        assert!(refusal.contains("templates.belay.dev"), "{kind} {path}: {refusal}");
    }
}

/// The admission policy about templates refuses the change of an object.
fn is_refused(api: &Api, path: &str, changed: Vec<u8>) {
    let refusal = api.write_protobuf(Method::PUT, path, changed).unwrap_err().to_string();
    assert!(refusal.contains("templates.belay.dev"), "{refusal}");
}

/// With the type OnDelete, the API server does not validate these numbers, and then it can't send a
/// list of the kind to any client.
#[test]
fn h176_no_daemon_set_has_a_number_that_json_cannot_have() {
    let team = Team::new(&world().plane, "h176");
    let api = Api::of(&team.kubeconfig).unwrap();
    let [number, text, neither] = numbers();
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets", team.ns);
    api.write_protobuf(Method::POST, &path, daemon_set(&number, &number)).unwrap();
    let path = format!("{path}/deep");
    api.write_protobuf(Method::PUT, &path, daemon_set(&text, &text)).unwrap();
    for (unavailable, surge) in [(&neither, &number), (&text, &neither)] {
        let changed = daemon_set(unavailable, surge);
        is_refused(&api, &path, changed);
    }
    api.list("daemonsets", &team.ns, "").unwrap();
}

/// The API server can't send such an object to a webhook, so it could not be deleted.
#[test]
fn h177_no_network_policy_has_a_port_that_json_cannot_have() {
    let team = Team::new(&world().plane, "h177");
    let api = Api::of(&team.kubeconfig).unwrap();
    let [number, text, neither] = numbers();
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", team.ns);
    let create = network_policy(Vec::new(), &number, &text);
    api.write_protobuf(Method::POST, &path, create).unwrap();
    let path = format!("{path}/deep");
    for (ingress, egress) in [(&neither, &number), (&text, &neither)] {
        let changed = network_policy(Vec::new(), ingress, egress);
        is_refused(&api, &path, changed);
    }
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "range"},
        "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80, "endPort": 90}]}, {}]}});
    api.create(&range, &team.ns).unwrap().success().unwrap();
}

/// Before the installation, no policy refuses such objects.
#[test]
fn h176_h177_stored_objects_that_json_cannot_have_affect_only_their_namespace() {
    let plane = ControlPlane::start().unwrap();
    let (near, far) = (Team::new(&plane, "near"), Team::new(&plane, "far"));
    let [number, _, neither] = numbers();
    let label = field(11, pair("belay.dev/protect", "Always"));
    let sets = format!("/apis/apps/v1/namespaces/{}/daemonsets", near.ns);
    let ports = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", near.ns);
    for (path, create, change) in [
        (sets, daemon_set(&number, &number), daemon_set(&neither, &number)),
        (
            ports,
            network_policy(label.clone(), &number, &number),
            network_policy(label, &neither, &number),
        ),
    ] {
        plane.api().write_protobuf(Method::POST, &path, create).unwrap();
        // The API server stores the object and can't send it back.
        let path = format!("{path}/deep");
        let unsent = plane.api().write_protobuf(Method::PUT, &path, change).unwrap_err();
        assert!(unsent.to_string().contains("impossible IntOrString.Type"), "{unsent}");
    }
    let _belay = Install::default().on(&plane, program()).unwrap();
    for team in [&near, &far] {
        team.apply(&config_map("free"));
        let targets = [policy::target("", "configmaps", &team.ns)];
        let protect = json!({"whileUsed": {"onDelete": "Hold"}});
        let spec = json!({"targets": targets, "protect": protect});
        // Watching is False: it reports the DaemonSet.
        plane.apply(&deletion_policy(&team.ns, spec)).unwrap();
        let name = format!("deletionpolicy/{}", team.ns);
        let ready = ".status.conditions[?(@.type==\"Ready\")].status";
        plane.api().wait_field((&name, ""), SOON, ready, |status| status == "True").unwrap();
        team.wait_for_hold("configmap/free");
    }
    far.deleted(&["configmap/free"]);
    far.wait_until_deleted("configmap/free");
    let denied = near.delete(&["configmap/free"]).failure().unwrap();
    let unread = format!("DaemonSet {}/deep can't be read", near.ns);
    assert!(denied.contains(&unread), "{denied}");

    // The repair of docs/guides/limits.md.
    let listed = near.kubectl(&["get", "daemonsets,networkpolicies"]).success().unwrap();
    assert_eq!(listed.matches("/deep").count(), 2, "{listed}");
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "deep"},
        "spec": {"selector": {"matchLabels": {"app": "deep"}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"app": "deep"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]}}}});
    near.send(&["replace", "-f", "-"], &set).success().unwrap();
    eventually("the deletion", SOON, || near.delete(&["configmap/free"]).success().map(drop))
        .unwrap();
    near.wait_until_deleted("configmap/free");

    let namespace = format!("namespace/{}", near.ns);
    plane.kubectl(&["delete", &namespace, "--wait=false"]).unwrap().success().unwrap();
    eventually("the reason", SOON, || {
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-belay"));
        let why = run(program, plane.kubeconfig(), &["why", &namespace], None)?;
        let says = ["impossible IntOrString.Type", "have an administrator replace the object"];
        let is_true = says.iter().all(|text| why.stdout.contains(text));
        if is_true && !why.stdout.contains("managedFields") {
            Ok(())
        } else {
            Err(format!("{why:?}").into())
        }
    })
    .unwrap();
    let ports = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "deep", "labels": {"belay.dev/protect": "Always"}},
        "spec": {"podSelector": {}}});
    // The roles of the users are deleted.
    let replace = ["replace", "-n", &near.ns, "-f", "-"];
    plane.kubectl_with(None, &replace, &ports).unwrap().success().unwrap();
    let delete = ["delete", "networkpolicy/deep", "-n", &near.ns];
    let denied = plane.kubectl(&delete).unwrap().failure().unwrap();
    assert!(denied.contains("protect=Always"), "{denied}");
}
