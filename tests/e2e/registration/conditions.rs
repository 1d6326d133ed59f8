//! Which requests match the conditions of the webhooks. A matching request is refused,
//! because no server answers.

use std::collections::BTreeMap;

use belay::cluster::registration::manifests::skeleton;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Installed, account, address, plane, policy, until};

/// For tests whose requests no webhook of another test may match.
pub(super) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Objects of a kind, in a namespace.
pub(super) fn objects(
    client: &Client,
    namespace: &str,
    of: (&str, &str, &str),
) -> Api<DynamicObject> {
    let (group, version, kind) = of;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(super) async fn create(api: &Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// The webhook that was called, if a request was refused because of one.
#[track_caller]
pub(super) fn asked<T>(result: kube::Result<T>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => {
            let refused = status.message.split("failed calling webhook \"").nth(1);
            let entry = refused.and_then(|rest| rest.split('"').next());
            Some(
                entry.unwrap_or_else(|| panic!("refused otherwise: {}", status.message)).to_owned(),
            )
        }
        Err(error) => panic!("{error}"),
    }
}

/// The webhook that is called when an object is patched.
pub(super) async fn patched(api: &Api<DynamicObject>, name: &str, patch: Value) -> Option<String> {
    asked(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

fn many<T>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(make).collect()
}

/// The most annotations with names of this total length.
fn shortest_annotations(total: usize) -> BTreeMap<String, &'static str> {
    let letters: Vec<String> =
        ('a'..='z').chain('A'..='Z').chain('0'..='9').map(String::from).collect();
    let longer = |shorter: &[String]| -> Vec<String> {
        shorter
            .iter()
            .flat_map(|first| letters.iter().map(move |last| format!("{first}{last}")))
            .collect()
    };
    let two = longer(&letters);
    let three = longer(&two);
    let mut left = total;
    let fits = move |name: &String| {
        left = left.saturating_sub(name.len());
        left > 0
    };
    letters.into_iter().chain(two).chain(three).take_while(fits).map(|name| (name, "")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_asks_only_about_what_matters() {
    let _alone = ALONE.lock().await;
    let client = plane().client().await.unwrap();
    let ns = plane().namespace("conditions").unwrap();
    let config_maps = objects(&client, &ns, ("", "v1", "ConfigMap"));
    let secrets = objects(&client, &ns, ("", "v1", "Secret"));
    let pods = objects(&client, &ns, ("", "v1", "Pod"));
    let deployments = objects(&client, &ns, ("apps", "v1", "Deployment"));
    let accounts = objects(&client, &ns, ("", "v1", "ServiceAccount"));
    create(&accounts, json!({"metadata": {"name": "default"}})).await;
    for name in ["plain", "terminating", "swept", "orphaned"] {
        let finalizers = if name == "plain" { json!([]) } else { json!(["x.example.com/y"]) };
        create(&config_maps, json!({"metadata": {"name": name, "finalizers": finalizers}})).await;
    }
    config_maps.delete("terminating", &DeleteParams::background()).await.unwrap();
    config_maps.delete("swept", &DeleteParams::foreground()).await.unwrap();
    config_maps.delete("orphaned", &DeleteParams::orphan()).await.unwrap();
    create(&secrets, json!({"metadata": {"name": "plain"}})).await;
    create(&secrets, json!({"metadata": {"name": "held", "finalizers": ["belay.dev/hold"]}})).await;
    let pod = json!({"containers": [{"name": "a", "image": "a"}]});
    for name in ["bound", "evicted", "stripped"] {
        let finalizers = if name == "stripped" { json!(["x.example.com/y"]) } else { json!([]) };
        let metadata = json!({"name": name, "finalizers": finalizers});
        create(&pods, json!({"metadata": metadata, "spec": pod})).await;
    }
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let spec =
        json!({"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 0});
    create(&deployments, json!({"metadata": {"name": "scaled"}, "spec": spec})).await;
    let owner = |n| {
        let (name, uid) = (format!("o{n}"), format!("u{n}"));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    };
    let annotations: BTreeMap<_, _> = (0..6_000).map(|n| (format!("x.dev/{n}"), "v")).collect();
    let long = [
        ("owners", json!({"ownerReferences": many(3_000, owner)})),
        ("finalizers", json!({"finalizers": many(4_000, |n| format!("x.dev/{n}"))})),
        ("annotations", json!({"annotations": annotations})),
    ];
    for (name, metadata) in &long {
        let mut metadata = metadata.clone();
        metadata["name"] = json!(name);
        create(&secrets, json!({"metadata": metadata})).await;
        create(&config_maps, json!({"metadata": metadata})).await;
    }

    // As many annotations as an object can have.
    let metadata = json!({"name": "full", "annotations": shortest_annotations(256 << 10)});
    create(&secrets, json!({"metadata": metadata})).await;

    // Everything is protected, and the annotations of ConfigMaps count.
    let mut annotated = policy(&[""], &["configmaps"]);
    annotated["targets"][0]["matchAnnotations"] = json!({"example.com/a": "b"});
    let it = Installed::with("reg-conditions", &[policy(&["*"], &["*"]), annotated]).await;
    it.in_place(0).await;
    let some = |entry: &str| Some(entry.to_owned());
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    until("the API server to ask", async || {
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patched = config_maps.patch("plain", &params, &Patch::Merge(label)).await;
        asked(patched).is_some() && asked(config_maps.delete("plain", &dry).await).is_some()
    })
    .await;

    // UPDATE: only changes of the metadata that policies and holds depend on.
    let update = some("update.belay.dev");
    for (patch, expected) in [
        (json!({"data": {"a": "Yg=="}}), None),
        (json!({"metadata": {"annotations": {"example.com/a": "c"}}}), None),
        (
            json!({"metadata": {"annotations": {"belay.dev/release-requested": "x"}}}),
            update.clone(),
        ),
        (json!({"metadata": {"labels": {"a": "b"}}}), update.clone()),
        (json!({"metadata": {"finalizers": ["x.example.com/y"]}}), update.clone()),
        (json!({"metadata": {"ownerReferences": [owner(1)]}}), update.clone()),
    ] {
        assert_eq!(patched(&secrets, "plain", patch.clone()).await, expected, "{patch}");
    }
    let strip = json!({"metadata": {"finalizers": null}});
    assert_eq!(patched(&secrets, "held", strip.clone()).await, update);
    let annotate = json!({"metadata": {"annotations": {"example.com/a": "c"}}});
    assert_eq!(patched(&config_maps, "plain", annotate).await, some("annotate.belay.dev"));
    assert_eq!(patched(&config_maps, "plain", json!({"data": {"a": "b"}})).await, None);

    // Long lists do not exceed the cost limit of the conditions: they match or not.
    for (name, _) in &long {
        for api in [&secrets, &config_maps] {
            assert_eq!(patched(api, name, json!({"data": {"a": "Yg=="}})).await, None, "{name}");
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            assert_eq!(patched(api, name, label).await, update, "{name}");
        }
    }
    // Annotations are not looped over if there are many.
    let changed = json!({"metadata": {"annotations": {"x.dev/5999": "w"}}});
    assert_eq!(patched(&secrets, "annotations", changed.clone()).await, update);
    // Of two webhooks, either can be the first one that is asked.
    let asked_of = patched(&config_maps, "annotations", changed).await;
    assert!(asked_of == update || asked_of == some("annotate.belay.dev"), "{asked_of:?}");
    assert_eq!(patched(&secrets, "full", json!({"data": {"a": "Yg=="}})).await, None);
    let fewer = json!({"metadata": {"ownerReferences": many(2_999, owner)}});
    assert_eq!(patched(&secrets, "owners", fewer).await, update);
    let fewer = json!({"metadata": {"finalizers": many(3_999, |n| format!("x.dev/{n}"))}});
    assert_eq!(patched(&secrets, "finalizers", fewer).await, update);

    // Subresources: requests without such metadata pass, requests that remove finalizers
    // don't.
    let raw = async |method: &str, path: &str, body: Value| {
        let body = serde_json::to_vec(&body).unwrap();
        let path = format!("/api/v1/namespaces/{ns}/{path}");
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json").body(body).unwrap();
        asked(client.request_text(request).await)
    };
    let scale = Patch::Merge(json!({"spec": {"replicas": 1}}));
    let scaled = deployments.patch_scale("scaled", &PatchParams::default(), &scale).await;
    assert_eq!(asked(scaled), None);
    let target = json!({"kind": "Node", "name": "n"});
    let metadata = json!({"name": "bound"});
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
    assert_eq!(raw("POST", "pods/bound/binding", binding).await, None);
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}});
    assert_eq!(raw("POST", "pods/evicted/eviction", eviction).await, None);
    let spec = json!({"audiences": ["a"]});
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    assert_eq!(raw("POST", "serviceaccounts/default/token", token).await, None);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(serde_json::to_vec(&review).unwrap()).unwrap();
    assert_eq!(asked(client.request_text(request).await), None);
    let status = async |patch: Value| {
        let params = PatchParams::default();
        asked(pods.patch_status("stripped", &params, &Patch::Merge(patch)).await)
    };
    assert_eq!(status(json!({"status": {"phase": "Running"}})).await, None);
    assert_eq!(status(strip.clone()).await, update);

    // namespaces/finalize: a request without a change is not sent to the webhook.
    let mut namespace = plane().api().get(&format!("namespace/{ns}"), "").unwrap().unwrap();
    assert_eq!(raw("PUT", "finalize", namespace.clone()).await, None);
    namespace["spec"]["finalizers"] = json!([]);
    assert_eq!(raw("PUT", "finalize", namespace).await, some("finalize.belay.dev"));

    // DELETE: a repeated one on a Terminating object that changes nothing is not sent; any
    // other is.
    let delete = some("delete.belay.dev");
    let deleted =
        async |name: &str, params: DeleteParams| asked(config_maps.delete(name, &params).await);
    assert_eq!(deleted("plain", DeleteParams::background()).await, delete);
    assert_eq!(deleted("terminating", DeleteParams::background()).await, None);
    assert_eq!(deleted("terminating", DeleteParams::default()).await, delete);
    assert_eq!(deleted("terminating", DeleteParams::orphan()).await, delete);
    assert_eq!(deleted("terminating", DeleteParams::foreground()).await, delete);
    assert_eq!(deleted("swept", DeleteParams::foreground()).await, None);
    assert_eq!(deleted("swept", DeleteParams::orphan()).await, delete);
    // It would remove the finalizer foregroundDeletion.
    let dry_run = DeleteParams { dry_run: true, ..DeleteParams::background() };
    assert_eq!(deleted("swept", dry_run).await, delete);
    assert_eq!(deleted("orphaned", DeleteParams::background()).await, delete);

    // belay's own account removes holds, and requests about belay's own objects are not
    // sent to belay.
    let kubectl = |ns: &str, account: &str| {
        let user = format!("--as={account}");
        let args = ["label", "-n", ns, "secret/held", "a=b", &user, "--as-group=system:masters"];
        plane().kubectl(&args).unwrap()
    };
    assert!(kubectl(&ns, &account("reg-other")).failure().unwrap().contains("update.belay.dev"));
    kubectl(&ns, &account("reg-conditions")).success().unwrap();
    // The cluster repairs itself.
    let system = objects(&client, "kube-system", ("", "v1", "ConfigMap"));
    create(&system, json!({"metadata": {"name": "plain"}})).await;
    assert_eq!(patched(&system, "plain", json!({"metadata": {"labels": {"a": "b"}}})).await, None);
    assert_eq!(asked(system.delete("plain", &DeleteParams::default()).await), None);
    it.validating.delete(&it.name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn mutating_webhooks_receive_an_update_only_if_it_removes_the_hold() {
    let client = plane().client().await.unwrap();
    let ns = plane().namespace("hold-removed").unwrap();
    let budgets = objects(&client, &ns, ("policy", "v1", "PodDisruptionBudget"));
    let mut long = many(4_000, |n| format!("x.dev/{n}"));
    long.push("belay.dev/hold".to_owned());
    for (name, finalizers) in [
        ("held", json!(["belay.dev/hold"])),
        ("gone", json!(["belay.dev/hold"])),
        ("long", json!(long)),
        ("free", json!(["x.example.com/y"])),
    ] {
        create(&budgets, json!({"metadata": {"name": name, "finalizers": finalizers}})).await;
    }
    budgets.delete("gone", &DeleteParams::default()).await.unwrap();

    // Under failurePolicy Ignore a call would not be visible.
    let mut mutating = skeleton("reg-hold", &address("reg-hold"), &account("reg-hold")).mutating;
    mutating.webhooks.iter_mut().flatten().for_each(|w| w.failure_policy = Some("Fail".into()));
    let api: Api<k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration> =
        Api::all(client.clone());
    api.create(&PostParams::default(), &mutating).await.unwrap();
    let it = Installed::beside("reg-hold", &[policy(&["policy"], &["poddisruptionbudgets"])]).await;
    let hold = Some("hold.belay.dev".to_owned());
    until("the API server to ask", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let new = serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap();
        asked(budgets.create(&dry, &new).await) == hold
    })
    .await;
    // Finalizers do not change here, so the neighbouring test's webhook is not called.
    let change = json!({"spec": {"minAvailable": 1}});
    let strip = json!({"metadata": {"finalizers": null}});
    for name in ["held", "long", "free"] {
        assert_eq!(patched(&budgets, name, change.clone()).await, None, "{name}");
    }
    assert_eq!(patched(&budgets, "held", strip.clone()).await, hold);
    assert_eq!(patched(&budgets, "long", strip.clone()).await, hold);
    // Not once it is Terminating, and not when another finalizer is removed. Then at most
    // the validating webhook of the neighbouring test is called.
    assert_ne!(patched(&budgets, "gone", strip.clone()).await, hold);
    assert_ne!(patched(&budgets, "free", strip).await, hold);
    it.mutating.delete(&it.name, &DeleteParams::default()).await.unwrap();
}
