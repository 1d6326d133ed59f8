//! The rights that `belay admin manifests` prints are sufficient and minimal.

use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use super::{Installed, account, plane, policy, until};
use crate::program;

/// A client as belay's own account.
async fn as_account(name: &str) -> Client {
    let file = Kubeconfig::read_from(plane().kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
    config.auth_info.impersonate = Some(account(name));
    Client::try_from(config).unwrap()
}

fn forbidden<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(&result, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_waits_for_its_rights_and_fills_in_with_no_others() {
    let client = as_account("reg-rights").await;
    let specs = [policy(&["reg.example.com"], &["widgets"])];
    let it = Installed::driven_by(client.clone(), "reg-rights", &specs).await;
    let read: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    assert!(forbidden(read.get("reg-rights").await));

    let output = Command::new(program())
        .args(["admin", "manifests", "--service=belay/reg-rights"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let manifests = String::from_utf8(output.stdout).unwrap();
    plane().apply(&manifests).unwrap();
    it.in_place(0).await;
    assert_eq!(it.resources("delete.belay.dev").await, ["widgets"]);
    // Applying the same manifests again changes none of the filled-in fields.
    for args in [&["apply", "-f", "-"][..], &["apply", "--server-side", "-f", "-"]] {
        plane().apply_to(args, &manifests).unwrap().success().unwrap();
        assert_eq!(it.resources("delete.belay.dev").await, ["widgets"], "{args:?}");
    }
    assert!(!it.context.metrics.encode().contains("registration_repairs_total{"));

    // A right that it does not have.
    let config_maps: Api<ConfigMap> = Api::all(client.clone());
    config_maps.list(&ListParams::default()).await.unwrap();
    let secrets: Api<Secret> = Api::all(client.clone());
    assert!(forbidden(secrets.list(&ListParams::default()).await));
    let own: Api<Secret> = Api::namespaced(client.clone(), "belay");
    let by_name = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    own.list(&by_name("reg-rights-tls")).await.unwrap();
    own.list(&by_name("reg-rights-path")).await.unwrap();
    assert!(forbidden(own.list(&by_name("other")).await));
    let live = it.validating.get("reg-rights").await.unwrap();
    assert!(forbidden(read.replace("reg-rights", &PostParams::default(), &live).await));
    let nothing = Patch::Merge(serde_json::json!({}));
    assert!(forbidden(read.patch("another", &PatchParams::default(), &nothing).await));
    assert!(forbidden(read.create(&PostParams::default(), &live).await));

    // It reports that a webhook configuration is missing. It may have reported it before,
    // if it got its rights before kubectl created the webhook configurations.
    let events: Api<Event> = Api::namespaced(plane().client().await.unwrap(), "belay");
    let about = ListParams::default()
        .fields("involvedObject.kind=MutatingWebhookConfiguration,involvedObject.name=reg-rights");
    let told = async || events.list(&about).await.unwrap().items.len();
    let before = told().await;
    it.mutating.delete("reg-rights", &DeleteParams::default()).await.unwrap();
    until("the Event", async || told().await == before + 1).await;
}
