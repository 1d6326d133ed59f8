//! The certificate in use, which can be replaced while the server runs.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{NamedGroup, ServerConfig};

use super::certificate_and_key::provider;
use super::verifier::ClientAuthorities;
use super::{CertError, CertificateAndKey};
use crate::telemetry::Metrics;

/// The certificate and key in use, and the CAs of accepted clients.
#[derive(Debug, Default)]
pub struct Serving {
    certificate: ArcSwapOption<CertifiedKey>,
    pub(super) clients: Arc<ClientAuthorities>,
}

impl Serving {
    /// Serves this certificate from now on. Handshakes in progress keep the old one.
    pub fn replace(&self, pair: CertificateAndKey, metrics: &Metrics) {
        self.certificate.store(Some(Arc::new(pair.certified)));
        metrics.set_certificate_expiry(pair.expires);
    }

    /// Whether there is a certificate. Without one, every handshake fails.
    pub fn has_pair(&self) -> bool {
        self.certificate.load().is_some()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.certificate.load_full()
    }
}

/// The TLS configuration of the server: TLS 1.2 and 1.3, and only HTTP/1.1, because the API server
/// uses nothing else for webhooks. If client certificates are required, the server only accepts
/// those that the client CA signed.
pub fn server_config(
    serving: &Arc<Serving>,
    requires_client_cert: bool,
) -> Result<ServerConfig, CertError> {
    // Any client can start a handshake, and a key exchange on P-384 takes twice the time.
    let mut crypto = CryptoProvider::clone(&provider());
    crypto.kx_groups.retain(|group| group.name() != NamedGroup::secp384r1);
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(CertError::Versions)?;
    let builder = if requires_client_cert {
        builder.with_client_cert_verifier(serving.clients.clone())
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_cert_resolver(serving.clone());
    if requires_client_cert {
        // A resumed session skips the client certificate. So it would stay valid after the
        // client CA was replaced.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h89_no_handshake_uses_p384() {
        let config = server_config(&Arc::default(), false).unwrap();
        let groups = config.crypto_provider().kx_groups.iter().map(|group| group.name());
        let groups: Vec<_> = groups.collect();
        assert!(!groups.contains(&NamedGroup::secp384r1), "{groups:?}");
        for supported in [NamedGroup::X25519, NamedGroup::secp256r1] {
            assert!(groups.contains(&supported), "{groups:?}");
        }
    }
}
