//! Events about problems with a webhook configuration.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use crate::cluster::Settings;
use crate::cluster::event::{EventReport, InvolvedObject};

pub(super) fn missing(settings: &Settings, kind: &str, now: Timestamp) -> Event {
    let name = &settings.name;
    let message = format!(
        "{kind} {name} does not exist, so the API server sends no requests to belay and policies \
         are not enforced. belay never creates it: install belay again, or uninstall it completely"
    );
    event(settings, kind, now, ("Missing", message))
}

pub(super) fn changed(settings: &Settings, kind: &str, now: Timestamp, what: &[String]) -> Event {
    let name = &settings.name;
    let message = format!(
        "{kind} {name} differs from the manifest of this version of belay: {}. The API server may not \
         send all requests to belay that policies need. belay does not write these fields: install \
         the chart and the image of the same version again",
        what.join(", ")
    );
    event(settings, kind, now, ("Changed", message))
}

/// Creates an Event in belay's namespace. The API server requires that an Event is in the namespace
/// of its object. A configuration has no namespace, so the reference names belay's namespace.
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
