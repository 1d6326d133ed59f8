//! The Events that report what is wrong with a configuration.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::cluster::Settings;

/// Reports that a configuration does not exist.
pub(super) fn missing(settings: &Settings, kind: &str, now: Timestamp) -> Event {
    let name = &settings.name;
    let message = format!(
        "{kind} {name} does not exist, so the API server asks belay nothing and what only it \
         would refuse passes; belay never makes it: install belay again, or uninstall all of it"
    );
    event(settings, kind, now, ("Missing", message))
}

/// Reports that webhooks are not as they were installed.
pub(super) fn changed(settings: &Settings, kind: &str, now: Timestamp, what: &[String]) -> Event {
    let name = &settings.name;
    let message = format!(
        "{kind} {name} is not as it was installed: {}; the API server may not ask belay what \
         policies need. belay does not write these fields: install belay again",
        what.join(", ")
    );
    event(settings, kind, now, ("Changed", message))
}

/// An Event in belay's own namespace, where its operators look. The API server
/// requires an Event to be in the namespace of its object, and the configuration
/// is in none; so the reference names belay's namespace.
fn event(
    settings: &Settings,
    kind: &str,
    now: Timestamp,
    (reason, message): (&str, String),
) -> Event {
    let Settings { namespace, name, replica, .. } = settings;
    let time = Some(Time(now));
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}.{}", now.as_nanosecond(), kind.to_lowercase())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("admissionregistration.k8s.io/v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            ..ObjectReference::default()
        },
        reason: Some(reason.to_owned()),
        message: Some(message),
        type_: Some("Warning".to_owned()),
        source: Some(EventSource {
            component: Some("belay".to_owned()),
            host: Some(replica.clone()),
        }),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        ..Event::default()
    }
}
