//! Parses plain scalars as YAML 1.1, as kubectl does.

use serde_json::Number;

use super::tree::Content;

/// Parses a scalar without quotes and without a tag. `None` for numbers that JSON does not
/// have: infinity and NaN.
///
/// `yes`, `no`, `on` and `off` are booleans, as in kubectl. kubectl also reads `y` and `n`
/// as booleans. In manifests these are keys or names, so here they are text.
pub fn parse_plain(text: &str) -> Option<Content> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Content::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            Content::Bool(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Content::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ => match text.as_bytes()[0] {
            b'0'..=b'9' | b'+' | b'-' | b'.' => match parse_number(text) {
                Some(number) => Content::Number(number),
                None => Content::Text(text.to_owned()),
            },
            _ => Content::Text(text.to_owned()),
        },
    })
}

/// Parses a number: `0755` is octal, `1_000` is 1000.
fn parse_number(text: &str) -> Option<Number> {
    let digits = if text.starts_with('.') { text.to_owned() } else { text.replace('_', "") };
    parse_integer(&digits).or_else(|| parse_float(&digits))
}

fn parse_integer(text: &str) -> Option<Number> {
    let (negative, magnitude) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|p| magnitude.strip_prefix(p));
    let (digits, base) = if let Some(digits) = prefixed(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = prefixed(["0b", "0B"]) {
        (digits, 2)
    } else if let Some(digits) = prefixed(["0o", "0O"]) {
        (digits, 8)
    } else if magnitude.len() > 1 && magnitude.starts_with('0') {
        (magnitude, 8)
    } else {
        (magnitude, 10)
    };
    // The sign is already removed. Rust would accept a second sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match negative {
        false => Some(magnitude.into()),
        true => Some(0_i64.checked_sub_unsigned(magnitude)?.into()),
    }
}

fn parse_float(text: &str) -> Option<Number> {
    let number: f64 = text.parse().ok()?;
    // JSON does not distinguish integers and floats. An integer has no decimal point.
    let is_integer = number.fract() == 0.0 && number.abs() < 1e15;
    #[allow(clippy::cast_possible_truncation)] // `is_integer` shows that the conversion is exact.
    if is_integer { Some((number as i64).into()) } else { Number::from_f64(number) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The results of sigs.k8s.io/yaml, except for y and n.
    #[test]
    fn plain_scalars_mean_what_they_mean_to_kubectl() {
        let cases = [
            ("y", json!("y")),
            ("n", json!("n")),
            ("Yes", json!(true)),
            ("off", json!(false)),
            ("oFF", json!("oFF")),
            ("~", Value::Null),
            ("0755", json!(493)),
            ("08", json!(8)),
            ("1_000", json!(1000)),
            ("2026-01-01", json!("2026-01-01")),
            ("0o17", json!(15)),
            ("1e3", json!(1000)),
            (".5", json!(0.5)),
            ("+1", json!(1)),
            ("+-1", json!("+-1")),
            ("++1", json!("++1")),
            ("-infinity", json!("-infinity")),
            ("1e999", json!("1e999")),
            ("0x_1F", json!(31)),
            ("-0b11", json!(-3)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("12345678901234567890123", json!(1.234_567_890_123_456_8e22)),
            ("1.2.3", json!("1.2.3")),
            ("-", json!("-")),
            ("e3", json!("e3")),
        ];
        for (text, expected) in cases {
            let content = parse_plain(text).unwrap();
            assert_eq!(Value::from(content), expected, "{text}");
        }
        assert!(parse_plain(".inf").is_none());
    }
}
