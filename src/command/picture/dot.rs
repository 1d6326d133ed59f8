//! The picture for Graphviz.

use std::fmt::Write as _;

use super::{MAX_LABEL, MAX_TEXT, Picture};
use crate::objects::one_line;

/// The graph. Writing into a String cannot fail.
pub fn dot(picture: &Picture) -> String {
    let heading: Vec<String> = picture.heading().map(|line| escape(&line)).collect();
    let mut text = format!(
        "digraph belay {{\n  rankdir=RL; labelloc=t; label=\"{}\";\n  \
         node [style=filled fontname=monospace fontsize=11];\n  \
         edge [fontname=monospace fontsize=9];\n",
        heading.join("\\n")
    );
    for (index, node) in picture.nodes.iter().enumerate() {
        let style = node.fate.style();
        let lines: Vec<String> = node.lines().iter().map(|line| escape(line)).collect();
        let width = if node.is_target { " penwidth=3" } else { "" };
        let _ = writeln!(
            text,
            "  n{index} [label=\"{}\" {} fillcolor=\"{}\" color=\"{}\"{width} tooltip=\"{}\"];",
            lines.join("\\n"),
            style.dot,
            style.fill,
            style.stroke,
            escape(&one_line(&node.note, MAX_TEXT))
        );
    }
    for edge in &picture.edges {
        let dashed = if edge.is_weak { " style=dashed" } else { "" };
        let label = escape(&one_line(&edge.label, 2 * MAX_LABEL));
        let _ = writeln!(text, "  n{} -> n{} [label=\"{label}\"{dashed}];", edge.from, edge.to);
    }
    text + "}\n"
}

/// A text in a quoted string. Graphviz replaces sequences such as `\N`, and entities of HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('\\', "\\\\").replace('"', "\\\"")
}
