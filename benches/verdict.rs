//! Percentiles of verdicts, from the bytes of a review to the bytes of the answer. An
//! API server also waits for TLS and HTTP.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../examples/cluster/mod.rs"]
mod cluster;

use std::time::{Duration, Instant};

use belay::decide::AdmissionPhase;
use belay::graph::Graph;
use belay::policy::PolicySet;
use cluster::Cluster;
use cluster::verdict::{answer, policies};
use serde_json::{Value, json};

// belay uses this allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    // `cargo test --benches` runs each benchmark once as a check.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let objects = if measured { 1_000_000 } else { 20_000 };
    println!("{:<58} {:>10} {:>10} {:>10}", "", "p50", "p99", "p99.9");
    let cluster = Cluster::with(objects);
    let five = policies(&cluster.graph, 5);
    println!("{objects} objects, 5 policies");
    for users in [0, 10, 1_000] {
        let review =
            cluster.review("DELETE", "secrets", "hot", &format!("used-by-{users}"), &json!({}));
        row(
            &format!("DELETE of a Secret with {users} users"),
            measured,
            &cluster.graph,
            &five,
            &review,
        );
    }
    let review = cluster.review("DELETE", "namespaces", "", "team-0", &json!({}));
    row("DELETE of a Namespace of 10,000 objects", measured, &cluster.graph, &five, &review);
    let review = cluster.review("CREATE", "secrets", "hot", "new", &json!({}));
    row("CREATE of a Secret, which gets the hold", measured, &cluster.graph, &five, &review);
    let patch = json!({"metadata": {"labels": {"team": "other"}}});
    let review = cluster.review("UPDATE", "secrets", "hot", "used-by-10", &patch);
    row("UPDATE of a Secret: another label", measured, &cluster.graph, &five, &review);

    println!("DELETE of the Secret with 10 users");
    for number in [5, 500, 5_000] {
        let policies = policies(&cluster.graph, number);
        let review = cluster.review("DELETE", "secrets", "hot", "used-by-10", &json!({}));
        row(&format!("{number} policies"), measured, &cluster.graph, &policies, &review);
    }
}

fn row(name: &str, measured: bool, graph: &Graph, policies: &PolicySet, review: &[u8]) {
    let phase =
        if name.starts_with("CREATE") { AdmissionPhase::Mutate } else { AdmissionPhase::Validate };
    let once = || answer(graph, policies, review, phase);
    let answer: Value = serde_json::from_slice(&once()).unwrap();
    let verdict = answer["response"]["auditAnnotations"]["verdict"].as_str().unwrap().to_owned();
    let first = Instant::now();
    once();
    let budget = if measured { Duration::from_secs(4) } else { Duration::ZERO };
    let times = (budget.as_nanos() / first.elapsed().as_nanos().max(1)).clamp(20, 200_000);
    let mut samples: Vec<Duration> = (0..times)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(once());
            start.elapsed()
        })
        .collect();
    samples.sort_unstable();
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize];
    let (name, p50, p99, p999) = (format!("  {name}: {verdict}"), at(0.5), at(0.99), at(0.999));
    println!("{name:<58} {p50:>10.1?} {p99:>10.1?} {p999:>10.1?}");
}
