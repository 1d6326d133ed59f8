//! Loads certificates from files, and loads them again when their content changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;

use super::certificate_and_key::{CertificateAndKeyError, certificates};
use super::{CertError, CertificateAndKey, Serving};
use crate::telemetry::Metrics;

/// The files with the certificates for TLS.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The server's certificate and key; `None` if they come from a Secret.
    pub pair: Option<PairFiles>,
    /// The CAs of accepted clients; `None` to accept all clients.
    pub client_ca: Option<PathBuf>,
}

/// The files of the server's certificate.
#[derive(Debug, Clone)]
pub struct PairFiles {
    /// The certificate chain, leaf first.
    pub tls_cert: PathBuf,
    /// The private key of the leaf.
    pub tls_key: PathBuf,
}

/// The content of all files. belay compares it to detect a change. File times and inotify don't
/// work for a mounted Secret, because the kubelet replaces links.
#[derive(PartialEq, Eq)]
pub struct Contents {
    pair: Option<PairContents>,
    client_ca: Option<Vec<u8>>,
}

#[derive(PartialEq, Eq)]
struct PairContents {
    tls_cert: Vec<u8>,
    tls_key: Vec<u8>,
}

impl CertificateFiles {
    /// Reads all files, and uses them if all of them are valid.
    pub fn load(&self, serving: &Serving, metrics: &Metrics) -> Result<Contents, CertError> {
        let contents = self.read()?;
        self.use_contents(&contents, serving, metrics)?;
        Ok(contents)
    }

    /// One of the files, for the log.
    fn first(&self) -> Option<String> {
        let pair = self.pair.as_ref().map(|pair| &pair.tls_cert);
        pair.or(self.client_ca.as_ref()).map(|path| path.display().to_string())
    }

    fn read(&self) -> Result<Contents, UnreadFile> {
        Ok(Contents {
            pair: self.pair.as_ref().map(PairFiles::read).transpose()?,
            client_ca: self.client_ca.as_ref().map(|path| read(path, "--client-ca")).transpose()?,
        })
    }

    fn use_contents(
        &self,
        contents: &Contents,
        serving: &Serving,
        metrics: &Metrics,
    ) -> Result<(), CertError> {
        let pair = self.pair.as_ref().zip(contents.pair.as_ref());
        let pair = pair.map(|(files, contents)| files.parse(contents)).transpose()?;
        // Check both before using one, so that an invalid client CA changes nothing.
        if let (Some(path), Some(pem)) = (&self.client_ca, &contents.client_ca) {
            let error = |detail| CertError::Content {
                path: path.clone(),
                what: "client CA certificate",
                detail,
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(pem).map_err(error)? {
                roots.add(certificate).map_err(|e| error(e.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
                .build()
                .map_err(|e| error(e.to_string()))?;
            serving.clients.replace(verifier);
        }
        if let Some(pair) = pair {
            serving.replace(pair, metrics);
        }
        Ok(())
    }
}

impl PairFiles {
    fn read(&self) -> Result<PairContents, UnreadFile> {
        Ok(PairContents {
            tls_cert: read(&self.tls_cert, "--tls-cert or --cert-dir")?,
            tls_key: read(&self.tls_key, "--tls-key or --cert-dir")?,
        })
    }

    fn parse(&self, contents: &PairContents) -> Result<CertificateAndKey, CertError> {
        let pair =
            CertificateAndKey::read(&contents.tls_cert, &contents.tls_key).map_err(|error| {
                let (path, what, detail) = match error {
                    CertificateAndKeyError::Certificate(detail) => {
                        (&self.tls_cert, "certificate chain", detail)
                    }
                    CertificateAndKeyError::Key(detail) => (&self.tls_key, "private key", detail),
                };
                CertError::Content { path: path.clone(), what, detail }
            })?;
        if pair.expires < jiff::Timestamp::now().as_second() {
            tracing::warn!(path = %self.tls_cert.display(), "the certificate has expired: every client will refuse it");
        }
        Ok(pair)
    }
}

/// Checks the files at an interval, forever, and uses changed files. If a changed file is invalid,
/// this counts and logs the error once, and keeps the last valid certificates.
pub async fn watch(
    files: CertificateFiles,
    loaded: Contents,
    serving: Arc<Serving>,
    metrics: Metrics,
    interval: Duration,
) {
    let mut seen = Ok(loaded);
    loop {
        tokio::time::sleep(interval).await;
        let contents = files.read();
        if contents == seen {
            continue;
        }
        // A user may replace the files one after another. Wait until they no longer change.
        if !is_stable(&files, &contents, interval).await {
            continue;
        }
        let result = match &contents {
            Ok(contents) => files.use_contents(contents, &serving, &metrics),
            Err(error) => Err(error.clone().into()),
        };
        match result {
            Ok(()) => tracing::info!(path = files.first(), "certificate replaced"),
            Err(error) => {
                metrics.count_certificate_failure();
                tracing::error!(%error, "changed certificate files cannot be used; the last good ones stay in use");
            }
        }
        seen = contents;
    }
}

/// Whether the files do not change for a moment.
async fn is_stable(
    files: &CertificateFiles,
    contents: &Result<Contents, UnreadFile>,
    interval: Duration,
) -> bool {
    tokio::time::sleep(interval.min(Duration::from_millis(500))).await;
    files.read() == *contents
}

/// A file that can't be read. Errors are comparable, so that belay logs a lasting error once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {path}: {detail}; check the path given by {option} and its permissions")]
pub struct UnreadFile {
    path: PathBuf,
    /// The option that names it.
    option: &'static str,
    /// The error of the operating system.
    detail: String,
}

fn read(path: &Path, option: &'static str) -> Result<Vec<u8>, UnreadFile> {
    fs::read(path).map_err(|error| {
        let detail = error.to_string();
        UnreadFile { path: path.to_owned(), option, detail }
    })
}
