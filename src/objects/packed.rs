//! Lists and maps of short strings, packed into one interned string each.
//!
//! The Pods of a Deployment share their labels, most objects share the empty
//! list of finalizers: one pointer an object is what is stored of either.

use std::fmt;
use std::sync::Arc;

use super::Interner;

/// No name, label or finalizer may contain this character.
const SEPARATOR: char = '\0';

/// A list of strings.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedList(Arc<str>);

/// A map of strings, ordered by key.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedMap(PackedList);

impl PackedList {
    /// Packs a list.
    pub fn new<'a>(items: impl IntoIterator<Item = &'a str>, interner: &mut Interner) -> Self {
        let mut packed = String::new();
        for item in items {
            // A separator inside an item would tear it apart.
            packed.extend(item.chars().filter(|c| *c != SEPARATOR));
            packed.push(SEPARATOR);
        }
        Self(interner.intern(&packed))
    }

    /// The strings, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + use<'_> {
        self.0.split_terminator(SEPARATOR)
    }

    /// Whether this string is one of them.
    pub fn contains(&self, item: &str) -> bool {
        self.iter().any(|i| i == item)
    }

    /// How many steps it takes to look through it, about.
    pub fn size(&self) -> usize {
        1 + self.0.len() / 64
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PackedMap {
    /// Packs a map; the pairs come ordered by key.
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        interner: &mut Interner,
    ) -> Self {
        Self(PackedList::new(pairs.into_iter().flat_map(|(key, value)| [key, value]), interner))
    }

    /// The pairs, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + use<'_> {
        let mut items = self.0.iter();
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// How many steps it takes to look through it, about.
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for PackedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for PackedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut interner = Interner::default();
        let list = PackedList::new(["a", "", "c"], &mut interner);
        assert_eq!(list.iter().collect::<Vec<_>>(), ["a", "", "c"]);
        assert!(list.contains("") && !list.contains("b"));
        let map = PackedMap::new([("app", "web"), ("tier", "")], &mut interner);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!(map.get("tier"), Some(""));
        assert_eq!(map.get("web"), None);
        assert!(PackedList::new([], &mut interner).is_empty());
        assert!(PackedMap::new([], &mut interner).is_empty());
    }
}
