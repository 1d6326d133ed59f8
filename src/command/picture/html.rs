//! The picture as a page that requests nothing and runs only its own script. The page is also
//! well-formed XML, so that a test can compare its structure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::svg::{self, escape, outline, svg};
use super::{DrawnFate, MAX_TEXT, Picture};
use crate::objects::more;

const CSS: &str = include_str!("page.css");

const SCRIPT: &str = include_str!("page.js");

/// The page. Writing into a String cannot fail.
pub fn html(picture: &Picture) -> String {
    let heading: Vec<String> = picture.heading().map(|line| escape(&line, MAX_TEXT)).collect();
    let title = heading.first().map_or("", String::as_str);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src {}; \
         style-src {} {}; base-uri 'none'; form-action 'none'\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{title}</title>\n\
         <style>{CSS}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        hash(SCRIPT),
        hash(CSS),
        hash(svg::CSS)
    );
    for note in heading.iter().skip(1) {
        let _ = writeln!(text, "<p>{note}</p>");
    }
    add_legend(&mut text, picture);
    add_controls(&mut text, picture);
    let _ = write!(text, "<div class=\"graph\">\n{}</div>\n", svg(picture));
    add_members(&mut text, picture);
    let _ = write!(text, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
    text
}

/// The source expression of a script or style sheet in the content security policy.
pub fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

/// The fates in this picture with their shapes.
fn add_legend(text: &mut String, picture: &Picture) {
    text.push_str("<ul class=\"legend\">\n");
    for fate in
        DrawnFate::ALL.into_iter().filter(|fate| picture.nodes.iter().any(|n| n.fate == *fate))
    {
        let style = fate.style();
        let _ = writeln!(
            text,
            "<li><svg viewBox=\"0 0 44 22\"><path fill=\"{}\" stroke=\"{}\" d=\"{}\"/></svg>{}: {}</li>",
            style.fill,
            style.stroke,
            outline((22.0, 11.0), (40.0, 18.0), &style),
            style.name,
            style.meaning
        );
    }
    text.push_str(
        "<li>thick: the object that is asked about</li>\n<li>dashed, or a question mark: not \
         certain</li>\n<li>an arrow leads to the object that the field names</li>\n</ul>\n",
    );
}

/// The search, and a filter for each kind. Only the script can use them.
fn add_controls(text: &mut String, picture: &Picture) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &picture.nodes {
        *kinds.entry(&node.kind).or_default() += node.count;
    }
    text.push_str(
        "<div class=\"controls\" hidden=\"\">\n<label>Search <input class=\"search\" \
         type=\"search\"/></label> <output class=\"found\"></output>\n<fieldset class=\"kinds\">\n",
    );
    for (kind, count) in kinds {
        let value = escape(kind, MAX_TEXT);
        let name = if kind.is_empty() { "several kinds" } else { &value };
        let _ = writeln!(
            text,
            "<label><input type=\"checkbox\" value=\"{value}\" checked=\"\"/> {name} {count}</label>"
        );
    }
    text.push_str("</fieldset>\n</div>\n");
}

/// The members of each group.
fn add_members(text: &mut String, picture: &Picture) {
    for (index, node) in picture.nodes.iter().enumerate().filter(|(_, node)| node.count > 1) {
        let label = escape(&node.label, MAX_TEXT);
        let _ = write!(
            text,
            "<details id=\"members-n{index}\"><summary>{label}: {}</summary>\n<ul>\n",
            node.word
        );
        for member in &node.members {
            let _ = writeln!(text, "<li>{}</li>", escape(member, MAX_TEXT));
        }
        let rest = node.count - node.members.len();
        if rest > 0 {
            let _ = writeln!(text, "<li>… and {}</li>", more(rest, "object"));
        }
        text.push_str("</ul>\n</details>\n");
    }
}
