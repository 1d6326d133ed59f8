//! Lists and maps of short strings, each packed into one interned string.
//!
//! This saves memory: the Pods of a Deployment share their labels, and most objects share the
//! empty list of finalizers. Each object only stores a pointer.

use std::fmt;
use std::sync::Arc;

use memchr::{memchr_iter, memmem};

use super::Interner;

/// No name, label or finalizer may contain this character.
const SEPARATOR: char = '\0';

/// Up to this many bytes, comparing each item is faster than memmem, which first prepares a search.
const MAX_COMPARED: usize = 512;

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
            // A separator inside an item would split the item.
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
        match self.0.len() {
            ..=MAX_COMPARED => self.iter().any(|other| other == item),
            _ => self.positions(item).next().is_some(),
        }
    }

    /// The positions of all items that equal this string: the offset in the packed string, and
    /// the index in the list. Editors write lists of a megabyte, so this searches with memchr.
    fn positions<'p>(&'p self, item: &'p str) -> impl Iterator<Item = (usize, usize)> + use<'p> {
        let packed = self.0.as_bytes();
        let (mut index, mut counted) = (0, 0);
        memmem::find_iter(packed, item).filter_map(move |offset| {
            let is_separator = |offset: usize| packed.get(offset) == Some(&(SEPARATOR as u8));
            let is_start = offset == 0 || is_separator(offset - 1);
            (is_start && is_separator(offset + item.len())).then(|| {
                index += memchr_iter(SEPARATOR as u8, &packed[counted..offset]).count();
                counted = offset;
                (offset, index)
            })
        })
    }

    /// The approximate number of steps to search the list.
    pub fn search_steps(&self) -> usize {
        1 + self.0.len() / 64
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PackedMap {
    /// Packs a map. The pairs must be ordered by key.
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
        if self.0.0.len() <= MAX_COMPARED {
            return self.iter().find(|(other, _)| *other == key).map(|(_, value)| value);
        }
        let (offset, _) = self.0.positions(key).find(|(_, index)| index % 2 == 0)?;
        let value = self.0.0.get(offset + key.len() + 1..)?;
        value.split(SEPARATOR).next()
    }

    /// The approximate number of steps to search the map.
    pub fn search_steps(&self) -> usize {
        self.0.search_steps()
    }

    /// Whether the map is empty.
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
        // Texts within others, and values that are keys as well. A long map is searched otherwise.
        let long = "c".repeat(MAX_COMPARED);
        for last in ["ba", &long] {
            let texts = ["", "a", "aa", "aaa", last];
            let pairs: Vec<_> = std::iter::zip(texts, texts.into_iter().rev()).collect();
            let map = PackedMap::new(pairs.clone(), &mut interner);
            pairs.iter().for_each(|(key, value)| assert_eq!(map.get(key), Some(*value), "{key}"));
            assert_eq!((map.get("b"), map.get("aaaa")), (None, None));
            let list = PackedList::new(texts, &mut interner);
            assert!(texts.iter().all(|text| list.contains(text)));
            assert!(!list.contains("b") && !list.contains("aaaa"));
        }
        assert!(PackedList::new([], &mut interner).is_empty());
        assert!(PackedMap::new([], &mut interner).is_empty());
    }
}
