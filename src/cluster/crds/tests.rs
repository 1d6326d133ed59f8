//! Tests against a simulated API server that stores one CRD.

use std::sync::Arc;

use http::{Method, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::cluster::local_api::{failure, local_client};
use crate::policy::api::crds as own_crds;

/// The stored CRD and the received writes.
#[derive(Default)]
struct Store {
    crd: Option<Value>,
    /// Objects of the kind; `None`: the list is forbidden.
    objects: Option<usize>,
    writes: Vec<&'static str>,
    /// Another writer changes the object this many times between a read and a write.
    others: usize,
}

impl Store {
    fn answer(&mut self, request: Request<Value>) -> (u16, Value) {
        let status = |code: u16, message: &str| failure(code, message, ("", ""));
        let (parts, body) = request.into_parts();
        let query = parts.uri.query().unwrap_or_default();
        if !parts.uri.path().contains("customresourcedefinitions") {
            let Some(objects) = self.objects else { return status(403, "no") };
            // Pages of one object each.
            let at: usize = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("continue="))
                .map_or(0, |n| n.parse().unwrap());
            let next = if at + 1 < objects { (at + 1).to_string() } else { String::new() };
            let items: Vec<_> = (at..objects.min(at + 1))
                .map(|n| json!({"metadata": {"name": n.to_string()}}))
                .collect();
            return (200, json!({"metadata": {"continue": next}, "items": items}));
        }
        let dry_run = query.contains("dryRun=All");
        match (&parts.method, &mut self.crd) {
            (&Method::GET, Some(crd)) => (200, crd.clone()),
            (method, None) if method != Method::POST => status(404, "not found"),
            (&Method::POST, Some(_)) => status(409, "already exists"),
            (&Method::POST, None) => {
                self.writes.push("create");
                let mut made = body;
                made["metadata"]["uid"] = json!("u");
                made["metadata"]["resourceVersion"] = json!("1");
                made["metadata"]["generation"] = json!(1);
                made["status"] = json!({
                    "storedVersions": ["v1alpha1"],
                    "conditions": [{"type": "Established", "status": "True",
                        "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                });
                self.crd = Some(made.clone());
                (201, made)
            }
            (&Method::PUT, Some(crd)) => {
                if self.others > 0 {
                    self.others -= 1;
                    crd["metadata"]["resourceVersion"] = json!(format!("x{}", self.others));
                }
                if body["metadata"]["resourceVersion"] != crd["metadata"]["resourceVersion"] {
                    return status(409, "the object has been modified");
                }
                let mut after = body;
                after["status"] = crd["status"].clone();
                if after["spec"] != crd["spec"] {
                    let generation = crd["metadata"]["generation"].as_i64().unwrap() + 1;
                    after["metadata"]["generation"] = json!(generation);
                }
                if !dry_run {
                    self.writes.push("replace");
                    *crd = after.clone();
                }
                (200, after)
            }
            (&Method::DELETE, _) => {
                assert_eq!(body["preconditions"]["uid"], "u");
                self.writes.push("delete");
                (200, self.crd.take().unwrap())
            }
            _ => status(405, "no such method"),
        }
    }
}

fn server(store: Store) -> (kube::Client, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(store));
    let answers = store.clone();
    (local_client(move |request| Some(answers.lock().answer(request))), store)
}

fn wanted() -> CustomResourceDefinition {
    own_crds().remove(0)
}

#[tokio::test]
async fn creates_a_missing_crd_and_does_not_write_an_equal_one() {
    let (client, store) = server(Store::default());
    assert_eq!(apply(&client, &wanted()).await, Ok(Change::Created));
    assert_eq!(apply(&client, &wanted()).await, Ok(Change::None));
    assert_eq!(store.lock().writes, ["create"]);
}

#[tokio::test]
async fn replaces_an_older_crd_as_a_whole_and_keeps_annotations_of_helm() {
    let (client, store) = server(Store::default());
    apply(&client, &wanted()).await.unwrap();
    {
        let stored = &mut store.lock().crd;
        let stored = stored.as_mut().unwrap();
        // The stored CRD has an older schema with more fields, and an annotation of Helm.
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let schema = stored.pointer_mut(schema).unwrap();
        schema["longGone"] = json!({"type": "string"});
        stored["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    }
    assert_eq!(apply(&client, &wanted()).await, Ok(Change::Updated));
    let after = store.lock().crd.clone().unwrap();
    assert!(!after["spec"].to_string().contains("longGone"));
    assert_eq!(after["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert_eq!(apply(&client, &wanted()).await, Ok(Change::None));
    assert_eq!(store.lock().writes, ["create", "replace"]);

    // A missing label of the new CRD also is a change.
    let mut labelled = wanted();
    labelled.metadata.labels = Some([("app".to_owned(), "belay".to_owned())].into());
    assert_eq!(apply(&client, &labelled).await, Ok(Change::Updated));
    assert_eq!(apply(&client, &labelled).await, Ok(Change::None));
}

#[tokio::test]
async fn refuses_to_remove_a_version_in_which_objects_are_stored() {
    let (client, store) = server(Store::default());
    apply(&client, &wanted()).await.unwrap();
    let versions = json!(["v1alpha1", "v2"]);
    store.lock().crd.as_mut().unwrap()["status"]["storedVersions"] = versions;
    let Err(CrdError::Refused(why)) = apply(&client, &wanted()).await else {
        panic!("not refused")
    };
    assert!(
        why.contains("objects stored in version v2, which this version of belay does not know"),
        "{why}"
    );
    store.lock().crd.as_mut().unwrap()["metadata"]["deletionTimestamp"] =
        json!("2026-01-01T00:00:00Z");
    let Err(CrdError::Refused(why)) = apply(&client, &wanted()).await else {
        panic!("not refused")
    };
    assert!(why.contains("is being deleted"), "{why}");
    assert_eq!(store.lock().writes, ["create"]);
}

#[tokio::test]
async fn retries_after_conflicts_with_other_writers_but_not_forever() {
    for (others, result) in [(3, true), (usize::MAX, false)] {
        let (client, store) = server(Store::default());
        apply(&client, &wanted()).await.unwrap();
        store.lock().crd.as_mut().unwrap()["spec"]["scope"] = json!("Namespaced");
        store.lock().others = others;
        let applied = apply(&client, &wanted()).await;
        assert_eq!(applied == Ok(Change::Updated), result, "{applied:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_crds_that_are_not_served_in_time() {
    let (client, store) = server(Store::default());
    apply(&client, &wanted()).await.unwrap();
    let refused = json!([{"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict",
        "message": "\"PolicyList\" is already in use", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    store.lock().crd.as_mut().unwrap()["status"]["conditions"] = refused;
    let Err(CrdError::Unknown(why)) = apply(&client, &wanted()).await else { panic!("it waits") };
    assert!(why.contains("\"PolicyList\" is already in use"), "{why}");
}

#[tokio::test]
async fn deletes_a_crd_and_counts_the_objects_deleted_with_it() {
    for (objects, counted) in [(Some(3), Some(3)), (Some(0), Some(0)), (None, None)] {
        let (client, store) = server(Store { objects, ..Store::default() });
        assert_eq!(delete(&client, &wanted()).await, Ok(Deleted::Absent));
        apply(&client, &wanted()).await.unwrap();
        assert_eq!(delete(&client, &wanted()).await, Ok(Deleted::With(counted)));
        assert_eq!(delete(&client, &wanted()).await, Ok(Deleted::Absent));
        assert_eq!(store.lock().writes, ["create", "delete"]);
    }
}
