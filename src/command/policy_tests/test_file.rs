//! Parses and validates test files.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::error::CaseError;
use super::expect::Expect;
use super::verb::Verb;
use crate::command::files::{
    Content, Document, File, FileError, Node, Strictness, inline, nodes, read,
};
use crate::policy::api::GROUP;

/// The kind of a test. It exists only in files: no API server serves it.
pub const KIND: &str = "PolicyTest";

/// The only version of the kind.
const VERSION: &str = "v1alpha1";

/// Other kinds of the group belay.dev that a test file may contain.
const OTHER_KINDS: &[&str] = &["DeletionPolicy", "Relation", "DeletionApproval", "Pause"];

/// The fields of a test.
const FIELDS: &[&str] = &["apiVersion", "kind", "metadata", "policies", "objects", "now", "cases"];

pub struct Test {
    pub name: String,
    /// The time of all requests, in seconds since 1970; `None` for the current time.
    pub now: Option<i64>,
    /// At least one case.
    pub cases: Vec<Case>,
    pub document: Document,
}

/// A case with its position in the list.
#[derive(Debug)]
pub struct Case {
    /// The index in the list, from 0.
    pub index: usize,
    /// The name, which is unique in the test.
    pub name: String,
    pub ask: RequestSpec,
    /// The verb of the request.
    pub verb: Verb,
    /// At least one expectation.
    pub expect: Expect,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct ParsedCase {
    name: String,
    ask: RequestSpec,
    expect: Expect,
}

/// The request as written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RequestSpec {
    /// The object that is deleted, as TYPE/NAME.
    pub delete: Option<String>,
    /// The changed object.
    pub update: Option<String>,
    /// The Namespace that is finalized.
    pub finalize: Option<String>,
    /// The Pod that is evicted.
    pub evict: Option<String>,
    /// The new object, or the path of its file.
    pub create: Option<Value>,
    /// A complete AdmissionReview, or the path of its file.
    pub review: Option<Value>,
    pub namespace: Option<String>,
    /// The subresource of an update.
    pub subresource: Option<String>,
    /// A merge patch.
    pub patch: Option<Value>,
    /// The finalizers to remove.
    pub strip: Option<Vec<String>>,
    pub propagation_policy: Option<PropagationPolicy>,
    /// The user.
    pub by: Option<String>,
    /// The groups of the user, in addition to the default ones.
    pub groups: Option<Vec<String>>,
    /// Whether nothing is stored.
    pub dry_run: Option<bool>,
}

/// The propagation policy of a DELETE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum PropagationPolicy {
    /// Dependents are deleted after the owner.
    Background,
    /// The owner is deleted after its dependents.
    Foreground,
    /// Dependents stay.
    Orphan,
}

impl RequestSpec {
    /// Returns the verb. Checks that the verb allows all other fields.
    fn verb(&self) -> Result<Verb, CaseError> {
        let verbs = [
            (Verb::Delete, self.delete.is_some()),
            (Verb::Update, self.update.is_some()),
            (Verb::Finalize, self.finalize.is_some()),
            (Verb::Evict, self.evict.is_some()),
            (Verb::Create, self.create.is_some()),
            (Verb::Review, self.review.is_some()),
        ];
        let verbs: Vec<Verb> =
            verbs.into_iter().filter(|(_, is_set)| *is_set).map(|(verb, _)| verb).collect();
        let [verb] = verbs[..] else {
            return Err(CaseError::NotOneVerb(verbs));
        };
        for (field, is_set, verbs) in self.qualifiers() {
            if is_set && !verbs.contains(&verb) {
                return Err(CaseError::OtherVerb { field, verbs, verb });
            }
        }
        Ok(verb)
    }

    /// The optional fields, whether they are set, and the verbs that allow them.
    fn qualifiers(&self) -> [(&'static str, bool, &'static [Verb]); 8] {
        use Verb::{Create, Delete, Evict, Finalize, Update};
        let not_review = &[Delete, Update, Finalize, Evict, Create];
        [
            ("namespace", self.namespace.is_some(), &[Delete, Update, Evict, Create]),
            ("subresource", self.subresource.is_some(), &[Update]),
            ("patch", self.patch.is_some(), &[Update, Finalize]),
            ("strip", self.strip.is_some(), &[Update]),
            ("propagationPolicy", self.propagation_policy.is_some(), &[Delete]),
            ("by", self.by.is_some(), not_review),
            ("groups", self.groups.is_some(), not_review),
            ("dryRun", self.dry_run.is_some(), not_review),
        ]
    }
}

/// The tests of a file. Other objects and Helm values are ignored. A document with `cases` that is
/// no object, or of an unknown kind of belay's group, is an error, because its cases would never
/// run.
pub fn tests(file: &File) -> Result<Vec<Test>, FileError> {
    let is_relevant =
        |node: &Node| ["apiVersion", "kind", "cases"].iter().any(|f| node.get(f).is_some());
    let mut documents = Vec::new();
    for node in nodes(file)?.into_iter().filter(is_relevant) {
        documents.append(&mut inline(&file.name, node)?);
    }
    let mut tests = Vec::new();
    for document in documents {
        match (document.group.as_str(), document.kind.as_str()) {
            (GROUP, KIND) => tests.push(Test::read(document)?),
            (_, KIND) => {
                let message = "a PolicyTest is of belay.dev/v1alpha1";
                return Err(document.field_error("apiVersion", message));
            }
            (GROUP, kind) if !OTHER_KINDS.contains(&kind) => {
                let message = format!(
                    "in files the group belay.dev has the kinds PolicyTest, {}",
                    OTHER_KINDS.join(", ")
                );
                return Err(document.field_error("kind", &message));
            }
            _ => {}
        }
    }
    Ok(tests)
}

impl Test {
    fn read(document: Document) -> Result<Self, FileError> {
        if document.version != VERSION {
            let message = "of a PolicyTest there is only the version v1alpha1";
            return Err(document.field_error("apiVersion", message));
        }
        document.check_fields(FIELDS)?;
        document.name()?;
        let node = |field: &str| {
            document.node.get(field).ok_or_else(|| {
                let message = format!("this {KIND} has no field {field}");
                document.error(document.node.position, message)
            })
        };
        let type_error = |error| document.type_error(&error);
        let Metadata { name } =
            read(node("metadata")?, "metadata", Strictness::RejectEmpty).map_err(type_error)?;
        let now: Option<Timestamp> = match document.node.get("now") {
            None => None,
            Some(now) => read(now, "now", Strictness::RejectEmpty).map_err(type_error)?,
        };
        let parsed: Vec<ParsedCase> =
            read(node("cases")?, "cases", Strictness::RejectEmpty).map_err(type_error)?;
        if parsed.is_empty() {
            return Err(document.field_error("cases", "there is none; write down at least one"));
        }
        let mut cases: Vec<Case> = Vec::new();
        for (index, ParsedCase { name, ask, expect }) in parsed.into_iter().enumerate() {
            let case_error = |field: &str, message: &str| {
                document.field_error(&format!("cases[{index}].{field}"), message)
            };
            if name.trim().is_empty() {
                return Err(case_error("name", "it is empty; give the case a name"));
            }
            if cases.iter().any(|case| case.name == name) {
                return Err(case_error("name", "another case has this name; rename one of them"));
            }
            let verb = ask.verb().map_err(|error| case_error("ask", &error.to_string()))?;
            expect.check(verb).map_err(|error| case_error("expect", &error.to_string()))?;
            cases.push(Case { index, name, ask, verb, expect });
        }
        Ok(Self { name, now: now.map(Timestamp::as_second), cases, document })
    }

    pub fn file(&self) -> &str {
        &self.document.file
    }

    /// An error about a field of a case.
    pub fn case_error(&self, case: &Case, field: &str, message: &str) -> FileError {
        self.document.field_error(&format!("cases[{}].{field}", case.index), message)
    }

    /// The line in which a case begins.
    pub fn line(&self, case: &Case) -> usize {
        self.document.node.position_of(&format!("cases[{}]", case.index)).line
    }

    /// The items of a list of paths and objects, each with its field.
    pub fn sources(&self, field: &str) -> Result<Vec<(String, &Node)>, FileError> {
        let Some(node) = self.document.node.get(field) else { return Ok(Vec::new()) };
        let Content::List(items) = &node.content else {
            let message = "expected a list of paths and objects";
            return Err(self.document.field_error(field, message));
        };
        Ok(items.iter().enumerate().map(|(i, item)| (format!("{field}[{i}]"), item)).collect())
    }
}
