//! Benchmarks of the graph (docs/PERFORMANCE.md): fates of a Secret with 0, 10 and
//! 1,000 users among 1k, 100k and 1M objects, fates of a Namespace of 10,000 objects,
//! and the feed from JSON.

#![allow(clippy::unwrap_used)]

#[path = "../examples/cluster/mod.rs"]
mod cluster;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use belay::graph::{DeletionRequest, Graph, Propagation, fates};
use belay::relations::Catalogue;
use cluster::Cluster;

fn fates_of_one(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fates of one Secret");
    for objects in [1_000, 100_000, 1_000_000] {
        let cluster = Cluster::with(objects);
        for users in [0, 10, 1_000] {
            if users * 2 > objects {
                continue;
            }
            let target = cluster.secret_with_users(users);
            let id = BenchmarkId::new(format!("{objects} objects"), format!("{users} users"));
            group.bench_with_input(id, &target, |bencher, target| {
                bencher.iter(|| {
                    let targets = [(*target, Propagation::Background)];
                    let fates = fates(&cluster.graph, &DeletionRequest::new(&targets));
                    // A verdict asks which users break.
                    let blockers: Vec<_> = fates
                        .broken_by(&cluster.graph, *target)
                        .take(3)
                        .map(|(u, _)| u.node.id())
                        .collect();
                    (fates.may_be_lost(*target), blockers)
                });
            });
        }
    }
    group.finish();
}

fn fates_of_a_namespace(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fates of a Namespace of 10,000 objects");
    group.sample_size(20);
    for objects in [20_000, 1_000_000] {
        let cluster = Cluster::with(objects);
        let target = cluster.namespace_of_ten_thousand();
        group.bench_function(format!("{objects} objects"), |bencher| {
            bencher.iter(|| {
                let targets = [(target, Propagation::Background)];
                fates(&cluster.graph, &DeletionRequest::new(&targets)).iter().count()
            });
        });
    }
    group.finish();
}

fn feed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("feed from JSON");
    for (kind, manifest) in cluster::manifests() {
        let json = manifest.to_string();
        let graph = Graph::default();
        let catalogue = Catalogue::new(&graph.kinds, &[]).unwrap();
        let id = graph.kinds.find(kind.0, kind.1).unwrap();
        group.throughput(Throughput::Elements(1));
        group.bench_function(kind.1, |bencher| {
            bencher.iter_batched_ref(
                Graph::default,
                |graph| {
                    catalogue.parse_and_apply(graph, id, &json).unwrap();
                },
                BatchSize::NumIterations(1000),
            );
        });
    }
    group.finish();
}

criterion_group!(benches, fates_of_one, fates_of_a_namespace, feed);
criterion_main!(benches);
