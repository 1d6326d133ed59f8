//! Errors in a test case, or in the request that it describes.

use super::verb::Verb;

/// An error in a test case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseError {
    #[error("the case has no expectations; add at least the verdict")]
    ExpectsNothing,
    #[error("message is empty, so it would match every message; remove it")]
    EmptyMessage,
    #[error("blockers is empty; remove it")]
    EmptyBlockers,
    #[error("held applies to create and update, not to {}", .0.as_str())]
    HeldNotStored(Verb),
    #[error(
        "expected one of delete, update, finalize, evict, create and review, found {}",
        list(.0, " and ", "none of them")
    )]
    NotOneVerb(Vec<Verb>),
    #[error("{field} goes with {}, not with {}", list(verbs, ", ", ""), verb.as_str())]
    OtherVerb { field: &'static str, verbs: &'static [Verb], verb: Verb },
    #[error("\"{0}\" is not an object; expected TYPE/NAME, such as pvc/data")]
    NoTarget(String),
    #[error("neither Kubernetes nor the files have a kind \"{word}\"; {}", nearest(near))]
    UnknownWord { word: String, near: Vec<String> },
    #[error(
        "neither Kubernetes nor the files have a kind \"{0}\" of this group; put its \
         CustomResourceDefinition among the objects"
    )]
    UnknownKind(String),
    #[error("there is no {object} among the objects; {}", elsewhere(other))]
    NoObject { object: String, other: Option<String> },
    #[error("only Pods can be evicted, not {0}")]
    EvictsOther(String),
    #[error("only Namespaces can be finalized, not {0}")]
    FinalizesOther(String),
    #[error("the case changes nothing; add patch or strip")]
    NoPatchOrStrip,
    #[error("the object has no finalizer \"{0}\" to strip")]
    NoFinalizer(String),
    #[error("the request changes nothing; add a patch with a change")]
    ChangesNothing,
    #[error("the object needs apiVersion and kind")]
    NoKind,
    #[error("the object needs metadata.name or metadata.generateName")]
    NoName,
    #[error("the object has another namespace than the case; leave one of them out")]
    OtherNamespace,
    #[error("the patch of the mutating phase does not fit: {0}")]
    PatchFails(String),
    #[error("this object cannot be read as one of Kubernetes: {0}")]
    UnreadableObject(String),
    #[error("{0}")]
    NoReview(String),
}

fn list(verbs: &[Verb], between: &str, none: &str) -> String {
    match verbs {
        [] => none.to_owned(),
        verbs => verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(between),
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => "put its CustomResourceDefinition among the objects".to_owned(),
        near => format!("nearest: {}", near.join(", ")),
    }
}

fn elsewhere(other: &Option<String>) -> String {
    match other {
        Some(namespace) => format!("there is one in namespace {namespace}; set namespace"),
        None => "add it, or name another one".to_owned(),
    }
}
