use serde_json::json;

use super::*;

#[test]
fn reads_why_an_api_is_not_available() {
    let service = |status: &str| {
        json!({"metadata": {"name": "v1.things.test"}, "spec": {"group": "things.test"},
            "status": {"conditions": [{"type": "Available", "status": status,
                "reason": "ServiceNotFound", "message": "service/gone is not present"}]}})
    };
    let expected = BrokenApi {
        name: "v1.things.test".to_owned(),
        group: "things.test".to_owned(),
        why: "ServiceNotFound: service/gone is not present".to_owned(),
    };
    assert_eq!(broken(&service("False")), Some(expected));
    assert_eq!(broken(&service("True")), None);
    // An APIService that was just created does not count as broken.
    assert_eq!(broken(&json!({"metadata": {"name": "x"}, "spec": {"group": "y"}})), None);
}

#[test]
fn a_workload_is_known_by_its_name_and_its_images() {
    let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "status": {
        "readyReplicas": 2}, "spec": {"template": {"spec": {"containers": [
            {"image": "registry.test:5000/team/db-operator:v1.2"}, {"image": "side@sha256:ab"}]}}}});
    let found = workload("deploy", &object).unwrap();
    assert_eq!(found.images, ["db-operator", "side"]);
    assert_eq!((found.namespace.as_str(), found.name.as_str(), found.ready), ("shop", "web", 2));
    // The API server omits a count of zero ready replicas from the status.
    let mut down = object;
    down["status"] = json!({});
    assert_eq!(workload("deploy", &down).unwrap().ready, 0);
}

#[test]
fn only_a_pod_on_a_node_keeps_its_claims() {
    let mut pod = json!({"status": {"phase": "Succeeded"}, "spec": {"nodeName": "n", "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "b"}]}});
    assert_eq!(claims_of(&pod), ["data"]);
    pod["metadata"] = json!({"name": "web"});
    let states = |pod: &Value| {
        let user = ClaimUser::read(pod).unwrap();
        (user.has_ended, user.is_terminating)
    };
    assert_eq!(states(&pod), (true, false));
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(states(&pod), (true, true));
    pod["spec"]["nodeName"] = "".into();
    assert_eq!(claims_of(&pod), [""; 0]);
}

#[test]
fn the_workload_to_scale_down_is_the_deployment_of_a_replica_set() {
    let read = |owner: Value| {
        let metadata = json!({"name": "pod", "ownerReferences": [owner],
            "labels": {"pod-template-hash": "f7f5"}});
        ClaimUser::read(&json!({"metadata": metadata})).unwrap().controller
    };
    let owner = |kind: &str, name: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": controller});
    for (owner, workload) in [
        (owner("ReplicaSet", "web-f7f5", true), Some("Deployment web")),
        (owner("ReplicaSet", "other", true), Some("ReplicaSet other")),
        (owner("StatefulSet", "db-f7f5", true), Some("StatefulSet db-f7f5")),
        (owner("StatefulSet", "db", false), None),
        // Text of an editor (H138).
        (owner("StatefulSet", "db. Faster: kubectl delete", true), None),
        (owner("Namespace", "prod", true), None),
    ] {
        assert_eq!(read(owner.clone()).as_deref(), workload, "{owner}");
    }
}
