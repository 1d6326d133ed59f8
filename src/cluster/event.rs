//! Builds and stores all Events of belay.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;

use super::api::post_params;
use super::pace::within;
use crate::objects::{ApiError, EVENT_REPORTER};

/// The namespace of Events about cluster-scoped objects.
const OUTSIDE: &str = "default";

/// The object of an Event. An Event names it by version and kind, but an `ObjectRef` by its plural.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct InvolvedObject {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for a cluster-scoped object.
    pub(super) namespace: String,
    pub(super) name: String,
    /// Empty if unknown.
    pub(super) uid: String,
}

/// The content of an Event.
pub(super) struct EventReport<'a> {
    pub(super) name: String,
    pub(super) involved: &'a InvolvedObject,
    pub(super) is_warning: bool,
    pub(super) reason: &'a str,
    pub(super) message: String,
    pub(super) time: Timestamp,
}

impl EventReport<'_> {
    /// Builds the Event, reported by this replica.
    pub(super) fn into_event(self, replica: &str) -> Event {
        let Self { name, involved, is_warning, reason, message, time } = self;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let namespace = some(&involved.namespace);
        let time = Some(Time(time));
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.clone().unwrap_or_else(|| OUTSIDE.to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: some(&involved.api_version),
                kind: some(&involved.kind),
                namespace,
                name: some(&involved.name),
                uid: some(&involved.uid),
                ..ObjectReference::default()
            },
            type_: some(if is_warning { "Warning" } else { "Normal" }),
            reason: some(reason),
            message: Some(message),
            count: Some(1),
            first_timestamp: time.clone(),
            last_timestamp: time,
            source: Some(EventSource { component: some(EVENT_REPORTER), host: some(replica) }),
            ..Event::default()
        }
    }
}

/// The result of storing an Event.
pub(super) enum Created {
    /// The Event was stored.
    New,
    /// An Event of this name already existed.
    AlreadyExists,
}

/// Stores an Event.
pub(super) async fn create(client: &kube::Client, event: &Event) -> Result<Created, ApiError> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or(OUTSIDE);
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = post_params(false);
    match within(api.create(&params, event)).await {
        Ok(_) => Ok(Created::New),
        Err(error) if error.is_conflict() => Ok(Created::AlreadyExists),
        Err(error) => Err(error),
    }
}
