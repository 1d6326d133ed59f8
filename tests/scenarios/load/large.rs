//! One delete of very much.

use std::time::{Duration, Instant};

use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

use crate::harness::rbac::rule;
use crate::harness::{Belay, eventually};
use crate::team::{Approver, Of, SOON, Team};
use crate::{policy, world};

/// The number of objects in the namespace. `make test-long` has ten thousand.
fn objects() -> usize {
    if crate::harness::is_long() { 10_000 } else { 2_000 }
}

/// How much memory each replica has ever used, in MiB.
fn most_memory() -> Vec<u64> {
    let of = |belay: &Belay| belay.process.peak().unwrap() / 1024;
    world().belay.replicas.iter().map(of).collect()
}

/// Creates this many ConfigMaps in parallel, and returns the number of all.
fn make(team: &Team<'_>, objects: usize) -> usize {
    use k8s_openapi::api::core::v1::ConfigMap;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = team.plane.client().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, &team.ns);
        let makers = (0..32).map(|maker| {
            let maps = maps.clone();
            tokio::spawn(async move {
                for number in (maker..objects).step_by(32) {
                    let map = json!({"metadata": {"name": format!("map-{number}")}});
                    let map = serde_json::from_value(map).unwrap();
                    maps.create(&PostParams::default(), &map).await.unwrap();
                }
            })
        });
        for maker in makers.collect::<Vec<_>>() {
            maker.await.unwrap();
        }
        let one = maps.list_metadata(&ListParams::default().limit(1)).await.unwrap();
        1 + usize::try_from(one.metadata.remaining_item_count.unwrap()).unwrap()
    })
}

#[test]
fn s30_a_namespace_with_thousands_of_objects_gets_a_fast_answer_and_is_deleted() {
    let team = Team::new(&world().plane, "s30");
    let ns = &team.ns;
    policy::protect(team.plane, ns, "configmaps", json!({"always": {}}));
    team.may(&[rule("", "namespaces", "delete")]);
    // The CA of the namespace is a ConfigMap, too.
    assert!(make(&team, objects()) >= objects());

    let object = format!("namespace/{ns}");
    // belay's answer arrives within timeoutSeconds, or the API server would report a
    // timeout. On a machine that is busy with other tests it may need a second attempt.
    let mut took = Duration::ZERO;
    let refused = eventually("a refusal in belay's own words", SOON, || {
        let begun = Instant::now();
        let refused = team.delete(&[&object]).failure()?;
        took = begun.elapsed();
        if refused.contains("(Protected)") { Ok(refused) } else { Err(refused.into()) }
    })
    .unwrap();
    assert!(refused.contains("more reasons. To override: "), "{refused}");
    assert!(refused.contains("--scope content"), "{refused}");
    team.assert_exists(&object);

    let of = Of { resource: "namespaces", group: "", name: ns, place: "" };
    team.approve(Approver::Carol, of, "Content");
    let begun = Instant::now();
    eventually("a DELETE that passes", SOON, || team.delete(&[&object]).success()).unwrap();
    team.wait_until_deleted_within(&object, Duration::from_secs(900));
    eprintln!("s30: refused in {took:?}, gone in {:?}, MiB {:?}", begun.elapsed(), most_memory());
    for most in most_memory() {
        assert!(most < 512, "a replica used {most} MiB");
    }
}
