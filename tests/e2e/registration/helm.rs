//! Helm owns the webhook configurations, and belay owns the fields that it fills in.

use belay::cluster::registration::manifests::{WebhookConfigurations, skeleton};

use super::{Installed, account, address, plane, policy};

/// A chart with both configurations, whose webhooks have this much time.
fn write_chart(folder: &std::path::Path, seconds: i32) {
    let WebhookConfigurations { mut validating, mut mutating } =
        skeleton("reg-helm", &address("reg-helm"), &account("reg-helm"));
    validating.webhooks.iter_mut().flatten().for_each(|w| w.timeout_seconds = Some(seconds));
    mutating.webhooks.iter_mut().flatten().for_each(|w| w.timeout_seconds = Some(seconds));
    let templates = folder.join("templates");
    std::fs::create_dir_all(&templates).unwrap();
    let chart = "apiVersion: v2\nname: reg\nversion: 0.0.1\n";
    std::fs::write(folder.join("Chart.yaml"), chart).unwrap();
    // JSON is YAML; a list of objects is one document each.
    let documents =
        [serde_json::to_string(&validating).unwrap(), serde_json::to_string(&mutating).unwrap()];
    std::fs::write(templates.join("all.yaml"), documents.join("\n---\n")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_a_rollback_keep_what_belay_has_filled_in() {
    let folder = plane().folder().join("reg-chart");
    let chart = folder.display().to_string();
    // Releases are Secrets whose labels change, and the neighbouring test protects all
    // Secrets outside of kube-system.
    let helm = |args: &[&str]| {
        let args = [args, &["--namespace", "kube-system"]].concat();
        plane().helm(&args).unwrap().success().unwrap()
    };
    write_chart(&folder, 5);
    helm(&["install", "reg", &chart]);
    let it = Installed::beside("reg-helm", &[policy(&["reg.example.com"], &["widgets"])]).await;
    it.in_place(0).await;

    for (step, seconds) in [("upgrade", 7), ("rollback", 5)] {
        if step == "upgrade" {
            write_chart(&folder, seconds);
            helm(&["upgrade", "reg", &chart]);
        } else {
            helm(&["rollback", "reg", "1"]);
        }
        let live = it.validating.get("reg-helm").await.unwrap();
        let owners = live.metadata.owner_references.unwrap_or_default();
        let owners: Vec<_> = owners.iter().map(|owner| (&*owner.kind, &*owner.name)).collect();
        assert_eq!(owners, [("Namespace", "belay")], "{step}");
        for webhook in live.webhooks.unwrap() {
            assert_eq!(webhook.timeout_seconds, Some(seconds), "{step} {}", webhook.name);
            assert!(webhook.client_config.ca_bundle.is_some(), "{step} {}", webhook.name);
            let path = webhook.client_config.service.unwrap().path.unwrap_or_default();
            assert!(path.contains(&"1".repeat(64)), "{step} {}", webhook.name);
        }
        assert_eq!(it.resources("delete.belay.dev").await, ["widgets"], "{step}");
    }
    assert!(!it.context.metrics.encode().contains("registration_repairs_total{"));
    helm(&["uninstall", "reg"]);
    assert_eq!(it.validating.get_opt("reg-helm").await.unwrap(), None);
}
