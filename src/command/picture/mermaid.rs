//! The picture as Mermaid, which GitHub and GitLab draw in Markdown.

use std::fmt::Write as _;

use super::fate::Style;
use super::{DrawnFate, MAX_LABEL, Picture};
use crate::objects::one_line;

/// The graph. Writing into a String cannot fail.
pub fn mermaid(picture: &Picture) -> String {
    let mut text = "flowchart RL\n".to_owned();
    for (index, node) in picture.nodes.iter().enumerate() {
        let (begin, end) = node.fate.style().mermaid;
        let lines: Vec<String> = node.lines().iter().map(|line| escape(line)).collect();
        let _ = writeln!(text, "  n{index}{begin}\"{}\"{end}", lines.join("<br/>"));
    }
    for edge in &picture.edges {
        let label = escape(&one_line(&edge.label, 2 * MAX_LABEL));
        let arrow = if edge.is_weak { "-.->" } else { "-->" };
        let _ = match label.is_empty() {
            true => writeln!(text, "  n{} {arrow} n{}", edge.from, edge.to),
            false => writeln!(text, "  n{} {arrow}|\"{label}\"| n{}", edge.from, edge.to),
        };
    }
    // The title is outside of the graph, but a reader must see that the graph is incomplete.
    for (index, note) in picture.heading().skip(1).enumerate() {
        let _ = writeln!(text, "  note{index}>\"{}\"]", escape(&note));
    }
    let classes = DrawnFate::ALL.map(|fate| {
        let Style { name, fill, stroke, .. } = fate.style();
        let style = format!("fill:{fill},stroke:{stroke},color:#1f2328");
        (name, style, picture.node_names(|node| node.fate == fate))
    });
    let targets = picture.node_names(|node| node.is_target);
    let target = ("target", "stroke-width:4px".to_owned(), targets);
    for (name, style, nodes) in classes.into_iter().chain([target]) {
        if !nodes.is_empty() {
            let _ = writeln!(text, "  classDef {name} {style}\n  class {} {name}", nodes.join(","));
        }
    }
    text
}

/// A text in a quoted label. Mermaid reads entities, Markdown, comments and directives in labels,
/// so all characters except letters, digits and a few others become entities.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_alphanumeric() || " -./,()[]".contains(c) {
            true => escaped.push(c),
            false => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
        }
    }
    escaped
}
