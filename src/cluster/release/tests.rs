//! What drivers receive, and what happens to changes without a leader.

use serde_json::json;

use super::*;
use crate::cluster::local_api::local_client;
use crate::hold::TargetState;

/// With an API server that never answers.
fn context() -> Context {
    Context::of_test(local_client::<String>(|_| None), World::default(), &[])
}

fn place(context: &Context) -> ObjectKey {
    let kind = context.world.read().graph.kinds.find_resource("", "configmaps").unwrap();
    (kind, "n".to_owned(), "c".to_owned())
}

fn is_seen(context: &Context, place: &ObjectKey) {
    let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "c",
        "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["belay.dev/hold"]}});
    let observed = TargetState::read(&object).unwrap();
    let seen =
        WaitingObject { observed, requested: None, unused: true, changes: 0, unwatched: true };
    let waiting = &mut context.world.write().waiting;
    waiting.seen.insert(place.clone(), seen);
    waiting.changed.insert(place.clone());
}

/// The releases of an object that is seen and has its driver.
fn begun() -> (Context, ObjectKey, Releases) {
    let context = context();
    let place = place(&context);
    let mut releases = Releases::new(context.clone(), Reader::new(context.clone()));
    is_seen(&context, &place);
    releases.take_in(false);
    (context, place, releases)
}

#[tokio::test]
async fn what_is_seen_again_before_its_driver_has_ended_is_begun_anew() {
    let (context, place, mut releases) = begun();
    // The watch says that it is gone, and a look finds it.
    {
        let waiting = &mut context.world.write().waiting;
        waiting.seen.remove(&place);
        waiting.changed.insert(place.clone());
    }
    releases.take_in(false);
    is_seen(&context, &place);
    releases.take_in(false);
    let (place, pending) = releases.tasks.join_next().await.unwrap().unwrap();
    releases.forget(&place, &pending);
    assert!(releases.targets.is_empty());
    releases.take_in(false);
    assert!(releases.targets.contains_key(&place));
}

#[tokio::test]
async fn the_driver_of_an_object_that_was_replaced_ends_and_the_new_one_stays() {
    let (context, place, mut releases) = begun();
    let new: Arc<str> = "new".into();
    {
        let waiting = &mut context.world.write().waiting;
        waiting.seen.get_mut(&place).unwrap().observed.uid = new.clone();
        waiting.changed.insert(place.clone());
    }
    releases.take_in(false);
    let (ended, pending) = releases.tasks.join_next().await.unwrap().unwrap();
    releases.forget(&ended, &pending);
    assert_eq!(releases.targets[&place].uid, new);
}

/// Asks for a look at an object.
fn ask(releases: &mut Releases, place: &ObjectKey, value: usize) {
    let context = releases.shared.context.clone();
    is_seen(&context, place);
    let seen = context.world.read().waiting.seen[place].clone();
    let seen = WaitingObject { requested: Some(value.to_string()), ..seen };
    context.world.write().waiting.seen.insert(place.clone(), seen);
    releases.take_in(false);
}

/// A pending update for the driver of an object, which keeps all that arrives.
fn new_mailbox(releases: &mut Releases, place: &ObjectKey) -> Arc<PendingUpdate> {
    let pending = Arc::new(PendingUpdate::default());
    releases.targets.get_mut(place).unwrap().pending = pending.clone();
    pending
}

/// Sends a request, and returns when the driver would look.
fn look_after(releases: &mut Releases, place: &ObjectKey, value: usize) -> Option<Duration> {
    let pending = new_mailbox(releases, place);
    ask(releases, place, value);
    pending.take().look_by.map(|look| look - Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_look_that_is_due_is_not_put_off_by_a_later_one() {
    let (context, place, mut releases) = begun();
    let again = context.settings.timing.release.again;
    let pending = new_mailbox(&mut releases, &place);
    tokio::time::advance(again * 2).await;
    let due = Instant::now();
    ask(&mut releases, &place, 0);
    tokio::time::advance(again / 2).await;
    ask(&mut releases, &place, 1);
    assert_eq!(pending.take().look_by, Some(due));
}

#[tokio::test(start_paused = true)]
async fn requested_looks_are_as_far_apart_as_others_and_none_is_lost() {
    let (context, place, mut releases) = begun();
    let again = context.settings.timing.release.again;
    // As often as a tenant can write the annotation.
    let mut looks = std::collections::BTreeSet::new();
    let start = Instant::now();
    for value in 0..1_000 {
        if let Some(after) = look_after(&mut releases, &place, value) {
            assert!(after <= again);
            looks.insert(start.elapsed() + after);
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let last = start.elapsed() - Duration::from_millis(10);
    assert_eq!(looks.len(), 5, "{looks:?}");
    let looks: Vec<Duration> = looks.into_iter().collect();
    assert!(looks.windows(2).all(|two| two[1] - two[0] >= again), "{looks:?}");
    assert!(*looks.last().unwrap() >= last, "the last request is not lost");
    // After a while the first one is looked at at once.
    tokio::time::advance(again * 2).await;
    assert_eq!(look_after(&mut releases, &place, 1_000), Some(Duration::ZERO));
    assert_eq!(look_after(&mut releases, &place, 1_000), None, "it is the same request");
    assert_eq!(look_after(&mut releases, &place, 1_001), Some(again));
}

#[tokio::test]
async fn news_does_not_add_up_without_a_leader() {
    let context = context();
    let reader = Reader::new(context.clone());
    let running = tokio::spawn(run(context.clone(), reader));
    tokio::task::yield_now().await;
    is_seen(&context, &place(&context));
    context.signals.waiting.notify_one();
    let until = Instant::now() + Duration::from_secs(5);
    while !context.world.read().waiting.changed.is_empty() {
        assert!(Instant::now() < until, "the changes stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(context.world.read().waiting.seen.len(), 1);
    running.abort();
}
