//! Measures the memory of a graph: `cargo run --release --example memory 1000000`.

#![allow(clippy::unwrap_used)]

mod cluster;

use cluster::Cluster;

// The allocator of belay.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let objects = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let start = std::time::Instant::now();
    let cluster = Cluster::with(objects);
    let took = start.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or_default()
    };
    println!(
        "{} objects, {} edges (without those from objects to their Namespaces), {} nodes",
        cluster.graph.object_count(),
        cluster.graph.edge_count(),
        cluster.graph.node_count()
    );
    println!(
        "resident {} MiB, at its highest {} MiB, made in {took:.1?}",
        kib("VmRSS:") / 1024,
        kib("VmHWM:") / 1024
    );
}
