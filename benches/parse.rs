//! Compares the borrowed types that parse a review with a generic JSON tree, on the
//! same bytes in one run.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

use belay::decide::AdmissionPhase;
use belay::webhook::parse_review;

/// An UPDATE review of about `bytes` bytes, with two copies of a large custom resource.
fn review(bytes: usize) -> Vec<u8> {
    let entry = |n: usize| json!({"name": format!("entry-{n}"), "value": "some \"quoted\" text", "weight": n, "on": true});
    let spec: Vec<Value> = (0..bytes / 2 / 78).map(entry).collect();
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "a", "namespace": "b", "uid": "6f0e9a3c-54f1-4d5f-8a86-0f6f2b2f6a11",
                     "labels": {"app": "a", "belay.dev/protect": "Always"}, "finalizers": ["belay.dev/hold"]},
        "spec": {"entries": spec},
    });
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0b1a1a52-6f27-4c0e-9d0d-6c7d8b2f1a01", "operation": "UPDATE", "name": "a", "namespace": "b",
            "kind": {"group": "example.com", "version": "v1", "kind": "Widget"},
            "resource": {"group": "example.com", "version": "v1", "resource": "widgets"},
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
            "object": object, "oldObject": object, "options": {},
        }
    }))
    .unwrap_or_default()
}

fn parse(criterion: &mut Criterion) {
    for bytes in [2 << 10, 2_400 << 10] {
        let body = review(bytes);
        let mut group = criterion.benchmark_group(format!("review of {} KiB", body.len() >> 10));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("slim", |b| b.iter(|| parse_review(&body, AdmissionPhase::Validate)));
        group.bench_function("tree", |b| b.iter(|| serde_json::from_slice::<Value>(&body)));
        group.finish();
    }
}

criterion_group!(benches, parse);
criterion_main!(benches);
