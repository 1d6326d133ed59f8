//! The certificate in use, replaceable while connections are being accepted.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::verifier::ClientAuthorities;
use super::{CertError, CertificateFiles};

/// What is served now: a certificate with its key, and the authorities whose
/// clients are let in.
#[derive(Debug, Default)]
pub struct Serving {
    certificate: ArcSwapOption<CertifiedKey>,
    pub(super) clients: Arc<ClientAuthorities>,
}

impl Serving {
    /// Replaces what is served. Handshakes under way end with the old one.
    pub(super) fn replace(&self, certificate: CertifiedKey) {
        self.certificate.store(Some(Arc::new(certificate)));
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate.load_full()
    }
}

/// The TLS side of the server: TLS 1.2 and 1.3, HTTP/1.1 alone (the API server
/// speaks nothing else to webhooks). With a client CA nobody gets in without a
/// certificate it signed.
pub fn server_config(
    files: &CertificateFiles,
    serving: &Arc<Serving>,
) -> Result<ServerConfig, CertError> {
    let builder = ServerConfig::builder_with_protocol_versions(&[
        &rustls::version::TLS13,
        &rustls::version::TLS12,
    ]);
    let builder = match files.client_ca {
        Some(_) => builder.with_client_cert_verifier(serving.clients.clone()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(serving.clone());
    if files.client_ca.is_some() {
        // A resumed session is not asked for its certificate again, and would
        // outlive the authority that let it in.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
