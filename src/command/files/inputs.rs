//! Reads the files that the user names, once.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::documents::{Document, File, parse};
use super::folder::{is_stream, read, read_text};
use super::own::BelayObjects;
use super::tree::Node;
use super::{FileError, Folders};
use crate::command::CommandError;
use crate::objects::{KindNames, Kinds, full_name, namespace_option, shell_word, without_controls};
use crate::policy::Policy;
use crate::policy::api::{DeletionPolicySpec, GROUP};
use crate::relations::CustomRelation;

/// The name of standard input in messages.
const STDIN: &str = "standard input";

/// An object as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The API group.
    pub group: String,
    /// The kind, as the manifest spells it.
    pub kind: String,
    /// The namespace, if the document has one.
    pub namespace: Option<String>,
    pub name: String,
    /// The file and the line.
    pub origin: String,
}

impl Manifest {
    /// The object as a user would type it. The kind is not served, so its plural is unknown.
    pub fn as_typed(&self) -> String {
        let Self { group, kind, namespace, name, .. } = self;
        let option = namespace_option(namespace.as_deref().unwrap_or_default());
        let object = format!("{}/{name}", full_name(group, &kind.to_lowercase()));
        format!("{}{option}", shell_word(&without_controls(&object)))
    }
}

/// Reads files and folders; `-` is standard input. This reads a pipe that the user names, and
/// skips pipes inside folders.
pub fn read_texts(paths: &[PathBuf]) -> Result<Vec<File>, FileError> {
    let (streams, others): (Vec<_>, Vec<_>) =
        paths.iter().filter(|path| !is_stdin(path)).partition(|path| is_stream(path));
    let mut files = Folders(others.into_iter().cloned().collect()).list()?.read()?;
    for stream in streams {
        files.push(read(stream)?);
    }
    if paths.iter().any(|path| is_stdin(path)) {
        files.push(read_text(STDIN, std::io::stdin().lock())?);
    }
    Ok(files)
}

/// Like `read_texts`, but an input without objects is an error: a failed command leaves an
/// empty dump, which would show that no object exists.
pub fn read_nonempty(paths: &[PathBuf]) -> Result<Vec<File>, FileError> {
    let files = read_texts(paths)?;
    for path in paths {
        let name = if is_stdin(path) { STDIN.to_owned() } else { path.display().to_string() };
        let is_in_path =
            |file: &&File| *file.name == *name || Path::new(&*file.name).starts_with(path);
        let in_path: Vec<&File> = files.iter().filter(is_in_path).collect();
        let is_empty = match in_path.is_empty() {
            // If several paths name a file, `files` contains it only under the first of them.
            true => path.is_dir() && Folders(vec![path.clone()]).list()?.is_empty(),
            false => in_path.iter().all(|file| is_blank(&file.text)),
        };
        if is_empty {
            return Err(empty_input(path, &name));
        }
    }
    Ok(files)
}

fn empty_input(path: &Path, name: &str) -> FileError {
    if path.is_dir() {
        let message = "no YAML or JSON file in this folder contains an object; next: check that \
                       it is the right folder";
        return FileError::about_file(name, message);
    }
    let message = match is_stdin(path) || is_stream(path) {
        true => "it contains no object; next: check whether the command before the pipe failed",
        false => "it contains no object; next: check whether the command that wrote it failed",
    };
    // A failed command wrote this input, so the real content is unknown.
    FileError { unread: true, ..FileError::about_file(name, message) }
}

/// Whether a text contains only comments and document separators. A List without items is
/// not blank: it states that there are no objects.
fn is_blank(text: &str) -> bool {
    text.lines()
        .map(|line| line.trim_start_matches("---").trim())
        .all(|line| line.is_empty() || line.starts_with('#') || line == "...")
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Checks that at most one path is standard input, because it can be read only once.
pub fn stdin_once<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), CommandError> {
    let stdin = paths.into_iter().filter(|path| is_stdin(path));
    match stdin.count() {
        0 | 1 => Ok(()),
        _ => Err(CommandError::usage(
            "standard input can be read only once; name a file for the other option",
        )),
    }
}

/// The objects in these files, in the order of the files. Duplicates are omitted.
pub fn read_manifests(files: &[File]) -> Result<Vec<Manifest>, FileError> {
    let mut manifests: Vec<Manifest> = Vec::new();
    let mut seen = HashSet::new();
    for file in files {
        for document in parse(file)? {
            let namespace = document.node.at(&["metadata", "namespace"]).and_then(Node::text);
            let manifest = Manifest {
                group: document.group.clone(),
                kind: document.kind.clone(),
                namespace: namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned),
                name: document.name()?.to_owned(),
                origin: document.origin(),
            };
            let Manifest { group, kind, namespace, name, .. } = &manifest;
            if seen.insert((group.clone(), kind.clone(), namespace.clone(), name.clone())) {
                manifests.push(manifest);
            }
        }
    }
    Ok(manifests)
}

/// Policies and other belay objects that users wrote, before the kinds are known.
pub struct UserRules {
    /// The specs of the policies, by name.
    pub specs: Vec<(String, DeletionPolicySpec)>,
    /// The compiled policies.
    pub policies: Vec<Policy>,
    pub relations: Vec<CustomRelation>,
}

/// The policies and relations of these files.
pub fn read_rules(files: &[File]) -> Result<UserRules, FileError> {
    let mut objects = BelayObjects::default();
    for file in files {
        for document in parse(file)?.iter().filter(|document| document.group == GROUP) {
            objects.add(document)?;
        }
    }
    let BelayObjects { specs, policies, relations, .. } = objects;
    Ok(UserRules { specs, policies, relations })
}

/// The names of these kinds, with the short names that CRDs in the files define.
pub fn read_names<'f>(
    kinds: &Kinds,
    files: impl IntoIterator<Item = &'f File>,
) -> Result<KindNames, FileError> {
    let mut short = Vec::new();
    for file in files {
        short.extend(short_names(&parse(file)?));
    }
    Ok(KindNames::of_kinds(kinds, &short))
}

/// The short names in these CRDs, by group and plural.
pub fn short_names(documents: &[Document]) -> Vec<(String, String, Vec<String>)> {
    let crds = documents.iter().filter(|document| document.is_crd());
    let names = crds.map(|document| {
        let text = |keys: &[&str]| {
            document.node.at(keys).and_then(Node::text).unwrap_or_default().to_owned()
        };
        let short = document.node.at(&["spec", "names", "shortNames"]).map_or(&[][..], Node::items);
        let short = short.iter().filter_map(Node::text).map(str::to_owned).collect();
        (text(&["spec", "group"]), text(&["spec", "names", "plural"]), short)
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_without_an_object_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("empty")).unwrap();
        std::fs::write(path("notes.yaml"), "# Source: a\n---\n--- # nothing\n...\n").unwrap();
        std::fs::write(path("none.yaml"), "apiVersion: v1\nkind: List\nitems: []\n").unwrap();
        // The number of files, or whether the content is unknown and whether the error is about a
        // folder.
        let read = |names: &[&str]| {
            let paths: Vec<PathBuf> = names.iter().map(|name| path(name)).collect();
            read_nonempty(&paths).map(|files| files.len()).map_err(|error| {
                let message = error.to_string();
                assert!(message.contains("; next: check "), "{message}");
                (error.is_unread(), message.contains("this folder"))
            })
        };
        // An empty List is explicit. A file that an earlier path contains is read only there.
        assert_eq!(read(&["none.yaml"]), Ok(1));
        assert_eq!(read(&["", "none.yaml"]), Ok(2));
        assert_eq!(read(&["notes.yaml"]), Err((true, false)));
        assert_eq!(read(&["none.yaml", "notes.yaml"]), Err((true, false)));
        assert_eq!(read(&["none.yaml", "empty"]), Err((false, true)));
        let device = read_nonempty(&["/dev/null".into()]).map(drop).unwrap_err().to_string();
        assert!(device.starts_with("/dev/null: it contains no object; next: "), "{device}");
        // A device without an end is read only up to the maximum size.
        let endless = read_texts(&["/dev/zero".into()]).map(drop).unwrap_err().to_string();
        assert!(endless.ends_with("larger than 64 MiB; split it"), "{endless}");
    }
}
