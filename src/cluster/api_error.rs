//! Converts errors of the client and the API server to [`ApiError`].

use kube::core::Status;

use crate::objects::ApiError;
use crate::webhook::redact_secret_paths;

/// A cause in the details of a Status of the API server.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_namespace_terminating(&status) => {
                Self::NamespaceTerminating(shortened(&status.message))
            }
            kube::Error::Api(status) => Self::of_status(status.code, &status.message),
            // The text of the error may contain parts of the object.
            kube::Error::SerdeError(error) => Self::Unreadable(format!(
                "the API server's answer does not have the expected form, at line {} column {}",
                error.line(),
                error.column()
            )),
            other => Self::Unreachable(shortened(&chain(&other))),
        }
    }
}

fn is_namespace_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == NAMESPACE_TERMINATING)
}

impl ApiError {
    /// Converts the code and message of a Status.
    pub fn of_status(code: u16, message: &str) -> Self {
        let message = shortened(message);
        match code {
            404 => Self::NotFound,
            401 | 403 => Self::Forbidden(message),
            410 => Self::Expired,
            _ => Self::Status { code, message },
        }
    }
}

/// A failed read, with the object that the Status of the API server names.
#[derive(Debug, Clone)]
pub struct ReadFailure {
    pub error: ApiError,
    /// The resource and the name in the Status; empty if it names none.
    pub about: (String, String),
}

impl From<ApiError> for ReadFailure {
    fn from(error: ApiError) -> Self {
        Self { error, about: Default::default() }
    }
}

impl From<ReadFailure> for ApiError {
    fn from(failure: ReadFailure) -> Self {
        failure.error
    }
}

impl From<kube::Error> for ReadFailure {
    fn from(error: kube::Error) -> Self {
        let about = match &error {
            kube::Error::Api(status) => status.details.as_ref(),
            _ => None,
        };
        let about = about.map(|details| (details.kind.clone(), details.name.clone()));
        Self { error: error.into(), about: about.unwrap_or_default() }
    }
}

impl ReadFailure {
    /// Whether the error proves that this object does not exist. The API server also answers 404
    /// for a path that it does not serve, which proves nothing about objects.
    pub fn is_absence(&self, resource: &str, name: &str) -> bool {
        let (kind, named) = &self.about;
        self.error == ApiError::NotFound && kind == resource && named == name
    }
}

/// The text of an error with all its causes, because the outermost text often lacks the reason. It
/// omits the secret path of belay's webhooks, which the API server may quote.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    redact_secret_paths(&text)
}

/// Whether this is the message of a denial by a webhook of belay.
pub fn is_denied_by_belay(message: &str) -> bool {
    names_belay(message, "admission webhook \"", ".belay.dev\" denied the request: ")
}

/// Whether this is the message of a denial by a ValidatingAdmissionPolicy of belay.
fn is_denied_by_policy_of_belay(message: &str) -> bool {
    let at = message.find(POLICY).unwrap_or_default();
    names_belay(&message[at..], POLICY, ".belay.dev' with binding '")
}

/// What the API server writes before the name of a ValidatingAdmissionPolicy.
const POLICY: &str = "ValidatingAdmissionPolicy '";

/// Whether a message begins with `before`, then a name without quotation marks, and `end`.
fn names_belay(message: &str, before: &str, end: &str) -> bool {
    let rest = message.strip_prefix(before).and_then(|rest| rest.split_once(end));
    rest.is_some_and(|(name, _)| !name.contains(['"', '\'']))
}

/// Shortens a message to the words at its beginning and its end, because the API server wraps
/// errors and the cause is at the end. The secret path is removed, as in [`chain`]. A denial by
/// belay stays whole, because it says what to do, and belay limits its length.
pub fn shortened(text: &str) -> String {
    const HEAD: usize = 100;
    const TAIL: usize = 200;
    let text = redact_secret_paths(text);
    if is_denied_by_belay(&text) || is_denied_by_policy_of_belay(&text) {
        return text;
    }
    let from = |count: usize| text.char_indices().nth(count).map(|(at, _)| at);
    let tail = text.char_indices().rev().nth(TAIL - 1).map(|(at, _)| at);
    match (from(HEAD), tail, from(HEAD + TAIL)) {
        (Some(head), Some(tail), Some(_)) => {
            let (head, tail) = (&text[..head], &text[tail..]);
            let head = head.rsplit_once(' ').map_or(head, |(words, _)| words);
            let tail = tail.split_once(' ').map_or(tail, |(_, words)| words);
            format!("{head} … {tail}")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_its_cause() {
        // The message of Kubernetes 1.37 for a list whose conversion webhook does not exist.
        let text = "storage is (re)initializing: failed to list <unspecified>: failed to read one \
             or more things.example.test from the storage: StorageError: corrupt object, Code: 7, \
             Key: /registry/example.test/things/a/one, ResourceVersion: 0, AdditionalErrorMsg: \
             object not decodable revision=343: conversion webhook for example.test/v1, Kind=Thing \
             failed: Post \"https://nobody.default.svc:443/?timeout=30s\": service \"nobody\" not found";
        let words = ApiError::of_status(429, text).to_string();
        let head = "the API server answers 429: storage is (re)initializing: failed to list \
                    <unspecified>: failed to read one or more … ";
        assert!(words.starts_with(head), "{words}");
        assert!(words.contains("conversion webhook for example.test/v1, Kind=Thing failed"));
        assert!(words.contains("service \"nobody\" not found"), "{words}");
        for (length, kept) in [(300, 300), (301, 303), (302, 303), (9000, 303)] {
            assert_eq!(shortened(&"ä".repeat(length)).chars().count(), kept);
        }
    }

    #[test]
    fn a_denial_by_belay_is_whole() {
        let sentence = "configmap \"settings\" is in use by Pod shop/web (spec.a); policy p. ";
        let long = sentence.repeat(9);
        for (begin, is_whole) in [
            ("admission webhook \"delete.belay.dev\" denied the request: ", true),
            (
                "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'labels.belay.dev' with \
                 binding 'labels.belay.dev' denied request: ",
                true,
            ),
            ("admission webhook \"a.example.test\" denied the request: ", false),
            ("admission webhook \"a\" failed: \"x.belay.dev\" denied the request: ", false),
            ("failed calling webhook \"delete.belay.dev\": ", false),
        ] {
            let message = format!("{begin}{long}");
            assert_eq!(shortened(&message) == message, is_whole, "{begin}");
        }
    }

    #[test]
    fn an_answer_of_unexpected_form_is_not_quoted() {
        let error = serde_json::from_str::<u8>("\"hunter2\"").unwrap_err();
        let error = ApiError::from(kube::Error::SerdeError(error));
        let words = "the API server's answer does not have the expected form, at line 1 column 9";
        assert_eq!(error, ApiError::Unreadable(words.to_owned()));
    }

    #[test]
    fn no_message_contains_the_secret_path() {
        let secret = "5e".repeat(32);
        let message =
            format!("Post \"https://belay.belay.svc:443/{secret}/mutate?timeout=5s\": EOF");
        for code in [403, 500] {
            let words = ApiError::of_status(code, &message).to_string();
            assert!(words.contains("/mutate?timeout=5s") && !words.contains(&secret), "{words}");
        }
        assert!(!chain(&std::io::Error::other(message)).contains(&secret));
    }
}
