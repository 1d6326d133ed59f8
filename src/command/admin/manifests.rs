//! `belay admin manifests`: the two webhook configurations, as YAML.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::yaml;
use crate::command::{CommandError, print};
use crate::objects::PROTECT_LABEL;

/// The API server waits this long for an answer; belay's own deadline is
/// shorter, so that its words arrive and not a time-out.
const TIMEOUT_SECONDS: i32 = 5;

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

    /// The certificate authority of belay's certificate, PEM
    #[arg(long, value_name = "FILE", default_value = "certs/ca.crt")]
    ca_file: PathBuf,
}

/// Where the API server finds belay.
enum Address {
    Url(String),
    Service { namespace: String, name: String, port: i32 },
}

pub fn run(arguments: ManifestsArguments) -> Result<(), CommandError> {
    let ManifestsArguments { url, service, ca_file } = arguments;
    let address = match (url, service) {
        (_, Some(service)) => parse_service(&service)?,
        (Some(url), None) => parse_url(url)?,
        (None, None) => return Err(CommandError::Usage("give --url or --service".to_owned())),
    };
    let ca = ca_bundle(&ca_file)?;

    let documents =
        [yaml(&validating(&address, &ca))?, yaml(&mutating(&address, &ca))?].join("---\n");
    print(&documents)
}

/// The certificates of a file, and nothing else of it: a bundle is there for
/// everybody to read, and people keep keys beside certificates. A wrong file
/// would be found out at the first delete, as a TLS error in somebody's face.
fn ca_bundle(path: &Path) -> Result<Vec<u8>, CommandError> {
    let pem = std::fs::read(path)
        .map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
    let unusable = |detail: String| CommandError::Content { path: path.to_owned(), detail };
    let mut bundle = String::new();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| unusable(format!("holds broken PEM: {e}")))?;
        x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| unusable(format!("holds a certificate that cannot be read: {e}")))?;
        bundle.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(&certificate).as_bytes().chunks(64) {
            bundle.push_str(&String::from_utf8_lossy(line));
            bundle.push('\n');
        }
        bundle.push_str("-----END CERTIFICATE-----\n");
    }
    if bundle.is_empty() {
        return Err(unusable("holds no PEM certificate; belay admin certs makes one".to_owned()));
    }
    Ok(bundle.into_bytes())
}

fn parse_url(url: String) -> Result<Address, CommandError> {
    let authority = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    let sound = authority.is_some_and(|authority| {
        let (host, port) = match authority.rsplit_once(':') {
            // A colon inside brackets is part of an IPv6 address.
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let named = rustls::pki_types::ServerName::try_from(host).is_ok();
        named && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
    });
    match authority {
        Some(authority) if sound => Ok(Address::Url(format!("https://{authority}"))),
        _ => Err(CommandError::Usage(format!(
            "--url is \"{url}\"; expected https://HOST:PORT and nothing behind it"
        ))),
    }
}

fn parse_service(service: &str) -> Result<Address, CommandError> {
    let wrong = || {
        CommandError::Usage(format!(
            "--service is \"{service}\"; expected NAMESPACE/NAME or NAMESPACE/NAME:PORT"
        ))
    };
    let (namespace, rest) = service.split_once('/').ok_or_else(wrong)?;
    let (name, port) = match rest.split_once(':') {
        None => (rest, 443),
        Some((name, port)) => (name, i32::from(port.parse::<u16>().map_err(|_| wrong())?)),
    };
    if !is_dns_label(namespace) || !is_dns_label(name) || port == 0 {
        return Err(wrong());
    }
    Ok(Address::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

/// What the API server takes for the name of a Namespace or a Service.
fn is_dns_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len())
        && name.chars().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Asked when a labelled object is deleted. Without an answer nothing labelled
/// is deleted, and nothing else is touched.
fn validating(address: &Address, ca: &[u8]) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: metadata(),
        webhooks: Some(vec![ValidatingWebhook {
            name: "label-delete.belay.dev".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client_config(address, ca, "/validate"),
            failure_policy: Some("Fail".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(not_in_system(address)),
            object_selector: Some(labelled()),
            rules: Some(vec![everything("DELETE")]),
            side_effects: "NoneOnDryRun".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..ValidatingWebhook::default()
        }]),
    }
}

/// Asked when a labelled object is created. Without an answer it is created
/// with no hold: the denial of its DELETE does not depend on that.
fn mutating(address: &Address, ca: &[u8]) -> MutatingWebhookConfiguration {
    MutatingWebhookConfiguration {
        metadata: metadata(),
        webhooks: Some(vec![MutatingWebhook {
            name: "label-hold.belay.dev".to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client_config(address, ca, "/mutate"),
            failure_policy: Some("Ignore".to_owned()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(not_in_system(address)),
            object_selector: Some(labelled()),
            reinvocation_policy: Some("IfNeeded".to_owned()),
            rules: Some(vec![everything("CREATE")]),
            side_effects: "NoneOnDryRun".to_owned(),
            timeout_seconds: Some(TIMEOUT_SECONDS),
            ..MutatingWebhook::default()
        }]),
    }
}

fn metadata() -> ObjectMeta {
    ObjectMeta { name: Some("belay".to_owned()), ..ObjectMeta::default() }
}

fn client_config(address: &Address, ca: &[u8], path: &str) -> WebhookClientConfig {
    let (url, service) = match address {
        Address::Url(base) => (Some(format!("{base}{path}")), None),
        Address::Service { namespace, name, port } => {
            let service = ServiceReference {
                namespace: namespace.clone(),
                name: name.clone(),
                port: Some(*port),
                path: Some(path.to_owned()),
            };
            (None, Some(service))
        }
    };
    WebhookClientConfig { ca_bundle: Some(ByteString(ca.to_vec())), url, service }
}

fn everything(operation: &str) -> RuleWithOperations {
    let any = || Some(vec!["*".to_owned()]);
    RuleWithOperations {
        api_groups: any(),
        api_versions: any(),
        operations: Some(vec![operation.to_owned()]),
        resources: any(),
        scope: Some("*".to_owned()),
    }
}

fn labelled() -> LabelSelector {
    selector(PROTECT_LABEL, "Exists", Vec::new())
}

/// The cluster has to be able to repair itself, and belay, while belay is down.
fn not_in_system(address: &Address) -> LabelSelector {
    let mut namespaces = vec!["kube-system".to_owned(), "kube-node-lease".to_owned()];
    if let Address::Service { namespace, .. } = address {
        namespaces.push(namespace.clone());
    }
    selector("kubernetes.io/metadata.name", "NotIn", namespaces)
}

fn selector(key: &str, operator: &str, values: Vec<String>) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        }]),
        match_labels: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_say_or_a_sentence() {
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
}
