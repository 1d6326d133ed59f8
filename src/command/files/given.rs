//! Files that a person names once: read now, and not again.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::documents::{Document, File, parse};
use super::folder::LARGEST;
use super::own::Own;
use super::yaml::Node;
use super::{FileError, Folders};
use crate::command::CommandError;
use crate::objects::{Kinds, Names, full_name};
use crate::policy::Policy;
use crate::policy::api::{DeletionPolicySpec, GROUP};
use crate::relations::Custom;

/// What standard input is called in messages.
const STDIN: &str = "standard input";

/// An object as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The API group.
    pub group: String,
    /// The kind, as it is written.
    pub kind: String,
    /// The namespace, if it says one.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// Where it stands.
    pub origin: String,
}

impl Manifest {
    /// As a person would type it, though nobody serves its kind.
    pub fn typed(&self) -> String {
        let Self { group, kind, namespace, name, .. } = self;
        let place = namespace.as_ref().map_or(String::new(), |place| format!(" -n {place}"));
        format!("{}/{name}{place}", full_name(group, &kind.to_lowercase()))
    }
}

/// The texts of these files and folders; `-` is standard input.
pub fn texts(paths: &[PathBuf]) -> Result<Vec<File>, FileError> {
    let is_stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
    let others: Vec<PathBuf> = paths.iter().filter(|path| !is_stdin(path)).cloned().collect();
    let mut files = Folders(others).look()?.read()?;
    if paths.iter().any(|path| is_stdin(&path)) {
        files.push(stdin()?);
    }
    Ok(files)
}

fn stdin() -> Result<File, FileError> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        let message = format!("it cannot be read ({error})");
        FileError { unread: true, ..FileError::whole(STDIN, message) }
    })?;
    if bytes.len() as u64 > LARGEST {
        return Err(FileError::whole(STDIN, "it is larger than 64 MiB; split it"));
    }
    let text = String::from_utf8(bytes).map_err(|_| FileError::whole(STDIN, "it is not UTF-8"))?;
    Ok(File { name: STDIN.into(), text })
}

/// That standard input is at most one of these: it can be read once.
pub fn stdin_once<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), CommandError> {
    let stdin = paths.into_iter().filter(|path| path.as_path() == Path::new("-"));
    match stdin.count() {
        0 | 1 => Ok(()),
        _ => Err(CommandError::Usage(
            "standard input can be read once; name a file for the other".to_owned(),
        )),
    }
}

/// The objects that these files name, each once, in their order.
pub fn manifests(files: &[File]) -> Result<Vec<Manifest>, FileError> {
    let mut found: Vec<Manifest> = Vec::new();
    let mut seen = HashSet::new();
    for file in files {
        for document in parse(file)? {
            let namespace = document.node.at(&["metadata", "namespace"]).and_then(Node::text);
            let manifest = Manifest {
                group: document.group.clone(),
                kind: document.kind.clone(),
                namespace: namespace.filter(|place| !place.is_empty()).map(str::to_owned),
                name: document.name()?.to_owned(),
                origin: document.origin(),
            };
            let Manifest { group, kind, namespace, name, .. } = &manifest;
            if seen.insert((group.clone(), kind.clone(), namespace.clone(), name.clone())) {
                found.push(manifest);
            }
        }
    }
    Ok(found)
}

/// What people have written, before it is known which kinds there are.
pub struct Rules {
    /// The policies, by name, as they are written.
    pub specs: Vec<(String, DeletionPolicySpec)>,
    /// The same, compiled.
    pub policies: Vec<Policy>,
    /// The relations.
    pub relations: Vec<Custom>,
}

/// The policies and relations of these files.
pub fn rules(files: &[File]) -> Result<Rules, FileError> {
    let mut own = Own::default();
    for file in files {
        for document in parse(file)?.iter().filter(|document| document.group == GROUP) {
            own.take(document)?;
        }
    }
    let Own { specs, policies, relations, .. } = own;
    Ok(Rules { specs, policies, relations })
}

/// The words for the kinds that these files know: those of Kubernetes, and
/// what their CRDs teach.
pub fn names<'f>(
    kinds: &Kinds,
    files: impl IntoIterator<Item = &'f File>,
) -> Result<Names, FileError> {
    let mut taught = Vec::new();
    for file in files {
        taught.extend(short_names(&parse(file)?));
    }
    Ok(Names::of_kinds(kinds, &taught))
}

/// The short names that the CRDs among these documents teach, by group and
/// plural.
pub fn short_names(documents: &[Document]) -> Vec<(String, String, Vec<String>)> {
    let definitions = documents.iter().filter(|document| document.is_definition());
    let taught = definitions.map(|document| {
        let text = |keys: &[&str]| {
            document.node.at(keys).and_then(Node::text).unwrap_or_default().to_owned()
        };
        let short = document.node.at(&["spec", "names", "shortNames"]).map_or(&[][..], Node::items);
        let short = short.iter().filter_map(Node::text).map(str::to_owned).collect();
        (text(&["spec", "group"]), text(&["spec", "names", "plural"]), short)
    });
    taught.collect()
}
