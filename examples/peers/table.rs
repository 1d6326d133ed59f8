//! Prints the results as Markdown tables.

use std::fmt::Write as _;

use crate::webhooks::{Results, Sample, ServerResult};

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The median of the ratios to the first server, each within one round.
pub fn ratio(
    results: &Results,
    server: &ServerResult,
    review: usize,
    value: fn(&Sample) -> f64,
) -> f64 {
    let baseline = &results.servers[0].samples[review];
    let pairs = server.samples[review].iter().zip(baseline);
    median(pairs.map(|(sample, baseline)| value(sample) / value(baseline)).collect())
}

pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    let per_second = |value: f64| thousands(value);
    rows(&mut text, results, "reviews per second", |sample| sample.per_second, per_second);
    let cpu = |value: f64| format!("{value:.2}");
    rows(&mut text, results, "CPU seconds for 10,000 reviews", |sample| sample.cpu, cpu);
    text.push_str("| resident memory | at the start | at the end | peak |\n|---|---|---|---|\n");
    for ServerResult { name, memory: [start, end, peak], .. } in &results.servers {
        let _ = writeln!(text, "| {name} | {start:.0} MiB | {end:.0} MiB | {peak:.0} MiB |");
    }
    text
}

fn rows(
    text: &mut String,
    results: &Results,
    title: &str,
    value: fn(&Sample) -> f64,
    format: impl Fn(f64) -> String,
) {
    let names = results.servers.iter().map(|server| server.name).collect::<Vec<_>>().join(" | ");
    let _ = writeln!(text, "| {title} | {names} |\n|---|{}", "---|".repeat(results.servers.len()));
    for (review, name) in results.reviews.iter().enumerate() {
        let _ = write!(text, "| {name} |");
        for (index, server) in results.servers.iter().enumerate() {
            let median = format(median(server.samples[review].iter().map(value).collect()));
            let _ = match index {
                0 => write!(text, " {median} |"),
                _ => write!(text, " {median} (× {:.2}) |", ratio(results, server, review, value)),
            };
        }
        text.push('\n');
    }
    text.push('\n');
}

fn thousands(value: f64) -> String {
    let value = value.round() as u64;
    if value < 1_000 {
        value.to_string()
    } else {
        format!("{},{:03}", value / 1_000, value % 1_000)
    }
}
