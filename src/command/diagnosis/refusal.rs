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

/// Whether the API server refused the write because it could not call a webhook.
fn is_uncalled(message: &str) -> bool {
    ["failed calling webhook", "failed to call webhook"].iter().any(|text| message.contains(text))
}

/// Explains that the API server could not encode an object for a webhook: because its managedFields
/// are nested too deeply (H137), or for another reason (H177). The text does not quote the message,
/// because any user can write an Event with such a message.
pub fn explain_unencodable(message: &str) -> Option<&'static str> {
    let is_encoding = ["call webhook: json: ", "exceeded max depth", "create admission objects"]
        .iter()
        .any(|text| message.contains(text));
    (is_uncalled(message) && is_encoding).then(|| match message.contains("exceeded max depth") {
        true => {
            "the API server can't send this object to a webhook, because its managedFields are \
             nested too deeply; belay resets them within seconds; if it does not, have an \
             administrator reset them (docs/guides/limits.md, Holds)"
        }
        false => {
            "the API server can't send an object to a webhook, because it can't encode its fields \
             as JSON; have an administrator replace the object (docs/guides/limits.md, Holds)"
        }
    })
}

/// Whether the API server refused the write because a webhook did not answer.
pub fn is_unanswered(message: &str) -> bool {
    is_uncalled(message) && explain_unencodable(message).is_none()
}

pub fn webhook_name(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("webhook \"")?;
    rest.split_once('"').map(|(name, _)| name)
}

/// Whether admission refused the write: a webhook or a policy denied it, or the API server could
/// not call a webhook.
pub fn is_refusal(message: &str) -> bool {
    denies(message) || is_uncalled(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h137_an_unencodable_object_is_not_reported_as_a_silent_webhook() {
        // The messages of Kubernetes 1.37.
        let deep = "Internal error occurred: failed calling webhook \"label-delete.belay.dev\": \
                    failed to call webhook: json: error calling MarshalJSON for type \
                    runtime.RawExtension: invalid character '{' exceeded max depth";
        let about_deep = explain_unencodable(deep).unwrap();
        assert!(about_deep.contains("nested too deeply"), "{about_deep}");
        assert!(is_refusal(deep) && !is_unanswered(deep));
        let silent = "Internal error occurred: failed calling webhook \"delete.belay.dev\": failed \
                      to call webhook: Post \"https://belay.belay.svc:443/validate?timeout=5s\": EOF";
        assert!(
            is_unanswered(silent) && is_refusal(silent) && explain_unencodable(silent).is_none()
        );
        assert_eq!(explain_unencodable("exceeded max depth"), None);
    }

    #[test]
    fn h177_an_unencodable_field_is_not_reported_as_deep_managed_fields() {
        let port = "Internal error occurred: failed calling webhook \"label-delete.belay.dev\": \
                    failed to call webhook: json: error calling MarshalJSON for type \
                    runtime.RawExtension: json: error calling MarshalJSON for type \
                    *intstr.IntOrString: impossible IntOrString.Type";
        assert!(is_refusal(port) && !is_unanswered(port));
        let explained = explain_unencodable(port).unwrap();
        assert!(!explained.contains("managedFields"), "{explained}");
    }
}
