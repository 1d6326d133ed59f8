//! The certificates of the control plane and of its users.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::Result;

/// One certificate authority that everything trusts.
pub struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Pki {
    pub fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "test CA");
        std::fs::write(folder.join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// A serving certificate.
    pub fn server(&self, name: &str, names: &[&str], addresses: &[IpAddr]) -> Result<Pair> {
        let all = names.iter().map(ToString::to_string);
        let all = all.chain(addresses.iter().map(ToString::to_string));
        let mut params = CertificateParams::new(all.collect::<Vec<_>>())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, name);
        self.issue(name, params)
    }

    /// A client certificate: the name is the user, the organisation its group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        self.issue(&file_name(user), params)
    }

    /// The key that signs service account tokens.
    pub fn token_key(&self) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let pair = self.pair("service-accounts");
        std::fs::write(&pair.key, key.serialize_pem())?;
        std::fs::write(&pair.cert, key.public_key_pem())?;
        Ok(pair)
    }

    fn issue(&self, name: &str, params: CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let pair = self.pair(name);
        std::fs::write(&pair.cert, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }

    fn pair(&self, name: &str) -> Pair {
        Pair {
            cert: self.folder.join(format!("{name}.crt")),
            key: self.folder.join(format!("{name}.key")),
        }
    }
}

/// The file name for a user, whose name may contain any character.
pub fn file_name(user: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    user.chars().map(|c| if plain(c) { c } else { '-' }).collect()
}
