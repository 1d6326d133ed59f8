//! Text from clients in the output of belay.

use std::borrow::Cow;

/// The longest name of a Kubernetes object.
pub const LONGEST_NAME: usize = 253;

/// A text from a client on one line with at most this many characters: for messages,
/// Events, statuses and logs.
pub fn one_line(text: &str, most: usize) -> Cow<'_, str> {
    // Most texts are ASCII, and `is_control` is slow.
    let is_printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if text.len() <= most && (is_printable(text) || !text.chars().any(is_control)) {
        return Cow::Borrowed(text);
    }
    let mut shown = printable_chars(text).take(most + 1).collect::<String>();
    if let Some((end, _)) = shown.char_indices().nth(most) {
        let last = shown[..end].char_indices().next_back().map_or(0, |(at, _)| at);
        shown.truncate(last);
        shown.push('…');
    }
    Cow::Owned(shown)
}

/// A name from a client on one line, for messages.
pub fn one_line_name(name: &str) -> Cow<'_, str> {
    one_line(name, LONGEST_NAME)
}

/// Whether a text has only the characters of Kubernetes' kinds and names. Other text from a client
/// may look like a part of belay's sentence.
pub fn is_plain_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:_/".contains(&b))
}

/// A name from a client. It gets quotation marks if it could pass for text of belay (H138).
pub fn quote_if_ambiguous(name: &str) -> Cow<'_, str> {
    if is_plain_name(name) {
        one_line_name(name)
    } else {
        format!("{:?}", one_line_name(name)).into()
    }
}

/// The number of things: `1 object`, `4 objects`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The number of things that a list leaves out: `4 more users`.
pub fn more(count: usize, noun: &str) -> String {
    counted(count, &format!("more {noun}"))
}

/// ` and 4 more users`, for the end of a list; empty if the list leaves out nothing.
pub fn and_more(count: usize, noun: &str) -> String {
    if count == 0 { String::new() } else { format!(" and {}", more(count, noun)) }
}

/// A text with a space for each control character.
pub fn without_controls(text: &str) -> String {
    printable_chars(text).collect()
}

fn printable_chars(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| if is_control(c) { ' ' } else { c })
}

/// Whether a character controls a terminal or a log, or is invisible: control characters, line
/// breaks, and characters that have no width or change the direction of text.
pub fn is_control(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}')
        || matches!(c, '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{ffa0}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text before the next step of a message.
pub const NEXT_STEP_SEPARATOR: &str = "; next: ";

/// A word in the quoting of a shell: users copy commands from messages, and names of RBAC
/// kinds may have any characters. This function splits [`NEXT_STEP_SEPARATOR`] in a word, so that
/// a client can't forge a next step.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => {
            let quoted = word.replace('\'', "'\\''").replace(NEXT_STEP_SEPARATOR, ";'' next: ");
            format!("'{quoted}'")
        }
    }
}

/// The option ` -n db` of a command; empty for a cluster-scoped object.
pub fn namespace_option(namespace: &str) -> String {
    match namespace {
        "" => String::new(),
        _ => format!(" -n {}", shell_word(&one_line_name(namespace))),
    }
}

/// ` in namespace db`; empty for a cluster-scoped object.
pub fn in_namespace(namespace: &str) -> String {
    match namespace {
        "" => String::new(),
        _ => format!(" in namespace {namespace}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_text_of_clients_to_one_line() {
        assert_eq!(one_line("plain", 5), "plain");
        assert_eq!(one_line("plain", 4), "pla…");
        assert_eq!(one_line("a\nb\u{1b}[2J\u{202e}c\u{2028}d", 99), "a b [2J c d");
        assert_eq!(one_line(&"ü".repeat(300), 253).chars().count(), 253);
        assert_eq!(one_line("üü", 2), "üü");
        assert_eq!(without_controls("a\tb"), "a b");
    }

    #[test]
    fn h181_invisible_characters_do_not_hide_in_a_name() {
        let invisible = "\u{ad}\u{34f}\u{180e}\u{200b}\u{200d}\u{2060}\u{2064}\u{feff}\u{e0041}";
        for c in invisible.chars() {
            assert_eq!(quote_if_ambiguous(&format!("a{c}b")), "\"a b\"", "{c:?}");
        }
    }

    #[test]
    fn h138_a_name_that_could_pass_for_text_of_belay_has_quotation_marks() {
        assert_eq!(quote_if_ambiguous("system:node-1.example/x"), "system:node-1.example/x");
        assert_eq!(quote_if_ambiguous("a. Now: delete\nb"), "\"a. Now: delete b\"");
    }
}
