//! Draws the ratios to the constant answer as bars.

use std::fmt::Write as _;

use crate::table::ratio;
use crate::webhooks::{Results, Sample};

/// The colours of the servers after the first. They differ in brightness, too.
const COLOURS: [&str; 3] = ["#0b5394", "#e69138", "#b7b7b7"];

/// The width of a panel of bars, and its distance from the next one.
const PANEL: usize = 270;
const GAP: usize = 70;
/// The left edge of the first panel, and the upper edge of the first bar.
const LEFT: usize = 160;
const TOP: usize = 70;
/// The height of a bar, and the space between two reviews.
const BAR: usize = 13;
const SPACE: usize = 12;

/// Two panels: requests per second, and CPU time.
pub fn svg(results: &Results) -> String {
    let group = BAR * COLOURS.len() + SPACE;
    let height = TOP + group * results.reviews.len() + 10;
    let width = LEFT + 2 * (PANEL + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (index, (server, colour)) in results.servers[1..].iter().zip(COLOURS).enumerate() {
        let (x, name) = (LEFT + 150 * index, server.name);
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"18\">{name}</text>", x + 18);
    }
    for (row, review) in results.reviews.iter().enumerate() {
        let y = TOP + group * row + group / 2;
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{review}</text>", LEFT - 8);
    }
    panel(&mut svg, results, LEFT, "reviews per second, constant answer = 1", |s| s.per_second);
    let right = LEFT + PANEL + GAP;
    panel(&mut svg, results, right, "CPU time of a review, constant answer = 1", |s| s.cpu);
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, results: &Results, left: usize, title: &str, value: fn(&Sample) -> f64) {
    let group = BAR * COLOURS.len() + SPACE;
    let ratios: Vec<Vec<f64>> = (0..results.reviews.len())
        .map(|review| {
            let servers = results.servers[1..].iter();
            servers.map(|server| ratio(results, server, review, value)).collect()
        })
        .collect();
    let largest = ratios.iter().flatten().copied().fold(1.0, f64::max);
    let scale = PANEL as f64 / largest;
    let _ = writeln!(svg, "<text x=\"{left}\" y=\"44\" font-weight=\"bold\">{title}</text>");
    for (row, ratios) in ratios.iter().enumerate() {
        for (index, (ratio, colour)) in ratios.iter().zip(COLOURS).enumerate() {
            let (y, width) = (TOP - 14 + group * row + BAR * index, ratio * scale);
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"10\">{ratio:.2}</text>",
                BAR - 1,
                left as f64 + width + 4.0,
                y + BAR - 3,
            );
        }
    }
    let (x, bottom) = (left as f64 + scale, TOP - 14 + group * results.reviews.len());
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#cc0000\"/>",
        TOP - 18
    );
}
