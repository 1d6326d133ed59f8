//! Each alert has a runbook, and each runbook has an alert.

use std::collections::BTreeSet;

use crate::pages::{files, read};

pub const RULES: &str = "charts/belay/templates/prometheusrule.yaml";

#[test]
fn each_alert_has_a_runbook_and_the_other_way_round() {
    let rules = read(RULES);
    let mut alerts = BTreeSet::new();
    for alert in rules.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap().trim();
        let url = format!("runbook_url: {{{{ $runbooks }}}}/{name}.md");
        assert!(alert.lines().any(|line| line.trim() == url), "{name} does not say {url}");
        for part in ["severity: ", "summary: ", "description: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        alerts.insert(name.to_owned());
    }
    assert!(alerts.len() > 11, "{alerts:?}");

    let runbooks = files("docs/runbooks", "md").into_iter();
    let runbooks: BTreeSet<String> = runbooks
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "README")
        .collect();
    assert_eq!(alerts, runbooks);

    let contents = read("docs/runbooks/README.md");
    for name in runbooks {
        let text = read(&format!("docs/runbooks/{name}.md"));
        assert!(text.starts_with(&format!("# {name}\n")), "{name} has another title");
        let parts = ["Symptom", "Impact", "Check", "Fix", "Urgency"];
        let headings: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, parts, "{name}");
        assert!(
            contents.contains(&format!("[{name}]({name}.md)")),
            "{name} is not in the contents"
        );
    }
}
