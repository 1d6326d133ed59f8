//! Holds the order of the rooms: each may use those above it in the list,
//! never those below. DESIGN and docs/ARCHITECTURE.md say why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

/// The rooms in their order of dependency.
const ROOMS: &[&str] = &[
    "objects",
    "graph",
    "relations",
    "policy",
    "decide",
    "hold",
    "lease",
    "certs",
    "telemetry",
    "webhook",
    "cluster",
    "command",
];

/// Rooms that only compute: no async, no client, no clock, no IO.
const PURE: &[&str] = &["objects", "graph", "relations", "policy", "decide", "hold", "lease"];

/// What a pure room may not name.
const IMPURE: &[&str] = &[
    "tokio",
    "actix_web",
    "kube::Client",
    "kube::client",
    "kube::runtime",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "println!",
    "tracing::",
];

/// Exceptions to the order, each with its reason. There is one list, and it
/// is here.
const ALLOWED: &[(&str, &str)] = &[
    // Certificates are counted where they are loaded.
    ("certs", "telemetry"),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

/// A file's code without comments and without its tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn uses(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn each_room_uses_only_those_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let place = |room: &str| ROOMS.iter().position(|r| *r == room);
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&src).unwrap().flatten().filter(|e| e.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        if name == "bin" {
            continue;
        }
        let Some(own) = place(&name) else {
            wrong.push(format!("src/{name} is no room: give it a place in this test's list"));
            continue;
        };
        for path in sources(&entry.path()) {
            for used in uses(&code(&path)).filter_map(|used| Some((used, place(used)?))) {
                let allowed = ALLOWED.contains(&(name.as_str(), used.0));
                if used.1 > own && !allowed {
                    wrong.push(format!(
                        "{} uses {}, which stands below {name}",
                        path.display(),
                        used.0
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_compute_and_nothing_else() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for room in PURE.iter().map(|room| src.join(room)).filter(|room| room.exists()) {
        for path in sources(&room) {
            let code = code(&path);
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{} names {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
