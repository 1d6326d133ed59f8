//! Writes the SBOM of the program as CycloneDX: each package that is compiled into it,
//! with version, licence and checksum, from the dependency resolution of cargo.
//!
//!     cargo run --example sbom -- FILE

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let result = std::env::args().nth(1).ok_or_else(|| "usage: sbom FILE".into()).and_then(
        |file| -> Result<()> {
            let bill = bill(&metadata()?, &checksums()?)?;
            Ok(std::fs::write(file, serde_json::to_string_pretty(&bill)? + "\n")?)
        },
    );
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sbom: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The dependency resolution of cargo for this machine, from the lock file.
fn metadata() -> Result<Value> {
    let version = Command::new("rustc").arg("-vV").output()?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not say what machine this is")?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let args = ["metadata", "--format-version=1", "--locked", "--filter-platform", host];
    let output = Command::new(cargo).args(args).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The checksums of the lock file, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock"))?;
    let field = |entry: &str, name: &str| {
        let line = entry.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        line.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    let entries = lock.split("[[package]]").skip(1);
    Ok(entries
        .filter_map(|entry| {
            let key = (field(entry, "name")?, field(entry, "version")?);
            Some((key, field(entry, "checksum")?))
        })
        .collect())
}

fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"], "nodes").into_iter().map(|n| (text(&n, "id"), n)).collect();
    let root = text(&metadata["resolve"], "root");

    // Only normal dependencies: no dependencies of tests or build scripts.
    let mut linked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut pending = vec![root.clone()];
    while let Some(id) = pending.pop() {
        if linked.contains_key(&id) {
            continue;
        }
        let node = nodes.get(&id).ok_or_else(|| format!("cargo did not resolve {id}"))?;
        let normal = |dep: &Value| list(dep, "dep_kinds").iter().any(|kind| kind["kind"].is_null());
        let needs: BTreeSet<String> = list(node, "deps")
            .iter()
            .filter(|dep| normal(dep))
            .map(|dep| text(dep, "pkg"))
            .collect();
        pending.extend(needs.iter().cloned());
        linked.insert(id, needs);
    }

    let packages = list(metadata, "packages");
    let name_of: BTreeMap<String, String> = packages
        .iter()
        .map(|package| {
            let (name, version) = (text(package, "name"), text(package, "version"));
            (text(package, "id"), format!("pkg:cargo/{name}@{version}"))
        })
        .collect();
    let component = |package: &Value, kind: &str| {
        let id = text(package, "id");
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut component = json!({"type": kind, "bom-ref": name_of[&id], "name": name,
            "version": version, "purl": name_of[&id]});
        if let Some(license) = package["license"].as_str() {
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(sum) = checksums.get(&(name, version)) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        component
    };
    let program = packages.iter().find(|package| package["id"] == root);
    let program = program.ok_or("cargo did not say which package this is")?;
    let libraries: Vec<Value> = packages
        .iter()
        .filter(|package| {
            let id = text(package, "id");
            id != root && linked.contains_key(&id)
        })
        .map(|package| component(package, "library"))
        .collect();
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|(id, needs)| {
            let needs: Vec<&String> = needs.iter().map(|need| &name_of[need]).collect();
            json!({"ref": name_of[id], "dependsOn": needs})
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(program, "application")},
        "components": libraries,
        "dependencies": dependencies,
    }))
}
