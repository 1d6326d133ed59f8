//! Objects that policies select by name, labels or namespace: the API server asks about no others.

use belay::cluster::registration::manifests::skeleton;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::conditions::{ALONE, asked, create, objects, patched};
use super::{Installed, address, plane, until};

/// Policies for LimitRanges by name and by label, and for ResourceQuotas by name in one namespace.
fn selecting_policies(namespace: &str) -> Vec<Value> {
    let policy = |resource: &str, selectors: Value| {
        let mut target = json!({"apiGroups": [""], "resources": [resource]});
        target.as_object_mut().unwrap().extend(selectors.as_object().unwrap().clone());
        json!({"targets": [target], "protect": {"always": {}}})
    };
    let labels = json!({"matchLabels": {"app": "a"}, "matchExpressions": [
        {"key": "x.dev/tier", "operator": "NotIn", "values": ["b", ""]},
        {"key": "off", "operator": "DoesNotExist"}]});
    let by_name = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    vec![
        policy("limitranges", json!({"names": ["db", "x-*"]})),
        policy("limitranges", json!({"objectSelector": labels})),
        policy("resourcequotas", json!({"names": ["db"], "namespaceSelector": by_name})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_asks_only_about_objects_that_policies_select() {
    let _alone = ALONE.lock().await;
    let client = plane().client().await.unwrap();
    let [ns, other] = ["selected", "unselected"].map(|name| plane().namespace(name).unwrap());
    let of = |namespace: &str, kind: &str| objects(&client, namespace, ("", "v1", kind));
    let ranges = of(&ns, "LimitRange");
    let labelled = [
        ("db", json!({})),
        ("x-1", json!({})),
        ("dbx", json!({})),
        ("plain", json!({"team": "a"})),
        ("app", json!({"app": "a"})),
        ("tier-c", json!({"app": "a", "x.dev/tier": "c"})),
        ("tier-b", json!({"app": "a", "x.dev/tier": "b"})),
        ("tier-none", json!({"app": "a", "x.dev/tier": ""})),
        ("off", json!({"app": "a", "off": "1"})),
    ];
    for (name, labels) in &labelled {
        create(&ranges, json!({"metadata": {"name": name, "labels": labels}})).await;
    }
    for (namespace, name) in [(&ns, "db"), (&ns, "plain"), (&other, "db")] {
        create(&of(namespace, "ResourceQuota"), json!({"metadata": {"name": name}})).await;
    }
    let it = Installed::with("reg-selected", &selecting_policies(&ns)).await;
    it.in_place(0).await;
    let delete = Some("delete.belay.dev".to_owned());
    let update = Some("update.belay.dev".to_owned());
    let dry = DeleteParams { dry_run: true, ..DeleteParams::background() };
    until("the API server to ask", async || asked(ranges.delete("db", &dry).await) == delete).await;

    let selected = ["db", "x-1", "app", "tier-c"];
    for (name, _) in &labelled {
        let expected = selected.contains(name).then(|| "delete.belay.dev".to_owned());
        assert_eq!(asked(ranges.delete(name, &dry).await), expected, "{name}");
    }
    let quota = |namespace: &str| of(namespace, "ResourceQuota");
    assert_eq!(asked(quota(&ns).delete("db", &dry).await), delete);
    assert_eq!(asked(quota(&ns).delete("plain", &dry).await), None);
    assert_eq!(asked(quota(&other).delete("db", &dry).await), None);

    // An UPDATE that moves an object into or out of a policy is reviewed.
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let with_app = labels(json!({"app": "a"}));
    assert_eq!(patched(&ranges, "plain", with_app.clone()).await, update);
    assert_eq!(patched(&ranges, "app", labels(json!({"app": null}))).await, update);
    assert_eq!(patched(&ranges, "app", labels(json!({"app": "b"}))).await, update);
    assert_eq!(patched(&ranges, "tier-b", labels(json!({"x.dev/tier": null}))).await, update);
    assert_eq!(patched(&ranges, "tier-c", labels(json!({"off": "1"}))).await, update);
    assert_eq!(patched(&ranges, "dbx", labels(json!({"team": "b"}))).await, None);
    assert_eq!(patched(&ranges, "db", labels(json!({"team": "b"}))).await, update);
    let status = async |name: &str, patch: &Value| {
        let (quotas, params) = (quota(&ns), PatchParams::default());
        asked(quotas.patch_status(name, &params, &Patch::Merge(patch)).await)
    };
    assert_eq!(status("db", &with_app).await, update);
    assert_eq!(status("plain", &with_app).await, None);

    // A deletecollection has no name in the request.
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let collection = DeleteParams::default();
    assert_eq!(asked(ranges.delete_collection(&collection, &named("db")).await), delete);
    assert_eq!(asked(ranges.delete_collection(&collection, &named("dbx")).await), None);
    it.validating.delete(&it.name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_a_condition_refuses_the_request() {
    let client = plane().client().await.unwrap();
    let ns = plane().namespace("condition-error").unwrap();
    let templates = objects(&client, &ns, ("", "v1", "PodTemplate"));
    let mut validating = skeleton("reg-error", &address("reg-error"), "x").validating;
    let webhooks = validating.webhooks.as_mut().unwrap();
    webhooks.retain(|webhook| webhook.name == "delete.belay.dev");
    let rule = json!({"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"],
        "resources": ["podtemplates"]});
    let error = json!({"name": "error", "expression": "oldObject.metadata.labels['no'] == 'x'"});
    webhooks[0].rules = Some(vec![serde_json::from_value(rule).unwrap()]);
    webhooks[0].match_conditions = Some(vec![serde_json::from_value(error).unwrap()]);
    let spec = json!({"containers": [{"name": "a", "image": "a"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
    create(&templates, json!({"metadata": {"name": "a"}, "template": template})).await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.create(&PostParams::default(), &validating).await.unwrap();
    let dry = DeleteParams { dry_run: true, ..DeleteParams::background() };
    until("the refusal", async || match templates.delete("a", &dry).await {
        Err(kube::Error::Api(status)) => status.message.contains("no such key"),
        _ => false,
    })
    .await;
    api.delete("reg-error", &DeleteParams::default()).await.unwrap();
}
