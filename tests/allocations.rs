//! How often the memory of a usual review is allocated, from its bytes to the bytes of its answer.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../examples/cluster/mod.rs"]
mod cluster;

use belay::decide::AdmissionPhase;
use cluster::Cluster;
use cluster::verdict::{answer, policies};
use serde_json::json;

/// The four reviews, and the most allocations of each. A change that needs fewer lowers the limit.
const LIMITS: [(&str, u64); 4] = [
    ("DELETE that is allowed", 70),
    ("DELETE that is denied", 249),
    ("UPDATE of a label", 31),
    ("CREATE that gets the hold", 27),
];

#[test]
fn a_review_allocates_seldom() {
    let cluster = Cluster::with(2_000);
    let policies = policies(&cluster.graph, 5);
    let label = json!({"metadata": {"labels": {"team": "other"}}});
    let reviews = [
        ("DELETE", "used-by-0", json!({})),
        ("DELETE", "used-by-10", json!({})),
        ("UPDATE", "used-by-10", label),
        ("CREATE", "new", json!({})),
    ];
    let mut exceeded = Vec::new();
    for ((operation, secret, patch), (review, limit)) in reviews.into_iter().zip(LIMITS) {
        let phase = match operation {
            "CREATE" => AdmissionPhase::Mutate,
            _ => AdmissionPhase::Validate,
        };
        let bytes = cluster.review(operation, "secrets", "hot", secret, &patch);
        let once = || drop(answer(&cluster.graph, &policies, &bytes, phase));
        // The first review also fills caches that live as long as the program.
        once();
        let allocations = allocation_counter::measure(once).count_total;
        if allocations > limit {
            exceeded.push(format!("{review}: {allocations} allocations, expected {limit}"));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}
