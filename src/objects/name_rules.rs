//! Rules for names of objects.

/// The longest text that can be a part of a path. The API server reads no longer request line than
/// 1 MiB, and accepts owner names of any length.
const MAX_SEGMENT_BYTES: usize = 1 << 10;

/// Whether the API server accepts the name for a Namespace or Service.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && is_label(name)
}

/// Whether the API server accepts the name for most other objects.
pub fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// A label of any length, as the API server accepts it in a subdomain.
fn is_label(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
        && name.chars().all(|c| is_alphanumeric(c) || c == '-')
}

/// Whether the name can be one segment of a path of the API server. Users can write any text as the
/// name of an owner or of a used object.
pub fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_SEGMENT_BYTES
        && !name.contains(['/', '%'])
}
