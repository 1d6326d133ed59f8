//! The messages by which the API server reports that admission refused a write.

/// The message of a ValidatingAdmissionPolicy. The text before it differs from that of a
/// webhook by an article.
pub fn policy_message(message: &str) -> Option<&str> {
    message.rsplit_once("denied request: ").map(|(_, said)| said)
}

/// Whether a webhook or a policy refused.
pub fn denies(message: &str) -> bool {
    message.contains("denied the request") || policy_message(message).is_some()
}

/// Whether the API server reports that a webhook did not answer that it has to ask.
pub fn is_unasked(message: &str) -> bool {
    ["failed calling webhook", "failed to call webhook"].iter().any(|sign| message.contains(sign))
}

/// Whether a write was refused, by an answer or because of a missing answer.
pub fn is_refusal(message: &str) -> bool {
    denies(message) || is_unasked(message)
}
