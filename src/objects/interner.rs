//! Strings that many objects share, stored once.

use std::sync::Arc;

use super::KeyedSet;

/// Stores each string once, and forgets those that nobody holds any more: a
/// cluster that makes Pods all day would otherwise fill the memory with the
/// hashes in their labels.
#[derive(Debug, Default)]
pub struct Interner {
    strings: KeyedSet<Arc<str>>,
    /// How many there were after the last sweep.
    after_sweep: usize,
}

impl Interner {
    /// The one copy of this string.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(text) {
            return known.clone();
        }
        // A sweep looks at everything, so it has to be rare: when the number
        // has doubled, which makes its cost constant for each new string.
        if self.strings.len() >= 2 * self.after_sweep.max(1024) {
            self.strings.retain(|string| Arc::strong_count(string) > 1);
            self.after_sweep = self.strings.len();
        }
        let new: Arc<str> = text.into();
        self.strings.insert(new.clone());
        new
    }

    /// How many strings are stored, those not yet swept away included.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_each_and_what_nobody_holds_is_forgotten() {
        let mut interner = Interner::default();
        let kept = interner.intern("kept");
        assert!(Arc::ptr_eq(&kept, &interner.intern("kept")));
        for n in 0..1_000_000 {
            interner.intern(&format!("passing-{n}"));
        }
        assert!(interner.len() < 10_000, "{}", interner.len());
        assert!(Arc::ptr_eq(&kept, &interner.intern("kept")));
    }
}
