//! The secret in the path, which only the API server knows.
//!
//! The API server prints the URL when a webhook does not answer. So the secret is a barrier, but
//! it does not authenticate a caller.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::certs::provider;

/// The secret first segment of the path of a webhook: 32 random bytes in lowercase hexadecimal
/// digits, because the API server accepts only DNS names as segments.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretPath(Arc<str>);

/// The system has no random numbers for a new secret path.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomNumbers;

/// The number of digits of a secret path.
pub const SECRET_PATH_DIGITS: usize = 64;

impl SecretPath {
    /// A new secret path.
    pub fn generate() -> Result<Self, NoRandomNumbers> {
        Ok(Self(random_hex()?.into()))
    }

    /// Parses the digits of a secret path.
    pub fn parse(text: &str) -> Option<Self> {
        is_secret_path(text).then(|| Self(text.into()))
    }

    /// Its digits. Only write them to the Secret and the webhook configurations.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Random hexadecimal digits, as many as a secret path has.
pub fn random_hex() -> Result<String, NoRandomNumbers> {
    let mut bytes = [0; SECRET_PATH_DIGITS / 2];
    provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomNumbers)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Omits the digits, so that no log contains them.
impl fmt::Debug for SecretPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretPath")
    }
}

fn is_secret_path(text: &str) -> bool {
    text.len() == SECRET_PATH_DIGITS
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The secret paths that the server accepts. They can change while it serves. Without one it
/// accepts no review.
#[derive(Debug, Default)]
pub struct AcceptedPaths(ArcSwap<Vec<SecretPath>>);

impl AcceptedPaths {
    /// Replaces the accepted secret paths.
    pub fn replace(&self, paths: Vec<SecretPath>) {
        self.0.store(Arc::new(paths));
    }

    /// Whether a segment of a path is an accepted secret path. This compares every byte of every
    /// secret path, so that the time reveals none of them.
    pub fn accepts(&self, segment: &str) -> bool {
        let paths = self.0.load();
        paths.iter().fold(false, |found, path| found | are_equal(path.expose(), segment))
    }
}

fn are_equal(path: &str, segment: &str) -> bool {
    // The length is no secret.
    let pairs = path.bytes().zip(segment.bytes());
    let difference = pairs.fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    path.len() == segment.len() && black_box(difference) == 0
}

/// Removes secret paths from a message of the API server, which quotes the URL of a webhook that
/// does not answer.
pub fn redact_secret_paths(text: &str) -> String {
    let mut segments = text.split('/');
    let first = segments.next().unwrap_or_default().to_owned();
    segments.fold(first, |mut redacted, segment| {
        redacted.push('/');
        // Keep the text after the digits, such as a quotation mark.
        match segment.split_at_checked(SECRET_PATH_DIGITS) {
            Some((digits, rest)) if is_secret_path(digits) => {
                redacted.push_str("REDACTED");
                redacted.push_str(rest);
            }
            _ => redacted.push_str(segment),
        }
        redacted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_path_is_new_and_reads_back() {
        let (one, two) = (SecretPath::generate().unwrap(), SecretPath::generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(SecretPath::parse(one.expose()), Some(one.clone()));
        assert_eq!(format!("{one:?}"), "SecretPath");
        for other in ["", "abc", &one.expose().to_uppercase(), &format!("{}0", one.expose())] {
            // A secret path without letters equals its upper case.
            assert!(SecretPath::parse(other).is_none() || other == one.expose());
        }
    }

    #[test]
    fn accepts_the_secret_paths_it_was_given_and_nothing_else() {
        let (old, new) = (SecretPath::generate().unwrap(), SecretPath::generate().unwrap());
        let accepted = AcceptedPaths::default();
        assert!(!accepted.accepts("") && !accepted.accepts(old.expose()));
        accepted.replace(vec![old.clone(), new.clone()]);
        assert!(accepted.accepts(old.expose()) && accepted.accepts(new.expose()));
        let prefix = &new.expose()[..63];
        for wrong in ["", "validate", prefix, &format!("{}0", new.expose()), &"0".repeat(64)] {
            assert!(!accepted.accepts(wrong), "{wrong}");
        }
        accepted.replace(vec![new.clone()]);
        assert!(!accepted.accepts(old.expose()) && accepted.accepts(new.expose()));
    }

    #[test]
    fn a_message_of_the_api_server_keeps_everything_but_the_secret_path() {
        let path = SecretPath::generate().unwrap();
        let message = |secret: &str| {
            format!(
                "failed calling webhook \"delete.belay.dev\": Post \
                 \"https://belay.belay.svc:443/{secret}/validate?timeout=5s\": deadline exceeded"
            )
        };
        assert_eq!(redact_secret_paths(&message(path.expose())), message("REDACTED"));
        let end = format!("invalid value: \"/{}\"", path.expose());
        assert_eq!(redact_secret_paths(&end), "invalid value: \"/REDACTED\"");
        for plain in ["", "/", "no path", "a/b//c/ä"] {
            assert_eq!(redact_secret_paths(plain), plain);
        }
    }
}
