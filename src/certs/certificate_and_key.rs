//! Parses a certificate chain and its key from PEM.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

/// A certificate chain and the key of its leaf.
#[derive(Debug)]
pub struct CertificateAndKey {
    pub(super) certified: CertifiedKey,
    /// The serial number of the leaf, in hexadecimal digits.
    pub serial: String,
    /// The start of validity of the leaf, in seconds since 1970.
    pub begins: i64,
    /// The expiry of the leaf, in seconds since 1970.
    pub expires: i64,
}

/// The unusable part, and the reason. The reason never contains the text of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateAndKeyError {
    /// The chain.
    Certificate(String),
    /// The key, or the key together with this chain.
    Key(String),
}

impl CertificateAndKey {
    /// Parses a chain and its key. rustls checks that the key belongs to the certificate.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Self, CertificateAndKeyError> {
        let chain = certificates(certificate).map_err(CertificateAndKeyError::Certificate)?;
        let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|error| {
            CertificateAndKeyError::Certificate(format!(
                "its first certificate cannot be read ({error})"
            ))
        })?;
        let serial = parsed.raw_serial_as_string().replace(':', "");
        let begins = parsed.validity().not_before.timestamp();
        let expires = parsed.validity().not_after.timestamp();
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| CertificateAndKeyError::Key(e.to_string()))?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|e| {
            CertificateAndKeyError::Key(format!("it does not fit the certificate ({e})"))
        })?;
        Ok(Self { certified, serial, begins, expires })
    }

    /// Whether a client that trusts only these CAs accepts the certificate for this name
    /// at this time (seconds since 1970).
    pub fn is_trusted_by(&self, cas: &[CertificateDer<'_>], name: &str, at: i64) -> bool {
        let Some((leaf, intermediates)) = self.certified.cert.split_first() else { return false };
        let mut roots = RootCertStore::empty();
        for ca in cas {
            if roots.add(ca.clone().into_owned()).is_err() {
                return false;
            }
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let (Ok(verifier), Ok(name)) = (verifier.build(), ServerName::try_from(name)) else {
            return false;
        };
        let at = std::time::Duration::from_secs(at.try_into().unwrap_or_default());
        let at = UnixTime::since_unix_epoch(at);
        verifier.verify_server_cert(leaf, intermediates, &name, &[], at).is_ok()
    }
}

/// A certificate as PEM.
pub fn pem(certificate: &[u8]) -> String {
    let base64 = STANDARD.encode(certificate).into_bytes();
    let lines: Vec<_> = base64.chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The certificates in a PEM text, at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no PEM certificate in it".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(error.to_string()),
    }
}

/// The expiry of a certificate, in seconds since 1970; `None` if it can't be parsed.
pub fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}

/// The cryptography of this process.
pub fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default()
        .cloned()
        .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::make;

    fn names() -> Vec<String> {
        vec!["belay.belay.svc".to_owned()]
    }

    #[test]
    fn clients_that_trust_the_ca_accept_the_certificate_for_its_name_and_time() {
        let (made, other) = (make(&names(), 90).unwrap(), make(&names(), 90).unwrap());
        let read =
            CertificateAndKey::read(made.tls_cert.as_bytes(), made.tls_key.as_bytes()).unwrap();
        let cas = |text: &str| certificates(text.as_bytes()).unwrap();
        let own = cas(&made.ca_cert);
        let now = jiff::Timestamp::now().as_second();
        assert!(read.begins < now && now + 89 * 86_400 < read.expires);
        assert_eq!(expiry(&own[0]), Some(read.expires));
        assert!(read.is_trusted_by(&own, "belay.belay.svc", now));
        assert!(!read.is_trusted_by(&own, "belay.other.svc", now));
        assert!(!read.is_trusted_by(&own, "belay.belay.svc", read.expires + 1));
        assert!(!read.is_trusted_by(&cas(&other.ca_cert), "belay.belay.svc", now));
        // Both CAs have the same name. The client finds the CA that signed.
        let both = cas(&format!("{}{}", other.ca_cert, made.ca_cert));
        assert!(read.is_trusted_by(&both, "belay.belay.svc", now));
    }

    #[test]
    fn each_certificate_has_a_serial_number_of_its_own() {
        let serial = || {
            let made = make(&names(), 1).unwrap();
            CertificateAndKey::read(made.tls_cert.as_bytes(), made.tls_key.as_bytes())
                .unwrap()
                .serial
        };
        let (one, two) = (serial(), serial());
        assert_ne!(one, two);
        assert!(one.len() > 16 && one.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
    }

    #[test]
    fn errors_do_not_contain_the_text_of_the_file() {
        let (one, two) = (make(&names(), 1).unwrap(), make(&names(), 1).unwrap());
        let read = |certificate: &str, key: &str| {
            CertificateAndKey::read(certificate.as_bytes(), key.as_bytes()).err()
        };
        assert!(matches!(read("", &one.tls_key), Some(CertificateAndKeyError::Certificate(_))));
        assert!(matches!(read(&one.tls_cert, "secret"), Some(CertificateAndKeyError::Key(_))));
        let Some(CertificateAndKeyError::Key(reason)) = read(&one.tls_cert, &two.tls_key) else {
            panic!("the key belongs to the certificate")
        };
        assert!(reason.starts_with("it does not fit the certificate"), "{reason}");
    }
}
