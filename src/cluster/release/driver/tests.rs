use serde_json::json;

use super::*;
use crate::cluster::list::Buffers;
use crate::cluster::local_api::{failure, local_client};
use crate::hold::{HoldRemoval, TargetState};
use crate::objects::{HOLD, Kinds};
use crate::policy::{Policy, PolicySet};

/// A driver whose API server answers each path with a status code and a body.
fn driver(answer: impl Fn(&str) -> (u16, Value) + Clone + Send + 'static) -> Driver {
    let client = local_client(move |request| Some(answer(request.uri().path())));
    let mut world = World::default();
    world.graph.kinds.learn(Kinds::custom("example.com", "v1", "Widget", "widgets", true));
    let kind = world.graph.kinds.find("", "ConfigMap").unwrap();
    let target = TargetClient {
        info: world.graph.kinds.info(kind).clone(),
        namespace: "shop".to_owned(),
        name: "settings".to_owned(),
        detail: world.detail(kind),
        buffers: Buffers::new(1),
    };
    let context = Context::of_test(client, world, &[]);
    let reader = Reader::new(context.clone());
    let shared = DriverContext::new(context, reader, GroupLimits { total: 1, per_group: 1 });
    let key = (kind, "shop".to_owned(), "settings".to_owned());
    Driver::new(shared, key, target, "u".into(), Duration::ZERO)
}

#[tokio::test]
async fn h97_a_waiting_target_needs_little_memory() {
    let mut driver = driver(|_| failure(500, "no", ("", "")));
    let pending = PendingUpdate::default();
    let waits = size_of_val(&driver.run(&pending, |_, _| {}));
    let size = waits + size_of_val(&driver) + size_of_val(&pending);
    assert!(size <= 2048, "{size} bytes");
}

#[tokio::test]
async fn a_pass_waits_for_its_turn_whatever_started_it() {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = asked.clone();
    let mut driver = driver(move |_| {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        failure(500, "no", ("", ""))
    });
    let passes = driver.shared.passes.clone();
    let turn = passes.acquire("elsewhere").await;
    let object = json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
    let pending = PendingUpdate::default();
    pending.add(|update| {
        (update.observed, update.pass_by) = (TargetState::read(&object), Some(Instant::now()));
    });
    let asked = || asked.load(std::sync::atomic::Ordering::Relaxed);
    let running = tokio::spawn(async move { driver.run(&pending, |_, _| {}).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(asked(), 0);
    drop(turn);
    while asked() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
}

#[tokio::test]
async fn a_target_that_waits_keeps_nothing_of_its_body() {
    let object = json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD],
        "annotations": {"belay.dev/release-token": "r/1"}}, "data": {"large": "x"}});
    let observed = TargetState::read(&object).unwrap();
    let mut driver = driver(move |_| (200, object.clone()));
    let reports = parking_lot::Mutex::new(String::new());
    let report =
        |_: &TargetClient, report: DriverReport| reports.lock().push_str(&format!("{report:?}"));
    let pending = PendingUpdate::default();
    pending.add(|update| update.observed = Some(observed));
    driver.handle_wakeup(false, &pending, &report).await;
    driver.handle_wakeup(true, &pending, &report).await;
    let reports = reports.into_inner();
    assert!(reports.contains("the policies have not been read"), "{reports}");
    assert!(driver.target_body.is_none() && driver.sweep.is_none());
}

#[tokio::test]
async fn the_bodies_of_the_targets_of_one_namespace_have_one_limit() {
    let driver = driver(|_| failure(500, "no", ("", "")));
    let labels: String = "x".repeat(1 << 20);
    let object = json!({"metadata": {"name": "settings", "labels": {"l": labels}}});
    let mut kept = Vec::new();
    while let Some(body) = driver.shared.keep_body("shop", Some(object.clone())).await {
        kept.push(body);
    }
    assert_eq!(kept.len(), 7);
    assert!(driver.shared.keep_body("other", Some(object.clone())).await.is_some());
    kept.clear();
    assert!(driver.shared.keep_body("shop", Some(object)).await.is_some());
}

#[tokio::test]
async fn all_concurrent_passes_of_a_namespace_have_memory_for_small_bodies() {
    let driver = driver(|_| failure(500, "no", ("", "")));
    let object = json!({"metadata": {"name": "settings", "labels": {"l": "x".repeat(8_000)}}});
    let mut kept = Vec::new();
    for _ in 0..super::super::MAX_CONCURRENT_PASSES.per_group {
        kept.push(driver.shared.keep_body("shop", Some(object.clone())).await);
    }
    assert!(kept.iter().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_pass_lasts_for_the_steps_of_its_counts() {
    let mut driver = driver(|_| failure(500, "no", ("", "")));
    let passes = driver.shared.passes.clone();
    let turn = passes.acquire("shop").await;
    assert!(StepCounter::new(&driver.budget).charge(PASS_STEPS));
    driver.end_turn(turn);
    assert_eq!(driver.budget.steps(), 0, "each pass has a budget of its own");
    let ended = Instant::now();
    let turn = passes.acquire("elsewhere").await;
    assert!(ended.elapsed() >= Duration::from_secs(3), "{:?}", ended.elapsed());
    driver.end_turn(turn);
    let ended = Instant::now();
    passes.acquire("elsewhere").await;
    assert!(ended.elapsed().is_zero(), "without a count there is no rest");
}

#[tokio::test]
async fn a_count_beyond_the_budget_of_its_pass_does_not_release() {
    let mut driver = driver(|_| failure(500, "no", ("", "")));
    {
        let mut world = driver.shared.context.world.write();
        let policy = json!({"targets": [{"apiGroups": [""], "resources": ["configmaps"]}],
            "protect": {"whileUsed": {}}});
        let policy = Policy::compile("p", &serde_json::from_value(policy).unwrap()).unwrap();
        world.policies = PolicySet::new(vec![policy], &world.catalogue);
        world.policies_current = true;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "shop", "uid": "u",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
    driver.target_body = driver.shared.keep_body("shop", Some(object)).await;
    assert_eq!(driver.check_use().await, UseCheck::Releasable(ReleaseReason::Unused));
    // The counts of one pass have one budget.
    assert!(driver.budget.steps() > 0);
    StepCounter::new(&driver.budget).charge(PASS_STEPS);
    let UseCheck::Unknown(why) = driver.check_use().await else { panic!("it was released") };
    assert_eq!(why, UnknownUse::TooManySteps);
}

#[tokio::test]
async fn a_pass_that_needs_no_reads_joins_no_sweep() {
    let mut driver = driver(|_| failure(500, "no", ("", "")));
    driver.shared.context.world.write().policies_current = true;
    let object = json!({"metadata": {"name": "settings", "namespace": "shop", "uid": "u",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [HOLD]}});
    driver.target_body = driver.shared.keep_body("shop", Some(object)).await;
    assert_eq!(driver.check_use().await, UseCheck::Releasable(ReleaseReason::Unprotected));
    assert!(driver.sweep.is_none());
}

#[tokio::test]
async fn a_target_deleted_before_the_answer_to_its_removal_was_released() {
    let object = |finalizers: Value| {
        json!({"metadata": {"name": "settings", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers,
            "annotations": {"belay.dev/release-token": "r/1"}}})
    };
    let observed = TargetState::read(&object(json!([HOLD]))).unwrap();
    let released = ReleaseEnd::Released(ReleaseReason::Unused);
    for (answer, wanted) in [
        ((200, object(json!([]))), released),
        // The result is unknown, and the target is deleted.
        (failure(500, "no", ("", "")), released),
        // The removal failed, or another writer has added the hold again.
        (failure(422, "no", ("", "")), ReleaseEnd::NoLongerHeld),
        (failure(403, "no", ("", "")), ReleaseEnd::NoLongerHeld),
        (failure(404, "no", ("configmaps", "settings")), ReleaseEnd::NoLongerHeld),
        ((200, object(json!([HOLD]))), ReleaseEnd::NoLongerHeld),
    ] {
        let reports = parking_lot::Mutex::new(Vec::new());
        let report =
            |_: &TargetClient, report: DriverReport| reports.lock().push(format!("{report:?}"));
        let mut driver = driver(move |_| answer.clone());
        driver.release_reason = Some(ReleaseReason::Unused);
        let removal = HoldRemoval::of_target(&observed).unwrap();
        driver.carry_out(Output::Remove(removal), &report).await;
        driver.carry_out(Output::Ended(ReleaseEnd::NoLongerHeld), &report).await;
        assert_eq!(reports.into_inner(), [format!("{:?}", DriverReport::Ended(wanted))]);
    }
    // Without a removal by this driver, the target was only deleted.
    let reports = parking_lot::Mutex::new(Vec::new());
    let mut driver = driver(|_| failure(404, "no", ("", "")));
    driver.release_reason = Some(ReleaseReason::Unused);
    let report =
        |_: &TargetClient, report: DriverReport| reports.lock().push(format!("{report:?}"));
    driver.carry_out(Output::Ended(ReleaseEnd::NoLongerHeld), &report).await;
    assert_eq!(
        reports.lock()[..],
        [format!("{:?}", DriverReport::Ended(ReleaseEnd::NoLongerHeld))]
    );
}
