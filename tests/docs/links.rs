//! The targets of all links between pages exist.

use std::path::Path;

use crate::pages::{pages, read, top};

/// The targets of the links in a text.
fn targets(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_somewhere() {
    let mut links = 0;
    for page in pages() {
        let folder = page.path.parent().unwrap_or(Path::new(""));
        for target in targets(&page.text) {
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let place = if file.is_empty() { page.path.clone() } else { folder.join(file) };
            let whole = top().join(&place);
            assert!(whole.exists(), "{}: {target} leads nowhere", page.path.display());
            if !heading.is_empty() {
                let text = read(&place.display().to_string());
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let found = headings.map(|line| anchor(line.trim_start_matches('#')));
                assert!(
                    found.into_iter().any(|found| found == heading),
                    "{}: {target} is no heading",
                    page.path.display()
                );
            }
        }
    }
    assert!(links > 50, "{links}");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = read("docs/README.md");
    for page in pages() {
        let Ok(path) = page.path.strip_prefix("docs") else { continue };
        let runbook = path.starts_with("runbooks") && !path.ends_with("README.md");
        if path == Path::new("README.md") || runbook {
            continue;
        }
        assert!(contents.contains(&format!("({})", path.display())), "{}", path.display());
    }
    assert!(read("README.md").contains("(docs/README.md)"), "README.md does not link the table");
}
