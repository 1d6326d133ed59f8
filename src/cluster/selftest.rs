//! The self-test: whether the API server calls belay and belay denies and holds.
//!
//! The test must work without an approval, because a ServiceAccount may run it, whose
//! approvals don't count. So the hold is tested with a dry run, which stores nothing. The
//! object for the denial test is an Event: the API server deletes it automatically, also
//! when the test was killed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams};

use super::api::post_params;
use super::event::{EventReport, InvolvedObject};
use super::pace::{LIMIT, random, timed};
use crate::objects::{ApiError, HOLD, PROTECT_LABEL};
use crate::webhook::redact_secret_paths;

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The answer is as expected, with the message of the API server.
    Right(String),
    /// The answer is not as expected, which can happen for a moment after an installation.
    NotYet(String),
    /// The caller has no permission.
    Forbidden(String),
    /// The test failed, and another attempt will not help.
    Never(String),
}

/// Two test objects of one name in one namespace, which belay must protect.
pub struct Probe {
    pub name: String,
    namespace: String,
    config_maps: Api<ConfigMap>,
    events: Api<Event>,
}

impl Probe {
    /// Chooses a unique name, and creates no object.
    pub fn new(client: &kube::Client, namespace: &str) -> Self {
        Self {
            name: format!("belay-selftest-{:08x}", random(u32::MAX)),
            namespace: namespace.to_owned(),
            config_maps: Api::namespaced(client.clone(), namespace),
            events: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Whether a new object with the label gets the hold. Nothing is stored.
    pub async fn is_held(&self) -> Answer {
        let config_map = ConfigMap { metadata: self.metadata(), ..ConfigMap::default() };
        match once(self.config_maps.create(&post_params(true), &config_map)).await {
            Ok(created) => match created.metadata.finalizers.unwrap_or_default() {
                finalizers if finalizers.iter().any(|f| f == HOLD) => Answer::Right(String::new()),
                _ => Answer::NotYet("it was created without the hold".to_owned()),
            },
            Err(refusal) => refusal.into_answer(),
        }
    }

    /// Creates the Event.
    pub async fn create_event(&self) -> Answer {
        let involved = InvolvedObject {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: String::new(),
        };
        let report = EventReport {
            name: self.name.clone(),
            involved: &involved,
            is_warning: false,
            reason: "SelfTest",
            message: "belay tests its webhooks: this Event is protected, and the API \
                      server deletes it after an hour"
                .to_owned(),
            time: jiff::Timestamp::now(),
        };
        // Only belay's own account may write and delete Events of belay.
        let source = EventSource { component: Some("belay-selftest".to_owned()), host: None };
        let event = report.into_event("");
        let event = Event { metadata: self.metadata(), source: Some(source), ..event };
        match once(self.events.create(&post_params(false), &event)).await {
            // An existing object is the result of an attempt whose answer was lost.
            Ok(_) | Err(Refusal::Answered(409, _)) => Answer::Right(String::new()),
            Err(refusal) => refusal.into_answer(),
        }
    }

    /// Whether belay refuses the Event's DELETE. Nothing is deleted.
    pub async fn is_denied(&self) -> Answer {
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        match once(self.events.delete(&self.name, &params)).await {
            Ok(_) => Answer::NotYet("it was allowed".to_owned()),
            Err(Refusal::Answered(403, message)) if is_denied_by_delete_webhook(&message) => {
                // A denial before belay has read its policies proves nothing.
                match message.contains("is protected; label") {
                    true => Answer::Right(message),
                    false => {
                        Answer::NotYet(format!("belay denied it for another reason: {message}"))
                    }
                }
            }
            Err(refusal) => match refusal.into_answer() {
                Answer::Never(message) => {
                    Answer::Never(format!("belay did not deny it: {message}"))
                }
                other => other,
            },
        }
    }

    /// Deletes the Event unless belay denies that. Returns whether it was deleted.
    pub async fn delete_event(&self) -> bool {
        let deleted = once(self.events.delete(&self.name, &DeleteParams::default())).await;
        matches!(deleted, Ok(_) | Err(Refusal::Answered(404, _)))
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            labels: Some(BTreeMap::from([(PROTECT_LABEL.to_owned(), "Always".to_owned())])),
            ..ObjectMeta::default()
        }
    }
}

/// Whether a message is a denial by a webhook of belay for deletes.
fn is_denied_by_delete_webhook(message: &str) -> bool {
    message.contains("delete.belay.dev\" denied the request: ")
}

/// Why a request did not succeed.
enum Refusal {
    /// The code and the message.
    Answered(u16, String),
    /// The request got no answer.
    None(ApiError),
}

impl Refusal {
    fn into_answer(self) -> Answer {
        match self {
            // The message of a denial by RBAC.
            Self::Answered(403, message) if message.contains("is forbidden: User ") => {
                Answer::Forbidden(message)
            }
            // Another webhook answers with 403, a ValidatingAdmissionPolicy with 422 by
            // default.
            Self::Answered(403 | 404 | 422, message) => Answer::Never(message),
            Self::Answered(_, message) => Answer::NotYet(message),
            Self::None(error) => Answer::NotYet(error.to_string()),
        }
    }
}

/// Sends one request and keeps the message of the answer.
async fn once<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    match timed(LIMIT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => {
            Err(Refusal::Answered(status.code, redact_secret_paths(&status.message)))
        }
        Ok(Err(error)) => Err(Refusal::None(error.into())),
        Err(error) => Err(Refusal::None(error)),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::local_api::{failure, local_client};

    /// Runs the test against an API server with these answers to POST and DELETE.
    fn probe(post: (u16, Value), delete: (u16, &'static str)) -> Probe {
        let client = local_client(move |request| {
            if request.method() == Method::DELETE {
                let status = if delete.0 == 200 { "Success" } else { "Failure" };
                let status = json!({"kind": "Status", "code": delete.0, "message": delete.1,
                    "status": status});
                return Some((delete.0, status));
            }
            let dry_run = request.uri().query().unwrap_or_default().contains("dryRun=All");
            let is_event = request.uri().path().contains("/events");
            assert_eq!(dry_run, !is_event, "the object with the hold is never stored");
            Some(post.clone())
        });
        Probe::new(&client, "default")
    }

    fn refused(code: u16, message: &str) -> (u16, Value) {
        failure(code, message, ("configmaps", ""))
    }

    const RBAC: &str = "configmaps is forbidden: User \"jane\" cannot create resource";
    const OTHER: &str = "admission webhook \"policy.example.com\" denied the request: no";

    #[tokio::test]
    async fn finds_a_hold_and_tries_again_without_one() {
        let made = |finalizers: Value| (201, json!({"metadata": {"finalizers": finalizers}}));
        let held = |answer| async { probe(answer, (200, "")).is_held().await };
        assert_eq!(held(made(json!(["x/y", HOLD]))).await, Answer::Right(String::new()));
        assert!(matches!(held(made(json!(["x/y"]))).await, Answer::NotYet(_)));
        assert!(matches!(held(refused(403, RBAC)).await, Answer::Forbidden(_)));
        assert!(matches!(held(refused(403, OTHER)).await, Answer::Never(_)));
        assert!(matches!(held(refused(404, "no namespace")).await, Answer::Never(_)));
        assert!(matches!(held(refused(500, "etcd")).await, Answer::NotYet(_)));
    }

    #[tokio::test]
    async fn only_the_denial_for_the_label_is_the_right_answer() {
        const DENIED: &str = "admission webhook \"label-delete.belay.dev\" denied the request: \
             event \"x\" is protected; label belay.dev/protect=Always. To override: …";
        const EARLY: &str = "admission webhook \"label-delete.belay.dev\" denied the request: it is \
             not known whether event \"x\" may be deleted: belay has not read its policies yet";
        const SILENT: &str = "Internal error occurred: failed calling webhook \
             \"label-delete.belay.dev\": connection refused";
        let denied = |code, message| async move {
            probe(refused(500, ""), (code, message)).is_denied().await
        };
        assert_eq!(denied(403, DENIED).await, Answer::Right(DENIED.to_owned()));
        assert!(matches!(denied(403, EARLY).await, Answer::NotYet(_)));
        assert!(matches!(denied(500, SILENT).await, Answer::NotYet(_)));
        assert!(matches!(denied(200, "").await, Answer::NotYet(_)));
        assert!(matches!(denied(403, RBAC).await, Answer::Forbidden(_)));
        for code in [403, 422] {
            let Answer::Never(why) = denied(code, OTHER).await else { panic!("it waits") };
            assert!(why.starts_with("belay did not deny it: admission webhook"), "{why}");
        }
    }

    #[tokio::test]
    async fn an_event_is_created_once_in_a_namespace_that_allows_it() {
        let event = probe(refused(409, "already exists"), (404, "not found"));
        assert_eq!(event.create_event().await, Answer::Right(String::new()));
        assert!(event.delete_event().await);
        assert!(!probe(refused(500, ""), (403, OTHER)).delete_event().await);
    }
}
