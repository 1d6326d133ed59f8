//! The times in the metadata of objects.

/// Parses an RFC 3339 time into seconds since 1970.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_second())
}
