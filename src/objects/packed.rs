//! Lists and maps of short strings, packed into one interned string each.
//!
//! The Pods of a Deployment share their labels, most objects share the empty
//! list of finalizers: one pointer an object is what is stored of either.

use std::fmt;
use std::sync::Arc;

use memchr::{memchr_iter, memmem};

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
        self.places(item).next().is_some()
    }

    /// Where this string begins in the packed one, each time, and the number of the
    /// item. Editors write lists of a megabyte, so separators are counted and not
    /// visited.
    fn places<'p>(&'p self, item: &'p str) -> impl Iterator<Item = (usize, usize)> + use<'p> {
        let packed = self.0.as_bytes();
        let (mut number, mut counted) = (0, 0);
        memmem::find_iter(packed, item).filter_map(move |at| {
            let is_separator = |at: usize| packed.get(at) == Some(&(SEPARATOR as u8));
            let begins = at == 0 || is_separator(at - 1);
            (begins && is_separator(at + item.len())).then(|| {
                number += memchr_iter(SEPARATOR as u8, &packed[counted..at]).count();
                counted = at;
                (at, number)
            })
        })
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
        let (at, _) = self.0.places(key).find(|(_, number)| number % 2 == 0)?;
        let value = self.0.0.get(at + key.len() + 1..)?;
        value.split(SEPARATOR).next()
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
    fn a_packed_list_or_map_has_the_same_items() {
        let mut interner = Interner::default();
        let list = PackedList::new(["a", "", "c"], &mut interner);
        assert_eq!(list.iter().collect::<Vec<_>>(), ["a", "", "c"]);
        assert!(list.contains("") && !list.contains("b"));
        let map = PackedMap::new([("app", "web"), ("tier", "")], &mut interner);
        assert_eq!(map.iter().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
        assert_eq!(map.get("tier"), Some(""));
        assert_eq!(map.get("web"), None);
        // Texts within others, and values that are keys as well.
        let texts = ["", "a", "aa", "aaa", "ba"];
        let pairs: Vec<_> = texts.iter().zip(texts.iter().rev()).map(|(k, v)| (*k, *v)).collect();
        let map = PackedMap::new(pairs.clone(), &mut interner);
        pairs.iter().for_each(|(key, value)| assert_eq!(map.get(key), Some(*value), "{key}"));
        assert_eq!((map.get("b"), map.get("aaaa")), (None, None));
        assert!(PackedList::new([], &mut interner).is_empty());
        assert!(PackedMap::new([], &mut interner).is_empty());
    }
}
