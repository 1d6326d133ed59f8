//! The characters in names of objects.

/// Whether the API server accepts the name for a Namespace or Service.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && has_dns_characters(name)
}

/// Whether the name can be a part between two dots of a name of any length.
pub fn has_dns_characters(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
        && name.chars().all(|c| is_alphanumeric(c) || c == '-')
}

/// Whether the name can be one segment of a path of the API server. Users can write any text as the
/// name of an owner or of a used object.
pub fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}
