//! The content of the Secret, and the change of each step.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::rotation::{CaCertificate, CertificateInfo, Content, Next};
use crate::certs::{self, CertError, NewCertificate};
use crate::cluster::secret::{self, MADE_BY, REQUESTED, has_annotation, is_own};

const CURRENT: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
const NEXT: [&str; 3] = ["next-tls.crt", "next-tls.key", "next-ca.crt"];
const OLD: &str = "old-ca.crt";

/// Reads the content of a Secret for these server names. `None`: the Secret does not
/// exist.
pub fn read(secret: Option<&Secret>, names: &[String]) -> Content {
    let Some(secret) = secret else { return Content::default() };
    let [certificate, key, ca] = CURRENT.map(|key| bytes(secret, key));
    let cas = parse_ca_certificates(ca);
    let old = self::parse_ca_certificates(bytes(secret, OLD));
    // The chart may have created an empty Secret for belay.
    let empty = certificate.is_empty() && key.is_empty() && ca.is_empty();
    Content {
        foreign: !empty && !is_own(&secret.metadata),
        requested: has_annotation(&secret.metadata, REQUESTED),
        current: certificate_info(certificate, key, &cas, names),
        // A CA that still signs the current certificate is not old.
        old: old.difference(&cas).cloned().collect(),
        cas,
        next: next(secret, names),
    }
}

fn next(secret: &Secret, names: &[String]) -> Next {
    let [certificate, key, ca] = NEXT.map(|key| bytes(secret, key));
    if certificate.is_empty() && key.is_empty() && ca.is_empty() {
        return Next::Nothing;
    }
    let cas = parse_ca_certificates(ca);
    match certificate_info(certificate, key, &cas, names) {
        Some(info) => Next::Usable(info, cas),
        None => Next::Unusable,
    }
}

/// The certificate chain and the key to serve, PEM.
pub fn served(secret: &Secret) -> [&[u8]; 2] {
    [bytes(secret, CURRENT[0]), bytes(secret, CURRENT[1])]
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    let data = secret.data.as_ref().and_then(|data| data.get(key));
    data.map(|bytes| bytes.0.as_slice()).unwrap_or_default()
}

/// Parses the certificates in a PEM text and skips invalid ones.
pub fn parse_ca_certificates(pem: &[u8]) -> BTreeSet<CaCertificate> {
    let all = certs::certificates(pem).unwrap_or_default();
    all.iter().map(|certificate| certificate.as_ref().to_vec()).collect()
}

/// The order is fixed, so that the same CA certificates always give the same text and the
/// webhook configurations are not written again.
pub fn bundle(cas: &BTreeSet<CaCertificate>) -> String {
    cas.iter().map(|ca| certs::pem(ca)).collect()
}

/// Reads a certificate and key. `None` if clients that trust these CA certificates accept the
/// certificate for none of the names.
fn certificate_info(
    certificate: &[u8],
    key: &[u8],
    cas: &BTreeSet<CaCertificate>,
    names: &[String],
) -> Option<CertificateInfo> {
    let read = certs::CertificateAndKey::read(certificate, key).ok()?;
    let cas: Vec<_> = cas.iter().map(|ca| ca.as_slice().into()).collect();
    let expiries = cas.iter().map(certs::expiry).collect::<Option<Vec<_>>>()?;
    // The validity period is checked elsewhere.
    let is_accepted = |name: &&String| read.is_trusted_by(&cas, name, read.begins);
    let count = names.iter().filter(is_accepted).count();
    (count > 0).then(|| CertificateInfo {
        expires: expiries.into_iter().fold(read.expires, i64::min),
        begins: read.begins,
        every_name: count == names.len(),
        serial: read.serial,
    })
}

/// Creates a certificate and key for these names. Returns an error if clients would reject the
/// certificate, because belay would create a new one again and again.
pub fn generate(names: &[String], days: u32) -> Result<NewCertificate, CertError> {
    let fresh = certs::make(names, days)?;
    let NewCertificate { ca_cert, tls_cert, tls_key } = &fresh;
    let cas = parse_ca_certificates(ca_cert.as_bytes());
    match certificate_info(tls_cert.as_bytes(), tls_key.as_bytes(), &cas, names) {
        Some(info) if info.every_name => Ok(fresh),
        _ => Err(CertError::Unaccepted(names.join(", "))),
    }
}

/// The Secret with a new certificate and key to serve at once. The old CAs stay trusted until no
/// replica serves a certificate that they signed.
pub fn make(
    secret: Option<Secret>,
    (namespace, name): (&str, &str),
    fresh: NewCertificate,
    trusted: &BTreeSet<CaCertificate>,
) -> Secret {
    let mut secret = secret.unwrap_or_else(|| Secret {
        type_: Some("kubernetes.io/tls".to_owned()),
        ..secret::new(namespace, name)
    });
    let data = secret.data.get_or_insert_default();
    set_key_pair(data, CURRENT, fresh);
    NEXT.iter().for_each(|key| drop(data.remove(*key)));
    set_old_cas(data, trusted);
    with_request_answered(secret, name)
}

/// The Secret with the next certificate and key, which are not served yet.
pub fn stage(mut secret: Secret, name: &str, fresh: NewCertificate) -> Secret {
    set_key_pair(secret.data.get_or_insert_default(), NEXT, fresh);
    with_request_answered(secret, name)
}

/// The Secret with the next certificate and key to serve now. The old CAs stay trusted.
pub fn promote(mut secret: Secret, name: &str) -> Secret {
    let before = parse_ca_certificates(bytes(&secret, CURRENT[2]));
    let before: BTreeSet<_> =
        before.into_iter().chain(parse_ca_certificates(bytes(&secret, OLD))).collect();
    let data = secret.data.get_or_insert_default();
    for (current, next) in CURRENT.into_iter().zip(NEXT) {
        if let Some(bytes) = data.remove(next) {
            data.insert(current.to_owned(), bytes);
        }
    }
    set_old_cas(data, &before);
    with_maker(secret, name)
}

/// The Secret without the old CAs.
pub fn drop_old(mut secret: Secret) -> Secret {
    secret.data.get_or_insert_default().remove(OLD);
    secret
}

fn set_key_pair(
    data: &mut BTreeMap<String, ByteString>,
    [certificate, key, ca]: [&str; 3],
    fresh: NewCertificate,
) {
    let NewCertificate { ca_cert, tls_cert, tls_key } = fresh;
    for (key, text) in [(certificate, tls_cert), (key, tls_key), (ca, ca_cert)] {
        data.insert(key.to_owned(), ByteString(text.into_bytes()));
    }
}

fn set_old_cas(data: &mut BTreeMap<String, ByteString>, cas: &BTreeSet<CaCertificate>) {
    if cas.is_empty() {
        data.remove(OLD);
    } else {
        data.insert(OLD.to_owned(), ByteString(bundle(cas).into_bytes()));
    }
}

/// Removes the annotation that requests a rotation.
fn with_request_answered(mut secret: Secret, name: &str) -> Secret {
    secret.metadata.annotations.get_or_insert_default().remove(REQUESTED);
    with_maker(secret, name)
}

fn with_maker(mut secret: Secret, name: &str) -> Secret {
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(MADE_BY.to_owned(), name.to_owned());
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::certificates::rotation::{Observations, Step, Waiting, step, to_trust};

    const PLACE: (&str, &str) = ("belay", "belay-tls");

    fn names() -> Vec<String> {
        vec!["belay.belay.svc".to_owned(), "belay.belay".to_owned()]
    }

    fn generate() -> NewCertificate {
        super::generate(&names(), 90).unwrap()
    }

    fn made() -> Secret {
        make(None, PLACE, generate(), &BTreeSet::new())
    }

    fn content(secret: &Secret) -> Content {
        read(Some(secret), &names())
    }

    fn now() -> i64 {
        jiff::Timestamp::now().as_second()
    }

    #[test]
    fn a_rotation_leaves_one_certificate_and_one_ca() {
        let mut secret = made();
        let first = content(&secret);
        let serial = |content: &Content| content.current.as_ref().unwrap().serial.clone();
        assert!(!first.foreign && first.current.as_ref().unwrap().every_name);
        assert_eq!((first.cas.len(), first.old.len()), (1, 0));
        let due = first.current.as_ref().unwrap().due();
        assert_eq!(step(&first, &Observations::default(), now()), Step::Wait(Waiting::Due(due)));

        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(REQUESTED.to_owned(), String::new());
        assert_eq!(step(&content(&secret), &Observations::default(), now()), Step::Stage);
        let secret = stage(secret, PLACE.1, generate());
        let staged = content(&secret);
        assert_eq!(serial(&staged), serial(&first));
        assert_eq!((staged.requested, to_trust(&staged).len()), (false, 2));

        let secret = promote(secret, PLACE.1);
        let promoted = content(&secret);
        assert_ne!(serial(&promoted), serial(&first));
        assert_eq!(promoted.next, Next::Nothing);
        assert_eq!(promoted.old, first.cas);
        assert_eq!(bundle(&to_trust(&promoted)), bundle(&to_trust(&staged)));

        let dropped = content(&drop_old(secret));
        assert_eq!(to_trust(&dropped), promoted.cas);
        assert!(to_trust(&dropped).is_disjoint(&first.cas));
    }

    /// A CA can sign a name that ends with a dot, but no client asks for such a name.
    #[test]
    fn generates_no_certificate_for_names_that_no_client_accepts() {
        for names in [vec![], vec!["belay.belay.svc.".to_owned()], vec!["no name".to_owned()]] {
            assert!(super::generate(&names, 90).is_err(), "{names:?}");
        }
    }

    #[test]
    fn a_bundle_is_pem_that_reads_back() {
        let all = to_trust(&content(&stage(made(), PLACE.1, generate())));
        let text = bundle(&all);
        assert_eq!(parse_ca_certificates(text.as_bytes()), all);
        assert!(text.lines().all(|line| line.len() <= 64), "{text}");
    }

    #[test]
    fn fills_an_empty_secret_of_a_chart_but_not_a_foreign_secret() {
        let empty = Secret { type_: Some("Opaque".to_owned()), ..Secret::default() };
        assert_eq!(step(&content(&empty), &Observations::default(), now()), Step::Make);
        let filled = make(Some(empty), PLACE, generate(), &BTreeSet::new());
        assert_eq!(filled.type_.as_deref(), Some("Opaque"));
        assert!(content(&filled).current.is_some());

        let mut foreign = filled;
        foreign.metadata.annotations = None;
        let wait = Step::Wait(Waiting::Permission);
        assert_eq!(step(&content(&foreign), &Observations::default(), now()), wait);
        assert!(content(&foreign).current.is_some(), "belay serves the foreign certificate");
        let request = [(REQUESTED.to_owned(), "yes".to_owned())];
        foreign.metadata.annotations = Some(request.into());
        assert_eq!(step(&content(&foreign), &Observations::default(), now()), Step::Stage);
    }

    /// A key of another certificate, a CA that did not sign, no data, other names.
    #[test]
    fn a_certificate_that_no_client_accepts_is_not_used() {
        let good = made();
        let with = |key: &str, text: &str| {
            let mut secret = good.clone();
            let data = secret.data.as_mut().unwrap();
            data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
            content(&secret)
        };
        let other = generate();
        for (key, text) in
            [("tls.key", &other.tls_key), ("ca.crt", &other.ca_cert), ("tls.crt", &String::new())]
        {
            let broken = with(key, text);
            assert_eq!(broken.current, None, "{key}");
            assert_eq!(step(&broken, &Observations::default(), now()), Step::Make, "{key}");
        }
        let elsewhere = read(Some(&good), &["belay.other.svc".to_owned()]);
        assert_eq!(step(&elsewhere, &Observations::default(), now()), Step::Make);
        let wider = ["belay.belay.svc".to_owned(), "belay.other.svc".to_owned()];
        let partly = read(Some(&good), &wider);
        assert_eq!(step(&partly, &Observations::default(), now()), Step::Stage);
        assert_eq!(with("next-tls.crt", "nonsense").next, Next::Unusable);
    }

    #[test]
    fn a_new_certificate_keeps_the_cas_that_replicas_may_still_use() {
        let (lost, none) = (content(&made()), BTreeSet::new());
        let again = content(&make(None, PLACE, generate(), &to_trust(&lost)));
        assert_eq!(again.old, lost.cas);
        assert_eq!(content(&make(None, PLACE, generate(), &none)).old, none);
    }
}
