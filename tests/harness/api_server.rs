//! The options of kube-apiserver.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::json;

use super::Result;
use super::pki::Pki;

/// Metadata contains the annotations of webhooks and no bodies. belay's own reads are
/// logged too, because they show which of its rights it uses.
pub const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
     rules:\n- level: Metadata\n  userGroups: [\"system:serviceaccounts:belay\"]\n- level: None\n  verbs: [get, list, watch]\n- level: Metadata\n";

/// Every write with its bodies, except irrelevant writes, and the begin and end of the watches of
/// belay's service accounts.
pub const AUDIT_BODIES: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
     omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
     - level: Metadata\n  verbs: [watch]\n  userGroups: [\"system:serviceaccounts:belay\"]\n\
     - level: None\n  verbs: [get, list, watch]\n\
     - level: None\n  resources: [{group: \"\", resources: [events, nodes, nodes/status]}, \
     {group: events.k8s.io}, {group: coordination.k8s.io}, {group: authorization.k8s.io}, \
     {group: authentication.k8s.io}]\n\
     - level: RequestResponse\n";

pub fn api_server_args(
    folder: &Path,
    pki: &Pki,
    etcd_url: &str,
    port: u16,
    socket: &Path,
    audit_policy: &str,
) -> Result<Vec<String>> {
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let serving =
        pki.server("kube-apiserver", &names, &[Ipv4Addr::LOCALHOST.into(), "10.96.0.1".parse()?])?;
    let front_proxy = pki.client("front-proxy-client", None)?;
    let tokens = pki.token_key()?;
    let ca = pki.ca();

    let audit = folder.join("audit.yaml");
    std::fs::write(&audit, audit_policy)?;
    let egress = folder.join("egress.yaml");
    let connection =
        json!({"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": socket}}});
    let selection = json!({"apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}]});
    std::fs::write(&egress, selection.to_string())?;
    let path = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    Ok(vec![
        format!("--etcd-servers={etcd_url}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        path("tls-cert-file", &serving.cert),
        path("tls-private-key-file", &serving.key),
        path("client-ca-file", &ca),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        path("service-account-key-file", &tokens.cert),
        path("service-account-signing-key-file", &tokens.key),
        path("requestheader-client-ca-file", &ca),
        // One CA signs users and the front proxy, so the latter has to be named.
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        path("proxy-client-cert-file", &front_proxy.cert),
        path("proxy-client-key-file", &front_proxy.key),
        path("audit-policy-file", &audit),
        path("audit-log-path", &folder.join("logs/audit.log")),
        // In MiB; the log is never rotated while a test reads it.
        "--audit-log-maxsize=1000000".to_owned(),
        path("egress-selector-config-file", &egress),
        // Tests are many small concurrent clients.
        "--max-requests-inflight=2000".to_owned(),
        "--max-mutating-requests-inflight=1000".to_owned(),
    ])
}
