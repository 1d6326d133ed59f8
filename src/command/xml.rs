//! Text in XML and HTML.

use std::fmt::Write as _;

/// Escapes text for elements and attributes. A character that XML 1.0 does not allow
/// becomes U+FFFD. Line ends and tabs are escaped, because attributes would turn them
/// into spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => {
                // Writing into a String cannot fail.
                let _ = write!(out, "&#{};", u32::from(c));
            }
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_of_users_is_escaped_in_markup() {
        for (text, written) in [
            ("plain", "plain"),
            ("a <b> & \"c\" 'd'", "a &lt;b&gt; &amp; &quot;c&quot; &apos;d&apos;"),
            ("]]>", "]]&gt;"),
            ("&amp;", "&amp;amp;"),
            ("a\nb\tc\rd", "a&#10;b&#9;c&#13;d"),
            ("\u{1b}[31m\u{0}\u{ffff}", "\u{fffd}[31m\u{fffd}\u{fffd}"),
            ("größer …", "größer …"),
        ] {
            assert_eq!(escape(text), written, "{text:?}");
        }
    }
}
