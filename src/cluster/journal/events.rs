//! Events on what was not deleted, as `kubectl describe` shows them.

use std::time::Instant;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::Patch;
use serde_json::json;

use super::Desk;
use super::entry::Entry;
use super::notices::{Key, Next, Notice, Outcome};
use crate::cluster::api::patch_params;
use crate::cluster::event::{COMPONENT, Created, EventReport, InvolvedObject, create};
use crate::cluster::pace::within;
use crate::cluster::{Context, World};
use crate::objects::{ApiError, short_digest};

/// The object of an entry, as Events name it; `None` if its kind or its uid is
/// not known: nobody would find the Event.
pub(super) fn involved(world: &World, entry: &Entry) -> Option<InvolvedObject> {
    let kinds = &world.graph.kinds;
    let target = &entry.target;
    let kind = kinds.find_resource(&target.group, &target.resource)?;
    let info = kinds.info(kind);
    let version = info.versions.first()?;
    let namespace = if info.namespaced { target.namespace.as_str() } else { "" };
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

/// Writes what is to be written, for ever.
pub(super) async fn keep(context: &Context, desk: &Desk, started: Instant) {
    loop {
        let news = desk.news.notified();
        let next = desk.notices.lock().next(started.elapsed());
        match next {
            Next::Write(key, notice) => {
                let outcome = write(context, &key, &notice).await;
                desk.notices.lock().wrote(&key, outcome);
            }
            Next::Wait(until) => {
                let pause = until.saturating_sub(started.elapsed());
                // What is new may come before what waits for its count.
                let _ = tokio::time::timeout(pause, news).await;
            }
            Next::Nothing => news.await,
        }
    }
}

async fn write(context: &Context, key: &Key, notice: &Notice) -> Outcome {
    send(&context.client, event(&context.settings.replica, key, notice), notice.stored).await
}

/// Changes it, or makes it where it is not stored.
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
            Created::AlreadyExists => Outcome::There,
        })
    };
    match result {
        Ok(outcome) => outcome,
        Err(ApiError::NotFound) if stored => Outcome::Gone,
        // A Terminating namespace takes no new objects, and an Event is not
        // worth a warning: the log has a line of the same denial.
        Err(error) => {
            tracing::debug!(namespace, name, %error, "an Event was not written");
            Outcome::Refused
        }
    }
}

/// The Event of a notice. Each replica has its own: counts of two could not be
/// written without a read before each.
fn event(replica: &str, key: &Key, notice: &Notice) -> Event {
    let involved = &notice.involved;
    let mark = short_digest(&(replica, key, notice.first.as_second()));
    let report = EventReport {
        name: format!("{}.{mark}", front(&involved.name)),
        involved,
        is_warning: notice.denied,
        reason: key.reason,
        message: notice.message.clone(),
        time: notice.first,
    };
    Event {
        count: Some(notice.count),
        last_timestamp: Some(Time(notice.last)),
        // `belay denials` finds these by it.
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(replica.to_owned()),
        ..report.into_event(replica)
    }
}

/// What the name of an Event begins with: the object's, where that is a name
/// that any object may have.
fn front(name: &str) -> &str {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(plain)
            && label.ends_with(plain)
            && label.chars().all(|c| plain(c) || c == '-')
    };
    // 253 bytes, less the dot and the mark.
    if name.len() <= 236 && name.split('.').all(label) { name } else { COMPONENT }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::super::notices::Notices;
    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::decide::Decision;

    #[test]
    fn an_event_is_in_the_objects_namespace_and_names_it() {
        let mut world = World::default();
        let mut said = entry(7200, "settings", Decision::Deny);
        let found = involved(&world, &said).unwrap();
        assert_eq!((found.api_version.as_str(), found.kind.as_str()), ("v1", "ConfigMap"));
        let mut notices = Notices::new(std::time::Duration::from_secs(10));
        notices.note(&said, found);
        let Next::Write(key, notice) = notices.next(Default::default()) else { panic!() };
        let event_ = event("belay-0", &key, &notice);
        assert_eq!(event_.metadata.namespace.as_deref(), Some("shop"));
        assert_eq!(event_.type_.as_deref(), Some("Warning"));
        assert_eq!(event_.reason.as_deref(), Some("Protected"));
        assert_eq!(event_.involved_object.uid.as_deref(), Some("uid-of-settings"));
        assert!(event_.metadata.name.as_deref().unwrap().starts_with("settings."));
        assert_ne!(event("belay-1", &key, &notice).metadata.name, event_.metadata.name);

        let held = entry(7200, "settings", Decision::Hold);
        let mut others = Notices::new(std::time::Duration::from_secs(10));
        others.note(&held, involved(&world, &held).unwrap());
        let Next::Write(key_of_held, held) = others.next(Default::default()) else { panic!() };
        let held = event("belay-0", &key_of_held, &held);
        assert_eq!(held.type_.as_deref(), Some("Normal"));
        assert_eq!(held.reason.as_deref(), Some("Held"));

        // The review of a Namespace says its own name as its namespace.
        said.target.resource = "namespaces".into();
        let found = involved(&world, &said).unwrap();
        assert_eq!(found.namespace, "");
        let mut notices = Notices::new(std::time::Duration::from_secs(10));
        notices.note(&said, found);
        let Next::Write(key, notice) = notices.next(Default::default()) else { panic!() };
        let event = event("belay-0", &key, &notice);
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(
            event.message.as_deref(),
            Some(
                "namespaces \"settings\": belay denied a request; policy kept, label \
                 belay.dev/protect=Always. Why: kubectl belay why namespaces/settings"
            )
        );
        assert_eq!(event.involved_object.namespace, None);

        // Without a uid it is the graph that knows it; without a kind nobody.
        said.target.resource = "configmaps".into();
        said.uid = String::new();
        assert_eq!(involved(&world, &said), None);
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let uid = "8c1f4f5e-0000-4000-8000-000000000000";
        let json = format!(
            r#"{{"metadata": {{"name": "settings", "namespace": "shop", "uid": "{uid}"}}}}"#
        );
        let catalogue = world.catalogue.clone();
        crate::cluster::world::take(&mut world.graph, &catalogue, kind, &json, None).unwrap();
        assert_eq!(involved(&world, &said).unwrap().uid, uid);
        said.target.group = "example.com".into();
        assert_eq!(involved(&world, &said), None);
    }

    #[tokio::test]
    async fn what_is_there_already_was_made_by_a_write_whose_answer_was_lost() {
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
        assert_eq!(answered(409, false).await, Outcome::There);
        assert_eq!(answered(403, false).await, Outcome::Refused);
        // A change that conflicts with another one says nothing of that.
        assert_eq!(answered(409, true).await, Outcome::Refused);
        assert_eq!(answered(404, true).await, Outcome::Gone);
    }

    #[test]
    fn names_that_an_event_may_not_have_are_left_out() {
        assert_eq!(front("web-0.shop"), "web-0.shop");
        assert_eq!(front("system:admin"), COMPONENT);
        assert_eq!(front("Upper"), COMPONENT);
        assert_eq!(front("a..b"), COMPONENT);
        assert_eq!(front("-a"), COMPONENT);
        assert_eq!(front(&"a".repeat(237)), COMPONENT);
    }
}
