//! One cause why an object stays Terminating.

use crate::objects::{text_enum, without_controls};
use schemars::JsonSchema;
use serde::Serialize;

text_enum! {
    /// The kinds of causes, in the order of reports: an earlier kind is more likely to be the cause
    /// that the others wait for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
    pub enum Cause {
        /// An admission webhook or policy refuses a request that the deletion needs.
        Refused = "a request that its deletion needs is refused",
        /// An aggregated API does not answer.
        BrokenApi = "an API does not answer",
        /// The conversion webhook of a kind does not answer.
        ConversionWebhook = "a conversion webhook does not answer",
        /// The controller that removes a finalizer was not found.
        #[serde(rename = "OwnerGone")]
        ControllerGone = "a finalizer whose controller was not found",
        /// The controller that removes a finalizer does not run.
        #[serde(rename = "OwnerDown")]
        ControllerDown = "a finalizer whose controller does not run",
        /// The node of the Pod does not exist, or is not ready.
        NodeGone = "its node does not exist or is not ready",
        /// belay holds the object.
        HeldByBelay = "held by belay",
        /// A foreground deletion waits for dependents.
        Foreground = "waits for its dependents",
        /// The Namespace or CRD has content.
        Content = "it is not empty",
        /// The object is in use.
        InUse = "still in use",
        /// The controller that removes a finalizer has not removed it yet, and probably runs.
        #[serde(rename = "Owner")]
        Controller = "a finalizer that was not removed yet",
        /// Unknown.
        Unknown = "unknown",
    }

    /// The text in a table.
    pub fn as_str;
}

/// One cause why an object stays Terminating.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The kind of cause.
    pub cause: Cause,
    /// The finalizer. Absent if the cause is not about a finalizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// The message.
    #[serde(rename = "says")]
    pub message: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The next step.
    pub next: String,
}

impl Finding {
    /// A finding without evidence.
    pub fn new(cause: Cause, message: impl Into<String>, next: impl Into<String>) -> Self {
        // A line break in a name from a client must not start a step.
        let next = without_controls(&next.into());
        Self { cause, finalizer: None, message: message.into(), evidence: Vec::new(), next }
    }

    /// Adds a line after the next step: another step with its condition, or a note.
    pub fn with_further_step(mut self, step: &str) -> Self {
        self.next.push('\n');
        self.next.push_str(&without_controls(step));
        self
    }

    /// Adds the evidence.
    pub fn with(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Sets the finalizer.
    pub fn with_finalizer(self, finalizer: &str) -> Self {
        Self { finalizer: Some(finalizer.to_owned()), ..self }
    }
}
