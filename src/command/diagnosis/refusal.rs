//! Recognizes the messages of the API server about writes that admission refused.

/// The message of a ValidatingAdmissionPolicy. The API server writes `denied request` before it,
/// and `denied the request` before the message of a webhook.
pub fn policy_message(message: &str) -> Option<&str> {
    message.rsplit_once("denied request: ").map(|(_, text)| text)
}

/// Whether a webhook or a policy denied the write.
pub fn denies(message: &str) -> bool {
    message.contains("denied the request") || policy_message(message).is_some()
}

/// Whether the API server refused the write because a webhook did not answer.
pub fn is_unanswered(message: &str) -> bool {
    ["failed calling webhook", "failed to call webhook"].iter().any(|text| message.contains(text))
}

pub fn webhook_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("webhook \"")?;
    rest.split_once('"').map(|(name, _)| name)
}

/// Whether admission refused the write: a webhook or a policy denied it, or a webhook did not
/// answer.
pub fn is_refusal(message: &str) -> bool {
    denies(message) || is_unanswered(message)
}
