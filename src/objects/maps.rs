//! Hash maps and sets for keys that clients choose, and for keys that belay assigns.
//!
//! Users choose the names, uids and labels of the objects that they write. Without a secret
//! key in the hash function, a user can choose names that collide. Then the time of each lookup
//! grows with the number of names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use rustc_hash::FxHasher;

/// Hashes keys that clients choose: SipHash with a random key, from the standard library.
pub type KeyedHasher = RandomState;

/// A map with keys that a client chooses, such as uids and names.
pub type KeyedMap<K, V> = HashMap<K, V, KeyedHasher>;

/// A set of values that a client chooses, such as uids and names.
pub type KeyedSet<K> = HashSet<K, KeyedHasher>;

/// A map with numbers as keys that belay assigns: `NodeId`, `KindId`, or a tuple of them.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set of numbers that belay assigns.
pub type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// Frees memory of a map that is mostly empty.
pub fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    const MIN_ENTRIES: usize = 1024;
    if map.capacity() > 4 * map.len().max(MIN_ENTRIES) {
        map.shrink_to(2 * map.len());
    }
}

/// Hashes numbers fast and without a key. It must not hash texts and uids: debug builds panic.
#[derive(Clone, Default)]
pub struct NumberHasher(FxHasher);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "texts and uids belong into a KeyedMap or a KeyedSet");
        self.0.write(bytes);
    }

    fn write_u16(&mut self, number: u16) {
        self.0.write_u16(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.0.write_u32(number);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Uid;

    /// H5: the first half of these uids sets the state of the unkeyed hasher to zero, so that
    /// many of them get the same hash.
    #[test]
    fn uids_that_collide_in_the_unkeyed_hasher_do_not_collide_in_the_keyed_one() {
        let uid = |n: u64| {
            Uid::new(&format!("d308a385-886a-3f24-8{:03x}-{:012x}", n % 0x1000, n / 0x1000))
        };
        let keyed = KeyedHasher::default();
        let hashes: HashSet<u64> = (0..9_000).map(|n| keyed.hash_one(uid(n))).collect();
        assert_eq!(hashes.len(), 9_000);
        // The low bits select the bucket, so they must also differ.
        let buckets: HashSet<u64> = hashes.iter().map(|hash| hash & 0xffff).collect();
        assert!(buckets.len() > 8_000, "{}", buckets.len());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_map_of_numbers_takes_no_text() {
        let taken = std::panic::catch_unwind(|| {
            let mut map: NumberMap<&str, ()> = NumberMap::default();
            map.insert("text", ());
        });
        assert!(taken.is_err());
    }
}
