//! Deletes expired approvals when no object that they cover is Terminating: an approval
//! whose cascade began in time applies until the cascade ends.

use kube::api::Api;
use tokio::time::{MissedTickBehavior, interval};

use super::api;
use super::api::{Detail, delete_exactly};
use super::context::Context;
use super::pace::within;
use super::world::{SharedWorld, World};
use crate::objects::{ApiError, Object, Uid};
use crate::policy::Approval;
use crate::policy::api::DeletionApproval;

/// Expired approvals are kept for this time, so that users can read them.
const RETENTION_SECONDS: i64 = 600;

/// Deletes expired approvals while this replica is the leader.
pub async fn run(context: Context) {
    context.signals.while_leading(|| sweep_regularly(&context), std::future::pending).await;
}

async fn sweep_regularly(context: &Context) {
    let mut ticks = interval(context.settings.timing.checks.approvals);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err((approval, error)) = sweep(&context.client, &context.world).await {
            tracing::warn!(
                approval,
                %error,
                "cannot delete an expired approval; belay retries. Check that \
                 belay's account may get the covered objects and delete deletionapprovals"
            );
        }
    }
}

/// Deletes expired approvals. An approval that may still apply stays and does not delay
/// the others. Returns the first error.
async fn sweep(client: &kube::Client, world: &SharedWorld) -> Result<(), (String, ApiError)> {
    let now = jiff::Timestamp::now().as_second();
    let expired: Vec<Approval> = {
        let world = world.read();
        let over = world.policies.approvals.iter().filter(|a| a.expires + RETENTION_SECONDS < now);
        over.filter(|approval| !covers_terminating_object(&world, approval)).cloned().collect()
    };
    let approvals: Api<DeletionApproval> = Api::all(client.clone());
    let mut first = None;
    for approval in expired {
        match is_terminating(client, world, &approval).await {
            Ok(false) => {}
            Ok(true) => continue,
            Err(error) => {
                first.get_or_insert((approval.name, error));
                continue;
            }
        }
        // belay replaces the approval of an exemption under the same name, so the current
        // one may be valid.
        let uid = Some(approval.uid.clone());
        match delete_exactly(&approvals, &approval.name, uid).await {
            Ok(true) => tracing::info!(approval = approval.name, "deleted an expired approval"),
            // Another client has deleted or replaced it.
            Ok(false) => {}
            Err(error) if error.is_conflict() => {}
            Err(error) => drop(first.get_or_insert((approval.name, error))),
        }
    }
    first.map_or(Ok(()), Err)
}

/// Whether an approval may still apply. An approval that covers content stays while its
/// namespaces contain a Terminating object that was deleted before the approval expired.
fn covers_terminating_object(world: &World, approval: &Approval) -> bool {
    let now = world.clock.now().as_second();
    approval.content
        && world.waiting.objects.iter().any(|((_, namespace, _), seen)| {
            let deleted =
                seen.observed.deletion_timestamp.as_deref().and_then(|time| time.parse().ok());
            let deleted = deleted.map(jiff::Timestamp::as_second);
            approval.covers_namespace(namespace) && approval.is_in_force(deleted, i64::MIN, now)
        })
}

async fn is_terminating(
    client: &kube::Client,
    world: &SharedWorld,
    approval: &Approval,
) -> Result<bool, ApiError> {
    let object = &approval.target;
    let info = world.read().kind_info((&object.group, &object.resource));
    let Some(info) = info else { return Ok(false) };
    let read = api::object(client, &info, &object.namespace, &object.name, Detail::Metadata);
    let Some(json) = within(read).await? else { return Ok(false) };
    let object = serde_json::from_str::<Object<'_>>(&json).ok();
    // The approval does not cover another object of the same name.
    Ok(object.is_none_or(|object| {
        object.is_terminating() && Uid::new(&object.metadata.uid) == approval.target_uid
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::{Mutex, RwLock};
    use serde_json::json;

    use super::*;
    use crate::cluster::local_api::{failure, local_client};
    use crate::cluster::world::WaitingObject;
    use crate::policy::Approvals;

    fn approval(name: &str) -> Approval {
        let approval = json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}"),
                "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"targetRef": {"resource": "configmaps", "namespace": "shop",
                "name": format!("of-{name}"), "uid": format!("uid-of-of-{name}")},
                "approver": "bob", "reason": "because", "expirationTime": "2020-01-01T01:00:00Z"},
        });
        Approval::compile(&serde_json::from_value(approval).unwrap()).unwrap()
    }

    #[test]
    fn h74_a_waiting_object_keeps_only_approvals_that_may_cover_it() {
        let covering = |namespace: &str, deleted: &str| {
            let object = json!({"metadata": {"name": "own", "uid": "u", "resourceVersion": "1",
                "deletionTimestamp": deleted, "finalizers": [crate::objects::HOLD]}});
            let mut world = World::default();
            let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
            let observed = crate::hold::TargetState::read(&object).unwrap();
            let seen = WaitingObject {
                observed,
                requested: None,
                unused: false,
                changes: 0,
                unwatched: false,
            };
            world.waiting.objects.insert((kind, namespace.to_owned(), "own".to_owned()), seen);
            let approval = Approval { content: true, ..approval("a") };
            covers_terminating_object(&world, &approval)
        };
        assert!(covering("shop", "2020-01-01T00:30:00Z"));
        assert!(!covering("other", "2020-01-01T00:30:00Z"));
        assert!(!covering("shop", "2020-01-01T01:30:00Z"));
    }

    #[tokio::test]
    async fn an_unreadable_target_keeps_only_its_own_approval_and_deletes_name_the_uid() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let heard = done.clone();
        let client = local_client(move |request| {
            let path = request.uri().path();
            let code = match *request.method() {
                http::Method::GET if path.contains("/of-unread-") => {
                    heard.lock().push(path.to_owned());
                    403
                }
                http::Method::GET => 404,
                _ => {
                    let uid = request.body()["preconditions"]["uid"].as_str().unwrap_or_default();
                    heard.lock().push(uid.to_owned());
                    // Approval anew was re-created, and approval gone was deleted.
                    if path.ends_with("/anew") { 409 } else { 404 }
                }
            };
            Some(failure(code, "no", ("", "")))
        });
        let mut world = World::default();
        // In any order, another approval comes after one of the two unreadable ones.
        world.policies.approvals =
            Approvals::new(["anew", "unread-1", "gone", "unread-2"].map(approval));
        let world = Arc::new(RwLock::new(world));
        let error = sweep(&client, &world).await;
        assert!(matches!(error, Err((_, ApiError::Forbidden(_)))), "{error:?}");
        let mut done = done.lock().clone();
        done.sort();
        let read = "/api/v1/namespaces/shop/configmaps/of-unread-";
        let [one, two] = [1, 2].map(|n| format!("{read}{n}"));
        assert_eq!(done, [&one, &two, "uid-of-anew", "uid-of-gone"]);
    }
}
