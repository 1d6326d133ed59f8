//! Certificates in files: loaded together, and again when their bytes change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;

use super::{CertError, Serving};
use crate::telemetry::Metrics;

/// The files that TLS is served from.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The server's certificate chain, leaf first.
    pub tls_cert: PathBuf,
    /// The private key of the leaf.
    pub tls_key: PathBuf,
    /// The authorities whose clients are let in; none: everybody is.
    pub client_ca: Option<PathBuf>,
}

/// The bytes of all files at one moment. Their comparison is the test for a
/// change: a mounted Secret swaps links, so neither times nor inotify tell.
#[derive(PartialEq, Eq)]
pub struct Contents {
    tls_cert: Vec<u8>,
    tls_key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl CertificateFiles {
    /// Reads everything and, only if all of it is good, serves it.
    pub fn load(&self, serving: &Serving, metrics: &Metrics) -> Result<Contents, CertError> {
        let contents = self.read()?;
        self.use_contents(&contents, serving, metrics)?;
        Ok(contents)
    }

    fn read(&self) -> Result<Contents, CertError> {
        Ok(Contents {
            tls_cert: read(&self.tls_cert, "--tls-cert or --cert-dir")?,
            tls_key: read(&self.tls_key, "--tls-key or --cert-dir")?,
            client_ca: self.client_ca.as_ref().map(|path| read(path, "--client-ca")).transpose()?,
        })
    }

    fn use_contents(
        &self,
        contents: &Contents,
        serving: &Serving,
        metrics: &Metrics,
    ) -> Result<(), CertError> {
        let (certificate, expiry) = self.certified_key(contents)?;
        // Both are checked before either is used: a good pair beside a broken
        // client CA changes nothing.
        if let (Some(path), Some(pem)) = (&self.client_ca, &contents.client_ca) {
            let content = |detail| CertError::Content {
                path: path.clone(),
                what: "client CA certificate",
                detail,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem).map_err(content)? {
                roots.add(certificate).map_err(|e| content(e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                .build()
                .map_err(|e| content(e.to_string()))?;
            serving.clients.replace(verifier);
        }
        if expiry < jiff::Timestamp::now().as_second() {
            tracing::warn!(path = %self.tls_cert.display(), "the certificate has expired: every client will refuse it");
        }
        serving.replace(certificate);
        metrics.certificate_loaded(expiry);
        Ok(())
    }

    /// The chain and key as rustls wants them (which checks that they belong
    /// together), and the time at which the leaf expires.
    fn certified_key(&self, contents: &Contents) -> Result<(CertifiedKey, i64), CertError> {
        let bad_cert = |detail| CertError::Content {
            path: self.tls_cert.clone(),
            what: "certificate chain",
            detail,
        };
        let bad_key =
            |detail| CertError::Content { path: self.tls_key.clone(), what: "private key", detail };
        let chain = certificates(&contents.tls_cert).map_err(bad_cert)?;
        let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf)
            .map_err(|e| bad_cert(format!("its first certificate cannot be read ({e})")))?;
        let expiry = parsed.validity().not_after.timestamp();
        let key =
            PrivateKeyDer::from_pem_slice(&contents.tls_key).map_err(|e| bad_key(e.to_string()))?;
        let provider = CryptoProvider::get_default()
            .cloned()
            .unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|e| {
            bad_key(format!("it does not fit the certificate in {} ({e})", self.tls_cert.display()))
        })?;
        Ok((certified, expiry))
    }
}

/// Looks at the files every `every`, for ever, and takes up what differs from
/// what was `loaded`. What cannot be used is counted and logged once, and the
/// last good pair stays.
pub async fn watch(
    files: CertificateFiles,
    loaded: Contents,
    serving: Arc<Serving>,
    metrics: Metrics,
    every: Duration,
) {
    let mut seen = Ok(loaded);
    loop {
        tokio::time::sleep(every).await;
        // An error is compared by its words: one that stays is told of once.
        let found = files.read().map_err(|error| error.to_string());
        if found == seen {
            continue;
        }
        // Files are replaced one after another: what does not fit together may
        // be half of a change. The next look tells.
        if !settled(&files, &found, every).await {
            continue;
        }
        let used = match &found {
            Ok(contents) => {
                files.use_contents(contents, &serving, &metrics).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.clone()),
        };
        match used {
            Ok(()) => tracing::info!(path = %files.tls_cert.display(), "certificate replaced"),
            Err(error) => {
                metrics.certificate_failed();
                tracing::error!(%error, "changed certificate files cannot be used; the last good ones stay in use");
            }
        }
        seen = found;
    }
}

/// Whether the files are the same after a moment.
async fn settled(
    files: &CertificateFiles,
    found: &Result<Contents, String>,
    every: Duration,
) -> bool {
    tokio::time::sleep(every.min(Duration::from_millis(500))).await;
    files.read().map_err(|error| error.to_string()) == *found
}

fn read(path: &Path, option: &'static str) -> Result<Vec<u8>, CertError> {
    fs::read(path).map_err(|source: io::Error| CertError::File {
        path: path.to_owned(),
        action: "read",
        option,
        source,
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no PEM certificate in it".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(error.to_string()),
    }
}
