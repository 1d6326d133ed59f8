//! `belay admin crds`: prints the CRDs of belay and its ValidatingAdmissionPolicies as YAML. It
//! can also apply or delete the CRDs in a cluster.

mod cluster;

use clap::Args;

use super::yaml;
use crate::command::access::AccessArguments;
use crate::command::{CommandError, block_on, print};
use crate::policy::api::{admission_policies, crds};

#[derive(Debug, Args)]
pub struct CrdsArguments {
    /// Create or update the CustomResourceDefinitions in a cluster instead of printing
    /// manifests. Does not change the ValidatingAdmissionPolicies: install those with the chart, or
    /// with kubectl apply. You need the RBAC verbs get, create and update on
    /// customresourcedefinitions
    #[arg(long, conflicts_with = "delete")]
    apply: bool,

    /// Delete the CustomResourceDefinitions from a cluster, including every
    /// DeletionPolicy, Relation, DeletionApproval and Pause. Does not delete the
    /// ValidatingAdmissionPolicies (docs/guides/uninstall.md). Uninstall belay first. You
    /// need get and delete on customresourcedefinitions, list on both kinds of webhook
    /// configurations, and list on all resources of belay.dev to count the deleted
    /// objects
    #[arg(long)]
    delete: bool,

    #[command(flatten)]
    access: AccessArguments,
}

pub fn run(arguments: CrdsArguments) -> Result<(), CommandError> {
    let CrdsArguments { apply, delete, access } = arguments;
    match (apply, delete) {
        (true, _) => block_on(cluster::update(&access.into()))?,
        (_, true) => block_on(cluster::delete_all(&access.into()))?,
        _ if access.is_given() => Err(CommandError::usage(
            "--kubeconfig, --context and --as need --apply or --delete: the printed CRDs are the \
             same for every cluster",
        )),
        _ => print(&documents()?),
    }
}

/// One document for each object. The CRDs come first, so that the API server knows the kinds that
/// the policies name.
fn documents() -> Result<String, CommandError> {
    let mut documents = Vec::new();
    for crd in crds() {
        documents.push(yaml(&crd)?);
    }
    for (policy, binding) in admission_policies() {
        documents.push(yaml(&policy)?);
        documents.push(yaml(&binding)?);
    }
    Ok(documents.join("---\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(values) => values.iter().any(has_null),
            Value::Object(fields) => fields.values().any(has_null),
            _ => false,
        }
    }

    #[test]
    fn the_output_is_yaml_of_exactly_these_objects_with_no_null_and_no_status() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&documents().unwrap()).unwrap();
        let named = |d: &Value| format!("{} {}", d["kind"], d["metadata"]["name"]).replace('"', "");
        assert_eq!(
            documents.iter().map(named).collect::<Vec<_>>(),
            [
                "CustomResourceDefinition deletionpolicies.belay.dev",
                "CustomResourceDefinition relations.belay.dev",
                "CustomResourceDefinition deletionapprovals.belay.dev",
                "CustomResourceDefinition pauses.belay.dev",
                "ValidatingAdmissionPolicy approvals.belay.dev",
                "ValidatingAdmissionPolicyBinding approvals.belay.dev",
                "ValidatingAdmissionPolicy pauses.belay.dev",
                "ValidatingAdmissionPolicyBinding pauses.belay.dev",
                "ValidatingAdmissionPolicy events.belay.dev",
                "ValidatingAdmissionPolicyBinding events.belay.dev",
                "ValidatingAdmissionPolicy evictions.belay.dev",
                "ValidatingAdmissionPolicyBinding evictions.belay.dev",
                "ValidatingAdmissionPolicy labels.belay.dev",
                "ValidatingAdmissionPolicyBinding labels.belay.dev",
                "ValidatingAdmissionPolicy templates.belay.dev",
                "ValidatingAdmissionPolicyBinding templates.belay.dev",
            ]
        );
        for document in &documents {
            assert!(!has_null(document), "{document:#}");
            assert_eq!(document.get("status"), None);
            assert!(!document.to_string().contains("nullable"), "{document:#}");
        }
        // YAML must not change the text.
        let objects: Vec<Value> = crds()
            .iter()
            .map(|d| serde_json::to_value(d).unwrap())
            .chain(admission_policies().iter().flat_map(|(policy, binding)| {
                [serde_json::to_value(policy).unwrap(), serde_json::to_value(binding).unwrap()]
            }))
            .collect();
        assert_eq!(documents, objects);
    }
}
