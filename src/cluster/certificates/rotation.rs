//! Computes the next step of a rotation from the Secret and from the observed
//! configurations and replicas. Pure: after a crash between two steps, the same Secret
//! gives the same step.
//!
//! ```text
//!            served   trusted        goes on when
//!   steady   one      one            a third of its life is left, or asked for
//!   Stage    one      one, two       both configurations have carried both
//!   Promote  two      one, two       every live replica reports to serve two
//!   Drop     two      two
//! ```
//!
//! The API servers always trust the certificates that replicas serve, even if a replica sees a step
//! late.

use std::collections::BTreeSet;
use std::time::Duration;

/// A CA certificate, DER.
pub type CaCertificate = Vec<u8>;

/// The content of the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// belay did not create this Secret and leaves it alone.
    pub foreign: bool,
    /// A user requests a new certificate and key, or allows belay to take over the
    /// Secret.
    pub requested: bool,
    /// The certificate to serve; `None` if clients would accept none.
    pub current: Option<Pair>,
    /// The CA that signed the certificate, and the CA in the Secret if the certificate is
    /// unusable.
    pub authorities: BTreeSet<CaCertificate>,
    /// What is to be served next.
    pub next: Next,
    /// The CAs of replaced certificates that a replica may still serve.
    pub old: BTreeSet<CaCertificate>,
}

/// What is to be served next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing.
    #[default]
    Nothing,
    /// Something that no client would accept.
    Unusable,
    /// A pair, and what signed it.
    Usable(Pair, BTreeSet<CaCertificate>),
}

/// A pair that a client accepts for at least one of the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The serial number of its leaf, by which replicas report it.
    pub serial: String,
    /// When it begins to be valid, in seconds since 1970.
    pub begins: i64,
    /// When the first of its certificates expires.
    pub expires: i64,
    /// Whether it is for every name that it should be for.
    pub every_name: bool,
}

impl Pair {
    /// When a third of its life is left.
    pub fn due(&self) -> i64 {
        self.expires.saturating_sub(self.expires.saturating_sub(self.begins) / 3)
    }

    fn is_fresh(&self, now: i64) -> bool {
        self.every_name && now < self.due()
    }
}

/// What has been seen beside the Secret.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// The CA certificates in all webhooks of both configurations.
    pub trusted: BTreeSet<CaCertificate>,
    /// For how long they have been there, as this process has seen it.
    pub trusted_for: Duration,
    /// How long that has to be.
    pub margin: Duration,
    /// The serial number of what each live replica serves; none: not asked.
    pub served: Option<Vec<String>>,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a pair, to be served at once: there is none that can be.
    Make,
    /// Make a pair to be served next.
    Stage,
    /// Serve it; what signed the one before stays trusted.
    Promote,
    /// Remove the old CA: no replica serves its certificate any more.
    Drop,
    /// Nothing yet.
    Wait(Waiting),
}

/// For what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// A third of the pair's life is left at this time.
    Due(i64),
    /// The configurations do not contain both CA certificates yet.
    Configurations,
    /// They do, but the API server may not have reloaded them. Wait for this long.
    Margin(Duration),
    /// Not every live replica reports to serve the new pair.
    Replicas,
    /// Another source created the Secret. Wait until a user allows belay to replace it.
    RequiredApprovals,
}

/// What to do next.
pub fn step(content: &Content, seen: &Observations, now: i64) -> Step {
    if content.foreign && !content.requested {
        return Step::Wait(Waiting::RequiredApprovals);
    }
    let current = content.current.as_ref().filter(|pair| now < pair.expires);
    let Some(current) = current else {
        // Whatever is served is refused already: there is nothing to be
        // careful with.
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
        Next::Usable(next, authorities) if next.is_fresh(now) => {
            if !content.authorities.union(authorities).all(|one| seen.trusted.contains(one)) {
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
    let mut all = content.authorities.clone();
    all.extend(content.old.iter().cloned());
    if let Next::Usable(_, authorities) = &content.next {
        all.extend(authorities.iter().cloned());
    }
    all
}
