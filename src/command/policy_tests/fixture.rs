//! The fixture of a test: a world with its policies and objects, and the complete objects, which
//! requests contain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::CaseError;
use super::test_file::{KIND, Test};
use crate::command::files::{
    Content, Document, File, FileError, World, inline, parse_all, read_texts, short_names,
};
use crate::command::object_words::parse_type_and_name;
use crate::objects::{KindInfo, KindNames, ObjectRef, text_at};
use crate::policy::api::GROUP;

/// A test, ready to run.
pub struct Fixture {
    pub world: World,
    /// The names of kinds.
    names: KindNames,
    /// The complete objects.
    bodies: BTreeMap<ObjectRef, Value>,
}

impl Fixture {
    /// Reads the files of a test and adds these policies.
    pub fn read(test: &Test, policies: &[File]) -> Result<Self, FileError> {
        let mut documents = parse_all(policies)?;
        for field in ["policies", "objects"] {
            for (field, node) in test.sources(field)? {
                match &node.content {
                    Content::Text(path) => {
                        let files = read_named(&test.document, &field, path)?;
                        documents.append(&mut parse_all(&files)?);
                    }
                    Content::Map(_) => {
                        documents.append(&mut inline(&test.document.file, node.clone())?);
                    }
                    _ => {
                        let message = "expected a path, or an object";
                        return Err(test.document.field_error(&field, message));
                    }
                }
            }
        }
        // A folder of objects may also contain tests.
        documents
            .retain(|document| (document.group.as_str(), document.kind.as_str()) != (GROUP, KIND));
        let short = short_names(&documents);
        let mut bodies = BTreeMap::new();
        let world = World::from_documents(documents, true, &mut |info, object| {
            let [namespace, name] =
                ["/metadata/namespace", "/metadata/name"].map(|pointer| text_at(object, pointer));
            bodies.insert(ObjectRef::of_kind(info, namespace, name), object.clone());
        })?;
        let names = KindNames::of_kinds(&world.graph.kinds, &short);
        Ok(Self { world, names, bodies })
    }

    /// An object that a case names, with its kind.
    pub fn object(
        &self,
        target: &str,
        namespace: Option<&str>,
    ) -> Result<(&KindInfo, &Value), CaseError> {
        let Some((word, name)) = parse_type_and_name(target) else {
            return Err(CaseError::NoTarget(target.to_owned()));
        };
        let info = self.names.find(word).ok_or_else(|| {
            let near = self.names.nearest(word);
            CaseError::UnknownWord { word: word.to_owned(), near }
        })?;
        let namespace = if info.namespaced { namespace.unwrap_or("default") } else { "" };
        let wanted = ObjectRef::of_kind(info, namespace, name);
        self.bodies.get(&wanted).map(|body| (info, body)).ok_or_else(|| {
            let is_same = |other: &&ObjectRef| {
                ObjectRef { namespace: other.namespace.clone(), ..wanted.clone() } == **other
            };
            let other = self.bodies.keys().find(is_same).map(|other| other.namespace.clone());
            CaseError::NoObject { object: wanted.arguments(), other }
        })
    }

    /// The kind of a new object.
    pub fn kind_of(&self, group: &str, kind: &str) -> Result<&KindInfo, CaseError> {
        let info = self.names.of_object(group, kind);
        info.ok_or_else(|| CaseError::UnknownKind(kind.to_owned()))
    }
}

/// Reads the files that this field of a test names, relative to the test file.
pub fn read_named(test: &Document, field: &str, path: &str) -> Result<Vec<File>, FileError> {
    let position = test.node.position_of(field);
    let folder = Path::new(&*test.file).parent().unwrap_or(Path::new(""));
    let path: PathBuf = folder.join(path).components().collect();
    let files = read_texts(&[path]).map_err(|error| error.named_at(test, position))?;
    if files.is_empty() {
        let message = "there is no file of YAML or JSON in this folder";
        return Err(test.field_error(field, message));
    }
    Ok(files)
}
