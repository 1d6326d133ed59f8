//! Finds the end of a JSON value, and its depth, without recursion.

/// The position inside a value.
#[derive(Debug, Default)]
pub(super) struct ValueState {
    depth: u64,
    /// The largest depth so far.
    deepest: u64,
    in_string: bool,
    is_escaped: bool,
}

impl ValueState {
    /// Returns how many of these bytes belong to the value, and whether the value ends there.
    pub(super) fn consume(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut index = 0;
        while let Some(byte) = bytes.get(index) {
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.in_string {
                let rest = bytes.get(index..).unwrap_or_default();
                let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { break };
                index += found;
                if bytes.get(index) == Some(&b'"') {
                    self.in_string = false;
                    if self.depth == 0 {
                        return (index + 1, true);
                    }
                } else {
                    self.is_escaped = true;
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => {
                        self.depth += 1;
                        self.deepest = self.deepest.max(self.depth);
                    }
                    // The byte after a number or a literal does not belong to the value.
                    b'}' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                        return (index, true);
                    }
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return (index + 1, true);
                        }
                    }
                    _ => {}
                }
            }
            index += 1;
        }
        (bytes.len(), false)
    }
}

/// The maximum nesting of an object that the API server can send as an event or in a review. The
/// JSON encoder of Go rejects deeper objects.
const MAX_NESTING: usize = 10_000;

/// Whether a JSON value is nested too deeply for the API server to send it in an event or a review
/// (H137). `levels` is the number of levels around the value.
pub fn is_too_deep(json: &str, levels: usize) -> bool {
    let limit = MAX_NESTING.saturating_sub(levels);
    let mut value = ValueState::default();
    json.len() > 2 * limit && {
        value.consume(json.as_bytes());
        value.deepest > limit as u64
    }
}
