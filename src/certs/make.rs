//! Creates a CA and a server certificate that it signs.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use rustls::pki_types::ServerName;

use super::CertError;

/// The longest lifetime of a new certificate: ten years.
pub const MAX_DAYS: u32 = 3650;

/// The time before its creation from which a certificate is valid, because clocks differ. The
/// certificate may be valid up to a day earlier, because `set_validity` drops the time of day.
const BACKDATE: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);

/// The files of a certificate, its key and its CA.
#[derive(Debug, Clone)]
pub struct CertificatePaths {
    /// The CA certificate, which clients trust (`caBundle`).
    pub ca_cert: PathBuf,
    /// The server's certificate.
    pub tls_cert: PathBuf,
    /// The server's private key.
    pub tls_key: PathBuf,
}

impl CertificatePaths {
    /// The paths in a folder. The file names are the keys of a Kubernetes TLS Secret, so that
    /// `folder` can be a mounted Secret.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            ca_cert: folder.join("ca.crt"),
            tls_cert: folder.join("tls.crt"),
            tls_key: folder.join("tls.key"),
        }
    }

    /// The files that exist.
    pub fn existing(&self) -> Vec<&Path> {
        let Self { ca_cert, tls_cert, tls_key } = self;
        [ca_cert, tls_cert, tls_key]
            .into_iter()
            .map(PathBuf::as_path)
            .filter(|p| p.exists())
            .collect()
    }
}

/// A new certificate, its key and its CA as PEM texts.
pub struct NewCertificate {
    /// The CA certificate.
    pub ca_cert: String,
    /// The server's certificate.
    pub tls_cert: String,
    /// The server's private key.
    pub tls_key: String,
}

/// Creates a CA and a server certificate for `names` (DNS names and IP addresses), valid
/// for `days`. The private key of the CA is dropped, so it can't sign anything else, and
/// the next certificate gets a new CA.
pub fn make(names: &[String], days: u32) -> Result<NewCertificate, CertError> {
    // rcgen accepts any text as a DNS name, but clients do not.
    if let Some(name) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
        return Err(CertError::Name(name.clone()));
    }
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(CertError::Days(days));
    }
    let make_error = |source| CertError::Make { names: names.join(", "), source };
    let (ca, ca_key) = ca_params(days).map_err(make_error)?;
    let ca_cert = ca.self_signed(&ca_key).map_err(make_error)?;
    let issuer = Issuer::new(ca, ca_key);

    let key = KeyPair::generate().map_err(make_error)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(make_error)?;
    params.distinguished_name.push(DnType::CommonName, "belay");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, days);
    let cert = params.signed_by(&key, &issuer).map_err(make_error)?;
    Ok(NewCertificate {
        ca_cert: ca_cert.pem(),
        tls_cert: cert.pem(),
        tls_key: key.serialize_pem(),
    })
}

/// Creates a certificate like [`make`], in `folder`.
pub fn make_files(
    folder: &Path,
    names: &[String],
    days: u32,
) -> Result<CertificatePaths, CertError> {
    let NewCertificate { ca_cert, tls_cert, tls_key } = make(names, days)?;
    fs::create_dir_all(folder).map_err(|source| file_error(folder, source))?;
    let paths = CertificatePaths::in_folder(folder);
    write(&paths.tls_key, &tls_key, 0o600)?;
    write(&paths.tls_cert, &tls_cert, 0o644)?;
    write(&paths.ca_cert, &ca_cert, 0o644)?;
    Ok(paths)
}

fn ca_params(days: u32) -> Result<(CertificateParams, KeyPair), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "belay CA");
    set_validity(&mut params, days);
    Ok((params, KeyPair::generate()?))
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = jiff::Timestamp::now();
    let at = |offset: jiff::SignedDuration| {
        let date = (now + offset).to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(
            i32::from(date.year()),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    params.not_before = at(-BACKDATE);
    // A date has no time of day, so the certificate is valid for the whole last day.
    params.not_after = at(jiff::SignedDuration::from_hours(24 * (i64::from(days) + 1)));
}

/// Writes a temporary file and renames it, so that no reader sees a partial key, not even after a
/// crash.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertError> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!(".{}.new", std::process::id()));
    let staged = PathBuf::from(staged);
    let attempt = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&staged)?;
        // The mode above only applies to a new file.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&staged, path)
    };
    attempt().map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: std::io::Error) -> CertError {
    CertError::File { path: path.to_owned(), action: "write", option: "--cert-dir", source }
}
