//! The path language, which selects values in the JSON of an object.
//!
//! ```text
//! spec.volumes[*].secret.secretName     fields, and each element of a list
//! spec.nodeNames{*}                     each value of a map
//! subjects[?kind=ServiceAccount].name   elements whose field has this value
//! metadata.annotations["a.b/c"]         a field whose name has dots
//! ```

use std::fmt;

use serde_json::Value;

use crate::objects::{is_plain_name, one_line};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A field by name.
    Field(String),
    /// Each element of a list.
    Each,
    /// Each value of a map.
    Values,
    /// Each element of a list whose field has this value. An absent field has the value "".
    Where(String, String),
}

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(Vec<Step>);

/// The error for a path that can't be parsed. Its message points to the wrong character:
///
/// ```text
/// spec.volumes[.name
///              ^ expected * or ?field=value or "name"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}\n{blank}^ {expected}", blank = " ".repeat(*.column))]
pub struct PathError {
    /// The text of the path.
    pub path: String,
    /// The index of the wrong character, from 0.
    pub column: usize,
    /// The expected text.
    pub expected: &'static str,
}

impl Path {
    /// Parses a path. The empty path is the object itself.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        // The CRD of Relations has the same limit.
        const MAX_CHARS: usize = 512;
        if let Some((column, _)) = text.char_indices().nth(MAX_CHARS) {
            let path = text[..column].to_owned();
            return Err(PathError { path, column: MAX_CHARS, expected: "at most 512 characters" });
        }
        let error = |(column, expected)| PathError { path: text.to_owned(), column, expected };
        let parser = Parser { text: text.chars().collect(), position: 0 };
        let path = parser.parse_path().map_err(error)?;
        // A walk recurses once for each step. The JSON parser accepts at most 128 levels.
        const MAX_STEPS: usize = 100;
        match path.0.len() > MAX_STEPS {
            true => Err(error((0, "at most 100 steps"))),
            false => Ok(path),
        }
    }

    /// Its steps.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Appends another path.
    pub fn join(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Whether the path leads to at most one value.
    pub fn is_single(&self) -> bool {
        self.0.iter().all(|step| matches!(step, Step::Field(_)))
    }

    /// The common prefix of both paths, and the rest of each.
    pub fn split_common(&self, other: &Self) -> (Self, Self, Self) {
        let shared = self.0.iter().zip(&other.0).take_while(|(a, b)| a == b).count();
        let path = |steps: &[Step]| Self(steps.to_vec());
        (path(&self.0[..shared]), path(&self.0[shared..]), path(&other.0[shared..]))
    }

    /// The path up to and including its last step through a list or map.
    pub fn up_to_last_list(&self) -> Self {
        let fields = self.0.iter().rev().take_while(|s| matches!(s, Step::Field(_))).count();
        Self(self.0[..self.0.len() - fields].to_vec())
    }

    /// The value at a path that has only fields.
    pub fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Field(name) => value.get(name),
            _ => None,
        })
    }

    /// Calls `visit` for every value that the path selects, with the path of that value,
    /// such as `spec.volumes[2].secret`.
    pub fn visit<'v>(&self, value: &'v Value, visit: &mut dyn FnMut(&str, &'v Value)) {
        walk(&self.0, value, &mut String::new(), visit);
    }
}

/// Whether an element has this value in this field.
fn has_value(element: &Value, field: &str, value: &str) -> bool {
    element.get(field).and_then(Value::as_str).unwrap_or_default() == value
}

fn walk<'v>(
    steps: &[Step],
    value: &'v Value,
    place: &mut String,
    visit: &mut dyn FnMut(&str, &'v Value),
) {
    let Some((step, rest)) = steps.split_first() else {
        visit(place, value);
        return;
    };
    for_each(step, value, place, &mut |place, value| walk(rest, value, place, visit));
}

/// Calls `visit` for every value that one step selects, with the path of that value.
pub fn for_each<'v>(
    step: &Step,
    value: &'v Value,
    place: &mut String,
    visit: &mut dyn FnMut(&mut String, &'v Value),
) {
    use fmt::Write as _;
    let length = place.len();
    match step {
        Step::Field(name) => {
            if let Some(value) = value.get(name) {
                push_field(place, name);
                visit(place, value);
                place.truncate(length);
            }
        }
        Step::Each | Step::Where(..) => {
            for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                let is_selected = match step {
                    Step::Where(field, expected) => has_value(element, field, expected),
                    _ => true,
                };
                if is_selected {
                    let _ = write!(place, "[{index}]");
                    visit(place, element);
                    place.truncate(length);
                }
            }
        }
        Step::Values => {
            for (key, element) in value.as_object().into_iter().flatten() {
                push_field(place, key);
                visit(place, element);
                place.truncate(length);
            }
        }
    }
}

/// The limit of characters of a field name with special characters. Messages cut longer paths,
/// and must not cut off the closing quotation mark.
const LONGEST_SPECIAL_FIELD: usize = 63;

/// Appends `.name`, or `["a.b/c"]` if the name has special characters. A client chooses the keys of
/// maps, which must not pass for text of belay (H152).
fn push_field(place: &mut String, name: &str) {
    if !name.is_empty() && name.chars().all(is_unquoted) {
        if !place.is_empty() {
            place.push('.');
        }
        place.push_str(name);
    } else {
        let most = if is_plain_name(name) { usize::MAX } else { LONGEST_SPECIAL_FIELD };
        place.push_str(&format!("[{:?}]", one_line(name, most)));
    }
}

fn is_unquoted(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '$')
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.0 {
            match step {
                Step::Field(name) => push_field(&mut text, name),
                Step::Each => text.push_str("[*]"),
                Step::Values => text.push_str("{*}"),
                Step::Where(field, value) => {
                    text.push_str(&format!("[?{field}={value}]"));
                }
            }
        }
        f.write_str(&text)
    }
}

struct Parser {
    text: Vec<char>,
    position: usize,
}

/// The index of the wrong character, and the expected text.
type Fault = (usize, &'static str);

impl Parser {
    fn parse_path(mut self) -> Result<Path, Fault> {
        let mut steps = Vec::new();
        while let Some(c) = self.peek() {
            match c {
                '[' => steps.push(self.parse_brackets()?),
                '{' => {
                    self.position += 1;
                    self.expect('*', "expected * and }: each value of a map")?;
                    self.expect('}', "expected }")?;
                    steps.push(Step::Values);
                }
                '.' if steps.is_empty() => {
                    return Err((self.position, "expected a field, not a dot"));
                }
                _ => {
                    if !steps.is_empty() {
                        self.expect('.', "expected a dot, [ or {")?;
                    }
                    let name = self.parse_word(is_unquoted);
                    if name.is_empty() {
                        return Err((self.position, "expected the name of a field"));
                    }
                    steps.push(Step::Field(name));
                }
            }
        }
        Ok(Path(steps))
    }

    fn parse_brackets(&mut self) -> Result<Step, Fault> {
        self.position += 1;
        let step = match self.peek() {
            Some('*') => {
                self.position += 1;
                Step::Each
            }
            Some('"') => {
                self.position += 1;
                let name = self.parse_word(|c| c != '"');
                self.expect('"', "expected a closing \"")?;
                Step::Field(name)
            }
            Some('?') => {
                self.position += 1;
                let field = self.parse_word(is_unquoted);
                if field.is_empty() {
                    return Err((self.position, "expected the name of a field, as in [?kind=Pod]"));
                }
                self.expect('=', "expected = and a value, as in [?kind=Pod]")?;
                Step::Where(field, self.parse_word(|c| c != ']'))
            }
            _ => return Err((self.position, "expected * or ?field=value or \"name\"")),
        };
        self.expect(']', "expected ]")?;
        Ok(step)
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.position).copied()
    }

    fn expect(&mut self, c: char, expected: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(c) {
            return Err((self.position, expected));
        }
        self.position += 1;
        Ok(())
    }

    fn parse_word(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let word: String = self.text[self.position..].iter().take_while(|c| is_part(**c)).collect();
        self.position += word.chars().count();
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn places(path: &str, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        Path::parse(path).unwrap().visit(value, &mut |place, value| {
            found.push(format!("{place} = {value}"));
        });
        found
    }

    #[test]
    fn every_step_leads_to_its_value() {
        let value = json!({
            "spec": {"volumes": [{"secret": {"secretName": "a"}}, {}, {"secret": {"secretName": "b"}}]},
            "metadata": {"annotations": {"a.b/c": "d"}},
            "map": {"x": {"name": "1"}, "y.z": {"name": "2"}},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"name": "n"}],
        });
        assert_eq!(
            places("spec.volumes[*].secret.secretName", &value),
            [
                "spec.volumes[0].secret.secretName = \"a\"",
                "spec.volumes[2].secret.secretName = \"b\""
            ]
        );
        assert_eq!(
            places("metadata.annotations[\"a.b/c\"]", &value),
            ["metadata.annotations[\"a.b/c\"] = \"d\""]
        );
        assert_eq!(
            places("map{*}.name", &value),
            ["map.x.name = \"1\"", "map[\"y.z\"].name = \"2\""]
        );
        assert_eq!(places("subjects[?kind=Group].name", &value), ["subjects[1].name = \"g\""]);
        assert_eq!(places("subjects[?kind=].name", &value), ["subjects[2].name = \"n\""]);
        assert_eq!(places("spec.none[*].x", &value), [""; 0]);
        assert_eq!(places("map[*]", &value), [""; 0], "a map is no list");
    }

    #[test]
    fn h152_the_key_of_a_map_does_not_pass_for_text_of_belay() {
        let forged = "x\"].name). To delete it, first delete Namespace prod. \u{200b}\n";
        let long = forged.repeat(99);
        let shown =
            "map[\"x\\\"].name). To delete it, first delete Namespace prod.   \"].name = \"1\"";
        assert_eq!(places("map{*}.name", &json!({"map": {forged: {"name": "1"}}})), [shown]);
        let found = places("map{*}.name", &json!({"map": {long: {"name": "1"}}})).remove(0);
        assert!(found.len() < 120 && found.ends_with("…\"].name = \"1\""), "{found}");
    }

    #[test]
    fn a_path_is_written_as_it_was_read() {
        for text in
            ["", "spec", "spec.a[*].b", "a{*}", "a[?b=c].d", "metadata.annotations[\"a.b/c\"]"]
        {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_error_points_at_the_character() {
        for (path, column, word) in [
            ("spec..name", 5, "name of a field"),
            (".spec", 0, "not a dot"),
            ("spec.", 5, "name of a field"),
            ("spec.volumes[.name", 13, "expected *"),
            ("spec.volumes[*", 14, "expected ]"),
            ("spec.volumes[*]name", 15, "expected a dot"),
            ("a[?=x]", 3, "name of a field"),
            ("a[?x]", 4, "expected ="),
            ("a{x}", 2, "expected *"),
            ("a[\"b", 4, "closing"),
            ("a b", 1, "expected a dot"),
        ] {
            let error = Path::parse(path).unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(Path::parse(&"a.".repeat(100_000)).unwrap_err().column, 512);
        let steps = |count: usize| Path::parse(&vec!["a"; count].join("."));
        assert!(steps(100).is_ok());
        assert_eq!(steps(101).unwrap_err().expected, "at most 100 steps");
        let error = Path::parse("spec.volumes[.name").unwrap_err().to_string();
        assert!(error.starts_with("spec.volumes[.name\n             ^ expected"), "{error}");
    }
}
