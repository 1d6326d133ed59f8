//! Digests that are equal in every process.

use std::hash::{Hash, Hasher};

use aws_lc_rs::digest::{Context, SHA256};

/// The SHA-256 of a value, from its `Hash` implementation. Clients choose parts of these values,
/// and only a cryptographic hash function prevents two values with the same digest.
pub fn digest(value: &impl Hash) -> [u8; 32] {
    let mut sha = Sha256(Context::new(&SHA256));
    value.hash(&mut sha);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(sha.0.finish().as_ref());
    bytes
}

/// The first eight bytes of a digest, in hexadecimal digits: enough to make a name unique.
pub fn short_digest(value: &impl Hash) -> String {
    digest(value)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Sha256(Context);

impl Hasher for Sha256 {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Unused, because the digest is longer.
    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_only_in_where_a_text_ends_have_different_digests() {
        assert_eq!(digest(&"a"), digest(&"a"));
        assert_ne!(digest(&("ab", "c")), digest(&("a", "bc")));
        assert_eq!(short_digest(&"a").len(), 16);
    }
}
