//! Parses texts into Kubernetes objects. A file can contain several documents, and a document
//! can be a List.

use std::sync::Arc;

use super::FileError;
use super::reader::{ReadError, check_fields};
use super::tree::{Content, MapEntry, Node, Position};
use super::yaml;
use crate::objects::split_api_version;

/// A file that was read.
pub struct File {
    /// The name for messages.
    pub name: Arc<str>,
    pub text: String,
}

pub struct Document {
    pub file: Arc<str>,
    pub node: Node,
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Document {
    pub fn error(&self, position: Position, message: impl Into<String>) -> FileError {
        FileError::at(&self.file, position, message)
    }

    /// An error at a field, or at the innermost existing parent of a missing field.
    pub fn field_error(&self, field: &str, message: &str) -> FileError {
        self.error(self.node.position_of(field), format!("{field}: {message}"))
    }

    /// An error about a value that does not fit its type.
    pub fn type_error(&self, error: &ReadError) -> FileError {
        self.error(error.position.unwrap_or(self.node.position), error.to_string())
    }

    /// Checks that the document has no other fields.
    pub fn check_fields(&self, fields: &[&str]) -> Result<(), FileError> {
        let Content::Map(entries) = &self.node.content else { return Ok(()) };
        check_fields(entries, fields).map_err(|error| self.type_error(&error))
    }

    /// `metadata.name`. `generateName` is not enough, because only an API server generates names.
    pub fn name(&self) -> Result<&str, FileError> {
        let name = self.node.at(&["metadata", "name"]);
        match name.and_then(Node::text).filter(|name| !name.is_empty()) {
            Some(name) => Ok(name),
            None if name
                .is_some_and(|n| !matches!(n.content, Content::Null | Content::Text(_))) =>
            {
                Err(self.field_error("metadata.name", "expected text; put it in quotes"))
            }
            None => Err(self.error(
                self.node.position_of("metadata.name"),
                format!("this {} has no metadata.name; give it one", self.kind),
            )),
        }
    }

    /// The file and position, for messages about another document.
    pub fn origin(&self) -> String {
        format!("{}:{}", self.file, self.node.position)
    }
}

/// Parses all documents of a file.
pub fn nodes(file: &File) -> Result<Vec<Node>, FileError> {
    yaml::parse(&file.text)
        .map_err(|error| FileError::at(&file.name, error.position, error.message))
}

/// Parses all objects of a file.
pub fn parse(file: &File) -> Result<Vec<Document>, FileError> {
    let mut documents = Vec::new();
    for node in nodes(file)? {
        // Empty documents and documents with only comments are skipped.
        if !matches!(node.content, Content::Null) {
            flatten(&file.name, node, None, &mut documents)?;
        }
    }
    Ok(documents)
}

/// Parses all objects of some files.
pub fn parse_all(files: &[File]) -> Result<Vec<Document>, FileError> {
    let mut documents = Vec::new();
    for file in files {
        documents.append(&mut parse(file)?);
    }
    Ok(documents)
}

/// The objects of a node that is part of this file.
pub fn inline(file: &Arc<str>, node: Node) -> Result<Vec<Document>, FileError> {
    let mut documents = Vec::new();
    flatten(file, node, None, &mut documents)?;
    Ok(documents)
}

/// Adds the object of a node, or the objects of a List. `list`: the apiVersion and kind of the
/// items of a typed list such as a PodList, which the items don't repeat.
fn flatten(
    file: &Arc<str>,
    mut node: Node,
    list: Option<(&str, &str)>,
    documents: &mut Vec<Document>,
) -> Result<(), FileError> {
    let position = node.position;
    let error = |message: &str| FileError::at(file, position, message);
    if !matches!(node.content, Content::Map(_)) {
        return Err(error(
            "this is not a Kubernetes object: expected a map with apiVersion and kind",
        ));
    }
    let text_or = |key: &str, default: Option<&str>| {
        let text = node.get(key).and_then(Node::text).filter(|text| !text.is_empty());
        text.or(default).map(str::to_owned)
    };
    let api_version = text_or("apiVersion", list.map(|(version, _)| version)).ok_or_else(|| {
        error("this object has no apiVersion; give it one, such as v1 or apps/v1")
    })?;
    let kind = text_or("kind", list.map(|(_, kind)| kind))
        .ok_or_else(|| error("this object has no kind; give it one, such as ConfigMap"))?;
    if let Some(item_kind) = kind.strip_suffix("List")
        && node.at(&["metadata", "name"]).is_none()
        && let Some(items) = node.get("items").filter(|items| kind == "List" || items.is_list())
    {
        if !items.is_list() {
            let message = "items is not a list";
            return Err(FileError::at(file, items.position, message));
        }
        let item_type = (!item_kind.is_empty()).then_some((api_version.as_str(), item_kind));
        if let Content::Map(entries) = node.content {
            for item in entries.into_iter().filter(|entry| entry.key == "items") {
                if let Content::List(items) = item.value.content {
                    for item in items {
                        flatten(file, item, item_type, documents)?;
                    }
                }
            }
        }
        return Ok(());
    }
    if let Content::Map(entries) = &mut node.content {
        for (key, value) in [("apiVersion", &api_version), ("kind", &kind)] {
            if !entries.iter().any(|entry| entry.key == key) {
                let value = Node { position, content: Content::Text(value.clone()) };
                entries.push(MapEntry { key: key.to_owned(), position, value });
            }
        }
    }
    let (group, version) = split_api_version(&api_version);
    let (group, version) = (group.to_owned(), version.to_owned());
    documents.push(Document { file: file.clone(), node, group, version, kind });
    Ok(())
}
