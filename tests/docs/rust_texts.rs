//! The comments and the strings in Rust code.

/// A part of Rust code.
enum Part {
    /// A comment without its slashes, and the number of its line.
    Comment(usize, String),
    /// The content of a string, with its escapes.
    String(String),
}

/// Comments. Those in adjacent lines are one.
pub fn comments(code: &str) -> Vec<String> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    for part in parts(code) {
        let Part::Comment(line, text) = part else { continue };
        match comments.last_mut() {
            Some((last, comment)) if *last + 1 == line => {
                *last = line;
                comment.push('\n');
                comment.push_str(&text);
            }
            _ => comments.push((line, text)),
        }
    }
    comments.into_iter().map(|(_, comment)| comment).collect()
}

/// Strings before the unit tests of a file.
pub fn strings(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let strings = parts(code).into_iter().filter_map(|part| match part {
        Part::String(text) => Some(text),
        Part::Comment(..) => None,
    });
    strings.collect()
}

fn parts(code: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = code;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        let length = if let Some(comment) = rest.strip_prefix("//") {
            let text = comment.lines().next().unwrap_or_default();
            parts.push(Part::Comment(line, text.trim_start_matches(['/', '!']).to_owned()));
            2 + text.len()
        } else if let Some((content, length)) = raw_string(rest) {
            parts.push(Part::String(content.to_owned()));
            length
        } else if let Some(string) = rest.strip_prefix('"') {
            let end = end_of_string(string);
            parts.push(Part::String(joined(&string[..end])));
            end + 2
        } else if c == '\'' {
            character(rest)
        } else {
            // A raw string begins no word: `for"` is none.
            let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            word.max(c.len_utf8())
        };
        let (read, left) = rest.split_at(length.min(rest.len()));
        line += read.matches('\n').count();
        rest = left;
    }
    parts
}

/// The content of a raw string at the start of some code, and the length of the whole.
fn raw_string(code: &str) -> Option<(&str, usize)> {
    let hashes = code.strip_prefix("br").or_else(|| code.strip_prefix('r'))?;
    let string = hashes.trim_start_matches('#');
    let end = format!("\"{}", &hashes[..hashes.len() - string.len()]);
    let content = string.strip_prefix('"')?.split(&end).next().unwrap_or_default();
    Some((content, code.len() - string.len() + 1 + content.len() + end.len()))
}

/// Where a string ends whose opening quote is read.
fn end_of_string(string: &str) -> usize {
    let mut escaped = false;
    let end = string.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.unwrap_or(string.len())
}

/// A string without the line breaks that its code escapes.
fn joined(string: &str) -> String {
    let mut lines = string.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start()).replace("\\n", "\n")
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(code: &str) -> usize {
    let mut chars = code.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => code[3..].find('\'').map_or(1, |end| end + 4),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 1,
    }
}

#[test]
fn comments_and_strings_are_found() {
    let code = "//! One\n//! comment.\n\nfn f<'a>(c: char) { // another\n  let x = (\"a \\\n     \
                b\\\"//\", '\"', '\\'', r#\"c\"d\"#, br\"e\"); /// third\n}\n\
                #[cfg(test)]\nmod tests {\n  \"no\" // fourth\n}";
    assert_eq!(comments(code), [" One\n comment.", " another", " third", " fourth"]);
    assert_eq!(strings(code), ["a b\\\"//", "c\"d", "e"]);
}
