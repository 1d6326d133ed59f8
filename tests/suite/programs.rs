//! The test programs that cargo builds, and their tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Result, Selection};

/// Programs that need a control plane, the longest first.
const LIVE: [&str; 6] = ["scenarios", "install", "cli", "e2e", "soak", "image"];

/// A program with tests.
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    /// The full names of the tests to run; none: all.
    pub chosen: Option<Vec<String>>,
    /// How many tests will run.
    pub tests: usize,
}

/// Builds the test programs, and lists those that have tests to run, in the order
/// in which they are to start.
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
    let programs = built.into_iter().map(|(name, path)| select(selection, name, path));
    let programs = programs.collect::<Result<Vec<_>>>()?;
    Ok(programs.into_iter().filter(|program| program.tests > 0).collect())
}

fn select(selection: &Selection, name: String, path: PathBuf) -> Result<Program> {
    let output = Command::new(&path).args(["--list", "--format", "terse"]).output()?;
    let listed = String::from_utf8(output.stdout)?;
    let all = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned);
    let all: Vec<String> = all.collect();
    match selection.only.as_ref().filter(|pattern| **pattern != name) {
        None => Ok(Program { name, path, chosen: None, tests: all.len() }),
        Some(pattern) => {
            let chosen: Vec<_> = all.into_iter().filter(|test| test.contains(pattern)).collect();
            Ok(Program { name, path, tests: chosen.len(), chosen: Some(chosen) })
        }
    }
}
