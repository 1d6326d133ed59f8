//! Patches of existing webhook configurations.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};

use super::*;
use crate::cluster::World;
use crate::cluster::registration::manifests::{Address, skeleton};
use crate::cluster::registration::stored::parse_webhooks;

/// The validating configuration as it is installed.
fn installed() -> Value {
    let address =
        Address::Service { namespace: "belay".to_owned(), name: "belay".to_owned(), port: 443 };
    let configurations = skeleton("belay", &address, "system:serviceaccount:belay:belay");
    serde_json::to_value(configurations.validating).unwrap()
}

/// The rules if there is no policy: the rules for the label.
fn wanted() -> Rules {
    crate::cluster::registration::rules::rules(&World::default(), &[])
}

/// A secret path that consists of this digit.
fn secret(digit: &str) -> SecretPath {
    SecretPath::parse(&digit.repeat(64)).unwrap()
}

fn fields(bundle: Option<&str>, secret_path: &SecretPath) -> LeaderFields {
    let (bundle, secret_path) = (bundle.map(Arc::from), Some(secret_path.clone()));
    LeaderFields { rules: Arc::new(wanted()), bundle, secret_path }
}

fn compared(live: &Value, bundle: Option<&str>) -> Difference {
    compared_with(live, bundle, &secret("1"))
}

fn compared_with(live: &Value, bundle: Option<&str>, secret_path: &SecretPath) -> Difference {
    let webhooks = parse_webhooks(live.get("webhooks")).unwrap();
    compare(&webhooks, AdmissionPhase::Validate, &fields(bundle, secret_path))
}

/// The configuration after the patch. Panics if the patch can't be applied.
fn patched(live: &Value, bundle: Option<&str>) -> Value {
    let mut live = live.clone();
    let patch = compared(&live, bundle).patch.unwrap();
    json_patch::patch(&mut live, &patch).unwrap();
    // The result is still a valid configuration.
    let _: ValidatingWebhookConfiguration = serde_json::from_value(live.clone()).unwrap();
    live
}

fn names(live: &Value) -> Vec<&str> {
    let webhooks = live["webhooks"].as_array().unwrap();
    webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap()).collect()
}

#[test]
fn one_patch_sets_only_the_fields_that_belay_writes() {
    let before = installed();
    let after = patched(&before, Some("pem"));
    assert_eq!(
        compared(&after, Some("pem")),
        Difference { calls_belay: true, ..Difference::default() }
    );
    assert_eq!(
        bundle(&parse_webhooks(after.get("webhooks")).unwrap(), AdmissionPhase::Validate),
        Some("pem")
    );
    let mut without = after.clone();
    for webhook in without["webhooks"].as_array_mut().unwrap() {
        let webhook = webhook.as_object_mut().unwrap();
        let with_rules = ["evict.belay.dev", "label-delete.belay.dev", "label-update.belay.dev"];
        let name = webhook["name"].as_str().unwrap();
        let labelled = if name.starts_with("label-") { "/labelled" } else { "" };
        let has_rules = with_rules.contains(&name);
        assert_eq!(webhook.remove("rules").is_some(), has_rules, "{webhook:?}");
        webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
        let path = webhook["clientConfig"]["service"].as_object_mut().unwrap().remove("path");
        assert_eq!(path, Some(json!(format!("/{}/validate{labelled}", "1".repeat(64)))));
    }
    assert_eq!(without, before);
}

#[test]
fn a_patch_fails_if_a_webhook_has_another_index() {
    let patch = compared(&installed(), Some("pem")).patch.unwrap();
    let mut moved = installed();
    moved["webhooks"].as_array_mut().unwrap().swap(0, 1);
    assert!(json_patch::patch(&mut moved, &patch).is_err());
    let mut dropped = installed();
    dropped["webhooks"].as_array_mut().unwrap().remove(0);
    assert!(json_patch::patch(&mut dropped, &patch).is_err());
    // A new comparison uses the new indexes.
    for live in [moved, dropped] {
        assert_eq!(names(&patched(&live, Some("pem"))), names(&live));
    }
}

#[test]
fn without_a_bundle_the_ca_certificates_are_left_alone() {
    let mut live = patched(&installed(), Some("theirs"));
    assert_eq!(compared(&live, None).patch, None);
    live["webhooks"][7]["rules"] = json!([]);
    let after = patched(&live, None);
    assert_eq!(
        bundle(&parse_webhooks(after.get("webhooks")).unwrap(), AdmissionPhase::Validate),
        Some("theirs")
    );
    assert_eq!(after, patched(&installed(), Some("theirs")));
}

#[test]
fn repairs_removed_and_added_fields() {
    let whole = patched(&installed(), Some("pem"));
    for (field, value) in [
        ("/webhooks/7/rules", Value::Null),
        ("/webhooks/7/rules", json!([])),
        ("/webhooks/7/rules/0/resources", json!(["pods"])),
        ("/webhooks/7/rules/0/operations", json!(["UPDATE"])),
        ("/webhooks/7/rules/0/scope", json!("Namespaced")),
        ("/webhooks/7/clientConfig/caBundle", Value::Null),
        ("/webhooks/7/clientConfig/service/path", Value::Null),
        ("/webhooks/0/clientConfig/service/path", json!("/validate")),
    ] {
        let mut live = whole.clone();
        *live.pointer_mut(field).unwrap() = value;
        let calls_belay = field.contains("caBundle");
        assert_eq!(compared(&live, Some("pem")).calls_belay, calls_belay, "{field}");
        assert_eq!(patched(&live, Some("pem")), whole, "{field}");
    }
    // A webhook that should have no rules has some.
    let mut live = whole.clone();
    live["webhooks"][0]["rules"] = whole["webhooks"][7]["rules"].clone();
    assert_eq!(patched(&live, Some("pem")), whole);
}

#[test]
fn defaults_of_the_api_server_and_the_order_are_no_difference() {
    let mut live = patched(&installed(), None);
    let rule = live["webhooks"][7]["rules"][0].as_object_mut().unwrap();
    rule.remove("scope");
    assert_eq!(compared(&live, None).patch, None);
    let parse = |value: Value| serde_json::from_value::<Vec<RuleWithOperations>>(value).unwrap();
    let rule = |group: &str, resources: &[&str]| {
        json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["DELETE"],
            "resources": resources})
    };
    let (mut pods, apps) = (rule("", &["pods", "nodes"]), rule("apps", &["*"]));
    pods["scope"] = json!("*");
    let mut turned = pods.clone();
    turned["resources"] = json!(["nodes", "pods"]);
    assert!(are_equal(&parse(json!([pods, apps])), &parse(json!([apps, turned]))));
    assert!(!are_equal(&parse(json!([pods])), &parse(json!([apps]))));
}

#[test]
fn unknown_webhooks_are_left_alone_and_missing_ones_are_reported() {
    let mut live = installed();
    live["webhooks"][8]["name"] = json!("renamed.belay.dev");
    live["webhooks"][0]["name"] = json!("foreign.example.com");
    let difference = compared(&live, Some("pem"));
    assert_eq!(difference.missing, ["label-update.belay.dev"]);
    assert!(!difference.calls_belay);
    let after = patched(&live, Some("pem"));
    for index in [0, 8] {
        assert_eq!(after["webhooks"][index], live["webhooks"][index]);
    }
    // belay does not repeat a patch for a field that it can't write.
    assert_eq!(compared(&after, Some("pem")).patch, None);
    assert!(!compared(&after, Some("pem")).calls_belay);
    // A webhook without rules does not count as missing.
    live["webhooks"].as_array_mut().unwrap().remove(1);
    assert_eq!(compared(&live, Some("pem")).missing, ["label-update.belay.dev"]);
}

#[test]
fn reports_the_missing_webhooks_of_an_empty_configuration() {
    for webhooks in [None, Some(&Value::Null), Some(&json!([]))] {
        let webhooks = parse_webhooks(webhooks).unwrap();
        let difference =
            compare(&webhooks, AdmissionPhase::Mutate, &fields(Some("pem"), &secret("1")));
        assert_eq!(difference.missing, ["label-hold.belay.dev"]);
        assert_eq!(difference.patch, None);
    }
}

#[test]
fn different_ca_certificates_give_no_bundle() {
    let mut live = patched(&installed(), Some("pem"));
    live["webhooks"][3]["clientConfig"]["caBundle"] = json!(ByteString(b"old".to_vec()));
    assert_eq!(
        bundle(&parse_webhooks(live.get("webhooks")).unwrap(), AdmissionPhase::Validate),
        None
    );
    assert_eq!(
        bundle(&parse_webhooks(installed().get("webhooks")).unwrap(), AdmissionPhase::Validate),
        None
    );
}

#[test]
fn a_new_secret_path_is_written_for_every_webhook_with_a_service_or_a_url() {
    let path_in = |live: &Value| {
        secret_path(&parse_webhooks(live.get("webhooks")).unwrap(), AdmissionPhase::Validate)
    };
    assert_eq!(path_in(&installed()), None);
    let mut live = patched(&installed(), Some("pem"));
    for (index, url) in [(0, "https://a:8443"), (1, "https://a/"), (2, "https://a/old/validate")] {
        live["webhooks"][index]["clientConfig"] = json!({"url": url});
    }
    let old = patched(&live, Some("pem"));
    assert_eq!(path_in(&old), Some(secret("1")));
    let difference = compared_with(&old, Some("pem"), &secret("2"));
    assert!(!difference.calls_belay);
    let mut new = old.clone();
    json_patch::patch(&mut new, &difference.patch.unwrap()).unwrap();
    assert_eq!(path_in(&new), Some(secret("2")));
    for (index, host) in [(0, "https://a:8443"), (1, "https://a"), (2, "https://a")] {
        let url = format!("{host}/{}/validate", "2".repeat(64));
        assert_eq!(new["webhooks"][index]["clientConfig"]["url"], url);
    }
    // One webhook with another secret path, or with another path below it.
    for path in ["/validate", "/labelled/validate"] {
        let mut mixed = new.clone();
        mixed["webhooks"][7]["clientConfig"]["service"]["path"] =
            json!(format!("/{}{path}", "2".repeat(64)));
        assert_eq!(path_in(&mixed), None);
    }
}

#[test]
fn the_condition_of_the_leader_is_written_beside_the_conditions_of_the_manifests() {
    let condition = |text: &str| MatchCondition {
        name: namespaces::LEADER_CONDITION.to_owned(),
        expression: text.to_owned(),
    };
    let patched = |live: &Value, wanted: Option<&MatchCondition>| {
        let webhooks = parse_webhooks(Some(&json!([live]))).unwrap();
        let operations = change_condition("0", webhooks[0].match_conditions.as_deref(), wanted)?;
        let mut live = json!({"webhooks": [live]});
        json_patch::patch(&mut live, &Patch(operations)).unwrap();
        Some(live["webhooks"][0].clone())
    };
    let manifest = json!({"name": "no-repeat", "expression": "true"});
    let both = |text: &str| json!([manifest, condition(text)]);
    let hook = |conditions: Value| json!({"name": "a", "matchConditions": conditions});
    let bare = json!({"name": "a"});
    for (live, wanted, after) in [
        (bare.clone(), Some("x"), Some(hook(json!([condition("x")])))),
        (hook(json!([manifest])), Some("x"), Some(hook(both("x")))),
        (hook(both("x")), Some("y"), Some(hook(both("y")))),
        (hook(both("x")), None, Some(hook(json!([manifest])))),
        (hook(both("x")), Some("x"), None),
        (hook(json!([manifest])), None, None),
        (bare, None, None),
    ] {
        assert_eq!(patched(&live, wanted.map(condition).as_ref()), after, "{live} {wanted:?}");
    }
}
