//! Computes the next step of a rotation from the Secret, the observed webhook configurations and
//! the replicas. Pure: after a crash between two steps, the same Secret gives the same step.
//!
//! Certificate 2 replaces certificate 1:
//!
//! ```text
//!   after    served   trusted   next step when
//!   -        1        1         a third of the life of 1 is left, or on request
//!   Stage    1        1, 2      both webhook configurations have had both CAs for the margin
//!   Promote  2        1, 2      every live replica reports that it serves 2
//!   Drop     2        2
//! ```
//!
//! The API servers always trust the certificates that replicas serve, even if a replica sees a step
//! late.

use std::collections::BTreeSet;
use std::time::Duration;

/// A CA certificate in DER.
pub type CaCertificate = Vec<u8>;

/// The content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// belay did not create this Secret and leaves it alone.
    pub foreign: bool,
    /// A user requests a new certificate and key, or allows belay to take over the
    /// Secret.
    pub requested: bool,
    /// The certificate to serve; `None` if clients would not accept it.
    pub current: Option<CertificateInfo>,
    /// The CA certificates of `current`. They are read even if the certificate is unusable.
    pub cas: BTreeSet<CaCertificate>,
    /// The next certificate.
    pub next: Next,
    /// The CAs of replaced certificates that a replica may still serve.
    pub old: BTreeSet<CaCertificate>,
}

/// The certificate that replicas serve after the current one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Next {
    /// The Secret has none.
    #[default]
    Nothing,
    /// No client would accept it.
    Unusable,
    /// The certificate, and the CA that signed it.
    Usable(CertificateInfo, BTreeSet<CaCertificate>),
}

/// A certificate that a client accepts for at least one of belay's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The serial number of the certificate. Replicas report the certificate by it.
    pub serial: String,
    /// The start of its validity, in seconds since 1970.
    pub begins: i64,
    /// The expiry time of the first certificate in its chain that expires.
    pub expires: i64,
    /// Whether it is valid for all of belay's names.
    pub every_name: bool,
}

impl CertificateInfo {
    /// The time at which a third of its life is left.
    pub fn due(&self) -> i64 {
        self.expires.saturating_sub(self.expires.saturating_sub(self.begins) / 3)
    }

    fn is_fresh(&self, now: i64) -> bool {
        self.every_name && now < self.due()
    }
}

/// The observed state of the webhook configurations and replicas.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// The CA certificates in all webhooks of both configurations.
    pub trusted: BTreeSet<CaCertificate>,
    /// How long this process has seen `trusted` unchanged.
    pub trusted_for: Duration,
    /// How long `trusted` must be unchanged before a promotion.
    pub margin: Duration,
    /// The serial number of the certificate that each live replica serves; `None` if the replicas
    /// were not asked.
    pub served: Option<Vec<String>>,
}

/// A step of the rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create a certificate and key and serve them at once, because there are no usable ones.
    Make,
    /// Create the next certificate and key.
    Stage,
    /// Serve the next certificate. The CA of the replaced one stays trusted.
    Promote,
    /// Remove the old CA: no replica serves its certificate any more.
    Drop,
    Wait(Waiting),
}

/// The reason to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The certificate is fresh until this time.
    Due(i64),
    /// The configurations do not contain both CA certificates yet.
    Configurations,
    /// The API server may not have reloaded the configurations yet. This time is left.
    Margin(Duration),
    /// A live replica does not report yet that it serves the new certificate.
    Replicas,
    /// Another program created the Secret, and no user has allowed belay to replace it.
    Permission,
}

/// Computes the next step.
pub fn step(content: &Content, seen: &Observations, now: i64) -> Step {
    if content.foreign && !content.requested {
        return Step::Wait(Waiting::Permission);
    }
    let current = content.current.as_ref().filter(|current| now < current.expires);
    let Some(current) = current else {
        // Clients refuse the served certificate already, so the step can't make it worse.
        return match &content.next {
            Next::Usable(next, _) if next.is_fresh(now) => Step::Promote,
            _ => Step::Make,
        };
    };
    if !content.old.is_empty() {
        let all = |served: &Vec<String>| {
            !served.is_empty() && served.iter().all(|serial| *serial == current.serial)
        };
        let done = seen.served.as_ref().is_some_and(all);
        return if done { Step::Drop } else { Step::Wait(Waiting::Replicas) };
    }
    match &content.next {
        Next::Usable(next, cas) if next.is_fresh(now) => {
            if !content.cas.union(cas).all(|ca| seen.trusted.contains(ca)) {
                return Step::Wait(Waiting::Configurations);
            }
            match seen.margin.checked_sub(seen.trusted_for) {
                None | Some(Duration::ZERO) => Step::Promote,
                Some(left) => Step::Wait(Waiting::Margin(left)),
            }
        }
        Next::Usable(..) | Next::Unusable => Step::Stage,
        Next::Nothing if content.requested || !current.is_fresh(now) => Step::Stage,
        Next::Nothing => Step::Wait(Waiting::Due(current.due())),
    }
}

/// The CA certificates that the API server must trust now.
pub fn to_trust(content: &Content) -> BTreeSet<CaCertificate> {
    let mut all = content.cas.clone();
    all.extend(content.old.iter().cloned());
    if let Next::Usable(_, cas) = &content.next {
        all.extend(cas.iter().cloned());
    }
    all
}
