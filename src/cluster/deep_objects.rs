//! Repairs objects whose managedFields are nested too deeply for JSON (H137).
//!
//! The API server can't send such an object as an event, so it ends each watch of the kind. It
//! can't send the object in a review either, so no webhook can be asked about the object. It can
//! send the object in a list. There the feed finds the object, and the leader resets its
//! managedFields.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::holds::take_turns;
use super::pace::Backoff;
use super::release::TargetClient;
use super::world::ObjectKey;
use crate::objects::{ApiError, one_line_name};
use crate::telemetry::NamespaceLineLimit;

/// The maximum number of objects in a round, so that a tenant with many objects does not delay
/// the others.
const ROUND: usize = 20;

/// The pause between rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// When to try again to repair an object.
type Retries = HashMap<ObjectKey, (Instant, Backoff)>;

/// Repairs objects while this replica is the leader.
pub async fn run(context: Context) {
    context.signals.while_leading(|| run_rounds(&context), std::future::pending).await;
}

async fn run_rounds(context: &Context) {
    let mut retries = Retries::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        run_round(context, &mut retries).await;
    }
}

/// Repairs some objects. An object that can't be repaired for now stays recorded.
async fn run_round(context: &Context, retries: &mut Retries) {
    let due: Vec<ObjectKey> = {
        let recorded = &context.world.read().too_deep;
        retries.retain(|key, _| recorded.contains(key));
        let is_due =
            |key: &&ObjectKey| retries.get(*key).is_none_or(|(until, _)| *until <= Instant::now());
        recorded.iter().filter(is_due).cloned().collect()
    };
    for key in take_turns(due, ROUND, |(_, namespace, _)| namespace) {
        let (target, may_patch) = {
            let world = context.world.read();
            let target = TargetClient::at(&world, &key);
            let may_patch = world.patch_rights.allow(&target.info.group, &target.info.resource);
            (target, may_patch)
        };
        let result = match may_patch {
            true => target.reset_deep_fields(&context.client).await,
            false => Err(ApiError::Forbidden("belay may not patch it".to_owned())),
        };
        report(&target, &result);
        // The next list records an object again.
        if result.is_err_and(|error| !error.is_lasting()) {
            let first = || (Instant::now(), Backoff::from(context.settings.timing.retry));
            let (until, backoff) = retries.entry(key).or_insert_with(first);
            *until = Instant::now() + backoff.next();
        } else {
            context.world.write().too_deep.remove(&key);
        }
    }
}

fn report(target: &TargetClient, result: &Result<bool, ApiError>) {
    static LINES: LazyLock<NamespaceLineLimit> = LazyLock::new(NamespaceLineLimit::default);
    let TargetClient { info, namespace, name, .. } = target;
    if matches!(result, Ok(false)) {
        return;
    }
    let Some(suppressed) = LINES.admit_log_line(namespace, Instant::now().into_std()) else {
        return;
    };
    let (resource, name) = (info.full_name(), &*one_line_name(name));
    match result {
        Ok(_) => tracing::warn!(
            resource,
            namespace,
            name,
            left_out = suppressed,
            "reset managedFields that were nested too deeply for a watch"
        ),
        Err(error) => tracing::warn!(
            resource, namespace, name, left_out = suppressed, %error,
            "cannot reset managedFields that are nested too deeply for a watch"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::cluster::patch_rights::PatchRights;
    use crate::cluster::release::protobuf::{managed_fields_of_test, object_of_test};
    use crate::cluster::world::World;

    #[tokio::test(start_paused = true)]
    async fn h137_an_object_that_cannot_be_repaired_now_is_tried_again_later_and_delays_no_other() {
        let replaced = Arc::<Mutex<Vec<String>>>::default();
        let sent = replaced.clone();
        let client = kube::Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let path = request.uri().path().to_owned();
                let levels = if path.ends_with("shallow") { 10 } else { 20_000 };
                let mut response =
                    Response::new(Body::from(object_of_test(&managed_fields_of_test(levels))));
                if request.method() == Method::PUT {
                    let is_busy = path.contains("/busy/");
                    *response.status_mut() =
                        if is_busy { StatusCode::CONFLICT } else { StatusCode::OK };
                    sent.lock().push(path);
                }
                async { Ok::<_, Infallible>(response) }
            }),
            "default",
        );
        let world = World::default();
        let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
        let context = Context::of_test(client, world, &[]);
        let key = |namespace: &str, name: &str| (kind, namespace.to_owned(), name.to_owned());
        let many = (0..2 * ROUND).map(|number| key("busy", &format!("x{number}")));
        let recorded: BTreeSet<_> =
            many.chain([key("quiet", "x"), key("quiet", "shallow")]).collect();
        context.world.write().too_deep = recorded;
        let mut retries = Retries::new();
        run_round(&context, &mut retries).await;
        let quiet = |path: &&String| path.contains("/quiet/");
        assert_eq!(replaced.lock().iter().filter(quiet).count(), 1);
        assert_eq!(context.world.read().too_deep.len(), 2 * ROUND);
        // Other objects have their turn before the first objects are tried again.
        run_round(&context, &mut retries).await;
        run_round(&context, &mut retries).await;
        let tries: BTreeSet<String> = replaced.lock().iter().cloned().collect();
        assert_eq!((replaced.lock().len(), tries.len()), (2 * ROUND + 1, 2 * ROUND + 1));
        context.world.write().patch_rights = PatchRights::none();
        tokio::time::advance(Duration::from_secs(600)).await;
        for _ in 0..3 {
            run_round(&context, &mut retries).await;
        }
        assert_eq!(replaced.lock().len(), 2 * ROUND + 1);
        assert!(context.world.read().too_deep.is_empty());
    }
}
