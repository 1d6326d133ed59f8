//! The secret in the path, which only the API server knows.
//!
//! The API server prints the URL when a webhook does not answer. So the secret is a barrier, but
//! it does not authenticate a caller.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::certs::provider;

/// The secret segment of the path: 32 random bytes in lowercase hexadecimal
/// digits, because the API server accepts only DNS names as segments.
#[derive(Clone, PartialEq, Eq)]
pub struct PathToken(Arc<str>);

/// The system has no random numbers for a new token.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system has no random numbers")]
pub struct NoRandomNumbers;

/// The number of digits of a token.
pub const TOKEN_DIGITS: usize = 64;

impl PathToken {
    /// A new token.
    pub fn generate() -> Result<Self, NoRandomNumbers> {
        Ok(Self(random_hex()?.into()))
    }

    /// Parses the digits of a token.
    pub fn parse(text: &str) -> Option<Self> {
        is_token(text).then(|| Self(text.into()))
    }

    /// Its digits. Only write them to the Secret and the webhook configurations.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Random hexadecimal digits, as many as a token has.
pub fn random_hex() -> Result<String, NoRandomNumbers> {
    let mut bytes = [0; TOKEN_DIGITS / 2];
    provider().secure_random.fill(&mut bytes).map_err(|_| NoRandomNumbers)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Omits the digits, so that no log contains them.
impl fmt::Debug for PathToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PathToken")
    }
}

fn is_token(text: &str) -> bool {
    text.len() == TOKEN_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The tokens that the server accepts. They can change while it serves. Without a token it
/// accepts no review.
#[derive(Debug, Default)]
pub struct AcceptedTokens(ArcSwap<Vec<PathToken>>);

impl AcceptedTokens {
    /// Replaces the accepted tokens.
    pub fn replace(&self, tokens: Vec<PathToken>) {
        self.0.store(Arc::new(tokens));
    }

    /// Whether a segment of a path is an accepted token. This compares every byte of every
    /// token, so that the time does not reveal a token.
    pub fn accepts(&self, segment: &str) -> bool {
        let tokens = self.0.load();
        tokens.iter().fold(false, |found, token| found | are_equal(token.expose(), segment))
    }
}

fn are_equal(token: &str, segment: &str) -> bool {
    // The length is no secret.
    let pairs = token.bytes().zip(segment.bytes());
    let difference = pairs.fold(0, |seen, (a, b)| black_box(seen | (a ^ b)));
    token.len() == segment.len() && black_box(difference) == 0
}

/// Removes tokens from a message of the API server, which quotes the URL of a webhook that does
/// not answer.
pub fn redact_tokens(text: &str) -> String {
    let mut segments = text.split('/');
    let first = segments.next().unwrap_or_default().to_owned();
    segments.fold(first, |mut redacted, segment| {
        redacted.push('/');
        // Keep the text after the digits, such as a quotation mark.
        match segment.split_at_checked(TOKEN_DIGITS) {
            Some((digits, rest)) if is_token(digits) => {
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
    fn each_token_is_new_and_reads_back() {
        let (one, two) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(PathToken::parse(one.expose()), Some(one.clone()));
        assert_eq!(format!("{one:?}"), "PathToken");
        for no_token in ["", "abc", &one.expose().to_uppercase(), &format!("{}0", one.expose())] {
            // Digits alone have no upper case.
            assert!(PathToken::parse(no_token).is_none() || no_token == one.expose());
        }
    }

    #[test]
    fn accepts_the_tokens_it_was_given_and_nothing_else() {
        let (old, new) = (PathToken::generate().unwrap(), PathToken::generate().unwrap());
        let accepted = AcceptedTokens::default();
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
    fn a_message_of_the_api_server_keeps_everything_but_the_token() {
        let token = PathToken::generate().unwrap();
        let said = |secret: &str| {
            format!(
                "failed calling webhook \"delete.belay.dev\": Post \
                 \"https://belay.belay.svc:443/{secret}/validate?timeout=5s\": deadline exceeded"
            )
        };
        assert_eq!(redact_tokens(&said(token.expose())), said("REDACTED"));
        let end = format!("invalid value: \"/{}\"", token.expose());
        assert_eq!(redact_tokens(&end), "invalid value: \"/REDACTED\"");
        for plain in ["", "/", "no path", "a/b//c/ä"] {
            assert_eq!(redact_tokens(plain), plain);
        }
    }
}
