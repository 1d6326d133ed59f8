//! The picture as SVG.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::fate::Style;
use super::layout::{Layout, Point, Size, place};
use super::{MAX_TEXT, Picture, PictureNode};
use crate::command::xml;
use crate::objects::{one_line, without_controls};

/// The style sheet for the classes in the drawing.
pub const CSS: &str = include_str!("graph.css");

/// The width of a character and the height of a line, in a box and on an edge.
const BOX_TEXT: Size = (7.3, 16.0);
const EDGE_TEXT: Size = (6.1, 12.0);

/// The space around the text of a box. The sides of some boxes are slanted.
const PADDING: Size = (44.0, 14.0);

/// The space around the text of an edge.
const EDGE_PADDING: Size = (24.0, 2.0);

/// The maximum width and number of the lines on an edge.
const EDGE_LINE: usize = 30;
const MAX_EDGE_LINES: usize = 4;

const MARGIN: f64 = 10.0;

/// The drawing. Writing into a String cannot fail.
pub fn svg(picture: &Picture) -> String {
    let lines: Vec<_> = picture.nodes.iter().map(PictureNode::lines).collect();
    let labels: Vec<Vec<String>> = picture.edges.iter().map(|edge| wrap(&edge.label)).collect();
    let boxes = lines.iter().map(|lines| size(lines, BOX_TEXT, PADDING));
    let texts = labels.iter().map(|lines| size(lines, EDGE_TEXT, EDGE_PADDING));
    let boxes: Vec<Size> = boxes.chain(texts).collect();
    // The text of an edge is placed as a box between the two objects, so an edge has two halves.
    let count = picture.nodes.len();
    let halves = picture.edges.iter().enumerate();
    let halves =
        halves.flat_map(|(index, edge)| [(edge.to, count + index), (count + index, edge.from)]);
    let Layout { mut points, mut routes, size: (width, height) } =
        place(&boxes, &halves.collect::<Vec<_>>());
    for point in points.iter_mut().chain(routes.iter_mut().flatten()) {
        *point = (point.0 + MARGIN, point.1 + MARGIN);
    }
    let (width, height) = (width + 2.0 * MARGIN, height + 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n<style>{CSS}</style>\n\
         <title>{}</title>\n\
         <defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#57606a\"/></marker>\
         </defs>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        escape(&picture.title, MAX_TEXT)
    );
    for (index, edge) in picture.edges.iter().enumerate() {
        // From the object to the object that its field names.
        let halves = routes[2 * index].iter().chain(&routes[2 * index + 1]);
        let route: Vec<Point> = halves.rev().copied().collect();
        let class = if edge.is_weak { "edge weak" } else { "edge" };
        let _ = write!(
            text,
            "<g class=\"{class}\" data-from=\"n{}\" data-to=\"n{}\"><title>{}</title>\
             <path marker-end=\"url(#head)\" d=\"{}\"/>",
            edge.from,
            edge.to,
            escape(&edge.label, MAX_TEXT),
            curve(&route)
        );
        add_lines(&mut text, points[count + index], EDGE_TEXT.1, &labels[index], |_| "label");
        text.push_str("</g>\n");
    }
    for (index, node) in picture.nodes.iter().enumerate() {
        let style = node.fate.style();
        let target = if node.is_target { " target" } else { "" };
        let uncertain = if node.is_uncertain() { " uncertain" } else { "" };
        let note = if node.note.is_empty() { String::new() } else { format!("; {}", node.note) };
        let title = format!("{} {}{note}", node.word, node.label);
        let _ = write!(
            text,
            "<g class=\"node {}{target}{uncertain}\" id=\"n{index}\" data-kind=\"{}\">\
             <title>{}</title><path class=\"outline\" fill=\"{}\" stroke=\"{}\" d=\"{}\"/>",
            style.name,
            escape(&node.kind, MAX_TEXT),
            escape(&title, 2 * MAX_TEXT),
            style.fill,
            style.stroke,
            outline(points[index], boxes[index], &style)
        );
        let begin = usize::from(node.word.is_empty());
        let class = |line: usize| ["word", "label", "detail"][(line + begin).min(2)];
        add_lines(&mut text, points[index], BOX_TEXT.1, &lines[index], class);
        text.push_str("</g>\n");
    }
    text + "</svg>\n"
}

/// The size of a box with this text.
fn size(lines: &[impl AsRef<str>], character: Size, padding: Size) -> Size {
    let width = lines.iter().map(|line| line.as_ref().width()).max().unwrap_or_default();
    (number(width) * character.0 + padding.0, number(lines.len()) * character.1 + padding.1)
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(0.0, f64::from)
}

/// The lines of a field on an edge. A path is broken before a dot.
fn wrap(label: &str) -> Vec<String> {
    let label = without_controls(label);
    let mut lines = vec![String::new()];
    for part in label.split_inclusive(['.', ' ']) {
        for piece in part.chars().collect::<Vec<_>>().chunks(EDGE_LINE) {
            let piece: String = piece.iter().collect();
            match lines.last_mut() {
                Some(line) if line.width() + piece.width() <= EDGE_LINE => line.push_str(&piece),
                _ => lines.push(piece),
            }
        }
    }
    if lines.len() > MAX_EDGE_LINES {
        lines.truncate(MAX_EDGE_LINES - 1);
        lines.push("…".to_owned());
    }
    lines
}

/// Adds lines of text around a centre.
fn add_lines<'c>(
    text: &mut String,
    (x, y): Point,
    height: f64,
    lines: &[impl AsRef<str>],
    class: impl Fn(usize) -> &'c str,
) {
    let top = y - number(lines.len()) * height / 2.0;
    for (index, line) in lines.iter().enumerate() {
        // The base line is a bit higher than the end of the line.
        let y = top + (number(index) + 0.8) * height;
        let _ = write!(
            text,
            "<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
            class(index),
            escape(line.as_ref(), MAX_TEXT)
        );
    }
}

/// A curve through the points.
fn curve(points: &[Point]) -> String {
    let Some((x, y)) = points.first() else { return String::new() };
    let mut path = format!("M{x:.1} {y:.1}");
    for pair in points.windows(2) {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        let middle = (x0 + x1) / 2.0;
        let _ = write!(path, "C{middle:.1} {y0:.1} {middle:.1} {y1:.1} {x1:.1} {y1:.1}");
    }
    path
}

/// The outline of a box.
pub fn outline((x, y): Point, (width, height): Size, style: &Style) -> String {
    let (left, right, top, bottom) =
        (x - width / 2.0, x + width / 2.0, y - height / 2.0, y + height / 2.0);
    if style.radius > 0 {
        let r = f64::from(style.radius).min(height / 2.0);
        return format!(
            "M{:.1} {top:.1}H{:.1}A{r:.1} {r:.1} 0 0 1 {right:.1} {:.1}V{:.1}A{r:.1} {r:.1} 0 0 1 \
             {:.1} {bottom:.1}H{:.1}A{r:.1} {r:.1} 0 0 1 {left:.1} {:.1}V{:.1}A{r:.1} {r:.1} 0 0 1 \
             {:.1} {top:.1}z",
            left + r,
            right - r,
            top + r,
            bottom - r,
            right - r,
            left + r,
            bottom - r,
            top + r,
            left + r
        );
    }
    let [a, b, c] = style.slant.map(|slant| slant * height);
    let (d, e, f) = if style.parallel { (c, b, a) } else { (a, b, c) };
    format!(
        "M{:.1} {top:.1}H{:.1}L{:.1} {y:.1}L{:.1} {bottom:.1}H{:.1}L{:.1} {y:.1}z",
        left + a,
        right - d,
        right - e,
        right - f,
        left + c,
        left + b
    )
}

/// A text of users on one line, with at most this many characters.
pub fn escape(text: &str, most: usize) -> String {
    xml::escape(&one_line(text, most))
}
