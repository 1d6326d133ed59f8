//! Reads a document of belay from a file. The content of a file is untrusted.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::VERSION;
use crate::command::CommandError;

/// The maximum size of a file: a plan for about 100,000 objects.
pub const MAX_DOCUMENT: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    api_version: String,
    kind: String,
}

/// Reads a document of a kind. `source`: the command that writes one.
pub fn read_document<T: DeserializeOwned>(
    path: &Path,
    kind: &str,
    source: &str,
) -> Result<T, CommandError> {
    let content = |detail: String| CommandError::Content { path: path.to_owned(), detail };
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_DOCUMENT + 1).read_to_end(&mut text));
    read.map_err(|source| CommandError::Read { path: path.to_owned(), source })?;
    if text.len() as u64 > MAX_DOCUMENT {
        return Err(content(format!("a {kind} has at most {} MiB", MAX_DOCUMENT >> 20)));
    }
    let header: Option<Header> = serde_json::from_slice(&text).ok();
    if header.is_none_or(|header| header.api_version != VERSION || header.kind != kind) {
        return Err(content(format!("this is not a {kind} of {VERSION}; next: {source}")));
    }
    serde_json::from_slice(&text).map_err(|error| {
        // The error may quote the file.
        content(format!(
            "the {kind} is not valid: line {}, column {}",
            error.line(),
            error.column()
        ))
    })
}
