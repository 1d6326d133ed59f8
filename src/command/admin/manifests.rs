//! `belay admin manifests`: the two webhook configurations, as YAML.

use std::path::PathBuf;

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
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]")]
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
    let ca = std::fs::read(&ca_file)
        .map_err(|source| CommandError::Read { path: ca_file.clone(), source })?;
    // A wrong file here would be found out at the first delete, as a TLS error
    // in somebody's face.
    if !matches!(CertificateDer::pem_slice_iter(&ca).next(), Some(Ok(_))) {
        return Err(CommandError::Content {
            path: ca_file,
            detail: "holds no PEM certificate; belay admin certs makes one".to_owned(),
        });
    }

    let documents =
        [yaml(&validating(&address, &ca))?, yaml(&mutating(&address, &ca))?].join("---\n");
    print(&documents)
}

fn yaml(value: &impl serde::Serialize) -> Result<String, CommandError> {
    serde_saphyr::to_string(value)
        .map_err(|error| CommandError::Output(std::io::Error::other(error)))
}

fn parse_url(url: String) -> Result<Address, CommandError> {
    let authority = url.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    match authority {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', ' ', '@']) => {
            Ok(Address::Url(format!("https://{host}")))
        }
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
    if namespace.is_empty() || name.is_empty() || name.contains('/') || port == 0 {
        return Err(wrong());
    }
    Ok(Address::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
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
        for wrong in ["", "belay", "/belay", "belay/", "a/b/c", "a/b:0", "a/b:http", "a/b:70000"] {
            let error = parse_service(wrong).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains("expected NAMESPACE/NAME"), "{wrong}: {error}");
        }
        for wrong in ["http://a", "https://", "a:8443", "https://a/validate", "https://a b"] {
            assert!(parse_url(wrong.to_owned()).is_err(), "{wrong}");
        }
        assert!(parse_url("https://127.0.0.1:8443/".to_owned()).is_ok());
    }
}
