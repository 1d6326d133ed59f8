//! Writes Events about objects that were not deleted. `kubectl describe` shows them.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;
use std::time::Instant;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::Patch;
use serde_json::json;

use super::PendingWrites;
use super::entry::Entry;
use super::event_queue::{Key, Next, Outcome, QueuedEvent};
use crate::cluster::api::patch_params;
use crate::cluster::event::{Created, EventReport, InvolvedObject, create};
use crate::cluster::pace::within;
use crate::cluster::{Context, World};
use crate::objects::{ApiError, EVENT_REPORTER, is_dns_subdomain};

/// The reference of an Event to the object of an entry. `None` if its kind or uid is unknown,
/// because `kubectl describe` would not find such an Event.
pub(super) fn involved(world: &World, entry: &Entry) -> Option<InvolvedObject> {
    let kinds = &world.graph.kinds;
    let target = &entry.target;
    let kind = kinds.find_resource(&target.group, &target.resource)?;
    let info = kinds.info(kind);
    let version = info.versions.first()?;
    let namespace = info.namespace_or_empty(&target.namespace);
    let uid = match entry.uid.as_str() {
        "" => world.graph.object(kind, namespace, &target.name)?.uid().to_string(),
        uid => uid.to_owned(),
    };
    let slash = if info.group.is_empty() { "" } else { "/" };
    Some(InvolvedObject {
        api_version: format!("{}{slash}{version}", info.group),
        kind: info.kind.clone(),
        namespace: namespace.to_owned(),
        name: target.name.clone(),
        uid,
    })
}

/// Writes Events until the future is dropped.
pub(super) async fn write_events(context: &Context, pending: &PendingWrites, started: Instant) {
    loop {
        let changed = pending.queue_changed.notified();
        let next = pending.event_queue.lock().next(started.elapsed());
        match next {
            Next::Write(key, queued) => {
                let outcome = write(context, &key, &queued).await;
                pending.event_queue.lock().record_outcome(&key, outcome);
            }
            Next::Wait(until) => {
                let pause = until.saturating_sub(started.elapsed());
                // A new Event may be due before the next count.
                let _ = tokio::time::timeout(pause, changed).await;
            }
            Next::Nothing => changed.await,
        }
    }
}

async fn write(context: &Context, key: &Key, queued: &QueuedEvent) -> Outcome {
    send(&context.client, event(&context.settings.instance, key, queued), queued.stored).await
}

async fn send(client: &kube::Client, event: Event, stored: bool) -> Outcome {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let name = event.metadata.name.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let result = if stored {
        let patch = json!({
            "count": event.count,
            "lastTimestamp": event.last_timestamp,
            "message": event.message,
        });
        within(api.patch(&name, &patch_params(), &Patch::Merge(patch)))
            .await
            .map(|_| Outcome::Stored)
    } else {
        create(client, &event).await.map(|created| match created {
            Created::New => Outcome::Stored,
            Created::AlreadyExists => Outcome::AlreadyExists,
        })
    };
    match result {
        Ok(outcome) => outcome,
        Err(ApiError::NotFound) if stored => Outcome::NotFound,
        // A Terminating namespace accepts no new objects. The log has a line about the
        // same denial, so this is not a warning.
        Err(error) => {
            tracing::debug!(namespace, name, %error, "an Event was not written");
            if error.is_lasting() { Outcome::Refused } else { Outcome::Failed }
        }
    }
}

/// The secret hash key for the names of Events. If users could predict a name, they could create
/// the Event first and hide the denial.
static NAME_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Each replica has its own Event: replicas could not share a count without a read before
/// each write.
fn event(instance: &str, key: &Key, queued: &QueuedEvent) -> Event {
    let involved = &key.involved;
    let suffix = NAME_HASHER.hash_one((instance, key, queued.first.as_second()));
    let report = EventReport {
        name: format!("{}.{suffix:016x}", name_prefix(&involved.name)),
        involved,
        is_warning: queued.denied,
        reason: key.reason,
        message: queued.message.clone(),
        time: queued.first,
    };
    Event {
        count: Some(queued.count),
        last_timestamp: Some(Time(queued.last)),
        // `kubectl belay denials` selects Events by this field.
        reporting_component: Some(EVENT_REPORTER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..report.into_event(instance)
    }
}

/// Returns the object's name if an Event may have it, or the name of the component.
fn name_prefix(name: &str) -> &str {
    // 253 bytes, less the dot and the digest.
    if name.len() <= 236 && is_dns_subdomain(name) { name } else { EVENT_REPORTER }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::super::event_queue::EventQueue;
    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::decide::Decision;

    #[test]
    fn an_event_is_in_the_objects_namespace_and_names_it() {
        let mut world = World::default();
        let mut denied = entry(7200, "settings", Decision::Deny);
        let found = involved(&world, &denied).unwrap();
        assert_eq!((found.api_version.as_str(), found.kind.as_str()), ("v1", "ConfigMap"));
        let mut event_queue = EventQueue::new(std::time::Duration::from_secs(10));
        event_queue.record(&denied, found);
        let Next::Write(key, queued) = event_queue.next(Default::default()) else { panic!() };
        let event_ = event("belay-0", &key, &queued);
        assert_eq!(event_.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(event_.type_.as_deref(), Some("Warning"));
        assert_eq!(event_.reason.as_deref(), Some("Protected"));
        assert_eq!(event_.involved_object.uid.as_deref(), Some("uid-of-settings"));
        assert!(event_.metadata.name.as_deref().unwrap().starts_with("settings."));
        assert_ne!(event("belay-1", &key, &queued).metadata.name, event_.metadata.name);
        // h128: another process has other names for the same denial.
        let hashed = RandomState::new().hash_one(("belay-0", &key, queued.first.as_second()));
        assert_eq!(event("belay-0", &key, &queued).metadata.name, event_.metadata.name);
        assert_ne!(event_.metadata.name.unwrap(), format!("settings.{hashed:016x}"));

        let held = entry(7200, "settings", Decision::Hold);
        let mut others = EventQueue::new(std::time::Duration::from_secs(10));
        others.record(&held, involved(&world, &held).unwrap());
        let Next::Write(key_of_held, held) = others.next(Default::default()) else { panic!() };
        let held = event("belay-0", &key_of_held, &held);
        assert_eq!(held.type_.as_deref(), Some("Normal"));
        assert_eq!(held.reason.as_deref(), Some("Held"));

        // The review of a Namespace contains its own name as the namespace.
        denied.target.resource = "namespaces".into();
        let found = involved(&world, &denied).unwrap();
        assert_eq!(found.namespace, "");
        let mut event_queue = EventQueue::new(std::time::Duration::from_secs(10));
        event_queue.record(&denied, found);
        let Next::Write(key, queued) = event_queue.next(Default::default()) else { panic!() };
        let event = event("belay-0", &key, &queued);
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(
            event.message.as_deref(),
            Some(
                "namespaces \"settings\": belay denied a request; policy kept, label \
                 belay.dev/protect=Always. Details: kubectl belay why namespaces/settings"
            )
        );
        assert_eq!(event.involved_object.namespace, None);

        // Without a uid in the entry, the graph provides it. Without a kind there is no
        // Event.
        denied.target.resource = "configmaps".into();
        denied.uid = String::new();
        assert_eq!(involved(&world, &denied), None);
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let uid = "8c1f4f5e-0000-4000-8000-000000000000";
        let json = format!(
            r#"{{"metadata": {{"name": "settings", "namespace": "shop", "uid": "{uid}"}}}}"#
        );
        let catalogue = world.catalogue.clone();
        crate::cluster::world::store(&mut world.graph, &catalogue, kind, &json, None).unwrap();
        assert_eq!(involved(&world, &denied).unwrap().uid, uid);
        denied.target.group = "example.com".into();
        assert_eq!(involved(&world, &denied), None);
    }

    #[tokio::test]
    async fn an_existing_event_was_created_by_a_write_whose_answer_was_lost() {
        let answered = async |code: u16, stored| {
            let client = local_client(move |_| match code {
                200 => Some((200, json!({"metadata": {}, "involvedObject": {}}))),
                _ => Some(failure(code, "no", ("events", "settings.1"))),
            });
            let mut event = Event::default();
            (event.metadata.name, event.metadata.namespace) =
                (Some("settings.1".to_owned()), Some("shop".to_owned()));
            send(&client, event, stored).await
        };
        assert_eq!(answered(200, false).await, Outcome::Stored);
        assert_eq!(answered(200, true).await, Outcome::Stored);
        assert_eq!(answered(409, false).await, Outcome::AlreadyExists);
        assert_eq!(answered(403, false).await, Outcome::Refused);
        // A conflicting patch does not mean that the Event was created.
        assert_eq!(answered(409, true).await, Outcome::Failed);
        assert_eq!(answered(503, false).await, Outcome::Failed);
        assert_eq!(answered(404, true).await, Outcome::NotFound);
    }

    #[test]
    fn names_that_an_event_may_not_have_are_replaced() {
        assert_eq!(name_prefix("web-0.shop"), "web-0.shop");
        assert_eq!(name_prefix("system:admin"), EVENT_REPORTER);
        assert_eq!(name_prefix("Upper"), EVENT_REPORTER);
        assert_eq!(name_prefix("a..b"), EVENT_REPORTER);
        assert_eq!(name_prefix("-a"), EVENT_REPORTER);
        assert_eq!(name_prefix(&"a".repeat(237)), EVENT_REPORTER);
    }
}
