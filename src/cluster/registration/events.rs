//! The Events that report what is wrong with a configuration.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use crate::cluster::Settings;
use crate::cluster::event::{EventReport, InvolvedObject};

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
    let involved = InvolvedObject {
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
        uid: String::new(),
    };
    let name = format!("{name}.{:x}.{}", now.as_nanosecond(), kind.to_lowercase());
    EventReport { name, involved: &involved, is_warning: true, reason, message, time: now }
        .into_event(replica)
}
