//! Certificates: made, read from files or from a Secret's bytes, and replaced
//! while running when those change.

mod files;
mod make;
mod pair;
mod serving;
mod verifier;

pub use files::{CertificateFiles, Contents, PairFiles, UnreadFile, watch};
pub use make::{CertificatePaths, MAX_DAYS, NewCertificate, make, make_pair};
pub use pair::{CertificateAndKey, PairError, certificates, expiry, provider};
pub use serving::{Serving, server_config};

use std::path::PathBuf;

/// What can be wrong with a certificate. Each says what, where and what next.
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
        /// What was tried.
        action: &'static str,
        /// The option that names it.
        option: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is there, but does not hold what it should.
    #[error("{path} contains no usable {what}: {detail}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The versions of TLS don't go with the cryptography that this was built with.
    #[error("belay's cryptography has no TLS 1.2 or 1.3: {0}; build belay with its own features")]
    Versions(rustls::Error),
    /// A name that no client would ask for.
    #[error(
        "\"{0}\" is not a DNS name or an IP address; use names such as belay.belay.svc or 127.0.0.1"
    )]
    Name(String),
    /// The lifetime is zero, or too long to be practical.
    #[error("belay can't create a certificate for {0} days; choose between 1 and {max}", max = make::MAX_DAYS)]
    Days(u32),
    /// A certificate could not be made.
    #[error("can't create a certificate for {names}: {source}")]
    Make {
        /// The names it was for.
        names: String,
        /// What is wrong with them.
        source: rcgen::Error,
    },
    /// No client accepts the certificate that was made.
    #[error(
        "no certificate can be made that clients accept for each of {0}; choose names such as \
         belay.belay.svc"
    )]
    Unaccepted(String),
    /// The TLS settings do not fit together.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}
