//! Strings that many objects share, stored once.

use std::sync::Arc;

use super::KeyedSet;

/// Longer strings are not shared, so that they end with the last object that has
/// them.
const LONGEST_SHARED: usize = 1024;

/// About what a string takes beside its own bytes.
const OVERHEAD: usize = 64;

/// With fewer bytes than this there is no sweep.
const LEAST: usize = 256 << 10;

/// Stores each string once, and drops strings without references. In a cluster that creates
/// Pods all day, the hashes in their labels would otherwise fill the memory.
#[derive(Debug, Default)]
pub struct Interner {
    strings: KeyedSet<Arc<str>>,
    /// About how many bytes they take.
    bytes: usize,
    /// How many there were after the last sweep.
    after_sweep: usize,
}

impl Interner {
    /// The one copy of this string; of a long one, a copy of its own.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if text.len() > LONGEST_SHARED {
            return text.into();
        }
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        // A sweep looks at everything, so it has to be rare: when the bytes
        // have doubled, which makes its cost constant for each new byte.
        if self.bytes >= 2 * self.after_sweep.max(LEAST) {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.bytes = self.strings.iter().map(|string| OVERHEAD + string.len()).sum();
            self.after_sweep = self.bytes;
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        self.bytes += OVERHEAD + new.len();
        new
    }

    /// About how many bytes the stored strings take, those not yet swept away
    /// included.
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
