//! The names of code in the pages for contributors exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::pages::{Page, pages, text_below, top};

const PAGES: &[&str] = &[
    "CONTRIBUTING.md",
    "docs/ARCHITECTURE.md",
    "docs/PERFORMANCE.md",
    "docs/THEORY.md",
    "docs/THREATS.md",
];

const FOLDERS: [&str; 4] = ["benches", "examples", "src", "tests"];

fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_in_name)
}

/// The file, the path of a module or item, or the beginning of the name of a test.
fn exists(span: &str, code: &str, words: &BTreeSet<&str>) -> Option<bool> {
    let is_file = FOLDERS.iter().any(|folder| {
        let rest = span.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        rest.is_some_and(|rest| !rest.contains(['*', '…', ' ']))
    });
    if is_file {
        return Some(top().join(span).exists());
    }
    if span.contains("::") && span.split("::").all(is_name) {
        return Some(span.split("::").all(|name| words.contains(name)));
    }
    let beginning = span.strip_suffix('…').filter(|name| is_name(name) && name.contains('_'))?;
    Some(code.contains(&format!("fn {beginning}")))
}

#[test]
fn names_of_code_in_pages_exist() {
    let code = FOLDERS.map(|folder| text_below(&top().join(folder))).concat();
    let words: BTreeSet<&str> = code.split(|c| !is_in_name(c)).collect();
    let is_covered = |page: &Page| PAGES.iter().any(|path| page.path == Path::new(path));
    let (mut missing, mut count) = (Vec::new(), 0);
    for page in pages().into_iter().filter(is_covered) {
        for span in page.spans() {
            if let Some(exists) = exists(&span, &code, &words) {
                count += 1;
                if !exists {
                    missing.push(format!("{}: {span}", page.path.display()));
                }
            }
        }
    }
    assert!(count > 60, "{count}");
    assert!(missing.is_empty(), "names that do not exist:\n{}", missing.join("\n"));
}

#[test]
fn renamed_code_is_found() {
    let code = "mod graph { struct Graph; fn rule_holds() {} }";
    let words = code.split(|c| !is_in_name(c)).collect();
    for (span, expected) in [
        ("graph::Graph", Some(true)),
        ("graph::Gone", Some(false)),
        ("rule_…", Some(true)),
        ("no_rule_…", Some(false)),
        ("src/lib.rs", Some(true)),
        ("src/gone.rs", Some(false)),
        ("kubectl get pods", None),
    ] {
        assert_eq!(exists(span, code, &words), expected, "{span}");
    }
}
