//! Checks the order of the layers: each may use the layers above it in the list,
//! never the layers below it. docs/ARCHITECTURE.md gives the reasons.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The top-level modules in their order of dependency.
const LAYERS: &[&str] = &[
    "objects",
    "graph",
    "relations",
    "policy",
    "decide",
    "hold",
    "lease",
    "timing",
    "certs",
    "telemetry",
    "webhook",
    "cluster",
    "command",
];

/// Layers that only compute: no async, no client, no clock, no IO.
const PURE: &[&str] =
    &["objects", "graph", "relations", "policy", "decide", "hold", "lease", "timing"];

/// Words that may not occur in a pure layer.
const IMPURE: &[&str] = &[
    "tokio",
    "actix",
    "hyper::",
    "rand::",
    "eprintln!",
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

/// The exceptions to the order, each with its reason.
const ALLOWED: &[(&str, &str)] = &[
    // The code that loads certificates counts them.
    ("certs", "telemetry"),
];

/// Folders that are compiled for tests only.
const TEST_FOLDERS: &[&str] = &["model", "tests"];

/// Files that are compiled for tests only.
const TEST_FILES: &[&str] = &["tests.rs", "oracle.rs", "test_cases.rs"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !TEST_FOLDERS.contains(&entry.file_name().to_string_lossy().as_ref()) {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|e| e == "rs")
            && !TEST_FILES.contains(&entry.file_name().to_string_lossy().as_ref())
        {
            found.push(path);
        }
    }
    found
}

fn code_of(path: &Path) -> String {
    code(&std::fs::read_to_string(path).unwrap())
}

/// Code without comments and without the test module that ends a file.
fn code(text: &str) -> String {
    let tests = text.match_indices("#[cfg(test)]").find(|(at, _)| {
        let rest = text[*at..].lines().nth(1).unwrap_or_default();
        rest.starts_with("mod ") && rest.ends_with('{')
    });
    let code = &text[..tests.map_or(text.len(), |(at, _)| at)];
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The layers that code names after `crate::`, also in braces.
fn uses(code: &str) -> Vec<&str> {
    let of_crate = paths(code).into_iter().filter(|path| path[0] == "crate");
    let mut found: Vec<_> = of_crate.map(|path| path[1]).collect();
    found.dedup();
    found
}

#[test]
fn finds_uses_of_layers_and_ignores_comments_and_tests() {
    let found = uses("use crate::graph::{A, B}; use crate::{webhook, command::X, certs::{Y, Z}};");
    assert_eq!(found, ["graph", "webhook", "command", "certs"]);
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn f() {}\n// println!\n#[cfg(test)]\nmod more {\n tokio }";
    assert_eq!(code(text), "use a;\n#[cfg(test)]\nmod tests;\nfn f() {}");
}

#[test]
fn each_layer_uses_only_layers_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let place = |layer: &str| LAYERS.iter().position(|l| *l == layer);
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&src).unwrap().flatten().filter(|e| e.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        if name == "bin" {
            continue;
        }
        let Some(own) = place(&name) else {
            wrong.push(format!("src/{name} is no layer: add it to the list in this test"));
            continue;
        };
        for path in sources(&entry.path()) {
            for used in
                uses(&code_of(&path)).into_iter().filter_map(|used| Some((used, place(used)?)))
            {
                let allowed = ALLOWED.contains(&(name.as_str(), used.0));
                if used.1 > own && !allowed {
                    wrong.push(format!(
                        "{} uses {}, which is below {name}",
                        path.display(),
                        used.0
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Hash functions without a secret key, and the one file that may name them.
const UNKEYED: &[&str] = &["rustc_hash", "FxBuildHasher", "FxHash", "DefaultHasher", "foldhash"];
const MAPS: &str = "src/objects/maps.rs";

#[test]
fn keys_that_clients_choose_are_hashed_with_a_secret_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for path in sources(&root.join("src")).iter().filter(|path| !path.ends_with(MAPS)) {
        let code = code_of(path);
        for word in UNKEYED.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{} names {word}; use the maps of {MAPS}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_layers_name_no_io_clock_or_async() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for layer in PURE.iter().map(|layer| src.join(layer)).filter(|layer| layer.exists()) {
        for path in sources(&layer) {
            let code = code_of(&path);
            for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{} names {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_harness_of_tests_sleeps() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = sources(&tests);
    files
        .retain(|path| !["harness", "suite"].iter().any(|part| path.starts_with(tests.join(part))));
    assert!(files.len() > 50, "{files:?}");
    let call = concat!("sleep", "(");
    let found = files.iter().filter(|path| code_of(path).contains(call)).collect::<Vec<_>>();
    assert!(found.is_empty(), "wait for a condition, or call harness::pause: {found:?}");
}

/// The paths that begin with `crate::`, `super::` or `self::`, also those in braces.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let start = start.map_or(0, |before| before + 1);
        let first = &code[start..at];
        if ["crate", "super", "self"].contains(&first) {
            read_paths(&code[start..], &[], &mut found);
        }
    }
    found
}

/// Reads the path, or the paths in braces, that follow these words. Returns the rest of the code.
fn read_paths<'c>(code: &'c str, before: &[&'c str], found: &mut Vec<Vec<&'c str>>) -> &'c str {
    let code = code.trim_start();
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = read_paths(rest, before, found).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                Some(next) => return next.trim_start().trim_start_matches('}'),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let length = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    let (word, rest) = code.split_at(length);
    let path = [before, &[word]].concat();
    match rest.strip_prefix("::") {
        Some(rest) => read_paths(rest, &path, found),
        None => {
            found.push(path);
            rest.trim_start_matches(|c: char| !",}".contains(c))
        }
    }
}

/// The names that a module re-exports from its children, with the child of each.
fn re_exports<'c>(code: &'c str, children: &[&'c str]) -> BTreeMap<&'c str, &'c str> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        read_paths(&code[at + "use ".len()..], &[], &mut paths);
    }
    let of_children = paths.into_iter().filter(|path| children.contains(&path[0]));
    of_children.filter_map(|path| Some((*path.last()?, path[0]))).collect()
}

/// The modules of this crate that the file of a module names, as paths from the root. A
/// re-exported name counts as the child that defines it.
fn named_modules<'c>(
    module: &[&'c str],
    code: &'c str,
    modules: &BTreeMap<Vec<&'c str>, BTreeMap<&'c str, &'c str>>,
) -> Vec<Vec<&'c str>> {
    let resolve = |path: Vec<&'c str>| {
        let supers = path.iter().take_while(|word| **word == "super").count();
        let mut place = match path[0] {
            "crate" => Vec::new(),
            _ => module[..module.len().saturating_sub(supers)].to_vec(),
        };
        for word in path.into_iter().filter(|word| !["crate", "super", "self"].contains(word)) {
            let child = [&place[..], &[word]].concat();
            if modules.contains_key(&child) {
                place = child;
                continue;
            }
            while let Some(child) = modules.get(&place).and_then(|names| names.get(word)) {
                place.push(child);
            }
            break;
        }
        place
    };
    paths(code).into_iter().map(resolve).collect()
}

/// A path from a module back to itself among its siblings: each uses the next one.
fn circle<'c>(uses: &BTreeMap<&'c str, BTreeSet<&'c str>>, from: &'c str) -> Option<Vec<&'c str>> {
    let (mut next, mut seen) = (vec![vec![from]], BTreeSet::new());
    while let Some(way) = next.pop() {
        for used in uses.get(way[way.len() - 1]).into_iter().flatten() {
            if *used == from {
                return Some(way);
            }
            if seen.insert(*used) {
                next.push([&way[..], &[used]].concat());
            }
        }
    }
    None
}

#[test]
fn paths_are_read_with_their_groups() {
    let code = "use crate::a::{B, c::{D, e}, f}; use super::g; fn h() { self::i::j(); k::l() }";
    let found: Vec<String> = paths(code).iter().map(|path| path.join(" ")).collect();
    let expected = ["crate a B", "crate a c D", "crate a c e", "crate a f", "super g", "self i j"];
    assert_eq!(found, expected);
    let exports = re_exports("mod c; pub use c::{D, e::F}; use other::G;", &["c"]);
    assert_eq!(exports, BTreeMap::from([("D", "c"), ("F", "c")]));
    let modules = BTreeMap::from([
        (vec!["a"], exports),
        (vec!["a", "c"], BTreeMap::new()),
        (vec!["x"], BTreeMap::new()),
        (vec!["x", "y"], BTreeMap::new()),
    ]);
    let code = "super::y::Z crate::a::c::D super::super::a crate::a::{F, H}";
    let named = named_modules(&["x", "y"], code, &modules);
    assert_eq!(named, [vec!["x", "y"], vec!["a", "c"], vec!["a"], vec!["a", "c"], vec!["a"]]);
    let uses = BTreeMap::from([
        ("a", BTreeSet::from(["b"])),
        ("b", BTreeSet::from(["c", "d"])),
        ("d", BTreeSet::from(["b"])),
    ]);
    assert_eq!(circle(&uses, "b"), Some(vec!["b", "d"]));
    assert_eq!(circle(&uses, "a"), None);
}

#[test]
fn no_modules_of_a_folder_use_each_other_in_a_circle() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files: Vec<(String, String)> = sources(&src)
        .iter()
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().with_extension("");
            (name.to_str().unwrap().trim_end_matches("/mod").to_owned(), code_of(path))
        })
        .filter(|(name, _)| !name.starts_with("bin") && name != "lib")
        .collect();
    let names: Vec<Vec<&str>> = files.iter().map(|(name, _)| name.split('/').collect()).collect();
    let children = |parent: &[&str]| -> Vec<&str> {
        let below =
            names.iter().filter(|name| name.split_last().is_some_and(|(_, up)| up == parent));
        below.filter_map(|name| name.last().copied()).collect()
    };
    let modules: BTreeMap<Vec<&str>, _> = names
        .iter()
        .zip(&files)
        .map(|(name, (_, code))| (name.clone(), re_exports(code, &children(name))))
        .collect();
    let mut folders: BTreeMap<&[&str], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (module, (_, code)) in names.iter().zip(&files) {
        for named in named_modules(module, code, &modules) {
            let alike = module.iter().zip(&named).take_while(|(a, b)| a == b).count();
            if let (Some(user), Some(used)) = (module.get(alike), named.get(alike)) {
                let folder = folders.entry(&module[..alike]).or_default();
                folder.entry(user).or_default().insert(used);
            }
        }
    }
    let wrong: Vec<String> = folders
        .iter()
        .flat_map(|(folder, uses)| {
            let circles = uses.keys().filter_map(|from| circle(uses, from));
            circles.map(move |circle| format!("src/{}: {}", folder.join("/"), circle.join(" → ")))
        })
        .collect();
    assert!(files.len() > 300 && wrong.is_empty(), "{}", wrong.join("\n"));
}
