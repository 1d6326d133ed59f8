//! A verdict, rendered: for the person, for the audit log, for the API server.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::json;

use super::{Blocker, Decision, HoldChange, Target, Verdict};
use crate::objects::{HOLD, PROTECT_LABEL};

/// The sentence a person reads: what stands against the request, and the way
/// out. `None` when the request passes.
pub fn message(verdict: &Verdict) -> Option<String> {
    if verdict.decision != Decision::Deny {
        return None;
    }
    let target = &verdict.target;
    let sentences: Vec<String> = verdict
        .blockers
        .iter()
        .map(|blocker| match blocker {
            Blocker::Label(value) => format!(
                "{} is protected by its label {PROTECT_LABEL}={value}. Way out: \
                 kubectl label {} {PROTECT_LABEL}-, then delete it again.",
                quoted(target),
                arguments(target),
            ),
            Blocker::Unreadable(what) => format!(
                "belay could not read the review of {}: {what}. The request is refused because \
                 belay runs with --failure-policy Fail.",
                quoted(target),
            ),
        })
        .collect();
    Some(sentences.join(" "))
}

/// What the API server writes into its audit log beside the request. Keys are
/// prefixed with the webhook's name by the API server.
pub fn audit_annotations(verdict: &Verdict) -> Vec<(&'static str, String)> {
    let mut annotations = vec![("verdict", verdict.decision.as_str().to_owned())];
    if let Some(reason) = verdict.reason {
        annotations.push(("reason", reason.as_str().to_owned()));
    }
    if verdict.hold.is_some() {
        annotations.push(("hold", "added".to_owned()));
    }
    annotations
}

/// The JSON patch (RFC 6902) that carries the verdict out; `None` when the
/// object stays as it is.
pub fn patch(verdict: &Verdict) -> Option<Patch> {
    let (tokens, value) = match verdict.hold? {
        HoldChange::First => (&["metadata", "finalizers"][..], json!([HOLD])),
        HoldChange::Append => (&["metadata", "finalizers", "-"][..], json!(HOLD)),
    };
    let path = PointerBuf::from_tokens(tokens.iter().copied());
    Some(Patch(vec![PatchOperation::Add(AddOperation { path, value })]))
}

/// `configmaps "a" in namespace "b"`, the way kubectl names an object.
fn quoted(target: &Target) -> String {
    let Target { resource, group, namespace, name } = target;
    let dot = if group.is_empty() { "" } else { "." };
    let place =
        if namespace.is_empty() { String::new() } else { format!(" in namespace \"{namespace}\"") };
    format!("{resource}{dot}{group} \"{name}\"{place}")
}

/// `configmaps/a -n b`, the way a person types an object.
fn arguments(target: &Target) -> String {
    let Target { resource, group, namespace, name } = target;
    let dot = if group.is_empty() { "" } else { "." };
    let place = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
    format!("{resource}{dot}{group}/{name}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Reason;

    fn target(group: &str, namespace: &str) -> Target {
        Target {
            resource: "widgets".into(),
            group: group.into(),
            namespace: namespace.into(),
            name: "w".into(),
        }
    }

    #[test]
    fn a_denial_names_the_object_and_the_way_out() {
        let deny = |target| {
            message(&Verdict::deny(target, Reason::Protected, Blocker::Label("Always".into())))
                .unwrap()
        };
        assert_eq!(
            deny(target("", "b")),
            "widgets \"w\" in namespace \"b\" is protected by its label belay.dev/protect=Always. \
             Way out: kubectl label widgets/w -n b belay.dev/protect-, then delete it again."
        );
        assert_eq!(
            deny(target("example.com", "")),
            "widgets.example.com \"w\" is protected by its label belay.dev/protect=Always. \
             Way out: kubectl label widgets.example.com/w belay.dev/protect-, then delete it again."
        );
    }

    #[test]
    fn the_patch_does_what_it_says() {
        for (hold, before, after) in [
            (HoldChange::First, json!({}), json!([HOLD])),
            (HoldChange::First, json!({"finalizers": null}), json!([HOLD])),
            (HoldChange::Append, json!({"finalizers": []}), json!([HOLD])),
            (HoldChange::Append, json!({"finalizers": ["x/y"]}), json!(["x/y", HOLD])),
        ] {
            let verdict = Verdict { hold: Some(hold), ..Verdict::allow(target("", "")) };
            let mut object = json!({ "metadata": before });
            json_patch::patch(&mut object, &patch(&verdict).unwrap()).unwrap();
            assert_eq!(object["metadata"]["finalizers"], after);
        }
    }
}
