//! `kubectl belay admin manifests`: prints the webhook configurations and the other
//! objects of an installation as YAML.
//!
//! With a CA certificate, the command prints the manifests of a standalone belay: the complete
//! webhooks for the label. Without one, it prints the manifests for replicas in a cluster: all
//! webhooks, which the leader completes, and the ServiceAccount with its permissions.

use std::path::{Path, PathBuf};

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::rbac::{ExtraKinds, parse_kind};
use super::yaml;
use crate::certs;
use crate::cluster::registration::manifests::{
    Address, WebhookConfigurations, label_only, skeleton,
};
use crate::cluster::user_of;
use crate::command::{CommandError, print};
use crate::objects::is_dns_label;

#[derive(Debug, Args)]
pub struct ManifestsArguments {
    /// The URL that the API server calls, without a path
    #[arg(
        long,
        value_name = "https://HOST:PORT",
        conflicts_with = "service",
        required_unless_present = "service"
    )]
    url: Option<String>,

    /// The Service that the API server calls; port 443 if none is given
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", required_unless_present = "url")]
    service: Option<String>,

    /// The CA certificate of a belay serve --standalone, PEM [default with --url: certs/ca.crt]. If
    /// you run belay in the cluster, use --service without --ca-file: belay then adds its CA
    /// certificate, the rules and the paths itself
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Let belay read and hold objects of a kind that policies or labels name, for example secrets.
    /// May be repeated
    #[arg(
        long,
        value_name = "[GROUP/]RESOURCE",
        conflicts_with_all = ["url", "ca_file", "watch_everything"]
    )]
    watch_also: Vec<String>,

    /// Let belay read and hold objects of every kind, Secrets included
    #[arg(long, conflicts_with_all = ["url", "ca_file"])]
    watch_everything: bool,
}

pub fn run(arguments: ManifestsArguments) -> Result<(), CommandError> {
    let ManifestsArguments { url, service, ca_file, watch_also, watch_everything } = arguments;
    let documents = match (url, service, ca_file) {
        (_, Some(service), None) => {
            let also = watch_also.iter().map(|kind| parse_kind(kind)).collect::<Result<_, _>>()?;
            replica_manifests(
                &parse_service(&service)?,
                ExtraKinds { also, everything: watch_everything },
            )?
        }
        (_, Some(service), Some(ca_file)) => {
            standalone_manifests(&parse_service(&service)?, &ca_file)?
        }
        (Some(url), None, ca_file) => {
            let ca_file = ca_file.unwrap_or_else(|| PathBuf::from("certs/ca.crt"));
            standalone_manifests(&parse_url(url)?, &ca_file)?
        }
        (None, None, _) => return Err(CommandError::usage("give --url or --service")),
    };
    print(&documents.join("---\n"))
}

/// The manifests of a standalone belay.
fn standalone_manifests(address: &Address, ca_file: &Path) -> Result<Vec<String>, CommandError> {
    let WebhookConfigurations { validating, mutating } =
        label_only("belay", address, &ca_bundle(ca_file)?);
    Ok(vec![yaml(&validating)?, yaml(&mutating)?])
}

/// The manifests for replicas. The ServiceAccount comes before its permissions.
fn replica_manifests(address: &Address, kinds: ExtraKinds) -> Result<Vec<String>, CommandError> {
    let Address::Service { namespace, name, .. } = address else { return Ok(Vec::new()) };
    let account = user_of(namespace, name);
    let WebhookConfigurations { validating, mutating } = skeleton(name, address, &account);
    let mut documents = kinds.documents(namespace, name)?;
    documents.extend([yaml(&validating)?, yaml(&mutating)?]);
    Ok(documents)
}

/// Reads only the certificates of a file, because the file may contain keys and every user may
/// read a webhook configuration. An invalid certificate would cause TLS errors later.
fn ca_bundle(path: &Path) -> Result<Vec<u8>, CommandError> {
    let pem = std::fs::read(path)
        .map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
    let error = |detail: String| CommandError::Content { path: path.to_owned(), detail };
    let mut bundle = String::new();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| error(format!("holds broken PEM: {e}")))?;
        x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| error(format!("holds a certificate that cannot be read: {e}")))?;
        bundle.push_str(&certs::pem(&certificate));
    }
    if bundle.is_empty() {
        let why = "holds no PEM certificate; kubectl belay admin certs creates one";
        return Err(error(why.to_owned()));
    }
    Ok(bundle.into_bytes())
}

fn parse_url(url: String) -> Result<Address, CommandError> {
    let authority = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    let is_valid = authority.is_some_and(|authority| {
        let (host, port) = match authority.rsplit_once(':') {
            // A colon inside brackets is part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let has_name = rustls::pki_types::ServerName::try_from(host).is_ok();
        has_name && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
    });
    match authority {
        Some(authority) if is_valid => Ok(Address::Url(format!("https://{authority}"))),
        _ => Err(CommandError::Usage(format!(
            "--url is \"{url}\"; expected https://HOST:PORT without a path"
        ))),
    }
}

fn parse_service(service: &str) -> Result<Address, CommandError> {
    let error = || {
        CommandError::Usage(format!(
            "--service is \"{service}\"; expected NAMESPACE/NAME or NAMESPACE/NAME:PORT"
        ))
    };
    let (namespace, rest) = service.split_once('/').ok_or_else(error)?;
    let (name, port) = match rest.split_once(':') {
        None => (rest, 443),
        Some((name, port)) => (name, i32::from(port.parse::<u16>().map_err(|_| error())?)),
    };
    if !is_dns_label(namespace) || !is_dns_label(name) || port == 0 {
        return Err(error());
    }
    Ok(Address::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_and_rejects_malformed_ones() {
        assert!(matches!(
            parse_service("belay/belay").unwrap(),
            Address::Service { port: 443, .. }
        ));
        assert!(matches!(
            parse_service("belay/belay:8443").unwrap(),
            Address::Service { port: 8443, .. }
        ));
        for wrong in [
            "",
            "belay",
            "/belay",
            "belay/",
            "a/b/c",
            "a/b:0",
            "a/b:http",
            "a/b:70000",
            "A_/b",
            "a/b@c",
            "-a/b",
        ] {
            let error = parse_service(wrong).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains("expected NAMESPACE/NAME"), "{wrong}: {error}");
        }
        for wrong in [
            "http://a",
            "https://",
            "a:8443",
            "https://a/validate",
            "https://a b",
            "https://a:0",
            "https://a:99999",
            "https://:443",
            "https://[::1",
            "https://u@a",
        ] {
            assert!(parse_url(wrong.to_owned()).is_err(), "{wrong}");
        }
        for right in ["https://127.0.0.1:8443/", "https://[::1]:8443", "https://belay.example.com"]
        {
            assert!(parse_url(right.to_owned()).is_ok(), "{right}");
        }
    }

    #[test]
    fn the_manifests_of_replicas_have_an_account_with_permissions_and_both_configurations() {
        let address = parse_service("ops/guard").unwrap();
        let documents = replica_manifests(&address, ExtraKinds::default()).unwrap();
        let documents: Vec<serde_json::Value> =
            documents.iter().map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        let kinds: Vec<_> = documents.iter().map(|d| d["kind"].as_str().unwrap()).collect();
        assert_eq!(
            kinds,
            [
                "ServiceAccount",
                "ClusterRole",
                "ClusterRoleBinding",
                "Role",
                "RoleBinding",
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration"
            ]
        );
        assert!(documents.iter().all(|document| document["metadata"]["name"] == "guard"));
        let text = documents[6].to_string();
        assert!(text.contains("request.userInfo.username != 'system:serviceaccount:ops:guard'"));
    }
}
