//! Parses options with seconds.

use std::time::Duration;

pub fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text)? {
        Duration::ZERO => Err("expected more than 0 seconds".to_owned()),
        duration => Ok(duration),
    }
}

pub fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let number: f64 =
        text.parse().map_err(|_| "expected a number of seconds, such as 4 or 0.5".to_owned())?;
    // More than an hour is probably a typing mistake.
    if !(0.0..=3600.0).contains(&number) {
        return Err("expected between 0 and 3600 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(number))
}
