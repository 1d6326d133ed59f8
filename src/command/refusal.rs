//! How a refusal at admission reads, whoever it is that refuses.

/// What a ValidatingAdmissionPolicy said. The words before it differ from those
/// of a webhook by an article.
pub fn said_by_policy(message: &str) -> Option<&str> {
    message.rsplit_once("denied request: ").map(|(_, said)| said)
}

/// Whether a webhook or a policy said no.
pub fn denies(message: &str) -> bool {
    message.contains("denied the request") || said_by_policy(message).is_some()
}

/// Whether the API server says that a webhook which has to be asked did not
/// answer.
pub fn is_unasked(message: &str) -> bool {
    ["failed calling webhook", "failed to call webhook"].iter().any(|sign| message.contains(sign))
}
