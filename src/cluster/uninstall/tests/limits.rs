//! The time limit, and the reports before it is reached.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_an_uninstall_although_another_client_adds_every_hold_again() {
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, restless: true, ..Store::default() });
    let began = Instant::now();
    let limit = Duration::from_secs(40);
    let (report, _) = tokio::time::timeout(limit, for_seconds(&client, 30)).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(30));
    assert!(!report.is_clean(), "{report:?}");
    // If the other client stops at that time, the last round shows it.
    store.lock().restless = false;
    assert!(for_seconds(&client, 0).await.0.is_clean());
}

#[tokio::test(start_paused = true)]
async fn h205_an_uninstall_ends_although_another_client_adds_every_hold_again() {
    let maps = BTreeMap::from([map("a", &[HOLD], false), map("b", &[HOLD], false)]);
    let (client, store) = server(Store { maps, restless: true, ..Store::default() });
    let ends =
        tokio::time::timeout(Duration::from_secs(90), remove_holds(&client, NORMAL, true, &[]));
    let (report, events) = ends.await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    let Some(UninstallEvent::Warning(text)) = events.last() else { panic!("{events:?}") };
    assert!(text.contains("to 2 objects again and again, for example configmaps/a -n n"), "{text}");
    // A hold that only its removal's failure keeps is no hold that others add.
    store.lock().always.insert("a".to_owned(), failure(403, "no", ("configmaps", "a")));
    let ends =
        tokio::time::timeout(Duration::from_secs(90), remove_holds(&client, NORMAL, true, &[]));
    let (report, _) = ends.await.unwrap();
    assert_eq!(left(&report).len(), 1, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_round_of_many_objects() {
    let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let maps = names.iter().map(|name| map(name, &[HOLD], false)).collect();
    let (client, store) = server(Store { maps, ..Store::default() });
    let began = Instant::now();
    let (report, _) = for_seconds(&client, 1).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(report.tally.released + held(&store).len(), 100);
    assert!(report.tally.released > 10 && report.left.len() == held(&store).len(), "{report:?}");
    assert!(report.left.iter().all(|held| held.reason == HeldReason::Late), "{report:?}");
    // The next uninstall continues.
    let (report, _) = remove_holds(&client, NORMAL, true, &[]).await;
    assert!(report.is_clean() && held(&store).is_empty(), "{report:?}");
}

/// Runs an uninstall with a limit in seconds, and returns how long it took.
async fn time_of(store: Store, seconds: u64) -> (f64, UninstallReport) {
    let (client, _) = server(store);
    let began = Instant::now();
    let limit = Duration::from_secs(100);
    let (report, _) = tokio::time::timeout(limit, for_seconds(&client, seconds)).await.unwrap();
    (began.elapsed().as_secs_f64(), report)
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_the_wait_for_a_release() {
    // The first write of the release gets no answer.
    let hanging = vec![(Method::PATCH, "/a".to_owned())];
    let (maps, others) = ([map("a", &[HOLD], true)].into(), rules(&[], &[]));
    let store = Store { maps, others, hanging, ..Store::default() };
    let (seconds, report) = time_of(store, 3).await;
    assert!((3.0..4.0).contains(&seconds), "{seconds}");
    assert_eq!(
        left(&report),
        [("a", &HeldReason::Unknown("its release took too long".to_owned()))]
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_check_of_many_waiting_objects() {
    // The owner is Terminating, and a check of all objects takes four seconds.
    let maps = (0..100).map(|n| owners::owned(&format!("m{n}"), "Deployment", "d")).collect();
    let others = [owners::namespace(false), owners::deployment("d", "d", true)].into();
    let (seconds, report) = time_of(Store { maps, others, ..Store::default() }, 10).await;
    assert!((10.0..11.0).contains(&seconds), "{seconds}");
    assert_eq!(report.left.len(), 100);
    assert!(report.left.iter().all(|held| matches!(held.reason, HeldReason::OwnerTerminating(_))));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_the_first_check_of_terminating_objects() {
    // A check of 16 objects at the same time takes ten seconds.
    let maps = (0..64).map(|n| map(&format!("m{n}"), &[HOLD], true)).collect();
    let hanging = (0..64).map(|n| (Method::GET, format!("/configmaps/m{n}"))).collect();
    let store = Store { maps, others: rules(&[], &[]), hanging, ..Store::default() };
    let (seconds, report) = time_of(store, 1).await;
    assert!((1.0..12.0).contains(&seconds), "{seconds}");
    let late = report.left.iter().filter(|held| held.reason == HeldReason::Late).count();
    assert_eq!((report.left.len(), late), (64, 48));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_read_of_the_policies() {
    let (client, store) = server(Store {
        maps: [map("a", &[HOLD], true)].into(),
        others: rules(&[policy(json!({"always": {}}))], &[]),
        ..Store::default()
    });
    let (began, limit) = (Instant::now(), Duration::from_secs(100));
    let hangs = async {
        sleep(Duration::from_secs(3)).await;
        store.lock().hanging.push((Method::GET, "/apis".to_owned()));
    };
    let both = async { tokio::join!(for_seconds(&client, 20), hangs) };
    let ((report, _), ()) = tokio::time::timeout(limit, both).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 20);
    let [("a", HeldReason::InUse(_))] = left(&report)[..] else { panic!("{report:?}") };
}

#[tokio::test(start_paused = true)]
async fn a_round_uses_the_policies_of_its_beginning() {
    let others = rules(&[policy(json!({"always": {}}))], &[]);
    let maps = [map("a", &[HOLD], true)].into();
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let options = UninstallOptions { dry_run: true, ..NORMAL };
    let uninstall = uninstall(&client, options, &|_| {});
    let snapshot = uninstall.snapshot().await.unwrap();
    store.lock().others.append(&mut rules(&[], &[]));
    let listed = listed_maps(&snapshot, true);
    let report = uninstall.remove_holds(snapshot, &[listed], &[]).await;
    assert_eq!((report.tally.released_terminating, left(&report)), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_comes_again_is_reported_again() {
    let protected = rules(&[policy(json!({"always": {}}))], &[]);
    let maps = [map("a", &[HOLD], true)].into();
    let (client, store) = server(Store { maps, others: protected.clone(), ..Store::default() });
    let policies = protected.keys().find(|path| path.ends_with("policies")).unwrap();
    let changes = async {
        let forbidden = failure(403, "bob cannot list policies", ("", ""));
        for answer in [&forbidden, &protected[policies]] {
            sleep(Duration::from_secs(12)).await;
            store.lock().others.insert(policies.clone(), answer.clone());
        }
    };
    let ((_, events), ()) = tokio::join!(for_seconds(&client, 40), changes);
    let waits = events.iter().filter_map(|event| match event {
        UninstallEvent::Waits(held) => Some(&held.reason),
        _ => None,
    });
    let waits: Vec<_> = waits.collect();
    let [HeldReason::InUse(_), HeldReason::Unknown(_), HeldReason::InUse(_)] = waits[..] else {
        panic!("{events:?}")
    };
}
