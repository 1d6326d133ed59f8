//! Finalizers: who added them, who removes them, and how a user removes a finalizer whose
//! controller no longer exists.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::terminating::{Evidence, TerminatingObject};
use crate::decide::approve_command;
use crate::objects::{HOLD, ObjectRef, is_hold, more, quote_if_ambiguous, shell_word, texts_at};

/// The components that remove well-known finalizers, and when.
const REMOVERS: &[(&str, &str, &str)] = &[
    (HOLD, "belay", "nothing needs the object any more"),
    ("kubernetes", "the namespace controller", "nothing is left in it"),
    ("foregroundDeletion", "the garbage collector", "the dependents that block are deleted"),
    ("orphan", "the garbage collector", "its dependents have no reference to it any more"),
    ("kubernetes.io/pvc-protection", "the PVC protection controller", "no Pod uses it"),
    ("kubernetes.io/pv-protection", "the PV protection controller", "no claim is bound to it"),
    (
        "kubernetes.io/pv-controller",
        "the PV controller",
        "no claim is bound to it and its storage is deleted",
    ),
    ("kubernetes.io/vac-protection", "the protection controller", "no volume uses it"),
    ("batch.kubernetes.io/job-tracking", "the Job controller", "the Pod is counted"),
    (
        "service.kubernetes.io/load-balancer-cleanup",
        "the service controller",
        "the load balancer is deleted",
    ),
    ("customresourcecleanup.apiextensions.k8s.io", "the API server", "its objects are deleted"),
    (
        "resource.kubernetes.io/delete-protection",
        "the resource claim controller",
        "nothing uses it",
    ),
];

/// The component that removes a finalizer of Kubernetes or of belay, and when.
pub fn remover(name: &str) -> Option<(&'static str, &'static str)> {
    // The hold has several names, and belay removes all of them.
    let name = if is_hold(name) { HOLD } else { name };
    let mut removers = REMOVERS.iter();
    removers.find(|(finalizer, ..)| *finalizer == name).map(|(_, remover, when)| (*remover, *when))
}

/// The field manager that added a finalizer.
pub fn writer(finalizer: &str, object: &Value) -> Option<String> {
    let managers = object.pointer("/metadata/managedFields")?.as_array()?;
    let key = format!("v:\"{finalizer}\"");
    let wrote = |entry: &&Value| {
        let fields = entry.pointer("/fieldsV1/f:metadata/f:finalizers");
        fields.is_some_and(|fields| fields.get(&key).is_some())
    };
    let name = managers.iter().find(wrote)?.get("manager")?.as_str()?;
    // The API server writes "unknown" for a client without a name.
    let is_known = !matches!(name, "" | "unknown");
    is_known.then(|| quote_if_ambiguous(name).into_owned())
}

/// The finalizers of an object, in their order.
pub fn finalizers_of(object: &Value) -> Vec<&str> {
    texts_at(object, "/metadata/finalizers")
}

/// The number of finalizers that commands describe, besides those of Kubernetes and belay.
const MAX_DESCRIBED: usize = 20;

/// The finalizers that commands describe, each with its index in the list, and the number of
/// others. An editor can add tens of thousands to an object (H180).
pub fn first_finalizers<'f>(
    all: impl IntoIterator<Item = &'f str>,
) -> (Vec<(usize, &'f str)>, usize) {
    let mut seen = HashSet::new();
    let all = all.into_iter().enumerate().filter(|(_, name)| seen.insert(*name));
    let (known, mut foreign): (Vec<_>, Vec<_>) = all.partition(|(_, name)| remover(name).is_some());
    let more = foreign.len().saturating_sub(MAX_DESCRIBED);
    foreign.truncate(MAX_DESCRIBED);
    let mut first = [known, foreign].concat();
    first.sort_unstable();
    (first, more)
}

/// The number of finalizers that a list leaves out, and the command that shows them. `None` if it
/// leaves out none.
pub fn more_finalizers(count: usize, object: &ObjectRef) -> Option<(String, String)> {
    let command = format!("kubectl get {} -o yaml", object.arguments());
    (count > 0).then(|| (format!("it has {}", more(count, "finalizer")), command))
}

/// One finalizer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockingFinalizer {
    /// The name.
    pub name: String,
    /// Whether it is belay's.
    pub ours: bool,
    /// The controller that removes it, and when.
    pub removed_by: String,
    /// The sentence about its removal.
    #[serde(skip)]
    pub removal: String,
    /// The command to remove the finalizer by hand if its controller no longer exists. Absent
    /// if it must not be removed by hand. It tests what it removes, so it removes nothing else
    /// if the list has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<String>,
}

impl BlockingFinalizer {
    /// The finalizers that keep an object, and the number of others. For a Namespace, they include
    /// `spec.finalizers`.
    pub fn first(object: &Value, reference: &ObjectRef) -> (Vec<Self>, usize) {
        let (first, more) = first_finalizers(finalizers_of(object));
        let metadata = first.into_iter().map(|(index, name)| {
            // Users don't remove the finalizers that Kubernetes or belay removes.
            let is_foreign = remover(name).is_none();
            let by_hand = is_foreign.then(|| by_hand(name, index, &reference.arguments()));
            Self { by_hand, ..Self::new(name, object) }
        });
        let spec = match reference.is_namespace() {
            true => texts_at(object, "/spec/finalizers"),
            false => Vec::new(),
        };
        let (spec, more_in_spec) = first_finalizers(spec);
        let spec = spec.into_iter().map(|(_, name)| Self::new(name, object));
        (metadata.chain(spec).collect(), more + more_in_spec)
    }

    fn new(name: &str, object: &Value) -> Self {
        // A tool of a user removes no finalizer automatically.
        let writer = writer(name, object).filter(|writer| !is_tool(writer));
        let (removed_by, removal) = match (remover(name), writer) {
            (Some((remover, when)), _) => {
                (format!("{remover}, when {when}"), format!("{remover} removes it when {when}"))
            }
            (None, Some(writer)) => (
                format!("probably {writer}, which added it"),
                format!("{writer} added it, and probably must remove it"),
            ),
            (None, None) => {
                let removed_by = "its own controller, which belay does not know".to_owned();
                let removal =
                    "only its own controller should remove it; belay does not know this controller";
                (removed_by, removal.to_owned())
            }
        };
        Self { name: name.to_owned(), ours: is_hold(name), removed_by, removal, by_hand: None }
    }
}

/// The command that removes the finalizer at this index. It tests the value first, so it
/// removes no other finalizer if the list has changed.
pub fn by_hand(finalizer: &str, index: usize, arguments: &str) -> String {
    let path = format!("/metadata/finalizers/{index}");
    let patch = json!([{"op": "test", "path": path, "value": finalizer},
                       {"op": "remove", "path": path}]);
    format!("kubectl patch {arguments} --type=json -p {}", shell_word(&patch.to_string()))
}

/// The command that removes the finalizer at this index. If a policy guards the finalizer, the
/// command that approves the removal comes first. `option`: a kubectl option after a space, or
/// empty.
pub fn removal(
    (finalizer, index): (&str, usize),
    found: &TerminatingObject,
    evidence: &Evidence,
    option: &str,
) -> String {
    let command = by_hand(finalizer, index, &(found.object_ref.arguments() + option));
    let guarded = evidence.guarded.get(&found.uid);
    match guarded.is_some_and(|guarded| guarded.iter().any(|one| one == finalizer)) {
        true => format!("{}, and then: {command}", approve_command(&found.object_ref, false)),
        false => command,
    }
}

/// Tools that write manifests of users and don't control the objects in them, and names
/// that identify no controller.
const TOOLS: &[&str] = &[
    "kubectl",
    "helm",
    "argocd",
    "kustomize-controller",
    "helm-controller",
    "terraform",
    "pulumi",
    "manager",
    "operator",
    "controller",
    "before-first-apply",
    "python",
    "curl",
    "node-fetch",
    "go-http-client",
    "openapi-generator",
];

/// Whether a field manager is one of `TOOLS`.
pub fn is_tool(manager: &str) -> bool {
    let manager = manager.to_lowercase();
    TOOLS.iter().any(|tool| {
        manager.strip_prefix(tool).is_some_and(|rest| {
            let is_generic = ["manager", "operator", "controller", "node-fetch"].contains(tool);
            rest.is_empty() || (!is_generic && !rest.starts_with(|c: char| c.is_alphanumeric()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remover_of_a_finalizer_is_well_known_or_its_writer() {
        let names = [HOLD, "kubernetes.io/pvc-protection", "db.example.com/drop", "x.dev/y"];
        let object = json!({"metadata": {"finalizers": names, "managedFields": [
            {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            {"manager": "db-operator", "fieldsV1":
                {"f:metadata": {"f:finalizers": {".": {}, "v:\"db.example.com/drop\"": {}}}}},
        ]}});
        let reference = ObjectRef::new(("", "configmaps"), "b", "a");
        let (all, more) = BlockingFinalizer::first(&object, &reference);
        let [hold, claims, drop, foreign] = &all[..] else { panic!("{all:?}") };
        assert_eq!(more, 0);
        assert!(hold.ours && hold.removed_by.starts_with("belay, "));
        assert!(claims.removed_by.contains("no Pod uses it"));
        assert_eq!(drop.removed_by, "probably db-operator, which added it");
        assert!(foreign.removed_by.contains("does not know"));
        assert_eq!((&hold.by_hand, &claims.by_hand), (&None, &None));
        let command = foreign.by_hand.as_deref().unwrap();
        assert!(command.starts_with("kubectl patch configmaps/a -n b --type=json -p '[{"));
        assert!(command.contains("/metadata/finalizers/3") && command.contains("x.dev/y"));
    }

    #[test]
    fn h180_some_of_the_finalizers_are_described_and_the_others_counted() {
        let foreign: Vec<String> = (0..40_000).map(|n| format!("x.dev/f{n}")).collect();
        let foreign = foreign.iter().map(String::as_str);
        let all = ["x.dev/f0"].into_iter().chain(foreign).chain([HOLD, HOLD]);
        let (first, more) = first_finalizers(all);
        assert_eq!((first.len(), more), (MAX_DESCRIBED + 1, 40_000 - MAX_DESCRIBED));
        assert_eq!((first[0], first[1]), ((0, "x.dev/f0"), (2, "x.dev/f1")));
        assert_eq!(first.last(), Some(&(40_001, HOLD)));
    }
}
