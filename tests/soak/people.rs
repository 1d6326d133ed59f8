//! A user who acts at a given rate.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::call::{Answer, Caller};
use crate::harness::random::Random;
use crate::manifests::{GUARD, KEEP, manifest};
use crate::plan::{Action, Kind, Place, ROOMS, Strip, choose};

/// How often an action was tried, by result.
pub type Tally = BTreeMap<(&'static str, String), usize>;

/// The result of an action in the report.
pub fn outcome(done: Result<Answer, tokio::time::error::Elapsed>) -> String {
    match done {
        Ok(Ok(_)) => "done".to_owned(),
        Ok(Err(refusal)) => match (refusal.code, refusal.reason.as_str()) {
            (0, _) => "no answer".to_owned(),
            (code, reason) => format!("{code} {reason}").trim_end().to_owned(),
        },
        Err(_) => "no answer in a minute".to_owned(),
    }
}

/// A user.
pub struct Person {
    /// The username.
    pub name: String,
    /// Whose certificate or token it carries.
    pub caller: Caller,
}

impl Person {
    /// Acts until then.
    pub async fn live(&self, mut random: Random, pause: Duration, until: Instant) -> Tally {
        let mut tally = Tally::new();
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while Instant::now() < until {
            ticks.tick().await;
            let action = choose(&mut random);
            // The API server ends a request that hangs on a webhook after half a minute. A
            // user waits at most a minute.
            let done = tokio::time::timeout(Duration::from_secs(60), self.perform(action)).await;
            *tally.entry((action.name(), outcome(done))).or_default() += 1;
        }
        tally
    }

    async fn perform(&self, action: Action) -> Answer {
        let caller = &self.caller;
        match action {
            Action::Create { place, uses, keep, guarded } => {
                self.create(place, uses, keep, guarded).await
            }
            Action::Delete { place, propagation } => caller.delete(&place.url(), propagation).await,
            Action::DeleteAll { place, collection: true } => {
                caller.delete(&place.collection(), Some("Background")).await
            }
            Action::DeleteAll { place, collection: false } => {
                let mut last = Ok(Value::Null);
                for object in caller.list(&place.collection()).await? {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    // The control plane re-creates it at once.
                    if name != "kube-root-ca.crt" {
                        let url = format!("{}/{name}", place.collection());
                        let answer = caller.delete(&url, Some("Background")).await;
                        last = last.and(answer);
                    }
                }
                last
            }
            Action::Label { place, keep } => {
                let value = if keep { json!("yes") } else { Value::Null };
                caller.merge(&place.url(), json!({"metadata": {"labels": {KEEP: value}}})).await
            }
            Action::Strip { place, how } => self.strip(place, how).await,
            Action::Disown { place } => {
                let none = json!({"metadata": {"ownerReferences": null}});
                caller.merge(&place.url(), none).await
            }
            Action::Approve { place, content } => self.approve(place, content).await,
            Action::Recreate { place, uses, keep } => {
                caller.delete(&place.url(), Some("Background")).await?;
                self.create(place, uses, keep, false).await
            }
            Action::Scale { place, replicas } => {
                caller.merge(&place.url(), json!({"spec": {"replicas": replicas}})).await
            }
        }
    }

    async fn create(&self, place: Place, uses: [usize; 3], keep: bool, guarded: bool) -> Answer {
        let mut owner = None;
        if place.kind == Kind::Child {
            let parent = Place { kind: Kind::ConfigMap, ..place };
            let parent = self.caller.get(&parent.url()).await?;
            owner = parent["metadata"]["uid"].as_str().map(str::to_owned);
        }
        let object = manifest(place, uses, keep, guarded, owner.as_deref());
        self.caller.post(&place.collection(), object).await
    }

    async fn strip(&self, place: Place, how: Strip) -> Answer {
        let caller = &self.caller;
        let none = json!({"metadata": {"finalizers": null}});
        match how {
            Strip::Merge => caller.merge(&place.url(), none).await,
            Strip::Status => caller.merge(&format!("{}/status", place.url()), none).await,
            Strip::Json => {
                let remove = json!([{"op": "remove", "path": "/metadata/finalizers/0"}]);
                caller.json_patch(&place.url(), remove).await
            }
            Strip::Put => {
                let mut object = caller.get(&place.url()).await?;
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("finalizers");
                    metadata.remove("managedFields");
                }
                caller.put(&place.url(), object).await
            }
        }
    }

    async fn approve(&self, place: Place, content: bool) -> Answer {
        let object = self.caller.get(&place.url()).await?;
        let (group, resource) = place.resource();
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(3);
        let approval = json!({
            "apiVersion": "belay.dev/v1alpha1", "kind": "DeletionApproval",
            "metadata": {"generateName": "soak-"},
            "spec": {
                "targetRef": {"group": group, "resource": resource,
                    "namespace": place.namespace(), "name": place.name(),
                    "uid": object["metadata"]["uid"]},
                "approver": self.name, "reason": "a soak", "expirationTime": until.to_string(),
                "scope": if content { "Content" } else { "Object" },
            },
        });
        self.caller.post("/apis/belay.dev/v1alpha1/deletionapprovals", approval).await
    }
}

/// An operator: removes its own finalizer from Terminating objects.
pub async fn operate(caller: Caller, stop: tokio::sync::watch::Receiver<bool>) {
    let mut ticks = interval(Duration::from_secs(2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stop.borrow() {
        ticks.tick().await;
        let kinds = [
            Kind::ConfigMap,
            Kind::Secret,
            Kind::Claim,
            Kind::Pod,
            Kind::Deployment,
            Kind::StatefulSet,
            Kind::Job,
            Kind::Widget,
        ];
        for (room, kind) in (0..ROOMS.len()).flat_map(|room| kinds.map(|kind| (room, kind))) {
            let url = Place { room, kind, number: 0 }.collection();
            for object in caller.list(&url).await.unwrap_or_default() {
                let metadata = &object["metadata"];
                let finalizers = metadata["finalizers"].as_array();
                let at = finalizers.and_then(|list| list.iter().position(|f| f == GUARD));
                let (Some(at), Some(name)) = (at, metadata["name"].as_str()) else { continue };
                if metadata["deletionTimestamp"].is_null() {
                    continue;
                }
                let path = format!("/metadata/finalizers/{at}");
                let patch = json!([{"op": "test", "path": path, "value": GUARD},
                    {"op": "remove", "path": path}]);
                // If another writer was quicker, the next round retries.
                let _ = caller.json_patch(&format!("{url}/{name}"), patch).await;
            }
        }
    }
}
