//! Texts use the words of Kubernetes and Rust. The table [`RULES`] has the phrases that
//! they don't use, each with the words to write instead.
//!
//! `BELAY_LANGUAGE_OF=src,tests cargo test --test docs language` checks other paths than
//! [`COVERED`], and reports the findings by phrase and by folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::pages::{Page, top};
use crate::reference::{help, subcommands};
use crate::rust_texts;

/// The files and folders that the test covers. [`HELP`] stands for the help of all commands.
const COVERED: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches",
    "charts",
    "docs",
    "examples",
    "src",
    "tests",
    HELP,
];

/// The help of all commands, as an entry of [`COVERED`].
const HELP: &str = "belay --help";

/// The first line of help is at most this long.
const LONGEST_HELP: usize = 60;

/// Phrases that texts don't use.
struct Rule {
    phrases: &'static [&'static str],
    /// The words to write instead.
    write: &'static str,
    /// Longer phrases that are allowed.
    allowed: &'static [&'static str],
}

const fn rule(phrases: &'static [&'static str], write: &'static str) -> Rule {
    Rule { phrases, write, allowed: &[] }
}

const RULES: &[Rule] = &[
    rule(&["nobody"], "name who acts, or: no user, no controller, none, unknown"),
    rule(&["somebody", "whoever", "anybody"], "name who acts: the user, the controller"),
    rule(&["way out", "ways out"], "To delete it: …"),
    rule(&["let go", "lets go", "letting go"], "release"),
    rule(&["take off", "takes off", "taken off", "taking off", "took off"], "remove"),
    rule(
        &["take along", "takes along", "goes along", "go along", "gone along", "going along"],
        "delete as well, cascade to",
    ),
    rule(&["stands against", "stand against"], "blocks"),
    Rule { phrases: &["no more"], write: "no longer", allowed: &["no more than", "no more of"] },
    rule(&["made again", "made anew"], "re-created"),
    rule(&["told of", "tell of", "tells of"], "reports, lists, contains"),
    rule(&["is harm", "is itself harm", "be harm"], "is unsafe"),
    rule(&["by itself"], "automatically"),
    rule(&["rooms"], "modules, layers"),
    rule(&["early no"], "admission denial"),
];

/// A text that contains a phrase of [`RULES`] for a reason.
struct Exception {
    path: &'static str,
    /// A part of the text, with the phrase.
    text: &'static str,
    reason: &'static str,
}

const JSON_VALUE: &str = "a value of the JSON documents, which does not change within a version";

const EXCEPTIONS: &[Exception] = &[
    Exception { path: "docs/json.md", text: "`Nobody`:", reason: JSON_VALUE },
    Exception { path: "src/command/status/leader.rs", text: "Nobody", reason: JSON_VALUE },
];

/// A phrase in a text, or a help line that is too long.
struct Finding {
    path: String,
    phrase: &'static str,
    excerpt: String,
    write: &'static str,
}

/// The phrases of the rules in a text.
fn phrases(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = text.to_lowercase();
    // The positions are valid in both, unless lower-casing changes the length of a character.
    let excerpt_of = if lower.len() == text.len() { &text } else { &lower };
    for rule in RULES {
        for phrase in rule.phrases {
            for (at, _) in lower.match_indices(phrase) {
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                let before = lower[..at].chars().next_back();
                let after = lower[at + phrase.len()..].chars().next();
                let inside = before.is_some_and(is_word) || after.is_some_and(is_word);
                if inside || rule.allowed.iter().any(|allowed| lower[at..].starts_with(allowed)) {
                    continue;
                }
                let start = excerpt_of[..at].char_indices().rev().nth(30).map_or(0, |(at, _)| at);
                let excerpt = excerpt_of[start..].chars().take(80).collect();
                findings.push(Finding {
                    path: path.to_owned(),
                    phrase,
                    excerpt,
                    write: rule.write,
                });
            }
        }
    }
}

fn is_exception(exception: &Exception, finding: &Finding) -> bool {
    finding.path == exception.path && finding.excerpt.contains(exception.text)
}

/// The texts of a file: the prose of a page without the output of programs, the comments
/// and strings of Rust, and all of any other file.
fn texts(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(top().join(path)).unwrap();
    match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("md") => {
            let page = Page { path: PathBuf::from(path), text };
            let (blocks, prose) = page.parted();
            let blocks = blocks.into_iter().filter(|block| block.language != "text");
            blocks.map(|block| block.lines.join("\n")).chain([prose]).collect()
        }
        Some("rs") => {
            // Strings of tests quote the output of the program, which its own strings contain.
            let with_strings = !path.starts_with("tests/");
            rust_texts::comments(&text)
                .into_iter()
                .chain(with_strings.then(|| rust_texts::strings(&text)).into_iter().flatten())
                .collect()
        }
        _ => vec![text],
    }
}

/// The text files at a path, relative to the top of the repository.
fn files(path: &Path, found: &mut Vec<String>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        entries.for_each(|entry| files(&entry.unwrap().path(), found));
        return;
    }
    let known = ["md", "rs", "yaml", "json", "tpl", "txt"];
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    // The descriptions of the CRDs are generated from the doc comments in src/policy/api.
    if known.contains(&extension) && !path.starts_with(top().join("charts/belay/crds")) {
        found.push(path.strip_prefix(top()).unwrap().display().to_string());
    }
}

/// The first paragraphs of the help of a command and of its subcommands.
fn help_lines(command: &[String], found: &mut Vec<(String, String)>) {
    let help = help(command);
    let first = help.split("\n\n").next().unwrap_or_default();
    let name = [&["belay".to_owned()], command].concat().join(" ");
    found.push((name, first.split_whitespace().collect::<Vec<_>>().join(" ")));
    for subcommand in subcommands(&help) {
        help_lines(&[command, &[subcommand]].concat(), found);
    }
}

fn findings(covered: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in covered {
        if *path == HELP {
            let mut lines = Vec::new();
            help_lines(&[], &mut lines);
            for (command, line) in lines {
                phrases(&format!("{command} --help"), &line, &mut findings);
                if line.chars().count() > LONGEST_HELP {
                    findings.push(Finding {
                        path: format!("{command} --help"),
                        phrase: "a first line of help over 60 characters",
                        excerpt: line,
                        write: "a shorter imperative",
                    });
                }
            }
            continue;
        }
        let mut paths = Vec::new();
        files(&top().join(path), &mut paths);
        assert!(!paths.is_empty(), "{path} has no text");
        paths.sort();
        for path in paths {
            texts(&path).iter().for_each(|text| phrases(&path, text, &mut findings));
        }
    }
    findings
}

/// The numbers of findings by a key, and the findings.
fn report(findings: &[&Finding]) -> String {
    let mut report = String::new();
    let folder = |path: &str| path.split('/').take(2).collect::<Vec<_>>().join("/");
    let phrase = |finding: &Finding| finding.phrase.to_owned();
    let place = |finding: &Finding| folder(&finding.path);
    for key in [&phrase as &dyn Fn(&Finding) -> String, &place] {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        findings.iter().for_each(|finding| *counts.entry(key(finding)).or_default() += 1);
        for (key, count) in counts {
            let _ = writeln!(report, "{count:5}  {key}");
        }
        report.push('\n');
    }
    for Finding { path, phrase, excerpt, write } in findings {
        let _ = writeln!(report, "{path}: {phrase} (write: {write}): {excerpt}");
    }
    report
}

#[test]
fn texts_use_the_words_of_kubernetes() {
    let other = std::env::var("BELAY_LANGUAGE_OF").ok();
    let covered = other.as_deref().map_or(COVERED.to_vec(), |paths| paths.split(',').collect());
    let all = findings(&covered);
    let is_wrong = |finding: &&Finding| !EXCEPTIONS.iter().any(|one| is_exception(one, finding));
    let wrong: Vec<&Finding> = all.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{} findings\n{}", wrong.len(), report(&wrong));
    if other.is_none() {
        for exception in EXCEPTIONS {
            let Exception { path, text, reason } = exception;
            let used = all.iter().any(|finding| is_exception(exception, finding));
            assert!(used, "{path} has no {text:?} ({reason}): remove the exception");
        }
    }
}

#[test]
fn phrases_are_found_as_whole_words_in_any_case_and_across_lines() {
    let found = |text: &str| {
        let mut findings = Vec::new();
        phrases("x", text, &mut findings);
        findings.into_iter().map(|finding| finding.phrase).collect::<Vec<_>>()
    };
    assert_eq!(found("Nobody waits"), ["nobody"]);
    assert_eq!(found("it lets\n    go of the object"), ["lets go"]);
    assert_eq!(found("that is no more, and no more than that"), ["no more"]);
    assert_eq!(found("BelayNobodyLeads, mushrooms, nobody_leads"), [""; 0]);
}
