//! The guide on refusals has all reasons, and quotes messages of belay.

use belay::decide::Reason;

use crate::pages::{Page, files, pages, read};

/// The next reason. A new reason does not compile until it is added here.
fn next(reason: Reason) -> Option<Reason> {
    match reason {
        Reason::Protected => Some(Reason::InUse),
        Reason::InUse => Some(Reason::NotEmpty),
        Reason::NotEmpty => Some(Reason::StillNeeded),
        Reason::StillNeeded => Some(Reason::WouldOrphan),
        Reason::WouldOrphan => Some(Reason::FinalizerGuarded),
        Reason::FinalizerGuarded => Some(Reason::Unknown),
        Reason::Unknown => None,
    }
}

fn page() -> Page {
    let is_it = |page: &Page| page.path.ends_with("guides/blocked.md");
    pages().into_iter().find(is_it).unwrap()
}

#[test]
fn every_reason_word_is_a_heading_with_what_to_do() {
    let text = page().text;
    let words = std::iter::successors(Some(Reason::Protected), |reason| next(*reason));
    for word in words.map(Reason::as_str) {
        let section = text.split_once(&format!("\n## {word}\n")).map(|(_, rest)| rest);
        let section = section.unwrap_or_else(|| panic!("{word} has no heading"));
        let section = section.split("\n## ").next().unwrap();
        for part in ["```text\n", "**To delete it:**"] {
            assert!(section.contains(part), "{word} has no {part}");
        }
    }
}

#[test]
fn quoted_refusals_match_those_of_belay() {
    let mut said = read("src/decide/unreadable.rs");
    for table in files("src/decide/tables", "yaml") {
        said.push_str(&std::fs::read_to_string(table).unwrap());
    }
    // A string in Rust can continue on the next line, and escapes its quotes. YAML doubles them.
    let lines = said.split("\\\n").map(str::trim_start).collect::<Vec<_>>();
    let said = lines.concat().replace("\\\"", "\"").replace("''", "'");
    let blocks = page().blocks();
    let quoted = blocks.iter().filter(|block| block.language == "text");
    let quoted: Vec<&String> = quoted.flat_map(|block| &block.lines).collect();
    assert!(quoted.len() > 7);
    for line in quoted {
        assert!(said.contains(line.as_str()), "no test has belay say: {line}");
    }
}
