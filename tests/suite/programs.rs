//! The test programs that cargo builds, and their tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Result, Selection};

/// Programs that need a control plane, the longest first.
const LIVE: [&str; 6] = ["scenarios", "install", "cli", "e2e", "soak", "image"];

/// Tests in modules of this name load the machine, and would delay others.
const LOAD: &str = "load::";

/// A program with tests.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    /// Whether no other program may run meanwhile, and its tests run one after the other.
    pub alone: bool,
    /// Whether its tests need a control plane: they wait more than they compute.
    pub live: bool,
    /// The full names of the tests to run.
    pub tests: Vec<String>,
}

/// Builds the test programs, and lists those with tests to run, in the order of their
/// start.
pub fn build(selection: &Selection) -> Result<Vec<Program>> {
    let mut built = Vec::new();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["test", "--locked", "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the tests could not be built; the lines above say why".into());
    }
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        let test = message["profile"]["test"] == true;
        let executable = message["executable"].as_str().filter(|_| test);
        let Some(path) = executable.map(PathBuf::from) else { continue };
        let library = message["target"]["kind"][0] == "lib";
        let name = if library { "lib" } else { message["target"]["name"].as_str().unwrap_or("?") };
        built.push((name.to_owned(), path));
    }
    let place = |name: &str| LIVE.iter().position(|live| *live == name);
    built.retain(|(name, _)| !selection.quick || place(name).is_none());
    built.sort_by_key(|(name, _)| (place(name).is_none(), place(name)));
    let mut programs = Vec::new();
    for (name, path) in built {
        programs.extend(select(selection, name, path)?);
    }
    programs.retain(|program| !program.tests.is_empty());
    programs.sort_by_key(|program| program.alone);
    Ok(programs)
}

/// The selected tests of a program: those that run in parallel, and those that run alone.
fn select(selection: &Selection, name: String, path: PathBuf) -> Result<[Program; 2]> {
    let output = Command::new(&path).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    let pattern = selection.only.as_ref().filter(|pattern| **pattern != name);
    let tests = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
    let (load, others): (Vec<_>, Vec<_>) = tests
        .filter(|test| pattern.is_none_or(|pattern| test.contains(pattern)))
        .partition(|test| test.split_inclusive("::").any(|module| module == LOAD));
    let program = |tests, alone| {
        let (name, path, live) = (name.clone(), path.clone(), LIVE.contains(&&*name));
        Program { name, path, alone, live, tests }
    };
    Ok([program(others, false), program(load, true)])
}
