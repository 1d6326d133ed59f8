//! Strings that many objects share, stored once.

use std::sync::Arc;

use super::KeyedSet;

/// The longest shared string. Longer strings are freed together with their last object.
const MAX_SHARED_BYTES: usize = 1024;

/// The approximate memory of a string besides its own bytes.
const OVERHEAD: usize = 64;

/// The interner does not sweep below this size.
const MIN_SWEEP_BYTES: usize = 256 << 10;

/// Stores each string once, and drops strings without references. In a cluster that creates
/// Pods all day, the hashes in their labels would otherwise fill the memory.
#[derive(Debug, Default)]
pub struct Interner {
    strings: KeyedSet<Arc<str>>,
    /// The approximate memory of the strings.
    bytes: usize,
    /// The value of `bytes` after the last sweep.
    after_sweep: usize,
}

impl Interner {
    /// The shared copy of this string, or a new copy of a long string.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if text.len() > MAX_SHARED_BYTES {
            return text.into();
        }
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        // A sweep visits all strings, so it must be rare. It runs when the bytes have doubled,
        // which makes its cost constant for each new byte.
        if self.bytes >= 2 * self.after_sweep.max(MIN_SWEEP_BYTES) {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.bytes = self.strings.iter().map(|string| OVERHEAD + string.len()).sum();
            self.after_sweep = self.bytes;
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        self.bytes += OVERHEAD + new.len();
        new
    }

    /// The approximate memory of the strings, including unused ones before the next sweep.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h37_each_string_has_one_copy_and_unused_strings_are_dropped() {
        for length in [16, 1_000, 60_000] {
            let mut interner = Interner::default();
            let kept = interner.intern("kept");
            assert!(Arc::ptr_eq(&kept, &interner.intern("kept")));
            for n in 0..10_000_000 / length {
                interner.intern(&format!("{n:length$}"));
            }
            let stored: usize = interner.strings.iter().map(|string| string.len()).sum();
            assert!(stored < 1 << 20, "{stored} bytes of strings of {length}");
            assert!(Arc::ptr_eq(&kept, &interner.intern("kept")));
        }
    }
}
