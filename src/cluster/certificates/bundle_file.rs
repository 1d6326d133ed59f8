//! For certificates from another source, belay reads only the CA certificates, for the
//! webhook configurations.

use std::path::Path;

use tokio::time::sleep;

use super::{content, publish};
use crate::cluster::context::Context;

/// Publishes the CA certificates of a file, and again after each change. A read error is
/// logged once, and the last content stays in use.
pub async fn publish_bundle_file(context: &Context, path: &Path) {
    let mut good = true;
    loop {
        match read(path) {
            Ok(bundle) => {
                publish(context, bundle);
                good = true;
            }
            Err(error) if good => {
                tracing::error!(
                    path = %path.display(),
                    %error,
                    "the CAs for the webhook configurations cannot be read; the last ones \
                     stay in use; put PEM certificates there, or omit the option if another \
                     controller fills in caBundle"
                );
                good = false;
            }
            Err(_) => {}
        }
        sleep(context.settings.timing.certificates.poll).await;
    }
}

/// Why no CA certificates could be read from a file.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error(transparent)]
    Unread(#[from] std::io::Error),
    #[error("there is no PEM certificate in it")]
    NoCertificate,
}

fn read(path: &Path) -> Result<String, BundleError> {
    let bytes = std::fs::read(path)?;
    let cas = content::parse_ca_certificates(&bytes);
    if cas.is_empty() {
        return Err(BundleError::NoCertificate);
    }
    Ok(content::bundle(&cas))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs;

    #[test]
    fn reads_cas_from_a_file_and_rejects_other_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        assert!(read(&path).unwrap_err().to_string().contains("No such file"));
        for nonsense in ["", "-----BEGIN CERTIFICATE-----\nbm8=\n"] {
            std::fs::write(&path, nonsense).unwrap();
            assert!(matches!(read(&path), Err(BundleError::NoCertificate)));
        }
        let made = certs::make(&["belay.belay.svc".to_owned()], 1).unwrap();
        std::fs::write(&path, format!("# for belay\n{}", made.ca_cert)).unwrap();
        let trusted = content::parse_ca_certificates(made.ca_cert.as_bytes());
        assert_eq!(content::parse_ca_certificates(read(&path).unwrap().as_bytes()), trusted);
    }
}
