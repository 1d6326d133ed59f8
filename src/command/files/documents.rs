//! From texts to objects of Kubernetes, one by one: many documents a file,
//! Lists within Lists, dumps.

use std::sync::Arc;

use super::FileError;
use super::yaml::{self, Content, Entry, Node, Place};
use crate::objects::split_api_version;

/// A file's name, for people, and its text.
pub struct File {
    /// Its name.
    pub name: Arc<str>,
    /// Its text.
    pub text: String,
}

/// One object, as a file has it.
pub struct Document {
    pub file: Arc<str>,
    pub node: Node,
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Document {
    /// What is wrong at a place.
    pub fn error(&self, place: Place, message: impl Into<String>) -> FileError {
        FileError { file: self.file.clone(), place: Some(place), message: message.into() }
    }

    /// What is wrong with a field, at its place or near where it should be.
    pub fn field_error(&self, field: &str, message: &str) -> FileError {
        self.error(self.node.place_of(field), format!("{field}: {message}"))
    }

    /// `metadata.name`. Only an API server makes one of `generateName`.
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
                self.node.place_of("metadata.name"),
                format!("this {} has no metadata.name; give it one", self.kind),
            )),
        }
    }

    /// Where it stands, for messages about another one.
    pub fn origin(&self) -> String {
        format!("{}:{}", self.file, self.node.place)
    }
}

/// Reads all objects of a file.
pub fn parse(file: &File) -> Result<Vec<Document>, FileError> {
    let nodes = yaml::parse(&file.text).map_err(|misread| FileError {
        file: file.name.clone(),
        place: Some(misread.place),
        message: misread.message,
    })?;
    let mut documents = Vec::new();
    for node in nodes {
        // Nothing between two separators, or comments alone.
        if !matches!(node.content, Content::Null) {
            flatten(&file.name, node, None, &mut documents)?;
        }
    }
    Ok(documents)
}

/// Takes Lists apart. The items of a typed list (a PodList) leave out what the
/// list has said for all of them.
fn flatten(
    file: &Arc<str>,
    mut node: Node,
    list: Option<(&str, &str)>,
    documents: &mut Vec<Document>,
) -> Result<(), FileError> {
    let place = node.place;
    let error = |message: &str| FileError {
        file: file.clone(),
        place: Some(place),
        message: message.into(),
    };
    if !matches!(node.content, Content::Map(_)) {
        return Err(error(
            "this is no object of Kubernetes: expected a map with apiVersion and kind",
        ));
    }
    let said = |key: &str, default: Option<&str>| {
        let text = node.get(key).and_then(Node::text).filter(|text| !text.is_empty());
        text.or(default).map(str::to_owned)
    };
    let api_version = said("apiVersion", list.map(|(version, _)| version)).ok_or_else(|| {
        error("this object has no apiVersion; give it one, such as v1 or apps/v1")
    })?;
    let kind = said("kind", list.map(|(_, kind)| kind))
        .ok_or_else(|| error("this object has no kind; give it one, such as ConfigMap"))?;
    if let Some(item_kind) = kind.strip_suffix("List")
        && node.at(&["metadata", "name"]).is_none()
        && let Some(items) = node.get("items").filter(|items| kind == "List" || items.is_list())
    {
        if !items.is_list() {
            let place = Some(items.place);
            let message = "items is no list; a List has its objects in one".into();
            return Err(FileError { file: file.clone(), place, message });
        }
        let of_kind = (!item_kind.is_empty()).then_some((api_version.as_str(), item_kind));
        if let Content::Map(entries) = node.content {
            for item in entries.into_iter().filter(|entry| entry.key == "items") {
                if let Content::List(items) = item.value.content {
                    for item in items {
                        flatten(file, item, of_kind, documents)?;
                    }
                }
            }
        }
        return Ok(());
    }
    if let Content::Map(entries) = &mut node.content {
        for (key, value) in [("apiVersion", &api_version), ("kind", &kind)] {
            if !entries.iter().any(|entry| entry.key == key) {
                let value = Node { place, content: Content::Text(value.clone()) };
                entries.push(Entry { key: key.to_owned(), place, value });
            }
        }
    }
    let (group, version) = split_api_version(&api_version);
    let (group, version) = (group.to_owned(), version.to_owned());
    documents.push(Document { file: file.clone(), node, group, version, kind });
    Ok(())
}
