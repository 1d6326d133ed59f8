//! Certificates: creates them, reads them from files or a Secret, and replaces them at runtime
//! when the files or the Secret change. `cluster::certificates::rotation` rotates the
//! certificates in a Secret.

mod certificate_and_key;
mod files;
mod make;
mod serving;
mod verifier;

pub use certificate_and_key::{
    CertificateAndKey, CertificateAndKeyError, certificates, expiry, pem, provider,
};
pub use files::{CertificateFiles, Contents, PairFiles, UnreadFile, watch};
pub use make::{CertificatePaths, MAX_DAYS, NewCertificate, make, make_files};
pub use serving::{Serving, server_config};

use std::path::PathBuf;

/// The errors of certificates. Each message has the problem, its location and the next step.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file could not be read.
    #[error(transparent)]
    Unread(#[from] UnreadFile),
    /// A file could not be written.
    #[error(
        "cannot {action} {path}: {source}; check the path given by {option} and its permissions"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The option that sets the path.
        option: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file has the wrong content.
    #[error("{path} contains no usable {what}: {detail}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
        /// The problem.
        detail: String,
    },
    /// The cryptography in this build does not support TLS 1.2 or 1.3.
    #[error("belay's cryptography has no TLS 1.2 or 1.3: {0}; build belay with its own features")]
    Versions(rustls::Error),
    /// A name is no DNS name and no IP address.
    #[error(
        "\"{0}\" is not a DNS name or an IP address; use names such as belay.belay.svc or 127.0.0.1"
    )]
    Name(String),
    /// The lifetime is zero, or too long to be practical.
    #[error("belay can't create a certificate for {0} days; choose between 1 and {max}", max = make::MAX_DAYS)]
    Days(u32),
    /// belay could not create a certificate.
    #[error("can't create a certificate for {names}: {source}")]
    Make {
        /// The names in the certificate.
        names: String,
        /// The error.
        source: rcgen::Error,
    },
    /// Clients would not accept the new certificate.
    #[error(
        "belay cannot create a certificate that clients accept for each of {0}; choose names such as \
         belay.belay.svc"
    )]
    Unaccepted(String),
    /// The TLS settings are inconsistent.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}
