//! belay exposes all metrics that pages, alerts and the dashboard name.

use std::collections::BTreeSet;
use std::time::Duration;

use belay::telemetry::{FeedState, Metrics, ReviewLabels};

use crate::alerts::RULES;
use crate::pages::{pages, read};

const DASHBOARD: &str = "charts/belay/dashboards/belay.json";

/// The metrics in the text format. A metric with labels is absent before its first
/// count.
fn scraped() -> String {
    let metrics = Metrics::default();
    let labels = ReviewLabels {
        webhook: "validate",
        operation: "delete",
        verdict: "Deny",
        action: "Deny",
        subject_class: "user",
    };
    metrics.count_answered(&labels, Duration::ZERO);
    metrics.count_denied("p", "InUse", "Deny");
    metrics.count_bad_request(413);
    metrics.count_registration_repair("mutating");
    metrics.set_registration_missing("mutating", false);
    metrics.set_registration_changed("mutating", 0);
    metrics.count_hold_change("added", true);
    metrics.count_release("unused");
    metrics.count_live_read("ok", Duration::ZERO);
    metrics.count_live_review("delete");
    metrics.set_feed(&FeedState::default());
    metrics.set_unreadable(&[("pods".to_owned(), 1)]);
    metrics.encode()
}

/// The names of all series.
fn series() -> BTreeSet<String> {
    let text = scraped();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().unwrap_or_default().to_owned();
    series.map(name).collect()
}

/// The names of all series, and of histograms, which have no series of that name.
fn spoken_of() -> BTreeSet<String> {
    let text = scraped();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let histograms = types.filter_map(|line| line.strip_suffix(" histogram")).map(str::to_owned);
    series().into_iter().chain(histograms).collect()
}

/// Words with the prefix of belay's metrics.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    // "belay_*" means all metrics.
    let names = words.filter(|word| word.starts_with("belay_") && !word.ends_with('_'));
    names.map(str::to_owned).collect()
}

#[test]
fn exposes_each_metric_that_pages_and_rules_name() {
    let (series, spoken_of) = (series(), spoken_of());
    let asked = [RULES, DASHBOARD].map(|path| (path.to_owned(), read(path), &series));
    let pages = pages().into_iter();
    let pages = pages.map(|page| (page.path.display().to_string(), page.text, &spoken_of));
    let used: BTreeSet<String> = asked.iter().flat_map(|(_, text, _)| named(text)).collect();
    assert!(used.len() > 20, "{used:?}");
    let mut wrong = Vec::new();
    for (place, text, exposed) in asked.into_iter().chain(pages) {
        let unknown = named(&text).into_iter().filter(|name| !exposed.contains(name));
        wrong.extend(unknown.map(|name| format!("{place}: {name}")));
    }
    assert!(wrong.is_empty(), "belay exposes none of these: {wrong:#?}");
}

#[test]
fn the_dashboard_queries_one_installation_and_describes_its_panels() {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title} has an id of another");
        let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(targets.is_empty(), panel["type"] == "row", "{title}");
        for target in targets {
            let asks = target["expr"].as_str().unwrap();
            let narrowed = asks.matches("job=~\"$job\"").count();
            assert_eq!(narrowed, asks.matches("belay_").count(), "{title}: {asks}");
        }
    }
}
