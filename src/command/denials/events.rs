//! The denials in Events.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

use super::{Denial, DenialFilter};
use crate::cluster::list_all;
use crate::command::document::Object;
use crate::objects::{
    ApiError, EVENT_REPORTER, KindInfo, Kinds, ObjectRef, WOULD_DENY_EVENT, split_api_version,
};

/// The namespace of Events about cluster-scoped objects.
const OUTSIDE: &str = "default";

/// How far the clock of a replica may be ahead of the API server's clock, in seconds.
const CLOCK_SKEW: i64 = 60;

/// The field selector of the Events that belay has written.
const OURS: &str = "reportingComponent=belay";

/// All Events of belay, or the Events in the namespace `near` if the user may not list all. Returns
/// also whether the list is complete.
pub(super) async fn all_events(
    client: &kube::Client,
    near: &str,
) -> Result<(Vec<Event>, bool), ApiError> {
    let params = ListParams::default().fields(OURS);
    let (api, near) = (Api::all(client.clone()), Api::namespaced(client.clone(), near));
    match list_all(api, params.clone()).await {
        Ok(listed) => Ok((listed.objects, true)),
        Err(ApiError::Forbidden(_)) => Ok((list_all(near, params).await?.objects, false)),
        Err(error) => Err(error),
    }
}

/// The Events of one object, which are in its namespace.
pub(super) async fn events(
    client: &kube::Client,
    target: &ObjectRef,
    uid: &str,
) -> Result<Vec<Event>, ApiError> {
    let namespace = if target.namespace.is_empty() { OUTSIDE } else { &target.namespace };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("{OURS},involvedObject.uid={uid}"));
    Ok(list_all(api, params).await?.objects)
}

/// Whether the Event reports a request that belay denied or, with `would`, a request that it would
/// have denied without a Pause.
pub(super) fn is_listed(event: &Event, would: bool) -> bool {
    let fits = match would {
        true => would_deny(event),
        false => event.type_.as_deref() == Some("Warning"),
    };
    fits && event.reporting_component.as_deref() == Some(EVENT_REPORTER)
}

fn would_deny(event: &Event) -> bool {
    event.reason.as_deref() == Some(WOULD_DENY_EVENT)
}

/// Whether the Event is in the namespace where belay writes Events about such objects. Users
/// who may create Events in one namespace could otherwise report objects of another.
pub(super) fn is_in_its_namespace(event: &Event, kind: Option<&KindInfo>) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let [place, involved] = [&event.metadata.namespace, &event.involved_object.namespace].map(text);
    let (outside, inside) = (involved.is_empty() && place == OUTSIDE, involved == place);
    match kind {
        Some(kind) if kind.namespaced => inside,
        Some(_) => outside,
        None => outside || inside,
    }
}

/// The denial that an Event reports, or `None` if belay does not write such Events.
pub(super) fn parse_event(event: &Event, kinds: &Kinds, filter: DenialFilter) -> Option<Denial> {
    let involved = &event.involved_object;
    let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref())?.0;
    if filter.ago(time) < -CLOCK_SKEW || event.count.is_some_and(|count| count < 1) {
        return None;
    }
    let message = event.message.clone().unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (kind, namespace) = (text(&involved.kind), text(&involved.namespace));
    let name = text(&involved.name);
    let group = split_api_version(involved.api_version.as_deref().unwrap_or_default()).0;
    let info = kinds.find(group, &kind).map(|kind| kinds.info(kind));
    if !is_in_its_namespace(event, info) {
        return None;
    }
    let (target, object) = match info {
        Some(info) => {
            (ObjectRef::of_kind(info, &namespace, &name), Object::of_kind(info, &namespace, &name))
        }
        // The plural is unknown. kubectl and belay accept the kind in lower case as well.
        None => {
            let target = ObjectRef::new((group, &kind.to_lowercase()), &namespace, &name);
            let object = Object::of_unknown(&kind, &namespace, &name);
            let typed = target.arguments();
            (target, Object { arguments: typed, ..object })
        }
    };
    Some(Denial {
        time,
        ago: filter.ago(time),
        object: object.with_uid(&text(&involved.uid)),
        target: target.to_string(),
        verdict: if would_deny(event) { "Audit" } else { "Deny" }.to_owned(),
        reason: event.reason.clone().filter(|_| !would_deny(event)),
        subject: None,
        policies: Vec::new(),
        message,
        count: event.count,
    })
}
