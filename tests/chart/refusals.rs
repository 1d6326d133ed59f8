//! The errors of values.schema.json and templates/_validate.tpl.

use crate::helm::Render;

/// A value, and parts of its error.
const REFUSED: &[(&str, &[&str])] = &[
    // Typos.
    ("replica=3", &["replica"]),
    ("profile=\"guard\"", &["profile", "observe", "guarded", "strict"]),
    ("policies={\"claimInUse\":{}}", &["policies", "claimInUse"]),
    ("policies.claimsInUse={\"enable\":true}", &["policies/claimsInUse", "enable"]),
    ("policies.claimsInUse={\"action\":\"deny\"}", &["policies/claimsInUse/action", "Deny"]),
    ("relations={\"certmanager\":true}", &["relations", "certmanager"]),
    ("relations.velero=\"yes\"", &["relations/velero", "boolean"]),
    ("rbac={\"watchalso\":[]}", &["rbac", "watchalso"]),
    ("rbac.watchAlso=[\"Secrets\"]", &["rbac/watchAlso/0"]),
    ("labelledKinds=[\"apps/deployments\"]", &["labelledKinds/0"]),
    ("labelledKinds=[]", &["labelledKinds"]),
    ("crds={\"keeps\":true}", &["crds", "keeps"]),
    ("uninstall.abandon=\"true\"", &["uninstall/abandon", "boolean"]),
    ("image.digest=\"abc\"", &["image/digest"]),
    ("logFormat=\"yaml\"", &["logFormat", "json"]),
    ("webhook.drainSeconds=-1", &["webhook/drainSeconds", "0"]),
    ("replicas=0", &["replicas", "1"]),
    ("backfill.maxObjects=\"many\"", &["backfill/maxObjects", "integer"]),
    ("resources.limit={}", &["resources", "limit"]),
    ("fullnameOverride=\"a-name-that-is-longer-than-thirty\"", &["fullnameOverride", "30"]),
    // Invalid combinations.
    (
        "certManager.enabled=true,existingSecret=\"s\"",
        &["certManager.enabled and existingSecret are two sources of one certificate"],
    ),
    (
        "certManager={\"enabled\":true,\"issuerRef\":{\"kind\":\"ClusterIssuer\"}}",
        &["certManager.issuerRef is a ClusterIssuer without a name"],
    ),
    (
        "networkPolicy.enabled=true",
        &["networkPolicy.enabled is true: set networkPolicy.apiServer.cidrs", "webhookFrom"],
    ),
    ("serviceAccount.create=false", &["set serviceAccount.name to an existing account"]),
    (
        "podDisruptionBudget.minAvailable=2",
        &["minAvailable is 2 of 2 replicas: nodes with a replica can't be drained"],
    ),
    ("selftest.namespace=\"belay\"", &["selftest.namespace is belay, which belay does not guard"]),
    ("labelledKinds=[\"services\"]", &["needs configmaps in labelledKinds"]),
    ("webhook.deadlineSeconds=5", &["set deadlineSeconds to less than timeoutSeconds"]),
    ("rbac.watchAlso=[\"core/secrets\"]", &["rbac.watchAlso", "core/secrets", "write secrets"]),
    ("rbac.watchAlso=[\"v1/secrets\"]", &["rbac.watchAlso", "v1/secrets", "write secrets"]),
    ("rbac.watchAlso=[\"core/*\"]", &["rbac.watchAlso", "core/*", "name each kind"]),
    (
        "labelledKinds=[\"configmaps\",\"services.core\"]",
        &["labelledKinds", "services.core", "write services"],
    ),
    (
        "crds.keep=false,uninstall.enabled=false",
        &["crds.keep is false and uninstall.enabled is false", "while objects still have the hold"],
    ),
    (
        "uninstall={\"enabled\":false,\"abandon\":true}",
        &["without the uninstall Job, abandon has no effect"],
    ),
    (
        "formerHolds=[\"belay.dev/hold\"]",
        &["formerHolds: belay.dev/hold", "use a former name of the hold"],
    ),
    (
        "formerHolds=[\"kubernetes.io/pvc-protection\"]",
        &["formerHolds", "not a finalizer of Kubernetes"],
    ),
    (
        "labelledKinds=[\"configmaps\",\"deployments\"]",
        &["labelledKinds: deployments", "write deployments.apps"],
    ),
    (
        "policies.claimsInUse={\"exclude\":[{\"apiGroups\":[\"\"],\"resources\":[\"secrets\"],\
         \"objectselector\":{}}]}",
        &["policies/claimsInUse/exclude/0", "objectselector"],
    ),
    (
        "policies.claimsInUse={\"exclude\":[{\"apiGroups\":[\"\"],\"resources\":[]}]}",
        &["policies/claimsInUse/exclude/0/resources"],
    ),
    (
        "policies.claimsInUse={\"exemptSubjects\":[{\"kind\":\"user\",\"name\":\"eve\"}]}",
        &["policies/claimsInUse/exemptSubjects/0/kind", "User"],
    ),
    (
        "policies.claimsInUse={\"actionOverrides\":[{\"namespaceSelector\":{},\"action\":\"Hold\"}]}",
        &["policies/claimsInUse/actionOverrides/0/action", "Audit"],
    ),
    ("fullnameOverride=\"123\"", &["fullnameOverride"]),
    ("fullnameOverride=\"true\"", &["the name of the installation would be \"true\""]),
    ("fullnameOverride=\"on\"", &["the name of the installation would be \"on\""]),
    (
        "podLabels={\"app.kubernetes.io/name\":\"x\"}",
        &["podLabels: app.kubernetes.io/name is set by the chart"],
    ),
    (
        "serviceMonitor={\"enabled\":true,\"labels\":{\"helm.sh/chart\":\"x\"}}",
        &["serviceMonitor.labels: helm.sh/chart is set by the chart"],
    ),
    (
        "prometheusRule={\"enabled\":true,\"labels\":{\"app.kubernetes.io/instance\":\"x\"}}",
        &["prometheusRule.labels: app.kubernetes.io/instance is set by the chart"],
    ),
    (
        "dashboard={\"enabled\":true,\"labels\":{\"app.kubernetes.io/version\":\"x\"}}",
        &["dashboard.labels: app.kubernetes.io/version is set by the chart"],
    ),
    (
        "topologySpreadConstraints=[{\"maxSkew\":1,\"labelSelector\":{}}]",
        &["topologySpreadConstraints: labelSelector is set by the chart"],
    ),
    (
        "topologySpreadConstraints=[{\"maxSkew\":1,\"matchLabelKeys\":[]}]",
        &["topologySpreadConstraints: matchLabelKeys is set by the chart"],
    ),
    (
        "extraEnv=[{\"name\":\"POD_NAME\",\"value\":\"x\"}]",
        &["extraEnv: POD_NAME is set by the chart"],
    ),
    ("extraArgs=[\"--name=other\"]", &["extraArgs: --name is set by the chart"]),
    ("extraArgs=[\"--listen=0.0.0.0:9443\"]", &["extraArgs: --listen is set by the chart"]),
    ("extraArgs=[\"--drain\",\"9\"]", &["extraArgs: --drain is set by the chart"]),
    ("uninstall.timeoutSeconds=-1", &["uninstall/timeoutSeconds", "0"]),
    (
        "rbac.watchEverything=true,rbac.watchAlso=[\"secrets\"]",
        &["rbac.watchEverything is true and rbac.watchAlso names kinds"],
    ),
];

#[test]
fn mistakes_are_refused_with_a_sentence() {
    for (value, words) in REFUSED {
        let said = Render::default().set(value).refusal();
        for word in *words {
            assert!(said.contains(word), "{value}: expected {word:?} in: {said}");
        }
    }
}

#[test]
fn a_release_name_that_no_service_can_have_is_refused_with_a_hint() {
    let said = Render::named("123").refusal();
    assert!(said.contains("would be \"123-belay\""), "{said}");
    assert!(said.contains("fullnameOverride"), "{said}");
}

#[test]
fn renders_unusual_but_valid_values() {
    for value in [
        "policies.claimsInUse.enabled=null",
        "policies.claimsInUse=null",
        "podDisruptionBudget={\"enabled\":false,\"minAvailable\":2}",
        "replicas=1",
        "webhook.deadlineSeconds=4.5",
        "crds.keep=false",
        "uninstall.enabled=false",
        "global={\"anything\":1}",
        "rbac.watchAlso=[\"secrets\",\"example.com/widgets\",\"example.com/*\"]",
    ] {
        Render::default().set(value).objects();
    }
}
