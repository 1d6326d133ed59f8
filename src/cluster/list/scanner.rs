//! Finds the objects of a list in its JSON while it arrives in pieces of any length. It keeps
//! only the current object.
//!
//! ```text
//!  { "kind": …, "metadata": {…}, "items": [ {…}, {…}, … ] }
//!    skipped    kept               kept one at a time
//! ```
//!
//! It does not parse values. It counts brackets outside of strings, without recursion, so depth
//! costs nothing. The reader of an element checks whether it is valid JSON.

use super::value::ValueState;
use crate::cluster::api::PageMetadata;

/// The size of the largest object that is read, in bytes of JSON. By default an API server stores
/// at most 1.5 MiB per object, and escapes in JSON can make this six times as long.
pub const MAX_OBJECT: usize = 32 << 20;

/// An object up to this length needs no buffer for large objects.
pub const SMALL: usize = 128 << 10;

/// The maximum length of the `metadata` of a list.
const MAX_METADATA: usize = 1 << 20;

/// The length of the longest key that the scanner compares.
const MAX_KEY: usize = "metadata".len();

/// Why an answer cannot be read as a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListError {
    /// The answer is not a list. The error is at this byte.
    NotAList(u64),
    /// An object of the list is larger than [`MAX_OBJECT`].
    TooLarge,
}

impl std::fmt::Display for ListError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAList(byte) => write!(f, "the answer is no list, at byte {byte}"),
            Self::TooLarge => write!(f, "one of them has more than {} MiB", MAX_OBJECT >> 20),
        }
    }
}

/// Which part of a list a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Other,
    Metadata,
    /// The value of `items` if it is not an array. Only `null` is allowed.
    NullItems,
    Element,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the list.
    Start,
    /// Before a key. `true`: the object may end here.
    Key(bool),
    InKey,
    Colon,
    Value,
    InValue(Part),
    /// Before a comma or the end of the list.
    AfterValue,
    /// Before an element. `true`: the array may end here.
    Element(bool),
    AfterElement,
    End,
}

/// Scans a list piece by piece.
#[derive(Debug)]
pub struct ListScanner {
    state: State,
    value: ValueState,
    key: Vec<u8>,
    is_key_escaped: bool,
    /// The bytes of the current value, if it is kept.
    kept: Vec<u8>,
    /// Whether `kept` is a whole element.
    is_complete: bool,
    /// Whether to scan a single object instead of a list.
    is_single: bool,
    metadata: PageMetadata,
    /// Whether the list has the key `items`.
    has_items: bool,
    scanned: u64,
}

impl ListScanner {
    /// Scans a list.
    pub fn new() -> Self {
        Self {
            state: State::Start,
            value: ValueState::default(),
            key: Vec::new(),
            is_key_escaped: false,
            kept: Vec::new(),
            is_complete: false,
            is_single: false,
            metadata: PageMetadata::default(),
            has_items: false,
            scanned: 0,
        }
    }

    /// Scans a single object.
    pub fn for_object() -> Self {
        Self { state: State::Element(false), is_single: true, has_items: true, ..Self::new() }
    }

    /// Scans more bytes. Returns how many were used, and whether [`ListScanner::element`] is
    /// complete. The element is available until the next call. The next call must start with the
    /// unused bytes.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<(usize, bool), ListError> {
        if self.is_complete {
            self.clear();
        }
        let mut index = 0;
        while let Some(byte) = bytes.get(index) {
            if let State::InValue(part) = self.state {
                let rest = bytes.get(index..).unwrap_or_default();
                let (used, ends) = self.value.consume(rest);
                self.keep(part, rest.get(..used).unwrap_or_default())?;
                index += used;
                if ends {
                    self.end_value(part, index)?;
                }
                if self.is_complete {
                    self.scanned += index as u64;
                    return Ok((index, true));
                }
                continue;
            }
            // The first byte of a value is left to `ValueState`.
            if self.step(*byte).ok_or(ListError::NotAList(self.scanned + index as u64))? {
                index += 1;
            }
        }
        self.scanned += index as u64;
        Ok((index, false))
    }

    /// The element that the last call completed.
    pub fn element(&self) -> &[u8] {
        &self.kept
    }

    /// The number of kept bytes.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Frees the memory of a complete element.
    pub fn clear(&mut self) {
        if self.is_complete {
            self.kept.clear();
            self.kept.shrink_to(SMALL);
            self.is_complete = false;
        }
    }

    /// Returns the metadata of the list after its end.
    pub fn finish(&mut self) -> Result<PageMetadata, ListError> {
        match self.state {
            State::End if self.has_items => Ok(std::mem::take(&mut self.metadata)),
            _ => Err(ListError::NotAList(self.scanned)),
        }
    }

    /// Scans one byte outside of values. Returns whether the byte was used, or `None` if it is not
    /// allowed here.
    fn step(&mut self, byte: u8) -> Option<bool> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        self.state = match (self.state, byte) {
            (State::InKey, _) => {
                if self.is_key_escaped {
                    self.is_key_escaped = false;
                } else if byte == b'"' {
                    self.state = State::Colon;
                    return Some(true);
                } else if byte == b'\\' {
                    self.is_key_escaped = true;
                }
                // One byte more than the longest key, so that a longer key matches none.
                if self.key.len() <= MAX_KEY {
                    self.key.push(byte);
                }
                State::InKey
            }
            (state, _) if is_space => state,
            (State::Start, b'{') => State::Key(true),
            (State::Key(_), b'"') => {
                self.key.clear();
                State::InKey
            }
            (State::Key(true) | State::AfterValue, b'}') => State::End,
            (State::Colon, b':') => State::Value,
            (State::Value, b'[') if self.key == b"items" => {
                self.has_items = true;
                State::Element(true)
            }
            (State::Value, _) => {
                let part = match self.key.as_slice() {
                    b"items" => Part::NullItems,
                    b"metadata" => Part::Metadata,
                    _ => Part::Other,
                };
                return Some(self.begin_value(part));
            }
            (State::AfterValue, b',') => State::Key(false),
            (State::Element(_), b'{') => return Some(self.begin_value(Part::Element)),
            (State::Element(true) | State::AfterElement, b']') => State::AfterValue,
            (State::AfterElement, b',') => State::Element(false),
            _ => return None,
        };
        Some(true)
    }

    /// Starts a value. Its first byte is not used yet.
    fn begin_value(&mut self, part: Part) -> bool {
        self.value = ValueState::default();
        self.kept.clear();
        self.state = State::InValue(part);
        false
    }

    fn keep(&mut self, part: Part, bytes: &[u8]) -> Result<(), ListError> {
        let limit = match part {
            Part::Other => return Ok(()),
            Part::Metadata => MAX_METADATA,
            Part::NullItems => "null".len(),
            Part::Element => MAX_OBJECT,
        };
        if self.kept.len() + bytes.len() > limit {
            return Err(match part {
                Part::Element => ListError::TooLarge,
                _ => ListError::NotAList(self.scanned),
            });
        }
        self.kept.extend_from_slice(bytes);
        Ok(())
    }

    fn end_value(&mut self, part: Part, index: usize) -> Result<(), ListError> {
        let no_list = ListError::NotAList(self.scanned + index as u64);
        self.state = State::AfterValue;
        match part {
            Part::Other => {}
            Part::Metadata => {
                self.metadata = serde_json::from_slice(&self.kept).map_err(|_| no_list)?;
            }
            Part::NullItems if self.kept == b"null" => self.has_items = true,
            Part::NullItems => return Err(no_list),
            Part::Element => {
                self.is_complete = true;
                self.state = if self.is_single { State::End } else { State::AfterElement };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Scans a text in pieces of these lengths.
    fn scan(
        mut scanner: ListScanner,
        text: &[u8],
        lengths: &[usize],
    ) -> Result<(Vec<String>, PageMetadata), ListError> {
        let mut elements = Vec::new();
        let mut lengths = lengths.iter().copied().cycle();
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(lengths.next().unwrap_or(1).clamp(1, rest.len()));
            let mut piece = piece;
            while !piece.is_empty() {
                let (used, complete) = scanner.scan(piece)?;
                piece = &piece[used..];
                if complete {
                    elements.push(String::from_utf8_lossy(scanner.element()).into_owned());
                }
            }
            rest = after;
        }
        Ok((elements, scanner.finish()?))
    }

    fn list(text: &str, lengths: &[usize]) -> Result<(Vec<String>, PageMetadata), ListError> {
        scan(ListScanner::new(), text.as_bytes(), lengths)
    }

    #[test]
    fn finds_each_object_wherever_it_is_cut() {
        let metadata = r#"{"resourceVersion": "7", "continue": "a\"b]"}"#;
        let objects = [r#"{"a": "\\\"}]{", "b": [1, {"c": null}]}"#, "{}", r#"{"d":"\u003c,"}"#];
        for text in [
            format!(r#" {{"kind":"L","metadata":{metadata},"items":[{}]}} "#, objects.join(" , ")),
            format!(r#"{{"items": [{}], "metadata": {metadata}, "n": 12}}"#, objects.join(",")),
            format!(
                r#"{{"x":[{{"items":[{{}}]}}],"items":[{}],"metadata":{metadata},"t":true}}"#,
                objects.join(",")
            ),
        ] {
            for length in 1..text.len() {
                let (found, page) = list(&text, &[length]).unwrap();
                assert_eq!(found, objects, "in pieces of {length}");
                assert_eq!((page.resource_version.as_str(), page.next.as_str()), ("7", "a\"b]"));
            }
        }
    }

    #[test]
    fn an_answer_that_is_no_list_does_not_count_as_empty() {
        let count = |text: &str| list(text, &[3]).map(|(found, _)| found.len());
        assert_eq!(count(r#"{"metadata": {"resourceVersion": "7"}, "items": null}"#), Ok(0));
        assert_eq!(count(r#"{"items": []}"#), Ok(0));
        assert_eq!(count(r#"{"items": [{}, {}]}"#), Ok(2));
        for text in [
            r#"{"kind": "Status", "status": "Success"}"#,
            "{}",
            "",
            "<html>",
            "[]",
            r#"{"items": "hunter2"}"#,
            r#"{"items": {}}"#,
            r#"{"items": [1]}"#,
            r#"{"items": [{},]}"#,
            r#"{"items": [{}"#,
            r#"{"items": [{}]"#,
            r#"{"items": [{}]} {"#,
            r#"{"items": [], }"#,
            r#"{"metadata": 7, "items": []}"#,
            r#"{"metadata": {"continue": 7}, "items": []}"#,
            r#"{"\u0069tems": []}"#,
        ] {
            let words = count(text).unwrap_err().to_string();
            assert!(words.starts_with("the answer is no list, at byte "), "{text}: {words}");
        }
    }

    #[test]
    fn a_single_object_is_found_and_nothing_beside_it() {
        let object = |text: &str| scan(ListScanner::for_object(), text.as_bytes(), &[2]);
        assert_eq!(object(" {\"a\": [{}]}\n").unwrap().0, [r#"{"a": [{}]}"#]);
        for text in ["", "7", "[]", "{", "{} {}", "{}, {}"] {
            assert!(object(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_costs_nothing_and_size_has_a_bound() {
        let deep =
            format!("{}{}", "[{\"a\":".repeat(100_000), "1".to_owned() + &"}]".repeat(100_000));
        let text = format!(r#"{{"items": [{{"x": {deep}}}], "y": {deep}}}"#);
        assert_eq!(list(&text, &[4096]).unwrap().0.len(), 1);

        let mut scanner = ListScanner::new();
        scanner.scan(b"{\"items\": [{\"a\": \"").unwrap();
        let piece = vec![b'<'; 1 << 20];
        let scanned: Result<Vec<_>, _> = (0..40).map(|_| scanner.scan(&piece)).collect();
        assert_eq!(scanned, Err(ListError::TooLarge));
        assert!(scanner.kept() <= MAX_OBJECT);
    }

    #[test]
    fn the_memory_of_a_large_object_is_given_back() {
        let mut scanner = ListScanner::new();
        let text = format!(r#"{{"items": [{{"a": "{}"}}, {{}}"#, "x".repeat(4 * SMALL));
        let (used, complete) = scanner.scan(text.as_bytes()).unwrap();
        assert!(complete && scanner.kept.capacity() > SMALL);
        scanner.scan(&text.as_bytes()[used..]).unwrap();
        assert_eq!(scanner.element(), b"{}");
        assert!(scanner.kept.capacity() <= SMALL);
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let text = "[a-z\\\\\"{}\\[\\],:<ü\n]{0,9}";
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|b| json!(b)),
            any::<i32>().prop_map(|n| json!(n)),
            text.prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(4, 24, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(|list| json!(list)),
                prop::collection::btree_map(text, inner, 0..5).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_parser_finds(
            items in prop::collection::vec(prop::collection::btree_map("[a-z]{1,5}", value(), 0..4), 0..6),
            others in prop::collection::vec(value(), 0..3),
            next in "[a-z\"\\\\]{0,8}",
            place in 0..4usize,
            is_pretty in any::<bool>(),
            lengths in prop::collection::vec(1..40usize, 1..8),
        ) {
            let print = |value: &serde_json::Value| match is_pretty {
                true => serde_json::to_string_pretty(value).unwrap(),
                false => value.to_string(),
            };
            let mut fields: Vec<String> = others.iter().enumerate()
                .map(|(n, other)| format!("\"o{n}\": {}", print(other))).collect();
            fields.insert(place.min(fields.len()), format!("\"items\":{}", print(&json!(items))));
            fields.insert(place.min(1), format!("\"metadata\" : {}", print(&json!({"continue": next}))));
            let text = format!("{{{}}}", fields.join(","));
            let (found, page) = list(&text, &lengths).unwrap();
            let found: Vec<serde_json::Value> =
                found.iter().map(|element| serde_json::from_str(element).unwrap()).collect();
            let items: Vec<serde_json::Value> = items.iter().map(|item| json!(item)).collect();
            prop_assert_eq!(found, items);
            prop_assert_eq!(page.next, next);
        }

        #[test]
        fn scans_any_bytes_in_bounded_memory(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            lengths in prop::collection::vec(1..40usize, 1..8),
        ) {
            drop(scan(ListScanner::new(), &bytes, &lengths));
            drop(scan(ListScanner::for_object(), &bytes, &lengths));
        }
    }
}
