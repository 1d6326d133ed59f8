//! Parses `--reason`.

/// Accepts a text with a letter or digit, so not the `…` of a proposed command.
pub fn parse_reason(text: &str) -> Result<String, String> {
    match text.chars().any(char::is_alphanumeric) {
        true => Ok(text.to_owned()),
        false => Err("state why, for those who read the record later".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_a_letter_or_digit() {
        for reason in ["", " ", "…", "\"...\""] {
            assert!(parse_reason(reason).is_err(), "{reason}");
        }
        for reason in ["T-1234", "Umzug", "移行"] {
            assert_eq!(parse_reason(reason), Ok(reason.to_owned()));
        }
    }
}
