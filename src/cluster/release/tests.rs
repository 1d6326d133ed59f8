//! What is told to drivers, and what becomes of news when nobody leads.

use serde_json::json;

use super::*;
use crate::hold::Sight;

/// With an API server that never answers.
fn context() -> Context {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>(
        )
    });
    Context::of_test(kube::Client::new(service, "default"), World::default(), &[])
}

fn place(context: &Context) -> Place {
    let kind = context.world.read().graph.kinds.find_resource("", "configmaps").unwrap();
    (kind, "n".to_owned(), "c".to_owned())
}

fn is_seen(context: &Context, place: &Place) {
    let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "c",
        "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["belay.dev/hold"]}});
    let sight = Sight::of(&object).unwrap();
    let seen = Seen { sight, requested: None, unused: true, changes: 0, unwatched: true };
    let waiting = &mut context.world.write().waiting;
    waiting.seen.insert(place.clone(), seen);
    waiting.news.insert(place.clone());
}

#[tokio::test]
async fn what_is_seen_again_before_its_driver_has_ended_is_begun_anew() {
    let context = context();
    let place = place(&context);
    let mut releases = Releases::new(context.clone(), Reader::new(context.clone()));
    is_seen(&context, &place);
    releases.take_in(false);
    // The watch says that it is gone, and a look finds it.
    {
        let waiting = &mut context.world.write().waiting;
        waiting.seen.remove(&place);
        waiting.news.insert(place.clone());
    }
    releases.take_in(false);
    is_seen(&context, &place);
    releases.take_in(false);
    let ended = releases.tasks.join_next().await.unwrap().unwrap();
    releases.forget(&ended);
    assert!(releases.targets.is_empty());
    releases.take_in(false);
    assert!(releases.targets.contains_key(&place));
}

#[tokio::test]
async fn news_does_not_add_up_where_nobody_leads() {
    let context = context();
    let reader = Reader::new(context.clone());
    let running = tokio::spawn(run(context.clone(), reader));
    tokio::task::yield_now().await;
    is_seen(&context, &place(&context));
    context.signals.waiting.notify_one();
    let until = Instant::now() + Duration::from_secs(5);
    while !context.world.read().waiting.news.is_empty() {
        assert!(Instant::now() < until, "the news stays");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(context.world.read().waiting.seen.len(), 1);
    running.abort();
}
