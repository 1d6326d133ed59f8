//! Draws the measurements of growth: one panel for each, with both axes logarithmic.

use std::fmt::Write as _;

use crate::growth::GrowthPoint;

/// The size of a panel, and the space around it.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 120.0;
const SPACE: f64 = 60.0;

/// A panel: what it shows, and the value of a point.
type Panel = (&'static str, fn(&GrowthPoint) -> f64);

const PANELS: [Panel; 6] = [
    ("start, s", |point| point.start.ready.as_secs_f64()),
    ("memory, MiB", |point| point.start.steady),
    ("peak memory, MiB", |point| point.start.peak),
    ("write to visible, p99, ms", |point| point.lag.quantile(0.99).as_secs_f64() * 1e3),
    ("denied DELETE, p50, ms", |point| point.denial.quantile(0.5).as_secs_f64() * 1e3),
    ("releases per second", |point| point.releases),
];

/// The panels, three in a row.
pub fn svg(points: &[GrowthPoint]) -> String {
    let (width, height) = (3.0 * (WIDTH + SPACE) + 20.0, 2.0 * (HEIGHT + SPACE) + 20.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (number, panel) in PANELS.iter().enumerate() {
        let left = SPACE + (number % 3) as f64 * (WIDTH + SPACE);
        let top = 30.0 + (number / 3) as f64 * (HEIGHT + SPACE);
        draw(&mut svg, points, *panel, (left, top));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, points: &[GrowthPoint], (title, value): Panel, (left, top): (f64, f64)) {
    let values: Vec<f64> = points.iter().map(|point| value(point).max(0.01)).collect();
    let lowest = values.iter().copied().fold(f64::MAX, f64::min).log10().floor();
    let highest = values.iter().copied().fold(0.01, f64::max).log10().ceil().max(lowest + 1.0);
    let bottom = top + HEIGHT;
    let y = |value: f64| bottom - (value.log10() - lowest) / (highest - lowest) * HEIGHT;
    let x = |number: usize| left + (number as f64 + 0.5) / points.len() as f64 * WIDTH;
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{title}</text>\n\
         <path d=\"M{left} {top}V{bottom}H{}\" fill=\"none\" stroke=\"#999999\"/>",
        top - 10.0,
        left + WIDTH
    );
    for power in lowest as i32..=highest as i32 {
        let value = 10_f64.powi(power);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666666\">{value}</text>",
            left - 5.0,
            y(value) + 4.0
        );
    }
    let mut line = String::new();
    for (number, (point, value)) in points.iter().zip(values).enumerate() {
        let (x, y) = (x(number), y(value));
        let _ = write!(line, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
        let digits = if value < 10.0 { 1 } else { 0 };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#0b5394\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.digits$}</text>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666666\">{}</text>",
            y - 6.0,
            bottom + 15.0,
            point.objects
        );
    }
    let _ = writeln!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"#0b5394\"/>");
}
