//! Verifies client certificates with CAs that can be replaced.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The limit of intermediate certificates of a client. webpki tries each order of them, before it
/// checks the signature of the client.
const MAX_INTERMEDIATES: usize = 3;

/// Forwards each call to the current verifier, because rustls can't replace the verifier of a
/// running server.
#[derive(Debug, Default)]
pub struct ClientAuthorities(ArcSwapOption<Loaded>);

#[derive(Debug)]
struct Loaded(Arc<dyn ClientCertVerifier>);

impl ClientAuthorities {
    pub(super) fn replace(&self, verifier: Arc<dyn ClientCertVerifier>) {
        self.0.store(Some(Arc::new(Loaded(verifier))));
    }

    fn current(&self) -> Result<Arc<Loaded>, Error> {
        self.0.load_full().ok_or_else(|| Error::General("no client CA is loaded".to_owned()))
    }
}

impl ClientCertVerifier for ClientAuthorities {
    /// Sends no hints, because the returned reference must outlive a replacement. Clients do not
    /// need hints.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if intermediates.len() > MAX_INTERMEDIATES {
            let message = format!("a client sent more than {MAX_INTERMEDIATES} intermediates");
            return Err(Error::General(message));
        }
        self.current()?.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()?.0.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current()?.0.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().map(|loaded| loaded.0.supported_verify_schemes()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h148_a_long_chain_is_refused_before_it_is_walked() {
        let certificate = CertificateDer::from(&b"certificate"[..]);
        let error = |count: usize| {
            let chain = vec![certificate.clone(); count];
            // Without a CA, a chain that is walked has another error.
            let clients = ClientAuthorities::default();
            let now = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
            clients.verify_client_cert(&certificate, &chain, now).unwrap_err().to_string()
        };
        assert!(error(3).contains("no client CA is loaded"), "{}", error(3));
        assert!(error(4).contains("more than 3 intermediates"), "{}", error(4));
    }
}
