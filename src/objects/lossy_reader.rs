//! Reads JSON that the API server stores and serde_json can't read.

use serde_json::Number;

/// Reads JSON. If that fails, reads it again without the values that serde_json can't read. Every
/// client can store such values in a field that accepts any content.
pub fn read_lossy<T>(
    json: &str,
    read: impl Fn(&str) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    read(json).or_else(|error| read(&replace_unreadable(json)).map_err(|_| error))
}

/// Replaces each surrogate that is not one of a pair by U+FFFD, and each number that is too large
/// by `null`.
fn replace_unreadable(json: &str) -> String {
    let mut replaced = String::with_capacity(json.len());
    let mut rest = json;
    let mut in_text = false;
    while let Some(next) = rest.find(|c| is_special(c, in_text)) {
        let (before, from) = rest.split_at(next);
        replaced.push_str(before);
        let (length, replacement) = match (from.as_bytes().first(), in_text) {
            (Some(b'"'), _) => {
                in_text = !in_text;
                (1, None)
            }
            (Some(b'\\'), _) => read_escape(from),
            _ => read_number(from),
        };
        let (original, after) = from.split_at_checked(length).unwrap_or((from, ""));
        replaced.push_str(replacement.unwrap_or(original));
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

fn is_special(c: char, in_text: bool) -> bool {
    c == '"' || if in_text { c == '\\' } else { c == '-' || c.is_ascii_digit() }
}

/// The length of an escape sequence, and its replacement.
fn read_escape(json: &str) -> (usize, Option<&'static str>) {
    match (surrogate(json), json.get(6..).and_then(surrogate)) {
        (Some(true), Some(false)) => (12, None),
        (Some(_), _) => (6, Some("\\ufffd")),
        // Skips the escaped character, which can be `"` or `\`. Digits of `\u0022` need no skip.
        (None, _) => (2, None),
    }
}

/// Whether JSON begins with the first (`true`) or with the second (`false`) surrogate of a pair.
/// `None` if it begins with neither.
fn surrogate(json: &str) -> Option<bool> {
    let code = u16::from_str_radix(json.strip_prefix("\\u")?.get(..4)?, 16).ok()?;
    matches!(code, 0xd800..=0xdfff).then_some(code < 0xdc00)
}

/// The length of a number, and its replacement.
fn read_number(json: &str) -> (usize, Option<&'static str>) {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let length = json.find(|c| !is_part(c)).unwrap_or(json.len());
    let is_readable = json.get(..length).is_some_and(|text| text.parse::<Number>().is_ok());
    (length, (!is_readable).then_some("null"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(json: &str) -> Result<Value, serde_json::Error> {
        read_lossy(json, |json| serde_json::from_str(json))
    }

    #[test]
    fn h173_replaces_only_what_cannot_be_read() {
        let texts = r#"["\ud800", "a\udfffb", "\ud83d\ude00", "\ud800\ud83d\ude00", "\\ud800"]"#;
        let expected = json!(["\u{fffd}", "a\u{fffd}b", "😀", "\u{fffd}😀", "\\ud800"]);
        assert_eq!(read(texts).unwrap(), expected);
        assert_eq!(read(r#"{"\uD800": "ü\"1e999\""}"#).unwrap(), json!({"\u{fffd}": "ü\"1e999\""}));
        let numbers = r#"[1e999,-1e999, 0, -1.5E+2, "1e999", {"a":1e-999}, "\ud800"]"#;
        let expected = json!([null, null, 0, -150.0, "1e999", {"a": 0.0}, "\u{fffd}"]);
        assert_eq!(read(numbers).unwrap(), expected);
        for malformed in ["", r#"""#, r#""\"#, r#""\u"#, r#""\ud800"#, r#""\ud8ü""#, "[1", "[}"] {
            assert!(read(malformed).is_err(), "{malformed}");
        }
    }
}
