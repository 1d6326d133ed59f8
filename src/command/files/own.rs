//! The objects of the group belay.dev, which users write.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::FileError;
use super::documents::Document;
use super::reader::{Strictness, read};
use crate::objects::KindInfo;
use crate::policy::api::{
    self, Check, DeletionApproval, DeletionApprovalSpec, DeletionPolicy, DeletionPolicySpec,
    PauseSpec, Relation, RelationSpec,
};
use crate::policy::{Approval, Pause, Policy, compile_relation};
use crate::relations::CustomRelation;

/// The kinds of the group.
pub fn kinds() -> [KindInfo; 4] {
    [
        api::kind_info::<DeletionPolicy>(),
        api::kind_info::<Relation>(),
        api::kind_info::<DeletionApproval>(),
        api::kind_info::<api::Pause>(),
    ]
}

/// The only version of the group.
const VERSION: &str = "v1alpha1";

/// All belay objects in the files.
#[derive(Default)]
pub struct BelayObjects {
    pub policies: Vec<Policy>,
    /// The specs of the policies, by name.
    pub specs: Vec<(String, DeletionPolicySpec)>,
    pub approvals: Vec<Approval>,
    pub pauses: Vec<Pause>,
    pub relations: Vec<CustomRelation>,
    /// The kinds that relations name: relation, group, plural name.
    pub related: Vec<(String, String, String)>,
    /// The position of each object, by kind and name.
    seen: HashMap<(String, String), String>,
}

impl BelayObjects {
    /// Adds a document of group belay.dev.
    pub fn add(&mut self, document: &Document) -> Result<(), FileError> {
        if document.version != VERSION {
            return Err(document.field_error(
                "apiVersion",
                "of the group belay.dev there is only the version v1alpha1",
            ));
        }
        let kind = document.kind.as_str();
        match kind {
            "DeletionPolicy" => {
                let (name, metadata) = self.check_head(document)?;
                // `compile` checks the spec, so this does not call `checked_spec`.
                let spec: DeletionPolicySpec = read_spec(document)?;
                let policy =
                    Policy::compile(&name, &spec).map_err(|p| problem_error(document, &p))?;
                let annotations = metadata.annotations.unwrap_or_default();
                self.policies.push(policy.with_annotations(&annotations));
                self.specs.push((name, spec));
            }
            "Relation" => {
                let (name, _) = self.check_head(document)?;
                let spec: RelationSpec = checked_spec(document)?;
                let relation = compile_relation(&name, &spec)
                    .map_err(|(field, message)| document.field_error(&field, &message))?;
                self.relations.push(relation);
                for kind in [Some(&spec.from), spec.to.as_ref()].into_iter().flatten() {
                    self.related.push((name.clone(), kind.group.clone(), kind.resource.clone()));
                }
            }
            "DeletionApproval" => {
                let (name, metadata) = self.check_head(document)?;
                let spec: DeletionApprovalSpec = checked_spec(document)?;
                let mut approval = DeletionApproval::new(&name, spec);
                approval.metadata = metadata;
                if approval.metadata.deletion_timestamp.is_some() {
                    return Ok(());
                }
                let approval = Approval::compile(&approval).ok_or_else(|| {
                    let message = "an approval needs metadata.creationTimestamp here, because no \
                                   API server sets it";
                    document.field_error("metadata.creationTimestamp", message)
                })?;
                self.approvals.push(approval);
            }
            "Pause" => {
                let (name, _) = self.check_head(document)?;
                let spec: PauseSpec = checked_spec(document)?;
                self.pauses.push(Pause::compile(&api::Pause::new(&name, spec)));
            }
            _ => {
                return Err(document.field_error(
                    "kind",
                    "the group belay.dev has the kinds DeletionPolicy, Relation, DeletionApproval \
                     and Pause",
                ));
            }
        }
        Ok(())
    }

    /// Checks the name, the metadata and the top-level fields. Returns the name and the metadata.
    fn check_head(&mut self, document: &Document) -> Result<(String, ObjectMeta), FileError> {
        let top = ["apiVersion", "kind", "metadata", "spec", "status"];
        document.check_fields(&top)?;
        let name = document.name()?.to_owned();
        let key = (document.kind.clone(), name.clone());
        if let Some(first) = self.seen.insert(key, document.origin()) {
            let message = format!(
                "a {} of this name is already at {first}; rename or remove one of the two",
                document.kind
            );
            return Err(document.error(document.node.position_of("metadata.name"), message));
        }
        let metadata = document
            .node
            .get("metadata")
            .map(|node| read(node, "metadata", Strictness::RejectUnknown));
        let metadata = metadata.transpose().map_err(|error| document.type_error(&error))?;
        Ok((name, metadata.unwrap_or_default()))
    }
}

/// Reads the spec. The status is not read, because another version of belay may have written it.
fn read_spec<'d, T: Deserialize<'d>>(document: &'d Document) -> Result<T, FileError> {
    let node = document.node.get("spec").ok_or_else(|| {
        document.error(document.node.position, format!("this {} has no spec", document.kind))
    })?;
    read(node, "spec", Strictness::RejectEmpty).map_err(|error| document.type_error(&error))
}

/// Reads the spec and checks its rules.
fn checked_spec<'d, T: Deserialize<'d> + Check>(document: &'d Document) -> Result<T, FileError> {
    let spec: T = read_spec(document)?;
    match spec.problems() {
        problems if problems.is_empty() => Ok(spec),
        problems => Err(problem_error(document, &problems)),
    }
}

/// The error about the first problem.
fn problem_error(document: &Document, problems: &[api::Problem]) -> FileError {
    match problems.first() {
        Some(first) => document.field_error(&first.field, first.message),
        None => document.error(document.node.position, "this cannot be used"),
    }
}
