//! What drivers receive, and what happens to changes without a leader.

use serde_json::json;

use super::*;
use crate::cluster::local_api::local_client;
use crate::hold::TargetState;

/// A context with an API server that never answers.
fn context() -> Context {
    Context::of_test(local_client::<String>(|_| None), World::default(), &[])
}

fn key(context: &Context) -> ObjectKey {
    let kind = context.world.read().graph.kinds.find_resource("", "configmaps").unwrap();
    (kind, "n".to_owned(), "c".to_owned())
}

fn add_waiting(context: &Context, key: &ObjectKey) {
    let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "c",
        "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["belay.dev/hold"]}});
    let observed = TargetState::read(&object).unwrap();
    let seen =
        WaitingObject { observed, requested: None, unused: true, changes: 0, unwatched: true };
    let waiting = &mut context.world.write().waiting;
    waiting.objects.insert(key.clone(), seen);
    waiting.changed.insert(key.clone());
}

/// A waiting object, and the releases with a driver for it.
fn with_driver() -> (Context, ObjectKey, Releases) {
    let context = context();
    let key = key(&context);
    let mut releases = Releases::new(context.clone(), Reader::new(context.clone()));
    add_waiting(&context, &key);
    releases.apply_changes(false);
    (context, key, releases)
}

#[tokio::test]
async fn an_object_that_waits_again_before_its_driver_has_ended_gets_a_new_driver() {
    let (context, key, mut releases) = with_driver();
    // The object leaves its watch, and then comes back.
    {
        let waiting = &mut context.world.write().waiting;
        waiting.objects.remove(&key);
        waiting.changed.insert(key.clone());
    }
    releases.apply_changes(false);
    add_waiting(&context, &key);
    releases.apply_changes(false);
    let (key, pending) = releases.tasks.join_next().await.unwrap().unwrap();
    releases.remove_ended(&key, &pending);
    assert!(releases.targets.is_empty());
    releases.apply_changes(false);
    assert!(releases.targets.contains_key(&key));
}

#[tokio::test]
async fn the_driver_of_an_object_that_was_replaced_ends_and_the_new_one_stays() {
    let (context, key, mut releases) = with_driver();
    let new: Arc<str> = "new".into();
    {
        let waiting = &mut context.world.write().waiting;
        waiting.objects.get_mut(&key).unwrap().observed.uid = new.clone();
        waiting.changed.insert(key.clone());
    }
    releases.apply_changes(false);
    let (ended, pending) = releases.tasks.join_next().await.unwrap().unwrap();
    releases.remove_ended(&ended, &pending);
    assert_eq!(releases.targets[&key].uid, new);
}

/// Sets the annotation that requests a check.
fn request(releases: &mut Releases, key: &ObjectKey, value: usize) {
    let context = releases.shared.context.clone();
    add_waiting(&context, key);
    let state = context.world.read().waiting.objects[key].clone();
    let state = WaitingObject { requested: Some(value.to_string()), ..state };
    context.world.write().waiting.objects.insert(key.clone(), state);
    releases.apply_changes(false);
}

/// Replaces the pending update of a driver by one that no driver takes.
fn replace_pending(releases: &mut Releases, key: &ObjectKey) -> Arc<PendingUpdate> {
    let pending = Arc::new(PendingUpdate::default());
    releases.targets.get_mut(key).unwrap().pending = pending.clone();
    pending
}

/// Requests a check, and returns the time until the pass.
fn request_pass(releases: &mut Releases, key: &ObjectKey, value: usize) -> Option<Duration> {
    let pending = replace_pending(releases, key);
    request(releases, key, value);
    pending.take().pass_by.map(|time| time - Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_later_request_does_not_delay_a_due_pass() {
    let (context, key, mut releases) = with_driver();
    let min_interval = context.settings.timing.release.min_pass_interval;
    let pending = replace_pending(&mut releases, &key);
    tokio::time::advance(min_interval * 2).await;
    let due = Instant::now();
    request(&mut releases, &key, 0);
    tokio::time::advance(min_interval / 2).await;
    request(&mut releases, &key, 1);
    assert_eq!(pending.take().pass_by, Some(due));
}

#[tokio::test(start_paused = true)]
async fn requested_passes_keep_their_interval_and_no_request_is_lost() {
    let (context, key, mut releases) = with_driver();
    let min_interval = context.settings.timing.release.min_pass_interval;
    // A tenant writes the annotation very often.
    let mut passes = std::collections::BTreeSet::new();
    let start = Instant::now();
    for value in 0..1_000 {
        if let Some(after) = request_pass(&mut releases, &key, value) {
            assert!(after <= min_interval);
            passes.insert(start.elapsed() + after);
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let last = start.elapsed() - Duration::from_millis(10);
    assert_eq!(passes.len(), 5, "{passes:?}");
    let passes: Vec<Duration> = passes.into_iter().collect();
    assert!(passes.windows(2).all(|two| two[1] - two[0] >= min_interval), "{passes:?}");
    assert!(*passes.last().unwrap() >= last, "the last request is not lost");
    // After a pause, the first request starts a pass at once.
    tokio::time::advance(min_interval * 2).await;
    assert_eq!(request_pass(&mut releases, &key, 1_000), Some(Duration::ZERO));
    assert_eq!(request_pass(&mut releases, &key, 1_000), None, "it is the same request");
    assert_eq!(request_pass(&mut releases, &key, 1_001), Some(min_interval));
}

#[tokio::test]
async fn changes_do_not_add_up_without_a_leader() {
    let context = context();
    let reader = Reader::new(context.clone());
    let running = tokio::spawn(run(context.clone(), reader));
    tokio::task::yield_now().await;
    add_waiting(&context, &key(&context));
    context.signals.waiting.notify_one();
    let until = Instant::now() + Duration::from_secs(5);
    while !context.world.read().waiting.changed.is_empty() {
        assert!(Instant::now() < until, "the changes stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(context.world.read().waiting.objects.len(), 1);
    running.abort();
}
