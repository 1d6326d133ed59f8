//! Parses and formats durations.

use std::time::Duration;

/// Parses a duration such as `45s`, `30m`, `1h30m`, `7d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || format!("\"{text}\" is not a duration; expected one such as 45s, 30m or 1h30m");
    let (mut seconds, mut number) = (0_u64, String::new());
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(error()),
        };
        let value: u64 = number.parse().map_err(|_| error())?;
        let value = value.checked_mul(unit).ok_or_else(error)?;
        seconds = seconds.checked_add(value).ok_or_else(error)?;
        number.clear();
    }
    if seconds == 0 || !number.is_empty() || seconds > 10 * 365 * 86_400 {
        return Err(error());
    }
    Ok(Duration::from_secs(seconds))
}

/// Parses the value of `--timeout`: a duration, or a number of seconds.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => parse_duration(&format!("{text}s")),
        false => parse_duration(text),
    }
}

/// Formats a duration as `parse_duration` reads it.
pub fn format_duration(duration: Duration) -> String {
    crate::policy::format_seconds(duration.as_secs())
}

/// Formats a duration for a table: in one unit, or in two units if the smaller unit is
/// significant.
pub fn format_age(seconds: i64) -> String {
    let pair = |large: i64, small: i64, names: (&str, &str)| match seconds % large / small {
        0 => format!("{}{}", seconds / large, names.0),
        rest => format!("{}{}{rest}{}", seconds / large, names.0, names.1),
    };
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..600 => pair(60, 1, ("m", "s")),
        600..3600 => format!("{}m", seconds / 60),
        3600..36_000 => pair(3600, 60, ("h", "m")),
        36_000..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed_in_the_usual_form() {
        for (text, seconds) in [("45s", 45), ("30m", 1800), ("1h30m", 5400), ("24h", 86_400)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!(parse_duration("7d12h"), Ok(Duration::from_secs(648_000)));
        for wrong in ["", "0s", "30", "m", "1w", "-5m", "1.5h", "99999999999999999999h", "9999999h"]
        {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_timeout_is_a_duration_or_a_number_of_seconds() {
        for (text, seconds) in [("20", 20), ("30s", 30), ("5m", 300), ("1h30m", 5400)] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "0", "-1", "1.5", "5 m", "99999999999999999999"] {
            assert!(parse_timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formats_an_age_in_one_or_two_units() {
        for (seconds, text) in [
            (-3, "0s"),
            (59, "59s"),
            (60, "1m"),
            (125, "2m5s"),
            (659, "10m"),
            (3600, "1h"),
            (9000, "2h30m"),
            (90_000, "25h"),
            (200_000, "2d"),
        ] {
            assert_eq!(format_age(seconds), text, "{seconds}");
        }
    }
}
