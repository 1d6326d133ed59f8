//! Objects that are deleted with their owner or Namespace, and their approvals.

use super::*;
use crate::cluster::uninstall::owners::OwnerReads;
use crate::cluster::world::ObjectKey;

const DEPLOYMENT_GOES: &str = "its owner Deployment goes is Terminating; next: kubectl belay why \
                              deployments.apps/goes -n n";
const NAMESPACE_GOES: &str = "its Namespace n is Terminating; next: kubectl belay why namespaces/n";

pub fn deployment(name: &str, uid: &str, deleted: bool) -> (String, (u16, Value)) {
    let (code, mut object) = found(uid, deleted);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("n");
    (format!("/apis/apps/v1/namespaces/n/deployments/{name}"), (code, object))
}

pub fn namespace(deleted: bool) -> (String, (u16, Value)) {
    let (code, mut object) = found("n", deleted);
    object["metadata"]["name"] = json!("n");
    ("/api/v1/namespaces/n".to_owned(), (code, object))
}

pub fn owned(name: &str, kind: &str, owner: &str) -> (String, Value) {
    let (name, mut map) = map(name, &[HOLD], false);
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner});
    map["metadata"]["ownerReferences"] = json!([owner]);
    (name, map)
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_is_terminating_keeps_its_hold() {
    let forbidden = failure(403, "bob cannot get deployments", ("", ""));
    let others = BTreeMap::from([
        namespace(false),
        deployment("lives", "lives", false),
        deployment("goes", "goes", true),
        deployment("other", "created-again", true),
        ("/apis/apps/v1/namespaces/n/deployments/hidden".to_owned(), forbidden),
    ]);
    let maps = BTreeMap::from([
        owned("of-absent", "Deployment", "absent"),
        owned("of-another", "Deployment", "other"),
        owned("of-going", "Deployment", "goes"),
        owned("of-hidden", "Deployment", "hidden"),
        owned("of-living", "Deployment", "lives"),
        owned("of-unserved", "Widget", "w"),
    ]);
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let (report, events) = for_seconds(&client, 4).await;
    assert_eq!(report.tally.released, 4, "{report:?}");
    // An owner that can't be read may be Terminating.
    assert_eq!(held(&store), ["of-going", "of-hidden"]);
    let leaving = HeldReason::OwnerTerminating(DEPLOYMENT_GOES.to_owned());
    let [("of-going", reason), ("of-hidden", HeldReason::OwnerTerminating(why))] =
        left(&report)[..]
    else {
        panic!("{report:?}")
    };
    assert_eq!(reason, &leaving);
    assert!(why.starts_with("it is unknown whether its owner Deployment hidden is Terminating: "));
    let waits = UninstallEvent::Waits(HeldObject { target: target("of-going"), reason: leaving });
    assert!(events.contains(&waits), "{events:?}");
    // While it waits, the owner is deleted, and the object stays after all.
    let ends = async {
        sleep(Duration::from_secs(10)).await;
        store.lock().others.insert(deployment("goes", "", true).0, absent("goes"));
    };
    let (report, ()) = tokio::join!(for_seconds(&client, 30), ends);
    assert_eq!((report.0.tally.released, held(&store)), (1, vec!["of-hidden".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_namespace_is_terminating_keeps_its_hold_unless_it_is_abandoned() {
    let others = BTreeMap::from([namespace(true)]);
    let maps = BTreeMap::from([map("a", &[HOLD], false)]);
    let (client, store) = server(Store { maps, others, ..Store::default() });
    let reason = HeldReason::OwnerTerminating(NAMESPACE_GOES.to_owned());
    let dry_run = UninstallOptions { dry_run: true, ..NORMAL };
    let abandoning = UninstallOptions { abandon: true, ..dry_run };
    let reports = [
        for_seconds(&client, 4).await,
        remove_holds(&client, dry_run, true, &[]).await,
        remove_holds(&client, abandoning, true, &[]).await,
    ];
    for (report, _) in reports {
        assert_eq!(left(&report), [("a", &reason)]);
    }
    assert_eq!(held(&store), ["a"]);
    let abandon = UninstallOptions { abandon: true, ..NORMAL };
    let (report, events) = remove_holds(&client, abandon, true, &[]).await;
    assert_eq!((held(&store).len(), report.tally.abandoned), (0, 1));
    assert_eq!(events, [UninstallEvent::Abandoned(HeldObject { target: target("a"), reason })]);
}

/// An approval of the Deployment with everything that it owns, stored at this version.
fn approval(deployment: &str, version: u32) -> Value {
    let target = json!({"group": "apps", "resource": "deployments", "namespace": "n",
        "name": deployment, "uid": deployment});
    json!({
        "metadata": {"name": "a", "uid": "a", "resourceVersion": version.to_string(),
            "creationTimestamp": "2025-12-31T23:30:00Z"},
        "spec": {"targetRef": target, "approver": "bob", "reason": "because", "scope": "Content",
            "expirationTime": "2026-01-01T00:30:00Z"}
    })
}

/// A Terminating ConfigMap `waits` that the Deployment `d` owns, stored at the version `attached`,
/// and an approval of `d`, stored at the version `approved`.
fn approved_owner(attached: u32, approved: u32, protect: Value) -> Store {
    let (name, mut waits) = owned("waits", "Deployment", "d");
    waits["metadata"]["resourceVersion"] = json!(attached.to_string());
    waits["metadata"]["creationTimestamp"] = json!("2025-12-31T22:00:00Z");
    waits["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut others = rules(&[policy(protect)], &[approval("d", approved)]);
    others.extend([namespace(false), deployment("d", "d", false)]);
    Store { maps: [(name, waits)].into(), others, ..Store::default() }
}

#[tokio::test(start_paused = true)]
async fn an_approval_of_an_owner_does_not_cover_an_object_that_was_attached_later() {
    let mut store = approved_owner(9, 5, json!({"always": {}}));
    // The owner is read because of this object.
    store.maps.extend([owned("a", "Deployment", "d")]);
    let (client, store) = server(store);
    let (report, _) = for_seconds(&client, 10).await;
    assert_eq!((report.tally.released, held(&store)), (1, vec!["waits".to_owned()]));
    let [("waits", HeldReason::InUse(_))] = left(&report)[..] else { panic!("{report:?}") };
}

/// The owner `a` and its dependent `b` are ConfigMaps, and the release of `a` runs.
#[tokio::test(start_paused = true)]
async fn an_approval_of_an_owner_that_is_released_covers_only_what_was_attached_before() {
    for (attached, approved, left) in [(9, 5, vec!["b".to_owned()]), (5, 9, Vec::new())] {
        let mut store = approved_owner(attached, approved, json!({"always": {}}));
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"});
        let (_, mut dependent) = store.maps.pop_first().unwrap();
        dependent["metadata"]["name"] = json!("b");
        dependent["metadata"]["ownerReferences"] = json!([owner]);
        store.maps = [map("a", &[HOLD], true), ("b".to_owned(), dependent)].into();
        let mut approval = approval("a", approved);
        approval["spec"]["targetRef"]["group"] = json!("");
        approval["spec"]["targetRef"]["resource"] = json!("configmaps");
        store.others.append(&mut rules(&[policy(json!({"always": {}}))], &[approval]));
        let (client, store) = server(store);
        let (report, _) = for_seconds(&client, 10).await;
        let released = report.tally.released_terminating;
        assert_eq!((released, held(&store)), (2 - left.len(), left), "{attached} {approved}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_forgotten_after_its_read_unless_its_release_runs() {
    let others = BTreeMap::from([namespace(false), deployment("d", "d", true)]);
    let (name, child) = owned("a", "Deployment", "d");
    let (client, _) =
        server(Store { maps: [(name, child.clone())].into(), others, ..Store::default() });
    let snapshot = uninstall(&client, NORMAL, &|_| {}).snapshot().await.unwrap();
    let key = |group: &str, kind: &str, (namespace, name): (&str, &str)| {
        let kind = snapshot.context.world.read().graph.kinds.find(group, kind).unwrap();
        (kind, namespace.to_owned(), name.to_owned())
    };
    let owner = key("apps", "Deployment", ("n", "d"));
    let known = |(kind, namespace, name): &ObjectKey| {
        snapshot.context.world.read().graph.object(*kind, namespace, name).is_some()
    };
    let maps = key("", "ConfigMap", ("n", "a"));
    for is_released in [false, true] {
        if is_released {
            let (_, (_, mut object)) = deployment("d", "d", true);
            object["metadata"]["finalizers"] = json!([HOLD]);
            assert!(snapshot.insert_waiting(&owner, &object));
        }
        let reads = OwnerReads::new(Duration::ZERO);
        let why = reads.why_owner_terminating(&snapshot, maps.0, &child).await;
        assert!(why.unwrap().starts_with("its owner Deployment d is Terminating; next: "));
        assert_eq!((known(&owner), known(&maps)), (is_released, false));
        assert!(known(&key("", "Namespace", ("", "n"))));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_read_takes_ten_seconds_may_be_terminating() {
    let others = BTreeMap::from([namespace(false)]);
    let maps = [owned("a", "Deployment", "d")];
    let hanging = vec![(Method::GET, "/deployments/d".to_owned())];
    let (client, store) = server(Store { maps: maps.into(), others, hanging, ..Store::default() });
    let began = Instant::now();
    let limit = Duration::from_secs(100);
    let (report, _) = tokio::time::timeout(limit, for_seconds(&client, 1)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 10);
    let [("a", HeldReason::OwnerTerminating(why))] = left(&report)[..] else {
        panic!("{report:?}")
    };
    assert!(
        why.starts_with("it is unknown whether its owner Deployment d is Terminating: "),
        "{why}"
    );
    assert_eq!(held(&store), ["a"]);
}
